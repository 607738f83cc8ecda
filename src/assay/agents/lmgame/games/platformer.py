"""A side-scrolling platformer written for assay: it stands in for the console game that needs a ROM."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from assay.agents.lmgame.games.console import ConsoleEngine
from assay.agents.lmgame.games.platformer_level import (
    ROWS,
    TILE,
    PlatformLevel,
    check_platform_level,
    draw_level,
    own_level,
)
from assay.core.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDTH, HEIGHT = 240, 224
LIVES, TIME, FRAMES_A_TICK = 3, 400, 24
# Lengths in 1/256 pixel, speeds a frame.
UNIT = 256
BODY_W, BODY_H = 12, 15
_WALK, _RUN = 400, 656
_ACCELERATE, _ACCELERATE_RUN, _FRICTION, _SKID = 13, 18, 13, 28
_JUMP, _JUMP_RUN = 1024, 1280
_RISE, _FALL, _RISE_RUN, _FALL_RUN, _TERMINAL = 32, 112, 40, 144, 1152
_BOUNCE, _ENEMY_SPEED, _WAKE = 768, 128, 48


class World:
    """Physics of one life after another on one level; `copy` is cheap, so players can look ahead.

    Attributes
    ----------
    x, y, vx, vy : int
        Upper left corner and speed of the runner, in 1/256 pixel.
    camera : int
        Left edge of the picture in pixels; it never goes back within a life.
    enemies : list of [x, y, vx, vy, state]
        state 0 asleep, 1 walking, 2 gone.
    """

    def __init__(self, level: PlatformLevel) -> None:
        self.level = level
        self.lives = LIVES
        self.points = self.coins = 0
        self.finished = False
        self.begin()

    def begin(self) -> None:
        """Put everything at the start of the level; lives and points stay."""
        self.x, self.y = 40 * UNIT, (12 * TILE - BODY_H) * UNIT
        self.vx = self.vy = 0
        self.camera = 0
        self.grounded, self.held, self.running = True, False, False
        self.ticks = TIME * FRAMES_A_TICK
        self.taken: set[tuple[int, int]] = set()
        self.enemies = [[c * TILE * UNIT, r * TILE * UNIT, -_ENEMY_SPEED, 0, 0] for c, r in self.level.enemies]

    def copy(self) -> World:
        """An independent copy."""
        twin = copy.copy(self)
        twin.taken = set(self.taken)
        twin.enemies = [list(enemy) for enemy in self.enemies]
        return twin

    @property
    def over(self) -> bool:
        return self.finished or self.lives == 0

    def tile(self, column: int, row: int) -> bool:
        """Whether a tile is solid; the sides of the level are, sky and abyss are not."""
        if not 0 <= column < self.level.width:
            return True
        return 0 <= row < ROWS and bool(self.level.solid[row][column])

    def _blocked(self, x: int, y: int, width: int, height: int) -> bool:
        left, right = x // UNIT // TILE, (x + width * UNIT - 1) // UNIT // TILE
        top, bottom = y // UNIT // TILE, (y + height * UNIT - 1) // UNIT // TILE
        return any(self.tile(c, r) for c in range(left, right + 1) for r in range(top, bottom + 1))

    def frame(self, buttons: frozenset[str]) -> None:
        """One sixtieth of a second."""
        if self.over:
            return
        self._steer(buttons)
        self._move()
        if self._enemies_move() or self.y >= HEIGHT * UNIT:
            self._die()
            return
        self.ticks -= 1
        if self.ticks <= 0:
            self._die()
            return
        column, row = (self.x + BODY_W * UNIT // 2) // UNIT // TILE, (self.y + BODY_H * UNIT // 2) // UNIT // TILE
        if 0 <= row < ROWS and self.level.rows[row][column] == "o" and (column, row) not in self.taken:
            self._coin(column, row)
        self.camera = min(max(self.camera, self.x // UNIT - 112), self.level.width * TILE - WIDTH)
        if column >= self.level.flag:
            self.finished = True
            self.points += 50 * (self.ticks // FRAMES_A_TICK)

    def _steer(self, buttons: frozenset[str]) -> None:
        fast = "B" in buttons
        way = ("RIGHT" in buttons) - ("LEFT" in buttons)
        limit = _RUN if fast else _WALK
        if way and "DOWN" not in buttons:
            if self.vx * way < 0:
                self.vx += way * _SKID
            elif self.vx * way <= limit:
                self.vx += way * (_ACCELERATE_RUN if fast else _ACCELERATE)
                self.vx = max(-limit, min(limit, self.vx))
            else:
                self.vx -= way * min(_FRICTION, abs(self.vx) - limit)
        elif self.grounded:
            self.vx -= min(_FRICTION, abs(self.vx)) * (1 if self.vx > 0 else -1)
        jump = "A" in buttons
        if jump and not self.held and self.grounded:
            self.running = abs(self.vx) > _WALK
            self.vy = -(_JUMP_RUN if self.running else _JUMP)
            self.grounded = False
        self.held = jump
        if not self.grounded:
            rising = self.vy < 0 and jump
            rise, fall = (_RISE_RUN, _FALL_RUN) if self.running else (_RISE, _FALL)
            self.vy = min(self.vy + (rise if rising else fall), _TERMINAL)

    def _move(self) -> None:
        x = max(self.x + self.vx, self.camera * UNIT)
        if self._blocked(x, self.y, BODY_W, BODY_H):
            # Stop flush with the tile that is in the way.
            if x > self.x:
                edge = (x + BODY_W * UNIT - 1) // UNIT // TILE * TILE
                x = max(self.x, (edge - BODY_W) * UNIT)
            else:
                x = min(self.x, (x // UNIT // TILE + 1) * TILE * UNIT)
            self.vx = 0
        self.x = x
        y = self.y + self.vy
        if self.vy < 0 and self._blocked(self.x, y, BODY_W, BODY_H):
            row = y // UNIT // TILE
            self._bump(row)
            y, self.vy = (row + 1) * TILE * UNIT, 0
        elif self.vy > 0 and self._blocked(self.x, y, BODY_W, BODY_H):
            y = ((y + BODY_H * UNIT - 1) // UNIT // TILE * TILE - BODY_H) * UNIT
            self.vy, self.grounded = 0, True
        self.y = y
        if self.grounded and not self._blocked(self.x, self.y + UNIT, BODY_W, BODY_H):
            self.grounded, self.running = False, abs(self.vx) > _WALK

    def _bump(self, row: int) -> None:
        column = (self.x + BODY_W * UNIT // 2) // UNIT // TILE
        if 0 <= row < ROWS and self.level.rows[row][column] == "Q" and (column, row) not in self.taken:
            self._coin(column, row)

    def _coin(self, column: int, row: int) -> None:
        self.taken.add((column, row))
        self.coins += 1
        self.points += 200

    def _enemies_move(self) -> bool:
        """Move the enemies; True when one touched the runner other than from below."""
        for enemy in self.enemies:
            x, y, vx, vy, state = enemy
            if state == 2:
                continue
            if state == 0:
                if x // UNIT > self.camera + WIDTH + _WAKE - TILE:
                    continue
                enemy[4] = 1
            if self._blocked(x + vx, y, TILE, TILE - 1):
                enemy[2] = vx = -vx
            else:
                x += vx
            vy = min(vy + _FALL, _TERMINAL)
            if self._blocked(x, y + vy, TILE, TILE):
                y = ((y + vy + TILE * UNIT - 1) // UNIT // TILE * TILE - TILE) * UNIT
                vy = 0
            else:
                y += vy
            if y > HEIGHT * UNIT or x // UNIT < self.camera - 2 * TILE:
                enemy[4] = 2
                continue
            enemy[0], enemy[1], enemy[3] = x, y, vy
            apart = (
                self.x + BODY_W * UNIT <= x + 2 * UNIT
                or x + (TILE - 2) * UNIT <= self.x
                or self.y + BODY_H * UNIT <= y + 2 * UNIT
                or y + TILE * UNIT <= self.y
            )
            if apart:
                continue
            if self.vy > 0 and self.y + BODY_H * UNIT < y + 12 * UNIT:
                enemy[4] = 2
                self.vy, self.grounded = -_BOUNCE, False
                self.points += 100
            else:
                return True
        return False

    def _die(self) -> None:
        self.lives -= 1
        if self.lives:
            self.begin()


class Platformer(ConsoleEngine):
    """The stand-in platformer: buttons, picture size and memory of the console game.

    Parameters
    ----------
    level : PlatformLevel, "fresh" or None
        None: the shipped level. "fresh": a random one at every reset, drawn from the seed and certified by the
        scripted runner.
    paper_compatible : bool
        See `ConsoleEngine`.
    """

    name: ClassVar[str] = "platformer"

    def __init__(self, level: PlatformLevel | str | None = None, paper_compatible: bool = False) -> None:
        super().__init__(paper_compatible)
        if isinstance(level, str) and level != "fresh":
            raise UsageError(f"platformer: level={level!r}; give a PlatformLevel, 'fresh', or nothing.")
        self.fresh = level == "fresh"
        self.world = World(level if isinstance(level, PlatformLevel) else own_level())

    def start(self) -> None:
        level = self.world.level
        if self.fresh:
            from assay.agents.lmgame.solvers.runner import finishes

            level = draw_level(self.rng)
            while not finishes(level):
                level = draw_level(self.rng)
        self.world = World(level)

    def run(self, frames: Sequence[frozenset[str]]) -> Iterator[tuple[int, int]]:
        for buttons in frames:
            self.world.frame(buttons)
            yield divmod(self.world.camera, 256)
            if self.world.over:
                return

    @property
    def over(self) -> bool:
        return self.world.over

    @property
    def finished(self) -> bool:
        return self.world.finished

    def memory(self) -> dict[str, int]:
        high, low = divmod(self.world.camera, 256)
        return {
            "score": self.world.points,
            "lives": self.world.lives,
            "xscrollHi": high,
            "xscrollLo": low,
            "levelHi": 0,
            "levelLo": 0,
            "time": max(0, self.world.ticks // FRAMES_A_TICK),
            "coins": self.world.coins,
        }

    def text(self) -> str:
        """The tiles in view as letters, with the runner ``M``."""
        world = self.world
        first = world.camera // TILE
        view = [list(row[first : first + WIDTH // TILE + 1].replace("e", " ")) for row in world.level.rows]
        for column, row in world.taken:
            if 0 <= column - first < len(view[0]):
                view[row][column - first] = "u" if world.level.rows[row][column] == "Q" else " "

        def put(x: int, y: int, mark: str) -> None:
            column, row = (x // UNIT + 6) // TILE - first, (y // UNIT + 7) // TILE
            if 0 <= row < ROWS and 0 <= column < len(view[0]):
                view[row][column] = mark

        for x, y, _, _, state in world.enemies:
            if state == 1:
                put(x, y, "e")
        put(world.x, world.y, "M")
        memory = self.memory()
        lines = ["".join(row) for row in view[1:]]
        return "\n".join(
            [
                "M runner, e enemy, # ground, S step, P pipe, B brick, Q coin block, u used block, o coin, F flag",
                *lines,
                f"Lives: {memory['lives']}  Time: {memory['time']}  Coins: {memory['coins']}  "
                f"Points: {memory['score']}  Furthest x: {self.furthest}",
                f"Speed: {world.vx / UNIT:+.1f} px a frame, {'on the ground' if world.grounded else 'in the air'}",
            ]
        )

    def image(self) -> NDArray[np.uint8]:
        from assay.agents.lmgame.games.platformer_drawing import draw

        return draw(self.world, self.memory())

    def get_state(self) -> dict[str, Any]:
        world = self.world
        plain = {key: value for key, value in vars(world).items() if key not in ("level", "taken", "enemies")}
        return {
            "level": list(world.level.rows),
            "furthest": self.furthest,
            "world": plain,
            "taken": sorted(map(list, world.taken)),
            "enemies": [list(enemy) for enemy in world.enemies],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.world = World(check_platform_level(state["level"]))
        vars(self.world).update(state["world"])
        self.world.taken = {(column, row) for column, row in state["taken"]}
        self.world.enemies = [list(enemy) for enemy in state["enemies"]]
        self.furthest = state["furthest"]
