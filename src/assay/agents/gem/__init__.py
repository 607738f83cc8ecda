"""GEM: environments for language agents, one interface, from games to terminals."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Imported when asked for: numpy would cost every start.
_HOMES = {
    "GEM24": "catalogue",
    "REGISTRY": "registry",
    "TERMINAL_STATE": "env",
    "Env": "env",
    "EnvError": "env",
    "EnvSpec": "registry",
    "MultiAgentEnv": "multi",
    "Registry": "registry",
    "SolverPolicy": "solvers.policy",
    "Turn": "env",
    "make": "registry",
    "optimal_turns": "solvers.policy",
    "print_envs": "registry",
    "register": "registry",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
