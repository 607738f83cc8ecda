"""Irregular time series classification: 34 data sets, 12 classifiers, one array (arXiv 2505.06047)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.benchmark import Benchmark, Needs, Outcome, Sample, Task
from assay.core.errors import DataError, UsageError
from assay.core.metrics import mean, median
from assay.learning.irregular.data import (
    OFFLINE,
    catalogue,
    irregularity_of,
    list_paper_datasets,
    load_dataset,
    parse_name,
    provenance,
    split_name,
)
from assay.learning.irregular.protocol import SeriesEstimator

if TYPE_CHECKING:
    from assay.core.context import Context

_ROOM = "assay.learning.irregular"
GROUPS = {"offline": OFFLINE}


@lru_cache(maxsize=4)
def sides(name: str, source: str | None) -> dict[str, Any]:
    """Dense training and test side of a data set: X, T, y of both, in a form that trials share."""
    from assay.learning.irregular.dense import to_dense

    array = load_dataset(name, source)
    X, T = to_dense(array)
    y, split = array.target_and_split()
    found: dict[str, Any] = {"values": array.nnz}
    for side in ("train", "test"):
        where = split == side
        if not where.any():
            raise DataError(f"Data set {name!r} has no {side} series.")
        found[side] = (X[where], T[where, 0], y[where])
    return found


class Classification(Task):
    """Every data set: fit on its training side, predict its test side."""

    name = "classification"
    system = SeriesEstimator
    resample = "attempts"
    modalities = ("series",)

    def __init__(self, benchmark: Irregular) -> None:
        self.benchmark = benchmark
        self.needs = Needs(memory_gb=benchmark.memory_gb, seconds=benchmark.seconds, exclusive=benchmark.exclusive)

    def samples(self) -> Sequence[Sample]:
        """One sample a data set; variants of one set share its cluster."""
        return [
            Sample(
                name,
                input=name,
                target=f"labels of the test side of {name}",
                groups={"irregularity": irregularity_of(name), "base": split_name(name)[0]},
                cluster=split_name(name)[0],
            )
            for name in self.benchmark.datasets
        ]

    def trial(self, system: Any, sample: Sample, ctx: Context) -> Outcome:
        """Fit a fresh copy and predict; an exception, a time or memory limit ends in a record that ranks worst."""
        import time

        found = sides(sample.id, self.benchmark.source)
        X, T, y = found["train"]
        model = fresh(system, ctx.seed)
        start = time.perf_counter()
        model.fit(X, y, **_times(model.fit, T))
        fitted = time.perf_counter()
        X, T, _ = found["test"]
        predicted = model.predict(X, **_times(model.predict, T))
        done = time.perf_counter()
        return Outcome(
            {"fit_seconds": fitted - start, "predict_seconds": done - fitted},
            output={"predicted": [p.item() if hasattr(p, "item") else p for p in predicted]},
        )

    def score(self, sample: Sample, output: Any, ctx: Context) -> Outcome:
        """Compare with the labels of the test side."""
        from assay.learning.irregular.scoring import aligned, classification_scores

        if not isinstance(output, Mapping) or not isinstance(output.get("predicted"), list):
            raise DataError(
                f"Output for {sample.id} must be an object with a list 'predicted', one label a test series."
            )
        truth = sides(sample.id, self.benchmark.source)["test"][2]
        return Outcome(classification_scores(truth, aligned(output["predicted"], sorted(set(truth.tolist())))))


class Irregular(Benchmark):
    """Classification of irregular time series.

    Parameters
    ----------
    datasets
        Names separated by commas, with variants (``BasicMotions~drop30``); ``offline`` (default) or ``paper`` (all 34).
    source
        Folder with the data sets (published ``.h5``, ``.ts``, original files, or tables of your own with a YAML file),
        ``download``, or the address of a mirror; nothing = installed packages and generators.
    seconds, memory_gb
        Limits of one trial; one that passes them is killed, recorded, and ranks worst.
    exclusive
        One trial at a time, so that times can be compared.
    """

    name = "irregular"
    title = "Irregular time series classification"
    paper = "arXiv:2505.06047"
    extras = ("irregular",)
    metrics = (
        mean("accuracy", name="mean_accuracy", headline=True, bounds=(0, 1), by="irregularity"),
        mean("balanced_accuracy", name="mean_balanced_accuracy", bounds=(0, 1)),
        mean("f1_macro", name="mean_f1_macro", bounds=(0, 1)),
        mean("f1_weighted", name="mean_f1_weighted", bounds=(0, 1)),
        median("fit_seconds", name="median_fit_seconds", higher_is_better=False, bounds=(0, None)),
        median("predict_seconds", name="median_predict_seconds", higher_is_better=False, bounds=(0, None)),
    )
    analyses = {
        "ranks": f"{_ROOM}.analyses:ranks",
        "critical_difference": f"{_ROOM}.analyses:critical_difference",
        "scores": f"{_ROOM}.analyses:scores",
        "failures": f"{_ROOM}.analyses:failures",
        "pareto": f"{_ROOM}.analyses:pareto",
        "curves": f"{_ROOM}.analyses:curves",
    }
    recipes = {
        "check": f"{_ROOM}.recipes:check",
        "convert": f"{_ROOM}.recipes:convert",
        "describe": f"{_ROOM}.recipes:describe",
        "reproduce": f"{_ROOM}.reproduce:reproduce",
        "template": f"{_ROOM}.recipes:template",
    }

    def __init__(
        self,
        datasets: str = "offline",
        source: str | None = None,
        *,
        seconds: float | None = None,
        memory_gb: float | None = None,
        exclusive: bool = False,
    ) -> None:
        named: Sequence[str]
        if datasets == "offline":
            named = OFFLINE
        elif datasets == "paper":
            named = list_paper_datasets()
        else:
            named = [name.strip() for name in datasets.split(",") if name.strip()]
        if not named:
            raise UsageError("Option datasets is empty; give names, offline, or paper.")
        for name in named:
            base, _ = parse_name(name, source)
            if base in catalogue() and catalogue()[base].task == "other":
                raise UsageError(f"Data set {base!r} has no labels; it cannot be classified.")
        if len(set(named)) != len(named):
            raise UsageError(f"Data set {next(n for n in named if list(named).count(n) > 1)!r} is named twice.")
        for limit, value in (("seconds", seconds), ("memory_gb", memory_gb)):
            if value is not None and value <= 0:
                raise UsageError(f"Option {limit}={value} must be above 0.")
        self.datasets = tuple(named)
        self.source = source
        self.seconds, self.memory_gb, self.exclusive = seconds, memory_gb, exclusive

    def tasks(self) -> Sequence[Task]:
        """One task, whose samples are the data sets."""
        return [Classification(self)]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """The twelve classifiers of the paper, iborf, time-aware variants and a majority vote."""
        from assay.learning.irregular.methods.factories import METHODS

        return METHODS

    def read(self, path: Path) -> Iterable[tuple[str, str, int, Outcome]]:
        """Predictions: a folder of ``NAME.csv``, one label a line in the order of the test side."""
        from assay.core.datasets import read_text

        if not path.is_dir():
            raise UsageError(f"{path} is no folder; predictions are files NAME.csv, one label a line.")
        files = {name: path / f"{name}.csv" for name in self.datasets}
        if not any(file.is_file() for file in files.values()):
            raise UsageError(f"Folder {path} holds no predictions; files are called like {self.datasets[0]}.csv.")
        for name, file in files.items():
            if file.is_file():
                labels = [line.strip() for line in read_text(file).splitlines() if line.strip()]
                yield "classification", name, 0, Outcome(output={"predicted": labels})

    def data(self) -> Mapping[str, Any]:
        """Provenance of the data sets in use."""
        return provenance(self.datasets, self.source)


def fresh(system: Any, seed: int) -> Any:
    """An unfitted copy of an estimator, its ``random_state`` set where it is not fixed already."""
    from sklearn.base import clone

    parameters = system.get_params(deep=False)
    model: Any = clone(system)
    if "random_state" in parameters and parameters["random_state"] is None:
        model.set_params(random_state=seed % 2**31)
    return model


def _times(method: Callable[..., Any], T: Any) -> dict[str, Any]:
    try:
        takes = "times" in inspect.signature(method).parameters
    except (TypeError, ValueError):
        takes = False
    return {"times": T} if takes else {}
