"""Traces of training: loss, functional gradient and calibration stage by stage, and a rule that stops on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import DataError, UsageError
from assay.learning.smooth_calibration.exact import Witness, smooth_ce
from assay.learning.smooth_calibration.inputs import Vector, expit, labels
from assay.learning.smooth_calibration.measures import measure
from assay.learning.smooth_calibration.staged import staged_logits

WITNESS_POINTS = 101
KEYS = ("algo", "seed", "n", "t", "split")
COLUMNS = ("loss", "accuracy", "grad_l1", "grad_l2", "smce", "smce_dual", "smece", "ece15", "mmce")
Watched = Literal["loss", "accuracy", "grad_l1", "grad_l2", "smce", "smce_dual", "smece", "ece15", "mmce"]


def spread_stages(last: int, count: int) -> set[int]:
    """At most ``count`` stages from 1 to ``last``, evenly on a logarithmic scale, both ends among them."""
    return {int(t) for t in np.unique(np.round(np.geomspace(1, max(1, last), count)).astype(int))}


def trace(
    model: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    split: str = "test",
    stages: Iterable[int] | None = None,
    smoothed: bool = True,
) -> list[dict[str, Any]]:
    """One row a stage of a fitted model: ``t``, ``split`` and the columns of `measure`.

    Parameters
    ----------
    model
        See `staged_logits`.
    X, y
        Data to trace on; labels 0 and 1.
    split
        Written into every row.
    stages
        Which stages; None = all.
    """
    wanted = None if stages is None else set(stages)
    rows = [
        {"t": t, "split": split, **measure(y, g, smoothed=smoothed)}
        for t, g in staged_logits(model, X)
        if wanted is None or t in wanted
    ]
    if not rows:
        raise UsageError("None of the stages asked for is among the model's; leave stages out to see all.")
    return rows


def curve(witness: Witness, points: int = WITNESS_POINTS) -> list[dict[str, float]]:
    """The witness on an even grid between the smallest and the largest prediction: ``at`` and ``witness``."""
    at = np.linspace(witness.points[0], witness.points[-1], points)
    return [{"at": float(u), "witness": float(h)} for u, h in zip(at, witness(at), strict=True)]


def witness_trace(
    model: Any, X: ArrayLike, y: ArrayLike, *, stages: Iterable[int] | None = None, points: int = WITNESS_POINTS
) -> list[dict[str, float]]:
    """The witness stage by stage: ``t``, ``at``, ``witness``; parameters as `trace`. Draw it with `witness_map`."""
    target, wanted = labels(y, "y"), None if stages is None else set(stages)
    rows: list[dict[str, float]] = []
    for t, g in staged_logits(model, X):
        if wanted is None or t in wanted:
            rows += _witness_rows(t, target, g, points)
    if not rows:
        raise UsageError("None of the stages asked for is among the model's; leave stages out to see all.")
    return rows


def _witness_rows(t: int, y: ArrayLike, logit: ArrayLike, points: int) -> list[dict[str, float]]:
    _, witness = smooth_ce(y, expit(np.asarray(logit, float)), return_witness=True)
    return [{"t": t, **point} for point in curve(witness, points)]


def save_traces(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write traces as Parquet: algo, seed, n, t, split, the columns of `measure`, then what else the rows hold.

    Raises
    ------
    DataError
        No row, or a row without one of those columns; the message names it.
    """
    import polars as pl

    held = [dict(row) for row in rows]
    if not held:
        raise DataError("There is no trace to write; trace at least one stage.")
    for number, row in enumerate(held):
        missing = [c for c in (*KEYS, *COLUMNS) if c not in row]
        if missing:
            raise DataError(f"Row {number} of the traces has no {', '.join(missing)}; add it.")
    frame = pl.from_dicts(held, infer_schema_length=None)
    first = [pl.col(c).cast(pl.Float64) if c in COLUMNS else pl.col(c) for c in (*KEYS, *COLUMNS)]
    frame.select(*first, pl.exclude(*KEYS, *COLUMNS)).write_parquet(path)


def read_traces(path: Path) -> list[dict[str, Any]]:
    """Rows of `save_traces`, checked: its columns are there, calibration errors and shares lie in [0, 1].

    Raises
    ------
    DataError
        A missing column, or a value outside its range; the message names the row.
    """
    from assay.core.datasets import read_table

    frame = read_table(path)
    missing = [c for c in (*KEYS, *COLUMNS) if c not in frame.columns]
    if missing:
        raise DataError(f"{path} has no column {missing[0]!r}; it has {', '.join(frame.columns)}.")
    rows = frame.to_dicts()
    for number, row in enumerate(rows):
        for column in COLUMNS:
            value = row[column]
            number_in_range = isinstance(value, int | float) and 0 <= value <= (np.inf if column == "loss" else 1)
            if not number_in_range:
                raise DataError(f"{path}, row {number + 1}, column {column}: {value!r} is outside its range.")
    return rows


def best_stage(rows: Iterable[dict[str, Any]], on: Watched = "smce") -> int:
    """Stage of a trace at which ``on`` is best; the earliest among equals."""
    found = list(rows)
    if not found:
        raise DataError("The trace is empty.")
    if on not in found[0]:
        raise UsageError(f"The trace has no column {on!r}; it has {', '.join(found[0])}.")
    sign = -1.0 if on == "accuracy" else 1.0
    return int(min(found, key=lambda row: (sign * row[on], row["t"]))["t"])


@dataclass(slots=True)
class StopRule:
    """Stop once ``on`` has not improved by more than ``tolerance`` for ``patience`` stages.

    Attributes
    ----------
    witness_points
        Points of the witness kept a stage, for `witness_map`; 0 = none.
    best_stage, best_value
        Where it was best so far; 0 and infinity before the first stage.
    rows, witnesses
        The trace so far.
    """

    on: Watched = "smce"
    patience: int = 20
    tolerance: float = 0.0
    witness_points: int = 0
    best_stage: int = 0
    best_value: float = float("inf")
    rows: list[dict[str, Any]] = field(default_factory=list)
    witnesses: list[dict[str, float]] = field(default_factory=list)

    def update(self, t: int, y: ArrayLike, logit: ArrayLike) -> bool:
        """Note a stage; whether to stop."""
        row = {"t": t, **measure(y, logit, smoothed=self.on == "smece")}
        self.rows.append(row)
        if self.witness_points:
            self.witnesses += _witness_rows(t, y, logit, self.witness_points)
        value = -row[self.on] if self.on == "accuracy" else row[self.on]
        if value < self.best_value - self.tolerance:
            self.best_stage, self.best_value = t, value
        return t - self.best_stage >= self.patience


def xgboost_callback(X: ArrayLike, y: ArrayLike, rule: StopRule) -> Any:
    """Callback for ``xgboost.train`` and ``XGBClassifier``: traces, and stops by ``rule``."""
    import xgboost
    from xgboost.callback import TrainingCallback

    data = xgboost.DMatrix(X)

    class Callback(TrainingCallback):
        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            # The rule counts stages from 1, as the traces do.
            return rule.update(epoch + 1, y, model.predict(data, output_margin=True))

    return Callback()


def lightgbm_callback(X: ArrayLike, y: ArrayLike, rule: StopRule) -> Callable[[Any], None]:
    """Callback for ``lightgbm.train`` and ``LGBMClassifier.fit(callbacks=[...])``: traces, and stops by ``rule``."""
    from lightgbm.callback import EarlyStopException

    def callback(env: Any) -> None:
        if rule.update(env.iteration + 1, y, np.asarray(env.model.predict(X, raw_score=True))):
            raise EarlyStopException(rule.best_stage - 1, [("valid", rule.on, rule.best_value, rule.on == "accuracy")])

    return callback


def stopped(stages: Iterable[tuple[int, Vector]], y: ArrayLike, rule: StopRule) -> int:
    """Best stage by ``rule`` of `staged_logits` on validation data, reading no further than needed."""
    for t, g in stages:
        if rule.update(t, y, g):
            break
    return rule.best_stage
