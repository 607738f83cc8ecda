"""Smooth calibration: which training keeps a binary classifier calibrated? (Futami and Nitanda, arXiv 2505.19396)"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import UsageError
from assay.core.metrics import mean

if TYPE_CHECKING:
    from assay.core.context import Context

_ROOM = "assay.learning.smooth_calibration"
_TOY = (200, 500, 1000, 2000)
SIZES = {"gauss": _TOY, "separable": _TOY, "xor": _TOY, "breast_cancer": (100, 200, 400), "digits": (100, 200)}


@runtime_checkable
class Classifier(Protocol):
    """A scikit-learn classifier: ``clone`` works on it, ``fit(X, y)`` and ``predict_proba(X)`` do the rest.

    Boosting that exposes its stages (``staged_decision_function``, XGBoost, LightGBM) gets a trace.
    """

    def fit(self, X: Any, y: Any) -> Any:
        """Fit to X of shape (n, d), labels 0 and 1."""
        ...

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of both classes, shape (n, 2)."""
        ...


class Training(Task):
    """Data sets by training sizes; an attempt is a split (of a toy: a draw) and a seed."""

    name = "training"
    system = Classifier
    attempts = 5
    resample = "attempts"
    modalities = ("table",)

    def __init__(self, grid: Sequence[tuple[str, int]], stages: int, file: str | None) -> None:
        self.grid = grid
        self.stages = stages
        self.file = file

    def samples(self) -> Sequence[Sample]:
        """One sample a data set and training size."""
        return [
            Sample(f"{data}-{n}", {"data": data, "n": n}, groups={"data": data, "n_train": n}, cluster=data)
            for data, n in self.grid
        ]

    def trial(self, system: Classifier, sample: Sample, ctx: Context) -> Outcome:
        """Train on one split, measure on both parts at every stage kept."""
        from assay.learning.smooth_calibration.scoring import train_and_measure

        return train_and_measure(
            system, sample.input["data"], sample.input["n"], ctx.rng, stages=self.stages, file=self.file
        )


class SmoothCalibration(Benchmark):
    """Test calibration, and what training says about it, over training sizes.

    Parameters
    ----------
    data
        Data sets separated by commas: gauss, separable, xor, breast_cancer, digits, custom.
    sizes
        Training sizes separated by commas; None = 200, 500, 1000, 2000 for the toys, 100, 200, 400 for breast cancer.
    stages
        Stages of a trace that are kept, evenly on a logarithmic scale.
    file
        Table of the data set custom: numeric columns and ``label``.
    """

    name = "smooth_calibration"
    title = "Smooth calibration error: exact value, witness, and the training that controls it"
    paper = "arXiv:2505.19396"
    extras = ("smooth_calibration",)
    metrics = (
        mean("smce", headline=True, higher_is_better=False, bounds=(0, 1), by=("data", "n_train")),
        mean("smce_dual", higher_is_better=False, bounds=(0, 1)),
        mean("smece", higher_is_better=False, bounds=(0, 1)),
        mean("ece15", name="ece_15_equal_width", higher_is_better=False, bounds=(0, 1)),
        mean("mmce", name="mmce_laplace_0.4", higher_is_better=False, bounds=(0, 1)),
        mean("brier", higher_is_better=False, bounds=(0, 1)),
        mean("loss", name="log_loss", higher_is_better=False, bounds=(0, None)),
        mean("accuracy", bounds=(0, 1)),
        mean("train_smce", higher_is_better=False, bounds=(0, 1)),
        mean("train_grad_l1", higher_is_better=False, bounds=(0, 1)),
        mean("gap", name="gap_test_train", higher_is_better=False, bounds=(0, 1)),
    )
    analyses = {name: f"{_ROOM}.analyses:{name}" for name in ("table", "trend", "trace", "bounds", "ranks", "witness")}
    recipes = {"reproduce": f"{_ROOM}.reproduce:reproduce", "measure": f"{_ROOM}.recipes:measure"}

    def __init__(
        self,
        data: str = "gauss,xor,breast_cancer",
        *,
        sizes: str | None = None,
        stages: int = 24,
        file: str | None = None,
    ) -> None:
        from assay.learning.smooth_calibration.grid import chosen

        if stages < 2:
            raise UsageError(f"Option stages={stages} is below 2; a trace has a first and a last stage.")
        self.grid = chosen(data, sizes, SIZES, file)
        self.stages = stages
        self.file = file

    def tasks(self) -> Sequence[Training]:
        """Training, the one task."""
        return [Training(self.grid, self.stages, self.file)]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """The three trainers of the analysis, and common boosting beside them."""
        from assay.learning.smooth_calibration import methods

        return methods.METHODS

    def data(self) -> Mapping[str, Any]:
        """Where the data sets are from."""
        from assay.learning.smooth_calibration.data import provenance

        return provenance(list(dict.fromkeys(name for name, _ in self.grid)), self.file)
