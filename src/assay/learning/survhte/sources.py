"""Which data sets there are: generated, shipped, in installed packages, or in a folder of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from assay.core.datasets import Data, fingerprint, folder
from assay.core.errors import DataError
from assay.learning.survhte import synthetic
from assay.learning.survhte.data import SurvivalData, synthetic_data


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


def sources(path: str | None, n: int, seed: int) -> Sequence[Source]:
    """All data sets that can be had: the synthetic ones of ``n`` rows from ``seed``, then what ships and what ``path``
    holds."""
    from assay.learning.survhte import clinical, semisynthetic

    own = Data(
        "generated", f"assay's generator, n={n}, seed={seed}", "Apache-2.0", fingerprint([{"n": n, "seed": seed}])
    )
    found = [
        Source(f"{c}/{s}", "synthetic", c, s, "exact", partial(synthetic_data, c, s, n, seed), own)
        for c in synthetic.CONFIGS
        for s in synthetic.SCENARIOS
    ]
    root = None if path is None else Path(path)
    users = None if root is None else folder(root)
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
            f"{root} holds no file that this room reads: actg175.csv, ACTG_175_HIV1.csv, actg_syn.csv, twin30.csv, "
            "twin180.csv or mimic.csv."
        )
    return found


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
