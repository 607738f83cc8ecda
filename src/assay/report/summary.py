"""What a report says about the runs of one benchmark, as tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from assay.core.results import labels
from assay.core.table import Chart, Table
from assay.report import conduct
from assay.report.conduct import as_floats, number_format

if TYPE_CHECKING:
    import polars as pl

    from assay.core.benchmark import Metric
    from assay.core.metrics import Comparison, Score
    from assay.core.results import Run

MAX_GROUPS = 8
MAX_GROUP_VALUES = 40
MAX_COMPARED = 12
# Beyond this many records only the headline is broken down by group: every further interval costs resamples.
LARGE = 100_000
_HEAT_CELLS = 60
_SIDE_BY_SIDE = 6
_PAIRS = 15


class Board:
    """Runs of one benchmark, summarised. Every table is computed once, when it is first asked for.

    Parameters
    ----------
    runs
        Runs of one benchmark, one or more.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = list(runs)
        self.benchmark: str = self.runs[0].info["benchmark"]
        self.title: str = self.runs[0].info.get("title") or self.benchmark
        self.labels = labels(self.runs)

    # -- what there is ---------------------------------------------------------------------------------------------

    @cached_property
    def frames(self) -> dict[str, pl.DataFrame]:
        """Records by label, without their texts unless a metric reads these."""
        return {label: run.measures_for(metrics) for label, run, metrics in zip(self.labels, self.runs, self._metrics)}

    @cached_property
    def n_records(self) -> int:
        return sum(frame.height for frame in self.frames.values())

    @cached_property
    def groups(self) -> list[str]:
        """Groups of samples worth a breakdown: the metrics' own first, then those with 2 to 40 values."""
        return self._groups[:MAX_GROUPS]

    @cached_property
    def groups_left_out(self) -> list[str]:
        return self._groups[MAX_GROUPS:]

    @cached_property
    def _groups(self) -> list[str]:
        own = [name for metrics in self._metrics for metric in metrics for name in metric.by]
        found: dict[str, None] = {}
        for run in self.runs:
            samples = run.samples
            known = run.info.get("groups") or [c for c in samples.columns if c not in _SAMPLE_COLUMNS]
            for name in ["task", *own, *known]:
                # A group with nearly as many values as there are samples is an identifier.
                most = min(MAX_GROUP_VALUES, samples.height // 2)
                if name in samples.columns and 2 <= samples[name].n_unique() <= most:
                    found[name] = None
        return list(found)

    @cached_property
    def _metrics(self) -> list[Sequence[Metric]]:
        """Metrics of each run: the benchmark's own, or the means of its scores where it is not installed here."""
        return [metrics_of(run) for run in self.runs]

    @cached_property
    def scores(self) -> dict[str, list[Score]]:
        """All scores by label, overall and by group."""
        found = {}
        for label, run, metrics in zip(self.labels, self.runs, self._metrics):
            by = [group for group in self.groups if group in self.frames[label].columns]
            if self.n_records <= LARGE:
                found[label] = list(run.scores(by=by, metrics=metrics))
            else:
                top = [m for m in metrics if m.headline] or metrics[:1]
                plain = [replace(m, by=()) for m in metrics if m not in top]
                found[label] = [*run.scores(by=by, metrics=top), *run.scores(metrics=plain)]
        return found

    @cached_property
    def metrics(self) -> list[str]:
        """Metric names, the headline first."""
        found: dict[str, bool] = {}
        for scores in self.scores.values():
            for score in scores:
                found[score.metric] = found.get(score.metric, False) or score.headline
        return sorted(found, key=lambda name: not found[name])

    @property
    def headline(self) -> str | None:
        return self.metrics[0] if self.metrics else None

    def overall(self, metric: str) -> dict[str, Score]:
        """Overall score by label, the best first; labels without one are left out."""
        found = {
            label: score
            for label, scores in self.scores.items()
            for score in scores
            if score.metric == metric and not score.by
        }
        return dict(sorted(found.items(), key=lambda item: _rank_key(item[1])))

    @cached_property
    def headline_metric(self) -> Metric | None:
        """The headline as the benchmark defines it."""
        return next((m for metrics in self._metrics for m in metrics if m.name == self.headline), None)

    @property
    def higher_is_better(self) -> bool:
        return self.headline_metric is None or self.headline_metric.higher_is_better

    def trial_score(self) -> tuple[str, bool] | None:
        """The score that tells good trials from bad ones, and whether more of it is better.

        It is the column that the first plain mean among the metrics averages, the headline asked first; None where
        every metric is a function of its own, which says nothing about the direction of a column.
        """
        scores = {name for run in self.runs for name in run.info.get("scores", [])}
        every = [m for metrics in self._metrics for m in metrics]
        for metric in sorted(every, key=lambda m: m.name != self.headline):
            terms = metric.terms
            if terms is None or terms.equals is not None or terms.numerator not in scores:
                continue
            if all(terms.numerator in frame.columns for frame in self.frames.values()):
                return terms.numerator, metric.higher_is_better
        return None

    def is_unread(self, label: str) -> pl.Expr | None:
        """Which records hold an answer that could not be read, as the benchmark's own unread rate tells it."""
        import polars as pl

        columns = self.frames[label].columns
        for metric in self._metrics[self.labels.index(label)]:
            terms = metric.terms
            if "unread" not in metric.name.lower() or terms is None or terms.numerator not in columns:
                continue
            if terms.equals is not None:
                return pl.col(terms.numerator).is_in(list(terms.equals))
            return pl.col(terms.numerator) == 1
        return None

    def group_columns(self, label: str) -> list[str]:
        """Groups of a run's records, those of samples and those known afterwards."""
        info = self.runs[self.labels.index(label)].info
        return [
            c for c in [*info.get("groups", []), *info.get("outcome_groups", [])] if c in self.frames[label].columns
        ]

    # -- tables ----------------------------------------------------------------------------------------------------

    def ranking(self, metric: str) -> Table:
        """One row a system, best first: value, interval, n, errors, left out, unread."""
        import polars as pl

        scores = self.overall(metric)
        unread = {label: self.unread(label) for label in scores}
        rows, place, last = [], 0, None
        for index, (label, score) in enumerate(scores.items(), 1):
            if math.isfinite(score.value):
                place, last = (index, score.value) if score.value != last else (place, last)
            rows.append(
                {
                    "rank": place if math.isfinite(score.value) else None,
                    "system": label,
                    "value": score.value,
                    "low": score.low,
                    "high": score.high,
                    "n": score.n,
                    "clusters": score.n_clusters,
                    "errors": score.n_error,
                    "left_out": score.n_left_out,
                    "unread": unread[label],
                }
            )
        frame = pl.DataFrame(
            rows, schema_overrides={"rank": pl.Int64, "unread": pl.Float64, **as_floats("value", "low", "high")}
        )
        frame = frame.with_columns(pl.col(c).fill_nan(None) for c in ("value", "low", "high"))
        # A column that says nothing in any row is noise beside the four that must be read.
        quiet = [c for c in ("left_out",) if not frame[c].sum()] + (
            ["unread"] if frame["unread"].is_null().all() else []
        )
        if (frame["clusters"] == frame["n"]).all():
            quiet.append("clusters")
        number = number_format(frame["value"].to_list())
        return Table(
            name=f"ranking.{metric}",
            title=f"{self.title}: {metric.replace('_', ' ')}",
            frame=frame.drop(quiet),
            notes=_score_notes(scores),
            chart=Chart(
                "interval",
                "value",
                "system",
                color="system",
                low="low",
                high="high",
                x_title=_axis(next(iter(scores.values()))),
            ),
            formats={"value": number, "low": number, "high": number, "unread": ".1%"},
        )

    def rankings(self) -> list[Table]:
        """One ranking a metric, the headline first."""
        return [self.ranking(metric) for metric in self.metrics if self.overall(metric)]

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Paired comparisons of the headline over all pairs of the best twelve systems."""
        if self.headline is None or len(self.runs) < 2:
            return []
        from assay.core.metrics import compare_all

        metric = self.headline_metric
        if metric is None or metric.over == "rows":
            return []
        best = list(self.overall(self.headline))[:MAX_COMPARED]
        frames = {label: self.frames[label] for label in best}
        rules = {task["resample"] for run in self.runs for task in run.info["tasks"].values()}
        return compare_all(metric, frames, resample=rules.pop() if len(rules) == 1 else "samples")

    def comparison(self) -> Table | None:
        """Paired differences of the headline; None without pairs."""
        if not self.comparisons:
            return None
        table = comparison_table(self.comparisons)
        if len(self.runs) > MAX_COMPARED:
            table.notes = [*table.notes, f"Only the best {MAX_COMPARED} of {len(self.runs)} systems are compared."]
        return table

    def verdict(self) -> str:
        """One sentence: whether the ranking by the headline is decisive."""
        from assay.core.stats.paired import decisive_words

        if self.headline is None:
            return "There are no scores to rank by."
        if len(self.runs) > 1 and not self.comparisons:
            return f"{self.headline} has no paired comparison: read its intervals beside each other with care."
        return decisive_words(self.comparisons)

    def by_group(self, group: str, metric: str) -> Table | None:
        """Scores by the values of one group, long: value of the group, system, value, interval, n."""
        import polars as pl

        rows = [
            {
                group: str(score.by[group]),
                "system": label,
                "value": score.value,
                "low": score.low,
                "high": score.high,
                "n": score.n,
                "errors": score.n_error,
            }
            for label, scores in self.scores.items()
            for score in scores
            if score.metric == metric and set(score.by) == {group}
        ]
        if not rows:
            return None
        frame = pl.DataFrame(rows, schema_overrides=as_floats("value", "low", "high"))
        frame = frame.with_columns(pl.col(c).fill_nan(None) for c in ("value", "low", "high"))
        values = list(dict.fromkeys(frame[group].to_list()))
        frame = frame.sort(
            pl.col(group).replace_strict({v: i for i, v in enumerate(_natural(values))}), maintain_order=True
        )
        number = number_format(frame["value"].to_list())
        chart = Chart(
            "interval", "value", group, color="system", low="low", high="high", x_title=metric.replace("_", " ")
        )
        if frame.height > _HEAT_CELLS or len(self.labels) > _SIDE_BY_SIDE:
            chart = Chart("heatmap", "system", group, color="value")
        return Table(
            name=f"by.{group}.{metric}",
            title=f"{metric.replace('_', ' ')} by {group.replace('_', ' ')}",
            frame=frame,
            chart=chart,
            formats={"value": number, "low": number, "high": number},
        )

    def by_groups(self) -> list[Table]:
        """All breakdowns, by group and then by metric."""
        metrics = self.metrics[:1] if self.n_records > LARGE else self.metrics
        found = [self.by_group(group, metric) for group in self.groups for metric in metrics]
        return [table for table in found if table is not None]

    def unread(self, label: str) -> float | None:
        """Share of answers that could not be read, where the benchmark says so; None where it does not."""
        for score in self.scores[label]:
            if "unread" in score.metric.lower() and not score.by:
                return score.value if math.isfinite(score.value) else None
        return None

    def costs(self) -> Table:
        """What one trial of each system costs, beside the headline score."""
        top = self.overall(self.headline) if self.headline else {}
        return conduct.costs(self.frames, top, self.headline or "score")

    def endings(self) -> Table:
        """How trials ended, a share a system."""
        return conduct.endings(self.frames)

    def errors(self) -> Table | None:
        """Errored trials by system and kind."""
        return conduct.errors(self.frames)

    def tables(self) -> list[Table]:
        """Everything above, in the order of a report."""
        found: list[Table | None] = [
            *self.rankings(),
            self.comparison(),
            *self.by_groups(),
            self.costs(),
            self.endings(),
        ]
        return [table for table in [*found, self.errors()] if table is not None]


_SAMPLE_COLUMNS = ("task", "sample", "index", "cluster", "target")


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Comparisons on one metric as a table: difference, interval, p, p after Holm, and what they mean in words."""
    import polars as pl

    metric = comparisons[0].metric
    rows = [
        {
            "pair": f"{c.a} − {c.b}",
            "a": c.a,
            "b": c.b,
            "difference": c.difference,
            "low": c.low,
            "high": c.high,
            "p": c.p,
            "p_holm": c.p_holm,
            "n": c.n,
            "verdict": _words(c),
            "test": c.test,
        }
        for c in comparisons
    ]
    numbers = as_floats("difference", "low", "high", "p", "p_holm")
    frame = pl.DataFrame(rows, schema_overrides=numbers).with_columns(pl.col(list(numbers)).fill_nan(None))
    sign = "+.3f" if number_format(frame["difference"].to_list()) == ".3f" else "+.4g"
    level = _percent(comparisons[0].level)
    pairs = "1 pair" if len(rows) == 1 else f"{len(rows)} pairs"
    words = metric.replace("_", " ")
    return Table(
        name=f"comparison.{metric}",
        title=f"Paired differences in {words}",
        frame=frame,
        notes=[f"{level} intervals of the paired difference; p after Holm over {pairs}.", *_told(comparisons)],
        chart=Chart("interval", "difference", "pair", low="low", high="high", x_title=f"difference in {words}")
        if len(rows) <= _PAIRS
        else Chart("heatmap", "b", "a", color="difference", x_title="subtracted", y_title="from"),
        formats={"difference": sign, "low": sign, "high": sign, "p": ".3g", "p_holm": ".3g"},
    )


def _words(comparison: Comparison) -> str:
    if not math.isfinite(comparison.difference):
        return comparison.note or "undefined"
    if not comparison.decisive:
        return "not decisive"
    a_better = (comparison.difference > 0) == comparison.higher_is_better
    return f"{comparison.a if a_better else comparison.b} better"


def _told(comparisons: Sequence[Comparison]) -> list[str]:
    return [f"{c.a} − {c.b}: {c.note}" for c in comparisons if c.note and math.isfinite(c.difference)]


def boards(runs: Iterable[Run]) -> list[Board]:
    """Runs by benchmark, in the order in which benchmarks first appear."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.info["benchmark"], []).append(run)
    return [Board(listed) for listed in found.values()]


def metrics_of(run: Run) -> Sequence[Metric]:
    """Metrics of a run, or plain means of its scores where its benchmark is not installed here."""
    from assay.core.errors import AssayError
    from assay.core.metrics import mean

    try:
        metrics = run.metrics()
    except AssayError:
        metrics = ()
    return metrics or [mean(name, headline=i == 0) for i, name in enumerate(run.info.get("scores", []))]


def _rank_key(score: Score) -> tuple[bool, float]:
    if not math.isfinite(score.value):
        return (True, 0.0)
    return (False, -score.value if score.higher_is_better else score.value)


def _axis(score: Score) -> str:
    better = "" if score.higher_is_better else " (lower is better)"
    return f"{score.metric.replace('_', ' ')}{better}"


def _score_notes(scores: Mapping[str, Score]) -> list[str]:
    """What the interval is over and how it was made, and every reason a score gives."""
    any_score = next(iter(scores.values()))
    over = {
        "samples": "samples drawn anew",
        "attempts": "attempts drawn anew",
        "both": "samples and attempts drawn anew",
    }
    made = ", ".join(dict.fromkeys(s.interval for s in scores.values() if s.interval))
    first = f"{_percent(any_score.level)} intervals over {over[any_score.resample]}" + (f" ({made})." if made else ".")
    told = [f"{label}: {score.note}" for label, score in scores.items() if score.note]
    return [first, *told]


def _percent(level: float) -> str:
    return f"{100 * level:g} %"


def _natural(values: Sequence[str]) -> list[str]:
    """Numbers in numeric order, else as they came."""
    try:
        return sorted(values, key=float)
    except ValueError:
        return list(values)
