"""Environments: worlds that a system acts in by text, one observation and one action at a time.

The five values of ``step`` are Gymnasium's; actions are texts, observations are texts or a text with a picture.
Adapters lead to Gymnasium and PettingZoo and back. numpy, gymnasium and pettingzoo are imported when they are used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from assay.core.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    import gymnasium
    import numpy as np

Observation = str | Mapping[str, Any]
"""A text, or ``{"text": str, "image": uint8 array of shape (height, width, 3)}``."""

Info = dict[str, Any]


@runtime_checkable
class Environment(Protocol):
    """A world for one system.

    Gymnasium's contract: ``terminated`` = the episode came to its own end, ``truncated`` = it was cut (a turn limit).
    An environment owns its generator (`generator`); equal seeds and actions give equal episodes, whatever else runs in
    the process. It may also have ``sample_random_action() -> str``, ``get_state() -> dict`` (JSON-able),
    ``set_state(dict)`` and ``close()``.
    """

    def reset(self, seed: int | None = None) -> tuple[Observation, Info]:
        """Begin an episode: first observation, info."""
        ...

    def step(self, action: str) -> tuple[Observation, float, bool, bool, Info]:
        """Act: observation, reward, terminated, truncated, info."""
        ...


@runtime_checkable
class MultiAgentEnvironment(Protocol):
    """A world for several systems: everything is a dictionary by agent.

    ``acting`` names the agents whose actions the next ``step`` takes, no more and no fewer: one in a game of turns,
    all that are left in a simultaneous one. An agent that is done disappears from ``acting``; the episode is over
    when nobody acts.
    """

    @property
    def agents(self) -> Sequence[str]:
        """All agents of the episode."""
        ...

    @property
    def acting(self) -> Sequence[str]:
        """Agents whose actions the next ``step`` takes."""
        ...

    def reset(self, seed: int | None = None) -> tuple[dict[str, Observation], dict[str, Info]]:
        """Begin an episode: first observation and info of every agent."""
        ...

    def step(
        self, actions: Mapping[str, str]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Info]]:
        """Act: observations, rewards, terminated, truncated, infos; observations at least of who acts next."""
        ...


def generator(seed: int | None) -> np.random.Generator:
    """A generator of an environment's own: PCG64 from a SeedSequence; None draws fresh entropy.

    Raises
    ------
    UsageError
        The seed is negative or no integer.
    """
    import numpy as np

    if seed is not None and (isinstance(seed, bool) or not hasattr(seed, "__index__") or int(seed) < 0):
        raise UsageError(f"seed is {seed!r}; it must be an integer, 0 or above.")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(None if seed is None else int(seed))))


def text_of(observation: Observation) -> str:
    """The text of an observation."""
    return observation if isinstance(observation, str) else str(observation.get("text", ""))


def content_of(observation: Observation, **settings: Any) -> str | list[dict[str, Any]]:
    """An observation as the content of a chat message: its text, or picture and text.

    Parameters
    ----------
    settings
        Keyword arguments of `assay.systems.chat.images.image_part` (scale, max_side ...).
    """
    if isinstance(observation, str) or observation.get("image") is None:
        return text_of(observation)
    from PIL import Image

    from assay.systems.chat.images import image_part, with_images

    return with_images(text_of(observation), [image_part(Image.fromarray(observation["image"]), **settings)])


def check_actions(actions: Mapping[str, str], acting: Sequence[str]) -> None:
    """Raise UsageError unless ``actions`` holds one action of each agent that acts, and no other."""
    missing = [agent for agent in acting if agent not in actions]
    surplus = [agent for agent in actions if agent not in acting]
    if missing or surplus:
        said = [f"{', '.join(missing)} missing"] if missing else []
        said += [f"{', '.join(surplus)} not asked"] if surplus else []
        raise UsageError(f"The step takes the actions of {', '.join(acting) or 'nobody'}: {' and '.join(said)}.")


# -- Gymnasium ---------------------------------------------------------------------------------------------------------


def to_gymnasium(env: Environment, *, max_length: int = 100_000) -> gymnasium.Env[Any, str]:
    """``env`` as a ``gymnasium.Env`` with ``spaces.Text`` actions and observations.

    Strict in how an episode ends: never both flags. An environment that sets both at its turn limit was truncated,
    unless its info says ``solved``. A step before reset or after the end raises UsageError. One reset with seed 0
    tells whether observations are texts or texts with pictures, and of which size.

    Parameters
    ----------
    max_length
        Longest text of both spaces, in characters.

    Raises
    ------
    MissingExtra
        gymnasium is not installed.
    """
    _needs("gymnasium", "gem")
    from assay.systems.gymnasium_env import TextEnv

    return TextEnv(env, max_length)


def from_gymnasium(
    env: gymnasium.Env[Any, Any],
    *,
    actions: Mapping[str, Any] | Sequence[str] | None = None,
    describe: Callable[[Any], Observation] | None = None,
) -> Environment:
    """A ``gymnasium.Env`` as an Environment whose actions are texts.

    Parameters
    ----------
    actions
        Name of each action: a mapping to what the environment takes, or names in the order of a Discrete space. None:
        a Text space takes the text itself, every other space the action as JSON (``3``, ``[0.5, -1]``).
    describe
        What an observation is to a reader; None: texts stay, uint8 arrays of shape (height, width, 3) become pictures,
        everything else JSON.

    An action that is none of these is a lost move: nothing is stepped, the observation stays, the reward is 0 and
    info holds ``invalid_action`` (the sentence that says why).
    """
    _needs("gymnasium", "gem")
    from assay.systems.gymnasium_env import GymnasiumEnvironment

    return GymnasiumEnvironment(env, actions, describe)


# -- PettingZoo --------------------------------------------------------------------------------------------------------


def to_pettingzoo(
    env: MultiAgentEnvironment, *, api: Literal["aec", "parallel"] = "aec", max_length: int = 100_000
) -> Any:
    """``env`` as a PettingZoo ``AECEnv`` (agents act one after the other) or ``ParallelEnv`` (all at once).

    A simultaneous environment in AEC form gathers the actions of a round before it steps. A game of turns in parallel
    form takes the action of who acts and ignores the others'.

    Raises
    ------
    MissingExtra
        pettingzoo is not installed.
    """
    _needs("pettingzoo", "gem")
    from assay.systems.pettingzoo_env import as_aec, as_parallel

    if api not in ("aec", "parallel"):
        raise UsageError(f"api is {api!r}; PettingZoo has 'aec' and 'parallel'.")
    return as_aec(env, max_length) if api == "aec" else as_parallel(env, max_length)


def from_pettingzoo(
    env: Any,
    *,
    actions: Mapping[str, Any] | Sequence[str] | None = None,
    describe: Callable[[Any], Observation] | None = None,
) -> MultiAgentEnvironment:
    """A PettingZoo AEC or parallel environment as a `MultiAgentEnvironment`; ``actions`` as in `from_gymnasium`."""
    _needs("pettingzoo", "gem")
    from assay.systems.pettingzoo_env import PettingZooEnvironment

    return PettingZooEnvironment(env, actions, describe)


class ActionReader:
    """Reads an action of a Gymnasium space from a text."""

    def __init__(self, space: Any, actions: Mapping[str, Any] | Sequence[str] | None) -> None:
        self.space = space
        if actions is None or isinstance(actions, Mapping):
            self.names = actions
        else:
            start = int(getattr(space, "start", 0))
            self.names = {name: start + index for index, name in enumerate(actions)}
            if len(self.names) != len(actions):
                raise UsageError("Two actions have the same name; names must differ.")

    def __call__(self, text: str) -> tuple[Any, str | None]:
        """The action and None, or None and the sentence that says why the text is none."""
        from gymnasium import spaces

        if self.names is not None:
            if text.strip() in self.names:
                return self.names[text.strip()], None
            return None, f"{text.strip()[:80]!r} is no action; there are: {', '.join(self.names)}."
        if isinstance(self.space, spaces.Text):
            return text, None
        try:
            action = _as_element(self.space, json.loads(text))
        except (ValueError, TypeError, RecursionError, OverflowError):
            return None, f"{text.strip()[:80]!r} is no action; an element of {self.space} is needed, as JSON."
        if not self.space.contains(action):
            return None, f"{text.strip()[:80]!r} is no element of {self.space}."
        return action, None


def described(raw: Any) -> Observation:
    """An observation of any Gymnasium environment, for a reader."""
    import numpy as np

    if isinstance(raw, str) or (isinstance(raw, Mapping) and set(raw) <= {"text", "image"} and "text" in raw):
        return raw
    if isinstance(raw, np.ndarray) and raw.dtype == np.uint8 and raw.ndim == 3 and raw.shape[2] == 3:
        return {"text": "", "image": raw}
    return json.dumps(raw, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _as_element(space: Any, value: Any) -> Any:
    import numpy as np
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("not an integer")
        return value
    if isinstance(space, spaces.Dict):
        return {key: _as_element(inner, value[key]) for key, inner in space.spaces.items() if key in value}
    if isinstance(space, spaces.Tuple):
        return tuple(_as_element(inner, item) for inner, item in zip(space.spaces, value, strict=True))
    return np.asarray(value, dtype=space.dtype)


def _needs(package: str, extra: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise MissingExtra(f"The {package} adapter", extra)
