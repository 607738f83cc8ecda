"""One interface to every game: Gymnasium's five values (`GameEnv`) and the published six (`SixValueEnv`)."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay.core.datasets.readers import read_json
from assay.core.errors import DataError, UsageError, unknown_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.agents.lmgame.games.engine import Engine, Played

Mode = Literal["text", "vision", "both"]
MODES = ("text", "vision", "both")

_HOME = "assay.agents.lmgame.games"
# Name of the game -> module and class. The six of the paper first; "platformer" and "courtroom" stand in for the two
# that need a ROM.
_ENGINES: dict[str, tuple[str, str]] = {
    "sokoban": ("sokoban", "Sokoban"),
    "twenty_forty_eight": ("twenty_forty_eight", "TwentyFortyEight"),
    "candy_crush": ("candy_crush", "CandyCrush"),
    "tetris": ("tetris", "Tetris"),
    "super_mario_bros": ("nes", "SuperMarioBros"),
    "platformer": ("platformer", "Platformer"),
    "courtroom": ("courtroom", "Courtroom"),
}


def games() -> list[str]:
    """Names of the games."""
    return list(_ENGINES)


def own_games() -> list[str]:
    """Names of the games that need no emulator and no ROM."""
    return [name for name in _ENGINES if name != "super_mario_bros"]


def engine_class(name: str) -> type[Engine]:
    """The engine of a game by name.

    Raises
    ------
    UsageError
        There is no such game.
    """
    if name not in _ENGINES:
        raise unknown_name("game", name, _ENGINES)
    module, attribute = _ENGINES[name]
    return getattr(import_module(f"{_HOME}.{module}"), attribute)


def reported_score(game: str, total: float) -> float:
    """The score that is averaged over runs: 10*log2(total) for 2048 (0 for a total of 0), the total otherwise."""
    if game != "twenty_forty_eight":
        return float(total)
    return 10.0 * float(np.log2(total)) if total > 0 else 0.0


@dataclass(frozen=True)
class GameConfig:
    """``game_env_config.json``: how a game is set up.

    Parameters
    ----------
    action_mapping : mapping or None
        Lower-case action name -> index in the engine's actions, or a button vector for console games. None: the
        game's own names.
    max_unchanged_steps : int or None
        The stuck limit; None: the game's own.
    env_init_kwargs : mapping
        Options of the engine.
    """

    action_mapping: Mapping[str, Any] | None = None
    max_unchanged_steps: int | None = None
    env_init_kwargs: Mapping[str, Any] = field(default_factory=dict)


def read_config(path: str | Path) -> GameConfig:
    """Read ``game_env_config.json``.

    Raises
    ------
    DataError
        No such file, no JSON object, or a field missing or of the wrong type.
    """
    path = Path(path)
    found = read_json(path)
    if not isinstance(found, dict) or not isinstance(found.get("action_mapping"), dict) or not found["action_mapping"]:
        raise DataError(f"{path} has no 'action_mapping'; give an object of action name to index or button vector.")
    limit = found.get("max_unchanged_steps_for_termination")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise DataError(f"{path}, max_unchanged_steps_for_termination: {limit!r} is no positive integer.")
    options = found.get("env_init_kwargs", {})
    if not isinstance(options, dict):
        raise DataError(f"{path}, env_init_kwargs: {options!r} is no object of options.")
    mapping = {" ".join(str(name).lower().split()): value for name, value in found["action_mapping"].items()}
    return GameConfig(mapping, limit, options)


class GameEnv:
    """A game as an environment: ``reset(seed)`` and ``step(action)`` with Gymnasium's five values.

    Parameters
    ----------
    engine : Engine
        Rules and state.
    observation_mode : {"text", "vision", "both"} or None
        What is observed: a str for "text"; ``{"text": str, "image": uint8 array}`` otherwise, its text empty for
        "vision". None: the game's own default.
    max_steps : int or None
        Steps until ``truncated`` (counted anew in each level of Sokoban); None: the game's own limit.
    config : GameConfig or None
        Action mapping and stuck limit of a configuration file.

    Notes
    -----
    Stuck rule: when the MD5 of the text ("text", "both") or of the pixels ("vision") equals that of the previous
    observation as often in a row as the limit says, the episode is terminated. ``info`` carries
    ``total_score`` (the episode's score), ``reported_score``, ``perf_score``, ``known_action``, ``steps``,
    ``unchanged``, ``end`` (None, "game over", "stuck", "step limit") and the game's own numbers.

    An empty action is an error; an unknown one is no step of the game and costs what the game says.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        observation_mode: Mode | None = None,
        max_steps: int | None = None,
        config: GameConfig | None = None,
    ) -> None:
        mode = observation_mode or engine.default_mode
        if mode not in MODES:
            raise unknown_name("observation mode", mode, MODES)
        if max_steps is not None and max_steps < 1:
            raise UsageError(f"max_steps is {max_steps}; give at least 1, or None for the game's own limit.")
        self.engine = engine
        self.observation_mode: str = mode
        self.max_steps = max_steps if max_steps is not None else engine.max_steps
        self.config = config or GameConfig()
        limit = self.config.max_unchanged_steps
        self.stuck_limit = limit if limit is not None else engine.stuck_limit
        self._rng: np.random.Generator | None = None
        self._policy: np.random.Generator | None = None
        self.seed: int | None = None
        self.steps = self.level_steps = self.unchanged = 0
        self._hash = ""
        self._over = True
        self._started = False

    @property
    def name(self) -> str:
        """Name of the game."""
        return self.engine.name

    @property
    def score(self) -> float:
        """The episode's score so far, in the game's own unit."""
        return self.engine.score

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions."""
        mapping = self.config.action_mapping
        return tuple(mapping) if mapping is not None else self.engine.actions

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode; (observation, info).

        The generator is PCG64 from ``SeedSequence(seed)``. Without a seed the generator goes on where it was; the
        first time it starts from the operating system's entropy, which ``info["seed"]`` tells.
        """
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0):
            raise UsageError(f"The seed is {seed!r}; give an integer of at least 0, or None.")
        if seed is not None or self._rng is None:
            sequence = np.random.SeedSequence(seed)
            self.seed = int(sequence.entropy)  # type: ignore[arg-type]
            game, policy = sequence.spawn(2)
            self._rng = np.random.Generator(np.random.PCG64(game))
            self._policy = np.random.Generator(np.random.PCG64(policy))
        self.engine.reset(self._rng)
        self.steps = self.level_steps = self.unchanged = 0
        self._over, self._started = False, True
        observation = self.observe()
        self._hash = self._digest(observation)
        return observation, self._info(0.0, True, None)

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one action; (observation, reward, terminated, truncated, info)."""
        if not self._started:
            raise UsageError(f"{self.name}: step before reset; call reset first.")
        if self._over:
            raise UsageError(f"{self.name}: the episode is over; call reset to start another.")
        if not isinstance(action, str):
            raise UsageError(f"{self.name}: the action is {action!r}; give a string, such as {self.actions[0]!r}.")
        if not action.strip():
            raise UsageError(f"{self.name}: the action is empty; give a string, such as {self.actions[0]!r}.")
        command = self.engine.parse(action, self.config.action_mapping)
        played = self.engine.refuse() if command is None else self.engine.play(command)
        return self._after(played)

    def _after(self, played: Played) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.level_steps = 0 if played.new_level else self.level_steps + 1
        observation = self.observe()
        digest = self._digest(observation)
        self.unchanged = self.unchanged + 1 if digest == self._hash else 0
        self._hash = digest
        end = None
        if played.ended:
            end = "game over"
        elif self.unchanged >= self.stuck_limit:
            end = "stuck"
        elif self.max_steps is not None and self.level_steps >= self.max_steps:
            end = "step limit"
        self._over = end is not None
        info = self._info(played.perf, played.known, end)
        return observation, played.reward, end in ("game over", "stuck"), end == "step limit", info

    def observe(self) -> Any:
        """The present observation, in the mode of this environment."""
        if self.observation_mode == "text":
            return self.engine.text()
        text = "" if self.observation_mode == "vision" else self.engine.text()
        return {"text": text, "image": self.engine.image()}

    def _digest(self, observation: Any) -> str:
        if self.observation_mode == "vision":
            seen = observation["image"].tobytes()
        else:
            seen = (observation if isinstance(observation, str) else observation["text"]).encode()
        return hashlib.md5(seen, usedforsecurity=False).hexdigest()

    def _info(self, perf: float, known: bool, end: str | None) -> dict[str, Any]:
        score = self.engine.score
        return {
            **self.engine.info(),
            "total_score": score,
            "reported_score": reported_score(self.name, score),
            "perf_score": perf,
            "known_action": known,
            "steps": self.steps,
            "unchanged": self.unchanged,
            "seed": self.seed,
            "end": end,
        }

    def sample_random_action(self) -> str:
        """One of the game's actions, uniformly, from a stream apart from the game's own."""
        if self._policy is None:
            raise UsageError(f"{self.name}: sample_random_action before reset; call reset first.")
        return self.engine.random_action(self._policy)

    def get_state(self) -> dict[str, Any]:
        """The whole state, JSON-able: engine, generators, counters."""
        if self._rng is None or self._policy is None:
            raise UsageError(f"{self.name}: get_state before reset; call reset first.")
        return {
            "game": self.name,
            "engine": self.engine.get_state(),
            "rng": self._rng.bit_generator.state,
            "policy": self._policy.bit_generator.state,
            "seed": self.seed,
            "steps": self.steps,
            "level_steps": self.level_steps,
            "unchanged": self.unchanged,
            "hash": self._hash,
            "over": self._over,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go back to a state that `get_state` gave."""
        if state.get("game") != self.name:
            raise DataError(f"The state is of game {state.get('game')!r}, this environment plays {self.name!r}.")
        self._rng, self._policy = (np.random.Generator(np.random.PCG64(0)) for _ in range(2))
        self._rng.bit_generator.state = state["rng"]
        self._policy.bit_generator.state = state["policy"]
        self.engine.rng = self._rng
        self.engine.set_state(state["engine"])
        self.seed = state["seed"]
        self.steps, self.level_steps, self.unchanged = state["steps"], state["level_steps"], state["unchanged"]
        self._hash, self._over, self._started = state["hash"], state["over"], True

    def image(self) -> NDArray[np.uint8]:
        """The present state as an RGB picture, whatever the observation mode."""
        return self.engine.image()

    def text(self) -> str:
        """The present state in words, whatever the observation mode."""
        return self.engine.text()

    def close(self) -> None:
        """Free what the engine holds."""
        self.engine.close()


@dataclass(slots=True)
class Observation:
    """What the harness sees, with the published fields.

    Attributes
    ----------
    img_path : str or None
        PNG of the frame, when a folder was given and the mode shows images.
    game_trajectory : deque of str
        The last lines of observations, actions and thoughts; its bound is ``max_memory``. The harness fills it.
    reflection, processed_visual_description, background, action_info : str or None
        Filled by the harness and by games with a story.
    textual_representation : str or None
        The state in words; None in mode "vision".
    image : uint8 array or None
        The frame itself; None in mode "text".
    """

    img_path: str | None = None
    game_trajectory: deque[str] = field(default_factory=deque)
    reflection: str | None = None
    processed_visual_description: str | None = None
    textual_representation: str | None = None
    background: str | None = None
    action_info: str | None = None
    image: NDArray[np.uint8] | None = None


class SixValueEnv:
    """The published contract: ``step`` gives Gymnasium's five values and ``perf_score``.

    Parameters
    ----------
    env : GameEnv
        The game.
    image_folder : path or None
        Where frames are written as ``env_obs_e001_s0003.png`` (modes "vision" and "both").
    """

    def __init__(self, env: GameEnv, image_folder: str | Path | None = None) -> None:
        self.env = env
        self.image_folder = Path(image_folder) if image_folder is not None else None
        self._trajectory: deque[str] = deque()
        self._episode = 1

    def reset(
        self, seed: int | None = None, max_memory: int | None = 10, episode_id: int = 1
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; ``max_memory`` bounds ``game_trajectory`` (in lines)."""
        observation, info = self.env.reset(seed)
        self._trajectory = deque(maxlen=max_memory)
        self._episode = episode_id
        return self._observation(observation), info

    def step(
        self, agent_action_str: str, thought_process: str = "", time_taken_s: float = 0.0
    ) -> tuple[Observation, float, bool, bool, dict[str, Any], float]:
        """Play one action; ``thought_process`` and ``time_taken_s`` are passed on in ``info``."""
        seen, reward, terminated, truncated, info = self.env.step(agent_action_str)
        info["thought"], info["time_taken_s"] = thought_process, time_taken_s
        return self._observation(seen), reward, terminated, truncated, info, info["perf_score"]

    def _observation(self, seen: Any) -> Observation:
        found = Observation(game_trajectory=self._trajectory)
        if isinstance(seen, str):
            found.textual_representation = seen
        else:
            found.textual_representation = seen["text"] or None
            found.image = seen["image"]
            found.img_path = self._write(seen["image"])
        background = getattr(self.env.engine, "background", None)
        if background is not None:
            found.background = background()
        return found

    def _write(self, image: NDArray[np.uint8]) -> str | None:
        if self.image_folder is None:
            return None
        from PIL import Image

        self.image_folder.mkdir(parents=True, exist_ok=True)
        path = self.image_folder / f"env_obs_e{self._episode:03d}_s{self.env.steps:04d}.png"
        Image.fromarray(image).save(path)
        return str(path)

    def close(self) -> None:
        """Free what the game holds."""
        self.env.close()


def make(
    game: str,
    *,
    observation_mode: Mode | None = None,
    max_steps: int | None = None,
    config: GameConfig | str | Path | None = None,
    **options: Any,
) -> GameEnv:
    """The environment of a game by name.

    Parameters
    ----------
    game : str
        One of `games()`.
    config : GameConfig or path of a ``game_env_config.json``
        Its ``env_init_kwargs`` are defaults for ``options``.
    **options
        Options of the engine, such as ``levels`` for Sokoban.
    """
    if isinstance(config, str | Path):
        config = read_config(config)
    given = {**(config.env_init_kwargs if config else {}), **options}
    try:
        engine = engine_class(game)(**given)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise UsageError(f"{game}: {str(error).split('__init__() ')[-1]}; see the options of its engine.") from error
    return GameEnv(engine, observation_mode=observation_mode, max_steps=max_steps, config=config)
