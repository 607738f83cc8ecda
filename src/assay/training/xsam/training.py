"""One training as the paper does it, for any optimiser that steps by closure: epochs as rows, scores at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.errors import DataError, UsageError
from assay.nn.trainer import Checkpoint, batches, forward, seeded
from assay.training.xsam.data import Split
from assay.training.xsam.engine import SharpnessAware
from assay.training.xsam.freezing import frozen_statistics
from assay.training.xsam.networks import make_network
from assay.training.xsam.optimiser import XSAM
from assay.training.xsam.sharpness import gradient, hessian_top, moved, norm

LOG = ("Epoch", "Lr", "Train Loss", "Train Accuracy", "Test Loss", "Test Accuracy")
MEASURED_ROWS = 256
"""Training rows on which sharpness is measured at the end."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a training is, beside its data and its optimiser; the defaults are for the offline sets.

    Attributes
    ----------
    epochs, batch_size, lr, momentum, weight_decay
        Cosine annealing of ``lr`` to 0, an epoch at a time.
    cutout
        Side of a square of every training picture that is blanked at random; 0 = none.
    flip
        Mirror training pictures at random, and shift them by up to an eighth of their side.
    device
        Of torch.
    """

    network: str = "mlp"
    epochs: int = 60
    batch_size: int = 50
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 1e-3
    cutout: int = 0
    flip: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "lr"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be above 0; got {getattr(self, name)!r}.")
        if self.cutout < 0:
            raise UsageError(f"cutout must not be below 0; got {self.cutout}.")


@dataclass(slots=True)
class Trained:
    """Scores by name, a row an epoch, searches for alpha (`XSAM` only) and the network."""

    scores: dict[str, float | None]
    rows: list[dict[str, Any]]
    history: list[dict[str, Any]] = field(default_factory=list)
    net: nn.Module | None = None


def train_classifier(
    build: Callable[[nn.Module, Recipe], Any],
    split: Split,
    recipe: Recipe,
    seed: int,
    *,
    epochs_factor: int = 1,
    checkpoint: Path | None = None,
    progress: Callable[..., None] | None = None,
    measure_sharpness: bool = True,
) -> Trained:
    """Train once.

    Parameters
    ----------
    build
        ``build(net, recipe) -> optimiser``: any torch optimiser; ``step`` is called with a closure.
    epochs_factor
        Multiple of the recipe's epochs: an equal number of gradients for optimisers that need fewer a step.
    seed
        Of weights, order, augmentation and dropout.
    checkpoint
        File to resume from, saved every tenth of the epochs.
    """
    device = torch.device(recipe.device)
    epochs = recipe.epochs * epochs_factor
    x, x_test = (torch.from_numpy(v).to(device) for v in (split.x_train, split.x_test))
    y, y_test = (torch.from_numpy(v).to(device) for v in (split.y_train, split.y_test))
    x_valid, y_valid = torch.from_numpy(split.x_valid).to(device), torch.from_numpy(split.y_valid).to(device)
    size = min(recipe.batch_size, len(x))
    with seeded(seed, device) as generator:
        net = make_network(recipe.network, split.shape, split.classes).to(device)
        opt = build(net, recipe)
        saved = Checkpoint(checkpoint, {"net": net, "opt": opt}, [generator]) if checkpoint is not None else None
        plain = saved.load() if saved is not None else None
        rows: list[dict[str, Any]] = plain["rows"] if plain else []
        for epoch in range(len(rows) + 1, epochs + 1):
            lr = recipe.lr * (1 + math.cos(math.pi * (epoch - 1) / epochs)) / 2
            for group in opt.param_groups:
                group["lr"] = lr
                group.setdefault("initial_lr", recipe.lr)
            if isinstance(opt, XSAM):
                opt.new_epoch()
            begun, cpu = time.perf_counter(), time.process_time()
            loss, right, seen, passes = _epoch(net, opt, x, y, size, recipe, generator)
            seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
            if not math.isfinite(loss):
                raise DataError(f"The training loss of epoch {epoch} is {loss}; lower the learning rate or rho.")
            test_loss, test = _evaluate(net, x_test, y_test)
            rows.append(
                {
                    "epoch": epoch,
                    "lr": lr,
                    "train_loss": loss,
                    "train_accuracy": 100.0 * right / seen,
                    "test_loss": test_loss,
                    "test_accuracy": test,
                    "seconds": seconds,
                    "cpu_seconds": cpu,
                    "passes": passes,
                    "alpha": opt.alpha_ if isinstance(opt, XSAM) else None,
                    "psi": opt.psi_ if isinstance(opt, XSAM) else None,
                }
            )
            if saved is not None and epoch % max(1, epochs // 10) == 0:
                saved.save(rows=rows)
            if progress is not None:
                progress(epoch, epochs, loss=loss, test=test)
        scores = _scores(rows) | {"valid_accuracy": _evaluate(net, x_valid, y_valid)[1]}
        if measure_sharpness:
            scores |= _sharpness(net, x[:MEASURED_ROWS], y[:MEASURED_ROWS], generator)
    return Trained(scores, rows, opt.alpha_history_ if isinstance(opt, XSAM) else [], net)


def _epoch(
    net: nn.Module, opt: Any, x: Tensor, y: Tensor, size: int, recipe: Recipe, generator: torch.Generator
) -> tuple[float, int, int, float]:
    net.train()
    passes = 0.0
    by_row = isinstance(opt, SharpnessAware) and opt.by_row
    total, right = torch.zeros((), device=x.device), torch.zeros((), dtype=torch.long, device=x.device)
    seen = 0
    for index in batches(len(x), size, generator, drop_last=True):
        index = index.to(x.device)
        inputs, target = _augmented(x[index], recipe, generator), y[index]
        logged: list[tuple[Tensor, Tensor]] = []

        def compute(
            rows: Tensor | None = None, inputs: Tensor = inputs, target: Tensor = target, logged: list = logged
        ) -> Tensor:
            if rows is not None:
                inputs, target = inputs[rows], target[rows]
            logits = net(inputs)
            losses = nn.functional.cross_entropy(logits, target, reduction="none" if by_row else "mean")
            if not logged:
                # The first pass alone is at the weights themselves (momentum-SAM has none there).
                logged.append((losses.detach().mean(), (logits.detach().argmax(1) == target).sum()))
            return losses

        def closure(
            rows: Tensor | None = None, compute: Callable[..., Tensor] = compute, n: int = len(index)
        ) -> Tensor:
            nonlocal passes
            passes += 1 if rows is None else len(rows) / n
            opt.zero_grad()
            losses = compute(rows)
            (losses.mean() if by_row else losses).backward()
            return losses

        if isinstance(opt, SharpnessAware):
            opt.step(closure, compute)
        else:
            opt.step(closure)
        total += logged[0][0] * len(index)
        right += logged[0][1]
        seen += len(index)
    return float(total) / seen, int(right), seen, passes


def _augmented(x: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    if x.ndim != 4 or not (recipe.flip or recipe.cutout):
        return x
    n, _, side, width = x.shape
    device = x.device

    def draw(low: int, high: int) -> Tensor:
        return torch.randint(low, high, (n, 1, 1), generator=generator).to(device)

    rows, columns = torch.arange(side, device=device)[None, :, None], torch.arange(width, device=device)[None, None]
    if recipe.flip:
        reach = side // 8
        padded = nn.functional.pad(x, (reach,) * 4)
        mirrored = torch.where(draw(0, 2) == 1, width - 1 - columns, columns)
        place = (torch.arange(n, device=device)[:, None, None], rows + draw(0, 2 * reach + 1),
                 mirrored + draw(0, 2 * reach + 1))  # fmt: skip
        x = padded.permute(0, 2, 3, 1)[place].permute(0, 3, 1, 2).contiguous()
    if recipe.cutout:
        half = recipe.cutout / 2
        hidden = ((rows - draw(0, side)).abs() <= half) & ((columns - draw(0, width)).abs() <= half)
        x = x.masked_fill(hidden[:, None], 0.0)
    return x


def _evaluate(net: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    logits = forward(net, x)
    target = y.cpu()
    return float(nn.functional.cross_entropy(logits, target)), 100.0 * float(
        (logits.argmax(1) == target).double().mean()
    )


def _scores(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    test = [row["test_accuracy"] for row in rows]
    # The first epoch pays for first pages and kernels; where it is the only one there is no time to report.
    warm = rows[1:]
    alphas = [row["alpha"] for row in rows if row["alpha"] is not None]
    return {
        "best": max(test),
        "last5_mean": float(np.mean(test[-5:])),
        "final_train_loss": rows[-1]["train_loss"],
        "final_test_loss": rows[-1]["test_loss"],
        "seconds_epoch": float(np.median([row["seconds"] for row in warm])) if warm else None,
        "cpu_seconds_epoch": float(np.median([row["cpu_seconds"] for row in warm])) if warm else None,
        "passes": float(sum(row["passes"] for row in rows)),
        "alpha_mean": float(np.mean(alphas)) if alphas else None,
    }


def _sharpness(net: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> dict[str, float | None]:
    """At the final weights, in evaluation mode: rise of the loss one step of 0.05 uphill; largest eigenvalue."""
    params = [p for p in net.parameters() if p.requires_grad]

    def loss() -> Tensor:
        return nn.functional.cross_entropy(net(x), y)

    with frozen_statistics(net):
        g = gradient(loss, params)
        length = norm(g)
        rise = 0.0
        if length > 0.0:
            with moved(params, (g, 0.05 / length)), torch.no_grad():
                higher = float(loss())
            with torch.no_grad():
                rise = higher - float(loss())
        top = hessian_top(loss, params, generator, iterations=20, tolerance=0.01).value
    return {"rise_at_0.05": rise, "hessian_top": top}


def write_log(rows: list[dict[str, Any]], path: Path | str) -> Path:
    """Epochs as the published code logs them (CSV)."""
    import csv

    names = ("epoch", "lr", "train_loss", "train_accuracy", "test_loss", "test_accuracy")
    path = Path(path)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(LOG)
        writer.writerows([row[n] for n in names] for row in rows)
    return path
