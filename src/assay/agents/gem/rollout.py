"""Rollouts without lock-step: each environment goes at its own pace, the policy is asked for whoever is ready.

References
----------
Liu et al. GEM: A Gym for Agentic LLMs. arXiv 2510.01051.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from assay.agents.gem.env import Env, EnvError, Step
from assay.systems.environment import text_of

if TYPE_CHECKING:
    from assay.systems.chat.model import ChatModel
    from assay.systems.trace import Trace

CUT_REPLY = "\x00"
"""What an environment is given for a reply that was cut at its length: no action can be read in it."""


@dataclass(slots=True)
class Act:
    """A policy's reply: text, its tokens, their natural log-probabilities; ``cut`` at the length limit."""

    text: str
    tokens: Sequence[int] = ()
    logps: Sequence[float] = ()
    cut: bool = False


class Policy(Protocol):
    """What acts: many prompts in, one `Act` each."""

    def act(self, prompts: Sequence[str]) -> Sequence[Act]:
        """Reply to every prompt."""
        ...


@dataclass(slots=True)
class Decision:
    """One turn: what was shown, what was said, what it earned."""

    prompt: str
    act: Act
    reward: float = 0.0


@dataclass(slots=True)
class Episode:
    """Turns of one episode.

    ``group`` is its initial state: episodes with equal groups began alike. ``truncated``: cut off, without an end of
    its own (`final` is what was shown last, for a critic). ``solved``: None where the environment does not say.
    """

    group: Any
    decisions: list[Decision] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False
    solved: bool | None = None
    final: str = ""
    error: str | None = None

    @property
    def rewards(self) -> list[float]:
        """One a turn."""
        return [decision.reward for decision in self.decisions]

    @property
    def total(self) -> float:
        """Undiscounted sum of the rewards."""
        return float(sum(self.rewards))

    def __len__(self) -> int:
        return len(self.decisions)


@dataclass(slots=True)
class _Seat:
    """An environment and the episode in it."""

    env: Env
    episode: Episode | None = None
    prompt: str = ""


class Rollout:
    """Plays episodes in many environments.

    A policy is asked as soon as any environment is ready, for all that are ready then; none waits for the slowest of a
    step. Every episode that is begun is played to its end, so that short ones are not preferred.

    Parameters
    ----------
    envs
        Played in; not closed.
    policy
        Asked in the calling thread.
    threads
        Steps in flight at once, for environments that wait (tools, servers); 0 = steps are taken in the calling
        thread, one after another, which is fastest where a step costs microseconds.
    on_crash
        ``raise``, or ``truncate``: an episode whose environment raises ends there, with ``error``.
    """

    def __init__(self, envs: Sequence[Env], policy: Policy, *, threads: int = 0, on_crash: str = "raise") -> None:
        if not envs:
            raise EnvError("A rollout needs at least one environment.")
        if on_crash not in ("raise", "truncate"):
            raise EnvError(f"on_crash is {on_crash!r}; it is 'raise' or 'truncate'.")
        self.seats = [_Seat(env) for env in envs]
        self.policy = policy
        self.threads = threads
        self.on_crash = on_crash
        self.calls = 0

    def episodes(self, seeds: Iterable[int]) -> list[Episode]:
        """One episode a seed, in the order of the seeds; equal seeds begin alike and share a group."""
        return self._play(iter(list(seeds)), lambda taken: True)

    def turns(self, turns: int, seeds: Iterator[int]) -> list[Episode]:
        """Episodes with at least ``turns`` turns in all: new ones are begun until so many turns were taken."""
        return self._play(seeds, lambda taken: taken < turns)

    def _play(self, seeds: Iterator[int], more: Callable[[int], bool]) -> list[Episode]:
        out: list[tuple[int, Episode]] = []
        free = deque(self.seats)
        ready: list[_Seat] = []
        over: list[_Seat] = []
        running: dict[Future[Any], _Seat] = {}
        order: dict[int, int] = {}
        taken = begun = 0
        with ThreadPoolExecutor(self.threads) if self.threads else nullcontext() as pool:
            while True:
                while free and more(taken) and (seed := next(seeds, None)) is not None:
                    seat = free.popleft()
                    seat.episode = Episode(seed)
                    order[id(seat)] = begun
                    begun += 1
                    self._go(pool, running, ready, over, seat, None, seed)
                if not ready and not running:
                    break
                if ready:
                    batch, ready = ready, []
                    acts = self.policy.act([seat.prompt for seat in batch])
                    self.calls += 1
                    taken += len(batch)
                    for seat, act in zip(batch, acts, strict=True):
                        assert seat.episode is not None
                        seat.episode.decisions.append(Decision(seat.prompt, act))
                        self._go(pool, running, ready, over, seat, CUT_REPLY if act.cut else act.text, None)
                if running:
                    done = wait(running, timeout=0 if ready else None, return_when=FIRST_COMPLETED).done
                    for future in done:
                        self._took(running.pop(future), future, ready, over)
                for seat in over:
                    assert seat.episode is not None
                    out.append((order.pop(id(seat)), seat.episode))
                free += over
                over.clear()
        return [episode for _, episode in sorted(out, key=lambda pair: pair[0])]

    def _go(
        self, pool: Any, running: dict[Future[Any], _Seat], ready: list[_Seat], over: list[_Seat], seat: _Seat,
        action: str | None, seed: int | None,
    ) -> None:  # fmt: skip
        """Reset (no action) or step, here or in a thread."""
        fn = (lambda: seat.env.reset(seed)) if action is None else (lambda: seat.env.step(action))
        if pool is not None:
            running[pool.submit(fn)] = seat
            return
        future: Future[Any] = Future()
        try:
            future.set_result(fn())
        except Exception as error:
            future.set_exception(error)
        self._took(seat, future, ready, over)

    def _took(self, seat: _Seat, future: Future[Any], ready: list[_Seat], over: list[_Seat]) -> None:
        """What a reset or step led to."""
        episode = seat.episode
        assert episode is not None
        error = future.exception()
        if error is not None:
            # A reset that fails would fail for ever, and misuse is nobody's episode.
            if self.on_crash == "raise" or isinstance(error, EnvError) or not episode.decisions:
                raise error
            episode.truncated, episode.error = True, f"{type(error).__name__}: {error}"
            over.append(seat)
            return
        result: Step | tuple[Any, dict[str, Any]] = future.result()
        if len(result) == 2:
            seat.prompt = text_of(result[0])
            ready.append(seat)
            return
        observation, reward, terminated, truncated, info = result
        episode.decisions[-1].reward = float(reward)
        seat.prompt = text_of(observation)
        if not terminated and not truncated:
            ready.append(seat)
            return
        # Published environments set both flags at the turn limit.
        episode.terminated, episode.truncated = bool(terminated), bool(truncated and not terminated)
        solved = info.get("solved", info.get("correct"))
        episode.solved = None if solved is None else bool(solved)
        episode.final = seat.prompt
        over.append(seat)


async def rollout(
    model: ChatModel,
    make_env: Callable[[], Env],
    seeds: Sequence[int],
    *,
    concurrency: int = 32,
    **settings: Any,
) -> list[Trace]:
    """Episodes with a chat model, each at its own pace: the server behind the model batches what is in flight.

    Parameters
    ----------
    make_env
        Called once an episode; the environment is closed after it.
    seeds
        One an episode.
    concurrency
        Episodes in flight.
    settings
        Of `assay.systems.agent.play` (limits, history, temperature, max_tokens ...).

    Returns
    -------
    list of Trace
        In the order of the seeds.
    """
    from assay.systems.agent import play

    gate = asyncio.Semaphore(concurrency)

    async def one(seed: int) -> Trace:
        async with gate:
            env = await asyncio.to_thread(make_env)
            try:
                return await play(model, env, seed=seed, **settings)
            finally:
                env.close()

    return await asyncio.gather(*(one(seed) for seed in seeds))
