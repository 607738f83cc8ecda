"""Systems that the benchmark brings along: players of the engines, people, and simulated models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from assay.core.errors import UsageError

if TYPE_CHECKING:
    from assay.agents.lmgame.solvers.players import Player


class EnginePlayer:
    """A player that sees the engine, not prompts: random, a solver, a noisy expert, or a person.

    Parameters
    ----------
    player
        Name for `solvers.players.make_player`; games without a player of that name are left out.
    """

    def __init__(self, player: str) -> None:
        self.player = player
        # A colon would read as a kind of system.
        self.name = player.replace(":", "-")

    def describe(self) -> dict[str, Any]:
        """Facts for ``run.json``."""
        return {"name": self.name, "kind": "player"}

    def refuses(self, task: Any) -> str | None:
        """Why it cannot play a game; None = it can."""
        from assay.agents.lmgame.solvers.players import players

        own = [*players(task.game), "expert", "human"]
        if self.player in own or self.player.startswith("noisy:"):
            return None
        return f"has no player {self.player!r}; there are {', '.join(own)}"

    def player_for(self, game: str) -> str:
        """Name of the player of a game."""
        return self.player

    def hand(self, game: str) -> Player | None:
        """The player itself where it must stay in this process (a person); else None."""
        if self.player != "human":
            return None
        from assay.agents.lmgame.solvers.players import make_player

        return make_player(game, "human")


def _player(name: str) -> Callable[..., EnginePlayer]:
    def make() -> EnginePlayer:
        return EnginePlayer(name)

    make.__doc__ = f"The {name} player of each game that has one."
    return make


def _noisy(error: float = 0.3) -> EnginePlayer:
    """The strongest player of each game, erring with probability ``error``."""
    if not 0 <= error <= 1:
        raise UsageError(f"Option error={error} of method:noisy lies in 0 to 1.")
    return EnginePlayer(f"noisy:{error:g}")


def _simulated(view: float = 0.1, blur: float = 0.3, careful: bool = True, seed: int = 0) -> Any:
    """A chat model of known weakness for 2048 and Candy Crush: memory helps it."""
    from assay.agents.lmgame.simulated import SimulatedModel

    return SimulatedModel(view, blur, careful, seed)


METHODS: Mapping[str, Callable[..., Any]] = {
    **{
        name: _player(name)
        for name in (
            "random", "expert", "greedy", "expectimax", "beam", "cascade", "astar", "runner", "walker", "human",
        )
    },
    "noisy": _noisy,
    "simulated": _simulated,
}  # fmt: skip
