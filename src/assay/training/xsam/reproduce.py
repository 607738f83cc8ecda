"""The paper's claims on a CPU: ``assay make xsam reproduce``."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.core.claims import Claim, save_claims
from assay.core.map import resumable_map
from assay.core.stats.paired import holm
from assay.training.xsam import methods
from assay.training.xsam.data import make_split
from assay.training.xsam.landscape import search_plane
from assay.training.xsam.networks import make_network
from assay.training.xsam.training import Recipe, train_classifier

RADII = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2, 1.8)
TUNED: dict[str, tuple[str, dict[str, Any]]] = {
    "sam": ("sam", {}),
    "xsam": ("xsam", {}),
    "sam_k3": ("sam", {"ascent_steps": 3}),
    "xsam_k3": ("xsam", {"ascent_steps": 3}),
}
FIXED: dict[str, dict[str, Any]] = {"sgd": {}, "sgd_2x": {"epochs": 2}, "sgd_4x": {"epochs": 4}}
NOISE, EPOCHS, TUNING_SEEDS = 0.3, 60, (100, 101, 102)
"""Radii are chosen on splits that the comparison does not see again."""
STATES, QUADRATICS = 200, 200
TIMED_ROWS, TIMED_BATCH = 1000, 10
TIMED = ({"k": 1, "search": "grid"}, {"k": 1, "search": "fit"}, {"k": 3, "search": "grid"})


def reproduce(out: Path, *, seeds: int = 10, workers: int = 2, epochs: int = EPOCHS) -> None:
    """Digits with 30 % random labels, SGD, SAM and XSAM with one and three ascent steps; directions; time.

    Radii are chosen per method on validation rows (their labels are noisy too). Resumes where it stopped. Writes
    ``report.md``, ``claims.json``, ``trainings.json``.
    """
    begun = time.monotonic()
    tuning = [
        {"method": m, "rho": rho, "seed": seed, "epochs": epochs}
        for m in TUNED
        for rho in RADII
        for seed in TUNING_SEEDS
    ]
    tuned = list(resumable_map(training, tuning, key=_key, out=out, workers=workers))
    radii = {m: chosen_radius([row for row in tuned if row["method"] == m]) for m in TUNED}
    jobs: list[dict[str, Any]] = [
        {"method": m, "rho": radii.get(m), "seed": seed, "epochs": epochs}
        for m in (*FIXED, *TUNED)
        for seed in range(seeds)
    ]
    # SAM's own radius may be XSAM's loss, or the other way round: both at the other's are told beside.
    jobs += [
        {"method": m, "rho": radii[o], "seed": seed, "epochs": epochs}
        for m, o in (("sam", "xsam"), ("xsam", "sam"))
        if radii[m] != radii[o]
        for seed in range(seeds)
    ]
    rows = list(resumable_map(training, jobs, key=_key, out=out, workers=workers))
    states = list(resumable_map(directions, [{"seed": s} for s in range(STATES)], key=_state_key, out=out,
                                workers=workers))  # fmt: skip
    # One at a time: other workers would be in the measurement.
    timed = list(resumable_map(timing, TIMED, key=lambda job: f"time-{job['k']}-{job['search']}", out=out, workers=1))
    own = [row for row in rows if row["rho"] == radii.get(row["method"])]
    claims = [
        *accuracy_claims(own),
        *direction_claims(states),
        quadratic_claim(),
        *time_claims(timed),
    ]
    (out / "trainings.json").write_text(json.dumps({"tuning": tuned, "final": rows}, indent=0), encoding="utf-8")
    save_claims(out, claims)
    (out / "report.md").write_text(report(claims, rows, tuned, radii, time.monotonic() - begun), encoding="utf-8")


def chosen_radius(rows: Sequence[dict[str, Any]]) -> float:
    """The radius with the best mean validation accuracy; the smallest of equals."""
    found = {rho: float(np.mean([r["valid"] for r in rows if r["rho"] == rho])) for rho in RADII}
    return max(found, key=lambda rho: (found[rho], -rho))


def training(job: dict[str, Any]) -> dict[str, Any]:
    """One training."""
    name = job["method"]
    made = (
        methods.METHODS[TUNED[name][0]](rho=job["rho"], **TUNED[name][1])
        if name in TUNED
        else methods.base(**FIXED[name])
    )
    split = make_split("digits", np.random.default_rng(job["seed"]), noise=NOISE)
    found = train_classifier(
        made.build, split, Recipe(epochs=job["epochs"]), job["seed"], epochs_factor=made.epochs_factor,
        measure_sharpness=False,
    )  # fmt: skip
    scores = found.scores
    return {
        **job,
        "test": scores["last5_mean"],
        "best": scores["best"],
        "valid": scores["valid_accuracy"],
        "alpha": scores["alpha_mean"],
        "passes": scores["passes"],
    }


def directions(job: dict[str, Any]) -> dict[str, Any]:
    """Losses at rho_max along g0, g1 and XSAM's direction at some moment of some training of some small network."""
    rng = np.random.default_rng([job["seed"], 7])
    name = ("mlp", "mlp_plain", "cnn")[job["seed"] % 3]
    split = make_split("digits", rng, train=200, noise=float(rng.choice([0.0, 0.3])))
    rho = float(rng.choice([0.05, 0.1, 0.2, 0.5]))
    steps = int(rng.integers(1, 60))
    with torch.random.fork_rng():
        torch.manual_seed(job["seed"])
        net = make_network(name, split.shape, split.classes)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    x, y = torch.from_numpy(split.x_train), torch.from_numpy(split.y_train)

    def loss(index: Any) -> Tensor:
        return nn.functional.cross_entropy(net(x[index]), y[index])

    for _ in range(steps):
        opt.zero_grad()
        loss(rng.integers(0, len(y), 50)).backward()
        opt.step()
    batch = rng.integers(0, len(y), 50)
    found = search_plane(lambda: loss(batch), net.parameters(), rho=rho, model=net)
    return {
        "network": name,
        "rho": rho,
        "steps": steps,
        "g0": found.losses[0],
        "g1": found.losses[10],
        "xsam": max(found.losses),
        "alpha": found.alpha,
    }


def accuracy_claims(rows: Sequence[dict[str, Any]]) -> list[Claim]:
    """XSAM >= SAM >= SGD in the mean; XSAM over SGD; XSAM not below SAM."""
    test = {m: np.array([r["test"] for r in rows if r["method"] == m]) for m in (*FIXED, *TUNED)}
    claims, ps = [], []
    for end, k in (("", 1), ("_k3", 3)):
        sgd, sam, xsam = test["sgd"], test[f"sam{end}"], test[f"xsam{end}"]
        claims.append(
            Claim(
                f"k = {k}: mean test accuracy XSAM >= SAM >= SGD",
                f"{xsam.mean():.2f}, {sam.mean():.2f}, {sgd.mean():.2f}",
                bool(xsam.mean() >= sam.mean() >= sgd.mean()),
            )
        )
        p = _p_greater(xsam - sgd)
        claims.append(Claim(f"k = {k}: XSAM over SGD, paired one-sided Wilcoxon p < 0.1", f"p = {p:.4f}", p < 0.1))
        gain = float((xsam - sam).mean())
        p = _p_greater(xsam - sam)
        ps.append(p)
        claims.append(
            Claim(f"k = {k}: XSAM not below SAM (difference > -0.3 points)", f"{gain:+.2f}, p = {p:.4f}", gain > -0.3)
        )
        equal = test[f"sgd_{k + 1}x"]
        claims.append(
            Claim(
                f"k = {k}: XSAM over SGD with as many gradients ({k + 1} times the epochs)",
                f"{xsam.mean():.2f} against {equal.mean():.2f}",
                bool(xsam.mean() > equal.mean()),
            )
        )
    adjusted = holm(ps)
    claims.append(
        Claim(
            "beyond the criterion: XSAM over SAM for both k, Holm-adjusted p < 0.05",
            ", ".join(f"{p:.4f}" for p in adjusted),
            bool(max(adjusted) < 0.05),
        )
    )
    return claims


def direction_claims(states: Sequence[dict[str, Any]]) -> list[Claim]:
    """Losses in the three directions over states."""
    never = sum(s["xsam"] < max(s["g0"], s["g1"]) for s in states)
    above = float(np.mean([s["g1"] > s["g0"] for s in states]))
    by = {n: float(np.mean([s["g1"] > s["g0"] for s in states if s["network"] == n])) for n in ("mlp", "mlp_plain",
                                                                                              "cnn")}  # fmt: skip
    return [
        Claim(
            f"loss along XSAM's direction >= along g0 and g1 in {len(states)} states", f"{never} exceptions", not never
        ),
        Claim(
            "loss along g1 > along g0 in 90 % of the states",
            f"{100 * above:.1f} % ({', '.join(f'{n} {100 * v:.0f}' for n, v in by.items())})",
            above >= 0.9,
        ),
    ]


def quadratic_claim() -> Claim:
    """XSAM against both gradients on random quadratics, with the exact maximiser above all."""
    from assay.training.xsam.sharpness import quadratic_maximiser

    rng = np.random.default_rng(3)
    wrong, above, shares = 0, 0, []
    for _ in range(QUADRATICS):
        n = int(rng.integers(2, 12))
        root = rng.normal(size=(n, n))
        a = torch.from_numpy(root @ root.T / n * rng.uniform(0.2, 10))
        w = nn.Parameter(torch.from_numpy(rng.normal(size=n)))
        b = torch.from_numpy(rng.normal(size=n))

        def loss(a: Tensor = a, b: Tensor = b, w: Tensor = w) -> Tensor:
            return 0.5 * w @ a @ w - b @ w

        found = search_plane(loss, [w], rho=0.2, rho_max=0.5)
        g = a @ w.detach() - b
        d = quadratic_maximiser(a, g, 0.5)
        start = float(loss().detach())
        top = float(g @ d + 0.5 * d @ a @ d)
        best = max(found.losses)
        wrong += best < max(found.losses[0], found.losses[10]) or best - start > top + 1e-9
        above += found.losses[10] > found.losses[0]
        shares.append((best - start) / top)
    return Claim(
        f"{QUADRATICS} random quadratics: max(g0, g1) <= XSAM <= the exact maximum",
        f"{wrong} exceptions; g1 above g0 in {above}; XSAM reaches {100 * np.mean(shares):.1f} % of the largest rise",
        not wrong,
    )


def timing(job: dict[str, Any]) -> dict[str, Any]:
    """Trainings with SAM and XSAM in turns, in one process: CPU seconds of their epochs, searches included."""
    split = make_split("shapes", np.random.default_rng(0), train=TIMED_ROWS)
    recipe = Recipe(network="cnn", epochs=3, batch_size=TIMED_BATCH)
    made = methods.sam(0.15, job["k"]), methods.xsam(0.15, ascent_steps=job["k"], search=job["search"])
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(3):
        for i in (turn % 2, 1 - turn % 2):
            found = train_classifier(made[i].build, split, recipe, turn, measure_sharpness=False)
            seconds[i].extend(row["cpu_seconds"] for row in found.rows[1:])
    return {**job, "batches": TIMED_ROWS // TIMED_BATCH, "sam": seconds[0], "xsam": seconds[1]}


def time_claims(timed: Sequence[dict[str, Any]]) -> list[Claim]:
    """Overhead of the quickest epoch: what else runs on a machine slows epochs down, nothing speeds them up."""
    claims = []
    for row in timed:
        sam, xsam = min(row["sam"]), min(row["xsam"])
        predicted = {"grid": 21, "fit": 6}[row["search"]] / (3 * (row["k"] + 1) * row["batches"])
        claims.append(
            Claim(
                f"k = {row['k']}, search by {row['search']}: an epoch of XSAM costs < 5 % more than SAM "
                f"({row['batches']} iterations, CPU time)",
                f"{100 * (xsam / sam - 1):+.1f} % ({sam:.2f} to {xsam:.2f} s; the search's passes predict "
                f"{100 * predicted:+.1f} %)",
                xsam / sam < 1.05,
            )
        )
    return claims


def report(
    claims: Sequence[Claim],
    rows: Sequence[dict[str, Any]],
    tuned: Sequence[dict[str, Any]],
    radii: dict[str, float],
    seconds: float,
) -> str:
    """Claims, every method's accuracy, and accuracy by radius on the splits that chose it."""
    lines = ["# XSAM: the criteria, measured", "", "| criterion | found | |", "| --- | --- | --- |"]
    lines += [f"| {c.claim} | {c.found} | {'pass' if c.holds else 'FAIL'} |" for c in claims]
    lines += ["", "| method | rho | chosen | test accuracy, last five | std | best epoch | mean alpha | gradients |",
              "| --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    groups: dict[tuple[str, float | None], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["rho"]), []).append(row)
    for (name, rho), own in groups.items():
        test = np.array([r["test"] for r in own])
        alphas = [r["alpha"] for r in own if r["alpha"] is not None]
        lines.append(
            f"| {name} | {'-' if rho is None else f'{rho:g}'} | {'yes' if rho == radii.get(name) else 'no'} | "
            f"{test.mean():.2f} | {test.std(ddof=1) if len(own) > 1 else 0:.2f} | "
            f"{np.mean([r['best'] for r in own]):.2f} | {f'{np.mean(alphas):.2f}' if alphas else '-'} | "
            f"{np.mean([r['passes'] for r in own]):.0f} |"
        )
    lines += ["", f"Test (validation) accuracy by radius on the {len(TUNING_SEEDS)} splits that chose it:", "",
              f"| method | {' | '.join(f'{rho:g}' for rho in RADII)} |", f"| --- |{' --- |' * len(RADII)}"]  # fmt: skip
    for name in TUNED:
        cells = []
        for rho in RADII:
            own = [r for r in tuned if r["method"] == name and r["rho"] == rho]
            cells.append(f"{np.mean([r['test'] for r in own]):.1f} ({np.mean([r['valid'] for r in own]):.1f})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    trainings = len(rows) + len(tuned)
    return "\n".join([*lines, "", f"{trainings} trainings; {seconds:.0f} s since this call began.", ""])


def _p_greater(gain: np.ndarray) -> float:
    from scipy.stats import wilcoxon

    return 1.0 if not gain.any() else float(wilcoxon(gain, alternative="greater")[1])  # pyright: ignore[reportArgumentType]


def _key(job: dict[str, Any]) -> str:
    return f"{job['method']}-{job['rho']}-{job['seed']}-{job['epochs']}"


def _state_key(job: dict[str, Any]) -> str:
    return f"state-{job['seed']}"
