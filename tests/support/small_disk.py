"""Runs on a small or closed disk, inside a mount namespace: ``python -m small_disk BENCHMARK|closed FOLDER``.

Prints one line of JSON a case: exit code, what was said, and what the run folder held after resuming.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

from assay.cli import main as assay

SIZES_KB = (4, 8, 12, 20, 32, 48, 64, 80)
PLENTY = "64m"


def call(*arguments: object) -> tuple[int, str]:
    """The command line: exit code, and all that it said."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        code = assay([str(a) for a in arguments])
    return code, said.getvalue()


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def facts(run: Path) -> dict:
    """What a run folder holds."""
    from assay.core.results import Run

    found = Run(run)
    records = found.records
    return {
        "status": found.status,
        "records": records.height,
        "unique": records.select("task", "sample", "attempt").n_unique(),
        "planned": found.info["trials"],
        "statuses": dict(records["status"].value_counts().iter_rows()),
        "clusters": records["cluster"].null_count(),
        "left": sorted(p.name for p in run.rglob("*") if p.name.endswith(".tmp") or p.suffix == ".jsonl"),
        "rows": found.rows(next(iter(found.info["tasks"]))).height,
    }


def full(folder: Path, benchmark: str, options: list[str]) -> None:
    """A run on disks of several sizes, then resumed with plenty of room."""
    for size in SIZES_KB:
        disk = folder / f"disk{size}"
        disk.mkdir()
        mount("-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk)
        log = folder / f"answers{size}"
        log.touch()
        run = disk / "run"
        line = [
            "run",
            benchmark,
            "-s",
            f"method:doubler?log={log}",
            "--into",
            run,
            "--quiet",
            "--workers",
            "1",
            *options,
        ]
        code, said = call(*line)
        answered = len(log.read_text().splitlines())
        mount("-o", f"remount,size={PLENTY}", disk)
        begun = (run / "run.json").is_file()
        again, more = call("resume", run, "--quiet") if begun else call(*line)
        total = len(log.read_text().splitlines())
        case = {"size": size, "code": code, "said": said, "begun": begun, "answered": answered, "total": total}
        print(json.dumps(case | {"again": again, "more": more, **facts(run)}), flush=True)


def recipe(folder: Path) -> None:
    """A recipe on a small disk, called again with plenty of room."""
    disk = folder / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", "size=40k", "tmpfs", disk)
    line = ["make", "toy", "squares", "--out", disk / "out", "-o", "n=2000"]
    first = call(*line)
    mount("-o", f"remount,size={PLENTY}", disk)
    stood = sum(len(p.read_bytes().splitlines()) for p in (disk / "out" / ".journal").glob("*.jsonl"))
    second = call(*line)
    lines = sum(len(p.read_bytes().splitlines()) for p in (disk / "out" / ".journal").glob("*.jsonl"))
    rows = json.loads((disk / "out" / "squares.json").read_text())
    right = rows == [{"item": i, "square": i * i} for i in range(2000)]
    print(json.dumps({"first": first, "second": second, "stood": stood, "lines": lines, "right": right}))


def closed(folder: Path) -> None:
    """An unfinished run whose folder was mounted read-only, and a place where no run can be made."""
    run = folder / "run"
    call("run", "toy_judged", "-s", "method:doubler", "-o", "n=20", "--into", run, "--quiet")
    before = {str(p): p.read_bytes() for p in run.rglob("*") if p.is_file()}
    mount("--bind", run, run)
    mount("-o", "remount,ro,bind", run)
    page = folder / "page.html"
    cases = {
        "resume": call("resume", run, "--quiet"),
        "extend": call("run", "toy_judged", "-s", "method:doubler", "--into", run, "--quiet"),
        "new": call("run", "toy", "-s", "method:doubler", "--into", run / "inside", "--quiet"),
        "report": call("report", run, "--out", page),
        "report inside": call("report", run, "--out", run / "page.html"),
    }
    same = before == {str(p): p.read_bytes() for p in run.rglob("*") if p.is_file()}
    print(json.dumps({"cases": cases, "same": same, "page": page.is_file()}))


if __name__ == "__main__":
    if sys.argv[1] in ("closed", "recipe"):
        {"closed": closed, "recipe": recipe}[sys.argv[1]](Path(sys.argv[2]))
    else:
        full(Path(sys.argv[2]), sys.argv[1], sys.argv[3:])
