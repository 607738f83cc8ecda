"""Tables that ask: what if prices, the expert, the retries, the prior or the rule of choice were others?"""

from __future__ import annotations

from datetime import date

import polars as pl

from assay.core.errors import UsageError
from assay.core.results import Runs
from assay.core.table import Chart, Table
from assay.reasoning.cost_of_pass import bayes, laws
from assay.reasoning.cost_of_pass.analyses import USD, notes_of
from assay.reasoning.cost_of_pass.values import Law
from assay.reasoning.cost_of_pass.worlds import price_book, worlds


def reprice(
    runs: Runs,
    days: str | None = None,
    *,
    prices: str | None = None,
    expert_cost: float | None = None,
    score: str | None = None,
    condition: str | None = None,
    task: str | None = None,
) -> list[Table]:
    """The same answers at other prices: frontier by day, and who gained or lost problems between first and last.

    Parameters
    ----------
    days
        Days whose prices count, YYYY-MM-DD separated by commas; none = today's.
    prices
        Price book (.csv, .json, .toml), or ``litellm``; none = the lists that assay knows.
    """
    book = price_book(prices)
    chosen = [_day(text) for text in days.split(",")] if days else [None]
    rows, won, notes = [], [], []
    for on in chosen:
        label = on.isoformat() if on else "latest"
        found = worlds(runs, score=score, expert_cost=expert_cost, condition=condition, task=task, prices=book, on=on)
        notes = notes_of(found)
        for world in found:
            front = world.cop.frontier()
            rows.append({"task": world.label, "day": label, "strategy": "all", "frontier": front.value, "cost": None})
            rows += [
                {
                    "task": world.label,
                    "day": label,
                    "strategy": r["strategy"],
                    "frontier": r["frontier"],
                    "cost": r["cost"],
                }
                for r in world.cop.summary().iter_rows(named=True)
            ]
            won += [
                {"task": world.label, "day": label, "strategy": name, "wins": front.winners.count(name)}
                for name in (*world.cop.cells.strategies, world.cop.expert_name)
            ]
    tables = [
        Table(
            "reprice",
            "Frontier at other prices, the same answers",
            pl.DataFrame(rows),
            [*notes, "No model was asked again: tokens are those of the records."],
            Chart("line", x="day", y="frontier", color="strategy", facet="task", log_y=True, y_title="USD a problem"),
            {"frontier": USD, "cost": USD},
        )
    ]
    if len(chosen) > 1:
        labels = [on.isoformat() for on in chosen if on]
        wide = pl.DataFrame(won).pivot("day", index=["task", "strategy"], values="wins")
        change = wide.select("task", "strategy", first=labels[0], last=labels[-1]).with_columns(
            alert=pl.when((pl.col("first") > 0) & (pl.col("last") == 0))
            .then(pl.lit("off the frontier"))
            .when((pl.col("first") == 0) & (pl.col("last") > 0))
            .then(pl.lit("new on the frontier"))
            .otherwise(pl.lit(""))
        )
        tables.append(
            Table(
                "price_alerts",
                f"Problems won at the prices of {labels[0]} and of {labels[-1]}",
                change.sort("task", "last", descending=[False, True]),
            )
        )
    return tables


def posterior(
    runs: Runs,
    *,
    prior: str = "jeffreys",
    expert_cost: float | None = None,
    score: str | None = None,
    condition: str | None = None,
    task: str | None = None,
) -> Table:
    """Frontier under the posterior of the success rates beside the usual one.

    Parameters
    ----------
    prior
        ``jeffreys``, ``uniform``, ``empirical`` (fitted to each strategy), or two numbers as ``0.5:2``.
    """
    chosen = _prior(prior)
    found = worlds(runs, score=score, expert_cost=expert_cost, condition=condition, task=task)
    rows = []
    for world in found:
        for strategy in (None, *world.cop.cells.strategies):
            value = bayes.posterior_frontier(world.cop, None if strategy is None else [strategy], prior=chosen)
            rows.append(
                {
                    "task": world.label,
                    "strategy": strategy or "all",
                    "estimate": value.plug_in,
                    "posterior": value.value,
                    "committed": value.committed,
                }
            )
    return Table(
        "posterior",
        f"Frontier in expectation over the success rates ({prior} prior)",
        pl.DataFrame(rows),
        notes_of(
            found,
            "posterior: the best model of each problem will be found out; committed: one model a problem is chosen "
            "now.",
            "Rates of different models are taken as independent given the records. They are not where problems are "
            "hard for "
            "all: 'posterior' of many models is then too low. Read it as a lower, 'estimate' as an upper mark.",
        ),
        None,
        {"estimate": USD, "posterior": USD, "committed": USD},
    )


def _prior(text: str) -> bayes.Prior:
    named: dict[str, bayes.Prior] = {"jeffreys": bayes.JEFFREYS, "uniform": (1.0, 1.0), "empirical": "empirical"}
    if text in named:
        return named[text]
    first, mark, second = text.partition(":")
    try:
        if mark:
            return float(first), float(second)
    except ValueError:
        pass
    raise UsageError(f"Prior {text!r} is none of {', '.join(named)}, nor two numbers as 0.5:2.")


def expert_sensitivity(
    runs: Runs,
    factors: str = "0.1,0.25,0.5,1,2,4,10",
    *,
    expert_cost: float | None = None,
    score: str | None = None,
    condition: str | None = None,
    task: str | None = None,
) -> Table:
    """Frontier when the expert costs a multiple of what is assumed."""
    try:
        chosen = [float(part) for part in factors.split(",")]
    except ValueError:
        raise UsageError(f"Factors {factors!r} are not numbers separated by commas.") from None
    found = worlds(runs, score=score, expert_cost=expert_cost, condition=condition, task=task)
    frame = pl.concat(
        world.cop.expert_sensitivity(chosen).select(pl.lit(world.label).alias("task"), pl.all()) for world in found
    )
    return Table(
        "expert_sensitivity",
        "Frontier when the expert costs more or less",
        frame,
        notes_of(found, "at_expert: problems that no model answers more cheaply."),
        Chart("line", x="expert_cost", y="frontier", color="task", log_x=True, log_y=True, x_title="USD a problem"),
        {"frontier": USD, "expert_cost": USD},
    )


def routing(
    runs: Runs,
    length: int = 3,
    *,
    expert_cost: float | None = None,
    score: str | None = None,
    condition: str | None = None,
    task: str | None = None,
) -> Table:
    """Cheapest fixed order of models with the expert last, between the frontier and the best single model."""
    found = worlds(runs, score=score, expert_cost=expert_cost, condition=condition, task=task)
    rows = []
    for world in found:
        cop = world.cop
        front = cop.frontier()
        policy = laws.routing(cop.cells.costs, cop.cells.rates, cop._need_expert(), length=length)
        names = [cop.cells.strategies[i] for i in policy.sequence]
        single = cop.summary().sort("frontier").row(0, named=True)
        rows.append(
            {
                "task": world.label,
                "policy": " > ".join([*names, cop.expert_name]),
                "cost": policy.value,
                "held_out": policy.held_out,
                "frontier": front.value,
                "best_single": single["strategy"],
                "single_frontier": single["frontier"],
                "expert": float(cop._need_expert().mean()),
            }
        )
    return Table(
        "routing",
        f"Cheapest cascade of up to {length} attempts, the same for every problem",
        pl.DataFrame(rows),
        notes_of(
            found,
            "USD a problem. held_out: the cascade was chosen on the other problems. frontier knows the best model of "
            "each "
            "problem and retries it without end; a cascade knows neither.",
        ),
        None,
        dict.fromkeys(("cost", "held_out", "frontier", "single_frontier", "expert"), USD),
    )


def sensitivity(
    runs: Runs,
    *,
    check: float = 0.0,
    true_accept: float = 1.0,
    false_accept: float = 0.0,
    damage: float = 0.0,
    correlation: float = 0.0,
    hour_value: float = 0.0,
    expert_cost: float | None = None,
    score: str | None = None,
    condition: str | None = None,
    task: str | None = None,
) -> Table:
    """Frontier under other assumptions: checks that cost and err, retries that hang together, waiting that costs.

    Parameters
    ----------
    check, true_accept, false_accept, damage
        See `laws.Verified`.
    correlation
        See `laws.CorrelatedRetries`.
    hour_value
        USD that an hour of waiting is worth.
    """
    cases: list[tuple[str, Law | None, float]] = [("free checks, independent retries", None, 0.0)]
    if check or damage or true_accept < 1 or false_accept:
        cases.append(("verified", laws.Verified(check, true_accept, false_accept, damage), 0))
    if correlation:
        cases.append(("correlated retries", laws.CorrelatedRetries(correlation), 0))
    if hour_value:
        cases.append(("waiting priced", None, hour_value))
    if len(cases) == 1:
        raise UsageError("Say what to assume: check, true_accept, false_accept, damage, correlation or hour_value.")
    rows, notes = [], []
    for label, law, value in cases:
        found = worlds(runs, score=score, expert_cost=expert_cost, condition=condition, task=task, hour_value=value)
        notes = notes_of(found)
        for world in found:
            cop = world.cop if law is None else world.cop.adjusted(law)
            front = cop.frontier()
            rows.append(
                {
                    "task": world.label,
                    "assumption": label,
                    "strategy": "all",
                    "frontier": front.value,
                    "at_expert": front.at_expert,
                }
            )
            rows += [
                {"task": world.label, "assumption": label}
                | {name: r[name] for name in ("strategy", "frontier", "at_expert")}
                for r in cop.summary().iter_rows(named=True)
            ]
    return Table(
        "sensitivity",
        "Frontier under other assumptions",
        pl.DataFrame(rows),
        notes,
        Chart("bar", x="frontier", y="strategy", color="assumption", facet="task", x_title="USD a problem"),
        {"frontier": USD},
    )


def _day(text: str) -> date:
    """Day of an option."""
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"{text!r} is not a day; write YYYY-MM-DD.") from None
