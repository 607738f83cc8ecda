"""check_benchmark passes good benchmarks and names what is wrong with bad ones."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from assay.core.registry import benchmark_entries, load_benchmark
from assay.core.testing import CHECKS, CheckFailed, check_benchmark

ROOMS = [n for n, e in benchmark_entries().items() if e.value.startswith("assay.")]


@pytest.mark.parametrize("name", ["toy", "toy_judged", "toy_items", "toy_live"])
def test_the_toy_benchmarks_pass(name):
    results = check_benchmark(name, loading="toy_loading")
    assert {r.outcome for r in results} <= {"passed", "skipped"}
    assert len(results) == len(CHECKS)


@pytest.mark.parametrize("name", ROOMS)
def test_every_registered_room_passes(name):
    check_benchmark(name)


BAD = {
    "described": ("title = ''", "", "its title is empty"),
    "cheap import": ("", "import sqlite3, polars\n", "importing broken imports ['polars']"),
    "unique ids": ("def tasks(self): return [T(ids=['a', 'a', 'b'])]", "", "two samples with one id"),
    "deterministic": (
        "def tasks(self): return [T(ids=[f'{i}-{hash(str(i))}' for i in range(9)])]",
        "",
        "saw different samples",
    ),
    "groups": ("def tasks(self): return [T(groups={'status': 1})]", "", "'status' is a column of every record"),
    "method": ("def methods(self): return {'m': Bad}", "", "broken method"),
    "range": ("metrics = (mean('x', headline=True, bounds=(0, 0.5)),)", "", "lies above 0.5"),
    "reads": ("metrics = (mean('y', headline=True),)", "", "reads ['y'], which no record has"),
    "headline": ("metrics = (mean('x'),)", "", "no metric is marked as the headline"),
    "resume": ("def tasks(self): return [T(moody=True)]", "", "value mismatch"),
    "references": ("references = 'nothing.json'", "", "nothing.json is missing"),
    "analyses": ("analyses = {'a': 'broken:nothing'}", "", "nothing"),
}

SOURCE = """
import itertools
from typing import Protocol, runtime_checkable
from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.metrics import mean
{extra}
@runtime_checkable
class P(Protocol):
    def answer(self, x: int) -> float: ...

class Good:
    name = "good"
    def answer(self, x): return 1.0

class Bad:
    name = "bad"
    def answer(self, x): raise RuntimeError("broken method")

counter = itertools.count()

class T(Task):
    name, system = "t", P
    def __init__(self, ids=None, groups=None, moody=False):
        self.ids, self.groups, self.moody = ids or [f"s{{i}}" for i in range(8)], groups or {{}}, moody
    def samples(self): return [Sample(i, 1, 1, self.groups) for i in self.ids]
    def trial(self, system, sample, ctx):
        import os
        return Outcome({{"x": system.answer(1) * (os.getpid() + next(counter) if self.moody else 1)}})

class B(Benchmark):
    name, title = "broken", "A benchmark"
    metrics = (mean("x", headline=True),)
    def tasks(self): return [T()]
    def methods(self): return {{"m": Good}}
    {body}
"""


def install(folder, body="", extra=""):
    (folder / "broken.py").write_text(SOURCE.format(extra=extra, body=body))
    (folder / "README.md").write_text("A benchmark that is wrong in one respect. " * 8)
    info = folder / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[assay.benchmarks]\nbroken = broken:B\n")


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield lambda **k: install(folder, **k)
    sys.modules.pop("broken", None)


def test_the_template_of_the_bad_ones_is_good(package):
    package()
    check_benchmark("broken", loading="toy_loading")


@pytest.mark.parametrize("fault", BAD)
def test_a_fault_is_found_and_named(fault, package):
    body, extra, sentence = BAD[fault]
    package(body=body, extra=extra)
    with pytest.raises(CheckFailed) as found:
        check_benchmark("broken", loading="toy_loading")
    assert sentence in str(found.value)


PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "their-benchmark"
version = "1.0"
[project.entry-points."assay.benchmarks"]
their_sums = "their_benchmark:Sums"
[tool.setuptools]
packages = ["their_benchmark"]
"""

MODULE = '''
"""Sums."""
from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.metrics import mean
from assay.systems.chat.model import ChatModel
from assay.systems.scripted import ScriptedChatModel


def add(messages, rng):
    return str(sum(int(w) for w in messages[-1]["content"].split("+")))


def exact():
    return ScriptedChatModel(add, name="exact")


class Addition(Task):
    name, system = "addition", ChatModel

    def samples(self):
        return [Sample(f"{a}+{b}", f"{a}+{b}", str(a + b)) for a in range(5) for b in range(5)]

    async def trial(self, system, sample, ctx):
        return Outcome(output=(await system.generate([{"role": "user", "content": sample.input}])).text)

    def score(self, sample, output, ctx):
        return Outcome({"correct": float(output.strip() == sample.target)})


class Sums(Benchmark):
    name, title = "their_sums", "Small sums"
    metrics = (mean("correct", headline=True),)

    def tasks(self):
        return [Addition()]

    def methods(self):
        return {"exact": exact}
'''


def test_a_third_party_package_is_found_run_and_checked(tmp_path):
    project, site = tmp_path / "project", tmp_path / "site"
    (project / "their_benchmark").mkdir(parents=True)
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "their_benchmark" / "__init__.py").write_text(MODULE)
    (project / "README.md").write_text("Sums.")
    (project / "their_benchmark" / "README.md").write_text("How well a chat model adds two small numbers. " * 8)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(site), str(project)], check=True, capture_output=True)
    readme = site / "their_benchmark" / "README.md"
    readme.write_text((project / "their_benchmark" / "README.md").read_text())
    environment = {**os.environ, "PYTHONPATH": str(site), "ASSAY_RUNS": str(tmp_path / "runs")}

    def assay(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "assay.cli", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    assert "their_sums" in assay("list").stdout
    run = assay("run", "their_sums", "-s", "method:exact", "--limit", "10")
    assert run.returncode == 0, run.stderr
    assert "1.000" in run.stdout
    assert assay("gate", "latest", "--min", "correct=0.9").returncode == 0
    assert assay("gate", "latest", "--max", "correct=0.9").returncode == 1
    checked = assay("check", "their_sums")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert textwrap.shorten(checked.stdout, 60).startswith("passed")


def test_an_unknown_benchmark_is_refused_with_the_nearest_name():
    with pytest.raises(Exception, match="did you mean 'asciieval'"):
        load_benchmark("asciival")
