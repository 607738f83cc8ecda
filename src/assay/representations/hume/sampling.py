"""Down-sampling of a pair to a human study, and how many items a study needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from assay.core.errors import UsageError
from assay.core.stats.intervals import critical, fisher_z, wilson
from assay.representations.hume.items import Item, PairItems

AP_SPREAD = 0.25
"""Standard deviation of a query's average precision that plans assume: none is published."""

_STRATA = 5


def sample(
    pair: PairItems, items: int, *, candidates: int = 7, relevant: int = 3, clusters: int = 6, seed: int = 0
) -> PairItems:
    """At most ``items`` items, balanced over labels, score quintiles or clusters; the ids stay.

    In clustering ``items`` are the texts of one problem, over ``clusters`` labels. A query keeps at most ``relevant``
    relevant documents of ``candidates``.

    Raises
    ------
    UsageError
        The pair cannot give such a sample: no item with enough documents, fewer than two labels.
    """
    if items < 2:
        raise UsageError(f"A study of {items} items measures nothing; take 20 to 50.")
    rng = np.random.default_rng([seed, *pair.key.encode()])
    kind = pair.spec.kind
    if kind == "clustering":
        chosen: list[Item] = [_problem(pair, items, clusters, rng)]
    elif kind == "reranking":
        usable = [item for item in pair.items if sum(item.gold) and len(item.gold) >= candidates]
        if not usable:
            raise UsageError(f"{pair.key} has no query with {candidates} documents and a relevant one among them.")
        picked = rng.permutation(len(usable))[:items]
        chosen = [_cut(usable[i], candidates, relevant, rng) for i in sorted(picked)]
    else:
        strata = _quintiles(pair.items) if kind == "sts" else [item.gold for item in pair.items]
        chosen = [pair.items[i] for i in balanced(strata, items, rng)]
    return replace(pair, items=tuple(chosen), spec=replace(pair.spec, items=items))


def balanced(strata: Sequence[Any], size: int, rng: np.random.Generator) -> list[int]:
    """Places of ``size`` items, as evenly over strata as they allow, in their order."""
    left = {s: [i for i in rng.permutation(len(strata)) if strata[i] == s] for s in sorted(set(strata), key=str)}
    chosen: list[int] = []
    while len(chosen) < size and any(left.values()):
        for places in left.values():
            if places and len(chosen) < size:
                chosen.append(int(places.pop()))
    return sorted(chosen)


def items_for(kind: str, half_width: float, expected: float, level: float = 0.95) -> int:
    """Smallest number of items whose interval around ``expected`` is at most ``half_width`` to each side on average.

    Wilson for accuracy, Fisher z for Spearman, normal with standard deviation `AP_SPREAD` for MAP over queries. For
    V-measure there is no such rule.
    """
    if not 0 < half_width < 0.5 or not 0 <= expected <= 1:
        raise UsageError(f"half_width={half_width} must lie in (0, 0.5), expected={expected} in [0, 1].")
    if kind == "classification":
        return _smallest(lambda n: wilson(expected * n, n, level), half_width)
    if kind == "sts":
        return _smallest(lambda n: fisher_z(expected, n, level), half_width)
    if kind == "reranking":
        return int(np.ceil((critical(level) * AP_SPREAD / half_width) ** 2))
    raise UsageError("The items that a V-measure needs follow no known rule; run a pilot and look at its bootstrap.")


def items_for_gap(gap: float, expected: float, power: float = 0.8, level: float = 0.95) -> int:
    """Items at which a gap in accuracy between two independent systems is seen with that power (two-sided)."""
    other = min(max(expected + gap, 0.0), 1.0)
    z = critical(level) + critical(2 * power - 1)
    spread = expected * (1 - expected) + other * (1 - other)
    return int(np.ceil(z**2 * spread / (other - expected) ** 2))


def _smallest(interval: Callable[[int], tuple[Any, Any]], half_width: float) -> int:
    def wide(n: int) -> bool:
        low, high = interval(n)
        return not float(high) - float(low) <= 2 * half_width

    high = 4
    while wide(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if wide(middle) else (low, middle)
    return high


def _problem(pair: PairItems, items: int, clusters: int, rng: np.random.Generator) -> Item:
    texts = [(t, g) for item in pair.items for t, g in zip(item.texts, item.gold) if t.strip()]
    size = max(1, items // clusters)
    counts = {g: sum(x == g for _, x in texts) for g in sorted({g for _, g in texts})}
    full = [g for g, n in counts.items() if n >= size]
    if len(full) < 2:
        raise UsageError(f"{pair.key} has fewer than two labels with {size} texts; take fewer items or more clusters.")
    kept = [full[i] for i in sorted(rng.permutation(len(full))[:clusters])]
    inside = [i for i, (_, g) in enumerate(texts) if g in kept]
    places = [inside[i] for i in balanced([texts[i][1] for i in inside], size * len(kept), rng)]
    order = [places[i] for i in rng.permutation(len(places))]
    return Item(pair.items[0].id, tuple(texts[i][0] for i in order), tuple(texts[i][1] for i in order))


def _cut(item: Item, candidates: int, relevant: int, rng: np.random.Generator) -> Item:
    right = [i for i, g in enumerate(item.gold) if g]
    wrong = [i for i, g in enumerate(item.gold) if not g]
    right = [right[i] for i in rng.permutation(len(right))[:relevant]]
    wrong = [wrong[i] for i in rng.permutation(len(wrong))[: candidates - len(right)]]
    kept = sorted([*right, *wrong])
    texts = (item.texts[0], *(item.texts[1 + i] for i in kept))
    return Item(item.id, texts, tuple(item.gold[i] for i in kept), tuple(item.ids[i] for i in kept))


def _quintiles(items: Sequence[Item]) -> list[int]:
    gold = np.array([item.gold for item in items], float)
    edges = np.quantile(gold, np.arange(1, _STRATA) / _STRATA)
    return [int(place) for place in np.searchsorted(edges, gold, side="right")]
