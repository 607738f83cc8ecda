"""Limiter: how many requests one provider is sent at a time, halved when it complains and grown back."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from typing import Protocol


class Clock(Protocol):
    """Time as the request engine sees it, so that tests need not wait."""

    def now(self) -> float:
        """Seconds that only grow."""
        ...

    def wall(self) -> float:
        """Seconds since 1970, for dates in headers."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The real one."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Limiter:
    """At most ``ceiling`` requests in flight; fewer after overload (additive increase, multiplicative decrease).

    Starts at the ceiling. One overload halves the limit once, however many of the requests that were in flight with
    it fail too. Each success gives back 1/limit, and at least 1/20, of a place: one place a round trip when few are
    left, 5 % a round trip when there are many. Not thread-safe: it lives on one event loop.

    Attributes
    ----------
    limit : float
        Places now, between 1 and ``ceiling``.
    active, peak : int
        Requests in flight now, and the most there were.
    """

    __slots__ = ("_clock", "_epoch", "_waiting", "active", "ceiling", "limit", "peak", "resume_at")

    def __init__(self, ceiling: int, clock: Clock) -> None:
        self.ceiling = ceiling
        self.limit = float(ceiling)
        self.active = 0
        self.peak = 0
        self.resume_at = float("-inf")
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._epoch = 0

    async def acquire(self) -> int:
        """Wait for a place; returns what `release` wants back."""
        if self.active < int(self.limit) and not self._waiting:
            self._enter()
        else:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._leave()
                else:
                    with suppress(ValueError):
                        self._waiting.remove(turn)
                raise
        try:
            # A server that named a time is left alone by everybody until then, not only by the call it told.
            while (wait := self.resume_at - self._clock.now()) > 0:
                await self._clock.sleep(wait)
        except BaseException:
            self._leave()
            raise
        return self._epoch

    def release(self, epoch: int, *, good: bool = False, overload: bool = False) -> None:
        """Give the place back and say how it went; neither good nor overload = no lesson."""
        if overload and epoch == self._epoch:
            self._epoch += 1
            self.limit = max(1.0, min(self.limit, self.active) / 2)
        elif good and self.limit < self.ceiling:
            self.limit = min(float(self.ceiling), self.limit + max(1 / self.limit, 0.05))
        self._leave()

    def pause(self, seconds: float) -> None:
        """Send nothing for ``seconds``."""
        self.resume_at = max(self.resume_at, self._clock.now() + seconds)

    def _enter(self) -> None:
        self.active += 1
        if self.active > self.peak:
            self.peak = self.active

    def _leave(self) -> None:
        self.active -= 1
        while self._waiting and self.active < int(self.limit):
            turn = self._waiting.popleft()
            if not turn.done():
                self._enter()
                turn.set_result(None)
