"""The verdict of a suite on a program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.code.hardtests.judging import Judge
from assay.core.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from assay.code.hardtests.suite import TestSuite, Until
    from assay.sandbox import Program, Result, Sandbox

Compile = Callable[["Sandbox", str], "Program"]
COMPILERS: Mapping[str, Compile] = {
    "cpp": lambda box, code: box.cpp(code),
    "python3": lambda box, code: box.python(code),
    "python": lambda box, code: box.python(code),
}
"""How a program of a language is made ready; hand a larger mapping in for more languages."""
_STATUS = {
    "ok": "SUCCESS",
    "time limit": "TIME_LIMIT_EXCEEDED",
    "memory limit": "MEMORY_LIMIT_EXCEEDED",
    "runtime error": "RUNTIME_ERROR",
    "output limit": "OUTPUT_TOO_LARGE",
    "compile error": "COMPILE_ERROR",
}
PASS, FAIL, NOT_RUN = 1, 0, -1


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What a suite says of a program.

    Attributes
    ----------
    verdicts
        One a test: 1 passed, 0 failed, -1 not run.
    statuses
        How each run ended: SUCCESS, TIME_LIMIT_EXCEEDED, MEMORY_LIMIT_EXCEEDED, RUNTIME_ERROR, COMPILE_ERROR,
        OUTPUT_TOO_LARGE, INPUT_TOO_LARGE, SKIPPED.
    accepted
        All tests passed, and there is at least one.
    first_failing
        Place of the first test in the suite's order that failed.
    killed_by
        Generator of that test; "compiler" where it did not compile; "" where accepted or the suite is empty.
    cpu_seconds
        Processor time of each run.
    text
        The compiler's words, or how the first failing run ended.
    """

    verdicts: tuple[int, ...]
    statuses: tuple[str, ...]
    accepted: bool
    first_failing: int | None
    killed_by: str
    cpu_seconds: tuple[float, ...]
    text: str = ""

    @property
    def pass_rate(self) -> float:
        """Share of tests passed; 0 where there are none."""
        return self.verdicts.count(PASS) / len(self.verdicts) if self.verdicts else 0.0


@contextlib.contextmanager
def opened(box: Sandbox | None) -> Iterator[Sandbox]:
    """The sandbox given, or one for now."""
    if box is not None:
        yield box
        return
    from assay.sandbox import Sandbox

    with Sandbox() as own:
        yield own


def compiled(box: Sandbox, code: str, language: str, compilers: Mapping[str, Compile] = COMPILERS) -> Program:
    """A program made ready.

    Raises
    ------
    UsageError
        The language is unknown, or its compiler is missing.
    """
    if language not in compilers:
        raise unknown_name("language", language, compilers)
    return compilers[language](box, code)


def verify(
    suite: TestSuite,
    code: str,
    language: str = "python3",
    *,
    box: Sandbox | None = None,
    until: Until = "all",
    order: Sequence[int] | None = None,
    total_seconds: float | None = None,
    input_bytes: int = 100 << 20,
    compilers: Mapping[str, Compile] = COMPILERS,
) -> Verdicts:
    """Run a program on a suite's tests.

    Parameters
    ----------
    until
        ``all`` runs every test, ``first`` stops at the first failure, ``kind`` gives up a generator's tests after a
        failure by time or memory (accepted or not stays exact, for every subset of generators too).
    order
        Places of tests in the order to run them (killers first); those not named follow.
    total_seconds
        Processor time of all runs together, after which no test is run any more; None = no limit.
    input_bytes
        A longer input is not run.

    Raises
    ------
    SandboxError
        The sandbox broke twice on one test: nothing is known of the program.
    """
    from assay.sandbox import Limits

    n = len(suite.cases)
    verdicts, statuses, spent = [NOT_RUN] * n, ["SKIPPED"] * n, [0.0] * n
    makers = suite.makers()
    places = _order(n, order)
    limits = Limits(cpu_seconds=suite.time_limit, memory_mb=suite.memory_mb, output_bytes=64 << 20)
    text = ""
    with opened(box) as box:
        program = compiled(box, code, language, compilers)
        if program.status != "ok":
            lines = program.text.strip()
            return Verdicts((NOT_RUN,) * n, ("COMPILE_ERROR",) * n, False, None, "compiler", (0.0,) * n, lines)
        judge = Judge(box, suite.judge)
        hopeless: set[str] = set()
        for place in places:
            case, kind = suite.cases[place], makers[place][0]
            if kind in hopeless or (total_seconds is not None and sum(spent) >= total_seconds):
                continue
            given = case.input.encode("utf-8", "surrogatepass")
            if len(given) > input_bytes:
                statuses[place] = "INPUT_TOO_LARGE"
                continue
            result = run_once(program, given, limits)
            statuses[place], spent[place] = _STATUS[result.status], result.cpu_seconds
            passed = result.ok and judge.accepts(case.input, result.stdout.decode("utf-8", "replace"), case.output)
            verdicts[place] = PASS if passed else FAIL
            if passed:
                continue
            text = text or result.reason
            if until == "first":
                break
            if until == "kind" and result.status in ("time limit", "memory limit"):
                hopeless.add(kind)
    failing = [place for place in range(n) if verdicts[place] == FAIL]
    first = failing[0] if failing else None
    return Verdicts(
        tuple(verdicts),
        tuple(statuses),
        n > 0 and all(v == PASS for v in verdicts),
        first,
        makers[first][0] if first is not None else "",
        tuple(spent),
        text,
    )


def run_once(program: Program, given: bytes, limits: Any) -> Result:
    """One run; a sandbox that broke gets a second chance.

    Raises
    ------
    SandboxError
        It broke again.
    """
    for _ in range(2):
        result = program.run(given, limits)
        if result.status != "sandbox lost":
            return result
    from assay.sandbox import SandboxError

    raise SandboxError(f"The sandbox broke twice under one run: {result.reason}.")


def run_and_judge(
    code: str,
    language: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    judge: str | None = None,
    *,
    time_limit: float = 5.0,
    memory_mb: int = 2048,
    total_seconds: float | None = 20.0,
    early_exit: bool = False,
    box: Sandbox | None = None,
) -> Verdicts:
    """Verdicts on inputs and reference outputs, without a suite; limits as published.

    Raises
    ------
    UsageError
        The lists have different lengths.
    """
    from assay.code.hardtests.problem import Case
    from assay.code.hardtests.suite import TestSuite

    if len(inputs) != len(outputs):
        raise UsageError(f"There are {len(inputs)} inputs and {len(outputs)} reference outputs; one each is needed.")
    cases = tuple(Case(*pair) for pair in zip(inputs, outputs))
    suite = TestSuite("", cases, {}, judge, time_limit=time_limit, memory_mb=memory_mb)
    until = "first" if early_exit else "all"
    return verify(suite, code, language, box=box, until=until, total_seconds=total_seconds)


def _order(n: int, order: Sequence[int] | None) -> list[int]:
    if order is None:
        return list(range(n))
    named = list(dict.fromkeys(order))
    if named and (min(named) < 0 or max(named) >= n):
        raise UsageError(f"The order names test {max(named)}, but the suite has {n} tests.")
    return named + [place for place in range(n) if place not in set(named)]
