"""Cost-of-Pass: what does one correct answer cost, and who gives it cheapest? (arXiv 2504.13359)"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import DataError, TrialTimeout, UsageError
from assay.core.metrics import function, mean, rate
from assay.reasoning.cost_of_pass import scoring, techniques
from assay.systems.chat.model import ChatModel

if TYPE_CHECKING:
    import polars as pl

    from assay.core.context import Context
    from assay.reasoning.cost_of_pass.data import DataSet, Form, Problem
    from assay.reasoning.cost_of_pass.reuse import StoredReplies

_ROOM = "assay.reasoning.cost_of_pass"
SEPARATOR = "~"


def mean_cost_of_pass(frame: pl.DataFrame) -> float:
    """Mean over problems of the cheaper of the system (cost of an attempt over success rate) and the expert, USD."""
    from assay.reasoning.cost_of_pass.summary import mean_frontier

    return mean_frontier(frame)


class ProblemTask(Task):
    """One data set: every problem under every technique, eight times."""

    system = ChatModel
    attempts = 8
    resample = "both"

    def __init__(self, data_set: DataSet, problems: Sequence[Problem], benchmark: CostOfPassBenchmark) -> None:
        self.name = data_set.name
        self.data_set = data_set
        self.problems = problems
        self.benchmark = benchmark
        self._by_id = {problem.id: problem for problem in problems}

    def samples(self) -> Sequence[Sample]:
        """Problems x techniques. A problem is the cluster; the technique is a condition."""
        return [
            Sample(
                problem.id if name == "vanilla" else f"{problem.id}{SEPARATOR}{name}",
                input=problem.question,
                target=problem.target,
                groups=self._groups(problem, name),
                cluster=problem.id,
            )
            for problem in self.problems
            for name in self.benchmark.techniques
        ]

    def _groups(self, problem: Problem, technique: str) -> dict[str, str | int | float]:
        groups: dict[str, str | int | float] = {
            "technique": technique,
            "category": self.data_set.category,
            "input_idx": problem.position,
            **problem.groups,
        }
        cost = self.benchmark.expert_costs.get(self.name)
        return groups if cost is None else {**groups, "expert_cost": cost}

    async def trial(self, system: ChatModel, sample: Sample, ctx: Context) -> Outcome:
        """Ask as the technique says; the output is the exchange with the dollars of all its calls."""
        bench = self.benchmark
        costs: list[float | None] = []
        stored = None if bench.stored is None else bench.stored.drawer(self.name, str(sample.cluster), ctx.rng)

        async def ask(prompt: str, plain: bool) -> techniques.Said:
            if plain and stored is not None:
                drawn = stored()
                costs.append(drawn.cost)
                return techniques.Said(drawn.text, drawn.stop_reason)
            # Votes are equal requests: their seeds keep them apart, in the cache too.
            reply = await system.generate(
                [{"role": "user", "content": prompt}],
                max_tokens=bench.max_tokens,
                temperature=bench.temperature,
                seed=(ctx.seed + len(costs)) % 2**31,
            )
            costs.append(reply.cost)
            return techniques.Said(reply.text, reply.stop_reason)

        technique = bench.techniques[str(sample.groups["technique"])]
        exchange = await technique(self._by_id[str(sample.cluster)], self.data_set.form, ask)
        messages = [
            message
            for prompt, said in exchange.turns
            for message in ({"role": "user", "content": prompt}, {"role": "assistant", "content": said.text})
        ]
        total = None if any(cost is None for cost in costs) else sum(cost for cost in costs if cost is not None)
        return Outcome(
            output={"messages": messages, "voted": exchange.voted, "cost": total, **exchange.notes},
            groups={"stop_reason": exchange.turns[-1][1].stop_reason},
        )

    async def score(self, sample: Sample, output: Any, ctx: Context) -> Outcome:
        """Read the answer (or the votes) and compare; mathematics in a process that can be killed."""
        texts, voted = replies(output)
        bench, form, compare = self.benchmark, self.data_set.form, self.data_set.compare
        if compare == "math" and bench.reading == "robust":
            compare = "robust_math"
        target = str(sample.target)
        job = (texts, voted, target, compare, form, bench.reading)
        if compare.endswith("math") and not _plain(job):
            try:
                answer, how, correct = await ctx.compute(scoring.judge, *job, timeout=bench.compare_seconds)
            except TrialTimeout:
                answer, how, correct = "", "comparison ran out of time", False
        else:
            answer, how, correct = scoring.judge(*job)
        # The cost goes through the output, so that answers scored again keep it.
        cost = output.get("cost") if isinstance(output, Mapping) else None
        return Outcome(
            {"correct": float(correct), "cost": cost}, groups={"answer": answer[:200] or "none", "reading": how}
        )


def replies(output: Any) -> tuple[list[str], bool]:
    """(texts, whether they are votes) of a stored output: this room's exchange, or the text of somebody's submission.

    Raises
    ------
    DataError
        Neither.
    """
    if isinstance(output, str):
        return [output], False
    if isinstance(output, Mapping) and isinstance(output.get("messages"), list):
        texts = [str(m.get("content") or "") for m in output["messages"] if m.get("role") == "assistant"]
        if texts:
            return texts, bool(output.get("voted"))
    raise DataError("An output is a text, or an object with messages in which an assistant speaks.")


def _plain(job: tuple[list[str], bool, str, str, str, str]) -> bool:
    """Whether comparing needs no algebra: one whole number, or nothing, beside a whole number."""
    texts, voted, target, _, form, rule = job
    if voted or not target.isdigit():
        return False
    answer, _ = scoring.read_answer(texts[-1], form, rule)
    return not answer or (answer.isascii() and answer.isdigit())


class CostOfPassBenchmark(Benchmark):
    """Six data sets, five techniques, eight attempts, and the dollars of every call.

    Parameters
    ----------
    data
        Folder with the data sets that assay may not pass on, by name; see `data.load`. None = addition alone.
    tasks
        Data sets separated by commas; ``available`` = addition and all that ``data`` holds.
    techniques
        Separated by commas: vanilla, self_refinement, majority_K, tale_ep, ``package.module:function``; ``all`` = the
        paper's five.
    n
        Problems a data set by the published choice; 0 = all.
    temperature, max_tokens
        Of every request. Published: 0.7 (1.0 for OpenAI's reasoning models), no limit.
    reading
        ``published`` (last closed answer block, math-verify) or ``robust`` (then boxes, stated letters and numbers; and
        assay's own equality of mathematical answers).
    context_condition
        BBQ: ``ambig`` or ``disambig`` alone.
    reuse
        Run of this benchmark whose vanilla replies stand in for the first calls of techniques; their tokens and cost
        are counted as when they were made.
    replacement
        Draw stored replies with replacement, as published: a vote may then see one reply twice.
    custom, compare, form, expert_cost
        A data set of one's own: file of rows with input, target and, if wanted, id; comparator (math, letter, exact,
        soft); what an answer looks like (number, letter, expression, text); USD of an expert a problem.
    compare_seconds
        Time that one mathematical comparison may take.
    """

    name = "cost_of_pass"
    title = "Cost-of-Pass: dollars a correct answer costs, and who gives it cheapest"
    paper = "arXiv:2504.13359"
    extras = ("cost_of_pass",)
    references = "references.json"
    metrics = (
        function(
            "cost_of_pass",
            mean_cost_of_pass,
            ("correct", "cost", "expert_cost", "index"),
            higher_is_better=False,
            error=None,
            headline=True,
            by=("technique",),
        ),
        mean("correct", name="accuracy", bounds=(0, 1), by=("technique",)),
        mean("cost", name="cost_per_attempt", higher_is_better=False, bounds=(0, None)),
        rate("reading", "unread", name="unread_rate", higher_is_better=False),
        rate("stop_reason", "length", name="cut_by_length", higher_is_better=False),
    )
    analyses = {
        **{
            name: f"{_ROOM}.analyses:{name}"
            for name in (
                "frontier", "table", "progress", "essentialness", "technique_gain", "winners", "pareto", "bootstrap",
            )
        },
        **{
            name: f"{_ROOM}.assumptions:{name}"
            for name in ("reprice", "posterior", "expert_sensitivity", "routing", "sensitivity")
        },
    }  # fmt: skip
    recipes = {
        "reproduce": f"{_ROOM}.reproduce:reproduce",
        "export": f"{_ROOM}.recipes:export",
        "simulate": f"{_ROOM}.recipes:simulate",
    }

    def __init__(
        self,
        data: str | None = None,
        *,
        tasks: str = "available",
        techniques: str = "vanilla",
        n: int = 128,
        temperature: float | None = 0.7,
        max_tokens: int | None = None,
        reading: Literal["published", "robust"] = "published",
        context_condition: str | None = None,
        reuse: str | None = None,
        replacement: bool = True,
        custom: str | None = None,
        compare: Literal["math", "letter", "exact", "soft"] = "exact",
        form: Literal["number", "letter", "expression", "text"] = "text",
        expert_cost: float | None = None,
        compare_seconds: float = 30.0,
    ) -> None:
        if n < 0:
            raise UsageError(f"Option n={n} is below 0; give the number of problems, 0 for all.")
        if temperature is not None and not temperature >= 0:
            raise UsageError(f"Option temperature={temperature} is below 0; 0 takes the likeliest token.")
        if max_tokens is not None and max_tokens < 1:
            raise UsageError(f"Option max_tokens={max_tokens} leaves no room for an answer; give 1 or more, or none.")
        if not compare_seconds > 0:
            raise UsageError(f"Option compare_seconds={compare_seconds} leaves no time to compare; give more than 0.")
        if expert_cost is not None and custom is None:
            raise UsageError(
                "Option expert_cost is for problems of your own (custom=); analyses take expert_cost= for any run."
            )
        if expert_cost is not None and not 0 < expert_cost < float("inf"):
            raise UsageError(f"Option expert_cost={expert_cost} is not a price; an expert costs more than 0 USD.")
        self.folder, self.wanted, self.n = data, tasks, n
        self.temperature, self.max_tokens, self.reading = temperature, max_tokens, reading
        self.context_condition = context_condition
        self.reuse, self.replacement = reuse, replacement
        self.custom, self.compare, self.expert_cost = custom, compare, expert_cost
        self.form: Form = form
        self.compare_seconds = compare_seconds
        self.techniques = chosen_techniques(techniques)

    @cached_property
    def expert_costs(self) -> Mapping[str, float]:
        """USD of an expert a problem, by data set."""
        from assay.reasoning.cost_of_pass.experts import expert_costs

        costs = dict(expert_costs())
        if self.expert_cost is not None:
            costs["custom"] = self.expert_cost
        return costs

    @cached_property
    def _tasks(self) -> Sequence[ProblemTask]:
        from assay.reasoning.cost_of_pass.data import available, custom_data_set, data_set, load, read_problems

        if self.wanted == "available":
            names = available(self.folder)
        else:
            names = [name.strip() for name in self.wanted.split(",") if name.strip()]
        chosen = [data_set(name) for name in dict.fromkeys(names) if name != "custom"]
        if self.context_condition is not None and "bbq" not in [one.name for one in chosen]:
            raise UsageError("Option context_condition is for the data set bbq, which is not among the tasks.")
        found = []
        for one in chosen:
            condition = self.context_condition if one.name == "bbq" else None
            found.append((one, load(one.name, self.folder, n=self.n or None, context_condition=condition)))
        if self.custom is not None:
            own = custom_data_set(self.compare, self.form, self.custom)
            found.append((own, read_problems(own, Path(self.custom))))
        elif "custom" in names:
            raise UsageError("Task custom needs its file: -o custom=FILE with rows of input and target.")
        if not found:
            raise UsageError("No data set is chosen; give tasks=addition, or custom=FILE.")
        return [ProblemTask(one, problems, self) for one, problems in found]

    def tasks(self) -> Sequence[ProblemTask]:
        """One task a data set."""
        return self._tasks

    @cached_property
    def stored(self) -> StoredReplies | None:
        """Replies to reuse."""
        if self.reuse is None:
            return None
        from assay.reasoning.cost_of_pass.reuse import StoredReplies

        return StoredReplies(Path(self.reuse), replacement=self.replacement)

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """``rule`` adds two numbers; ``producer`` is right with a given skill at a given price."""
        from assay.reasoning.cost_of_pass import methods

        return {"rule": methods.rule_solver, "producer": lambda **options: methods.producer(self.tasks(), **options)}

    def read(self, path: Path) -> Iterable[tuple[str, str, int, Outcome]]:
        """Published records (a folder in their layout, or one dataset.parquet) as outcomes."""
        from assay.reasoning.cost_of_pass.formats import outcomes

        return outcomes(path, self.tasks())

    def data(self) -> Mapping[str, Any]:
        """Which data sets are in use, where they came from, their hash."""
        from assay.reasoning.cost_of_pass.data import fingerprint, provenance

        tasks = self.tasks()
        return {
            **provenance([task.data_set for task in tasks], self.folder),
            "fingerprint": {task.name: fingerprint(task.problems) for task in tasks},
        }


def chosen_techniques(text: str) -> dict[str, techniques.Technique]:
    """Techniques of an option, by name and in order."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["all"]:
        names = list(techniques.TECHNIQUES)
    if not names:
        raise UsageError("Option techniques is empty; vanilla is the plain prompt.")
    return {techniques.short_name(name): techniques.technique(name) for name in names}
