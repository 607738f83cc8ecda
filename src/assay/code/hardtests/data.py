"""Where problems, labelled programs and suites come from."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from assay.code.hardtests.kit import HACK, RANGE, STRATIFIED, Generator, Kit
from assay.code.hardtests.problem import Case, Labelled, Problem, Solution
from assay.code.hardtests.suite import TestSuite
from assay.core.datasets.readers import parse_json, read_json, read_text, require, shown
from assay.core.errors import DataError, UsageError, unknown_name

SHIPPED = ("own", "mini")
MINI = ("even_split", "double_or_triple", "adjacent_pairs", "best_block")
"""The four problems of the mini bench, whose 20 programs have a known truth and known verdicts of their examples."""
_WRAPPER = """

import json as _json
import sys as _sys


def _plain(value):
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return [_plain(item) for item in value]


if __name__ == "__main__":
    print(_json.dumps(_plain({name}(*_json.loads(_sys.stdin.read())))))
"""


def load_problems(data: str = "own") -> list[Problem]:
    """Problems by name or path.

    Parameters
    ----------
    data
        ``own`` (14 problems, programs labelled and kits written by hand), ``mini`` (4 of them); ``quixbugs:PATH``
        (pairs of programs, turned to standard input: a checkout of QuixBugs, or a JSON file of rows ``name``,
        ``tests``, ``correct_program``, ``buggy_program``); a file or folder in the published layout
        (parquet, JSON lines, JSON); ``hf:sigcp/hardtests_problems``; several joined by ``+``.

    Raises
    ------
    UsageError
        Neither a name nor a path.
    """
    if "+" in data and not Path(data).exists():
        return [problem for part in data.split("+") for problem in load_problems(part)]
    if data == "own":
        return list(own_problems())
    if data == "mini":
        return [problem for problem in own_problems() if problem.pid in MINI]
    if data.startswith("quixbugs:"):
        return quixbugs_problems(Path(data.removeprefix("quixbugs:")).expanduser())
    path = Path(data).expanduser()
    if data.startswith("hf:"):
        from assay.core.datasets import hub

        found = hub(data.removeprefix("hf:")).path
        if found is None:
            raise UsageError(f"{data} brought no files.")
        path = found
    elif not path.exists():
        raise unknown_name("set of problems", data, SHIPPED, hint="Give one of these, a path, or hf:ORG/NAME.")
    return read_problems(path)


@cache
def own_problems() -> tuple[Problem, ...]:
    """The shipped problems, one TOML file each."""
    folder = files("assay.code.hardtests") / "problems"
    found = [
        read_toml(entry.read_text("utf-8"), entry.name) for entry in folder.iterdir() if entry.name.endswith(".toml")
    ]
    return tuple(sorted(found, key=lambda problem: problem.pid))


def read_toml(content: str, where: str) -> Problem:
    """A problem with kit and labelled programs, written by hand; `problems/*.toml` are examples.

    Raises
    ------
    DataError
        Not TOML, or a field is missing or of a wrong type.
    """
    try:
        row = tomllib.loads(content)
        pid = row["pid"]
        programs = tuple(
            Labelled(
                f"{pid}#{p['name']}", p["code"].lstrip("\n"), p["language"], not p.get("fault"), p.get("fault", ""),
                p.get("note", ""), p.get("source", "own"),
            )
            for p in row.get("programs", [])
        )  # fmt: skip
        return Problem(
            pid,
            row["statement"].strip(),
            row.get("title", pid),
            row.get("platform", "own"),
            int(row.get("difficulty", 1)),
            float(row.get("time_limit", 5.0)),
            int(row.get("memory_mb", 2048)),
            tuple(Case(c["input"], c["output"]) for c in row.get("examples", [])),
            tuple(
                Solution(p["code"].lstrip("\n"), p["language"], p["oracle"])
                for p in row.get("programs", [])
                if "oracle" in p
            ),
            hand_kit(pid, row["kit"]) if "kit" in row else None,
            programs,
            tuple(row.get("tags", [])),
        )
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{where} is not TOML ({error}).") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise DataError(f"{where}: not a problem ({type(error).__name__}: {error}).") from None


def hand_kit(pid: str, row: Mapping[str, Any]) -> Kit:
    """A kit written by hand: ``literal`` inputs and sources ``validator``, ``judge``, ``ranged``, ``hacking``."""
    return Kit(
        pid,
        tuple(row.get("literal", ())),
        Generator.of(row.get("ranged"), RANGE, STRATIFIED),
        Generator.of(row.get("hacking"), HACK),
        row.get("validator"),
        row.get("judge"),
    )


def quixbugs_problems(path: Path) -> list[Problem]:
    """QuixBugs functions as programs that read a line of JSON, the arguments, and print the result as JSON.

    Raises
    ------
    UsageError
        There is nothing at ``path``.
    DataError
        Neither a checkout nor a file of rows; a row that lacks a field or does not parse.
    """
    kits = tomllib.loads((files("assay.code.hardtests") / "quixbugs_kits.toml").read_text("utf-8"))
    found = []
    for row in _quixbugs_rows(path):
        try:
            found.append(quixbugs_problem(row, kits.get(row["name"], {})))
        except (KeyError, TypeError, ValueError, AttributeError, SyntaxError, RecursionError, MemoryError) as error:
            name = row.get("name", "without a name") if isinstance(row, Mapping) else row
            raise DataError(f"{path}: program {str(name)[:80]}: {type(error).__name__}: {error}.") from None
    return found


def _quixbugs_rows(path: Path) -> list[Any]:
    """Rows of a file, or of the programs of a checkout whose tests are JSON."""
    if not path.exists():
        raise UsageError(f"There is nothing at {path}; give a checkout of QuixBugs or a JSON file of its programs.")
    if path.is_file():
        rows = read_json(path)
        if not isinstance(rows, list):
            raise DataError(f"{path} holds no list of programs.")
        return rows
    tests = sorted((path / "json_testcases").glob("*.json"))
    if not tests:
        raise DataError(f"{path} is no checkout of QuixBugs: it has no json_testcases/*.json.")
    rows = []
    for file in tests:
        row: dict[str, Any] = {"name": file.stem}
        for kind, folder in (("correct_program", "correct_python_programs"), ("buggy_program", "python_programs")):
            row[kind] = read_text(path / folder / f"{file.stem}.py")
        lines = [
            (number, parse_json(line, f"{file}, line {number}"))
            for number, line in enumerate(read_text(file).splitlines(), 1)
            if line.strip()
        ]
        for number, line in lines:
            if not isinstance(line, list) or len(line) != 2:
                raise DataError(f"{file}, line {number}: a test is a list of arguments and result, not {shown(line)}.")
        row["tests"] = [[given if isinstance(given, list) else [given], wanted] for _, (given, wanted) in lines]
        rows.append(row)
    return rows


def quixbugs_problem(row: Mapping[str, Any], kit: Mapping[str, Any]) -> Problem:
    """One entry: the right program is the oracle, the first three tests are the examples, all are literal inputs."""
    name = row["name"]
    right, faulty = (
        str(row[kind]).rstrip() + _WRAPPER.format(name=name) for kind in ("correct_program", "buggy_program")
    )
    cases = [Case(json.dumps(given) + "\n", json.dumps(wanted) + "\n") for given, wanted in row["tests"]]
    words = ast.get_docstring(ast.parse(row["buggy_program"].split('"""', 1)[-1].join(('"""', ""))), clean=True)
    made = hand_kit(f"quixbugs_{name}", {**kit, "literal": [case.input for case in cases]})
    return Problem(
        f"quixbugs_{name}",
        f"The input is one line of JSON, the arguments of {name}; print its result as JSON.\n\n{words or ''}".strip(),
        name,
        "quixbugs",
        1,
        1.0,
        1024,
        tuple(cases[:3]),
        (Solution(right, "python3", "editorial"),),
        made,
        (
            Labelled(f"{name}#right", right, "python3", True, source="human"),
            Labelled(f"{name}#faulty", faulty, "python3", False, "wrong", source="human"),
        ),
        ("quixbugs",),
    )


# -- published layout --------------------------------------------------------------------------------------------------


def read_problems(path: Path) -> list[Problem]:
    """Problems in the layout of sigcp/hardtests_problems, or a folder of TOML files."""
    if path.is_dir() and (entries := sorted(path.glob("*.toml"))):
        return [read_toml(read_text(entry), str(entry)) for entry in entries]
    return [problem_of(row, where) for where, row in rows_of(path)]


def rows_of(path: Path) -> Iterable[tuple[str, dict[str, Any]]]:
    """(where, row) of a JSON lines, JSON or parquet file, or of a folder of them."""
    from assay.core.datasets import read_jsonl, read_table

    if path.is_file() and path.suffix == ".jsonl":
        yield from ((f"{path}, line {line}", row) for line, row in read_jsonl(path))
    else:
        yield from ((f"{path}, row {i}", row) for i, row in enumerate(read_table(path).iter_rows(named=True), 1))


def problem_of(row: Mapping[str, Any], where: str) -> Problem:
    """A published row; time and memory limits are read from their words ("2 seconds", "256 megabytes").

    Raises
    ------
    DataError
        A field is missing or of a wrong type.
    """
    from assay.core.datasets import require

    pid = require(row, "pid", str, where)
    try:
        levels = [
            int(float(r["level"])) for r in row.get("difficulty_ratings") or [] if str(r.get("level") or "").strip()
        ]
        return Problem(
            pid,
            require(row, "question_content", str, where),
            row.get("question_title") or pid,
            row.get("platform") or "",
            levels[0] if levels else 0,
            seconds_of(row.get("time_limit")) or 5.0,
            megabytes_of(row.get("memory_limit")) or 2048,
            tuple(Case(c["input"], c["output"]) for c in row.get("public_test_cases") or []),
            tuple(Solution(s["code"], s["language"], s["source"]) for s in row.get("solutions") or []),
            tags=tuple(word for tag in row.get("tags") or [] for word in tag.get("content") or []),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(
            f"{where}: problem {pid!r} is not in the published layout ({type(error).__name__}: {error})."
        ) from None


def seconds_of(words: Any) -> float | None:
    """Seconds of "2 seconds", "1500 ms", "2.0"; None where there is no number."""
    found = re.search(r"(\d+(?:\.\d+)?)\s*(m?)", str(words or "").lower())
    if not found:
        return None
    value = float(found.group(1))
    milli = bool(re.search(r"\d\s*(ms|milli)", str(words).lower()))
    return value / 1000 if milli else value


def megabytes_of(words: Any) -> int | None:
    """MB of "256 megabytes", "1 GB", "65536 KB", "268435456 bytes"; None where there is no number."""
    found = re.search(r"(\d+(?:\.\d+)?)\s*([a-z]*)", str(words or "").lower())
    if not found:
        return None
    value, unit = float(found.group(1)), found.group(2)
    scale = {"g": 1024, "m": 1, "k": 1 / 1024, "b": 1 / 2**20}.get(unit[:1], 1)
    return max(1, round(value * scale))


def filtered(
    problems: Sequence[Problem], *, difficulty: str | None = None, platform: str | None = None
) -> list[Problem]:
    """Problems of difficulties ("2" or "1-3") and platforms (separated by commas)."""
    low, high = -(10**9), 10**9
    if difficulty is not None:
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", difficulty.strip())
        if not found:
            raise UsageError(f"Option difficulty={difficulty!r} is neither a number nor a range such as 1-3.")
        low, high = int(found.group(1)), int(found.group(2) or found.group(1))
    wanted = {name.strip() for name in platform.split(",")} if platform else None
    return [p for p in problems if low <= p.difficulty <= high and (wanted is None or p.platform in wanted)]


def with_programs(problems: Sequence[Problem], path: Path) -> list[Problem]:
    """Problems with the labelled programs of a file: rows of pid, id, code, language, correct, source."""
    from assay.core.datasets import require

    known = {problem.pid for problem in problems}
    found: dict[str, list[Labelled]] = {}
    for where, row in rows_of(path):
        pid = require(row, "pid", str, where)
        if pid not in known:
            raise DataError(f"{where}: field 'pid' is {pid!r}, which no problem has.")
        code, language = require(row, "code", str, where), require(row, "language", str, where)
        correct = require(row, "correct", bool, where)
        name = str(row.get("id") or f"{pid}#{len(found.get(pid, []))}")
        found.setdefault(pid, []).append(
            Labelled(
                name, code, language, correct, "" if correct else "wrong", source=str(row.get("source") or "human")
            )
        )
    return [replace(problem, programs=(*problem.programs, *found.get(problem.pid, ()))) for problem in problems]


def with_kits(problems: Sequence[Problem], path: Path) -> list[Problem]:
    """Problems with the kits of a file (``test_cases_kits.jsonl`` of the pipeline, or published tests)."""
    kits = {}
    for where, row in rows_of(path):
        pid = require(row, "pid", str, where) if row.get("pid") is not None else ""
        kit = Kit.from_row(row.get("test_cases_kit") or row, pid, where)
        kits[kit.pid] = kit
    return [replace(problem, kit=kits.get(problem.pid, problem.kit)) for problem in problems]


def read_suites(path: Path, problems: Mapping[str, Problem] | None = None) -> Iterable[TestSuite]:
    """Suites of a folder of ``*.json.gz``, or of a file of rows (the pipeline's or the published form)."""
    known = problems or {}
    folder = path / "suites" if (path / "suites").is_dir() else path
    if folder.is_dir() and (entries := sorted(folder.glob("*.json.gz"))):
        yield from map(TestSuite.load, entries)
        return
    for where, row in rows_of(path):
        yield TestSuite.from_row(row, where, known.get(str(row.get("pid"))))
