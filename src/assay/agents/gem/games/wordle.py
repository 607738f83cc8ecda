"""Wordle: find a word from coloured letters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assay.agents.gem.games.base import Game, Move, boxed, invalid
from assay.agents.gem.games.words import pick, words_of

if TYPE_CHECKING:
    import numpy as np


def feedback(secret: str, guess: str) -> str:
    """A letter a place: G right, Y elsewhere in the word, X not (or not so often) in it.

    Letters in the right place are taken first, then the others from left to right while the word has any left.
    """
    marks = ["X"] * len(guess)
    left: dict[str, int] = {}
    for place, (a, b) in enumerate(zip(secret, guess)):
        if a == b:
            marks[place] = "G"
        else:
            left[a] = left.get(a, 0) + 1
    for place, letter in enumerate(guess):
        if marks[place] == "X" and left.get(letter, 0):
            marks[place] = "Y"
            left[letter] -= 1
    return "".join(marks)


class Wordle(Game):
    """A place that turns green for the first time earns 0.5 / length; the word earns 0.5 more.

    Any word of letters of the right length may be guessed, as in the published game; ``words`` is a file of secrets
    instead of the shipped list.
    """

    levels = {
        "easy": {"word_length": 3, "max_turns": 15, "words": None},
        "hard": {"word_length": 5, "max_turns": 25, "words": None},
    }
    pattern = boxed(r"([A-Za-z](?:[A-Za-z\s]*[A-Za-z])?)")
    answer_hint = "Give your guess as \\boxed{word}."
    saved = ("secret", "guesses", "green")
    word_length: int
    words: str | None

    def check(self) -> None:
        self.require(bool(words_of(self.word_length, self.words)), f"there are no words of {self.word_length} letters")

    def deal(self) -> None:
        self.secret = pick(self.rng, self.word_length, self.words)
        self.guesses: list[str] = []
        self.green = [False] * self.word_length

    def rules(self) -> str:
        return (
            f"Wordle: I have an English word of {self.word_length} letters. Below each guess I write G for a letter in "
            "the right place, Y for a letter that stands elsewhere in the word, and X for one that does not. Find the "
            f"word in at most {self.max_turns} guesses."
        )

    def board(self) -> str:
        pairs = [f"{' '.join(guess.upper())}\n{' '.join(feedback(self.secret, guess))}" for guess in self.guesses]
        return "\n".join(pairs) or " ".join("_" * self.word_length)

    def play(self, box: re.Match[str]) -> Move:
        guess = "".join(box[1].lower().split())
        if len(guess) != self.word_length:
            return invalid(f"The word has {self.word_length} letters, not {len(guess)}.")
        if guess in self.guesses:
            return invalid(f"You have tried {guess!r} before.")
        self.guesses.append(guess)
        marks = feedback(self.secret, guess)
        new = sum(mark == "G" and not green for mark, green in zip(marks, self.green))
        self.green = [green or mark == "G" for mark, green in zip(marks, self.green)]
        reward = 0.5 * new / self.word_length
        if guess == self.secret:
            return Move(f"{guess} is the word.", reward + 0.5, solved=True)
        return Move(f"{guess}: {marks}.", reward)

    def view(self) -> dict[str, Any]:
        return {
            "word_length": self.word_length,
            "words": self.words,
            "answers": [(guess, feedback(self.secret, guess)) for guess in self.guesses],
        }

    def random_action(self, rng: np.random.Generator) -> str:
        return f"\\boxed{{{pick(rng, self.word_length, self.words)}}}"
