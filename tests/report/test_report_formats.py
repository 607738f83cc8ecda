import math
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import DataError
from assay.core.table import Table
from assay.report.formats import dollars, duration, format_cell, format_value, one_line, visible


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (None, None, "–"),
        (float("nan"), ".3f", "–"),
        (float("inf"), ".3f", "∞"),
        (-math.inf, None, "−∞"),
        (0.123456, None, "0.1235"),
        (-0.5, ".2f", "−0.50"),
        (-0.0001, ".2f", "0.00"),
        (-0.0, None, "0"),
        (2e-05, ".3g", "0.00002"),
        (1.25e-7, None, "0.000000125"),
        (1234567, None, "1234567"),
        (1234567, ",", "1,234,567"),
        (0.256, ".1%", "25.6%"),
        (True, None, "yes"),
        (["a", 1], None, "a, 1"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), None, "2026-01-02 03:04:05 UTC"),
    ],
)
def test_values_are_written_as_a_reader_expects(value: object, spec: str | None, text: str) -> None:
    assert format_value(value, spec) == text


def test_a_format_that_does_not_fit_names_table_column_and_value() -> None:
    table = Table("costs", "Costs", pl.DataFrame({"usd": [1.5]}), formats={"usd": "Q"})
    with pytest.raises(DataError, match=r"'costs'.*'usd'.*'Q'.*1\.5"):
        format_cell(table, "usd", 1.5)


def test_control_characters_become_visible() -> None:
    assert visible("\x1b[31mred\x07\u202e") == "␛[31mred␇�"
    assert visible("two\nlines\tand a tab\r\n") == "two\nlines\tand a tab\n"


@given(st.text())
def test_visible_text_can_neither_move_a_cursor_nor_turn_direction(text: str) -> None:
    shown = visible(text)
    assert not any(ord(c) < 32 and c not in "\n\t" for c in shown)
    assert not any(0x7F <= ord(c) < 0xA0 or "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069" for c in shown)
    assert visible(shown) == shown


@given(st.text(), st.integers(1, 50))
def test_one_line_keeps_to_its_limit(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert "\n" not in line


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.85, "850 ms"), (12.34, "12.3 s"), (245, "4 min 05 s"), (7380, "2 h 03 min"), (None, "–")]
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("usd", "text"), [(0, "$0"), (0.00042, "$0.00042"), (1.349, "$1.35"), (1204.4, "$1,204"), (4e-6, "$4.0e-06")]
)
def test_dollars(usd: float, text: str) -> None:
    assert dollars(usd) == text
