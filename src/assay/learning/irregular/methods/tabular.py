"""Classifiers that turn series into a table first: LightGBM on values, MiniRocket, bags of receptive fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from assay.core.errors import MissingExtra, UsageError
from assay.learning.irregular.array import Array
from assay.learning.irregular.methods.base import Panel, SeriesClassifier, interpolate, match_length
from assay.learning.irregular.methods.distance import relative_intervals, unit_times

# MiniRocket's kernels have nine taps.
_SHORTEST = 9
# Penalties of Rocket's authors, and scikit-learn's defaults, which iborf takes.
ROCKET_ALPHAS = tuple(10.0**k for k in np.linspace(-3, 3, 10))
IBORF_ALPHAS = (0.1, 1.0, 10.0)


def boosting(random_state: int | None, **options: Any) -> Any:
    """LightGBM as published: defaults, one thread."""
    try:
        from lightgbm import LGBMClassifier
    except ImportError as error:
        raise MissingExtra("LightGBM", "irregular") from error
    return LGBMClassifier(n_jobs=1, random_state=random_state, verbosity=-1, **options)


def probabilities(head: Any, features: Any) -> Array:
    """Probabilities of a scikit-learn head on a plain table."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return head.predict_proba(features)


class LGBM(SeriesClassifier):
    """LightGBM on the flattened left-packed values, NaN and all.

    Parameters
    ----------
    use_times
        The time stamps, from 0 to 1 by series, as a further channel.
    min_child_samples, n_estimators
        Of LightGBM.
    """

    def __init__(
        self,
        use_times: bool = False,
        min_child_samples: int = 20,
        n_estimators: int = 100,
        random_state: int | None = None,
    ) -> None:
        self.use_times = use_times
        self.min_child_samples = min_child_samples
        self.n_estimators = n_estimators
        self.random_state = random_state

    def _table(self, panel: Panel) -> Array:
        values = panel.values
        if self.use_times:
            values = np.concatenate([values, unit_times(panel)[:, None]], axis=1)
        return match_length(values, self._length).reshape(len(panel), -1)

    def _fit(self, panel: Panel, codes: Array) -> None:
        self._length = panel.values.shape[2]
        head = boosting(self.random_state, min_child_samples=self.min_child_samples, n_estimators=self.n_estimators)
        self.head_ = head.fit(self._table(panel), codes)

    def _proba(self, panel: Panel) -> Array:
        return probabilities(self.head_, self._table(panel))


class Rocket(SeriesClassifier):
    """MiniRocket, then LightGBM (published) or ridge regression (as Rocket's authors do).

    Inner gaps are filled linearly, the end is padded with 0.

    Parameters
    ----------
    n_kernels
        Features, at least 84.
    head
        ``lightgbm`` or ``ridge``.
    use_times
        The intervals between time stamps, by the mean interval of their series, as a further channel.
    """

    def __init__(
        self,
        n_kernels: int = 10_000,
        head: Literal["lightgbm", "ridge"] = "lightgbm",
        use_times: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.n_kernels = n_kernels
        self.head = head
        self.use_times = use_times
        self.random_state = random_state

    def _ready(self, panel: Panel) -> Array:
        values = interpolate(panel.values)
        if self.use_times:
            values = np.concatenate([values, relative_intervals(panel)[:, None]], axis=1)
        return np.nan_to_num(match_length(values, self._length)).astype(np.float32)

    def _fit(self, panel: Panel, codes: Array) -> None:
        try:
            from aeon.transformations.collection.convolution_based import MiniRocket
        except ImportError as error:
            raise MissingExtra("MiniRocket", "irregular") from error
        if self.head not in ("lightgbm", "ridge"):
            raise UsageError(f"head={self.head!r} is neither 'lightgbm' nor 'ridge'.")
        self._length = max(panel.values.shape[2], _SHORTEST)
        self.rocket_ = MiniRocket(
            n_kernels=self.n_kernels, random_state=0 if self.random_state is None else self.random_state
        )
        features = np.asarray(self.rocket_.fit_transform(self._ready(panel)))
        head = boosting(self.random_state) if self.head == "lightgbm" else Ridge(ROCKET_ALPHAS)
        self.head_ = head.fit(features, codes)

    def _proba(self, panel: Panel) -> Array:
        return probabilities(self.head_, np.asarray(self.rocket_.transform(self._ready(panel))))


class BORF(SeriesClassifier):
    """Bag of receptive fields: counts of symbolic patterns at many resolutions, NaN-aware, then LightGBM.

    With ``time_aware`` (iborf) the time stamps are a channel, counts go through arcsinh, and ridge regression decides.
    Needs the package fast-borf.
    """

    def __init__(self, time_aware: bool = False, random_state: int | None = None) -> None:
        self.time_aware = time_aware
        self.random_state = random_state

    def _ready(self, panel: Panel) -> Array:
        values = panel.values
        if self.time_aware:
            values = np.concatenate([values, unit_times(panel)[:, None]], axis=1)
        return np.ascontiguousarray(match_length(values, self._length))

    def _fit(self, panel: Panel, codes: Array) -> None:
        try:
            from fast_borf import BORF as Bag
        except ImportError as error:
            raise MissingExtra("The bag of receptive fields (fast-borf)", "irregular") from error
        self._length = panel.values.shape[2]
        options = {"time_channel": True, "min_window_to_signal_std_ratio": 0.15} if self.time_aware else {}
        self.bag_ = Bag(**options)
        counts = self.bag_.fit_transform(self._ready(panel))
        self.head_ = Ridge(IBORF_ALPHAS) if self.time_aware else boosting(self.random_state)
        self.head_.fit(self._transformed(counts), codes)

    def _transformed(self, counts: Any) -> Any:
        return np.arcsinh(counts) if self.time_aware else counts.astype(float)

    def _proba(self, panel: Panel) -> Array:
        return probabilities(self.head_, self._transformed(self.bag_.transform(self._ready(panel))))


class Ridge:
    """Ridge regression on one-hot classes, its penalty chosen by leave-one-out; probabilities are a softmax of margins.

    Parameters
    ----------
    alphas
        Penalties to choose from.
    """

    def __init__(self, alphas: Sequence[float]) -> None:
        self.alphas = alphas

    def fit(self, X: Any, y: Array) -> Ridge:
        """Fit a dense or sparse table."""
        from sklearn.linear_model import RidgeClassifierCV

        self._ridge = RidgeClassifierCV(alphas=self.alphas).fit(_dense(X), y)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Softmax of the margins of the classes (two classes: of the margin and its negative)."""
        from scipy.special import softmax

        margin = np.asarray(self._ridge.decision_function(_dense(X)))
        return softmax(np.stack([-margin, margin], axis=1) if margin.ndim == 1 else margin, axis=1)


def _dense(X: Any) -> Any:
    return X.toarray() if hasattr(X, "toarray") else X
