"""Compiled parts of PU extra trees: a tree is six arrays, a forest the trees one after the other."""

from __future__ import annotations

import math

import numpy as np

from assay.core.errors import MissingExtra

try:
    from numba import njit
except ImportError:
    raise MissingExtra("PU extra trees", "pu_bench") from None


@njit(cache=True)
def impurity(labelled, unlabelled, n_labelled, n_unlabelled, prior, logistic, upu):
    """Impurity of a node from its counts."""
    w_p = prior * labelled / n_labelled
    total = unlabelled / n_unlabelled
    if total == 0.0:  # v* is infinite
        if not upu:
            return 0.0
        return -math.inf
    v = w_p / total
    if not upu and v > 1.0:
        return 0.0
    if logistic:
        if v > 1.0:
            return -math.inf
        if v <= 0.0 or v >= 1.0:
            return 0.0
        return total * -(v * math.log(v) + (1.0 - v) * math.log(1.0 - v))
    return 4.0 * total * v * (1.0 - v)


@njit(cache=True)
def _next(state):
    """SplitMix64: a generator of its own, handed on; numba's global one stays as it was."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True)
def cut_range(column, rows, start, stop):
    """(low, high) of a random cut: between the two smallest and the two largest distinct values; equal = constant."""
    a = math.inf
    b = math.inf
    c = -math.inf
    d = -math.inf
    for at in range(start, stop):
        value = column[rows[at]]
        if value < a:
            b = a
            a = value
        elif value < b and value != a:
            b = value
        if value > d:
            c = d
            d = value
        elif value > c and value != d:
            c = value
    if a == d:
        return a, a
    return a + 2.0 * (b - a) / 5.0, c + 3.0 * (d - c) / 5.0


@njit(cache=True)
def grow(x, labelled, prior, max_depth, min_leaf, tried, logistic, upu, seed):
    """One tree: (feature, cut, left, right, vote, value); feature -1 is a leaf, rows at or below the cut go left."""
    n, width = x.shape
    state = np.empty(1, np.uint64)
    state[0] = seed
    rows = np.arange(n)
    n_labelled = labelled.sum()
    n_unlabelled = n - n_labelled
    size = 2 * n + 1
    feature = np.full(size, -1, np.int32)
    cut = np.zeros(size, np.float64)
    left = np.zeros(size, np.int32)
    right = np.zeros(size, np.int32)
    vote = np.zeros(size, np.int8)
    value = np.zeros(size, np.float64)
    stack = np.empty((2 * max_depth + 4, 4), np.int64)
    stack[0] = (0, 0, n, 0)
    depth_of_stack, nodes = 1, 1
    order = np.arange(width)
    while depth_of_stack:
        depth_of_stack -= 1
        node, start, stop, depth = stack[depth_of_stack]
        in_l = 0
        for at in range(start, stop):
            in_l += labelled[rows[at]]
        in_u = stop - start - in_l
        mine = impurity(in_l, in_u, n_labelled, n_unlabelled, prior, logistic, upu)
        ends = depth >= max_depth or stop - start <= min_leaf
        if upu:
            ends = ends or (in_l == 0 and mine <= 0.0) or (in_l > 0 and mine == -math.inf)
        else:
            ends = ends or mine <= 0.0
        best = math.inf
        best_feature = -1
        best_cut = 0.0
        if not ends:
            looked = 0
            for k in range(width):
                swap = k + int(_next(state) * (width - k))
                order[k], order[swap] = order[swap], order[k]
                column = x[:, order[k]]
                low, high = cut_range(column, rows, start, stop)
                if low == high and column[rows[start]] == low:
                    same = True
                    for at in range(start, stop):
                        if column[rows[at]] != low:
                            same = False
                            break
                    if same:
                        continue
                where = low + _next(state) * (high - low)
                l_l = 0
                l_n = 0
                for at in range(start, stop):
                    if column[rows[at]] <= where:
                        l_n += 1
                        l_l += labelled[rows[at]]
                looked += 1
                if l_n > 0 and l_n < stop - start:
                    u_l = l_n - l_l
                    total = impurity(l_l, u_l, n_labelled, n_unlabelled, prior, logistic, upu) + impurity(
                        in_l - l_l, in_u - u_l, n_labelled, n_unlabelled, prior, logistic, upu
                    )
                    if total < best or best_feature < 0:
                        best = total
                        best_feature = order[k]
                        best_cut = where
                if looked >= tried:
                    break
        if best_feature < 0:
            v = math.inf if in_u == 0 else (prior * in_l / n_labelled) / (in_u / n_unlabelled)
            value[node] = min(1.0, v)
            if v == 0.5:
                vote[node] = 1 if _next(state) < 0.5 else 0
            else:
                vote[node] = 1 if v > 0.5 else 0
            continue
        column = x[:, best_feature]
        low_at, high_at = start, stop - 1
        while low_at <= high_at:
            if column[rows[low_at]] <= best_cut:
                low_at += 1
            else:
                rows[low_at], rows[high_at] = rows[high_at], rows[low_at]
                high_at -= 1
        feature[node] = best_feature
        cut[node] = best_cut
        left[node], right[node] = nodes, nodes + 1
        stack[depth_of_stack] = (nodes, start, low_at, depth + 1)
        stack[depth_of_stack + 1] = (nodes + 1, low_at, stop, depth + 1)
        depth_of_stack += 2
        nodes += 2
    return feature[:nodes], cut[:nodes], left[:nodes], right[:nodes], vote[:nodes], value[:nodes]


LANES = 16
"""Rows that go down a tree side by side."""


@njit(cache=True)
def descend(x, width, starts, feature, cut, left, vote, value):
    """(n, 2): votes for positive and the sum of leaf values over trees.

    ``x`` is flat, row after row. A leaf leads to itself, and a right child follows its left one: a step down is then
    arithmetic without a branch to guess wrong, and the steps of several rows overlap. Unsigned indices spare the check
    for negative ones.
    """
    n = len(x) // width
    out = np.zeros((n, 2), np.float64)
    node = np.zeros(LANES, np.uint32)
    at = np.zeros(LANES, np.uint64)
    for tree in range(len(starts) - 1):
        root = np.uint32(starts[tree])
        for first in range(0, n, LANES):
            rows = min(LANES, n - first)
            for k in range(LANES):
                node[k] = root
                # Lanes beyond the last row follow it: nobody reads them.
                at[k] = np.uint64(min(first + k, n - 1) * width)
            moved = np.uint32(1)
            while moved:
                moved = np.uint32(0)
                for k in range(LANES):
                    here = node[k]
                    there = left[here] + np.uint32(x[at[k] + np.uint64(feature[here])] > cut[here])
                    moved |= here ^ there
                    node[k] = there
            for k in range(rows):
                out[first + k, 0] += vote[node[k]]
                out[first + k, 1] += value[node[k]]
    return out


def flattened(trees):
    """Trees of `grow` one after the other, as `descend` takes them: (starts, feature, cut, left, vote, value)."""
    starts = np.cumsum([0, *(len(tree[0]) for tree in trees)])
    feature, cut, left, _, vote, value = (np.concatenate([tree[part] for tree in trees]) for part in range(6))
    leaf = feature < 0
    # x <= cut for a float32 x exactly where x <= the largest float32 that is not above the cut.
    low = cut.astype(np.float32)
    low = np.where(low > cut, np.nextafter(low, np.float32(-np.inf)), low)
    home = np.repeat(starts[:-1], np.diff(starts))
    return (
        starts,
        np.where(leaf, 0, feature).astype(np.uint32),
        np.where(leaf, np.float32(np.inf), low),
        np.where(leaf, np.arange(len(leaf)), left + home).astype(np.uint32),
        vote,
        value,
    )
