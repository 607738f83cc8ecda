"""Command line: parsing of arguments and nothing else. What the verbs do stands in `assay.commands`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from assay.core.errors import AssayError, UsageError, scrub

DONE, GATE_FAILED, USAGE, COULD_NOT_RUN, INTERRUPTED = 0, 1, 2, 3, 130

VERBS = {
    "list": "benchmarks that are installed, and what each needs",
    "info": "all about one benchmark: tasks, metrics, methods, options, recipes, analyses",
    "run": "run benchmarks on systems",
    "resume": "go on with a run where it stopped",
    "rescore": "score the outputs of a run again, with other options",
    "compare": "test runs of one benchmark against each other",
    "analyze": "tables and figures of one or many runs",
    "make": "make data, checkpoints or a study by a recipe",
    "report": "one self-contained HTML page, or tables in another format",
    "runs": "runs that there are",
    "serve": "runs, leaderboards and questions for people in the browser",
    "gate": "fail (exit code 1) when a run is below a threshold",
    "check": "test whether a benchmark keeps the rules that assay relies on",
    "submit": "send predictions to a leaderboard and wait for the score",
    "audit": "search published files for hidden target values",
    "doctor": "what is installed here, and what each benchmark lacks",
}

_EXAMPLES = """examples:
  assay run asciieval -s local:smollm2 -s method:random --limit 100
  assay compare latest:asciieval 'asciieval--local*'
  assay gate latest --min accuracy=0.7

exit codes: 0 done, 1 gate failed, 2 usage, 3 could not run, 130 interrupted
every option of run can be set as a variable: --max-errors is ASSAY_MAX_ERRORS"""


class _Parser(argparse.ArgumentParser):
    """Errors in one sentence, with the nearest right option."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message.rstrip('.')}; `{self.prog} --help` shows what there is.")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = _Parser(
        prog="assay",
        description="Measure anything that learns, and know whether to believe it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="store_true", help="print the version and end")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", title="verbs", parser_class=_Parser)
    sub = {
        verb: verbs.add_parser(verb, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
        for verb, text in VERBS.items()
    }
    _run_arguments(sub["run"])
    _json(sub["list"])
    info = sub["info"]
    info.add_argument("benchmark")
    info.add_argument("--samples", action="store_true", help="list the ids of the samples")
    _options(info)
    _json(info)
    for verb in ("resume", "rescore"):
        one = sub[verb]
        one.add_argument("run", metavar="RUN", help="folder, beginning of an id, latest or latest:BENCHMARK")
        _engine_arguments(one)
    sub["resume"].add_argument("--retry-errors", action="store_true", help="try trials again that ended in an error")
    _options(sub["rescore"])
    sub["rescore"].add_argument("--into", metavar="DIR", help="folder of the new run")
    compare = sub["compare"]
    compare.add_argument("runs", nargs="+", metavar="RUN")
    compare.add_argument(
        "--metric", action="append", default=[], metavar="NAME", help="metrics to compare (default: headline)"
    )
    compare.add_argument(
        "--by", metavar="GROUP", help="compare the values of a group inside each run (task, technique ...)"
    )
    _json(compare)
    analyze = sub["analyze"]
    analyze.add_argument("analysis", metavar="BENCHMARK.ANALYSIS")
    analyze.add_argument("runs", nargs="+", metavar="RUN")
    analyze.add_argument("--out", metavar="DIR", help="write tables (csv) and figures (svg, png) there")
    _options(analyze)
    _json(analyze)
    make = sub["make"]
    make.add_argument("benchmark")
    make.add_argument("recipe")
    make.add_argument("--out", metavar="DIR", help="folder to write (default: data/BENCHMARK/RECIPE)")
    _options(make)
    report = sub["report"]
    report.add_argument("runs", nargs="*", metavar="RUN", help="default: latest")
    report.add_argument(
        "--out", metavar="FILE", help="file to write; its ending names the format (default: report.html)"
    )
    report.add_argument("--as", dest="form", metavar="FORMAT", help="html, md, csv, json or latex")
    report.add_argument("--analysis", action="append", default=[], metavar="NAME", help="add this analysis to the page")
    runs = sub["runs"]
    runs.add_argument("runs", nargs="*", metavar="RUN", help="folder, glob or beginning of an id (default: all)")
    _json(runs)
    gate = sub["gate"]
    gate.add_argument("run", metavar="RUN")
    gate.add_argument("--min", action="append", default=[], metavar="METRIC=VALUE", help="fail below this value")
    gate.add_argument("--max", action="append", default=[], metavar="METRIC=VALUE", help="fail above this value")
    gate.add_argument("--interval", action="store_true", help="the interval's near end must pass, not just the value")
    _json(gate)
    check = sub["check"]
    check.add_argument("benchmark")
    _options(check)
    _json(check)
    _json(sub["doctor"])
    _serve_arguments(sub["serve"])
    _submit_arguments(sub["submit"])
    audit = sub["audit"]
    audit.add_argument("folder", help="files that are to be published, or are")
    audit.add_argument("--truth", required=True, metavar="PATH", help="file or folder with the hidden targets")
    audit.add_argument("--field", metavar="NAME", help="field of the truth that is the target (default: by its name)")
    audit.add_argument("--most", type=int, default=50, metavar="N", help="print so many places at most (50)")
    _json(audit)
    return top


def _submit_arguments(submit: argparse.ArgumentParser) -> None:
    submit.add_argument("path", help="predictions in the benchmark's published format, or a run folder")
    submit.add_argument("--board", required=True, metavar="URL", help="page of the board, or (ASSAY_SERVER) its name")
    submit.add_argument("--system", metavar="NAME", help="what made the predictions (default: of the run, or the file)")
    submit.add_argument("--note", metavar="TEXT", help="shown on the board")
    _options(submit)
    submit.add_argument("--check", action="store_true", help="look for faults only; send nothing")
    submit.add_argument("--no-wait", action="store_true", help="come back when it is sent")
    submit.add_argument("--timeout", type=float, default=3600.0, metavar="S", help="wait for the score so long (3600)")
    submit.add_argument("--receipt", metavar="FILE", help="keep the server's signed receipt there")
    _json(submit)


def _serve_arguments(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("--root", metavar="DIR", default="server", help="the server's own folder (default: server)")
    serve.add_argument("--runs", metavar="DIR", help="folder whose runs are shown (default: $ASSAY_RUNS or runs)")
    serve.add_argument("--database", metavar="URL", help="postgresql://USER@HOST/NAME (default: SQLite in --root)")
    serve.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on (127.0.0.1)")
    serve.add_argument("--port", type=int, default=8765, metavar="N", help="port to listen on (8765)")
    serve.add_argument("--tls-cert", metavar="FILE", help="certificate chain, PEM")
    serve.add_argument("--tls-key", metavar="FILE", help="private key, PEM")
    serve.add_argument("--public-url", metavar="URL", help="address people use, where a proxy stands in front")
    serve.add_argument("--insecure-bind", action="store_true", help="listen beyond this machine without TLS")
    serve.add_argument("--admin", metavar="NAME", help="print a one-time link for this admin; made when missing")
    serve.add_argument("--no-worker", action="store_true", help="score no submissions; a worker runs elsewhere")
    serve.add_argument("--upload-mb", type=int, default=256, metavar="N", help="largest upload of a submitter (256)")
    serve.add_argument("--access-log", action="store_true", help="log every request")


def _run_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument("benchmark", nargs="+", help="names, with commas and globs allowed")
    run.add_argument(
        "-s", "--system", action="append", default=[], metavar="NAME", help="system under test, NAME:REST; repeatable"
    )
    _options(run)
    run.add_argument(
        "--limit", metavar="N", help="samples a task: 100, 10-20, or 0.1 for a tenth; the same for every system"
    )
    run.add_argument("--samples", metavar="IDS", help="sample ids or globs, with commas")
    run.add_argument("--tasks", metavar="NAMES", help="tasks or globs, with commas")
    run.add_argument("--attempts", type=int, metavar="N", help="attempts a sample (default: the benchmark's)")
    run.add_argument("--seed", type=int, metavar="N", help="all seeds follow from it (default: 0)")
    run.add_argument("--into", metavar="DIR", help="folder of the run; an existing run gets the samples added")
    run.add_argument(
        "--tag", action="append", default=[], metavar="KEY=VALUE", help="fact to keep with the run; repeatable"
    )
    run.add_argument("--dry-run", action="store_true", help="print the plan, requests and estimated cost; send nothing")
    run.add_argument("--report", metavar="FILE", help="write an HTML report when done")
    run.add_argument("--epochs", help=argparse.SUPPRESS)
    _engine_arguments(run)


def _engine_arguments(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--budget", metavar="USD", help="never spend more than this: 5 or 5usd")
    verb.add_argument("--executor", metavar="NAME", help="local (default) or ray")
    verb.add_argument(
        "--address", metavar="HOST:PORT", help="of the Ray cluster's head, or auto (default: RAY_ADDRESS, else none)"
    )
    verb.add_argument(
        "--workers", type=int, metavar="N", help="worker processes (default: one a core; 0: this process)"
    )
    verb.add_argument("--connections", type=int, metavar="N", help="requests in flight at most (default: 32)")
    verb.add_argument("--max-errors", metavar="N", help="stop when more trials failed: 10 or 10%%")
    verb.add_argument("--no-cache", action="store_true", help="neither take nor keep replies in the request cache")
    verb.add_argument("--cache", metavar="DIR", help="folder of the caches (default: ASSAY_CACHE)")
    verb.add_argument("--profile", action="store_true", help="say where the time went")
    verb.add_argument("--quiet", action="store_true", help="print results only")
    _json(verb)


def _options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("-o", "--option", action="append", default=[], metavar="KEY=VALUE", help="option; repeatable")


def _json(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="print JSON on standard output")


def pairs(texts: Sequence[str], flag: str) -> dict[str, str]:
    """``KEY=VALUE`` texts as a dictionary."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{flag} takes KEY=VALUE, not {text!r}.")
        found[key.strip().replace("-", "_")] = value
    return found


def from_environment(arguments: argparse.Namespace) -> None:
    """Options that were not given are taken from ``ASSAY_OPTION`` variables."""
    for name, value in vars(arguments).items():
        text = os.environ.get(f"ASSAY_{name.upper()}")
        if text is None or name in ("verb", "benchmark", "runs", "cache") or value not in (None, False, []):
            continue
        if value is False:
            setattr(arguments, name, text.lower() in ("1", "true", "yes", "on"))
        elif value == []:
            setattr(arguments, name, text.split())
        elif name in ("attempts", "seed", "workers", "connections"):
            if not text.lstrip("-").isdigit():
                raise UsageError(f"ASSAY_{name.upper()} must be a whole number, not {text!r}.")
            setattr(arguments, name, int(text))
        else:
            setattr(arguments, name, text)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command ``assay``."""
    try:
        code = _main(sys.argv[1:] if argv is None else argv)
    except UsageError as error:
        print(f"assay: {scrub(str(error))}", file=sys.stderr)
        code = USAGE
    except AssayError as error:
        print(f"assay: {scrub(str(error))}", file=sys.stderr)
        code = COULD_NOT_RUN
    except KeyboardInterrupt:
        print("assay: interrupted.", file=sys.stderr)
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = DONE
    except OSError as error:
        from assay.core.files import CLOSED, FULL

        if error.filename is None and error.errno not in FULL | CLOSED:
            raise
        print(f"assay: {error.filename or 'A file'}: {error.strerror}.", file=sys.stderr)
        code = COULD_NOT_RUN
    except Exception:
        if argv is not None:
            raise
        import traceback

        # A fault of a program, shown whole; its text may hold what a request held.
        print(scrub(traceback.format_exc()), file=sys.stderr, end="")
        code = COULD_NOT_RUN
    if argv is None:
        sys.exit(code)
    return code


def _main(argv: Sequence[str]) -> int:
    arguments: Any = parser().parse_args(argv)
    if arguments.version:
        from importlib.metadata import version

        print(f"assay {version('assay')}")
        return DONE
    if arguments.verb is None:
        parser().print_help()
        return DONE
    if arguments.verb == "run" and arguments.epochs is not None:
        raise UsageError("There is no option --epochs; did you mean --attempts?")
    if arguments.verb in ("run", "resume", "rescore"):
        from_environment(arguments)
    from assay import commands

    return commands.call(arguments)


if __name__ == "__main__":
    main()
