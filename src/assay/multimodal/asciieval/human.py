"""A person at the terminal as a chat model: the same questions, letters from the keyboard, and the time they took."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from assay.core.errors import ProviderError
from assay.multimodal.asciieval import prompts
from assay.multimodal.asciieval.scoring import LETTERS
from assay.systems.chat.model import Choice, Message, Reply

_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(13, 32), 127))


class TerminalPerson:
    """Asks whoever sits at the terminal; one question at a time, however many trials wait.

    Parameters
    ----------
    name
        Pseudonym; it becomes part of the system's name.
    practice
        Questions answered before anything counts: the first question is repeated so often.
    read, write
        Where letters come from and questions go to; None = the terminal.
    clock
        Seconds, monotonic.

    Notes
    -----
    ``?`` gives no answer (an unread reply), ``q`` or the end of input stops the run, which can be resumed. Pictures are
    written to a file whose path is shown.
    """

    def __init__(
        self,
        name: str = "you",
        *,
        practice: int = 0,
        read: Callable[[], str] | None = None,
        write: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = f"method:human?name={name}"
        self._practice = practice
        self._read = read if read is not None else sys.stdin.readline
        self._write = write if write is not None else sys.stderr
        self._clock = clock
        self._turn = asyncio.Lock()
        self._asked = 0
        self._stopped = False

    async def generate(self, messages: Sequence[Message], **_: Any) -> Reply:
        """The letter that was typed; ``Reply.seconds`` is the time from question to letter.

        Raises
        ------
        ProviderError
            Fatal, when the person stops.
        """
        question = prompts.parse(messages)
        async with self._turn:
            while self._practice > 0:
                self._practice -= 1
                self._say("(practice, does not count)")
                await asyncio.to_thread(self._ask, question)
            if self._stopped:
                raise _stopped()
            self._asked += 1
            letter, seconds = await asyncio.to_thread(self._ask, question)
        return Reply((Choice(letter),), model=self.name, seconds=seconds)

    def _ask(self, question: prompts.Question) -> tuple[str, float]:
        self._say("\n" + "─" * 60)
        if question.png is not None:
            self._say(f"Picture: {self._show(question.png)}")
        if question.art is not None:
            # Control characters in a drawing could rewrite the screen.
            self._say(question.art.translate(_CONTROL))
        self._say("")
        for letter, choice in zip(LETTERS, question.choices):
            self._say(f"  {letter}: {choice.translate(_CONTROL)}")
        start = self._clock()
        while True:
            self._say("Letter (? = no idea, q = stop): ", end="")
            line = self._read()
            typed = line.strip().upper()
            if not line or typed == "Q":
                self._stopped = True
                raise _stopped()
            if typed == "?":
                return "", self._clock() - start
            if len(typed) == 1 and typed in LETTERS:
                return typed, self._clock() - start
            self._say(f"Type one of {', '.join(LETTERS)}.")

    def _show(self, png: bytes) -> Path:
        from tempfile import gettempdir

        path = Path(gettempdir()) / f"asciieval-{self._asked}.png"
        path.write_bytes(png)
        return path

    def _say(self, text: str, end: str = "\n") -> None:
        self._write.write(text + end)
        self._write.flush()


def _stopped() -> ProviderError:
    return ProviderError("The person at the terminal stopped; resume to go on.", fatal=True)
