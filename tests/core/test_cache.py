"""Content cache: keys tell content apart, values come back as they were, damage and haste do no harm."""

from __future__ import annotations

import asyncio
import datetime
import os
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.cache import MISS, ContentCache, cache_folder, content_key
from assay.core.errors import UsageError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@dataclass
class Point:
    x: int
    y: int


def double(x):
    return 2 * x


def triple(x):
    return 3 * x


@settings(deadline=None)
@given(JSON, JSON)
def test_keys_are_equal_just_when_content_is(a, b):
    assert (content_key(a) == content_key(b)) == (repr_of(a) == repr_of(b))


def repr_of(value):
    """Content in words: order of keys does not count, types do."""
    if isinstance(value, dict):
        return ("mapping", sorted((repr_of(k), repr_of(v)) for k, v in value.items()))
    if isinstance(value, list):
        return ("list", [repr_of(v) for v in value])
    return (type(value).__name__, repr(value))


def test_types_and_boundaries_count():
    parts = [
        1,
        1.0,
        True,
        "1",
        b"1",
        None,
        "",
        [],
        {},
        "a",
        ["a"],
        [["a"]],
        "ab",
        {"a": 1},
        set(),
        {1},
        double,
        triple,
        Point,
    ]
    parts += [Point(1, 2), Point(2, 1), np.arange(3), np.arange(3.0), np.arange(4).reshape(2, 2), np.arange(4)]
    parts += [datetime.date(2026, 1, 1), pl.DataFrame({"a": [1]}), pl.DataFrame({"b": [1]}), pl.DataFrame({"a": [1.0]})]
    assert len({content_key(part) for part in parts}) == len(parts)
    assert content_key("a", "b") != content_key("ab") != content_key(["a", "b"])
    assert content_key([1, 2]) == content_key((1, 2))
    assert content_key({"a": 1, "b": 2}) == content_key(OrderedDict([("b", 2), ("a", 1)]))


def test_paths_count_by_content(tmp_path):
    first, second, third = (tmp_path / name for name in "abc")
    first.write_text("same")
    second.write_text("same")
    third.write_text("other")
    assert content_key(first) == content_key(second) != content_key(third)
    before = content_key(tmp_path)
    (tmp_path / "d").write_text("")
    assert content_key(tmp_path) != before
    with pytest.raises(UsageError, match="No such file"):
        content_key(tmp_path / "missing")


def test_keys_are_the_same_in_another_process():
    code = "from assay.core.cache import content_key; print(content_key('a', 1, {'x': {2, 3}}, [1.5, None]))"
    other = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )
    assert other.stdout.strip() == content_key("a", 1, {"x": {2, 3}}, [1.5, None])


def test_what_has_no_content_is_refused():
    for part in (object(), iter([1]), np.array([object()])):
        with pytest.raises(UsageError, match="cache key"):
            content_key(part)


def test_computed_once_and_the_same_before_and_after(tmp_path):
    cache = ContentCache(tmp_path / "cache")
    calls = []

    def compute():
        calls.append(1)
        return {"rows": (1, 2), "none": None, "nan": float("inf")}

    first = cache.get_or((double, "x"), compute)
    second = ContentCache(tmp_path / "cache").get_or([double, "x"], compute)
    assert first == second == {"rows": [1, 2], "none": None, "nan": float("inf")}
    assert len(calls) == 1
    cache.get_or((triple, "x"), compute)
    assert len(calls) == 2


def test_none_is_a_value_and_failures_are_not_kept(tmp_path):
    cache = ContentCache(tmp_path)
    calls = []
    assert cache.get_or("k", lambda: calls.append(1)) is None
    assert cache.get_or("k", lambda: calls.append(1)) is None
    assert calls == [1]
    with pytest.raises(ZeroDivisionError):
        cache.get_or("bad", lambda: 1 // 0)
    assert cache.get(content_key("bad")) is MISS


def test_waiting_functions(tmp_path):
    cache = ContentCache(tmp_path)

    async def compute():
        await asyncio.sleep(0)
        return 7

    assert asyncio.run(cache.get_or_await("k", compute)) == 7
    assert cache.get_or("k", lambda: 8) == 7


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x00\xff",
        "text \ud800",
        [1, [2.5, None]],
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array("a"),
        {},
    ],
    ids=["empty", "bytes", "text", "json", "array", "scalar", "mapping"],
)
def test_values_come_back_as_they_were(tmp_path, value):
    cache = ContentCache(tmp_path)
    for got in (cache.put(content_key("k"), value), cache.get(content_key("k"))):
        if isinstance(value, np.ndarray):
            assert got.dtype == value.dtype
            np.testing.assert_array_equal(got, value)
        else:
            assert got == value


def test_several_arrays_in_one_value(tmp_path):
    cache = ContentCache(tmp_path)
    arrays = {"x": np.arange(3), "ü": np.zeros((0, 2))}
    cache.put(content_key("k"), arrays)
    got = cache.get(content_key("k"))
    assert list(got) == list(arrays)
    for name in arrays:
        np.testing.assert_array_equal(got[name], arrays[name])


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([object()])])
def test_what_cannot_be_kept_is_said(tmp_path, value):
    with pytest.raises(UsageError, match="cannot keep"):
        ContentCache(tmp_path).put(content_key("k"), value)
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


@settings(deadline=None)
@given(st.data())
def test_damage_anywhere_is_a_miss(tmp_path_factory, data):
    cache = ContentCache(tmp_path_factory.mktemp("cache"))
    key = content_key("k")
    cache.put(key, list(range(50)))
    path = cache.path_of(key)
    blob = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(blob) - 1))
        blob[place] ^= data.draw(st.integers(1, 255))
    else:
        blob = blob[: data.draw(st.integers(0, len(blob) - 1))]
    path.write_bytes(bytes(blob))
    assert cache.get(key) is MISS
    assert cache.get_or("k", lambda: "again") == "again"
    assert cache.get(key) == "again"


def test_least_recently_used_values_go_first(tmp_path):
    cache = ContentCache(tmp_path, max_bytes=5_500)
    keys = [content_key(n) for n in range(8)]
    for age, key in enumerate(keys):
        cache.put(key, bytes(1000))
        os.utime(cache.path_of(key), (1_000_000 + age, 1_000_000 + age))
    cache.get(keys[0])  # used again: the youngest now
    assert cache.evict() >= 2_500
    left = [n for n, key in enumerate(keys) if cache.get(key) is not MISS]
    assert left == [0, 4, 5, 6, 7]


def test_a_large_value_makes_room_and_stays(tmp_path):
    cache = ContentCache(tmp_path, max_bytes=1_000)
    cache.put(content_key("old"), bytes(900))
    cache.put(content_key("new"), bytes(ContentCache._SWEEP_SIZE))
    assert cache.get(content_key("old")) is MISS
    assert cache.get(content_key("new")) is not MISS


def test_many_processes_at_once(tmp_path):
    code = """
import sys
from pathlib import Path
from assay.core.cache import ContentCache, content_key
cache = ContentCache(Path(sys.argv[1]), max_bytes=60_000)
for turn in range(60):
    for n in range(12):
        value = cache.get_or(("k", n), lambda: [n] * 500)
        assert value == [n] * 500, value
    if turn % 10 == 0:
        cache.evict()
"""
    workers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]
    assert [worker.wait(timeout=120) for worker in workers] == [0] * 4
    assert not [file for file in tmp_path.rglob(".*") if file.is_file()]


def test_where_the_cache_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("ASSAY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == Path(tmp_path) / "assay"
