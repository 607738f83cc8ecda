"""perf/scale.py: its arithmetic is that of its figures, and a page keeps everything outside its marks."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scale():
    spec = importlib.util.spec_from_file_location("perf_scale", ROOT / "perf" / "scale.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path[:] = before


def figures():
    """A driver that needs 60 us a trial; 10 us and 1,024 bytes a trial to plan, beyond what any run costs."""
    row = {"workers": 2, "trials_s": 85.0, "overhead_ms": 3.5, "efficiency": 0.85, "driver_us": 60.0, "start_s": 2.0}

    def step(count):
        return {"wall": 9.0, "cpu": 0.5 + 1e-5 * count, "peak_mb": 60 + count / 1024}

    parts = ("plan", "kill", "restart", "finish", "again", "read")
    counts = [{"trials": n, "disk_mb": n / 2**20 * 50, **dict.fromkeys(parts, step(n))} for n in (10_000, 1_000_000)]
    return {
        "python": "3.11", "cores": 2, "load": {"local": [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]}, "local": [row],
        "ray": [row], "nodes": [{"nodes": 3, **row}], "empty": {"local": row, "ray": row}, "counts": counts,
    }  # fmt: skip


def test_the_extrapolation_is_the_slope_times_the_goal(scale):
    found = {cells[1].strip(): cells[3].strip() for line in scale.extrapolated(figures()).splitlines()[2:]
             if (cells := line.split("|"))}  # fmt: skip
    assert found["driver's processor"] == f"{60e-6 * 1e8 / 3600:.1f} h of one core"
    assert found["records a second that one driver takes"] == "16,667"
    assert found["shortest trial that keeps 64,000 lanes busy"] == "3.8 s"
    assert found["planning, on one core"] == f"{1e-5 * 1e8 / 60:.0f} min"
    assert found["driver's memory to plan"] == f"{1024 * 1e8 / 2**30:,.0f} GB"
    assert found["records on disk"] == f"{50 * 1e8 / 2**30:,.0f} GB"


def test_writing_replaces_what_stands_between_the_marks_alone(scale, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{scale.MARKS[0]}\nold\n{scale.MARKS[1]}\nafter\n")
    scale.write(figures(), page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert scale.shown(figures()).strip() in text
    scale.write(figures(), page)
    assert page.read_text() == text
    page.write_text("no marks")
    with pytest.raises(scale.Broken, match="no place for figures"):
        scale.write(figures(), page)


def test_the_page_holds_figures_for_every_part(scale):
    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    between = text.partition(scale.MARKS[0])[2].partition(scale.MARKS[1])[0]
    for title in (
        "local: trials",
        "ray: trials",
        "workers a node",
        "that do nothing",
        "1,000,000",
        "at 100,000,000 trials",
    ):
        assert title in between
