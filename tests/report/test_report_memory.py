"""A report of very many records with long texts: they are not all in memory, and those shown are the right ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from assay.core import run as core
from assay.core.benchmark import Metric
from assay.core.metrics import majority_at, mean
from assay.core.results import TEXTS, Run
from assay.report.html import render_report

REPORT = """
import sys
from pathlib import Path
from assay.core.results import Run
from assay.report.html import write_report
write_report([Run(sys.argv[1])], sys.argv[2])
# Not ru_maxrss, which begins with what the parent held.
print(next(int(line.split()[1]) / 1024 for line in Path("/proc/self/status").open() if line.startswith("VmHWM")))
"""


def grown(folder: Path, count: int, length: int) -> Run:
    """A finished run of so many records with answers that long and all different."""
    core.run("toy", "method:doubler", loading="toy_loading", options={"n": 20}, into=folder)
    place = pl.int_range(count, eager=True)
    name = pl.format("s{}", place)
    for file in ("samples.parquet", "records.parquet"):
        frame = pl.read_parquet(folder / file)[(place % 20).to_list()]
        frame = frame.with_columns(sample=pl.select(name).to_series(), cluster=pl.select(name).to_series(), index=place)
        if file == "samples.parquet":
            frame.write_parquet(folder / file)
            continue
        parts = []
        for start in range(0, count, 8192):
            some = frame[start : start + 8192]
            texts = [json.dumps(f"answer {i} {os.urandom(length // 2).hex()}") for i in some["index"]]
            part = some.with_columns(output=pl.Series(texts))
            part.write_parquet(folder / f"part-{start:07d}.parquet", compression="zstd")
            parts.append(folder / f"part-{start:07d}.parquet")
        pl.scan_parquet(parts).sink_parquet(folder / file, compression="zstd", row_group_size=8192)
        for part in parts:
            part.unlink()
    info = json.loads((folder / "run.json").read_text())
    info |= {"trials": count, "done": count, "statuses": {"ok": count}}
    info["tasks"]["plain"]["samples"] = count
    (folder / "run.json").write_text(json.dumps(info))
    return Run(folder)


def peak_mb(run: Run) -> float:
    """What a process needs that writes the report."""
    support = str(Path(__file__).parent.parent / "support")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([support, *filter(None, sys.path)])}
    command = [sys.executable, "-c", REPORT, str(run.path), str(run.path / "report.html")]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def test_rows_get_the_texts_that_all_records_would_have_given_them(tmp_path):
    run = grown(tmp_path / "run", 20_000, 20)
    some = run.measures.filter(pl.col("index").is_in([19_999, 3, 8191, 8192, 17]))[[4, 0, 2, 1, 3]]
    found = run.with_texts(some)
    assert "records" not in vars(run), "not everything was read"
    assert not set(TEXTS) & set(run.measures.columns)
    expected = some.select("index").join(run.records.select("index", *TEXTS), on="index", how="left")
    assert_frame_equal(found.select("index", *TEXTS), expected, check_row_order=True)
    assert [json.loads(t).split()[1] for t in found["output"]] == [str(i) for i in some["index"]]


def test_scores_without_texts_are_the_scores_and_metrics_that_read_texts_get_them(tmp_path):
    run = grown(tmp_path / "run", 2_000, 20)
    metrics = [mean("correct"), mean("correct", name="even", where={"parity": 0})]
    lean = run.scores(metrics=metrics)
    assert "records" not in vars(run)
    reading = Run(run.path)
    longest = Metric("longest", lambda frame: float(frame["output"].str.len_chars().max()), error=None)
    voted = majority_at("correct", answer="output")
    assert reading.scores(metrics=[longest])[0].value == max(map(len, reading.records["output"]))
    assert reading.scores(metrics=[voted])[0].n == 2_000
    assert [(s.value, s.low, s.n) for s in reading.scores(metrics=metrics)] == [(s.value, s.low, s.n) for s in lean]


def test_an_unfinished_runs_texts_come_from_its_journal(tmp_path):
    run = core.run("toy", "method:doubler", loading="toy_loading", options={"n": 20}, into=tmp_path / "run")
    (run.path / "journal").mkdir()
    (run.path / "journal" / "000001.jsonl").touch()
    again = Run(run.path)
    assert_frame_equal(again.with_texts(again.measures), again.records.select(*again.measures.columns, *TEXTS))


@pytest.mark.slow
def test_memory_of_a_report_does_not_grow_with_the_number_of_texts(tmp_path):
    """Whatever their number, one group of rows is in memory at a time."""
    few, many = grown(tmp_path / "few", 12_000, 4_000), grown(tmp_path / "many", 36_000, 4_000)
    more = 24_000 * 4_000 / 2**20
    assert peak_mb(many) - peak_mb(few) < more / 2
    assert "answer" in render_report([Run(many.path)])


@pytest.mark.slow
def test_a_report_of_200_000_records_with_a_gigabyte_of_texts_takes_less_than_500_mb(tmp_path):
    run = grown(tmp_path / "run", 200_000, 5_000)
    assert peak_mb(run) < 500
