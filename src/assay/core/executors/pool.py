"""Worker processes that can be killed: calls with time and memory limits, one bad call costs one worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, TrialTimeout, WorkerLost

# Set before numpy or torch is imported: one thread a worker, or two busy workers slow each other down tenfold.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "POLARS_MAX_THREADS",
)
MEMORY_POLL_SECONDS = 0.05
START_SECONDS = 120.0

_length = struct.Struct("!Q")


def pack(message: Any) -> bytes:
    """A message between this process and its own workers, length first."""
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _length.pack(len(data)) + data


class Worker:
    """One worker process and the socket to it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        devices: str | None = None,
    ) -> None:
        self.process = process
        self.reader = reader
        self.writer = writer
        self.devices = devices
        self.killed_for: str | None = None

    @classmethod
    async def start(cls, log: Path | None, devices: str | None = None) -> Worker:
        """Spawn a fresh interpreter; nothing of this process is inherited but its environment.

        ``devices`` are the GPUs that it sees; None = all.
        """
        ours, theirs = socket.socketpair()
        environment = {**os.environ, **{name: os.environ.get(name, "1") for name in THREAD_VARIABLES}}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        if devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = devices
        with contextlib.ExitStack() as stack:
            stack.callback(theirs.close)
            sink: Any = subprocess.DEVNULL
            if log is not None:
                sink = stack.enter_context(log.open("ab"))
            try:
                process = subprocess.Popen(
                    [sys.executable, "-m", "assay.core.executors.worker", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    pass_fds=[theirs.fileno()],
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise AssayError(
                    f"A worker process could not be started ({error.strerror}); "
                    "give fewer workers or free memory, and resume."
                ) from error
        reader, writer = await asyncio.open_connection(sock=ours, limit=2**26)
        return cls(process, reader, writer, devices)

    async def send(self, message: Any) -> None:
        await self.send_packed(pack(message))

    async def send_packed(self, data: bytes) -> None:
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError:
            raise WorkerLost(await self._epitaph()) from None

    async def receive(self) -> Any:
        """The next message; WorkerLost when the process is gone."""
        try:
            (size,) = _length.unpack(await self.reader.readexactly(_length.size))
            # Only our own worker writes to this socket pair.
            return pickle.loads(await self.reader.readexactly(size))  # noqa: S301
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerLost(await self._epitaph()) from None

    async def _epitaph(self) -> str:
        if self.killed_for:
            return self.killed_for
        for _ in range(100):
            code = self.process.poll()
            if code is not None:
                break
            await asyncio.sleep(0.01)
        else:
            return "The worker process closed its channel."
        if code < 0:
            name = signal.Signals(-code).name if -code in signal.Signals._value2member_map_ else str(-code)
            hint = " (often: out of memory)" if -code == signal.SIGKILL else ""
            return f"The worker process was ended by {name}{hint}."
        return f"The worker process exited with code {code} in the middle of a trial."

    def kill(self, reason: str | None = None) -> None:
        """End the worker and every process that it started."""
        self.killed_for = self.killed_for or reason
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def memory_mb(self) -> float:
        """Resident memory now."""
        try:
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return 0.0
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    async def close(self, grace: float = 5.0) -> None:
        """Ask the worker to end (it leaves its setups), then make sure."""
        if self.process.poll() is None:
            with contextlib.suppress(Exception):
                await self.send(("stop",))
            for _ in range(int(grace / 0.02)):
                if self.process.poll() is not None:
                    break
                await asyncio.sleep(0.02)
        self.kill()
        self.writer.close()
        with contextlib.suppress(Exception):
            await self.writer.wait_closed()
        await asyncio.to_thread(self.process.wait)


@contextlib.asynccontextmanager
async def watched(worker: Worker, *, seconds: float | None, memory_gb: float | None, what: str):
    """Kill ``worker`` when the block runs past its time or the process past its memory."""
    loop = asyncio.get_running_loop()
    timer = None
    if seconds is not None:
        timer = loop.call_later(seconds, worker.kill, f"{what} ran past its limit of {seconds:g} s and was killed.")
    guard = asyncio.create_task(_guard_memory(worker, memory_gb, what)) if memory_gb is not None else None
    try:
        yield
    except WorkerLost as lost:
        if "past its limit of" in str(lost) and str(lost).endswith("s and was killed."):
            raise TrialTimeout(str(lost)) from None
        raise
    finally:
        if timer is not None:
            timer.cancel()
        if guard is not None:
            guard.cancel()


async def _guard_memory(worker: Worker, memory_gb: float, what: str) -> None:
    while True:
        used = worker.memory_mb()
        if used > memory_gb * 1024:
            worker.kill(f"{what} used {used / 1024:.2f} GB, more than its {memory_gb:g} GB, and was killed.")
            return
        await asyncio.sleep(MEMORY_POLL_SECONDS)


class Pool:
    """Idle workers, started when needed, at most ``size`` at a time.

    Parameters
    ----------
    size
        Worker processes.
    log
        File that takes what workers print.
    devices
        GPUs, one entry a worker, in the notation of CUDA_VISIBLE_DEVICES; () = every worker sees all.
    """

    def __init__(self, size: int, log: Path | None = None, devices: Sequence[str] = ()) -> None:
        self.size = max(1, size)
        self._log = log
        self._devices = list(devices)
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._slots = asyncio.Semaphore(self.size)

    @contextlib.asynccontextmanager
    async def worker(self):
        """Borrow a worker; one that died or was left in the middle of a call is replaced."""
        async with self._slots:
            worker = self._idle.pop() if self._idle else await self._started()
            clean = False
            try:
                yield worker
                clean = True
            except BaseException as error:
                # An ordinary error that the worker reported leaves the channel clean.
                clean = getattr(error, "channel_clean", False)
                raise
            finally:
                if clean and worker.process.poll() is None:
                    self._idle.append(worker)
                else:
                    worker.kill()
                    self._all.discard(worker)
                    if worker.devices is not None:
                        self._devices.append(worker.devices)
                    await asyncio.shield(worker.close(grace=0))

    async def _started(self) -> Worker:
        worker = await Worker.start(self._log, self._devices.pop(0) if self._devices else None)
        self._all.add(worker)
        return worker

    async def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None = None) -> Any:
        """``fn(*args)`` in a worker; see `Context.compute`."""
        what = f"{getattr(fn, '__qualname__', fn)}"
        message = pack(("call", fn, args))
        async with self.worker() as worker, watched(worker, seconds=timeout, memory_gb=None, what=what):
            await worker.send_packed(message)
            kind, value = await worker.receive()
            if kind == "raised":
                value.channel_clean = True
                raise value
            return value

    async def close(self) -> None:
        """End all workers."""
        workers, self._all, self._idle = self._all, set(), []
        await asyncio.gather(*(w.close() for w in workers))
