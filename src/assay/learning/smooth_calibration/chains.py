"""Compiled kernels on a sorted line: the Lipschitz test function, its projection, and exponential kernel sums.

The dual of the smooth calibration error is total-variation denoising with absolute loss: with cumulative residuals s_j
and slack d_j between neighbours,

    smCE = min over e of  sum_j |e_j - e_{j-1}| + sum_j d_j |e_j - s_j|,   e_0 = 0, e_m = s_m.

Message passing along the chain (Kolmogorov, Pock and Rolinek 2016, "Total variation on a tree") keeps one convex
piecewise linear function, whose slopes are the values of the test function: a step inserts one breakpoint at s_j and
cuts slope d_j off either end. Breakpoints never move, each is removed at most once, and their order is known
beforehand, so the queue is a tree of machine words over ranks: O(n log n) for any data, dominated by sorting.
"""

from __future__ import annotations

import numba as nb
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_DEBRUIJN = 0x03F79D71B4CB0A89
_FOUND = np.zeros(64, np.int64)
for _bit in range(64):
    _FOUND[((_DEBRUIJN << _bit) & 0xFFFFFFFFFFFFFFFF) >> 58] = _bit


@nb.njit(cache=True)
def _lowest(word):
    """Index of the lowest set bit of a word that has one."""
    alone = word & (~word + np.uint64(1))
    return _FOUND[np.int64((alone * np.uint64(_DEBRUIJN)) >> np.uint64(58))]


@nb.njit(cache=True)
def _highest(word):
    """Index of the highest set bit of a word that has one."""
    place = 0
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(step):
            word >>= np.uint64(step)
            place += step
    return place


@nb.njit(cache=True)
def _put(words, starts, rank):
    for level in range(len(starts)):
        words[starts[level] + (rank >> 6)] |= np.uint64(1) << np.uint64(rank & 63)
        rank >>= 6


@nb.njit(cache=True)
def _drop(words, starts, rank):
    for level in range(len(starts)):
        at = starts[level] + (rank >> 6)
        words[at] &= ~(np.uint64(1) << np.uint64(rank & 63))
        if words[at]:
            return
        rank >>= 6


@nb.njit(cache=True)
def _end(words, starts, first):
    """Smallest (``first``) or largest rank that is in; -1 when none is."""
    top = len(starts) - 1
    if not words[starts[top]]:
        return -1
    rank = 0
    for level in range(top, -1, -1):
        word = words[starts[level] + rank]
        rank = (rank << 6) + (_lowest(word) if first else _highest(word))
    return rank


@nb.njit(cache=True)
def _levels(n):
    """Where each level of the tree of words begins, and how many words there are."""
    count = 1
    size = (n + 63) >> 6
    while size > 1:
        size = (size + 63) >> 6
        count += 1
    starts = np.empty(count, np.int64)
    total, size = 0, n
    for level in range(count):
        size = (size + 63) >> 6
        starts[level] = total
        total += size
    return starts, total


@nb.njit(cache=True)
def _clips(s, d, order):
    """The forward pass: for every position the rank of its own s, and the ranks that bound e there.

    Returns (rank, low, high), shapes (m + 1,), (m,), (m,); entry 0 of the bounds is not used.
    """
    m = len(s) - 1
    rank = np.empty(m + 1, np.int32)
    for i in range(m + 1):
        rank[order[i]] = i
    starts, total = _levels(m + 1)
    words = np.zeros(total, np.uint64)
    mass = np.zeros(m + 1)
    low = np.empty(m, np.int32)
    high = np.empty(m, np.int32)
    first = last = np.int64(rank[0])
    mass[first] = 2.0
    _put(words, starts, first)
    for j in range(1, m):
        # More than 2 never binds: h lies in [-1, 1].
        slack = min(d[j - 1], 2.0)
        if slack <= 0.0:
            low[j], high[j] = 0, m
            continue
        at = np.int64(rank[j])
        mass[at] = 2.0 * slack
        _put(words, starts, at)
        first, last = min(first, at), max(last, at)
        left = slack
        while mass[first] <= left and first != last:
            left -= mass[first]
            _drop(words, starts, first)
            first = _end(words, starts, True)
        mass[first] -= left
        low[j] = first
        left = slack
        while mass[last] <= left and first != last:
            left -= mass[last]
            _drop(words, starts, last)
            last = _end(words, starts, False)
        mass[last] -= left
        high[j] = last
    return rank, low, high


@nb.njit(cache=True)
def lipschitz_value(s, d, order):
    """Value of `lipschitz_chain` alone, with less memory; parameters as there, w is the difference of s."""
    m = len(s) - 1
    rank, low, high = _clips(s, d, order)
    line = s[order]
    e = rank[m]
    value = 0.0
    for j in range(m - 1, 0, -1):
        before = min(max(e, low[j]), high[j])
        if before != e:
            value += abs(line[e] - line[before])
            e = before
        if e != rank[j]:
            value += min(d[j - 1], 2.0) * abs(s[j] - line[e])
    return value + abs(line[e] - s[0])


@nb.njit(cache=True)
def lipschitz_chain(w, s, d, order):
    """Maximise ``sum w_j h_j`` over |h_j| <= 1, |h_{j+1} - h_j| <= d_j.

    Parameters
    ----------
    w
        Weights, shape (m,), m >= 1.
    s
        ``0`` followed by the cumulative sums of w, shape (m + 1,).
    d
        Slack between neighbours, >= 0, shape (m - 1,).
    order
        Positions of s from smallest to largest, shape (m + 1,).

    Returns
    -------
    (dual value, h, flow)
        h of shape (m,) is feasible; flow of shape (m - 1,) is the multiplier of each difference.
    """
    m = len(w)
    rank, low, high = _clips(s, d, order)
    # e by rank, backwards; every e_j is some s_k, so comparisons below are exact.
    e = np.empty(m + 1, np.int64)
    e[0], e[m] = rank[0], rank[m]
    for j in range(m - 1, 0, -1):
        e[j] = min(max(e[j + 1], low[j]), high[j])
    flow = np.empty(max(m - 1, 0))
    value = 0.0
    for j in range(m, 0, -1):
        value += abs(s[order[e[j]]] - s[order[e[j - 1]]])
        if j < m:
            flow[j - 1] = s[j] - s[order[e[j]]]
            value += min(d[j - 1], 2.0) * abs(flow[j - 1])
    return value, _witness(e, rank, s, order, d), flow


@nb.njit(cache=True)
def _witness(e, rank, s, order, d):
    """A test function that meets complementary slackness: forwards the possible values, backwards a choice."""
    m = len(e) - 1
    low = np.empty(m)
    high = np.empty(m)
    for j in range(m):
        step = s[order[e[j + 1]]] - s[order[e[j]]]
        a, b = (1.0, 1.0) if step > 0 else ((-1.0, -1.0) if step < 0 else (-1.0, 1.0))
        if j:
            slack = min(d[j - 1], 2.0)
            gap = s[order[e[j]]] - s[j]
            lo, hi = low[j - 1] - slack, high[j - 1] + slack
            if gap > 0:
                lo = low[j - 1] + slack
            elif gap < 0:
                hi = high[j - 1] - slack
            # Rounding may part two sets that touch: the nearest point of [a, b] then stands for both.
            low[j], high[j] = min(max(lo, a), b), max(min(hi, b), a)
            if low[j] > high[j]:
                low[j] = high[j] = min(max(0.5 * (lo + hi), a), b)
        else:
            low[j], high[j] = a, b
    h = np.empty(m)
    h[m - 1] = min(max(0.0, low[m - 1]), high[m - 1])
    for j in range(m - 2, -1, -1):
        slack = min(d[j], 2.0)
        gap = s[order[e[j + 1]]] - s[j + 1]
        lo, hi = h[j + 1] - slack, h[j + 1] + slack
        if gap > 0:
            hi = lo
        elif gap < 0:
            lo = hi
        wanted = min(max(h[j + 1], lo), hi)
        inside = min(max(wanted, low[j]), high[j])
        # Feasible above all: |h_{j+1} - h_j| <= d_j.
        h[j] = min(max(inside, h[j + 1] - slack), h[j + 1] + slack)
    return h


@nb.njit(cache=True)
def merge_classes(zeros, ones):
    """Distinct values of two sorted arrays, and the sum of label minus value at each (not yet divided by n)."""
    n, k = len(zeros), len(ones)
    values = np.empty(n + k)
    sums = np.empty(n + k)
    i = j = m = 0
    while i < n or j < k:
        u = zeros[i] if j >= k or (i < n and zeros[i] <= ones[j]) else ones[j]
        total = 0.0
        while i < n and zeros[i] == u:
            total -= u
            i += 1
        while j < k and ones[j] == u:
            total += 1.0 - u
            j += 1
        values[m], sums[m] = u, total
        m += 1
    return values[:m], sums[:m]


@nb.njit(cache=True)
def merge_ties(u, r, order):
    """Distinct values of ``u`` in order, the sum of ``r`` at each, and for every position its value's index."""
    n = len(u)
    values = np.empty(n)
    sums = np.zeros(n)
    index = np.empty(n, np.int64)
    m = 0
    for i in range(n):
        at = order[i]
        if i == 0 or u[at] != values[m - 1]:
            values[m] = u[at]
            m += 1
        sums[m - 1] += r[at]
        index[at] = m - 1
    return values[:m].copy(), sums[:m].copy(), index


@nb.njit(cache=True)
def quadratic_chain(a, b, d, low, high):
    """Minimise ``sum a_j (k_j - b_j)^2`` over |k_{j+1} - k_j| <= d_j and low <= k_j <= high.

    Shapes (m,), (m,), (m - 1,); a_j > 0; bounds may be infinite. The derivative of a prefix's cost is increasing
    and piecewise linear with jumps: breakpoints lie on two stacks left and right of its zero, which move apart by d a
    step. What lies beyond a bound can never come back and is dropped.
    """
    m = len(a)
    best = np.empty(m)
    # A breakpoint: place (without the shift of its side), change of slope and of value, outward side minus inward side.
    lx, lc, lq = np.empty(2 * m + 2), np.empty(2 * m + 2), np.empty(2 * m + 2)
    rx, rc, rq = np.empty(2 * m + 2), np.empty(2 * m + 2), np.empty(2 * m + 2)
    left = right = 0
    shift_l = shift_r = 0.0
    z = b[0]
    slope_l = slope_r = 2.0 * a[0]
    value_l = value_r = 0.0
    for j in range(m):
        if j:
            shift_l -= d[j - 1]
            shift_r += d[j - 1]
            lx[left], lc[left], lq[left] = z - d[j - 1] - shift_l, slope_l, value_l
            rx[right], rc[right], rq[right] = z + d[j - 1] - shift_r, slope_r, value_r
            left += 1
            right += 1
            own = 2.0 * a[j]
            slope = own
            value_l = value_r = 0.0
            if b[j] < z - d[j - 1]:
                x = z - d[j - 1]
                value = own * (x - b[j])
                z = x - value / slope
                while left and z < lx[left - 1] + shift_l:
                    left -= 1
                    at = lx[left] + shift_l
                    value -= slope * (x - at)
                    x = at
                    slope_r = slope
                    slope += lc[left]
                    if value + lq[left] <= 0.0:
                        # The derivative jumps over 0 here.
                        z, value_l, value_r = at, value + lq[left], value
                        break
                    value += lq[left]
                    rx[right], rc[right], rq[right] = at - shift_r, -lc[left], -lq[left]
                    right += 1
                    z = x - value / slope
                    slope_r = slope
                else:
                    slope_r = slope
                slope_l = slope
            elif b[j] > z + d[j - 1]:
                x = z + d[j - 1]
                value = own * (x - b[j])
                z = x - value / slope
                while right and z > rx[right - 1] + shift_r:
                    right -= 1
                    at = rx[right] + shift_r
                    value -= slope * (x - at)
                    x = at
                    slope_l = slope
                    slope += rc[right]
                    if value + rq[right] >= 0.0:
                        z, value_l, value_r = at, value, value + rq[right]
                        break
                    value += rq[right]
                    lx[left], lc[left], lq[left] = at - shift_l, -rc[right], -rq[right]
                    left += 1
                    z = x - value / slope
                    slope_l = slope
                else:
                    slope_l = slope
                slope_r = slope
            else:
                z = b[j]
                slope_l = slope_r = own
        if z > high:
            while left and lx[left - 1] + shift_l > high:
                left -= 1
                at = lx[left] + shift_l
                value_l += lq[left] - slope_l * (z - at)
                slope_l += lc[left]
                z = at
            value_l -= slope_l * (z - high)
            z, right, slope_r, value_r = high, 0, 0.0, 0.0
        elif z < low:
            while right and rx[right - 1] + shift_r < low:
                right -= 1
                at = rx[right] + shift_r
                value_r += rq[right] - slope_r * (z - at)
                slope_r += rc[right]
                z = at
            value_r -= slope_r * (z - low)
            z, left, slope_l, value_l = low, 0, 0.0, 0.0
        best[j] = z
    for j in range(m - 2, -1, -1):
        best[j] = min(max(best[j], best[j + 1] - d[j]), best[j + 1] + d[j])
    return best


@nb.njit(cache=True)
def laplace_sum(u, r, width):
    """``sum over i != j of r_i r_j exp(-|u_i - u_j| / width)`` for sorted u, one pass."""
    total = carried = 0.0
    for i in range(1, len(u)):
        carried = (carried + r[i - 1]) * np.exp((u[i - 1] - u[i]) / width)
        total += r[i] * carried
    return 2.0 * total
