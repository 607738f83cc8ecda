"""Relatives that save passes: ESAM on part of the tensors and rows, momentum-SAM without any pass of its own."""

# torch exports its multi-tensor kernels under private names only.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from assay.core.errors import UsageError
from assay.training.xsam.engine import EPS, Closure, SharpnessAware, UsageValueError, norm

Base = type[Optimizer] | Callable[..., Optimizer] | Optimizer


class ESAM(SharpnessAware):
    """SAM whose ascent moves some tensors and whose last pass sees some rows (Du et al. 2022, arXiv 2110.03141).

    Stochastic weight perturbation: each tensor ascends with probability ``beta``, by ``rho / beta`` in all; the first
    pass computes no gradients for the others. Sharpness-sensitive data selection: the last pass runs on the share
    ``gamma`` of rows whose loss the ascent raised most. With ``beta = gamma = 1`` it is SAM to the bit.

    Works by closure, in one process. With ``gamma`` below 1, ``closure(rows=None)`` goes backward through the mean of
    the losses of all rows, or of those with the given indices, and returns the losses one by one, shape (rows,);
    ``forward()`` returns those of all rows without ``backward``.

    Parameters
    ----------
    beta, gamma
        Above 0, up to 1; the number of rows is rounded up. The published code loses the row at the edge of the share.
    """

    one_step_only = True

    def __init__(
        self,
        params: Any,
        base_optimizer: Base = torch.optim.SGD,
        *,
        beta: float = 0.6,
        gamma: float = 0.5,
        **options: Any,
    ) -> None:
        for name, value in {"beta": beta, "gamma": gamma}.items():
            if not 0 < value <= 1:
                raise UsageValueError(f"{name} must lie in (0, 1]; got {value!r}.")
        super().__init__(params, base_optimizer, **options)
        self.beta, self.gamma = beta, gamma
        self._resting: list[Tensor] = []
        self._led = False

    @property
    def by_row(self) -> bool:
        """Whether `step` needs a closure of rows."""
        return self.gamma < 1

    def gradient(self, closure: Callable[..., Any], forward: Closure | None = None) -> Any:
        """See `SharpnessAware.gradient`, with the closures described above; returns the mean loss."""
        if not self.by_row:
            return self._gradient(closure)
        if forward is None:
            raise UsageError("ESAM with gamma below 1 compares the losses of rows; give forward, or gamma=1.")
        before: Tensor | None = None

        def passes() -> Tensor:
            nonlocal before
            if before is None:
                before = _by_row(closure())
                return before.mean()
            with torch.no_grad():
                rise = _by_row(forward()) - before
            # A loss that is not a number belongs to the rows to look at.
            rise = torch.nan_to_num(rise, nan=math.inf)
            rows = rise.topk(math.ceil(self.gamma * len(rise))).indices.sort().values
            return closure(rows)

        return self._gradient(passes)

    def _gradient(self, closure: Closure) -> Any:
        self._rest()
        self._led = True
        try:
            return super().gradient(closure)
        finally:
            self._led = False
            self._wake()

    def first_step(self, zero_grad: bool = True) -> None:
        """Refused from outside: which tensors ascend is drawn before the first pass."""
        if not self._led:
            raise UsageError("ESAM draws its tensors before the first pass; use step(closure) or gradient(closure).")
        self._wake()
        super().first_step(zero_grad)

    def _radius(self, group: dict[str, Any]) -> float:
        return group["rho"] / self.beta

    def _rest(self) -> None:
        params = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        if self.beta == 1 or not params:
            return
        chosen = torch.rand(len(params)) < self.beta
        if not chosen.any():
            # A pass without any gradient is an error of torch.
            chosen[torch.randint(len(params), ())] = True
        self._resting = [p for p, moves in zip(params, chosen.tolist()) if not moves]
        for p in self._resting:
            p.requires_grad_(False)

    def _wake(self) -> None:
        for p in self._resting:
            p.requires_grad_(True)
        self._resting = []


class MSAM(SharpnessAware):
    """Momentum-SAM: the gradient at ``w - rho v / |v|`` with the base optimiser's momentum v, one pass an iteration.

    v is ``momentum_buffer`` (SGD) or ``exp_avg`` (Adam, AdamW); the first iteration, without one, is the base
    optimiser's. Works by closure. Coupled weight decay acts at w; in the published code for SGD, at the moved weights.
    The loss of a step, and batch statistics, are those of the moved weights.

    References
    ----------
    Becker, Altrock and Risse 2024, arXiv 2401.12033.
    """

    one_step_only = True

    def __init__(
        self, params: Any, base_optimizer: Base = torch.optim.SGD, *, rho: float = 0.3, **options: Any
    ) -> None:
        super().__init__(params, base_optimizer, rho=rho, **options)
        for group in self.param_groups:
            if group["adaptive"]:
                raise UsageValueError("adaptive is not defined for momentum-SAM.")
            if not (group.get("momentum") or next(iter(group.get("betas", ())), 0)):
                raise UsageValueError("Momentum-SAM needs a base optimiser with momentum; give momentum=0.9, say.")

    def gradient(self, closure: Closure, forward: Closure | None = None) -> Any:
        """The one pass, at the moved weights."""
        try:
            self._move()
            with torch.enable_grad():
                loss = closure()
        finally:
            self._go_home()
        return loss.detach() if isinstance(loss, Tensor) else loss

    def first_step(self, zero_grad: bool = True) -> None:
        """Refused: there is no pass before the ascent."""
        raise UsageError("Momentum-SAM moves before its only pass; use step(closure) or gradient(closure).")

    @torch.no_grad()
    def _move(self) -> None:
        for group in self.param_groups:
            known = [(p, v) for p in group["params"] if (v := self._momentum(p)) is not None]
            if known:
                part = self._park(group, [p for p, _ in known])
                part.move = [v for _, v in known]
        length = norm([v for part in self._parts for v in part.move])
        for part in self._parts:
            part.leave((part.move, -self._radius(part.group) / (length + EPS)))

    def _momentum(self, p: Tensor) -> Tensor | None:
        state = self.state.get(p, {})
        return state.get("momentum_buffer", state.get("exp_avg"))


def _by_row(losses: Any) -> Tensor:
    if not isinstance(losses, Tensor) or losses.ndim != 1:
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise UsageError(f"ESAM with gamma below 1 needs a loss a row, shape (rows,); got {shape}.")
    return losses.detach()
