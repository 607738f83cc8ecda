"""Worlds of stochastic producers whose success rates and costs are known: exact truth for every estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import polars as pl

from assay.reasoning.cost_of_pass.scoring import majority_vote
from assay.reasoning.cost_of_pass.values import cost_of_pass, frontier


@dataclass(frozen=True, slots=True)
class Producer:
    """A model that succeeds by chance.

    Parameters
    ----------
    name, family, released
        Facts of the model.
    skill
        On the scale of difficulty: a problem as difficult as the skill is solved half the time.
    tokens
        Mean number of completion tokens.
    price_in, price_out
        USD per million tokens.
    """

    name: str
    family: str
    released: date
    skill: float
    tokens: int
    price_in: float
    price_out: float


PRODUCERS = (
    Producer("light-a", "lightweight", date(2024, 7, 18), 0.5, 300, 0.15, 0.60),
    Producer("light-b", "lightweight", date(2024, 7, 23), 0.3, 280, 0.18, 0.18),
    Producer("light-c", "lightweight", date(2024, 12, 6), 1.0, 320, 0.88, 0.88),
    Producer("large-a", "large", date(2024, 5, 13), 1.6, 350, 5.0, 15.0),
    Producer("large-b", "large", date(2024, 6, 20), 1.5, 350, 3.0, 15.0),
    Producer("large-c", "large", date(2024, 7, 23), 1.5, 330, 3.5, 3.5),
    Producer("think-a", "reasoning", date(2024, 9, 12), 3.6, 2500, 1.1, 4.4),
    Producer("think-b", "reasoning", date(2024, 12, 5), 4.4, 3500, 15.0, 60.0),
    Producer("think-c", "reasoning", date(2025, 1, 20), 4.3, 4500, 0.55, 2.19),
    Producer("think-d", "reasoning", date(2025, 1, 31), 4.6, 2800, 1.1, 4.4),
)
"""Three families with skills and prices of the shape that the paper's table shows."""
PROMPT_TOKENS = 150
SLOPE = 2.2


@dataclass(frozen=True, slots=True)
class Truth:
    """What the records are drawn from: (M, P) success rates and mean costs of an attempt (USD)."""

    producers: tuple[Producer, ...]
    rates: np.ndarray
    costs: np.ndarray

    def frontier(self, expert: float) -> float:
        """Frontier that infinitely many attempts would show."""
        return float(frontier(cost_of_pass(self.costs, self.rates), expert).mean())


def truth(difficulty: np.ndarray, producers: Sequence[Producer] = PRODUCERS) -> Truth:
    """Rates and costs on problems of given difficulty, (P,)."""
    skill = np.array([producer.skill for producer in producers])[:, None]
    rates = 1 / (1 + np.exp(-SLOPE * (skill - np.asarray(difficulty)[None, :])))
    dollars = np.array([PROMPT_TOKENS * one.price_in + one.tokens * one.price_out for one in producers]) / 1e6
    return Truth(tuple(producers), rates, np.broadcast_to(dollars[:, None], rates.shape))


def draw(world: Truth, runs: int, rng: np.random.Generator) -> pl.DataFrame:
    """Records of ``runs`` attempts: columns of the published worlds (model, family, release_date, problem, run, tokens,
    prices a token, correct)."""
    models, problems = world.rates.shape
    shape = (models, problems, runs)
    mean = np.array([one.tokens for one in world.producers])[:, None, None]
    # Lengths of answers spread by about a fifth; their mean is the producer's.
    tokens = np.maximum(1, np.rint(mean * rng.gamma(25, 1 / 25, shape))).astype(np.int64)
    correct = (rng.random(shape) < world.rates[:, :, None]).astype(np.int64)

    def spread(name: str) -> list[object]:
        return [getattr(one, name) for one in world.producers for _ in range(problems * runs)]

    return pl.DataFrame(
        {
            "model": spread("name"),
            "family": spread("family"),
            "release_date": spread("released"),
            "problem": np.tile(np.repeat(np.arange(problems), runs), models),
            "run": np.tile(np.arange(runs), models * problems),
            "prompt_tokens": np.full(models * problems * runs, PROMPT_TOKENS),
            "completion_tokens": tokens.ravel(),
            "usd_per_prompt_token": np.array(spread("price_in"), float) / 1e6,
            "usd_per_completion_token": np.array(spread("price_out"), float) / 1e6,
            "correct": correct.ravel(),
        }
    )


def vote_successes(rate: float, k: int, trials: int, wrong: int, rng: np.random.Generator) -> float:
    """Share of k-votes that are right: independent attempts, wrong answers spread evenly over ``wrong`` others."""
    right = rng.random((trials, k)) < rate
    other = rng.integers(0, wrong, (trials, k))
    votes = np.where(right, "right", np.char.add("wrong ", other.astype(str)))
    return float(np.mean([majority_vote(list(row), _same) == "right" for row in votes]))


def _same(a: str, b: str) -> bool:
    return a == b
