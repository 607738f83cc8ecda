"""Suite makers: the pipeline, its ablations, and the tests that it is compared with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from assay.code.hardtests.generator import HardTestGenerator
from assay.code.hardtests.inputs import InputSet, Validator, generate_inputs
from assay.code.hardtests.kit import Generator, Kit
from assay.code.hardtests.problem import Case, Problem
from assay.code.hardtests.suite import TestSuite
from assay.core.errors import UsageError

if TYPE_CHECKING:
    from assay.sandbox import Sandbox
    from assay.systems.chat.model import ChatModel


@runtime_checkable
class SuiteMaker(Protocol):
    """Makes a test suite of a problem, without looking at its labelled programs."""

    async def make_suite(self, problem: Problem, box: Sandbox, *, seed: int) -> TestSuite:
        """A suite; an empty one with a status where it cannot."""
        ...


class Public:
    """The examples of the statement: what a poor suite looks like."""

    name = "public"

    async def make_suite(self, problem: Problem, box: Sandbox, *, seed: int) -> TestSuite:
        """The examples as they stand, judged by the problem's judge."""
        return TestSuite(
            problem.pid,
            problem.examples,
            {"Public": list(range(len(problem.examples)))},
            problem.kit.judge if problem.kit else None,
            problem.kit,
            "success" if problem.examples else "no_public_tests",
            problem.time_limit,
            problem.memory_mb,
        )


class Pipeline:
    """Kits to suites, whole or in part.

    Parameters
    ----------
    kinds
        Generators used.
    validator
        Whether inputs are checked.
    agreement
        Whether two programs must agree; else the most trusted one is believed.
    quota
        Inputs wanted of every function; None = published.
    model
        Writes the kits of all problems, those that bring one too; None = kits that are there.
    """

    def __init__(
        self,
        name: str,
        kinds: tuple[str, ...] = ("LLMGen", "RPGen_SPGen", "HackGen"),
        *,
        validator: bool = True,
        agreement: bool = True,
        quota: int | None = None,
        model: ChatModel | None = None,
    ) -> None:
        self.name, self.kinds, self.model = name, kinds, model
        self.options: dict[str, Any] = {
            "apply_validator": validator,
            "min_num_agreements": 2 if agreement else 1,
            "num_RPGen_SPGen_input": quota,
            "num_HackGen_input_per_func": quota,
        }

    async def make_suite(self, problem: Problem, box: Sandbox, *, seed: int) -> TestSuite:
        """Generators, validation, agreement."""
        kit = None if self.model is not None else problem.kit
        if kit is None and self.model is None:
            raise UsageError(f"Problem {problem.pid!r} has no kit; give kits=FILE, or use method:written?model=NAME.")
        generator = HardTestGenerator(self.model, box, **self.options)
        return await generator.agenerate(replace(problem, kit=kit and _part(kit, self.kinds)), seed=seed)


def _part(kit: Kit, kinds: tuple[str, ...]) -> Kit:
    return replace(
        kit,
        literal=kit.literal if "LLMGen" in kinds else (),
        ranged=kit.ranged if "RPGen_SPGen" in kinds else Generator(),
        hacking=kit.hacking if "HackGen" in kinds else Generator(),
    )


class Mutated:
    """Examples and literal inputs, and small changes of them on which trusted programs agree (as CodeContests did).

    Nothing checks whether a changed input is valid.
    """

    name = "mutation"

    def __init__(self, inputs: int = 40) -> None:
        self.inputs = inputs

    async def make_suite(self, problem: Problem, box: Sandbox, *, seed: int) -> TestSuite:
        """Seeds first, then changes of changes, without duplicates."""
        return await asyncio.to_thread(self._made, problem, box, seed)

    def _made(self, problem: Problem, box: Sandbox, seed: int) -> TestSuite:
        import numpy as np

        from assay.code.hardtests.mutation import mutate_input

        rng = np.random.default_rng(seed)
        seeds = [case.input for case in problem.examples]
        found = list(dict.fromkeys(seeds + list(problem.kit.literal if problem.kit else ())))
        for _ in range(10 * self.inputs):
            if not found or len(found) >= self.inputs:
                break
            new = mutate_input(found[int(rng.integers(len(found)))], rng)
            if new not in found:
                found.append(new)
        return _answered(problem, InputSet(found, {"Mutation": list(range(len(found)))}), box)


class RandomLargest:
    """The largest of many random valid inputs: size alone, without thought of what programs do wrong."""

    name = "random_max"

    def __init__(self, inputs: int = 20, drawn: int = 60) -> None:
        self.inputs, self.drawn = inputs, drawn

    async def make_suite(self, problem: Problem, box: Sandbox, *, seed: int) -> TestSuite:
        """``drawn`` inputs of the range-based or stratified functions, the longest ``inputs`` of them."""
        return await asyncio.to_thread(self._made, problem, box, seed)

    def _made(self, problem: Problem, box: Sandbox, seed: int) -> TestSuite:
        if problem.kit is None:
            raise UsageError(f"Problem {problem.pid!r} has no kit to draw random inputs from; give kits=FILE.")
        from assay.code.hardtests.inputs import InputOptions

        kit = _part(problem.kit, ("RPGen_SPGen",))
        each = max(1, self.drawn // max(1, len(kit.ranged.functions)))
        options = InputOptions(num_RPGen_SPGen_input=each, num_RPGen_SPGen_attempts=2 * each)
        made = generate_inputs(kit, box, seed=seed, options=options)
        largest = sorted(set(made.inputs), key=lambda given: (-len(given), given))[: self.inputs]
        return _answered(problem, InputSet(largest, {"RandomMax": list(range(len(largest)))}), box)


class ModelOutputs:
    """Literal inputs of the kit, outputs as a model says (as TACO did), not as programs do."""

    name = "llm_outputs"

    def __init__(self, model: ChatModel, inputs: int = 10, max_tokens: int = 2048) -> None:
        self.model, self.inputs, self.max_tokens = model, inputs, max_tokens

    async def make_suite(self, problem: Problem, box: Sandbox, *, seed: int) -> TestSuite:
        """One call an input; an answer without a fenced block gives no test."""
        from assay.code.hardtests.writing import prompt
        from assay.core.answers import fenced
        from assay.sandbox import Limits

        kit = problem.kit
        given = list(dict.fromkeys(kit.literal if kit else (case.input for case in problem.examples)))[: self.inputs]
        validator = Validator(box, kit.validator if kit else None, Limits(cpu_seconds=10))
        good = await asyncio.to_thread(validator.valid, given)
        cases = []
        for text in [text for text, valid in zip(given, good) if valid]:
            messages = prompt("output", statement=problem.statement, given=text.rstrip())
            reply = await self.model.generate(messages, temperature=0.0, max_tokens=self.max_tokens, seed=seed % 2**31)
            answer = fenced(reply.text).value
            if answer is not None:
                cases.append(Case(text, answer))
        status = "success" if cases else "outputs_unreadable"
        mapping = {"LLMOutput": list(range(len(cases)))}
        return TestSuite(
            problem.pid, tuple(cases), mapping, kit and kit.judge, kit, status, problem.time_limit, problem.memory_mb
        )


def _answered(problem: Problem, made: InputSet, box: Sandbox) -> TestSuite:
    """Inputs with the outputs that trusted programs agree on, test by test: where they differ, the test falls."""
    generator = HardTestGenerator(sandbox=box, output_inconsistent_tolerance=float(max(1, len(made.inputs))))
    oracles = generator.oracles(problem)
    kit = problem.kit
    blank = TestSuite(
        problem.pid, judge=kit and kit.judge, kit=kit, time_limit=problem.time_limit, memory_mb=problem.memory_mb
    )
    if not oracles:
        return replace(blank, status="output_generation_no_code_solutions")
    return generator.with_outputs(blank, made, oracles, box)


def _loaded(name: str | None, role: str, method: str) -> Any:
    from assay.systems.loading import load

    if not name:
        raise UsageError(f"method:{method} needs a model: method:{method}?model=openai:gpt-4o.")
    return load(name, role=role)


def full(quota: int | None = None) -> Pipeline:
    """The whole pipeline on the kits that are there."""
    return Pipeline("full", quota=quota)


def llmgen() -> Pipeline:
    """Literal inputs alone."""
    return Pipeline("llmgen", ("LLMGen",))


def rpspgen(quota: int | None = None) -> Pipeline:
    """Literal, range-based and stratified inputs, no hacking ones."""
    return Pipeline("rpspgen", ("LLMGen", "RPGen_SPGen"), quota=quota)


def no_validator(quota: int | None = None) -> Pipeline:
    """The pipeline without checking inputs."""
    return Pipeline("no_validator", validator=False, quota=quota)


def no_agreement(quota: int | None = None) -> Pipeline:
    """The pipeline that believes its most trusted program."""
    return Pipeline("no_agreement", agreement=False, quota=quota)


def written(model: str | None = None, quota: int | None = None) -> Pipeline:
    """The pipeline with kits by a chat model."""
    return Pipeline("written", quota=quota, model=_loaded(model, "kit writer", "written"))


def llm_outputs(model: str | None = None, inputs: int = 10, max_tokens: int = 2048) -> ModelOutputs:
    """Outputs by a chat model."""
    return ModelOutputs(_loaded(model, "output writer", "llm_outputs"), inputs, max_tokens)


METHODS: Mapping[str, Callable[..., SuiteMaker]] = {
    "public": Public,
    "llmgen": llmgen,
    "rpspgen": rpspgen,
    "full": full,
    "no_validator": no_validator,
    "no_agreement": no_agreement,
    "mutation": Mutated,
    "random_max": RandomLargest,
    "written": written,
    "llm_outputs": llm_outputs,
}
