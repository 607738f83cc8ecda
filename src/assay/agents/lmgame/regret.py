"""Regret: what every step of an episode gave away, judged by the solver of its game."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from assay.agents.lmgame.env import engine_class
from assay.agents.lmgame.games import tetris as t
from assay.agents.lmgame.games import twenty_forty_eight as g2048
from assay.agents.lmgame.games.candy_crush import CandyCrush
from assay.agents.lmgame.games.sokoban import Level, Sokoban
from assay.agents.lmgame.games.tetris import Tetris
from assay.agents.lmgame.games.twenty_forty_eight import TwentyFortyEight
from assay.agents.lmgame.replay import Episode, replayed
from assay.agents.lmgame.solvers import puzzle
from assay.agents.lmgame.solvers.sokoban_search import GaveUp, Solution, search
from assay.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a step gave away.

    Attributes
    ----------
    regret
        Value of the best action less that of the one taken, at least 0; see `UNITS`.
    best
        The solver's action.
    blunder
        The step threw away what the game is about: see `UNITS`.
    """

    regret: float
    best: str
    blunder: bool


# Game -> what a regret counts, and what a blunder is. Steps at which nothing was at stake are not judged.
UNITS: Mapping[str, tuple[str, str]] = {
    "sokoban": ("pushes more than needed", "a push after which the level cannot be solved"),
    "twenty_forty_eight": (
        "share of what lies between the best and the worst legal slide, by expectimax over two own moves",
        "half of that or more",
    ),
    "candy_crush": ("candies fewer, refills counted as blanks", "a swap without a run where there was one with"),
    "tetris": ("evaluation lost by where pieces were placed; a hole is worth 3.6", "the worth of a hole or more"),
}


def judge(game: str, engine: Any, action: str) -> Judgement | None:
    """Judge an action in the state that ``engine`` is in; the engine may be played on. None: nothing was at stake.

    Raises
    ------
    UsageError
        No solver judges this game.
    """
    if game not in _JUDGES:
        raise UsageError(f"Steps of {game} are judged by no solver; those of {', '.join(_JUDGES)} are.")
    return _JUDGES[game](engine, engine.parse(action))


def regrets(log: Episode | str | Path, **settings: Any) -> Iterator[tuple[Mapping[str, Any], Judgement | None]]:
    """(row of the log, judgement) of every step; ``settings`` as in `replayed`."""
    before: dict[str, Any] | None = None
    twin: Any = None
    for env, row in replayed(log, **settings):
        if twin is None:
            twin = engine_class(env.name)()
        if before is not None:
            twin.set_state(before)
            yield row, judge(env.name, twin, row["agent_action"])
        before = env.engine.get_state()


def _judge_2048(engine: TwentyFortyEight, command: str | None) -> Judgement | None:
    board = engine.board
    worth = {action: puzzle.worth_2048(board, action) for action in g2048.legal(board)}
    stake = max(worth.values(), default=0.0) - min(worth.values(), default=0.0)
    chosen = None if command is None else g2048.ACTIONS.index(command)
    if chosen not in worth or stake <= 0:
        return None
    best = max(worth, key=lambda action: worth[action])
    lost = (worth[best] - worth[chosen]) / stake
    return Judgement(lost, g2048.ACTIONS[best], lost >= 0.5)


def _judge_candy(engine: CandyCrush, command: int | None) -> Judgement | None:
    worth = {action: puzzle.cascade(engine, action) for action in engine.effective_actions()}
    if not worth:
        return None
    best = max(worth, key=lambda action: worth[action])
    mine = 0 if command is None else worth.get(command, 0)
    return Judgement(float(worth[best] - mine), engine.actions[best], mine == 0)


def _judge_tetris(engine: Tetris, command: list[tuple[int, int]] | None) -> Judgement | None:
    """Every piece that the action brings down, against the best placement of it when it came up; told is the first."""
    lost, best = 0.0, None
    for action, frames in command or [(t.NO_OP, 1)]:
        for _ in range(frames):
            # The rows change only when a piece is placed: until then they are those that it found.
            rows, kind, lines = tuple(engine.rows), engine.kind, engine.lines
            if engine.frame(action):
                worth, name = _best_placement(rows, engine.width, kind)
                mine = 0.76 * (engine.lines - lines) + puzzle.value_tetris(engine.rows, engine.width)
                lost, best = lost + max(0.0, worth - mine), best or name
            if engine.over:
                break
        if engine.over:
            break
    return None if best is None else Judgement(lost, best, lost >= 3.6)


def _best_placement(rows: tuple[int, ...], width: int, kind: int) -> tuple[float, str]:
    found = puzzle.placements(list(rows), width, kind)
    if not found:
        return float("-inf"), "(hard_drop,1)"
    worth = [0.76 * lines + puzzle.value_tetris(after, width) for _, after, lines in found]
    best = max(range(len(found)), key=worth.__getitem__)
    return worth[best], puzzle.tetris_action(*found[best][0])


@cache
def _solution(level: Level, player: int, boxes: int) -> Solution | None:
    return search(level, player=player, boxes=boxes)


def _judge_sokoban(engine: Sokoban, command: str | None) -> Judgement | None:
    """Pushes alone: walking gives nothing away but time. None too where the search came to its bound."""
    level, player, boxes = engine.level, engine.player, engine.boxes
    if command is None or not command.startswith("push "):
        return None
    step = level.steps[("up", "down", "left", "right").index(command.removeprefix("push "))]
    if not boxes >> (player + step) & 1 or (level.walls | boxes) >> (player + 2 * step) & 1:
        return None
    pushed = boxes ^ (1 << (player + step) | 1 << (player + 2 * step))
    try:
        before = _solution(level, player, boxes)
        if before is None:
            return None
        pushing = next(i for i, a in enumerate(before.actions) if a.startswith("push "))
        best = ", ".join(before.actions[: pushing + 1])
        after = _solution(level, player + step, pushed)
    except GaveUp:
        return None
    if after is None:
        return Judgement(float(before.pushes), best, True)
    return Judgement(float(1 + after.pushes - before.pushes), best, False)


_JUDGES: Mapping[str, Callable[[Any, Any], Judgement | None]] = {
    "sokoban": _judge_sokoban,
    "twenty_forty_eight": _judge_2048,
    "candy_crush": _judge_candy,
    "tetris": _judge_tetris,
}
JUDGED = tuple(_JUDGES)
