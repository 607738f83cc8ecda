"""Progress of a run: a bar with rate, cost and time left on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from assay.core.engine import ProgressState

QUIET_SECONDS = 30.0


class Bar:
    """Draws a `ProgressState` on standard error."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._begun_with = 0
        self._last = 0.0

    def start(self, total: int, done: int) -> None:
        """Begin; ``done`` trials stand already."""
        self._begun_with = done
        self._last = time.monotonic()
        if done:
            print(f"  {done} of {total} trials stand already", file=sys.stderr)
        if not sys.stderr.isatty() or done >= total:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("  "),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("{task.fields[cost]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("", total=total, completed=done, rate="", cost="", note="")
        self._bar.start()

    def update(self, state: ProgressState) -> None:
        """Redraw."""
        if self._bar is not None:
            note = f"{state.errors} errors" if state.errors else ""
            note = " ".join([note, *(f"{k}: {v}" for k, v in state.shown.items())]).strip()
            self._bar.update(
                self._task, completed=state.done, rate=self._rate(state), cost=_cost(state), note=note[-60:]
            )
        elif time.monotonic() - self._last > QUIET_SECONDS:
            self._last = time.monotonic()
            self._line(state)

    def finish(self, state: ProgressState) -> None:
        """Take the bar away and leave one line."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        self._line(state)

    def _line(self, state: ProgressState) -> None:
        parts = [f"{state.done}/{state.total} trials", self._rate(state), _cost(state)]
        if state.errors:
            parts.append(f"{state.errors} errors")
        left = state.total - state.done
        speed = (state.done - self._begun_with) / state.seconds if state.seconds else 0.0
        if left > 0 and speed > 0:
            parts.append(f"{left / speed:.0f} s left")
        print("  " + ", ".join(p for p in parts if p), file=sys.stderr)

    def _rate(self, state: ProgressState) -> str:
        done = state.done - self._begun_with
        return f"{done / state.seconds:.3g}/s" if state.seconds > 0 and done else ""


def _cost(state: ProgressState) -> str:
    return f"${state.paid:.3g}" if state.paid else ""
