"""A person at the terminal, as a chat model: the forms of `assay.systems.forms`, asked line by line."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from assay.core.errors import DataError, TrialPostponed
from assay.systems import forms
from assay.systems.chat.model import Message, Reply
from assay.systems.human import PersonsAnswer, checked_request, reported

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

_CONTROL = dict.fromkeys((*range(9), 11, 12, *range(13, 32), *range(127, 160)))
_HEADS = {"system": "Instructions", "developer": "Instructions", "assistant": "Reply so far", "tool": "Tool"}
STOPPED = "The person at the terminal stopped; resume the run to go on."


class Again(Exception):
    """What was typed is no answer; the text says why."""


class StandardInput:
    """Lines of standard input, read so that a thread waiting for one can be let go (`readline` cannot be)."""

    def __init__(self) -> None:
        self._pending = b""
        self._over = False

    def __call__(self) -> str:
        """The next line; empty at the end of input, or once stopped."""
        source = sys.stdin.fileno()
        while b"\n" not in self._pending and not self._over:
            if select.select([source], [], [], 0.2)[0]:
                chunk = os.read(source, 65536)
                self._over = not chunk
                self._pending += chunk
        line, newline, self._pending = self._pending.partition(b"\n")
        return (line + newline).decode("utf-8", "replace")

    def stop(self) -> None:
        """Let whoever waits go."""
        self._over = True


class TerminalPerson:
    """Asks whoever sits at the terminal, one question at a time, however many trials wait.

    Parameters
    ----------
    person
        Pseudonym; it becomes part of the system's name.
    choices
        Ids to choose from where a request asks for free text.
    practice
        Items asked before anything counts, with what was expected.
    read, write
        Where lines come from and questions go to; None = the terminal.
    clock
        Seconds, monotonic.

    Notes
    -----
    ``:q`` or the end of input stops the run, ``:b`` begins a break (the clock stands still). What was answered is on
    disk: `assay resume` asks the rest. Pictures and recordings are written to files whose paths are shown.
    """

    patient = True

    def __init__(
        self,
        person: str = "you",
        *,
        role: str = "subject",
        choices: Sequence[str] = (),
        practice: Sequence[Mapping[str, Any]] = (),
        read: Callable[[], str] | None = None,
        write: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.person = person
        self.name = f"human:{person}?at=terminal"
        self.role = role
        self.choices = tuple(choices)
        self._practice = list(practice)
        self._read = read if read is not None else StandardInput()
        self._write = write if write is not None else sys.stderr
        self._clock = clock
        self._turn = asyncio.Lock()
        self._answered = 0
        self._stopped = False
        self._away = 0.0
        self._files: TemporaryDirectory[str] | None = None

    def describe(self) -> dict[str, Any]:
        """Facts for ``run.json``."""
        return {"name": self.name, "kind": "human"}

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        response_format: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        stop: Sequence[str] | None = None,
        n: int = 1,
        logprobs: int | None = None,
        seed: int | None = None,
    ) -> Reply:
        """What was typed, as a model would write it; see `ChatModel` and `assay.systems.human`.

        Raises
        ------
        TrialPostponed
            The person stopped: the trial stays pending.
        """
        asked = checked_request(response_format, tools=tools, n=n, logprobs=logprobs, choices=self.choices)
        messages = forms.for_people(messages, response_format)
        async with self._turn:
            if self._stopped:
                raise TrialPostponed(STOPPED)
            try:
                while self._practice:
                    await asyncio.to_thread(self._practise, self._practice[0])
                    self._practice.pop(0)
                value, seconds = await asyncio.to_thread(self._ask, messages, forms.read(asked), "")
            except asyncio.CancelledError:
                self._stopped = True
                if isinstance(self._read, StandardInput):
                    self._read.stop()
                raise
            self._answered += 1
            answer = PersonsAnswer(forms.read(asked).reply(value), self.person, seconds, self._answered)
        return reported(self, messages, answer)

    # -- one question ------------------------------------------------------------------------------------------------

    def _practise(self, item: Mapping[str, Any]) -> None:
        form = forms.read(item.get("response_format"))
        value, _ = self._ask(item["messages"], form, "(practice, does not count)")
        expected = item.get("expected")
        if expected is not None:
            self._say("Right." if value == expected else f"Expected: {form.reply(expected)}")
        if item.get("feedback"):
            self._say(item["feedback"])

    def _ask(self, messages: Sequence[Message], form: forms.Form, note: str) -> tuple[Any, float]:
        self._say("\n" + "─" * 60)
        if note:
            self._say(note)
        files = self._show(messages)
        if any(part >= len(files) for part in form.parts()):
            raise DataError(
                f"The form points at part {max(form.parts())}, and the messages hold {len(files)} (from 0)."
            )
        self._away = 0.0
        start = self._clock()
        while True:
            try:
                value = self._value(form, files)
                if fault := form.fault(value):
                    raise Again(f"{fault[:1].upper()}{fault[1:]}.")
                return value, self._clock() - start - self._away
            except Again as again:
                self._say(str(again))

    def _value(self, form: forms.Form, files: Sequence[Path]) -> Any:
        a = form.arguments
        match form.kind:
            case "text":
                return self._text(int(a.get("lines", 1)))
            case "json":
                return self._json()
            case "choice":
                picked = self._pick(form.items, files)
                return picked if form.plain else {"choice": picked}
            case "pair":
                tie = [{"id": "tie", "label": "neither is better"}] if a["tie"] else []
                return {"preferred": self._pick([*form.items, *tie], files)}
            case "rating":
                if "part" in a:
                    self._say(f"  {files[a['part']]}")
                return {"rating": self._number(a, "Rating")}
            case "ratings":
                if "reference" in a:
                    self._say(f"  {a['reference_label']}: {files[a['reference']]}")
                return {"ratings": {i["id"]: self._number(a, self._named(i, files)) for i in form.items}}
            case "relevance":
                return {"relevant": {i["id"]: self._yes(i, a, files) for i in form.items}}
            case "ranking":
                self._list(form.items, files)
                places = self._line("Numbers, best first: ").replace(",", " ").split()
                return {"ranking": [form.items[self._index(p, len(form.items))]["id"] for p in places]}
            case "grouping":
                self._say("A name for the group of each; equal names are one group.")
                return {"groups": {i["id"]: self._line(f"  {self._named(i, files)}\n  group: ") for i in form.items}}
            case "spans":
                return {"spans": self._spans(a)}
        return self._field(form.schema or {}, "")

    # -- parts of answers ----------------------------------------------------------------------------------------------

    def _text(self, lines: int) -> str:
        if lines == 1:
            return self._line("Answer: ")
        self._say("Answer (an empty line ends it):")
        found = [self._line("> ")]
        while (line := self._line("> ")).strip():
            found.append(line)
        return "\n".join(found)

    def _json(self) -> Any:
        try:
            return json.loads(self._line("JSON: "))
        except ValueError as error:
            raise Again(f"This is no JSON ({error}).") from None

    def _pick(self, items: Sequence[Mapping[str, Any]], files: Sequence[Path]) -> str:
        self._list(items, files)
        typed = self._line("Number: ").strip()
        ids = [i["id"] for i in items]
        # An id that is typed whole is meant, even where it looks like a number.
        return typed if typed in ids else ids[self._index(typed, len(items))]

    def _index(self, typed: str, n: int) -> int:
        if not typed.strip().isdecimal() or not 1 <= int(typed) <= n:
            raise Again(f"{typed!r} is no number from 1 to {n}.")
        return int(typed) - 1

    def _number(self, a: Mapping[str, Any], label: str) -> float | int | None:
        ends = "".join(f", {k} = {v}" for k, v in a.get("labels", {}).items())
        unsure = ", ? = unsure" if a.get("unsure") else ""
        typed = self._line(f"{label} ({a['low']} to {a['high']}{ends}{unsure}): ").strip()
        if typed == "?" and a.get("unsure"):
            return None
        return _number(typed)

    def _yes(self, item: Mapping[str, Any], a: Mapping[str, Any], files: Sequence[Path]) -> bool:
        typed = self._line(f"  {self._named(item, files)}\n  1 = {a['yes']}, 2 = {a['no']}: ").strip().lower()
        if typed not in ("1", "2", "y", "n"):
            raise Again("Type 1 or 2; the marks are asked again from the first.")
        return typed in ("1", "y")

    def _spans(self, a: Mapping[str, Any]) -> list[dict[str, Any]]:
        self._say(a["text"])
        self._say("Labels: " + ", ".join(f"{n} = {label}" for n, label in enumerate(a["labels"], 1)))
        found, after = [], 0
        while (words := self._line("Words to mark (empty = no more): ")).strip():
            start = a["text"].find(words, after)
            start = start if start >= 0 else a["text"].find(words)
            if start < 0:
                self._say("These words are not in the text.")
                continue
            label = a["labels"][self._index(self._line("Label: "), len(a["labels"]))]
            after = start + len(words)
            found.append({"start": start, "end": after, "label": label})
        return found

    def _field(self, schema: Mapping[str, Any], label: str) -> Any:
        """A value of any schema, asked piece by piece."""
        types = schema.get("type")
        kind = next((t for t in ([types] if isinstance(types, str) else types or []) if t != "null"), None)
        if "enum" in schema:
            values = schema["enum"]
            self._say(f"{label}:")
            return values[self._index_of(values)]
        match kind:
            case "object" if "properties" in schema:
                found = {}
                for key, inner in schema["properties"].items():
                    wanted = key in schema.get("required", ())
                    value = self._field(inner, f"{label}{' · ' if label else ''}{key}{'' if wanted else ' (optional)'}")
                    if value is not None or wanted:
                        found[key] = value
                return found
            case "array":
                self._say(f"{label} (an empty line ends it):")
                return self._several(schema.get("items", {}), label)
            case "boolean":
                typed = self._line(f"{label} (1 = yes, 2 = no): ").strip()
                return None if not typed else self._index(typed, 2) == 0
            case "integer" | "number":
                typed = self._line(f"{label} (a number): ").strip()
                return _number(typed) if typed else None
            case "string":
                return self._line(f"{label}: ") or None
        typed = self._line(f"{label} (JSON): ").strip()
        try:
            return json.loads(typed) if typed else None
        except ValueError as error:
            raise Again(f"This is no JSON ({error}).") from None

    def _index_of(self, values: Sequence[Any]) -> int:
        for n, value in enumerate(values, 1):
            self._say(f"  {n}  {value}")
        return self._index(self._line("Number: "), len(values))

    def _several(self, inner: Mapping[str, Any], label: str) -> list[Any]:
        if "enum" in inner:
            for n, value in enumerate(inner["enum"], 1):
                self._say(f"  {n}  {value}")
            typed = self._line("Numbers: ").replace(",", " ").split()
            return [inner["enum"][self._index(t, len(inner["enum"]))] for t in typed]
        found = []
        while (value := self._field(inner, f"{label} {len(found) + 1}")) not in (None, {}):
            found.append(value)
        return found

    # -- the terminal --------------------------------------------------------------------------------------------------

    def _list(self, items: Sequence[Mapping[str, Any]], files: Sequence[Path]) -> None:
        for n, item in enumerate(items, 1):
            self._say(f"  {n}  {self._named(item, files)}")

    def _named(self, item: Mapping[str, Any], files: Sequence[Path]) -> str:
        said = [item[k] for k in ("label", "text") if k in item] or [item["id"]]
        if "part" in item:
            said.append(str(files[item["part"]]))
        return " – ".join(said)

    def _show(self, messages: Sequence[Message]) -> list[Path]:
        """Write messages out; files of the pictures and recordings in them."""
        files: list[Path] = []
        for message in messages:
            if message.get("role") in _HEADS:
                self._say(f"[{_HEADS[message['role']]}]")
            content = message.get("content") or ""
            for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                if part.get("type") == "text":
                    self._say(part["text"])
                else:
                    files.append(self._file(part))
                    self._say(f"{'Picture' if part['type'] == 'image_url' else 'Recording'}: {files[-1]}")
        self._say("")
        return files

    def _file(self, part: Mapping[str, Any]) -> Path:
        from hashlib import sha256
        from tempfile import TemporaryDirectory

        if part["type"] == "image_url":
            head, _, data = part["image_url"]["url"].partition(",")
            ending = head.partition("/")[2].partition(";")[0]
        else:
            data, ending = part["input_audio"]["data"], part["input_audio"]["format"]
        raw = base64.b64decode(data)
        ending = ending if ending.isalnum() else "bin"
        if self._files is None:
            # A folder of our own: a name that others can foretell could be theirs, or a link.
            self._files = TemporaryDirectory(prefix="assay-")
        path = Path(self._files.name) / f"{sha256(raw).hexdigest()[:16]}.{ending}"
        path.write_bytes(raw)
        return path

    def _line(self, prompt: str) -> str:
        """A line that was typed; handles stopping and breaks."""
        while True:
            self._say(prompt, end="")
            line = self._read()
            if not line or line.strip() == ":q":
                self._stopped = True
                raise TrialPostponed(STOPPED)
            if line.strip() != ":b":
                return line.rstrip("\n")
            since = self._clock()
            self._say("A break; Enter goes on.", end=" ")
            self._read()
            self._away += self._clock() - since

    def _say(self, text: str, end: str = "\n") -> None:
        # Control characters in a question could rewrite the screen.
        self._write.write(text.translate(_CONTROL) + end)
        self._write.flush()


def _number(typed: str) -> float | int:
    try:
        return int(typed)
    except ValueError:
        try:
            found = float(typed.replace(",", "."))
        except ValueError:
            raise Again(f"{typed!r} is no number.") from None
    if found != found or found in (float("inf"), float("-inf")):
        raise Again(f"{typed!r} is no number.")
    return found
