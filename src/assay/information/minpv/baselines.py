"""Other estimators of density ratios, all with ``fit(X0, X1)`` and ``log_ratio(X)``: neural, telescoping, kernel, flow.

Losses are functions of f = log p1/p0 on samples of p0 and of p1; the least value over all functions is at the truth
(InfoNCE and gamma: at the truth plus a constant).

References: Nguyen et al. 2010 (NWJ), Gutmann and Hyvarinen 2010 (NCE), van den Oord et al. 2018 (InfoNCE), Sugiyama et
al. 2012 (Bregman, power), Fujisawa and Eguchi 2008 (gamma), Zellinger 2025 (exponential weight), Rhodes et al. 2020
(TRE), Kanamori et al. 2009 and 2012 (uLSIF, KuLSIF), Sugiyama et al. 2008 (KLIEP), Yamada et al. 2013 (RuLSIF).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from torch import Tensor
from torch.nn import functional as F

from assay.core.errors import DataError, UsageError, unknown_name
from assay.information.minpv.estimators import checked
from assay.information.minpv.training import cosine
from assay.nn import MLP, seeded, train

Array = NDArray[np.float64]
Loss = Callable[[Tensor, Tensor], Tensor]


def logistic(f0: Tensor, f1: Tensor) -> Tensor:
    """E1 log(1 + e^-f) + E0 log(1 + e^f)."""
    return F.softplus(-f1).mean() + F.softplus(f0).mean()


def kl_dual(f0: Tensor, f1: Tensor) -> Tensor:
    """-E1 f + E0 e^f; 1 less at the optimum than -KL(p1 || p0), NWJ's bound."""
    return -f1.mean() + f0.exp().mean()


def reverse_kl(f0: Tensor, f1: Tensor) -> Tensor:
    """E1 e^-f + E0 f: also Itakura and Saito's divergence of the ratio."""
    return (-f1).exp().mean() + f0.mean()


def chi2(f0: Tensor, f1: Tensor) -> Tensor:
    """E0 e^2f / 2 - E1 e^f: least squares on the ratio, Pearson's divergence."""
    return 0.5 * (2 * f0).exp().mean() - f1.exp().mean()


def hellinger(f0: Tensor, f1: Tensor) -> Tensor:
    """E1 e^(-f/2) + E0 e^(f/2)."""
    return (-f1 / 2).exp().mean() + (f0 / 2).exp().mean()


def infonce(f0: Tensor, f1: Tensor) -> Tensor:
    """Each point of p1 against all points of p0: -mean_i [f1_i - log(e^f1_i + sum_j e^f0_j)]."""
    return -(f1 - torch.logaddexp(f1, torch.logsumexp(f0, 0))).mean()


def power(f0: Tensor, f1: Tensor, *, beta: float = 0.5) -> Tensor:
    """Basu's power divergence of the ratio: E0 r^(1 + beta) - (1 + 1/beta) E1 r^beta."""
    return ((1 + beta) * f0).exp().mean() - (1 + 1 / beta) * (beta * f1).exp().mean()


def gamma_divergence(f0: Tensor, f1: Tensor, *, gamma: float = 0.2) -> Tensor:
    """log E0 r^(1 + gamma) / (1 + gamma) - log E1 r^gamma / gamma: Fujisawa and Eguchi's, deaf to a factor."""
    above = torch.logsumexp((1 + gamma) * f0, 0) - math.log(len(f0))
    return above / (1 + gamma) - (torch.logsumexp(gamma * f1, 0) - math.log(len(f1))) / gamma


def _soft_cap(f: Tensor, most: float) -> Tensor:
    """f up to ``most``, and on from there with a thousandth of its slope, so that it finds its way back."""
    return torch.minimum(f, most + 1e-3 * (f - most))


def exponential_weight(f0: Tensor, f1: Tensor, *, scale: float = 5.0) -> Tensor:
    """Bregman's divergence of the ratio with the weight e^(r / scale): errors at large ratios count most.

    E0 s (r - s) e^(r/s) - E1 s e^(r/s), s being the scale; s = 1 is the published weight. Ratios above 8 s hardly count
    for more: an exponential of an exponential ends a training at one wild output.
    """
    r0, r1 = (_soft_cap(f, math.log(8 * scale)).exp() for f in (f0, f1))
    return (scale * (r0 - scale) * (r0 / scale).exp()).mean() - (scale * (r1 / scale).exp()).mean()


LOSSES: Mapping[str, Loss] = {
    "logistic": logistic,
    "infonce": infonce,
    "kl": kl_dual,
    "reverse_kl": reverse_kl,
    "chi2": chi2,
    "hellinger": hellinger,
    "power": power,
    "gamma": gamma_divergence,
    "exponential_weight": exponential_weight,
}
SCALE_FREE = ("infonce", "gamma")
"""Losses that leave a factor of the ratio open."""


class _Base(BaseEstimator):
    random_state: int

    def _prepare(self, X0: ArrayLike, X1: ArrayLike) -> tuple[Array, Array]:
        x0 = checked(X0, "X0")
        x1 = checked(X1, "X1", d=x0.shape[1])
        self.n_features_in_ = x0.shape[1]
        both = np.concatenate([x0, x1])
        self.mean_, scale = both.mean(0), both.std(0)
        self.scale_ = np.where(scale > 0, scale, 1.0)
        return (x0 - self.mean_) / self.scale_, (x1 - self.mean_) / self.scale_

    def _standard(self, X: ArrayLike) -> Array:
        if not hasattr(self, "n_features_in_"):
            raise UsageError(f"This {type(self).__name__} is not fitted yet; call fit first.")
        return (checked(X, "X", d=self.n_features_in_, least=1) - self.mean_) / self.scale_


class NeuralRatio(_Base):
    """A perceptron f(x) = log ratio, trained with a loss of `LOSSES`.

    Parameters
    ----------
    loss
        logistic, infonce, kl, reverse_kl, chi2, hellinger, power, gamma, exponential_weight.
    steps, batch_size, lr, width, layers
        Of AdamW with a cosine schedule, and of the network.
    """

    def __init__(
        self, loss: str = "logistic", *, steps: int = 3000, batch_size: int = 512, lr: float = 1e-3, width: int = 128,
        layers: int = 3, random_state: int = 0,
    ) -> None:  # fmt: skip
        self.loss, self.steps, self.batch_size, self.lr = loss, steps, batch_size, lr
        self.width, self.layers, self.random_state = width, layers, random_state

    def fit(self, X0: ArrayLike, X1: ArrayLike) -> Self:
        """Samples of p0 (n, d) and p1 (m, d)."""
        if self.loss not in LOSSES:
            raise unknown_name("loss", self.loss, LOSSES)
        x0, x1 = (torch.from_numpy(x).float() for x in self._prepare(X0, X1))
        loss = LOSSES[self.loss]

        def value(net: Any, a: Tensor, b: Tensor) -> Tensor:
            f = net(torch.cat([a, b]))[:, 0]
            return loss(f[: len(a)], f[len(a) :])

        self.net_ = _fit(self, x0, x1, 1, value)
        # Where the loss leaves a factor open: the ratio has mean 1 under p0.
        self.shift_ = 0.0
        if self.loss in SCALE_FREE:
            with torch.no_grad():
                f0 = self.net_(x0)[:, 0].double()
            self.shift_ = math.log(len(f0)) - float(torch.logsumexp(f0, 0))
        return self

    def log_ratio(self, X: ArrayLike) -> Array:
        """log p1/p0, (n,)."""
        with torch.no_grad():
            return self.net_(torch.from_numpy(self._standard(X)).float())[:, 0].double().numpy() + self.shift_


class TelescopingRatio(_Base):
    """TRE: waymarks between p0 and p1, a logistic ratio between neighbours, one network with an output a pair.

    Parameters
    ----------
    bridges
        Number of ratios; waymarks are sqrt(1 - s^2) x0 + s x1 for s = k / bridges, or (``linear``) (1 - s) x0 + s x1.
    """

    def __init__(
        self, bridges: int = 8, *, linear: bool = False, steps: int = 3000, batch_size: int = 512, lr: float = 1e-3,
        width: int = 128, layers: int = 3, random_state: int = 0,
    ) -> None:  # fmt: skip
        self.bridges, self.linear, self.steps, self.batch_size, self.lr = bridges, linear, steps, batch_size, lr
        self.width, self.layers, self.random_state = width, layers, random_state

    def fit(self, X0: ArrayLike, X1: ArrayLike) -> Self:
        """Samples of p0 (n, d) and p1 (m, d)."""
        if self.bridges < 1:
            raise UsageError(f"bridges={self.bridges} must be at least 1.")
        x0, x1 = (torch.from_numpy(x).float() for x in self._prepare(X0, X1))
        s = torch.linspace(0, 1, self.bridges + 1)[:, None, None]
        a = 1 - s if self.linear else torch.sqrt(1 - s * s)

        def value(net: Any, first: Tensor, last: Tensor) -> Tensor:
            marks = a * first + s * last
            f = net(marks.reshape(-1, marks.shape[2])).reshape(len(marks), len(first), self.bridges)
            lower = torch.diagonal(f[:-1], dim1=0, dim2=2)
            upper = torch.diagonal(f[1:], dim1=0, dim2=2)
            return logistic(lower, upper)

        self.net_ = _fit(self, x0, x1, self.bridges, value, each=max(self.batch_size // (self.bridges + 1), 8))
        return self

    def log_ratio(self, X: ArrayLike) -> Array:
        """log p1/p0, (n,): the sum over bridges."""
        with torch.no_grad():
            return self.net_(torch.from_numpy(self._standard(X)).float()).double().sum(1).numpy()


def _fit(
    made: Any, x0: Tensor, x1: Tensor, outputs: int, value: Callable[[Any, Tensor, Tensor], Tensor], *,
    each: int | None = None,
) -> MLP:  # fmt: skip
    size = each or made.batch_size
    with seeded(made.random_state) as generator:
        net = MLP(x0.shape[1], (made.width,) * made.layers, outputs, activation=torch.nn.SiLU)
        optimiser = torch.optim.AdamW(net.parameters(), made.lr, weight_decay=1e-5)
        advance = cosine(optimiser, made.lr, made.steps)

        def loss(_: Tensor) -> Tensor:
            first, last = (x[torch.randint(len(x), (size,), generator=generator)] for x in (x0, x1))
            advance()
            return value(net, first, last)

        epoch = max(made.steps // 20, 1)
        train(net, loss, (torch.zeros(epoch),), epochs=math.ceil(made.steps / epoch), batch_size=1,
              optimiser=optimiser, generator=generator, clip=1.0)  # fmt: skip
    return net


KERNELS = ("kulsif", "ulsif", "rulsif", "kliep")


class KernelRatio(_Base):
    """Ratios from normal kernels.

    Parameters
    ----------
    kind
        kulsif (closed form, regularised in the kernel's space); ulsif and rulsif (by densratio, which chooses width and
        regularisation by cross-validation); kliep.
    sigma
        Width, in units of the standardised data; None = the median distance. Not used by ulsif and rulsif.
    regularisation
        Of kulsif; None = 1/sqrt(rows).
    alpha
        Of rulsif: its ratio is p1 / (alpha p1 + (1 - alpha) p0), turned back into p1/p0 here.
    rows
        Rows of each sample that are used, at most: kernels cost the square of them.
    floor
        Smallest ratio; estimates below it (least squares may be negative) are set to it.
    """

    def __init__(
        self, kind: str = "kulsif", *, sigma: float | None = None, regularisation: float | None = None,
        alpha: float = 0.1, rows: int = 1000, floor: float = 1e-4, random_state: int = 0,
    ) -> None:  # fmt: skip
        self.kind, self.sigma, self.regularisation, self.alpha = kind, sigma, regularisation, alpha
        self.rows, self.floor, self.random_state = rows, floor, random_state

    def fit(self, X0: ArrayLike, X1: ArrayLike) -> Self:
        """Samples of p0 (n, d) and p1 (m, d)."""
        if self.kind not in KERNELS:
            raise unknown_name("kernel method", self.kind, KERNELS)
        rng = np.random.default_rng(self.random_state)
        x0, x1 = (x[rng.permutation(len(x))[: self.rows]] for x in self._prepare(X0, X1))
        if self.kind in ("ulsif", "rulsif"):
            self._by_densratio(x0, x1, rng)
            return self
        width = self.sigma or float(np.median(np.sqrt(_squares(x0, x1)))) or 1.0
        self.width_ = width
        if self.kind == "kulsif":
            n0, n1 = len(x0), len(x1)
            lam = self.regularisation or 1 / math.sqrt(min(n0, n1))
            k00, k01 = _normal(x0, x0, width), _normal(x0, x1, width)
            # r = (mean of k(., x1)) / lam + sum alpha_i k(., x0_i), (K00/n0 + lam I) alpha = -K01 1 / (n0 n1 lam).
            alpha = np.linalg.solve(k00 / n0 + lam * np.eye(n0), -k01.sum(1) / (n0 * n1 * lam))
            self.centres_ = np.concatenate([x0, x1])
            self.weights_ = np.concatenate([alpha, np.full(n1, 1 / (n1 * lam))])
        else:
            self.centres_ = x1[:100]
            k1, mean0 = _normal(x1, self.centres_, width), _normal(x0, self.centres_, width).mean(0)
            theta = np.full(len(self.centres_), 1 / mean0.sum())
            # A mixture's weights under theta . mean0 = 1: the fixed point of expectation-maximisation.
            for _ in range(500):
                theta = theta * (k1 / (k1 @ theta)[:, None]).mean(0) / mean0
            self.weights_ = theta
        return self

    def _by_densratio(self, x0: Array, x1: Array, rng: np.random.Generator) -> None:
        try:
            from densratio import densratio
        except ImportError:
            raise UsageError("uLSIF and RuLSIF are densratio's, which is missing; run: pip install densratio") from None
        # Its kernel centres come from numpy's global generator, which is left as it was found.
        alpha: Any = self.alpha if self.kind == "rulsif" else 0
        state = np.random.get_state()  # noqa: NPY002
        try:
            np.random.seed(int(rng.integers(2**32)))  # noqa: NPY002
            self.peer_ = densratio(x1, x0, alpha=alpha, verbose=False)
        finally:
            np.random.set_state(state)  # noqa: NPY002

    def log_ratio(self, X: ArrayLike) -> Array:
        """log p1/p0, (n,)."""
        x = self._standard(X)
        if self.kind in ("ulsif", "rulsif"):
            ratio = np.asarray(self.peer_.compute_density_ratio(x), float).ravel()
            if self.kind == "rulsif":
                ratio = (1 - self.alpha) * ratio / np.maximum(1 - self.alpha * ratio, 1e-6)
        else:
            ratio = _normal(x, self.centres_, self.width_) @ self.weights_
        return np.log(np.maximum(ratio, self.floor))


class FlowRatio(_Base):
    """Two normalising flows of zuko, fitted by likelihood, and the difference of their log densities.

    Parameters
    ----------
    flow
        nsf (neural spline) or cnf (continuous).
    """

    def __init__(
        self, flow: str = "nsf", *, steps: int = 1000, batch_size: int = 256, lr: float = 2e-3, random_state: int = 0
    ) -> None:
        self.flow, self.steps, self.batch_size, self.lr, self.random_state = flow, steps, batch_size, lr, random_state

    def fit(self, X0: ArrayLike, X1: ArrayLike) -> Self:
        """Samples of p0 (n, d) and p1 (m, d)."""
        from assay.core.errors import MissingExtra

        try:
            from zuko.flows import CNF, NSF
        except ImportError:
            raise MissingExtra("Flows", "minpv") from None
        kinds = {"nsf": NSF, "cnf": CNF}
        if self.flow not in kinds:
            raise unknown_name("flow", self.flow, kinds)
        if not self.steps > 0:
            raise DataError(f"steps={self.steps} must be above 0.")
        self.flows_ = []
        for x in self._prepare(X0, X1):
            data = torch.from_numpy(x).float()
            with seeded(self.random_state) as generator:
                flow = kinds[self.flow](data.shape[1], hidden_features=(64, 64))
                optimiser = torch.optim.AdamW(flow.parameters(), self.lr)
                advance = cosine(optimiser, self.lr, self.steps)

                def loss(_: Tensor, data: Tensor = data, flow: Any = flow, advance: Any = advance,
                         generator: torch.Generator = generator) -> Tensor:  # fmt: skip
                    advance()
                    pick = torch.randint(len(data), (self.batch_size,), generator=generator)
                    return -flow().log_prob(data[pick]).mean()

                epoch = max(self.steps // 20, 1)
                train(flow, loss, (torch.zeros(epoch),), epochs=math.ceil(self.steps / epoch), batch_size=1,
                      optimiser=optimiser, generator=generator, clip=5.0)  # fmt: skip
            self.flows_.append(flow)
        return self

    def log_ratio(self, X: ArrayLike) -> Array:
        """log p1/p0, (n,)."""
        x = torch.from_numpy(self._standard(X)).float()
        with seeded(self.random_state), torch.no_grad():
            first, last = (torch.cat([flow().log_prob(p) for p in x.split(1024)]) for flow in self.flows_)
        return (last - first).double().numpy()


def _squares(x: Array, y: Array) -> Array:
    return np.maximum((x * x).sum(1)[:, None] + (y * y).sum(1) - 2 * x @ y.T, 0.0)


def _normal(x: Array, y: Array, width: float) -> Array:
    return np.exp(-_squares(x, y) / (2 * width * width))
