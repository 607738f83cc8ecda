"""The acceptance experiment: weak against hard tests, and what the difference does to filtering and learning."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.code.hardtests.scoring import Confusion
from assay.code.hardtests.toys import Judged, bandit, filtered_pool

if TYPE_CHECKING:
    import polars as pl

    from assay.core.results import Run

_LEVELS: Mapping[str, tuple[str, ...]] = {
    "LLMGen": ("LLMGen",),
    "LLMGen + RP/SP": ("LLMGen", "RPGen_SPGen"),
    "full": ("LLMGen", "RPGen_SPGen", "HackGen"),
}


def reproduce(out: Path, *, data: str = "own", quota: int = 10, seed: int = 0, seeds: int = 10) -> None:
    """Precision and recall of weak to full suites, rejection sampling, and a policy trained by either reward.

    Parameters
    ----------
    data
        Problems with labelled programs and kits.
    quota
        Inputs a generator function.
    seeds
        Of the policy; at least 6 for a Wilcoxon test that can pass at 0.05.
    """
    from assay.core.datasets import write_manifest

    weak, full = (_run(method, out, data, seed) for method in ("public", f"full?quota={quota}"))
    levels = {"public": _accepted(weak, ("Public",))} | {
        name: _accepted(full, kinds) for name, kinds in _LEVELS.items()
    }
    result = {
        "data": data, "quota": quota, "seed": seed,
        "levels": [_level(name, frame) for name, frame in levels.items()],
        "mini_public": _level("public", _mini(levels["public"])),
        "mini_full": _level("full", _mini(levels["full"])),
        "mcnemar": _mcnemar(levels["public"], levels["full"]),
        "filter": [_filter(name, levels[name], seed) for name in levels],
        "policy": _policy(levels["public"], levels["full"], seed, seeds),
    }  # fmt: skip
    result["checks"] = checks(result)
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (out / "REPORT.md").write_text(report(result), encoding="utf-8")
    write_manifest(
        out, recipe="hardtests.reproduce", options={"data": data, "quota": quota, "seed": seed, "seeds": seeds}
    )


def _run(method: str, out: Path, data: str, seed: int) -> Run:
    """A run of a method, resumed where it was cut."""
    from assay.code.hardtests.benchmark import HardTests
    from assay.core.results import Run
    from assay.core.run import resume, run

    folder = out / "runs" / method.partition("?")[0]
    if (folder / "run.json").exists():
        return resume(Run(folder), loading="assay.systems.loading")
    benchmark = HardTests(data)
    benchmark.options = {"data": data}
    return run(benchmark, f"method:{method}", into=folder, seed=seed, loading="assay.systems.loading")


def _accepted(run: Run, kinds: tuple[str, ...]) -> pl.DataFrame:
    from assay.code.hardtests.analyses import accepted_by

    return accepted_by(run.rows("study"), kinds)


def _mini(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    from assay.code.hardtests.data import MINI

    return frame.filter(pl.col("sample").is_in(MINI))


def _level(name: str, frame: pl.DataFrame) -> dict[str, Any]:
    found = Confusion.of((bool(a), bool(c)) for a, c in frame.select("accepted", "correct").iter_rows())
    return {
        "level": name, "tp": found.tp, "fp": found.fp, "fn": found.fn, "tn": found.tn, "precision": found.precision,
        "recall": found.recall,
    }  # fmt: skip


def _mcnemar(weak: pl.DataFrame, full: pl.DataFrame) -> dict[str, Any]:
    """One-sided exact test: is the full suite right on more programs on which the two differ?"""
    import polars as pl
    from scipy.stats import binomtest

    from assay.code.hardtests.analyses import paired

    right = (pl.col("accepted") == pl.col("correct")).alias("right")
    n, only_weak, only_full = paired(weak.with_columns(right), full.with_columns(right))
    differ = only_weak + only_full
    p = binomtest(only_full, differ, 0.5, alternative="greater").pvalue if differ else 1.0
    return {"programs": n, "only_weak_right": only_weak, "only_full_right": only_full, "p_one_sided": float(p)}


def _judged(frame: pl.DataFrame) -> dict[str, list[Judged]]:
    found: dict[str, list[Judged]] = {}
    for sample, correct, accepted in frame.select("sample", "correct", "accepted").iter_rows():
        found.setdefault(sample, []).append(Judged(correct, accepted))
    return found


def _filter(name: str, frame: pl.DataFrame, seed: int) -> dict[str, Any]:
    import numpy as np

    every = [program for programs in _judged(frame).values() for program in programs]
    found = filtered_pool(every, np.random.default_rng([seed, 1]))
    return {"level": name, **found._asdict(), "share": found.share, "z": found.z}


def _policy(weak: pl.DataFrame, full: pl.DataFrame, seed: int, seeds: int) -> dict[str, Any]:
    import numpy as np
    from scipy.stats import wilcoxon

    finals: dict[str, Sequence[float]] = {
        name: [bandit(_judged(frame), np.random.default_rng([seed, 2, s])) for s in range(seeds)]
        for name, frame in (("weak", weak), ("full", full))
    }
    test: Any = wilcoxon(finals["full"], finals["weak"], alternative="greater")
    means = {f"{name}_mean": float(np.mean(values)) for name, values in finals.items()}
    return {**finals, **means, "p_wilcoxon_one_sided": float(test.pvalue)}


def checks(result: Mapping[str, Any]) -> dict[str, bool]:
    """What was to be shown, and whether it was."""
    mini, full = result["mini_public"], result["mini_full"]
    steps = [level["precision"] or 0.0 for level in result["levels"]]
    return {
        "weak tests of the mini bench give TP 8, FP 9, FN 0, TN 3": [mini[k] for k in ("tp", "fp", "fn", "tn")]
        == [8, 9, 0, 3],
        "full suite of the mini bench: precision 1 and recall 1": full["precision"] == 1 and full["recall"] == 1,
        "full suite: precision 1 and recall 1": result["levels"][-1]["precision"] == 1
        and result["levels"][-1]["recall"] == 1,
        "precision of full above weak": steps[-1] > steps[0],
        "McNemar one-sided p < 0.01": result["mcnemar"]["p_one_sided"] < 0.01,
        "precision never falls from level to level": all(a <= b for a, b in pairwise(steps)),
        "kept share within 2 binomial errors of the precision": all(abs(row["z"]) <= 2 for row in result["filter"]),
        "policy: full above weak, Wilcoxon p < 0.05": result["policy"]["p_wilcoxon_one_sided"] < 0.05,
    }


def report(result: Mapping[str, Any]) -> str:
    """The result in Markdown."""

    def number(value: float | None) -> str:
        return "undefined" if value is None else f"{value:.3f}"

    lines = [
        f"# hardtests on {result['data']}",
        "",
        "| suite | TP | FP | FN | TN | precision | recall |",
        "| --- |" + " ---: |" * 6,
    ]
    for level in result["levels"]:
        counts = " | ".join(str(level[k]) for k in ("tp", "fp", "fn", "tn"))
        lines.append(f"| {level['level']} | {counts} | {number(level['precision'])} | {number(level['recall'])} |")
    m, policy = result["mcnemar"], result["policy"]
    lines += [
        "",
        f"McNemar, one-sided, over {m['programs']} programs: {m['only_full_right']} judged rightly by the full suite "
        f"alone, {m['only_weak_right']} by the weak one alone, p = {m['p_one_sided']:.2g}.",
        "",
        "A pool with 30 % correct programs, filtered:",
        "",
        "| suite | kept | correct among the kept | expected | z |",
        "| --- |" + " ---: |" * 4,
        *[
            f"| {r['level']} | {r['kept']} | {r['share']:.3f} | {r['expected']:.3f} | {r['z']:.2f} |"
            for r in result["filter"]
        ],
        "",
        f"A policy trained by the reward, {len(policy['weak'])} seeds: it ends on a correct program with probability "
        f"{policy['weak_mean']:.3f} (weak tests) and {policy['full_mean']:.3f} (full), Wilcoxon one-sided "
        f"p = {policy['p_wilcoxon_one_sided']:.2g}.",
        "",
        *[f"- {'holds' if good else '**fails**'}: {what}" for what, good in result["checks"].items()],
    ]
    return "\n".join(lines) + "\n"
