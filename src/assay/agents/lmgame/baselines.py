"""Baselines of every game: what the random player and the strongest one score, over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.agents.lmgame.episode import Setup, play_player


def measure(game: str, player: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Mean and sample standard deviation of a player's reported score over seeds; number of seeds."""
    from statistics import mean, stdev

    found = [play_player(Setup(game, "text", seed=seed), player, seed).reported for seed in seeds]
    return {"mean": round(mean(found), 3), "std": round(stdev(found), 3), "n": len(found)}


def measure_all(games: Sequence[str], *, random_seeds: int = 100, expert_seeds: int = 10) -> dict[str, Any]:
    """Random player and strongest player of each game, seeds from 1000: none of the benchmark's own."""
    return {
        game: {
            "random": measure(game, "random", range(1000, 1000 + random_seeds)),
            "expert": measure(game, "expert", range(1000, 1000 + expert_seeds)),
        }
        for game in games
    }
