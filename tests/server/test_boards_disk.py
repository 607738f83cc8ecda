"""A worker of boards on a full disk: entries wait until there is room, and are told when there never is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = str(Path(__file__).parent.parent / "support")
CODE = """
import json, subprocess, sys
from pathlib import Path
from board_desk import TRUTH, Desk
from assay.server.settings import Settings
place = Path(sys.argv[1])
(place / "runs").mkdir()
desk = Desk(Settings(root=place / "server", runs=place / "runs"))
scratch = desk.worker._private("scratch")
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", scratch], check=True)
found = []
first = desk.submit(lambda i: TRUTH[f"s{i}"])
desk.worker.step()
found.append((desk.entry(first).status, desk.job(first).tries))
subprocess.run(["mount", "-o", "remount,size=20m", scratch], check=True)
desk.worker.step()
found.append((desk.entry(first).status, desk.job(first).tries))
subprocess.run(["umount", scratch], check=True)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", scratch], check=True)
second = desk.submit(lambda i: TRUTH[f"s{i}"] if i else "x")
while desk.worker.step():
    pass
found.append((desk.entry(second).status, desk.entry(second).reason))
print(json.dumps({"found": found, "scored": sum(e["event"] == "scored" for e in desk.events())}))
"""


def test_an_entry_that_finds_no_room_to_be_scored_in_waits_is_scored_once_and_is_told_when_there_never_is(tmp_path):
    if os.geteuid() or subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no process may mount a file system of its own here")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SUPPORT, *filter(None, sys.path)])}
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", CODE, str(tmp_path)], env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    waiting, scored, given_up = said["found"]
    assert waiting == ["queued", 1]
    assert scored == ["scored", 2]
    assert given_up[0] == "failed"
    assert given_up[1].startswith("The server's disk was full. It was tried ")
    assert said["scored"] == 1
    assert "board worker: the disk is full; free some space." in done.stderr
