"""The claims measured anew on the lite profile: ``assay make ttsds2 reproduce``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.cache import ContentCache
from assay.core.claims import Claim, save_claims
from assay.core.errors import UsageError
from assay.speech.ttsds2.datasets import ArrayDataset, Dataset, DirectoryDataset
from assay.speech.ttsds2.degrading import DEGREES, degraded
from assay.speech.ttsds2.features import Benchmark, Resources, features_of, measure
from assay.speech.ttsds2.noise import noise_datasets
from assay.speech.ttsds2.ratings import leave_one_domain_out, published_correlations, published_leaderboard
from assay.speech.ttsds2.scoring import FACTORS, Distribution, FeatureScore, admitted, score_feature, split_half
from assay.speech.ttsds2.suite import spread
from assay.speech.ttsds2.systems import CommandSpeaker, espeak, festival, flite
from assay.speech.ttsds2.trials import speak_all

SOUNDS = "/usr/share/asterisk/sounds"
SLOW = ("dnsmos",)


def reproduce(
    out: Path, *, reference: str = SOUNDS, weights: str | None = None, clips: int = 100, replicates: int = 50,
    slow: bool = False, seed: int = 0,
) -> None:  # fmt: skip
    """Measure the claims; writes ``report.md`` and ``claims.json``.

    Parameters
    ----------
    reference
        Folder of real speech; the default is where Debian puts asterisk-core-sounds-en-wav.
    weights
        Folder with ``dvector.pt``; without it the speaker factor is resemblyzer's alone.
    clips
        Real clips of 3 s or more to draw; half are the reference, half are what real speech scores.
    slow
        Measure DNSMOS too (about 3 s of CPU a clip).
    """
    begun = time.monotonic()
    claims = exact_claims()
    if not Path(reference).is_dir():
        raise UsageError(
            f"There is no folder {reference}; install asterisk-core-sounds-en-wav (Debian), or give reference=DIR."
        )
    every = features_of("lite", Resources(Path(weights) if weights else None))
    features = {k: f for k, f in every.items() if f.missing() is None and (slow or k not in SLOW)}
    cache = ContentCache(out / "cache")
    real = DirectoryDataset(reference, "real", shortest=3.0)
    real = real.sample(min(clips, len(real)), seed)
    band = min(real.rates())
    real = real.limited(band)
    noises = noise_datasets(6, seed=seed)
    half = np.random.default_rng(seed).permutation(len(real))
    held, anchor = (sorted(half[a::2].tolist()) for a in (0, 1))
    spoken = asyncio.run(_spoken(out, band))
    tables: dict[str, dict[str, FeatureScore]] = {name: {} for name in ("real", *spoken)}
    halves: dict[str, Any] = {}
    fitted: dict[str, tuple[Distribution, dict[str, Distribution]]] = {}
    for short, feature in features.items():
        noise = {d.name: measure(feature, d, cache) for d in noises}
        whole = measure(feature, real, cache)
        halves[short] = split_half(whole, noise, splits=20, seed=seed)
        fitted[short] = whole.part(anchor), noise
        measured = {name: measure(feature, d, cache) for name, d in spoken.items()}
        for name, speech in {"real": whole.part(held), **measured}.items():
            tables[name][short] = score_feature(
                speech, {"real": fitted[short][0]}, noise, replicates=replicates, seed=seed
            )
    kept = {k for k, v in halves.items() if admitted(v)}
    claims += judge(features, tables, halves, kept)
    spoiled = degradations([real.clips()[k].samples for k in held[:24]], features, fitted, cache, seed)
    claims += spoiled[0]
    claims.append(weighting(seed))
    text = report(claims, features, tables, halves, kept, spoiled[1], time.monotonic() - begun, every, slow)
    save_claims(out, claims)
    (out / "report.md").write_text(text, encoding="utf-8")


async def _spoken(out: Path, band: int) -> dict[str, Dataset]:
    """Forty sentences by each system that is installed."""
    import shutil

    lines = Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8").splitlines()
    texts = [(f"{k:04d}", line) for k, line in enumerate(lines)]
    systems: dict[str, CommandSpeaker] = {
        "flite-slt": flite("slt"), "flite-kal": flite("kal"), "espeak-ng": espeak("en-us"), "festival": festival(),
    }  # fmt: skip
    found: dict[str, Dataset] = {}
    for name, system in systems.items():
        if shutil.which(system.command[0]):
            folder = out / "speech" / name
            await speak_all(system, texts, folder, "en")
            found[name] = DirectoryDataset(folder, name, bandwidth=band)
    if len(found) < 2:
        raise UsageError("Neither espeak-ng, flite nor festival is installed, so there is nothing to rank.")
    return found


def exact_claims() -> list[Claim]:
    """What follows from published numbers alone."""
    board = published_leaderboard()
    worst = max(
        abs(np.mean([row[f.capitalize()] for f in FACTORS]) - row["Overall"]) for row in board.iter_rows(named=True)
    )
    table = published_correlations()
    by_metric = {m: t["spearman"].to_numpy() for (m,), t in table.group_by("metric", maintain_order=True)}
    ours = by_metric["TTSDSv2"]
    others = max(v.min() for m, v in by_metric.items() if m != "TTSDSv2")
    return [
        Claim(
            f"(0a) overall is the mean of four factors in all {board.height} published rows known here",
            f"largest difference {worst:.3f}", bool(worst <= 0.011),
        ),
        Claim(
            "(0b) published correlations: mean 0.67, SD 0.08, and the only metric of 17 with no cell below 0.50",
            f"mean {ours.mean():.4f}, SD {ours.std():.4f}, least {ours.min():.2f}; others' best least {others:.2f}",
            bool(abs(ours.mean() - 0.67) < 0.005 and abs(ours.std() - 0.08) < 0.005 and ours.min() >= 0.5 > others),
        ),
    ]  # fmt: skip


def overall(
    features: Mapping[str, Benchmark], scores: Mapping[str, FeatureScore], kept: Sequence[str] | set[str]
) -> tuple[dict[str, float], Any]:
    """Factor means with OVERALL of the features in ``kept``, and replicates of OVERALL."""
    means, drawn = {}, []
    for factor in FACTORS:
        some = [scores[k] for k, f in features.items() if f.category.name == factor and k in kept]
        if some:
            means[factor] = float(np.mean([s.score for s in some]))
            drawn.append(np.mean([s.replicates for s in some], axis=0))
    return {**means, "OVERALL": float(np.mean(list(means.values())))}, np.mean(drawn, axis=0)


def judge(
    features: Mapping[str, Benchmark],
    tables: Mapping[str, Mapping[str, FeatureScore]],
    halves: Mapping[str, Any],
    kept: set[str],
) -> list[Claim]:
    """Claims (i) and (ii)."""
    boards = {name: overall(features, scores, kept) for name, scores in tables.items()}
    real = boards["real"][0]["OVERALL"]
    means = {f: [float(halves[k].mean()) for k in sorted(kept) if features[k].category.name == f] for f in FACTORS}
    split = float(np.mean([float(np.mean(values)) for values in means.values() if values]))
    order = sorted(boards, key=lambda n: -boards[n][0]["OVERALL"])
    shown = " > ".join(f"{n} {boards[n][0]['OVERALL']:.1f}" for n in order)

    def gap(a: str, b: str) -> tuple[float, float]:
        se = spread(boards[a][1] - boards[b][1])
        return boards[a][0]["OVERALL"] - boards[b][0]["OVERALL"], float("nan") if se is None else se

    wanted = [
        p for p in (("real", "flite-slt"), ("flite-slt", "espeak-ng"), ("flite-slt", "flite-kal")) if p[1] in boards
    ]
    gaps = {f"{a} - {b}": gap(a, b) for a, b in wanted if a in boards}
    missing = sorted(set(FACTORS) - {features[k].category.name for k in kept})
    return [
        Claim(
            "(i) halves of real speech score 95 or more in every admitted feature and overall",
            f"admitted {len(kept)} of {len(halves)}; overall {split:.1f}; one half against the other as a system "
            f"{real:.1f}" + (f"; no admitted feature of {', '.join(missing)}" if missing else ""),
            bool(split >= 95 and not missing),
        ),
        Claim(
            "(ii) real > flite slt > espeak and flite kal overall, each gap more than 2 SE",
            f"{shown}; " + ", ".join(f"{k} = {g:.1f} (SE {se:.1f})" for k, (g, se) in gaps.items()),
            bool(gaps and all(g > 2 * se for g, se in gaps.values())),
        ),
        Claim(
            "(ii') real is above every synthetic system overall, each gap more than 2 SE",
            ", ".join(f"{n} +{gap('real', n)[0]:.1f} (SE {gap('real', n)[1]:.1f})" for n in boards if n != "real"),
            bool(all(g > 2 * se for g, se in (gap("real", n) for n in boards if n != "real"))),
        ),
    ]


def degradations(
    clean: Sequence[Any],
    features: Mapping[str, Benchmark],
    fitted: Mapping[str, tuple[Distribution, dict[str, Distribution]]],
    cache: ContentCache,
    seed: int,
) -> tuple[list[Claim], list[dict[str, Any]]]:
    """Claim (iii): every way of spoiling speech lowers its factor, the more the worse."""
    from scipy.stats import spearmanr

    claims, rows = [], []
    for kind, (factor, degrees) in DEGREES.items():
        chosen = {k: f for k, f in features.items() if f.category.name == factor}
        values = []
        for place, degree in enumerate((None, *degrees)):
            rng = np.random.default_rng([seed, place])
            spoiled = ArrayDataset(
                clean if degree is None else [degraded(kind, degree, s, rng) for s in clean], name=f"{kind} {degree}"
            )
            scores = [
                score_feature(measure(f, spoiled, cache), {"real": fitted[k][0]}, fitted[k][1]).score
                for k, f in chosen.items()
            ]
            values.append(float(np.mean(scores)))
        rho = float(np.asarray(spearmanr(range(len(values)), values).statistic))  # type: ignore[attr-defined]
        rows.append({"kind": kind, "factor": factor, "degrees": degrees, "scores": values, "spearman": rho})
        claims.append(
            Claim(
                f"(iii) {kind} lowers {factor.lower()} by degree (Spearman at most -0.9)",
                f"{' '.join(f'{v:.1f}' for v in values)}; Spearman {rho:.2f}", bool(rho <= -0.9),
            )
        )  # fmt: skip
    return claims, rows


def weighting(seed: int, *, studies: int = 200, systems: int = 20, noise: float = 0.8) -> Claim:
    """Claim (iv), simulated: four domains in each of which listeners weigh the factors a little differently.

    Twenty systems; listeners' means are a mean of factors with domain-specific Dirichlet weights plus noise.
    """
    plain, learnt = [], []
    rng = np.random.default_rng(seed)
    for _ in range(studies):
        scores, means = {}, {}
        for domain in ("clean", "noisy", "wild", "kids"):
            quality = rng.normal(size=systems)
            scores[domain] = quality[:, None] + rng.normal(0, 1.0, (systems, len(FACTORS)))
            weights = rng.dirichlet(np.full(len(FACTORS), 4.0))
            means[domain] = scores[domain] @ weights + rng.normal(0, noise, systems)
        held = leave_one_domain_out(scores, means)
        plain.append(np.mean([h.plain for h in held]))
        learnt.append(np.mean([h.learnt for h in held]))
    gain = np.mean(plain) - np.mean(learnt)
    return Claim(
        "(iv) the plain mean of factors is at least as good as learnt weights on held-out domains (simulated ratings)",
        f"Spearman {np.mean(plain):.3f} plain, {np.mean(learnt):.3f} learnt, over {studies} studies", bool(gain >= 0),
    )  # fmt: skip


def report(
    claims: Sequence[Claim],
    features: Mapping[str, Benchmark],
    tables: Mapping[str, Mapping[str, FeatureScore]],
    halves: Mapping[str, Any],
    kept: set[str],
    spoiled: Sequence[Mapping[str, Any]],
    seconds: float,
    every: Mapping[str, Benchmark],
    slow: bool,
) -> str:
    """Claims, then scores by feature and system."""
    verdict = {True: "pass", False: "FAIL", None: "not measured"}
    lines = ["# TTSDS2-lite: claims measured anew", "", "| claim | found | |", "| --- | --- | --- |"]
    lines += [f"| {c.claim} | {c.found} | {verdict[c.holds]} |" for c in claims]
    names = list(tables)
    lines += ["", "| feature | factor | halves | " + " | ".join(names) + " |", "| --- " * (3 + len(names)) + "|"]
    for short, feature in features.items():
        mark = "" if short in kept else " (not admitted)"
        cells = [f"{tables[n][short].score:.1f} ± {tables[n][short].se or 0:.1f}" for n in names]
        own = f"{halves[short].mean():.1f} ± {halves[short].std(ddof=1):.1f}{mark}"
        lines.append(f"| {short} | {feature.category.name.lower()} | {own} | " + " | ".join(cells) + " |")
    for title, some in (("admitted", kept), ("all", set(features))):
        boards = {n: overall(features, tables[n], some) for n in names}
        cells = [f"{b['OVERALL']:.1f} ± {spread(d) or 0:.1f}" for b, d in boards.values()]
        lines.append(f"| OVERALL, {title} features | | | " + " | ".join(cells) + " |")
    left = [f"{k}: {f.missing() or 'slow'}" for k, f in every.items() if f.missing() or (not slow and k in SLOW)]
    lines += ["", f"Left out: {'; '.join(left) or 'nothing'}", "", f"± is the bootstrap SE. Took {seconds:.0f} s.", ""]
    return "\n".join(lines)
