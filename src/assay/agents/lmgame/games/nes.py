"""The real Super Mario Bros, in an emulator that another process runs: nothing of the game ships with assay."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from assay.agents.lmgame.games.console import ConsoleEngine
from assay.core.errors import DataError, UsageError, WorkerLost

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROM_NAME = "Super Mario Bros. (World).nes"
ROM_SHA1 = "facee9c577a5262dbe33ac4930bb0b58c8c037f7"
PYTHON_VARIABLE = "ASSAY_NES_PYTHON"
_WORKER = Path(__file__).with_name("nes_worker.py")


def rom_checksum(path: Path) -> str:
    """SHA-1 of a NES ROM without the 16 bytes of its iNES header."""
    content = path.read_bytes()
    return hashlib.sha1(content[16:] if content[:4] == b"NES\x1a" else content, usedforsecurity=False).hexdigest()


def find_rom(folder: str | Path) -> Path:
    """The game's ROM in a folder, known by its checksum, whatever its name.

    Raises
    ------
    DataError
        No such folder, or no file in it has the checksum.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"There is no ROM folder {folder}; give the folder that holds {ROM_NAME!r}.")
    others = []
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() == ".nes" and path.is_file():
            found = rom_checksum(path)
            if found == ROM_SHA1:
                return path
            others.append(f"{path.name} has {found}")
    seen = f"; {'; '.join(others[:3])}" if others else ""
    raise DataError(
        f"No file in {folder} is {ROM_NAME!r} (SHA-1 without header {ROM_SHA1}){seen}. Put your own copy of it there."
    )


class SuperMarioBros(ConsoleEngine):
    """Level 1-1 of the console game; see `ConsoleEngine` for actions and score.

    Parameters
    ----------
    rom_folder : path or None
        Folder with the user's own ROM, played by stable-retro. None: the emulator and game that the package
        gym-super-mario-bros holds.
    python : path or None
        Interpreter that has the emulator's package. None: the environment variable ASSAY_NES_PYTHON, then this
        interpreter. gym-super-mario-bros 7.4.0 needs ``numpy<2``, hence an environment of its own.
    paper_compatible : bool
        See `ConsoleEngine`.
    """

    name: ClassVar[str] = "super_mario_bros"

    def __init__(
        self,
        rom_folder: str | Path | None = None,
        python: str | Path | None = None,
        paper_compatible: bool = False,
    ) -> None:
        super().__init__(paper_compatible)
        self.rom = find_rom(rom_folder) if rom_folder is not None else None
        self.python = str(python or os.environ.get(PYTHON_VARIABLE) or sys.executable)
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self._memory: dict[str, int] = {}
        self._finished = False
        self._frame: NDArray[np.uint8] = np.zeros((224, 240, 3), np.uint8)
        # What was pressed since the start, run-length coded: emulators are deterministic, so this is the state.
        self._pressed: list[list[Any]] = []

    def start(self) -> None:
        if self._process is None:
            self._launch()
        self._pressed = []
        self._ask({"do": "reset"})

    def _launch(self) -> None:
        command = [self.python, "-u", str(_WORKER), *([str(self.rom)] if self.rom else [])]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
        except OSError as error:
            raise UsageError(
                f"super_mario_bros: cannot start {self.python}: {error.strerror}; give python=...."
            ) from error

    def _ask(self, request: Mapping[str, Any]) -> list[tuple[int, int]]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise UsageError("super_mario_bros: no game under way; call reset first.")
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = b""
        if not line:
            self._fail()
        reply = json.loads(line)
        height, width, channels = reply["shape"]
        content = process.stdout.read(height * width * channels)
        if len(content) != height * width * channels:
            self._fail()
        self._frame = np.frombuffer(content, np.uint8).reshape(height, width, channels).copy()
        self._memory, self._finished = reply["memory"], reply["finished"]
        return [(high, low) for high, low in reply["scroll"]]

    def _fail(self) -> None:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else "it said nothing"
        self.close()
        if "ModuleNotFoundError" in last or "ImportError" in last:
            package = "stable-retro" if self.rom else "gym-super-mario-bros==7.4.0 'numpy<2'"
            raise UsageError(
                f"super_mario_bros: {self.python} lacks the emulator ({last}); make an environment with "
                f"pip install {package} and give its interpreter as python=... or {PYTHON_VARIABLE}."
            )
        raise WorkerLost(f"super_mario_bros: the emulator's process ended: {last}.")

    def run(self, frames: Sequence[frozenset[str]]) -> list[tuple[int, int]]:
        pressed = [sorted(buttons) for buttons in frames]
        scroll = self._ask({"do": "frames", "frames": pressed})
        for buttons in pressed[: len(scroll)]:
            if self._pressed and self._pressed[-1][0] == buttons:
                self._pressed[-1][1] += 1
            else:
                self._pressed.append([buttons, 1])
        return scroll

    def memory(self) -> dict[str, int]:
        return dict(self._memory)

    @property
    def over(self) -> bool:
        return self._memory.get("lives") == 0 or self._finished

    @property
    def finished(self) -> bool:
        return self._finished

    def text(self) -> str:
        memory = self._memory
        return "\n".join(f"{name}: {memory[name]}" for name in ("lives", "time", "coins", "score")) + (
            f"\nfurthest x: {self.furthest}"
        )

    def image(self) -> NDArray[np.uint8]:
        return self._frame

    def get_state(self) -> dict[str, Any]:
        """The buttons pressed so far; restoring plays them again."""
        return {"pressed": [list(part) for part in self._pressed], "furthest": self.furthest}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.start()
        frames = [frozenset(buttons) for buttons, count in state["pressed"] for _ in range(count)]
        if frames:
            self.run(frames)
        self.furthest = state["furthest"]

    def close(self) -> None:
        """End the emulator's process."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.close()
