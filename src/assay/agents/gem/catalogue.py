"""The ids that come with assay, and the named selections of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.agents.gem.registry import Registry

_GAMES = "assay.agents.gem.games"

GAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    "GuessTheNumber": ("guess_the_number:GuessTheNumber", ("easy", "hard", "random")),
    "TowerofHanoi": ("hanoi:TowerOfHanoi", ("easy", "hard", "random")),
}
"""Games by the name in their ids: where they are, and their levels."""


def fill(registry: Registry) -> Registry:
    """Register everything that comes with assay; nothing is imported for it."""
    for name, (where, levels) in GAMES.items():
        for level in levels:
            registry.register(f"game:{name}-v0-{level}", f"{_GAMES}.{where}", level=level)
    return registry
