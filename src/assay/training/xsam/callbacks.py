"""XSAM inside other people's loops: Lightning, and the Trainer of transformers."""

from __future__ import annotations

from typing import Any

import torch

from assay.core.errors import UsageError
from assay.training.xsam.engine import SharpnessAware
from assay.training.xsam.optimiser import XSAM


def unwrapped(optimizer: Any) -> Any:
    """The optimiser inside the wrappers of Lightning and accelerate."""
    while not isinstance(optimizer, SharpnessAware) and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def lightning_callback() -> Any:
    """Callback for Lightning's ``Trainer``: tells XSAM of every epoch.

    Automatic optimisation hands the optimiser a closure, which is all that it needs; searches then run the closure
    with its backward pass. Give the optimiser ``model=self`` for batch normalisation.
    """
    from lightning.pytorch import Callback

    class NewEpoch(Callback):
        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            for optimizer in map(unwrapped, trainer.optimizers):
                if isinstance(optimizer, XSAM):
                    optimizer.new_epoch()

    return NewEpoch()


def sharpness_aware_trainer(base: type[Any]) -> type[Any]:
    """A subclass of transformers' ``Trainer`` whose steps are those of a sharpness-aware optimiser.

    The optimiser comes by ``optimizers=(optimizer, scheduler)``. Gradient accumulation is refused: the Trainer runs
    micro-batches one by one, and the ascent needs them together.
    """

    class SharpnessAwareTrainer(base):
        _epoch_seen: int | None = None

        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            optimizer = unwrapped(self.optimizer)
            if not isinstance(optimizer, SharpnessAware):
                return super().training_step(model, inputs, *args, **kwargs)
            if self.args.gradient_accumulation_steps != 1:
                raise UsageError("gradient_accumulation_steps must be 1 with a sharpness-aware optimiser.")
            epoch = int(self.state.epoch or 0)
            if isinstance(optimizer, XSAM) and epoch != self._epoch_seen:
                optimizer.new_epoch()
            self._epoch_seen = epoch
            compute = super().training_step

            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                # The Trainer consumes its inputs: each pass is given a fresh dictionary.
                return compute(model, dict(inputs), *args, **kwargs)

            def forward() -> torch.Tensor:
                return self.compute_loss(model, self._prepare_inputs(dict(inputs)))

            return optimizer.gradient(closure, forward)

    return SharpnessAwareTrainer
