"""Figures of a script into the README of its room, between two marks."""

from __future__ import annotations

from pathlib import Path

BEGIN, END = "<!-- perf -->\n", "<!-- /perf -->\n"


def put(readme: Path, text: str) -> None:
    """Replace what stands between the marks; ValueError where they are missing."""
    before, rest = readme.read_text(encoding="utf-8").split(BEGIN, 1)
    _, after = rest.split(END, 1)
    readme.write_text(before + BEGIN + text + END + after, encoding="utf-8")
