"""Hangman: find a word letter by letter."""

from __future__ import annotations

import re
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from assay.agents.gem.env import below
from assay.agents.gem.games.base import Game, Move, boxed, invalid
from assay.agents.gem.games.words import pick, words_of

if TYPE_CHECKING:
    import numpy as np


class Hangman(Game):
    """A letter earns 0.5 x places it opens / length; the whole word earns 0.5 x share still hidden + 0.5.

    Opening the last place ends the game as solved; the 0.5 for naming the word is not earned then.
    """

    levels = {
        "easy": {"word_length": 3, "max_turns": 10, "words": None},
        "hard": {"word_length": 7, "max_turns": 20, "words": None},
    }
    pattern = boxed("([A-Za-z]+)")
    answer_hint = "Give a letter as \\boxed{letter}, or the whole word as \\boxed{word}."
    saved = ("secret", "letters", "tried")
    word_length: int
    words: str | None

    def check(self) -> None:
        self.require(self.word_length >= 2, "word_length must be from 2 (one letter would be a letter and a word)")
        self.require(bool(words_of(self.word_length, self.words)), f"there are no words of {self.word_length} letters")

    def deal(self) -> None:
        self.secret = pick(self.rng, self.word_length, self.words)
        self.letters: list[str] = []
        self.tried: list[str] = []

    def rules(self) -> str:
        return (
            f"Hangman: I have an English word of {self.word_length} letters. Name a letter and I show every place "
            f"where it stands, or name the whole word. You have {self.max_turns} tries."
        )

    @property
    def shown(self) -> str:
        """The word with ``_`` for hidden places."""
        return "".join(letter if letter in self.letters else "_" for letter in self.secret)

    def board(self) -> str:
        missed = [letter for letter in self.letters if letter not in self.secret]
        return f"Word: {' '.join(self.shown.upper())}\nNot in it: {' '.join(missed).upper() or '-'}"

    def play(self, box: re.Match[str]) -> Move:
        guess = box[1].lower()
        if len(guess) == 1:
            return self._letter(guess)
        if len(guess) != self.word_length:
            return invalid(f"The word has {self.word_length} letters, not {len(guess)}.")
        if guess in self.tried:
            return invalid(f"You have tried {guess!r} before.")
        self.tried.append(guess)
        if guess != self.secret:
            return Move(f"{guess!r} is not the word.")
        hidden = self.shown.count("_") / self.word_length
        self.letters += sorted(set(self.secret) - set(self.letters))
        return Move(f"{guess!r} is the word.", 0.5 * hidden + 0.5, solved=True)

    def _letter(self, letter: str) -> Move:
        if letter in self.letters:
            return invalid(f"You have tried {letter.upper()} before.")
        self.letters.append(letter)
        count = self.secret.count(letter)
        if not count:
            return Move(f"{letter.upper()} is not in the word.")
        text = f"{letter.upper()} stands at {count} place{'s' if count > 1 else ''}."
        return Move(text, 0.5 * count / self.word_length, solved="_" not in self.shown)

    def view(self) -> dict[str, Any]:
        return {"shown": self.shown, "letters": list(self.letters), "tried": list(self.tried), "words": self.words}

    def random_action(self, rng: np.random.Generator) -> str:
        if rng.random() < 0.2:
            return f"\\boxed{{{pick(rng, self.word_length, self.words)}}}"
        return f"\\boxed{{{ascii_lowercase[below(rng, 26)]}}}"
