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

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
            optimizer = unwrapped(self.optimizer)
            if not isinstance(optimizer, SharpnessAware):
                return super().training_step(model, inputs, num_items_in_batch)
            if self.args.gradient_accumulation_steps != 1:
                raise UsageError("gradient_accumulation_steps must be 1 with a sharpness-aware optimiser.")
            if optimizer.by_row:
                raise UsageError("The Trainer knows no losses of rows, which ESAM compares; give it gamma=1.")
            epoch = self.state.epoch or 0.0
            # A training resumed within an epoch has searched in it, and the optimiser's state says so.
            resumed = self._epoch_seen is None and epoch % 1 > 0
            if isinstance(optimizer, XSAM) and int(epoch) != self._epoch_seen and not resumed:
                optimizer.new_epoch()
            self._epoch_seen = int(epoch)
            compute = super().training_step

            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                # The Trainer consumes its inputs: each pass is given a fresh dictionary.
                return compute(model, dict(inputs), num_items_in_batch)

            def forward() -> torch.Tensor:
                with self.compute_loss_context_manager():
                    given = self._prepare_inputs(dict(inputs))
                    loss = self.compute_loss(model, given, num_items_in_batch=num_items_in_batch)
                return loss.mean()

            return optimizer.gradient(closure, forward)

    return SharpnessAwareTrainer
