"""Many environments at once: one after the other, in threads, or in processes. One interface, equal results.

Threads help where a step waits (tools, search, servers, programs); processes help where it computes.

References
----------
Liu et al. GEM: A Gym for Agentic LLMs. arXiv 2510.01051. Autoreset modes as in Gymnasium 1.x.
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from assay.agents.gem.env import Env, EnvError
from assay.agents.gem.registry import make
from assay.core.errors import AssayError, unknown_name

if TYPE_CHECKING:
    from typing import Self

    from assay.agents.gem.wrappers import WrapperFn

EnvFn = Callable[[], Env]
Call = tuple[int, str, tuple[Any, ...], dict[str, Any]]
"""Which environment, method of its `Slot`, arguments."""

Reset = tuple[list[Any], list[dict[str, Any]]]
VectorStep = tuple[list[Any], np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]
OnCrash = Literal["raise", "truncate"]


class AutoresetMode(Enum):
    """What happens after an episode's last step.

    ``SAME_STEP``: the same call resets; observation and info are those of the new episode, the last ones are in
    ``info["final_obs"]`` and ``info["final_info"]``. ``NEXT_STEP``: the next call ignores its action and returns the
    reset with reward 0. ``DISABLED``: `reset` is the caller's.
    """

    SAME_STEP = "SameStep"
    NEXT_STEP = "NextStep"
    DISABLED = "Disabled"


class EnvCrash(AssayError, RuntimeError):
    """An environment raised, hung or took its process with it; the message says which and how."""


class Result(NamedTuple):
    """What one environment gave in one call."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Slot:
    """One environment with its autoreset: all that a worker needs."""

    def __init__(self, make_env: EnvFn, mode: AutoresetMode) -> None:
        self.env = make_env()
        self.mode = mode
        self.over = False

    def reset(self, seed: int | None = None, **kwargs: Any) -> Result:
        """Begin an episode."""
        observation, info = self.env.reset(seed, **kwargs)
        self.over = False
        return Result(observation, 0.0, False, False, dict(info))

    def step(self, action: Any) -> Result:
        """One step, and the reset that belongs to it."""
        if self.over and self.mode is AutoresetMode.NEXT_STEP:
            return self.reset()
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.over = bool(terminated or truncated)
        if self.over and self.mode is AutoresetMode.SAME_STEP:
            final = {"final_obs": observation, "final_info": info}
            observation, info = self.env.reset()
            info = {**info, **final}
            self.over = False
        return Result(observation, float(reward), bool(terminated), bool(truncated), dict(info))

    def expect_reset(self) -> Result:
        """Take the next step for the reset of NEXT_STEP."""
        self.over = True
        return Result("", 0.0, False, False, {})


class VectorEnv(ABC):
    """Common part of the three: what actions mean, and how results are put together.

    Parameters
    ----------
    env_ids
        A name for each environment, for messages.
    env_fns
        What makes each; called once, and again when an environment is made anew after a crash.
    autoreset_mode
        See `AutoresetMode`.
    seconds
        Time limit of one call of one environment; None = none. Not for `SyncVectorEnv`, which cannot interrupt.
    on_crash
        An environment that raises, or is too slow: ``raise`` `EnvCrash`, or ``truncate`` its episode: reward 0,
        truncated, ``info["error"]``, and a new environment in its place; the others go on. Misuse raises either way.
    """

    def __init__(
        self,
        env_ids: Sequence[str],
        env_fns: Sequence[EnvFn],
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        *,
        seconds: float | None = None,
        on_crash: OnCrash = "raise",
    ) -> None:
        if not env_fns or len(env_ids) != len(env_fns):
            raise EnvError(
                f"There are {len(env_ids)} env_ids and {len(env_fns)} env_fns; one of each is needed, from 1."
            )
        if not isinstance(autoreset_mode, AutoresetMode):
            raise EnvError(f"autoreset_mode is {autoreset_mode!r}; it must be a member of AutoresetMode.")
        if on_crash not in ("raise", "truncate"):
            raise EnvError(str(unknown_name("on_crash", str(on_crash), ["raise", "truncate"])))
        if seconds is not None and not seconds > 0:
            raise EnvError(f"seconds is {seconds}; a time limit is above 0.")
        self.env_ids = list(env_ids)
        self.env_fns = list(env_fns)
        self.num_envs = len(self.env_fns)
        self.autoreset_mode = autoreset_mode
        self.seconds = seconds
        self.on_crash = on_crash
        self._begun = [False] * self.num_envs
        self._closed = False

    # -- what the three define --------------------------------------------------------------------------------------

    @abstractmethod
    def _call(self, calls: Sequence[Call]) -> list[Result | BaseException]:
        """Call a method of the slots named; a result or what went wrong, in order."""

    @abstractmethod
    def _renew(self, index: int) -> None:
        """Put a new environment in the place of one that crashed."""

    @abstractmethod
    def _close(self) -> None:
        """Close all environments."""

    # -- the interface ----------------------------------------------------------------------------------------------

    def reset(self, seed: int | Sequence[int | None] | None = None, **kwargs: Mapping[str, Any]) -> Reset:
        """Begin an episode in every environment.

        Parameters
        ----------
        seed
            s gives environment i the seed s + i; a list gives one each.
        kwargs
            ``env{i}_kwargs``: arguments of that environment's reset.
        """
        self._open()
        seeds = self._seeds(seed)
        own = self._own(kwargs)
        results = self._call([(i, "reset", (seeds[i],), own.get(i, {})) for i in range(self.num_envs)])
        for i, result in enumerate(results):
            if isinstance(result, BaseException):
                raise self._crash(i, result) from result
            self._begun[i] = True
        kept: list[Any] = results
        return [r.observation for r in kept], [r.info for r in kept]

    def step(self, actions: Sequence[Any] | Mapping[int, Any]) -> VectorStep:
        """Step every environment, or those named.

        Parameters
        ----------
        actions
            One an environment, or ``{index: action}``: only those advance, and results come in that order.

        Returns
        -------
        observations, rewards, terminated, truncated, infos
            Lists and arrays (float64, bool) of one entry an action. Nothing in them is shared with an environment.

        Raises
        ------
        EnvError
            Not one action an environment, an index that does not exist, no reset before.
        EnvCrash
            See ``on_crash``.
        """
        self._open()
        if not isinstance(actions, Mapping):
            if isinstance(actions, str) or len(actions) != self.num_envs:
                said = "one text" if isinstance(actions, str) else f"{len(actions)} action(s)"
                raise EnvError(
                    f"There are {self.num_envs} environments and {said}; give one each, or {{index: action}}."
                )
            actions = dict(enumerate(actions))
        for i in actions:
            if isinstance(i, bool) or not isinstance(i, (int, np.integer)) or not 0 <= i < self.num_envs:
                raise EnvError(f"There is no environment {i!r}; indices go from 0 to {self.num_envs - 1}.")
            if not self._begun[i]:
                raise EnvError(f"Environment {i} ({self.env_ids[i]}) was not reset; call reset first.")
        order = [int(i) for i in actions]
        results = self._call([(i, "step", (action,), {}) for i, action in zip(order, actions.values())])
        # Misuse first: it must not hide behind what happened to others.
        for result in results:
            if isinstance(result, EnvError):
                raise result
        kept = [
            self._truncated(i, result) if isinstance(result, BaseException) else result
            for i, result in zip(order, results)
        ]
        return (
            [r.observation for r in kept],
            np.array([r.reward for r in kept], float),
            np.array([r.terminated for r in kept], bool),
            np.array([r.truncated for r in kept], bool),
            [r.info for r in kept],
        )

    def close(self) -> None:
        """Close all environments; may be called twice."""
        if not self._closed:
            self._closed = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- parts ------------------------------------------------------------------------------------------------------

    def _truncated(self, index: int, error: BaseException) -> Result:
        crash = self._crash(index, error)
        if self.on_crash == "raise":
            raise crash from error
        self._renew(index)
        (result,) = self._call([(index, "reset", (None,), {})])
        if isinstance(result, BaseException):
            raise self._crash(index, result) from result
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            info = {**result.info, "error": str(crash), "final_obs": "", "final_info": {"error": str(crash)}}
            return Result(result.observation, 0.0, False, True, info)
        # The episode is over, and the new environment waits: in NEXT_STEP its next call is the reset.
        self._call([(index, "expect_reset", (), {})])
        return Result("", 0.0, False, True, {"error": str(crash)})

    def _crash(self, index: int, error: BaseException) -> EnvCrash:
        if isinstance(error, EnvCrash):
            return error
        return EnvCrash(f"Environment {index} ({self.env_ids[index]}): {type(error).__name__}: {error}")

    def _late(self, index: int) -> EnvCrash:
        return EnvCrash(f"Environment {index} ({self.env_ids[index]}) took longer than its {self.seconds:g} seconds.")

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
            if seed < 0:
                raise EnvError(f"seed is {seed}; it must be an integer from 0.")
            return [int(seed) + i for i in range(self.num_envs)]
        if not isinstance(seed, Sequence) or isinstance(seed, str) or len(seed) != self.num_envs:
            raise EnvError(f"seed is {seed!r}; give an integer, or a list of {self.num_envs}.")
        return list(seed)

    def _own(self, kwargs: Mapping[str, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
        names = {f"env{i}_kwargs": i for i in range(self.num_envs)}
        for name in kwargs:
            if name not in names:
                raise EnvError(f"reset has no argument {name!r}; those of environment 0 are env0_kwargs={{...}}.")
        return {names[name]: dict(value) for name, value in kwargs.items()}

    def _open(self) -> None:
        if self._closed:
            raise EnvError("The vector environment is closed.")


class _Here(VectorEnv):
    """Environments that live in this process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.slots = [Slot(fn, self.autoreset_mode) for fn in self.env_fns]

    @property
    def envs(self) -> list[Env]:
        """The environments."""
        return [slot.env for slot in self.slots]

    def _renew(self, index: int) -> None:
        with suppress(Exception):  # it crashed already; what it holds is let go as far as it can be
            self.slots[index].env.close()
        self.slots[index] = Slot(self.env_fns[index], self.autoreset_mode)

    def _close(self) -> None:
        for slot in self.slots:
            slot.env.close()

    @staticmethod
    def _one(slot: Slot, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Result | BaseException:
        try:
            return _apart(getattr(slot, method)(*args, **kwargs))
        except Exception as error:
            return error


def _apart(result: Result) -> Result:
    """A copy that shares nothing; texts and numbers need none."""
    observation = result.observation
    if not isinstance(observation, str):
        observation = copy.deepcopy(observation)
    return Result(observation, result.reward, result.terminated, result.truncated, copy.deepcopy(result.info))


class SyncVectorEnv(_Here):
    """One environment after the other."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.seconds is not None:
            raise EnvError("SyncVectorEnv cannot interrupt an environment; use threads or processes with seconds=.")

    def _call(self, calls: Sequence[Call]) -> list[Result | BaseException]:
        return [self._one(self.slots[call[0]], *call[1:]) for call in calls]


class _Round:
    """What the threads of one call give. The caller is woken once, by the last of them, not once a thread."""

    def __init__(self, count: int) -> None:
        self.results: list[Any] = [None] * count
        self._left = count
        self._counting = Lock()
        self._over = Lock()
        if count:
            self._over.acquire()

    def run(self, place: int, fn: Callable[[], Any]) -> None:
        """The result of a call, or what it raised, into its place."""
        try:
            self.results[place] = fn()
        except BaseException as error:
            self.results[place] = error
        with self._counting:
            self._left -= 1
            last = not self._left
        if last:
            self._over.release()

    def wait(self, seconds: float | None) -> None:
        """Until all are there, or the time is up."""
        self._over.acquire(timeout=-1 if seconds is None else seconds)


class AsyncVectorEnv(_Here):
    """As many threads as environments, for steps that wait.

    All threads take from one queue: where steps are short, one of them does many without handing over to another.
    An environment that runs past ``seconds`` cannot be ended: its thread is left to itself, and no longer listened to.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._work: SimpleQueue[tuple[int, Slot, Callable[[], None]] | None] = SimpleQueue()
        self._turns = [Lock() for _ in self.slots]
        self._late_now: set[int] = set()
        self._threads = [self._thread() for _ in self.slots]

    def _thread(self) -> Thread:
        # A daemon: one that hangs does not keep the program from ending.
        thread = Thread(target=self._serve, name="gem env", daemon=True)
        thread.start()
        return thread

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            index, slot, run = item
            with self._turns[index]:  # after a call that was too late the next one waits for its end
                run()
            if self.slots[index] is not slot:  # it was replaced meanwhile, and so was this thread
                with suppress(Exception):
                    slot.env.close()
                return

    def _call(self, calls: Sequence[Call]) -> list[Result | BaseException]:
        this = _Round(len(calls))
        for place, (index, *call) in enumerate(calls):
            slot = self.slots[index]
            self._work.put((index, slot, partial(this.run, place, partial(self._one, slot, *call))))
        this.wait(self.seconds)
        out: list[Result | BaseException] = []
        for call, found in zip(calls, list(this.results)):
            if found is None:
                self._late_now.add(call[0])
                found = self._late(call[0])
            out.append(found)
        return out

    def _renew(self, index: int) -> None:
        if index in self._late_now:
            self._late_now.discard(index)
            self._turns[index] = Lock()
            self.slots[index] = Slot(self.env_fns[index], self.autoreset_mode)
            self._threads.append(self._thread())
        else:
            super()._renew(index)

    def _close(self) -> None:
        for _ in self._threads:
            self._work.put(None)
        if self.seconds is None:
            for thread in self._threads:
                thread.join()
        super()._close()


def make_vec(
    env_ids: str | Sequence[str],
    wrappers: Sequence[WrapperFn] | None = None,
    vec_kwargs: Sequence[Mapping[str, Any]] | None = None,
    async_mode: bool | Literal["sync", "threads", "processes"] = False,
    seed: int = 0,
    **kwargs: Any,
) -> VectorEnv:
    """A vector of environments by id.

    Parameters
    ----------
    env_ids
        One id is one environment.
    wrappers
        Put around each, the first one innermost (`get_wrapper_fns`).
    vec_kwargs
        Arguments of each; ``seed`` among them is that environment's. Not changed.
    async_mode
        False or ``sync``; True or ``threads``; ``processes``.
    seed
        Environment i is seeded with ``seed + i`` at its first reset without a seed, unless its arguments say otherwise.
    kwargs
        Of the vector (autoreset_mode, seconds, on_crash, workers); the rest for every environment.
    """
    ids = [env_ids] if isinstance(env_ids, str) else list(env_ids)
    own = [dict(one) for one in vec_kwargs] if vec_kwargs is not None else [{} for _ in ids]
    if len(own) != len(ids):
        raise EnvError(f"There are {len(ids)} env_ids and {len(own)} vec_kwargs; one each is needed.")
    kind = {False: "sync", True: "threads"}.get(async_mode, async_mode) if isinstance(async_mode, bool) else async_mode
    if kind not in ("sync", "threads", "processes"):
        raise EnvError(str(unknown_name("async_mode", str(async_mode), ["sync", "threads", "processes"])))
    cls: Any = {"sync": SyncVectorEnv, "threads": AsyncVectorEnv}.get(str(kind))
    if cls is None:
        from assay.agents.gem.processes import ProcessVectorEnv as cls
    known = {"autoreset_mode", *inspect.signature(VectorEnv.__init__).parameters, "workers"} - {"self"}
    of_vector = {name: kwargs.pop(name) for name in list(kwargs) if name in known}
    fns = []
    for i, (env_id, arguments) in enumerate(zip(ids, own)):
        first = arguments.pop("seed", seed + i)
        fns.append(partial(seeded, env_id, {**kwargs, **arguments}, tuple(wrappers or ()), first))
    return cls(ids, fns, **of_vector)


def seeded(env_id: str, arguments: Mapping[str, Any], wrappers: Sequence[WrapperFn], seed: int) -> Env:
    """An environment in its wrappers, its generator seeded."""
    from assay.agents.gem.wrappers import wrap

    env = make(env_id, **arguments)
    env.seed(seed)
    return wrap(env, wrappers)
