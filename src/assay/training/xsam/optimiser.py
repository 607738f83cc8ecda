"""XSAM: step against the direction in which the loss around the weights is largest, estimated once an epoch."""

# torch exports its multi-tensor kernels under private names only.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from assay.core.errors import UsageError, unknown_name
from assay.training.xsam.engine import Closure, SharpnessAware, UsageValueError, dot, loss_of, norm
from assay.training.xsam.plane import Found, angle, coefficients, grid, search


class XSAM(SharpnessAware):
    """Explicit sharpness-aware minimisation over any torch optimiser.

    Parameters
    ----------
    params, base_optimizer, rho, ascent_steps, adaptive, eta, model, same_noise, base_kwargs
        See `assay.training.xsam.SharpnessAware`. Groups may bring their own ``rho`` and ``rho_max``.
    rho_max
        Radius of the circle that is searched; None = twice ``rho``.
    alpha
        Where on the circle to step until the first search: 0 = the ascent's displacement, 1 = SAM.
    alpha_max, alpha_step
        The grid of the search.
    alpha_every
        ``"epoch"``: at the first iteration and the first after each `new_epoch`; a number: every so many iterations;
        None: never, ``alpha`` stays.
    search
        ``grid`` (all candidates), ``golden`` (eight passes, one peak assumed) or ``fit`` (six passes under a
        second-order model, the grid where it does not hold).
    plane
        What spans the circle beside the last gradient: the ascent's ``displacement``, or the first ``gradient`` (an
        ablation; the same for one plain step).
    process_group
        Over which the losses of a search are averaged, so that all processes choose the same alpha; None = all.

    Attributes
    ----------
    alpha_ : float
        Current alpha.
    alpha_history_ : list of dict
        A row a search: ``step``, ``alpha``, ``psi`` (the angle at the time), ``alphas``, ``losses``.

    References
    ----------
    Revisiting Sharpness-Aware Minimization: A More Faithful and Effective Implementation, arXiv 2603.10048.
    """

    def __init__(
        self,
        params: Any,
        base_optimizer: type[Optimizer] | Callable[..., Optimizer] | Optimizer = torch.optim.SGD,
        *,
        rho: float = 0.15,
        rho_max: float | None = None,
        ascent_steps: int = 1,
        alpha: float = 1.0,
        alpha_max: float = 2.0,
        alpha_step: float = 0.1,
        alpha_every: Literal["epoch"] | int | None = "epoch",
        search: Literal["grid", "golden", "fit"] = "grid",
        plane: Literal["displacement", "gradient"] = "displacement",
        adaptive: bool = False,
        eta: float = 0.0,
        model: nn.Module | None = None,
        same_noise: bool = True,
        process_group: Any = None,
        **base_kwargs: Any,
    ) -> None:
        if not 0 < alpha_step <= alpha_max:
            raise UsageValueError(f"alpha_step must lie in (0, alpha_max={alpha_max}]; got {alpha_step!r}.")
        if not 0 <= alpha <= alpha_max:
            raise UsageValueError(f"alpha must lie in [0, alpha_max={alpha_max}]; got {alpha!r}.")
        if search not in ("grid", "golden", "fit"):
            raise unknown_name("search", search, ("grid", "golden", "fit"))
        if plane not in ("displacement", "gradient"):
            raise unknown_name("plane", plane, ("displacement", "gradient"))
        often = alpha_every in ("epoch", None) or (
            isinstance(alpha_every, int) and not isinstance(alpha_every, bool) and alpha_every > 0
        )
        if not often:
            raise UsageValueError(f"alpha_every is 'epoch', a number of iterations or None; got {alpha_every!r}.")
        super().__init__(
            params,
            base_optimizer,
            rho=rho,
            ascent_steps=ascent_steps,
            adaptive=adaptive,
            eta=eta,
            model=model,
            same_noise=same_noise,
            group_options={"rho_max": 2.0 * rho if rho_max is None else rho_max},
            **base_kwargs,
        )
        self.alphas, self.plane = grid(alpha_max, alpha_step), plane
        self.alpha_every, self.search, self.process_group = alpha_every, search, process_group
        self.alpha_ = float(alpha)
        self.psi_ = 0.0
        self.alpha_history_: list[dict[str, Any]] = []
        self._due = alpha_every is not None

    def new_epoch(self) -> None:
        """An epoch begins: with ``alpha_every="epoch"`` the next iteration searches."""
        self._due = self._due or self.alpha_every == "epoch"

    def _combine(self, forward: Closure | None, closure: Closure | None) -> None:
        if self.plane == "gradient":
            for part in self._parts:
                part.move, part.scale = part.first, 1.0
        moves = [d for part in self._parts for d in part.move]
        last = [part.gradients() for part in self._parts]
        flat = [g for part in last for g in part]
        length0 = sum((part.scale * norm(part.move)) ** 2 for part in self._parts) ** 0.5
        length1 = norm(flat)
        if not (length0 > 0.0 and 0.0 < length1 < float("inf")):
            # No plane: the gradient vanished here or there. What is left of it is the update, or the scaler's to see.
            return
        same = len({part.scale for part in self._parts}) == 1
        product = (
            self._parts[0].scale * dot(moves, flat)
            if same
            else sum(part.scale * dot(part.move, g) for part, g in zip(self._parts, last))
        )
        self.psi_ = angle(product, length0, length1)
        if self._search_due():
            self._search(last, length0, length1, forward, closure)
        c0, c1 = coefficients(self.alpha_, self.psi_)
        if (c0, c1) != (0.0, 1.0):
            for part, g in zip(self._parts, last):
                if c1 != 1.0:
                    torch._foreach_mul_(g, c1)
                torch._foreach_add_(g, part.move, alpha=c0 * length1 * part.scale / length0)

    def _search_due(self) -> bool:
        every = self.alpha_every
        return self._due if not isinstance(every, int) else self.steps % every == 0

    def _search(
        self,
        last: list[list[Tensor]],
        length0: float,
        length1: float,
        forward: Closure | None,
        closure: Closure | None,
    ) -> None:
        evaluate = forward or closure
        if evaluate is None:
            raise UsageError("A search for alpha is due, and there is no forward closure; give second_step(forward).")

        def at(alpha: float) -> float:
            c0, c1 = coefficients(alpha, self.psi_)
            for part, g in zip(self._parts, last):
                radius = part.group["rho_max"]
                part.leave((part.move, radius * c0 * part.scale / length0), (g, radius * c1 / length1))
            if forward is not None:
                return self._averaged(loss_of(forward()))
            # The closure's backward pass writes into .grad: it is given none of ours to write into.
            for part in self._parts:
                for p in part.params:
                    p.grad = None
            with torch.enable_grad():
                return self._averaged(loss_of(evaluate()))

        found: Found = search(self.search, at, self.psi_, self.alphas, self.alpha_)
        if forward is None:
            for part, g in zip(self._parts, last):
                for p, kept in zip(part.params, g):
                    p.grad = kept
        self.alpha_, self._due = found.alpha, False
        self.alpha_history_.append(
            {
                "step": self.steps,
                "alpha": found.alpha,
                "psi": self.psi_,
                "alphas": list(found.alphas),
                "losses": list(found.losses),
            }
        )

    def _averaged(self, loss: float) -> float:
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            return loss
        device = self._parts[0].params[0].device
        value = torch.tensor(loss, dtype=torch.float64 if device.type != "mps" else torch.float32, device=device)
        dist.all_reduce(value, group=self.process_group)
        return float(value) / dist.get_world_size(self.process_group)

    def _own_state(self) -> dict[str, Any]:
        return {
            **super()._own_state(),
            "alpha": self.alpha_,
            "due": self._due,
            "history": [dict(row) for row in self.alpha_history_],
        }

    def _load_own_state(self, own: dict[str, Any]) -> None:
        super()._load_own_state(own)
        self.alpha_, self._due = own["alpha"], own["due"]
        self.alpha_history_ = [dict(row) for row in own["history"]]
