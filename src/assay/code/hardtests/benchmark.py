"""HardTests: how good are test suites as verifiers of programs, and how good are models at programs?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.code.hardtests.makers import METHODS, SuiteMaker
from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import UsageError
from assay.core.metrics import mean, pass_at, rate, ratio
from assay.systems.chat.model import ChatModel

if TYPE_CHECKING:
    from assay.code.hardtests.problem import Problem
    from assay.core.context import Context
    from assay.sandbox import Sandbox

_ROOM = "assay.code.hardtests"


class _Problems:
    """Problems chosen by the options that both benchmarks share."""

    def __init__(self, data: str, kits: str | None, difficulty: str | None, platform: str | None) -> None:
        self.source, self.kits, self.difficulty, self.platform = data, kits, difficulty, platform

    @cached_property
    def by_pid(self) -> Mapping[str, Problem]:
        """Problems by id, in the order of the source."""
        from assay.code.hardtests.data import filtered, load_problems, with_kits

        found = filtered(load_problems(self.source), difficulty=self.difficulty, platform=self.platform)
        if self.kits:
            found = with_kits(found, Path(self.kits))
        if not found:
            raise UsageError("No problem is left; loosen the options difficulty and platform.")
        return {problem.pid: problem for problem in found}

    def provenance(self) -> Mapping[str, Any]:
        """Where the problems are from."""
        from assay.code.hardtests.data import SHIPPED

        if all(part in SHIPPED for part in self.source.split("+")):
            return {
                "kind": "stand-in",
                "source": f"shipped problems: {self.source}",
                "licence": "Apache-2.0",
                "instead_of": "sigcp/hardtests_problems",
            }
        return {"kind": "real", "source": self.source, "licence": "as stated by the source"}


def open_sandbox() -> Sandbox:
    """As many boxes as cores."""
    from assay.sandbox import Sandbox

    return Sandbox()


HIDDEN = "hidden"
"""The option ``programs`` of those who are not to see them."""


class Study(Task):
    """One problem a sample: a suite is made, then every labelled program of the problem is judged by it."""

    name = "study"
    system = SuiteMaker

    def __init__(self, benchmark: HardTests) -> None:
        self.benchmark = benchmark

    def samples(self) -> Sequence[Sample]:
        """Problems that have labelled programs; without a target all of them, where a referee keeps the programs."""
        return [
            Sample(
                pid,
                input=pid,
                target={program.id: program.correct for program in problem.programs} or None,
                groups={
                    "difficulty": problem.difficulty,
                    "platform": problem.platform,
                    "correct_programs": sum(program.correct for program in problem.programs),
                    "faulty_programs": sum(not program.correct for program in problem.programs),
                },
            )
            for pid, problem in self.benchmark.problems.items()
            if problem.programs or self.benchmark.programs == HIDDEN
        ]

    def setup(self, system: Any, ctx: Context) -> Any:
        """A sandbox."""
        return open_sandbox()

    async def trial(self, system: SuiteMaker, sample: Sample, ctx: Context) -> Outcome:
        """Make the suite; the output is its row."""
        suite = await system.make_suite(self.benchmark.problems[sample.id], ctx.state, seed=ctx.seed)
        return Outcome(output=suite.to_row())

    async def score(self, sample: Sample, output: Any, ctx: Context) -> Outcome:
        """Judge the labelled programs by the suite, one after the other, without holding up the event loop."""
        from assay.code.hardtests.study import judged
        from assay.code.hardtests.suite import TestSuite

        problem = self.benchmark.problems[sample.id]
        suite = TestSuite.from_row(output, f"the suite of {sample.id}", problem)
        rows, found = await asyncio.to_thread(judged, suite, problem, ctx.state, self.benchmark.until)
        return Outcome(
            {
                "tp": found.tp, "fp": found.fp, "fn": found.fn, "tn": found.tn, "accepted": found.tp + found.fp,
                "tests": len(suite),
            },
            groups={"suite_status": suite.status},
            rows=rows,
        )  # fmt: skip


class HardTests(Benchmark):
    """Precision and recall of test suites over programs whose truth is known.

    Parameters
    ----------
    data
        Problems: ``own``, ``mini``, ``quixbugs:PATH``, a file in the published layout, ``hf:ORG/NAME``; or several,
        joined by ``+``.
    programs
        File of labelled programs (pid, code, language, correct, source), for problems that bring none; ``hidden``:
        a referee has them, and nothing is scored here.
    kits
        File of kits.
    difficulty, platform
        Which problems: ``2`` or ``1-3``; names separated by commas.
    until
        ``all`` runs every test (for kill matrices); ``kind`` gives up a generator's tests after a time-out.
    """

    name = "hardtests"
    title = "HardTests: test suites as verifiers of programs"
    paper = "arXiv:2505.24098"
    extras = ()
    references = "references.json"
    metrics = (
        ratio("tp", "accepted", name="precision", headline=True, by=("difficulty",)),
        ratio("tp", "correct_programs", name="recall", by=("difficulty",)),
        ratio("fp", "faulty_programs", name="false_positive_rate", higher_is_better=False),
        mean("tests", name="tests_a_problem", error=None),
        rate("suite_status", "success", name="suites_made"),
    )
    analyses = {
        name: f"{_ROOM}.analyses:{name}"
        for name in ("quality", "ladder", "kills", "minimal", "generators", "tests_between", "confidence")
    }
    recipes = {
        **{name: f"{_ROOM}.recipes:{name}" for name in ("kits", "suites", "judge", "filter", "convert", "mutants")},
        "reproduce": f"{_ROOM}.reproduce:reproduce",
    }

    def __init__(
        self,
        data: str = "own",
        *,
        programs: str | None = None,
        kits: str | None = None,
        difficulty: str | None = None,
        platform: str | None = None,
        until: Literal["all", "kind"] = "kind",
    ) -> None:
        self._chosen = _Problems(data, kits, difficulty, platform)
        self.programs = programs
        self.until: Literal["all", "kind"] = until

    @cached_property
    def problems(self) -> Mapping[str, Problem]:
        """Problems by id, with their labelled programs."""
        found = self._chosen.by_pid
        if self.programs == HIDDEN:
            return {pid: replace(problem, programs=()) for pid, problem in found.items()}
        if self.programs:
            from assay.code.hardtests.data import with_programs

            found = {p.pid: p for p in with_programs(list(found.values()), Path(self.programs))}
        return found

    def tasks(self) -> Sequence[Task]:
        """The study, the one task."""
        return [Study(self)]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """The pipeline, its ablations, and baselines."""
        return METHODS

    def read(self, path: Path) -> Iterable[tuple[str, str, int, Outcome]]:
        """Suites: a folder that the recipe made, or rows in the pipeline's or the published form."""
        from assay.code.hardtests.data import read_suites

        for suite in read_suites(path, self.problems):
            yield "study", suite.pid, 0, Outcome(output=suite.to_row())

    def data(self) -> Mapping[str, Any]:
        """Where the problems are from."""
        return self._chosen.provenance()


class Solving(Task):
    """One problem a sample: a model writes a program, a suite judges it."""

    name = "solving"
    system = ChatModel

    def __init__(self, benchmark: HardTestsCode) -> None:
        self.benchmark = benchmark

    def samples(self) -> Sequence[Sample]:
        """All problems."""
        return [
            Sample(pid, problem.statement, pid, {"difficulty": problem.difficulty, "platform": problem.platform})
            for pid, problem in self.benchmark.problems.items()
        ]

    def setup(self, system: Any, ctx: Context) -> Any:
        """A sandbox."""
        return open_sandbox()

    async def trial(self, system: ChatModel, sample: Sample, ctx: Context) -> Outcome:
        """Ask for a program."""
        from assay.code.hardtests.writing import prompt

        bench, problem = self.benchmark, self.benchmark.problems[sample.id]
        messages = prompt(
            "solve",
            language={"cpp": "C++20"}.get(bench.language, "Python 3"),
            statement=problem.statement,
            examples=problem.examples[: bench.examples],
            time_limit=f"{problem.time_limit:g}",
            memory_mb=problem.memory_mb,
        )
        reply = await system.generate(
            messages, temperature=bench.temperature, max_tokens=bench.max_tokens, seed=ctx.seed % 2**31
        )
        return Outcome(output=reply.text, groups={"stop_reason": reply.stop_reason})

    async def score(self, sample: Sample, output: Any, ctx: Context) -> Outcome:
        """Read the program and judge it by the problem's suite; unread and uncompiled programs are wrong."""
        from assay.code.hardtests.writing import program_in

        bench = self.benchmark
        code, how = program_in(output if isinstance(output, str) else "", bench.language)
        if code is None:
            return Outcome({"correct": 0.0, "pass_rate": 0.0}, groups={"read": "unread", "verdict": "unread"})
        suite = await bench.suite_of(sample.id, ctx)
        if not suite.cases:
            raise UsageError(f"Problem {sample.id!r} has no usable suite ({suite.status}); give suites=FOLDER.")
        from assay.code.hardtests.verifying import verify

        found = await asyncio.to_thread(
            lambda: verify(suite, code, bench.language, box=ctx.state, until="first" if bench.early_exit else "kind")
        )
        first = found.first_failing
        verdict = "ACCEPTED" if found.accepted else found.statuses[first] if first is not None else "COMPILE_ERROR"
        verdict = "WRONG_ANSWER" if verdict == "SUCCESS" else verdict
        groups: dict[str, str | int | float] = {"read": how, "verdict": verdict, "killed_by": found.killed_by or "none"}
        return Outcome({"correct": float(found.accepted), "pass_rate": found.pass_rate}, groups=groups)


class HardTestsCode(Benchmark):
    """pass@k of a chat model on problems with hard tests.

    Parameters
    ----------
    data, kits, difficulty, platform
        As in `HardTests`.
    suites
        Folder or file of suites; None = made from the problems' kits when first needed, and kept in the cache.
    quota
        Inputs a generator function of suites made here; None = published quotas.
    language
        ``python3`` or ``cpp``.
    examples
        Examples shown in the prompt.
    early_exit
        Stop at the first failing test; False gives exact pass rates.
    temperature, max_tokens
        Of the request.
    """

    name = "hardtests-code"
    title = "HardTests: programs by chat models, judged by hard tests"
    paper = "arXiv:2505.24098"
    extras = ()
    metrics = (
        pass_at("correct", 1, headline=True, by=("difficulty",)),
        pass_at("correct", 5),
        pass_at("correct", 10),
        mean("pass_rate", bounds=(0, 1)),
        rate("read", "unread", name="unread_rate", higher_is_better=False, error=None),
    )

    def __init__(
        self,
        data: str = "own",
        *,
        suites: str | None = None,
        kits: str | None = None,
        difficulty: str | None = None,
        platform: str | None = None,
        quota: int | None = None,
        language: Literal["python3", "cpp"] = "python3",
        examples: int = 3,
        early_exit: bool = True,
        temperature: float = 0.7,
        max_tokens: int = 4096,
    ) -> None:
        self._chosen = _Problems(data, kits, difficulty, platform)
        self.suites, self.quota, self.language, self.examples = suites, quota, language, examples
        self.early_exit, self.temperature, self.max_tokens = early_exit, temperature, max_tokens
        self._made: dict[str, asyncio.Task[Any]] = {}

    @property
    def problems(self) -> Mapping[str, Problem]:
        """Problems by id."""
        return self._chosen.by_pid

    @cached_property
    def _given(self) -> Mapping[str, Any]:
        from assay.code.hardtests.data import read_suites

        return {s.pid: s for s in read_suites(Path(self.suites), self.problems)} if self.suites else {}

    async def suite_of(self, pid: str, ctx: Context) -> Any:
        """The suite of a problem: given, or made once."""
        if self.suites:
            if pid not in self._given:
                raise UsageError(f"{self.suites} holds no suite of problem {pid!r}.")
            return self._given[pid]
        if pid not in self._made:
            self._made[pid] = asyncio.ensure_future(self._make(pid, ctx))
        return await asyncio.shield(self._made[pid])

    async def _make(self, pid: str, ctx: Context) -> Any:
        from dataclasses import asdict

        from assay.code.hardtests.suite import TestSuite

        problem = self.problems[pid]
        maker = METHODS["full"](quota=self.quota)

        async def row() -> dict[str, Any]:
            return (await maker.make_suite(problem, ctx.state, seed=0)).to_row()

        key = ["hardtests suite", asdict(problem), self.quota]
        return TestSuite.from_row(await ctx.cache.get_or_await(key, row), f"the cached suite of {pid}", problem)

    def tasks(self) -> Sequence[Task]:
        """Solving, the one task."""
        return [Solving(self)]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """Writers whose programs are known: the best and the worst that the problems bring."""
        from assay.code.hardtests.writers import labelled, trusted

        return {
            "trusted": lambda: trusted(self.problems, self.language),
            "labelled": lambda: labelled(self.problems, self.language),
        }

    def data(self) -> Mapping[str, Any]:
        """Where the problems are from."""
        return self._chosen.provenance()
