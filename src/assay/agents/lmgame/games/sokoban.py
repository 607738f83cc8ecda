"""Sokoban: boxes as a bit mask, levels chained in one episode, a text table cached by changed cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from assay.agents.lmgame.games.engine import Engine, Played
from assay.core.datasets.readers import read_text
from assay.core.errors import DataError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SYMBOLS = "# @$?*+"
ACTIONS = ("no_op", "push up", "push down", "push left", "push right", "up", "down", "left", "right")
ITEM = {
    "#": "wall",
    " ": "floor",
    "?": "target",
    "$": "box",
    "*": "box on target",
    "@": "player",
    "+": "player on target",
}
_STEP_REWARD, _BOX_REWARD, _LEVEL_REWARD = -0.1, 1.0, 10.0


@dataclass(frozen=True)
class Level:
    """One level. Cells are numbered row-major; sets of cells are bit masks.

    Parameters
    ----------
    rows : tuple of str
        Lines of equal length over ``# wall``, ``@ player``, ``$ box``, ``? target``, ``* box on target``,
        ``+ player on target`` and blank floor.
    """

    rows: tuple[str, ...]

    @property
    def height(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        return len(self.rows[0])

    @cached_property
    def cells(self) -> str:
        return "".join(self.rows)

    def _mask(self, symbols: str) -> int:
        return sum(1 << i for i, symbol in enumerate(self.cells) if symbol in symbols)

    @cached_property
    def walls(self) -> int:
        return self._mask("#")

    @cached_property
    def targets(self) -> int:
        return self._mask("?*+")

    @cached_property
    def boxes(self) -> int:
        return self._mask("$*")

    @cached_property
    def player(self) -> int:
        return next(i for i, symbol in enumerate(self.cells) if symbol in "@+")

    @cached_property
    def steps(self) -> tuple[int, int, int, int]:
        """Differences of cell numbers for up, down, left, right."""
        return (-self.width, self.width, -1, 1)

    def __str__(self) -> str:
        return "\n".join(self.rows)


def check_level(rows: Sequence[str], where: str) -> Level:
    """The level of ``rows``.

    Raises
    ------
    DataError
        Uneven rows, unknown symbols, no or several players, unequal numbers of boxes and targets, an open border.
    """
    if not rows:
        raise DataError(f"{where}: the level has no rows; give lines of {SYMBOLS!r}.")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise DataError(
                f"{where}, row {number}: {len(row)} symbols where row 1 has {len(rows[0])}; "
                "pad every row of a level to the same length."
            )
        for column, symbol in enumerate(row, 1):
            if symbol not in SYMBOLS:
                raise DataError(f"{where}, row {number}, column {column}: unknown symbol {symbol!r}; use {SYMBOLS!r}.")
    text = "".join(rows)
    players = text.count("@") + text.count("+")
    if players != 1:
        raise DataError(f"{where}: {players} players; a level has exactly one '@' or '+'.")
    boxes, targets = text.count("$") + text.count("*"), sum(map(text.count, "?*+"))
    if boxes != targets or not boxes:
        raise DataError(f"{where}: {boxes} boxes and {targets} targets; a level has as many of both, at least one.")
    border = rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)
    if border.strip("#"):
        raise DataError(f"{where}: the border has {border.strip('#')[0]!r}; a level is enclosed in walls '#'.")
    return Level(tuple(rows))


def parse_levels(text: str, where: str = "levels") -> list[Level]:
    """Levels of a file of blocks headed ``Level n``; blank lines part blocks."""
    levels: list[Level] = []
    block: list[str] = []
    head = 0

    def close() -> None:
        if block:
            levels.append(check_level(block, f"{where}, level at line {head}"))
            block.clear()

    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().lower().startswith("level"):
            close()
            head = number
        elif not line.strip():
            close()
        else:
            if not head:
                raise DataError(f"{where}, line {number}: {line[:40]!r} stands before the first heading 'Level n'.")
            block.append(line)
    close()
    if not levels:
        raise DataError(f"{where}: no level found; write blocks headed 'Level n'.")
    return levels


def read_levels(path: str | Path) -> list[Level]:
    """Levels of a file in the published form."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"There is no level file {path}; give a text file of blocks headed 'Level n'.")
    return parse_levels(read_text(path), str(path))


def shipped_levels() -> list[Level]:
    """The six levels that come with assay: made by its generator, each certified solvable by A*."""
    text = files("assay.agents.lmgame").joinpath("games/levels/sokoban.txt").read_text(encoding="utf-8")
    return parse_levels(text, "shipped Sokoban levels")


class Sokoban(Engine):
    """Sokoban over a chain of levels.

    Score: boxes on target of finished levels plus those on target now. perf_score is that running total too, so it
    is not to be summed. Reward: -0.1 an action, +1 a box placed, -1 a box taken off, +10 a level.

    Parameters
    ----------
    levels : sequence of Level, path of a level file, or None
        None: the shipped six.
    fresh : mapping or None
        Draw new levels at every reset, from the seed: ``count`` of them (6) and the options of
        `sokoban_generator.generate`, such as rows, columns, boxes, pushes. Nobody has seen them before.
    """

    name: ClassVar[str] = "sokoban"
    actions = ACTIONS
    stuck_limit: ClassVar[int] = 5
    max_steps: ClassVar[int | None] = 200

    def __init__(
        self, levels: Sequence[Level] | str | Path | None = None, fresh: Mapping[str, Any] | None = None
    ) -> None:
        if levels is not None and fresh is not None:
            raise UsageError("sokoban: both levels and fresh are given; give one of them.")
        self.fresh = fresh
        if levels is None:
            levels = shipped_levels()
        elif isinstance(levels, str | Path):
            levels = read_levels(levels)
        self.levels = [check_level(level.rows, f"level {number}") for number, level in enumerate(levels, 1)]
        if not self.levels:
            raise DataError("Sokoban needs at least one level, got an empty list.")
        self.finished = False
        self.done_boxes = 0
        self._load(0)

    def _load(self, index: int) -> None:
        self.index = index
        self.level = self.levels[index]
        self.player, self.boxes = self.level.player, self.level.boxes
        self._table: list[str] = []
        self._shown: tuple[int, int] = (-1, 0)

    def reset(self, rng: np.random.Generator) -> None:
        self.rng = rng
        if self.fresh is not None:
            self.levels = self._draw(self.fresh)
        self._load(0)
        self.done_boxes = 0
        self.finished = False

    def _draw(self, fresh: Mapping[str, Any]) -> list[Level]:
        from assay.agents.lmgame.games.sokoban_generator import generate

        options = {"count": 6, **fresh}
        count = options.pop("count")
        try:
            return [generate(self.rng, **options).level for _ in range(count)]
        except TypeError as error:
            raise UsageError(f"sokoban: fresh={dict(fresh)!r} is not understood: {error}.") from error

    def play(self, command: str) -> Played:
        placed = (self.boxes & self.level.targets).bit_count()
        if command != "no_op":
            self._act(command)
        now = (self.boxes & self.level.targets).bit_count()
        reward = _STEP_REWARD + _BOX_REWARD * (now - placed)
        if now < self.boxes.bit_count():
            return Played(round(reward, 10), self.score)
        reward = round(reward + _LEVEL_REWARD, 10)
        if self.index + 1 == len(self.levels):
            self.finished = True
            return Played(reward, self.score, ended=True)
        self.done_boxes += now
        self._load(self.index + 1)
        return Played(reward, self.score, new_level=True)

    def _act(self, command: str) -> None:
        push, direction = command.startswith("push "), command.removeprefix("push ")
        step = self.level.steps[("up", "down", "left", "right").index(direction)]
        ahead = 1 << (self.player + step)
        if push:
            if not self.boxes & ahead:
                return
            behind = 1 << (self.player + 2 * step)
            if (self.level.walls | self.boxes) & behind:
                return
            self.boxes ^= ahead | behind
            self.player += step
        elif not (self.level.walls | self.boxes) & ahead:
            self.player += step

    def refuse(self) -> Played:
        return Played(_STEP_REWARD, self.score, known=False)

    @property
    def on_target(self) -> int:
        """Boxes on target in the level being played."""
        return (self.boxes & self.level.targets).bit_count()

    @property
    def score(self) -> float:
        return float(self.done_boxes + self.on_target)

    def symbol(self, cell: int) -> str:
        """The level symbol of a cell as it is now."""
        bit = 1 << cell
        if self.level.walls & bit:
            return "#"
        target = bool(self.level.targets & bit)
        if self.boxes & bit:
            return "*" if target else "$"
        if cell == self.player:
            return "+" if target else "@"
        return "?" if target else " "

    def board(self) -> list[str]:
        """The level as it is now, in level symbols."""
        symbols = [self.symbol(cell) for cell in range(len(self.level.cells))]
        width = self.level.width
        return ["".join(symbols[r * width : (r + 1) * width]) for r in range(self.level.height)]

    def text(self) -> str:
        width = self.level.width
        if not self._table:
            changed = list(range(len(self.level.cells)))
            self._table = [""] * (len(changed) + 1)
            self._table[0] = "ID | Item Type | Position (col,row)"
        else:
            player, boxes = self._shown
            moved = (boxes ^ self.boxes) | 1 << player | 1 << self.player
            changed = [cell for cell in range(len(self.level.cells)) if moved >> cell & 1]
        for cell in changed:
            self._table[cell + 1] = f"{cell + 1} | {ITEM[self.symbol(cell)]} | ({cell % width},{cell // width})"
        self._shown = (self.player, self.boxes)
        return "\n".join(self._table)

    def image(self) -> NDArray[np.uint8]:
        from assay.agents.lmgame.rendering import draw_sokoban

        # As large as the largest level, so that every picture of an episode has one shape.
        width, height = max(level.width for level in self.levels), max(level.height for level in self.levels)
        rows = [row.ljust(width, "#") for row in self.board()]
        return draw_sokoban(rows + ["#" * width] * (height - len(rows)))

    def info(self) -> dict[str, Any]:
        return {
            "boxes_on_target": self.on_target,
            "boxes": self.boxes.bit_count(),
            "level": self.index + 1,
            "levels": len(self.levels),
            "player": list(divmod(self.player, self.level.width)),
            "all_levels_finished": self.finished,
        }

    def get_state(self) -> dict[str, Any]:
        return {
            "levels": [list(level.rows) for level in self.levels],
            "index": self.index,
            "player": self.player,
            "boxes": self.boxes,
            "done_boxes": self.done_boxes,
            "finished": self.finished,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.levels = [Level(tuple(rows)) for rows in state["levels"]]
        self._load(state["index"])
        self.player, self.boxes = state["player"], state["boxes"]
        self.done_boxes, self.finished = state["done_boxes"], state["finished"]
