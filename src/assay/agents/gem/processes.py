"""Environments in processes: steps that compute use all cores, and a crash costs one worker."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from assay.agents.gem.env import EnvError
from assay.agents.gem.vector import AutoresetMode, Call, EnvCrash, EnvFn, Result, Slot, VectorEnv

START_SECONDS = 120.0
"""How long a worker may take to make its environments."""


class ProcessVectorEnv(VectorEnv):
    """Worker processes, each with a share of the environments.

    Environments of one worker step one after the other. With ``seconds`` each has a worker of its own, so that one
    which is ended takes no other along. ``env_fns`` must pickle (``functools.partial`` of a module's function, no
    lambda), and a script that makes this must guard its own start with ``if __name__ == "__main__"``.

    Parameters
    ----------
    workers
        Processes; None = one a core, at most one an environment.
    """

    def __init__(self, *args: Any, workers: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if workers is not None and workers < 1:
            raise EnvError(f"workers is {workers}; at least 1 is needed.")
        if self.seconds is not None and workers is not None and workers < self.num_envs:
            raise EnvError("With seconds= every environment needs a worker of its own; leave workers out.")
        count = self.num_envs if self.seconds is not None else workers or os.cpu_count() or 1
        count = min(count, self.num_envs)
        self._home = [i * count // self.num_envs for i in range(self.num_envs)]
        self._workers: list[_Worker] = []
        self._lost: dict[int, EnvCrash] = {}
        try:
            for w in range(count):
                self._workers.append(_Worker(self._share(w), self.autoreset_mode))
            for worker in self._workers:
                worker.ready()
        except BaseException:
            self._close()
            raise

    def _share(self, worker: int) -> dict[int, EnvFn]:
        return {i: self.env_fns[i] for i in range(self.num_envs) if self._home[i] == worker}

    def _call(self, calls: Sequence[Call]) -> list[Result | BaseException]:
        out: list[Any] = [None] * len(calls)
        shares: dict[int, list[int]] = {}
        for place, call in enumerate(calls):
            lost = self._lost.pop(call[0], None)
            if lost is not None and call[1] == "step":
                out[place] = lost
            else:
                shares.setdefault(self._home[call[0]], []).append(place)
        begun = time.monotonic()
        sent = {w: self._workers[w].send([calls[p] for p in places]) for w, places in shares.items()}
        for w, places in shares.items():
            end = None if self.seconds is None else begun + self.seconds
            found = self._workers[w].receive(end) if sent[w] else None
            if found is None:
                found = self._replaced(w, [calls[p][0] for p in places])
            for place, result in zip(places, found):
                out[place] = result
        return out

    def _replaced(self, w: int, called: Sequence[int]) -> list[EnvCrash]:
        """A new worker for one that hangs or is gone; what befell each environment that was called."""
        late = self._workers[w].alive()
        code = self._workers[w].end()
        share = self._share(w)
        self._workers[w] = _Worker(share, self.autoreset_mode)
        self._workers[w].ready()
        beside = f", which held {len(share)} environments" if len(share) > 1 else ""
        crash = {
            i: EnvCrash(f"Environment {i} ({self.env_ids[i]}): its worker process{beside}, ended (exit code {code}).")
            for i in share
        }
        self._lost |= {i: crash[i] for i in share if i not in called}
        return [self._late(i) if late else crash[i] for i in called]

    def _renew(self, index: int) -> None:
        (result,) = self._call([(index, "renew", (), {})])
        if isinstance(result, BaseException):
            raise self._crash(index, result) from result

    def _close(self) -> None:
        for worker in self._workers:
            worker.end(gently=True)


class _Worker:
    """One process and the pipe to it."""

    def __init__(self, share: dict[int, EnvFn], mode: AutoresetMode) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, share, mode), daemon=True)
        try:
            self.process.start()
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise EnvError(
                f"An environment's maker cannot be sent to a process ({error}); use functools.partial of a function at "
                "the top of a module, not a lambda."
            ) from error
        theirs.close()

    def ready(self) -> None:
        """Wait until its environments are made."""
        found = self.receive(time.monotonic() + START_SECONDS)
        if found is None:
            alive, code = self.alive(), self.end()
            why = (
                f"did not start within {START_SECONDS:g} seconds" if alive else f"ended at its start (exit code {code})"
            )
            raise EnvCrash(f"A worker process {why}.")
        if isinstance(found[0], BaseException):
            self.end()
            raise found[0]

    def send(self, calls: Sequence[Call]) -> bool:
        """False where the process is gone."""
        try:
            self.pipe.send(calls)
        except (BrokenPipeError, ConnectionError, OSError):
            return False
        return True

    def receive(self, end: float | None) -> list[Any] | None:
        """Its results; None = too late, or gone."""
        try:
            if not self.pipe.poll(None if end is None else max(end - time.monotonic(), 0.0)):
                return None
            return self.pipe.recv()
        except (EOFError, ConnectionError, OSError):
            self.process.join(5)
            return None

    def alive(self) -> bool:
        return self.process.is_alive()

    def end(self, gently: bool = False) -> int | None:
        """End the process; its exit code."""
        if gently and self.send([]):
            self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
        self.process.join(5)
        self.pipe.close()
        return self.process.exitcode


def serve(pipe: Connection, share: dict[int, EnvFn], mode: AutoresetMode) -> None:
    """A worker: make the environments, then carry out calls until told to end."""
    try:
        slots = {i: Slot(fn, mode) for i, fn in share.items()}
    except Exception as error:
        pipe.send([_sendable(error)])
        return
    pipe.send([None])
    while True:
        try:
            calls = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            break
        if not calls:
            break
        out: list[Any] = []
        for index, method, args, kwargs in calls:
            try:
                if method == "renew":
                    slots[index] = Slot(share[index], mode)
                    out.append(Result("", 0.0, False, False, {}))
                else:
                    out.append(getattr(slots[index], method)(*args, **kwargs))
            except Exception as error:
                out.append(_sendable(error))
        try:
            pipe.send(out)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            pipe.send([EnvCrash(f"What the environment gave cannot be sent between processes ({error}).")] * len(out))
    for slot in slots.values():
        slot.env.close()


def _sendable(error: Exception) -> Exception:
    """The error, or its text where it does not survive pickling."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - what this process has just written
    except Exception:
        return EnvCrash(f"{type(error).__name__}: {error}")
    return error
