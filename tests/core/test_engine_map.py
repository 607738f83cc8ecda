"""resumable_map and recipes: what is done stays done, failures are named, order is kept."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toys import square

from assay.core.errors import UsageError
from assay.core.journal import read_arrays
from assay.core.map import MapError, find_recipe, make, resumable_map

SUPPORT = str(Path(__file__).parent.parent / "support")


def test_results_come_in_the_order_of_the_items(tmp_path):
    out = list(resumable_map(square, [3, 1, 2], key=str, out=tmp_path))
    assert [r["square"] for r in out] == [9, 1, 4]


def test_functions_that_wait_run_together(tmp_path):
    async def slow(item):
        await asyncio.sleep(0.2)
        return item

    begun = time.monotonic()
    assert list(resumable_map(slow, range(20), key=str, out=tmp_path)) == list(range(20))
    assert time.monotonic() - begun < 2.0


def test_a_failing_item_leaves_the_others_done_and_is_tried_again_next_time(tmp_path):
    tried = []

    def moody(item):
        tried.append(item)
        if item == 2 and tried.count(2) == 1:
            raise ValueError("not today")
        return item * 10

    with pytest.raises(MapError, match=r"1 of 4 items failed, first '2' \(ValueError: not today\)"):
        resumable_map(moody, range(4), key=str, out=tmp_path, workers=0)
    assert list(resumable_map(moody, range(4), key=str, out=tmp_path, workers=0)) == [0, 10, 20, 30]
    assert sorted(tried) == [0, 1, 2, 2, 3]


def test_two_items_of_one_key_are_refused(tmp_path):
    with pytest.raises(UsageError, match="two items have the key 'x'"):
        resumable_map(square, [1, 2], key=lambda item: "x", out=tmp_path)


def test_a_map_killed_halfway_goes_on_where_it_was(tmp_path):
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from assay.core.map import resumable_map\n"
        "def slow(item):\n"
        "    time.sleep(0.03)\n"
        "    Path(sys.argv[2]).open('a').write(f'{item}\\n')\n"
        "    return item\n"
        "print(list(resumable_map(slow, range(40), key=str, out=sys.argv[1], workers=0)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SUPPORT, *filter(None, sys.path)])}
    log = tmp_path / "log"
    command = [sys.executable, "-c", code, str(tmp_path / "out"), str(log)]
    process = subprocess.Popen(command, env=environment)
    folder = tmp_path / "out" / ".journal"
    while not folder.is_dir() or sum(1 for _ in read_arrays(folder)) < 10:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stood = {json.loads(a)[0]["value"] for a in read_arrays(folder)}
    before = len(log.read_text().split())
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == list(range(40))
    again = {int(line) for line in log.read_text().split()[before:]}
    assert 10 <= len(stood) < 40
    assert again == set(range(40)) - stood


def test_unknown_recipes_and_options_are_refused_with_the_nearest_name(tmp_path):
    with pytest.raises(UsageError, match="did you mean 'squares'"):
        find_recipe("toy.sqares")
    with pytest.raises(UsageError, match="has no dot"):
        find_recipe("squares")
    with pytest.raises(UsageError, match="'m'"):
        make("toy.squares", tmp_path, m=3)
    with pytest.raises(UsageError, match="must be a whole number, not 'many'"):
        make("toy.squares", tmp_path, n="many")
