"""Which data sets there are: generated, shipped, in installed packages, or in a folder of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from assay.core.datasets import Data, fingerprint, folder, hub, read_table
from assay.core.datasets.readers import guarded
from assay.core.errors import DataError
from assay.learning.survhte import synthetic
from assay.learning.survhte.data import SurvivalData, synthetic_data

_FILES = ("*.csv", "*.csv.gz", "*.parquet", "*.h5")


@dataclass(frozen=True)
class Source:
    """A data set by name, and how to load it.

    ``truth`` is ``exact`` (a formula for the conditional effect), ``draws`` (both potential times) or ``unknown``.
    """

    name: str
    task: str
    config: str
    scenario: str
    truth: str
    load: Callable[[], SurvivalData]
    provenance: Data


def sources(path: str | None, n: int, seed: int, confounding: float | None = None) -> Sequence[Source]:
    """All data sets that can be had: the synthetic ones of ``n`` rows from ``seed``, then what ships and what ``path``
    holds, a folder or ``hf:ORG/NAME``. A file's rows stand before generated ones of the same name."""
    from assay.learning.survhte import clinical, semisynthetic

    facts = {"n": n, "seed": seed} | ({} if confounding is None else {"confounding": confounding})
    described = ", ".join(f"{name}={value}" for name, value in facts.items())
    own = Data("generated", f"assay's generator, {described}", "Apache-2.0", fingerprint([facts]))
    users = None if path is None else hub(path, files=_FILES) if path.startswith("hf:") else folder(path)
    root = None if users is None else users.path
    supplied = {} if users is None or root is None else {one.name: one for one in suites(root, users)}
    found = []
    for c in synthetic.CONFIGS:
        for s in synthetic.SCENARIOS:
            drawn = Source(
                f"{c}/{s}", "synthetic", c, s, "exact", partial(synthetic_data, c, s, n, seed, confounding), own
            )
            found.append(supplied.pop(drawn.name, drawn))
    found += supplied.values()
    found += [
        Source(name, "semi_synthetic", name, "semi", "exact", load, data)
        for name, load, data in semisynthetic.available(root, users)
    ]
    found += [
        Source(one.name, one.task, one.name, "real", one.truth, one.load, one.provenance)
        for one in clinical.available(root, users)
    ]
    if users is not None and all(one.provenance is not users for one in found):
        raise DataError(
            f"{path} holds no file that this room reads: actg175.csv, ACTG_175_HIV1.csv, actg_syn.csv, twin30.csv, "
            "twin180.csv, Twin_Data.csv, mimic.csv, RCT-50.h5 and the like, or tables with the columns setup_key and "
            "scenario."
        )
    return found


def suites(root: Path, users: Data) -> Sequence[Source]:
    """Synthetic data sets in files: HDF5 stores, one a configuration with the keys Scenario_A/data, and tables that
    name configuration and scenario in each row (``setup_key``, ``scenario``)."""
    from assay.learning.survhte import published

    found: list[Source] = []

    def add(config: str, scenario: str, load: Callable[[], SurvivalData]) -> None:
        truth = "exact" if config in synthetic.CONFIGS and scenario in synthetic.SCENARIOS else "draws"
        found.append(Source(f"{config}/{scenario}", "synthetic", config, scenario, truth, partial(cached, load), users))

    for path in sorted(path for path in root.rglob("*") if path.suffix in published.STORES):
        for key in published.store_keys(path):
            scenario = key.partition("/")[0].removeprefix("Scenario_")
            add(path.stem, scenario, partial(_from_store, path, key, path.stem, scenario))
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".csv", ".parquet")):
        for config, scenario in _named_rows(path):
            name = scenario.removeprefix("Scenario_")
            add(config, name, partial(_from_rows, path, config, scenario))
    return found


def _from_store(path: Path, key: str, config: str, scenario: str) -> SurvivalData:
    from assay.learning.survhte import published

    return published.published_synthetic(published.read_store(path, key)[0], config, scenario, f"{path}, {key}")


def _named_rows(path: Path) -> Sequence[tuple[str, str]]:
    """Configurations and scenarios of a table; none where its rows do not name them."""
    import polars as pl

    lazy = pl.scan_parquet(path) if path.suffix == ".parquet" else pl.scan_csv(path)
    with guarded(path, "a table"):
        if not {"setup_key", "scenario", "observed_time", "T0", "T1"} <= set(lazy.collect_schema().names()):
            return []
        pairs = lazy.select("setup_key", "scenario").unique().collect().sort("setup_key", "scenario")
    return [(str(config), str(scenario)) for config, scenario in pairs.iter_rows()]


def _from_rows(path: Path, config: str, scenario: str) -> SurvivalData:
    import polars as pl

    from assay.learning.survhte import published

    frame = read_table(path).filter(pl.col("setup_key") == config, pl.col("scenario").cast(pl.String) == scenario)
    where = f"{path}, {config}, {scenario}"
    return published.published_synthetic(frame, config, scenario.removeprefix("Scenario_"), where)


def provenance(chosen: Sequence[Source]) -> Mapping[str, Any]:
    """Facts for ``run.json``: of the one origin, or of several under ``sources``."""
    distinct = list({one.provenance.fingerprint: one.provenance for one in chosen}.values())
    if len(distinct) == 1:
        return distinct[0].info()
    kinds = [data.kind for data in distinct]
    order = ("stand-in", "published sample", "real", "generated")
    return {
        "kind": next(kind for kind in order if kind in kinds),
        "source": "; ".join(dict.fromkeys(data.source for data in distinct)),
        "licence": "; ".join(dict.fromkeys(data.licence for data in distinct if data.licence)),
        "fingerprint": fingerprint([{"of": data.fingerprint} for data in distinct]),
        "sources": [data.info() for data in distinct],
    }


@lru_cache(maxsize=8)
def cached(load: Callable[[], SurvivalData]) -> SurvivalData:
    """A data set kept in memory: trials of one follow each other in a worker."""
    return load()
