"""PU-Bench: which learner from labelled positives and unlabelled rows classifies best?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import UsageError
from assay.core.metrics import mean
from assay.learning.pu_bench.estimators import CLASSES, make_estimator
from assay.learning.pu_bench.grid import ATTEMPTS, Configuration, configurations, paper_configurations

if TYPE_CHECKING:
    from assay.core.context import Context

_ROOM = "assay.learning.pu_bench"


@runtime_checkable
class PUEstimator(Protocol):
    """A scikit-learn classifier that learns from s: 1 labelled positive, -1 unlabelled.

    Scores come from ``predict_proba`` (second column) or ``decision_function``. ``get_params`` and ``set_params``
    are as
    in scikit-learn: a copy is fitted a trial, with its ``random_state`` and, where it has that parameter unset,
    ``prior``.
    """

    def fit(self, X: Any, s: Any) -> Any:
        """Learn."""
        ...

    def predict(self, X: Any) -> Any:
        """1 where positive."""
        ...


class HiddenLabels(Task):
    """One data set: every configuration of hidden labels, ten seeds."""

    system = PUEstimator
    attempts = ATTEMPTS
    resample = "attempts"

    def __init__(self, name: str, benchmark: PUBench) -> None:
        self.name = name
        self.benchmark = benchmark

    def samples(self) -> Sequence[Sample]:
        """One a configuration; the data set and the configuration together are what is independent."""
        return [
            Sample(
                one.id,
                input={"scenario": one.scenario, "strategy": one.strategy, "c": one.c},
                groups={"dataset": self.name, "scenario": one.scenario, "strategy": one.strategy, "c": one.c},
                cluster=f"{self.name}/{one.id}",
            )
            for one in self.benchmark.configurations
        ]

    def trial(self, system: Any, sample: Sample, ctx: Context) -> Outcome:
        """Hide labels, fit a copy, classify the test rows."""
        from assay.learning.pu_bench.trials import carry_out

        bench = self.benchmark
        return carry_out(system, self.name, bench.folder, Configuration(**sample.input), bench.settings, ctx)


class PUBench(Benchmark):
    """Eighteen methods and an oracle, under hidden labels of many kinds.

    Parameters
    ----------
    data
        Folder with a folder for each published data set; or ``hub``: fetched from the Hugging Face hub and OpenML.
    datasets
        By comma: offline ones (digits, digits28, digits32, scans, breast_cancer, gaussian, opinions, posts, boards,
        caps) and published ones (mnist,
        fashion_mnist, cifar10, alzheimer_mri, imdb, newsgroups20, connect4, spambase, mushrooms).
    configurations
        ``paper`` (its twenty) or ``product`` of the next three.
    scenarios, strategies, c
        By comma; scenario case_control or single; see `assay.learning.pu_bench.generator.make_pu_dataset`.
    mode
        Of case-control: full_u or story.
    prior
        What methods are told: ``unlabelled`` (share of positives among unlabelled rows), ``constructed`` (among
        all rows,
        as the first public code does) or ``estimated`` (nothing: they estimate it).
    selection
        ``own`` (what the method says), ``last``, ``pa``, ``pauc``, or ``f1``, an oracle on clean rows.
    clean_share
        Share of training rows set aside with true classes for ``f1`` and for methods that need such rows.
    prevalence
        Share of positives to thin the training rows to; None = as they are.
    test_prevalence
        Share of positives to thin the test rows to: what becomes of a model where positives are rarer; None = as they
        are.
    rows
        Training rows to keep, drawn anew a seed; None = all.
    rethreshold
        Where a method calls every test row the same, call as many positive as the prior says, the highest scores: the
        first public code does.
    calibrate
        Under ``single``, put the labelled rows among the unlabelled too, which methods for two samples expect.
    """

    name = "pu_bench"
    title = "PU-Bench: learning from labelled positives and unlabelled rows"
    paper = "PU-Bench (XiXiphus/PU-Bench)"
    extras = ("pu_bench",)
    references = "references.json"
    metrics = (
        mean("accuracy", headline=True, by=("dataset", "strategy"), bounds=(0, 1)),
        mean("f1", name="f1_positive_class", bounds=(0, 1)),
        mean("f1_macro", bounds=(0, 1)),
        mean("auc", name="roc_auc", bounds=(0, 1)),
        mean("pa", name="proxy_accuracy_train"),
        mean("pauc", name="proxy_auc_train", bounds=(0, 1)),
        mean("risk", name="zero_one_risk_train", higher_is_better=False),
        mean("brier", higher_is_better=False, bounds=(0, 1)),
        mean("ece", higher_is_better=False, bounds=(0, 1)),
        mean("fit_seconds", higher_is_better=False, bounds=(0, None)),
    )
    analyses = {
        **{
            name: f"{_ROOM}.analyses:{name}"
            for name in ("table", "ranks", "significance", "c_curve", "sar_degradation", "cost", "prior_errors")
        },
        "recommend": f"{_ROOM}.recommending:recommend",
    }
    recipes = {
        "reproduce": f"{_ROOM}.reproduce:reproduce",
        **{name: f"{_ROOM}.recipes:{name}" for name in ("plan", "published", "export", "priors")},
    }

    def __init__(
        self,
        data: str | None = None,
        *,
        datasets: str = "digits,breast_cancer,gaussian",
        configurations: Literal["paper", "product"] = "paper",
        scenarios: str = "case_control",
        strategies: str = "scar",
        c: str = "0.1",
        mode: Literal["full_u", "story"] = "full_u",
        prior: Literal["unlabelled", "constructed", "estimated"] = "unlabelled",
        selection: Literal["own", "last", "pa", "pauc", "f1"] = "own",
        clean_share: float = 0.1,
        prevalence: float | None = None,
        test_prevalence: float | None = None,
        rows: int | None = None,
        rethreshold: bool = False,
        calibrate: bool = False,
    ) -> None:
        if not 0 < clean_share < 1:
            raise UsageError(f"Option clean_share={clean_share} must lie strictly between 0 and 1.")
        for name, share in (("prevalence", prevalence), ("test_prevalence", test_prevalence)):
            if share is not None and not 0 < share < 1:
                raise UsageError(f"Option {name}={share} must lie strictly between 0 and 1.")
        if rows is not None and rows < 10:
            raise UsageError(f"Option rows={rows} must be at least 10.")
        self.folder = data
        self.datasets = list(dict.fromkeys(_listed(datasets)))
        if not self.datasets:
            raise UsageError("Option datasets is empty; give at least one, digits say.")
        self.configurations = (
            paper_configurations() if configurations == "paper" else _product(scenarios, strategies, c)
        )
        self.settings = {
            "mode": mode, "prior": prior, "selection": selection, "clean_share": clean_share, "prevalence": prevalence,
            "test_prevalence": test_prevalence, "rows": rows, "rethreshold": rethreshold, "calibrate": calibrate,
        }  # fmt: skip

    @cached_property
    def _tasks(self) -> Sequence[HiddenLabels]:
        from assay.core.errors import unknown_name
        from assay.learning.pu_bench.data import OFFLINE, PUBLISHED

        for name in self.datasets:
            if name not in OFFLINE and name not in PUBLISHED:
                raise unknown_name("data set", name, [*OFFLINE, *PUBLISHED])
            if name in PUBLISHED and self.folder is None:
                raise UsageError(
                    f"Data set {name!r} is not passed on by assay; give data=FOLDER with {name}/ in it, data=hub to "
                    f"fetch it, or take offline ones: {', '.join(OFFLINE)}."
                )
        return [HiddenLabels(name, self) for name in self.datasets]

    def tasks(self) -> Sequence[HiddenLabels]:
        """One a data set."""
        return self._tasks

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """The eighteen, ``upu`` and the oracle ``pn``: scikit-learn estimators."""
        ordered = ["puet", *(name for name in CLASSES if name != "puet")]  # the quickest first, for whoever tries one
        return {name: partial(make_estimator, name) for name in ordered}

    def data(self) -> Mapping[str, Any]:
        """Where the data sets come from."""
        from assay.learning.pu_bench.data import load_dataset

        return {name: load_dataset(name, self.folder).data.info() for name in self.datasets}


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _product(scenarios: str, strategies: str, c: str) -> list[Configuration]:
    try:
        frequencies = [float(part) for part in _listed(c)]
    except ValueError:
        raise UsageError(f"Option c={c!r} must be numbers in (0, 1] separated by commas.") from None
    known = ("scar", "sar_lbe_a", "sar_lbe_b", "sar_pusb", "sar_pusb_topk", "all")
    for strategy in _listed(strategies):
        if strategy not in known:
            raise UsageError(f"Option strategies: {strategy!r} is not known; there are {', '.join(known)}.")
    for scenario in _listed(scenarios):
        if scenario not in ("case_control", "single"):
            raise UsageError(f"Option scenarios: {scenario!r} is not known; there are case_control, single.")
    return configurations(_listed(scenarios), _listed(strategies), frequencies)
