"""Makers of folders: synthetic data sets as files in the published columns."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import polars as pl

from assay.core.errors import UsageError
from assay.learning.survhte import synthetic


def export(out: Path, *, sets: str = "*", n: int = synthetic.SIZE, seed: int = synthetic.SEED) -> None:
    """Write synthetic data sets as CSV, one file each, with both potential times and the exact effect.

    Parameters
    ----------
    sets
        Globs over CONFIG/SCENARIO, separated by commas.
    n, seed
        Rows, and seed of NumPy's old stream; the defaults give the published data sets.
    """
    patterns = [part.strip() for part in sets.split(",") if part.strip()]
    chosen = [
        (c, s)
        for c in synthetic.CONFIGS
        for s in synthetic.SCENARIOS
        if any(fnmatchcase(f"{c}/{s}", pattern) for pattern in patterns)
    ]
    if not chosen:
        raise UsageError(f"Option sets={sets!r} chooses no synthetic data set; names are like RCT-50/A.")
    for config, scenario in chosen:
        drawn = synthetic.draw(config, scenario, n, np.random.RandomState(seed))
        T = np.where(drawn.W == 1, drawn.T1, drawn.T0)
        effect = [synthetic.mean_time(config, scenario, drawn.X, w) for w in (0.0, 1.0)]
        frame = pl.DataFrame(
            {
                "id": np.arange(n),
                "observed_time": np.minimum(T, drawn.C),
                "event": (T <= drawn.C).astype(int),
                "W": drawn.W,
                **{f"X{i + 1}": drawn.X[:, i] for i in range(5)},
                "U1": drawn.U[:, 0],
                "U2": drawn.U[:, 1],
                "T0": drawn.T0,
                "T1": drawn.T1,
                "T": T,
                "C": drawn.C,
                "cate_exact": effect[1] - effect[0],
            }
        )
        frame.write_csv(out / f"{config}_{scenario}.csv")
