"""Sample, Outcome, Trial, Task, Metric, Benchmark: all that a room implements and all that the engine knows of it."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

if TYPE_CHECKING:
    import polars as pl

    from assay.core.context import Context
    from assay.core.table import Table

Group = str | int | float
Resample = Literal["samples", "attempts", "both"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One thing a system is shown.

    Parameters
    ----------
    id
        Unique in its task and stable across releases: it comes from the source, never from order.
    input
        Small: a text, a path, a seed, a specification; never a loaded data set.
    target
        The truth, JSON-able; None = unknown or hidden. A task with its own `score` then ends ``unscored``.
    groups
        Strata and denominators; they stand on error records too. (Not scikit-learn's ``groups``, which are clusters.)
    cluster
        What is independent: the review, query, protein or person this sample belongs to; None = the id.
    """

    id: str
    input: Any = None
    target: Any = None
    groups: Mapping[str, Group] = field(default_factory=dict)
    cluster: str | None = None


@dataclass(slots=True)
class Outcome:
    """What a trial returned.

    Parameters
    ----------
    scores
        Numbers by name; None = does not apply; NaN is refused.
    output
        JSON-able, or names of files written under ``ctx.artifacts``.
    groups
        What is known only afterwards: stop_reason, respondent.
    rows
        The finer table below the record: epochs, clients, steps, poses.
    """

    scores: Mapping[str, float | None] = field(default_factory=dict)
    output: Any = None
    groups: Mapping[str, Group] = field(default_factory=dict)
    rows: Iterable[Mapping[str, Any]] | pl.DataFrame = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """One system on one sample, one attempt.

    ``index`` is the sample's place in its task, ``seed`` is derived from run seed, task, sample id and attempt.
    """

    task: str
    sample: Sample
    index: int
    attempt: int
    seed: int


def trial_seed(run_seed: int, task: str, sample_id: str, attempt: int) -> int:
    """Seed of a trial in [0, 2**63), a function of its key alone: order, machine and resuming do not change it."""
    text = f"{run_seed}\x1f{task}\x1f{sample_id}\x1f{attempt}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True, slots=True)
class Needs:
    """Resources of one trial: cores, GPUs; memory in GB and seconds, limits when given; alone on the machine or not."""

    cpus: float = 1
    gpus: float = 0
    memory_gb: float | None = None
    seconds: float | None = None
    exclusive: bool = False


class Task(ABC):
    """Samples of one kind, the protocol a system must satisfy to take it, and how one sample is tried and scored.

    A subclass sets `name` and `system` and defines `samples` and `trial` (or `trials` with `batch_key`). Everything
    else is optional, and a plain room never sees it. ``modalities`` says what samples are made of (text, image, audio):
    a system with ``refuses(task) -> str | None`` is left out of tasks that it cannot take, with the reason it gives.
    """

    name: str
    system: type = object
    attempts: int = 1
    resample: Resample = "samples"
    needs: Needs = Needs()
    modalities: tuple[str, ...] = ("text",)

    @abstractmethod
    def samples(self) -> Sequence[Sample]:
        """All samples: cheap to build, O(1) to index, the same each time."""

    def trial(self, system: Any, sample: Sample, ctx: Context) -> Outcome | Awaitable[Outcome]:
        """Try one sample. ``def`` computes (worker process); ``async def`` waits (event loop)."""
        raise TypeError(f"task {self.name!r} defines neither trial nor trials")

    def score(self, sample: Sample, output: Any, ctx: Context) -> Outcome | Awaitable[Outcome]:
        """Score a stored output, apart from the trial: re-judging, submissions, hidden truth, human answers."""
        raise TypeError(f"task {self.name!r} has no score of its own")

    def setup(self, system: Any, ctx: Context) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]:
        """Live state, entered once a process, found in ``ctx.state``, closed for certain."""
        raise TypeError(f"task {self.name!r} has no setup")

    def batch_key(self, trial: Trial) -> Hashable:
        """Trials with equal keys are computed, written and resumed together."""
        raise TypeError(f"task {self.name!r} has no batches")

    def trials(
        self, system: Any, batch: Sequence[Trial], ctx: Context
    ) -> Iterable[Outcome] | Awaitable[Iterable[Outcome]]:
        """Try a whole batch: one outcome a trial, in order. Instead of `trial`."""
        raise TypeError(f"task {self.name!r} has no batches")


@dataclass(frozen=True, slots=True)
class Metric:
    """A function of records, with what the engine needs to give it an interval.

    Use the constructors of `assay.core.metrics` (mean, ratio, macro, ...) where they fit: they have a fast path.

    Parameters
    ----------
    name
        Carries the convention: micro or macro, which DTW, which C index.
    value
        The statistic of a frame of records (or rows); NaN where it is undefined.
    reads
        Columns that must be present.
    over
        Whether ``value`` is given records or rows (with the record's key columns).
    by
        Groups to report beside the overall value.
    where
        Which records count, as ``{column: value or list of values}`` or a polars expression.
    error
        What the scores in ``reads`` count as on an errored trial (rates: 0); None = errored trials are left out, which
        every table says.
    resample
        Overrides the task's rule of what is random.
    headline
        The one number of the benchmark.
    bounds
        Range that values of the scores in ``reads`` must lie in; `check_benchmark` holds it.
    """

    name: str
    value: Callable[[pl.DataFrame], float]
    reads: tuple[str, ...] = ()
    over: Literal["records", "rows"] = "records"
    by: tuple[str, ...] = ()
    where: Mapping[str, Any] | pl.Expr | None = None
    error: float | None = 0.0
    resample: Resample | None = None
    higher_is_better: bool = True
    headline: bool = False
    bounds: tuple[float | None, float | None] = (None, None)
    terms: Any = None


Analysis = Callable[..., "Table | list[Table]"]
"""``f(runs: Runs, **options) -> Table | list[Table]``."""


class Benchmark(ABC):
    """A named set of tasks with metrics, methods, analyses, recipes and published references.

    Options are the keyword arguments of ``__init__``; the engine checks names and types before any work. Class
    attributes must be cheap to import: no torch, no polars, no data at module level.

    Attributes
    ----------
    name, title, paper
        Identifier, one line, reference.
    version
        Raised when scores are no longer comparable.
    extras
        Extra of the package (``pip install 'assay[...]'``) that the room needs; () = none.
    references
        Data file with published numbers and their source, relative to the module; None = none published.
    metrics
        What the run's tables print.
    analyses
        Functions of runs by name: ``"module:function"`` or the function.
    recipes
        Makers by name: ``"module:function"``.
    options
        What it was built with: the keyword arguments of ``__init__``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    version: ClassVar[str] = "1"
    extras: ClassVar[Sequence[str]] = ()
    references: ClassVar[str | None] = None
    metrics: Sequence[Metric] = ()
    analyses: Mapping[str, Analysis | str] = {}
    recipes: Mapping[str, str] = {}
    options: Mapping[str, Any] = {}

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        benchmark = super().__new__(cls)
        # Noted here so that the manifest of a run on an object tells them too; wrong ones are __init__'s to refuse.
        with contextlib.suppress(TypeError):
            given = inspect.signature(cls.__init__).bind_partial(benchmark, *args, **kwargs).arguments
            benchmark.options = dict(list(given.items())[1:])
        return benchmark

    @abstractmethod
    def tasks(self) -> Sequence[Task]:
        """The tasks, built from the options."""

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """Systems that the benchmark brings along, by name: factories whose keyword arguments are options."""
        return {}

    def read(self, path: Path) -> Iterable[tuple[str, str, int, Outcome]]:
        """Published predictions, results or annotations as (task, sample id, attempt, outcome)."""
        from assay.core.errors import UsageError

        raise UsageError(f"Benchmark {self.name!r} reads no published prediction files; give a run folder instead.")

    def data(self) -> Mapping[str, Any]:
        """Provenance of the data in use: ``kind`` (real, stand-in, generated, published sample), ``source``,
        ``licence``, ``fingerprint``."""
        return {"kind": "generated", "source": "made by the benchmark itself", "licence": "Apache-2.0"}
