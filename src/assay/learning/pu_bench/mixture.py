"""Two more estimates of the class prior: by subdomains of a tree (TIcE) and by kernel means (KM2)."""

from __future__ import annotations

import heapq
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.learning.pu_bench.errors import BadInput

WIDTHS = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Widths of the kernel that are tried, as multiples of the median distance."""
_LEAST, _MOST = 0.01, 0.99


def _checked(X: ArrayLike, s: ArrayLike, least: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    flat = np.asarray(X, float).reshape(len(np.asarray(X)), -1)
    labelled = np.asarray(s) == 1
    if len(labelled) != len(flat):
        raise BadInput(f"s has {len(labelled)} entries for {len(flat)} rows of X.")
    if not np.isfinite(flat).all():
        raise BadInput("X holds NaN or infinite values; impute them first.")
    if min(int(labelled.sum()), int((~labelled).sum())) < least:
        raise BadInput(
            f"The prior cannot be estimated from fewer than {least} labelled and {least} unlabelled rows; give prior=."
        )
    return flat, labelled


def prior_of_frequency(c: float, n_labelled: int, n_unlabelled: int) -> float:
    """Share of positives among unlabelled rows, from the share c of labelled rows among all positives.

    It holds for one sample and for two: the positives of both together are ``n_labelled / c``.
    """
    return float(np.clip(n_labelled * (1 - c) / (c * n_unlabelled), _LEAST, _MOST))


class TIcEPrior:
    """The prior by the labelled share of subdomains (Bekker and Davis 2018, TIcE, aaai.v32i1.11715).

    Where nearly all rows are positive the labelled share is the label frequency. A tree that is grown on one fold
    seeks such places; on the others the lower Chebyshev bound of each of its nodes is computed, and the largest is
    taken. The mean over folds is the label frequency; a second round uses it for the variance. A lower bound of
    the label frequency is an upper one of the prior: with few rows it overstates.

    Parameters
    ----------
    folds
        Each grows a tree, whose bounds come from the others.
    max_splits
        Nodes split a tree, the most promising first.
    least
        Rows a node must have to count.
    smoothing
        Unlabelled rows added to a node when splits are judged: small nodes promise less.
    delta
        Chance of failure of a bound; None = max(0.025, 1 / (1 + 0.004 rows)).
    random_state
        Of the folds.

    Attributes
    ----------
    c_, prior_
        Label frequency; share of positives among unlabelled rows.
    """

    def __init__(
        self, folds: int = 2, max_splits: int = 200, least: int = 10, smoothing: float = 5.0,
        delta: float | None = None, random_state: int | None = 0,
    ) -> None:  # fmt: skip
        self.folds, self.max_splits, self.least, self.smoothing = folds, max_splits, least, smoothing
        self.delta, self.random_state = delta, random_state

    def fit(self, X: ArrayLike, s: ArrayLike, groups: ArrayLike | None = None) -> TIcEPrior:
        """Estimate from features (n, ...) and labels; ``groups`` keeps copies of a row in one fold."""
        from assay.learning.pu_bench.prior import fold_of

        if self.folds < 2 or self.max_splits < 1 or (self.delta is not None and not 0 < self.delta < 1):
            raise BadInput(
                f"TIcE needs folds >= 2, max_splits >= 1 and delta in (0, 1); got {self.folds}, {self.max_splits}, "
                f"{self.delta}."
            )
        x, labelled = _checked(X, s, 2)
        folds = min(self.folds, int(labelled.sum()), int((~labelled).sum()))
        fold = fold_of(labelled, folds, groups, np.random.default_rng(self.random_state))
        trees = [self._nodes(x, labelled, fold == at, fold != at) for at in range(folds)]
        c = 0.5
        for _ in range(2):
            c = float(np.mean([self._largest_bound(counts, c) for counts in trees]))
        # No less than if all rows were positive.
        self.c_ = float(np.clip(max(c, labelled.mean()), 1e-6, 1.0))
        self.prior_ = prior_of_frequency(self.c_, int(labelled.sum()), int((~labelled).sum()))
        return self

    def _largest_bound(self, counts: NDArray[np.int64], c: float) -> float:
        rows, labelled = counts[:, 0], counts[:, 1]
        usable = rows >= min(self.least, rows[0])
        n, of_l = rows[usable], labelled[usable]
        # The first node holds all rows: the chance of failure is that of the whole.
        delta = self.delta if self.delta is not None else max(0.025, 1 / (1 + 0.004 * rows[0]))
        return float((of_l / n - np.sqrt(c * (1 - c) * (1 - delta) / (delta * n))).max())

    def _nodes(
        self, x: NDArray, labelled: NDArray[np.bool_], grown: NDArray[np.bool_], held: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """(rows, labelled rows) held out in every node of a tree that the other rows grow; all held-out rows first."""
        mine, others = np.flatnonzero(grown), np.flatnonzero(held)
        counts = [(len(others), int(labelled[others].sum()))]
        order = 0
        heap = [(0.0, order, mine, others)]
        for _ in range(self.max_splits):
            if not heap:
                break
            _, _, rows, rest = heapq.heappop(heap)
            found = self._split(x[rows], labelled[rows])
            if found is None:
                continue
            feature, cut = found
            for side in (True, False):
                part = rows[(x[rows, feature] <= cut) == side]
                kept = rest[(x[rest, feature] <= cut) == side]
                counts.append((len(kept), int(labelled[kept].sum())))
                if len(part) >= 2 * self.least and labelled[part].any():
                    order += 1
                    promise = labelled[part].sum() / (len(part) + self.smoothing)
                    heapq.heappush(heap, (-float(promise), order, part, kept))
        return np.array(counts, np.int64)

    def _split(self, x: NDArray, labelled: NDArray[np.bool_]) -> tuple[int, float] | None:
        """Feature and cut, at a quartile, whose better side promises most; None where nothing can be parted."""
        best, found = -1.0, None
        total, of_l = len(x), int(labelled.sum())
        for cuts in np.quantile(x, (0.25, 0.5, 0.75), axis=0, method="lower"):
            low = x <= cuts
            n = low.sum(0)
            n_l = low[labelled].sum(0)
            promise = np.maximum(n_l / (n + self.smoothing), (of_l - n_l) / (total - n + self.smoothing))
            promise[(n < self.least) | (total - n < self.least)] = -1.0
            at = int(promise.argmax())
            if promise[at] > best:
                best, found = float(promise[at]), (at, float(cuts[at]))
        return found


class KernelMeanPrior:
    """The prior by kernel means (Ramaswamy, Scott and Tewari 2016, arXiv 1603.02501, its KM2).

    The other class's mean lies on the ray from the labelled mean through the unlabelled one. Walking along it, lambda
    from 1 on, the distance to what any mixture of rows can reach stays 0 and then grows; where its slope passes a
    threshold the mixture ends, and the prior is 1 - 1 / lambda.

    Parameters
    ----------
    rows
        Labelled, and unlabelled, rows taken at most: the cost grows with the cube.
    random_state
        Of this choice.

    Attributes
    ----------
    prior_, width_
        Estimate; width of the Gaussian kernel, which parts the two samples best.
    """

    def __init__(self, rows: int = 300, random_state: int | None = 0) -> None:
        self.rows, self.random_state = rows, random_state

    def fit(self, X: ArrayLike, s: ArrayLike) -> KernelMeanPrior:
        """Estimate from features (n, ...) and labels; features are standardised."""
        x, labelled = _checked(X, s, 2)
        rng = np.random.default_rng(self.random_state)
        spread = x.std(0)
        x = (x - x.mean(0)) / np.where(spread > 0, spread, 1)
        parts = [rng.permutation(np.flatnonzero(side))[: self.rows] for side in (~labelled, labelled)]
        of_u, of_l = len(parts[0]), len(parts[1])
        x = x[np.concatenate(parts)]
        toward_u = np.r_[np.full(of_u, 1 / of_u), np.zeros(of_l)]
        toward_l = np.r_[np.zeros(of_u), np.full(of_l, 1 / of_l)]
        apart = toward_u - toward_l
        squared = np.maximum(((x[:, None] - x[None]) ** 2).sum(2) if x.shape[1] < 4 else _squared(x), 0.0)
        middle = math.sqrt(float(np.median(squared[squared > 0]))) if (squared > 0).any() else 1.0
        best, kernel = -1.0, np.ones_like(squared)
        for width in WIDTHS:
            tried = np.exp(-squared / (2 * (width * middle) ** 2))
            gap = float(apart @ tried @ apart)
            if gap > best:
                best, kernel, self.width_ = gap, tried, width * middle
        noise = 1 / math.sqrt(min(of_u, of_l))
        threshold = 0.8 * noise + 0.2 * math.sqrt(max(best, 0.0))
        slope = _Slope(kernel, toward_u, toward_l)
        low, high = 1.0, 1 / (1 - _MOST)
        # The slope never falls: halve in 1 / lambda, which is one less the prior.
        for _ in range(12):
            at = 2 / (1 / low + 1 / high)
            if slope(at) >= threshold:
                high = at
            else:
                low = at
        self.prior_ = float(np.clip(1 - (1 / low + 1 / high) / 2, _LEAST, _MOST))
        return self


def _squared(x: NDArray[np.float64]) -> NDArray[np.float64]:
    norm = (x**2).sum(1)
    return norm[:, None] + norm[None] - 2 * x @ x.T


class _Slope:
    """Slope, at lambda, of the distance from a point of the ray to the convex hull of the rows."""

    def __init__(self, kernel: NDArray, toward_u: NDArray, toward_l: NDArray) -> None:
        value, vector = np.linalg.eigh(kernel)
        kept = value > 1e-7 * value[-1]
        # Coordinates of the rows in the span that matters, (rank, rows).
        self.rows = np.sqrt(value[kept])[:, None] * vector[:, kept].T
        self.of_u, self.of_l = self.rows @ toward_u, self.rows @ toward_l
        self.sum = 1e3 * np.ones(self.rows.shape[1])

    def __call__(self, at: float) -> float:
        from scipy.optimize import nnls

        goal = at * self.of_u + (1 - at) * self.of_l
        # A heavy last equation makes the weights sum to one.
        weight = nnls(np.vstack([self.rows, self.sum]), np.r_[goal, self.sum[0]], maxiter=50 * len(self.sum))[0]
        left = goal - self.rows @ (weight / weight.sum())
        size = float(np.linalg.norm(left))
        return float(left @ (self.of_u - self.of_l)) / size if size > 1e-9 else 0.0
