"""Offline data: published layouts read, behaviour recorded, all as `Transitions`."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.datasets.archives import check_zip
from assay.core.datasets.readers import MAX_BYTES, guarded, read_bytes, reason
from assay.core.errors import DataError, MissingExtra, UsageError

ENDS = ("terminated", "truncated", "terminals", "timeouts", "terminations", "truncations", "terminal")
"""Columns of 0 and 1, as the layouts call them."""


@dataclass(frozen=True, slots=True)
class Transitions:
    """Transitions in the order of play; every field has n rows.

    ``terminated`` is true termination, ``truncated`` a time limit or the end of a recording.
    """

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    def __post_init__(self) -> None:
        sizes = {f.name: len(getattr(self, f.name)) for f in fields(self)}
        if len(set(sizes.values())) != 1 or not len(self):
            raise DataError(f"Transitions need one or more rows, equally many in each field; got {sizes}.")
        if self.obs.shape != self.next_obs.shape:
            raise DataError(f"Observations before and after differ in shape: {self.obs.shape}, {self.next_obs.shape}.")

    def __len__(self) -> int:
        return len(self.reward)

    def kept(self, share: float, rng: np.random.Generator) -> Transitions:
        """A share of the rows drawn without replacement, in order; n-step sums no longer make sense."""
        if not 0 < share <= 1:
            raise UsageError(f"share must lie in (0, 1]; got {share}.")
        count = max(1, round(share * len(self)))
        rows = np.sort(rng.choice(len(self), count, replace=False))
        return Transitions(*(getattr(self, f.name)[rows] for f in fields(self)))

    def save(self, path: Path | str) -> None:
        """One compressed numpy archive."""
        np.savez_compressed(path, **{f.name: getattr(self, f.name) for f in fields(self)})

    @staticmethod
    def load(path: Path | str) -> Transitions:
        """What `save` wrote."""
        names = [f.name for f in fields(Transitions)]
        what = f"an archive of transitions with {', '.join(names)}"
        with guarded(path, what):
            check_zip(path)
            with np.load(path, allow_pickle=False) as found:
                if missing := [name for name in names if name not in found.files]:
                    raise DataError(f"{path} is no archive of transitions: {', '.join(missing)} missing.")
                return Transitions(*(_column(found[name], path, name) for name in names))


def record(
    act: Callable[[np.ndarray], Any], env: Any, steps: int, *, epsilon: float = 0.0, seed: int = 0
) -> Transitions:
    """Play a gymnasium environment and keep everything.

    Parameters
    ----------
    act
        Action for an observation: ``lambda obs: model.predict(obs, deterministic=True)[0]``.
    epsilon
        Share of random actions.
    """
    if steps < 1:
        raise UsageError(f"steps={steps} must be at least 1.")
    rng = np.random.default_rng(seed)
    env.action_space.seed(seed)
    obs, _ = env.reset(seed=seed)
    rows: list[tuple[Any, ...]] = []
    for step in range(steps):
        action = env.action_space.sample() if rng.random() < epsilon else act(obs)
        after, reward, terminated, truncated, _ = env.step(int(action) if hasattr(env.action_space, "n") else action)
        rows.append((obs, action, reward, after, terminated, truncated or (step == steps - 1 and not terminated)))
        obs = env.reset()[0] if terminated or truncated else after
    return Transitions(*(np.asarray(column) for column in zip(*rows)))


def from_replay_buffer(buffer: Any) -> Transitions:
    """All that a stable-baselines3 ReplayBuffer holds, oldest first; environments one after the other."""
    size, envs = buffer.size(), buffer.n_envs
    if getattr(buffer, "optimize_memory_usage", False):
        raise UsageError("A buffer with optimize_memory_usage does not hold what came after; record without it.")
    order = (np.arange(size) + (buffer.pos if buffer.full else 0)) % buffer.buffer_size
    parts = [
        tuple(
            column[order, e]
            for column in (
                buffer.observations, buffer.actions, buffer.rewards, buffer.next_observations, buffer.dones,
                buffer.timeouts,
            )
        )
        for e in range(envs)
    ]  # fmt: skip
    obs, action, reward, after, done, timeout = (np.concatenate(column) for column in zip(*parts))
    # stable-baselines3 counts a time limit as done as well, and undoes it when it draws.
    timeout = timeout.astype(bool)
    action = action[:, 0] if action.shape[1:] == (1,) and np.issubdtype(action.dtype, np.integer) else action
    return Transitions(obs, action, reward, after, done.astype(bool) & ~timeout, timeout)


def fill_replay_buffer(buffer: Any, data: Transitions) -> None:
    """Write transitions into an empty stable-baselines3 ReplayBuffer of one environment, large enough for all."""
    if buffer.n_envs != 1 or buffer.buffer_size < len(data):
        raise UsageError(
            f"The replay buffer holds {buffer.buffer_size} transitions of {buffer.n_envs} environment(s), the data are "
            f"{len(data)} of one; raise buffer_size."
        )
    n = len(data)
    done = data.terminated.astype(bool) | data.truncated.astype(bool)
    buffer.reset()
    buffer.observations[:n, 0] = data.obs.reshape(n, *buffer.observations.shape[2:])
    buffer.next_observations[:n, 0] = data.next_obs.reshape(n, *buffer.observations.shape[2:])
    buffer.actions[:n, 0] = data.action.reshape(n, -1)
    buffer.rewards[:n, 0], buffer.dones[:n, 0] = data.reward, done
    buffer.timeouts[:n, 0] = data.truncated & ~data.terminated.astype(bool)
    buffer.pos, buffer.full = n % buffer.buffer_size, n == buffer.buffer_size


def load_d4rl(path: Path | str) -> Transitions:
    """A D4RL file: observations, actions, rewards, terminals, and timeouts and next_observations where given.

    Without next_observations a transition's end is the next row's start, and the last row before a time-out, whose end
    is not in the file, is left out.
    """
    with guarded(path, "a D4RL file"), _hdf5(path) as file:
        columns = {}
        for name in ("observations", "actions", "rewards", "terminals"):
            if name not in file:
                raise DataError(f"{path} has no {name!r}; D4RL files have observations, actions, rewards, terminals.")
        for name in ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations"):
            if name in file:
                columns[name] = _column(file[name], path, name)
        n = len(columns["rewards"])
        for name, values in columns.items():
            if len(values) != n or not n:
                raise DataError(f"{path}: {name!r} has {len(values)} rows, rewards {n}.")
        obs, done, keep = columns["observations"], columns["terminals"].astype(bool), np.ones(n, bool)
        timeouts = columns["timeouts"].astype(bool) if "timeouts" in columns else np.zeros(n, bool)
        after = columns.get("next_observations")
        if after is None:
            after = np.concatenate([obs[1:], obs[-1:]])
            keep = ~timeouts | done
            keep[-1] = bool(done[-1])
            if not keep.any():
                raise DataError(f"{path}: no row's end is in the file; next_observations are needed.")
        timeouts &= ~done
        return Transitions(*(x[keep] for x in (obs, columns["actions"], columns["rewards"], after, done, timeouts)))


def load_minari(path: Path | str) -> Transitions:
    """A Minari data set's folder (``data/main_data.hdf5`` below it) or that file; array observations and actions."""
    file = Path(path).expanduser()
    if file.is_dir():
        found = sorted(file.rglob("main_data.hdf5"))
        if len(found) != 1:
            raise DataError(f"{path} holds {len(found)} files main_data.hdf5; give the folder of one Minari data set.")
        file = found[0]
    kinds = ("observations", "actions", "rewards", "terminations", "truncations")
    parts: list[tuple[np.ndarray, ...]] = []
    size = 0
    with guarded(file, "a Minari data set"), _hdf5(file) as opened:
        for name in sorted((n for n in opened if n.startswith("episode_")), key=lambda n: _number(n, file)):
            episode, where = opened[name], f"{file}, {name}"
            if missing := set(kinds) - set(episode):
                raise DataError(f"{where}: {', '.join(sorted(missing))} missing.")
            if not hasattr(episode["observations"], "shape") or not hasattr(episode["actions"], "shape"):
                raise DataError(f"{where}: observations and actions must be arrays, not dictionaries.")
            obs, action, reward, *ends = (_column(episode[kind], where, kind) for kind in kinds)
            if len(obs) != len(reward) + 1:
                raise DataError(f"{where}: {len(reward)} rewards need one observation more, not {len(obs)}.")
            for kind, values in zip((kinds[1], *kinds[3:]), (action, *ends)):
                if len(values) != len(reward):
                    raise DataError(f"{where}: {kind!r} has {len(values)} rows, rewards {len(reward)}.")
            if parts and (obs.shape[1:] != parts[0][0].shape[1:] or action.shape[1:] != parts[0][1].shape[1:]):
                raise DataError(f"{where}: observations or actions have another shape than in the episodes before.")
            size += obs.nbytes + action.nbytes
            if size > MAX_BYTES:
                raise DataError(f"{where}: the episodes up to here unpack to more than {MAX_BYTES:,} bytes.")
            parts.append((obs[:-1], action, reward, obs[1:], *(values.astype(bool) for values in ends)))
        if not parts:
            raise DataError(f"{file} holds no episodes.")
        return Transitions(*(np.concatenate(column) for column in zip(*parts)))


def _number(name: str, file: Path) -> int:
    digits = name.removeprefix("episode_")
    if not (digits.isdecimal() and digits.isascii() and len(digits) < 19):
        raise DataError(f"{file}: {name[:60]!r} is no name of an episode; they are episode_0, episode_1 ...")
    return int(digits)


def _column(values: Any, where: Path | str, name: str) -> np.ndarray:
    """A column of a file: finite numbers, a row a step; rewards and ends one number a row, ends 0 or 1."""
    if getattr(values, "nbytes", 0) > MAX_BYTES:
        raise DataError(f"{where}: {name!r} unpacks to {values.nbytes:,} bytes; more than {MAX_BYTES:,} are not read.")
    if not hasattr(values, "dtype"):
        raise DataError(f"{where}: {name!r} is no array.")
    found = np.asarray(values)
    flat = name in (*ENDS, "reward", "rewards")
    if found.dtype.kind not in "biuf" or not found.ndim or (flat and found.ndim != 1):
        wanted = "one number a row" if flat else "numbers, a row a step"
        raise DataError(f"{where}: {name!r} is {found.dtype} of shape {found.shape}, and must be {wanted}.")
    good = np.isin(found, (0, 1)) if name in ENDS else np.isfinite(found) if found.dtype.kind == "f" else None
    if good is not None and not good.all():
        at = tuple(int(k) for k in np.argwhere(~good)[0])
        wanted = "0 or 1" if name in ENDS else "finite"
        raise DataError(f"{where}: {name!r}, row {at[0]} is {found[at]}, and must be {wanted}.")
    return found


class FrameReplay:
    """Frames of the DQN replay data set, stacked when they are asked for, never across the end of an episode.

    Parameters
    ----------
    folder
        ``<game>/<run>/replay_logs`` with ``$store$_observation_ckpt.N.gz`` and its companions: gzip of numpy arrays.
    checkpoint
        N.
    stack
        Frames an observation; those from before an episode began are zero.
    """

    def __init__(self, folder: Path | str, checkpoint: int, *, stack: int = 4) -> None:
        if stack < 1:
            raise UsageError(f"stack={stack} must be at least 1.")
        self.frames = _gzipped(folder, "observation", checkpoint, np.uint8, 3)
        self.action = _gzipped(folder, "action", checkpoint, np.int32, 1)
        self.reward = _gzipped(folder, "reward", checkpoint, np.float32, 1)
        self.terminal = _gzipped(folder, "terminal", checkpoint, np.uint8, 1).astype(bool)
        sizes = {len(x) for x in (self.frames, self.action, self.reward, self.terminal)}
        if len(sizes) != 1:
            raise DataError(f"{folder}: the four arrays of checkpoint {checkpoint} differ in length: {sorted(sizes)}.")
        self.stack = stack
        n = len(self.frames)
        if not n or (n == 1 and not self.terminal[0]):
            raise DataError(f"{folder}: checkpoint {checkpoint} holds {n} frames; a transition needs two.")
        ends = np.flatnonzero(self.terminal)
        before = np.searchsorted(ends, np.arange(n), "left")
        self.begun = np.where(before > 0, ends[np.maximum(before - 1, 0)] + 1, 0) if len(ends) else np.zeros(n, int)
        """Where the episode of each frame begins."""

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def places(self) -> np.ndarray:
        """Transitions whose end is known: all but the last frame, unless that is terminal."""
        return np.arange(len(self) - (0 if self.terminal[-1] else 1))

    def observations(self, at: np.ndarray) -> np.ndarray:
        """Stacked frames (rows, stack, height, width), oldest first."""
        at = np.asarray(at)
        back = at[:, None] - np.arange(self.stack - 1, -1, -1)
        known = back >= self.begun[at][:, None]
        return self.frames[np.maximum(back, 0)] * known[..., None, None].astype(np.uint8)

    def transitions(self, at: np.ndarray) -> Transitions:
        """Some transitions, stacked; what follows a terminal frame is zero and does not count."""
        at = np.asarray(at)
        if len(at) and (at.min() < 0 or at.max() > self.places[-1]):
            raise UsageError(f"Places must lie in [0, {self.places[-1]}].")
        done = self.terminal[at]
        after = self.observations(np.minimum(at + 1, len(self) - 1)) * (~done)[:, None, None, None].astype(np.uint8)
        return Transitions(
            self.observations(at), self.action[at], self.reward[at], after, done, np.zeros(len(at), bool)
        )

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[Transitions]:
        """Drawn batches without end."""
        places = self.places
        while True:
            yield self.transitions(rng.choice(places, size))


def _gzipped(folder: Path | str, name: str, checkpoint: int, kind: type, axes: int) -> np.ndarray:
    path = Path(folder) / f"$store$_{name}_ckpt.{checkpoint}.gz"
    if not path.exists():
        raise DataError(f"{path} is not there; give the folder replay_logs and a checkpoint that it holds.")
    with guarded(path, "a gzip of a numpy array"):
        found = np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)
        if found.ndim != axes or not np.can_cast(found.dtype, kind, "same_kind"):
            raise DataError(f"{path}: expected {axes} axes of {np.dtype(kind)}, got {found.shape} of {found.dtype}.")
        with np.errstate(over="ignore"):
            cast = _column(found, path, name).astype(kind, copy=False)
        if found.dtype != kind and np.dtype(kind).kind != "f" and (cast != found).any():
            raise DataError(f"{path}: row {int(np.argwhere(cast != found)[0, 0])} does not fit {np.dtype(kind)}.")
        return _column(cast, path, name)


def _hdf5(path: Path | str) -> Any:
    try:
        import h5py
    except ImportError:
        raise MissingExtra("Reading HDF5 files", "minto") from None
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path} is no HDF5 file ({reason(error)}).") from None
