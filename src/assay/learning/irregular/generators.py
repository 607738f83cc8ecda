"""Generated data: alembics, bowls and flasks, and controlled irregularity on any data set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from assay.core.errors import UsageError
from assay.learning.irregular.array import Array, IrregularArray, from_dense

ABF_CLASSES = ("bowl", "alembic", "flask")
_TICKS = 100_000_000


def abf_shape(size: int = 128) -> Array:
    """The one shape of all classes: -sin(pi x) on [0, 1], ends included, z-scored with the population deviation."""
    y = -np.sin(np.pi * np.linspace(0, 1, size))
    return (y - y.mean()) / y.std()


def abf(
    rng: np.random.Generator,
    *,
    series_per_class: int = 20,
    n_train: int = 10,
    size: int = 128,
    skew: float = 10.0,
    noise: float = 0.25,
    ticks: bool = True,
) -> IrregularArray:
    """Alembics, bowls and flasks: values are alike in all classes, which differ in the skew of the sampling times.

    Parameters
    ----------
    series_per_class, n_train
        Of each class; the first ``n_train`` are training series.
    size
        Time stamps a series.
    skew
        Shape of the skew-normal law of the times: 0 for bowls, ``skew`` for alembics, ``-skew`` for flasks.
    noise
        Standard deviation of normal noise on the values.
    ticks
        Times in whole ticks of 1e-8, as in the published file; False = in [0, 1].
    """
    from scipy.stats import skew as sample_skew
    from scipy.stats import skewnorm

    if not 0 < n_train < series_per_class:
        raise UsageError(f"n_train={n_train} leaves no training or no test series of {series_per_class} a class.")
    if size < 3:
        raise UsageError(f"size={size}: a series needs three time stamps for a skew.")
    n = 3 * series_per_class
    values = abf_shape(size) + rng.normal(0.0, noise, (n, size))
    times = np.concatenate(
        [np.sort(skewnorm.rvs(a, size=(series_per_class, size), random_state=rng), axis=1) for a in (0, skew, -skew)]
    )
    low, high = times[:, :1], times[:, -1:]
    times = (times - low) / (high - low)
    skewness = sample_skew(times, axis=1)
    if ticks:
        # Truncation can join two stamps: the later one moves on, so that no value is lost.
        times = np.floor(times * _TICKS)
        for at in range(1, size):
            times[:, at] = np.maximum(times[:, at], times[:, at - 1] + 1)
    y = np.repeat(np.arange(3), series_per_class)
    split = np.where(np.arange(n) % series_per_class < n_train, "train", "test")
    array = from_dense(values[:, None, :], times, y=y, split=split, attrs={"title": "Abf"})
    array = array.with_static(class_labels=np.array(ABF_CLASSES)[y], skewness=skewness)
    configs = dict(array.attrs["configs"])
    configs["regression"] = {"task": "regression", "split": "split_default", "target": "skewness"}
    return array.with_attrs(configs=configs)


def drop(array: IrregularArray, rate: float, rng: np.random.Generator) -> IrregularArray:
    """Partial observation: each value is lost with probability ``rate``; a signal keeps one value in each series."""
    _share("rate", rate, 0.0, 1.0)
    keep = rng.random(array.nnz) >= rate
    _keep_one(keep, array.coords[0] * len(array.signal_id) + array.coords[1], rng)
    return _kept(array, keep)


def ragged(array: IrregularArray, shortest: float, rng: np.random.Generator) -> IrregularArray:
    """Raggedness: each series is cut after a share of its time stamps, uniform in [shortest, 1], at least one stamp."""
    _share("shortest", shortest, 0.0, 1.0)
    from assay.learning.irregular.dense import ranks

    rank, _ = ranks(array)
    lengths = array.lengths()
    cut = np.maximum(1, np.ceil(lengths * rng.uniform(shortest, 1.0, len(array)))).astype(np.int64)
    return _kept(array, rank < cut[array.coords[0]])


def uneven(array: IrregularArray, rate: float, rng: np.random.Generator) -> IrregularArray:
    """Uneven sampling: each time stamp of a series is lost with all its values with probability ``rate``."""
    _share("rate", rate, 0.0, 1.0)
    key = array.coords[0] * len(array.time_id) + array.coords[2]
    stamps, inverse = np.unique(key, return_inverse=True)
    keep = rng.random(len(stamps)) >= rate
    _keep_one(keep, stamps // len(array.time_id), rng)
    return _kept(array, keep[inverse.ravel()])


def early(array: IrregularArray, share: float) -> IrregularArray:
    """For early classification: the first ``share`` of the time span of each series, its first stamp at least."""
    _share("share", share, 0.0, 1.0)
    from assay.learning.irregular.dense import time_numbers

    t, owner = time_numbers(array.time_id)[array.coords[2]], array.coords[0]
    low, high = np.full(len(array), np.inf), np.full(len(array), -np.inf)
    np.minimum.at(low, owner, t)
    np.maximum.at(high, owner, t)
    return _kept(array, t <= low[owner] + share * (high - low)[owner])


def every(array: IrregularArray, step: int) -> IrregularArray:
    """Decimation: the first, ``step + 1``-th ... time stamp of each series."""
    if step < 1:
        raise UsageError(f"step={step}: a decimation needs a whole number from 1.")
    from assay.learning.irregular.dense import ranks

    rank, _ = ranks(array)
    return _kept(array, rank % step == 0)


def subsample(array: IrregularArray, n: int, rng: np.random.Generator, task: str = "default") -> IrregularArray:
    """At most ``n`` series of each side of the split, by class in proportion, at least one of each class."""
    y, split = array.target_and_split(task)
    kept: list[int] = []
    for side in ("train", "test"):
        where = np.nonzero(split == side)[0]
        share = min(1.0, n / max(1, len(where)))
        for label in np.unique(y[where]):
            own = where[y[where] == label]
            kept += rng.permutation(own)[: max(1, round(share * len(own)))].tolist()
    return array.select(np.sort(kept))


def _kept(array: IrregularArray, keep: Array) -> IrregularArray:
    coords, data = array.coords[:, keep], array.data[keep]
    times, places = np.unique(coords[2], return_inverse=True)
    coords = np.stack([coords[0], coords[1], places.ravel()])
    static = {k: (d, v[times] if d == "time_id" else v) for k, (d, v) in array.static.items()}
    return replace(array, data=data, coords=coords, time_id=array.time_id[times], static=static)


def _keep_one(keep: Array, owner: Array, rng: np.random.Generator) -> None:
    """Bring one entry, drawn at random, back to every owner that would lose all."""
    owners, inverse = np.unique(owner, return_inverse=True)
    left = np.zeros(len(owners), bool)
    left[inverse.ravel()[keep]] = True
    if left.all():
        return
    at = np.nonzero(~left[inverse.ravel()])[0]
    at = rng.permutation(at)
    _, first = np.unique(inverse.ravel()[at], return_index=True)
    keep[at[first]] = True


def _share(name: str, value: float, low: float, high: float) -> None:
    if not low <= value < high and not (name == "shortest" and value == high):
        raise UsageError(f"{name}={value} is not in [{low:g}, {high:g}).")
