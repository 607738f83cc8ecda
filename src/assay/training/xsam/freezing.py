"""What must not differ between the forward passes of one iteration: batch statistics counted once, the same noise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm


@contextmanager
def frozen_statistics(model: nn.Module | None) -> Iterator[None]:
    """Inside, batch and instance normalisation use the batch as ever, but leave their running statistics alone."""
    if model is None:
        yield
        return
    # Without the flag batch normalisation neither counts the batch nor averages it in, whatever its momentum (None =
    # a cumulative average); instance normalisation reads the flag differently and needs a momentum of 0.
    batch = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.training and m.track_running_stats]
    instance = [m for m in model.modules() if isinstance(m, _InstanceNorm) and m.training and m.track_running_stats]
    momenta = [m.momentum for m in instance]
    for m in batch:
        m.track_running_stats = False
    for m in instance:
        m.momentum = 0.0
    try:
        yield
    finally:
        for m in batch:
            m.track_running_stats = True
        for m, momentum in zip(instance, momenta):
            m.momentum = momentum


class Noise:
    """State of torch's generators at the start of an iteration, to give every pass the same dropout masks.

    Parameters
    ----------
    devices
        Where parameters lie; each one's generator is kept beside the CPU's.
    """

    def __init__(self, devices: set[torch.device]) -> None:
        self.devices = [d for d in devices if d.type == "cuda"]
        self.start = self._read()
        self.after: list[torch.Tensor] | None = None

    def first_pass_done(self) -> None:
        """Remember where the first pass left the generators: the iteration ends there, as one pass would have."""
        self.after = self._read()

    def again(self) -> None:
        """Back to the start of the iteration."""
        self._write(self.start)

    def end(self) -> None:
        """Go on from where the first pass ended."""
        if self.after is not None:
            self._write(self.after)

    def _read(self) -> list[torch.Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(d) for d in self.devices)]

    def _write(self, states: list[torch.Tensor]) -> None:
        torch.set_rng_state(states[0])
        for device, state in zip(self.devices, states[1:]):
            torch.cuda.set_rng_state(state, device)
