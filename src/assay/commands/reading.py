"""compare, analyze, report, runs, gate: reading runs that there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import assay
from assay.cli import DONE, GATE_FAILED, pairs
from assay.commands.output import out, plain, print_json, say, show_rows
from assay.core.errors import UsageError, unknown_name
from assay.core.results import Run, damaged_runs, find_run, find_runs, runs_folder


def selected(texts: Sequence[str]) -> list[Run]:
    """Runs meant by the words of a command line, each once."""
    found: dict[Path, Run] = {}
    for text in texts:
        for run in find_run(text, runs_folder()):
            found.setdefault(run.path.resolve(), run)
    return list(found.values())


def scores_json(run: Run) -> list[dict[str, Any]]:
    """Scores of a run, and by task where it has several."""
    scores = run.scores()
    if len(run.info["tasks"]) > 1:
        scores = [*scores, *run.scores(by="task")]
    return plain(scores)


def show_boards(runs: Sequence[Run]) -> None:
    """A ranked table a benchmark, the comparison, and what it cost."""
    from assay.report.summary import boards
    from assay.report.terminal import print_board

    for board in boards(runs):
        print_board(board, out())


def compare_(arguments: Any) -> int:
    """Paired comparisons."""
    from assay.report.terminal import print_comparisons

    runs = selected(arguments.runs)
    found = assay.compare(runs, metrics=arguments.metric, by=arguments.by)
    if arguments.json:
        print_json(found)
    else:
        print_comparisons(found, out())
    return DONE


def analyze_(arguments: Any) -> int:
    """Tables of one or many runs."""
    from assay.report.terminal import print_table

    tables = assay.analyze(arguments.analysis, selected(arguments.runs), **pairs(arguments.option, "-o"))
    if arguments.json:
        print_json([{"name": t.name, "title": t.title, "rows": t.rows(), "notes": list(t.notes)} for t in tables])
    else:
        for table in tables:
            print_table(table, out())
    if arguments.out:
        from assay.report.export import write_tables

        for path in write_tables(tables, Path(arguments.out)):
            out().print(str(path), soft_wrap=True)
    return DONE


FORMATS = {".html": "html", ".md": "md", ".csv": "csv", ".json": "json", ".tex": "latex"}


def report_(arguments: Any) -> int:
    """One page, or tables in another format."""
    from assay.report.export import board_text
    from assay.report.html import write_report

    runs = selected(arguments.runs or ["latest"])
    ending = Path(arguments.out or "report.html").suffix
    form = arguments.form or FORMATS.get(ending, ending.removeprefix("."))
    if form not in FORMATS.values():
        raise unknown_name("report format", form, FORMATS.values())
    tables = [t for name in arguments.analysis for t in assay.analyze(name, runs)]
    if form == "html":
        path = write_report(runs, Path(arguments.out or "report.html"), tables=tables)
        out().print(f"report: {path.resolve()}", soft_wrap=True)
        return DONE
    text = board_text(runs, form, tables=tables)
    if arguments.out:
        Path(arguments.out).write_text(text, encoding="utf-8")
        out().print(f"report: {Path(arguments.out).resolve()}", soft_wrap=True)
    else:
        print(text)
    return DONE


def runs_(arguments: Any) -> int:
    """Runs that there are, newest first."""
    runs = selected(arguments.runs) if arguments.runs else find_runs(runs_folder())
    for sentence in [] if arguments.runs else damaged_runs(runs_folder()):
        say(sentence)
    if arguments.json:
        print_json([{"path": str(r.path), **r.info} for r in runs])
        return DONE
    if not runs:
        out().print(f"There is no run in {runs_folder()} yet; `assay run` makes one.", markup=False)
        return DONE
    rows = []
    for run in runs:
        info = run.info
        statuses = info.get("statuses", {})
        errors = statuses.get("error", 0) + statuses.get("timeout", 0)
        done = f"{info['done']}/{info['trials']}" if "done" in info else f"?/{info['trials']}"
        rows.append(
            {"run": run.id, "status": run.status, "trials": done, "errors": errors, "USD": info.get("paid", 0.0)}
        )
    show_rows(f"Runs in {runs_folder()}", rows)
    return DONE


def gate_(arguments: Any) -> int:
    """Compare scores with thresholds; the exit code tells."""
    bounds = [*((m, v, "min") for m, v in _limits(arguments.min, "--min"))]
    bounds += [(m, v, "max") for m, v in _limits(arguments.max, "--max")]
    if not bounds:
        raise UsageError("gate needs a threshold: --min METRIC=VALUE or --max METRIC=VALUE.")
    verdicts = []
    for run in selected([arguments.run]):
        scores = {s.metric: s for s in run.scores() if not s.by}
        for metric, limit, side in bounds:
            name = _metric_named(metric, scores)
            score = scores[name]
            value = score.value if not arguments.interval else (score.low if side == "min" else score.high)
            passed = not math.isnan(value) and (value >= limit if side == "min" else value <= limit)
            verdicts.append(
                {"run": run.id, "metric": name, "value": score.value, "low": score.low, "high": score.high,
                 "n": score.n, "errors": score.n_error, side: limit, "passed": passed}
            )  # fmt: skip
    if arguments.json:
        print_json(verdicts)
    else:
        for v in verdicts:
            side = "min" if "min" in v else "max"
            word = "passed" if v["passed"] else "FAILED"
            out().print(
                f"{word}: {v['metric']} = {v['value']:.4g} [{v['low']:.4g}, {v['high']:.4g}], "
                f"{side} {v[side]:g} ({v['run']})",
                soft_wrap=True, markup=False,
            )  # fmt: skip
    return DONE if all(v["passed"] for v in verdicts) else GATE_FAILED


def _limits(texts: Sequence[str], flag: str) -> list[tuple[str, float]]:
    found = []
    for text in texts:
        name, equals, value = text.rpartition("=")
        try:
            if not equals:
                raise ValueError
            found.append((name, float(value)))
        except ValueError:
            raise UsageError(f"{flag} takes METRIC=VALUE with a number, not {text!r}.") from None
    return found


def _metric_named(name: str, scores: dict[str, Any]) -> str:
    """The metric meant: its name, or ``accuracy`` for the one headline metric that is one."""
    if name in scores:
        return name
    headline = [n for n, s in scores.items() if getattr(s, "headline", False)]
    if name in ("accuracy", "headline") and len(headline) == 1:
        return headline[0]
    raise unknown_name("metric", name, scores)
