"""Forest of honest trees for a local ratio of means: half of a tree's rows place splits, the others fill leaves.

The gradient trick of generalised random forests (Athey, Tibshirani and Wager 2019): a node is split where the means of
its pseudo-outcomes differ most.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]
_BALANCE = 0.05
_PAIR = 2


class HonestForest:
    """Estimates sum of numerators / sum of denominators near a point.

    Parameters
    ----------
    trees
        How many; each on half of the rows, two trees on the same half (but for an odd last one): what differs between
        pairs beyond what differs within them is the variance of sampling (bootstrap of little bags).
    min_node
        Nodes up to this size are not split.
    """

    def __init__(self, trees: int, min_node: int) -> None:
        self.trees, self.min_node = trees, min_node

    def fit(self, X: Array, numerator: Array, denominator: Array, rng: np.random.Generator) -> HonestForest:
        """Grow all trees on X (n, p) and the parts of the score (n,)."""
        X = np.ascontiguousarray(X, float)
        n, p = X.shape
        self.overall = float(numerator.sum() / denominator.sum())
        mtry = min(p, int(np.ceil(np.sqrt(p) + 20)))
        grown = []
        drawn = np.arange(n)
        for tree in range(self.trees):
            if tree % _PAIR == 0:
                drawn = rng.permutation(n)[: max(2, n // 2)]
            rows = rng.permutation(drawn)
            half = len(rows) // 2
            grown.append(
                _grow(X, numerator, denominator, rows[:half].copy(), rows[half:].copy(), self.min_node, _BALANCE, mtry,
                      int(rng.integers(2**31)))
            )  # fmt: skip
        self.starts = np.cumsum([0, *(len(tree[0]) for tree in grown)])
        self.feature, self.threshold, self.left, self.right, self.top, self.bottom = (
            np.concatenate([tree[i] for tree in grown]) for i in range(6)
        )
        return self

    def predict(self, X: Array) -> Array:
        """Ratio at each row; the overall one where no tree has a filled leaf; shape (m,)."""
        top, bottom = _predict(*self._arguments(X))
        return np.divide(top, bottom, out=np.full(len(top), self.overall), where=bottom > 0)

    def variance(self, X: Array) -> Array:
        """Estimated sampling variance of `predict`; NaN where fewer than two pairs of trees have filled leaves.

        Variance between pairs less the noise within them, moved off zero by the mean of a normal law cut there
        (Athey, Tibshirani and Wager 2019, section 4.1, as their software corrects it).
        """
        from scipy.stats import norm

        between, within, pairs = _pairs(*self._arguments(X), self.predict(X))  # pyright: ignore[reportCallIssue]
        with np.errstate(divide="ignore", invalid="ignore"):
            difference = between - within
            error = np.maximum(between, within) * np.sqrt(2 / pairs)
            ratio = np.where(error > 0, difference / error, 0.0)
            found = difference + error * np.exp(norm.logpdf(ratio) - norm.logcdf(ratio))
        return np.where(pairs >= 2, np.maximum(found, 0.0), np.nan)

    def _arguments(self, X: Array) -> tuple[Array, ...]:
        return (
            np.ascontiguousarray(X, float), self.starts, self.feature, self.threshold, self.left, self.right, self.top,
            self.bottom,
        )  # fmt: skip


@njit(cache=True)
def _grow(X, numerator, denominator, rows, others, min_node, balance, mtry, seed):
    """Arrays of one tree: feature (-1 in leaves), threshold, children, leaf means of numerator and denominator."""
    np.random.seed(seed)  # noqa: NPY002 - numba's own generator of this call, not the process's
    p = X.shape[1]
    most = 2 * len(rows) + 1
    feature = np.full(most, -1, np.int32)
    threshold = np.zeros(most)
    left = np.zeros(most, np.int32)
    right = np.zeros(most, np.int32)
    start = np.zeros(most, np.int64)
    stop = np.zeros(most, np.int64)
    stop[0] = len(rows)
    count = 1
    node = 0
    rho = np.empty(len(rows))
    columns = np.arange(p)
    while node < count:
        a, b = start[node], stop[node]
        m = b - a
        if m > min_node:
            top = 0.0
            bottom = 0.0
            for i in range(a, b):
                top += numerator[rows[i]]
                bottom += denominator[rows[i]]
            tau = top / bottom if bottom > 0 else 0.0
            total = 0.0
            for i in range(a, b):
                rho[i] = numerator[rows[i]] - tau * denominator[rows[i]]
                total += rho[i]
            smallest = max(1, int(np.ceil(balance * m)))
            best = total * total / m + 1e-12
            best_feature = -1
            best_threshold = 0.0
            for j in range(mtry):
                k = np.random.randint(j, p)  # noqa: NPY002
                columns[j], columns[k] = columns[k], columns[j]
                f = columns[j]
                values = np.empty(m)
                for i in range(m):
                    values[i] = X[rows[a + i], f]
                order = np.argsort(values)
                running = 0.0
                for i in range(m - 1):
                    running += rho[a + order[i]]
                    here, following = values[order[i]], values[order[i + 1]]
                    if here == following or i + 1 < smallest or m - i - 1 < smallest:
                        continue
                    rest = total - running
                    gain = running * running / (i + 1) + rest * rest / (m - i - 1)
                    if gain > best:
                        best = gain
                        best_feature = f
                        best_threshold = here
            if best_feature >= 0:
                feature[node] = best_feature
                threshold[node] = best_threshold
                cut = a
                for i in range(a, b):
                    if X[rows[i], best_feature] <= best_threshold:
                        rows[i], rows[cut] = rows[cut], rows[i]
                        cut += 1
                left[node] = count
                right[node] = count + 1
                start[count], stop[count] = a, cut
                start[count + 1], stop[count + 1] = cut, b
                count += 2
        node += 1
    tops = np.zeros(count)
    bottoms = np.zeros(count)
    filled = np.zeros(count)
    for row in others:
        at = 0
        while feature[at] >= 0:
            at = left[at] if X[row, feature[at]] <= threshold[at] else right[at]
        tops[at] += numerator[row]
        bottoms[at] += denominator[row]
        filled[at] += 1
    for i in range(count):
        if filled[i] > 0:
            tops[i] /= filled[i]
            bottoms[i] /= filled[i]
    return feature[:count].copy(), threshold[:count].copy(), left[:count].copy(), right[:count].copy(), tops, bottoms


@njit(cache=True)
def _predict(X, starts, feature, threshold, left, right, top, bottom):
    """Sums over trees of the leaf means that each row falls into."""
    tops = np.zeros(len(X))
    bottoms = np.zeros(len(X))
    for tree in range(len(starts) - 1):
        first = starts[tree]
        for row in range(len(X)):
            at = first
            while feature[at] >= 0:
                at = first + (left[at] if X[row, feature[at]] <= threshold[at] else right[at])
            tops[row] += top[at]
            bottoms[row] += bottom[at]
    return tops, bottoms


@njit(cache=True)
def _pairs(X, starts, feature, threshold, left, right, top, bottom, ratio):
    """Mean square of pair means of the centred score, noise of a pair's mean, and pairs that count; per row."""
    trees = len(starts) - 1
    between = np.zeros(len(X))
    within = np.zeros(len(X))
    counts = np.zeros(len(X))
    for row in range(len(X)):
        scale = 0.0
        filled = 0
        for first in range(0, trees - 1, 2):
            values = np.zeros(2)
            good = True
            for k in range(2):
                begin = starts[first + k]
                at = begin
                while feature[at] >= 0:
                    at = begin + (left[at] if X[row, feature[at]] <= threshold[at] else right[at])
                if bottom[at] <= 0:
                    good = False
                values[k] = top[at] - ratio[row] * bottom[at]
                if bottom[at] > 0:
                    scale += bottom[at]
                    filled += 1
            if good:
                mean = (values[0] + values[1]) / 2
                between[row] += mean * mean
                # Variance of one tree within its pair, halved for the mean of two.
                within[row] += (values[0] - values[1]) ** 2 / 4
                counts[row] += 1
        if counts[row] > 0 and filled > 0:
            scale /= filled
            between[row] /= counts[row] * scale * scale
            within[row] /= counts[row] * scale * scale
    return between, within, counts
