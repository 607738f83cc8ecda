"""The environment interface: reset, step, spawn, state in and out, one generator an environment.

References
----------
Liu et al. GEM: A Gym for Agentic LLMs. arXiv 2510.01051.
"""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from assay.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from typing import Self

    from assay.agents.gem.registry import EnvSpec

TERMINAL_STATE = "TERMINAL_STATE"
"""What a single-turn environment shows after its only turn."""

Step = tuple[Any, float, bool, bool, dict[str, Any]]
STATE_VERSION = 1
_ACTIONS = 0x616374
"""Beside the seed: makes the generator of random actions another one than that of the game."""
_PCG_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_MASK = (1 << 128) - 1


class EnvError(UsageError, ValueError):
    """An environment was asked for something that it cannot do; a ValueError too, as gym users expect."""


class Turn(NamedTuple):
    """What one action led to, before the turn limit is looked at.

    ``ended`` says that the task itself is over (won, lost, unreadable action); reaching the limit is not. The published
    code calls some such ends truncated too when they fall on the last turn: ``also_truncated``.
    """

    observation: Any
    reward: float = 0.0
    ended: bool = False
    info: dict[str, Any] = {}
    also_truncated: bool = False


class Env:
    """An environment that speaks text, in Gymnasium's five values.

    A subclass defines `begin` and `act`, and names in ``saved`` the attributes that make up its state (plain JSON
    values). Turn counting, limits, seeds, misuse and state are handled here. A subclass in the older style may override
    `reset` (calling ``super().reset(seed)``) and `step` instead.

    Parameters
    ----------
    strict_gymnasium
        At the turn limit Gymnasium ends an episode with terminated False, truncated True. Published agents were trained
        with both True there, which is the default.
    seed_global
        Also seed the global generators of ``random`` and ``numpy`` in ``reset(seed)``, as the published code does; for
        environments of others that draw from them. Not safe with threads.
    max_turns
        Turns an episode may have; None = the environment's own number.

    Attributes
    ----------
    rng
        The environment's own generator, PCG64 from a SeedSequence.
    turn
        Turns taken in this episode.
    spec
        Set by `make`.
    """

    saved: ClassVar[tuple[str, ...]] = ()
    spec: EnvSpec | None = None
    max_turns: int | None = None
    strict_gymnasium: bool = False
    seed_global: bool = False
    _made: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self._made = (args, kwargs)
        self._phase = "new"
        self.turn = 0
        self._rng = None
        self._action_rng = None
        self._action_seed = None
        self._random = None
        return self

    def __init__(
        self, *, strict_gymnasium: bool = False, seed_global: bool = False, max_turns: int | None = None
    ) -> None:
        self.strict_gymnasium = strict_gymnasium
        self.seed_global = seed_global
        if max_turns is not None:
            if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
                raise EnvError(f"max_turns of {type(self).__name__} is {max_turns!r}; it must be an integer from 1.")
            self.max_turns = max_turns

    # -- what a subclass defines ------------------------------------------------------------------------------------

    def begin(self) -> tuple[Any, dict[str, Any]]:
        """Draw a new episode from ``self.rng``: first observation and info."""
        return "", {}

    def act(self, action: str) -> Turn:
        """One action. ``self.turn`` already counts it."""
        raise NotImplementedError(f"{type(self).__name__} defines neither act nor step")

    def at_limit(self, turn: Turn) -> Turn:
        """Called when the last permitted turn did not end the task: reward for what was reached."""
        return turn

    def random_action(self, rng: np.random.Generator) -> str:
        """An action that the environment can read, drawn from ``rng``."""
        raise EnvError(f"{type(self).__name__} has no random actions.")

    # -- the interface ----------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Parameters
        ----------
        seed
            Seeds the environment's generator; the same seed gives the same episode for the same actions, whatever other
            environments or threads do. None = go on with the generator.
        """
        if seed is not None:
            self.seed(seed)
        self.turn = 0
        observation, info = self.begin()
        self._phase = "running"
        return observation, info

    def step(self, action: str) -> Step:
        """Take one turn: observation, reward, terminated, truncated, info.

        Raises
        ------
        EnvError
            No episode was begun, the last one is over, or the action is no text.
        """
        if self._phase != "running":
            why = "no episode was begun" if self._phase == "new" else "the episode is over"
            raise EnvError(f"{self.name}: step was called but {why}; call reset first.")
        if not isinstance(action, str):
            raise EnvError(f"{self.name}: an action is text, not {type(action).__name__}.")
        self.turn += 1
        turn = self.act(action)
        limit = self.max_turns is not None and self.turn >= self.max_turns
        if limit and not turn.ended:
            turn = self.at_limit(turn)
        if limit or turn.ended:
            self._phase = "over"
        if self.strict_gymnasium:
            terminated, truncated = turn.ended, limit and not turn.ended
        else:
            terminated, truncated = turn.ended or limit, limit and (turn.also_truncated or not turn.ended)
        # A new dictionary where an environment said nothing: callers write into it.
        return turn.observation, float(turn.reward), terminated, truncated, turn.info or {}

    def sample_random_action(self) -> str:
        """An action that the environment can read. Drawn from a generator apart, which follows from the same seed: an
        episode is a function of seed and actions alone."""
        rng = self._actions()
        if rng is None:
            rng = self._action_rng = seeded_generator(None)
        return self.random_action(rng)

    def close(self) -> None:
        """Release what the environment holds outside this process; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def unwrapped(self) -> Env:
        """The environment below all wrappers: this one."""
        return self

    @property
    def name(self) -> str:
        """Its id, or its class where it was not made by id."""
        return self.spec.id if self.spec is not None else type(self).__name__

    # -- randomness -------------------------------------------------------------------------------------------------

    def seed(self, seed: int) -> None:
        """Seed this environment's generators (and, with ``seed_global``, the process-wide ones)."""
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise EnvError(f"{self.name}: the seed is {seed!r}; it must be an integer from 0.")
        self._rng = seeded_generator(int(seed), self._rng)
        self._action_rng, self._action_seed = None, int(seed)
        self._random = None
        if self.seed_global:
            random.seed(int(seed))
            np.random.seed(int(seed) % 2**32)  # noqa: NPY002

    @property
    def rng(self) -> np.random.Generator:
        """The environment's own generator; from the machine's entropy until `reset` was given a seed."""
        if self._rng is None:
            self._rng = seeded_generator(None)
        return self._rng

    def _actions(self) -> np.random.Generator | None:
        """The generator of random actions, if a seed was given: made when it is needed, which for most is never."""
        if self._action_rng is None and self._action_seed is not None:
            self._action_rng = seeded_generator([self._action_seed, _ACTIONS])
        return self._action_rng

    @property
    def random(self) -> random.Random:
        """A ``random.Random`` of its own, for libraries that want one; follows from the same seed."""
        if self._random is None:
            self._random = random.Random(int.from_bytes(self.rng.bytes(16), "big"))
        return self._random

    def draw(self, n: int) -> int:
        """An integer below ``n``, uniform."""
        return below(self.rng, n)

    # -- state ------------------------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """All that decides how the episode goes on, JSON-able: game, turn count and generator."""
        state: dict[str, Any] = {
            "version": STATE_VERSION,
            "env": type(self).__name__,
            "phase": self._phase,
            "turn": self.turn,
            "max_turns": self.max_turns,
            "rng": _pack(self.rng),
            "action_rng": None if (actions := self._actions()) is None else _pack(actions),
            "game": {name: copy.deepcopy(getattr(self, name)) for name in self.saved if hasattr(self, name)},
        }
        if self._random is not None:
            version, numbers, gauss = self._random.getstate()
            state["random"] = [version, list(numbers), gauss]
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `get_state` returned, here or in another process.

        Raises
        ------
        DataError
            The state is of another environment or version, or not complete.
        """
        if state.get("env") != type(self).__name__ or state.get("version") != STATE_VERSION:
            raise DataError(
                f"{self.name}: this state is of {state.get('env')!r}, version {state.get('version')!r}, and cannot be "
                f"used for {type(self).__name__!r}, version {STATE_VERSION}."
            )
        try:
            self._phase = state["phase"]
            self.turn = state["turn"]
            self.max_turns = state["max_turns"]
            self._rng = _unpack(state["rng"])
            self._action_rng = None if state["action_rng"] is None else _unpack(state["action_rng"])
            self._action_seed = None
            self._random = None
            if "random" in state:
                version, numbers, gauss = state["random"]
                self._random = random.Random(0)
                self._random.setstate((version, tuple(numbers), gauss))
            for field, value in state["game"].items():
                if field not in self.saved:
                    raise DataError(f"{self.name}: the state has a field {field!r} that this environment does not.")
                setattr(self, field, copy.deepcopy(value))
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{self.name}: the state is damaged ({type(error).__name__}: {error}).") from error
        self.restored()

    def restored(self) -> None:
        """Called after `set_state`: rebuild what follows from the saved attributes."""

    def spawn(self, same_state: bool = False, **overrides: Any) -> Self:
        """Another environment built like this one.

        Parameters
        ----------
        same_state
            Also take over the state, generator included: both go on alike, and independently.
        overrides
            Arguments that differ.
        """
        args, kwargs = self._made
        parameters = list(inspect.signature(type(self).__init__).parameters.values())[1:]
        if not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
            kwargs, args = {**dict(zip([parameter.name for parameter in parameters], args)), **kwargs}, ()
        other = type(self)(*args, **{**kwargs, **overrides})
        other.spec = self.spec
        if same_state:
            other.set_state(self.get_state())
        return other


def below(rng: np.random.Generator, n: int) -> int:
    """An integer below ``n``, uniform; several times faster than ``rng.integers``."""
    return int(rng.random() * n)


def seeded_generator(seed: int | list[int] | None, into: np.random.Generator | None = None) -> np.random.Generator:
    """``Generator(PCG64(SeedSequence(seed)))``; ``into``, where given, is put into that state and returned.

    numpy takes longer to make a generator than a small game to be dealt. The steps are those of PCG's ``srandom``.
    """
    if into is None:
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    a, b, c, d, e, f, g, h = np.random.SeedSequence(seed).generate_state(8).tolist()
    start = b << 96 | a << 64 | d << 32 | c
    increment = (f << 97 | e << 65 | h << 33 | g << 1 | 1) & _MASK
    state = ((increment + start) * _PCG_MULTIPLIER + increment) & _MASK
    into.bit_generator.state = {
        "bit_generator": "PCG64", "state": {"state": state, "inc": increment}, "has_uint32": 0, "uinteger": 0,
    }  # fmt: skip
    return into


def _pack(rng: np.random.Generator) -> dict[str, Any]:
    # 128-bit integers as text: many JSON writers stop at 64 bits.
    state: Any = rng.bit_generator.state
    return {
        "state": f"{state['state']['state']:x}",
        "inc": f"{state['state']['inc']:x}",
        "has_uint32": int(state["has_uint32"]),
        "uinteger": int(state["uinteger"]),
    }


def _unpack(packed: Mapping[str, Any]) -> np.random.Generator:
    generator = np.random.PCG64()
    generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": int(packed["state"], 16), "inc": int(packed["inc"], 16)},
        "has_uint32": packed["has_uint32"],
        "uinteger": packed["uinteger"],
    }
    return np.random.Generator(generator)
