"""Tables from studies: quality by stratum, ablation ladder, kills, minimal suites, generators, tests between makers."""

from __future__ import annotations

from typing import Any

import polars as pl

from assay.code.hardtests.kills import KillMatrix
from assay.code.hardtests.kit import KINDS
from assay.code.hardtests.scoring import Confusion, posterior_correct
from assay.core.errors import UsageError
from assay.core.results import Run, Runs
from assay.core.stats.intervals import wilson
from assay.core.stats.paired import holm, mcnemar
from assay.core.table import Chart, Table

_POOLED = (
    "Counts are pooled inside a cell (micro); intervals are Wilson's over programs and take programs as independent."
)


def _rows(run: Run) -> pl.DataFrame:
    """One row a program and test, with the problem's difficulty."""
    try:
        rows = run.rows("study")
    except (KeyError, UsageError):
        rows = pl.DataFrame()
    if rows.is_empty():
        raise UsageError(f"Run {run.id} has no rows of the study; these analyses read runs of the benchmark hardtests.")
    about = run.records.filter(pl.col("task") == "study").select("sample", "attempt", "difficulty", "platform")
    return rows.join(about, on=["sample", "attempt"], how="left")


def _programs(run: Run) -> pl.DataFrame:
    """One row a program: accepted or not."""
    return (
        _rows(run)
        .group_by("sample", "attempt", "program", maintain_order=True)
        .agg(
            pl.first("accepted_program", "correct", "language", "fault", "source", "difficulty", "platform"),
        )
    )


def _quality(found: Confusion) -> dict[str, Any]:
    row: dict[str, Any] = {"tp": found.tp, "fp": found.fp, "fn": found.fn, "tn": found.tn}
    for name, part, whole in (
        ("precision", found.tp, found.tp + found.fp),
        ("recall", found.tp, found.tp + found.fn),
        ("false_positive_rate", found.fp, found.fp + found.tn),
    ):
        low, high = wilson(part, whole) if whole else (None, None)
        row[name] = part / whole if whole else None
        row[f"{name}_low"], row[f"{name}_high"] = (None, None) if low is None else (float(low), float(high))  # type: ignore
    return row


def quality(runs: Runs, by: str | None = None) -> Table:
    """Precision, recall and false positive rate of each run, overall or ``by`` difficulty, platform, source, language,
    fault."""
    fields = ("difficulty", "platform", "source", "language", "fault")
    if by is not None and by not in fields:
        raise UsageError(f"Option by={by!r}: it is one of {', '.join(fields)}.")
    rows = []
    for run in runs:
        frame = _programs(run)
        for value, part in [("all", frame)] if by is None else frame.group_by(by, maintain_order=True):
            found = Confusion.of(part.select("accepted_program", "correct").iter_rows())
            label = value if by is None else value[0]
            if by == "difficulty" and isinstance(label, int) and label >= 4:
                label = 4
            rows.append({"system": run.system, by or "programs": str(label), **_quality(found)})
    frame = pl.DataFrame(rows, infer_schema_length=None)
    if by == "difficulty":
        frame = _repooled(frame)
    sort = [c for c in ("system", by or "programs") if c in frame.columns]
    return Table("quality", "Suites as verifiers", frame.sort(sort), notes=(_POOLED,))


def _repooled(frame: pl.DataFrame) -> pl.DataFrame:
    """Difficulties from 4 on are one cell."""
    summed = frame.group_by("system", "difficulty").agg(pl.sum("tp", "fp", "fn", "tn"))
    return pl.DataFrame(
        [
            {
                "system": r["system"],
                "difficulty": r["difficulty"] + ("+" if r["difficulty"] == "4" else ""),
                **_quality(Confusion(r["tp"], r["fp"], r["fn"], r["tn"])),
            }
            for r in summed.iter_rows(named=True)
        ],
        infer_schema_length=None,
    )


def accepted_by(rows: pl.DataFrame, generators: tuple[str, ...]) -> pl.DataFrame:
    """Per program whether the tests of these generators alone accept it (no such test accepts nothing)."""
    own = pl.col("generator").is_in(list(generators))
    return rows.group_by("sample", "attempt", "program", maintain_order=True).agg(
        pl.first("correct"), (((pl.col("verdict") == 1) | ~own).all() & own.any()).alias("accepted")
    )


def ladder(runs: Runs) -> Table:
    """Precision and recall as generators are added: what each level of one full suite would accept.

    Exact, because every test's verdict stands in the run; needs runs of ``method:full`` (or of another suite with
    several generators).
    """
    rows = []
    for run in runs:
        frame = _rows(run)
        there = [k for k in KINDS if k in set(frame["generator"])]
        for step in range(1, len(there) + 1):
            part = accepted_by(frame, tuple(there[:step]))
            found = Confusion.of(part.select("accepted", "correct").iter_rows())
            tests = frame.filter(pl.col("generator").is_in(there[:step])).select("sample", "attempt", "test").n_unique()
            rows.append(
                {"system": run.system, "generators": " + ".join(there[:step]), "tests": tests, **_quality(found)}
            )
    if not rows:
        raise UsageError("No run holds tests of LLMGen, RPGen_SPGen or HackGen.")
    chart = Chart("bar", "generators", "precision", color="system", low="precision_low", high="precision_high")
    return Table("ladder", "Generators added one after the other", pl.DataFrame(rows), notes=(_POOLED,), chart=chart)


def matrix_of(rows: pl.DataFrame) -> KillMatrix:
    """Kill matrix of one problem's rows, faulty programs only."""
    tests = int(rows["test"].max()) + 1  # type: ignore
    faulty = rows.filter(~pl.col("correct"))
    kills = {
        str(name[0]): frozenset(part.filter(pl.col("verdict") == 0)["test"].to_list())
        for name, part in faulty.group_by("program", maintain_order=True)
    }
    return KillMatrix(tests, kills)


def _matrices(run: Run) -> dict[str, tuple[pl.DataFrame, KillMatrix]]:
    found = _rows(run).filter(pl.col("test") >= 0)
    first = found.filter(pl.col("attempt") == found["attempt"].min())
    return {str(name[0]): (part, matrix_of(part)) for name, part in first.group_by("sample", maintain_order=True)}


def kills(runs: Runs) -> list[Table]:
    """Which generator kills what: faulty programs by the generators that kill them, and those that live.

    ``alone`` counts programs that no other generator kills.
    """
    rows, living = [], []
    for run in runs:
        for sample, (part, matrix) in _matrices(run).items():
            maker = dict(part.select("test", "generator").unique().iter_rows())
            for program, tests in matrix.kills.items():
                names = {maker[test] for test in tests}
                if not names:
                    living.append({"system": run.system, "problem": sample, "program": program})
                rows += [
                    {"system": run.system, "generator": n, "kills": 1, "alone": int(len(names) == 1)} for n in names
                ]
    schema = {"system": pl.String, "generator": pl.String, "kills": pl.Int64, "alone": pl.Int64}
    table = pl.DataFrame(rows, schema=schema).group_by("system", "generator").agg(pl.sum("kills", "alone"))
    lives = pl.DataFrame(living, schema={"system": pl.String, "problem": pl.String, "program": pl.String})
    note = "A test that was not run kills nothing; run with -o until=all for the whole matrix."
    return [
        Table("kills", "Faulty programs killed, by generator", table.sort("system", "generator"), notes=(note,)),
        Table("survivors", "Faulty programs that no test kills", lives),
    ]


def minimal(runs: Runs, at_least: int = 1) -> Table:
    """How few tests keep every kill, a problem: greedy set cover; see `KillMatrix.minimal`."""
    rows = []
    for run in runs:
        for sample, (_, matrix) in _matrices(run).items():
            chosen = matrix.minimal(at_least)
            rows.append(
                {
                    "system": run.system, "problem": sample, "tests": matrix.tests, "minimal": len(chosen),
                    "times_fewer": matrix.tests / len(chosen) if chosen else None,
                    "killed": len(matrix.kills) - len(matrix.survivors), "order": " ".join(map(str, chosen)),
                }
            )  # fmt: skip
    frame = pl.DataFrame(rows, infer_schema_length=None)
    total = (
        f"{frame['minimal'].sum()} of {frame['tests'].sum()} tests keep every kill of the programs that are labelled."
    )
    unseen = "Programs that nobody labelled may need the others: at_least=3 keeps three killers of each."
    return Table("minimal", "Minimal suites", frame, notes=(total, unseen))


def generators(runs: Runs) -> Table:
    """Tests by generator, and the time that programs spent on them."""
    parts = []
    for run in runs:
        frame = _rows(run).filter(pl.col("test") >= 0)
        tests = frame.select("sample", "attempt", "test", "generator").unique().group_by("generator").len("tests")
        spent = frame.group_by("generator").agg(
            pl.sum("run_seconds").alias("seconds"), (pl.col("verdict") >= 0).sum().alias("runs")
        )
        parts.append(tests.join(spent, on="generator").select(pl.lit(run.system).alias("system"), pl.all()))
    return Table("generators", "Tests and running time, by generator", pl.concat(parts).sort("system", "generator"))


def paired(a: pl.DataFrame, b: pl.DataFrame) -> tuple[int, int, int]:
    """(programs, only a right, only b right) of two frames of programs with ``right``."""
    both = a.join(b, on=["sample", "attempt", "program"], suffix="_b")
    only_a = int((both["right"] & ~both["right_b"]).sum())
    return both.height, only_a, int((~both["right"] & both["right_b"]).sum())


def tests_between(runs: Runs) -> Table:
    """Every pair of runs: programs that one judges rightly and the other wrongly, exact McNemar, Holm over pairs."""
    frames = {
        run.id: _programs(run).select(
            "sample", "attempt", "program", (pl.col("accepted_program") == pl.col("correct")).alias("right")
        )
        for run in runs
    }
    listed = list(runs)
    if len(listed) < 2:
        raise UsageError("McNemar's test compares runs; give two or more.")
    rows = []
    for i, a in enumerate(listed):
        for b in listed[i + 1 :]:
            n, only_a, only_b = paired(frames[a.id], frames[b.id])
            rows.append(
                {
                    "a": a.system,
                    "b": b.system,
                    "programs": n,
                    "only_a_right": only_a,
                    "only_b_right": only_b,
                    "p": mcnemar(only_a, only_b),
                }
            )
    frame = pl.DataFrame(rows)
    frame = frame.with_columns(pl.Series("p_holm", holm(frame["p"].to_numpy())))
    return Table("mcnemar", "Judging programs rightly, in pairs", frame, notes=("Two-sided exact test over programs.",))


def confidence(runs: Runs, prior: float = 0.3) -> Table:
    """How sure an accepted program is: Bayes' rule on the measured rates, at a share ``prior`` of correct programs."""
    if not 0 <= prior <= 1:
        raise UsageError(f"Option prior={prior} is a share of programs, in [0, 1].")
    rows = []
    for run in runs:
        found = Confusion.of(_programs(run).select("accepted_program", "correct").iter_rows())
        rows.append(
            {"system": run.system, "prior": prior, "posterior": posterior_correct(prior, found), **_quality(found)}
        )
    return Table(
        "confidence", "Chance that an accepted program is correct", pl.DataFrame(rows, infer_schema_length=None)
    )
