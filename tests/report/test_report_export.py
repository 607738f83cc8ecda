import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import UsageError
from assay.core.table import Chart, Table
from assay.report.export import (
    board_text,
    latex,
    to_csv,
    to_html,
    to_json,
    to_latex,
    to_markdown,
    write_records,
    write_table,
    write_tables,
)

FRAME = pl.DataFrame(
    {"system": ['a|b_"c"', "x\ny"], "value": [1 / 3, math.inf], "low": [0.1, math.nan], "high": [0.5, None]}
)
TABLE = Table(
    "some.table", "Scores & <costs>", FRAME, notes=["50 % of it."], chart=Chart("bar", "system", "value")
)  # fmt: skip


def test_csv_keeps_every_digit_and_reads_back() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(TABLE))))
    assert rows[0] == ["system", "value", "low", "high"]
    assert float(rows[1][1]) == 1 / 3
    assert rows[1][0] == 'a|b_"c"'
    assert rows[2] == ["x\ny", "inf", "", ""]


@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\x00")), st.floats(allow_nan=False)),
        max_size=8,
    )
)
def test_csv_round_trips(rows: list[tuple[str, float]]) -> None:
    frame = pl.DataFrame(rows, schema={"s": pl.String, "v": pl.Float64}, orient="row")
    found = list(csv.reader(io.StringIO(to_csv(Table("t", "T", frame)), newline="")))[1:]
    assert [(s, float(v)) for s, v in found] == rows


def test_json_is_strict_json() -> None:
    found = json.loads(to_json(TABLE), parse_constant=lambda text: pytest.fail(text))
    assert found["title"] == "Scores & <costs>"
    assert found["rows"][1] == {"system": "x\ny", "value": "inf", "low": None, "high": None}


def test_markdown_has_one_line_a_row_and_escapes_bars() -> None:
    lines = to_markdown(TABLE).splitlines()
    assert lines[0] == r"**Scores & \<costs\>**"
    assert lines[2] == "| system | score | interval |"
    assert lines[3] == "| --- | ---: | ---: |"
    assert lines[4] == r'| a\|b\_"c" | 0.3333 | 0.1 to 0.5 |'
    assert lines[5].startswith("| x y | ∞ |")
    assert lines[-1] == "50 % of it."


def test_latex_escapes_everything_that_it_would_read_as_a_command() -> None:
    text = to_latex(TABLE)
    assert r"\caption{Scores \& \textless{}costs\textgreater{}}" in text
    assert r"a\textbar{}b\_" in text
    assert r"50 \% of it." in text
    assert text.count(r"\\") == 3
    assert latex("\\input{/etc/passwd} $x^2$ #1~") == (
        r"\textbackslash{}input\{/etc/passwd\} \$x\textasciicircum{}2\$ \#1\textasciitilde{}"
    )


@given(st.text())
def test_no_text_becomes_a_latex_command(text: str) -> None:
    allowed = (
        r"\\(?:textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|infty|times|dots|[&%$#_{}])"
    )
    assert "\\" not in re.sub(allowed, "", latex(text))


def test_html_escapes_cells() -> None:
    assert "<costs>" not in to_html(TABLE)
    assert "&lt;costs&gt;" in to_html(TABLE)


@pytest.mark.parametrize("ending", ["csv", "json", "md", "tex", "html", "parquet", "svg", "png"])
def test_a_table_is_written_in_the_format_of_its_ending(tmp_path: Path, ending: str) -> None:
    path = write_table(Table("t", "T", TABLE.frame.head(1), chart=TABLE.chart), tmp_path / f"deep/t.{ending}")
    assert path.stat().st_size > 50


def test_an_unknown_ending_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'csv'"):
        write_table(TABLE, tmp_path / "t.cvs")


def test_a_folder_gets_tables_and_figures(tmp_path: Path) -> None:
    plain = Table("plain", "P", TABLE.frame)
    names = sorted(path.name for path in write_tables([TABLE, plain], tmp_path / "out"))
    assert names == ["plain.csv", "plain.md", *(f"some.table.{e}" for e in ("csv", "md", "png", "svg"))]


def test_several_tables_get_a_file_each(tmp_path: Path) -> None:
    plain = Table("plain", "P", TABLE.frame)
    assert [p.name for p in write_tables([TABLE], tmp_path / "one.csv")] == ["one.csv"]
    assert [p.name for p in write_tables([TABLE, plain], tmp_path / "two.csv")] == [
        "two-some.table.csv",
        "two-plain.csv",
    ]


def test_runs_as_csv_are_one_row_a_score(three_runs: list[Any]) -> None:
    frame = pl.read_csv(io.StringIO(board_text(three_runs, "csv")))
    overall = frame.filter(pl.col("group").is_null())
    assert overall.height == 3 * 3
    assert set(frame["group"].drop_nulls()) == {"concept", "lines"}
    assert {"value", "low", "high", "n", "errors", "left_out", "resample"} <= set(frame.columns)


def test_runs_as_json_markdown_and_latex_hold_the_ranking(three_runs: list[Any]) -> None:
    found = json.loads(board_text(three_runs, "json"))
    ranking = next(table for table in found["tables"] if table["name"] == "ranking.macro_accuracy")
    assert ranking["rows"][0]["system"] == "openai:big"
    assert [run["system"] for run in found["runs"]] == [run.system for run in three_runs]
    markdown = board_text(three_runs, "md", tables=[TABLE])
    assert "| 1 | openai:big |" in markdown
    assert "assay run drawn -s openai:big" in markdown
    assert r"a\|b\_" in markdown
    assert r"openai:big" in board_text(three_runs, "latex")


def test_an_unknown_layout_and_no_runs_are_refused(three_runs: list[Any]) -> None:
    with pytest.raises(UsageError, match="report format 'docx'"):
        board_text(three_runs, "docx")
    with pytest.raises(UsageError, match="no run"):
        board_text([], "md")


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_records_of_all_runs_go_into_one_file(three_runs: list[Any], tmp_path: Path, ending: str) -> None:
    path = write_records(three_runs, tmp_path / f"records.{ending}")
    if ending == "csv":
        rows: Any = list(csv.DictReader(path.open(encoding="utf-8", newline="")))
    elif ending == "jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    else:
        rows = pl.read_parquet(path).to_dicts()
    assert len(rows) == 360
    assert {row["system"] for row in rows} == {run.system for run in three_runs}
    calls = rows[0]["calls"]
    assert (json.loads(calls) if ending == "csv" else calls)[0]["role"] == "subject"
