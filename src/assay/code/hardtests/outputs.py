"""Reference outputs: what trusted programs agree on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.code.hardtests.judging import Judge
from assay.code.hardtests.problem import Oracle, distinct
from assay.code.hardtests.verifying import compiled, run_once

if TYPE_CHECKING:
    from assay.sandbox import Sandbox

Outputs = Sequence["str | None"]
NO_PROGRAMS = "output_generation_no_code_solutions"
TOO_LONG = "output_generation_time_limit_exceeded"
NOT_ENOUGH = "output_generation_no_enough_valid_code_solutions"
DISAGREE = "output_generation_verification_failed"
SILENT = "output_generation_no_output"
"""Every program that ran printed nothing on every input: it reads a file, or is interactive."""


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """How outputs are made and agreed on, under the published names; times in seconds of processor time."""

    max_code_solutions_to_try: int = 5
    min_num_agreements: int = 2
    output_inconsistent_tolerance: float = 0.0
    output_gen_time_limit_per_input: float = 5.0
    output_gen_time_limit_per_program: float = 50.0
    output_gen_total_time_limit: float = 240.0
    output_gen_memory_mb: int = 15 * 1024


@dataclass(slots=True)
class Agreement:
    """Reference outputs (None = none agreed on), how it ended, and by which of the tried programs."""

    status: str
    outputs: list[str | None] | None = None
    agreed: list[int] = field(default_factory=list)
    tried: int = 0
    disagreements: int = 0
    distinct_programs: int = 0


def agree(
    lists: Iterable[Outputs | None],
    programs: int,
    compare: Callable[[Outputs, Outputs], Sequence[bool]],
    *,
    min_num_agreements: int = 2,
    tolerance: float = 0.0,
) -> Agreement:
    """Reference outputs from the output lists of programs, most trusted first.

    A list with fewer than half its outputs counts as failed. The newest list that agrees with enough earlier ones
    (itself counted) is the reference; within the tolerance, outputs that differ are set to None.

    Parameters
    ----------
    lists
        Output lists; None = the program failed outright. Drawn one at a time, no further than needed.
    programs
        How many there are: fewer than ``min_num_agreements`` lower it.
    compare
        ``compare(earlier, newest)``, a boolean an output.
    tolerance
        Cases that may differ: a share in (0, 1), or a number from 1.
    """
    needed = min(min_num_agreements, programs)
    kept: list[tuple[int, Outputs]] = []
    fewest: int | None = None
    tried = 0
    for place, outputs in enumerate(lists):
        tried += 1
        if outputs is None or sum(o is not None for o in outputs) < 0.5 * len(outputs):
            continue
        allowed = int(tolerance * len(outputs)) if 0 < tolerance < 1 else int(tolerance)
        newest, agreed = list(outputs), [place]
        for earlier_place, earlier in kept:
            differing = [i for i, same in enumerate(compare(earlier, outputs)) if not same]
            fewest = len(differing) if fewest is None else min(fewest, len(differing))
            if len(differing) <= allowed:
                agreed.append(earlier_place)
                for i in differing:
                    newest[i] = None
        kept.append((place, outputs))
        if len(agreed) >= needed:
            return Agreement("success", newest, sorted(agreed), tried, sum(n is None for n in newest))
    if not programs:
        return Agreement(NO_PROGRAMS)
    if len(kept) < needed:
        return Agreement(NOT_ENOUGH, tried=tried)
    return Agreement(DISAGREE, tried=tried, disagreements=fewest or 0)


class _OverTime(Exception):
    pass


def generate_outputs(
    oracles: Sequence[Oracle], inputs: Sequence[str], judge: Judge, box: Sandbox, options: OutputOptions | None = None
) -> Agreement:
    """Run trusted programs on the inputs until enough of them agree.

    ``distinct_programs`` of the result counts those that agreed and differ in more than white space: a copy of a
    wrong program agrees with it.
    """
    options = options or OutputOptions()
    oracles = list(oracles)[: options.max_code_solutions_to_try]
    spent, silent = 0.0, [True] * len(oracles)

    def lists() -> Iterable[Outputs | None]:
        nonlocal spent
        for place, oracle in enumerate(oracles):
            if spent >= options.output_gen_total_time_limit:
                raise _OverTime
            outputs, seconds = _run(oracle, inputs, box, options)
            spent += seconds
            silent[place] = not any(outputs or [])
            yield outputs

    def compare(earlier: Outputs, newest: Outputs) -> list[bool]:
        return judge.compare(inputs, earlier, newest)

    try:
        found = agree(
            lists(),
            len(oracles),
            compare,
            min_num_agreements=options.min_num_agreements,
            tolerance=options.output_inconsistent_tolerance,
        )
    except _OverTime:
        return Agreement(TOO_LONG)
    if found.outputs is not None and not any(found.outputs) and all(silent[i] for i in found.agreed):
        found.status, found.outputs = SILENT, None
    found.distinct_programs = distinct([oracles[i].solution.code for i in found.agreed])
    return found


def _run(
    oracle: Oracle, inputs: Sequence[str], box: Sandbox, options: OutputOptions
) -> tuple[list[str | None] | None, float]:
    """Outputs of one program (None = it does not compile) and the processor time it took."""
    from assay.sandbox import Limits

    program = compiled(box, oracle.solution.code, oracle.solution.language)
    if program.status != "ok":
        return None, 0.0
    limits = Limits(
        cpu_seconds=options.output_gen_time_limit_per_input,
        memory_mb=options.output_gen_memory_mb,
        output_bytes=64 << 20,
    )
    outputs: list[str | None] = []
    spent = 0.0
    for given in inputs:
        if spent >= options.output_gen_time_limit_per_program:
            outputs.append(None)
            continue
        result = run_once(program, given.encode("utf-8", "surrogatepass"), limits)
        spent += result.cpu_seconds
        outputs.append(result.stdout.decode("utf-8", "replace") if result.ok else None)
    return outputs, spent
