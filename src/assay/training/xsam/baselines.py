"""The family around XSAM on the same machine, so that a comparison compares methods: one registry, `OPTIMISERS`."""

# torch exports its multi-tensor kernels under private names only.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from assay.core.errors import UsageError, unknown_name
from assay.training.xsam.efficient import ESAM, MSAM
from assay.training.xsam.engine import Closure, Part, SharpnessAware, UsageValueError, dot, norm
from assay.training.xsam.optimiser import XSAM

Base = type[Optimizer] | Callable[..., Optimizer] | Optimizer


class SAM(SharpnessAware):
    """Sharpness-aware minimisation: the gradient at the end of the ascent (Foret et al. 2021, arXiv 2010.01412).

    Parameters
    ----------
    average
        With k > 1 ascent steps, the mean of the gradients at their ends instead of the last one.
    """

    def __init__(
        self, params: Any, base_optimizer: Base = torch.optim.SGD, *, average: bool = False, **options: Any
    ) -> None:
        super().__init__(params, base_optimizer, **options)
        self.average = average
        self._sums: list[list[Tensor]] = []

    def _ascent(self, part: Part) -> tuple[list[Tensor], float]:
        if self.average and self._taken >= 1:
            own = part.gradients()
            if self._taken == 1:
                self._sums.append([g.clone() for g in own])
            else:
                torch._foreach_add_(self._sums[self._parts.index(part)], own)
        return super()._ascent(part)

    def _combine(self, forward: Closure | None, closure: Closure | None) -> None:
        for part, total in zip(self._parts, self._sums):
            own = part.gradients()
            torch._foreach_add_(own, total)
            torch._foreach_div_(own, float(self.ascent_steps))

    def _go_home(self) -> None:
        super()._go_home()
        self._sums = []


class ASAM(SharpnessAware):
    """SAM in units of the weights: ascent by ``T^2 g``, ``T = |w| + eta`` (Kwon et al. 2021, arXiv 2102.11600)."""

    def __init__(
        self,
        params: Any,
        base_optimizer: Base = torch.optim.SGD,
        *,
        rho: float = 0.5,
        eta: float = 0.01,
        **options: Any,
    ) -> None:
        super().__init__(params, base_optimizer, rho=rho, eta=eta, adaptive=True, **options)


class RandomSAM(SharpnessAware):
    """Control: the gradient at a random point at distance ``rho``; the direction comes from torch's generator."""

    one_step_only = True

    def _ascent(self, part: Part) -> tuple[list[Tensor], float]:
        super()._ascent(part)
        noise = [torch.randn_like(p) for p in part.params]
        return noise, norm(noise)


class GSAM(SharpnessAware):
    """``g1 - alpha (g0 orthogonal to g1)``: also lower the gap between both losses (Zhuang et al. 2022, 2203.08065).

    Parameters
    ----------
    gsam_alpha
        Weight of the orthogonal part.
    rho_min
        ``rho`` falls with the learning rate from its first value to this one at 0; None = constant.
    """

    one_step_only = True

    def __init__(
        self,
        params: Any,
        base_optimizer: Base = torch.optim.SGD,
        *,
        gsam_alpha: float = 0.4,
        rho_min: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(params, base_optimizer, **options)
        self.gsam_alpha, self.rho_min = gsam_alpha, rho_min

    def _radius(self, group: dict[str, Any]) -> float:
        if self.rho_min is None:
            return group["rho"]
        share = group["lr"] / group.get("initial_lr", group["lr"])
        return self.rho_min + (group["rho"] - self.rho_min) * share

    def _combine(self, forward: Closure | None, closure: Closure | None) -> None:
        last, first = _all(self._parts)
        square = norm(last) ** 2
        if square > 0.0:
            torch._foreach_mul_(last, 1.0 + self.gsam_alpha * dot(first, last) / square)
            torch._foreach_add_(last, first, alpha=-self.gsam_alpha)


class GradientNormPenalty(SharpnessAware):
    """``(1 - lam) g0 + lam g1``: a penalty on the gradient's norm, fixed and linear (Zhao et al. 2022, 2202.03599)."""

    one_step_only = True

    def __init__(
        self, params: Any, base_optimizer: Base = torch.optim.SGD, *, lam: float = 0.8, **options: Any
    ) -> None:
        super().__init__(params, base_optimizer, **options)
        self.lam = lam

    def _combine(self, forward: Closure | None, closure: Closure | None) -> None:
        last, first = _all(self._parts)
        torch._foreach_mul_(last, self.lam)
        torch._foreach_add_(last, first, alpha=1.0 - self.lam)


class WSAM(SharpnessAware):
    """Loss plus ``gamma / (1 - gamma)`` times the sharpness (Yue et al. 2023, arXiv 2305.15817).

    Parameters
    ----------
    gamma
        In [0, 1); 1/2 is SAM.
    decouple
        Keep the sharpness term out of the base optimiser and subtract it with the learning rate, like decoupled weight
        decay.
    """

    one_step_only = True

    def __init__(
        self,
        params: Any,
        base_optimizer: Base = torch.optim.SGD,
        *,
        gamma: float = 0.9,
        decouple: bool = True,
        **options: Any,
    ) -> None:
        if not 0 <= gamma < 1:
            raise UsageValueError(f"gamma must lie in [0, 1); got {gamma!r}.")
        super().__init__(params, base_optimizer, **options)
        self.weight, self.decouple = gamma / (1.0 - gamma), decouple
        self._sharpness: list[tuple[dict[str, Any], list[Tensor], list[Tensor]]] = []
        self._length = 0.0

    def _combine(self, forward: Closure | None, closure: Closure | None) -> None:
        last, first = _all(self._parts)
        self._sharpness = []
        if not self.decouple:
            torch._foreach_mul_(last, self.weight)
            torch._foreach_add_(last, first, alpha=1.0 - self.weight)
        elif math.isfinite(norm(last)):
            self._length = norm(first)
            torch._foreach_sub_(last, first)
            for part in self._parts:
                self._sharpness.append((part.group, part.params, part.gradients()))
                for p, g in zip(part.params, part.first):
                    p.grad = g

    def _update(self) -> None:
        # A gradient scaler or clipping may have shortened the gradient since; the sharpness is shortened with it.
        now = norm([p.grad for _, params, _ in self._sharpness for p in params if p.grad is not None])
        super()._update()
        if self._length > 0.0:
            with torch.no_grad():
                for group, params, sharpness in self._sharpness:
                    torch._foreach_add_(params, sharpness, alpha=-group["lr"] * self.weight * now / self._length)
        self._sharpness = []


class _Remembering(SharpnessAware):
    """Base of methods with a tensor a parameter that outlives the iteration."""

    one_step_only = True

    def __init__(self, params: Any, base_optimizer: Base = torch.optim.SGD, **options: Any) -> None:
        super().__init__(params, base_optimizer, **options)
        self._memory: dict[Tensor, Tensor] = {}

    def _own_state(self) -> dict[str, Any]:
        kept = [self._memory.get(p) for group in self.param_groups for p in group["params"]]
        return {**super()._own_state(), "memory": kept}

    def _load_own_state(self, own: dict[str, Any]) -> None:
        super()._load_own_state(own)
        params = [p for group in self.param_groups for p in group["params"]]
        self._memory = {p: m.to(p).clone() for p, m in zip(params, own["memory"], strict=True) if m is not None}


class LookSAM(_Remembering):
    """SAM's gradient every ``every`` iterations; between, its part orthogonal to g0 is reused at the present length.

    Works by closure. The orthogonal part is that of the whole gradient, as in the paper (Liu et al. 2022, 2203.02714);
    pytorch-optimizer takes it tensor by tensor.
    """

    def __init__(
        self,
        params: Any,
        base_optimizer: Base = torch.optim.SGD,
        *,
        every: int = 5,
        looksam_alpha: float = 0.7,
        **options: Any,
    ) -> None:
        if every < 1:
            raise UsageValueError(f"every is a number of iterations, at least 1; got {every!r}.")
        super().__init__(params, base_optimizer, **options)
        self.every, self.looksam_alpha = every, looksam_alpha

    @torch.no_grad()
    def _ascends(self) -> bool:
        if self.steps % self.every == 0:
            return True
        known = [p for group in self.param_groups for p in group["params"] if p.grad is not None and p in self._memory]
        gradients, kept = [p.grad for p in known], [self._memory[p] for p in known]
        length = norm(kept)
        if length > 0.0:
            torch._foreach_add_(gradients, kept, alpha=self.looksam_alpha * norm(gradients) / length)
        return False

    def first_step(self, zero_grad: bool = True) -> None:
        """Refused between two SAM iterations, which have no ascent."""
        if self.steps % self.every:
            raise UsageError("LookSAM has no ascent in this iteration; use step(closure).")
        super().first_step(zero_grad)

    def _combine(self, forward: Closure | None, closure: Closure | None) -> None:
        last, first = _all(self._parts)
        square = norm(first) ** 2
        share = dot(first, last) / square if square > 0.0 else 0.0
        kept = torch._foreach_sub(last, torch._foreach_mul(first, share))
        self._memory = dict(zip((p for part in self._parts for p in part.params), kept))


class FriendlySAM(_Remembering):
    """Ascent along the batch's own noise, ``g0 - sigma EMA(g0)`` (Li et al. 2024, arXiv 2403.12350).

    Parameters
    ----------
    sigma, decay
        Share of the average that is taken off; decay of the average.
    """

    def __init__(
        self,
        params: Any,
        base_optimizer: Base = torch.optim.SGD,
        *,
        sigma: float = 1.0,
        decay: float = 0.9,
        **options: Any,
    ) -> None:
        super().__init__(params, base_optimizer, **options)
        self.sigma, self.decay = sigma, decay

    def _ascent(self, part: Part) -> tuple[list[Tensor], float]:
        vector = []
        part.first = [g.clone() for g in part.gradients()]
        for p in part.params:
            g = p.grad
            assert g is not None
            kept = self._memory.get(p)
            if kept is None:
                # The average starts as the first gradient; taking it off at once would leave nothing to follow.
                self._memory[p] = g.clone()
                vector.append(g)
            else:
                vector.append(g - self.sigma * kept)
                kept.lerp_(g, 1.0 - self.decay)
        for p, v in zip(part.params, vector):
            p.grad = v
        first = part.first
        found = super()._ascent(part)
        part.first = first
        return found


def _all(parts: list[Part]) -> tuple[list[Tensor], list[Tensor]]:
    return [g for part in parts for g in part.gradients()], [g for part in parts for g in part.first]


OPTIMISERS: dict[str, type[SharpnessAware]] = {
    "xsam": XSAM,
    "sam": SAM,
    "asam": ASAM,
    "gsam": GSAM,
    "wsam": WSAM,
    "gradient_norm_penalty": GradientNormPenalty,
    "looksam": LookSAM,
    "esam": ESAM,
    "msam": MSAM,
    "friendly_sam": FriendlySAM,
    "random_sam": RandomSAM,
}


def make_optimiser(
    name: str, params: Any, base_optimizer: Base = torch.optim.SGD, *, model: nn.Module | None = None, **options: Any
) -> Optimizer:
    """An optimiser of the family by name; ``base`` is the base optimiser alone."""
    if name == "base":
        if isinstance(base_optimizer, Optimizer):
            return base_optimizer
        return base_optimizer(params, **options)
    if name not in OPTIMISERS:
        raise unknown_name("optimiser", name, ["base", *OPTIMISERS])
    return OPTIMISERS[name](params, base_optimizer, model=model, **options)
