"""Logits stage by stage, of this room's trainers and of scikit-learn, XGBoost and LightGBM models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from assay.core.errors import UsageError
from assay.learning.smooth_calibration.inputs import Vector, expit, logit_of
from assay.learning.smooth_calibration.measures import measure


class StagedBinaryClassifier(ClassifierMixin, BaseEstimator):
    """What the three trainers share: checking, classes, probabilities from logits, and the trace of training.

    Attributes
    ----------
    trace_ : list of dict
        The training part after every stage: ``t``, ``split``, and the columns of `measure` without smECE.
    """

    n_stages: int
    stages_: NDArray[np.int64]
    trace_: list[dict[str, Any]]

    def _begin(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], Vector]:
        if self.n_stages < 1:
            raise ValueError(f"n_stages={self.n_stages} is below 1.")
        x, labels = validate_data(self, cast(Any, X), cast(Any, y), dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(np.asarray(labels), return_inverse=True)
        if len(self.classes_) > 2:
            raise ValueError(f"Only binary classification is supported. The type of the target is multiclass, with "
                             f"{len(self.classes_)} classes.")  # fmt: skip
        if len(self.classes_) < 2:
            raise ValueError("Training needs two classes; y has one class.")
        self.trace_ = []
        return np.asarray(x), codes.astype(np.float64)

    def _note(self, y: Vector, g: Vector) -> None:
        """Add the stage just taken to ``trace_``."""
        self.trace_.append({"t": len(self.trace_) + 1, "split": "train", **measure(y, g, smoothed=False)})

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to X of shape (n, d) and two classes."""
        raise NotImplementedError

    def staged_decision_function(self, X: ArrayLike) -> Iterator[Vector]:
        """Logits after each stage of ``stages_``, shape (n,)."""
        raise NotImplementedError

    def decision_function(self, X: ArrayLike) -> Vector:
        """Logits, shape (n,)."""
        g = np.empty(0)
        for g in self.staged_decision_function(X):  # noqa: B007 - the last one is wanted
            pass
        return g

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of both classes, shape (n, 2)."""
        p = expit(self.decision_function(X))
        return np.column_stack([1 - p, p])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likelier class, shape (n,)."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def staged_logits(model: Any, X: ArrayLike) -> Iterator[tuple[int, Vector]]:
    """(stage, logits of shape (n,)) of a fitted binary model.

    Parameters
    ----------
    model
        Anything with ``staged_decision_function`` (scikit-learn's boosting, this room's trainers), an XGBoost or
        LightGBM classifier or booster; any other classifier gives its final logits as stage 1.

    Raises
    ------
    UsageError
        Nothing to read logits from, or more than two classes.
    """
    if hasattr(model, "staged_decision_function"):
        numbers = getattr(model, "stages_", None)
        for place, g in enumerate(model.staged_decision_function(X)):
            yield place + 1 if numbers is None else int(numbers[place]), _flat(g)
        return
    booster, library = booster_of(model)
    if library == "xgboost":
        yield from _xgboost(booster, X)
    elif library == "lightgbm":
        yield from _lightgbm(booster, X)
    else:
        yield 1, logits_of(model, X)


def logits_of(model: Any, X: ArrayLike) -> Vector:
    """Final logits: from ``predict_proba`` (what users act upon), else ``decision_function``."""
    if hasattr(model, "staged_decision_function") and hasattr(model, "decision_function"):
        return _flat(model.decision_function(X))
    booster, library = booster_of(model)
    if library == "xgboost":
        if booster is not model:
            # The estimator knows its best iteration, the booster does not act upon it.
            return _flat(model.predict(X, output_margin=True))
        return _flat(booster.predict(_dmatrix(booster, X), output_margin=True))
    if library == "lightgbm":
        return _flat(booster.predict(X, raw_score=True))
    if hasattr(model, "predict_proba"):
        p = np.asarray(model.predict_proba(X), float)
        if p.ndim != 2 or p.shape[1] != 2:
            raise UsageError(
                f"{type(model).__name__} predicts {p.shape} probabilities; smooth calibration is for two classes."
            )
        return logit_of(p[:, 1])
    if hasattr(model, "decision_function"):
        return _flat(model.decision_function(X))
    raise UsageError(f"{type(model).__name__} has neither predict_proba nor decision_function.")


def booster_of(model: Any) -> tuple[Any, str | None]:
    """The booster inside an XGBoost or LightGBM model and the library's name; (model, None) for others."""
    home = type(model).__module__.partition(".")[0]
    if home == "xgboost":
        return (model.get_booster() if hasattr(model, "get_booster") else model), home
    if home == "lightgbm":
        return (model.booster_ if hasattr(model, "booster_") else model), home
    return model, None


def _flat(g: Any) -> Vector:
    found = np.asarray(g, dtype=np.float64)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.ndim != 1:
        raise UsageError(f"The model gives decisions of shape {found.shape}; smooth calibration is for two classes.")
    return found


def _xgboost(booster: Any, X: ArrayLike) -> Iterator[tuple[int, Vector]]:
    data = _dmatrix(booster, X)
    rounds = booster.num_boosted_rounds()
    total = base = None
    for t in range(rounds):
        # Each slice adds the same base score; one round alone minus it is that round's step.
        step = _flat(booster.predict(data, iteration_range=(t, t + 1), output_margin=True))
        if total is None or base is None:
            total = step
            if rounds > 1:
                first_two = _flat(booster.predict(data, iteration_range=(0, 2), output_margin=True))
                second = _flat(booster.predict(data, iteration_range=(1, 2), output_margin=True))
                base = step + second - first_two
        else:
            total = total + step - base
        yield t + 1, total


def _lightgbm(booster: Any, X: ArrayLike) -> Iterator[tuple[int, Vector]]:
    total: Vector | float = 0.0
    for t in range(booster.num_trees()):
        total = total + _flat(booster.predict(X, start_iteration=t, num_iteration=1, raw_score=True))
        yield t + 1, total


def _dmatrix(booster: Any, X: ArrayLike) -> Any:
    import xgboost

    return xgboost.DMatrix(X, feature_names=booster.feature_names)
