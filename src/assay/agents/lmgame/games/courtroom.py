"""A courtroom drama: dialogue, choices, cross-examination; it stands in for the handheld game that needs a ROM."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from assay.agents.lmgame.games.courtroom_script import Script, check_script, read_script, shipped_script
from assay.agents.lmgame.games.engine import Engine, Played
from assay.core.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ACTIONS = ("a", "b", "l", "r", "up", "down", "left", "right", "no_op")
LIVES = 5
HISTORY = 30
CONTROLS = {
    "page": "a: next page; r: court record",
    "ask": "up, down: choose; a: confirm; r: court record",
    "examine": "a, right: next statement; left: previous statement; l: press the witness; r: court record",
    "record": "left, right: choose evidence; up: present it (in a cross-examination); b, r: close the record",
}


@dataclass(frozen=True)
class Masks:
    """Names and lines to replace in everything that is shown (``mapping.json``), against recall of a known story.

    Parameters
    ----------
    names, dialog, evidence : mapping
        Character names (whole words, also inside lines), whole lines, evidence names.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    dialog: Mapping[str, str] = field(default_factory=dict)
    evidence: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, mapping: Any, where: str = "mapping.json") -> Masks:
        """Masks from ``{"name_mappings", "dialog", "evidence_mappings"}``."""
        parts = []
        for name in ("name_mappings", "dialog", "evidence_mappings"):
            part = mapping.get(name, {}) if isinstance(mapping, Mapping) else None
            if not isinstance(part, Mapping) or not all(isinstance(v, str) for pair in part.items() for v in pair):
                raise DataError(f"{where}, {name}: {part!r} is no object of text to text.")
            parts.append(dict(part))
        return cls(*parts)

    def text(self, line: str) -> str:
        """A line as it is shown."""
        line = self.dialog.get(line, line)
        table = {**self.names, **self.evidence}
        if not table:
            return line
        # Longest first: "Nora Vale" before "Vale"; one pass, so that a replacement is not replaced again.
        names = "|".join(re.escape(name) for name in sorted(table, key=len, reverse=True))
        return re.sub(rf"(?<!\w)(?:{names})(?!\w)", lambda match: table[match[0]], line)


class Courtroom(Engine):
    """Scenes of one or more cases, chained: a scene's end statement loads the next one with five lives.

    Score: index of the furthest scene (0 for the first); perf_score and reward: scenes gained. Presenting the wrong
    evidence or taking a wrong option costs a life.

    Parameters
    ----------
    script : Script, path of a JSON script, or None
        None: the shipped three cases.
    masks : Masks or mapping
        See `Masks`.
    first : str or None
        Id of the scene to begin with.
    """

    name: ClassVar[str] = "courtroom"
    actions = ACTIONS
    stuck_limit: ClassVar[int] = 30
    max_steps: ClassVar[int | None] = 300
    default_mode: ClassVar[str] = "both"

    def __init__(
        self,
        script: Script | str | Path | None = None,
        masks: Masks | Mapping[str, Any] | None = None,
        first: str | None = None,
    ) -> None:
        if isinstance(script, str | Path):
            script = read_script(script)
        self.script = script or shipped_script()
        self.masks = masks if isinstance(masks, Masks) else Masks.of(masks or {}, "masks")
        ids = [scene.id for scene in self.script.scenes]
        if first is not None and first not in ids:
            raise DataError(f"There is no scene {first!r} in {self.script.title!r}; there are {', '.join(ids)}.")
        self.first = ids.index(first) if first is not None else 0
        self._begin()

    def reset(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self._begin()

    def _begin(self) -> None:
        self.history: list[str] = []
        self.furthest = self.first
        self.finished = False
        self._load(self.first)

    def _load(self, index: int) -> None:
        if self.history and self.script.scenes[index].case is not self.script.scenes[index - 1].case:
            self.history = []
        self.index, self.lives = index, LIVES
        self.evidence: list[str] = list(self.scene["evidence"])
        self.flags: list[str] = []
        self.page: tuple[str, str] | None = None
        self.chosen = self.selected = 0
        self.record_open = False
        # Frames of nested node lists: (path to the list in the scene, index of the next node).
        self.frames: list[list[Any]] = [[["script"], 0]]
        self._advance()

    @property
    def scene(self) -> Mapping[str, Any]:
        return self.script.scenes[self.index].body

    @property
    def case(self) -> Mapping[str, Any]:
        return self.script.scenes[self.index].case

    def _at(self, path: list[Any]) -> Any:
        found: Any = self.scene
        for key in path:
            found = found[key]
        return found

    @property
    def node(self) -> Any:
        """The node that waits for an answer (ask, examine), or None while a page is read."""
        if not self.frames or self.page is not None:
            return None
        path, index = self.frames[-1]
        nodes = self._at(path)
        return nodes[index] if index < len(nodes) else None

    @property
    def mode(self) -> str:
        """page, ask, examine, or record."""
        if self.record_open:
            return "record"
        node = self.node
        return "page" if node is None else next(iter(node))

    def statements(self) -> list[int]:
        """Indices of the statements that are shown in the present cross-examination."""
        node = self.node
        if node is None or "examine" not in node:
            return []
        listed = node["examine"]["statements"]
        return [i for i, statement in enumerate(listed) if statement.get("when") in (None, *self.flags)]

    def _speak(self, page: list[str]) -> None:
        self.page = (page[0], page[1])
        self._note(*page)

    def _note(self, who: str, line: str) -> None:
        self.history = [*self.history, f"{self.case['characters'][who]}: {line}"][-HISTORY:]

    def _advance(self) -> None:
        """Go on until a page or a question is shown, or the script is over."""
        self.page = None
        passed = 0
        while self.frames:
            passed += 1
            if passed > 10_000:
                raise DataError(f"Scene {self.scene['id']!r}: its jumps never come to a page; put one in between.")
            path, index = self.frames[-1]
            nodes = self._at(path)
            if index >= len(nodes):
                self.frames.pop()
                continue
            node = nodes[index]
            if isinstance(node, list):
                self.frames[-1][1] += 1
                self._speak(node)
                return
            kind, value = next(iter(node.items()))
            if kind in ("ask", "examine"):
                self.chosen = 0
                if kind == "ask":
                    self._note(*value["say"])
                else:
                    self._note(*value["statements"][self.statements()[0]]["say"])
                return
            self.frames[-1][1] += 1
            if kind == "give" and value not in self.evidence:
                self.evidence = [*self.evidence, value]
            elif kind == "set" and value not in self.flags:
                self.flags = [*self.flags, value]
            elif kind == "goto" or (kind == "if" and value[0] in self.flags):
                self._jump(value if kind == "goto" else value[1])

    def _jump(self, label: str) -> None:
        self.frames = [[["script"], self.scene["script"].index({"label": label})]]

    def play(self, command: str) -> Played:
        before = self.furthest
        handler = {"page": self._in_page, "ask": self._in_ask, "examine": self._in_examine, "record": self._in_record}
        handler[self.mode](command)
        new_scene = self.page is not None and self.page[1] in self.scene["end"]
        if new_scene:
            if self.index + 1 < len(self.script.scenes):
                self._load(self.index + 1)
                self.furthest = max(self.furthest, self.index)
            else:
                self.finished = True
        gained = float(self.furthest - before)
        return Played(gained, gained, ended=self.finished or self.lives == 0 or (not self.frames and self.page is None))

    def _in_page(self, command: str) -> None:
        if command == "a":
            self._advance()
        elif command == "r":
            self._open_record()

    def _in_ask(self, command: str) -> None:
        options = self.node["ask"]["options"]
        if command in ("up", "down"):
            self.chosen = (self.chosen + (1 if command == "down" else -1)) % len(options)
        elif command == "r":
            self._open_record()
        elif command == "a":
            option = options[self.chosen]
            path, index = self.frames[-1]
            inner = [*path, index, "ask", "options", self.chosen, "then"]
            if option.get("penalty"):
                self._lose_life()
            else:
                self.frames[-1][1] += 1
            if option.get("then"):
                self.frames.append([inner, 0])
            self._advance()

    def _in_examine(self, command: str) -> None:
        shown = self.statements()
        if command in ("a", "right", "left"):
            self.chosen = (self.chosen + (-1 if command == "left" else 1)) % len(shown)
            self._note(*self.node["examine"]["statements"][shown[self.chosen]]["say"])
        elif command == "r":
            self._open_record()
        elif command == "l":
            self._inner(["statements", shown[self.chosen], "press"])

    def _inner(self, way: list[Any]) -> None:
        """Play nodes inside the present cross-examination, then come back to its statement."""
        path, index = self.frames[-1]
        kept = self.chosen
        self.frames.append([[*path, index, "examine", *way], 0])
        self._advance()
        self.chosen = kept

    def _open_record(self) -> None:
        self.record_open = bool(self.evidence)
        self.selected = min(self.selected, max(0, len(self.evidence) - 1))

    def _in_record(self, command: str) -> None:
        if command in ("b", "r"):
            self.record_open = False
        elif command in ("left", "right"):
            self.selected = (self.selected + (1 if command == "right" else -1)) % len(self.evidence)
        elif command == "up" and self.node is not None and "examine" in self.node:
            self.record_open = False
            shown = self.statements()[self.chosen]
            name = self.evidence[self.selected]
            if name in self.node["examine"]["statements"][shown].get("present", {}):
                path, index = self.frames[-1]
                self.frames[-1][1] += 1
                self.frames.append([[*path, index, "examine", "statements", shown, "present", name], 0])
                self._advance()
            else:
                self._lose_life()
                self._inner(["wrong"])

    def _lose_life(self) -> None:
        self.lives -= 1

    @property
    def score(self) -> float:
        return float(self.furthest)

    def shown_evidence(self) -> list[tuple[str, str]]:
        """(name, description) of the evidence in the record, masked."""
        entries = (self.case["evidence"][name] for name in self.evidence)
        return [(self.masks.text(entry["name"]), self.masks.text(entry["text"])) for entry in entries]

    def background(self) -> str:
        """The case in short and what was said so far, masked."""
        said = [f"Transcript, last {HISTORY} lines:", *self.transcript()] if self.history else []
        return "\n".join([self.masks.text(self.case.get("background", "")), *said])

    def spoken(self) -> tuple[str, str]:
        """(speaker, line) on the screen, masked."""
        node = self.node
        if self.page is not None:
            who, line = self.page
        elif node is None:
            return "", ""
        elif "ask" in node:
            who, line = node["ask"]["say"]
        else:
            who, line = node["examine"]["statements"][self.statements()[self.chosen]]["say"]
        return self.masks.text(self.case["characters"][who]), self.masks.text(line)

    def options(self) -> list[str]:
        """Options of the present choice, masked; empty without one."""
        node = self.node
        return [self.masks.text(o["text"]) for o in node["ask"]["options"]] if node and "ask" in node else []

    def heading(self) -> str:
        """What is going on: the case, and the testimony under examination."""
        node = self.node
        title = self.masks.text(self.case["title"])
        if node and "examine" in node:
            place = f"statement {self.chosen + 1} of {len(self.statements())}"
            return f"{title} | Cross-examination: {self.masks.text(node['examine']['title'])}, {place}"
        return title

    def text(self) -> str:
        who, line = self.spoken()
        lines = [
            f"Scene {self.index + 1} of {len(self.script.scenes)} | {self.heading()}",
            f"Lives: {self.lives}",
            f"Dialog: {who}: {line}",
        ]
        for number, option in enumerate(self.options()):
            lines.append(f"{'>' if number == self.chosen else ' '} {option}")
        lines.append("Court record:")
        for number, (name, description) in enumerate(self.shown_evidence()):
            mark = ">" if self.record_open and number == self.selected else "-"
            lines.append(f"{mark} {name}: {description}")
        return "\n".join([*lines, f"Controls: {CONTROLS[self.mode]}"])

    def transcript(self) -> list[str]:
        """The last lines of the case, masked."""
        return [self.masks.text(line) for line in self.history]

    def image(self) -> NDArray[np.uint8]:
        from assay.agents.lmgame.rendering import draw_courtroom

        who, line = self.spoken()
        evidence = self.shown_evidence()[self.selected] if self.record_open else None
        return draw_courtroom(self.heading(), who, line, self.lives, self.options(), self.chosen, evidence)

    def info(self) -> dict[str, Any]:
        who, line = self.spoken()
        return {
            "scene": self.scene["id"],
            "level": self.index,
            "lives": self.lives,
            "mode": self.mode,
            "speaker": who,
            "dialog": line,
            "evidence": [name for name, _ in self.shown_evidence()],
            "finished": self.finished,
        }

    def get_state(self) -> dict[str, Any]:
        return {
            "script": self.script.source,
            "index": self.index,
            "furthest": self.furthest,
            "lives": self.lives,
            "evidence": self.evidence,
            "flags": self.flags,
            "page": list(self.page) if self.page else None,
            "chosen": self.chosen,
            "selected": self.selected,
            "record_open": self.record_open,
            "frames": [[list(path), index] for path, index in self.frames],
            "history": self.history,
            "finished": self.finished,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        if state["script"] != self.script.source:
            self.script = check_script(state["script"], "state")
        for key in ("index", "furthest", "lives", "chosen", "selected", "record_open", "finished"):
            setattr(self, key, state[key])
        self.evidence, self.flags, self.history = list(state["evidence"]), list(state["flags"]), list(state["history"])
        self.page = tuple(state["page"]) if state["page"] else None
        self.frames = [[list(path), index] for path, index in state["frames"]]
