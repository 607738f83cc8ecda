"""assay: one workbench for measuring anything that learns.

``run`` carries out a benchmark on a system, ``resume`` goes on with it, ``rescore`` judges its outputs again,
``compare`` tests two runs against each other, ``analyze`` makes tables of one or many runs, ``make`` makes data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from assay.core.benchmark import Benchmark
    from assay.core.metrics import Comparison
    from assay.core.results import Run
    from assay.core.table import Table

__all__ = ["analyze", "compare", "list_benchmarks", "load_benchmark", "make", "open_run", "rescore", "resume", "run"]

_LOADING = "assay.systems.loading"


def run(
    benchmark: str | Benchmark,
    system: Any,
    *,
    options: Mapping[str, Any] | None = None,
    samples: int | float | str | Iterable[str] | None = None,
    tasks: Iterable[str] = (),
    attempts: int | None = None,
    seed: int = 0,
    into: Path | str | Run | None = None,
    executor: Any = "local",
    budget: float | str | None = None,
    tags: Mapping[str, Any] | None = None,
    **engine: Any,
) -> Run:
    """Run a benchmark on a system.

    Parameters
    ----------
    benchmark
        Its name, or an object.
    system
        A name (``"openai:gpt-4o"``, ``"local:smollm2"``, ``"method:random"``, ``"python:package.module:attribute"``),
        or any object that satisfies a task's protocol.
    options
        Options of the benchmark.
    samples
        How many (``100``, ``0.1``, ``"10-20"``) or which ids (globs allowed); None = all.
    tasks
        Names of tasks (globs allowed); () = all that the system satisfies.
    attempts
        Attempts a sample; None = what each task says.
    seed
        All seeds of the run follow from it.
    into
        Folder of the run; an existing run gets the samples added.
    executor
        ``"local"``, ``"ray"`` (with ``address``, its cluster), or an executor object.
    budget
        US dollars; never passed.
    tags
        Facts to keep with the run (family, stage, ...); analyses see them.
    **engine
        ``address``, ``connections``, ``workers``, ``max_errors``, ``cache``, ``tries``, ``progress`` of
        `assay.core.engine.Engine`.

    Returns
    -------
    Run
        Records, rows and scores, read from the run's folder.
    """
    from assay.core import run as core

    settings = core.Engine(executor=executor, budget=budget, **engine)
    return core.run(
        benchmark,
        system,
        loading=_LOADING,
        options=options,
        samples=samples,
        tasks=tasks,
        attempts=attempts,
        seed=seed,
        into=into,
        tags=tags,
        engine=settings,
    )


def resume(
    run: Run | Path | str,
    *,
    retry_errors: bool = False,
    benchmark: Benchmark | None = None,
    system: Any = None,
    **engine: Any,
) -> Run:
    """Go on with a run where it stopped; finished trials are not repeated, errors are with ``retry_errors``."""
    from assay.core import run as core

    return core.resume(
        open_run(run), loading=_LOADING, benchmark=benchmark, system=system, retry_errors=retry_errors,
        engine=core.Engine(**engine),
    )  # fmt: skip


def rescore(
    run: Run | Path | str, *, options: Mapping[str, Any] | None = None, into: Path | str | None = None, **engine: Any
) -> Run:
    """Score the outputs of a run again, with other options (another judge, the truth), as a new run with a parent."""
    from assay.core import run as core
    from assay.core.rescore import rescore as rescore_run

    return rescore_run(open_run(run), loading=_LOADING, options=options, into=into, engine=core.Engine(**engine))


def compare(
    runs: Sequence[Run | Path | str], *, metrics: Sequence[str] = (), by: str | None = None
) -> list[Comparison]:
    """Every pair of runs of one benchmark, paired by what they share: difference, interval, p, Holm's p."""
    from assay.core.compare import compare_runs

    return compare_runs([open_run(r) for r in runs], metrics=metrics, by=by)


def analyze(name: str, runs: Iterable[Run | Path | str], /, **options: Any) -> list[Table]:
    """Apply an analysis, named ``benchmark.analysis``, to runs."""
    from assay.core.analyze import analyze as analyze_runs

    return analyze_runs(name, [open_run(r) for r in runs], **options)


def make(recipe: str, out: Path | str, /, **options: Any) -> Path:
    """Make data, checkpoints or a study: ``recipe`` is ``"benchmark.recipe"``, ``out`` the folder it writes."""
    from assay.core.map import make as make_folder

    return make_folder(recipe, out, **options)


def open_run(run: Run | Path | str) -> Run:
    """A run from its folder."""
    from assay.core.results import Run

    return run if isinstance(run, Run) else Run(run)


def load_benchmark(name: str, **options: Any) -> Benchmark:
    """A benchmark by name, its options checked."""
    from assay.core.registry import load_benchmark as load

    return load(name, **options)


def list_benchmarks() -> list[str]:
    """Names of all installed benchmarks; nothing is imported."""
    from assay.core.registry import benchmark_entries

    return list(benchmark_entries())
