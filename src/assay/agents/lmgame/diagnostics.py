"""What holds a model back: reading a board from its picture, seeing what an action did, foreseeing, remembering."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.agents.lmgame.episode import Setup, play_model
from assay.agents.lmgame.harness import FULL, Agent, Modules, Settings
from assay.agents.lmgame.parsing import section
from assay.agents.lmgame.prompts import GUIDES, prompts_for
from assay.core.errors import UsageError, unknown_name
from assay.core.stats.intervals import mean_interval
from assay.systems.chat.model import ChatModel

if TYPE_CHECKING:
    from assay.agents.lmgame.env import GameEnv

Grid = list[list[str]]


@dataclass(frozen=True)
class Found:
    """One diagnostic figure: mean over boards or episodes with its 95 % interval, and the share that was unread."""

    diagnostic: str
    game: str
    setting: str
    value: float
    low: float
    high: float
    n: int
    unread: float = 0.0
    exact: float | None = None


def _grid_2048(env: GameEnv) -> Grid:
    return [[str(int(v)) for v in row] for row in env.engine.tiles]  # type: ignore[attr-defined]


def _grid_candy(env: GameEnv) -> Grid:
    lines = [line.split("|")[1].split() for line in env.text().splitlines() if "|" in line]
    return [list(line) for line in lines]


def _grid_rows(env: GameEnv) -> Grid:
    return [list(row) for row in env.engine.board()]  # type: ignore[attr-defined]


# Game -> true board, and how a reader is to write it.
BOARDS: dict[str, tuple[Callable[[GameEnv], Grid], str]] = {
    "twenty_forty_eight": (_grid_2048, "the numbers of a row with blanks between them, 0 for an empty cell"),
    "candy_crush": (_grid_candy, "one letter a candy (R red, G green, B blue, Y yellow), with blanks between them"),
    "tetris": (
        _grid_rows,
        "one character a cell without blanks: a dot for an empty cell, the piece's letter (IOTSZJL) else",
    ),
    "sokoban": (
        _grid_rows,
        "one character a cell without blanks: # wall, @ player, $ box, ? target, * box on target, + player on target, "
        "a blank for floor",
    ),
}


def read_grid(reply: str, rows: int, columns: int) -> Grid | None:
    """A board of the last code block or of the last lines of a reply; None where no ``rows`` lines fit.

    Cells stand with blanks between them, or one character a cell; short rows are padded with cells that are wrong.
    """
    blocks = re.findall(r"```[a-z]*\n(.*?)```", reply, re.DOTALL)
    lines = (blocks[-1] if blocks else reply).split("\n")
    if not blocks:
        lines = [line for line in lines if line.strip()]
    while lines and not lines[-1].strip():
        lines.pop()
    if len(lines) < rows:
        return None
    found = []
    for line in lines[-rows:]:
        cells = line.split()
        if len(cells) != columns:
            cells = list(line.rstrip("\r"))
        found.append((cells + [""] * columns)[:columns])
    return found


def accuracy(found: Grid | None, truth: Grid) -> float:
    """Share of the cells that were read rightly; 0 for no board."""
    if found is None:
        return 0.0
    cells = [(a, b) for row, true in zip(found, truth) for a, b in zip(row, true)]
    return sum(a.strip() == b.strip() for a, b in cells) / sum(len(row) for row in truth)


def _positions(game: str, boards: int, moves: int, seed: int) -> list[GameEnv]:
    """Environments after up to ``moves`` random moves; which ones depends on the seed alone."""
    found = []
    for number in range(boards):
        env = Setup(game, "text", seed=seed + number).make()
        env.reset(seed + number)
        for _ in range(int(np.random.default_rng([seed, number]).integers(moves + 1))):
            if env.step(env.sample_random_action())[2:4] != (False, False):
                env.reset(seed + number)
        found.append(env)
    return found


def _summary(
    diagnostic: str, game: str, setting: str, values: Sequence[float], rng: np.random.Generator, **more: Any
) -> Found:
    found = mean_interval(values, rng=rng)
    return Found(diagnostic, game, setting, float(np.mean(values)), found.low, found.high, len(values), **more)


def _check(game: str, boards: int) -> None:
    if game not in BOARDS:
        raise unknown_name("game with a board to read", game, BOARDS)
    if boards < 2:
        raise UsageError(f"boards={boards}: an interval needs at least 2.")


async def state_reading(model: ChatModel, game: str, *, boards: int = 20, moves: int = 12, seed: int = 0) -> Found:
    """Visual state extraction: accuracy a cell of the board that the model reads from its picture."""
    from PIL import Image

    from assay.systems.chat.images import image_part, with_images

    _check(game, boards)
    truth_of, how = BOARDS[game]
    values, unread, exact = [], 0, 0
    for env in _positions(game, boards, moves, seed):
        truth = truth_of(env)
        told = (
            f"The picture shows a board of {GUIDES[game].title} with {len(truth)} rows and {len(truth[0])} columns. "
            f"Write the board in a code block, a line a row: {how}."
        )
        message = {"role": "user", "content": with_images(told, [image_part(Image.fromarray(env.image()))])}
        reply = await model.generate([message], seed=seed)
        found = read_grid(reply.text, len(truth), len(truth[0]))
        unread += found is None
        values.append(accuracy(found, truth))
        exact += values[-1] == 1.0
        env.close()
    rng = np.random.default_rng(seed)
    return _summary("state reading", game, "picture", values, rng, unread=unread / boards, exact=exact / boards)


async def effect_reflection(model: ChatModel, game: str, *, boards: int = 20, moves: int = 12, seed: int = 0) -> Found:
    """Reflection: is it told rightly whether the last action changed the board? The engine knows.

    Actions are random; both answers occur, and ``setting`` says how often the board did change.
    """
    _check(game, boards)
    truth_of, _ = BOARDS[game]
    values, unread, changed = [], 0, 0
    for env in _positions(game, boards, moves, seed):
        before, text = truth_of(env), env.text()
        action = env.sample_random_action()
        env.step(action)
        truth = truth_of(env) != before
        changed += truth
        told = (
            f"{GUIDES[game].rules}\n\nBefore:\n{text}\n\nAction: {action}\n\nAfter:\n{env.text()}\n\n"
            "Did the action change the board itself (not counters)? Reason briefly, then end with\nchanged: yes or no"
        )
        reply = await model.generate([{"role": "user", "content": told}], seed=seed)
        answer = re.match(r"\W*(yes|no)\b", section(reply.text, "changed").lower())
        unread += answer is None
        values.append(float(answer is not None and (answer[1] == "yes") == truth))
        env.close()
    rng = np.random.default_rng(seed)
    return _summary("effect reflection", game, f"changed in {changed} of {boards}", values, rng, unread=unread / boards)


# Games whose board after given actions follows from what is shown.
FORESEEN = ("sokoban", "tetris")


async def prediction(
    model: ChatModel,
    game: str = "sokoban",
    *,
    steps: Sequence[int] = (1, 2, 4),
    boards: int = 20,
    moves: int = 12,
    seed: int = 0,
) -> list[Found]:
    """Spatiotemporal reasoning: the board after k given actions, accuracy over the cells that change or could.

    Counted are the cells of the true board that differ before and after, and those that the model says differ: copying
    the board earns nothing. Action lists that change nothing, finish a level, or (Tetris) bring up a new piece are
    drawn again; a board for which 50 draws find none is left out.
    """
    _check(game, boards)
    if game not in FORESEEN:
        raise unknown_name("game to foresee", game, FORESEEN)
    truth_of, how = BOARDS[game]
    result = []
    for k in steps:
        if k < 1:
            raise UsageError(f"steps={k}: give at least 1 action to foresee.")
        values, unread, exact = [], 0, 0
        for number, env in enumerate(_positions(game, boards, moves, seed)):
            before = truth_of(env)
            drawn = _future(env, truth_of, k, np.random.default_rng([seed, number, k]))
            env.close()
            if drawn is None:
                continue
            actions, after = drawn
            board = "\n".join("".join(row) for row in before)
            told = (
                f"{GUIDES[game].rules}\nSymbols: {how}.\n\n```\n{board}\n```\n\nActions in order: "
                f"{', '.join(actions)}\n\nWrite the board after them in a code block, in the same symbols."
            )
            reply = await model.generate([{"role": "user", "content": told}], seed=seed)
            found = read_grid(reply.text, len(after), len(after[0]))
            unread += found is None
            values.append(_changed_accuracy(before, after, found))
            exact += found is not None and accuracy(found, after) == 1.0
        draws, n = np.random.default_rng(seed), len(values)
        result.append(_summary("prediction", game, f"k={k}", values, draws, unread=unread / n, exact=exact / n))
    return result


def _future(
    env: GameEnv, truth_of: Callable[[GameEnv], Grid], k: int, rng: np.random.Generator
) -> tuple[list[str], Grid] | None:
    """``k`` actions that change the board within the level and the piece, and the board after them."""
    state, before = env.get_state(), truth_of(env)
    place = _stage(env)
    for _ in range(50):
        env.set_state(state)
        actions = [env.engine.random_action(rng) for _ in range(k)]
        for action in actions:
            env.engine.play(env.engine.parse(action))
        if _stage(env) == place and truth_of(env) != before:
            return actions, truth_of(env)
    return None


def _stage(env: GameEnv) -> Any:
    info = env.engine.info()
    return info.get("level"), info.get("pieces"), info.get("all_levels_finished")


def _changed_accuracy(before: Grid, after: Grid, found: Grid | None) -> float:
    if found is None:
        return 0.0
    cells = [
        (a.strip() == c.strip())
        for old, new, said in zip(before, after, found)
        for b, a, c in zip(old, new, said)
        if a != b or c.strip() != b.strip()
    ]
    return sum(cells) / len(cells) if cells else 0.0


async def memory_curve(
    model: ChatModel,
    game: str,
    *,
    sizes: Sequence[int] = (0, 5, 10, 20, 50),
    episodes: int = 5,
    max_steps: int | None = None,
    modules: Modules = FULL,
    seed: int = 42,
) -> list[Found]:
    """Long context: reported score against the entries of memory, the same seeds at every size."""
    if episodes < 2:
        raise UsageError(f"episodes={episodes}: an interval needs at least 2.")
    result = []
    for size in sizes:
        values = []
        for number in range(episodes):
            agent = Agent(model, modules, prompts_for(game), Settings(max_memory=size), seed=seed + number)
            values.append((await play_model(Setup(game, "text", max_steps, seed=seed + number), agent)).reported)
        result.append(_summary("memory", game, f"max_memory={size}", values, np.random.default_rng(seed)))
    return result


def table(found: Sequence[Found]) -> Any:
    """All figures, with what each is."""
    import polars as pl

    from assay.core.table import Chart, Table

    return Table(
        "diagnostics",
        "Diagnostics",
        pl.DataFrame([{k: getattr(f, k) for k in Found.__dataclass_fields__} for f in found], infer_schema_length=None),
        notes=[
            "state reading: accuracy a cell; effect reflection: accuracy; prediction: accuracy over cells that change "
            "or are said to; memory: reported score.",
            "95 % intervals over boards or episodes; unread answers count as wrong.",
        ],
        chart=Chart("interval", x="setting", y="value", low="low", high="high", color="game", facet="diagnostic"),
    )
