"""An event loop in a thread of its own: for connections that outlive the loops and threads that use them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """``with BackgroundLoop() as loop: loop.run(coroutine)``, from any thread; `arun` from any other event loop.

    A tool's connection that is opened here stays open whether its calls come from one run loop, from several, or from
    threads without one (an environment's ``step``).
    """

    def __init__(self, name: str = "assay tools") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def __enter__(self) -> BackgroundLoop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """The coroutine's result; the calling thread waits.

        Raises
        ------
        TimeoutError
            It took longer than ``timeout`` seconds; it is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise TimeoutError(f"no result within {timeout:g} seconds") from None

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; the calling loop goes on meanwhile. Cancelling it cancels the work."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """Cancel what still runs, and end the thread. A second call does nothing."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.wait(left, timeout=10))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
