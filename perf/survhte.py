"""survhte beside what it replaces, in one run: pseudo-observations, concordance, survival forests, the synthetic suite.

Processor seconds of one process without threads, so that a busy machine changes little. Writes what it measured between
the marks in the room's README. pycox is asked for by folder, for it declares more than its concordance needs:

    pip install --no-deps --target FOLDER pycox==0.3.0 torchtuples==0.2.2 feather-format
    OMP_NUM_THREADS=1 python perf/survhte.py [--rows 1000] [--pycox FOLDER] [--write]
    OMP_NUM_THREADS=1 python perf/survhte.py --pycox FOLDER --networks 1500
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from assay.learning.survhte import synthetic
from assay.learning.survhte.base import surv
from assay.learning.survhte.data import make_survhte
from assay.learning.survhte.imputation import KaplanMeier, impute
from assay.learning.survhte.scoring import concordance_td, grid_index
from assay.learning.survhte.survival_models import SurvivalForest

README = Path(__file__).parents[1] / "src/assay/learning/survhte/README.md"
START, END = "<!-- measured -->", "<!-- /measured -->"


def rebuilt(time_: np.ndarray, event: np.ndarray) -> np.ndarray:
    """Pseudo-observations by their definition: both curves built anew, with NumPy, for every censored row."""
    done = time_.copy()
    n = len(time_)
    for i in np.flatnonzero(event == 0):
        others = np.arange(n) != i
        found = []
        for t, d in ((time_, event), (time_[others], event[others])):
            curve = KaplanMeier.fit(t, d)
            keep = curve.deaths > 0
            keep[-1] = True
            found.append(
                KaplanMeier(curve.times[keep], curve.survival[keep], curve.at_risk[keep], curve.deaths[keep]).mean
            )
        done[i] = max(n * found[0] - (n - 1) * found[1], time_[i])
    return done


def seconds(call, repeats: int = 3) -> float:
    """Fewest processor seconds of a few calls."""
    best = float("inf")
    for _ in range(repeats):
        begun = time.process_time()
        call()
        best = min(best, time.process_time() - begun)
    return best


def pseudo_observations(rows: int) -> list[tuple[str, str, str, str]]:
    """Both ways at one size, our own at 50,000."""
    data = make_survhte("RCT-50", "D", 50_000)
    t, d = data.time[:rows], data.event[:rows].astype(float)
    gap = float(np.abs(impute("pseudo_obs", t, d) - rebuilt(t, d)).max())
    ours, theirs = seconds(lambda: impute("pseudo_obs", t, d), 10), seconds(lambda: rebuilt(t, d), 1)
    many = seconds(lambda: impute("pseudo_obs", data.time, data.event.astype(float)), 1)
    return [
        (
            f"pseudo-observations, n = {rows}, difference {gap:.0e}",
            f"{1e3 * ours:.2f} ms",
            f"{theirs:.2f} s (curves rebuilt a row)",
            f"{theirs / ours:.0f} x",
        ),
        ("pseudo-observations, n = 50,000", f"{many:.2f} s", "-", "-"),
    ]


def concordance(pycox: str | None) -> list[tuple[str, str, str, str]]:
    """Time-dependent concordance of 2,500 rows, the suite's tested ones, and of 20,000."""
    found = []
    for rows in (2500, 20_000):
        rng = np.random.default_rng(0)
        time_, event = rng.exponential(size=rows), rng.uniform(size=rows) < 0.5
        grid = np.unique(np.quantile(time_, np.linspace(0, 1, 200)))
        curves = np.exp(-np.outer(rng.uniform(0.5, 2, rows), grid))
        index = grid_index(grid, time_)
        ours = seconds(lambda: concordance_td(curves, index, time_, event))  # noqa: B023 - called at once
        label = f"time-dependent concordance, {rows} rows"
        if pycox is None:
            found.append((label, f"{1e3 * ours:.0f} ms", "-", "-"))
            continue
        sys.path.insert(0, pycox)
        from pycox.evaluation.concordance import (  # pyright: ignore[reportMissingImports]
            concordance_td as antolini,
        )

        call = lambda: antolini(time_, event.astype(int), curves.T, index, "antolini")  # noqa: B023, E731
        other = call()
        gap = abs(concordance_td(curves, index, time_, event) - other)
        theirs = seconds(call)
        found.append(
            (f"{label}, difference {gap:.0e}", f"{1e3 * ours:.0f} ms", f"{1e3 * theirs:.0f} ms (pycox 0.3.0)",
             f"{theirs / ours:.1f} x")
        )  # fmt: skip
    return found


def forests(rows: int) -> list[tuple[str, str, str, str]]:
    """scikit-survival's forest on all distinct times and on a grid of 200, with the concordance of each."""
    from sksurv.ensemble import RandomSurvivalForest

    data = make_survhte("RCT-50", "A", 50_000)
    train, test = slice(0, rows), slice(rows, 2 * rows)
    begun = time.process_time()
    ours = SurvivalForest(trees=50, min_leaf=5, min_split=10, seed=0).fit(
        data.X[train], data.time[train], data.event[train]
    )
    curves = ours.survival(data.X[test])
    taken = time.process_time() - begun
    begun = time.process_time()
    forest = RandomSurvivalForest(50, min_samples_leaf=5, min_samples_split=10, n_jobs=1, random_state=0).fit(
        data.X[train], surv(data.event[train], data.time[train])
    )
    whole = np.asarray(forest.predict_survival_function(data.X[test], return_array=True), float)
    plain = time.process_time() - begun
    scores = [
        concordance_td(s, grid_index(grid, data.time[test]), data.time[test], data.event[test])
        for s, grid in ((curves, ours.times), (whole, np.asarray(forest.unique_times_, float)))
    ]
    label = f"survival forest, 50 trees, {rows} rows: concordance {scores[0]:.3f} against {scores[1]:.3f}"
    return [
        (label, f"{taken:.1f} s (200 times)", f"{plain:.1f} s (scikit-survival, all times)", f"{plain / taken:.1f} x")
    ]


def networks(pycox: str, rows: int, splits: int = 2) -> None:
    """Print errors of effects on RCT-50/E: Double-ML, S-survival on our DeepSurv and on pycox's, both untuned.

    The networks have the same layers, rate, batches and patience; what differs shows whether an error is ours.
    """
    sys.path.insert(0, pycox)
    import torch
    import torchtuples as tt  # pyright: ignore[reportMissingImports]
    from pycox.models import CoxPH  # pyright: ignore[reportMissingImports]

    from assay.learning.survhte.registry import get_method
    from assay.learning.survhte.scoring import rmst

    data = make_survhte("RCT-50", "E")
    assert data.exact is not None
    torch.set_num_threads(1)
    for split in range(splits):
        train, _, test = data.split(split, (rows, 1, 1500))
        exact = data.exact(data.estimand("rmst"))[test]
        t, d = data.time[train], data.event[train]
        errors = {"constant": float(exact.std())}
        for name, options in (
            ("double_ml+margin", {}),
            ("s_learner_survival+deepsurv", {"tune": False, "epochs": 100}),
        ):
            est = get_method(name, **options).set_params(random_state=2025 + split)
            found = est.fit(data.X[train], data.W[train], surv(d, t)).effect(data.X[test])
            errors[name] = float(np.sqrt(np.mean((found - exact) ** 2)))
        torch.manual_seed(split)
        Z = np.column_stack([data.X[train], data.W[train]]).astype("float32")
        middle, spread, fifth = Z.mean(axis=0), Z.std(axis=0), rows // 5
        pair = [
            ((Z[part] - middle) / spread, (t[part].astype("float32"), d[part].astype("float32")))
            for part in (slice(fifth, None), slice(0, fifth))
        ]
        net = tt.practical.MLPVanilla(6, [32, 32], 1, True, 0.1, output_bias=False)
        model = CoxPH(net, tt.optim.Adam(0.01))
        stop = tt.callbacks.EarlyStopping(patience=10)
        model.fit(*pair[0], 64, 100, [stop], verbose=False, val_data=pair[1])
        model.compute_baseline_hazards()
        areas = []
        for w in (1, 0):
            rows_w = (np.column_stack([data.X[test], np.full(len(test), w)]) - middle) / spread
            curves = model.predict_surv_df(rows_w.astype("float32"))
            grid = curves.index.to_numpy(float)
            areas.append(rmst(grid[grid > 0], curves.to_numpy(float).T[:, grid > 0], float(t.max())))
        errors["pycox"] = float(np.sqrt(np.mean((areas[0] - areas[1] - exact) ** 2)))
        print(rows, split, {name: round(value, 2) for name, value in errors.items()}, flush=True)


def suite() -> list[tuple[str, str, str, str]]:
    """All forty data sets of 50,000 rows."""
    begun = time.process_time()
    for config in synthetic.CONFIGS:
        for scenario in synthetic.SCENARIOS:
            synthetic.draw(config, scenario, synthetic.SIZE, np.random.RandomState(synthetic.SEED))
    return [("forty synthetic data sets of 50,000 rows", f"{time.process_time() - begun:.2f} s", "-", "-")]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--pycox", help="folder with pycox and torchtuples")
    parser.add_argument("--write", action="store_true", help="put the table into the room's README")
    parser.add_argument(
        "--networks", type=int, metavar="ROWS", help="compare errors with pycox's network, nothing else"
    )
    arguments = parser.parse_args()
    if arguments.networks:
        if not arguments.pycox:
            parser.error("--networks needs --pycox FOLDER")
        networks(arguments.pycox, arguments.networks)
        return
    rows = [*pseudo_observations(arguments.rows), *concordance(arguments.pycox), *forests(arguments.rows), *suite()]
    lines = ["| what | assay | peer | |", "| --- | --- | --- | --- |", *(f"| {' | '.join(row)} |" for row in rows)]
    print("\n".join(lines))
    if arguments.write:
        text = README.read_text(encoding="utf-8")
        before, _, rest = text.partition(START)
        _, _, after = rest.partition(END)
        README.write_text(before + START + "\n" + "\n".join(lines) + "\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
