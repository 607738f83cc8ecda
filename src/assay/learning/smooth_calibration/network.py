"""Two-layer network under full-batch gradient descent, as analysed: fixed output signs, trained input weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from assay.core.errors import MissingExtra, UsageError
from assay.learning.smooth_calibration import bounds
from assay.learning.smooth_calibration.boosting import History, Matrix
from assay.learning.smooth_calibration.inputs import Vector, expit, log_loss_of_logits
from assay.learning.smooth_calibration.staged import StagedBinaryClassifier

KEPT = 200


class TwoLayerNetClassifier(StagedBinaryClassifier):
    """g(x) = m^-beta sum_r a_r tanh(theta_r . (x, 1)), a_r = +-1 fixed; gradient descent on theta with the exact
    gradient.

    Units come in pairs of equal weights and opposite signs, so training starts at g = 0 exactly.

    Parameters
    ----------
    n_units
        m, even.
    n_stages, learning_rate
        T and w. None = 1 over a bound on the loss's smoothness in theta, so that every step descends.
    beta
        Output scale m^-beta; 1/2 is the neural-tangent scale, 0 and 1 the unscaled and mean-field ones.
    random_state
        Seed of theta, standard normal over sqrt(d + 1).
    device
        None = numpy; else where torch computes the hidden layer in double precision: ``cpu``, ``cuda``.

    Attributes
    ----------
    history_ : History
        The margin is |grad_theta L| m^(beta - 1/2) / L1.
    descended_ : bool
        Whether every step lowered the loss by w/2 |grad|^2: without it the bound below does not hold.
    training_bound_ : float
        Root of `bounds.network_descent_bound` with the least measured margin; NaN where a step did not descend.
    stages_ : ndarray
        Stages kept for `staged_decision_function`: at most 200, the last among them.
    """

    def __init__(
        self,
        n_units: int = 100,
        n_stages: int = 400,
        learning_rate: float | None = None,
        beta: float = 0.5,
        random_state: int | None = None,
        device: str | None = None,
    ) -> None:
        self.n_units = n_units
        self.n_stages = n_stages
        self.learning_rate = learning_rate
        self.beta = beta
        self.random_state = random_state
        self.device = device

    def fit(self, X: ArrayLike, y: ArrayLike) -> TwoLayerNetClassifier:
        """Fit to X of shape (n, d) and two classes."""
        x, target = self._begin(X, y)
        if self.n_units < 2 or self.n_units % 2:
            raise ValueError(f"n_units={self.n_units} is not an even number above 0; units come in pairs.")
        m, scale = self.n_units, self.n_units**-self.beta
        rng = check_random_state(self.random_state)
        inputs = _with_one(x)
        step = 1.0 / smoothness(inputs, m, self.beta) if self.learning_rate is None else self.learning_rate
        half = rng.standard_normal((m // 2, inputs.shape[1])) / np.sqrt(inputs.shape[1])
        theta = np.concatenate([half, half])
        signs = np.concatenate([np.ones(m // 2), -np.ones(m // 2)])
        every = max(1, -(-self.n_stages // KEPT))
        self.step_, self.history_, self.descended_ = step, History(), True
        kept: list[Matrix] = []
        stages: list[int] = []
        to, back, tanh = _backend(self.device)
        inputs, theta, outward = to(inputs), to(theta), to(signs)
        hidden = tanh(inputs @ theta.T)
        g = scale * back(hidden @ outward)
        loss = float(log_loss_of_logits(target, g).mean())
        for t in range(1, self.n_stages + 1):
            gradient = expit(g) - target
            slope = scale / len(x) * (to(gradient)[:, None] * (1 - hidden**2) * outward).T @ inputs
            size = float((slope**2).sum() ** 0.5)
            self.history_.add(target, g, gradient, size * m ** (self.beta - 0.5))
            theta = theta - step * slope
            hidden = tanh(inputs @ theta.T)
            g = scale * back(hidden @ outward)
            self._note(target, g)
            before, loss = loss, float(log_loss_of_logits(target, g).mean())
            self.descended_ &= loss <= before - step / 2 * size**2 + 1e-12
            if t % every == 0 or t == self.n_stages:
                kept.append(back(theta))
                stages.append(t)
        self._signs, self._scale, self._kept = signs, scale, kept
        self.stages_ = np.array(stages)
        margin = self.history_.least_margin
        self.training_bound_ = float("nan")
        if self.descended_ and margin > 0:
            squared = bounds.network_descent_bound(
                start_loss=self.history_.loss[0], margin=margin, stages=self.n_stages, step=step, units=m,
                beta=self.beta,
            )  # fmt: skip
            self.training_bound_ = float(np.sqrt(squared))
        return self

    def staged_decision_function(self, X: ArrayLike) -> Iterator[Vector]:
        """Logits after each stage of ``stages_``, shape (n,)."""
        inputs = self._inputs(X)
        for theta in self._kept:
            yield self._scale * (np.tanh(inputs @ theta.T) @ self._signs)

    def decision_function(self, X: ArrayLike) -> Vector:
        """Logits, shape (n,)."""
        inputs = self._inputs(X)
        return self._scale * (np.tanh(inputs @ self._kept[-1].T) @ self._signs)

    def _inputs(self, X: ArrayLike) -> Matrix:
        check_is_fitted(self)
        return _with_one(np.asarray(validate_data(self, cast(Any, X), reset=False, dtype=np.float64)))


def smoothness(inputs: Matrix, units: int, beta: float) -> float:
    """Bound on the largest curvature of the loss in theta, for inputs of shape (n, d + 1).

    lambda (m^(1 - 2 beta) / 4 + m^-beta 4 / (3 sqrt 3)), lambda the largest eigenvalue of the inputs' second moments:
    the logistic loss has curvature <= 1/4 and slope <= 1, tanh has slope <= 1 and curvature <= 4 / (3 sqrt 3).
    """
    spread = float(np.linalg.eigvalsh(inputs.T @ inputs / len(inputs))[-1])
    return spread * (units ** (1 - 2 * beta) / 4 + units**-beta * 4 / (3 * np.sqrt(3)))


def _backend(device: str | None) -> tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any]]:
    """(array to the device, and back, tanh there)."""
    if device is None:
        return np.asarray, np.asarray, np.tanh
    try:
        import torch
    except ImportError:
        raise MissingExtra(f"A network on device {device!r}", "smooth_calibration") from None
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"device={device!r} is asked for, but torch sees no such device here; leave device out.")
    return partial(torch.as_tensor, device=device), lambda tensor: tensor.cpu().numpy(), torch.tanh


def _with_one(x: Matrix) -> Matrix:
    return np.column_stack([x, np.ones(len(x))])
