"""Runs as panels: people's answers together, each model alone, with an estimate and resamples for every pair."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from assay.core.errors import UsageError
from assay.core.results import Run, labels
from assay.core.stats.intervals import fisher_z, wilson
from assay.core.store import load_output
from assay.representations.hume import bootstrap, measures, questions
from assay.representations.hume.benchmark import Hume
from assay.representations.hume.items import PairItems
from assay.representations.hume.scoring import is_constant

if TYPE_CHECKING:
    from assay.core.results import Runs

PEOPLE = "people"
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Estimate:
    """Main score of a panel on a pair.

    ``interval`` says by what rule ``low`` and ``high`` were made; ``drawn`` are resampled scores, for means over pairs.
    """

    pair: str
    kind: str
    language: str
    value: float
    low: float
    high: float
    interval: str
    n: int
    answered: float
    drawn: np.ndarray


@dataclass(frozen=True, slots=True)
class Panel:
    """Who answered together: all people, or one model."""

    name: str
    people: bool
    runs: Sequence[Run]
    records: pl.DataFrame

    @property
    def pairs(self) -> list[str]:
        """Pairs that it has records of."""
        return self.records["pair"].unique(maintain_order=True).to_list()


def is_person(run: Run) -> bool:
    """Whether a run holds answers of people: asked, simulated, or imported as such."""
    if run.system.startswith(("human:", "method:simulated")):
        return True
    kinds = run.records["respondent_kind"] if "respondent_kind" in run.records.columns else None
    return kinds is not None and bool((kinds == "human").all())


def panels(runs: Runs, *, together: bool = True) -> list[Panel]:
    """People first (as one panel, or one each), then each model."""
    for run in runs:
        if run.benchmark != "hume":
            raise UsageError(f"{run.id} is a run of {run.benchmark}; this analysis takes runs of hume.")
    people = [run for run in runs if is_person(run)]
    names = dict(zip((run.id for run in runs), labels(list(runs))))
    found = []
    if people and together:
        found.append(Panel(PEOPLE, True, people, _joined(people)))
    elif people:
        found += [Panel(names[run.id], True, [run], _ok(run)) for run in people]
    found += [Panel(names[run.id], False, [run], _ok(run)) for run in runs if run not in people]
    return found


def study_of(run: Run) -> Mapping[str, PairItems]:
    """Items that a run was made on."""
    return _study(json.dumps(run.info["options"], sort_keys=True))


@lru_cache(maxsize=4)
def _study(options: str) -> Mapping[str, PairItems]:
    return Hume(**json.loads(options)).study.pairs


def _ok(run: Run) -> pl.DataFrame:
    return run.records.filter(pl.col("status") == "ok")


def _joined(runs: Sequence[Run]) -> pl.DataFrame:
    """Records of several people, attempts numbered through; two people are two attempts of one sample."""
    from assay.core.frames import one_type_a_column

    parts, start = [], 0
    for run in runs:
        frame = _ok(run).with_columns((pl.col("attempt") + start).alias("attempt"), pl.lit(run.id).alias("run"))
        start += int(run.records["attempt"].max() or 0) + 1  # type: ignore[arg-type]
        parts.append(frame)
    return pl.concat(one_type_a_column(parts), how="diagonal_relaxed")


def estimates(panel: Panel, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Estimate]:
    """Main score of every pair: Wilson for accuracy, Fisher z for Spearman, else a bootstrap over queries or texts."""
    found = {}
    for (name, kind, language), part in panel.records.partition_by(
        "pair", "kind", "language", as_dict=True, maintain_order=True
    ).items():
        rng = np.random.default_rng([seed, *str(name).encode()])
        found[str(name)] = _estimate(panel, part, (str(name), str(kind), str(language)), level, resamples, rng)
    return found


def _estimate(
    panel: Panel, part: pl.DataFrame, about: tuple[str, str, str], level: float, resamples: int,
    rng: np.random.Generator,
) -> Estimate:  # fmt: skip
    kind = about[1]
    answered = float(part["answered"].mean() or 0)  # type: ignore[arg-type]
    done = part.filter(pl.col("value").is_not_null())
    value = measures.main_scores(done)[about[0]] if done.height else float("nan")
    nan = float("nan")
    if not np.isfinite(value):
        return Estimate(*about, value, nan, nan, "none", 0, answered, np.full(resamples, np.nan))
    if kind == "clustering":
        drawn, n = _cluster_resamples(panel, done, resamples, rng)
        ends, interval = bootstrap.percentile(drawn, level), "bootstrap over texts"
        return Estimate(*about, value, *ends, interval, n, answered, drawn)
    items = measures.together(done)
    n, values = items.height, items["value"].to_numpy()
    picks = bootstrap.draws(n, resamples, rng)
    if kind == "sts":
        if is_constant(values):
            # Published code scores it 0; there is no correlation to give an interval to.
            return Estimate(*about, value, nan, nan, "none: constant ratings", n, answered, np.full(resamples, value))
        drawn = bootstrap.spearmans(values, items["gold_answer"].cast(pl.Float64).to_numpy(), picks)
        low, high = fisher_z(min(max(value, -1.0), 1.0), n, level)
        return Estimate(*about, value, float(low), float(high), "Fisher z", n, answered, drawn)
    drawn = bootstrap.means(values, picks)
    if kind == "classification":
        low, high = wilson(value * n, n, level)
        return Estimate(*about, value, float(low), float(high), "Wilson", n, answered, drawn)
    ends, interval = bootstrap.percentile(drawn, level), "bootstrap over queries"
    return Estimate(*about, value, *ends, interval, n, answered, drawn)


def _cluster_resamples(
    panel: Panel, done: pl.DataFrame, resamples: int, rng: np.random.Generator
) -> tuple[np.ndarray, int]:
    """Mean over annotators and problems of the V-measure of the same drawn texts."""
    found, texts = [], 0
    for rows in done.partition_by("sample", maintain_order=True):
        answers = [clusters_of(panel, row) for row in rows.iter_rows(named=True)]
        sizes = {len(gold) for gold, _ in answers}
        picks = {size: bootstrap.draws(size, resamples, rng) for size in sorted(sizes)}
        texts += max(sizes)
        found += [bootstrap.v_measures(gold, given, picks[len(gold)]) for gold, given in answers]
    return np.mean(found, axis=0), texts


def clusters_of(panel: Panel, row: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Gold and given cluster of each text that one record has a cluster for."""
    run = panel.runs[0] if "run" not in row else next(r for r in panel.runs if r.id == row["run"])
    pair = study_of(run)[row["pair"]]
    item = next(i for i in pair.items if i.id == row["sample"].partition("/")[2])
    output = load_output(run.path, row["output"])
    given = output["answer"] if isinstance(output, Mapping) else questions.read(pair, item, output).value
    kept = [(str(g), str(c)) for g, c in zip(item.gold, given) if c is not None]
    return [g for g, _ in kept], [c for _, c in kept]
