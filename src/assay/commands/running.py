"""run, resume, rescore."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import Any

import msgspec

import assay
from assay.cli import DONE, INTERRUPTED, pairs
from assay.commands.output import out, print_json, say
from assay.commands.progress import Bar
from assay.core.errors import AssayError, UsageError, scrub, unknown_name
from assay.core.plan import Selection, fingerprint
from assay.core.prepare import prepare
from assay.core.registry import benchmark_entries
from assay.core.results import Run, find_run, find_runs, runs_folder
from assay.core.run import RunInterrupted


def run_(arguments: Any) -> int:
    """Every benchmark on every system; a ranked table at the end."""
    read_env_file()
    names = benchmarks_named(arguments.benchmark)
    if not arguments.system:
        raise UsageError("No system was given; add one with -s, like -s local:smollm2 or -s method:random.")
    options = pairs(arguments.option, "-o")
    tags = pairs(arguments.tag, "--tag")
    selection = Selection(arguments.limit, split(arguments.samples), split(arguments.tasks))
    systems = [s for name in arguments.system for s in systems_named(name, names)]
    if arguments.dry_run:
        from assay.commands.estimate import dry_run

        return dry_run(names, systems, options, selection, arguments)
    if arguments.into and len(names) * len(systems) > 1:
        raise UsageError("--into takes one benchmark on one system; leave it out for several.")
    finished: list[Run] = []
    for name in names:
        for system in systems:
            _offer_resume(name, system, options, selection, arguments)
            say(scrub(f"{name} on {system}"), quiet=arguments.quiet or arguments.json)
            try:
                finished.append(
                    assay.run(
                        name,
                        system,
                        options=options,
                        samples=selection,  # type: ignore[arg-type]
                        attempts=arguments.attempts,
                        seed=arguments.seed or 0,
                        into=arguments.into,
                        tags=tags,
                        **engine_options(arguments),
                    )
                )
            except KeyboardInterrupt as stop:
                return _interrupted(stop, arguments)
            except RunInterrupted as stop:
                raise AssayError(f"{stop} Go on with: assay resume {handle(stop.run.path)}") from stop
    for run in finished:
        _remark(run)
        for task, reason in run.info["skipped_tasks"].items():
            say(f"{run.system}: left out task {task}, which {reason}", quiet=arguments.quiet or arguments.json)
    _show(finished, arguments)
    return DONE


def resume_(arguments: Any) -> int:
    """Go on with runs."""
    read_env_file()
    finished = []
    for run in find_run(arguments.run, runs_folder()):
        known = len(run.info.get("remarks", []))
        try:
            finished.append(assay.resume(run, retry_errors=arguments.retry_errors, **engine_options(arguments)))
        except KeyboardInterrupt as stop:
            return _interrupted(stop, arguments)
        except RunInterrupted as stop:
            raise AssayError(f"{stop} Go on with: assay resume {handle(stop.run.path)}") from stop
        _remark(finished[-1], known)
    _show(finished, arguments)
    return DONE


def rescore_(arguments: Any) -> int:
    """Score outputs again."""
    read_env_file()
    options = pairs(arguments.option, "-o")
    finished = [
        assay.rescore(run, options=options, into=arguments.into, **engine_options(arguments))
        for run in find_run(arguments.run, runs_folder())
    ]
    _show(finished, arguments)
    return DONE


def engine_options(arguments: Any) -> dict[str, Any]:
    """Keywords of `assay.core.engine.Engine` that were given."""
    if arguments.cache:
        os.environ["ASSAY_CACHE"] = str(Path(arguments.cache).resolve())
    given = {
        k: getattr(arguments, k) for k in ("budget", "executor", "address", "workers", "connections", "max_errors")
    }
    found = {k: v for k, v in given.items() if v is not None}
    if arguments.no_cache:
        found["cache"] = False
    if not (arguments.quiet or arguments.json):
        found["progress"] = Bar()
    return found


def benchmarks_named(texts: list[str]) -> list[str]:
    """Names from words with commas and globs."""
    known = benchmark_entries()
    found: dict[str, None] = {}
    for pattern in (p for text in texts for p in text.split(",") if p):
        fitting = [n for n in known if fnmatch.fnmatchcase(n, pattern)]
        if not fitting:
            raise unknown_name("benchmark", pattern, known)
        found.update(dict.fromkeys(fitting))
    return list(found)


def systems_named(name: str, benchmarks: list[str]) -> list[str]:
    """``method:*`` and other globs stand for all methods that fit; any other name stands for itself."""
    prefix, _, rest = name.partition(":")
    if prefix != "method" or not any(c in rest for c in "*["):
        return [name]
    methods: dict[str, None] = {}
    for benchmark in benchmarks:
        methods.update(dict.fromkeys(assay.load_benchmark(benchmark).methods()))
    fitting = [f"method:{m}" for m in methods if fnmatch.fnmatchcase(m, rest)]
    if not fitting:
        raise unknown_name("method", rest, methods)
    return fitting


def split(text: str | None) -> tuple[str, ...]:
    """Words between commas."""
    return tuple(p.strip() for p in (text or "").split(",") if p.strip())


def read_env_file() -> None:
    """Variables from the nearest .env file, here or above; what is set already wins. Library use reads none."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        file = folder / ".env"
        if file.is_file():
            try:
                lines = file.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:  # nothing of its content: it holds keys
                raise UsageError(f"{file} cannot be read ({type(error).__name__}); it must be UTF-8 text.") from None
            for line in lines:
                name, equals, value = line.strip().removeprefix("export ").partition("=")
                if equals and name.strip().isidentifier() and not line.lstrip().startswith("#"):
                    os.environ.setdefault(name.strip(), value.strip().strip("'\""))
            return


def _offer_resume(name: str, system: str, options: dict[str, str], selection: Selection, arguments: Any) -> None:
    """The same line given twice: say that there is an unfinished run of it."""
    folder = runs_folder()
    if not folder.is_dir() or arguments.into:
        return
    typed = msgspec.to_builtins(assay.load_benchmark(name, **options).options, enc_hook=str)
    for run in find_runs(folder):
        info = run.info
        if (info["benchmark"], info["system"], run.status) != (name, system, "interrupted"):
            continue
        same = fingerprint(typed) == info["options_fingerprint"] and info["seed"] == (arguments.seed or 0)
        if same and info["selection"].get("limit") == selection.limit:
            done = f"{info['done']} of {info['trials']} trials" if "done" in info else "it was killed"
            say(f"There is an unfinished run of this ({done}); to go on with it instead: assay resume {run.id}")
            return


def _remark(run: Run, known: int = 0) -> None:
    """What a run has to say besides its scores, from the ``known``-th sentence on."""
    for sentence in run.info.get("remarks", [])[known:]:
        say(sentence)


def handle(path: Path) -> str:
    """What the command line calls a run: its id where runs lie, its path elsewhere."""
    return path.name if path.parent.resolve() == runs_folder().resolve() else str(path)


def _interrupted(stop: KeyboardInterrupt, arguments: Any) -> int:
    if stop.args:
        path = Path(stop.args[0])
        if (path / "run.json").is_file() and Run(path).status == "finished":
            say(f"\nStopped; the run was done already: {path}")
        else:
            say(f"\nStopped; what was done is kept. Go on with: assay resume {handle(path)}")
    else:
        say("\nStopped before the run began.")
    return INTERRUPTED


def _show(runs: list[Run], arguments: Any) -> None:
    """Ranked tables, comparison, tokens and seconds; where the run lies."""
    from assay.commands.reading import scores_json

    if arguments.json:
        print_json([{"run": r.id, "path": str(r.path), "status": r.status, "scores": scores_json(r)} for r in runs])
    else:
        from assay.commands.reading import show_boards

        show_boards(runs)
        if arguments.profile:
            from assay.commands.estimate import profile

            profile(runs)
        for run in runs:
            out().print(f"run: {run.path}", soft_wrap=True)
    if getattr(arguments, "report", None):
        from assay.report.html import write_report

        out().print(f"report: {write_report(runs, arguments.report)}", soft_wrap=True)


def plan_of(name: str, system: str, options: dict[str, str], selection: Selection, arguments: Any):
    """What `assay.run` would do, without doing it."""
    return prepare(
        name,
        system,
        loading="assay.systems.loading",
        options=options,
        selection=selection,
        attempts=arguments.attempts,
        seed=arguments.seed or 0,
    )
