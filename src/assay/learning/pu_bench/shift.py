"""Are probabilities right, with the truth and without it? What becomes of them where positives are rarer?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.learning.pu_bench.errors import BadInput
from assay.learning.pu_bench.generator import resample_by_prevalence


def calibration_scores(y_true: ArrayLike, probability: ArrayLike, *, bins: int = 15) -> dict[str, float]:
    """Brier score, log loss and expected calibration error of P(y=1 | x).

    Parameters
    ----------
    y_true
        1 positive, anything else negative, (n,).
    probability
        In [0, 1], (n,); for the log loss kept off 0 and 1 by 1e-7.
    bins
        Of equal width; the error is the mean over rows of |share of positives - mean probability| of their bin.
    """
    truth, p = (np.asarray(y_true) == 1).astype(float), _probabilities(probability)
    if len(truth) != len(p):
        raise BadInput(f"y_true has {len(truth)} rows and probability {len(p)}.")
    if bins < 1:
        raise BadInput(f"bins must be at least 1; got {bins}.")
    q = np.clip(p, 1e-7, 1 - 1e-7)
    gap = np.bincount(np.minimum((p * bins).astype(int), bins - 1), weights=truth - p, minlength=bins)
    return {
        "brier": float(((p - truth) ** 2).mean()),
        "log_loss": float(-(truth * np.log(q) + (1 - truth) * np.log1p(-q)).mean()),
        "ece": float(np.abs(gap).sum() / len(p)),
    }


def pu_brier_score(s: ArrayLike, probability: ArrayLike, prior: float) -> float:
    """Brier score without true classes: mean p^2 of unlabelled rows plus prior times mean (1 - 2 p) of labelled ones.

    Its expectation is the Brier score on rows like the unlabelled ones where labels were given at random; it may be
    negative. NaN where labelled or unlabelled rows are missing.
    """
    labelled, p = np.asarray(s) == 1, _probabilities(probability)
    if len(labelled) != len(p):
        raise BadInput(f"s has {len(labelled)} rows and probability {len(p)}.")
    _share("prior", prior)
    if labelled.all() or not labelled.any():
        return math.nan
    return float((p[~labelled] ** 2).mean() + prior * (1 - 2 * p[labelled]).mean())


def at_another_prior(probability: ArrayLike, prior: float, target: float) -> NDArray[np.float64]:
    """P(y=1 | x) where the share of positives is ``target``, from P(y=1 | x) where it is ``prior``; Bayes' rule.

    References
    ----------
    Saerens, Latinne and Decaestecker 2002.
    """
    p = _probabilities(probability)
    _share("prior", prior)
    _share("target", target)
    positive, negative = p * target / prior, (1 - p) * (1 - target) / (1 - prior)
    return positive / (positive + negative)


def shifted_tests(
    y: ArrayLike, priors: Sequence[float] = (0.1, 0.3, 0.5, 0.7, 0.9), *, random_state: int | np.random.Generator = 0
) -> Iterator[tuple[float, NDArray[np.int64]]]:
    """(share of positives, rows of a test set thinned to it), for each share; rows keep their classes."""
    rng = np.random.default_rng(random_state)
    for prior in priors:
        yield prior, np.sort(resample_by_prevalence(y, prior, random_state=rng))


def _probabilities(probability: ArrayLike) -> NDArray[np.float64]:
    p = np.asarray(probability, float)
    if p.ndim != 1 or not len(p) or not ((p >= 0) & (p <= 1)).all():
        raise BadInput("probability must be one number in [0, 1] a row, and hold at least one row.")
    return p


def _share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise BadInput(f"{name} must lie strictly between 0 and 1; got {value}.")
