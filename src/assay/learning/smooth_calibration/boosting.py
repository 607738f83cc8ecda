"""Gradient boosting whose steps follow the analysis: trees with leaves of one size, and kernel boosting.

Cross-entropy, start at logit 0, exact history of what the bounds speak of. scikit-learn estimators for two classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from assay.learning.smooth_calibration import bounds
from assay.learning.smooth_calibration.inputs import Vector, expit, log_loss_of_logits
from assay.learning.smooth_calibration.staged import StagedBinaryClassifier

Matrix = NDArray[np.float64]
NOISE = 1e-3
TOGETHER = 32


class History:
    """What training saw before each step: loss, L1 and L2 norm of the functional gradient, margin.

    The margin is NaN where the L1 norm is below 1e-3.
    """

    def __init__(self) -> None:
        self.loss: list[float] = []
        self.grad_l1: list[float] = []
        self.grad_l2: list[float] = []
        self.margin: list[float] = []

    def add(self, y: Vector, g: Vector, gradient: Vector, aligned: float) -> None:
        """Note one stage; the margin is ``aligned`` over the L1 norm."""
        l1 = float(np.abs(gradient).mean())
        self.loss.append(float(log_loss_of_logits(y, g).mean()))
        self.grad_l1.append(l1)
        self.grad_l2.append(float(np.sqrt((gradient**2).mean())))
        # Where nothing is left to learn, a ratio of roundings is no margin.
        self.margin.append(aligned / l1 if l1 >= NOISE else float("nan"))

    @property
    def least_margin(self) -> float:
        """Smallest margin over the stages where it can be measured; NaN if nowhere."""
        held = [m for m in self.margin if m == m]
        return min(held) if held else float("nan")


class GradientBoostingCalibrated(StagedBinaryClassifier):
    """Boosting with trees of values -B and B: g <- g - w psi, psi the sign of the mean gradient in each leaf, times B.

    Parameters
    ----------
    n_stages
        T.
    learning_rate
        w; None = the step that makes the bound least, sqrt(8 ln 2 / (B^2 T)).
    bound
        B.
    max_depth
        Of each tree; None = until the leaves are pure.
    random_state
        Seed of the trees' choice among equal splits.

    Attributes
    ----------
    history_ : History
        One entry a stage. The margin is <gradient, psi> / (B L1).
    training_bound_ : float
        `bounds.trees_training_bound` with the least measured margin, for the mean of ``history_.grad_l1``.
    """

    def __init__(
        self,
        n_stages: int = 200,
        learning_rate: float | None = 0.2,
        bound: float = 1.0,
        max_depth: int | None = 3,
        random_state: int | None = None,
    ) -> None:
        self.n_stages = n_stages
        self.learning_rate = learning_rate
        self.bound = bound
        self.max_depth = max_depth
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> GradientBoostingCalibrated:
        """Fit to X of shape (n, d) and two classes."""
        x, target = self._begin(X, y)
        rng = check_random_state(self.random_state)
        step = self.learning_rate
        if step is None:
            step = bounds.trees_best_step(start_loss=float(np.log(2)), bound=self.bound, stages=self.n_stages)
        g = np.zeros(len(target))
        self.step_, self.history_ = step, History()
        self._trees: list[DecisionTreeRegressor] = []
        self._leaves: list[Vector] = []
        for _ in range(self.n_stages):
            gradient = expit(g) - target
            tree = DecisionTreeRegressor(max_depth=self.max_depth, random_state=rng.randint(2**31 - 1))
            # Scaled: below a variance of 2e-16 the learner sees no impurity and splits no more.
            tree.fit(x, gradient / max(float(np.abs(gradient).max()), 1e-300))
            at = tree.apply(x)
            leaves = self.bound * np.sign(np.bincount(at, gradient, tree.tree_.node_count))
            psi = leaves[at]
            self.history_.add(target, g, gradient, float(np.mean(gradient * psi)) / self.bound)
            g = g - step * psi
            self._note(target, g)
            self._trees.append(tree)
            self._leaves.append(leaves)
        self.stages_ = np.arange(1, self.n_stages + 1)
        margin = self.history_.least_margin
        self.training_bound_ = (
            bounds.trees_training_bound(
                start_loss=self.history_.loss[0], margin=margin, bound=self.bound, step=step, stages=self.n_stages
            )
            if margin > 0
            else float("nan")
        )
        return self

    def staged_decision_function(self, X: ArrayLike) -> Iterator[Vector]:
        """Logits after each stage, shape (n,)."""
        check_is_fitted(self)
        x = np.asarray(validate_data(self, cast(Any, X), reset=False, dtype=np.float64))
        g = np.zeros(len(x))
        for tree, leaves in zip(self._trees, self._leaves, strict=True):
            g = g - self.step_ * leaves[tree.apply(x)]
            yield g


class KernelBoostingClassifier(StagedBinaryClassifier):
    """Functional gradient descent in an RKHS: g <- g - w T_k grad, (T_k grad)(x) = mean of k(x, x_i) grad_i.

    Parameters
    ----------
    n_stages, learning_rate
        T and w, w <= 4 for a guaranteed descent.
    kernel
        ``rbf``: exp(-gamma |x - x'|^2); ``laplacian``: exp(-gamma |x - x'|_1). Both have k(x, x) = 1.
    gamma
        None = 1 / number of features.
    normalized
        Steps of RKHS norm w instead of plain ones.
    nystroem_above, n_components
        Beyond this many training samples the kernel is approximated with this many (Nystroem).
    random_state
        Chooses the landmarks of Nystroem.

    Attributes
    ----------
    history_ : History
        The margin is |T_k grad|_H / L1.
    rkhs_norm_ : ndarray
        Norm of g after each stage, shape (T,).
    training_bound_ : float
        `bounds.kernel_training_bound` with the least measured margin; NaN for normalized steps.
    """

    def __init__(
        self,
        n_stages: int = 200,
        learning_rate: float = 1.0,
        kernel: Literal["rbf", "laplacian"] = "rbf",
        gamma: float | None = None,
        normalized: bool = False,
        nystroem_above: int = 5000,
        n_components: int = 500,
        random_state: int | None = None,
    ) -> None:
        self.n_stages = n_stages
        self.learning_rate = learning_rate
        self.kernel = kernel
        self.gamma = gamma
        self.normalized = normalized
        self.nystroem_above = nystroem_above
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> KernelBoostingClassifier:
        """Fit to X of shape (n, d) and two classes."""
        x, target = self._begin(X, y)
        if self.kernel not in ("rbf", "laplacian"):
            raise ValueError(f"kernel={self.kernel!r} is not known; write 'rbf' or 'laplacian'.")
        n = len(x)
        self._gamma = 1.0 / x.shape[1] if self.gamma is None else self.gamma
        self._map: Nystroem | None = None
        if n > self.nystroem_above:
            self._map = Nystroem(
                kernel=self.kernel, gamma=self._gamma, n_components=min(self.n_components, n),
                random_state=self.random_state,
            )  # fmt: skip
            features = self._map.fit_transform(x)
            width = features.shape[1]
        else:
            self._seen = x
            features = pairwise_kernels(x, metric=self.kernel, gamma=self._gamma)
            width = n
        self.history_ = History()
        self._path = np.empty((self.n_stages, width))
        self.rkhs_norm_ = np.empty(self.n_stages)
        coef, g = np.zeros(width), np.zeros(n)
        for t in range(self.n_stages):
            gradient = expit(g) - target
            # By dual coefficients (grad / n) on the kernel matrix, by weights on the Nystroem features.
            step = features.T @ gradient / n if self._map is not None else gradient / n
            moved = features @ step
            norm = float(np.sqrt(max(0.0, step @ (step if self._map is not None else moved))))
            self.history_.add(target, g, gradient, norm)
            size = self.learning_rate / norm if self.normalized and norm > 0 else self.learning_rate
            coef = coef - size * step
            g = g - size * moved
            self._note(target, g)
            self._path[t] = coef
            self.rkhs_norm_[t] = np.sqrt(max(0.0, coef @ (coef if self._map is not None else g)))
        self.stages_ = np.arange(1, self.n_stages + 1)
        margin = self.history_.least_margin
        guaranteed = not self.normalized and self.learning_rate <= 4 and margin > 0
        self.training_bound_ = (
            bounds.kernel_training_bound(
                start_loss=self.history_.loss[0], margin=margin, step=self.learning_rate, stages=self.n_stages
            )
            if guaranteed
            else float("nan")
        )
        return self

    def staged_decision_function(self, X: ArrayLike) -> Iterator[Vector]:
        """Logits after each stage, shape (n,)."""
        features = self._features(X)
        # Matrix products of some stages at once read the kernel once for all of them.
        for start in range(0, len(self._path), TOGETHER):
            yield from (self._path[start : start + TOGETHER] @ features.T)

    def decision_function(self, X: ArrayLike) -> Vector:
        """Logits, shape (n,)."""
        return self._features(X) @ self._path[-1]

    def _features(self, X: ArrayLike) -> Matrix:
        check_is_fitted(self)
        x: Any = validate_data(self, cast(Any, X), reset=False, dtype=np.float64)
        if self._map is not None:
            return self._map.transform(x)
        return pairwise_kernels(x, self._seen, metric=self.kernel, gamma=self._gamma)
