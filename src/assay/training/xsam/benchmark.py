"""XSAM: which optimiser generalises best at which cost? (arXiv 2603.10048)"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from assay.core.benchmark import Benchmark, Needs, Outcome, Sample, Task
from assay.core.errors import UsageError
from assay.core.metrics import mean

if TYPE_CHECKING:
    from assay.core.context import Context

_ROOM = "assay.training.xsam"


@runtime_checkable
class OptimiserFactory(Protocol):
    """Makes an optimiser for a network; ``epochs_factor`` (an attribute, optional) multiplies the epochs."""

    def build(self, net: Any, recipe: Any) -> Any:
        """A torch optimiser over the network's parameters whose ``step`` takes a closure."""
        ...


class Training(Task):
    """A data set, a share of random classes and a network a sample; an attempt is a seed (split, weights, order)."""

    name = "training"
    system = OptimiserFactory
    attempts = 5
    resample = "attempts"
    modalities = ("table",)

    def __init__(self, benchmark: XSAMBenchmark) -> None:
        self.benchmark = benchmark
        if benchmark.settings["device"] != "cpu":
            self.needs = Needs(gpus=1)

    def samples(self) -> Sequence[Sample]:
        """One a data set, noise and network."""
        return [
            Sample(
                f"{data}-{noise:g}-{network}",
                {"data": data, "noise": noise, "network": network},
                groups={"data": data, "noise": noise, "network": network},
                cluster=data,
            )
            for data in self.benchmark.names
            for noise in self.benchmark.noises
            for network in self.benchmark.networks
        ]

    def trial(self, system: OptimiserFactory, sample: Sample, ctx: Context) -> Outcome:
        """Train once; epochs are the rows, searches for alpha the output."""
        import numpy as np

        from assay.training.xsam.data import make_split
        from assay.training.xsam.training import Recipe, train_classifier

        bench = self.benchmark
        # ctx.seed follows from run seed, sample and attempt: every optimiser gets the same split and first weights.
        seed = ctx.seed
        split = make_split(
            sample.input["data"],
            np.random.default_rng(seed),
            train=bench.train,
            noise=sample.input["noise"],
            data=bench.folder,
        )
        found = train_classifier(
            system.build,
            split,
            Recipe(network=sample.input["network"], **bench.settings),
            seed,
            epochs_factor=getattr(system, "epochs_factor", 1),
            checkpoint=ctx.scratch / "training.pt",
            progress=ctx.progress,
        )
        return Outcome(found.scores, {"searches": found.history}, rows=found.rows)


class XSAMBenchmark(Benchmark):
    """Test accuracy and cost of optimisers on one training recipe.

    Parameters
    ----------
    data
        Data sets by comma: digits, breast_cancer, clusters, moons, shapes (offline); cifar10, cifar100, tiny_imagenet.
    folder
        Where published sets lie.
    noise
        Shares of training rows with random classes, by comma.
    network
        By comma: mlp, mlp_plain, cnn, vit, vgg11, resnet18, resnet50, densenet121.
    train
        Training rows; None = 500 digits, clusters or shapes, 200 of breast_cancer, 300 moons, 90 % of published sets.
    epochs, batch_size, lr, momentum, weight_decay, cutout, flip, device
        The recipe. The paper's for CIFAR-100: 200 epochs, batches of 125, lr 0.05, momentum 0.9, weight decay 0.001,
        cutout.
    """

    name = "xsam"
    title = "XSAM: explicit sharpness-aware minimisation"
    paper = "arXiv:2603.10048"
    extras = ("xsam",)
    references = "references.json"
    metrics = (
        mean("last5_mean", name="accuracy_last5", headline=True, bounds=(0, 100), by=("data", "noise", "network")),
        mean("best", name="accuracy_best_epoch_on_test", bounds=(0, 100)),
        mean("valid_accuracy", name="accuracy_validation", bounds=(0, 100)),
        mean("final_train_loss", higher_is_better=False, bounds=(0, None)),
        mean("final_test_loss", higher_is_better=False, bounds=(0, None)),
        mean("rise_at_0.05", higher_is_better=False),
        mean("hessian_top", higher_is_better=False),
        mean("seconds_epoch", higher_is_better=False, bounds=(0, None)),
        mean("cpu_seconds_epoch", higher_is_better=False, bounds=(0, None)),
        mean("passes", name="backward_passes", higher_is_better=False, bounds=(0, None)),
        mean("alpha_mean", error=None, bounds=(0, None)),
    )
    analyses = {name: f"{_ROOM}.analyses:{name}" for name in ("table", "significance", "overhead", "alpha", "curves")}
    recipes = {
        "reproduce": f"{_ROOM}.reproduce:reproduce",
        "plane": f"{_ROOM}.recipes:plane",
        "ablations": f"{_ROOM}.recipes:ablations",
    }

    def __init__(
        self,
        data: str = "digits",
        *,
        folder: str | None = None,
        noise: str = "0.3",
        network: str = "mlp",
        train: int | None = None,
        epochs: int = 60,
        batch_size: int = 50,
        lr: float = 0.05,
        momentum: float = 0.9,
        weight_decay: float = 1e-3,
        cutout: int = 0,
        flip: bool = False,
        device: str = "cpu",
    ) -> None:
        self.names, self.networks = _listed("data", data), _listed("network", network)
        try:
            self.noises = [float(part) for part in _listed("noise", noise)]
        except ValueError:
            raise UsageError(f"Option noise={noise!r} must be numbers in [0, 1) separated by commas.") from None
        if not all(0 <= one < 1 for one in self.noises):
            raise UsageError(f"Option noise={noise!r} must be numbers in [0, 1) separated by commas.")
        if train is not None and train < 2:
            raise UsageError(f"Option train={train} must be at least 2.")
        for name, value in {"epochs": epochs, "batch_size": batch_size, "lr": lr}.items():
            if not value > 0:
                raise UsageError(f"Option {name}={value} must be above 0.")
        if cutout < 0:
            raise UsageError(f"Option cutout={cutout} must not be below 0.")
        self.folder, self.train = folder, train
        self.settings = {
            "epochs": epochs, "batch_size": batch_size, "lr": lr, "momentum": momentum, "weight_decay": weight_decay,
            "cutout": cutout, "flip": flip, "device": device,
        }  # fmt: skip

    def tasks(self) -> Sequence[Training]:
        """Training, the one task."""
        from assay.core.errors import unknown_name

        for name in self.names:
            if name not in _DATA:
                raise unknown_name("data set", name, _DATA)
            if name in _DATA[5:] and self.folder is None:
                raise UsageError(f"Data set {name} is not passed on by assay; give folder=FOLDER with its files.")
        for name in self.networks:
            if name not in _NETWORKS:
                raise unknown_name("network", name, _NETWORKS)
        return [Training(self)]

    def methods(self) -> Mapping[str, Callable[..., Any]]:
        """XSAM, its relatives, and base optimisers alone."""
        from assay.training.xsam.methods import METHODS

        return METHODS

    def data(self) -> Mapping[str, Any]:
        """Where the data sets are from."""
        from assay.training.xsam.data import provenance

        return provenance(self.names, self.folder)


_DATA = ("digits", "breast_cancer", "clusters", "moons", "shapes", "cifar10", "cifar100", "tiny_imagenet")
_NETWORKS = ("mlp", "mlp_plain", "cnn", "vit", "vgg11", "resnet18", "resnet50", "densenet121")


def _listed(name: str, text: str) -> list[str]:
    listed = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not listed:
        raise UsageError(f"Option {name} is empty.")
    return listed
