"""Rate-distortion functions of continuous sources: which estimator comes closest, where does it saturate?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from assay.core.benchmark import Benchmark, Needs, Outcome, Sample, Task
from assay.core.errors import UsageError, unknown_name
from assay.core.metrics import mean, median

if TYPE_CHECKING:
    from assay.core.context import Context

_ROOM = "assay.information.rate_distortion"
SOURCES = (
    "gaussian", "gmm2", "gmm3", "laplace", "uniform", "student", "sinc4", "banana", "moons", "sphere_noise",
    "gaussian16", "gaussian33", "patches", "digits", "audio",
)  # fmt: skip
"""Names of what `data.make_source` makes; here so that listing benchmarks imports no numpy."""


@runtime_checkable
class CurveEstimator(Protocol):
    """Rate-distortion function from samples, in scikit-learn's manner; ``random_state`` is set by the benchmark."""

    def set_params(self, **params: Any) -> Any:
        """Takes random_state and eps_range."""
        ...

    def fit(self, X: Any) -> Any:
        """Learn from (n, d) samples."""
        ...

    def curve(self, eps: Any) -> Any:
        """A `Curve` at the given noise levels."""
        ...


class Curves(Task):
    """A source a sample; an attempt is a seed, of the samples and of the estimator. Rows are points of the curve."""

    name = "curves"
    system = CurveEstimator
    attempts = 5
    resample = "attempts"
    modalities = ("table",)

    def __init__(self, benchmark: RateDistortionBenchmark) -> None:
        self.benchmark = benchmark
        if benchmark.device != "cpu":
            self.needs = Needs(gpus=1)

    def samples(self) -> Sequence[Sample]:
        """One a source."""
        return [Sample(name, name, groups={"source": name}) for name in self.benchmark.names]

    def trial(self, system: CurveEstimator, sample: Sample, ctx: Context) -> Outcome:
        """Draw samples, fit, measure the curve, compare with the truth where one is known."""
        import time

        import numpy as np

        from assay.information.rate_distortion.data import make_source
        from assay.information.rate_distortion.scoring import compare

        bench = self.benchmark
        case = make_source(sample.input, bench.folder)
        x = case.source.sample(bench.samples, np.random.default_rng(ctx.seed))
        eps = case.levels(bench.points)
        system.set_params(random_state=ctx.seed % 2**31, eps_range=(float(eps[0]), float(eps[-1])))
        begun = time.perf_counter()
        system.fit(x)
        curve = system.curve(eps)
        seconds = time.perf_counter() - begun
        rows, scores = compare(curve, case)
        return Outcome({**scores, "seconds_curve": seconds}, rows=rows)


class RateDistortionBenchmark(Benchmark):
    """Errors of rate-distortion estimators on sources with known or bracketed R(D).

    Parameters
    ----------
    source
        By comma: gaussian, gmm2, gmm3, laplace, uniform, student, sinc4, banana, moons, sphere_noise, gaussian16,
        gaussian33 (rates to 25 nats), patches and digits (image patches), audio (tones; or speech from ``folder``).
    folder
        For ``patches`` a folder of images, for ``audio`` one of Free Spoken Digit (`{digit}_{speaker}_{index}.wav`).
    samples
        Drawn from the source, an attempt.
    points
        Levels of eps, an even grid in log eps over the source's range.
    device
        cpu or cuda; methods take it.
    """

    name = "rate_distortion"
    title = "Rate-distortion functions by stochastic control, particles and grids"
    paper = "ICLR 2026, OpenReview upReXsENIl"
    extras = ("rate_distortion",)
    references = "references.json"
    metrics = (
        median("rate_error", headline=True, higher_is_better=False, bounds=(0, None), by=("source",)),
        mean("lagrangian_gap", higher_is_better=False, by=("source",)),
        mean("ceiling_gap", higher_is_better=False, bounds=(0, None)),
        mean("seconds_curve", higher_is_better=False, bounds=(0, None)),
    )
    analyses = {name: f"{_ROOM}.analyses:{name}" for name in ("curves", "errors", "envelope", "slopes")}
    recipes = {
        "reproduce": f"{_ROOM}.reproduce:reproduce",
        "patches": f"{_ROOM}.recipes:patches",
        "trajectories": f"{_ROOM}.recipes:trajectories",
    }

    def __init__(
        self,
        source: str = "gaussian,gmm3,laplace,uniform",
        *,
        folder: str | None = None,
        samples: int = 20_000,
        points: int = 5,
        device: str = "cpu",
    ) -> None:
        self.names = list(dict.fromkeys(part.strip() for part in source.split(",") if part.strip()))
        if not self.names:
            raise UsageError("Option source is empty.")
        for name in self.names:
            if name not in SOURCES:
                raise unknown_name("source", name, SOURCES)
        if samples < 100:
            raise UsageError(f"Option samples={samples} must be at least 100.")
        if points < 1:
            raise UsageError(f"Option points={points} must be at least 1.")
        self.folder, self.samples, self.points, self.device = folder, samples, points, device

    def tasks(self) -> Sequence[Curves]:
        """Curves, the one task."""
        return [Curves(self)]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """R2D2, from a fitted mixture and from zero, and its peers."""
        from assay.information.rate_distortion.methods import METHODS

        return METHODS

    def data(self) -> Mapping[str, Any]:
        """Drawn by formulas; patches and tones from what is at hand."""
        from assay.information.rate_distortion.data import provenance

        return provenance(self.names, self.folder)
