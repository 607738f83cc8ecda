"""Tower of Hanoi: move a stack of disks, one at a time, no disk on a smaller one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assay.agents.gem.env import below
from assay.agents.gem.games.base import SUCCESS_REWARD, Game, Move, boxed, invalid

if TYPE_CHECKING:
    import numpy as np

PEGS = "ABC"


class TowerOfHanoi(Game):
    """All disks start on A and have to stand on C. At the turn limit: disks on C / disks."""

    levels = {"easy": {"num_disks": 3, "max_turns": 10}, "hard": {"num_disks": 5, "max_turns": 35}}
    pattern = boxed(r"([A-Ca-c])\s*,?\s*([A-Ca-c])")
    answer_hint = "Give your move as \\boxed{FROM TO}, for example \\boxed{A C}."
    saved = ("pegs",)
    num_disks: int

    def check(self) -> None:
        self.require(1 <= self.num_disks <= 64, "num_disks must be from 1 to 64")

    def deal(self) -> None:
        self.pegs: list[list[int]] = [list(range(self.num_disks, 0, -1)), [], []]

    def rules(self) -> str:
        return (
            f"Tower of Hanoi: {self.num_disks} disks lie on peg A, the largest ({self.num_disks}) at the bottom. Bring "
            "all of them to peg C. A move takes the top disk of one peg and lays it on another peg, never on a smaller "
            f"disk. You have {self.max_turns} moves."
        )

    def board(self) -> str:
        rows = (f"{name}: {' '.join(map(str, peg)) or '-'}" for name, peg in zip(PEGS, self.pegs))
        return "Pegs, bottom first:\n" + "\n".join(rows)

    def play(self, box: re.Match[str]) -> Move:
        first, second = box[1].upper(), box[2].upper()
        source, target = self.pegs[PEGS.index(first)], self.pegs[PEGS.index(second)]
        if not source:
            return invalid(f"Peg {first} is empty.")
        if source is target:
            return invalid("A disk has to go to another peg.")
        if target and target[-1] < source[-1]:
            return invalid(f"Disk {source[-1]} cannot lie on disk {target[-1]}.")
        target.append(source.pop())
        if len(self.pegs[2]) == self.num_disks:
            return Move("All disks are on peg C.", SUCCESS_REWARD, solved=True)
        return Move(f"Disk {target[-1]} is on peg {second} now.")

    def limit_reward(self) -> float:
        return len(self.pegs[2]) / self.num_disks

    def view(self) -> dict[str, Any]:
        return {"pegs": [list(peg) for peg in self.pegs]}

    def random_action(self, rng: np.random.Generator) -> str:
        source, step = below(rng, 3), below(rng, 2)
        return f"\\boxed{{{PEGS[source]} {PEGS[(source + 1 + step) % 3]}}}"
