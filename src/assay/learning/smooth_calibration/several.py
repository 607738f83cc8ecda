"""More than one binary problem: several classes, and groups of samples within one problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import DataError, UsageError
from assay.learning.smooth_calibration.exact import smooth_ce
from assay.learning.smooth_calibration.inputs import Vector, paired

ALL_SETS = 12


def top_label(y_true: ArrayLike, proba: ArrayLike) -> tuple[Vector, Vector]:
    """(was the top class right, its probability): several classes as a binary problem of confidence.

    Parameters
    ----------
    y_true
        Class numbers 0 ... c - 1, shape (n,).
    proba
        Shape (n, c), rows sum to 1.
    """
    y, rows = _classes(y_true, proba)
    best = rows.argmax(axis=1)
    return (best == y).astype(float), rows[np.arange(len(y)), best]


def classwise_smooth_ce(y_true: ArrayLike, proba: ArrayLike) -> Vector:
    """Smooth calibration error of each class against the rest, shape (c,).

    Canonical calibration, of the whole vector at once, is out of scope: it takes samples exponential in c.
    """
    y, rows = _classes(y_true, proba)
    return np.array([smooth_ce(y == k, rows[:, k]) for k in range(rows.shape[1])])


@dataclass(frozen=True, slots=True)
class Projected:
    """Largest error over sets of classes, the set, and whether every set was tried (else it is a lower bound)."""

    value: float
    classes: tuple[int, ...]
    exact: bool


def projected_smooth_ce(y_true: ArrayLike, proba: ArrayLike, *, rng: np.random.Generator | None = None) -> Projected:
    """Largest smooth calibration error over events "the class is one of T", T any set of classes.

    A set and its complement have the same error. Up to 12 classes all 2^(c - 1) - 1 sets are tried; beyond, steepest
    ascent by single classes, from every class alone and from c sets drawn by ``rng``, gives a lower bound.

    Parameters
    ----------
    y_true, proba
        As `top_label`.
    rng
        Needed for more than 12 classes.

    References
    ----------
    Gopalan, Hu and Rothblum 2024, "On computationally efficient multi-class calibration", arXiv 2402.07821.
    """
    y, rows = _classes(y_true, proba)
    c = rows.shape[1]

    def error(chosen: NDArray[np.bool_]) -> float:
        return smooth_ce(chosen[y], np.clip(rows @ chosen, 0.0, 1.0))

    if c <= ALL_SETS:
        # The last class stays out: its sets are the complements.
        sets = [np.array([*bits, False]) for bits in product((False, True), repeat=c - 1) if any(bits)]
        best = max(sets, key=error)
        return Projected(error(best), _numbers(best), True)
    if rng is None:
        raise UsageError(f"{c} classes have too many sets to try all; give rng, a numpy Generator, for a search.")
    starts = [*np.eye(c, dtype=bool), *(rng.random((c, c)) < 0.5)]
    best, value = starts[0], -1.0
    for start in starts:
        chosen, now = _climb(start, error)
        if now > value:
            best, value = chosen, now
    return Projected(value, _numbers(best), False)


@dataclass(frozen=True, slots=True)
class GroupError:
    """Error within a group of ``n`` samples, and its part ``share * value`` of the multicalibration error."""

    group: str
    n: int
    share: float
    value: float
    part: float


def group_smooth_ce(
    y_true: ArrayLike, y_prob: ArrayLike, groups: ArrayLike | Mapping[str, ArrayLike]
) -> list[GroupError]:
    """Smooth calibration error within every group, the largest part of the whole first.

    The first entry's ``part`` is the smooth multicalibration error: the largest mean of c(x) h(p) (y - p) over groups c
    and test functions h. A small group may have a large error by chance alone: see `calibration_test`.

    Parameters
    ----------
    groups
        One group a sample, shape (n,), or masks of shape (n,) by name, which may overlap; empty groups are left out.

    References
    ----------
    Hebert-Johnson, Kim, Reingold and Rothblum 2018, arXiv 1711.08513; smooth test functions after Blasiok et al. 2023.
    """
    y, p = paired(y_true, y_prob)
    found = []
    for name, mask in _masks(groups, len(y)).items():
        n = int(mask.sum())
        if n:
            value = smooth_ce(y[mask], p[mask])
            found.append(GroupError(name, n, n / len(y), value, n / len(y) * value))
    if not found:
        raise DataError("Every group is empty; a mask that is true somewhere is needed.")
    return sorted(found, key=lambda one: (-one.part, one.group))


def _masks(groups: ArrayLike | Mapping[str, ArrayLike], n: int) -> dict[str, NDArray[np.bool_]]:
    if isinstance(groups, Mapping):
        found = {str(name): np.asarray(mask) for name, mask in groups.items()}
        for name, mask in found.items():
            if mask.shape != (n,) or mask.dtype != bool:
                raise DataError(
                    f"The mask of group {name!r} is {mask.dtype} of shape {mask.shape}; give {n} values True or False."
                )
        return found
    of = np.asarray(groups)
    if of.shape != (n,):
        raise DataError(f"groups has shape {of.shape} for {n} samples; give one group a sample, or masks by name.")
    return {str(name): of == name for name in np.unique(of)}


def _climb(start: NDArray[np.bool_], error: Any) -> tuple[NDArray[np.bool_], float]:
    chosen, now = start, -1.0
    if 0 < start.sum() < len(start):
        now = error(start)
    while True:
        near = [chosen ^ flip for flip in np.eye(len(chosen), dtype=bool)]
        values = [error(one) if 0 < one.sum() < len(one) else -1.0 for one in near]
        best = int(np.argmax(values))
        if values[best] <= now:
            return chosen, now
        chosen, now = near[best], values[best]


def _numbers(chosen: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(k) for k in np.flatnonzero(chosen))


def _classes(y_true: ArrayLike, proba: ArrayLike) -> tuple[NDArray[np.int64], Vector]:
    rows, y = np.asarray(proba, float), np.asarray(y_true)
    if y.ndim != 1 or not len(y):
        raise DataError(f"y_true has shape {y.shape}; give one class number a sample, at least one.")
    if rows.ndim != 2 or rows.shape[0] != len(y) or rows.shape[1] < 2:
        raise DataError(f"proba has shape {rows.shape} for {len(y)} labels; give one row a sample, one column a class.")
    if not np.isfinite(rows).all() or np.abs(rows.sum(axis=1) - 1).max() > 1e-5 or rows.min() < 0:
        raise DataError("Rows of proba are probabilities that sum to 1; apply a softmax to logits first.")
    if not np.issubdtype(y.dtype, np.number) or np.any(y != np.floor(y)) or y.min() < 0 or y.max() >= rows.shape[1]:
        raise DataError(f"Labels are class numbers 0 to {rows.shape[1] - 1}; encode names first.")
    return y.astype(np.int64), np.minimum(rows, 1.0)
