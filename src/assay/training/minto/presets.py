"""Published settings, mostly from memory: Atari in the manner of Dopamine, and the Lunar Lander of slimDQN."""

from __future__ import annotations

from typing import Any, Literal

from assay.core.errors import MissingExtra, UsageError
from assay.training.minto.settings import Recipe

LUNAR_LANDER = Recipe(
    env="LunarLander-v3", steps=500_000, hidden=(200, 200), batch_size=32, lr=3e-4, buffer=10_000, learning_starts=1000,
    copy_every=200, eps_end=0.01, eps_steps=1000, loss="square", max_grad_norm=None, eval_every=10_000, eval_limit=1000,
)  # fmt: skip
"""slimDQN's defaults, as read there: 50 epochs of 10,000 steps."""


def atari(algorithm: Literal["dqn", "iqn"] = "dqn", *, steps: int = 40_000_000) -> dict[str, Any]:
    """Keyword arguments of `MintoDQN` or `MintoIQN` for Atari frames, with ``"CnnPolicy"`` and `atari_env`.

    A million transitions, one update every 4 steps after 20,000 random ones, a copy every 8,000 updates (32,000 steps:
    stable-baselines3 counts steps), exploration down to 1 % in 250,000 steps of ``steps``.
    """
    if steps < 250_000:
        raise UsageError(f"steps={steps} must be at least 250000, the length of the exploration.")
    import torch

    iqn = algorithm == "iqn"
    optimiser = {"optimizer_class": torch.optim.Adam, "optimizer_kwargs": {"eps": 3.125e-4 if iqn else 1.5e-4}}
    return {
        "learning_rate": 5e-5 if iqn else 6.25e-5, "buffer_size": 1_000_000, "learning_starts": 20_000,
        "batch_size": 32, "gamma": 0.99, "train_freq": 4, "target_update_interval": 32_000,
        "exploration_fraction": 250_000 / steps, "exploration_final_eps": 0.01, "max_grad_norm": float("inf"),
        "optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False},
        "policy_kwargs": {**optimiser, **({"n_quantiles": 32, "n_cosines": 64} if iqn else {})},
    }  # fmt: skip


def atari_env(game: str) -> Any:
    """A game of the Arcade Learning Environment: sticky actions 0.25, four frames of 84 x 84 skipping four."""
    try:
        import ale_py
        import gymnasium
        from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
    except ImportError:
        raise MissingExtra("Atari", "minto") from None
    gymnasium.register_envs(ale_py)
    name = f"ALE/{game}-v5"
    if name not in gymnasium.registry:
        from assay.core.errors import unknown_name

        games = [n[4:-3] for n in gymnasium.registry if n.startswith("ALE/") and n.endswith("-v5")]
        raise unknown_name("game", game, games)
    plain = gymnasium.make(name, frameskip=1, repeat_action_probability=0.25)
    return FrameStackObservation(AtariPreprocessing(plain, noop_max=0, frame_skip=4, screen_size=84), 4)
