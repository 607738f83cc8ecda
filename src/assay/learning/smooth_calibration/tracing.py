"""Traces of training: loss, functional gradient and calibration stage by stage, and a rule that stops on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import DataError, UsageError
from assay.learning.smooth_calibration.exact import smooth_ce, smooth_ce_logit
from assay.learning.smooth_calibration.inputs import Vector, expit, log_loss_of_logits, logits, paired
from assay.learning.smooth_calibration.measures import ece, mmce, smece
from assay.learning.smooth_calibration.staged import staged_logits

COLUMNS = ("loss", "accuracy", "grad_l1", "grad_l2", "smce", "smce_dual", "smece", "ece15", "mmce")
Watched = Literal["loss", "accuracy", "grad_l1", "grad_l2", "smce", "smce_dual", "smece", "ece15", "mmce"]


def measure(y_true: ArrayLike, logit: ArrayLike, *, smoothed: bool = True) -> dict[str, float]:
    """The columns of a trace for one set of logits; ``smoothed=False`` leaves out smECE, the slow one."""
    y, g = paired(y_true, logit, logits)
    p = expit(g)
    residual = p - y
    found = {
        "loss": float(log_loss_of_logits(y, g).mean()),
        "accuracy": float(np.mean((g > 0) == (y == 1))),
        "grad_l1": float(np.abs(residual).mean()),
        "grad_l2": float(np.sqrt((residual**2).mean())),
        "smce": smooth_ce(y, p),
        "smce_dual": smooth_ce_logit(y, g),
        "ece15": ece(y, p),
        "mmce": mmce(y, p),
    }
    return found | {"smece": smece(y, p)} if smoothed else found


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
    best_stage, best_value
        Where it was best so far; 0 and infinity before the first stage.
    rows
        The trace so far.
    """

    on: Watched = "smce"
    patience: int = 20
    tolerance: float = 0.0
    best_stage: int = 0
    best_value: float = float("inf")
    rows: list[dict[str, Any]] = field(default_factory=list)

    def update(self, t: int, y: ArrayLike, logit: ArrayLike) -> bool:
        """Note a stage; whether to stop."""
        row = {"t": t, **measure(y, logit, smoothed=self.on == "smece")}
        self.rows.append(row)
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
