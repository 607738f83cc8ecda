"""All analyses of the paper on 60,000 records: matrix forms beside a plain-loop reading of the definitions.

Both run here, one after the other, on the same records, and must agree to 1e-12.

    python perf/cost_of_pass.py [--problems 750] [--runs 8]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from assay.reasoning.cost_of_pass import simulate
from assay.reasoning.cost_of_pass.estimator import CostOfPass
from assay.reasoning.cost_of_pass.reference import PlainLoops

EXPERT = 20.0


def main() -> None:
    """Print times, ratios and the largest difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--problems", type=int, default=750)
    parser.add_argument("--runs", type=int, default=8)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    frame = simulate.draw(simulate.truth(rng.normal(1.5, 2.0, arguments.problems)), arguments.runs, rng)
    rows = frame.to_dicts()
    print(f"{frame.height} records: 10 models x {arguments.problems} problems x {arguments.runs} runs")

    start = time.perf_counter()
    cop = CostOfPass(frame, expert_cost=EXPERT)
    loaded = time.perf_counter()
    mine = {
        "frontier": [cop.frontier().value],
        "each alone": [cop.frontier([name]).value for name in cop.cells.strategies],
        "families": _values(cop, "family"),
        "leave one out": _values(cop, "model"),
        "progress": cop.progress().get_column("frontier").to_list(),
    }
    analysed = time.perf_counter()

    plain = PlainLoops(rows, EXPERT)
    theirs = {
        "frontier": [plain.frontier()],
        "each alone": [plain.frontier([name]) for name in plain.models()],
        "families": list(plain.essentialness("family").values()),
        "leave one out": list(plain.essentialness("model").values()),
        "progress": plain.progress(),
    }
    looped = time.perf_counter()
    worst = max(abs(a - b) for name in mine for a, b in zip(mine[name], theirs[name], strict=True))
    fast, whole, slow = analysed - loaded, analysed - start, looped - analysed
    print(f"matrix forms    {whole:8.4f} s with reading the records, {fast:.4f} s for the analyses")
    print(f"plain loops     {slow:8.4f} s, records already dictionaries in memory")
    print(f"ratio           {slow / whole:8.0f} with reading, {slow / fast:.0f} without")
    print(f"largest difference {worst:.1e}")
    if worst > 1e-12:
        raise SystemExit("the two do not agree")

    for unit in ("problems", "runs", "nested"):
        start = time.perf_counter()
        cop.bootstrap(10_000, unit)
        print(f"10,000 bootstraps of {unit:<8} {time.perf_counter() - start:8.3f} s")
    small = CostOfPass(frame.filter(frame["problem"] < 128), expert_cost=EXPERT)
    for unit in ("problems", "runs", "nested"):
        start = time.perf_counter()
        small.bootstrap(10_000, unit)
        print(f"10,000 bootstraps of {unit:<8} {time.perf_counter() - start:8.3f} s on 128 problems (the paper's size)")


def _values(cop: CostOfPass, groups: str) -> list[float]:
    return cop.essentialness(groups).sort("group").get_column("essentialness").to_list()


if __name__ == "__main__":
    main()
