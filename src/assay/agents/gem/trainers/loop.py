"""What every trainer goes through: collect, learn, look how good the policy is now."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from assay.agents.gem.env import Env
from assay.agents.gem.rollout import Decision, Episode, Rollout
from assay.agents.gem.trainers.policies import TrainablePolicy
from assay.core.errors import UsageError
from assay.nn.policy_gradient import policy_loss

EVALUATION_SEEDS = 1_000_000_000
"""Episodes of evaluations begin here; those of training end below it."""
SEEDS_A_RUN = 1_000_000


class Algorithm(Protocol):
    """A way to learn from episodes. ``lr`` is Adam's."""

    name: str
    lr: float

    def collect(self, rollout: Rollout, seeds: Iterator[int]) -> list[Episode]:
        """Episodes of one batch."""
        ...

    def learn(self, policy: TrainablePolicy, optimizer: torch.optim.Optimizer, episodes: list[Episode]) -> None:
        """Make the policy better by them."""
        ...


@dataclass(slots=True)
class Training:
    """What came out: a row an evaluation, the last one under ``final``; turns and updates spent."""

    curve: list[dict[str, float]] = field(default_factory=list)
    turns: int = 0
    updates: int = 0

    @property
    def final(self) -> dict[str, float]:
        """The last evaluation."""
        return self.curve[-1]


def train(
    algorithm: Algorithm,
    policy: TrainablePolicy,
    make_env: Callable[[], Env],
    *,
    turns: int,
    seed: int = 0,
    envs: int = 16,
    threads: int = 0,
    evaluations: int = 5,
    eval_episodes: int = 64,
    final_episodes: int = 256,
    report: Callable[[dict[str, float]], None] | None = None,
) -> Training:
    """Train a policy for a number of turns of the environment.

    Parameters
    ----------
    make_env
        Called once an environment; they are closed at the end.
    turns
        Turns to learn from; the last batch may go over it.
    seed
        Decides which episodes are met; below 1000. Evaluations are the same for all seeds.
    envs, threads
        See `Rollout`.
    evaluations
        Beside the one at the end, evenly over the turns, the first before any learning.
    eval_episodes, final_episodes
        Episodes of an evaluation on the way, and at the end. The policy samples, as in training.
    report
        Called with every row of the curve.
    """
    if turns < 1 or not 0 <= seed < 1000:
        raise UsageError(f"turns={turns} must be at least 1 and seed={seed} in [0, 1000).")
    optimizer = torch.optim.Adam(policy.parameters(), lr=algorithm.lr)
    worlds = [make_env() for _ in range(envs)]
    rollout = Rollout(worlds, policy, threads=threads)
    seeds = itertools.count(seed * SEEDS_A_RUN)
    done = Training()

    def look(episodes: int) -> None:
        row = {"turns": float(done.turns), "updates": float(done.updates), **evaluate(rollout, episodes)}
        done.curve.append(row)
        if report is not None:
            report(row)

    try:
        for part in range(evaluations):
            look(eval_episodes)
            while done.turns < turns * (part + 1) / evaluations:
                episodes = algorithm.collect(rollout, seeds)
                algorithm.learn(policy, optimizer, episodes)
                done.turns += sum(map(len, episodes))
                done.updates += 1
        look(final_episodes)
    finally:
        for world in worlds:
            world.close()
    return done


@contextmanager
def single_thread() -> Iterator[None]:
    """Small policies are slower on several threads, and seeds run beside each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def evaluate(rollout: Rollout, episodes: int) -> dict[str, float]:
    """Mean return, share solved, turns an episode, turns an episode that was solved (NaN where none was)."""
    played = rollout.episodes(range(EVALUATION_SEEDS, EVALUATION_SEEDS + episodes))
    solved = [len(episode) for episode in played if episode.solved]
    return {
        "return": float(np.mean([episode.total for episode in played])),
        "solved": len(solved) / len(played),
        "episode_turns": float(np.mean([len(episode) for episode in played])),
        "turns_when_solved": float(np.mean(solved)) if solved else float("nan"),
    }


def decisions(episodes: Sequence[Episode]) -> list[Decision]:
    """All turns, episode by episode."""
    return [decision for episode in episodes for decision in episode.decisions]


def improve(
    policy: TrainablePolicy,
    optimizer: torch.optim.Optimizer,
    turns: Sequence[Decision],
    advantages: np.ndarray,
    *,
    epochs: int,
    clip: float,
    constant: float | None,
    ignore_no_eos: bool = False,
    minibatch: int | None = None,
    beside: Callable[[Sequence[int]], torch.Tensor] | None = None,
    longest_gradient: float = 1.0,
) -> None:
    """Steps of the clipped policy loss; one advantage a turn, put on each of its tokens.

    Parameters
    ----------
    constant
        Divides the sum over tokens (`masked_sum`); None = the mean over tokens.
    ignore_no_eos
        Do not learn from replies that were cut at their length: their tokens are masked, the turns still count.
    minibatch
        Turns a step; None = all.
    beside
        A loss added for the turns of that step (a critic's), by their places.
    """
    if not len(turns):
        return
    prompts, acts = [turn.prompt for turn in turns], [turn.act for turn in turns]
    size = minibatch or len(turns)
    parts = [list(range(start, min(start + size, len(turns)))) for start in range(0, len(turns), size)]
    with torch.no_grad():
        # From the policy as it stands, not as sampled: equal numerics, so that the first ratio is exactly 1.
        old = [policy.logps([prompts[i] for i in part], [acts[i] for i in part])[0] for part in parts]
    parameters: list[Any] = list(policy.parameters())
    for _ in range(epochs):
        for part, before in zip(parts, old):
            logp, mask = policy.logps([prompts[i] for i in part], [acts[i] for i in part])
            if ignore_no_eos:
                mask = mask * torch.tensor([[0.0 if acts[i].cut else 1.0] for i in part]).to(mask)
            worth = torch.as_tensor(advantages[part], dtype=logp.dtype, device=logp.device)[:, None]
            loss = policy_loss(logp, before, worth, mask, clip=clip, constant=constant)
            if beside is not None:
                loss = loss + beside(part)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, longest_gradient)
            optimizer.step()
