"""The ids that come with assay, and the named selections of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.agents.gem.registry import Registry

_GAMES = "assay.agents.gem.games"
_LEVELS = ("easy", "hard", "random")

GAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    "GuessTheNumber": ("guess_the_number:GuessTheNumber", _LEVELS),
    "Mastermind": ("mastermind:Mastermind", _LEVELS),
    "Minesweeper": ("minesweeper:Minesweeper", _LEVELS),
    "Wordle": ("wordle:Wordle", _LEVELS),
    "FifteenPuzzle": ("fifteen:FifteenPuzzle", _LEVELS),
    "Hangman": ("hangman:Hangman", _LEVELS),
    "Sudoku": ("sudoku:Sudoku", _LEVELS),
    "TowerofHanoi": ("hanoi:TowerOfHanoi", _LEVELS),
    "Game2048": ("g2048:Game2048", ("easy", "hard", "extreme-hard", "random")),
    "Sokoban": ("sokoban:Sokoban", _LEVELS),
    "Crosswords": ("crosswords:Crosswords", _LEVELS),
    "WordSearch": ("word_search:WordSearch", _LEVELS),
}
"""Games by the name in their ids: where they are, and their levels."""


def fill(registry: Registry) -> Registry:
    """Register everything that comes with assay; nothing is imported for it."""
    for name, (where, levels) in GAMES.items():
        for level in levels:
            registry.register(f"game:{name}-v0-{level}", f"{_GAMES}.{where}", level=level)
    return registry
