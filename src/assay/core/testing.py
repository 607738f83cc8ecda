"""check_benchmark: the conformance suite that every benchmark passes, built-in or third-party."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from assay.core import run as core
from assay.core.benchmark import Benchmark, Task
from assay.core.errors import AssayError, UsageError
from assay.core.execute import tasks_by_name
from assay.core.plan import Selection
from assay.core.registry import benchmark_class, benchmark_entries, load_benchmark, resolve
from assay.core.results import Run
from assay.core.store import Store, check_columns

# Imported with a benchmark's module, any of these makes `assay list` slow.
HEAVY = (
    "torch",
    "transformers",
    "pandas",
    "polars",
    "sklearn",
    "scipy",
    "matplotlib",
    "aiohttp",
    "numba",
    "jax",
    "PIL",
)
MEASURED = ("started", "seconds", "cpu_seconds", "peak_memory_mb", "artifacts", "calls", "tries")
SAMPLES, ATTEMPTS = 3, 2
ENGINE: dict[str, Any] = {"workers": 1}
"""A worker of its own, and no more: so few trials take less time than another one's start."""


@dataclass(frozen=True)
class CheckResult:
    """One rule and whether it holds: passed, failed or skipped, with the reason."""

    rule: str
    outcome: str
    reason: str = ""


class CheckFailed(AssayError):
    """At least one rule does not hold; ``results`` has them all."""

    def __init__(self, results: list[CheckResult]) -> None:
        failed = [r for r in results if r.outcome == "failed"]
        super().__init__("; ".join(f"{r.rule}: {r.reason}" for r in failed))
        self.results = results


class _Skip(Exception):
    """A rule that does not apply here, and why."""


class _Subject:
    """The benchmark under check, with one short run of one of its methods, made once."""

    def __init__(self, name: str, options: Mapping[str, Any], loading: str, folder: Path) -> None:
        self.name = name
        self.options = dict(options)
        self.loading = loading
        self.folder = folder
        self.cls = benchmark_class(name)
        self._run: Run | None = None
        self.method: str | None = None

    def build(self) -> Benchmark:
        return load_benchmark(self.name, **self.options)

    def run(self) -> Run:
        """A short run of the first method that fits a task."""
        if self._run is None:
            bench = self.build()
            tried = []
            for method in bench.methods():
                try:
                    self._run = self.start(f"method:{method}", self.folder / f"run-{len(tried)}")
                except UsageError as error:
                    tried.append(str(error))
                    continue
                self.method = f"method:{method}"
                return self._run
            raise _Skip("; ".join(tried) or "the benchmark brings no method along")
        return self._run

    def start(self, system: Any, into: Path, benchmark: Benchmark | None = None, **engine: Any) -> Run:
        return core.run(
            benchmark or self.name,
            system,
            loading=self.loading,
            options=None if benchmark else self.options,
            samples=Selection(limit=str(SAMPLES)),
            attempts=ATTEMPTS,
            into=into,
            engine=core.Engine(**{**ENGINE, **engine}),
        )


def check_benchmark(
    name: str, *, loading: str = "assay.systems.loading", options: Mapping[str, Any] | None = None, strict: bool = True
) -> list[CheckResult]:
    """Check that a registered benchmark keeps every rule that assay relies on.

    Parameters
    ----------
    name
        Its name among the entry points.
    loading
        Module that makes systems from names.
    options
        Options to build it with.
    strict
        Raise CheckFailed when a rule does not hold.
    """
    results = []
    with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
        subject = _Subject(name, options or {}, loading, Path(folder))
        for check in CHECKS:
            rule = (check.__doc__ or check.__name__).strip().splitlines()[0].rstrip(".")
            try:
                check(subject)
            except _Skip as reason:
                results.append(CheckResult(rule, "skipped", str(reason)))
            except (AssertionError, AssayError, TypeError, ValueError, AttributeError, KeyError, OSError) as error:
                text = str(error).strip() or type(error).__name__
                results.append(CheckResult(rule, "failed", text))
            else:
                results.append(CheckResult(rule, "passed"))
    if strict and any(r.outcome == "failed" for r in results):
        raise CheckFailed(results)
    return results


def _require(condition: Any, sentence: str) -> None:
    if not condition:
        raise AssertionError(sentence)


# -- the rules ---------------------------------------------------------------------------------------------------------


def described(subject: _Subject) -> None:
    """Name, title and version are set."""
    _require(
        subject.cls.name == subject.name, f"its class is called {subject.cls.name!r}, its entry point {subject.name!r}"
    )
    _require(subject.cls.title.strip(), "its title is empty")
    _require(isinstance(subject.cls.version, str) and subject.cls.version, "its version is empty")


def imported_cheaply(subject: _Subject) -> None:
    """Importing its module brings in no heavy library."""
    module = benchmark_entries()[subject.name].value.partition(":")[0]
    code = (
        f"import sys, importlib; importlib.import_module({module!r}); print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    found = _fresh_python(code)
    _require(found == "[]", f"importing {module} imports {found}; import them inside functions")


def tasks_named(subject: _Subject) -> None:
    """Tasks have unique names, a protocol, a rule of resampling."""
    for task in tasks_by_name(subject.build()).values():
        _require(isinstance(task, Task), f"{task!r} is not a Task")
        _require(task.name.strip(), f"a {type(task).__name__} has no name")
        _require(isinstance(task.system, type), f"task {task.name!r}: system must be a class or protocol")
        _require(task.resample in ("samples", "attempts", "both"), f"task {task.name!r}: resample is {task.resample!r}")
        _require(
            isinstance(task.attempts, int) and task.attempts >= 1, f"task {task.name!r}: attempts is {task.attempts!r}"
        )


def ids_unique(subject: _Subject) -> None:
    """Sample ids are unique, non-empty text."""
    for task in subject.build().tasks():
        ids = [s.id for s in task.samples()]
        _require(ids, f"task {task.name!r} has no samples")
        _require(all(isinstance(i, str) and i for i in ids), f"task {task.name!r} has an id that is not text")
        _require(len(set(ids)) == len(ids), f"task {task.name!r} has two samples with one id")


def samples_small(subject: _Subject) -> None:
    """Samples are small, with JSON-able targets and plain groups."""
    for task in subject.build().tasks():
        samples = task.samples()
        for sample in (samples[i] for i in range(0, len(samples), max(1, len(samples) // 50))):
            where = f"task {task.name!r}, sample {sample.id!r}"
            msgspec.json.encode(sample.target)
            check_columns(sample.groups, where)
            for group, value in sample.groups.items():
                _require(isinstance(value, (str, int, float)), f"{where}: group {group!r} is {value!r}")
                _require(value == value, f"{where}: group {group!r} is NaN")
            _require(sample.cluster is None or isinstance(sample.cluster, str), f"{where}: cluster is no text")
            size = len(pickle.dumps(sample.input))
            _require(size <= 1_000_000, f"{where}: its input pickles to {size} bytes; give a path or a seed instead")


def samples_deterministic(subject: _Subject) -> None:
    """Samples are the same in every process."""
    code = (
        "import sys, json\n"
        "from assay.core.registry import load_benchmark\n"
        "from assay.core.testing import digest\n"
        "options = json.loads(sys.argv[1])\n"
        f"print(digest(load_benchmark({subject.name!r}, **options)))"
    )
    options = json.dumps(msgspec.to_builtins(subject.options, enc_hook=str))
    # Text hashes differently in the other process, whatever it does here.
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    _require(
        _fresh_python(code, options, hash_seed=seed) == digest(subject.build()),
        "two processes with one set of options saw different samples",
    )


def indexing_fast(subject: _Subject) -> None:
    """Indexing a sample does not depend on where it stands."""
    for task in subject.build().tasks():
        samples = task.samples()
        places = [i * (len(samples) - 1) // 50 for i in range(51)]
        begun = time.perf_counter()
        for place in places:
            samples[place]
        each = (time.perf_counter() - begun) / len(places)
        _require(each < 0.005, f"task {task.name!r}: one sample takes {each * 1e3:.1f} ms to index")
        _require(
            samples[len(samples) - 1].id == samples[-1].id, f"task {task.name!r}: the last sample is not samples[-1]"
        )


def a_method_finishes(subject: _Subject) -> None:
    """A method that it brings along finishes without an error."""
    run = subject.run()
    bad = run.records.filter(run.records["status"].is_in(["error", "timeout"]))
    _require(bad.is_empty(), f"{subject.method}: {bad['error'][0] if not bad.is_empty() else ''}")
    _require(run.status == "finished", f"{subject.method} ended {run.status}")


def scores_in_range(subject: _Subject) -> None:
    """Scores lie inside the bounds that the metrics state, and every metric has what it reads."""
    run = subject.run()
    for metric in subject.build().metrics:
        if metric.over == "rows":
            continue
        lacking = [c for c in metric.reads if c not in run.records.columns]
        _require(not lacking, f"metric {metric.name!r} reads {lacking}, which no record has")
        low, high = metric.bounds
        for column in metric.reads:
            if column not in run.info["scores"]:
                continue
            values = run.records[column].drop_nulls()
            _require(low is None or (values >= low).all(), f"a score {column!r} lies below {low}")
            _require(high is None or (values <= high).all(), f"a score {column!r} lies above {high}")


def metrics_named(subject: _Subject) -> None:
    """Metrics have unique names, one or more of them the headline."""
    names = [m.name for m in subject.build().metrics]
    _require(names, "it has no metrics")
    _require(len(set(names)) == len(names), "two metrics have one name")
    _require(any(m.headline for m in subject.build().metrics), "no metric is marked as the headline")


def resumes_exactly(subject: _Subject) -> None:
    """A run that was broken off and resumed has the records of an unbroken one."""
    from polars.testing import assert_frame_equal

    whole = subject.run()
    path = subject.folder / "broken"
    shutil.copytree(whole.path, path)
    whole.records[::2].write_parquet(path / "records.parquet")
    Store(path).write_info({**whole.info, "status": "interrupted"})
    resumed = core.resume(Run(path), loading=subject.loading, engine=core.Engine(**ENGINE))
    timed = [c for c in whole.info["scores"] if "seconds" in c or "memory" in c]
    columns = [c for c in whole.records.columns if c not in (*MEASURED, *timed)]
    _require(resumed.status == "finished", f"the resumed run ended {resumed.status}")
    assert_frame_equal(resumed.records.select(columns), whole.records.select(columns))


def denominators_survive(subject: _Subject) -> None:
    """When every trial fails, every planned trial is a record with its groups, and counts as the metrics say."""
    subject.run()
    bench = subject.build()
    live = resolve(f"{subject.loading}:load")(subject.method, benchmark=bench)
    run = subject.start(_Broken(live), subject.folder / "failing", benchmark=bench, workers=0, tries=1)
    errors = run.records.filter(run.records["status"].is_in(["error", "timeout"]))
    _require(
        errors.height == run.info["trials"], f"{run.info['trials'] - errors.height} failing trials left no error record"
    )
    planned = run.samples
    for group in run.info["groups"]:
        nulls = planned[group].null_count()
        _require(
            nulls == planned.height or errors[group].null_count() <= nulls * errors.height, f"group {group!r} was lost"
        )
    for score in run.scores(metrics=[m for m in bench.metrics if m.over == "records"]):
        _require(score.n_error > 0 or score.n == 0, f"metric {score.metric!r} does not say that trials failed")


def references_sourced(subject: _Subject) -> None:
    """Published numbers are a data file that names its source."""
    if subject.cls.references is None:
        raise _Skip("it publishes no reference numbers")
    path = Path(inspect.getfile(subject.cls)).parent / subject.cls.references
    _require(path.is_file(), f"{subject.cls.references} is missing")
    found = json.loads(path.read_text(encoding="utf-8"))
    _require(isinstance(found, dict) and found.get("source"), f"{subject.cls.references} names no source")


def readme_present(subject: _Subject) -> None:
    """A README stands beside it."""
    path = Path(inspect.getfile(subject.cls)).parent / "README.md"
    _require(path.is_file() and len(path.read_text(encoding="utf-8")) > 200, f"{path.name} is missing or nearly empty")


def bad_options_refused(subject: _Subject) -> None:
    """An unknown option is refused with one sentence."""
    try:
        load_benchmark(subject.name, surely_not_an_option=1)
    except UsageError as error:
        text = str(error)
        _require("surely_not_an_option" in text and "\n" not in text, f"the refusal reads {text!r}")
    else:
        raise AssertionError("an unknown option was accepted")


def references_resolve(subject: _Subject) -> None:
    """Analyses and recipes can be imported and take what they should."""
    for name, reference in {**subject.cls.analyses, **subject.cls.recipes}.items():
        fn = resolve(reference)
        _require(callable(fn) and (fn.__doc__ or "").strip(), f"{name!r} is no documented function")


CHECKS: tuple[Callable[[_Subject], None], ...] = (
    described, imported_cheaply, tasks_named, ids_unique, samples_small, samples_deterministic, indexing_fast,
    a_method_finishes, scores_in_range, metrics_named, resumes_exactly, denominators_survive, references_sourced,
    readme_present, bad_options_refused, references_resolve,
)  # fmt: skip


class _Broken:
    """Looks like the system it is made from; everything it is asked to do fails."""

    def __init__(self, system: Any) -> None:
        self._like = system
        self.name = "broken"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("is_submission", "bind", "describe", "artifacts", "refuses"):
            raise AttributeError(name)
        if not callable(getattr(self._like, name)):
            return getattr(self._like, name)

        def fail(*arguments: Any, **keywords: Any) -> Any:
            raise RuntimeError("broken on purpose")

        return fail


def digest(benchmark: Benchmark) -> str:
    """Hash of everything in all samples."""
    import hashlib

    encoder = msgspec.json.Encoder(order="deterministic", enc_hook=str)
    state = hashlib.blake2b(digest_size=16)
    for task in benchmark.tasks():
        for sample in task.samples():
            state.update(
                encoder.encode([task.name, sample.id, sample.input, sample.target, dict(sample.groups), sample.cluster])
            )
    return state.hexdigest()


def _fresh_python(code: str, *arguments: str, hash_seed: str = "0") -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=300,
    )
    _require(
        done.returncode == 0, f"a fresh process failed: {done.stderr.strip().splitlines()[-1] if done.stderr else '?'}"
    )
    return done.stdout.strip().splitlines()[-1]
