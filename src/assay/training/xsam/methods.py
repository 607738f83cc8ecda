"""Optimisers that the benchmark brings along, each over SGD, Adam or AdamW."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from assay.core.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from torch import nn

    from assay.training.xsam.training import Recipe

BaseName = Literal["sgd", "adam", "adamw"]


class Method:
    """An optimiser by name with its options, built anew for every training."""

    def __init__(self, name: str, base: str, options: dict[str, Any], epochs_factor: int = 1) -> None:
        self.name, self.base, self.options, self.epochs_factor = name, base, options, epochs_factor

    def build(self, net: nn.Module, recipe: Recipe) -> Any:
        """The optimiser over the network's parameters."""
        import torch

        from assay.training.xsam.baselines import make_optimiser

        shared: dict[str, Any] = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
        bases = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        if self.base == "sgd":
            shared["momentum"] = recipe.momentum
        if self.name == "pytorch_optimizer_sam":
            return _Peer(net, bases[self.base], self.options["rho"], shared)
        own = {} if self.name == "base" else {"model": net}
        return make_optimiser(self.name, net.parameters(), bases[self.base], **own, **self.options, **shared)


class _Peer:
    """pytorch-optimizer's SAM by closure; its step expects the first pass to be done."""

    def __init__(self, net: nn.Module, base: Any, rho: float, shared: dict[str, Any]) -> None:
        try:
            from pytorch_optimizer import SAM
        except ImportError:
            raise MissingExtra("method:pytorch_optimizer_sam", "xsam") from None
        self.inner = SAM(net.parameters(), base, rho=rho, **shared)
        self.net = net
        self.param_groups, self.zero_grad = self.inner.param_groups, self.inner.zero_grad
        self.state_dict, self.load_state_dict = self.inner.state_dict, self.inner.load_state_dict

    def step(self, closure: Callable[[], Any]) -> Any:
        from assay.training.xsam.freezing import frozen_statistics

        loss = closure()
        with frozen_statistics(self.net):
            self.inner.step(closure)
        return loss


def base(base: BaseName = "sgd", epochs: int = 1) -> Method:
    """The base optimiser alone, for a multiple of the epochs."""
    if epochs < 1:
        raise UsageError(f"epochs is a multiple of the recipe's, at least 1; got {epochs}.")
    return Method("base", base, {}, epochs)


def xsam(
    rho: float = 0.15,
    rho_max: float | None = None,
    ascent_steps: int = 1,
    alpha: float = 1.0,
    alpha_max: float = 2.0,
    alpha_step: float = 0.1,
    every: int | None = None,
    fixed: bool = False,
    search: Literal["grid", "golden", "fit"] = "grid",
    plane: Literal["displacement", "gradient"] = "displacement",
    adaptive: bool = False,
    base: BaseName = "sgd",
) -> Method:
    """XSAM; ``every`` searches every so many iterations instead of once an epoch, ``fixed`` never."""
    options = {
        "rho": rho, "rho_max": rho_max, "ascent_steps": ascent_steps, "alpha": alpha, "alpha_max": alpha_max,
        "alpha_step": alpha_step, "alpha_every": None if fixed else every or "epoch", "search": search, "plane": plane,
        "adaptive": adaptive,
    }  # fmt: skip
    return Method("xsam", base, options)


def sam(rho: float = 0.15, ascent_steps: int = 1, average: bool = False, base: BaseName = "sgd") -> Method:
    """SAM, with several steps and the average of their gradients where asked for."""
    return Method("sam", base, {"rho": rho, "ascent_steps": ascent_steps, "average": average})


def asam(rho: float = 0.5, eta: float = 0.01, ascent_steps: int = 1, base: BaseName = "sgd") -> Method:
    """Adaptive SAM."""
    return Method("asam", base, {"rho": rho, "eta": eta, "ascent_steps": ascent_steps})


def gsam(rho: float = 0.15, gsam_alpha: float = 0.4, rho_min: float | None = None, base: BaseName = "sgd") -> Method:
    """Surrogate-gap SAM."""
    return Method("gsam", base, {"rho": rho, "gsam_alpha": gsam_alpha, "rho_min": rho_min})


def wsam(rho: float = 0.15, gamma: float = 0.9, decouple: bool = True, base: BaseName = "sgd") -> Method:
    """Weighted SAM."""
    return Method("wsam", base, {"rho": rho, "gamma": gamma, "decouple": decouple})


def gradient_norm_penalty(rho: float = 0.15, lam: float = 0.8, base: BaseName = "sgd") -> Method:
    """A fixed linear mixture of both gradients."""
    return Method("gradient_norm_penalty", base, {"rho": rho, "lam": lam})


def looksam(rho: float = 0.15, every: int = 5, looksam_alpha: float = 0.7, base: BaseName = "sgd") -> Method:
    """SAM every few iterations."""
    return Method("looksam", base, {"rho": rho, "every": every, "looksam_alpha": looksam_alpha})


def esam(rho: float = 0.15, beta: float = 0.6, gamma: float = 0.5, base: BaseName = "sgd") -> Method:
    """SAM that ascends in some tensors and descends on some rows."""
    return Method("esam", base, {"rho": rho, "beta": beta, "gamma": gamma})


def msam(rho: float = 0.3, base: BaseName = "sgd") -> Method:
    """Momentum-SAM: one pass an iteration, at a point moved against the momentum."""
    return Method("msam", base, {"rho": rho})


def friendly_sam(rho: float = 0.15, sigma: float = 1.0, decay: float = 0.9, base: BaseName = "sgd") -> Method:
    """Ascent along the batch's own noise."""
    return Method("friendly_sam", base, {"rho": rho, "sigma": sigma, "decay": decay})


def random_sam(rho: float = 0.15, base: BaseName = "sgd") -> Method:
    """Control: a random direction of ascent."""
    return Method("random_sam", base, {"rho": rho})


def pytorch_optimizer_sam(rho: float = 0.15, base: BaseName = "sgd") -> Method:
    """The peer: SAM of the package pytorch-optimizer."""
    return Method("pytorch_optimizer_sam", base, {"rho": rho})


METHODS: dict[str, Callable[..., Method]] = {
    "sgd": base,
    "adam": partial(base, base="adam"),
    "adamw": partial(base, base="adamw"),
    "xsam": xsam,
    "sam": sam,
    "asam": asam,
    "gsam": gsam,
    "wsam": wsam,
    "gradient_norm_penalty": gradient_norm_penalty,
    "looksam": looksam,
    "esam": esam,
    "msam": msam,
    "friendly_sam": friendly_sam,
    "random_sam": random_sam,
    "pytorch_optimizer_sam": pytorch_optimizer_sam,
}
