"""DQN for many seeds at once: one network with a leading axis of runs, one optimiser, one replay memory.

A run is a seed with a `Variant` (operator, regulariser, ensemble); runs of different variants train side by side and
never see each other. What a run does follows from its own seed alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.nn.trainer import Checkpoint
from assay.training.minto.data import Transitions
from assay.training.minto.envs import Streams, Transition, find_env, generator_state, set_generator_state
from assay.training.minto.nets import StackedMLP
from assay.training.minto.settings import Curve, Recipe, Variant
from assay.training.minto.targets import bootstrap_value, n_step


class _Replay:
    """Transitions of all runs; every run writes one a step. Two tables, so that a batch is two look-ups."""

    def __init__(self, runs: int, capacity: int, inputs: int, recipe: Recipe, like: np.ndarray) -> None:
        where = recipe.device
        kind = torch.bool if like.dtype == bool else torch.float32
        self.seen = torch.zeros(runs, capacity, 2, inputs, dtype=kind, device=where)
        """Observations before and after."""
        self.numbers = torch.zeros(runs, capacity, 4, device=where)
        """Action, reward, whether the episode ended, whether it was cut off."""
        self.base = torch.arange(runs, device=where)[:, None] * capacity
        self.capacity, self.written, self.recipe = capacity, 0, recipe

    def add(self, obs: np.ndarray, action: np.ndarray, reward: np.ndarray, after: Transition) -> None:
        """One transition a run."""
        i = self.written % self.capacity
        self.seen[:, i, 0] = torch.from_numpy(obs)
        self.seen[:, i, 1] = torch.from_numpy(after.final)
        self.numbers[:, i] = torch.from_numpy(
            np.stack([action, reward, after.terminated, after.truncated], 1).astype(np.float32)
        )
        self.written += 1

    def fill(self, data: Transitions) -> None:
        """The same recorded transitions for every run."""
        n = len(data.action)
        self.seen[:, :, 0] = torch.from_numpy(data.obs.reshape(n, -1))
        self.seen[:, :, 1] = torch.from_numpy(data.next_obs.reshape(n, -1))
        self.numbers[:] = torch.from_numpy(
            np.stack([data.action, data.reward, data.terminated, data.truncated], 1).astype(np.float32)
        )
        self.written = n

    def sample(self, uniform: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | float]:
        """Batch at places given by numbers in [0, 1) of shape (runs, batch); n-step sums where asked for.

        Returns observations, actions, rewards, observations after, ends, discounts.
        """
        n, gamma = self.recipe.n_step, self.recipe.gamma
        size = min(self.written, self.capacity)
        oldest = self.written % self.capacity if self.written > self.capacity else 0
        start = torch.from_numpy((uniform * (size - n + 1)).astype(np.int64)).to(self.base.device)
        at = (start + oldest) % self.capacity if oldest else start
        seen, numbers = self._look_up(self.seen, at), self._look_up(self.numbers, at)
        action = numbers[..., 0].long()
        if n == 1:
            return seen[:, :, 0], action, numbers[..., 1], seen[:, :, 1], numbers[..., 2], gamma
        window = (at[..., None] + torch.arange(n, device=at.device)) % self.capacity
        all_of_it = self._look_up(self.numbers, window.flatten(1)).unflatten(1, window.shape[1:]).cpu().numpy()
        total, discount, ended, last = n_step(all_of_it[..., 1], all_of_it[..., 2], all_of_it[..., 3], gamma)
        there = (at + torch.from_numpy(last).to(at.device)) % self.capacity
        give = [torch.from_numpy(x.astype(np.float32)).to(at.device) for x in (total, ended, discount)]
        return seen[:, :, 0], action, give[0], self._look_up(self.seen, there)[:, :, 1], give[1], give[2]

    def _look_up(self, table: Tensor, at: Tensor) -> Tensor:
        """Rows of each run's own part: (runs, batch, ...)."""
        found = table.flatten(0, 1).index_select(0, (at + self.base).flatten())
        return found.unflatten(0, tuple(at.shape))

    def state_dict(self) -> dict[str, Any]:
        """What was written so far."""
        used = min(self.written, self.capacity)
        return {"seen": self.seen[:, :used].clone(), "numbers": self.numbers[:, :used].clone(), "written": self.written}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put it back."""
        self.written = state["written"]
        used = min(self.written, self.capacity)
        self.seen[:, :used], self.numbers[:, :used] = state["seen"], state["numbers"]


class BatchedDQN:
    """The trainer; `train_batched` is the short way.

    Parameters
    ----------
    recipe
        Environment and hyper-parameters, the same for all runs.
    variants, seeds
        One of each a run.
    data
        Recorded transitions: nothing is played but evaluations, and a step is an update (offline).
    """

    def __init__(
        self, recipe: Recipe, variants: Sequence[Variant], seeds: Sequence[int], data: Transitions | None = None
    ) -> None:
        if len(variants) != len(seeds) or not seeds:
            raise UsageError(f"Give one variant a seed; got {len(variants)} and {len(seeds)}.")
        self.members = variants[0].members
        if any(v.members != self.members for v in variants):
            raise UsageError("Variants trained together must have equally many members.")
        self.recipe, self.variants, self.seeds = recipe, list(variants), list(seeds)
        self.spec = find_env(recipe.env)
        runs = len(seeds)
        self.offline = data is not None
        self.env = self.spec.make([[seed, 1] for seed in seeds])
        self.obs = self.env.reset()
        self.dtype = torch.float64 if recipe.double_precision else torch.float32
        inputs = math.prod(self.env.shape)
        sizes = (inputs, *recipe.hidden, self.env.actions)
        self.nets = [
            StackedMLP(sizes, [[seed, 2, m] for seed in seeds], dtype=self.dtype, device=recipe.device)
            for m in range(self.members)
        ]
        self.frozen = [net.copy() for net in self.nets]
        self.optimisers = [
            torch.optim.Adam([net.flat], lr=recipe.lr, eps=recipe.adam_eps, fused=True) for net in self.nets
        ]
        capacity = min(recipe.buffer, recipe.steps) if data is None else len(data.action)
        self.replay = _Replay(runs, capacity, inputs, recipe, self.obs)
        if data is not None:
            self.replay.fill(data)
        # Coins of the random operator and reward noise have streams of their own: all else is the same without them.
        self.choices = Streams([[seed, 3] for seed in seeds], 2 + recipe.batch_size)
        self.coins = Streams([[seed, 4] for seed in seeds], recipe.batch_size)
        self.noise = [np.random.default_rng([seed, 5]) for seed in seeds]
        self.member = np.random.default_rng(self.members)
        self.groups = _groups(self.variants)
        self.flips = any(v.op == "random" for v in variants)
        self.two = any(v.op != "target" for v in variants)
        self.kappa = self._column([v.kappa for v in variants])
        self.cql = self._column([v.cql for v in variants])
        self.dead = torch.zeros(runs, dtype=torch.bool, device=recipe.device)
        self.curves = [Curve(seed, variant) for seed, variant in zip(seeds, variants)]
        self.returns = np.zeros(runs)
        self.step = 0
        self._clear()

    def _column(self, values: list[float]) -> Tensor | None:
        return torch.tensor(values, dtype=self.dtype, device=self.recipe.device)[:, None] if any(values) else None

    def _clear(self) -> None:
        """Begin a new stretch of the grid."""
        runs = len(self.seeds)
        zero = torch.zeros(runs, dtype=self.dtype, device=self.recipe.device)
        self.sums: dict[str, Tensor] = {"q": zero.clone(), "y": zero.clone()}
        self.updates = 0
        self.rate: Tensor | None = None
        self.ended: list[list[float]] = [[] for _ in range(runs)]

    # -- acting --------------------------------------------------------------------------------------------------------

    def values(self, obs: np.ndarray, nets: Sequence[StackedMLP] | None = None) -> Tensor:
        """Action values (runs, rows, actions) of observations (runs, rows, ...); the least of all members'."""
        x = torch.from_numpy(obs).to(self.recipe.device, self.dtype).flatten(2)
        found = [net(x) for net in nets or self.nets]
        return found[0] if len(found) == 1 else torch.stack(found).amin(0)

    def _play(self, epsilon: float, draws: np.ndarray) -> None:
        greedy = self.values(self.obs[:, None])[:, 0].argmax(-1).cpu().numpy() if epsilon < 1 else 0
        action = np.where(draws[:, 0] < epsilon, (draws[:, 1] * self.env.actions).astype(np.int64), greedy)
        after = self.env.step(action)
        reward = after.reward
        self.returns += reward
        if self.recipe.reward_noise:
            reward = reward + self.recipe.reward_noise * np.array([g.standard_normal() for g in self.noise])
        self.replay.add(self.obs, action, reward, after)
        self.obs = after.next
        for i in np.flatnonzero(after.terminated | after.truncated):
            self.curves[i].episodes.append((self.step + 1, float(self.returns[i])))
            self.ended[i].append(float(self.returns[i]))
            self.returns[i] = 0.0

    # -- learning ------------------------------------------------------------------------------------------------------

    def _update(self, uniform: np.ndarray) -> None:
        recipe = self.recipe
        m = int(self.member.integers(self.members)) if self.members > 1 else 0
        net = self.nets[m]
        obs, action, reward, after, ended, gamma = self.replay.sample(uniform)
        obs, after = obs.to(self.dtype), after.to(self.dtype)
        b = obs.shape[1]
        last = (self.step + 1) % recipe.copy_every == 0
        # Both forwards of the online network in one: the second half carries no gradient.
        both = self.two or last
        layers = net.layers(torch.cat([obs, after], 1) if both else obs)
        q = layers[-1][:, :b]
        frozen = [other(after) for other in self.frozen]
        online = layers[-1][:, b:] if both else None
        value = self._bootstrap(frozen, online, after, m)
        y = reward.to(self.dtype) + gamma * (1 - ended.to(self.dtype)) * value
        chosen = q.gather(-1, action[..., None])[..., 0]
        error = chosen - y
        slope = error.clamp(-1, 1) if recipe.loss == "huber" else error
        if self.kappa is not None:
            anchor = self.frozen[m](obs).gather(-1, action[..., None])[..., 0]
            slope = slope + self.kappa * (chosen - anchor)
        if self.cql is not None:
            gradient = torch.softmax(q, -1) * (self.cql / b)[..., None]
            slope = slope - self.cql
        else:
            gradient = torch.zeros_like(q)
        gradient.scatter_add_(-1, action[..., None], (slope / b)[..., None])
        flat = net.backward([layer[:, :b] for layer in layers], gradient)
        self._step(m, flat, error)
        self.sums["q"] += chosen.mean(1)
        self.sums["y"] += y.mean(1)
        self.updates += 1
        if last and online is not None:
            self.rate = _online_rate(frozen[m], online)

    def _bootstrap(self, frozen: list[Tensor], online: Tensor | None, after: Tensor, m: int) -> Tensor:
        if self.members > 1:
            tables = list(frozen)
            if any(v.op == "maxmin_minto" for v in self.variants):
                tables += [online if i == m and online is not None else net(after) for i, net in enumerate(self.nets)]
            stacked = torch.stack(tables)
            parts = [
                (stacked if v.op == "maxmin_minto" else stacked[: self.members])[:, at].amin(0).amax(-1)
                for v, at in self.groups
            ]
        else:
            qt = frozen[0]
            qo = qt if online is None else online
            coins = torch.from_numpy(self.coins.next()).to(qt.device) < 0.5 if self.flips else None
            parts = [
                bootstrap_value(qt[at], qo[at], v.op, use_online=None if coins is None else coins[at], beta=v.beta)
                for v, at in self.groups
            ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _step(self, m: int, gradient: Tensor, error: Tensor) -> None:
        """Clip, mind what diverged, move."""
        finite = torch.isfinite(error.sum(1))
        if self.recipe.max_grad_norm is not None:
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient *= (self.recipe.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        if not bool(finite.all()):
            for i in torch.nonzero(~finite & ~self.dead)[:, 0].tolist():
                self.curves[i].diverged = self.step + 1
            self.dead |= ~finite
        flat = self.nets[m].flat
        flat.grad = gradient
        if bool(self.dead.any()):
            # A diverged run stands still and lets the others go on.
            gradient[self.dead] = 0
            kept = flat.data[self.dead].clone()
            self.optimisers[m].step()
            flat.data[self.dead] = kept
        else:
            self.optimisers[m].step()

    def _synchronise(self) -> None:
        for net, frozen in zip(self.nets, self.frozen):
            frozen.flat.data.lerp_(net.flat.data, self.recipe.tau) if self.recipe.tau < 1 else frozen.flat.data.copy_(
                net.flat.data
            )

    # -- the loop ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def advance(self, steps: int) -> None:
        """Go on for so many environment steps (updates, when offline), at most to the end of the recipe."""
        recipe = self.recipe
        for _ in range(min(steps, recipe.steps - self.step)):
            draws = self.choices.next()
            t = self.step
            if not self.offline:
                share = min(1.0, (t + 1) / recipe.eps_steps) if recipe.eps_steps else 1.0
                epsilon = 1.0 if t < recipe.learning_starts else recipe.eps_start + share * (
                    recipe.eps_end - recipe.eps_start
                )  # fmt: skip
                self._play(epsilon, draws)
            if self.offline or (t + 1 > recipe.learning_starts and (t + 1) % recipe.train_every == 0):
                self._update(draws[:, 2:])
            if (t + 1) % recipe.copy_every == 0:
                self._synchronise()
            self.step += 1
            if self.step % recipe.eval_every == 0 or self.step == recipe.steps:
                self._record()

    def _record(self) -> None:
        played = self.evaluate() if self.recipe.eval_episodes else None
        n = max(1, self.updates)
        q, y = (self.sums[k].cpu().numpy() / n for k in ("q", "y"))
        rate = None if self.rate is None else self.rate.cpu().numpy()
        for i, curve in enumerate(self.curves):
            before = curve.rows[-1] if curve.rows else {}
            trained = float(np.mean(self.ended[i])) if self.ended[i] else before.get("train_return")
            row = {
                "step": self.step,
                "train_return": trained,
                "q_mean": float(q[i]) if self.updates else None,
                "target_mean": float(y[i]) if self.updates else None,
                "online_rate": float(rate[i]) if rate is not None else before.get("online_rate"),
                "overestimation": None if played is None else float(played[1][i]),
            }
            # Before any episode has ended there is nothing but the reward so far.
            row["return"] = float(played[0][i]) if played else (self.returns[i] if trained is None else trained)
            curve.rows.append(row)
        self._clear()

    @torch.no_grad()
    def evaluate(self, episodes: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean return of greedy episodes, and the first state's value over the discounted return, a run each.

        Starts depend on seed and step alone. Episodes longer than ``eval_limit`` count as they stand.
        """
        count = episodes or self.recipe.eval_episodes
        runs = len(self.seeds)
        env = self.spec.make([[seed, 6, self.step, e] for seed in self.seeds for e in range(count)])
        obs = env.reset()
        alive = np.ones(runs * count, bool)
        total, discounted = np.zeros(runs * count), np.zeros(runs * count)
        first: np.ndarray | None = None
        for t in range(self.recipe.eval_limit):
            q = self.values(obs.reshape(runs, count, *env.shape))
            if first is None:
                first = q.amax(-1).cpu().numpy().reshape(-1)
            after = env.step(q.argmax(-1).cpu().numpy().reshape(-1))
            total += after.reward * alive
            discounted += self.recipe.gamma**t * after.reward * alive
            alive &= ~(after.terminated | after.truncated)
            obs = after.next
            if not alive.any():
                break
        over = np.asarray(first) - discounted
        return total.reshape(runs, count).mean(1), over.reshape(runs, count).mean(1)

    def recorded(self, run: int) -> Transitions:
        """What a run played, as long as nothing was overwritten in its replay memory, oldest first."""
        n = min(self.replay.written, self.replay.capacity)
        order = (np.arange(n) + (self.replay.written if self.replay.written > n else 0)) % self.replay.capacity
        seen, numbers = self.replay.seen[run].cpu().numpy()[order], self.replay.numbers[run].cpu().numpy()[order]
        flags = numbers[:, 2:].astype(bool)
        return Transitions(
            seen[:, 0], numbers[:, 0].astype(np.int64), numbers[:, 1], seen[:, 1], flags[:, 0], flags[:, 1]
        )

    # -- keeping -------------------------------------------------------------------------------------------------------

    def checkpoint(self, path: Path | str) -> Checkpoint:
        """What goes on exactly after `Checkpoint.load` and `restore`; numpy environments only."""
        parts: dict[str, Any] = {"replay": self.replay}
        for m, (net, frozen, optimiser) in enumerate(zip(self.nets, self.frozen, self.optimisers)):
            parts |= {f"net{m}": net, f"frozen{m}": frozen, f"optimiser{m}": optimiser}
        return Checkpoint(path, parts)

    def save(self, path: Path | str) -> None:
        """Networks, target networks, optimisers, replay memory, counters, streams and environments in one file."""
        self.checkpoint(path).save(
            step=self.step,
            variants=[asdict(v) for v in self.variants],
            seeds=self.seeds,
            env=_plain(self.env.state()),
            choices=_plain(self.choices.state()),
            coins=_plain(self.coins.state()),
            generators=[generator_state(g) for g in (*self.noise, self.member)],
            obs=torch.from_numpy(self.obs),
            returns=self.returns.tolist(),
            ended=self.ended,
            sums=self.sums,
            updates=self.updates,
            rate=self.rate,
            dead=self.dead,
            curves=[{"rows": c.rows, "episodes": c.episodes, "diverged": c.diverged} for c in self.curves],
        )

    def load(self, path: Path | str) -> bool:
        """Go on where `save` stood; False where there is no such file.

        Raises
        ------
        UsageError
            The file is of other seeds or variants.
        """
        kept = self.checkpoint(path).load()
        if kept is None:
            return False
        if kept["seeds"] != self.seeds or kept["variants"] != [asdict(v) for v in self.variants]:
            raise UsageError(f"{path} was written by other seeds or variants; remove it, or give it those.")
        self.env.restore(_arrays(kept["env"]))
        self.choices.restore(_arrays(kept["choices"]))
        self.coins.restore(_arrays(kept["coins"]))
        for generator, text in zip((*self.noise, self.member), kept["generators"]):
            set_generator_state(generator, text)
        self.step, self.updates, self.rate, self.dead = kept["step"], kept["updates"], kept["rate"], kept["dead"]
        self.obs, self.returns = kept["obs"].numpy(), np.array(kept["returns"])
        self.ended, self.sums = kept["ended"], kept["sums"]
        for curve, state in zip(self.curves, kept["curves"]):
            curve.rows, curve.diverged = state["rows"], state["diverged"]
            curve.episodes = [(int(step), float(value)) for step, value in state["episodes"]]
        return True


def train_batched(
    recipe: Recipe,
    variants: Sequence[Variant] | Variant,
    seeds: Sequence[int],
    *,
    data: Transitions | None = None,
    checkpoint: Path | str | None = None,
    progress: Callable[..., None] | None = None,
) -> list[Curve]:
    """Train every seed with its variant (one for all, or one each) to the end; curves in the order given.

    Parameters
    ----------
    checkpoint
        File written a few times on the way and read first, for environments in numpy.
    progress
        Called with steps done and their number.
    """
    many = [variants] * len(seeds) if isinstance(variants, Variant) else list(variants)
    if any(v.op in ("min", "mean", "max", "random") for v in many) and recipe.tau == 1:
        if recipe.copy_every == 1:
            warnings.warn("Copies every step make both networks one: the bootstrap is online.", stacklevel=2)
        elif recipe.copy_every > recipe.steps:
            warnings.warn("The target network is never copied: values stall.", stacklevel=2)
    order = sorted(range(len(seeds)), key=lambda i: repr(many[i]))
    trainer = BatchedDQN(recipe, [many[i] for i in order], [seeds[i] for i in order], data)
    if checkpoint is not None:
        trainer.load(checkpoint)
    piece = max(recipe.eval_every, math.ceil(recipe.steps / 20 / recipe.eval_every) * recipe.eval_every)
    while trainer.step < recipe.steps:
        trainer.advance(piece)
        if checkpoint is not None and trainer.step < recipe.steps:
            try:
                trainer.save(checkpoint)
            except NotImplementedError:
                checkpoint = None
        if progress is not None:
            progress(trainer.step, recipe.steps)
    curves: list[Curve] = [trainer.curves[0]] * len(seeds)
    for curve, i in zip(trainer.curves, order):
        curves[i] = curve
    return curves


def _groups(variants: Sequence[Variant]) -> list[tuple[Variant, slice]]:
    """Stretches of equal variants."""
    groups: list[tuple[Variant, slice]] = []
    begun = 0
    for i in range(1, len(variants) + 1):
        if i == len(variants) or variants[i] != variants[begun]:
            groups.append((variants[begun], slice(begun, i)))
            begun = i
    return groups


def _online_rate(qt: Tensor, qo: Tensor) -> Tensor:
    """`targets.online_share`, a run each."""
    best = torch.minimum(qt, qo).argmax(-1, keepdim=True)
    return (qo.gather(-1, best) < qt.gather(-1, best))[..., 0].double().mean(-1)


def _plain(state: Any) -> Any:
    """Arrays as tensors, which a checkpoint may hold."""
    if isinstance(state, dict):
        return {k: _plain(v) for k, v in state.items()}
    return torch.from_numpy(state.copy()) if isinstance(state, np.ndarray) else state


def _arrays(state: Any) -> Any:
    if isinstance(state, dict):
        return {k: _arrays(v) for k, v in state.items()}
    return state.numpy() if isinstance(state, Tensor) else state
