"""Scripts of the courtroom: JSON files, checked whole before the first page is shown.

A script is ``{"title", "cases": [case, ...]}``. A case has ``id``, ``title``, ``background``, ``characters`` (id ->
name), ``evidence`` (id -> ``{"name", "text"}``) and ``scenes``. A scene is a checkpoint: ``id``, ``title``,
``evidence`` (ids at its start), ``end`` (lines that end it when they are spoken) and ``script``, a list of nodes:

=====================================  ===========================================================================
``[character, line]``                  a page of dialogue
``{"give": evidence}``                 evidence is added to the record
``{"set": flag}``                      a flag is set (it shows statements and steers branches)
``{"label": name}``                    a place to go to
``{"goto": name}``                     go on at a label of the scene
``{"if": [flag, name]}``               go on at a label when the flag is set
``{"ask": {say, options}}``            a choice; an option has ``text``, ``then`` (nodes) and maybe ``penalty`` (a life
                                       is lost and the question is put again)
``{"examine": {title, statements,      a cross-examination; a statement has ``say``, ``press`` (nodes), maybe
wrong}}``                              ``present`` (evidence -> nodes, which end it) and ``when`` (flag that shows it);
                                       other evidence costs a life and plays ``wrong``
=====================================  ===========================================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from assay.core.datasets.readers import guarded, read_json
from assay.core.errors import DataError

KINDS = ("give", "set", "label", "goto", "if", "ask", "examine")


@dataclass(frozen=True)
class Scene:
    """A checkpoint with the case it belongs to."""

    case: Mapping[str, Any]
    body: Mapping[str, Any]

    @property
    def id(self) -> str:
        return self.body["id"]


@dataclass(frozen=True)
class Script:
    """A checked script."""

    title: str
    scenes: tuple[Scene, ...]
    source: Mapping[str, Any]


def shipped_script() -> Script:
    """Three cases of 19 scenes, written for assay."""
    text = files("assay.agents.lmgame").joinpath("games/cases/quill.json").read_text(encoding="utf-8")
    return check_script(json.loads(text), "shipped cases")


def read_script(path: str | Path) -> Script:
    """A script from a JSON file.

    Raises
    ------
    DataError
        No such file, no JSON, or a script that breaks a rule; the message says where.
    """
    found = read_json(path)
    with guarded(path, "a courtroom script"):
        return check_script(found, str(path))


def check_script(found: Any, where: str = "script") -> Script:
    """Check a script that was read; see the module for its form."""
    if not isinstance(found, dict) or not isinstance(found.get("cases"), list) or not found["cases"]:
        raise DataError(f"{where}: no 'cases'; give an object with a list of cases.")
    scenes = []
    for number, case in enumerate(found["cases"], 1):
        place = f"{where}, case {number}"
        _object(case, place, {"id": str, "title": str, "characters": dict, "evidence": dict, "scenes": list})
        for name, entry in case["evidence"].items():
            _object(entry, f"{place}, evidence {name!r}", {"name": str, "text": str})
        if not case["scenes"]:
            raise DataError(f"{place}: no scenes; give at least one.")
        for body in case["scenes"]:
            _Checker(case, body, place).check()
            scenes.append(Scene(case, body))
    ids = [scene.id for scene in scenes]
    double = next((name for name in ids if ids.count(name) > 1), None)
    if double is not None:
        raise DataError(f"{where}: scene {double!r} occurs twice; give every scene its own id.")
    return Script(str(found.get("title", "")), tuple(scenes), found)


def _object(value: Any, place: str, fields: Mapping[str, type]) -> None:
    if not isinstance(value, dict):
        raise DataError(f"{place}: {value!r} is no object.")
    for name, kind in fields.items():
        if not isinstance(value.get(name), kind):
            raise DataError(f"{place}: field {name!r} is {value.get(name)!r}; give a {kind.__name__}.")


class _Checker:
    def __init__(self, case: Mapping[str, Any], body: Any, place: str) -> None:
        _object(body, place, {"id": str, "script": list, "end": list, "evidence": list})
        self.case, self.body = case, body
        self.place = f"{place}, scene {body['id']!r}"
        self.labels: set[str] = set()
        self.goals: list[tuple[str, str]] = []
        self.flags: set[str] = set()
        self.wanted: list[tuple[str, str]] = []
        self.lines: set[str] = set()

    def check(self) -> None:
        for name in self.body["evidence"]:
            self._evidence(name, self.place)
        self._nodes(self.body["script"], f"{self.place}, script", top=True)
        for label, place in self.goals:
            if label not in self.labels:
                raise DataError(f"{place}: no label {label!r} in the scene's own script.")
        for flag, place in self.wanted:
            if flag not in self.flags:
                raise DataError(f"{place}: flag {flag!r} is set nowhere in the scene.")
        for line in self.body["end"]:
            if not isinstance(line, str) or line not in self.lines:
                raise DataError(f"{self.place}: the end statement {line!r} is spoken nowhere in the scene.")
        if not self.body["end"]:
            raise DataError(f"{self.place}: no end statement; give at least one line that ends the scene.")

    def _evidence(self, name: Any, place: str) -> None:
        if not isinstance(name, str) or name not in self.case["evidence"]:
            raise DataError(f"{place}: evidence {name!r} is not in the case's list.")

    def _say(self, page: Any, place: str) -> None:
        if not (isinstance(page, list) and len(page) == 2 and all(isinstance(part, str) and part for part in page)):
            raise DataError(f"{place}: {page!r} is no page [character, line].")
        if page[0] not in self.case["characters"]:
            raise DataError(f"{place}: character {page[0]!r} is not in the case's list.")
        self.lines.add(page[1])

    def _nodes(self, nodes: Any, place: str, *, top: bool = False) -> None:
        if not isinstance(nodes, list):
            raise DataError(f"{place}: {nodes!r} is no list of nodes.")
        for number, node in enumerate(nodes):
            at = f"{place}[{number}]"
            if isinstance(node, list):
                self._say(node, at)
                continue
            if not isinstance(node, dict) or len(node) != 1 or next(iter(node)) not in KINDS:
                raise DataError(f"{at}: {node!r} is no node; give a page or an object of one of {', '.join(KINDS)}.")
            kind, value = next(iter(node.items()))
            getattr(self, f"_{kind}")(value, at, top)

    def _give(self, value: Any, at: str, top: bool) -> None:
        self._evidence(value, at)

    def _set(self, value: Any, at: str, top: bool) -> None:
        self.flags.add(str(value))

    def _label(self, value: Any, at: str, top: bool) -> None:
        if not top:
            raise DataError(f"{at}: label {value!r} stands inside another node; labels stand in the scene's script.")
        self.labels.add(str(value))

    def _goto(self, value: Any, at: str, top: bool) -> None:
        self.goals.append((str(value), at))

    def _if(self, value: Any, at: str, top: bool) -> None:
        if not (isinstance(value, list) and len(value) == 2):
            raise DataError(f"{at}: {value!r} is no pair [flag, label].")
        self.wanted.append((str(value[0]), at))
        self.goals.append((str(value[1]), at))

    def _ask(self, value: Any, at: str, top: bool) -> None:
        _object(value, at, {"say": list, "options": list})
        self._say(value["say"], f"{at}, say")
        if len(value["options"]) < 2:
            raise DataError(f"{at}: {len(value['options'])} options; give at least two.")
        for number, option in enumerate(value["options"]):
            _object(option, f"{at}, option {number + 1}", {"text": str})
            self._nodes(option.get("then", []), f"{at}, option {number + 1}, then")
        if all(option.get("penalty") for option in value["options"]):
            raise DataError(f"{at}: every option has a penalty; one must go on.")

    def _examine(self, value: Any, at: str, top: bool) -> None:
        _object(value, at, {"title": str, "statements": list, "wrong": list})
        self._nodes(value["wrong"], f"{at}, wrong")
        solvable = False
        for number, statement in enumerate(value["statements"]):
            place = f"{at}, statement {number + 1}"
            _object(statement, place, {"say": list, "press": list})
            self._say(statement["say"], place)
            self._nodes(statement["press"], f"{place}, press")
            for name, nodes in statement.get("present", {}).items():
                self._evidence(name, f"{place}, present")
                self._nodes(nodes, f"{place}, present {name!r}")
                solvable = True
            if "when" in statement:
                self.wanted.append((str(statement["when"]), place))
        if not solvable or all("when" in statement for statement in value["statements"]):
            raise DataError(f"{at}: no statement can be contradicted, or none is shown at first.")
