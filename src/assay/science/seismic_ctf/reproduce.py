"""The acceptance experiment, ``assay make seismic_ctf reproduce``: claims of the framework on generated fields."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.claims import Claim, save_claims
from assay.core.map import resumable_map
from assay.science.seismic_ctf.benchmark import seed_of

NAIVE = ("zeros", "average", "last", "random")
LEARNED = ("esn", "dmd", "hodmd", "optdmd", "lstm")
CLEAR = ("esn", "dmd", "hodmd", "optdmd", "lstm")
"""Methods of the kinds that a claim is about: recurrent ones and DMD."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One method with one seed on one pair."""

    folder: str
    dataset: str
    method: str
    attempt: int
    pair: int

    @property
    def key(self) -> str:
        """Name of the cell."""
        return f"{self.dataset}/{self.method}/{self.attempt}/{self.pair}"


def try_cell(cell: Cell) -> dict[str, Any]:
    """Raw and clipped scores, or why there are none."""
    from assay.science.seismic_ctf.data import CTFDataset
    from assay.science.seismic_ctf.methods import build
    from assay.science.seismic_ctf.protocol import seeded_copy
    from assay.science.seismic_ctf.scoring import clip

    data = CTFDataset.load(cell.dataset, cell.folder)
    pair = data.pair(cell.pair)
    begun = time.process_time()
    row: dict[str, Any] = {"method": cell.method, "attempt": cell.attempt, "pair": cell.pair, "error": None}
    names = list(data.score(cell.pair, np.zeros(pair.shape)))
    try:
        with np.errstate(all="ignore"):
            model = seeded_copy(build(cell.method), seed_of(cell.attempt))
            model.fit(pair.train, pair.init, pair.times)
            found = model.predict(pair.test_times)
        raw = data.score(cell.pair, found)
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"[:200]
        raw = dict.fromkeys(names, float("nan"))
    row["raw"] = {k: v if np.isfinite(v) else None for k, v in raw.items()}
    row["clipped"] = {k: clip(v) for k, v in raw.items()}
    row["cpu_seconds"] = time.process_time() - begun
    return row


def reproduce(out: Path, *, kinds: str = "sea,crust", seeds: int = 3, database: str | None = None) -> None:
    """Measure the claims on each data set: ``report.md``, ``claims.json``, ``cells.json``. Broken off, it goes on.

    Parameters
    ----------
    kinds
        Generators by comma.
    seeds
        Of the methods that have one.
    database
        Folder of an AxiSEM database: adds the global wavefield.
    """
    from assay.science.seismic_ctf.recipes import generate

    begun = time.monotonic()
    chosen = [kind.strip() for kind in kinds.split(",")] + (["globe"] if database is not None else [])
    folder = out / "data"
    for kind in chosen:
        if not (folder / kind / f"{kind}.yaml").is_file():
            folder.mkdir(parents=True, exist_ok=True)
            generate(folder, kind=kind, database=database)  # pyright: ignore[reportArgumentType]
    cells = [
        Cell(str(folder), kind, method, attempt, pair)
        for kind in chosen
        for method in (*NAIVE, *LEARNED)
        for attempt in range(seeds)
        for pair in range(1, 10)
    ]
    rows = list(resumable_map(try_cell, cells, key=lambda cell: cell.key, out=out))
    by_kind = {kind: [r for r, cell in zip(rows, cells, strict=True) if cell.dataset == kind] for kind in chosen}
    claims = {kind: judge(values(part, seeds)) for kind, part in by_kind.items()}
    (out / "cells.json").write_text(json.dumps(by_kind, indent=1), encoding="utf-8")
    save_claims(out, claims)
    cpu = sum(row["cpu_seconds"] for row in rows)
    head = f"# seismic_ctf: reproduction on generated data, {seeds} seeds\n\n"
    head += f"{time.monotonic() - begun:.0f} s wall, {cpu:.0f} s of processor time in methods and scores.\n"
    parts = [report(kind, values(part, seeds), part, claims[kind]) for kind, part in by_kind.items()]
    (out / "report.md").write_text("\n".join([head, *parts]), encoding="utf-8")


def values(rows: list[dict[str, Any]], seeds: int) -> dict[str, np.ndarray]:
    """Clipped scores by method, (12, seeds)."""
    table = {method: np.full((12, seeds), -100.0) for method in (*NAIVE, *LEARNED)}
    for row in rows:
        for name, value in row["clipped"].items():
            table[row["method"]][int(name[1:]) - 1, row["attempt"]] = value
    return table


def judge(table: dict[str, np.ndarray]) -> list[Claim]:
    """The five claims."""
    from scipy.stats import kendalltau

    zeros, average = table["zeros"], table["average"]
    claims = [
        Claim("zeros score exactly 0", f"largest deviation {np.abs(zeros).max():g}", bool((zeros == 0).all())),
        Claim("the average lies within 5 of 0 on every score", f"largest deviation {np.abs(average).max():.2f}",
              bool((np.abs(average) <= 5).all())),
    ]  # fmt: skip
    e3 = {m: float(table[m][2].mean() - 2 * table[m][2].std()) for m in CLEAR}
    best = max(e3, key=lambda m: e3[m])
    claims.append(
        Claim("a recurrent network or DMD beats zeros clearly on E3 (mean - 2 sd > 20)",
              f"{best}: {e3[best]:.1f}; all: " + ", ".join(f"{m} {v:.1f}" for m, v in e3.items()), e3[best] > 20)
    )  # fmt: skip
    low = []
    for m in LEARNED:
        scores = table[m].mean(axis=0)
        low.append((m, float(scores.mean()), float(scores.std())))
    weak = [m for m, mean, sd in low if mean - 2 * sd <= 0]
    claims.append(
        Claim("at least half of the learned methods have AvgScore below 0 or within noise of it (mean - 2 sd <= 0)",
              "; ".join(f"{m} {mean:.1f} +- {sd:.1f}" for m, mean, sd in low), len(weak) >= len(LEARNED) / 2)
    )  # fmt: skip
    denoise = [float(table[m][[2, 4]].mean()) for m in table]
    few = [float(table[m][[6, 8]].mean()) for m in table]
    agreement: Any = kendalltau(denoise, few)
    tau = float(agreement.statistic)
    claims.append(
        Claim("ranks on E3/E5 and on E7/E9 disagree (Kendall tau < 0.5)", f"tau = {tau:.2f} over {len(table)} methods",
              tau < 0.5)
    )  # fmt: skip
    return claims


def report(kind: str, table: dict[str, np.ndarray], rows: list[dict[str, Any]], claims: list[Claim]) -> str:
    """Claims and the table of scores of one data set as Markdown."""
    from assay.core.stats.trends import sign_test

    lines = [f"## {kind}", "", "| claim | found | holds |", "| --- | --- | --- |"]
    lines += [f"| {c.claim} | {c.found} | {'yes' if c.holds else '**no**'} |" for c in claims]
    lines += ["", "Mean and population standard deviation over seeds; wins and losses over the twelve scores against",
              "zeros, with a sign test.", "",
              "| method | AvgScore | " + " | ".join(f"E{i}" for i in range(1, 13)) + " | against zeros |",
              "| --- |" + " ---: |" * 13 + " --- |"]  # fmt: skip
    for method, scores in sorted(table.items(), key=lambda item: -item[1].mean()):
        means = scores.mean(axis=1)
        wins, losses = int((means > 0).sum()), int((means < 0).sum())
        p = sign_test(wins, losses) if wins + losses else 1.0
        avg = scores.mean(axis=0)
        cells = " | ".join(f"{m:.1f} ± {s:.1f}" for m, s in zip(means, scores.std(axis=1), strict=True))
        lines.append(f"| {method} | {avg.mean():.2f} ± {avg.std():.2f} | {cells} | {wins}:{losses}, p = {p:.2g} |")
    failed = [f"{r['method']}, pair {r['pair']}: {r['error']}" for r in rows if r["error"]]
    if failed:
        lines += ["", f"{len(failed)} cells failed and count -100; the first: {failed[0]}"]
    return "\n".join(lines) + "\n"
