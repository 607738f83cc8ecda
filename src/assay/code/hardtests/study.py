"""Programs of known truth under a suite."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from assay.code.hardtests.scoring import Confusion
from assay.code.hardtests.verifying import opened, verify

if TYPE_CHECKING:
    from assay.code.hardtests.problem import Labelled, Problem
    from assay.code.hardtests.suite import TestSuite, Until
    from assay.sandbox import Sandbox


def judged(
    suite: TestSuite, problem: Problem, box: Sandbox | None = None, until: Until = "kind"
) -> tuple[list[dict[str, Any]], Confusion]:
    """Verdicts of a suite on all labelled programs of its problem: a row a program and test, and the counts.

    A suite without tests accepts nothing; its rows have ``test`` -1, one a program.
    """
    makers = suite.makers()
    with opened(box) as box, ThreadPoolExecutor(2) as threads:

        def one(program: Labelled) -> Any:
            return verify(suite, program.code, program.language, box=box, until=until)

        reports = list(threads.map(one, problem.programs))
    rows: list[dict[str, Any]] = []
    found = Confusion()
    for program, report in zip(problem.programs, reports):
        found = found.plus(report.accepted, program.correct)
        shared = {
            "program": program.id, "language": program.language, "correct": program.correct, "fault": program.fault,
            "source": program.source, "accepted_program": report.accepted,
        }  # fmt: skip
        for test in range(len(suite)) or [-1]:
            inside = test >= 0
            rows.append(
                shared
                | {
                    "test": test,
                    "generator": makers[test][0] if inside else "",
                    "function": makers[test][1] if inside else 0,
                    "verdict": report.verdicts[test] if inside else -1,
                    "run_status": report.statuses[test] if inside else "SKIPPED",
                    "run_seconds": report.cpu_seconds[test] if inside else 0.0,
                }
            )
    return rows, found
