"""Grading mathematical answers in processes that can be killed: symbolic algebra may take for ever.

No signal is used, so graders work in threads. The workers are shared by all environments of a process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from assay.core.errors import AssayError

_START_SECONDS = 120.0


class Verdict(NamedTuple):
    """Whether the answer is right, and how that was found: text, algebra, time limit, error."""

    equal: bool
    how: str


class _Worker:
    """One process that compares pairs of answers, a line of JSON each way."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        # Loading the algebra takes seconds and is no part of any answer's time.
        if self._line(_START_SECONDS) is None:
            self.kill()
            raise AssayError("The process that grades answers did not start; try the call again.")

    def _line(self, seconds: float) -> bytes | None:
        assert self.process.stdout is not None
        end = time.monotonic() + seconds
        line = b""
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            part = self.process.stdout.read1(1 << 16)  # type: ignore[union-attr]
            if not part:
                return None
            line += part
        return line

    def compare(self, gold: str, answer: str, seconds: float) -> Verdict | None:
        """The verdict; None when time ran out or the process died (it has to be replaced then)."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([gold, answer]).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return None
        line = self._line(seconds)
        return None if line is None else Verdict(*json.loads(line))

    def kill(self) -> None:
        """End the process."""
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


class Grader:
    """Compares answers in up to ``workers`` processes, which start when they are needed.

    Parameters
    ----------
    workers
        Processes at most; further calls wait.
    """

    def __init__(self, workers: int = 2) -> None:
        self._free: list[_Worker] = []
        self._slots = threading.BoundedSemaphore(workers)
        self._lock = threading.Lock()

    def equal(self, gold: str | Sequence[str], answer: str, *, seconds: float = 1.0) -> Verdict:
        """Whether ``answer`` equals the gold answer, or any of several.

        Parameters
        ----------
        gold, answer
            Mathematics in LaTeX or plain text.
        seconds
            For all golds together; past it the comparison is killed and counts as not equal.
        """
        golds = [gold] if isinstance(gold, str) else list(gold)
        if any(item.strip() == answer.strip() for item in golds):
            return Verdict(True, "text")
        end, how = time.monotonic() + seconds, "algebra"
        with self._slots:
            for item in golds:
                with self._lock:
                    worker = self._free.pop() if self._free else None
                if worker is None:
                    begun = time.monotonic()
                    worker = _Worker()
                    end += time.monotonic() - begun
                verdict = worker.compare(item, answer, max(0.0, end - time.monotonic()))
                if verdict is None:
                    over = worker.process.poll() is None
                    worker.kill()
                    if over:
                        return Verdict(False, "time limit")
                    how = "error"
                    continue
                with self._lock:
                    self._free.append(worker)
                how = verdict.how
                if verdict.equal:
                    return verdict
        return Verdict(False, how)

    def close(self) -> None:
        """End the processes; a later call starts new ones."""
        with self._lock:
            workers, self._free = self._free, []
        for worker in workers:
            worker.kill()


def shared_grader() -> Grader:
    """The grader that all environments of this process share; another one after a fork."""
    return _grader(os.getpid())


@lru_cache(maxsize=1)
def _grader(_: int) -> Grader:
    return Grader()


def _serve() -> None:
    from assay.core.answers import math_equal

    math_equal("\\sqrt{8}", "2\\sqrt{2}")
    print("ready", flush=True)
    for line in sys.stdin:
        gold, answer = json.loads(line)
        try:
            verdict = [math_equal(gold, answer), "algebra"]
        except Exception:
            # Whatever a model writes must not end the grader: what cannot be compared is not equal.
            verdict = [False, "error"]
        print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    _serve()
