"""The documents are true: examples run, links lead somewhere, every verb and benchmark is described."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

import assay
from assay.cli import VERBS, parser
from assay.core.registry import benchmark_entries
from assay.core.testing import check_benchmark

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(p for p in ROOT.rglob("*.md") if not {".venv", "node_modules", ".git"} & set(p.parts))


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_benchmark_in_the_contributing_guide_runs_and_keeps_every_rule(tmp_path, monkeypatch):
    code = blocks(ROOT / "CONTRIBUTING.md", "python")[0]
    assert len(code.splitlines()) <= 70
    (tmp_path / "roman.py").write_text(code)
    (tmp_path / "README.md").write_text("How well a chat model reads Roman numerals. " * 8)
    info = tmp_path / "roman-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: roman\nVersion: 1\n")
    points = blocks(ROOT / "CONTRIBUTING.md", "toml")[0].splitlines()
    (info / "entry_points.txt").write_text("[assay.benchmarks]\n" + points[1].replace('"', ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        run = assay.run("roman", "method:one")
        scores = {s.metric: s for s in run.scores() if not s.by}
        assert scores["accuracy"].value == pytest.approx(1 / 199)
        assert scores["unread_rate"].value == 0.0
        check_benchmark("roman")
    finally:
        sys.modules.pop("roman", None)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(path):
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose):
        if "://" not in target and not target.startswith("mailto:"):
            assert (path.parent / target).exists(), target


def test_every_verb_and_every_benchmark_stands_in_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for verb in VERBS:
        assert re.search(rf"assay {verb}\b", text), verb
    for name, entry in benchmark_entries().items():
        if entry.value.startswith("assay."):
            assert f"`{name}`" in text, name


def commands() -> list[str]:
    found = []
    for path in DOCUMENTS:
        for language in ("console", "sh", "bash"):
            for block in blocks(path, language):
                whole = block.replace("\\\n", " ").splitlines()
                lines = [part for line in whole for part in re.split(r"\s(?:&&|\|)\s|;\s", line.split(" #")[0])]
                stripped = [line.strip().removeprefix("$ ").strip() for line in lines]
                found += [line for line in stripped if line.startswith("assay ")]
    return found


def test_every_command_in_the_documents_is_one_that_the_command_line_takes():
    found = commands()
    assert len(found) >= 10
    for command in found:
        words = shlex.split(command, comments=True)[1:]
        parser().parse_args([w for w in words if w not in ("|", "&&")])
