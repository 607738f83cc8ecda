"""Every loader of a published format on broken files: only a sentence of assay comes out, with the file in it, soon."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import published_formats
import published_formats_arrays
import published_formats_more
import published_formats_rooms
import pytest
from broken_files import Loader, corpus, put, tables, verdict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parse_sites import run_through, sites
from parse_sites_named import ELSEWHERE, PARTS, REPLIES, SHIPPED

GROUPS = {
    "core": published_formats.core,
    "reasoning": published_formats.reasoning,
    "agents": published_formats.agents,
    "multimodal": published_formats.multimodal,
    "hume": published_formats_rooms.hume,
    "seismic_ctf": published_formats_rooms.seismic,
    "ttsds2": published_formats_rooms.ttsds2,
    "irregular": published_formats_rooms.irregular,
    "pu_bench": published_formats_rooms.pu_bench,
    "calibration_survival": published_formats_rooms.calibration_and_survival,
    "hardtests": published_formats_rooms.hardtests,
    "xsam": published_formats_rooms.xsam,
    "server": published_formats_more.server,
    "pictures_texts": published_formats_more.pictures_and_texts,
    "original_files": published_formats_more.original_files,
    "rate_distortion": published_formats_more.curves,
    "rate_distortion_sources": published_formats_arrays.pictures_sounds_models,
    "minpv": published_formats_arrays.minpv,
    "minto": published_formats_arrays.minto,
}
MOST = 60
"""Broken files a file in the quick part; the slow part takes all."""
NAMED_LINE = re.compile(r"\b(line|row|record|sample|trace|item|problem)s? \S*\d|\[\d+\]")


@cache
def loaders(group: str) -> tuple[Loader, ...]:
    """Loaders of a group."""
    return tuple(GROUPS[group]())


def cases(file: Path, good: bytes, most: int | None) -> list[tuple[str, bytes | None]]:
    """Broken contents of a file, a fixed choice of them where there are more than ``most``."""
    found = list(corpus(file.name, good))
    if file.suffix == ".parquet":
        found += list(tables(good))
    return found if most is None or len(found) <= most else random.Random(7).sample(found, most)


def wrong(loader: Loader, folder: Path, most: int | None) -> Iterator[str]:
    """What is wrong with a loader's answers, a line a fault."""
    made = loader.make(folder)
    loader.load(made)  # the good file reads
    for file in loader.files(folder, made):
        good = file.read_bytes()
        for what, content in cases(file, good, most):
            put(file, content)
            if fault := verdict(loader, made, file):
                yield f"{loader.name}, {file.name}, {what}: {fault}"
        put(file, good)


@pytest.mark.parametrize("group", GROUPS)
def test_broken_files_give_a_sentence_that_names_the_file(group: str, tmp_path: Path) -> None:
    faults = []
    for number, loader in enumerate(loaders(group)):
        folder = tmp_path / str(number)
        folder.mkdir()
        faults += wrong(loader, folder, MOST)
    assert not faults, "\n".join(faults[:20])


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_all_broken_files_give_a_sentence_that_names_the_file(group: str, tmp_path: Path) -> None:
    faults = []
    for number, loader in enumerate(loaders(group)):
        folder = tmp_path / str(number)
        folder.mkdir()
        faults += wrong(loader, folder, None)
    assert not faults, "\n".join(faults[:20])


@pytest.mark.parametrize("group", GROUPS)
def test_a_broken_line_is_named_by_its_number(group: str, tmp_path: Path) -> None:
    """A field of a line that is refused: the sentence says which line."""
    faults = []
    for number, loader in enumerate(loaders(group)):
        folder = tmp_path / str(number)
        folder.mkdir()
        made = loader.make(folder)
        for file in loader.files(folder, made):
            if file.suffix != ".jsonl" or not loader.named:
                continue
            good = file.read_bytes()
            lines = good.decode().splitlines()
            for broken in ("{", "[1]", "null", "{}"):
                file.write_text("\n".join([*lines, broken]), encoding="utf-8")
                try:
                    loader.load(made)
                except Exception as error:
                    if not NAMED_LINE.search(str(error)):
                        faults.append(f"{loader.name}, {broken}: {error}")
            file.write_bytes(good)
    assert not faults, "\n".join(faults[:20])


# -- hypothesis ------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def edits(draw: st.DrawFn, good: bytes) -> bytes:
    """A good file with pieces cut out, doubled, overwritten or put in; or another value where it is JSON."""
    if draw(st.booleans()):
        try:
            value = json.loads(good)
        except ValueError:
            value = None
        if isinstance(value, dict) and value:
            key = draw(st.sampled_from(sorted(value)))
            return json.dumps({**value, key: draw(VALUES)}).encode()
        if isinstance(value, list) and value:
            at = draw(st.integers(0, len(value) - 1))
            return json.dumps([*value[:at], draw(VALUES), *value[at + 1 :]]).encode()
    content = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        stop = min(len(content), start + draw(st.integers(0, 40)))
        piece = draw(st.binary(max_size=12) | st.sampled_from([b"", bytes(content[start:stop]) * 2]))
        content[start:stop] = piece
    return bytes(content)


def fuzzed(group: str, examples: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    for loader in loaders(group):
        edited(loader, tmp_path_factory.mktemp("fuzz"), examples)


def edited(loader: Loader, folder: Path, examples: int) -> None:
    """A loader on edits of its good files."""
    made = loader.make(folder)
    files = loader.files(folder, made)
    goods = [file.read_bytes() for file in files]

    @settings(max_examples=examples, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.data())
    def run(data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(files) - 1))
        put(files[at], data.draw(edits(goods[at])))
        fault = verdict(loader, made, files[at])
        put(files[at], goods[at])
        assert fault is None, f"{loader.name}, {files[at].name}: {fault}"

    run()


@pytest.mark.parametrize("group", GROUPS)
def test_any_edit_of_a_good_file_gives_a_sentence_or_a_value(
    group: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fuzzed(group, 8, tmp_path_factory)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_many_edits_of_a_good_file_give_a_sentence_or_a_value(
    group: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fuzzed(group, 400, tmp_path_factory)


# -- completeness ----------------------------------------------------------------------------------------------------


def test_every_place_that_parses_is_under_fuzz_or_has_a_reason(tmp_path: Path) -> None:
    """A room with a new loader fails here until the loader stands in the registry of formats."""
    ran: set[str] = set()
    for group in GROUPS:
        for number, loader in enumerate(loaders(group)):
            folder = tmp_path / f"{group}{number}"
            folder.mkdir()
            made = loader.make(folder)
            ran |= run_through(lambda loader=loader, made=made: loader.load(made))
    found = sites()
    reasons = {**SHIPPED, **PARTS, **REPLIES, **ELSEWHERE}
    missing = {n: calls for n, calls in found.items() if n not in ran and n not in reasons}
    assert not missing, "no loader in the registry runs: " + "; ".join(f"{n} ({c})" for n, c in missing.items())
    stale = [name for name in reasons if name not in found or name in ran]
    assert not stale, f"reasons no longer needed: {', '.join(stale)}"
