"""The Seismic Wavefield Common Task Framework (arXiv 2512.19927): forecasting and denoising, twelve scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.core.benchmark import Benchmark, Metric, Outcome, Sample, Task
from assay.core.errors import AssayError, DataError, MissingExtra, UsageError
from assay.core.metrics import function, mean
from assay.science.seismic_ctf.protocol import Forecaster, seeded_copy

if TYPE_CHECKING:
    import polars as pl

    from assay.core.context import Context
    from assay.science.seismic_ctf.data import CTFDataset

_ROOM = "assay.science.seismic_ctf"
SEEDS = (42, 123, 2025, 777, 1337, 999, 2024, 314, 271, 1618)
"""The framework's seeds by attempt; attempt 10 has 1000, and so on."""
SHORT_NAMES = {"short_time": "short", "long_time": "long", "reconstruction": "reconstruction"}
PAIR_OF = (
    (1, "short"), (1, "long"), (2, "reconstruction"), (3, "long"), (4, "reconstruction"), (5, "long"), (6, "short"),
    (6, "long"), (7, "short"), (7, "long"), (8, "short"), (9, "short"),
)  # fmt: skip
"""Pair and score of E1 .. E12."""
PREDICTIONS = "predictions.npy"


def seed_of(attempt: int) -> int:
    """The framework's seed of an attempt."""
    return SEEDS[attempt] if attempt < len(SEEDS) else 1000 + attempt - len(SEEDS)


def average_score(frame: pl.DataFrame) -> float:
    """AvgScore of records: mean over data sets and the scores of their pairs of the mean over attempts."""
    import numpy as np

    if frame.is_empty():
        return float("nan")
    pair = frame["pair"].to_numpy().astype(np.int64)
    if frame["dataset"].n_unique() > 1:
        # A code of data set and pair; pairs are numbered below a thousand.
        pair = pair + 1000 * frame["dataset"].rank("dense").to_numpy().astype(np.int64)
    tried = np.bincount(pair)
    means = []
    for name in ("short", "long", "reconstruction"):
        values = frame[name].fill_null(-100.0).to_numpy()
        numbers = np.array([p for p, score in PAIR_OF if score == name])
        there = np.flatnonzero(tried)
        wanted = there[np.isin(there % 1000, numbers)]
        means.append(np.bincount(pair, values)[wanted] / tried[wanted])
    found = np.concatenate(means)
    return float(found.mean()) if len(found) else float("nan")


def _metrics() -> tuple[Metric, ...]:
    es = [
        mean(name, name=f"E{i}", where={"pair": pair}, error=-100.0, bounds=(-100, 100))
        for i, (pair, name) in enumerate(PAIR_OF, start=1)
    ]
    reads = ("dataset", "pair", "short", "long", "reconstruction")
    return (
        function("AvgScore", average_score, reads, error=-100.0, headline=True, by=("dataset",)),
        *es,
    )  # fmt: skip


ABILITY_OF = {1: "forecast", 2: "noise", 3: "noise", 4: "noise", 5: "noise", 6: "limited data", 7: "limited data",
              8: "generalisation", 9: "generalisation"}  # fmt: skip


class CTFPairs(Task):
    """The pairs of one data set; attempts are seeds."""

    system = Forecaster
    attempts = 5
    resample = "attempts"
    modalities = ("matrix",)

    def __init__(self, name: str, benchmark: SeismicCTF) -> None:
        self.name = name
        self.benchmark = benchmark
        self.attempts = benchmark.seeds

    def samples(self) -> Sequence[Sample]:
        """One a pair that has its training files; without a truth the target is None and the trial ends unscored."""
        return self._samples

    @cached_property
    def _samples(self) -> Sequence[Sample]:
        data = self.benchmark.sets[self.name]
        return [
            Sample(
                f"pair{number}",
                input={"dataset": self.name, "pair": number},
                target={"truth": data.definition.pair(number).test} if data.has_truth(number) else None,
                groups={"dataset": self.name, "pair": number, "ability": ABILITY_OF.get(number, "other")},
                cluster=f"{self.name}/pair{number}",
            )
            for number in self.benchmark.numbers(self.name)
        ]

    def trial(self, system: Any, sample: Sample, ctx: Context) -> Outcome:
        """Fit a copy with the framework's seed and predict the test rows.

        A method that fails on the data ends with a reason and -100; missing packages and files are errors.
        """
        import numpy as np

        pair = self.benchmark.sets[self.name].pair(sample.input["pair"])
        fresh = seeded_copy(system, seed_of(ctx.attempt))
        try:
            with np.errstate(all="ignore"):
                fresh.fit(pair.train, pair.init, pair.times)
                found = fresh.predict(pair.times.test)
        except AssayError:
            raise
        except ImportError as error:
            raise MissingExtra(f"{type(system).__name__} ({error.name})", "seismic_ctf") from error
        except Exception as error:
            return Outcome(output={"failed": f"{type(error).__name__}: {error}"[:300]}, groups={"ended": "failed"})
        found = np.asarray(found)
        if found.dtype.kind in "fiu" and found.shape == pair.shape:
            np.save(ctx.artifacts / PREDICTIONS, found.astype(np.float32 if found.dtype.itemsize <= 4 else np.float64))
            ended = "ok" if np.isfinite(found).all() else "not finite"
            return Outcome(output={"predictions": PREDICTIONS}, groups={"ended": ended})
        wrong = f"the prediction has shape {found.shape} and type {found.dtype}, not {pair.shape} of real numbers"
        return Outcome(output={"failed": wrong}, groups={"ended": "failed"})

    def score(self, sample: Sample, output: Any, ctx: Context) -> Outcome:
        """Clipped and raw scores of a stored prediction; what failed or is not finite has -100."""
        import numpy as np

        from assay.science.seismic_ctf.data import read_matrix, score_name
        from assay.science.seismic_ctf.scoring import clip
        from assay.science.seismic_ctf.submission import ReadPrediction

        data, number = self.benchmark.sets[self.name], sample.input["pair"]
        names = {metric: SHORT_NAMES[metric] for metric in data.definition.pair(number).metrics}
        worst = Outcome(dict.fromkeys(names.values(), -100.0))
        if isinstance(output, ReadPrediction):
            found = read_matrix(output.file)
            # Kept, so that this run can be scored again.
            np.save(ctx.artifacts / PREDICTIONS, found)
        elif not isinstance(output, dict) or "predictions" not in output:
            return worst
        elif "values" in output:
            found = np.asarray(output["values"], float)
        else:
            # What an output says about files is never followed: it may come from somebody's run folder.
            path = ctx.artifacts / PREDICTIONS
            if path.is_symlink():
                raise DataError(f"{PREDICTIONS} of {sample.id} is a link; a prediction must be a file of its own.")
            found = read_matrix(path)
        if not np.isfinite(found).all():
            return worst
        with np.errstate(over="ignore"):
            raw = data.score(number, found, spectrum=self.benchmark.spectrum)
        scores: dict[str, float | None] = {}
        for metric, name in names.items():
            value = raw[score_name(number, metric)]
            scores[name] = clip(value)
            scores[f"{name}_raw"] = value if np.isfinite(value) else None
        return Outcome(scores)


class SeismicCTF(Benchmark):
    """Three wavefields, and systems like them: nine pairs of training and test matrices each, twelve scores.

    Parameters
    ----------
    data
        Folder with data sets in the published layout (``NAME/NAME.yaml``, ``NAME/train``, ``NAME/test``); None = the
        generated stand-ins.
    datasets
        Names by comma. Without ``data``: sea, crust, lorenz, ks (generated here). With it: folders under ``data``.
    truth
        Folder with test matrices (``NAME/test/X1test.npz`` ...) that lie apart from ``data``: what the referee alone
        has. Without a truth a trial ends unscored.
    pairs
        ``all``, ``3``, ``1-3`` or ``1,4-6``.
    spectrum
        Long-time score of wavefields: ``psd`` (powers, as the code of the framework) or ``logpsd`` (their logarithms,
        as its paper).
    seeds
        Attempts, each with the framework's next seed; a board of single predictions has one.
    seed
        Of generated data.
    """

    name = "seismic_ctf"
    title = "Common Task Framework for seismic wavefields: forecast, denoise, few data, unseen parameters"
    paper = "arXiv:2512.19927"
    extras = ("seismic_ctf",)
    references = "references.json"
    metrics = _metrics()
    analyses = {
        name: f"{_ROOM}.analyses:{name}"
        for name in ("leaderboard", "heatmap", "abilities", "ranking", "agreement", "published")
    }
    recipes = {
        "generate": f"{_ROOM}.recipes:generate",
        "fetch": f"{_ROOM}.recipes:fetch",
        "package": f"{_ROOM}.recipes:package",
        "figures": f"{_ROOM}.recipes:figures",
        "tune": f"{_ROOM}.recipes:tune",
        "reproduce": f"{_ROOM}.reproduce:reproduce",
    }

    def __init__(
        self,
        data: str | None = None,
        *,
        datasets: str = "sea",
        truth: str | None = None,
        pairs: str = "all",
        spectrum: Literal["psd", "logpsd"] = "psd",
        seeds: int = 5,
        seed: int = 0,
    ) -> None:
        self.folder, self.truth, self.pairs, self.seed, self.seeds = data, truth, pairs, seed, seeds
        if seeds < 1:
            raise UsageError(f"Option seeds={seeds} must be at least 1.")
        self.names = [part.strip() for part in datasets.split(",") if part.strip()]
        self.spectrum: Literal["psd", "logpsd"] = spectrum
        if not self.names or len(set(self.names)) != len(self.names):
            raise UsageError(f"Option datasets={datasets!r} must name data sets, each once, separated by commas.")

    @cached_property
    def sets(self) -> Mapping[str, CTFDataset]:
        """The data sets by name."""
        from assay.science.seismic_ctf.data import CTFDataset

        if self.folder is not None:
            return {name: CTFDataset.load(name, self.folder, truth=self.truth) for name in self.names}
        from assay.core.errors import unknown_name
        from assay.science.seismic_ctf.generators.suite import GENERATORS, generated_folder

        offline = [name for name in GENERATORS if name != "globe"]
        for name in self.names:
            if name not in offline:
                hint = "Published data sets, and globe, are read from a folder: give data=FOLDER."
                raise unknown_name("generated data set", name, offline, hint)
        return {name: CTFDataset.load(name, generated_folder(name, self.seed), truth=self.truth) for name in self.names}

    def numbers(self, name: str) -> list[int]:
        """Chosen pairs of a data set that have their training files."""
        from assay.science.seismic_ctf.definition import parse_pairs

        data = self.sets[name]
        chosen = parse_pairs(self.pairs, data.pair_ids)
        there = [number for number in chosen if not data.missing(number)]
        if not there:
            raise DataError(f"{name}: no chosen pair has its training files; {data.missing(chosen[0])} are missing.")
        return there

    def tasks(self) -> Sequence[CTFPairs]:
        """One a data set."""
        return [CTFPairs(name, self) for name in self.sets]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """The evaluated methods and baselines."""
        from assay.science.seismic_ctf.methods import methods

        return methods()

    def read(self, path: Path) -> Iterable[tuple[str, str, int, Outcome]]:
        """Predictions by pair, or a CSV, or a results folder of the framework; see `submission`."""
        from assay.science.seismic_ctf.submission import read_submission

        return read_submission(Path(path), self.sets, {name: self.numbers(name) for name in self.sets})

    def data(self) -> Mapping[str, Any]:
        """Provenance of the training matrices."""
        from assay.science.seismic_ctf.data import provenance

        return provenance(self.sets, self.names if self.folder is None else [])
