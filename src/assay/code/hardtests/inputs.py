"""Inputs of a problem, by the four kinds of generators, each attempt in a process of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.code.hardtests.kit import VALIDATE, Kit
from assay.code.hardtests.testlib import with_testlib

if TYPE_CHECKING:
    from assay.sandbox import Limits, Program, Sandbox

_GENERATE = """

def _assay_generate(name, seed):
    import random
    random.seed(seed)
    return globals()[name]()
"""
_VALIDATE = f"""

def _assay_validate(inputs):
    found = []
    for text in inputs:
        try:
            found.append(bool({VALIDATE}(text)))
        except Exception:
            found.append(False)
    return found
"""


@dataclass(frozen=True, slots=True)
class InputOptions:
    """Quotas and budgets, under their published names where there is one.

    All times are seconds of processor time, so a busy machine makes the same tests. None for the four numbers of
    inputs and attempts = the published quotas: 20 of 40 for a regular problem, 10 of 20 a function else.
    """

    num_RPGen_SPGen_input: int | None = None
    num_RPGen_SPGen_attempts: int | None = None
    num_HackGen_input_per_func: int | None = None
    num_HackGen_attempts_per_func: int | None = None
    input_gen_time_limit_per_attempt: float = 5.0
    input_gen_time_limit_per_func: float = 40.0
    input_gen_total_time_limit: float = 180.0
    validation_time_limit: float = 10.0
    input_gen_memory_mb: int = 15 * 1024
    apply_validator: bool = True

    def quota(self, kit: Kit, kind: str) -> tuple[int, int]:
        """Inputs wanted and attempts allowed, a function."""
        wanted, attempts = kit.quota(kind)
        ranged = kind == "RPGen_SPGen"
        own = self.num_RPGen_SPGen_input if ranged else self.num_HackGen_input_per_func
        tries = self.num_RPGen_SPGen_attempts if ranged else self.num_HackGen_attempts_per_func
        return own if own is not None else wanted, tries if tries is not None else max(attempts, 2 * (own or 0))


@dataclass(slots=True)
class InputSet:
    """Inputs, which generator made which, and one row a generator function on how it went."""

    inputs: list[str] = field(default_factory=list)
    mapping: dict[str, list[Any]] = field(default_factory=lambda: {"LLMGen": [], "RPGen_SPGen": [], "HackGen": []})
    rows: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def status(self) -> str:
        """``success``, or ``input_generation_failed`` where there is no input."""
        return "success" if self.inputs else "input_generation_failed"


class Validator:
    """A kit's validator in a process apart; raising or running too long counts as invalid."""

    def __init__(self, box: Sandbox, source: str | None, limits: Limits) -> None:
        self._limits = limits
        self._program: Program | None = box.python(with_testlib(source) + _VALIDATE) if source else None

    def valid(self, inputs: list[str], cpu_seconds: float | None = None) -> list[bool]:
        """Whether each input keeps the rules; all do where there is no validator."""
        if self._program is None or not inputs:
            return [True] * len(inputs)
        from dataclasses import replace

        limits = replace(self._limits, cpu_seconds=cpu_seconds) if cpu_seconds else self._limits
        result = self._program.call("_assay_validate", inputs, limits=limits)
        _must_stand(result)
        good = result.ok and isinstance(result.value, list) and len(result.value) == len(inputs)
        return [value is True for value in result.value] if good else [False] * len(inputs)


def _must_stand(result: Any) -> None:
    if result.status == "sandbox lost":
        from assay.sandbox import SandboxError

        raise SandboxError(f"A generator or validator lost its sandbox: {result.reason}.")


def attempt_seed(seed: int, pid: str, function: str, attempt: int) -> int:
    """Seed of one call of a generator: of these four alone."""
    text = f"{seed}\x1f{pid}\x1f{function}\x1f{attempt}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def generate_inputs(kit: Kit, box: Sandbox, *, seed: int = 0, options: InputOptions | None = None) -> InputSet:
    """Make the inputs of a kit: literal ones, range-based or stratified ones, hacking ones.

    Where the budget of all ends, what has been made until then is kept, and functions that had no turn have none.
    Duplicates fall within a function; the order is that of making, so equal seeds make equal suites.
    """
    from assay.sandbox import Limits

    options = options or InputOptions()
    limits = Limits(cpu_seconds=options.input_gen_time_limit_per_attempt, memory_mb=options.input_gen_memory_mb)
    validator = Validator(box, kit.validator if options.apply_validator else None, limits)
    made = InputSet()
    literal = list(dict.fromkeys(kit.literal))
    valid = [
        given for given, good in zip(literal, validator.valid(literal, options.validation_time_limit)) if good
    ]  # fmt: skip
    made.mapping["LLMGen"] = list(range(len(valid)))
    made.inputs += valid
    made.rows.append(_row("LLMGen", "", len(valid), len(kit.literal), invalid=len(literal) - len(valid)))
    for kind, generator in (("RPGen_SPGen", kit.ranged), ("HackGen", kit.hacking)):
        if generator.code is None:
            continue
        program = box.python(with_testlib(generator.code) + _GENERATE)
        wanted, attempts = options.quota(kit, kind)
        for function in generator.functions:
            kept: list[str] = []
            row = _row(kind, function, 0, 0, error=program.text if program.status != "ok" else "")
            left = min(options.input_gen_time_limit_per_func, options.input_gen_total_time_limit - made.seconds)
            for candidate, seconds, error in _attempts(program, function, kit.pid, seed, attempts, limits):
                row["attempts"] += 1
                row["seconds"] += seconds
                if error:
                    row["errors"] += 1
                    row["error"] = error
                elif candidate in kept:
                    row["duplicates"] += 1
                elif not validator.valid([candidate])[0]:
                    row["invalid"] += 1
                else:
                    kept.append(candidate)
                if len(kept) >= wanted or row["seconds"] >= left:
                    break
            row["kept"] = len(kept)
            made.seconds += row["seconds"]
            made.mapping[kind].append(list(range(len(made.inputs), len(made.inputs) + len(kept))))
            made.inputs += kept
            made.rows.append(row)
    return made


def _attempts(
    program: Program, function: str, pid: str, seed: int, attempts: int, limits: Limits
) -> Iterator[tuple[str, float, str]]:
    """(input, seconds, error) of each attempt."""
    for attempt in range(attempts if program.status == "ok" else 0):
        result = program.call("_assay_generate", function, attempt_seed(seed, pid, function, attempt), limits=limits)
        _must_stand(result)
        if not result.ok:
            last = result.stderr.decode("utf-8", "replace").strip().splitlines()
            yield "", result.cpu_seconds, (last[-1] if last else result.reason)[:200]
        elif not isinstance(result.value, str):
            yield "", result.cpu_seconds, f"{function} returned a {type(result.value).__name__}, not a text"
        else:
            yield result.value, result.cpu_seconds, ""


def _row(kind: str, function: str, kept: int, attempts: int, *, invalid: int = 0, error: str = "") -> dict[str, Any]:
    return {
        "generator": kind, "function": function, "kept": kept, "attempts": attempts, "invalid": invalid,
        "duplicates": 0, "errors": 0, "seconds": 0.0, "error": error[:200],
    }  # fmt: skip
