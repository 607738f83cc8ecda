"""Scores of predictions, with the truth and without it. Pure functions of arrays."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.learning.pu_bench.errors import BadInput

Setting = Literal["case_control", "single"]


def classification_scores(y_true: ArrayLike, y_pred: ArrayLike, score: ArrayLike) -> dict[str, float | None]:
    """Accuracy, precision, recall, F1 of the positive class, macro F1 and AUC against the truth.

    Parameters
    ----------
    y_true, y_pred
        1 positive, anything else negative, (n,).
    score
        Larger is more positive, (n,).

    Returns
    -------
    dict
        ``auc`` is None with one class only; precision without predicted positives is 0, as recall without positives.
    """
    from sklearn import metrics

    kit: Any = metrics

    truth, predicted = np.asarray(y_true) == 1, np.asarray(y_pred) == 1
    ranked = np.asarray(score, float)
    if not len(truth) == len(predicted) == len(ranked) or not len(truth):
        raise BadInput(
            f"Truth, predictions and scores differ in length: {len(truth)}, {len(predicted)}, {len(ranked)}."
        )
    if not np.isfinite(ranked).all():
        raise BadInput("A score is not finite.")
    return {
        "accuracy": float((truth == predicted).mean()),
        "precision": float(kit.precision_score(truth, predicted, zero_division=0)),
        "recall": float(kit.recall_score(truth, predicted, zero_division=0)),
        "f1": float(kit.f1_score(truth, predicted, zero_division=0)),
        "f1_macro": float(kit.f1_score(truth, predicted, average="macro", zero_division=0)),
        "auc": float(kit.roc_auc_score(truth, ranked)) if truth.any() and not truth.all() else None,
    }


def zero_one_risk(s: ArrayLike, logits: ArrayLike, prior: float) -> float:
    """Unbiased zero-one risk on positive-unlabelled data: prior (R_L+ - R_L-) + R_U-; may be negative."""
    labelled, positive = _sides(s), np.asarray(logits, float) > 0
    if labelled.all() or not labelled.any():
        return math.nan
    miss = float((~positive[labelled]).mean())
    return prior * (miss - (1 - miss)) + float(positive[~labelled].mean())


def proxy_accuracy_score(
    s: ArrayLike, y_pred: ArrayLike, prior: float, scenario: Setting | str = "case_control"
) -> float:
    """Proxy accuracy: ranks models without true labels, up to a constant as their accuracy; may exceed 1.

    Parameters
    ----------
    s
        1 labelled, anything else unlabelled, (n,).
    y_pred
        1 predicted positive, anything else negative, (n,).
    prior
        Share of positives among unlabelled rows, in (0, 1).
    scenario
        ``case_control``: 2 prior TPR_L + TNR_U. ``single``: the second term is the share of correct rows among all,
        an unlabelled row being correct when predicted negative.

    Returns
    -------
    float
        NaN where labelled or unlabelled rows are missing.
    """
    labelled, positive = _sides(s), np.asarray(y_pred) == 1
    if len(labelled) != len(positive):
        raise BadInput(f"s has {len(labelled)} rows and y_pred {len(positive)}.")
    if not 0 < prior < 1:
        raise BadInput(f"prior must lie strictly between 0 and 1; got {prior}.")
    if labelled.all() or not labelled.any():
        return math.nan
    found = float(positive[labelled].mean())
    if scenario in ("case_control", "case-control"):
        return 2 * prior * found + float((~positive[~labelled]).mean())
    if scenario in ("single", "one_sample"):
        return 2 * prior * found + float((positive == labelled).mean())
    raise BadInput(f"scenario={scenario!r} is not known; there are case_control, single.")


def proxy_auc_score(s: ArrayLike, score: ArrayLike) -> float:
    """AUC of labelled against unlabelled rows; NaN where one kind is missing."""
    from sklearn.metrics import roc_auc_score

    labelled = _sides(s)
    if labelled.all() or not labelled.any():
        return math.nan
    return float(roc_auc_score(labelled, np.asarray(score, float)))


def prior_threshold(scores: ArrayLike, prior: float) -> float:
    """Threshold above which a share ``prior`` of the scores lies (round(prior n) rows, fewer where scores tie)."""
    ranked = np.sort(np.asarray(scores, float))[::-1]
    if not 0 < prior < 1:
        raise BadInput(f"prior must lie strictly between 0 and 1; got {prior}.")
    count = min(len(ranked), max(0, round(prior * len(ranked))))
    if count == 0:
        return float(ranked[0])
    if count == len(ranked):
        return float(np.nextafter(ranked[-1], -np.inf))
    return float((ranked[count - 1] + ranked[count]) / 2)


def _sides(s: ArrayLike) -> NDArray[np.bool_]:
    labelled = np.asarray(s) == 1
    if labelled.ndim != 1:
        raise BadInput(f"s must be one label a row; its shape is {labelled.shape}.")
    return labelled
