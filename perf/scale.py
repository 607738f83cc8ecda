"""What a trial costs on many workers and nodes, and what very many trials cost in time and memory.

    python perf/scale.py                     # tables
    python perf/scale.py --write             # and the figures of docs/scaling.md
    python perf/scale.py --part counts --json figures.json    # one part, added to what the file holds

Clusters of several nodes need root: their raylets live in a network namespace of their own. Without, they are left out,
and the script says so.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "perf"), str(ROOT / "tests" / "support")]

from engine import HERE, Broken, load, measured, middle, say, table  # noqa: E402

COUNTS = (10_000, 100_000, 1_000_000)
WORKERS = (1, 2, 4, 8)
NODES = (1, 2, 4)
LANES = 2
REST_MS = 20.0
RESTS_A_WORKER = 250
EMPTY = 40_000
GOAL, GOAL_NODES, GOAL_LANES = 10**8, 1_000, 64
PARTS = ("local", "ray", "nodes", "empty", "counts")
MARKS = ("<!-- figures -->", "<!-- end of figures -->")


def counts(largest: int) -> list[dict[str, Any]]:
    """Planning, running, resuming, reading back: one row a number of trials."""
    rows = []
    for count in (c for c in COUNTS if c <= largest):
        row: dict[str, Any] = {"trials": count}
        with tempfile.TemporaryDirectory(prefix="assay-perf-") as folder:
            for what, key, killed in (
                ("plan", "plan", False),
                ("kill", None, True),
                ("restart", "restart", True),
                ("finish", None, False),
                ("again", "again", False),
                ("read", "read", False),
            ):
                say(f"{count:,} trials: {what}")
                command = [sys.executable, HERE / "scale.py", what, f"{folder}/run", str(count)]
                cost = measured(command, extra={"ASSAY_CACHE": f"{folder}/cache"}, killed=killed, cwd=Path(folder))
                row[what] = {
                    "wall": cost.told[key]["wall"] if key else cost.wall,
                    "cpu": cost.told[key]["cpu"] if key else cost.cpu,
                    "peak_mb": cost.peak_mb,
                }
            if cost.told["records"] != count:
                raise Broken(f"of {count} records, {cost.told['records']} were read back")
            row["disk_mb"] = (Path(folder) / "run" / "records.parquet").stat().st_size / 2**20
        rows.append(row)
    return rows


def once(executor: str, workers: int, trials: int, rest: float, address: str = "", inside: Sequence[str] = (),
         extra: dict[str, str] | None = None) -> dict[str, Any]:  # fmt: skip
    """One run of trials that rest; what a trial took beyond its rest."""
    say(f"{executor}, {workers} workers{' on the cluster' if address else ''}: {trials:,} trials of {rest:g} ms")
    with tempfile.TemporaryDirectory(prefix="assay-perf-") as folder:
        command = [*inside, sys.executable, HERE / "workers.py", executor, str(workers), str(trials), str(rest)]
        told = measured([*command, f"{folder}/run", address], extra=extra, cwd=Path(folder)).told
    if told["trials"] != trials or told["done"] != trials:
        raise Broken(f"of {trials} trials, {told['done']} were done")
    ideal = trials * rest / 1000 / workers
    return {
        "workers": workers,
        "trials_s": trials / told["span"],
        "overhead_ms": (told["span"] - ideal) * workers / trials * 1000,
        "efficiency": ideal / told["span"],
        "driver_cpu": told["driver_cpu"],
        "start_s": told["whole"] - told["span"],
    }


def empty(executor: str) -> dict[str, Any]:
    """Trials that do nothing: what the driver spends on each, beyond what any run costs."""
    few, many = (once(executor, 2, count, 0.0) for count in (EMPTY // 4, EMPTY))
    each = (many["driver_cpu"] - few["driver_cpu"]) / (EMPTY - EMPTY // 4)
    return {**many, "driver_us": 1e6 * each}


def curve(executor: str, repeats: int) -> list[dict[str, Any]]:
    """Overhead a trial against workers of one machine."""
    return [
        best([once(executor, workers, RESTS_A_WORKER * workers, REST_MS) for _ in range(repeats)])
        for workers in WORKERS
    ]


def best(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians."""
    return {key: middle([row[key] for row in rows]) for key in rows[0]}


@contextlib.contextmanager
def cluster(nodes: int) -> Iterator[Any]:
    """A cluster of so many raylets."""
    from ray_cluster import Cluster

    with Cluster() as made:
        for _ in range(nodes):
            made.add_node(LANES)
        yield made


def over_nodes(repeats: int) -> list[dict[str, Any]]:
    """Overhead a trial against nodes; [] where no cluster can be made."""
    from ray_cluster import ADDRESS, possible

    if not possible():
        print("Clusters of several nodes are left out: they need root.")
        return []
    rows = []
    for nodes in NODES:
        with cluster(nodes) as made:
            lanes = LANES * nodes
            given = {"address": ADDRESS, "inside": made._inside(), "extra": made.environment}
            found = [once("ray", lanes, RESTS_A_WORKER * lanes, REST_MS, **given) for _ in range(repeats)]
            rows.append({"nodes": nodes, **best(found)})
    return rows


def measure(options: argparse.Namespace, part: str) -> Any:
    """One part of it."""
    if part == "counts":
        return counts(options.largest)
    if part == "nodes":
        return over_nodes(options.repeats)
    if part == "empty":
        return {name: empty(name) for name in ("local", "ray")}
    return curve(part, options.repeats)


def shown(found: dict[str, Any]) -> str:
    """All tables as text."""
    head = ["trials a second", "overhead, ms a trial", "of the ideal, %", "start, s"]

    def line(row: dict[str, Any]) -> list[Any]:
        return [row["trials_s"], row["overhead_ms"], 100 * row["efficiency"], row["start_s"]]

    loads = "; ".join(f"{part} {before} {after}" for part, (before, after) in found["load"].items())
    texts = [f"Python {found['python']}, {found['cores']} cores; load averages before and after: {loads}", ""]
    for name in ("local", "ray"):
        rows = [[str(r["workers"]), *line(r)] for r in found[name]]
        texts.append(table(f"{name}: trials of {REST_MS:g} ms on one machine", ["workers", *head], rows))
    if found["nodes"]:
        rows = [[str(r["nodes"]), *line(r)] for r in found["nodes"]]
        texts.append(table(f"ray: trials of {REST_MS:g} ms, {LANES} workers a node", ["nodes", *head], rows))
    rows = [[name, r["trials_s"], r["driver_us"]] for name, r in found["empty"].items()]
    texts.append(
        table(
            f"{EMPTY:,} trials that do nothing, 2 workers",
            ["executor", "trials a second", "driver's CPU, us a trial"],
            rows,
        )
    )
    names = {
        "plan": "plan", "kill": "run until killed at 95 %", "restart": "resume, to the first new trial",
        "finish": "resume to the end, compact", "again": "resume a finished run", "read": "read records",
    }  # fmt: skip
    sizes = [f"{r['trials']:,}" for r in found["counts"]]
    for title, key in (("CPU seconds", "cpu"), ("wall seconds", "wall"), ("peak memory, MB", "peak_mb")):
        rows = [[names[what], *(r[what][key] for r in found["counts"])] for what in names]
        texts.append(table(f"very many trials: {title}", ["trials", *sizes], rows))
    texts.append(
        table(
            "very many trials: disk, MB",
            ["trials", *sizes],
            [["records.parquet", *(r["disk_mb"] for r in found["counts"])]],
        )
    )
    return "\n".join(texts)


def extrapolated(found: dict[str, Any]) -> str:
    """What the figures say about the goal, as a Markdown table; all arithmetic stands in it."""
    small, large = found["counts"][0], found["counts"][-1]
    more = large["trials"] - small["trials"]

    def slope(what: str, key: str) -> float:
        """Per trial, beyond what any run costs."""
        return (large[what][key] - small[what][key]) / more

    driver = found["empty"]["ray"]["driver_us"]
    memory = {what: slope(what, "peak_mb") * 2**20 for what in ("plan", "again", "finish", "read")}
    # Processor time: a busy machine blurs it least.
    seconds = {what: slope(what, "cpu") for what in ("plan", "restart", "finish")}
    disk = large["disk_mb"] * 2**20 / large["trials"]
    lanes = GOAL_NODES * GOAL_LANES
    begin = found["ray"][0]["start_s"]
    rows = [
        ("driver's processor", f"{driver:.0f} us a trial", f"{driver * GOAL / 1e6 / 3600:.1f} h of one core"),
        ("records a second that one driver takes", f"1 / {driver:.0f} us", f"{1e6 / driver:,.0f}"),
        (
            f"shortest trial that keeps {lanes:,} lanes busy",
            f"{lanes:,} x {driver:.0f} us",
            f"{lanes * driver / 1e6:.1f} s",
        ),
        (
            "exchanges a second, one agent a node",
            f"{GOAL_NODES:,} agents, at least 0.1 s and agents / 1,000 apart",
            f"{GOAL_NODES / max(0.1, GOAL_NODES / 1000):,.0f}",
        ),
        ("planning, on one core", f"{seconds['plan'] * 1e6:.1f} us a trial", f"{seconds['plan'] * GOAL / 60:.0f} min"),
        (
            "resuming to the first new trial, on one core",
            f"{seconds['restart'] * 1e6:.1f} us a trial",
            f"{seconds['restart'] * GOAL / 60:.0f} min",
        ),
        ("driver's memory to plan", f"{memory['plan']:,.0f} bytes a trial", f"{memory['plan'] * GOAL / 2**30:,.0f} GB"),
        (
            "driver's memory to compact",
            f"{memory['finish']:,.0f} bytes a trial",
            f"{memory['finish'] * GOAL / 2**30:,.0f} GB",
        ),
        ("records on disk", f"{disk:,.0f} bytes a trial", f"{disk * GOAL / 2**30:,.0f} GB"),
        ("start of a run", f"{begin:.1f} s on one node", "the same, nodes start side by side"),
    ]
    lines = [f"| what | measured | at {GOAL:,} trials on {GOAL_NODES:,} nodes |", "| --- | --- | --- |"]
    return "\n".join(lines + [f"| {a} | {b} | {c} |" for a, b, c in rows])


def write(found: dict[str, Any], page: Path) -> None:
    """Replace the figures of a page between its marks."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        raise Broken(f"{page} has no place for figures between {MARKS[0]} and {MARKS[1]}")
    figures = f"\n\n```\n{shown(found).strip()}\n```\n\n{extrapolated(found)}\n\n"
    page.write_text(before + MARKS[0] + figures + MARKS[1] + after, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=COUNTS[-1], help="no more trials than this")
    parser.add_argument("--repeats", type=int, default=3, help="medians of so many runs a number of workers")
    parser.add_argument("--part", choices=PARTS, help="measure this alone; the other figures come from the JSON file")
    parser.add_argument("--show", action="store_true", help="measure nothing: show what the JSON file holds")
    parser.add_argument("--json", type=Path, help="keep the figures there, for programs and for the next part")
    parser.add_argument("--write", action="store_true", help="write the figures of docs/scaling.md")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"load": {}}
    if options.json and options.json.exists() and (options.part or options.show):
        found = json.loads(options.json.read_text())
    try:
        for part in () if options.show else (options.part,) if options.part else PARTS:
            before = load()
            found[part] = measure(options, part)
            found |= {"python": platform.python_version(), "cores": os.cpu_count()}
            found["load"][part] = [before, load()]
            if options.json:
                options.json.write_text(json.dumps(found, indent=1))
        if missing := [part for part in PARTS if part not in found]:
            print(f"Still to measure: {', '.join(missing)}.")
            return 0
        print(shown(found))
        print(extrapolated(found))
        if options.write:
            write(found, ROOT / "docs" / "scaling.md")
    except Broken as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
