"""XSAM's and SAM's steps beside pytorch-optimizer's SAM, and the alpha search beside plain candidates, in one process.

    python perf/xsam.py [--readme]

Steps are timed without a network: gradients of ResNet-18's 62 tensors (11.2 million weights) are put in place by hand,
so that only the optimiser's own work counts. The plain search builds every candidate tensor by tensor and allocates it
anew. Epochs are those of a small CNN with 100 iterations, in turns. CPU seconds, one thread, the best of several.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import pytorch_optimizer  # noqa: E402
import readme  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

import assay.training.xsam as room  # noqa: E402
from assay.training.xsam import methods  # noqa: E402
from assay.training.xsam.plane import coefficients, grid  # noqa: E402

README = Path(room.__file__).with_name("README.md")
SGD = {"lr": 1e-6, "momentum": 0.9, "weight_decay": 1e-3}
STEP_AIM, OWN_AIM, SEARCH_AIM, EPOCH_AIM = 1.5, 3.0, 0.6, 1.03


class Still(torch.optim.Optimizer):
    """A base optimiser that does nothing: what is left is the work of SAM itself."""

    def __init__(self, params: Any, **kwargs: Any) -> None:
        super().__init__(params, {})

    def step(self, closure: Any = None) -> None:
        """Nothing."""


def weights() -> list[nn.Parameter]:
    """Parameters of ResNet-18 for 100 classes."""
    torch.manual_seed(0)
    return list(room.make_network("resnet18", (3, 32, 32), 100).parameters())


def step_seconds(make: Callable[[list[nn.Parameter]], Any], times: int = 12) -> float:
    """CPU seconds of both halves of a step with gradients in place."""
    params = weights()
    gradients = [[torch.randn_like(p) * 0.01 for p in params] for _ in range(2)]
    opt = make(params)
    best = float("inf")
    for _ in range(times):
        total = 0.0
        for half, call in enumerate((opt.first_step, opt.second_step)):
            for p, g in zip(params, gradients[half]):
                p.grad = g.clone()
            begun = time.process_time()
            call()
            total += time.process_time() - begun
        best = min(best, total)
    return best


def search_seconds(plain: bool, times: int = 3) -> float:
    """CPU seconds of placing 21 candidates, without any forward pass."""
    params = weights()
    home = [p.detach().clone() for p in params]
    v0, v1 = ([torch.randn_like(p) for p in params] for _ in range(2))
    best = float("inf")
    opt = room.XSAM(params, Still, rho=0.15, alpha_every=1)
    for _ in range(times):
        if plain:
            begun = time.process_time()
            with torch.no_grad():
                n0, n1 = (torch.stack([v.square().sum() for v in vs]).sum().sqrt() for vs in (v0, v1))
                psi = float(torch.arccos(torch.stack([(a * b).sum() for a, b in zip(v0, v1)]).sum() / n0 / n1))
                for alpha in grid(2.0, 0.1):
                    c0, c1 = coefficients(alpha, psi)
                    candidate = [c0 * a / n0 + c1 * b / n1 for a, b in zip(v0, v1)]
                    for p, h, d in zip(params, home, candidate):
                        p.copy_(h + 0.3 * d)
                for p, h in zip(params, home):
                    p.copy_(h)
            best = min(best, time.process_time() - begun)
        else:
            for p, g in zip(params, v0):
                p.grad = g.clone()
            opt.first_step()
            for p, g in zip(params, v1):
                p.grad = g.clone()
            begun = time.process_time()
            opt.combine(lambda: 1.0)
            best = min(best, time.process_time() - begun)
    return best


EPOCHS = ((1, "grid", 100), (1, "fit", 100), (1, "grid", 400), (3, "grid", 100))
"""Ascent steps, search, iterations; 400 is the paper's number on CIFAR-100."""


def epochs(k: int, search: Any, iterations: int) -> tuple[float, float]:
    """CPU seconds of the quickest epoch of SAM and of XSAM, in turns; the first epoch of a training does not count."""
    size = 1000 // iterations if iterations <= 100 else 4
    split = room.make_split("shapes", np.random.default_rng(0), train=size * iterations)
    recipe = room.Recipe(network="cnn", epochs=2, batch_size=size)
    found: tuple[list[float], list[float]] = ([], [])
    made = methods.sam(0.15, k), methods.xsam(0.15, ascent_steps=k, search=search)
    for turn in range(3):
        for i in (turn % 2, 1 - turn % 2):
            done = room.train_classifier(made[i].build, split, recipe, turn, measure_sharpness=False)
            found[i].extend(row["cpu_seconds"] for row in done.rows[1:])
    return min(found[0]), min(found[1])


def main() -> int:
    """Print a table; exit code 1 if an aim is missed."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--readme", action="store_true", help="write the table into the room's README")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = ["| step on ResNet-18's weights | own work, CPU ms | with SGD's step, CPU ms |", "| --- | --- | --- |"]
    steps: dict[str, tuple[float, float]] = {}
    makers: dict[str, Callable[[Any, Any, dict[str, Any]], Any]] = {
        "pytorch-optimizer SAM": lambda p, b, k: pytorch_optimizer.SAM(p, b, rho=0.15, **k),
        "pytorch-optimizer SAM, foreach": lambda p, b, k: pytorch_optimizer.SAM(p, b, rho=0.15, foreach=True, **k),
        "assay SAM": lambda p, b, k: room.SAM(p, b, rho=0.15, **k),
        "assay XSAM between searches": lambda p, b, k: room.XSAM(p, b, rho=0.15, alpha=1.3, alpha_every=None, **k),
    }
    for name, make in makers.items():
        own = step_seconds(lambda p, make=make: make(p, Still, {}))
        whole = step_seconds(lambda p, make=make: make(p, torch.optim.SGD, SGD))
        steps[name] = own, whole
        lines.append(f"| {name} | {1e3 * own:.1f} | {1e3 * whole:.1f} |")
        print(lines[-1], flush=True)
    peer, mine = steps["pytorch-optimizer SAM"], steps["assay SAM"]
    plain, search = search_seconds(True), search_seconds(False)
    aims = [
        (f"SAM, whole step, over the peer's: {peer[1] / mine[1]:.2f} times faster (aim {STEP_AIM})",
         peer[1] / mine[1] >= STEP_AIM),
        (f"SAM, own work, over the peer's: {peer[0] / mine[0]:.2f} times faster (aim {OWN_AIM:g})",
         peer[0] / mine[0] >= OWN_AIM),
        (f"search: 21 candidates placed in {1e3 * search:.0f} CPU ms, plainly {1e3 * plain:.0f}: "
         f"{search / plain:.2f} of it (aim {SEARCH_AIM})", search / plain <= SEARCH_AIM),
    ]  # fmt: skip
    for k, kind, iterations in EPOCHS:
        sam, xsam = epochs(k, kind, iterations)
        predicted = 1 + {"grid": 21, "fit": 6}[kind] / (3 * (k + 1) * iterations)
        aims.append(
            (
                f"epoch of {iterations} iterations, k = {k}, search by {kind}: XSAM {xsam:.2f} CPU s, SAM {sam:.2f}: "
                f"{xsam / sam:.3f} times (aim {EPOCH_AIM}; the search's passes predict {predicted:.3f})",
                xsam / sam <= EPOCH_AIM,
            )
        )
    lines += ["", *(f"- {text}: {'met' if met else '**missed**'}" for text, met in aims)]
    lines += ["", f"Load of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."]
    print("\n".join(lines[6:]))
    if given.readme:
        readme.put(README, "\n".join(lines) + "\n")
    return 0 if all(met for _, met in aims) else 1


if __name__ == "__main__":
    raise SystemExit(main())
