"""MinPV: which path, and which estimator, gives the best density ratio? (arXiv 2602.00834)"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import UsageError, unknown_name
from assay.core.metrics import mean

if TYPE_CHECKING:
    from assay.core.context import Context

_ROOM = "assay.information.minpv"
_Settings = dict[str, tuple[dict[str, Any], ...]]

MI: _Settings = {
    "gauss": ({"rho": 0.9}, {"rho": 0.99}),
    "half_cube_map": ({"rho": 0.9},),
    "asinh_mapping": ({"rho": 0.9},),
    "additive_noise": ({"noise": 0.1}, {"noise": 0.9}),
    "gamma_exponential": ({"rate": 1.8},),
    "diag_multi_gauss": ({"d": 20}, {"d": 40}, {"d": 80}, {"d": 120}, {"d": 160}),
    "image_bits": ({"bits": 1, "mi": 0.5},),
}
SHIFT: _Settings = {
    name: ({"d": 2, "step": 5}, {"d": 10, "step": 5})
    for name in ("gauss_shift", "beta_shift", "isotropic_scale", "last_axis_scale", "fixed_kl")
}
PLANE = ("swissroll", "8gaussians", "pinwheel", "circles", "moons", "2spirals", "checkerboard", "rings", "tree")
OFFLINE = ("breast_cancer", "digits")
PUBLISHED = ("POWER", "GAS", "HEPMASS", "MINIBOONE", "BSDS300")


@runtime_checkable
class RatioEstimator(Protocol):
    """Learns log p1(x)/p0(x) from samples; each trial fits a copy, with ``random_state`` set where there is one."""

    def fit(self, X0: Any, X1: Any) -> Any:
        """Samples of p0 (n, d) and of p1 (m, d)."""
        ...

    def log_ratio(self, X: Any) -> Any:
        """Natural log of the ratio at points (n, d): shape (n,)."""
        ...


class Ratios(Task):
    """A pair of distributions a sample; an attempt is a seed: of the data, and of the estimator."""

    system = RatioEstimator
    attempts = 3
    resample = "attempts"
    modalities = ("table",)

    def __init__(
        self, name: str, benchmark: MinPVBenchmark, settings: Mapping[str, Sequence[Mapping[str, Any]]]
    ) -> None:
        self.name, self.benchmark, self.settings = name, benchmark, settings

    def samples(self) -> Sequence[Sample]:
        """One a problem and setting."""
        made = []
        for family, each in self.settings.items():
            for one in each:
                label = "-".join([family, *(f"{key}{value:g}" for key, value in one.items())])
                d = one.get("d", 128 * one.get("bits", 1) if family == "image_bits" else 2)
                made.append(Sample(label, {"name": family, **one}, groups={"family": family, "d": d}, cluster=label))
        return made

    def trial(self, system: RatioEstimator, sample: Sample, ctx: Context) -> Outcome:
        """Fit on fresh samples; the estimate is the mean log ratio over fresh points of p1."""
        import numpy as np

        from assay.information.minpv.problems import make_problem

        bench = self.benchmark
        problem = make_problem(**sample.input)
        rng = np.random.default_rng(ctx.seed)
        x0, x1 = problem.draw(bench.n, rng)
        _, held = problem.draw(bench.test, rng)
        log_ratio, scores = _fitted(system, x0, x1, held, ctx)
        assert problem.truth is not None
        estimate = float(log_ratio.mean())
        scores |= {
            "truth": problem.truth,
            "estimate": estimate,
            "abs_error": abs(estimate - problem.truth),
            "squared_error": (estimate - problem.truth) ** 2,
            "estimate_se": float(log_ratio.std(ddof=1) / len(held) ** 0.5),
        }
        if problem.log_ratio is not None:
            exact = problem.log_ratio(held)
            scores["pointwise_rmse"] = float(np.sqrt(np.mean((log_ratio - exact) ** 2)))
        return Outcome(scores, {"estimate": estimate, "truth": problem.truth})


class Densities(Task):
    """A data set a sample: the ratio to a standard normal is the density; scored by test log likelihood."""

    name = "density"
    system = RatioEstimator
    attempts = 3
    resample = "attempts"
    modalities = ("table",)

    def __init__(self, benchmark: MinPVBenchmark) -> None:
        self.benchmark = benchmark

    def samples(self) -> Sequence[Sample]:
        """Sets of the plane, offline tables, and published ones where a folder is given."""
        names = [*PLANE, *OFFLINE, *(PUBLISHED if self.benchmark.folder else ())]
        return [
            Sample(name, {"name": name}, groups={"family": "plane" if name in PLANE else "table"}) for name in names
        ]

    def trial(self, system: RatioEstimator, sample: Sample, ctx: Context) -> Outcome:
        """Fit against draws of N(0, I); the negative log likelihood is of standardised test rows, in nats."""
        import numpy as np

        from assay.information.minpv.data import load_tabular
        from assay.information.minpv.problems import make_problem

        bench = self.benchmark
        rng = np.random.default_rng(ctx.seed)
        name = sample.input["name"]
        if name in PLANE:
            _, rows = make_problem(name).draw(bench.n + bench.test, rng)
            rows = (rows - rows[: bench.n].mean(0)) / rows[: bench.n].std(0)
            train, test = rows[: bench.n], rows[bench.n :]
        else:
            table = load_tabular(name, bench.folder, seed=ctx.seed % 2**32)
            train, test = table.train.astype(float), table.test.astype(float)
        d = train.shape[1]
        log_ratio, scores = _fitted(system, rng.normal(size=(max(bench.n, len(train)), d)), train, test, ctx)
        normal = -0.5 * ((test * test).sum(1) + d * np.log(2 * np.pi))
        scores["nll"] = -float((log_ratio + normal).mean())
        scores["nll_normal"] = -float(normal.mean())
        return Outcome(scores, {"nll": scores["nll"]}, groups={"d": d})


def _fitted(system: RatioEstimator, x0: Any, x1: Any, held: Any, ctx: Context) -> tuple[Any, dict[str, float | None]]:
    import copy
    import time

    import numpy as np

    estimator = copy.deepcopy(system)
    if hasattr(estimator, "random_state"):
        estimator.random_state = ctx.seed % 2**32  # pyright: ignore[reportAttributeAccessIssue]
    begun = time.perf_counter()
    estimator.fit(x0, x1)
    fitted = time.perf_counter()
    log_ratio = np.asarray(estimator.log_ratio(held), float)
    seconds = time.perf_counter() - fitted
    if log_ratio.shape != (len(held),) or not np.isfinite(log_ratio).all():
        raise UsageError(
            f"log_ratio must give {len(held)} finite numbers; got shape {log_ratio.shape} with "
            f"{int((~np.isfinite(log_ratio)).sum())} that are not finite."
        )
    variance = getattr(estimator, "path_variance_", None)
    return log_ratio, {
        # Without noise on the path its conditional variance is infinite.
        "path_variance": variance if variance is not None and np.isfinite(variance) else None,
        "nfe": getattr(estimator, "evaluations_", None),
        "fit_seconds": fitted - begun,
        "evaluate_seconds": seconds,
    }


class MinPVBenchmark(Benchmark):
    """Errors of density-ratio estimators where the truth is known, and likelihoods of densities.

    Parameters
    ----------
    tasks
        By comma: mi, shift, density.
    folder
        Where the published tabular sets lie; None = offline sets only.
    n, test
        Rows drawn of each distribution to train on, and points that estimates are means over.
    """

    name = "minpv"
    title = "MinPV: density ratios on paths of minimum variance"
    paper = "arXiv:2602.00834"
    extras = ("minpv",)
    references = "references.json"
    metrics = (
        mean("squared_error", name="mse_nats", headline=True, bounds=(0, None), by=("family",), higher_is_better=False,
             error=None),
        mean("abs_error", name="absolute_error_nats", bounds=(0, None), higher_is_better=False, error=None),
        mean("pointwise_rmse", name="log_ratio_rmse_nats", bounds=(0, None), higher_is_better=False, error=None),
        mean("nll", name="negative_log_likelihood_nats", higher_is_better=False, by=("family",), error=None),
        mean("path_variance", bounds=(0, None), higher_is_better=False, error=None),
        mean("fit_seconds", bounds=(0, None), higher_is_better=False, error=None),
        mean("evaluate_seconds", bounds=(0, None), higher_is_better=False, error=None),
    )  # fmt: skip
    analyses = {name: f"{_ROOM}.analyses:{name}" for name in ("table", "ranking", "variance")}
    recipes = {"reproduce": f"{_ROOM}.reproduce:reproduce", "paths": f"{_ROOM}.recipes:paths"}

    def __init__(
        self, tasks: str = "mi,shift,density", *, folder: str | None = None, n: int = 10_000, test: int = 5_000
    ) -> None:
        self.chosen = list(dict.fromkeys(part.strip() for part in tasks.split(",") if part.strip()))
        for name in self.chosen:
            if name not in ("mi", "shift", "density"):
                raise unknown_name("task", name, ("mi", "shift", "density"))
        if not self.chosen:
            raise UsageError("Option tasks is empty.")
        for name, value in {"n": n, "test": test}.items():
            if value < 2:
                raise UsageError(f"Option {name}={value} must be at least 2.")
        self.folder, self.n, self.test = folder, n, test
        ratios, densities = set(self.chosen) - {"density"}, "density" in self.chosen
        absent = ("nll",) if not densities else () if ratios else ("squared_error", "abs_error", "pointwise_rmse")
        self.metrics = tuple(metric for metric in type(self).metrics if metric.reads[0] not in absent)

    def tasks(self) -> Sequence[Task]:
        """Mutual information, distribution shift, density."""
        made = {
            "mi": lambda: Ratios("mi", self, MI),
            "shift": lambda: Ratios("shift", self, SHIFT),
            "density": lambda: Densities(self),
        }
        return [made[name]() for name in self.chosen]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """MinPV, its predecessors on fixed paths, and other estimators."""
        from assay.information.minpv.methods import METHODS

        return METHODS

    def data(self) -> Mapping[str, Any]:
        """Generated; the tabular sets are packaged stand-ins or the user's files."""
        source = "distributions made by the benchmark"
        if "density" in self.chosen:
            source += "; breast_cancer and digits of scikit-learn as stand-ins"
            source += f"; POWER, GAS, HEPMASS, MINIBOONE, BSDS300 from {self.folder}" if self.folder else ""
        return {"kind": "generated", "source": source, "licence": "Apache-2.0"}
