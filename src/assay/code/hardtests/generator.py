"""The pipeline: a problem and its kit to a test suite."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from assay.code.hardtests.inputs import InputOptions, InputSet, generate_inputs
from assay.code.hardtests.judging import Judge
from assay.code.hardtests.kit import Kit
from assay.code.hardtests.outputs import OutputOptions, generate_outputs
from assay.code.hardtests.problem import LANGUAGES, Case, Oracle, Problem, rank_oracles
from assay.code.hardtests.suite import TestSuite, drop_missing
from assay.code.hardtests.verifying import opened
from assay.core.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from assay.sandbox import Sandbox
    from assay.systems.chat.model import ChatModel

SUITE_BYTES = 500 << 20


class HardTestGenerator:
    """Makes test suites of problems.

    Parameters
    ----------
    llm
        Writes the kits of problems that bring none; None = every problem must have one.
    sandbox
        Where generators and programs run; None = one of its own for each problem.
    options
        Fields of `InputOptions` and `OutputOptions`, under their published names, and ``languages``,
        ``lowest_level`` of trusted programs.

    Examples
    --------
    >>> suite = HardTestGenerator().generate(problem)
    >>> suite.verify("print(42)").accepted
    False
    """

    def __init__(self, llm: ChatModel | None = None, sandbox: Sandbox | None = None, **options: Any) -> None:
        self.llm = llm
        self.sandbox = sandbox
        self.languages = tuple(options.pop("languages", LANGUAGES))
        self.lowest_level = options.pop("lowest_level", 1)
        known = {cls: {f.name for f in fields(cls)} for cls in (InputOptions, OutputOptions)}
        for name in options:
            if not any(name in names for names in known.values()):
                raise unknown_name("option of HardTestGenerator", name, set().union(*known.values()))
        self.inputs = InputOptions(**{k: v for k, v in options.items() if k in known[InputOptions]})
        self.outputs = OutputOptions(**{k: v for k, v in options.items() if k in known[OutputOptions]})

    def oracles(self, problem: Problem) -> list[Oracle]:
        """The trusted programs of a problem, best first."""
        return rank_oracles(
            problem.pid,
            problem.solutions,
            languages=self.languages,
            lowest_level=self.lowest_level,
            most=self.outputs.max_code_solutions_to_try,
        )

    def generate(self, problem: Problem, *, seed: int = 0) -> TestSuite:
        """A suite, by the problem's own kit or by one that the model writes (not from within an event loop).

        A problem for which it fails gives an empty suite whose status says why.

        Raises
        ------
        UsageError
            There is neither a kit nor a model.
        """
        if problem.kit is None:
            return asyncio.run(self.agenerate(problem, seed=seed))
        return self._made(problem, problem.kit, seed)

    async def agenerate(self, problem: Problem, *, seed: int = 0) -> TestSuite:
        """`generate` that waits for the model and the sandbox without holding up the event loop."""
        kit = problem.kit
        if kit is None:
            from assay.code.hardtests.writing import write_kit

            if self.llm is None:
                raise UsageError(
                    f"Problem {problem.pid!r} has no kit; write one, or give a model: HardTestGenerator(llm=...)."
                )
            oracles = self.oracles(problem)
            if not oracles:
                return TestSuite(problem.pid, status="output_generation_no_code_solutions")
            kit = await write_kit(self.llm, problem, oracles[0].solution, seed=seed)
            if kit is None:
                return TestSuite(problem.pid, status="kit_unreadable")
        return await asyncio.to_thread(self._made, problem, kit, seed)

    def _made(self, problem: Problem, kit: Kit, seed: int) -> TestSuite:
        blank = TestSuite(
            problem.pid, judge=kit.judge, kit=kit, time_limit=problem.time_limit, memory_mb=problem.memory_mb
        )
        oracles = self.oracles(problem)
        if not oracles:
            return replace(blank, status="output_generation_no_code_solutions")
        with opened(self.sandbox) as box:
            made = generate_inputs(kit, box, seed=seed, options=self.inputs)
            return self.with_outputs(blank, made, oracles, box)

    def with_outputs(self, blank: TestSuite, made: InputSet, oracles: list[Oracle], box: Sandbox) -> TestSuite:
        """``blank`` filled with inputs and the outputs that the trusted programs agree on."""
        about: dict[str, Any] = {"generators": made.rows}
        if made.status != "success":
            return replace(blank, status=made.status, about=about)
        found = generate_outputs(oracles, made.inputs, Judge(box, blank.judge), box, self.outputs)
        about["oracles"] = asdict(found) | {"outputs": None, "ids": [oracles[i].id for i in found.agreed]}
        if found.outputs is None:
            return replace(blank, status=found.status, about=about)
        cases = [Case(*pair) for pair in zip(made.inputs, found.outputs)]
        cases, mapping = drop_missing(cases, made.mapping)
        if sum(len(c.input) + len(c.output or "") for c in cases) > SUITE_BYTES:
            return replace(blank, status="test_cases_size_exceeded_limit", about=about)
        return replace(blank, cases=tuple(cases), mapping=mapping, about=about)
