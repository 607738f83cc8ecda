"""Scores of predicted labels, and significance against guessing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import DataError


def classification_scores(truth: ArrayLike, predicted: ArrayLike) -> dict[str, float]:
    """Accuracy, balanced accuracy (recall by class), F1 macro and weighted by class size, as scikit-learn counts them.

    F1 is over the classes among truth or predictions, 0 where a class has neither hits nor any chance of one.
    """
    y, p = np.asarray(truth).ravel(), np.asarray(predicted).ravel()
    if y.shape != p.shape or len(y) == 0:
        raise DataError(f"There are {len(p)} predictions for {len(y)} series; every series needs one.")
    classes = np.unique(np.concatenate([y, p]))
    hits = np.array([np.sum((y == c) & (p == c)) for c in classes], float)
    real = np.array([np.sum(y == c) for c in classes], float)
    said = np.array([np.sum(p == c) for c in classes], float)
    f1 = 2 * hits / (real + said)
    there = real > 0
    return {
        "accuracy": float(np.mean(y == p)),
        "balanced_accuracy": float(np.mean(hits[there] / real[there])),
        "f1_macro": float(f1.mean()),
        "f1_weighted": float(np.average(f1, weights=real)),
    }


def above_chance(hits: int, n: int, chance: float) -> tuple[float, float]:
    """(p that guessing does as well or better, p that it does as badly or worse): one-sided binomial tests."""
    from scipy.stats import binomtest

    return (
        float(binomtest(hits, n, chance, alternative="greater").pvalue),
        float(binomtest(hits, n, chance, alternative="less").pvalue),
    )


def aligned(predicted: Sequence[Any], classes: Sequence[Any]) -> list[Any]:
    """Predictions brought to the type of the classes: JSON and CSV turn 1 into "1" or 1.0."""
    table = {str(c): c for c in classes} | {str(float(c)): c for c in classes if isinstance(c, (int, float))}
    return [table.get(str(p), p) for p in predicted]
