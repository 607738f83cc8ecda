"""Which method for these rows? By what methods did on data with like statistics; and what that advice is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import UsageError
from assay.core.results import Runs
from assay.core.table import Table
from assay.learning.pu_bench.analyses import cells, family_of, records
from assay.learning.pu_bench.estimators.base import check_labels

STATISTICS = ("log_rows", "log_features", "log_labelled", "labelled_share", "distance", "spread", "image", "text")


def dataset_statistics(X: ArrayLike, s: ArrayLike, modality: str = "table") -> dict[str, float]:
    """What can be known of positive-unlabelled rows without true classes.

    Returns
    -------
    dict
        Logarithms of rows, features and labelled rows; share of labelled rows; ``distance``, how far the mean of the
        labelled rows is from that of the others, and ``spread``, their variance in relation: root mean square and mean
        over features, in standard deviations and variances of the others (labels with selection bias lie far off, or
        close together); ``image`` and ``text``, 1 or 0.
    """
    x = np.asarray(X, float).reshape(len(np.asarray(s)), -1)
    _, labelled = check_labels(s)
    of_l, of_u = x[labelled], x[~labelled]
    variance = of_u.var(0)
    varies = variance > 1e-12
    scale = np.where(varies, variance, 1.0)
    shift = ((of_l.mean(0) - of_u.mean(0)) ** 2 / scale)[varies]
    spread = (of_l.var(0) / scale)[varies]
    return {
        "log_rows": float(np.log(len(x))),
        "log_features": float(np.log(x.shape[1])),
        "log_labelled": float(np.log(labelled.sum())),
        "labelled_share": float(labelled.mean()),
        "distance": float(np.sqrt(shift.mean())) if varies.any() else 0.0,
        "spread": float(spread.mean()) if varies.any() else 0.0,
        "image": float(modality == "image"),
        "text": float(modality == "text"),
    }


@dataclass(slots=True)
class Recommender:
    """Methods by their mean score in the ``neighbours`` known cells whose statistics are nearest.

    Parameters
    ----------
    methods
        Names.
    statistics
        (cells, statistics), in the order of `STATISTICS`; distances are in standard deviations of these.
    scores
        (cells, methods); NaN, a method that failed there, counts 0.
    """

    methods: Sequence[str]
    statistics: NDArray[np.float64]
    scores: NDArray[np.float64]
    neighbours: int = 5

    @classmethod
    def from_runs(cls, runs: Runs, *, metric: str = "accuracy", data: str | None = None) -> Recommender:
        """Of runs of several methods; ``data`` as the option of the benchmark that they had."""
        methods, _, statistics, scores = _known(runs, metric, data)
        return cls(methods, statistics, scores)

    def expected(self, statistics: ArrayLike) -> NDArray[np.float64]:
        """Score to expect of each method, (methods,)."""
        spread = self.statistics.std(0)
        off = (self.statistics - np.asarray(statistics, float)) / np.where(spread > 1e-9, spread, np.inf)
        near = np.argsort((off**2).sum(1), kind="stable")[: self.neighbours]
        return np.nan_to_num(self.scores[near]).mean(0)

    def recommend(self, X: ArrayLike, s: ArrayLike, modality: str = "table") -> list[tuple[str, float]]:
        """(method, score to expect) for positive-unlabelled rows, the best first."""
        found = dataset_statistics(X, s, modality)
        expected = self.expected([found[name] for name in STATISTICS])
        return [(self.methods[int(at)], float(expected[at])) for at in np.argsort(-expected, kind="stable")]


def recommend(runs: Runs, *, metric: str = "accuracy", data: str | None = None, neighbours: int = 5) -> Table:
    """What advice costs on a data set that it has not seen: regret, the score of a cell's best method less that taken.

    Each data set in turn is left out. Beside it: always taking the method that is best on average over the other data
    sets, and taking any. The oracle is left out.
    """
    methods, names, statistics, scores = _known(runs, metric, data)
    kinds = list(dict.fromkeys(names))
    if len(kinds) < 2 or len(methods) < 2:
        raise UsageError("A recommendation is judged on runs of at least two methods on at least two data sets.")
    filled = np.nan_to_num(scores)
    best = filled.max(1)
    rows: list[tuple[Any, ...]] = []
    for kind in kinds:
        mine = np.array(names) == kind
        adviser = Recommender(methods, statistics[~mine], scores[~mine], neighbours)
        taken = np.array([int(adviser.expected(one).argmax()) for one in statistics[mine]])
        usual = int(filled[~mine].mean(0).argmax())
        part, top = filled[mine], best[mine]
        rows.append(
            (
                kind, int(mine.sum()), float((top - part[np.arange(len(part)), taken]).mean()),
                float((top - part[:, usual]).mean()), float((top[:, None] - part).mean()),
                ", ".join(sorted({methods[at] for at in taken})), methods[usual],
            )
        )  # fmt: skip
    columns = ["dataset", "cells", "regret", "regret_best_on_average", "regret_any", "recommended", "best_on_average"]
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    weights = frame["cells"].to_numpy() / len(names)
    total = [float((frame[column].to_numpy() * weights).sum()) for column in columns[2:5]]
    note = (
        f"Over all {len(names)} cells: {total[0]:.4f} with advice, {total[1]:.4f} with the method that is best on "
        f"average elsewhere, {total[2]:.4f} with any. A failed method counts 0."
    )
    return Table("recommend", f"Regret in {metric} of recommended methods, each data set left out", frame, (note,))


def _known(
    runs: Runs, metric: str, data: str | None
) -> tuple[list[str], list[str], NDArray[np.float64], NDArray[np.float64]]:
    """(methods, data set of each cell, statistics (cells, statistics), scores (cells, methods)) of runs."""
    from assay.learning.pu_bench.data import load_dataset
    from assay.learning.pu_bench.generator import make_pu_dataset

    frame = records(runs, metric)
    frame = frame.filter(~frame["system"].map_elements(lambda s: family_of(s) == "oracle", return_dtype=pl.Boolean))
    methods, where, scores = cells(frame)
    columns = frame.select("dataset", "sample", "scenario", "strategy", "c").unique()
    how = {(kind, sample): rest for kind, sample, *rest in columns.iter_rows()}
    names, rows = [], []
    for name, sample in where.iter_rows():
        scenario, strategy, c = how[name, sample]
        whole = load_dataset(name, data)
        # Statistics differ little from seed to seed: one draw of the labels stands for all.
        pu = make_pu_dataset(whole.x_train, whole.y_train, scenario=scenario, strategy=strategy, c=float(c))
        found = dataset_statistics(pu.X, pu.s, whole.modality)
        names.append(name)
        rows.append([found[key] for key in STATISTICS])
    return methods, names, np.array(rows), scores
