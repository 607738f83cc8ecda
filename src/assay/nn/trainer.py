"""A training loop, not a framework: batches from memory, early stopping, best weights copied, resuming in scratch.

The pieces (`batches`, `Best`, `Checkpoint`, `seeded`, `forward`) serve loops of one's own; `train` is the common one.
"""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.core.datasets.readers import reason
from assay.core.errors import DataError, UsageError


@dataclass(slots=True)
class History:
    """What a training run left behind.

    Attributes
    ----------
    rows
        One an epoch: ``epoch`` (from 1), ``loss`` (mean over rows; None where every batch was skipped), ``seconds``,
        ``skipped`` (batches without a loss), ``value`` (of ``validate``), and what ``validate`` returned beside it.
    best_epoch, best_value
        Epoch whose weights the nets carry now; the last one without ``validate``.
    seconds, seconds_to_best
        Wall time of all epochs, and until the best one ended.
    stopped_early
        Whether patience ran out.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0
    best_value: float | None = None
    seconds: float = 0.0
    seconds_to_best: float = 0.0
    stopped_early: bool = False


@contextmanager
def seeded(seed: int, device: str | torch.device = "cpu") -> Iterator[torch.Generator]:
    """torch's own generators seeded inside (initial weights, dropout) and put back afterwards; yields one for order."""
    on = torch.device(device)
    devices = [on.index or 0] if on.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed % 2**63)
        yield torch.Generator().manual_seed((seed + 0x9E3779B9) % 2**63)


def batches(
    n: int, size: int, generator: torch.Generator | None = None, *, drop_last: bool = False
) -> Iterator[Tensor]:
    """Indices 0 .. n-1 in pieces of ``size``, shuffled with a generator, in order without; index tensors with them."""
    if n < 1 or size < 1:
        raise UsageError(f"Batches need at least one row and a size of at least 1; got n={n}, batch size {size}.")
    order = torch.arange(n) if generator is None else torch.randperm(n, generator=generator)
    for piece in order.split(size):
        if not drop_last or len(piece) == size:
            yield piece


class Best:
    """The best weights seen so far, copied, and whether patience has run out.

    Parameters
    ----------
    modules
        Whose weights are kept.
    patience
        Epochs without progress of at least ``min_delta`` after which `offer` says stop; None = never.
    """

    def __init__(
        self,
        *modules: nn.Module,
        patience: int | None = None,
        min_delta: float = 0.0,
        higher_is_better: bool = True,
    ) -> None:
        if patience is not None and patience < 1:
            raise UsageError(f"patience must be at least 1 epoch, or None; got {patience}.")
        self.modules, self.patience, self.min_delta = modules, patience, min_delta
        self.sign = 1.0 if higher_is_better else -1.0
        self.value: float | None = None
        self.epoch = 0
        self._weights: list[dict[str, Any]] = []

    def offer(self, value: float, epoch: int) -> bool:
        """Keep the weights if ``value`` is the best (NaN never is); True = stop now."""
        if math.isfinite(value) and (self.value is None or self.sign * (value - self.value) > self.min_delta):
            self.value, self.epoch = value, epoch
            self._weights = [copy.deepcopy(m.state_dict()) for m in self.modules]
        return self.patience is not None and epoch - self.epoch >= self.patience

    def restore(self) -> None:
        """Put the best weights back; nothing happens when there are none."""
        for module, weights in zip(self.modules, self._weights):
            module.load_state_dict(weights)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"value": self.value, "epoch": self.epoch, "weights": self._weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.value, self.epoch, self._weights = state["value"], state["epoch"], state["weights"]


class Checkpoint:
    """Everything a loop needs to go on after a kill, in one file that is replaced whole; no code in it is ever run.

    Parameters
    ----------
    path
        File, in ``ctx.scratch`` say.
    parts
        Objects with ``state_dict`` and ``load_state_dict``, by name.
    generators
        Whose states are kept, beside torch's own.
    """

    def __init__(self, path: Path | str, parts: dict[str, Any], generators: Sequence[torch.Generator] = ()) -> None:
        self.path, self.parts, self.generators = Path(path), parts, generators

    def save(self, **plain: Any) -> None:
        """Write all states with plain values (numbers, text, lists, dictionaries)."""
        state = {
            "parts": {name: part.state_dict() for name, part in self.parts.items()},
            "generators": [g.get_state() for g in self.generators],
            "torch": torch.get_rng_state(),
            "plain": plain,
        }
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        torch.save(state, draft)
        os.replace(draft, self.path)

    def load(self) -> dict[str, Any] | None:
        """Put all states back and return the plain values; None when there is no file."""
        if not self.path.is_file():
            return None
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
            for name, part in self.parts.items():
                part.load_state_dict(state["parts"][name])
            for generator, kept in zip(self.generators, state["generators"]):
                generator.set_state(kept)
            torch.set_rng_state(state["torch"])
        except Exception as error:  # torch documents no closed set of what a damaged file raises
            raise DataError(
                f"Checkpoint {self.path} does not fit this training ({reason(error)}); remove it to start anew."
            ) from error
        return state["plain"]


def train(
    nets: nn.Module | Sequence[nn.Module],
    loss: Callable[..., Tensor | None],
    data: Sequence[Tensor],
    *,
    epochs: int,
    batch_size: int,
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator,
    schedule: Any = None,
    validate: Callable[[], float | dict[str, float]] | None = None,
    higher_is_better: bool = True,
    patience: int | None = None,
    min_delta: float = 0.0,
    clip: float | None = None,
    drop_last: bool = False,
    checkpoint: Path | str | None = None,
    progress: Callable[..., None] | None = None,
) -> History:
    """Train nets on tensors in memory.

    Parameters
    ----------
    nets
        In training mode inside, in evaluation mode afterwards.
    loss
        ``loss(*batch) -> scalar``; None skips the batch.
    data
        Tensors of equal length, indexed together.
    schedule
        Stepped once an epoch.
    validate
        Called after every epoch, in evaluation mode, without gradients. Returns the value to choose weights by, or a
        dictionary with ``value`` and more for the history. The nets end with the weights of the best epoch.
    patience, min_delta
        Early stopping; see `Best`.
    clip
        Largest norm of the gradient.
    checkpoint
        File to resume from and to save to after every epoch.
    progress
        ``ctx.progress``.

    Raises
    ------
    DataError
        A loss is not finite (the epoch is named), or tensors differ in length.
    """
    modules = [nets] if isinstance(nets, nn.Module) else list(nets)
    if epochs < 1:
        raise UsageError(f"epochs must be at least 1; got {epochs}.")
    lengths = {len(t) for t in data}
    if len(lengths) != 1:
        raise DataError(f"Tensors to train on must have one length each; got {sorted(lengths)}.")
    if patience is not None and validate is None:
        raise UsageError("patience needs a validate function to judge progress by.")
    n = lengths.pop()
    history = History()
    best = Best(*modules, patience=patience, min_delta=min_delta, higher_is_better=higher_is_better)
    saved = None
    if checkpoint is not None:
        parts: dict[str, Any] = {f"net{i}": m for i, m in enumerate(modules)} | {"optimiser": optimiser, "best": best}
        if schedule is not None:
            parts["schedule"] = schedule
        saved = Checkpoint(checkpoint, parts, [generator])
        plain = saved.load()
        if plain is not None:
            history = History(**plain)
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for epoch in range(len(history.rows) + 1, epochs + 1):
        if history.stopped_early:
            break
        begun = time.perf_counter()
        for module in modules:
            module.train()
        total, seen, skipped = torch.zeros(()), 0, 0
        for index in batches(n, batch_size, generator, drop_last=drop_last):
            value = loss(*(t[index] for t in data))
            if value is None:
                skipped += 1
                continue
            optimiser.zero_grad(set_to_none=True)
            value.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(parameters, clip)
            optimiser.step()
            # Summed on the device: reading a number back every step would wait for it every step.
            total = total.to(value.device) + value.detach() * len(index)
            seen += len(index)
        mean = float(total) / seen if seen else None
        if mean is not None and not math.isfinite(mean):
            raise DataError(f"The training loss of epoch {epoch} is {mean}; lower the learning rate or check the data.")
        if schedule is not None:
            schedule.step()
        row: dict[str, Any] = {"epoch": epoch, "loss": mean, "skipped": skipped}
        stop = False
        for module in modules:
            module.eval()
        if validate is not None:
            with torch.no_grad():
                found = validate()
            row |= found if isinstance(found, dict) else {"value": float(found)}
            stop = best.offer(float(row["value"]), epoch)
        row["seconds"] = time.perf_counter() - begun
        history.rows.append(row)
        history.seconds += row["seconds"]
        if validate is None or best.epoch in (0, epoch):
            history.best_epoch, history.best_value, history.seconds_to_best = epoch, best.value, history.seconds
        history.stopped_early = stop
        if saved is not None:
            saved.save(**{name: getattr(history, name) for name in History.__slots__})
        if progress is not None:
            progress(epoch, epochs, loss=row["loss"])
    best.restore()
    for module in modules:
        module.eval()
    return history


@torch.no_grad()
def forward(net: Callable[[Tensor], Tensor], x: Tensor, *, batch_size: int = 1024) -> Tensor:
    """``net(x)`` in evaluation mode, without gradients, in pieces; on the CPU. The mode is put back."""
    module = net if isinstance(net, nn.Module) else None
    was = module.training if module is not None else False
    if module is not None:
        module.eval()
    try:
        return torch.cat([net(piece).cpu() for piece in x.split(batch_size)])
    finally:
        if module is not None:
            module.train(was)
