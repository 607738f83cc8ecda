"""Reasoning Gym: every data set of the installed package as an environment.

References
----------
Stojanovski et al. REASONING GYM: Reasoning Environments for Reinforcement Learning with Verifiable Rewards.
arXiv 2505.24760.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from assay.agents.gem.data import DataEnv
from assay.agents.gem.env import EnvError
from assay.agents.gem.readers import last_box
from assay.core.errors import MissingExtra

if TYPE_CHECKING:
    import numpy as np

    from assay.agents.gem.registry import EnvSpec


def _library() -> Any:
    try:
        import reasoning_gym
    except ImportError:
        raise MissingExtra("Reasoning Gym", "gem") from None
    return reasoning_gym


KEPT = 10_000
"""Entries of a data set that are kept once they were made."""


def specs() -> list[EnvSpec]:
    """One specification a data set that can be made without further settings, size 500 and seed 42 as published."""
    from assay.agents.gem.registry import EnvSpec

    _library()
    from reasoning_gym.factory import DATASETS

    return [
        EnvSpec(f"rg:{name}", "assay.agents.gem.reasoning:ReasoningGymEnv", {"name": name, "size": 500, "seed": 42})
        for name in DATASETS
    ]


class ReasoningGymEnv(DataEnv):
    """A question of a Reasoning Gym data set; its own scorer judges the last box (partial credit where it gives any).

    Parameters
    ----------
    name, size, seed
        Data set, how many questions, and from which seed they are generated.
    settings
        Further settings of the data set.
    """

    default_instruction = "Put the final answer into \\boxed{}."

    def __init__(
        self, name: str, size: int = 500, seed: int = 42, *, settings: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        try:
            dataset = _library().create_dataset(name, size=size, seed=seed, **(settings or {}))
        except (ValueError, AssertionError, TypeError) as error:
            raise EnvError(f"Reasoning Gym makes no data set {name!r} of these settings ({error}).") from error
        self.dataset = dataset
        # Without a seed a data set draws its own.
        made = {} if seed is None else _made(json.dumps([name, size, seed, settings], sort_keys=True, default=repr))
        super().__init__(data=_Entries(dataset, made), question_key="question", **kwargs)

    def judge(self, action: str, row: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
        answer = last_box(action)
        if answer is None:
            return 0.0, {"format_error": True}
        try:
            score = float(self.dataset.score_answer(answer=answer, entry=row))
        except Exception as error:
            # Scorers parse what a model wrote; text on which they fail is a wrong answer.
            return 0.0, {"format_error": False, "scorer_error": f"{type(error).__name__}: {error}"}
        return score, {"format_error": False}

    def random_action(self, rng: np.random.Generator) -> str:
        return f"\\boxed{{{int(rng.integers(10))}}}"


class _Entries(Sequence[Mapping[str, Any]]):
    """Entries of a procedural data set as a sequence; each is generated when it is first asked for."""

    def __init__(self, dataset: Any, made: dict[int, Mapping[str, Any]]) -> None:
        self._dataset = dataset
        self._made = made

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, at: Any) -> Any:
        # Data sets make an entry for any number; only an IndexError ends a loop over a sequence.
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        at %= len(self)
        if at not in self._made:
            if len(self._made) >= KEPT:
                return self._dataset[at]
            self._made[at] = self._dataset[at]
        return dict(self._made[at])


@lru_cache(maxsize=64)
def _made(settings: str) -> dict[int, Mapping[str, Any]]:
    """Entries made so far by the data sets of these settings: environments beside each other share them."""
    return {}
