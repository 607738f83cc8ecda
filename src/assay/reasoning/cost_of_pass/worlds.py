"""From runs of any benchmark to estimators, one a data set, with what a reader must know beside them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from assay.core.errors import DataError, UsageError, unknown_name
from assay.reasoning.cost_of_pass.estimator import CostOfPass, Groups
from assay.reasoning.cost_of_pass.experts import published_class
from assay.reasoning.cost_of_pass.prices import PriceBook
from assay.reasoning.cost_of_pass.records import as_polars

if TYPE_CHECKING:
    from assay.core.results import Runs


@dataclass(frozen=True, slots=True)
class World:
    """One data set.

    Attributes
    ----------
    label
        Name of the data set; with the benchmark's where several take part.
    notes
        What was left out, and why.
    """

    label: str
    cop: CostOfPass
    notes: tuple[str, ...]


def worlds(
    runs: Runs,
    *,
    score: str | None = None,
    expert_cost: float | None = None,
    condition: str | None = None,
    task: str | None = None,
    prices: PriceBook | None = None,
    on: date | None = None,
    hour_value: float = 0.0,
) -> list[World]:
    """Estimators from runs.

    Parameters
    ----------
    score
        Column of successes; None = ``correct``, else the first score that is only 0 or 1.
    expert_cost
        USD a problem; None = the benchmark's own figure (group ``expert_cost``), or no expert.
    condition
        Group that makes several strategies of one system (a technique, a harness): its values are compared on the same
        clusters. None = ``technique`` where there is one.
    task
        One data set only.

    Raises
    ------
    UsageError
        No such score, condition or task.
    DataError
        See `CostOfPass`.
    """
    frame = as_polars(runs)
    if condition is not None:
        if condition not in frame.columns:
            raise unknown_name("group", condition, frame.columns)
        if condition != "technique":
            frame = frame.drop("technique", strict=False).rename({condition: "technique"})
    chosen = score or default_score(frame)
    if chosen not in frame.columns:
        raise unknown_name("score", chosen, [name for name, kind in frame.schema.items() if kind.is_float()])
    if task is not None:
        tasks = frame.get_column("task").unique().to_list()
        if task not in tasks:
            raise unknown_name("task", task, tasks)
        frame = frame.filter(pl.col("task") == task)
    found = []
    several = frame.get_column("benchmark").n_unique() > 1 if "benchmark" in frame.columns else False
    keys = ["benchmark", "task"] if several else ["task"]
    for key, part in sorted(frame.partition_by(keys, as_dict=True).items()):
        label = ".".join(map(str, key))
        cop, notes = _world(label, part, chosen, expert_cost, prices, on, hour_value)
        if cop is not None:
            found.append(World(label, cop, notes))
    if not found:
        raise UsageError(f"No record of these runs has the score {chosen!r}.")
    return found


def _world(
    label: str,
    part: pl.DataFrame,
    score: str,
    expert_cost: float | None,
    prices: PriceBook | None,
    on: date | None,
    hour_value: float,
) -> tuple[CostOfPass | None, tuple[str, ...]]:
    notes: list[str] = []
    broken = part.filter(pl.col("status").is_in(["error", "timeout"])).height
    if broken:
        notes.append(f"{label}: {broken} of {part.height} records are errors and left out.")
    lacking = part.filter((pl.col("status") == "ok") & pl.col(score).is_null()).height
    if lacking:
        notes.append(f"{label}: score {score} does not apply to {lacking} records.")
        part = part.filter((pl.col("status") != "ok") | pl.col(score).is_not_null())
    if part.filter(pl.col("status") == "ok").is_empty():
        return None, ()
    expert: Any = expert_cost
    if expert is None and "expert_cost" in part.columns and part.get_column("expert_cost").null_count() == 0:
        by = "cluster" if "technique" in part.columns else "sample"
        costs = part.select(by, "expert_cost").unique(by)
        expert = dict(zip(costs.get_column(by).cast(pl.String), costs.get_column("expert_cost"), strict=True))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cop = CostOfPass(
            part,
            expert,
            score=score,
            errors="exclude",
            missing="drop",
            prices=prices,
            on=on,
            hour_value=hour_value,
        )
    notes += [f"{label}: {warning.message}" for warning in caught if issubclass(warning.category, UserWarning)]
    tried = part.get_column("cluster" if "technique" in part.columns else "sample").n_unique()
    if len(cop.cells.problems) < tried:
        notes.append(f"{label}: {tried - len(cop.cells.problems)} problems are left out: not every strategy has them.")
    return cop, tuple(notes)


def default_score(frame: pl.DataFrame) -> str:
    """``correct``, else the first column of numbers that are all 0 or 1.

    Raises
    ------
    UsageError
        There is none.
    """
    if "correct" in frame.columns:
        return "correct"
    known = {"cost", "expert_cost", "seconds", "cpu_seconds", "peak_memory_mb"}
    for name, kind in frame.schema.items():
        if kind.is_float() and name not in known:
            values = frame.get_column(name).drop_nulls()
            if len(values) and values.is_in([0.0, 1.0]).all():
                return name
    raise UsageError("These runs have no score of successes (0 or 1); name a score with score=NAME.")


def grouping(cop: CostOfPass, groups: str) -> Groups:
    """What a user calls a grouping, as `CostOfPass.essentialness` takes it.

    Parameters
    ----------
    groups
        ``family``, ``model``, ``technique``, ``strategy``; ``class`` (lightweight, large, reasoning: the paper's ten
        models, or a tag ``class``); ``auto``; or ``name=model|model;name=model``.
    """
    models = cop.strategies.get_column("model").unique().sort().to_list()
    if groups == "auto":
        if all(published_class(model) for model in models):
            groups = "class"
        elif "family" in cop.strategies.columns and not cop.strategies.get_column("family").null_count():
            groups = "family"
        else:
            groups = "model"
    if groups == "class":
        classes: dict[str, list[str]] = {}
        for model in models:
            found = published_class(model)
            if found is None:
                raise DataError(f"Model {model!r} is none of the paper's ten; name groups as 'cheap=A|B;large=C'.")
            classes.setdefault(found, []).append(model)
        return classes
    if "=" not in groups:
        return groups
    mapping: dict[str, list[str]] = {}
    for part in filter(None, groups.split(";")):
        name, mark, members = part.rpartition("=") if part.count("=") == 1 else part.partition("=")
        chosen = [one.strip() for one in members.split("|") if one.strip()]
        if not mark or not chosen:
            raise UsageError(f"Group {part!r} is not of the form name=model|model.")
        mapping[name.strip()] = chosen
    return mapping


def price_book(path: str | None) -> PriceBook:
    """Book of a file, or the lists that assay knows."""
    if path == "litellm":
        return PriceBook.litellm()
    return PriceBook() if path is None else PriceBook.read(Path(path))
