"""The harness around a chat model: modules for perception, memory and reasoning, each switched on alone or not."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from assay.agents.lmgame.parsing import Parsed, parse_reply, section
from assay.agents.lmgame.prompts import Prompts
from assay.core.errors import UsageError, unknown_name
from assay.systems.chat.model import ChatModel
from assay.systems.environment import text_of

NONE = "N/A"
LOST_SUMMARY = "Notes of the earlier turns were lost; go by the present state."
CHARACTERS_A_TOKEN = 3


@dataclass(frozen=True)
class Modules:
    """What stands between the game and the model's move.

    Attributes
    ----------
    perception
        The model first describes the picture (modes "vision" and "both"); a text is passed through.
    memory
        The last turns are shown.
    reflection
        Before each move the model is asked what the last one did.
    summary
        A full memory is replaced by notes that the model writes.
    reasoning
        The move is asked for with the reasoning prompt and read by the harness's rule; else with the base prompt.
    deliberation
        Forced reasoning, a mitigation of contamination: a call of its own first analyses the present state and may not
        choose; the move is asked for with that analysis as the turn before.
    """

    perception: bool = False
    memory: bool = False
    reflection: bool = False
    summary: bool = False
    reasoning: bool = False
    deliberation: bool = False

    @property
    def names(self) -> list[str]:
        """The modules that are switched on."""
        return [f.name for f in fields(self) if getattr(self, f.name)]

    @property
    def label(self) -> str:
        """``true`` for the published harness, ``false`` for none, else the modules joined by ``+``."""
        if set(FULL.names) <= set(self.names):
            return "+".join(["true", *(name for name in self.names if name not in FULL.names)])
        return "+".join(self.names) or "false"


FULL = Modules(perception=True, memory=True, reflection=True, reasoning=True)
_SETS: Mapping[str, tuple[Modules, ...]] = {
    "true": (FULL,),
    "false": (Modules(),),
    "both": (Modules(), FULL),
    "each": (
        Modules(),
        Modules(perception=True),
        Modules(memory=True),
        Modules(reflection=True),
        Modules(reasoning=True),
        FULL,
    ),
}


def read_modules(text: str) -> tuple[Modules, ...]:
    """Conditions by name: ``true``, ``false``, ``both``, ``each``, or modules joined by ``+``; commas part several.

    ``true`` among joined modules stands for the published harness, as in ``true+deliberation``.

    Raises
    ------
    UsageError
        A name that is none of these, or a condition given twice.
    """
    found: list[Modules] = []
    names = [f.name for f in fields(Modules)]
    for part in text.lower().replace(" ", "").split(","):
        if part in _SETS:
            found += _SETS[part]
            continue
        chosen = [name for given in part.split("+") for name in (FULL.names if given == "true" else [given])]
        for name in chosen:
            if name not in names:
                raise unknown_name("harness", name, [*_SETS, *names])
        found.append(Modules(**dict.fromkeys(chosen, True)))
    if len(set(found)) < len(found):
        raise UsageError(f"Option harness={text!r} names a condition twice; name each once.")
    return tuple(found)


class Memory:
    """The last turns, as a bounded deque of entries: an observation is one, an action with its thought another.

    Parameters
    ----------
    size
        Entries kept (10 as published: about five turns); 0 keeps none.
    """

    def __init__(self, size: int = 10) -> None:
        if size < 0:
            raise UsageError(f"max_memory={size}; give 0 or more entries.")
        self.entries: deque[str] = deque(maxlen=size)

    def saw(self, text: str) -> None:
        """Remember an observation."""
        self.entries.append(f"Observation: {text}")

    def did(self, action: str, thought: str | None) -> None:
        """Remember an action and the thought behind it."""
        self.entries.append(f"Action: {action} | Thought: {thought or NONE}")

    @property
    def text(self) -> str:
        """All entries, oldest first."""
        return "\n".join(self.entries) or NONE

    def full(self, max_tokens: int | None) -> bool:
        """Whether a summary is due: no room for another turn, or too long (three characters a token)."""
        long = max_tokens is not None and len(self.text) / CHARACTERS_A_TOKEN > max_tokens
        return len(self.entries) > 1 and (len(self.entries) == self.entries.maxlen or long)

    def summarised(self, notes: str) -> None:
        """Replace everything by notes; ones shorter than 10 characters count as lost."""
        self.entries.clear()
        self.entries.append(f"Summary: {notes if len(notes) >= 10 else LOST_SUMMARY}")


@dataclass(frozen=True)
class Decision:
    """A move and how it came about."""

    action: str | None
    thought: str | None
    reflection: str | None = None
    perception: str | None = None
    stop_reason: str = "stop"
    calls: int = 1


@dataclass(frozen=True)
class Settings:
    """How the harness asks.

    Attributes
    ----------
    max_memory
        Entries of memory.
    summary_tokens
        Estimated tokens at which a summary is due even if the memory is not full; None = never.
    max_tokens, temperature
        Of each request; None = the model's own.
    grid
        Rows and columns of the labelled grid that is drawn over frames; None = none.
    scale
        Factor by which frames are enlarged.
    """

    max_memory: int = 10
    summary_tokens: int | None = None
    max_tokens: int | None = 2048
    temperature: float | None = None
    grid: tuple[int, int] | None = None
    scale: float = 1.0


class Agent:
    """A chat model that plays through the harness: one episode's memory and what it takes to choose a move.

    Parameters
    ----------
    model
        Any ChatModel.
    modules
        What is switched on.
    prompts
        Of the game; see `prompts_for`.
    seed
        Handed on with each request, one more each call.
    """

    def __init__(
        self,
        model: ChatModel,
        modules: Modules | bool,
        prompts: Prompts,
        settings: Settings | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.model = model
        self.modules = (FULL if modules else Modules()) if isinstance(modules, bool) else modules
        self.prompts = prompts
        self.settings = settings or Settings()
        self.memory = Memory(self.settings.max_memory)
        self.seed = seed
        self.calls = 0

    async def decide(self, observation: Any, background: str | None = None) -> Decision:
        """Choose a move for what is seen. The memory takes the observation now and the move in `done`.

        Parameters
        ----------
        background
            What happened before the episode, in games with a story.
        """
        modules, before = self.modules, self.calls
        text = text_of(observation)
        picture = None if isinstance(observation, str) else self._part(observation["image"])
        values = {
            "textual_representation": text or NONE,
            "processed_visual_description": NONE,
            "game_trajectory": NONE,
            "reflection": NONE,
            "background": background or NONE,
        }
        perceived = None
        if modules.perception and picture is not None:
            perceived, _ = await self._ask("perception", values, picture)
            values["processed_visual_description"] = perceived
        seen = text or perceived or f"a frame with MD5 {_digest(observation)}"
        reflection = None
        if modules.summary and self.memory.full(self.settings.summary_tokens):
            notes, _ = await self._ask("summary", {"prev_context": self.memory.text}, None)
            self.memory.summarised(section(notes, "summary"))
        if modules.reflection and self.memory.entries:
            told = {"prev_context": self.memory.text, "current_observation": seen}
            reply, _ = await self._ask("memory", told, None if text or perceived else picture)
            reflection = section(reply, "reflection")
            values["reflection"] = reflection or NONE
        if modules.memory:
            values["game_trajectory"] = self.memory.text
        if modules.memory or modules.reflection:
            self.memory.saw(seen)
        shown = None if perceived is not None else picture
        said: list[dict[str, Any]] = []
        if modules.deliberation:
            analysis, _ = await self._ask("deliberation", values, shown)
            asked = self.prompts.messages("deliberation", values)[1]
            said = [{"role": "user", "content": asked}, {"role": "assistant", "content": analysis}]
        if modules.reasoning:
            reply, stop = await self._ask("reasoning", values, shown, said)
        else:
            reply, stop = await self._ask("base", {**values, "context": _context(values)}, shown, said)
        parsed: Parsed = parse_reply(reply, harness=modules.reasoning)
        return Decision(parsed.action, parsed.thought, reflection, perceived, stop, self.calls - before)

    def done(self, action: str, decision: Decision) -> None:
        """Remember the move that was played."""
        if self.modules.memory or self.modules.reflection:
            self.memory.did(action, decision.thought)

    def get_state(self) -> dict[str, Any]:
        """Memory and number of calls, JSON-able."""
        return {"memory": list(self.memory.entries), "calls": self.calls}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go back to a state that `get_state` gave."""
        self.memory.entries.clear()
        self.memory.entries.extend(state["memory"])
        self.calls = state["calls"]

    def _part(self, image: Any) -> dict[str, Any]:
        from PIL import Image

        from assay.agents.lmgame.rendering import grid_over
        from assay.systems.chat.images import image_part

        if self.settings.grid is not None:
            image = grid_over(image, *self.settings.grid)
        return image_part(Image.fromarray(image), scale=self.settings.scale)

    async def _ask(
        self,
        module: str,
        values: Mapping[str, str],
        picture: dict[str, Any] | None,
        said: Sequence[dict[str, Any]] = (),
    ) -> tuple[str, str]:
        """Text and stop reason of a reply; ``said`` are turns before the question."""
        system, user = self.prompts.messages(module, values)
        content: Any = user
        if picture is not None:
            from assay.systems.chat.images import with_images

            content = with_images(user, [picture])
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        messages += [*said, {"role": "user", "content": content}]
        self.calls += 1
        reply = await self.model.generate(
            messages,
            max_tokens=self.settings.max_tokens,
            temperature=self.settings.temperature,
            seed=(self.seed + self.calls) % 2**31,
        )
        return reply.text, reply.stop_reason


def _context(values: Mapping[str, str]) -> str:
    """What single modules add to the base prompt: only the parts that there are."""
    parts = {
        "Background": values["background"],
        "Recent turns": values["game_trajectory"],
        "Reflection on them": values["reflection"],
        "Description of the frame": values["processed_visual_description"],
    }
    return "".join(f"{name}:\n{text}\n\n" for name, text in parts.items() if text != NONE)


def _digest(observation: Any) -> str:
    return hashlib.md5(observation["image"].tobytes(), usedforsecurity=False).hexdigest()[:8]
