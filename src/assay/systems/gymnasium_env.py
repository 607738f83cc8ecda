"""Both directions between `Environment` and ``gymnasium.Env``; imported only when an adapter is asked for."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from assay.core.errors import UsageError
from assay.systems.environment import ActionReader, Environment, Info, Observation, described, text_of


class AnyText(spaces.Text):
    """``spaces.Text`` of any characters; samples are printable ASCII."""

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable)

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a text that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length


class TextEnv(gymnasium.Env[Any, str]):
    """An `Environment` for Gymnasium; see `assay.systems.environment.to_gymnasium`."""

    metadata = {"render_modes": ["ansi"]}
    render_mode = "ansi"

    def __init__(self, env: Environment, max_length: int) -> None:
        self.source = env
        self.action_space = AnyText(max_length)
        first, _ = env.reset(0)
        self.observation_space: spaces.Space[Any] = AnyText(max_length)
        if not isinstance(first, str):
            inner: dict[str, spaces.Space[Any]] = {"text": AnyText(max_length)}
            if first.get("image") is not None:
                inner["image"] = spaces.Box(0, 255, np.asarray(first["image"]).shape, np.uint8)
            self.observation_space = spaces.Dict(inner)
        self._running = False
        self._shown: Observation = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin an episode. Without a seed the environment goes on with its own generator."""
        super().reset(seed=seed)
        observation, info = self.source.reset(seed)
        self._running, self._shown = True, observation
        return self._out(observation), info

    def step(self, action: str) -> tuple[Observation, float, bool, bool, Info]:
        """Act; exactly one flag is set at the end."""
        if not self._running:
            raise UsageError("This environment has no episode under way; call reset first.")
        observation, reward, terminated, truncated, info = self.source.step(action)
        if terminated and truncated:
            terminated = bool(info.get("solved", False))
            truncated = not terminated
        self._running, self._shown = not (terminated or truncated), observation
        return self._out(observation), float(reward), bool(terminated), bool(truncated), info

    def render(self) -> str:
        """The last observation's text."""
        return text_of(self._shown)

    def close(self) -> None:
        """Close the environment, if it can be closed."""
        close = getattr(self.source, "close", None)
        if callable(close):
            close()

    def _out(self, observation: Observation) -> Any:
        if isinstance(observation, str):
            return observation
        return {key: value for key, value in observation.items() if key in self.observation_space.spaces}  # type: ignore[attr-defined]


class GymnasiumEnvironment:
    """A ``gymnasium.Env`` as an Environment; see `assay.systems.environment.from_gymnasium`."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        actions: Mapping[str, Any] | Sequence[str] | None,
        describe: Callable[[Any], Observation] | None,
    ) -> None:
        self.env = env
        self.read = ActionReader(env.action_space, actions)
        self.describe = describe or described
        self._shown: Observation | None = None
        self._over = True

    def reset(self, seed: int | None = None) -> tuple[Observation, Info]:
        """Begin an episode."""
        if seed is not None:
            self.env.action_space.seed(seed)
        raw, info = self.env.reset(seed=seed)
        self._shown, self._over = self.describe(raw), False
        return self._shown, dict(info)

    def step(self, action: str) -> tuple[Observation, float, bool, bool, Info]:
        """Act; a text that is no action is a lost move."""
        if self._over or self._shown is None:
            raise UsageError("This environment has no episode under way; call reset first.")
        value, problem = self.read(action)
        if problem is not None:
            return self._shown, 0.0, False, False, {"invalid_action": problem}
        raw, reward, terminated, truncated, info = self.env.step(value)
        self._shown, self._over = self.describe(raw), bool(terminated or truncated)
        return self._shown, float(reward), bool(terminated), bool(truncated), dict(info)

    def sample_random_action(self) -> str:
        """A random action as text."""
        import json

        if self.read.names is not None:
            names = list(self.read.names)
            return names[int(self.env.action_space.np_random.integers(len(names)))]
        sample = self.env.action_space.sample()
        return sample if isinstance(sample, str) else json.dumps(sample, default=lambda x: x.tolist())

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
