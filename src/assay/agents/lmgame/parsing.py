"""Thought and action read from a reply, by the published rules."""

from __future__ import annotations

import re
from typing import NamedTuple

_SECTION = r"(?:\A|\n)(?:#[ \t]*)?{mine}:[ \t]*(.*?)(?=\n(?:#[ \t]*)?{other}:|\Z)"
_MOVE, _THOUGHT = r"(?:move|action)", r"thought"
_FLAGS = re.IGNORECASE | re.DOTALL
_ACTION_SECTION = re.compile(_SECTION.format(mine=_MOVE, other=_THOUGHT), _FLAGS)
_THOUGHT_SECTION = re.compile(_SECTION.format(mine=_THOUGHT, other=_MOVE), _FLAGS)
_ACTION_START = re.compile(rf"(?:\A|\n)(?:#[ \t]*)?{_MOVE}:", re.IGNORECASE)
_MARKS = str.maketrans("", "", '#`"*')

NO_REPLY = "No response received"


class Parsed(NamedTuple):
    """Thought and action of a reply; None where there is none."""

    thought: str | None
    action: str | None


def parse_reply(reply: str | None, *, harness: bool) -> Parsed:
    """Thought and action of a reply.

    A section ``thought:`` or ``move:`` (``action:``) begins at the start of the text or of a line, perhaps after ``#``,
    and ends where the other kind begins. With ``harness`` the characters ``# ` " *`` are deleted before the action is
    looked for, as published: ``**right**`` is then read, and ``# move:`` is not, for the blank that stays before it.

    Parameters
    ----------
    harness
        The rule of the reasoning module; False: the rule of a single call.
    """
    if not reply or not reply.strip():
        return Parsed(NO_REPLY, None)
    found = _ACTION_SECTION.search(reply.translate(_MARKS) if harness else reply)
    action = (found[1].strip() or None) if found else None
    thought_found = _THOUGHT_SECTION.search(reply)
    if thought_found:
        return Parsed(thought_found[1].strip(), action)
    if action is None:
        return Parsed(reply.strip(), None)
    start = _ACTION_START.search(reply)
    before = reply[: start.start()] if start else reply
    return Parsed(before.strip() or None, action)


def section(reply: str, name: str) -> str:
    """Text after ``name:`` to the end of the reply; the whole reply where there is no such section."""
    found = re.search(rf"(?:\A|\n)[#* \t]*{re.escape(name)}[* \t]*:(.*)\Z", reply, _FLAGS)
    return (found[1] if found else reply).strip()
