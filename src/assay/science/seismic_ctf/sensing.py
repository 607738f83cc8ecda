"""Sparse sensors: from few of the sensors, the whole field; with a budget curve and rules of placement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import AssayError, UsageError
from assay.core.metrics import mean
from assay.science.seismic_ctf.benchmark import seed_of
from assay.science.seismic_ctf.protocol import seeded_copy

if TYPE_CHECKING:
    from assay.core.context import Context
    from assay.science.seismic_ctf.data import CTFDataset

PLACEMENTS = ("random", "grid", "qr")


@runtime_checkable
class Reconstructor(Protocol):
    """Learns whole fields, then completes them: ``fit(fields, sensors)``, ``reconstruct(values)``.

    ``fields`` has shape (rows, all sensors), ``sensors`` are the columns that will be seen, ``values`` has shape (rows,
    seen sensors). Rows come in order of time.
    """

    def fit(self, fields: Any, sensors: Any) -> Any:
        """Learn."""
        ...

    def reconstruct(self, values: Any) -> Any:
        """The whole field of each row."""
        ...


def place(fields: Any, count: int, how: str, seed: int = 0) -> Any:
    """Columns to see, sorted: at random, evenly spaced, or pivots of a QR decomposition of the leading modes.

    Manohar et al. 2018 for the pivots. Shape (count,).
    """
    import numpy as np

    sensors = fields.shape[1]
    if not 1 <= count <= sensors:
        raise UsageError(f"{count} sensors cannot be chosen from {sensors}.")
    if how == "random":
        return np.sort(np.random.default_rng(seed).choice(sensors, count, replace=False))
    if how == "grid":
        return np.unique(np.linspace(0, sensors - 1, count).round().astype(int))
    if how == "qr":
        from scipy.linalg import qr

        from assay.science.seismic_ctf.methods.latent import Modes

        modes = Modes([fields], min(count, min(fields.shape) - 1), seed)
        basis = modes.basis if modes.basis is not None else np.eye(sensors)
        pivots: Any = qr(basis.T, pivoting=True, mode="r")
        return np.sort(pivots[1][:count])
    raise UsageError(f"placement must be one of {', '.join(PLACEMENTS)}; got {how!r}.")


class FieldTask(Task):
    """Clean fields of one data set: the training rows of pair 1 teach, its test rows are to be completed."""

    system = Reconstructor
    attempts = 3
    resample = "attempts"
    modalities = ("matrix",)

    def __init__(self, name: str, benchmark: SparseSensing) -> None:
        self.name = name
        self.benchmark = benchmark

    def samples(self) -> Sequence[Sample]:
        """Placements x budgets."""
        return [
            Sample(
                f"{how}-{count}",
                input={"placement": how, "sensors": count},
                target={"truth": self.benchmark.sets[self.name].definition.pair(1).test},
                groups={"dataset": self.name, "placement": how, "sensors": count},
                cluster=self.name,
            )
            for how in self.benchmark.placements
            for count in self.benchmark.budgets
        ]

    def trial(self, system: Any, sample: Sample, ctx: Context) -> Outcome:
        """Choose sensors, fit a copy, complete the test rows from their values (with noise, if asked)."""
        import numpy as np

        from assay.science.seismic_ctf import scoring

        data, seed = self.benchmark.sets[self.name], seed_of(ctx.attempt)
        fields, truth = np.asarray(data.pair(1).train[0], float), np.asarray(data.truth(1), float)
        sensors = place(fields, sample.input["sensors"], sample.input["placement"], seed)
        noise = self.benchmark.noise * fields.std() * ctx.rng.standard_normal((len(truth), len(sensors)))
        fresh = seeded_copy(system, seed)
        try:
            with np.errstate(all="ignore"):
                found = np.asarray(fresh.fit(fields, sensors).reconstruct(truth[:, sensors] + noise))
            raw = scoring.reconstruction(truth, found)
        except (AssayError, ImportError) as error:
            if isinstance(error, ImportError) or "not finite" not in str(error):
                raise
            return Outcome({"reconstruction": -100.0}, groups={"ended": "not finite"})
        except Exception as error:
            return Outcome({"reconstruction": -100.0}, str(error)[:200], groups={"ended": "failed"})
        return Outcome({"reconstruction": scoring.clip(raw), "reconstruction_raw": raw}, groups={"ended": "ok"})


class SparseSensing(Benchmark):
    """Few sensors, whole fields.

    Parameters
    ----------
    data, datasets, seed
        As in seismic_ctf; the truth of pair 1 must be there.
    sensors
        Budgets by comma.
    placements
        random, grid, qr, by comma.
    noise
        Of the values seen, as a fraction of the field's standard deviation.
    """

    name = "seismic_ctf-sensors"
    title = "Sparse sensors: completing seismic wavefields from few stations"
    paper = "arXiv:2512.19927"
    extras = ("seismic_ctf",)
    metrics = (mean("reconstruction", headline=True, by=("sensors", "placement"), error=-100.0, bounds=(-100, 100)),)
    analyses = {"budget": "assay.science.seismic_ctf.sensing:budget"}

    def __init__(
        self,
        data: str | None = None,
        *,
        datasets: str = "sea",
        sensors: str = "8,32,128",
        placements: str = "random,grid,qr",
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        from assay.science.seismic_ctf.benchmark import SeismicCTF

        self._inner = SeismicCTF(data, datasets=datasets, seed=seed)
        self.placements = [p.strip() for p in placements.split(",")]
        if unknown := [p for p in self.placements if p not in PLACEMENTS]:
            raise UsageError(f"Option placements: {unknown[0]!r} is none of {', '.join(PLACEMENTS)}.")
        parts = [p.strip() for p in str(sensors).split(",")]
        if not all(p.isdigit() and int(p) > 0 for p in parts):
            raise UsageError(f"Option sensors={sensors!r} must be whole numbers above zero, by comma.")
        self.budgets = [int(p) for p in parts]
        if noise < 0:
            raise UsageError(f"Option noise={noise} must not be negative.")
        self.noise = noise

    @cached_property
    def sets(self) -> Mapping[str, CTFDataset]:
        """The data sets by name."""
        return self._inner.sets

    def tasks(self) -> Sequence[FieldTask]:
        """One a data set."""
        return [FieldTask(name, self) for name in self.sets]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """Baselines."""
        return {name: partial(_make, name) for name in RECONSTRUCTORS}

    def data(self) -> Mapping[str, Any]:
        """Provenance of the fields."""
        return self._inner.data()


RECONSTRUCTORS = {
    "mean": "Mean", "gappy_pod": "GappyPOD", "qdeim": "QDEIM", "dmd": "DMDFilter", "decoder": "ShallowDecoder",
    "kriging": "Kriging",
}  # fmt: skip


def _make(name: str, rank: int = 0) -> Any:
    """A reconstructor; ``rank`` of its modes, 0 = by its own rule."""
    from importlib import import_module

    from assay.core.errors import MissingExtra

    try:
        module = import_module("assay.science.seismic_ctf.methods.completing")
    except ImportError as error:
        raise MissingExtra(f"The method {name!r} ({error.name})", "seismic_ctf") from None
    return getattr(module, RECONSTRUCTORS[name])(rank=rank)


def budget(runs: Any, *, placement: Literal["random", "grid", "qr"] = "qr") -> Any:
    """Score by number of sensors."""
    import polars as pl

    from assay.core.results import labels
    from assay.core.table import Chart, Table

    names = dict(zip((run.id for run in runs), labels(list(runs)), strict=True))
    records = runs.records
    if "sensors" not in records.columns:
        raise UsageError("These runs are not of the benchmark seismic_ctf-sensors.")
    records = records.filter(pl.col("placement") == placement)
    if records.is_empty():
        raise UsageError(f"No trial has the placement {placement!r}.")
    frame = (
        records.with_columns(
            pl.col("run").replace_strict(names).alias("system"), pl.col("reconstruction").fill_null(-100.0)
        )
        .group_by("dataset", "system", "sensors")
        .agg(pl.col("reconstruction").mean().alias("score"), pl.col("reconstruction").std(ddof=0).alias("std"))
        .sort("dataset", "system", "sensors")
    )
    chart = Chart("line", "sensors", "score", color="system", facet="dataset", log_x=True)
    note = f"Placement {placement}; reconstruction score over {records['attempt'].n_unique()} seeds."
    return Table("budget", "Score by number of sensors", frame, [note], chart)
