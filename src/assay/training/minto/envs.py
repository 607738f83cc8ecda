"""Environments stepped for many seeds at once: classic control and MinAtar's Breakout in numpy, all others in a loop.

The numpy versions take the very steps of gymnasium's and MinAtar's (tests hold them side by side). Every copy has its
own random stream, so that what happens to one seed does not depend on which others run beside it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.core.errors import MissingExtra, UsageError, unknown_name


@dataclass(slots=True)
class Transition:
    """What one step of all copies returned.

    ``final`` is the observation that the step led to (bootstrap from it), ``next`` the one to act on: where an episode
    ended, the first of the next one.
    """

    final: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next: np.ndarray


class Streams:
    """Uniform numbers of many generators, drawn in blocks: row i is the stream of seed i alone."""

    def __init__(self, seeds: Sequence[Sequence[int] | int], columns: int, block: int = 256) -> None:
        self.generators = [np.random.default_rng(seed) for seed in seeds]
        self.columns, self.block = columns, block
        self.taken = block
        self.drawn = np.empty((block, len(self.generators), columns))

    def next(self) -> np.ndarray:
        """Shape (seeds, columns), in [0, 1)."""
        if self.taken == self.block:
            for i, generator in enumerate(self.generators):
                self.drawn[:, i] = generator.random((self.block, self.columns))
            self.taken = 0
        self.taken += 1
        return self.drawn[self.taken - 1]

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "states": [generator_state(g) for g in self.generators],
            "taken": self.taken,
            "drawn": self.drawn.copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        for generator, kept in zip(self.generators, state["states"]):
            set_generator_state(generator, kept)
        self.taken = state["taken"]
        self.drawn = np.array(state["drawn"])


def generator_state(generator: np.random.Generator) -> str:
    """A generator's state as text."""
    import json

    return json.dumps(generator.bit_generator.state)


def set_generator_state(generator: np.random.Generator, text: str) -> None:
    """Put a state back."""
    import json

    generator.bit_generator.state = json.loads(text)


class VectorEnv(ABC):
    """Copies of one environment, one a seed, restarted where an episode ends."""

    shape: tuple[int, ...]
    actions: int
    limit: int | None = None
    """Steps after which an episode is cut off (truncated, not terminated)."""

    def __init__(self, seeds: Sequence[Sequence[int] | int]) -> None:
        self.rngs = [np.random.default_rng(seed) for seed in seeds]
        self.count = len(self.rngs)
        self.age = np.zeros(self.count, int)

    def reset(self) -> np.ndarray:
        """Start an episode everywhere; observations (count, *shape)."""
        self.age[:] = 0
        for i in range(self.count):
            self.start(i)
        return self.observe()

    def step(self, actions: np.ndarray) -> Transition:
        """Take one action in each copy."""
        reward, terminated = self.advance(actions)
        self.age += 1
        truncated = (self.age >= self.limit) & ~terminated if self.limit else np.zeros(self.count, bool)
        final = self.observe()
        ended = terminated | truncated
        if not ended.any():
            return Transition(final, reward, terminated, truncated, final)
        for i in np.flatnonzero(ended):
            self.age[i] = 0
            self.start(int(i))
        return Transition(final, reward, terminated, truncated, self.observe())

    @abstractmethod
    def start(self, i: int) -> None:
        """Put copy i at the start of an episode."""

    @abstractmethod
    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Move all copies; rewards and whether they truly ended."""

    @abstractmethod
    def observe(self) -> np.ndarray:
        """Observations of all copies, a new array."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint; arrays and text."""
        arrays = {name: value.copy() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return {"arrays": arrays, "rngs": [generator_state(g) for g in self.rngs]}

    def restore(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        for name, value in state["arrays"].items():
            setattr(self, name, np.array(value))
        for generator, kept in zip(self.rngs, state["rngs"]):
            set_generator_state(generator, kept)


class CartPole(VectorEnv):
    """Gymnasium's CartPole-v1."""

    shape, actions, limit = (4,), 2, 500

    def __init__(self, seeds: Sequence[Sequence[int] | int]) -> None:
        super().__init__(seeds)
        self.s = np.zeros((self.count, 4))

    def start(self, i: int) -> None:
        """A uniform start near the middle."""
        self.s[i] = self.rngs[i].uniform(-0.05, 0.05, 4)

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Euler's step of 0.02 s."""
        x, speed, angle, turn = self.s.T
        cos, sin = np.cos(angle), np.sin(angle)
        push = (np.where(actions == 1, 10.0, -10.0) + 0.05 * turn**2 * sin) / 1.1
        turning = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        pushing = push - 0.05 * turning * cos / 1.1
        self.s = np.stack([x + 0.02 * speed, speed + 0.02 * pushing, angle + 0.02 * turn, turn + 0.02 * turning], 1)
        fallen = (np.abs(self.s[:, 0]) > 2.4) | (np.abs(self.s[:, 2]) > 12 * 2 * math.pi / 360)
        return np.ones(self.count), fallen

    def observe(self) -> np.ndarray:
        """Position, speed, angle, angular speed."""
        return self.s.astype(np.float32)


class Acrobot(VectorEnv):
    """Gymnasium's Acrobot-v1."""

    shape, actions, limit = (6,), 3, 500

    def __init__(self, seeds: Sequence[Sequence[int] | int]) -> None:
        super().__init__(seeds)
        self.s = np.zeros((self.count, 4))

    def start(self, i: int) -> None:
        """A uniform start near hanging down."""
        self.s[i] = self.rngs[i].uniform(-0.1, 0.1, 4).astype(np.float32)

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One Runge-Kutta step of 0.2 s."""
        torque, h = actions - 1.0, 0.2
        k1 = _acrobot_rates(self.s, torque)
        k2 = _acrobot_rates(self.s + h / 2 * k1, torque)
        k3 = _acrobot_rates(self.s + h / 2 * k2, torque)
        k4 = _acrobot_rates(self.s + h * k3, torque)
        s = self.s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        turns = np.where(s[:, :2] > math.pi, -1.0, np.where(s[:, :2] < -math.pi, 1.0, 0.0))
        while turns.any():
            s[:, :2] += 2 * math.pi * turns
            turns = np.where(s[:, :2] > math.pi, -1.0, np.where(s[:, :2] < -math.pi, 1.0, 0.0))
        s[:, 2] = np.clip(s[:, 2], -4 * math.pi, 4 * math.pi)
        s[:, 3] = np.clip(s[:, 3], -9 * math.pi, 9 * math.pi)
        self.s = s
        done = -np.cos(s[:, 0]) - np.cos(s[:, 1] + s[:, 0]) > 1.0
        return np.where(done, 0.0, -1.0), done

    def observe(self) -> np.ndarray:
        """Cosine and sine of both angles, and their speeds."""
        a, b = self.s[:, 0], self.s[:, 1]
        return np.stack([np.cos(a), np.sin(a), np.cos(b), np.sin(b), self.s[:, 2], self.s[:, 3]], 1).astype(np.float32)


def _acrobot_rates(s: np.ndarray, torque: np.ndarray) -> np.ndarray:
    """Time derivatives after Sutton and Barto's book; masses, lengths and moments 1, centres at 0.5, g = 9.8."""
    a, b, da, db = s.T
    d1 = 0.25 + (1 + 0.25 + np.cos(b)) + 2
    d2 = 0.25 + 0.5 * np.cos(b) + 1
    phi2 = 0.5 * 9.8 * np.cos(a + b - math.pi / 2)
    phi1 = -0.5 * db**2 * np.sin(b) - db * da * np.sin(b) + 1.5 * 9.8 * np.cos(a - math.pi / 2) + phi2
    ddb = (torque + d2 / d1 * phi1 - 0.5 * da**2 * np.sin(b) - phi2) / (1.25 - d2**2 / d1)
    return np.stack([da, db, -(d2 * ddb + phi1) / d1, ddb], 1)


class MountainCar(VectorEnv):
    """Gymnasium's MountainCar-v0."""

    shape, actions, limit = (2,), 3, 200

    def __init__(self, seeds: Sequence[Sequence[int] | int]) -> None:
        super().__init__(seeds)
        self.s = np.zeros((self.count, 2))

    def start(self, i: int) -> None:
        """Somewhere in the valley, at rest."""
        self.s[i] = self.rngs[i].uniform(-0.6, -0.4), 0.0

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """One step of the car."""
        x, v = self.s.T
        v = np.clip(v + (actions - 1) * 0.001 - np.cos(3 * x) * 0.0025, -0.07, 0.07)
        x = np.clip(x + v, -1.2, 0.6)
        v = np.where((x == -1.2) & (v < 0), 0.0, v)
        self.s = np.stack([x, v], 1)
        return np.full(self.count, -1.0), (x >= 0.5) & (v >= 0)

    def observe(self) -> np.ndarray:
        """Position and speed."""
        return self.s.astype(np.float32)


class Breakout(VectorEnv):
    """MinAtar's Breakout (Young and Tian 2019) with sticky actions and all six of them; observations are flat."""

    shape, actions = (400,), 6

    def __init__(self, seeds: Sequence[Sequence[int] | int], *, sticky: float = 0.1) -> None:
        super().__init__(seeds)
        n = self.count
        self.sticky = sticky
        self.streams = Streams([[3, *np.atleast_1d(seed).tolist()] for seed in seeds], 1)
        self.bricks = np.zeros((n, 10, 10), bool)
        self.ball, self.trail = np.zeros((n, 2), int), np.zeros((n, 2), int)
        """Row and column."""
        self.direction, self.paddle, self.last_action = (np.zeros(n, int) for _ in range(3))
        self.strike = np.zeros(n, bool)

    def start(self, i: int) -> None:
        """Three rows of bricks, the ball from the left or the right."""
        right = int(self.rngs[i].integers(2))
        self.ball[i] = self.trail[i] = (3, 9 if right else 0)
        self.direction[i] = 3 if right else 2
        self.paddle[i] = 4
        self.bricks[i] = False
        self.bricks[i, 1:4] = True
        self.strike[i] = False

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Paddle, ball, walls, bricks, paddle again: the order of the game."""
        actions = np.where(self.streams.next()[:, 0] < self.sticky, self.last_action, actions)
        self.last_action = actions
        every = np.arange(self.count)
        self.paddle = np.clip(self.paddle - (actions == 1) + (actions == 3), 0, 9)
        self.trail = self.ball.copy()
        y = self.ball[:, 0] + _ROW[self.direction]
        x = self.ball[:, 1] + _COLUMN[self.direction]
        side = (x < 0) | (x > 9)
        x = np.clip(x, 0, 9)
        self.direction = np.where(side, _SIDEWAYS[self.direction], self.direction)
        top = y < 0
        y = np.maximum(y, 0)
        brick = ~top & self.bricks[every, y, x]
        broken = brick & ~self.strike
        bottom = ~top & ~brick & (y == 9)
        self.bricks[every[broken], y[broken], x[broken]] = False
        cleared = bottom & ~self.bricks.any((1, 2))
        if cleared.any():
            self.bricks[cleared, 1:4] = True
        straight = bottom & (self.ball[:, 1] == self.paddle)
        edge = bottom & ~straight & (x == self.paddle)
        lost = bottom & ~straight & ~edge
        self.direction = np.where(top | broken | straight, _UPDOWN[self.direction], self.direction)
        self.direction = np.where(edge, _BACK[self.direction], self.direction)
        y = np.where(broken | straight | edge, self.trail[:, 0], y)
        self.strike = brick
        self.ball = np.stack([y, x], 1)
        return broken.astype(float), lost

    def observe(self) -> np.ndarray:
        """Paddle, ball, trail, bricks: 10 x 10 x 4 flags, flat."""
        seen = np.zeros((self.count, 10, 10, 4), bool)
        every = np.arange(self.count)
        seen[every, self.ball[:, 0], self.ball[:, 1], 1] = True
        seen[every, 9, self.paddle, 0] = True
        seen[every, self.trail[:, 0], self.trail[:, 1], 2] = True
        seen[..., 3] = self.bricks
        return seen.reshape(self.count, 400)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {**super().state(), "streams": self.streams.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        super().restore(state)
        self.streams.restore(state["streams"])


_ROW, _COLUMN = np.array([-1, -1, 1, 1]), np.array([-1, 1, 1, -1])
_SIDEWAYS, _UPDOWN, _BACK = np.array([1, 0, 3, 2]), np.array([3, 2, 1, 0]), np.array([2, 3, 0, 1])
"""Where the ball goes after a wall at the side, after ceiling, brick or paddle, and after the paddle's edge."""


class GymLoop(VectorEnv):
    """Any gymnasium environment with whole-number actions, one object a seed, stepped in a loop.

    Time limits are those of the environment's own registration.
    """

    def __init__(self, seeds: Sequence[Sequence[int] | int], make: Callable[[], Any]) -> None:
        super().__init__(seeds)
        self.envs = [make() for _ in range(self.count)]
        space, actions = self.envs[0].observation_space, self.envs[0].action_space
        if not hasattr(actions, "n") or getattr(space, "shape", None) is None:
            raise UsageError(
                f"Many seeds at once need whole-number actions and array observations; this environment has "
                f"{actions} and {space}."
            )
        self.shape, self.actions = (int(np.prod(space.shape)),), int(actions.n)
        self.seen = np.zeros((self.count, *self.shape), bool if space.dtype == bool else np.float32)
        self.cut = np.zeros(self.count, bool)
        self.begun = [False] * self.count

    def start(self, i: int) -> None:
        """Reset; the first time with a seed of its own."""
        seed = None if self.begun[i] else int(self.rngs[i].integers(2**31))
        self.begun[i] = True
        self.seen[i] = np.ravel(self.envs[i].reset(seed=seed)[0])

    def advance(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Step one after the other."""
        reward, done = np.zeros(self.count), np.zeros(self.count, bool)
        for i, env in enumerate(self.envs):
            seen, reward[i], done[i], self.cut[i], _ = env.step(int(actions[i]))
            self.seen[i] = np.ravel(seen)
        return reward, done

    def step(self, actions: np.ndarray) -> Transition:
        """As above, with the environment's own cuts."""
        reward, terminated = self.advance(actions)
        truncated = self.cut & ~terminated
        final = self.observe()
        for i in np.flatnonzero(terminated | truncated):
            self.start(int(i))
        return Transition(final, reward, terminated, truncated, self.observe())

    def observe(self) -> np.ndarray:
        """Flat observations."""
        return self.seen.copy()

    def state(self) -> dict[str, Any]:
        """Objects of others cannot be kept."""
        raise NotImplementedError("environments of other packages cannot be written into a checkpoint")


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """How to make an environment, and the returns that count as 0 and 1."""

    make: Callable[[Sequence[Sequence[int] | int]], VectorEnv]
    low: float
    high: float
    quick: bool = False
    """Whether it is stepped in numpy."""

    def normalised(self, value: float | np.ndarray) -> Any:
        """Returns on the scale from ``low`` (0) to ``high`` (1)."""
        return (value - self.low) / (self.high - self.low)


def _minatar(game: str) -> Callable[[Sequence[Sequence[int] | int]], VectorEnv]:
    return lambda seeds: GymLoop(seeds, lambda: minatar_env(game))


def _registered(name: str) -> Callable[[Sequence[Sequence[int] | int]], VectorEnv]:
    def make(seeds: Sequence[Sequence[int] | int]) -> VectorEnv:
        gymnasium = _gymnasium()
        return GymLoop(seeds, lambda: gymnasium.make(name))

    return make


def minatar_env(game: str) -> Any:
    """One MinAtar game as a gymnasium environment; sticky actions 0.1, difficulty rising, as it comes."""
    gymnasium = _gymnasium()
    try:
        from minatar import Environment
    except ImportError:
        raise MissingExtra(f"MinAtar's {game}", "minto") from None

    class Game(gymnasium.Env):
        def __init__(self) -> None:
            self.env = Environment(game.replace("SpaceInvaders", "space_invaders").lower())
            self.observation_space = gymnasium.spaces.Box(0, 1, tuple(self.env.state_shape()), dtype=bool)
            self.action_space = gymnasium.spaces.Discrete(self.env.num_actions())

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
            if seed is not None:
                self.env.seed(seed)
            self.env.reset()
            return self.env.state(), {}

        def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            reward, done = self.env.act(int(action))
            return self.env.state(), float(reward), bool(done), False, {}

    return Game()


# Ends of the scales: the mean return of a random policy (`assay make minto scales`; standard error 24 for LunarLander,
# at most 0.9 elsewhere), and what gymnasium counts as solved; MinAtar has no such figure, and a round 10 stands for it.
ENVS: dict[str, EnvSpec] = {
    "CartPole-v1": EnvSpec(CartPole, 22.7, 475.0, True),
    "Acrobot-v1": EnvSpec(Acrobot, -500.0, -100.0, True),
    "MountainCar-v0": EnvSpec(MountainCar, -200.0, -110.0, True),
    "LunarLander-v3": EnvSpec(_registered("LunarLander-v3"), -154.0, 200.0),
    "MinAtar/Breakout": EnvSpec(Breakout, 0.6, 10.0, True),
    "MinAtar/Asterix": EnvSpec(_minatar("Asterix"), 0.75, 10.0),
    "MinAtar/Freeway": EnvSpec(_minatar("Freeway"), 0.1, 10.0),
    "MinAtar/Seaquest": EnvSpec(_minatar("Seaquest"), 0.0, 10.0),
    "MinAtar/SpaceInvaders": EnvSpec(_minatar("SpaceInvaders"), 3.5, 10.0),
}


CONTINUOUS: dict[str, tuple[float, float]] = {"Pendulum-v1": (-1250.0, -150.0)}
"""The same for real-number actions. Pendulum has no threshold; -150 is what good policies earn."""


def find_env(name: str) -> EnvSpec:
    """An environment of `ENVS`, or any of gymnasium's with whole-number actions, whose returns stay as they are."""
    if name in ENVS:
        return ENVS[name]
    gymnasium = _gymnasium()
    if name not in gymnasium.registry:
        raise unknown_name("environment", name, [*ENVS, *gymnasium.registry])
    return EnvSpec(_registered(name), 0.0, 1.0)


def scale(name: str, value: float) -> float:
    """A return on the scale of its environment; of environments that are not in `ENVS` as it is."""
    if name in CONTINUOUS:
        low, high = CONTINUOUS[name]
        return (value - low) / (high - low)
    return ENVS[name].normalised(value) if name in ENVS else value


def single(name: str) -> Any:
    """One gymnasium environment of that name, MinAtar's among them."""
    if name.startswith("MinAtar/") and name in ENVS:
        return minatar_env(name.removeprefix("MinAtar/"))
    gymnasium = _gymnasium()
    if name not in gymnasium.registry:
        raise unknown_name("environment", name, [*ENVS, *gymnasium.registry])
    try:
        return gymnasium.make(name)
    except ImportError as error:
        raise MissingExtra(f"Environment {name} ({error})", "minto") from None


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError:
        raise MissingExtra("This environment", "minto") from None
    return gymnasium
