"""Gymnasium ids of the games; importing this module registers them.

``gymnasium.make("LMGame/Sokoban-v0", observation_mode="text")``; many games of 2048, Tetris or Candy Crush at once:
``gymnasium.make_vec("LMGame/Tetris-v0", num_envs=64)``; importing on the way:
``gymnasium.make("assay.agents.lmgame.gym:LMGame/Sokoban-v0")``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from assay.agents.lmgame.env import GameEnv, make
from assay.core.errors import MissingExtra, UsageError

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as error:
    raise MissingExtra("The games' Gymnasium interface", "lmgame") from error

from assay.systems.gymnasium_env import AnyText

IDS = {
    "LMGame/Sokoban-v0": "sokoban",
    "LMGame/TwentyFortyEight-v0": "twenty_forty_eight",
    "LMGame/CandyCrush-v0": "candy_crush",
    "LMGame/Tetris-v0": "tetris",
    "LMGame/SuperMarioBros-v0": "super_mario_bros",
    "LMGame/Platformer-v0": "platformer",
    "LMGame/Courtroom-v0": "courtroom",
}
_MAX_TEXT = 20_000


class LMGameEnv(gymnasium.Env[Any, Any]):
    """A game for Gymnasium: strict five values, text actions or indices.

    Parameters
    ----------
    game : str
        Name of the game.
    action_type : {"text", "index"}
        "text": any string, as the games read it. "index": ``Discrete`` over the game's action names.
    render_mode : "rgb_array" or None
    **options
        Of `assay.agents.lmgame.env.make`: observation_mode, max_steps, config, and the engine's own.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(
        self,
        game: str,
        *,
        action_type: Literal["text", "index"] = "text",
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        if action_type not in ("text", "index"):
            raise UsageError(f"action_type is {action_type!r}; give 'text' or 'index'.")
        self.env: GameEnv = make(game, **options)
        self.render_mode = render_mode
        self.names = self.env.actions
        self.action_space: spaces.Space[Any] = (
            AnyText(_MAX_TEXT) if action_type == "text" else spaces.Discrete(len(self.names))
        )
        self.by_index = action_type == "index"
        text = AnyText(_MAX_TEXT)
        self.observation_space: spaces.Space[Any] = text
        if self.env.observation_mode != "text":
            self.env.reset(0)
            image = spaces.Box(0, 255, self.env.image().shape, np.uint8)
            self.observation_space = spaces.Dict({"text": text, "image": image})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        return self.env.reset(seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play a text, or the name behind an index."""
        return self.env.step(self.names[int(action)] if self.by_index else action)

    def render(self) -> Any:
        """The frame, in render mode "rgb_array"."""
        return self.env.image() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Free what the game holds."""
        self.env.close()


class _BatchEnv(VectorEnv[Any, Any, Any]):
    """What the compiled vector environments share: seeds, restarts on the step after an end (NEXT_STEP)."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    batch: Any

    def __init__(self, num_envs: int, observation: spaces.Box, actions: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation, spaces.Discrete(actions)
        self.observation_space = batch_space(observation, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._ended = np.zeros(num_envs, bool)
        self._never = np.zeros(num_envs, bool)
        self._began = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start every game anew; game i plays what `GameEnv.reset(seed + i)` plays. None: streams go on."""
        if seed is None and self._began:
            self.batch.restart(np.ones(self.num_envs, bool))
        else:
            seeds = [None if seed is None else seed + i for i in range(self.num_envs)] if not isinstance(
                seed, Sequence
            ) else list(seed)  # fmt: skip
            if len(seeds) != self.num_envs or any(one is not None and one < 0 for one in seeds):
                raise UsageError(
                    f"seed={seed!r}; give an integer of at least 0, or one for each of {self.num_envs} games."
                )
            # The first child: where a GameEnv of that seed draws its game from.
            children = (np.random.SeedSequence(one).spawn(2)[0] for one in seeds)
            self.batch.reset([np.random.Generator(np.random.PCG64(child)) for child in children])
        self._began = True
        self._ended[:] = False
        return self._observe(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Play an action in every game; a game that had ended starts anew instead, with reward 0."""
        ended = self._ended
        rewards = self._play(np.asarray(actions)).astype(np.float64)
        if ended.any():
            self.batch.restart(ended)
            rewards[ended] = 0.0
        self._ended = self.batch.over.copy()
        return self._observe(), rewards, self._ended.copy(), self._never.copy(), self._info()

    def _observe(self) -> Any:
        raise NotImplementedError

    def _play(self, actions: Any) -> Any:
        raise NotImplementedError

    def _info(self) -> dict[str, Any]:
        raise NotImplementedError


class TwentyFortyEightVectorEnv(_BatchEnv):
    """2048 in compiled batches. Observation: (n, 4, 4) powers of two, 0 empty; actions up, right, down, left."""

    def __init__(self, num_envs: int = 1) -> None:
        from assay.agents.lmgame.games.compiled import Batch2048

        super().__init__(num_envs, spaces.Box(0, 15, (4, 4), np.uint8), 4)
        self.batch = Batch2048(num_envs)

    def _observe(self) -> Any:
        return self.batch.powers()

    def _play(self, actions: Any) -> Any:
        return self.batch.step(actions)[0]

    def _info(self) -> dict[str, Any]:
        return {"legal": self.batch.legal.copy(), "total_score": self.batch.totals.copy()}


class TetrisVectorEnv(_BatchEnv):
    """Tetris in compiled batches, one frame a step. Observation: (n, height, width), 0 empty, 1 settled, 2 active."""

    def __init__(self, num_envs: int = 1, width: int = 10, height: int = 20) -> None:
        from assay.agents.lmgame.games.compiled import BatchTetris

        super().__init__(num_envs, spaces.Box(0, 2, (height, width), np.uint8), 7)
        self.batch = BatchTetris(num_envs, width, height)

    def _observe(self) -> Any:
        return self.batch.observe()

    def _play(self, actions: Any) -> Any:
        return self.batch.step(actions)

    def _info(self) -> dict[str, Any]:
        return {"total_score": self.batch.scores}


class CandyCrushVectorEnv(_BatchEnv):
    """Candy Crush in compiled batches. Observation: (n, rows, columns) colours; actions: indices of swaps."""

    def __init__(self, num_envs: int = 1, rows: int = 8, columns: int = 8, colours: int = 4, moves: int = 50) -> None:
        from assay.agents.lmgame.games.compiled_candy import BatchCandy

        self.batch = BatchCandy(num_envs, rows, columns, colours, moves)
        super().__init__(num_envs, spaces.Box(0, colours - 1, (rows, columns), np.uint8), self.batch.actions)

    def _observe(self) -> Any:
        return self.batch.boards.astype(np.uint8)

    def _play(self, actions: Any) -> Any:
        return self.batch.step(actions)

    def _info(self) -> dict[str, Any]:
        return {"effective": self.batch.effective(), "total_score": self.batch.totals.copy()}


_VECTOR = {
    "LMGame/TwentyFortyEight-v0": TwentyFortyEightVectorEnv,
    "LMGame/Tetris-v0": TetrisVectorEnv,
    "LMGame/CandyCrush-v0": CandyCrushVectorEnv,
}


def register() -> None:
    """Register the ids; doing so again changes nothing."""
    for name, game in IDS.items():
        if name in gymnasium.registry:
            continue
        gymnasium.register(
            name,
            entry_point="assay.agents.lmgame.gym:LMGameEnv",
            vector_entry_point=_vector(name) if name in _VECTOR else None,
            kwargs={"game": game},
        )


def _vector(name: str) -> Any:
    def create(num_envs: int, game: str, **options: Any) -> VectorEnv[Any, Any, Any]:
        return _VECTOR[name](num_envs, **options)

    return create


register()
