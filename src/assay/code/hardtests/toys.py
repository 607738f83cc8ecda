"""Two toy experiments on what a verifier does to training: rejection sampling, and learning by its reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from assay.core.errors import UsageError

if TYPE_CHECKING:
    import numpy as np


class Judged(NamedTuple):
    """A program: whether it is correct, and whether a suite accepts it."""

    correct: bool
    accepted: bool


class Filtered(NamedTuple):
    """A pool through a filter: kept, correct among the kept, and the share expected from the suite's rates."""

    pool: int
    kept: int
    correct: int
    expected: float

    @property
    def share(self) -> float:
        """Share of correct programs among the kept."""
        return self.correct / self.kept if self.kept else float("nan")

    @property
    def z(self) -> float:
        """Distance of the share from the expected one, in binomial standard errors."""
        error = (self.expected * (1 - self.expected) / self.kept) ** 0.5 if self.kept else 0.0
        return (self.share - self.expected) / error if error else 0.0 if self.share == self.expected else float("inf")


def filtered_pool(
    programs: Sequence[Judged], rng: np.random.Generator, *, size: int = 5000, prior: float = 0.3
) -> Filtered:
    """Filter a pool, drawn with a share ``prior`` of correct programs, by a suite.

    The share expected among the kept is the suite's precision at that prior: prior x recall over prior x recall plus
    (1 - prior) x false positive rate.
    """
    right = [p.accepted for p in programs if p.correct]
    wrong = [p.accepted for p in programs if not p.correct]
    if not right or not wrong:
        raise UsageError("A pool needs correct and faulty programs.")
    correct = rng.random(size) < prior
    drawn = [
        right[i] if c else wrong[j]
        for c, i, j in zip(correct, rng.integers(len(right), size=size), rng.integers(len(wrong), size=size))
    ]
    kept = sum(drawn)
    good = sum(bool(a and c) for a, c in zip(drawn, correct))
    hit, slip = prior * sum(right) / len(right), (1 - prior) * sum(wrong) / len(wrong)
    return Filtered(size, kept, good, hit / (hit + slip) if hit + slip else 0.0)


def bandit(
    problems: Mapping[str, Sequence[Judged]], rng: np.random.Generator, *, steps: int = 150, group: int = 8,
    rate: float = 0.3, spread: float = 1.0,
) -> float:  # fmt: skip
    """A policy over each problem's programs, trained by group-relative updates with acceptance as reward.

    One softmax a problem, started at random; a step draws a group of programs, and moves their log-probabilities by
    their advantages within the group (GRPO without clipping, on policy).

    Returns
    -------
    float
        Final probability of a truly correct program, mean over problems.
    """
    import numpy as np

    from assay.nn.policy_gradient import group_advantages

    finals = []
    for programs in problems.values():
        rewards = np.array([p.accepted for p in programs], float)
        correct = np.array([p.correct for p in programs])
        logits = rng.normal(0.0, spread, len(programs))
        for _ in range(steps):
            policy = _softmax(logits)
            actions = rng.choice(len(programs), size=group, p=policy)
            advantages = group_advantages(rewards[actions], "grpo")
            gradient = -policy * advantages.sum()
            np.add.at(gradient, actions, advantages)
            logits = logits + rate * gradient / group
        finals.append(float(_softmax(logits)[correct].sum()))
    return float(np.mean(finals))


def _softmax(logits: np.ndarray) -> np.ndarray:
    import numpy as np

    e = np.exp(logits - logits.max())
    return e / e.sum()
