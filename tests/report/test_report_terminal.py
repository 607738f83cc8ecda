import io
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from assay.core.table import Table
from assay.report.summary import Board
from assay.report.terminal import BAR, interval_bar, print_board, print_comparisons, print_table

FRAME = pl.DataFrame(
    {"system": ["a", "b" * 30], "value": [0.5, 0.25], "low": [0.4, 0.1], "high": [0.6, None], "errors": [0, 3]}
)
RANKED = Table("t", "Scores", FRAME, notes=["A note of some length that says what the interval is over."])


def printed(table: Table, **console: Any) -> str:
    file = io.StringIO()
    print_table(table, Console(file=file, highlight=False, **console))
    return file.getvalue()


@pytest.fixture(scope="module")
def board(three_runs: list[Any]) -> Board:
    return Board(three_runs)


def test_a_pipe_gets_aligned_text_without_colours_bars_or_breaks() -> None:
    text = printed(RANKED, width=20)
    lines = text.splitlines()
    assert "\x1b" not in text
    assert lines[0] == "Scores"
    assert lines[1].split() == ["system", "score", "interval", "errors"]
    assert lines[2].startswith("a ")
    assert lines[2].endswith("0.4 to 0.6       0")
    assert len(lines[2]) == len(lines[3])
    assert lines[4] == RANKED.notes[0]


def test_a_dumb_terminal_is_treated_as_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert printed(RANKED, force_terminal=True, width=120) == printed(RANKED)


def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[31m" in printed(RANKED, force_terminal=True, width=120, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed(RANKED, force_terminal=True, width=120, color_system="standard")
    assert "\x1b[3" not in text


def test_narrow_terminals_get_a_block_a_row_and_no_line_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = printed(RANKED, force_terminal=True, width=28, color_system=None)
    assert max(map(len, text.splitlines())) <= 28
    assert "  score 0.5" in text.splitlines()
    assert "  errors 3" in text.splitlines()


@pytest.mark.parametrize("width", [24, 40, 60, 80, 100, 140, 200])
def test_a_board_fits_every_width_and_keeps_every_number(
    board: Board, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    file = io.StringIO()
    print_board(board, Console(file=file, force_terminal=True, width=width, color_system=None, highlight=False))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    for value in board.ranking("macro_accuracy").frame["value"]:
        assert f"{value:.3f}" in text


def test_wide_terminals_draw_intervals(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    file = io.StringIO()
    print_board(board, Console(file=file, force_terminal=True, width=160, color_system=None))
    assert file.getvalue().count("├") == 3 + 3
    assert "├" not in _piped(board)


def _piped(board: Board) -> str:
    file = io.StringIO()
    print_board(board, Console(file=file, width=40, highlight=False, soft_wrap=True))
    return file.getvalue()


def test_a_piped_board_holds_ranking_comparison_costs_errors_and_verdict(board: Board) -> None:
    text = _piped(board)
    for words in (
        "macro accuracy",
        "Other metrics",
        "Paired differences",
        "USD a trial",
        "Errors by kind",
        board.verdict(),
    ):
        assert words in text


def test_comparisons_end_with_the_verdict(board: Board) -> None:
    file = io.StringIO()
    print_comparisons(board.comparisons, Console(file=file, width=60))
    assert file.getvalue().rstrip().endswith(board.verdict())


def test_cells_cannot_send_escape_sequences_or_markup() -> None:
    frame = pl.DataFrame({"output": ["\x1b]0;owned\x07[bold red]x[/]\nsecond line", "plain"]})
    for options in ({}, {"force_terminal": True, "width": 90, "color_system": None}):
        text = printed(Table("t", "T\x1b[2J", frame), **options)
        assert "\x1b" not in text
        assert "[bold red]x[/] second line" in text


def test_empty_tables_print_their_headings() -> None:
    assert "system" in printed(Table("t", "T", RANKED.frame.clear()))


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_interval_bars_are_as_wide_as_said_and_mark_the_value(a: float, b: float, c: float) -> None:
    low, value, high = sorted((a, b, c))
    bar = interval_bar(low, value, high, 0.0, 1.0)
    assert len(bar) == BAR
    assert bar.count("●") == 1
    assert bar.strip()[0] in "├●┤"
