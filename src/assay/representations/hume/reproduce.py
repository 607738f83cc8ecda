"""The claims of the paper that published files hold, worked out anew, and a small live study with known truth."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.claims import Claim
from assay.representations.hume import methods, scoring, standin
from assay.representations.hume.aggregate import HUMAN, by_kind, mean_subset, of_kinds, published, rank_of
from assay.representations.hume.registry import KINDS, MAIN
from assay.representations.hume.results import read_scores

BEST = "NovaSearch__jasper_en_vision_language_v1"
NOISE = (0.05, 0.15, 0.3, 0.45, 0.6, 0.8)
COVERED = (0.93, 0.97)


def reproduce(out: Path, *, results: str | None = None, live: bool = True, seed: int = 0) -> None:
    """Measure the claims; writes ``report.md`` and, live, the runs.

    Parameters
    ----------
    results
        Folder of published results (``main_scores.csv`` or MTEB files); None = the copy that is shipped.
    live
        Also the live study: simulated people, MiniLM and a random encoder on stand-in items.
    seed
        Of the live study.
    """
    start = time.monotonic()
    claims = exact(published()["scores"] if results is None else read_scores(results))
    if live:
        claims += [order(out, seed), noise(seed), coverage(seed)]
    (out / "report.md").write_text(_report(claims, time.monotonic() - start), encoding="utf-8")


def exact(scores: Mapping[str, Mapping[str, float]]) -> list[Claim]:
    """Part (a): means, rank and tables from the published files, in percent."""
    human, best = scores[HUMAN], scores[BEST]
    overall = {name: mean_subset(values) for name, values in scores.items()}
    models = {name: v for name, v in overall.items() if name != HUMAN and v is not None}
    leader = max(models, key=lambda name: models[name])
    place = rank_of(HUMAN, overall)
    claims = [
        _figure("human mean over 26 pairs", overall[HUMAN], "77.64"),
        _figure(f"best model ({leader}) over 26 pairs", models[leader], "80.14"),
        Claim(f"people are 4th among {len(models)} models and people", f"rank {place}", place == 4 and leader == BEST),
        _figure("human mean over 19 pairs without clustering", mean_subset(human, _without()), "81.18"),
    ]
    top = {kind: max(by_kind(scores[name])[kind] or 0.0 for name in models) for kind in KINDS}
    tables: tuple[tuple[str, Mapping[str, float | None], tuple[str | None, ...]], ...] = (
        ("human", by_kind(human), ("79.1", None, "88.3", "76.5")),
        ("best model of the type", top, ("80.3", None, "94.8", "77.1")),
        ("human, English", by_kind(human, "eng"), ("70.3", "67.4", "87.2", "83.1")),
        (f"{BEST}, English", by_kind(best, "eng"), ("87.1", "83.2", "95.8", "88.1")),
    )
    for who, found, told in tables:
        claims += [_figure(f"{who}: {kind}", found[kind], t) for kind, t in zip(KINDS, told) if t is not None]
    return claims


def order(out: Path, seed: int) -> Claim:
    """(b i) Simulated people above MiniLM above a random encoder, mean over the 26 stand-in pairs."""
    import assay
    from assay.core.results import Runs
    from assay.representations.hume.analyses import leaderboard
    from assay.representations.hume.benchmark import Hume

    bench = Hume(seed=seed)
    made = bench.methods()
    runs = [
        assay.run(bench, made["simulated"](noise=0.05, seed=1), into=out / "runs" / "people-1", seed=seed),
        assay.run(bench, made["simulated"](noise=0.05, seed=2), into=out / "runs" / "people-2", seed=seed),
        assay.run(bench, made["minilm"](), into=out / "runs" / "minilm", seed=seed),
        assay.run(bench, made["random"](), into=out / "runs" / "random", seed=seed),
    ]
    rows = {row["system"]: row["mean_subset"] for row in leaderboard(Runs(runs)).rows()}
    people, minilm, random = rows["people"], rows[runs[2].system], rows[runs[3].system]
    return Claim(
        "(i) simulated people > MiniLM > random encoder, mean over pairs of stand-in items",
        f"people {100 * people:.2f}, MiniLM {100 * minilm:.2f}, random {100 * random:.2f}",
        people > minilm > random,
    )


def noise(seed: int) -> Claim:
    """(b ii) Noise of two simulated annotators lowers agreement and score: Spearman with the noise level."""
    from scipy.stats import spearmanr

    study = standin.study(seed).pairs.values()
    scores, agreed = [], []
    for level in NOISE:
        mine, shared = [], []
        for pair in study:
            sides: dict[str, list[Any]] = {}
            for who in (1, 2):
                rng = np.random.default_rng([seed, who, *pair.key.encode()])
                given = [methods.noisy(pair, item, level, rng) for item in pair.items]
                sides[str(who)] = given[0] if pair.spec.kind == "clustering" else given
            gold = list(pair.items[0].gold) if pair.spec.kind == "clustering" else [i.gold for i in pair.items]
            found = scoring.score(pair.spec.kind, gold, sides)
            mine.append(found["aggregated"][MAIN[pair.spec.kind]])
            shared.append(found["agreement"].get("value", found["agreement"].get("mean_spearman")))
        scores.append(float(np.mean(mine)))
        agreed.append(float(np.nanmean(shared)))
    tests: list[Any] = [spearmanr(NOISE, values) for values in (scores, agreed)]
    rho = [float(test.statistic) for test in tests]
    shown = ", ".join(f"{n:g}: {100 * s:.1f} / {a:.2f}" for n, s, a in zip(NOISE, scores, agreed))
    return Claim(
        "(ii) more noise, less score and less agreement: Spearman with noise at most -0.9 over 6 levels",
        f"score {rho[0]:+.2f}, agreement {rho[1]:+.2f} (noise: score / agreement: {shown})",
        max(rho) <= -0.9,
    )


def coverage(seed: int, simulations: int = 1000, n: int = 45) -> Claim:
    """(b iii) How often a Wilson interval of n items holds the true accuracy, accuracies evenly in 0.5 to 0.95."""
    from assay.core.stats.intervals import wilson

    rng = np.random.default_rng([seed, 3])
    truth = rng.uniform(0.5, 0.95, simulations)
    low, high = wilson(rng.binomial(n, truth), np.full(simulations, n))
    held = float(((low <= truth) & (truth <= high)).mean())
    return Claim(
        f"(iii) Wilson 95 % intervals of {n} items hold the truth in 93 to 97 % of {simulations:,} simulations",
        f"{100 * held:.1f} %",
        COVERED[0] <= held <= COVERED[1],
    )


def _without() -> list[str]:
    return of_kinds(*(kind for kind in KINDS if kind != "clustering"))


def _figure(what: str, value: float | None, told: str) -> Claim:
    """Whether a share is the published percentage, to its last printed digit."""
    digits = len(told.partition(".")[2])
    percent = float("nan") if value is None else 100 * value
    return Claim(f"{what}: {told}", f"{percent:.4f}", abs(percent - float(told)) <= 0.5 * 10**-digits + 1e-3)


def _report(claims: list[Claim], seconds: float) -> str:
    lines = ["# HUME, reproduced", "", "| claim | found | holds |", "| --- | --- | --- |"]
    lines += [f"| {c.claim} | {c.found} | {'yes' if c.holds else 'NO'} |" for c in claims]
    held = sum(c.holds is True for c in claims)
    return "\n".join([*lines, "", f"{held} of {len(claims)} hold; {seconds:.0f} s.", ""])
