"""What all classifiers of irregular series share: one input form, labels, and checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from assay.core.errors import DataError, UsageError
from assay.learning.irregular.array import Array, IrregularArray
from assay.learning.irregular.dense import to_dense


@dataclass(frozen=True, slots=True)
class Panel:
    """Left-packed series: ``values`` [n, channels, T] with NaN, ``times`` [n, T] with NaN after each series' end."""

    values: Array
    times: Array

    def __len__(self) -> int:
        return len(self.values)

    @property
    def lengths(self) -> Array:
        """Time stamps of each series, int64 [n]."""
        there: Array = ~np.isnan(self.times)
        return np.where(there.any(axis=1), self.times.shape[1] - np.argmax(there[:, ::-1], axis=1), 0)

    def take(self, rows: Array) -> Panel:
        """Some of the series."""
        return Panel(self.values[rows], self.times[rows])


def panel_of(X: Any, times: ArrayLike | None = None) -> Panel:
    """Panel of what a user has.

    Parameters
    ----------
    X
        An `IrregularArray`; an array (n, channels, T), or (n, T) for one channel, NaN where nothing is; or n arrays
        (channels, T_i).
    times
        (n, T) or (n, 1, T); None = 0, 1, 2 ... up to each series' last observed column.
    """
    if isinstance(X, IrregularArray):
        values, stamps = to_dense(X)
        return Panel(values, stamps[:, 0])
    if isinstance(X, (list, tuple)) and len(X) and not np.isscalar(X[0]) and np.ndim(X[0]) == 2:
        values = _padded(X)
    else:
        values = _numeric(X)
    given = values.shape
    if values.ndim == 2:
        values = values[:, None, :]
    if values.ndim != 3:
        raise ValueError(
            f"Series need shape (n, channels, time), or (n, time); got {values.ndim} dimensions. Reshape your data."
        )
    if len(values) == 0:
        raise ValueError(f"Found array with 0 sample(s) (shape={given}) while a minimum of 1 is required.")
    if values.shape[1] * values.shape[2] == 0:
        raise ValueError(f"Found array with 0 feature(s) (shape={given}) while a minimum of 1 is required.")
    if np.isinf(values).any():
        raise ValueError("Input X contains infinity; NaN alone marks what is missing.")
    n, _, length = values.shape
    if times is None:
        seen = np.asarray(~np.isnan(values).all(axis=1))
        last = np.where(seen.any(axis=1), length - np.argmax(seen[:, ::-1], axis=1), 0)
        steps = np.arange(length, dtype=float)
        return Panel(values, np.where(steps < last[:, None], steps, np.nan))
    stamps = np.asarray(times, float)
    if stamps.size != n * length:
        raise DataError(f"Times have shape {stamps.shape}; values {values.shape} need ({n}, {length}).")
    return Panel(values, stamps.reshape(n, length))


def is_flat(X: Any) -> bool:
    """Whether series come as a table (n, time) of one channel."""
    if isinstance(X, IrregularArray):
        return False
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and not np.isscalar(X[0]) and np.ndim(X[0]) == 1
    return np.asarray(X).ndim == 2


def _numeric(X: Any) -> Array:
    if hasattr(X, "toarray"):
        raise TypeError("Sparse matrices are not taken; a dense array with NaN, or an IrregularArray, is required.")
    found = np.asarray(X)
    if found.dtype.kind == "c":
        raise ValueError("Complex data not supported.")
    return found.astype(float)


def _padded(X: Sequence[ArrayLike]) -> Array:
    series = [np.asarray(x, float) for x in X]
    channels = {x.shape[0] for x in series if x.ndim == 2}
    if any(x.ndim != 2 for x in series) or len(channels) > 1:
        raise DataError("A list of series needs arrays of shape (channels, time) with the same channels.")
    out = np.full((len(series), series[0].shape[0], max(x.shape[1] for x in series)), np.nan)
    for at, x in enumerate(series):
        out[at, :, : x.shape[1]] = x
    return out


class SeriesClassifier(ClassifierMixin, BaseEstimator):
    """A classifier with ``fit(X, y, times=None)``, ``predict`` and ``predict_proba``.

    ``fit`` takes an `IrregularArray` too, whose config ``default`` then gives the labels. A subclass defines
    ``_fit(panel, codes)`` and ``_proba(panel)`` (shape (n, classes)).
    """

    classes_: Array
    n_features_in_: int

    def fit(self, X: Any, y: ArrayLike | None = None, times: ArrayLike | None = None) -> Any:
        """Learn; a class that has no second one beside it is learnt as the only answer."""
        if y is None:
            if not isinstance(X, IrregularArray):
                raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
            y, _ = X.target_and_split()
        panel = panel_of(X, times)
        labels = np.asarray(y)
        if labels.ndim == 2 and labels.shape[1] == 1:
            import warnings

            from sklearn.exceptions import DataConversionWarning

            warnings.warn(
                "A column-vector y was passed when a 1d array was expected.", DataConversionWarning, stacklevel=2
            )
            labels = labels.ravel()
        if labels.shape != (len(panel),):
            raise ValueError(f"y has shape {labels.shape}, but there are {len(panel)} series.")
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        self.n_features_in_ = panel.values.shape[-1] if panel.values.shape[1] == 1 else panel.values.shape[1]
        self.n_channels_ = panel.values.shape[1]
        self._univariate_length = panel.values.shape[-1] if is_flat(X) else None
        if len(self.classes_) > 1:
            self._fit(panel, codes.ravel())
        return self

    def predict_proba(self, X: Any, times: ArrayLike | None = None) -> Array:
        """Probabilities of `classes_`, shape (n, classes)."""
        check_is_fitted(self, "classes_")
        panel = panel_of(X, times)
        if panel.values.shape[1] != self.n_channels_:
            raise UsageError(f"Series have {panel.values.shape[1]} channels, but were fitted with {self.n_channels_}.")
        if self._univariate_length is not None and is_flat(X) and panel.values.shape[-1] != self._univariate_length:
            raise ValueError(
                f"X has {panel.values.shape[-1]} features, but {type(self).__name__} is expecting "
                f"{self._univariate_length} features as input."
            )
        if len(self.classes_) == 1:
            return np.ones((len(panel), 1))
        return self._proba(panel)

    def predict(self, X: Any, times: ArrayLike | None = None) -> Array:
        """The most probable class; ties go to the lower one."""
        probabilities = self.predict_proba(X, times)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def _fit(self, panel: Panel, codes: Array) -> None:
        raise NotImplementedError

    def _proba(self, panel: Panel) -> Array:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags


def match_length(values: Array, length: int) -> Array:
    """Values [..., T] cut or padded with NaN to ``length`` columns: tabular heads see the training length."""
    if values.shape[-1] >= length:
        return values[..., :length]
    pad = np.full((*values.shape[:-1], length - values.shape[-1]), np.nan)
    return np.concatenate([values, pad], axis=-1)


def standardise(values: Array) -> Array:
    """Each channel of each series over its own observed values: (x - mean) / (population deviation + 1e-8)."""
    seen = ~np.isnan(values)
    count = np.maximum(seen.sum(axis=2, keepdims=True), 1)
    mean = np.where(seen, values, 0.0).sum(axis=2, keepdims=True) / count
    spread = np.sqrt((np.where(seen, values - mean, 0.0) ** 2).sum(axis=2, keepdims=True) / count)
    return (values - mean) / (spread + 1e-8)


def interpolate(values: Array) -> Array:
    """Inner gaps of each channel filled linearly by column, edges within the series carried over; the end stays NaN."""
    out = values.copy()
    columns = np.arange(values.shape[2])
    seen_any = np.asarray(~np.isnan(values).all(axis=1))
    for i, series in enumerate(values):
        if not seen_any[i].any():
            continue
        stop = values.shape[2] - int(np.argmax(seen_any[i][::-1]))
        for c, row in enumerate(series[:, :stop]):
            there = ~np.isnan(row)
            if not there.all() and there.any():
                out[i, c, :stop] = np.interp(columns[:stop], columns[:stop][there], row[there])
    return out
