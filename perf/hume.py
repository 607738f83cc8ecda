"""Bootstrap intervals of 26 pairs: batched, beside a loop of scikit-learn and scipy on the very same draws.

python perf/hume.py                  # 10,000 resamples batched, 200 looped and scaled
python perf/hume.py --looped 1000
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.metrics import accuracy_score, average_precision_score, v_measure_score

from assay.representations.hume import bootstrap, methods, standin


def answers(pair, seed: int) -> list:
    """One simulated annotator's answers to a pair."""
    rng = np.random.default_rng([seed, *pair.key.encode()])
    return [methods.noisy(pair, item, 0.3, rng) for item in pair.items]


def batched(pair, given: list, drawn: np.ndarray) -> np.ndarray:
    """Resampled main scores at once."""
    kind = pair.spec.kind
    if kind == "clustering":
        return bootstrap.v_measures(pair.items[0].gold, given[0], drawn)
    gold = [item.gold for item in pair.items]
    if kind == "sts":
        return bootstrap.spearmans(given, gold, drawn)
    if kind == "reranking":
        return bootstrap.means([average_precision_score(g, a) for g, a in zip(gold, given)], drawn)
    return bootstrap.means([float(g == a) for g, a in zip(gold, given)], drawn)


def looped(pair, given: list, drawn: np.ndarray) -> np.ndarray:
    """The same, one resample after the other; AP of each query is worked out once here too."""
    kind = pair.spec.kind
    found = np.empty(len(drawn))
    if kind == "clustering":
        gold, groups = np.array(pair.items[0].gold), np.array(given[0])
        for i, at in enumerate(drawn):
            found[i] = v_measure_score(gold[at], groups[at])
        return found
    gold = np.array([item.gold for item in pair.items])
    values = np.array(given)
    if kind == "reranking":
        values = np.array([average_precision_score(g, a) for g, a in zip(gold, given)])
    for i, at in enumerate(drawn):
        if kind == "sts":
            result: Any = spearmanr(values[at], gold[at])
            found[i] = result.statistic
        elif kind == "reranking":
            found[i] = np.mean(values[at])
        else:
            found[i] = accuracy_score(gold[at], values[at])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--resamples", type=int, default=10_000)
    parser.add_argument("--looped", type=int, default=200)
    chosen = parser.parse_args()
    pairs = list(standin.study().pairs.values())
    given = {pair.key: answers(pair, 1) for pair in pairs}
    size = {p.key: len(p.items[0].texts) if p.spec.kind == "clustering" else len(p.items) for p in pairs}

    def draw(pair, resamples: int) -> np.ndarray:
        return bootstrap.draws(size[pair.key], resamples, np.random.default_rng([0, *pair.key.encode()]))

    for pair in pairs:  # warm up imports
        batched(pair, given[pair.key], draw(pair, 2))
        looped(pair, given[pair.key], draw(pair, 2))
    start, cpu = time.perf_counter(), time.process_time()
    for pair in pairs:
        batched(pair, given[pair.key], draw(pair, chosen.resamples))
    fast, fast_cpu = time.perf_counter() - start, time.process_time() - cpu
    slow_by_kind: dict[str, float] = {}
    apart = 0.0
    slow_start, slow_cpu_start = time.perf_counter(), time.process_time()
    for pair in pairs:
        drawn = draw(pair, chosen.looped)
        start = time.perf_counter()
        slow = looped(pair, given[pair.key], drawn)
        slow_by_kind[pair.spec.kind] = slow_by_kind.get(pair.spec.kind, 0.0) + time.perf_counter() - start
        quick = batched(pair, given[pair.key], drawn)
        apart = max(apart, float(np.abs(slow - quick).max()))
        ends = np.subtract(bootstrap.percentile(slow), bootstrap.percentile(quick))
        apart = max(apart, float(np.abs(ends).max()))
    slow_cpu = time.process_time() - slow_cpu_start
    whole = (time.perf_counter() - slow_start) * chosen.resamples / chosen.looped
    print(f"load {os.getloadavg()[0]:.1f}")
    print(f"batched: {chosen.resamples} resamples x {len(pairs)} pairs in {fast:.2f} s (CPU {fast_cpu:.2f} s)")
    print(
        f"looped: {whole:.0f} s (CPU {slow_cpu * chosen.resamples / chosen.looped:.0f} s), scaled from {chosen.looped}"
    )
    for kind, seconds in slow_by_kind.items():
        print(f"  {kind}: {seconds * chosen.resamples / chosen.looped:.1f} s")
    print(f"speed-up: {whole / fast:.0f}x wall, {slow_cpu * chosen.resamples / chosen.looped / fast_cpu:.0f}x CPU")
    print(f"largest difference of a resample or interval end: {apart:.1e}")


if __name__ == "__main__":
    main()
