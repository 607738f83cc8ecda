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
    from assay.core.store import one_type_a_column

    parts, start = [], 0
    for run in runs:
        frame = _ok(run).with_columns((pl.col("attempt") + start).alias("attempt"), pl.lit(run.id).alias("run"))
        start += int(run.records["attempt"].max() or 0) + 1  # type: ignore[arg-type]
        parts.append(frame)
    return pl.concat(one_type_a_column(parts), how="diagonal_relaxed")


def estimates(panel: Panel, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Estimate]:
    """Main score of every pair: Wilson for accuracy, Fisher's z for Spearman, a bootstrap over queries or texts else."""
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
    column = {"sts": "rating", **measures.MEANS}[kind]
    done = part.filter(pl.col(column).is_not_null()) if column in part.columns else part.clear()
    value = measures.main_scores(done)[about[0]] if done.height else float("nan")
    nan = float("nan")
    if not np.isfinite(value):
        return Estimate(*about, value, nan, nan, "none", 0, answered, np.full(resamples, np.nan))
    if kind == "classification":
        right = _by_item(done, kind)
        low, high = wilson(value * len(right), len(right), level)
        drawn = bootstrap.means(right, bootstrap.draws(len(right), resamples, rng))
        return Estimate(*about, value, float(low), float(high), "Wilson", len(right), answered, drawn)
    if kind == "sts":
        rated = done.group_by("sample", maintain_order=True).agg(pl.col("rating").mean(), pl.col("gold").first())
        low, high = fisher_z(min(max(value, -1.0), 1.0), rated.height, level)
        picks = bootstrap.draws(rated.height, resamples, rng)
        drawn = bootstrap.spearmans(rated["rating"].to_numpy(), rated["gold"].to_numpy(), picks)
        return Estimate(*about, value, float(low), float(high), "Fisher z", rated.height, answered, drawn)
    if kind == "reranking":
        ap = done.group_by("sample", maintain_order=True).agg(pl.col("ap").mean())["ap"].to_numpy()
        drawn = bootstrap.means(ap, bootstrap.draws(len(ap), resamples, rng))
        ends = bootstrap.percentile(drawn, level)
        return Estimate(*about, value, *ends, "bootstrap over queries", len(ap), answered, drawn)
    drawn, n = _cluster_resamples(panel, done, resamples, rng)
    return Estimate(*about, value, *bootstrap.percentile(drawn, level), "bootstrap over texts", n, answered, drawn)


def _by_item(done: pl.DataFrame, kind: str) -> np.ndarray:
    if done["answers_as"][0] == "annotator" and done["attempt"].n_unique() > 1:
        return measures.votes(done)["correct"].to_numpy()
    return done.group_by("sample", maintain_order=True).agg(pl.col("correct").mean())["correct"].to_numpy()


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
