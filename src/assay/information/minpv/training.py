"""Training a time score on a path: times from a table, losses weighted by the path's variance, one shared loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from assay.core.errors import UsageError, unknown_name
from assay.information.minpv import losses
from assay.information.minpv.interpolants import Direct, Interpolant, conditional
from assay.information.minpv.networks import ScoreNet
from assay.information.minpv.paths import Path
from assay.information.minpv.variance import LIMITS, Moments, integrand
from assay.nn import History, train

Loss = Literal["ctsm", "cjsm", "stsm", "joint", "secant", "energy"]
LOSSES = ("ctsm", "cjsm", "stsm", "joint", "secant", "energy")
Sampler = Literal["importance", "uniform", "lognormal"]
SAMPLERS = ("importance", "uniform", "lognormal")
GRID = 10_000


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a score network is built and trained.

    Parameters
    ----------
    loss
        ctsm, cjsm (time and data score), stsm, joint (tractable ones), secant (one evaluation a point), energy.
    steps, batch_size, lr, weight_decay, clip
        AdamW with a cosine schedule; clip is the largest norm of the gradient.
    sampler
        Of times: importance (density of 1/Var), uniform (weighted by 1/Var, the same loss in expectation), or lognormal
        (sigmoid of a normal of mean -0.4, weighted by 1/Var: another emphasis).
    antithetic
        Each noise of a bridge enters twice, the second time mirrored along the path's direction (see `mirrored`), where
        the conditional score is largest and odd: what is not signal cancels.
    pairing
        independent, or ot: batches are paired by exact optimal transport (POT).
    width, blocks, quadratic
        Of `ScoreNet`.
    device
        Where to train.
    """

    loss: Loss = "ctsm"
    steps: int = 3000
    batch_size: int = 512
    lr: float = 2e-3
    weight_decay: float = 1e-5
    clip: float = 1.0
    sampler: Sampler = "importance"
    antithetic: bool = True
    pairing: Literal["independent", "ot"] = "independent"
    width: int = 128
    blocks: int = 2
    quadratic: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, known in {"loss": LOSSES, "sampler": SAMPLERS, "pairing": ("independent", "ot")}.items():
            if getattr(self, name) not in known:
                raise unknown_name(name, getattr(self, name), known)
        for name in ("steps", "batch_size", "lr", "clip"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}={getattr(self, name)} must be above 0.")


class TimeTable:
    """Path, conditional variance and Var of the time score on a grid of times, with a sampler of its rows.

    The path is evaluated once and never again during training.
    """

    def __init__(
        self, path: Path, interpolant: Interpolant, moments: Moments, sampler: Sampler, device: str = "cpu",
        n: int = GRID,
    ) -> None:  # fmt: skip
        low, high = LIMITS
        t = low + (high - low) * (torch.arange(n, dtype=torch.float64) + 0.5) / n
        with torch.no_grad():
            c = path.coefficients(t)
            v, _ = interpolant.variance(t, c)
            var = integrand(path, t, moments, interpolant)
        if not bool(torch.isfinite(torch.stack([*c, v])).all()):
            raise UsageError("The path has coefficients that are not finite inside (0, 1).")
        # Without noise (v = 0) the conditional variance is infinite and times are weighted evenly.
        inverse = 1 / var if bool(torch.isfinite(var).all() and (var > 0).all()) else torch.ones_like(t)
        if sampler == "importance":
            density = inverse / inverse.sum()
        elif sampler == "uniform":
            density = torch.full_like(t, 1 / n)
        else:
            logit = torch.log(t) - torch.log1p(-t)
            density = torch.exp(-0.5 * (logit + 0.4).square()) / (t * (1 - t))
            density = density / density.sum()
        importance = sampler == "importance"
        weight = torch.full_like(t, float(inverse.mean())) if importance else inverse
        data_weight = v * var * inverse.mean() if importance else v
        self.cumulative = torch.cumsum(density, 0).to(device)
        self.rows = torch.stack([t, *c, weight, data_weight]).float().to(device)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Rows t, a, b, da, db, weight, data weight of n stratified times in random order: (7, n)."""
        u = (torch.randperm(n, generator=generator) + torch.rand(n, generator=generator)) / n
        at = torch.searchsorted(self.cumulative, u.to(self.cumulative)).clamp(max=len(self.cumulative) - 1)
        return self.rows[:, at]


@dataclass(slots=True)
class Trained:
    """A network with the two functions that are asked of it, and how it came about."""

    net: ScoreNet
    recipe: Recipe
    history: History

    def time_score(self, x: Tensor, t: Tensor) -> Tensor:
        """d/dt log p_t, (n,); of a secant its limit at equal times."""
        loss = self.recipe.loss
        if loss == "secant":
            return self.net(x, t, t)
        if loss == "energy":
            return losses.energy_score(self.net)(x, t)[0].detach()
        return self.net(x, t)

    def data_score(self, x: Tensor, t: Tensor) -> Tensor:
        """Gradient of log p_t in x, (n, d)."""
        if self.recipe.loss == "energy":
            return losses.energy_score(self.net)(x, t)[1].detach()
        return self.net.both(x, t)[1]

    def shortcut(self, x: Tensor) -> Tensor | None:
        """log ratio without quadrature where the model has it: one evaluation of a secant, two of an energy."""
        zero, one = torch.zeros(len(x)).to(x), torch.ones(len(x)).to(x)
        with torch.no_grad():
            if self.recipe.loss == "secant":
                return self.net(x, zero, one)
            if self.recipe.loss == "energy":
                return self.net(x, zero) - self.net(x, one)
        return None


def train_scores(
    x0: Tensor,
    x1: Tensor,
    path: Path,
    interpolant: Interpolant,
    recipe: Recipe,
    generator: torch.Generator,
    *,
    progress: Callable[..., None] | None = None,
) -> Trained:
    """Fit a score network between samples (n, d) and (m, d); initial weights come from torch's own generator.

    Raises
    ------
    DataError
        The loss stops being finite.
    """
    d = x1.shape[1]
    joint = recipe.loss in ("cjsm", "joint")
    conditional_loss = recipe.loss not in ("stsm", "joint")
    derivatives = recipe.loss in ("stsm", "joint", "secant", "energy")
    net = ScoreNet(
        d, width=recipe.width, blocks=recipe.blocks, times=2 if recipe.loss == "secant" else 1,
        quadratic=recipe.quadratic, data=joint, smooth=derivatives, stretched=not derivatives,
    ).to(recipe.device)  # fmt: skip
    x0, x1 = x0.float().to(recipe.device), x1.float().to(recipe.device)
    table = TimeTable(
        path,
        interpolant,
        Moments.of(x0.cpu(), x1.cpu()),
        recipe.sampler if conditional_loss else "uniform",
        recipe.device,
    )
    antithetic = recipe.antithetic and conditional_loss and not isinstance(interpolant, Direct)
    size = min(recipe.batch_size, max(len(x0), len(x1)))
    copies = (4 if recipe.loss in ("cjsm", "energy") else 2) if antithetic else 1
    half = max(size // copies, 1)
    optimiser = torch.optim.AdamW(net.parameters(), recipe.lr, weight_decay=recipe.weight_decay)
    advance = cosine(optimiser, recipe.lr, recipe.steps)

    def loss(_: Tensor) -> Tensor:
        first = x0[torch.randint(len(x0), (half,), generator=generator).to(x0.device)]
        last = x1[torch.randint(len(x1), (half,), generator=generator).to(x0.device)]
        if recipe.pairing == "ot":
            last = last[transport(first, last)]
        t, a, b, da, db, weight, data_weight = table.draw(half, generator)
        z = torch.randn((half, d), generator=generator).to(x0)
        if antithetic:
            z = mirrored(z, da[:, None] * first + db[:, None] * last)
            if copies == 4:  # the data score is odd in all of the noise
                z = torch.cat([z, -z])
            first, last = first.repeat(copies, 1), last.repeat(copies, 1)
            t, a, b, da, db, weight, data_weight = (
                part.repeat(copies) for part in (t, a, b, da, db, weight, data_weight)
            )
        advance()
        if recipe.loss in ("stsm", "joint"):
            return _tractable(net, recipe, interpolant, path, first, last, z, t, (a, b, da, db), generator)
        point = conditional(interpolant, t, (a, b, da, db), first, last, z)
        if recipe.loss == "cjsm":
            return losses.cjsm(net.both, point, t, weight, data_weight)
        if recipe.loss == "energy":
            return losses.cjsm(losses.energy_score(net), point, t, weight, data_weight)
        if recipe.loss == "secant":
            # Mirror images share their interval, or nothing would cancel.
            s = t * torch.rand(half, generator=generator).to(t).repeat(copies)
            # Half of the intervals have no length, where the secant is the score itself and the rest is anchored; a
            # quarter begin at 0, of which the log ratio is asked.
            kind = (torch.arange(half, device=t.device) % 4).repeat(copies)
            s = torch.where(kind < 2, t, torch.where(kind == 2, torch.zeros_like(t), s))
            return losses.secant(net, point, s, t, weight)
        return losses.ctsm(net, point, t, weight)

    # The loop's rows are places of steps: what a step sees is drawn inside the loss, by the same generator.
    epoch = max(recipe.steps // 20, 1)
    history = train(
        net, loss, (torch.zeros(epoch),), epochs=math.ceil(recipe.steps / epoch), batch_size=1, optimiser=optimiser,
        generator=generator, clip=recipe.clip, progress=progress,
    )  # fmt: skip
    return Trained(net, recipe, history)


def cosine(optimiser: torch.optim.Optimizer, lr: float, steps: int) -> Callable[[], None]:
    """A function to call before every step: the learning rate falls from ``lr`` to 0 on half a cosine."""
    done = 0

    def advance() -> None:
        nonlocal done
        for group in optimiser.param_groups:
            group["lr"] = lr * 0.5 * (1 + math.cos(math.pi * min(done / steps, 1)))
        done += 1

    return advance


def mirrored(z: Tensor, direction: Tensor) -> Tensor:
    """Noise (n, d) and its mirror image with the component along ``direction`` reversed: (2 n, d), normal both.

    The conditional time score is odd in that component alone; what the others do to the network is the same on both
    sides and cancels, which the change of all signs would not do.
    """
    along = direction / direction.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return torch.cat([z, z - 2 * (z * along).sum(1, keepdim=True) * along])


def _tractable(
    net: ScoreNet, recipe: Recipe, interpolant: Interpolant, path: Path, first: Tensor, last: Tensor, z: Tensor,
    t: Tensor, c: Any, generator: torch.Generator,
) -> Tensor:  # fmt: skip
    v, _ = interpolant.variance(t, c)
    x = c[0][:, None] * first + c[1][:, None] * last
    if not isinstance(interpolant, Direct):
        x = x + torch.sqrt(v)[:, None] * z
    noise = math.sqrt(interpolant.added_variance)
    first = first + noise * torch.randn(first.shape, generator=generator).to(first)
    last = last + noise * torch.randn(last.shape, generator=generator).to(last)
    if recipe.loss == "stsm":
        return losses.stsm(net, first, last, x, t, limits=LIMITS)
    sign = 2.0 * torch.randint(2, x.shape, generator=generator).to(x) - 1
    return losses.joint_stsm(net.both, first, last, x, t, sign, limits=LIMITS)


def transport(first: Tensor, last: Tensor) -> Tensor:
    """Which row of ``last`` goes with each row of ``first``, by exact optimal transport of squared distances."""
    import numpy as np
    import ot

    cost = torch.cdist(first, last).square().cpu().double().numpy()
    plan = ot.emd(np.full(len(first), 1 / len(first)), np.full(len(last), 1 / len(last)), cost)
    return torch.from_numpy(np.asarray(plan).argmax(1)).to(first.device)
