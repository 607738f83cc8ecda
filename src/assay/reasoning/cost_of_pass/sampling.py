"""The published choice of problems: a shuffle that gives the same problems everywhere."""

from __future__ import annotations

PUBLISHED_SEED = 102217


def published_sample(k: int, n: int, seed: int = PUBLISHED_SEED) -> list[int]:
    """First k of n indices after the published shuffle.

    Fisher-Yates from the end, driven by state <- 279470273 * state mod 2**32 and j = state mod (i + 1). Samples are
    nested: a smaller k is a prefix of a larger one.

    Parameters
    ----------
    k
        How many; more than n means all.
    n
        Size of the data set.
    seed
        First state.
    """
    order = list(range(n))
    state = seed
    for i in range(n - 1, 0, -1):
        state = 279470273 * state % 2**32
        j = state % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order[: max(0, k)]
