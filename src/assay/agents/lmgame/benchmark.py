"""LMGame-Bench: six games as a test of language models, with a harness that can be switched (arXiv 2505.15146)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.core.benchmark import Benchmark, Metric, Outcome, Sample, Task
from assay.core.errors import DataError, UsageError, unknown_name
from assay.core.metrics import macro, mean, ratio
from assay.systems.chat.model import ChatModel

if TYPE_CHECKING:
    from assay.agents.lmgame.episode import Setup
    from assay.agents.lmgame.harness import Modules, Settings
    from assay.agents.lmgame.prompts import Prompts
    from assay.core.context import Context

_ROOM = "assay.agents.lmgame"
OWN_GAMES = ("sokoban", "twenty_forty_eight", "candy_crush", "tetris", "platformer", "courtroom")
ROM_GAMES = ("super_mario_bros",)
# Games of the published runs: ace_attorney is no game here, the courtroom is another one.
PUBLISHED_GAMES = ("sokoban", "super_mario_bros", "tetris", "twenty_forty_eight", "candy_crush", "ace_attorney")


class _Either(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, ChatModel) or hasattr(instance, "player_for")


class Contestant(metaclass=_Either):
    """For ``Task.system``: a ChatModel, or what has ``player_for(game) -> str`` (see `methods.EnginePlayer`)."""


@cache
def baselines() -> Mapping[str, Mapping[str, float]]:
    """Mean reported score of the random player and of the strongest one, by game (from references.json)."""
    found = json.loads((Path(__file__).parent / "references.json").read_text(encoding="utf-8"))["baselines"]["games"]
    return {game: {"random": row["random"]["mean"], "expert": row["expert"]["mean"]} for game, row in found.items()}


class GameTask(Task):
    """One game: an episode a sample, a sample for each seed and each state of the harness."""

    system = Contestant

    def __init__(self, game: str, benchmark: LMGame) -> None:
        self.name = self.game = game
        self.benchmark = benchmark
        self.modalities = ("text",) if benchmark.mode == "text" else ("text", "image")

    def samples(self) -> Sequence[Sample]:
        """One sample a seed and condition; conditions of one seed share its cluster."""
        bench = self.benchmark
        known = baselines().get(self.game) if bench.standard(self.game) else None
        return [
            Sample(
                f"seed{seed}-{bench.mode}-{modules.label}",
                input={"seed": seed, "harness": modules.label},
                target=dict(known or {}),
                groups={"game": self.game, "harness": modules.label, "mode": bench.mode, "board_seed": seed},
                cluster=f"{self.game}/{seed}",
            )
            for seed in bench.seeds
            for modules in bench.conditions
        ]

    async def trial(self, system: Any, sample: Sample, ctx: Context) -> Outcome:
        """Play one episode."""
        from assay.agents.lmgame.episode import play_model, play_player
        from assay.agents.lmgame.harness import Agent

        bench = self.benchmark
        setup = bench.setup(self.game, sample.input["seed"])
        folder = ctx.artifacts if bench.logs else None
        if isinstance(system, ChatModel):
            modules = next(m for m in bench.conditions if m.label == sample.input["harness"])
            agent = Agent(system, modules, bench.prompts(self.game), bench.settings, seed=ctx.seed % 2**31)
            played = await play_model(
                setup,
                agent,
                folder=folder,
                checkpoint=ctx.scratch / "steps.jsonl",
                progress=lambda steps, score: ctx.progress(steps, None, score=score),
            )
        else:
            player = system.player_for(self.game)
            hand = system.hand(self.game)
            if hand is None:
                played = await ctx.compute(play_player, setup, player, ctx.seed, folder)
            else:
                played = await asyncio.to_thread(play_player, setup, player, ctx.seed, folder, hand)
        return Outcome(output=played.output(), rows=played.rows)

    def score(self, sample: Sample, output: Any, ctx: Context) -> Outcome:
        """Scores of a stored episode, or of a published one, which knows its score alone."""
        from assay.agents.lmgame.env import reported_score

        if not isinstance(output, Mapping) or not isinstance(output.get("score"), int | float):
            raise DataError(f"{self.game}, {sample.id}: the output {output!r} holds no number 'score'.")
        raw = float(output["score"])
        reported = reported_score(self.game, raw)
        scores: dict[str, float | None] = {"score": raw, "reported": reported}
        for name in ("steps", "unread", "unknown"):
            if name in output:
                scores[name] = float(output[name])
        if sample.target:
            low, high = sample.target["random"], sample.target["expert"]
            scores |= {"beat_random": float(reported > low), "skill": (reported - low) / (high - low)}
        return Outcome(scores, groups={"end": str(output.get("end", "unknown"))})


def _metrics(games: Sequence[str]) -> tuple[Metric, ...]:
    by = ("harness",)
    return (
        macro("skill", over="game", name="macro_skill", headline=True, error=None, by=by),
        mean("beat_random", name="beat_random_rate", bounds=(0, 1), by=by),
        *(mean("reported", name=f"reported_{g}", where={"game": g}, error=None, by=by) for g in games),
        ratio("unread", "steps", name="unread_rate", error=None, higher_is_better=False),
        ratio("unknown", "steps", name="unknown_action_rate", error=None, higher_is_better=False),
    )


class LMGame(Benchmark):
    """Games played by models, with the harness on, off, or module by module.

    Parameters
    ----------
    games
        Names separated by commas; nothing = the six that need no ROM.
    harness
        ``true``, ``false``, ``both``, ``each`` (every module alone), or modules joined by ``+``; commas part several.
    mode
        What is observed: ``text``, ``vision`` or ``both``.
    runs, first_seed
        Episodes a game: seeds ``first_seed``, ``first_seed + 1``, ... Equal seeds are equal boards.
    max_steps
        Steps of an episode; nothing = the game's own limit.
    max_memory, summary_tokens
        Entries of memory; estimated tokens at which the summary module acts before the memory is full (0 = never).
    fresh
        Levels drawn anew by seed and certified by a solver, where the game has fixed ones (Sokoban, platformer).
    levels, script, masks
        Files: Sokoban levels, a courtroom script, entity masks of a ``mapping.json``.
    config
        A published ``game_env_config.json``; with one game only.
    prompts
        A ``module_prompts.json``, or a folder of them by game (``GAME.json``, ``GAME/module_prompts.json``).
    rom_folder
        For super_mario_bros.
    grid, scale
        Rows and columns of the grid drawn over frames (``5x5``; empty = none); how much frames are enlarged.
    max_tokens, temperature
        Of each request. Published: 50,000 (text) and 100,000 (vision) tokens.
    logs
        Whether each episode leaves its log and frames under artifacts.
    model
        Which model of a published ``model_perf_rank.json`` a submission reads.
    """

    name = "lmgame"
    title = "LMGame-Bench: six games with a switchable harness"
    paper = "arXiv:2505.15146"
    extras = ("lmgame",)
    references = "references.json"
    metrics = _metrics(OWN_GAMES)
    analyses = {
        name: f"{_ROOM}.analyses:{name}"
        for name in (
            "scores",
            "beat_random",
            "harness",
            "modules",
            "ranks",
            "normalised",
            "ranking",
            "correlations",
            "steps",
            "budget",
            "regret",
            "recall",
        )
    }
    recipes = {
        "baselines": f"{_ROOM}.recipes:baselines",
        "published": f"{_ROOM}.recipes:published",
        "replay": f"{_ROOM}.recipes:replay",
        "prompts": f"{_ROOM}.recipes:prompts",
        "diagnostics": f"{_ROOM}.recipes:diagnostics",
        "contamination": f"{_ROOM}.recipes:contamination",
        "optimise": f"{_ROOM}.recipes:optimise",
        "train": f"{_ROOM}.recipes:train",
        "tournament": f"{_ROOM}.tournament:tournament",
        "reproduce": f"{_ROOM}.reproduce:reproduce",
    }

    def __init__(
        self,
        games: str = "",
        *,
        harness: str = "both",
        mode: Literal["text", "vision", "both"] = "text",
        runs: int = 3,
        first_seed: int = 42,
        max_steps: int | None = None,
        max_memory: int = 10,
        summary_tokens: int = 0,
        fresh: bool = False,
        levels: str | None = None,
        script: str | None = None,
        masks: str | None = None,
        config: str | None = None,
        prompts: str | None = None,
        rom_folder: str | None = None,
        grid: str = "",
        scale: float = 1.0,
        max_tokens: int | None = 2048,
        temperature: float | None = None,
        logs: bool = True,
        model: str | None = None,
    ) -> None:
        chosen = [name.strip() for name in games.split(",") if name.strip()] or list(OWN_GAMES)
        for name in chosen:
            if name not in (*OWN_GAMES, *ROM_GAMES):
                raise unknown_name("game", name, (*OWN_GAMES, *ROM_GAMES))
        if len(set(chosen)) < len(chosen):
            raise UsageError(f"Option games={games!r} names a game twice.")
        if mode not in ("text", "vision", "both"):
            raise unknown_name("value of option mode", mode, ("text", "vision", "both"))
        if runs < 1 or first_seed < 0:
            raise UsageError(f"Options runs={runs}, first_seed={first_seed}: give at least 1 run and a seed from 0.")
        if max_memory < 0 or summary_tokens < 0:
            raise UsageError(f"Options max_memory={max_memory}, summary_tokens={summary_tokens}: neither is below 0.")
        if max_steps is not None and max_steps < 1:
            raise UsageError(f"Option max_steps={max_steps}: give at least 1, or leave it out.")
        if config is not None and len(chosen) != 1:
            raise UsageError("Option config is one game's file; choose the game with games=NAME.")
        if fresh and levels is not None:
            raise UsageError("Options fresh and levels exclude each other: levels are drawn or read.")
        self.games = tuple(chosen)
        self.mode = mode
        self.seeds = range(first_seed, first_seed + runs)
        self.max_steps = max_steps
        self.max_memory, self.summary_tokens = max_memory, summary_tokens
        self.fresh, self.levels, self.script, self.masks = fresh, levels, script, masks
        self.config, self.prompt_source, self.rom_folder = config, prompts, rom_folder
        self.grid, self.scale = _grid(grid), scale
        self.max_tokens, self.temperature = max_tokens, temperature
        self.logs = logs
        self.model = model
        self.harness = harness
        self.metrics = _metrics(self.games)
        _ = self.conditions

    @cached_property
    def conditions(self) -> tuple[Modules, ...]:
        """States of the harness."""
        from assay.agents.lmgame.harness import read_modules

        return read_modules(self.harness)

    @cached_property
    def settings(self) -> Settings:
        """How the harness asks."""
        from assay.agents.lmgame.harness import Settings

        return Settings(
            self.max_memory, self.summary_tokens or None, self.max_tokens, self.temperature, self.grid, self.scale
        )

    def standard(self, game: str) -> bool:
        """Whether a game is set up as its baselines were, so that scores may be held against them."""
        changed = self.max_steps is not None or self.config is not None
        if game in ("sokoban", "platformer"):
            changed |= self.fresh
        if game == "sokoban":
            changed |= self.levels is not None
        if game == "courtroom":
            changed |= self.script is not None
        return not changed

    def setup(self, game: str, seed: int) -> Setup:
        """What one episode of a game is."""
        from assay.agents.lmgame.episode import Setup

        options: dict[str, Any] = {}
        if game == "sokoban" and self.fresh:
            options["fresh"] = {"boxes": 2, "pushes": (4, 40)}
        if game == "sokoban" and self.levels is not None:
            options["levels"] = self.levels
        if game == "platformer" and self.fresh:
            options["level"] = "fresh"
        if game == "courtroom" and self.script is not None:
            options["script"] = self.script
        if game == "courtroom" and self.masks is not None:
            options["masks"] = _read_masks(self.masks)
        if game == "super_mario_bros" and self.rom_folder is not None:
            options["rom_folder"] = self.rom_folder
        if self.config is not None:
            options["config"] = self.config
        return Setup(game, self.mode, self.max_steps, options, seed)

    def prompts(self, game: str) -> Prompts:
        """Prompts of a game: the standard ones, or what option ``prompts`` names."""
        from assay.agents.lmgame.prompts import prompts_for, read_prompts

        if self.prompt_source is None:
            return prompts_for(game)
        place = Path(self.prompt_source)
        if not place.is_dir():
            return read_prompts(place, game)
        for path in (place / f"{game}.json", place / game / "module_prompts.json"):
            if path.is_file():
                return read_prompts(path, game)
        raise DataError(f"{place} holds neither {game}.json nor {game}/module_prompts.json.")

    def tasks(self) -> Sequence[Task]:
        """One task a game."""
        return [GameTask(game, self) for game in self.games]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """Random play, solvers, noisy experts, people at the terminal, and simulated models."""
        from assay.agents.lmgame import methods

        return methods.METHODS

    def read(self, path: Path) -> Iterable[tuple[str, str, int, Outcome]]:
        """Published results: ``model_perf_rank.json`` (with ``model=``), or a folder of published run folders."""
        from assay.agents.lmgame.published import submission

        return submission(self, path)

    def data(self) -> Mapping[str, Any]:
        """Where levels, cases and boards come from."""
        given = [p for p in (self.levels, self.script, self.masks, self.config, self.prompt_source) if p]
        if given:
            return {"kind": "real", "source": ", ".join(given), "licence": "the owner's"}
        return {"kind": "generated", "source": "engines, levels and cases of assay, by seed", "licence": "Apache-2.0"}


def _grid(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    rows, _, columns = text.lower().partition("x")
    if not (rows.isdigit() and columns.isdigit() and int(rows) and int(columns)):
        raise UsageError(f"Option grid={text!r}: give rows x columns, as in 5x5.")
    return int(rows), int(columns)


def _read_masks(path: str) -> dict[str, Any]:
    from assay.core.datasets import read_json

    found = read_json(path)
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no object; a mapping.json has name_mappings, dialog, evidence_mappings.")
    return found
