"""The machine under every sharpness-aware optimiser here: ascent, restoring, one base optimiser, closures or steps.

An iteration is k ascent passes and one last pass at the ascent point; a subclass says what gradient the base optimiser
is then given at the restored weights. All arithmetic over parameters is by torch's multi-tensor kernels, in buffers
that are kept; first gradients are taken over from the parameters instead of copied.
"""

# torch exports its multi-tensor kernels under private names only.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from assay.core.errors import UsageError
from assay.training.xsam.freezing import Noise, frozen_statistics

EPS = 1e-12
_HALF = (torch.float16, torch.bfloat16)
Closure = Callable[[], Any]


def norm(tensors: list[Tensor]) -> float:
    """Euclidean norm over all tensors together; half precision is accumulated in single."""
    if not tensors:
        return 0.0
    parts = torch._foreach_norm(tensors, 2.0, dtype=torch.float32 if _any_half(tensors) else None)
    first = parts[0]
    if any(p.dtype != first.dtype or p.device != first.device for p in parts):
        return math.sqrt(sum(float(p) ** 2 for p in parts))
    return float(torch.linalg.vector_norm(torch.stack(parts)))


def dot(left: list[Tensor], right: list[Tensor]) -> float:
    """Inner product over all tensors together."""
    parts = []
    for a, b in zip(left, right, strict=True):
        if a.dtype in _HALF:
            a, b = a.float(), b.float()
        # Layouts with strides of their own (channels last) have no flat view.
        flat = a.is_contiguous() and b.is_contiguous()
        parts.append(torch.dot(a.view(-1), b.view(-1)) if flat else (a * b).sum())
    if not parts:
        return 0.0
    if any(p.dtype != parts[0].dtype or p.device != parts[0].device for p in parts):
        return sum(float(p) for p in parts)
    return float(torch.stack(parts).sum())


@dataclass(slots=True)
class Part:
    """One parameter group during an iteration: those of its parameters that the first pass gave a gradient.

    Attributes
    ----------
    home, away
        Weights at the start; where they stand during the passes. The parameters point at ``away`` meanwhile where
        ``swapped``, else ``away`` is the parameters themselves and ``home`` a copy.
    first
        Gradients at the start (taken over, not copied); they are also ``move`` where there is one plain ascent step.
    move, scale
        The ascent displacement is ``scale * move``.
    """

    group: dict[str, Any]
    params: list[Tensor]
    home: list[Tensor]
    away: list[Tensor]
    swapped: bool
    first: list[Tensor] = field(default_factory=list)
    move: list[Tensor] = field(default_factory=list)
    scale: float = 0.0

    def gradients(self) -> list[Tensor]:
        """Current gradients; a parameter that the last pass did not reach has a zero one."""
        for p in self.params:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        return [cast(Tensor, p.grad) for p in self.params]

    def leave(self, *terms: tuple[list[Tensor], float]) -> None:
        """Weights become home plus the sum of ``vectors * factor``."""
        (vectors, factor), *rest = terms
        if self.swapped:
            for p, home, away, v in zip(self.params, self.home, self.away, vectors):
                torch.add(home, v, alpha=factor, out=away)
                p.data = away
        else:
            torch._foreach_copy_(self.away, self.home)
            rest = list(terms)
        for vectors, factor in rest:
            torch._foreach_add_(self.away, vectors, alpha=factor)

    def go_on(self, vectors: list[Tensor], factor: float) -> None:
        """Weights move on by ``vectors * factor``."""
        torch._foreach_add_(self.away, vectors, alpha=factor)

    def go_home(self) -> None:
        """Weights are those of the start again, bit by bit."""
        if self.swapped:
            for p, home in zip(self.params, self.home):
                p.data = home
        else:
            torch._foreach_copy_(self.away, self.home)


class SharpnessAware(Optimizer):
    """Base of the family: SAM itself, where a subclass changes nothing.

    Parameters
    ----------
    params
        Parameters or groups, which may bring their own ``rho``, ``adaptive``, ``eta``.
    base_optimizer
        Class whose keyword arguments follow (``lr=...``), or an optimiser made over the same parameters.
    rho
        Length of the whole ascent (with ``adaptive``: in units of the weights).
    ascent_steps
        k; each iteration costs k + 1 forward and backward passes.
    adaptive, eta
        Scale the ascent by ``|w| + eta`` squared (Kwon et al. 2021).
    model
        Whose batch-normalisation statistics the first pass of an iteration alone may update; None = no such layers,
        or looked after by the caller (`assay.training.xsam.frozen_statistics`).
    same_noise
        Give all passes of a closure's iteration the same random numbers (dropout).

    References
    ----------
    Foret et al. 2021, arXiv 2010.01412.
    """

    one_step_only = False
    by_row = False
    swap_on = ("cpu",)

    def __init__(
        self,
        params: Any,
        base_optimizer: type[Optimizer] | Callable[..., Optimizer] | Optimizer = torch.optim.SGD,
        *,
        rho: float = 0.05,
        ascent_steps: int = 1,
        adaptive: bool = False,
        eta: float = 0.0,
        model: nn.Module | None = None,
        same_noise: bool = True,
        group_options: Mapping[str, Any] | None = None,
        **base_kwargs: Any,
    ) -> None:
        own = {"rho": rho, "adaptive": adaptive, "eta": eta, **(group_options or {})}
        if isinstance(ascent_steps, bool) or ascent_steps != int(ascent_steps) or ascent_steps < 1:
            raise UsageValueError(f"ascent_steps is a whole number, at least 1; got {ascent_steps!r}.")
        if self.one_step_only and ascent_steps != 1:
            raise UsageValueError(f"{type(self).__name__} is defined for one ascent step; got {ascent_steps}.")
        if isinstance(base_optimizer, Optimizer):
            if base_kwargs:
                raise UsageValueError(f"The base optimiser is made already; {', '.join(base_kwargs)} come too late.")
            base = base_optimizer
        else:
            base = base_optimizer(params, **base_kwargs)
        self.base_optimizer: Optimizer | None = None
        super().__init__(base.param_groups, own)
        self.base_optimizer = base
        self.defaults = {**base.defaults, **own}
        self._share()
        self.ascent_steps = int(ascent_steps)
        self.model, self.same_noise = model, same_noise
        self.steps = 0
        self._buffers: dict[Tensor, Tensor] = {}
        self._parts: list[Part] = []
        self._taken = 0
        self._broken = False

    # -- what a user calls ---------------------------------------------------------------------------------------------

    def step(self, closure: Closure | None = None, forward: Closure | None = None) -> Any:
        """One iteration.

        Parameters
        ----------
        closure
            Clears gradients, computes the loss, calls ``backward`` and returns the loss; called k + 1 times, the first
            time at the current weights. None = gradients are in place (after `gradient` or `combine`, with a gradient
            scaler or clipping between): only the base optimiser steps.
        forward
            Returns the loss without ``backward``, for the passes of a search.

        Returns
        -------
        The loss of the first pass.
        """
        loss = None
        if closure is not None:
            loss = self.gradient(closure, forward)
        elif self._taken:
            raise UsageError("step() came after first_step() without second_step() or combine().")
        self._update()
        return loss

    def gradient(self, closure: Closure, forward: Closure | None = None) -> Any:
        """All passes of an iteration: afterwards the weights are where they were, and ``.grad`` is what the base
        optimiser should see (clip it, unscale it, average it), scaled like the closure's losses. Ends with `step()`."""
        if self._taken:
            raise UsageError("gradient() came after first_step() without second_step() or combine().")
        noise = Noise({p.device for g in self.param_groups for p in g["params"]}) if self.same_noise else None
        again = _with_noise(closure, noise)
        with torch.enable_grad():
            loss = closure()
        if noise is not None:
            noise.first_pass_done()
        loss = loss.detach() if isinstance(loss, Tensor) else loss
        try:
            with frozen_statistics(self.model):
                if self._ascends():
                    for _ in range(self.ascent_steps):
                        self.first_step()
                        with torch.enable_grad():
                            again()
                    self.combine(_with_noise(forward, noise) if forward is not None else None, closure=again)
        except BaseException:
            self._go_home()
            raise
        finally:
            if noise is not None:
                noise.end()
        return loss

    @torch.no_grad()
    def first_step(self, zero_grad: bool = True) -> None:
        """One ascent step from the gradients in place; call it k times, each after a backward pass.

        ``zero_grad`` is there for callers that know it from other packages: gradients are always taken away, to be kept
        without a copy, and clearing them again is harmless. Run later forward passes inside
        `frozen_statistics(model)`. A gradient that is not finite moves nothing; `combine` then hands it on, for a
        gradient scaler to see.
        """
        if self._taken == 0:
            self._begin()
        elif self._taken >= self.ascent_steps:
            raise UsageError(f"first_step() was called {self._taken + 1} times for ascent_steps={self.ascent_steps}.")
        vectors = [self._ascent(part) for part in self._parts]
        length = math.hypot(*(n for _, n in vectors), 0.0)
        self._broken |= not math.isfinite(length)
        if not self._broken:
            for part, (vector, _) in zip(self._parts, vectors):
                scale = self._radius(part.group) / self.ascent_steps / (length + EPS)
                if self._taken == 0:
                    part.leave((vector, scale))
                else:
                    part.go_on(vector, scale)
                if self.ascent_steps == 1:
                    part.move, part.scale = vector, scale
                elif self._taken == 0:
                    part.move, part.scale = list(torch._foreach_mul(vector, scale)), 1.0
                else:
                    torch._foreach_add_(part.move, vector, alpha=scale)
        self._taken += 1
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    @torch.no_grad()
    def combine(self, forward: Closure | None = None, *, closure: Closure | None = None) -> None:
        """After the last backward pass: restore the weights, and put the update direction into ``.grad``.

        Parameters
        ----------
        forward, closure
            For the passes of a search, where one is due: ``forward`` returns a loss; ``closure`` may stand in for it,
            at the price of its backward passes.
        """
        if self._taken < self.ascent_steps:
            raise UsageError(f"Only {self._taken} of {self.ascent_steps} ascent steps were taken before combine().")
        try:
            if self._broken:
                # What is not finite must reach the gradient scaler, even where the last pass was finite.
                for part in self._parts:
                    for p, g in zip(part.params, part.first):
                        p.grad = g.fill_(math.nan)
            else:
                self._combine(forward, closure)
        finally:
            self._go_home()

    def second_step(self, forward: Closure | None = None, *, zero_grad: bool = False) -> None:
        """`combine`, then the base optimiser's step."""
        self.combine(forward)
        self._update()
        if zero_grad:
            self.zero_grad()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; the base optimiser fills in its own defaults."""
        if self.base_optimizer is None:
            super().add_param_group(param_group)
        else:
            for name, value in self.defaults.items():
                param_group.setdefault(name, value)
            self.base_optimizer.add_param_group(param_group)
        _check(param_group)

    def state_dict(self) -> dict[str, Any]:
        """State of the base optimiser and the groups, as every optimiser's, and ``sharpness_aware`` beside them."""
        return {**super().state_dict(), "sharpness_aware": self._own_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put a state back."""
        given = dict(state_dict)
        own = given.pop("sharpness_aware", None)
        if own is None:
            raise UsageError("This optimiser state lacks sharpness_aware: it is of another kind of optimiser.")
        super().load_state_dict(given)
        base = cast(Optimizer, self.base_optimizer)
        base.param_groups, base.state = self.param_groups, self.state
        self._load_own_state(own)

    # -- what a subclass changes ---------------------------------------------------------------------------------------

    def _ascends(self) -> bool:
        """Whether this iteration has ascent steps; asked after the first pass."""
        return True

    def _radius(self, group: dict[str, Any]) -> float:
        return group["rho"]

    def _ascent(self, part: Part) -> tuple[list[Tensor], float]:
        """Direction of one ascent step of a group, to be scaled by the norm over all groups, and its part of that."""
        gradients = part.gradients()
        if self._taken == 0:
            part.first = _owned(gradients)
            gradients = part.first
        if not part.group["adaptive"]:
            return gradients, norm(gradients)
        size = list(torch._foreach_abs(part.params))
        if part.group["eta"]:
            torch._foreach_add_(size, part.group["eta"])
        vector = torch._foreach_mul(size, gradients)
        length = norm(list(vector))
        torch._foreach_mul_(vector, size)
        return list(vector), length

    def _combine(self, forward: Closure | None, closure: Closure | None) -> None:
        """Put the update direction into ``.grad``; the weights are still at the ascent point."""

    def _own_state(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def _load_own_state(self, own: dict[str, Any]) -> None:
        self.steps = own["steps"]

    # -- inside --------------------------------------------------------------------------------------------------------

    def _share(self) -> None:
        base = cast(Optimizer, self.base_optimizer)
        self.param_groups, self.state = base.param_groups, base.state

    def _begin(self) -> None:
        self._broken = False
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            for p in params:
                if p.grad.is_sparse:
                    raise UsageError("Sparse gradients have no place on a sphere of all weights; use dense ones.")
            if params:
                self._park(group, params)

    def _park(self, group: dict[str, Any], params: list[Tensor]) -> Part:
        # Pointing at a second buffer saves two copies of all weights. On accelerators those are cheap, and
        # captured graphs hold on to addresses.
        swapped = all(p.device.type in self.swap_on for p in params)
        buffers = [self._buffer(p) for p in params]
        weights = [p.detach() for p in params]
        if not swapped:
            torch._foreach_copy_(buffers, weights)
        home, away = (weights, buffers) if swapped else (buffers, weights)
        self._parts.append(Part(group, params, home, away, swapped))
        return self._parts[-1]

    def _buffer(self, p: Tensor) -> Tensor:
        kept = self._buffers.get(p)
        if kept is None or kept.shape != p.shape or kept.dtype != p.dtype or kept.device != p.device:
            kept = self._buffers[p] = torch.empty_like(p, requires_grad=False)
        return kept

    @torch.no_grad()
    def _go_home(self) -> None:
        for part in self._parts:
            part.go_home()
        self._parts, self._taken = [], 0

    def _update(self) -> None:
        cast(Optimizer, self.base_optimizer).step()
        self.steps += 1


class UsageValueError(UsageError, ValueError):
    """A hyper-parameter out of its range; also a ValueError, which is what optimisers raise."""


def average_gradients(optimizer: Optimizer, group: Any = None) -> None:
    """Mean of ``.grad`` over the processes of a group: once an iteration, after passes under ``no_sync``."""
    import torch.distributed as dist

    if not dist.is_initialized():
        return
    world = dist.get_world_size(group)
    for one in optimizer.param_groups:
        for p in one["params"]:
            if p.grad is not None:
                dist.all_reduce(p.grad, group=group)
                p.grad.div_(world)


def _owned(gradients: Iterable[Tensor]) -> list[Tensor]:
    """Gradients that no later backward pass writes into: taken over, or copied where the storage is somebody's."""
    shared = torch.distributed.is_available() and torch.distributed.is_initialized()
    kept = []
    for g in gradients:
        g = g.detach()
        whole = g.untyped_storage().nbytes() == g.numel() * g.element_size()
        kept.append(g if whole and not shared else g.clone())
    return kept


def _with_noise(closure: Closure, noise: Noise | None) -> Closure:
    if noise is None:
        return closure

    def again() -> Any:
        noise.again()
        return closure()

    return again


def _check(group: Mapping[str, Any]) -> None:
    for name in ("rho", "rho_max"):
        if name in group and not (group[name] > 0 and math.isfinite(group[name])):
            raise UsageValueError(f"{name} must be above 0 and finite; got {group[name]!r}.")
    if group["eta"] < 0:
        raise UsageValueError(f"eta must not be below 0; got {group['eta']!r}.")
    for p in group["params"]:
        if torch.is_complex(p):
            raise UsageValueError("Complex parameters are not supported; give their real and imaginary parts.")


def _any_half(tensors: list[Tensor]) -> bool:
    return any(t.dtype in _HALF for t in tensors)


def loss_of(value: Any) -> float:
    """A closure's loss as a number."""
    return float(value.detach()) if isinstance(value, Tensor) else float(value)
