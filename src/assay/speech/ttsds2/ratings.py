"""Listeners: their ratings as a file, attention checks, means by system, correlation with metrics, weights learnt from
them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.datasets.readers import read_jsonl, read_rows, shown
from assay.core.errors import DataError, UsageError

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ("domain", "system", "utterance", "listener", "scale", "value")
SCALES: Mapping[str, tuple[float, float]] = {"MOS": (1, 5), "CMOS": (-3, 3), "SMOS": (1, 5)}
"""Naturalness; better or worse than real; same speaker."""


def read_ratings(path: str | Path) -> pl.DataFrame:
    """Ratings of a CSV or JSON-lines file with the columns domain, system, utterance, listener, scale, value.

    Raises
    ------
    DataError
        A column is missing, a scale unknown, a value off its scale; with file, line, field and value.
    """
    import polars as pl

    file = Path(path)
    numbered = read_jsonl(file) if file.suffix == ".jsonl" else read_rows(file, COLUMNS)
    rows = []
    for line, row in numbered:
        absent = [c for c in COLUMNS if c not in row]
        if absent:
            raise DataError(f"{file}, line {line}: the field {absent[0]!r} is missing.")
        scale = str(row["scale"]).upper()
        if scale not in SCALES:
            raise DataError(
                f"{file}, line {line}: field 'scale' is {shown(row['scale'])}; there are {', '.join(SCALES)}."
            )
        low, high = SCALES[scale]
        try:
            value = float(row["value"])
        except (TypeError, ValueError):
            value = math.nan
        if not low <= value <= high:
            raise DataError(
                f"{file}, line {line}: field 'value' is {shown(row['value'])}; {scale} goes from {low:g} to {high:g}."
            )
        rows.append({**{c: str(row[c]) for c in COLUMNS[:4]}, "scale": scale, "value": value})
    if not rows:
        raise DataError(f"{file} holds no ratings.")
    return pl.DataFrame(rows)


def attentive(ratings: pl.DataFrame, checks: Mapping[str, float], *, tolerance: float = 0.5, least: float = 0.8) -> Any:
    """Ratings of listeners who passed attention checks, without the checks, and the listeners who were dropped.

    Parameters
    ----------
    checks
        Utterances that ask for a certain value, and the value.
    tolerance
        How far an answer may be off.
    least
        Share of checks to pass; who saw none stays.
    """
    import polars as pl

    asked = ratings.filter(pl.col("utterance").is_in(list(checks)))
    off = (pl.col("value") - pl.col("utterance").replace_strict(dict(checks), default=None)).abs()
    passed = asked.group_by("listener").agg((off <= tolerance).mean().alias("share"))
    dropped = sorted(passed.filter(pl.col("share") < least)["listener"].to_list())
    kept = ratings.filter(~pl.col("utterance").is_in(list(checks)) & ~pl.col("listener").is_in(dropped))
    return kept, dropped


def system_means(ratings: pl.DataFrame, *, level: float = 0.95) -> pl.DataFrame:
    """Mean opinion score a domain, scale and system with its interval; listeners are what is independent.

    The interval is of a mean over ratings whose errors are shared inside a listener.
    """
    import polars as pl

    from assay.core.stats.intervals import critical

    rows = []
    for (domain, scale, system), part in ratings.group_by("domain", "scale", "system", maintain_order=True):
        value = part["value"].to_numpy()
        mean = float(value.mean())
        sums = part.group_by("listener").agg((pl.col("value") - mean).sum().alias("off"))["off"].to_numpy()
        g = len(sums)
        se = float(np.sqrt(g / (g - 1) * (sums**2).sum()) / len(value)) if g > 1 else None
        half = None if se is None else critical(level, g - 1) * se
        rows.append(
            {
                "domain": domain, "scale": scale, "system": system, "mean": mean, "se": se,
                "low": None if half is None else mean - half, "high": None if half is None else mean + half,
                "ratings": len(value), "listeners": g,
            }
        )  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None).sort("domain", "scale", "system")


def correlations(means: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """Spearman and Pearson correlation of metrics with listeners over systems, a row a metric, domain and scale.

    Parameters
    ----------
    means
        Of `system_means`.
    metrics
        Columns metric, domain, system, value.

    Raises
    ------
    DataError
        Fewer than three systems are in both.
    """
    import polars as pl
    from scipy.stats import pearsonr, spearmanr

    rows = []
    joined = metrics.join(means.select("domain", "scale", "system", "mean"), on=["domain", "system"])
    for (metric, domain, scale), part in joined.group_by("metric", "domain", "scale", maintain_order=True):
        if part.height < 3:
            raise DataError(f"{metric}, {domain}/{scale}: {part.height} systems are in both; give three at least.")
        x, y = part["value"].to_numpy(), part["mean"].to_numpy()
        spearman: Any = spearmanr(x, y)
        pearson: Any = pearsonr(x, y)
        rows.append(
            {
                "metric": metric, "domain": domain, "scale": scale, "spearman": float(spearman.statistic),
                "spearman_p": float(spearman.pvalue), "pearson": float(pearson.statistic), "systems": part.height,
            }
        )  # fmt: skip
    return pl.DataFrame(rows).sort("metric", "domain", "scale")


def published_correlations() -> pl.DataFrame:
    """Published Spearman correlations of 17 metrics in 12 cells: metric, domain, scale, spearman."""
    import polars as pl

    found = json.loads(Path(__file__).with_name("references.json").read_text(encoding="utf-8"))["correlations"]
    return pl.DataFrame(
        [
            {"metric": metric, "domain": cell.split("/")[0], "scale": cell.split("/")[1], "spearman": value}
            for metric, values in found["rows"].items()
            for cell, value in zip(found["columns"], values, strict=True)
        ]
    )


def published_leaderboard() -> pl.DataFrame:
    """Published leaderboard rows that are known here: language, system, factors, Overall, failure_rate."""
    import polars as pl

    found = json.loads(Path(__file__).with_name("references.json").read_text(encoding="utf-8"))
    return pl.DataFrame(found["leaderboard"], infer_schema_length=None)


@dataclass(frozen=True, slots=True)
class Held:
    """A domain held out: correlation of the plain mean and of learnt weights with its listeners; the weights."""

    domain: str
    plain: float
    learnt: float
    weights: tuple[float, ...]


def leave_one_domain_out(scores: Mapping[str, Any], listeners: Mapping[str, Sequence[float]]) -> list[Held]:
    """Whether weights learnt on the other domains beat the plain mean of factors: Spearman on each held-out domain.

    Weights are non-negative least squares of z-scored means of listeners on z-scored factor scores.

    Parameters
    ----------
    scores
        Domain -> (systems, factors).
    listeners
        Domain -> mean of each system, in the same order.

    Raises
    ------
    UsageError
        Fewer than two domains.
    """
    from scipy.optimize import nnls
    from scipy.stats import spearmanr

    if len(scores) < 2 or set(scores) != set(listeners):
        raise UsageError("Leaving one domain out needs two domains at least, the same in scores and listeners.")
    tables = {d: np.asarray(v, float) for d, v in scores.items()}
    means = {d: np.asarray(v, float) for d, v in listeners.items()}
    found = []
    for held in tables:
        others = [d for d in tables if d != held]
        weights, _ = nnls(
            np.concatenate([_z(tables[d]) for d in others]), np.concatenate([_z(means[d]) for d in others])
        )
        if not weights.any():
            weights = np.ones(tables[held].shape[1])
        rho = [
            float(np.asarray(spearmanr(values, means[held]).statistic))  # type: ignore[attr-defined]
            for values in (tables[held].mean(axis=1), _z(tables[held]) @ weights)
        ]
        found.append(Held(held, rho[0], rho[1], tuple((weights / weights.sum()).tolist())))
    return found


def _z(values: Any) -> Any:
    spread = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1)
