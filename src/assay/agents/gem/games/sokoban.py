"""Sokoban: push every box onto a target."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assay.agents.gem.env import below
from assay.agents.gem.games.base import SUCCESS_REWARD, Game, Move, boxed, invalid
from assay.agents.gem.games.sokoban_rooms import make_room

if TYPE_CHECKING:
    import numpy as np

DIRECTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


class Sokoban(Game):
    """At the turn limit: boxes on targets / boxes. Every room can be solved within the turn limit."""

    levels = {
        "easy": {"dim_room": [6, 6], "num_boxes": 2, "max_turns": 20},
        "hard": {"dim_room": [8, 8], "num_boxes": 4, "max_turns": 50},
    }
    pattern = boxed("((?i:up|down|left|right))")
    answer_hint = "Give your move as \\boxed{up}, \\boxed{down}, \\boxed{left} or \\boxed{right}."
    saved = ("walls", "targets", "boxes", "player")
    dim_room: list[int]
    num_boxes: int

    def check(self) -> None:
        self.require(len(self.dim_room) == 2, "dim_room must be rows and columns")
        rows, cols = self.dim_room = list(self.dim_room)
        self.require(4 <= rows <= 30 and 4 <= cols <= 30, "dim_room must be two numbers from 4 to 30, walls included")
        most = (rows - 2) * (cols - 2)
        self.require(self.num_boxes >= 1 and 2 * self.num_boxes + 3 <= most, "num_boxes must leave room to push")

    def deal(self) -> None:
        rows, cols = self.dim_room
        room = make_room(rows, cols, self.num_boxes, self.max_turns, self.rng)
        self.walls, self.targets, self.boxes, self.player = room.walls, room.targets, room.boxes, room.player

    def rules(self) -> str:
        return (
            "Sokoban: push every box onto a target. You walk one cell at a time; walking against a box pushes it, if "
            f"the cell behind it is free. Boxes cannot be pulled. You have {self.max_turns} moves.\n"
            "# wall, . floor, T target, B box, * box on a target, P you, p you on a target"
        )

    def _grid(self) -> list[str]:
        rows, cols = self.dim_room
        cells = ["."] * (rows * cols)
        for cell in self.walls:
            cells[cell] = "#"
        for cell in self.targets:
            cells[cell] = "T"
        for cell in self.boxes:
            cells[cell] = "*" if cells[cell] == "T" else "B"
        cells[self.player] = "p" if cells[self.player] == "T" else "P"
        return ["".join(cells[at : at + cols]) for at in range(0, rows * cols, cols)]

    def board(self) -> str:
        return "\n".join(" ".join(row) for row in self._grid())

    def play(self, box: re.Match[str]) -> Move:
        direction = box[1].lower()
        down, right = DIRECTIONS[direction]
        step = down * self.dim_room[1] + right
        cell = self.player + step
        if cell in self.walls:
            return invalid(f"There is a wall {_where(direction)}.")
        text = f"You have walked {direction}."
        if cell in self.boxes:
            behind = cell + step
            if behind in self.walls or behind in self.boxes:
                return invalid("The box cannot be pushed that way.")
            self.boxes[self.boxes.index(cell)] = behind
            text = f"You have pushed a box {direction}."
        self.player = cell
        if set(self.boxes) == set(self.targets):
            return Move("Every box is on a target.", SUCCESS_REWARD, solved=True)
        return Move(text)

    def limit_reward(self) -> float:
        return len(set(self.boxes) & set(self.targets)) / len(self.boxes)

    def view(self) -> dict[str, Any]:
        return {"grid": self._grid()}

    def random_action(self, rng: np.random.Generator) -> str:
        return f"\\boxed{{{tuple(DIRECTIONS)[below(rng, 4)]}}}"


def _where(direction: str) -> str:
    return {"up": "above you", "down": "below you", "left": "to your left", "right": "to your right"}[direction]
