"""Losses of positive-unlabelled learning as pure functions of logits.

Throughout: ``g`` logits (n,), ``labelled`` a boolean mask (n,), True = labelled positive; ``prior`` the share of
positives among unlabelled rows. A batch without labelled or without unlabelled rows gives a finite loss with a
gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.learning.pu_bench.errors import BadInput

Surrogate = Literal["sigmoid", "logistic", "squared", "savage", "zero_one"]
SURROGATES: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda z: torch.sigmoid(-z),
    "logistic": lambda z: F.softplus(-z),
    "squared": lambda z: (z - 1) ** 2 / 2,
    "savage": lambda z: 4 * torch.sigmoid(-z) ** 2,
    "zero_one": lambda z: (torch.sign(-z) + 1) / 2,
}

SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sigmoid": lambda _, value: value * (value - 1),
    "logistic": lambda _, value: torch.expm1(-value),
    "squared": lambda z, _: z - 1,
    "savage": lambda _, value: value * (value.sqrt() - 2),
    "zero_one": lambda z, _: torch.zeros_like(z),
}
"""Their derivatives, from the margin and the value there."""


def surrogate(name: str) -> Callable[[Tensor], Tensor]:
    """The margin loss called so."""
    if name not in SURROGATES:
        raise BadInput(f"loss={name!r} is not known; there are {', '.join(SURROGATES)}.")
    return SURROGATES[name]


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the rows of a mask; 0, with a gradient of 0, where it is empty."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def risks(g: Tensor, labelled: Tensor, loss: str = "sigmoid") -> tuple[Tensor, Tensor, Tensor]:
    """Labelled rows as positives, labelled rows as negatives, unlabelled rows as negatives: three mean losses."""
    ell, (of_l, of_u) = surrogate(loss), _shares(g, labelled)
    negative = ell(-g)
    return ell(g) @ of_l, negative @ of_l, negative @ of_u


def _shares(g: Tensor, labelled: Tensor) -> tuple[Tensor, Tensor]:
    """Weights that turn a sum into the mean over labelled and over unlabelled rows; 0 where there are none."""
    of_l = labelled.to(g.dtype)
    count = of_l.sum()
    return of_l / count.clamp(min=1), (1 - of_l) / (len(labelled) - count).clamp(min=1)


def _parts(g: Tensor, labelled: Tensor, prior: float, loss: str) -> tuple[Tensor, Tensor]:
    """The positive and negative part of the risk, prior R_L+ and R_U- - prior R_L-, as two products."""
    ell, (of_l, of_u) = surrogate(loss), _shares(g, labelled)
    of_l = prior * of_l
    return ell(g) @ of_l, ell(-g) @ (of_u - of_l)


def upu_loss(g: Tensor, labelled: Tensor, prior: float, *, loss: str = "sigmoid") -> Tensor:
    """Unbiased risk (du Plessis et al. 2014, 2015); it may be negative."""
    positive, negative = _parts(g, labelled, prior, loss)
    return positive + negative


def nnpu_loss(
    g: Tensor, labelled: Tensor, prior: float, *, loss: str = "sigmoid", gamma: float = 1.0, beta: float = 0.0
) -> Tensor:
    """Non-negative risk (Kiryo et al. 2017): where the negative part falls below -beta, its gradient is turned around.

    The value is then ``prior * R_L+ - beta``, the gradient that of ``-gamma`` times the negative part.
    """
    positive, negative = _parts(g, labelled, prior, loss)
    if negative.item() < -beta:
        turned = -gamma * negative
        return turned + (positive - beta - turned).detach()
    return positive + negative


def nnpusb_loss(
    g: Tensor, labelled: Tensor, prior: float, *, loss: str = "logistic", gamma: float = 1.0, beta: float = 0.0
) -> Tensor:
    """The risk of PUSB (Kato et al. 2019): as `nnpu_loss`, the turned part being the value too."""
    positive, negative = _parts(g, labelled, prior, loss)
    return -gamma * negative if negative.item() < -beta else positive + negative


def upu_gradient(g: Tensor, labelled: Tensor, prior: float, *, loss: str = "sigmoid") -> tuple[Tensor, Tensor]:
    """`upu_loss`, and its gradient (n,) with respect to the logits, without autograd."""
    positive, negative, up, down = _parts_and_slopes(g, labelled, prior, loss)
    return positive + negative, up + down


def nnpu_gradient(
    g: Tensor, labelled: Tensor, prior: float, *, loss: str = "sigmoid", gamma: float = 1.0, beta: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`nnpu_loss`, and its gradient (n,) with respect to the logits, without autograd."""
    positive, negative, up, down = _parts_and_slopes(g, labelled, prior, loss)
    if negative.item() < -beta:
        return positive - beta, -gamma * down
    return positive + negative, up + down


def nnpusb_gradient(
    g: Tensor, labelled: Tensor, prior: float, *, loss: str = "logistic", gamma: float = 1.0, beta: float = 0.0
) -> tuple[Tensor, Tensor]:
    """`nnpusb_loss`, and its gradient (n,) with respect to the logits, without autograd."""
    positive, negative, up, down = _parts_and_slopes(g, labelled, prior, loss)
    if negative.item() < -beta:
        return -gamma * negative, -gamma * down
    return positive + negative, up + down


def _parts_and_slopes(g: Tensor, labelled: Tensor, prior: float, loss: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`_parts`, and the gradient of each."""
    ell, slope = surrogate(loss), SLOPES[loss]
    count = int(labelled.sum())
    of_l, of_u = prior / max(1, count), 1 / max(1, len(labelled) - count)
    mask = labelled.to(g.dtype)
    positive, negative = mask * of_l, of_u - mask * (of_u + of_l)
    opposite = -g
    as_positive, as_negative = ell(g), ell(opposite)
    up, down = slope(g, as_positive) * positive, slope(opposite, as_negative) * negative
    return as_positive @ positive, as_negative @ negative, up, -down


class _RiskModule(nn.Module):
    """``module(logits, t)`` with t = 1 labelled, anything else unlabelled."""

    def __init__(self, prior: float, loss: str) -> None:
        super().__init__()
        if not 0 < prior < 1:
            raise BadInput(f"prior must lie strictly between 0 and 1; got {prior}.")
        surrogate(loss)
        self.prior, self.loss = prior, loss


class UPULoss(_RiskModule):
    """`upu_loss` as a module."""

    def __init__(self, prior: float, loss: str = "sigmoid") -> None:
        super().__init__(prior, loss)

    def forward(self, logits: Tensor, t: Tensor) -> Tensor:
        """Scalar loss of logits (n,) or (n, 1)."""
        return upu_loss(logits.flatten(), t.flatten() == 1, self.prior, loss=self.loss)


class NNPULoss(_RiskModule):
    """`nnpu_loss` as a module."""

    def __init__(self, prior: float, loss: str = "sigmoid", gamma: float = 1.0, beta: float = 0.0) -> None:
        super().__init__(prior, loss)
        self.gamma, self.beta = gamma, beta

    def forward(self, logits: Tensor, t: Tensor) -> Tensor:
        """Scalar loss of logits (n,) or (n, 1)."""
        return nnpu_loss(
            logits.flatten(), t.flatten() == 1, self.prior, loss=self.loss, gamma=self.gamma, beta=self.beta
        )


def vpu_variational(g: Tensor, labelled: Tensor) -> Tensor:
    """log mean phi over the batch minus mean log phi over labelled rows, phi the logistic of g (Chen et al. 2020).

    Raises
    ------
    BadInput
        No labelled row: skip such a batch.
    """
    if not labelled.any():
        raise BadInput("The variational loss has no value on a batch without labelled rows; skip it.")
    log_phi = F.logsigmoid(g)
    return torch.logsumexp(log_phi, 0) - math.log(len(g)) - log_phi[labelled].mean()


def vpu_mixup(g: Tensor, g_mixed: Tensor, lam: float) -> Tensor:
    """Mean squared difference of log phi of mixed rows and of the log of ``lam phi + 1 - lam``, which has no
    gradient.
    """
    target = lam * torch.sigmoid(g.detach()) + (1 - lam)
    return ((target.log() - F.logsigmoid(g_mixed)) ** 2).mean()


def vpu_loss(g: Tensor, labelled: Tensor, g_mixed: Tensor, lam: float) -> Tensor:
    """Variational part plus ``lam`` times the mix-up part."""
    return vpu_variational(g, labelled) + lam * vpu_mixup(g, g_mixed, lam)


def soft_histogram(p: Tensor, bins: int) -> Tensor:
    """Shares of values in [0, 1] at the centres k / bins with a triangular kernel: (bins + 1,), summing to 1."""
    centres = torch.arange(bins + 1, dtype=p.dtype, device=p.device) / bins
    return (1 - bins * (p[:, None] - centres).abs()).clamp(min=0).mean(0)


def distpu_loss(g: Tensor, labelled: Tensor, prior: float, *, bins: int = 1) -> Tensor:
    """Distance of predicted label distributions from the known ones (Zhao et al. 2022).

    With one bin this is |1 - m_L| + |m_U - prior| / (2 prior), m the mean predicted probability.
    """
    p = torch.sigmoid(g)
    target = torch.zeros(bins + 1, dtype=p.dtype, device=p.device)
    target[-1] = 1.0
    total = p.sum() * 0
    if labelled.any():
        total = total + (soft_histogram(p[labelled], bins) - target).abs().mean()
    if (~labelled).any():
        target = target.clone()
        target[0], target[-1] = 1 - prior, prior
        total = total + (soft_histogram(p[~labelled], bins) - target).abs().mean() / (2 * prior)
    return total


def entropy(p: Tensor) -> Tensor:
    """Mean entropy of Bernoulli probabilities, nats."""
    q = p.clamp(1e-7, 1 - 1e-7)
    return -(q * q.log() + (1 - q) * (1 - q).log()).mean()


def softplus_at(z: Tensor, temperature: float) -> Tensor:
    """log(1 + exp(temperature z)) / temperature."""
    return F.softplus(temperature * z) / temperature


def smooth_distance(a: Tensor, b: Tensor | float, temperature: float = 1.0) -> Tensor:
    """A smooth absolute difference: softplus of a - b plus softplus of b - a."""
    return softplus_at(a - b, temperature) + softplus_at(b - a, temperature)


class PULDALoss:
    """Label-distribution alignment with a two-way margin (Jiang et al. 2023); exponential averages over batches.

    The first batch with unlabelled rows starts the averages. From then on only the smooth distance is divided by the
    weight of the present batch, so that its gradient keeps its size.

    Parameters
    ----------
    prior, temperature, margin
        See the paper; ``average`` and ``margin_average`` are the weights of the present batch.
    """

    def __init__(
        self, prior: float, temperature: float = 3.5, margin: float = 0.6, average: float = 0.15,
        margin_average: float = 0.5,
    ) -> None:  # fmt: skip
        self.prior, self.temperature, self.margin = prior, temperature, margin
        self.average, self.margin_average = average, margin_average
        self._unlabelled: Tensor | None = None
        self._margins: tuple[Tensor, Tensor] | None = None

    def alignment(self, g: Tensor, labelled: Tensor) -> Tensor:
        """2 prior (1 - m_L) plus the smooth distance of m_U and prior."""
        p = torch.sigmoid(g)
        total = 2 * self.prior * masked_mean(1 - p, labelled)
        if not (~labelled).any():
            return total
        now = p[~labelled].mean()
        if self._unlabelled is None:
            self._unlabelled = now.detach()
            return total + smooth_distance(now, self.prior, self.temperature)
        mean = (1 - self.average) * self._unlabelled + self.average * now
        self._unlabelled = mean.detach()
        return total + smooth_distance(mean, self.prior, self.temperature) / self.average

    def two_way(self, g: Tensor, labelled: Tensor) -> Tensor:
        """prior E_L[sigma(g) sigma(m - g)] plus the smooth distance of C_U and prior C_L.

        C = E[sigma(g + m) sigma(-g)], m the margin.
        """
        m = self.margin
        total = self.prior * masked_mean(torch.sigmoid(g) * torch.sigmoid(m - g), labelled)
        both = torch.sigmoid(g + m) * torch.sigmoid(-g)
        of_u, of_l = masked_mean(both, ~labelled), masked_mean(both, labelled)
        if self._margins is None:
            self._margins = (of_u.detach(), of_l.detach())
            return total + smooth_distance(of_u, self.prior * of_l)
        w = self.margin_average
        of_u = (1 - w) * self._margins[0] + w * of_u
        of_l = (1 - w) * self._margins[1] + w * of_l
        self._margins = (of_u.detach(), of_l.detach())
        return total + smooth_distance(of_u, self.prior * of_l) / w


def balanced_bce(g: Tensor, labelled: Tensor) -> Tensor:
    """Cross-entropy of labelled against unlabelled rows, each kind weighing a half."""
    return (masked_mean(F.softplus(-g), labelled) + masked_mean(F.softplus(g), ~labelled)) / 2


def class_normalised_bce(g: Tensor, soft: Tensor) -> Tensor:
    """Cross-entropy with soft labels (n, 2), column 1 positive, each class divided by its own mass (LaGAM)."""
    p, q = torch.sigmoid(g).clamp(1e-4, 1 - 1e-4), torch.sigmoid(-g).clamp(1e-4, 1 - 1e-4)
    positive, negative = soft[:, 1], soft[:, 0]
    of_positive = -(positive * p.log()).sum() / (positive.sum() + 1e-8)
    return of_positive - (negative * q.log()).sum() / (negative.sum() + 1e-8)


def soft_bce(g: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean cross-entropy with soft targets, from logits."""
    return F.binary_cross_entropy_with_logits(g, target, weight=weight)


def labels_bce(g: Tensor, labelled: Tensor) -> Tensor:
    """Mean cross-entropy with labelled rows as positives and all others as negatives."""
    return soft_bce(g, labelled.to(g.dtype))


def labels_gradient(g: Tensor, labelled: Tensor) -> tuple[Tensor, Tensor]:
    """`labels_bce`, and its gradient (n,) with respect to the logits, without autograd."""
    target = labelled.to(g.dtype)
    return soft_bce(g, target), (torch.sigmoid(g) - target) / len(g)


def logits_gradient(loss: Callable[[Tensor, Tensor], Tensor], g: Tensor, labelled: Tensor) -> tuple[Tensor, Tensor]:
    """Any loss of logits (n,) and a mask, and its gradient (n,), by autograd."""
    leaf = g.detach().requires_grad_()
    value = loss(leaf, labelled)
    (slope,) = torch.autograd.grad(value, leaf)
    return value.detach(), slope


def asymmetric_loss(
    g: Tensor, labelled: Tensor, prior: float, *, share: float, alpha: float = 0.5, positive: float = 5.0
) -> Tensor:
    """First-phase loss of PUL-CPBF: cost-sensitive logistic losses and a pull of the mean score to the prior.

    ``share`` is the labelled share of the training rows.
    """
    beta = min(0.99, max(0.05, alpha * share / (prior - prior * share + alpha * share)))
    of_labelled = (1 - beta) * share * positive * masked_mean(F.softplus(-g), labelled)
    of_unlabelled = beta * (1 - share) * masked_mean(F.softplus(g), ~labelled)
    return of_labelled + of_unlabelled + 0.1 * (torch.sigmoid(g).mean() - prior) ** 2


def elementwise_kl(p: Tensor, q: Tensor) -> Tensor:
    """Mean of p log(p / q) over rows: the published reading of the auxiliary terms of CGenPU."""
    p, q = p.clamp(1e-6, 1.0), q.clamp(1e-6, 1.0)
    return (p * (p / q).log()).mean()


def bernoulli_kl(p: Tensor, q: Tensor) -> Tensor:
    """KL divergence of Bernoulli(p) from Bernoulli(q), row by row."""
    p, q = p.clamp(1e-6, 1 - 1e-6), q.clamp(1e-6, 1 - 1e-6)
    return p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()


def contrastive_loss(features: Tensor, mask: Tensor, temperature: float = 0.07) -> Tensor:
    """Supervised contrastive loss (Khosla et al. 2020) over pairs of a boolean mask (n, n), the diagonal apart."""
    z = F.normalize(features, dim=1)
    similarity = z @ z.T / temperature
    other = ~torch.eye(len(z), dtype=torch.bool, device=z.device)
    log_share = similarity - torch.logsumexp(similarity.masked_fill(~other, -torch.inf), 1, keepdim=True)
    pairs = mask & other
    has_pair = pairs.any(1)
    if not has_pair.any():
        return features.sum() * 0
    each = (log_share * pairs).sum(1) / pairs.sum(1).clamp(min=1)
    return -each[has_pair].mean()
