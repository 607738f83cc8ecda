"""Audit: every row that went in is either out or noted, with filter and reason."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.audit import Audit
from assay.core.errors import UsageError

ROWS = [{"id": f"r{n}", "n": n, "text": "ab" * n} for n in range(10)]


def trail() -> tuple[Audit, list]:
    audit = Audit()
    rows = audit.keep(ROWS, "length", lambda row: len(row["text"]) >= 6, "shorter than 6 characters")
    rows = audit.sift(rows, "parity", lambda row: f"odd: {row['n'] % 2}" if row["n"] % 2 else None, "odd numbers")
    return audit, rows


def test_counts_and_reasons():
    audit, rows = trail()
    assert [row["n"] for row in rows] == [4, 6, 8]
    assert audit.counts() == [
        {
            "filter": "length",
            "reason": "shorter than 6 characters",
            "rows_in": 10,
            "rows_out": 7,
            "reasons": {"shorter than 6 characters": 3},
        },
        {"filter": "parity", "reason": "odd numbers", "rows_in": 7, "rows_out": 3, "reasons": {"odd: 1": 4}},
    ]
    assert (audit.rows_in, audit.rows_out) == (10, 3)
    assert audit.fate("r1") == ("length", "shorter than 6 characters")
    assert audit.fate("r5") == ("parity", "odd: 1")
    assert audit.fate("r4") is None


@settings(deadline=None)
@given(st.lists(st.integers(0, 99), unique=True), st.integers(1, 7), st.integers(1, 7))
def test_nothing_is_lost(numbers, first, second):
    audit = Audit(key=str)
    rows = audit.keep(numbers, "a", lambda n: n % first == 0, "x")
    rows = audit.keep(rows, "b", lambda n: n % second == 0, "y")
    fallen = [entry["id"] for entry in audit.fallen()]
    assert sorted([*map(str, rows), *fallen]) == sorted(map(str, numbers))
    assert rows == [n for n in numbers if n % first == 0 and n % second == 0]
    for step in audit.steps:
        assert step.rows_in - step.rows_out == len(step.fallen)


def test_duplicates_name_the_row_that_was_kept():
    audit = Audit()
    rows = audit.unique([{"id": "a", "x": 1}, {"id": "b", "x": 2}, {"id": "c", "x": 1}], "same x", lambda row: row["x"])
    assert [row["id"] for row in rows] == ["a", "b"]
    assert audit.fate("c") == ("same x", "seen before: a")


def test_a_filter_applied_elsewhere():
    audit = Audit()
    audit.replace(ROWS, ROWS[:4], "clusters", "not a medoid")
    assert audit.counts()[0]["rows_out"] == 4
    with pytest.raises(UsageError, match="'new', which it was not given"):
        audit.replace(ROWS, [{"id": "new"}], "other", "x")


def test_table_and_file(tmp_path):
    audit, _ = trail()
    assert audit.table().frame["fell"].to_list() == [3, 4]
    lines = audit.write(tmp_path / "audit.jsonl").read_text().splitlines()
    assert len(lines) == 7
    assert json.loads(lines[0]) == {"id": "r0", "filter": "length", "reason": "shorter than 6 characters"}
    assert Audit().table().frame.height == 0


def test_bad_input():
    with pytest.raises(UsageError, match="has no id"):
        Audit().keep([{"x": 1}], "a", lambda row: False, "x")
    with pytest.raises(UsageError, match="two rows with the id 'a'"):
        Audit().keep([{"id": "a"}, {"id": "a"}], "a", lambda row: False, "x")
    audit = Audit()
    audit.keep([], "a", bool, "x")
    with pytest.raises(UsageError, match="'a' already"):
        audit.keep([], "a", bool, "x")
    assert Audit().keep([SimpleNamespace(id="a")], "f", lambda row: True, "x")
