"""Chat models of known weakness: deterministic, with a limited view, better where the prompt shows them their past."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from assay.core.errors import UsageError
from assay.systems.chat.model import Message
from assay.systems.scripted import ScriptedChatModel, text_of

GAMES = ("twenty_forty_eight", "candy_crush")
MOVES = ("up", "right", "down", "left")
_ACTIONS = re.compile(r"^Action: (.*?) \| Thought:", re.MULTILINE)
_OBSERVATION = "Observation: "
# What a clear prompt has, and what each missing piece adds to the chance of a slip.
CLARITY: dict[str, float] = {"rules": 0.12, "actions": 0.18, "format": 0.25, "legend": 0.1}
_SIGNS = {
    "rules": re.compile(r"^(?:#+ *)?rules?:", re.IGNORECASE | re.MULTILINE),
    "actions": re.compile(r"^(?:#+ *)?actions?:", re.IGNORECASE | re.MULTILINE),
    "format": re.compile(r"^move:", re.IGNORECASE | re.MULTILINE),
    "legend": re.compile(r"^(?:#+ *)?(?:reading the state|legend):", re.IGNORECASE | re.MULTILINE),
}


def choices(text: str) -> tuple[str, list[str]] | None:
    """The last board of a text, as it is printed, and every action on it; None where there is none (2048, Candy)."""
    board = list(re.finditer(r"\{'board': (\[\[.*?\]\]).*?\}", text))
    if board:
        return board[-1][0], list(MOVES)
    rows = list(re.finditer(r"^ *\d+\|(?:  [A-Z])+$", text, re.MULTILINE))
    if not rows:
        return None
    last = rows[-1]
    start = max(i for i, row in enumerate(rows) if row[0].lstrip().startswith("0|"))
    grid = [row[0].split("|")[1].split() for row in rows[start:]]
    tail = text[last.end() :].split("\n")[1] if "\n" in text[last.end() :] else ""
    shown = text[rows[start].start() : last.end()] + "\n" + tail
    height, width = len(grid), len(grid[0])
    actions = [f"(({r},{c}),({r + 1},{c}))" for r in range(height - 1) for c in range(width)]
    actions += [f"(({r},{c}),({r},{c + 1}))" for r in range(height) for c in range(width - 1)]
    return shown, actions


def worth(board: str, action: str) -> float:
    """What an action brings at once, as a careful reader of the board would find: points, or -1 for nothing."""
    if board.startswith("{"):
        tiles = np.array(ast.literal_eval(re.search(r"\[\[.*?\]\]", board)[0]))  # type: ignore[index]
        return _slide(tiles, action)
    grid = np.array([line.split("|")[1].split() for line in board.splitlines() if "|" in line])
    (a, b) = re.findall(r"(\d+),(\d+)", action)
    first, second = (int(a[0]), int(a[1])), (int(b[0]), int(b[1]))
    grid[first], grid[second] = grid[second], grid[first]
    return float(sum(_run(grid, cell) for cell in (first, second))) or -1.0


def _slide(tiles: np.ndarray, action: str) -> float:
    turned = np.rot90(tiles, {"left": 0, "up": 1, "right": 2, "down": 3}[action])
    points, moved = 0, False
    for row in turned:
        kept = [int(v) for v in row if v]
        out: list[int] = []
        joined = False
        for value in kept:
            if out and out[-1] == value and not joined:
                out[-1] *= 2
                points += out[-1]
                joined = True
            else:
                out.append(value)
                joined = False
        moved |= out + [0] * (4 - len(out)) != [int(v) for v in row]
    return float(points) if moved else -1.0


def _run(grid: np.ndarray, cell: tuple[int, int]) -> int:
    colour, found = grid[cell], 0
    for dr, dc in ((0, 1), (1, 0)):
        length = 1
        for sign in (1, -1):
            r, c = cell[0] + sign * dr, cell[1] + sign * dc
            while 0 <= r < grid.shape[0] and 0 <= c < grid.shape[1] and grid[r, c] == colour:
                length, r, c = length + 1, r + sign * dr, c + sign * dc
        found += length if length >= 3 else 0
    return found


def _draw(*parts: Any) -> np.random.Generator:
    text = "\x1f".join(map(str, parts))
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big"))


class SimulatedModel(ScriptedChatModel):
    """Plays 2048 and Candy Crush from the prompt alone, always the same way on the same prompt.

    It looks at ``view`` of the possible actions, drawn by the board, and takes the best of them as far as it sees
    through them: with probability ``blur`` it misjudges one. On the same board it makes the same mistake again, unless
    the prompt shows it an action that was tried on this very board and changed nothing. So memory helps it, and nothing
    else of the harness does. A prompt without rules, legend, actions or reply format makes it slip more often
    (`CLARITY`), if ``careful`` is false.

    Parameters
    ----------
    view
        Share of the actions that it looks at, in (0, 1].
    blur
        Chance of misjudging an action, in [0, 1].
    careful
        Whether it plays alike under every prompt.
    """

    def __init__(self, view: float = 0.1, blur: float = 0.3, careful: bool = True, seed: int = 0) -> None:
        if not 0 < view <= 1 or not 0 <= blur <= 1:
            raise UsageError(f"simulated: view={view} lies in (0, 1], blur={blur} in [0, 1].")
        super().__init__(self._answer, name="simulated", seed=seed)
        self.view, self.blur, self.careful = view, blur, careful

    def refuses(self, task: Any) -> str | None:
        """Why it cannot play a game; None = it can."""
        game = getattr(task, "game", None)
        if game not in GAMES:
            return f"reads no board but those of {' and '.join(GAMES)}"
        return None if task.benchmark.mode != "vision" else "reads texts, no pictures"

    def _answer(self, messages: Sequence[Message], rng: np.random.Generator) -> str:
        text = text_of(messages)
        asked = text.rstrip().rsplit("\n", 1)[-1]
        if asked.startswith("reflection:"):
            return (
                "reflection: The board and the last actions are listed above; an action that changed nothing is no use."
            )
        if asked.startswith("summary:"):
            return "summary: The last turns are gone from view; go by the board."
        found = choices(text)
        if found is None:
            return "I see no board that I know."
        board, actions = _bare(found[0]), found[1]
        slip = 0.0 if self.careful else slip_chance(text)
        mine = _draw(self.seed, board, "slip", text if slip else "")
        if mine.random() < slip:
            return f"thought: a guess\nmove: {actions[int(mine.integers(len(actions)))]}"
        failed = failed_here(text, board)
        rows = _draw(self.seed, board, "view")
        count = max(2, round(self.view * len(actions)))
        order = [actions[i] for i in rows.permutation(len(actions))]
        looked = [a for a in order if a not in failed][:count] or order[:1]
        misjudged = {a for a in order if _draw(self.seed, board, a).random() < self.blur}
        chosen = max(looked, key=lambda a: 3.0 if a in misjudged else worth(board, a))
        return f"thought: looked at {len(looked)} actions\nmove: {chosen}"


def slip_chance(text: str) -> float:
    """Chance of a slip under a prompt: the sum over what it does not say."""
    return sum(cost for name, cost in CLARITY.items() if not _SIGNS[name].search(text))


def failed_here(text: str, board: str) -> set[str]:
    """Actions that the prompt shows as taken on this very board (the one that stands there now), without effect."""
    failed: set[str] = set()
    parts = re.split(rf"^{_OBSERVATION}", text, flags=re.MULTILINE)[1:]
    for part in parts:
        seen, taken = choices(part.split("\nReflection on them:")[0]), _ACTIONS.search(part)
        if seen and taken and _bare(seen[0]) == board:
            failed.add(taken[1].strip())
    return failed


def _bare(board: str) -> str:
    return "\n".join(line for line in board.splitlines() if not line.startswith("Score:"))
