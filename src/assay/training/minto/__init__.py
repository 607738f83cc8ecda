"""MINTO: value learners that bootstrap from the minimum of the target and the online network."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.training.minto.algorithms import MintoDQN, MintoQRDQN, MintoSAC, MintoTD3, MintoTQC
    from assay.training.minto.baselines import FRDQN, MaxminDQN
    from assay.training.minto.batched import BatchedDQN, train_batched
    from assay.training.minto.benchmark import Minto
    from assay.training.minto.c51 import MintoC51
    from assay.training.minto.callbacks import BiasMeter, played
    from assay.training.minto.data import (
        FrameReplay,
        Transitions,
        fill_replay_buffer,
        from_replay_buffer,
        load_d4rl,
        load_minari,
        record,
    )
    from assay.training.minto.distributional import (
        categorical_target,
        combine_categories,
        combine_quantiles,
        project,
        quantile_huber,
        quantile_target,
    )
    from assay.training.minto.envs import ENVS, find_env
    from assay.training.minto.evaluation import aggregate, area, human_normalised, relative_gain
    from assay.training.minto.iqn import MintoIQN
    from assay.training.minto.methods import METHODS
    from assay.training.minto.offline import FrameBuffer, MintoContinuousCQL, MintoCQL, MintoIQL
    from assay.training.minto.policies import ImpalaCNN, SimBaPolicy, SimBaV2Policy
    from assay.training.minto.presets import LUNAR_LANDER, atari, atari_env
    from assay.training.minto.settings import Curve, Recipe, Variant
    from assay.training.minto.simbav2 import MintoSimBaV2, ReturnScale
    from assay.training.minto.tabular import (
        TabularMDP,
        gaussian_bias,
        generalised_value,
        q_learning,
        random_mdp,
        simulated_bias,
        uniform_bias,
        value_iteration,
    )
    from assay.training.minto.targets import (
        OPERATORS,
        bootstrap_target,
        bootstrap_value,
        combine,
        conservative_penalty,
        critic_target,
        functional_penalty,
        maxmin_target,
        n_step,
        online_share,
        require_finite,
    )

_HOMES = {
    "BatchedDQN": "batched",
    "BiasMeter": "callbacks",
    "Curve": "settings",
    "ENVS": "envs",
    "FRDQN": "baselines",
    "FrameBuffer": "offline",
    "FrameReplay": "data",
    "ImpalaCNN": "policies",
    "METHODS": "methods",
    "MaxminDQN": "baselines",
    "Minto": "benchmark",
    "MintoC51": "c51",
    "MintoCQL": "offline",
    "MintoContinuousCQL": "offline",
    "LUNAR_LANDER": "presets",
    "MintoDQN": "algorithms",
    "MintoIQL": "offline",
    "MintoIQN": "iqn",
    "MintoQRDQN": "algorithms",
    "MintoSAC": "algorithms",
    "MintoSimBaV2": "simbav2",
    "MintoTD3": "algorithms",
    "MintoTQC": "algorithms",
    "OPERATORS": "targets",
    "Recipe": "settings",
    "ReturnScale": "simbav2",
    "SimBaPolicy": "policies",
    "SimBaV2Policy": "policies",
    "TabularMDP": "tabular",
    "Transitions": "data",
    "Variant": "settings",
    "aggregate": "evaluation",
    "area": "evaluation",
    "atari": "presets",
    "atari_env": "presets",
    "bootstrap_target": "targets",
    "bootstrap_value": "targets",
    "categorical_target": "distributional",
    "combine": "targets",
    "combine_categories": "distributional",
    "combine_quantiles": "distributional",
    "conservative_penalty": "targets",
    "critic_target": "targets",
    "fill_replay_buffer": "data",
    "find_env": "envs",
    "from_replay_buffer": "data",
    "functional_penalty": "targets",
    "gaussian_bias": "tabular",
    "generalised_value": "tabular",
    "human_normalised": "evaluation",
    "load_d4rl": "data",
    "load_minari": "data",
    "maxmin_target": "targets",
    "n_step": "targets",
    "online_share": "targets",
    "played": "callbacks",
    "project": "distributional",
    "q_learning": "tabular",
    "quantile_huber": "distributional",
    "quantile_target": "distributional",
    "random_mdp": "tabular",
    "record": "data",
    "relative_gain": "evaluation",
    "require_finite": "targets",
    "simulated_bias": "tabular",
    "train_batched": "batched",
    "uniform_bias": "tabular",
    "value_iteration": "tabular",
}

__all__ = [
    "ENVS",
    "FRDQN",
    "LUNAR_LANDER",
    "METHODS",
    "OPERATORS",
    "BatchedDQN",
    "BiasMeter",
    "Curve",
    "FrameBuffer",
    "FrameReplay",
    "ImpalaCNN",
    "MaxminDQN",
    "Minto",
    "MintoC51",
    "MintoCQL",
    "MintoContinuousCQL",
    "MintoDQN",
    "MintoIQL",
    "MintoIQN",
    "MintoQRDQN",
    "MintoSAC",
    "MintoSimBaV2",
    "MintoTD3",
    "MintoTQC",
    "Recipe",
    "ReturnScale",
    "SimBaPolicy",
    "SimBaV2Policy",
    "TabularMDP",
    "Transitions",
    "Variant",
    "aggregate",
    "area",
    "atari",
    "atari_env",
    "bootstrap_target",
    "bootstrap_value",
    "categorical_target",
    "combine",
    "combine_categories",
    "combine_quantiles",
    "conservative_penalty",
    "critic_target",
    "fill_replay_buffer",
    "find_env",
    "from_replay_buffer",
    "functional_penalty",
    "gaussian_bias",
    "generalised_value",
    "human_normalised",
    "load_d4rl",
    "load_minari",
    "maxmin_target",
    "n_step",
    "online_share",
    "played",
    "project",
    "q_learning",
    "quantile_huber",
    "quantile_target",
    "random_mdp",
    "record",
    "relative_gain",
    "require_finite",
    "simulated_bias",
    "train_batched",
    "uniform_bias",
    "value_iteration",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
