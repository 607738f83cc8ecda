"""One episode, played by a model through the harness or by a player of the engine, recorded a line a step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.agents.lmgame.env import GameEnv, make
from assay.agents.lmgame.replay import start_line, step_line

if TYPE_CHECKING:
    from assay.agents.lmgame.harness import Agent
    from assay.agents.lmgame.solvers.players import Player

# What is played when a reply holds no move: no game knows it, so it costs what an unknown action costs there.
UNREAD = "unread move"

LOG = "episode_001_log.jsonl"
SUMMARY = "gym_run_summary.json"
CONFIG = "agent_config.json"


@dataclass(frozen=True)
class Setup:
    """What is played: game, mode, limit, options of the engine, seed of the board."""

    game: str
    mode: str | None = None
    max_steps: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 42

    def make(self) -> GameEnv:
        """The environment, not yet reset."""
        options = dict(self.options)
        config = options.pop("config", None)
        return make(self.game, observation_mode=self.mode, max_steps=self.max_steps, config=config, **options)  # type: ignore[arg-type]


@dataclass
class Played:
    """A finished episode: facts of its end, and a row a step."""

    score: float
    reported: float
    steps: int
    unread: int
    unknown: int
    end: str
    total_reward: float
    rows: list[dict[str, Any]]

    def output(self) -> dict[str, Any]:
        """What the record holds as the system's output."""
        return {
            "score": self.score,
            "steps": self.steps,
            "unread": self.unread,
            "unknown": self.unknown,
            "end": self.end,
            "total_reward": self.total_reward,
        }


class Recorder:
    """Collects an episode's log lines and rows; with a scratch file an interrupted episode goes on where it was.

    Parameters
    ----------
    env
        After its reset.
    checkpoint
        File to which every step is appended with the state after it; None = no checkpoints.
    """

    def __init__(self, env: GameEnv, checkpoint: Path | None = None) -> None:
        self.env = env
        self.lines: list[dict[str, Any]] = [start_line(env)]
        self.rows: list[dict[str, Any]] = []
        self.checkpoint = checkpoint
        self.info: dict[str, Any] = {}

    def restore(self, agent: Agent) -> Any:
        """Go back to the last step of the checkpoint; its observation, or None where there is no checkpoint."""
        if self.checkpoint is None or not self.checkpoint.is_file():
            return None
        kept: list[dict[str, Any]] = []
        text = self.checkpoint.read_text(encoding="utf-8")
        for line in text.splitlines():
            try:
                kept.append(json.loads(line))
            except ValueError:
                break  # a kill in the middle of a write: the torn last line is played again
        if not kept:
            return None
        self.lines += [entry["line"] for entry in kept]
        self.rows = [entry["row"] for entry in kept]
        self.env.set_state(kept[-1]["env"])
        agent.set_state(kept[-1]["agent"])
        self.info = kept[-1]["line"]["info"]
        self.checkpoint.write_text("".join(json.dumps(e, ensure_ascii=False) + "\n" for e in kept), encoding="utf-8")
        return self.env.observe()

    def step(self, action: str, result: tuple[Any, float, bool, bool, dict[str, Any]], **told: Any) -> None:
        """Record what ``env.step(action)`` returned; ``told`` holds thought, read, seconds, reflection, calls."""
        _, reward, _, _, info = result
        self.info = info
        self.lines.append(step_line(self.env, action, result, **_kept(told)))
        row = {
            "step": self.env.steps,
            "action": action,
            "reward": float(reward),
            "perf": float(info["perf_score"]),
            "score": float(info["total_score"]),
            "known": bool(info["known_action"]),
            "read": bool(told.get("read", True)),
            "unchanged": int(info["unchanged"]),
            "calls": int(told.get("calls", 0)),
            "seconds": float(told.get("seconds", 0.0)),
        }
        self.rows.append(row)

    def save(self, agent: Agent) -> None:
        """Append the last step, and the state after it, to the checkpoint."""
        if self.checkpoint is None:
            return
        entry = {
            "line": self.lines[-1],
            "row": self.rows[-1],
            "env": self.env.get_state(),
            "agent": agent.get_state(),
        }
        with self.checkpoint.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def finish(self, folder: Path | None, config: Mapping[str, Any]) -> Played:
        """The episode; with a folder its log, run summary and configuration are written in the published form."""
        total = sum(row["reward"] for row in self.rows)
        played = Played(
            score=float(self.info["total_score"]),
            reported=float(self.info["reported_score"]),
            steps=self.env.steps,
            unread=sum(not row["read"] for row in self.rows),
            unknown=sum(not row["known"] for row in self.rows),
            end=self.info["end"] or "step limit",
            total_reward=total,
            rows=self.rows,
        )
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines)
            (folder / LOG).write_text(text, encoding="utf-8")
            episode = {
                "episode_id": 1,
                "total_reward": total,
                "total_steps": played.steps,
                "total_perf_score": sum(row["perf"] for row in self.rows),
                "total_score": played.score,
                "end": played.end,
            }
            summary = {
                **config,
                "num_runs": 1,
                "episodes": [episode],
                "score": {"mean": played.score, "std": 0.0, "min": played.score, "max": played.score},
            }
            (folder / SUMMARY).write_text(json.dumps(summary, indent=1), encoding="utf-8")
            (folder / CONFIG).write_text(json.dumps(dict(config), indent=1), encoding="utf-8")
        return played


def _kept(told: Mapping[str, Any]) -> dict[str, Any]:
    names = {"seconds": "time_taken_s"}
    return {
        names.get(k, k): v
        for k, v in told.items()
        if k in ("thought", "seconds", "reflection", "perception", "img_path")
    }


async def play_model(
    setup: Setup,
    agent: Agent,
    *,
    folder: Path | None = None,
    checkpoint: Path | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Played:
    """An episode played by a chat model.

    Parameters
    ----------
    folder
        Where log, summary and (modes with pictures) frames go.
    checkpoint
        File that lets an interrupted episode go on.
    progress
        Told steps and score after each step.
    """
    env = setup.make()
    try:
        observation, info = env.reset(setup.seed)
        record = Recorder(env, checkpoint)
        record.info = info
        restored = record.restore(agent)
        observation = observation if restored is None else restored
        over = record.info["end"] is not None
        while not over:
            started = time.perf_counter()
            background = getattr(env.engine, "background", None)
            decision = await agent.decide(observation, None if background is None else background())
            action = decision.action or UNREAD
            result = env.step(action)
            observation = result[0]
            agent.done(action, decision)
            record.step(
                action,
                result,
                thought=decision.thought or "",
                read=decision.action is not None,
                seconds=time.perf_counter() - started,
                reflection=decision.reflection,
                perception=decision.perception,
                calls=decision.calls,
                img_path=_frame(folder, env, observation),
            )
            record.save(agent)
            if progress is not None:
                progress(env.steps, env.score)
            over = result[2] or result[3]
        return record.finish(folder, _config(setup, agent.model.name, agent.modules.label))
    finally:
        env.close()


def play_player(setup: Setup, player: str, seed: int, folder: Path | None = None, hand: Player | None = None) -> Played:
    """An episode played by a player of the engine (see `solvers.players.make_player`); ``hand``: the player itself."""
    from assay.agents.lmgame.solvers.players import make_player

    env = setup.make()
    try:
        _, info = env.reset(setup.seed)
        chosen = hand or make_player(setup.game, player, seed)
        record = Recorder(env)
        record.info = info
        over = False
        while not over:
            action = chosen.act(env)
            result = env.step(action)
            record.step(action, result)
            over = result[2] or result[3]
        return record.finish(folder, _config(setup, player, "none"))
    finally:
        env.close()


def _config(setup: Setup, model: str, harness: str) -> dict[str, Any]:
    return {
        "game_name": setup.game,
        "model_name": model,
        "harness": harness,
        "observation_mode": setup.mode,
        "max_steps": setup.max_steps,
        "seed": setup.seed,
    }


def _frame(folder: Path | None, env: GameEnv, observation: Any) -> str | None:
    if folder is None or isinstance(observation, str):
        return None
    from PIL import Image

    place = folder / "observations"
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"env_obs_e001_s{env.steps:04d}.png"
    Image.fromarray(observation["image"]).save(path)
    return f"observations/{path.name}"
