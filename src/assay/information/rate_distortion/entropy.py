"""Differential entropy from samples: spacings, negentropy, nearest neighbours, learned mixtures, along a diffusion.

Nats throughout. Cross-entropies (`Knife`, `mixture_cross_entropy`, `transition_cross_entropy`) bound the entropy from
above when the density was made from other samples than it is averaged over.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from assay.core.errors import UsageError

Array = NDArray[np.float64]
K1 = 36 / (8 * math.sqrt(3) - 9)
K2 = 24 / (16 * math.sqrt(3) - 27)
WIDTHS = (3.0, 10.0)
"""Of the wider kernels, in those of the last step."""
HELD = 4000
"""Ends on which shares are fitted."""


def spacing_entropy(x: Tensor, m: int | None = None) -> Tensor:
    """Vasicek's estimate from spacings of order ``m`` (default: root of n) of (n,) or (groups, n); differentiable.

    Biased downwards by O(m/n + 1/m); with Van Es's correction psi(m) - log m, psi(2m) in the middle.
    """
    n = x.shape[-1]
    m = round(math.sqrt(n)) if m is None else m
    if not 1 <= m < n / 2:
        raise UsageError(f"Spacings need an order between 1 and half the samples; got m={m} of {n}.")
    ordered = x.sort(-1).values
    padded = torch.cat(
        [ordered[..., :1].expand(*ordered.shape[:-1], m), ordered, ordered[..., -1:].expand(*ordered.shape[:-1], m)], -1
    )
    spacing = (padded[..., 2 * m :] - padded[..., : -2 * m]).clamp_min(torch.finfo(x.dtype).tiny)
    # Spacings at the ends are one-sided: 2m, m+1 ... order statistics apart.
    rank = torch.arange(n, device=x.device)
    apart = torch.minimum(rank + m, torch.tensor(n - 1)) - torch.maximum(rank - m, torch.tensor(0))
    return (spacing.log() - torch.digamma(apart.to(x.dtype)) + math.log(n + 1)).mean(-1)


def negentropy_entropy(x: Tensor) -> Tensor:
    """Hyvarinen's approximation of maximum entropy for (n,), (n, d) or (groups, n, d); d > 1 is whitened first.

    Exact for Gaussians, not an upper bound: whitened components are taken for independent. Differentiable.
    """
    x = x[:, None] if x.ndim == 1 else x
    away = x - x.mean(-2, keepdim=True)
    covariance = away.transpose(-1, -2) @ away / x.shape[-2]
    root = torch.linalg.cholesky(covariance)
    d = x.shape[-1]
    log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    y = torch.linalg.solve_triangular(root, away.transpose(-1, -2), upper=False).transpose(-1, -2)
    if d > 1:
        # Principal axes rather than Cholesky's: the answer must not depend on the order of coordinates.
        values, vectors = torch.linalg.eigh(covariance)
        y = away @ vectors / values.clamp_min(torch.finfo(x.dtype).tiny).sqrt()[..., None, :]
    bump = torch.exp(-(y**2) / 2)
    gain = K1 * (y * bump).mean(-2) ** 2 + K2 * (bump.mean(-2) - math.sqrt(0.5)) ** 2
    return d / 2 * (1 + math.log(2 * math.pi)) + log_det - gain.sum(-1)


def gaussian_entropy(x: ArrayLike) -> float:
    """Entropy of the Gaussian with the samples' covariance (maximum likelihood): an upper bound up to sampling."""
    points = _two_d(x)
    away = points - points.mean(0)
    sign, log_det = np.linalg.slogdet(away.T @ away / len(points))
    if sign <= 0:
        raise UsageError("The covariance of the samples is singular: their entropy is -inf.")
    return float(points.shape[1] / 2 * (1 + math.log(2 * math.pi)) + log_det / 2)


def knn_entropy(x: ArrayLike, k: int = 3) -> tuple[float, float]:
    """Kozachenko and Leonenko's estimate with Euclidean distances, and the standard error of its mean.

    The bias grows with the dimension (upwards for Gaussians); use it to check another estimate, not to certify one.
    """
    from scipy.spatial import KDTree
    from scipy.special import digamma, gammaln

    points = _two_d(x)
    n, d = points.shape
    if not 1 <= k < n:
        raise UsageError(f"k={k} neighbours need more than {k} samples; got {n}.")
    reach = np.asarray(KDTree(points).query(points, k + 1)[0])[:, k]
    if reach.min() <= 0:
        raise UsageError(f"{int((reach <= 0).sum())} samples coincide with {k} others: a discrete law has no entropy.")
    ball = d / 2 * math.log(math.pi) - gammaln(d / 2 + 1)
    logs = d * np.log(reach)
    return float(digamma(n) - digamma(k) + ball + logs.mean()), float(logs.std() / math.sqrt(n))


def mixture_cross_entropy(fit: ArrayLike, test: ArrayLike, components: int = 8, seed: int = 0) -> Array:
    """-log q at the rows of ``test``, (n,), for a full-covariance mixture q fitted to ``fit`` by EM."""
    from sklearn.mixture import GaussianMixture

    made, held = _two_d(fit), _two_d(test)
    scale = made.std()
    q = GaussianMixture(components, init_params="k-means++", max_iter=50, tol=1e-4, random_state=seed % 2**32)
    import warnings

    with warnings.catch_warnings():
        # EM that stops at its iterations is still a density, hence still a bound.
        warnings.simplefilter("ignore")
        q.fit(made / scale)
    return -q.score_samples(held / scale) + made.shape[1] * math.log(scale)


def transition_cross_entropy(
    means: Tensor, variance: float, x: Tensor, own: Tensor | None = None, chunk: int = 1 << 20
) -> Tensor:
    """-log q(x) for a density q of the end of a simulation, (n,).

    The last step of a simulation is Gaussian, so the mean over rows of ``means`` of N(x; mean, variance I) is the law
    of its end, known up to the finite number of rows. Where few paths lead, that mixture is far too thin and -log q is
    huge. With ``own``, the ends (m, d) of the paths of ``means``, q mixes it with kernels `WIDTHS` times as wide and
    with the Gaussian of the ends' moments, in shares by maximum likelihood on ``own``, each end without its own kernel.

    Either way q is a density that the rows of ``x`` have no part in, so the mean is an upper bound of the entropy but
    for the sampling of ``x``: E[-log q(X)] = H(X) + KL(law of X | q).
    """
    from assay.information.rate_distortion.particles import half_squares

    scales = [variance] if own is None else [variance, *(variance * w**2 for w in WIDTHS)]

    def logs(points: Tensor, first: int | None = None) -> Tensor:
        """Log densities at points, (n, kernels); from row ``first`` on they are ends of these very paths."""
        half = half_squares(points, means)
        if first is not None:
            half[torch.arange(len(points)), torch.arange(first, first + len(points))] = math.inf
        rows = len(means) - (first is not None)
        return torch.stack(
            [
                torch.logsumexp(-half / scale, 1) - means.shape[1] / 2 * math.log(2 * math.pi * scale) - math.log(rows)
                for scale in scales
            ],
            1,
        )

    step = max(1, chunk // len(means))
    if own is None:
        return -torch.cat([logs(piece)[:, 0] for piece in x.split(step)])
    broad = torch.distributions.MultivariateNormal(own.mean(0), torch.atleast_2d(own.T.cov()))
    held = own[:HELD]
    known = torch.cat([logs(piece, at * step) for at, piece in enumerate(held.split(step))])
    shares = _shares(torch.cat([known, broad.log_prob(held)[:, None]], 1))
    found = [torch.cat([logs(piece), broad.log_prob(piece)[:, None]], 1) for piece in x.split(step)]
    return -torch.logsumexp(torch.cat(found) + shares.log(), 1)


def _shares(logs: Tensor, steps: int = 100) -> Tensor:
    """Weights of a mixture whose parts have these log densities, (n, parts), by EM; none is quite 0."""
    shares = torch.full_like(logs[0], 1 / logs.shape[1])
    for _ in range(steps):
        shares = torch.softmax(logs + shares.log(), 1).mean(0).clamp_min(1e-6)
    return shares / shares.sum()


class Knife(nn.Module):
    """A Gaussian mixture q(x | eps) to be trained on -log q(X_1 | eps), which bounds H(X_1) from above.

    Parameters
    ----------
    weights, means, variances, axes
        (k,), (k, d), (k, d), (k, d, d): the mixture at eps = 0. Variances along the axes start at variance - eps, kept
        above ``floor`` * eps.
    eps_range
        For the scale of what the mixture's dependence on eps is learned from.

    References
    ----------
    Pichler et al., A differential entropy estimator for training neural networks (KNIFE), 2022.
    """

    def __init__(
        self,
        weights: Tensor,
        means: Tensor,
        variances: Tensor,
        axes: Tensor,
        eps_range: tuple[float, float],
        *,
        floor: float = 0.2,
        width: int = 16,
    ) -> None:
        super().__init__()
        k, d = means.shape
        self.k, self.d, self.floor, self.eps_range = k, d, floor, eps_range
        self.log_weights = nn.Parameter(weights.log())
        self.means = nn.Parameter(means.clone())
        self.variances: Tensor
        self.axes: Tensor
        self.register_buffer("variances", variances)
        self.register_buffer("axes", axes)
        self.log_scale = nn.Parameter(torch.zeros(k, d))
        self.lower = nn.Parameter(torch.zeros(k, d, d))
        out = nn.Linear(width, k * (2 * d + 1))
        nn.init.zeros_(out.weight)
        nn.init.zeros_(out.bias)
        self.by_eps = nn.Sequential(nn.Linear(1, width), nn.Tanh(), out)

    def log_prob(self, x: Tensor, eps: Tensor) -> Tensor:
        """(n,) for x (n, d) and eps (n, 1)."""
        from assay.information.rate_distortion.networks import scaled_log

        shifts = self.by_eps(scaled_log(eps, self.eps_range)).view(len(x), self.k, 2 * self.d + 1)
        base = torch.maximum(self.variances - eps[:, None], self.floor * eps[:, None])
        log_scale = 0.5 * base.log() + self.log_scale + shifts[..., 1 : self.d + 1]
        spread = self.variances.sqrt()
        away = torch.einsum("kij,nki->nkj", self.axes, x[:, None] - self.means) - spread * shifts[..., self.d + 1 :]
        z = away * torch.exp(-log_scale)
        # Unit lower triangular: correlations within a component at no cost for the determinant.
        z = z + torch.einsum("kij,nkj->nki", self.lower.tril(-1), z)
        logs = torch.log_softmax(self.log_weights + shifts[..., 0], 1)
        logs = logs - 0.5 * (z**2).sum(-1) - log_scale.sum(-1) - self.d / 2 * math.log(2 * math.pi)
        return torch.logsumexp(logs, 1)


def flow_entropy(
    start: float, times: ArrayLike, divergence: Callable[[int], Tensor], score: Callable[[int], Tensor], eps: float
) -> float:
    """H(X_1) = H(X_0) + int E[div u + (eps / 2) |grad log p_t|^2] dt along a diffusion, by the trapezoid rule.

    Parameters
    ----------
    start
        H(X_0).
    times
        (n,) times from 0 to 1.
    divergence, score
        ``divergence(i)``: div u at samples of time i, (m,); ``score(i)``: the score there, (m, d).
    """
    t = np.asarray(times, float)
    rates = [float(divergence(i).mean() + eps / 2 * (score(i) ** 2).sum(1).mean()) for i in range(len(t))]
    return start + float(np.sum((np.array(rates)[1:] + np.array(rates)[:-1]) / 2 * np.diff(t)))


def _two_d(x: ArrayLike) -> Array:
    points = np.asarray(x, float)
    points = points[:, None] if points.ndim == 1 else points
    if points.ndim != 2 or not len(points):
        raise UsageError(f"Samples must have shape (n, d); got {np.shape(x)}.")
    return points
