"""Features of folders of files: results larger than memory allows are computed, kept and read back one at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = str(Path(__file__).parent.parent / "support")

COMPUTE = """
import json, sys
from pathlib import Path
from features import spectrum
from assay.core.map import resumable_map

folder = Path(sys.argv[1])
files = sorted(folder.glob("*.bin"))
total = count = 0
for found in resumable_map(spectrum, files, key=lambda p: p.name, out=folder, workers=1):
    total += found["sum"]
    count += len(found["values"])
# Not ru_maxrss, which begins with what the parent held.
peak = next(int(line.split()[1]) / 1024 for line in Path("/proc/self/status").open() if line.startswith("VmHWM"))
print(json.dumps({"peak": peak, "sum": total, "values": count}))
"""


def computed(folder: Path) -> dict:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SUPPORT, *filter(None, sys.path)])}
    command = [sys.executable, "-c", COMPUTE, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write(folder: Path, files: int) -> int:
    folder.mkdir()
    total = 0
    for number in range(files):
        data = bytes((number * 31 + k) % 251 for k in range(1_000)) * 300
        (folder / f"{number:04d}.bin").write_bytes(data)
        total += sum(data)
    return total


def test_memory_does_not_grow_with_the_results_of_a_folder(tmp_path):
    few, many = write(tmp_path / "few", 4), write(tmp_path / "many", 150)
    small, large = computed(tmp_path / "few"), computed(tmp_path / "many")
    assert (small["sum"], large["sum"]) == (few, many)
    assert large["values"] == 150 * 300_000
    kept = sum(p.stat().st_size for p in (tmp_path / "many" / ".journal").glob("*.jsonl")) / 2**20
    assert kept > 120, "the results are many times what they may take"
    assert large["peak"] - small["peak"] < 30
    again = computed(tmp_path / "many")
    assert again["sum"] == many
    assert again["peak"] - small["peak"] < 30, "nor where all are done already"


@pytest.mark.parametrize("damage", ["torn", "changed"])
def test_a_damaged_result_is_computed_again_and_its_neighbours_are_not(tmp_path, damage):
    write(tmp_path / "few", 4)
    before = computed(tmp_path / "few")
    (journal,) = (tmp_path / "few" / ".journal").glob("*.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    assert len(lines) == 4
    lines[1] = lines[1][:-20] + b"\n" if damage == "torn" else lines[1].replace(b'"sum":', b'"sum":1', 1)
    journal.write_bytes(b"".join(lines))
    assert computed(tmp_path / "few")["sum"] == before["sum"]
    assert sum(len(p.read_bytes().splitlines()) for p in journal.parent.glob("*.jsonl")) == 5
