"""A player of every game that has a solver, and the fewest turns where they are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.agents.gem.env import EnvError

if TYPE_CHECKING:
    from assay.agents.gem.env import Env

View = Mapping[str, Any]
Plan = Callable[[View, np.random.Generator], list[str]]

_HERE = "assay.agents.gem.solvers"
SOLVERS = {
    "GuessTheNumber": f"{_HERE}.deduction:guess_the_number",
    "Mastermind": f"{_HERE}.deduction:mastermind",
    "Wordle": f"{_HERE}.deduction:wordle",
    "Hangman": f"{_HERE}.deduction:hangman",
    "Minesweeper": f"{_HERE}.mines:minesweeper",
    "Game2048": f"{_HERE}.expectimax:game_2048",
    "FifteenPuzzle": f"{_HERE}.search:fifteen",
    "Sokoban": f"{_HERE}.sokoban:sokoban",
    "TowerOfHanoi": f"{_HERE}.search:hanoi",
    "Sudoku": f"{_HERE}.search:sudoku",
    "Crosswords": f"{_HERE}.search:crosswords",
    "WordSearch": f"{_HERE}.search:word_search",
    "WikiGame": "assay.agents.gem.wiki.solver:wiki_game",
}
"""Solvers by the class of the environment: functions of (view, generator) to the next actions, one or more."""

OPTIMA = {
    "GuessTheNumber": f"{_HERE}.deduction:worst_case_guesses",
    "FifteenPuzzle": f"{_HERE}.search:fifteen_optimum",
    "Sokoban": f"{_HERE}.sokoban:sokoban_optimum",
    "TowerOfHanoi": f"{_HERE}.search:hanoi_optimum",
    "Sudoku": f"{_HERE}.search:sudoku_optimum",
    "Crosswords": f"{_HERE}.search:crosswords_optimum",
    "WordSearch": f"{_HERE}.search:word_search_optimum",
    "WikiGame": "assay.agents.gem.wiki.solver:wiki_optimum",
}


class SolverPolicy:
    """Plays any environment with a solver; one object an environment.

    It reads ``env.view()``, what the player may know as plain values, and nothing else: no secret, no mine.

    Parameters
    ----------
    seed
        For ties and guesses.
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._plan: list[str] = []

    def act(self, env: Env) -> str:
        """The next action, in a box.

        Raises
        ------
        EnvError
            There is no solver of this environment.
        """
        env = env.unwrapped
        if env.turn == 0:
            self._plan = []
        if not self._plan:
            self._plan = list(_find(SOLVERS, env)(env.view(), self._rng))  # type: ignore[attr-defined]
        return f"\\boxed{{{self._plan.pop(0)}}}"


def has_solver(env: Env) -> bool:
    """Whether `SolverPolicy` plays this environment."""
    return type(env.unwrapped).__name__ in SOLVERS


def optimal_turns(env: Env) -> int | None:
    """The fewest turns from here to the goal (GuessTheNumber: that always suffice); None where it is not known."""
    env = env.unwrapped
    if type(env).__name__ not in OPTIMA:
        return None
    return _find(OPTIMA, env)(env.view())  # type: ignore[attr-defined]


def _find(table: Mapping[str, str], env: Env) -> Callable[..., Any]:
    where = table.get(type(env).__name__)
    if where is None:
        raise EnvError(f"There is no solver for {env.name}; there are solvers for {', '.join(table)}.")
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)
