"""CostOfPass: dollars a correct answer costs, the frontier over models and experts, and what moves it.

Reference: "Cost-of-Pass: An Economic Framework for Evaluating Language Models", arXiv 2504.13359.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import polars as pl

from assay.core.errors import DataError, UsageError, unknown_name
from assay.reasoning.cost_of_pass import records as reading
from assay.reasoning.cost_of_pass.decay import HalfLife, fit_half_life, months_between
from assay.reasoning.cost_of_pass.values import (
    ExpertCost,
    Law,
    cost_of_pass,
    expert_costs,
    frontier,
    gain,
    technique_gain,
)

if TYPE_CHECKING:
    from assay.reasoning.cost_of_pass.prices import PriceBook
    from assay.reasoning.cost_of_pass.resampling import Bootstrap

Groups = str | Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Frontier:
    """Frontier of a data set.

    Attributes
    ----------
    value
        Mean over problems of the cheapest cost-of-pass, USD.
    per_problem
        (P,) that minimum.
    winners
        Who attains it, a problem; the expert's name where no model is cheaper (ties go to the model).
    """

    value: float
    per_problem: np.ndarray
    winners: tuple[str, ...]
    problems: tuple[str, ...]
    at_expert: int

    def __float__(self) -> float:
        return self.value

    def frame(self) -> pl.DataFrame:
        """One row a problem: problem, winner, cost_of_pass."""
        return pl.DataFrame(
            {"problem": self.problems, "winner": self.winners, "cost_of_pass": self.per_problem},
            schema={"problem": pl.String, "winner": pl.String, "cost_of_pass": pl.Float64},
        )


class CostOfPass:
    """Estimates of one data set from anybody's records.

    Parameters
    ----------
    records
        pandas or polars frame, list of dictionaries, a run or runs. Columns by assay's or the published names: model
        (or system, model_name), problem (or what ``by`` says), run or attempt, correct (or metric_score), and the cost:
        ``cost``, or tokens with prices a token, or assay's ``calls``. Optional: technique, family, release_date,
        seconds, cluster, completed or status.
    expert_cost
        USD a problem; an `Expert`; several (the cheapest counts); or a mapping from problem to USD. None = no expert,
        and only statements that need none.
    by
        Column that tells problems apart.
    score
        Column of successes (0, 1) or of probabilities of acceptance in [0, 1].
    task
        Data set, where the records hold several.
    errors
        Incomplete records: ``raise``, ``exclude``, or ``fail`` (paid and wrong).
    missing
        Problems that not every strategy tried: ``raise`` or ``drop``.
    prices, on
        Price book, and the day whose prices count, to price tokens anew.
    prompt
        ``billed`` prompt tokens, or the bare ``question`` only (the published "theoretical" cost).
    hour_value
        USD that an hour of waiting is worth; added to the cost of each attempt by its seconds.
    law
        Cost-of-pass as a function of mean cost and rate; see `assay.reasoning.cost_of_pass.laws`.

    Raises
    ------
    DataError
        See `assay.reasoning.cost_of_pass.records.normalise` and `cells`.
    """

    def __init__(
        self,
        records: Any,
        expert_cost: ExpertCost | None = None,
        by: str = "problem",
        *,
        score: str | None = None,
        task: str | None = None,
        errors: reading.Errors = "raise",
        missing: reading.Missing = "raise",
        prices: PriceBook | None = None,
        on: date | None = None,
        prompt: Literal["billed", "question"] = "billed",
        hour_value: float = 0.0,
        law: Law = cost_of_pass,
    ) -> None:
        frame = reading.normalise(
            records,
            by=by,
            score=score,
            task=task,
            errors=errors,
            prices=prices,
            on=on,
            prompt=prompt,
            hour_value=hour_value,
        )
        self._build(frame, expert_cost, law, missing)
        if not self.binary:
            warnings.warn(
                "Scores are not all 0 or 1: cost-of-pass holds only if a score is a probability of acceptance.",
                stacklevel=2,
            )

    def _build(self, frame: pl.DataFrame, expert_cost: ExpertCost | None, law: Law, missing: reading.Missing) -> None:
        self.table = frame
        self.law = law
        self.cells = reading.cells(frame, missing=missing)
        self.values = law(self.cells.costs, self.cells.rates)
        self.binary = bool(np.isin(self.cells.record_scores, (0.0, 1.0)).all())
        self._missing: reading.Missing = missing
        self._expert_cost = expert_cost
        self.expert, self.expert_name = expert_costs(expert_cost, self.cells.problems)
        facts = [name for name in ("family", "release_date") if name in frame.columns]
        self.strategies = (
            frame.group_by("strategy")
            .agg(pl.col("model", "technique", *facts).first(), pl.len().alias("records"))
            .sort("strategy")
        )

    @classmethod
    def by_task(
        cls, records: Any, expert_cost: ExpertCost | Mapping[str, ExpertCost] | None = None, **options: Any
    ) -> dict[str, Self]:
        """One estimator a data set.

        Parameters
        ----------
        expert_cost
            For all, or a mapping from data set to expert cost (a data set that it lacks has no expert).
        """
        frame = reading.as_polars(records)
        column = next((name for name in reading.ALIASES["task"] if name in frame.columns), None)
        if column is None:
            return {"": cls(frame, expert_cost, **options)}  # pyright: ignore[reportArgumentType]
        tasks = frame.get_column(column).cast(pl.String).unique().sort().to_list()
        return {
            task: cls(
                frame,
                expert_cost.get(task) if isinstance(expert_cost, Mapping) else expert_cost,
                task=task,
                **options,
            )
            for task in tasks
        }

    def adjusted(self, law: Law | None = None, expert_cost: ExpertCost | None = None) -> CostOfPass:
        """Same records under another law or expert."""
        other = object.__new__(type(self))
        other._build(
            self.table, self._expert_cost if expert_cost is None else expert_cost, law or self.law, self._missing
        )
        return other

    def reprice(self, prices: PriceBook, on: date | None = None) -> CostOfPass:
        """Same records at other prices: no model is asked again.

        Raises
        ------
        DataError
            Records without tokens, or a model that the book does not know.
        """
        other = object.__new__(type(self))
        other._build(prices.apply(self.table, on=on), self._expert_cost, self.law, self._missing)
        return other

    def cost_of_pass(self) -> pl.DataFrame:
        """One row a strategy and problem: attempts, accuracy, cost (of an attempt, USD), cost_of_pass (USD)."""
        grid = self.cells
        m, p = self.values.shape
        return pl.DataFrame(
            {
                "model": np.repeat(np.array(grid.strategies, dtype=object), p).tolist(),
                "problem": list(grid.problems) * m,
                "attempts": grid.counts.ravel(),
                "accuracy": grid.rates.ravel(),
                "cost": grid.costs.ravel(),
                "cost_of_pass": self.values.ravel(),
            }
        )

    def summary(self) -> pl.DataFrame:
        """One row a strategy: accuracy, cost of an attempt, frontier alone, problems at the expert, unsolved ones."""
        single = self.values if self.expert is None else np.minimum(self.values, self.expert)
        never = np.isinf(self.values).sum(axis=1)
        at_expert = never if self.expert is None else (self.values > self.expert).sum(axis=1)
        return self.strategies.with_columns(
            pl.Series("accuracy", self.cells.rates.mean(axis=1)),
            pl.Series("cost", self.cells.costs.mean(axis=1)),
            pl.Series("frontier", single.mean(axis=1)),
            pl.Series("at_expert", at_expert),
            pl.Series("unsolved", never),
        )

    def frontier(self, models: Iterable[str] | None = None, include_expert: bool = True) -> Frontier:
        """Mean over problems of the cheapest cost-of-pass: never a ratio of means, never a minimum of means.

        Parameters
        ----------
        models
            Names of models or strategies; None = all, () = the expert alone.
        include_expert
            Let the expert take what is dearer by model.

        Raises
        ------
        DataError
            No expert was given, or without the expert some problem is solved by no one.
        """
        chosen = self._chosen(models)
        values = self.values[chosen]
        expert = self._need_expert() if include_expert else None
        best = frontier(values, expert)
        if not include_expert and np.isinf(best).any():
            first = self.cells.problems[int(np.argmax(np.isinf(best)))]
            raise DataError(
                f"{int(np.isinf(best).sum())} of {len(best)} problems are solved by no model (first: {first!r}), so "
                "the "
                "frontier without expert is infinite; include the expert."
            )
        names = np.array([*np.array(self.cells.strategies, dtype=object)[chosen], self.expert_name], dtype=object)
        lowest = np.min(values, axis=0, initial=np.inf)
        at_expert = lowest > best
        winner = np.where(at_expert, len(chosen), np.argmin(values, axis=0) if len(chosen) else len(chosen))
        return Frontier(float(best.mean()), best, tuple(names[winner]), self.cells.problems, int(at_expert.sum()))

    def progress(self, release_dates: Mapping[str, date | str] | None = None) -> pl.DataFrame:
        """Frontier as models came out.

        Parameters
        ----------
        release_dates
            Day a model (or strategy) came out; None = the column release_date. Models of one day enter in order of
            name.

        Returns
        -------
        DataFrame
            One row a strategy in order of release: model, release_date, months since the first, frontier, gain (USD),
            relative_gain, normalised (over the expert's cost).

        Raises
        ------
        DataError
            A model without release date.
        """
        expert = self._need_expert()
        days = [self._released(row, release_dates) for row in self.strategies.iter_rows(named=True)]
        order = sorted(range(len(days)), key=lambda i: (days[i], self.cells.strategies[i]))
        running = np.minimum(np.minimum.accumulate(self.values[order], axis=0), expert).mean(axis=1)
        start = float(np.mean(expert))
        before = np.concatenate(([start], running[:-1]))
        return pl.DataFrame(
            {
                "model": [self.cells.strategies[i] for i in order],
                "release_date": [days[i] for i in order],
                "months": [months_between(days[order[0]], days[i]) for i in order],
                "frontier": running,
                "gain": before - running,
                "relative_gain": (before - running) / before,
                "normalised": running / start,
            }
        )

    def half_life(self, release_dates: Mapping[str, date | str] | None = None, level: float = 0.95) -> HalfLife:
        """Months in which the frontier halves: fit of a exp(-b t) + c to `progress`, one point a release day."""
        curve = self.progress(release_dates).group_by("months").agg(pl.col("frontier").min()).sort("months")
        return fit_half_life(
            curve.get_column("months").to_numpy(), curve.get_column("frontier").to_numpy(), level=level
        )

    def essentialness(self, groups: Groups = "family") -> pl.DataFrame:
        """Share of the frontier's cost that a group keeps away: [V(all but it) - V(all)] / V(all but it), in [0, 1).

        Parameters
        ----------
        groups
            ``family``, ``model``, ``technique``, ``strategy``, or a mapping from name to models.

        Returns
        -------
        DataFrame
            group, models, frontier (all), without (USD), essentialness; most essential first.
        """
        expert = self._need_expert()
        members = self._groups(groups)
        if not members:
            raise DataError("There are no groups; give a mapping from name to models.")
        everything = float(frontier(self.values, expert).mean())
        without = self._without([index for _, index in members])
        left = np.minimum(without, expert).mean(axis=1)
        return pl.DataFrame(
            {
                "group": [name for name, _ in members],
                "models": [len(index) for _, index in members],
                "frontier": [everything] * len(members),
                "without": left,
                "essentialness": [gain(float(value), everything) for value in left],
            }
        ).sort("essentialness", "group", descending=[True, False])

    def technique_gain(self, technique: str, base: str = "vanilla", models: Iterable[str] | None = None) -> float:
        """Relative gain when models may also use a technique: [V(base) - V(base or technique)] / V(base).

        Parameters
        ----------
        technique, base
            Names in the column technique.
        models
            Whose strategies count; None = all that have both (the paper leaves reasoning models out).
        """
        frame = self.strategies.with_row_index("i")
        for name in (technique, base):
            if name not in frame.get_column("technique").to_list():
                raise unknown_name("technique", name, frame.get_column("technique").unique().to_list())
        wanted = None if models is None else set(models)
        rows = {
            name: {
                row["model"]: row["i"]
                for row in frame.filter(pl.col("technique") == name).iter_rows(named=True)
                if wanted is None or row["model"] in wanted
            }
            for name in (base, technique)
        }
        both = sorted(rows[base].keys() & rows[technique].keys())
        if not both:
            raise DataError(f"No model was tried both with {base!r} and with {technique!r}.")
        pick = [np.array([rows[name][model] for model in both]) for name in (base, technique)]
        return technique_gain(self.values[pick[0]], self.values[pick[1]], self._need_expert())

    def expert_sensitivity(self, factors: Sequence[float] = (0.1, 0.25, 0.5, 1, 2, 4, 10)) -> pl.DataFrame:
        """Frontier when the expert costs a multiple: factor, expert_cost, frontier, at_expert (problems)."""
        expert = self._need_expert()
        best = frontier(self.values)
        rows = []
        for factor in factors:
            if not 0 < factor < float("inf"):
                raise UsageError(f"A factor on the expert's cost must be above 0; got {factor}.")
            scaled = expert * factor
            rows.append(
                {
                    "factor": float(factor),
                    "expert_cost": float(scaled.mean()),
                    "frontier": float(np.minimum(best, scaled).mean()),
                    "at_expert": int((best > scaled).sum()),
                }
            )
        return pl.DataFrame(rows)

    def bootstrap(
        self,
        n: int = 10_000,
        unit: Literal["nested", "problems", "runs"] = "nested",
        seed: int | np.random.Generator = 0,
        *,
        groups: Groups | None = None,
    ) -> Bootstrap:
        """Resample the frontier, each strategy's own, and the essentialness of groups.

        Parameters
        ----------
        n
            Resamples.
        unit
            ``problems`` (their clusters), ``runs`` within each problem, or ``nested``: problems, then runs.
        groups
            As in `essentialness`; None = ``family`` where known, else ``model``.
        """
        from assay.reasoning.cost_of_pass.resampling import bootstrap

        return bootstrap(self, n, unit, np.random.default_rng(seed), groups=groups)

    def _need_expert(self) -> np.ndarray:
        if self.expert is None:
            raise DataError("This needs the cost of an expert: give expert_cost= (USD a problem).")
        return self.expert

    def _chosen(self, models: Iterable[str] | None) -> np.ndarray:
        if models is None:
            return np.arange(len(self.cells.strategies))
        names = [models] if isinstance(models, str) else list(models)
        index: list[int] = []
        for name in names:
            found = [
                i
                for i, row in enumerate(self.strategies.iter_rows(named=True))
                if name in (row["strategy"], row["model"])
            ]
            if not found:
                raise unknown_name("model", name, self.cells.strategies)
            index += [i for i in found if i not in index]
        return np.array(index, dtype=int)

    def _groups(self, groups: Groups) -> list[tuple[str, np.ndarray]]:
        if not isinstance(groups, str):
            empty = next((name for name, models in groups.items() if not models), None)
            if empty is not None:
                raise DataError(f"Group {empty!r} names no model; give each group its models.")
            return [(name, self._chosen(models)) for name, models in groups.items()]
        if groups not in ("family", "model", "technique", "strategy"):
            raise unknown_name("grouping", groups, ("family", "model", "technique", "strategy"))
        if groups not in self.strategies.columns:
            raise DataError(f"Records have no column {groups!r}; give groups= as a mapping from name to models.")
        labels = self.strategies.get_column(groups)
        if labels.null_count():
            lost = self.strategies.filter(pl.col(groups).is_null()).get_column("strategy")[0]
            raise DataError(
                f"Model {lost!r} has no {groups}; tag it, or give groups= as a mapping from name to models."
            )
        return [(str(name), np.flatnonzero((labels == name).to_numpy())) for name in labels.unique().sort()]

    def _without(self, members: Sequence[np.ndarray]) -> np.ndarray:
        """(G, P) minimum over the strategies outside each group."""
        problems = self.values.shape[1]
        if sum(map(len, members)) == len(self.cells.strategies) == len(set(np.concatenate(members or [np.array([])]))):
            # A partition: the minimum without a group is the smallest minimum of the others, from the two smallest.
            minima = np.stack([frontier(self.values[index]) for index in members])
            if len(minima) == 1:
                return np.full((1, problems), np.inf)
            owner = minima.argmin(axis=0)
            two = np.partition(minima, 1, axis=0)[:2]
            return np.where(np.arange(len(minima))[:, None] == owner, two[1], two[0])
        every = np.arange(len(self.cells.strategies))
        return np.stack([frontier(self.values[np.setdiff1d(every, index)]) for index in members])

    def _released(self, row: Mapping[str, Any], given: Mapping[str, date | str] | None) -> date:
        if given is not None:
            value = given.get(row["strategy"], given.get(row["model"]))
        else:
            value = row.get("release_date")
        if value is None:
            raise DataError(f"Model {row['model']!r} has no release date; give release_dates={{model: 'YYYY-MM-DD'}}.")
        if isinstance(value, str):
            try:
                return date.fromisoformat(value[:10])
            except ValueError:
                raise DataError(f"Release date {value!r} of model {row['model']!r} is not YYYY-MM-DD.") from None
        if not isinstance(value, date):
            raise DataError(f"Release date {value!r} of model {row['model']!r} is not a day; write YYYY-MM-DD.")
        return value.date() if isinstance(value, datetime) else value
