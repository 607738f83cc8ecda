"""The console game: ROMs by checksum, the emulator's process, and the game itself where an emulator is at hand."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest

from assay.agents.lmgame.env import make
from assay.agents.lmgame.games import nes
from assay.core.errors import DataError, UsageError, WorkerLost

# Interpreters with an emulator, and a folder with a ROM of one's own: set by who wants the last test to run.
PACKAGED = os.environ.get("ASSAY_NES_PYTHON")
RETRO, ROMS = os.environ.get("ASSAY_RETRO_PYTHON"), os.environ.get("ASSAY_NES_ROMS")

FAKE = """
import json, sys
print("noise of a package", file=sys.stderr)
x = 0
for line in sys.stdin:
    request = json.loads(line)
    scroll = []
    if request["do"] == "reset":
        x = 0
    else:
        for buttons in request["frames"]:
            if "UP" in buttons:
                sys.exit("the emulator burned down")
            x += 4 * ("RIGHT" in buttons)
            scroll.append([x // 256, x % 256])
    memory = dict(lives=3, coins=0, levelLo=0, levelHi=0, xscrollHi=x // 256, xscrollLo=x % 256, score=0, time=400)
    reply = {"memory": memory, "scroll": scroll, "finished": x > 900, "shape": [224, 240, 3]}
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\\n" + bytes([x % 256]) * (224 * 240 * 3))
    sys.stdout.buffer.flush()
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text(FAKE)
    monkeypatch.setattr(nes, "_WORKER", worker)
    env = make("super_mario_bros", python=sys.executable)
    yield env
    env.close()


def test_the_emulators_process_is_played_restored_and_ended(fake):
    env = fake
    observation, info = env.reset(0)
    assert observation["image"].shape == (224, 240, 3)
    assert (info["lives"], info["xscrollLo"]) == (3, 0)
    _, reward, _, _, info = env.step("(right,100)")
    assert reward == 400 == env.score
    assert (info["xscrollHi"], info["xscrollLo"]) == (1, 144)
    kept = json.loads(json.dumps(env.get_state()))
    assert kept["engine"]["pressed"] == [[[], 1], [["RIGHT"], 100]]
    _, reward, terminated, _, info = env.step("(right_a,150)")
    assert (reward, terminated, info["finished"], info["end"]) == (600, True, True, "game over")
    env.set_state(kept)
    assert env.score == 400
    assert env.image()[0, 0, 0] == 144
    process = env.engine._process
    assert process.poll() is None
    env.close()
    assert process.poll() is not None


def test_a_dead_emulator_says_its_last_words(fake):
    fake.reset(0)
    with pytest.raises(WorkerLost, match="burned down"):
        fake.step("(up,2)")
    with pytest.raises(UsageError, match="call reset"):
        fake.step("(right,1)")
    fake.reset(0)
    assert fake.step("(right,1)")[1] == 4


def test_a_python_without_the_emulator_is_named_with_what_to_do():
    try:
        import gym_super_mario_bros  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        env = make("super_mario_bros", python=sys.executable)
        with pytest.raises(UsageError, match=r"lacks the emulator .*pip install gym-super-mario-bros"):
            env.reset(0)
    with pytest.raises(UsageError, match="cannot start"):
        make("super_mario_bros", python="/no/such/python").reset(0)


def test_roms_are_known_by_their_checksum_and_a_missing_one_is_named(tmp_path, monkeypatch):
    with pytest.raises(DataError, match="no ROM folder"):
        make("super_mario_bros", rom_folder=tmp_path / "none")
    with pytest.raises(DataError, match=f"Super Mario Bros.*{nes.ROM_SHA1}"):
        make("super_mario_bros", rom_folder=tmp_path)
    (tmp_path / "game.nes").write_bytes(b"NES\x1a" + bytes(12) + b"abc")
    # SHA-1 of b"abc", from FIPS 180: the header does not count.
    known = "a9993e364706816aba3e25717850c26c9cd0d89d"
    with pytest.raises(DataError, match=f"game.nes has {known}"):
        nes.find_rom(tmp_path)
    monkeypatch.setattr(nes, "ROM_SHA1", known)
    assert nes.find_rom(tmp_path).name == "game.nes"
    (tmp_path / "game.nes").write_bytes(b"abc")
    assert nes.find_rom(tmp_path).name == "game.nes"


@pytest.mark.parametrize(
    ("python", "rom_folder"),
    [
        pytest.param(
            PACKAGED,
            None,
            marks=pytest.mark.skipif(not PACKAGED, reason="ASSAY_NES_PYTHON has no gym-super-mario-bros"),
        ),
        pytest.param(
            RETRO, ROMS, marks=pytest.mark.skipif(not (RETRO and ROMS), reason="no ASSAY_RETRO_PYTHON, ASSAY_NES_ROMS")
        ),
    ],
)
def test_the_console_game_scrolls_when_the_runner_runs_and_ends_with_its_lives(python, rom_folder):
    env = make("super_mario_bros", python=python, rom_folder=rom_folder)
    try:
        observation, info = env.reset(0)
        assert observation["image"].shape == (224, 240, 3)
        assert observation["image"].std() > 10
        assert (info["lives"], info["xscrollLo"], info["levelHi"], info["levelLo"]) == (3, 0, 0, 0)
        env.step("(right_b,90)")
        kept, picture, score = env.get_state(), env.image().copy(), env.score
        assert score > 30
        terminated, lives = False, {info["lives"]}
        for _ in range(400):
            _, _, terminated, _, info = env.step("(right_b,20)")
            lives.add(info["lives"])
            if terminated:
                break
        assert terminated
        assert lives == {3, 2, 1, 0}
        env.set_state(kept)
        assert env.score == score
        assert np.array_equal(env.image(), picture)
    finally:
        env.close()
