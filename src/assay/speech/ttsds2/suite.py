"""BenchmarkSuite: all features of some data sets against references and noise, as the published package has it."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.cache import ContentCache
from assay.core.errors import AssayError, DataError, UsageError
from assay.speech.ttsds2.datasets import RATE, Dataset, DirectoryDataset
from assay.speech.ttsds2.features import (
    TITLES,
    Benchmark,
    Profile,
    Resources,
    features_of,
    measure,
)
from assay.speech.ttsds2.noise import noise_datasets
from assay.speech.ttsds2.scoring import (
    DEFAULT,
    SMALL,
    WEIGHTS,
    BenchmarkCategory,
    FeatureScore,
    Settings,
    aggregate,
    score_feature,
)

if TYPE_CHECKING:
    import polars as pl

COLUMNS = (
    "benchmark_name", "benchmark_category", "dataset", "score", "time_taken", "noise_dataset", "reference_dataset",
)  # fmt: skip


@dataclass(slots=True)
class Result:
    """A feature of a data set: its score, or why there is none."""

    feature: str
    factor: str
    dataset: str
    score: FeatureScore | None
    seconds: float
    error: str = ""

    def row(self) -> dict[str, Any]:
        """As in the result file of the package."""
        near = self.score.nearest if self.score else None
        return dict(
            zip(
                COLUMNS,
                (
                    self.feature,
                    self.factor,
                    self.dataset,
                    near.score if near else None,
                    self.seconds,
                    near.noise if near else None,
                    near.reference if near else None,
                ),
            )
        )


def score_one(
    feature: Benchmark,
    speech: Dataset,
    references: Sequence[Dataset],
    noises: Sequence[Dataset],
    settings: Settings = DEFAULT,
    *,
    replicates: int = 0,
    seed: int = 0,
    cache: ContentCache | None = None,
) -> FeatureScore:
    """Score of one feature of one data set; see `scoring.score_feature`."""
    fitted = feature.fit(references)
    return score_feature(
        measure(fitted, speech, cache),
        {d.name: measure(fitted, d, cache) for d in references},
        {d.name: measure(fitted, d, cache) for d in noises},
        settings,
        replicates=replicates,
        seed=seed,
    )


def cautions(speech: Dataset, references: Sequence[Dataset]) -> list[str]:
    """What makes a score of these sets doubtful: few clips, clips of other length or bandwidth, silence, clipping."""
    found = []
    for dataset in (speech, *references):
        clips = dataset.clips()
        if len(clips) < SMALL:
            found.append(f"{dataset.name} has {len(clips)} utterances; with fewer than {SMALL} scores depend on which.")
        for kind in ("silent", "clipped"):
            odd = [clip.name for clip in clips if kind in clip.warnings]
            if odd:
                found.append(f"{dataset.name}: {len(odd)} of {len(clips)} clips are {kind} ({odd[0]} is the first).")
        if dataset.skipped:
            found.append(
                f"{dataset.name}: {len(dataset.skipped)} clips cannot be read; the first: {dataset.skipped[0]}"
            )
    rates = {rate for dataset in (speech, *references) for rate in dataset.rates()}
    if len(rates) > 1 and not (speech.bandwidth and speech.bandwidth <= min(rates)):
        found.append(
            f"Clips were recorded at {', '.join(map(str, sorted(rates)))} Hz: bandwidth alone moves the score; bring "
            f"all to {min(rates)} Hz (bandwidth=common)."
        )
    lengths = [float(np.median([clip.seconds for clip in d.clips()])) for d in (speech, *references)]
    if max(lengths) > 3 * min(lengths):
        found.append("The median length of clips differs by more than a factor of 3 between the sets.")
    return found


def common_bandwidth(datasets: Sequence[Dataset]) -> int | None:
    """Lowest rate that any clip was recorded at; None when that is the working rate or more."""
    lowest = min(rate for dataset in datasets for rate in dataset.rates())
    return lowest if lowest < RATE else None


class BenchmarkSuite:
    """Scores of data sets.

    Parameters
    ----------
    datasets, reference_datasets
        Synthetic speech; real speech of the same speakers, other texts.
    noise_datasets
        None = the four sets of noise, 100 clips each.
    benchmarks
        Features by short name; None = those of ``profile``.
    profile
        ``lite`` needs no download and is not TTSDS2; None = ``multilingual`` or ``english`` by ``multilingual``.
    category_weights
        By factor (names or BenchmarkCategory); None = 0.25 each, environment 0.
    skip_errors
        Count features that fail, with the reason, instead of raising.
    write_to_file
        CSV with a row a feature, written when `run` ends.
    cache_dir
        None = nothing is kept.
    settings, replicates, seed
        Of distances and of intervals.
    progress
        Called with (done, total, feature, data set).
    """

    def __init__(
        self,
        datasets: Sequence[Dataset],
        reference_datasets: Sequence[Dataset],
        noise_datasets: Sequence[Dataset] | None = None,
        benchmarks: Mapping[str, Benchmark] | None = None,
        category_weights: Mapping[Any, float] | None = None,
        skip_errors: bool = False,
        write_to_file: str | Path | None = None,
        device: str = "cpu",
        cache_dir: str | Path | None = None,
        include_environment: bool = False,
        multilingual: bool = False,
        *,
        profile: Profile | None = None,
        weights: str | Path | None = None,
        download: bool = False,
        settings: Settings = DEFAULT,
        replicates: int = 0,
        seed: int = 0,
        progress: Callable[[int, int, str, str], None] | None = None,
    ) -> None:
        if not datasets or not reference_datasets:
            raise UsageError("A suite needs a data set and a reference data set at least.")
        names = [d.name for d in datasets]
        if len(set(names)) < len(names):
            raise UsageError(f"Two data sets have one name: {', '.join(sorted(names))}; give name= to tell them apart.")
        self.profile: Profile = profile or ("multilingual" if multilingual else "english")
        self.title = TITLES[self.profile] if benchmarks is None else "own set of features"
        resources = Resources(None if weights is None else Path(weights), device, download)
        self.datasets, self.references = list(datasets), list(reference_datasets)
        self.noises = default_noises() if noise_datasets is None else list(noise_datasets)
        self.features = dict(
            features_of(self.profile, resources, environment=include_environment) if benchmarks is None else benchmarks
        )
        self.weights = {
            (k.name if isinstance(k, BenchmarkCategory) else str(k)): float(v)
            for k, v in (WEIGHTS if category_weights is None else category_weights).items()
        }
        self.skip_errors = skip_errors
        self.file = None if write_to_file is None else Path(write_to_file)
        self.cache = None if cache_dir is None else ContentCache(Path(cache_dir))
        self.settings, self.replicates, self.seed = settings, replicates, seed
        self.progress = progress
        self.results: list[Result] = []
        self.warnings: list[str] = []

    def run(self) -> pl.DataFrame:
        """Measure everything; a row a feature and data set.

        Raises
        ------
        UsageError, DataError
            A feature cannot be measured, and errors are not skipped.
        """
        self.results, self.warnings = [], []
        total = len(self.features) * len(self.datasets)
        for dataset in self.datasets:
            self.warnings += [w for w in cautions(dataset, self.references) if w not in self.warnings]
            for feature in self.features.values():
                self.results.append(self._result(feature, dataset))
                if self.progress:
                    self.progress(len(self.results), total, feature.name, dataset.name)
        if self.file:
            write_rows(self.file, [r.row() for r in self.results])
        return self.frame()

    def _result(self, feature: Benchmark, dataset: Dataset) -> Result:
        begun = time.perf_counter()
        found, error = None, ""
        try:
            found = score_one(
                feature, dataset, self.references, self.noises, self.settings,
                replicates=self.replicates, seed=self.seed, cache=self.cache,
            )  # fmt: skip
        except AssayError as reason:
            if not self.skip_errors:
                raise
            error = str(reason)
            self.warnings.append(f"{feature.name} of {dataset.name} was left out: {error}")
        return Result(feature.name, feature.category.name, dataset.name, found, time.perf_counter() - begun, error)

    def frame(self) -> pl.DataFrame:
        """Results so far, with standard errors over utterances where replicates were asked for."""
        import polars as pl

        rows = [{**r.row(), "score_se": r.score.se if r.score else None, "error": r.error} for r in self.results]
        return pl.DataFrame(rows, infer_schema_length=None)

    def get_aggregated_results(self) -> pl.DataFrame:
        """A row a factor and data set, and OVERALL, as in the package; OVERALL counts a factor without scores as 0.

        ``score_se`` is over utterances; None without replicates.
        """
        import polars as pl

        if not self.results:
            raise UsageError("Nothing was measured yet; call run() first.")
        rows = []
        for dataset in self.datasets:
            mine = [r for r in self.results if r.dataset == dataset.name]
            by_factor: dict[str, list[Result]] = {}
            for result in mine:
                if result.score:
                    by_factor.setdefault(result.factor, []).append(result)
            scores = {f: {r.feature: r.score.score for r in some if r.score} for f, some in by_factor.items()}
            means, warnings = aggregate(scores, self.weights)
            self.warnings += [w for w in warnings if w not in self.warnings]
            drawn = {f: np.mean([r.score.replicates for r in some if r.score], axis=0) for f, some in by_factor.items()}
            overall = sum((self.weights.get(f, 0.0) * values for f, values in drawn.items()), np.zeros(self.replicates))
            for factor, value in means.items():
                some = by_factor.get(factor, mine)
                parts = list(scores[factor].values()) if factor in scores else [means[f] for f in scores]
                rows.append(
                    {
                        "benchmark_category": factor,
                        "dataset": dataset.name,
                        "score_mean": value,
                        "score_std": float(np.std(parts, ddof=1)) if len(parts) > 1 else None,
                        "score_se": spread(drawn.get(factor, overall)),
                        "time_taken_sum": sum(r.seconds for r in some),
                        "noise_dataset": most_frequent([r.score.nearest.noise for r in some if r.score]),
                        "reference_dataset": most_frequent([r.score.nearest.reference for r in some if r.score]),
                    }
                )
        return pl.DataFrame(rows, infer_schema_length=None)


def default_noises() -> list[Dataset]:
    """The four sets of noise, 100 clips each."""
    return list(noise_datasets(100))


def spread(replicates: Any) -> float | None:
    """Standard deviation of finite replicates; None for fewer than two."""
    finite = np.asarray(replicates)[np.isfinite(replicates)]
    return float(finite.std(ddof=1)) if len(finite) > 1 else None


def most_frequent(names: Sequence[str]) -> str | None:
    """The name that stands most often, the first of several; None of none."""
    return max(dict.fromkeys(names), key=names.count) if names else None


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows as CSV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]) if rows else COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def score(
    folder: str | Path, reference: str | Path, *, profile: Profile = "lite", replicates: int = 0, noise_clips: int = 20,
    cache_dir: str | Path | None = None, **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Score a folder of speech against a folder of real speech; features that cannot be measured here are named.

    Both are brought to the lower of their bandwidths first.

    Returns
    -------
    dict
        ``title`` (which score it is), ``overall``, ``se``, ``factors``, ``features``, ``warnings``.
    """
    speech, real = DirectoryDataset(folder, "speech"), DirectoryDataset(reference, "reference")
    bandwidth = common_bandwidth([speech, real])
    noises = noise_datasets(noise_clips)
    suite = BenchmarkSuite(
        [speech.limited(bandwidth)], [real.limited(bandwidth)], noises, skip_errors=True, profile=profile,
        replicates=replicates, cache_dir=cache_dir, **options,
    )  # fmt: skip
    suite.run()
    features = {r.feature: r.score.score for r in suite.results if r.score}
    if not features:
        raise DataError(f"No feature of {suite.title} could be measured; the first reason: {suite.results[0].error}")
    rows = {row["benchmark_category"]: row for row in suite.get_aggregated_results().to_dicts()}
    overall = rows.pop("OVERALL")
    return {
        "title": suite.title,
        "overall": overall["score_mean"],
        "se": overall["score_se"],
        "factors": {name: row["score_mean"] for name, row in rows.items()},
        "features": features,
        "warnings": suite.warnings,
    }
