"""One trial: train on a split, measure both parts, check the inequalities that must hold at every stage."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.core.benchmark import Outcome
from assay.learning.smooth_calibration import data
from assay.learning.smooth_calibration.exact import smooth_ce, smooth_ce_logit
from assay.learning.smooth_calibration.inputs import expit
from assay.learning.smooth_calibration.measures import bins_of, brier, measure
from assay.learning.smooth_calibration.staged import staged_logits
from assay.learning.smooth_calibration.tracing import curve, spread_stages

SCORES = ("smce", "smce_dual", "smece", "ece15", "mmce", "brier", "loss", "accuracy", "train_smce", "train_smce_dual",
          "train_grad_l1", "gap", "excess", "mean_grad_l1", "bound", "margin")  # fmt: skip
WITNESS_POINTS = 41


def train_and_measure(
    system: Any, name: str, n: int, rng: np.random.Generator, *, stages: int, file: str | None = None
) -> Outcome:
    """Outcome of one split: scores of the last stage, a trace, the witness.

    A model whose predictions are not finite has failed: no scores, and the group ``failed`` says why.
    """
    from sklearn.base import clone

    parts = data.split(name, n, rng, file)
    model: Any = clone(system)
    if "random_state" in model.get_params():
        model.set_params(random_state=int(rng.integers(2**31 - 1)))
    model.fit(parts.x_train, parts.y_train.astype(int))
    train = list(staged_logits(model, parts.x_train))
    test = list(staged_logits(model, parts.x_test))
    if not all(np.isfinite(g).all() for _, g in (train[-1], test[-1])):
        return Outcome(dict.fromkeys(SCORES), groups={"failed": "predictions are not finite"})
    last = len(train) - 1
    kept = spread_stages(last + 1, stages)
    rows: list[dict[str, Any]] = []
    gradients, excess = [], -np.inf
    for place, (t, g) in enumerate(train):
        l1 = float(np.abs(expit(g) - parts.y_train).mean())
        gradients.append(l1)
        # Every stage, kept or not: the dual error never exceeds the L1 norm of the functional gradient.
        excess = max(excess, smooth_ce_logit(parts.y_train, g) - l1)
        if place + 1 in kept:
            for part, y, logit in (("train", parts.y_train, g), ("test", parts.y_test, test[place][1])):
                rows.append({"t": t, "split": part, **measure(y, logit)})
    final = {part: next(row for row in reversed(rows) if row["split"] == part) for part in ("train", "test")}
    p = expit(test[-1][1])
    _, witness = smooth_ce(parts.y_test, p, return_witness=True)
    held = bins_of(parts.y_test, p, strategy="quantile")
    history = getattr(model, "history_", None)
    known = {
        "mean_grad_l1": float(np.mean(history.grad_l1)) if history else float(np.mean(gradients)),
        "bound": _finite(getattr(model, "training_bound_", None)),
        "margin": _finite(history.least_margin if history else None),
    }
    measured = {c: final["test"][c] for c in ("smce", "smce_dual", "smece", "ece15", "mmce", "loss", "accuracy")}
    return Outcome(
        {
            **measured,
            "brier": brier(parts.y_test, p),
            "train_smce": final["train"]["smce"],
            "train_smce_dual": final["train"]["smce_dual"],
            "train_grad_l1": final["train"]["grad_l1"],
            "gap": abs(final["test"]["smce"] - final["train"]["smce"]),
            "excess": excess,
            **known,
        },
        output={
            "witness": curve(witness, WITNESS_POINTS),
            "bins": [
                {"predicted": float(f), "observed": float(o), "samples": int(c)}
                for f, o, c in zip(held.predicted, held.observed, held.counts, strict=True)
            ],
        },
        groups={"failed": "no", "stages": last + 1, "n_test": len(p)},
        rows=rows,
    )


def _finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)
