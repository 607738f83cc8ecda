"""MinPV: paths fitted, log ratios evaluated and networks trained beside the published scheme, written out here.

    python perf/minpv.py [--readme]

The peer cannot be installed, so its loops are rebuilt with assay's own network: a log ratio node by node with 100
trapezoids; training that evaluates the mixture path and its variance at every step and gives both to one AdamW. CPU
seconds, one thread, the best of several, in turns.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
import readme  # noqa: E402
import torch  # noqa: E402

import assay.information.minpv as room  # noqa: E402
from assay.information.minpv import losses  # noqa: E402
from assay.information.minpv.integration import rule  # noqa: E402
from assay.information.minpv.interpolants import EPS_T, conditional  # noqa: E402
from assay.information.minpv.optimum import FIT_NODES  # noqa: E402
from assay.nn import seeded  # noqa: E402

README = Path(room.__file__).with_name("README.md")
EVALUATION_AIM, FIT_AIM, STEP_AIM = 5.0, 2.0, 2.0
D, POINTS, BATCH, STEPS = 10, 5000, 256, 40
BRIDGE = room.Bridge()


def best(call: Callable[[], object], times: int = 2) -> float:
    """Least CPU seconds of some calls."""
    found = []
    for _ in range(times):
        begun = time.process_time()
        call()
        found.append(time.process_time() - begun)
    return min(found)


def fits() -> list[str]:
    """Path fits against the exact optimum."""
    lines = []
    kinds: tuple[Literal["affine", "spherical"], ...] = ("affine", "spherical")
    for kind in kinds:
        for d, x0, x1, cross, bridge in ((2, 2, 2, 0, BRIDGE), (160, 160, 160, 0, BRIDGE),
                                         (40, 40, 90, 10, room.Bridge(0.1, 0.001))):  # fmt: skip
            moments = room.Moments(d, x0, x1, cross)
            made = room.fit_path(moments, bridge, constraint=kind)
            seconds = best(partial(room.fit_path, moments, bridge, constraint=kind), 2)
            v, least = (
                float(room.path_variance(path, moments, bridge, limits=(0.0, 1.0)))
                for path in (made, room.optimal_path(moments, bridge, constraint=kind))
            )
            met = seconds <= FIT_AIM and v <= 1.01 * least
            lines.append(
                f"- path fit, {kind}, d = {d}, gamma_sq = {bridge.gamma_sq:g}, K = 5, {FIT_NODES} nodes: {seconds:.2f} "
                f"CPU s, V {100 * (v / least - 1):.4f} % above the optimum (aim {FIT_AIM:g} s, 1 %): {_met(met)}"
            )
    return lines


def evaluation() -> str:
    """log ratio of 5000 points: the node-by-node loop of 100 trapezoids against one batched rule of equal error.

    The error is that against the true log ratio, learning included; equal = within 1 %.
    """
    rng = np.random.default_rng(0)
    x0, x1 = rng.normal(size=(4000, D)), rng.normal(0.4, 0.8, size=(4000, D))
    made = room.DensityRatioEstimator("trigonometric", steps=600, batch_size=BATCH).fit(x0, x1)
    points = rng.normal(0.4, 0.8, size=(POINTS, D))
    truth = torch.from_numpy((0.5 * points**2 - 0.5 * ((points - 0.4) / 0.8) ** 2 - np.log(0.8)).sum(1))
    x = torch.from_numpy((points - made.mean_) / made.scale_).float()
    score = made.scores_.time_score

    @torch.no_grad()
    def loop() -> torch.Tensor:
        t, w = rule("trapezoid", 100)
        total = torch.zeros(len(x))
        for time_, weight in zip(t.tolist(), w.tolist()):
            total += weight * score(x, torch.full((len(x),), time_))
        return total

    def error(found: torch.Tensor) -> float:
        return float((found - truth).square().mean().sqrt())

    plain = error(loop())
    for n in (4, 6, 8, 12, 16, 24, 32, 48):
        own = error(room.integrate(score, x, n=n, estimate_error=False).value)
        if own <= 1.01 * plain:
            break
    slow = best(loop)
    quick = best(lambda: room.integrate(score, x, n=n, estimate_error=False))
    shipped = best(lambda: room.integrate(score, x, estimate_error=False))
    return (
        f"- log ratio of {POINTS} points, d = {D}: loop of 100 nodes {slow:.2f} CPU s (error {plain:.4f}), {n} nodes "
        f"at once {quick:.2f} s ({own:.4f}): {slow / quick:.1f} times faster (aim {EVALUATION_AIM:g}): "
        f"{_met(slow / quick >= EVALUATION_AIM)}; with the 32 nodes of the default {shipped:.2f} s"
    )


def trained(x0: torch.Tensor, x1: torch.Tensor, path: Any, recipe: room.Recipe) -> None:
    """A network trained along a path that stands."""
    with seeded(0) as generator:
        room.train_scores(x0, x1, path, BRIDGE, recipe, generator)


def training() -> list[str]:
    """Steps a second of the joint scheme and of assay's, same network and batch."""
    rng = np.random.default_rng(0)
    lines = []
    for width in (64, 128):
        x0, x1 = (torch.from_numpy(rng.normal(size=(4000, D))).float() for _ in range(2))
        moments = room.Moments.of(x0, x1)

        def joint(x0: torch.Tensor = x0, x1: torch.Tensor = x1, width: int = width) -> None:
            with seeded(0) as generator:
                path, net = room.KumaraswamyPath(), room.ScoreNet(D, width=width)
                optimiser = torch.optim.AdamW(
                    [{"params": net.parameters()}, {"params": path.parameters(), "weight_decay": 0.0}], 1e-3
                )
                for _ in range(STEPS):
                    first, last = (x[torch.randint(len(x), (BATCH,), generator=generator)] for x in (x0, x1))
                    t = EPS_T + (1 - 2 * EPS_T) * torch.rand(BATCH, generator=generator)
                    a, b, da, db = (c.detach() for c in path.coefficients(t))
                    z = torch.randn((BATCH, D), generator=generator)
                    point = conditional(BRIDGE, t, (a, b, da, db), first, last, z)
                    batch = room.Moments.of(first, last)
                    with torch.no_grad():
                        weight = 1 / room.integrand(path, t, batch, BRIDGE)
                    again = EPS_T + (1 - 2 * EPS_T) * torch.rand(BATCH, generator=generator)
                    v = room.integrand(path, again, batch, BRIDGE).mean()
                    total = losses.ctsm(net, point, t, weight) + v / float(v.detach())
                    optimiser.zero_grad(set_to_none=True)
                    total.backward()
                    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                    optimiser.step()

        path = room.fit_path(moments, BRIDGE, components=2)

        recipe = room.Recipe(steps=STEPS, batch_size=BATCH, width=width)
        ours = partial(trained, x0, x1, path, recipe)
        slow, quick = [], []
        for _ in range(2):
            slow.append(best(joint, 1))
            quick.append(best(ours, 1))
        ratio = min(slow) / min(quick)
        lines.append(
            f"- training, network {width} wide, batches of {BATCH}: joint scheme {STEPS / min(slow):.0f} steps "
            f"a CPU s, path first and tabulated {STEPS / min(quick):.0f}: {ratio:.2f} times (aim {STEP_AIM:g}): "
            f"{_met(ratio >= STEP_AIM)}"
        )
    return lines


def noise() -> list[str]:
    """Error after as many steps and rows with mirrored noise and with noise as published."""
    problem = room.make_problem("diag_multi_gauss", d=20)
    rng = np.random.default_rng(0)
    x0, x1 = problem.draw(20_000, rng)
    _, held = problem.draw(3000, rng)
    assert problem.log_ratio is not None
    exact, found = problem.log_ratio(held), {}
    for mirrored in (True, False):
        made = room.DensityRatioEstimator("linear", steps=500, batch_size=256, antithetic=mirrored).fit(x0, x1)
        found[mirrored] = float(np.sqrt(np.mean((made.log_ratio(held) - exact) ** 2)))
    return [
        f"- 20 dimensions, 5 nats, 500 steps of 256 rows: error of the log ratio (RMS) {found[True]:.2f} "
        f"with mirrored noise, {found[False]:.2f} with noise as published (a constant has {float(exact.std()):.2f})"
    ]


def _met(yes: bool) -> str:
    return "met" if yes else "**missed**"


def main() -> None:
    """Measure, print, and with --readme put the figures into the room's README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readme", action="store_true", help="write the figures into the README")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = [*fits(), evaluation(), *training(), *noise()]
    lines.append(f"\nLoad of the machine at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.readme:
        readme.put(README, text)


if __name__ == "__main__":
    main()
