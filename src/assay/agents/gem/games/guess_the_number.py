"""GuessTheNumber: find a hidden number from "higher" and "lower"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assay.agents.gem.env import below
from assay.agents.gem.games.base import SUCCESS_REWARD, Game, Move, boxed, invalid

if TYPE_CHECKING:
    import numpy as np


class GuessTheNumber(Game):
    """A number is hidden between two bounds; after each guess the player hears whether it is higher or lower.

    At the turn limit an in-range guess earns ``1 - |guess - number| / (max_number - min_number)``.
    """

    levels = {
        "easy": {"min_number": 1, "max_number": 10, "max_turns": 4},
        "hard": {"min_number": 1, "max_number": 50, "max_turns": 7},
    }
    pattern = boxed("([0-9]+)")
    answer_hint = "Give your guess as \\boxed{number}."
    saved = ("secret", "guesses", "last")
    min_number: int
    max_number: int

    def check(self) -> None:
        self.require(0 <= self.min_number < self.max_number, "min_number must be from 0 and below max_number")

    def deal(self) -> None:
        self.secret = self.min_number + self.draw(self.max_number - self.min_number + 1)
        self.guesses: list[int] = []
        self.last: int | None = None

    def rules(self) -> str:
        return (
            f"I have chosen a whole number from {self.min_number} to {self.max_number}. Find it in at most "
            f"{self.max_turns} guesses: after each one I say whether my number is higher or lower."
        )

    def board(self) -> str:
        return f"Guesses left: {self.max_turns - self.turn}."

    def play(self, box: re.Match[str]) -> Move:
        digits = box[1].lstrip("0") or "0"
        # No bound has this many digits, and Python refuses to read thousands of them.
        guess = int(digits) if len(digits) < 19 else self.max_number + 1
        self.last = None
        if not self.min_number <= guess <= self.max_number:
            return invalid(f"That is not between {self.min_number} and {self.max_number}.")
        self.last = guess
        if guess in self.guesses:
            return invalid(f"You have tried {guess} before.")
        self.guesses.append(guess)
        if guess == self.secret:
            return Move(f"{guess} is my number. Well done!", SUCCESS_REWARD, solved=True)
        return Move(f"My number is {'higher' if self.secret > guess else 'lower'} than {guess}.")

    def limit_reward(self) -> float:
        if self.last is None:
            return 0.0
        return 1 - abs(self.last - self.secret) / (self.max_number - self.min_number)

    def view(self) -> dict[str, Any]:
        return {
            "min_number": self.min_number,
            "max_number": self.max_number,
            "answers": [
                (guess, "higher" if self.secret > guess else "lower" if self.secret < guess else "equal")
                for guess in self.guesses
            ],
        }

    def random_action(self, rng: np.random.Generator) -> str:
        return f"\\boxed{{{self.min_number + below(rng, self.max_number - self.min_number + 1)}}}"
