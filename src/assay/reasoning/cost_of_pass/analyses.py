"""Tables from runs of any benchmark: frontier, progress, essentialness, techniques, winners, trade-off.

Options that all share: ``score`` (column of successes), ``expert_cost`` (USD a problem; none = the benchmark's own),
``condition`` (group that makes several strategies of one system), ``task`` (one data set only). Costs are those of the
records' calls with the role of the subject.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from assay.core.errors import UsageError
from assay.core.results import Runs
from assay.core.table import Chart, Table
from assay.reasoning.cost_of_pass.resampling import Unit, progress_draws, resample
from assay.reasoning.cost_of_pass.resampling import bootstrap as resampled
from assay.reasoning.cost_of_pass.values import gain
from assay.reasoning.cost_of_pass.worlds import World, grouping, worlds

USD = ".3g"
SHARE = ".3f"
RESAMPLES = 2000
_UNITS = {
    "nested": "problems, then runs within them",
    "problems": "problems",
    "runs": "runs within problems",
}


def notes_of(found: list[World], *more: str) -> list[str]:
    """Notes of a table, then what was left out of its data sets."""
    return [*more, *(note for world in found for note in world.notes)]


def _interval_note(unit: str, n: int) -> str:
    return (
        f"95 % percentile intervals from {n} resamples of {_UNITS[unit]}. A problem that no attempt solved counts as "
        "the "
        "expert's, so with few attempts estimates are biased upward, and no resampling shows that: look at at_expert."
    )


def frontier(
    runs: Runs,
    *,
    expert_cost: float | None = None,
    score: str | None = None,
    condition: str | None = None,
    task: str | None = None,
    unit: Unit = "nested",
    seed: int = 0,
) -> Table:
    """Frontier of each data set, of all strategies together and of each alone, with intervals."""
    found = worlds(runs, score=score, expert_cost=expert_cost, condition=condition, task=task)
    rows = []
    for world in found:
        cop = world.cop
        intervals = resampled(cop, RESAMPLES, unit, np.random.default_rng(seed), groups={}).frame()
        front = cop.frontier()
        summary = cop.summary()
        for row, interval in zip([None, *summary.iter_rows(named=True)], intervals.iter_rows(named=True), strict=True):
            rows.append(
                {
                    "task": world.label,
                    "strategy": "all" if row is None else row["strategy"],
                    "frontier": interval["value"],
                    "low": interval["low"],
                    "high": interval["high"],
                    "accuracy": None if row is None else row["accuracy"],
                    "cost": None if row is None else row["cost"],
                    "at_expert": front.at_expert if row is None else row["at_expert"],
                    "problems": len(cop.cells.problems),
                    "attempts": int(cop.cells.counts.sum()) if row is None else row["records"],
                }
            )
    frame = pl.DataFrame(rows).sort("task", "frontier")
    return Table(
        "frontier",
        "Dollars a correct answer costs, expert included: mean over problems of the cheapest way",
        frame,
        notes_of(found, _interval_note(unit, RESAMPLES), "frontier in USD a problem; cost in USD an attempt."),
        Chart(
            "interval",
            x="frontier",
            y="strategy",
            low="low",
            high="high",
            facet="task",
            log_x=True,
            x_title="USD a problem",
        ),
        {"frontier": USD, "low": USD, "high": USD, "cost": USD, "accuracy": SHARE},
    )


def table(
    runs: Runs,
    *,
    score: str | None = None,
    condition: str | None = None,
    task: str | None = None,
) -> Table:
    """Cost-of-pass of every strategy on every problem."""
    found = worlds(runs, score=score, condition=condition, task=task)
    frame = pl.concat(world.cop.cost_of_pass().select(pl.lit(world.label).alias("task"), pl.all()) for world in found)
    return Table(
        "cost_of_pass",
        "Cost-of-pass by strategy and problem, USD",
        frame,
        notes_of(found, "inf: no attempt was right."),
        None,
        {"cost": USD, "cost_of_pass": USD, "accuracy": SHARE},
    )


def progress(
    runs: Runs,
    *,
    expert_cost: float | None = None,
    score: str | None = None,
    condition: str | None = None,
    task: str | None = None,
    seed: int = 0,
) -> list[Table]:
    """Frontier as models came out, and the months in which it halves.

    Release dates are facts of the models, or tags (``--tag release_date=2025-01-31``).
    """
    found = worlds(runs, score=score, expert_cost=expert_cost, condition=condition, task=task)
    curves, halves = [], []
    for world in found:
        curve = world.cop.progress()
        curves.append(curve.select(pl.lit(world.label).alias("task"), pl.all()))
        if curve.get_column("release_date").n_unique() < 3:
            continue
        fit = world.cop.half_life()
        low, high = _half_life_interval(world, curve, np.random.default_rng(seed))
        halves.append(
            {
                "task": world.label,
                "half_life": fit.half_life,
                "fit_low": fit.low,
                "fit_high": fit.high,
                "low": low,
                "high": high,
                "a": fit.a,
                "b": fit.b,
                "c": fit.c,
                "releases": fit.n,
            }
        )
    tables = [
        Table(
            "progress",
            "Frontier as models came out",
            pl.concat(curves),
            notes_of(found, "normalised: over the expert's cost. Models of one day enter in order of name."),
            Chart(
                "step", x="release_date", y="frontier", color="task", label="model", log_y=True, y_title="USD a problem"
            ),
            {"frontier": USD, "gain": USD, "relative_gain": SHARE, "normalised": SHARE, "months": ".1f"},
        )
    ]
    if halves:
        tables.append(
            Table(
                "half_life",
                "Months in which the frontier halves: fit of a exp(-b t) + c",
                pl.DataFrame(halves),
                [
                    "fit_low, fit_high: 95 % profile interval of the fit to this one curve; low, high: 95 % percentile "
                    "interval over resamples of problems, then runs. inf: the curve does not fall.",
                ],
                None,
                dict.fromkeys(("half_life", "fit_low", "fit_high", "low", "high"), ".2f"),
            )
        )
    return tables


def _half_life_interval(
    world: World, curve: pl.DataFrame, rng: np.random.Generator, n: int = 200
) -> tuple[float, float]:
    from assay.reasoning.cost_of_pass.decay import fit_half_life

    cop = world.cop
    order = [cop.cells.strategies.index(name) for name in curve.get_column("model")]
    draws = progress_draws(cop, order, n, "nested", rng)
    months = curve.get_column("months").to_numpy()
    last = np.flatnonzero(np.append(np.diff(months) > 0, True))
    fits = np.array([fit_half_life(months[last], draws[last, i], interval=False).half_life for i in range(n)])
    low, high = np.quantile(fits, [0.025, 0.975], method="nearest")
    return float(low), float(high)


def essentialness(
    runs: Runs,
    groups: str = "auto",
    *,
    expert_cost: float | None = None,
    score: str | None = None,
    condition: str | None = None,
    task: str | None = None,
    unit: Unit = "nested",
    seed: int = 0,
) -> Table:
    """What the frontier loses without a group of models: its share of the cost that then arises.

    ``groups``: family, model, technique, strategy, class (the paper's), or ``name=model|model;name=model``.
    """
    found = worlds(runs, score=score, expert_cost=expert_cost, condition=condition, task=task)
    parts = []
    for world in found:
        chosen = grouping(world.cop, groups)
        values = world.cop.essentialness(chosen)
        draws = resampled(world.cop, RESAMPLES, unit, np.random.default_rng(seed), groups=chosen).frame()
        intervals = draws.filter(pl.col("kind") == "essentialness").select(pl.col("name").alias("group"), "low", "high")
        parts.append(values.join(intervals, on="group", how="left").select(pl.lit(world.label).alias("task"), pl.all()))
    return Table(
        "essentialness",
        "Essentialness: share of the cost without a group that the group keeps away",
        pl.concat(parts),
        notes_of(found, _interval_note(unit, RESAMPLES)),
        Chart("bar", x="essentialness", y="group", low="low", high="high", facet="task"),
        {"essentialness": SHARE, "low": SHARE, "high": SHARE, "frontier": USD, "without": USD},
    )


def technique_gain(
    runs: Runs,
    base: str = "vanilla",
    *,
    models: str | None = None,
    expert_cost: float | None = None,
    score: str | None = None,
    condition: str | None = None,
    task: str | None = None,
    unit: Unit = "nested",
    seed: int = 0,
) -> Table:
    """Relative gain of each technique over ``base`` when models may use both.

    ``models``: whose strategies count, separated by ``|``; the paper leaves its reasoning models out.
    """
    found = worlds(runs, score=score, expert_cost=expert_cost, condition=condition, task=task)
    wanted = None if models is None else [name.strip() for name in models.split("|") if name.strip()]
    rows = []
    for world in found:
        cop = world.cop
        frame = cop.strategies.with_row_index("i")
        others = [name for name in frame.get_column("technique").unique().sort() if name != base]
        if not others:
            raise UsageError(
                f"{world.label}: only one technique was tried; run with -o techniques=vanilla,self_refinement, say, or "
                "name the group that was varied with condition=."
            )
        for name in others:
            value = cop.technique_gain(name, base, wanted)
            with_base = set(frame.filter(pl.col("technique") == base).get_column("model"))
            both = frame.filter(
                (pl.col("technique") == name)
                & pl.col("model").is_in(list(with_base if wanted is None else with_base & set(wanted)))
            )
            models_of = both.get_column("model").to_list()
            plain = frame.filter((pl.col("technique") == base) & pl.col("model").is_in(models_of))
            sets = [plain.get_column("i").to_numpy(), np.concatenate([plain["i"].to_numpy(), both["i"].to_numpy()])]
            draws = resample(cop, sets, RESAMPLES, unit, np.random.default_rng(seed))
            low, high = np.quantile([gain(*pair) for pair in draws.T], [0.025, 0.975])
            rows.append(
                {
                    "task": world.label,
                    "technique": name,
                    "gain": value,
                    "low": float(low),
                    "high": float(high),
                    "models": len(models_of),
                    "problems": len(cop.cells.problems),
                }
            )
    return Table(
        "technique_gain",
        f"Relative gain of the frontier when models may also use a technique besides {base}",
        pl.DataFrame(rows).sort("task", "gain", descending=[False, True]),
        notes_of(
            found,
            _interval_note(unit, RESAMPLES),
            "The union holds the plain strategies, so a gain is never negative: noise alone gives small positive ones. "
            "Voting cannot gain: k independent attempts cost k times as much and succeed at most k times as often.",
        ),
        Chart("bar", x="gain", y="technique", low="low", high="high", facet="task"),
        {"gain": SHARE, "low": SHARE, "high": SHARE},
    )


def winners(
    runs: Runs,
    *,
    expert_cost: float | None = None,
    score: str | None = None,
    condition: str | None = None,
    task: str | None = None,
) -> list[Table]:
    """Who is cheapest on each problem, and how often."""
    found = worlds(runs, score=score, expert_cost=expert_cost, condition=condition, task=task)
    maps, counts = [], []
    for world in found:
        front = world.cop.frontier()
        frame = front.frame().select(pl.lit(world.label).alias("task"), pl.all())
        maps.append(frame)
        names = [*world.cop.cells.strategies, world.cop.expert_name]
        won = {name: front.winners.count(name) for name in names}
        counts += [
            {"task": world.label, "winner": name, "problems": n, "share": n / len(front.problems)}
            for name, n in won.items()
        ]
    share = pl.DataFrame(counts).sort("task", "problems", "winner", descending=[False, True, False])
    return [
        Table(
            "winner_counts",
            "How many problems each strategy, or the expert, answers most cheaply",
            share,
            notes_of(found, "Equal costs go to the strategy whose name comes first, and to a model before the expert."),
            Chart("bar", x="problems", y="winner", facet="task"),
            {"share": SHARE},
        ),
        Table(
            "winners",
            "Cheapest way to a correct answer, by problem",
            pl.concat(maps),
            [],
            Chart("heatmap", x="problem", y="winner", color="cost_of_pass", facet="task"),
            {"cost_of_pass": USD},
        ),
    ]


def pareto(runs: Runs, *, score: str | None = None, condition: str | None = None, task: str | None = None) -> Table:
    """Cost of an attempt against accuracy, and who is beaten by nobody in both."""
    found = worlds(runs, score=score, condition=condition, task=task)
    parts = []
    for world in found:
        frame = world.cop.summary().select("strategy", "accuracy", "cost", "records")
        cost, accuracy = frame.get_column("cost").to_numpy(), frame.get_column("accuracy").to_numpy()
        beaten = [
            bool(((cost <= c) & (accuracy >= a) & ((cost < c) | (accuracy > a))).any())
            for c, a in zip(cost, accuracy, strict=True)
        ]
        parts.append(
            frame.select(
                pl.lit(world.label).alias("task"),
                pl.all(),
                pl.Series("efficient", ["no" if b else "yes" for b in beaten]),
            )
        )
    return Table(
        "pareto",
        "Cost of an attempt against accuracy",
        pl.concat(parts).sort("task", "cost"),
        notes_of(found, "efficient: no other strategy is both as cheap and as accurate, and better in one of the two."),
        Chart(
            "scatter", x="cost", y="accuracy", color="efficient", label="strategy", facet="task", log_x=True,
            x_title="USD an attempt",
        ),
        {"cost": USD, "accuracy": SHARE},
    )  # fmt: skip


def bootstrap(
    runs: Runs,
    n: int = 10_000,
    *,
    unit: Unit = "nested",
    method: Literal["percentile", "basic"] = "percentile",
    groups: str = "auto",
    expert_cost: float | None = None,
    score: str | None = None,
    condition: str | None = None,
    task: str | None = None,
    seed: int = 0,
) -> Table:
    """Intervals of the frontier, of each strategy alone and of essentialness, from n resamples."""
    found = worlds(runs, score=score, expert_cost=expert_cost, condition=condition, task=task)
    parts = []
    for world in found:
        chosen = grouping(world.cop, groups)
        drawn = resampled(world.cop, n, unit, np.random.default_rng(seed), groups=chosen)
        parts.append(drawn.frame(method=method).select(pl.lit(world.label).alias("task"), pl.all()))
    return Table(
        "bootstrap",
        f"Bootstrap of {_UNITS[unit]}, {n} resamples, {method} intervals",
        pl.concat(parts),
        notes_of(found, "bias: mean of the resamples minus the estimate."),
        Chart("interval", x="value", y="name", low="low", high="high", color="kind", facet="task"),
        {"value": USD, "bias": USD, "low": USD, "high": USD},
    )
