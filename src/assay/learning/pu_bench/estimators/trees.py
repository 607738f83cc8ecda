"""PU extra trees (Wilton et al. 2022): trees grown on the risk itself, compiled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from assay.learning.pu_bench.errors import BadInput
from assay.learning.pu_bench.estimators.base import TwoClasses, check_labels
from assay.learning.pu_bench.prior import resolve_prior

# scikit-learn's annotations are guesses from its defaults.
_validated: Any = validate_data


def node_value(labelled: int, unlabelled: int, n_labelled: int, n_unlabelled: int, prior: float) -> float:
    """v* of a node: the weight of its positives by its whole weight; inf where it holds no unlabelled row."""
    if unlabelled == 0:
        return math.inf
    return prior * labelled / n_labelled / (unlabelled / n_unlabelled)


def node_impurity(
    labelled: int, unlabelled: int, n_labelled: int, n_unlabelled: int, prior: float, *,
    loss: str = "quadratic", risk: str = "nnpu",
) -> float:  # fmt: skip
    """Impurity of a node: ``loss`` is quadratic or logistic, ``risk`` nnpu or upu (which may be -inf)."""
    from assay.learning.pu_bench.estimators.growing import impurity

    _named(loss, risk)
    return float(impurity(labelled, unlabelled, n_labelled, n_unlabelled, prior, loss == "logistic", risk == "upu"))


def _named(loss: str, risk: str) -> None:
    if loss not in ("quadratic", "logistic"):
        raise BadInput(f"loss={loss!r} is not known; there are quadratic, logistic.")
    if risk not in ("nnpu", "upu"):
        raise BadInput(f"risk={risk!r} is not known; there are nnpu, upu.")


@dataclass(eq=False, repr=False, kw_only=True)
class PUETClassifier(TwoClasses, BaseEstimator):
    """PU extra trees: no bootstrap, one random cut a feature, the split of least risk, majority vote.

    Parameters
    ----------
    prior
        See `assay.learning.pu_bench.estimators.base.PUNet`.
    n_estimators, max_depth, min_leaf
        Trees; depth; a node of so many rows is a leaf.
    max_features
        Features tried a node; None = the square root of all, rounded up. Constant ones are passed over.
    loss, risk
        ``quadratic`` or ``logistic``; ``nnpu`` or ``upu``.
    """

    prior: Any = None
    n_estimators: int = 30
    max_depth: int = 30
    min_leaf: int = 1
    max_features: int | None = None
    loss: str = "quadratic"
    risk: str = "nnpu"
    random_state: Any = 0

    supervision: ClassVar[str] = "pu"
    needs_prior: ClassVar[bool] = True

    def fit(self, X: ArrayLike, s: ArrayLike, *, source_index: ArrayLike | None = None) -> Any:
        """Grow the trees; rows of more axes than one are flattened. See `PUNet.fit`."""
        from assay.learning.pu_bench.estimators.growing import flattened, grow

        x, labels = _validated(self, X, s, dtype=np.float32, allow_nd=True, ensure_min_samples=2)
        self.classes_, labelled = check_labels(labels)
        _named(self.loss, self.risk)
        if min(self.n_estimators, self.max_depth, self.min_leaf) < 1:
            raise BadInput("n_estimators, max_depth and min_leaf must be at least 1.")
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(2**31 - 1))
        groups = None if source_index is None else np.asarray(source_index)
        self.prior_ = resolve_prior(self.prior, x, labelled.astype(int), groups, seed)
        # Column after column: a node looks at few features and many rows.
        flat = np.asfortranarray(x.reshape(len(x), -1))
        tried = min(self.max_features or math.ceil(math.sqrt(flat.shape[1])), flat.shape[1])
        self.trees_ = [
            grow(
                flat, labelled, self.prior_, self.max_depth, self.min_leaf, tried, self.loss == "logistic",
                self.risk == "upu", np.uint64(tree_seed),
            )
            for tree_seed in np.random.SeedSequence(seed).generate_state(self.n_estimators, np.uint64)
        ]  # fmt: skip
        self._forest = flattened(self.trees_)
        return self

    def _descend(self, X: ArrayLike) -> NDArray[np.float64]:
        from assay.learning.pu_bench.estimators.growing import descend

        check_is_fitted(self)
        x = _validated(self, X, dtype=np.float32, allow_nd=True, reset=False)
        return descend(np.ascontiguousarray(x).ravel(), x[0].size, *self._forest)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Share of trees that vote positive, less a half, (n,)."""
        return self._descend(X)[:, 0] / self.n_estimators - 0.5

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """(n, 2), by the mean v* of the leaves, clipped to [0, 1]; a leaf of labelled rows alone counts 1."""
        positive = self._descend(X)[:, 1] / self.n_estimators
        return np.column_stack([1 - positive, positive])
