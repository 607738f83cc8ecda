"""Mastermind: find a code of different digits from black and white pegs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assay.agents.gem.env import below
from assay.agents.gem.games.base import Game, Move, boxed, invalid

if TYPE_CHECKING:
    import numpy as np


def pegs(code: list[int], guess: list[int]) -> tuple[int, int]:
    """Black pegs (right digit, right place) and white ones (right digit, wrong place)."""
    black = sum(a == b for a, b in zip(code, guess))
    common = sum(min(code.count(digit), guess.count(digit)) for digit in set(guess))
    return black, common - black


class Mastermind(Game):
    """The reward is what the best number of black pegs has grown by, divided by the length."""

    levels = {
        "easy": {"code_length": 2, "num_numbers": 6, "max_turns": 10, "duplicate_numbers": False},
        "hard": {"code_length": 4, "num_numbers": 8, "max_turns": 30, "duplicate_numbers": False},
    }
    pattern = boxed(r"([0-9]+(?:\s+[0-9]+)*)")
    answer_hint = "Give your guess as \\boxed{digits separated by blanks}."
    saved = ("code", "guesses", "answers", "best")
    code_length: int
    num_numbers: int
    duplicate_numbers: bool

    def check(self) -> None:
        self.require(self.num_numbers >= 1 and self.code_length >= 1, "code_length and num_numbers must be from 1")
        enough = self.duplicate_numbers or self.code_length <= self.num_numbers
        self.require(enough, "code_length must be at most num_numbers, or duplicate_numbers True")

    def deal(self) -> None:
        self.code: list[int] = self._random_code(self.rng)
        self.guesses: list[list[int]] = []
        self.answers: list[list[int]] = []
        self.best = 0

    def _random_code(self, rng: np.random.Generator) -> list[int]:
        if self.duplicate_numbers:
            return [below(rng, self.num_numbers) + 1 for _ in range(self.code_length)]
        return [int(number) + 1 for number in rng.permutation(self.num_numbers)[: self.code_length]]

    def rules(self) -> str:
        kind = "" if self.duplicate_numbers else " different"
        return (
            f"Mastermind: I have a code of {self.code_length}{kind} numbers from 1 to {self.num_numbers}. After each "
            "guess I tell the black pegs (right number in the right place) and the white pegs (right number in a wrong "
            f"place). Find the code in at most {self.max_turns} guesses."
        )

    def board(self) -> str:
        lines = (
            f"{' '.join(map(str, guess))}: {black} black, {white} white"
            for guess, (black, white) in zip(self.guesses, self.answers)
        )
        return "\n".join(["Guesses so far:" if self.guesses else "No guesses so far.", *lines])

    def play(self, box: re.Match[str]) -> Move:
        words = [word.lstrip("0") or "0" for word in box[1].split()]
        if len(words) != self.code_length:
            return invalid(f"The code has {self.code_length} numbers, not {len(words)}.")
        guess = [int(word) if len(word) < 19 else 0 for word in words]
        if not all(1 <= number <= self.num_numbers for number in guess):
            return invalid(f"The numbers of the code are from 1 to {self.num_numbers}.")
        if guess in self.guesses:
            return invalid("You have tried this code before.")
        black, white = pegs(self.code, guess)
        self.guesses.append(guess)
        self.answers.append([black, white])
        reward = max(0, black - self.best) / self.code_length
        self.best = max(self.best, black)
        return Move(f"{black} black, {white} white.", reward, solved=black == self.code_length)

    def view(self) -> dict[str, Any]:
        return {
            "code_length": self.code_length,
            "num_numbers": self.num_numbers,
            "duplicate_numbers": self.duplicate_numbers,
            "answers": [(list(guess), *answer) for guess, answer in zip(self.guesses, self.answers)],
        }

    def random_action(self, rng: np.random.Generator) -> str:
        return f"\\boxed{{{' '.join(map(str, self._random_code(rng)))}}}"
