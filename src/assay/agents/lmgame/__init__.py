"""LMGame-Bench: games as tests of language models, a switchable harness, contamination checks, analyses."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "Agent": "harness",
    "GameEnv": "env",
    "LMGame": "benchmark",
    "Memory": "harness",
    "Modules": "harness",
    "Settings": "harness",
    "Setup": "episode",
    "SixValueEnv": "env",
    "games": "env",
    "make": "env",
    "make_player": "players",
    "parse_reply": "parsing",
    "play": "players",
    "play_model": "episode",
    "prompts_for": "prompts",
    "read_log": "replay",
    "read_prompts": "prompts",
    "to_gif": "replay",
    "to_html": "replay",
    "to_mp4": "replay",
}
_WHERE = {"players": "solvers.players"}

__all__ = [
    "Agent",
    "GameEnv",
    "LMGame",
    "Memory",
    "Modules",
    "Settings",
    "Setup",
    "SixValueEnv",
    "games",
    "make",
    "make_player",
    "parse_reply",
    "play",
    "play_model",
    "prompts_for",
    "read_log",
    "read_prompts",
    "to_gif",
    "to_html",
    "to_mp4",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE.get(home, home)}"), name)
