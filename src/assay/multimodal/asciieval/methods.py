"""Systems that the benchmark brings along: guessing, people at the terminal, trained recognisers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.core.errors import unknown_name
from assay.multimodal.asciieval.scoring import LETTERS
from assay.systems.chat.model import Choice, Message, Reply


class RandomLetters:
    """A letter by chance: 25 %. The trial's seed decides, so a repeated run guesses the same."""

    name = "method:random"

    async def generate(self, messages: Sequence[Message], *, seed: int | None = None, **_: Any) -> Reply:
        """One letter."""
        text = f"{seed}\x1f{messages[-1]['content'] if seed is None else ''}"
        number = hashlib.blake2b(text.encode(), digest_size=1).digest()[0]
        return _reply(LETTERS[number % len(LETTERS)], self.name)


class ConstantLetter:
    """Always the same letter: what position alone is worth."""

    def __init__(self, letter: str) -> None:
        if letter not in tuple(LETTERS):
            raise unknown_name("letter", letter, LETTERS)
        self.letter = letter
        self.name = f"method:constant?letter={letter}"

    async def generate(self, messages: Sequence[Message], **_: Any) -> Reply:
        """The letter."""
        return _reply(self.letter, self.name)


def _reply(letter: str, name: str) -> Reply:
    return Reply((Choice(letter),), model=name)


def _random() -> RandomLetters:
    return RandomLetters()


def _constant(letter: str = "A") -> ConstantLetter:
    return ConstantLetter(letter)


def _human(name: str = "you", practice: int = 0) -> Any:
    from assay.multimodal.asciieval.human import TerminalPerson

    return TerminalPerson(name, practice=practice)


def _recogniser(kind: str) -> Callable[..., Any]:
    def make(train: str | None = None, seed: int = 0) -> Any:
        from assay.multimodal.asciieval.recognisers import RecogniserModel

        return RecogniserModel(kind, train=train, seed=seed)

    make.__doc__ = f"Recogniser {kind!r}; ``train``: items to learn from (nothing = generated drawings)."
    return make


METHODS: Mapping[str, Callable[..., Any]] = {
    "random": _random,
    "constant": _constant,
    "human": _human,
    "ngram": _recogniser("ngram"),
    "hog": _recogniser("hog"),
    "cnn": _recogniser("cnn"),
    "concat": _recogniser("concat"),
    "gated": _recogniser("gated"),
}
