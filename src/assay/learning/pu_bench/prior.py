"""The class prior from positive-unlabelled data: best-bin estimation, and what ``prior=`` of an estimator may be."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.learning.pu_bench.errors import BadInput


def bbe(
    labelled: ArrayLike, unlabelled: ArrayLike, *, delta: float = 0.1, gamma: float = 0.01, compatible: bool = False
) -> float:
    """Best-bin estimate of the share of positives among unlabelled rows (Garg et al. 2021, arXiv 2111.00980).

    The ratio of survival functions of unlabelled and labelled scores, at the threshold where its upper confidence bound
    is lowest. Sorting and counting: O(n log n).

    Parameters
    ----------
    labelled, unlabelled
        Scores of rows that the classifier was not trained on, larger is more positive.
    delta, gamma
        Confidence and slack of the bound.
    compatible
        Count unlabelled rows strictly above the threshold, as the first public code does.

    Returns
    -------
    float
        In [0.01, 0.99]; 0.5 where no threshold qualifies.
    """
    p, u = np.sort(np.asarray(labelled, float)), np.asarray(unlabelled, float)
    if not len(p) or not len(u):
        raise BadInput("The estimate needs scores of labelled and of unlabelled rows.")
    if not (np.isfinite(p).all() and np.isfinite(u).all()):
        raise BadInput("A score is not finite.")
    slack = (1 + gamma) * (
        math.sqrt(math.log(4 / delta) / (2 * len(p))) + math.sqrt(math.log(4 / delta) / (2 * len(u)))
    )
    cuts, ties = np.unique(-u, return_counts=True)
    above = np.cumsum(ties) - ties
    reached = above if compatible else above + ties
    of_labelled = len(p) - np.searchsorted(p, -cuts, side="left")
    usable = (above >= 1) & (of_labelled > 1)
    if not usable.any():
        return 0.5
    share = of_labelled[usable] / len(p)
    ratio = (reached[usable] / len(u)) / share
    return float(np.clip(ratio[np.argmin(ratio + slack / share)], 0.01, 0.99))


class BBEPrior:
    """The prior by best-bin estimation, on scores of a classifier of labelled against unlabelled rows, out of fold.

    Parameters
    ----------
    classifier
        scikit-learn classifier; None = logistic regression on standardised features.
    folds
        Every row is scored by a model that has not seen it.
    random_state
        Of the folds.

    Attributes
    ----------
    prior_
        After `fit`.
    """

    def __init__(self, classifier: Any = None, folds: int = 5, random_state: int | None = 0) -> None:
        self.classifier, self.folds, self.random_state = classifier, folds, random_state

    def fit(self, X: ArrayLike, s: ArrayLike, groups: ArrayLike | None = None) -> BBEPrior:
        """Estimate from features (n, ...) and labels; ``groups`` keeps copies of a row in one fold."""
        from sklearn.base import clone
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        flat = np.asarray(X, float).reshape(len(np.asarray(X)), -1)
        labelled = np.asarray(s) == 1
        if labelled.sum() < 2 or (~labelled).sum() < 2:
            raise BadInput(
                "The prior cannot be estimated from fewer than 2 labelled and 2 unlabelled rows; give prior=."
            )
        model = self.classifier or make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
        folds = min(self.folds, int(labelled.sum()), int((~labelled).sum()))
        fold = fold_of(labelled, folds, groups, np.random.default_rng(self.random_state))
        scores = np.empty(len(flat))
        for at in range(folds):
            out = fold == at
            fresh: Any = clone(model)
            fitted = fresh.fit(flat[~out], labelled[~out])
            scores[out] = fitted.predict_proba(flat[out])[:, 1]
        self.prior_ = bbe(scores[labelled], scores[~labelled])
        return self


def fold_of(
    labelled: NDArray[np.bool_], folds: int, groups: ArrayLike | None, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Fold of each row: rows of one group together, labelled and other groups dealt out evenly."""
    keys = np.arange(len(labelled)) if groups is None else np.asarray(groups)
    names, place = np.unique(keys, return_inverse=True)
    has_label = np.zeros(len(names), bool)
    np.logical_or.at(has_label, place, labelled)
    dealt = np.empty(len(names), np.int64)
    for side in (has_label, ~has_label):
        members = rng.permutation(np.flatnonzero(side))
        dealt[members] = np.arange(len(members)) % folds
    return dealt[place]


ESTIMATORS = ("bbe", "tice", "km2")
"""Names of `BBEPrior`, `assay.learning.pu_bench.mixture.TIcEPrior` and `KernelMeanPrior`."""


def prior_estimator(name: str, seed: int = 0) -> Any:
    """The estimator called ``name``, with ``fit(X, s, groups)`` or ``fit(X, s)`` and ``prior_``.

    Raises
    ------
    BadInput
        No such name.
    """
    if name == "bbe":
        return BBEPrior(random_state=seed % 2**32)
    from assay.learning.pu_bench.mixture import KernelMeanPrior, TIcEPrior

    if name == "tice":
        return TIcEPrior(random_state=seed % 2**32)
    if name == "km2":
        return KernelMeanPrior(random_state=seed % 2**32)
    raise BadInput(
        f"prior must be a number in (0, 1), one of {', '.join(ESTIMATORS)}, None, a function or an estimator; "
        f"got {name!r}."
    )


def resolve_prior(prior: Any, X: NDArray, s: NDArray, groups: NDArray | None, seed: int) -> float:
    """A prior as a number: given, of a function of (X, s), of an estimator with ``prior_``, or estimated by name
    (None = bbe).
    """
    if prior is None or isinstance(prior, str):
        prior = prior_estimator(prior or "bbe", seed)
    if hasattr(prior, "fit"):
        from sklearn.base import clone

        model: Any = clone(prior) if hasattr(prior, "get_params") else prior
        takes_groups = "groups" in inspect.signature(model.fit).parameters
        value = (model.fit(X, s, groups=groups) if takes_groups else model.fit(X, s)).prior_
    elif callable(prior):
        value = prior(X, s)
    else:
        value = prior
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise BadInput(
            f"prior must be a number in (0, 1), a name ({', '.join(ESTIMATORS)}), None, a function or an estimator; "
            f"got {prior!r}."
        ) from None
    if not 0 < number < 1:
        raise BadInput(f"prior must lie strictly between 0 and 1; got {number}.")
    return number
