"""Sokoban learnt on small boards, tested on larger ones: a small policy, trained by PPO, on held-out levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.agents.lmgame.games.sokoban import Level, Sokoban
from assay.agents.lmgame.games.sokoban_generator import generate
from assay.core.errors import MissingExtra, UsageError

DIRECTIONS = ("up", "down", "left", "right")
_MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])
RADIUS = 4
# A box in a corner ends an episode of training (not of the test): it cannot be undone.
STEP_REWARD, SOLVED_REWARD, LOST_REWARD = -0.05, 1.0, -1.0
Array = NDArray[Any]


def draw_levels(size: int, count: int, rng: np.random.Generator, *, pushes: tuple[int, int] = (1, 12)) -> list[Level]:
    """Different one-box levels of ``size`` x ``size`` cells (walls included), each certified by A*.

    Raises
    ------
    UsageError
        So many different levels were not found in ten times as many draws.
    """
    found: dict[tuple[str, ...], Level] = {}
    for _ in range(10 * count):
        level = generate(rng, rows=size, columns=size, boxes=1, pushes=pushes, open_share=0.85).level
        found.setdefault(tuple(level.rows), level)
        if len(found) == count:
            return list(found.values())
    raise UsageError(f"{count} different levels of {size}x{size} were not found ({len(found)} were); ask for fewer.")


@dataclass
class Boards:
    """Many one-box boards at once, played in step: the rules of `games.sokoban` on arrays.

    Attributes
    ----------
    walls : bool array (boards, height, width)
    player, box, target : int arrays (boards, 2), row and column
    """

    walls: Array
    player: Array
    box: Array
    target: Array

    @classmethod
    def of(cls, levels: Sequence[Level]) -> Boards:
        """Boards of levels of one size."""
        rows = np.array([[list(row) for row in level.rows] for level in levels])

        def place(symbols: str) -> Array:
            hits = np.isin(rows, list(symbols)).reshape(len(rows), -1)
            if not (hits.sum(axis=1) == 1).all():
                raise UsageError("Transfer boards hold one player, one box and one target each.")
            return np.stack(np.divmod(hits.argmax(axis=1), rows.shape[2]), axis=1)

        return cls(rows == "#", place("@+"), place("$*"), place("?*+"))

    def pick(self, at: Array) -> Boards:
        """Copies of the boards with these indices."""
        return Boards(self.walls[at].copy(), self.player[at].copy(), self.box[at].copy(), self.target[at].copy())

    def put(self, at: Array, new: Boards) -> None:
        """Replace the boards with these indices."""
        self.walls[at], self.player[at], self.box[at], self.target[at] = new.walls, new.player, new.box, new.target

    def step(self, actions: Array) -> Array:
        """Walk or push in a direction each; which boards are solved now."""
        index = np.arange(len(self.walls))
        move = _MOVES[actions]
        ahead, behind = self.player + move, self.player + 2 * move
        pushing = (ahead == self.box).all(axis=1)
        beyond = np.clip(behind, 0, np.array(self.walls.shape[1:]) - 1)
        blocked = np.where(
            pushing, self.walls[index, beyond[:, 0], beyond[:, 1]], self.walls[index, ahead[:, 0], ahead[:, 1]]
        )
        free = ~blocked.astype(bool)
        self.box[free & pushing] = behind[free & pushing]
        self.player[free] = ahead[free]
        return (self.box == self.target).all(axis=1)

    def lost(self) -> Array:
        """Which boards have their box in a corner that is not the target: nothing brings it out again."""
        index = np.arange(len(self.walls))
        row, column = self.box[:, 0], self.box[:, 1]
        upright = self.walls[index, row - 1, column] | self.walls[index, row + 1, column]
        level = self.walls[index, row, column - 1] | self.walls[index, row, column + 1]
        return upright & level & ~(self.box == self.target).all(axis=1)

    def view(self) -> Array:
        """What is around the player: walls, box, target in a window of 2*RADIUS+1 cells; float32 (boards, features)."""
        count, side = len(self.walls), 2 * RADIUS + 1
        padded = np.pad(self.walls, ((0, 0), (RADIUS, RADIUS), (RADIUS, RADIUS)), constant_values=True)
        rows = self.player[:, 0, None] + np.arange(side)
        columns = self.player[:, 1, None] + np.arange(side)
        walls = padded[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
        planes = np.zeros((count, 3, side, side), dtype=np.float32)
        planes[:, 0] = walls
        for plane, thing in ((1, self.box), (2, self.target)):
            offset = np.clip(thing - self.player + RADIUS, 0, side - 1)
            planes[np.arange(count), plane, offset[:, 0], offset[:, 1]] = 1.0
        return planes.reshape(count, -1)


@dataclass(frozen=True)
class Training:
    """Settings of PPO on boards."""

    boards: int = 256
    horizon: int = 16
    updates: int = 150
    epochs: int = 3
    minibatch: int = 1024
    limit: int = 25
    hidden: int = 128
    learning_rate: float = 2e-3
    gamma: float = 0.97
    lam: float = 0.95
    entropy: float = 0.01


def train(levels: Sequence[Level], settings: Training | None = None, *, seed: int = 0) -> tuple[Any, list[float]]:
    """A policy trained on levels of one size; (network, share of episodes solved in each update).

    The network sees a window around the player, so it can be put on a board of any size up to `RADIUS` beyond it.
    Its outputs are four action logits and a value.

    Raises
    ------
    MissingExtra
        torch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("Training a policy", "lmgame") from error
    from assay.nn.policy_gradient import policy_loss

    s = settings or Training()
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    net = _network(s.hidden, generator)
    optimiser = torch.optim.Adam(net.parameters(), lr=s.learning_rate)
    pool = Boards.of(levels)
    boards = pool.pick(rng.integers(len(pool.walls), size=s.boards))
    age, history = np.zeros(s.boards, dtype=int), []
    for _ in range(s.updates):
        views, actions, rewards, ended, cut, values, logps = [], [], [], [], [], [], []
        solved = finished = 0
        for _ in range(s.horizon):
            seen = torch.from_numpy(boards.view())
            with torch.no_grad():
                out = net(seen)
            logp = torch.log_softmax(out[:, :4], dim=1)
            chosen = torch.multinomial(logp.exp(), 1, generator=generator)
            done = boards.step(chosen[:, 0].numpy())
            age += 1
            lost = boards.lost()
            late = ((age >= s.limit) & ~done) | lost
            views.append(seen)
            actions.append(chosen)
            logps.append(logp.gather(1, chosen)[:, 0])
            values.append(out[:, 4].numpy())
            rewards.append(np.where(done, SOLVED_REWARD, np.where(lost, LOST_REWARD, STEP_REWARD)))
            ended.append(done)
            cut.append(late)
            solved, finished = solved + int(done.sum()), finished + int((done | late).sum())
            fresh = np.flatnonzero(done | late)
            boards.put(fresh, pool.pick(rng.integers(len(pool.walls), size=len(fresh))))
            age[fresh] = 0
        with torch.no_grad():
            last = net(torch.from_numpy(boards.view()))[:, 4].numpy()
        advantages = _advantages(rewards, values, ended, cut, last, s)
        targets = torch.from_numpy((advantages + np.array(values)).astype(np.float32)).reshape(-1)
        scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        weights = torch.from_numpy(scaled.astype(np.float32)).reshape(-1)
        batch, taken, old = torch.cat(views), torch.cat(actions), torch.cat(logps)
        for _ in range(s.epochs):
            order = torch.randperm(len(batch), generator=generator)
            for part in order.split(s.minibatch):
                out = net(batch[part])
                logp = torch.log_softmax(out[:, :4], dim=1)
                entropy = -(logp.exp() * logp).sum(dim=1).mean()
                loss = policy_loss(logp.gather(1, taken[part])[:, 0], old[part], weights[part])
                loss = loss + 0.5 * ((out[:, 4] - targets[part]) ** 2).mean() - s.entropy * entropy
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                optimiser.step()
        history.append(solved / max(finished, 1))
    return net, history


def _network(hidden: int, generator: Any) -> Any:
    import torch

    last = torch.nn.Linear(hidden, 5)
    net = torch.nn.Sequential(
        torch.nn.Linear(3 * (2 * RADIUS + 1) ** 2, hidden),
        torch.nn.Tanh(),
        torch.nn.Linear(hidden, hidden),
        torch.nn.Tanh(),
        last,
    )
    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            torch.nn.init.orthogonal_(layer.weight, generator=generator)
            torch.nn.init.zeros_(layer.bias)
    with torch.no_grad():
        last.weight.mul_(0.01)
    return net


def _advantages(
    rewards: list[Array], values: list[Array], ended: list[Array], cut: list[Array], last: Array, s: Training
) -> Array:
    """Generalised advantages, shape (horizon, boards); an episode cut at the limit is worth nothing more."""
    out = np.zeros((len(rewards), len(last)))
    running, following = np.zeros(len(last)), last
    for t in reversed(range(len(rewards))):
        alive = ~(ended[t] | cut[t])
        delta = rewards[t] + s.gamma * following * alive - values[t]
        running = delta + s.gamma * s.lam * running * alive
        out[t], following = running, values[t]
    return out


def solves(net: Any, level: Level, rng: np.random.Generator, *, limit: int = 40) -> bool:
    """Whether a policy (None: random directions) solves a level of the real game within ``limit`` actions."""
    engine = Sokoban([level])
    engine.reset(rng)
    boards = Boards.of([level])
    for _ in range(limit):
        action = int(rng.integers(4)) if net is None else _sample(net, boards, rng)
        push = ((boards.player[0] + _MOVES[action]) == boards.box[0]).all()
        played = engine.play(f"push {DIRECTIONS[action]}" if push else DIRECTIONS[action])
        boards.step(np.array([action]))
        if played.ended:
            return True
    return False


def _sample(net: Any, boards: Boards, rng: np.random.Generator) -> int:
    import torch

    with torch.no_grad():
        chance = torch.softmax(net(torch.from_numpy(boards.view()))[0, :4].double(), dim=0).numpy()
    return int(rng.choice(4, p=chance / chance.sum()))


@dataclass(frozen=True)
class Transfer:
    """Share of held-out levels solved, trained minus random, with a bootstrap interval over levels."""

    trained: float
    random: float
    difference: float
    low: float
    high: float
    levels: int


def transfer(
    net: Any, levels: Sequence[Level], *, tries: int = 10, limit: int = 40, resamples: int = 10_000, seed: int = 0
) -> Transfer:
    """Held-out levels played ``tries`` times each by the trained policy and at random."""
    rng = np.random.default_rng(seed)
    a, b = (
        np.array([np.mean([solves(policy, level, rng, limit=limit) for _ in range(tries)]) for level in levels])
        for policy in (net, None)
    )
    drawn = rng.integers(len(levels), size=(resamples, len(levels)))
    low, high = np.quantile((a - b)[drawn].mean(axis=1), [0.025, 0.975])
    return Transfer(float(a.mean()), float(b.mean()), float((a - b).mean()), float(low), float(high), len(levels))
