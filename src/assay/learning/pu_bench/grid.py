"""The published grid as a plan: 18 methods x 8 data sets x 20 configurations = 2,880 cells, each over 10 seeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from assay.core.errors import UsageError
from assay.learning.pu_bench.estimators import PAPER

FREQUENCIES = (0.01, 0.03, 0.05, 0.07, 0.09, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MECHANISMS = ("sar_lbe_a", "sar_lbe_b", "sar_pusb_topk")
PAPER_DATASETS = ("mnist", "fashion_mnist", "cifar10", "alzheimer_mri", "imdb", "newsgroups20", "connect4", "spambase")
ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Configuration:
    """How labels are hidden: scenario, labelling mechanism, label frequency."""

    scenario: str
    strategy: str
    c: float

    @property
    def id(self) -> str:
        """As in ``case_control_scar_c0.1``."""
        return f"{self.scenario}_{self.strategy}_c{self.c:g}"


@dataclass(frozen=True, slots=True)
class Cell:
    """One method on one data set in one configuration."""

    method: str
    dataset: str
    configuration: Configuration

    @property
    def id(self) -> str:
        """As in ``nnpu/mnist/case_control_scar_c0.1``."""
        return f"{self.method}/{self.dataset}/{self.configuration.id}"


def paper_configurations() -> list[Configuration]:
    """The twenty: 14 label frequencies under SCAR, and three biased mechanisms at c = 0.05 and 0.5."""
    scar = [Configuration("case_control", "scar", c) for c in FREQUENCIES]
    return scar + [Configuration("case_control", strategy, c) for strategy in MECHANISMS for c in (0.05, 0.5)]


def configurations(
    scenarios: Sequence[str], strategies: Sequence[str], frequencies: Sequence[float]
) -> list[Configuration]:
    """The product, scenario by scenario.

    Raises
    ------
    UsageError
        Something empty, or a frequency outside (0, 1].
    """
    for name, values in (("scenarios", scenarios), ("strategies", strategies), ("c", frequencies)):
        if not values:
            raise UsageError(f"Option {name} is empty; give at least one value.")
    for c in frequencies:
        if not 0 < c <= 1:
            raise UsageError(f"Option c={c} must lie in (0, 1].")
    return [Configuration(one, two, c) for one in scenarios for two in strategies for c in frequencies]


def paper_grid(
    methods: Iterable[str] = PAPER, datasets: Iterable[str] = PAPER_DATASETS, pattern: str = "*"
) -> Iterator[Cell]:
    """Cells of the grid whose ids fit a glob, method by method."""
    found = list(datasets)
    for method in methods:
        for dataset in found:
            for configuration in paper_configurations():
                cell = Cell(method, dataset, configuration)
                if fnmatchcase(cell.id, pattern):
                    yield cell
