"""Suites as verifiers: tests a second beside codebubble, and what ordering, stopping and several boxes save.

    python perf/hardtests.py [--quota 3] [--rounds 2] [--no-peers] [--json FILE]

Correct programs of four shipped problems run on their suites, in turns with codebubble 0.1.0 (a bubblewrap of its own
for every test), outputs judged alike; verdicts must agree or the script stops. Then the faulty programs are rejected:
all tests, until the first failure, and until the first failure in the order that a kill matrix gives.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from engine import Broken, load, table

from assay.code.hardtests.data import load_problems
from assay.code.hardtests.generator import HardTestGenerator
from assay.code.hardtests.judging import same_output
from assay.code.hardtests.kills import KillMatrix
from assay.code.hardtests.problem import Labelled, Problem
from assay.code.hardtests.suite import TestSuite
from assay.code.hardtests.verifying import verify
from assay.sandbox import Sandbox
from sandbox import Codebubble

PROBLEMS = ("even_split", "double_or_triple", "fewest_coins", "big_power")
"""Small inputs: what is measured is the cost of a test, not of reading megabytes."""


def beside(
    suites: list[tuple[Problem, TestSuite]], peer: Codebubble | None, rounds: int, box: Sandbox
) -> list[list[Any]]:
    """Rows of language and contestant: mean and median time of a test over programs, tests a second by the median."""
    spent: dict[tuple[str, str], list[float]] = {}
    for turn in range(rounds + 1):
        for problem, suite in suites:
            for program in (p for p in problem.programs if p.correct):
                told = {"assay": by_assay(suite, program, box)}
                if peer is not None:
                    told["codebubble"] = by_peer(suite, program, peer)
                    if told["assay"][1] != told["codebubble"][1]:
                        raise Broken(f"{program.id}: verdicts differ")
                if turn:  # the first one compiles and warms
                    for who, (wall, _) in told.items():
                        spent.setdefault((program.language, who), []).append(wall / len(suite))
    rows = []
    for (language, who), each in sorted(spent.items()):
        middle = statistics.median(each)
        rows.append([f"{language}, {who}", 1000 * statistics.mean(each), 1000 * middle, 1 / middle, 1000 * min(each)])
    return rows


def by_assay(suite: TestSuite, program: Labelled, box: Sandbox) -> tuple[float, list[bool]]:
    """Seconds on the clock and verdicts, judge and all."""
    begun = time.perf_counter()
    found = verify(suite, program.code, program.language, box=box)
    return time.perf_counter() - begun, [v == 1 for v in found.verdicts]


def by_peer(suite: TestSuite, program: Labelled, peer: Codebubble) -> tuple[float, list[bool]]:
    """The same through codebubble; its compiling and our comparing are not counted."""
    language = "cpp" if program.language == "cpp" else "python"
    what = {
        "language": language, "source": program.code, "inputs": [c.input for c in suite.cases],
        "seconds": suite.time_limit, "memory_mb": suite.memory_mb,
    }  # fmt: skip
    told = peer.run(what)
    verdicts = [s == "SUCCESS" and same_output(out, c.output) for (s, out), c in zip(told["verdicts"], suite.cases)]
    return told["wall"], verdicts


def rejecting(suites: list[tuple[Problem, TestSuite]], box: Sandbox) -> list[list[Any]]:
    """Rows of rule, tests run a faulty program, seconds a program."""
    faulty = [(p, s, [q for q in p.programs if not q.correct]) for p, s in suites]
    whole = {q.id: verify(s, q.code, q.language, box=box) for _, s, programs in faulty for q in programs}
    rules: dict[str, Any] = {}
    for _, suite, programs in faulty:
        orders = {
            "first failure, as made": list(range(len(suite))),
            "first failure, killers of the other programs first": None,
        }
        for rule, order in orders.items():
            for program in programs:
                others = {
                    q.id: whole[q.id] for q in programs if q.id != program.id
                }  # it must not know the program itself
                own = order if order is not None else KillMatrix.of(len(suite), others).order()
                begun = time.perf_counter()
                found = verify(suite, program.code, program.language, box=box, until="first", order=own)
                if found.accepted != whole[program.id].accepted:
                    raise Broken(f"{program.id}: the order changed the verdict")
                rules.setdefault(rule, []).append((sum(v >= 0 for v in found.verdicts), time.perf_counter() - begun))
    every = [(len(v.verdicts), sum(v.cpu_seconds)) for v in whole.values()]
    rows = [["all tests (processor seconds)", *(sum(x) / len(every) for x in zip(*every))]]
    return rows + [[rule, *(sum(x) / len(each) for x in zip(*each))] for rule, each in rules.items()]


def several(suites: list[tuple[Problem, TestSuite]], boxes: int) -> float:
    """Tests a second of all correct programs over so many boxes."""
    work = [(s, p) for q, s in suites for p in q.programs if p.correct] * 4
    with Sandbox(boxes=boxes) as box, ThreadPoolExecutor(boxes) as threads:
        list(threads.map(lambda w: verify(w[0], w[1].code, w[1].language, box=box), work[:8]))
        begun = time.perf_counter()
        list(threads.map(lambda w: verify(w[0], w[1].code, w[1].language, box=box), work))
        return sum(len(s) for s, _ in work) / (time.perf_counter() - begun)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when the contestants disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quota", type=int, default=3, help="inputs a generator function")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each contestant")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="assay alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args(arguments)
    before = load()
    problems = [p for p in load_problems("own") if p.pid in PROBLEMS]
    try:
        with tempfile.TemporaryDirectory(prefix="assay-perf-") as folder, Sandbox(boxes=1) as box:
            quota = {"num_RPGen_SPGen_input": options.quota, "num_HackGen_input_per_func": options.quota}
            begun = time.perf_counter()
            suites = [(p, HardTestGenerator(sandbox=box, **quota).generate(p)) for p in problems]
            making = (time.perf_counter() - begun) / len(suites)
            peer = Codebubble(folder) if options.peers else None
            try:
                rows = beside(suites, peer, options.rounds, box)
            finally:
                if peer is not None:
                    peer.close()
            rules = rejecting(suites, box)
        cores = len(os.sched_getaffinity(0))
        speeds = {n: several(suites, n) for n in sorted({1, cores})}
    except Broken as problem:
        print(f"perf/hardtests.py: {problem}", file=sys.stderr)
        return 1
    heads = ["", "mean ms", "median ms", "tests a second", "least ms"]
    print(table("A test of a correct program, judged", heads, rows))
    print(table("Rejecting faulty programs", ["until", "tests run", "seconds"], rules))
    print(table("All cores", ["boxes", "tests a second"], [[str(n), speed] for n, speed in speeds.items()]))
    tests = sum(len(s) for _, s in suites) / len(suites)
    print(f"A suite of {tests:.0f} tests, kit to agreed outputs: {making:.2f} s. Load before {before}, after {load()}.")
    if options.json:
        found = {"tests": rows, "rejecting": rules, "boxes": speeds, "making": making}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
