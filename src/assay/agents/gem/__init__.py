"""GEM: environments for language agents, one interface, from games to terminals."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Imported when asked for: numpy would cost every start.
_HOMES = {
    "GEM24": "catalogue",
    "REGISTRY": "registry",
    "TERMINAL_STATE": "env",
    "WRAPPER_FACTORY": "wrappers",
    "AsyncVectorEnv": "vector",
    "AutoresetMode": "vector",
    "ChatTemplate": "wrappers",
    "Env": "env",
    "EnvCrash": "vector",
    "EnvError": "env",
    "EnvSpec": "registry",
    "EpisodeTrackingWrapper": "wrappers",
    "MultiAgentEnv": "multi",
    "ObservationWrapper": "wrappers",
    "ProcessVectorEnv": "processes",
    "Registry": "registry",
    "Rollout": "rollout",
    "SolverPolicy": "solvers.policy",
    "SyncVectorEnv": "vector",
    "ToolEnvWrapper": "wrappers",
    "Turn": "env",
    "VectorEnv": "vector",
    "Wrapper": "wrappers",
    "get_wrapper_fns": "wrappers",
    "make": "registry",
    "make_vec": "vector",
    "optimal_turns": "solvers.policy",
    "print_envs": "registry",
    "register": "registry",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
