"""SurvHTE-Bench: heterogeneous treatment effects with right-censored outcomes (arXiv 2603.05483)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import UsageError
from assay.core.metrics import mean
from assay.learning.survhte.protocol import EffectEstimator

if TYPE_CHECKING:
    from assay.core.context import Context
    from assay.learning.survhte.data import SurvivalData
    from assay.learning.survhte.sources import Source

_ROOM = "assay.learning.survhte"


class EffectTask(Task):
    """Data sets of one kind; a sample is a data set (at one training size), an attempt is one of its splits."""

    system = EffectEstimator
    attempts = 10
    resample = "attempts"
    modalities = ("table",)

    def __init__(self, name: str, sources: Sequence[Source], benchmark: SurvHTE) -> None:
        self.name = name
        self.sources = {source.name: source for source in sources}
        self.benchmark = benchmark

    def samples(self) -> Sequence[Sample]:
        """Data sets x training sizes. The data set is the cluster."""
        sizes = self.benchmark.sizes
        return [
            Sample(
                name if len(sizes) == 1 else f"{name}@{size}",
                input={"data": name, "train": size},
                target={"truth": source.truth},
                groups={
                    "dataset": name,
                    "config": source.config,
                    "scenario": source.scenario,
                    "truth": source.truth,
                    "train": size or "own",
                },
                cluster=name,
            )
            for name, source in self.sources.items()
            for size in sizes
        ]

    def trial(self, system: Any, sample: Sample, ctx: Context) -> Outcome:
        """Fit on the training rows, estimate the effects of the test rows, compare with the truth."""
        from assay.learning.survhte.trial import measure

        data = self._data(str(sample.input["data"]))
        bench = self.benchmark
        sizes = self._sizes(data, sample.input["train"])
        return measure(system, data, sizes, bench.estimand, ctx, refits=bench.refits)

    def _data(self, name: str) -> SurvivalData:
        return self.sources[name].load()

    def _sizes(self, data: SurvivalData, train: int | None) -> tuple[int, int, int] | None:
        bench = self.benchmark
        if train is None and bench.n_val is None and bench.n_test is None:
            return None
        n = len(data)
        own = data.sizes or (n // 2, n // 4, n - n // 2 - n // 4)
        return (
            own[0] if train is None else train,
            own[1] if bench.n_val is None else bench.n_val,
            own[2] if bench.n_test is None else bench.n_test,
        )


class SurvHTE(Benchmark):
    """Forty synthetic data sets with known truth, semi-synthetic ones, and trials of people.

    Parameters
    ----------
    data
        Folder with what assay may not pass on, in the published layouts or those of the sources (see README), or
        ``hf:snoroozi/SurvHTE-Bench``; None = what is generated here and what ships.
    sets
        Data sets by glob, separated by commas: ``RCT-50/*,OBS-*/D,actg*``. The default is the forty
        synthetic ones; all = ``*``.
    n
        Rows of each synthetic data set.
    n_train
        Rows to train on, several separated by commas (a curve of convergence); own = the data set's rule.
    n_val, n_test
        Rows to validate and to test on; none = the data set's rule (synthetic 2500 and 2500, others a quarter each).
    estimand
        ``rmst`` (difference of mean times), ``followup`` (restricted to the longest follow-up of the training rows: all
        that data can show), ``horizon`` (restricted to the median event time), ``survival25``, ``survival50``,
        ``survival75`` (difference of survival at that quantile of event times).
    seed
        Of the synthetic data; 2025 gives the published data sets.
    refits
        Fits on resampled training rows that the interval of the average effect rests on; 0 = the fitted model is held
        fixed and tested rows are resampled, as published, which leaves out what fitting varies by.
    confounding
        Weight of the hidden confounder in the event times of the OBS-UConf sets; none = 0.5, the published one. Runs
        with several weights show how fast estimates go wrong.
    """

    name = "survhte"
    title = "SurvHTE-Bench: heterogeneous treatment effects with right-censored outcomes"
    paper = "arXiv:2603.05483"
    extras = ("survhte",)
    references = "references.json"
    metrics = (
        mean("rmse_exact", higher_is_better=False, headline=True, by=("scenario",), bounds=(0, None)),
        mean("rmse", higher_is_better=False, by=("scenario",), bounds=(0, None)),
        mean("explained", error=None),
        mean("ate_bias", higher_is_better=False),
        mean("covered", bounds=(0, 1), error=None),
        mean("interval_coverage", bounds=(0, 1), error=None),
        mean("failed", error=1.0, higher_is_better=False, bounds=(0, 1)),
        mean("ate_gap_to_km", higher_is_better=False, where={"truth": "unknown"}),
        mean("fit_seconds", higher_is_better=False, bounds=(0, None)),
    )
    analyses = {
        **{
            name: f"{_ROOM}.analyses:{name}"
            for name in (
                "ranking", "families", "critical_difference", "bias", "convergence", "failures", "explained", "curves",
            )
        },
        "assumptions": f"{_ROOM}.checks:assumptions",
    }  # fmt: skip
    recipes = {
        "reproduce": f"{_ROOM}.reproduce:reproduce",
        "export": f"{_ROOM}.recipes:export",
        "cards": f"{_ROOM}.cards:cards",
    }

    def __init__(
        self,
        data: str | None = None,
        *,
        sets: str = "*/*",
        n: int = 50_000,
        n_train: str = "own",
        n_val: int | None = None,
        n_test: int | None = None,
        estimand: Literal["rmst", "followup", "horizon", "survival25", "survival50", "survival75"] = "rmst",
        seed: int = 2025,
        refits: int = 0,
        confounding: float | None = None,
    ) -> None:
        self.folder, self.patterns = data, [part.strip() for part in sets.split(",") if part.strip()]
        self.n, self.n_val, self.n_test = n, n_val, n_test
        self.estimand, self.seed, self.confounding = estimand, seed, confounding
        self.sizes = training_sizes(n_train)
        self.refits = refits
        if refits < 0 or refits == 1:
            raise UsageError(f"Option refits={refits}: an interval rests on several refits, or on 0.")
        if n < 10:
            raise UsageError(f"Option n={n}: a synthetic data set needs at least 10 rows.")
        for option, value in (("n_val", n_val), ("n_test", n_test)):
            if value is not None and value < 1:
                raise UsageError(f"Option {option}={value} is below 1.")

    @cached_property
    def sources(self) -> Sequence[Source]:
        """The data sets that are chosen."""
        from assay.learning.survhte.sources import sources

        known = sources(self.folder, self.n, self.seed, self.confounding)
        found = [s for s in known if any(fnmatchcase(s.name, pattern) for pattern in self.patterns)]
        if not found:
            names = ", ".join(source.name for source in known[::8])
            raise UsageError(f"Option sets={','.join(self.patterns)!r} chooses no data set; names are like {names}.")
        return found

    @cached_property
    def _tasks(self) -> Sequence[EffectTask]:
        kinds = dict.fromkeys(source.task for source in self.sources)
        return [EffectTask(kind, [s for s in self.sources if s.task == kind], self) for kind in kinds]

    def tasks(self) -> Sequence[EffectTask]:
        """synthetic, semi_synthetic and real, as far as data sets are there."""
        return self._tasks

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """The paper's 53 and four more."""
        from assay.learning.survhte.registry import methods

        return methods()

    def data(self) -> Mapping[str, Any]:
        """Provenance of every data set in use."""
        from assay.learning.survhte.sources import provenance

        return provenance(self.sources)


def training_sizes(text: str) -> list[int | None]:
    """``own`` or whole numbers separated by commas."""
    found: list[int | None] = []
    for part in (p.strip() for p in str(text).split(",")):
        if part == "own":
            found.append(None)
        elif part.isdigit() and int(part) >= 10:
            found.append(int(part))
        else:
            raise UsageError(f"Option n_train={text!r}: {part!r} is neither 'own' nor a number of rows of at least 10.")
    if len(set(found)) != len(found):
        raise UsageError(f"Option n_train={text!r} names a size twice.")
    return found
