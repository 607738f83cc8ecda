"""Prompts of the harness: one skeleton for every game, filled with the game's own rules; read and written as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from assay.core.datasets.readers import read_json
from assay.core.errors import DataError, unknown_name

MODULES = ("base", "perception", "memory", "summary", "deliberation", "reasoning")
_SLOT = re.compile(r"\{([a-z_]+)\}")

# Slots that a template must keep, whatever else an optimiser rewrites.
SLOTS: Mapping[str, tuple[str, ...]] = {
    "base": ("textual_representation",),
    "perception": (),
    "memory": ("prev_context", "current_observation"),
    "summary": ("prev_context",),
    "deliberation": ("textual_representation",),
    "reasoning": ("textual_representation", "game_trajectory", "reflection"),
}


@dataclass(frozen=True)
class Guide:
    """What the prompts say of one game: its rules, the legend of its state, its actions, one example action."""

    title: str
    rules: str
    legend: str
    actions: str
    example: str


GUIDES: Mapping[str, Guide] = {
    "sokoban": Guide(
        "Sokoban",
        "Push every box onto a target. You walk one cell up, down, left or right; a box moves one cell when you push "
        "it and the cell behind it is free. Boxes cannot be pulled, and two boxes cannot be pushed at once. Finishing "
        "a level brings the next one.",
        "The state lists every cell with what stands in it and its position (column,row), counted from the upper left. "
        "Down increases the row, right increases the column.",
        "push up, push down, push left, push right (a box must be in front of you), up, down, left, right, no_op",
        "push right",
    ),
    "twenty_forty_eight": Guide(
        "2048",
        "Slide all tiles of the 4x4 board in one direction. Equal tiles that meet merge into their sum, which is added "
        "to the score. A new tile (2, seldom 4) appears after each slide that changed the board. The game ends when "
        "nothing can slide; a slide that changes nothing is a lost turn.",
        "The board is a list of rows from top to bottom; 0 is an empty cell.",
        "up, right, down, left",
        "left",
    ),
    "candy_crush": Guide(
        "Candy Crush",
        "Swap two neighbouring candies so that three or more of one colour stand in a row or column. They vanish, the "
        "candies above fall down and new ones come from the top; each vanished candy is a point. A swap that makes no "
        "such run changes nothing and still uses a move. There are 50 moves.",
        "Each letter is a candy's colour; rows and columns are numbered from 0.",
        "((row1,column1),(row2,column2)) with two neighbouring cells",
        "((2,3),(2,4))",
    ),
    "tetris": Guide(
        "Tetris",
        "Pieces fall into a board of 10 columns and 20 rows. Placing one brings 1 point, filling a row clears it for "
        "10 more. The game ends when a new piece has no room. After every frame the piece falls by one row.",
        "Letters are blocks, dots are empty. Shown are the board with the falling piece, the next pieces, and the "
        "piece's shapes after turning.",
        "one or more of (left,n), (right,n), (rotate_left,n), (rotate_right,n), (soft_drop,n), (hard_drop,1), (no_op,n)"
        " in order, n being the number of frames",
        "(rotate_right,1)(left,3)(hard_drop,1)",
    ),
    "platformer": Guide(
        "a platform game",
        "Run to the right as far as you can; the flag ends the level. Touching an enemy from the side or falling into "
        "a pit costs one of three lives; enemies can be jumped on. Longer presses of the jump button jump higher.",
        "The state is a map of the visible tiles with the runner M; the first line explains the letters.",
        "(button,frames) with a button of noop, right, right_a, right_b, right_a_b, a, b, left, left_a, left_b, "
        "left_a_b, down, up (a jumps, b runs) and 1 to 60 frames",
        "(right_a,20)",
    ),
    "courtroom": Guide(
        "a courtroom drama",
        "You defend the accused. Read on page by page; in a cross-examination press a statement to learn more, or "
        "present the piece of evidence that contradicts it. Wrong evidence costs one of five lives. The case advances "
        "from scene to scene.",
        "Shown are the scene, your lives, what is being said, the court record, and what each button does now.",
        "a, b, l, r, up, down, left, right, no_op",
        "a",
    ),
}
GUIDES = {
    **GUIDES,
    "super_mario_bros": replace(GUIDES["platformer"], title="Super Mario Bros"),
    "tic_tac_toe": Guide(
        "tic-tac-toe",
        "Two players put their mark on a free cell of a 3x3 board in turns; three in a row, column or diagonal win. "
        "Naming a cell that is not free loses the game.",
        "Marks are X and O; free cells show their number, 1 to 9 from the upper left.",
        "the number of a free cell",
        "5",
    ),
    "holdem": Guide(
        "heads-up Texas Hold'em with fixed limits",
        "Each hand both players hold two cards and share up to five on the board; the best five of seven win the pot. "
        "Blinds are 1 and 2 chips, raises 2 chips before the turn card and 4 from it on, at most four bets a round. "
        "Chips are counted over all hands. An action that is not legal folds.",
        "Cards are rank and suit: Th is the ten of hearts.",
        "call, check, raise, fold, as far as they are legal now",
        "call",
    ),
}

_REPLY = "Reply with exactly two sections:\nthought: your reasoning, briefly\nmove: one action, for example {example}"

_SKELETON: Mapping[str, tuple[str, str]] = {
    "base": (
        "You play {title}.",
        "Rules: {rules}\n\nReading the state: {legend}\n\nActions: {actions}\n\n{context}"
        "State:\n{textual_representation}\n\n" + _REPLY,
    ),
    "perception": (
        "You describe frames of {title} for a player who cannot see them.",
        "List where every kind of element is, row by row, without advice on what to do. {legend}\n"
        "Text that came with the frame:\n{textual_representation}",
    ),
    "memory": (
        "You look back on the last turns of {title} and say what they teach.",
        "Earlier turns:\n{prev_context}\n\nNow:\n{current_observation}\n\nIn at most 100 words: what changed, whether "
        "the last action helped, what repeats, what to beware of, what to try.\nReply as\nreflection: your text",
    ),
    "summary": (
        "You keep the notes of a player of {title}.",
        "Turns so far:\n{prev_context}\n\nSum them up in a few lines: what was tried, what it brought, what still "
        "matters.\nReply as\nsummary: your text",
    ),
    "deliberation": (
        "You analyse a position of {title} for the one who plays it.",
        "Rules: {rules}\n\nReading the state: {legend}\n\nActions: {actions}\n\n"
        "Description of the frame: {processed_visual_description}\n\nState:\n{textual_representation}\n\n"
        "Go by what stands here alone, even if you believe to know this game or how it goes on. Name the parts of the "
        "state that matter now, then for each sensible action what it would lead to and why, by the rules above. Do "
        "not choose yet.",
    ),
    "reasoning": (
        "You play {title} and think before you act.",
        "Rules: {rules}\n\nReading the state: {legend}\n\nActions: {actions}\n\nBackground: {background}\n\n"
        "Recent turns:\n{game_trajectory}\n\nReflection on them: {reflection}\n\n"
        "Description of the frame: {processed_visual_description}\n\nState:\n{textual_representation}\n\n"
        "First say where things stand, then what each sensible action would lead to; do not repeat what just failed.\n"
        + _REPLY,
    ),
}


def fill(template: str, values: Mapping[str, str]) -> str:
    """``template`` with its ``{slots}`` replaced in one pass; unknown ones stay, so boards with braces are safe."""
    return _SLOT.sub(lambda match: values.get(match[1], match[0]), template)


def slots(template: str) -> set[str]:
    """Names of the ``{slots}`` of a template."""
    return set(_SLOT.findall(template))


@dataclass(frozen=True)
class Prompts:
    """System message and template of every module of one game."""

    game: str
    system: Mapping[str, str] = field(default_factory=dict)
    template: Mapping[str, str] = field(default_factory=dict)

    def messages(self, module: str, values: Mapping[str, str]) -> tuple[str, str]:
        """System message and user text of a module, filled."""
        return fill(self.system[module], values), fill(self.template[module], values)

    def with_template(self, module: str, template: str) -> Prompts:
        """A copy with another template for one module; the slots it needs must stay.

        Raises
        ------
        DataError
            A slot is gone.
        """
        _check(module, template, f"the {module} prompt of {self.game}")
        return replace(self, template={**self.template, module: template})

    def write(self, path: Path) -> None:
        """Write ``module_prompts.json``."""
        found = {
            f"{module}_module": {"system_prompt": self.system[module], "prompt": self.template[module]}
            for module in MODULES
        }
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def prompts_for(game: str) -> Prompts:
    """The standard prompts of a game."""
    if game not in GUIDES:
        raise unknown_name("game with prompts", game, GUIDES)
    guide = vars(GUIDES[game])
    return Prompts(
        game,
        {module: fill(system, guide) for module, (system, _) in _SKELETON.items()},
        {module: fill(template, guide) for module, (_, template) in _SKELETON.items()},
    )


def read_prompts(path: str | Path, game: str) -> Prompts:
    """Prompts of ``module_prompts.json``; modules that it leaves out keep the standard ones.

    Raises
    ------
    DataError
        No such file, no JSON object of modules, or a template without a slot that it needs.
    """
    path = Path(path)
    found = read_json(path)
    if not isinstance(found, dict):
        raise DataError(f"{path} holds no object of modules; it needs base_module, reasoning_module ...")
    prompts = prompts_for(game)
    system, template = dict(prompts.system), dict(prompts.template)
    for name, entry in found.items():
        module = name.removesuffix("_module")
        if module not in MODULES:
            raise DataError(f"{path}: {unknown_name('module', name, [f'{m}_module' for m in MODULES])}")
        if not isinstance(entry, dict) or not isinstance(entry.get("prompt"), str):
            raise DataError(f"{path}, {name}: field 'prompt' must be a text.")
        _check(module, entry["prompt"], f"{path}, {name}")
        template[module] = entry["prompt"]
        system[module] = str(entry.get("system_prompt", ""))
    return Prompts(game, system, template)


def _check(module: str, template: str, where: str) -> None:
    missing = [slot for slot in SLOTS[module] if slot not in slots(template)]
    if missing:
        raise DataError(f"{where}: the slot {{{missing[0]}}} is missing; the state of the game would not be shown.")
