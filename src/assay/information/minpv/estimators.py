"""Density ratios, densities, divergences and mutual information in scikit-learn's manner."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from torch import Tensor

from assay.core.errors import DataError, UsageError
from assay.information.minpv.integration import Integral, Method, integrate
from assay.information.minpv.interpolants import Bridge, Direct, make_interpolant
from assay.information.minpv.optimum import fit_path, optimal_path
from assay.information.minpv.paths import LEARNED, Path, make_path
from assay.information.minpv.training import Recipe, Trained, train_scores
from assay.information.minpv.variance import Moments, path_variance
from assay.nn import seeded

Array = NDArray[np.float64]
Z95 = 1.959963984540054
PIECE = 4096


@dataclass(frozen=True, slots=True)
class Divergence:
    """An estimate with its standard error and 95 % interval over evaluation points (not over trainings)."""

    value: float
    se: float
    low: float
    high: float

    @classmethod
    def of(cls, first: ArrayLike, second: ArrayLike | None = None, *, scale: float = 1.0) -> Divergence:
        """Mean of one sample, or the sum of the means of two independent ones, times ``scale``."""
        parts = [np.asarray(p, float) for p in (first, second) if p is not None]
        value = scale * sum(float(p.mean()) for p in parts)
        # One point has no spread; its interval is the whole line.
        se = abs(scale) * math.sqrt(sum(float(p.var(ddof=1)) / len(p) if len(p) > 1 else math.inf for p in parts))
        return cls(value, se, value - Z95 * se, value + Z95 * se)


def checked(x: ArrayLike, name: str, *, d: int | None = None, least: int = 2) -> Array:
    """A finite (n, d) array, double; one sentence otherwise."""
    try:
        array = np.asarray(x, float)
    except (TypeError, ValueError):
        raise DataError(f"{name} must be a numeric array of shape (n, d).") from None
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] < 1:
        raise DataError(f"{name} must have shape (n, d); got {array.shape}.")
    if len(array) < least:
        raise DataError(f"{name} has {len(array)} rows; at least {least} are needed.")
    if d is not None and array.shape[1] != d:
        raise DataError(f"{name} has {array.shape[1]} columns where {d} are expected.")
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise DataError(f"{name} holds {array[row, column]} in row {row}, column {column}; remove or impute it.")
    return array


class _Scores(BaseEstimator):
    """What both estimators share: options, path, training, integration."""

    def __init__(
        self,
        path: str | Path = "kmm",
        interpolant: Literal["ddbi", "di"] = "ddbi",
        constraint: Literal["affine", "spherical", "auto"] = "affine",
        K: int = 5,
        *,
        gamma_sq: float = 0.01,
        epsilon: float = 0.005,
        loss: str = "ctsm",
        steps: int = 3000,
        batch_size: int = 512,
        lr: float = 5e-3,
        weight_decay: float = 1e-5,
        clip: float = 1.0,
        sampler: str = "importance",
        antithetic: bool = True,
        pairing: str = "independent",
        width: int = 128,
        blocks: int = 2,
        quadratic: int | None = None,
        integration: Method = "gauss",
        nodes: int | None = None,
        device: str = "cpu",
        random_state: int = 0,
    ) -> None:
        self.path = path
        self.interpolant = interpolant
        self.constraint = constraint
        self.K = K
        self.gamma_sq = gamma_sq
        self.epsilon = epsilon
        self.loss = loss
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.clip = clip
        self.sampler = sampler
        self.antithetic = antithetic
        self.pairing = pairing
        self.width = width
        self.blocks = blocks
        self.quadratic = quadratic
        self.integration: Method = integration
        self.nodes = nodes
        self.device = device
        self.random_state = random_state

    def _train(self, x0: Array | None, x1: Array, progress: Any) -> None:
        """``x0`` None = draws from N(0, I) instead of a sample. Both standardised already."""
        options = {f.name: getattr(self, f.name) for f in fields(Recipe)}
        if self.quadratic is None:
            options["quadratic"] = max(8, min(2 * x1.shape[1], 128))
        recipe = Recipe(**options)
        bridge = make_interpolant(self.interpolant, gamma_sq=self.gamma_sq, epsilon=self.epsilon)
        with seeded(self.random_state) as generator:
            last = torch.from_numpy(x1)
            first = (
                torch.randn((max(len(x1), 20_000), x1.shape[1]), generator=generator, dtype=torch.float64)
                if x0 is None
                else torch.from_numpy(x0)
            )
            self.moments_ = Moments.of(first, last)
            self.path_ = self._path(self.moments_, bridge)
            self.interpolant_ = bridge
            with torch.no_grad():
                self.path_variance_ = float(path_variance(self.path_, self.moments_, bridge))
            self.scores_: Trained = train_scores(first, last, self.path_, bridge, recipe, generator, progress=progress)
        self.history_ = self.scores_.history

    def _path(self, moments: Moments, bridge: Bridge | Direct) -> Path:
        if isinstance(self.path, Path):
            return self.path
        if self.path == "optimal":
            if not isinstance(bridge, Bridge):
                raise UsageError("path='optimal' needs interpolant='ddbi': for 'di' the variance has no least value.")
            kinds = ("affine", "spherical") if self.constraint == "auto" else (self.constraint,)
            found = [optimal_path(moments, bridge, constraint=kind) for kind in kinds]
            return min(found, key=lambda one: float(path_variance(one, moments, bridge)))
        if self.path in LEARNED:
            constraint: Any = self.constraint
            return fit_path(moments, bridge, family=self.path, constraint=constraint, components=self.K)
        return make_path(self.path)

    def _standard(self, X: ArrayLike, *, least: int = 1) -> Tensor:
        if not hasattr(self, "scores_"):
            raise UsageError(f"This {type(self).__name__} is not fitted yet; call fit first.")
        x = checked(X, "X", d=self.n_features_in_, least=least)
        return torch.from_numpy((x[:, self.kept_] - self.mean_) / self.scale_).float()

    def _integral(self, x: Tensor, *, error: bool = False) -> Integral:
        shortcut = self.scores_.shortcut(x.to(self.device))
        if shortcut is not None:
            # A secant is evaluated once, an energy twice; neither has a numerical error of its own.
            self.evaluations_ = 1 if self.loss == "secant" else 2
            return Integral(shortcut.cpu(), torch.zeros(len(x)), self.evaluations_)
        found = integrate(
            self.scores_.time_score,
            x.to(self.device),
            method=self.integration,
            n=self.nodes,
            generator=torch.Generator().manual_seed(self.random_state),
            estimate_error=error,
        )
        self.evaluations_ = found.evaluations
        return Integral(found.value.cpu(), found.error.cpu(), found.evaluations)

    def _standardise(self, mean: Array, scale: Array, x: Array) -> None:
        self.n_features_in_ = x.shape[1]
        self.kept_ = scale > 1e-12 * np.maximum(np.abs(mean), 1)
        if not self.kept_.any():
            raise DataError("Every column is constant; there is nothing to learn.")
        self.mean_, self.scale_ = mean[self.kept_], scale[self.kept_]


class DensityRatioEstimator(_Scores):
    """log p1(x)/p0(x) from samples of both, by integrating a learned time score along a path of least variance.

    Parameters
    ----------
    path
        kmm (the paper's), beta or gaussian mixtures, fitted to the data's moments first; optimal (exact); linear, vp,
        foellmer, trigonometric, cosine, smoothstep; or a `Path`.
    interpolant
        ddbi: a noisy bridge, for any p0. di: without noise, for standard normal p0 only.
    constraint
        Of mixtures and optimal: affine (b = 1 - a), spherical (a^2 + b^2 = 1), or auto: whichever has the smaller
        variance.
    K
        Components of the mixture.
    gamma_sq, epsilon
        Variances of the bridge, in units of the standardised data: both distributions are smoothed by epsilon.
    loss, steps, batch_size, lr, weight_decay, clip, sampler, antithetic, pairing, width, blocks, quadratic, device
        See `Recipe`; quadratic None = 2 d, between 8 and 128.
    integration, nodes
        See `integrate`.
    random_state
        Seed of everything.

    Attributes
    ----------
    path_, path_variance_, moments_
        The path used, its V, and what V was computed from.
    history_
        Of the training.
    evaluations_
        Of the network a point, in the last log ratio.

    Notes
    -----
    Columns are standardised by the mean and deviation of both samples together (di: not at all), and constant ones are
    left out: the ratio does not change. Reference: arXiv 2602.00834.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> ratio = DensityRatioEstimator(steps=200).fit(rng.normal(size=(500, 2)), rng.normal(1, 1, size=(500, 2)))
    >>> ratio.log_ratio([[0.5, 0.5]]).shape
    (1,)
    """

    def fit(self, X0: ArrayLike, X1: ArrayLike, *, progress: Any = None) -> Self:
        """Samples of the denominator p0 (n, d) and of the numerator p1 (m, d).

        Raises
        ------
        DataError
            Not finite, different numbers of columns, fewer than two rows, or (di) p0 is not standard normal.
        """
        x0 = checked(X0, "X0")
        x1 = checked(X1, "X1", d=x0.shape[1])
        both = np.concatenate([x0, x1])
        d = x0.shape[1]
        if self.interpolant == "di":
            _require_standard_normal(x0)
            self._standardise(np.zeros(d), np.ones(d), both)
        else:
            # Each sample counts half, whatever its size.
            mean = (x0.mean(0) + x1.mean(0)) / 2
            square = (((x0 - mean) ** 2).mean(0) + ((x1 - mean) ** 2).mean(0)) / 2
            self._standardise(mean, np.sqrt(square), both)
            for k in np.flatnonzero(~self.kept_):
                if np.ptp(both[:, k]) > 0:
                    raise DataError(f"Column {k} is constant up to rounding; remove it.")
        first, last = ((x[:, self.kept_] - self.mean_) / self.scale_ for x in (x0, x1))
        for k in np.flatnonzero((np.ptp(first, axis=0) == 0) & (np.ptp(last, axis=0) == 0)):
            raise DataError(
                f"Column {np.flatnonzero(self.kept_)[k]} is one constant in X0 and another in X1: the ratio there is "
                "0 or infinite; remove it."
            )
        self._train(first, last, progress)
        return self

    def log_ratio(self, X: ArrayLike) -> Array:
        """log p1(x)/p0(x) in nats at points (n, d): shape (n,)."""
        return self._integral(self._standard(X)).value.double().numpy()

    def log_ratio_with_error(self, X: ArrayLike) -> tuple[Array, Array]:
        """log ratio and the estimated error of its integration over t (not of the learning), (n,) each."""
        found = self._integral(self._standard(X), error=True)
        return found.value.double().numpy(), found.error.double().numpy()

    def predict(self, X: ArrayLike) -> Array:
        """The ratio itself, p1(x)/p0(x)."""
        return np.exp(self.log_ratio(X))

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean log ratio: on new points of p1 an estimate of KL(p1 || p0)."""
        return float(self.log_ratio(X).mean())

    def divergences(self, X0: ArrayLike, X1: ArrayLike) -> dict[str, Divergence]:
        """KL, reverse KL, Jensen-Shannon (nats) and chi-square (Pearson, E0 (r - 1)^2) with 95 % intervals.

        Parameters
        ----------
        X0, X1
            Points of p0 and p1 that training did not see: on those it saw, estimates are too large.
        """
        f0, f1 = self.log_ratio(X0), self.log_ratio(X1)
        return {
            "kl": Divergence.of(f1),
            "reverse_kl": Divergence.of(-f0),
            # JS = log 2 + (E1 log s(f) + E0 log s(-f)) / 2, s the logistic function.
            "js": Divergence.of(math.log(2) - np.logaddexp(0, -f1), math.log(2) - np.logaddexp(0, f0), scale=0.5),
            "chi2": Divergence.of(np.square(np.expm1(f0))),
        }


class ScoreDensityEstimator(_Scores):
    """A normalised density: the ratio to a standard normal, times that normal. Named as scikit-learn's KernelDensity.

    Parameters
    ----------
    loss
        cjsm or joint add the head for the data score that `sample` needs.

    Notes
    -----
    Other parameters are those of `DensityRatioEstimator`. Columns are standardised, and the density is that of the data
    as they came. With a bridge it is smoothed by noise of variance epsilon.
    """

    def fit(self, X: ArrayLike, y: Any = None, *, progress: Any = None) -> Self:
        """Points (n, d).

        Raises
        ------
        DataError
            Not finite, fewer than two rows, or a constant column (it has no density).
        """
        x = checked(X, "X")
        constant = np.flatnonzero(np.ptp(x, axis=0) == 0)
        if len(constant):
            raise DataError(f"Column {constant[0]} is constant and has no density; remove it.")
        self._standardise(x.mean(0), x.std(0), x)
        self._train(None, (x - self.mean_) / self.scale_, progress)
        return self

    def score_samples(self, X: ArrayLike) -> Array:
        """Log density in nats at points (n, d): shape (n,)."""
        x = self._standard(X)
        variance = 1 + self.interpolant_.added_variance
        d = x.shape[1]
        normal = -0.5 * (x.double().square().sum(1) / variance + d * math.log(2 * math.pi * variance))
        log_density = self._integral(x).value.double() + normal
        return log_density.numpy() - float(np.log(self.scale_).sum())

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Total log density, as KernelDensity's ``score``."""
        return float(self.score_samples(X).sum())

    def sample(
        self, n_samples: int = 1, *, method: Literal["flow", "hmc", "ais"] = "flow", random_state: int = 0
    ) -> Array:
        """Draw points, (n_samples, d); see `assay.information.minpv.sampling`. Needs ``loss="cjsm"`` or ``"joint"``."""
        from assay.information.minpv.sampling import draw

        if not hasattr(self, "scores_"):
            raise UsageError("This ScoreDensityEstimator is not fitted yet; call fit first.")
        found = draw(self.scores_, self.path_, self.interpolant_, len(self.scale_), n_samples, method, random_state)
        return found.double().numpy() * self.scale_ + self.mean_


def mutual_information(
    X: ArrayLike, Y: ArrayLike, *, test_share: float = 0.25, estimator: DensityRatioEstimator | None = None,
    random_state: int = 0,
) -> Divergence:  # fmt: skip
    """I(X; Y) in nats of paired rows: the mean log ratio of joint to product, on rows that training did not see.

    Parameters
    ----------
    X, Y
        (n, dx) and (n, dy).
    test_share
        Share of rows that the mean is taken over; the rest trains.
    estimator
        Unfitted; it is fitted in place. None = the default one.
    random_state
        Of the split, and of the permutation that makes pairs independent.
    """
    x, y = checked(X, "X", least=8), checked(Y, "Y", least=8)
    if len(x) != len(y):
        raise DataError(f"X has {len(x)} rows and Y has {len(y)}; they must be pairs.")
    if not 0 < test_share < 1:
        raise UsageError(f"test_share={test_share} must lie between 0 and 1.")
    rng = np.random.default_rng(random_state)
    order = rng.permutation(len(x))
    test = max(round(test_share * len(x)), 2)
    joint = np.concatenate([x, y], 1)[order]
    train, held = joint[test:], joint[:test]
    # Shifted within a random order, no row meets its own partner.
    product = np.concatenate([train[:, : x.shape[1]], np.roll(train[:, x.shape[1] :], 1, axis=0)], 1)
    made = estimator if estimator is not None else DensityRatioEstimator(random_state=random_state)
    return Divergence.of(made.fit(product, train).log_ratio(held))


def _require_standard_normal(x: Array) -> None:
    """Kolmogorov and Smirnov's test of every column and of squared norms, at 1e-4 over all, and the covariance."""
    from scipy.stats import chi2, kstest

    n, d = x.shape
    tests: list[Any] = [kstest(column, "norm") for column in x.T] + [kstest((x * x).sum(1), chi2(d).cdf)]
    p = min(float(found.pvalue) for found in tests)
    if p < 1e-4 / len(tests):
        raise DataError(
            f"interpolant='di' needs X0 from the standard normal distribution, and these {n} rows are not "
            f"(p = {p:.1g}); take interpolant='ddbi'."
        )
