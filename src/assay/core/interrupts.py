"""Ctrl-C, SIGTERM, SIGHUP while a run has its folder open: heard at any moment, obeyed where nothing is half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

PATIENCE = 2
"""Presses that are obeyed in order; the next one ends the process at once, which loses nothing that was written."""


class Interrupts:
    """Signals of one run, from the making of its folder to its last file.

    While an event loop listens, the first press ends the run after what is in flight, the second (and SIGTERM, SIGHUP)
    drops what is in flight. While nobody listens (planning, folding the journal) the first press waits for its turn,
    the second raises KeyboardInterrupt. Outside the main thread no signal arrives, and all of this does nothing.

    Parameters
    ----------
    path
        The run's folder, for the KeyboardInterrupt.

    Attributes
    ----------
    presses : int
        Signals so far.
    urgent : bool
        Whether what is in flight is to be dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.presses = 0
        self.urgent = False
        self.listener: Callable[[], None] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                # Whoever started us with the signal ignored (nohup, a shell's background) wants it so.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.presses += 1
        self.urgent = self.urgent or number != signal.SIGINT or self.presses > 1
        if self.presses > PATIENCE:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        elif self.listener is not None:
            self.listener()
        elif self.presses > 1:
            raise KeyboardInterrupt(str(self.path))
