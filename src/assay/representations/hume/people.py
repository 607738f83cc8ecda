"""Annotators and items as a Rasch model sees them, and which item to ask about next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from assay.core.errors import UsageError
from assay.core.table import Table
from assay.representations.hume.panels import panels

if TYPE_CHECKING:
    from assay.core.results import Runs

PRIOR = 0.25
"""Variance that an item is believed to have before anybody has answered it: that of a coin."""


def skills(runs: Runs) -> list[Table]:
    """Skill of each annotator and difficulty of each item of classification, on one logit scale (Rasch 1960).

    Posterior modes under standard normal difficulties and skills of standard deviation 2, with their standard errors.
    """
    answered = _answers(runs).filter(pl.col("kind") == "classification")
    if answered["who"].n_unique() < 2:
        raise UsageError("A model of skills needs two annotators or more on classification.")
    who, person = np.unique(answered["who"].to_numpy(), return_inverse=True)
    items, item = np.unique(answered["cluster"].to_numpy(), return_inverse=True)
    found, errors = rasch(person, item, answered["value"].to_numpy())
    n = len(who)
    right = answered.group_by("who").agg(pl.col("value").mean(), pl.len()).sort("who")
    people = pl.DataFrame(
        {"annotator": who, "skill": found[:n], "se": errors[:n], "accuracy": right["value"], "answers": right["len"]}
    )
    hard = pl.DataFrame({"item": items, "difficulty": found[n:], "se": errors[n:]})
    notes = [
        "Logits: an annotator of skill s is right on an item of difficulty d with probability 1 / (1 + exp(d - s))."
    ]
    return [
        Table("skills", "Skill of annotators", people.sort("skill", descending=True), notes=notes),
        Table("difficulties", "Difficulty of items", hard.sort("difficulty", descending=True), notes=notes),
    ]


def rasch(
    person: NDArray[np.intp], item: NDArray[np.intp], right: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Skills then difficulties at the posterior mode, and standard errors from the curvature there."""
    from scipy.optimize import minimize
    from scipy.special import expit

    n, m = int(person.max()) + 1, int(item.max()) + 1
    precision = np.concatenate([np.full(n, 1 / 4), np.ones(m)])

    def loss(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logit = x[person] - x[n + item]
        rest = expit(logit) - right
        gradient = np.bincount(person, rest, n + m) - np.bincount(n + item, rest, n + m) + precision * x
        return float((np.logaddexp(0, logit) - right * logit).sum() + 0.5 * (precision * x * x).sum()), gradient

    x = minimize(loss, np.zeros(n + m), jac=True, method="L-BFGS-B").x
    p = expit(x[person] - x[n + item])
    weight = p * (1 - p)
    curvature = np.diag(precision + np.bincount(person, weight, n + m) + np.bincount(n + item, weight, n + m))
    np.add.at(curvature, (person, n + item), -weight)
    np.add.at(curvature, (n + item, person), -weight)
    return x, np.sqrt(np.diag(np.linalg.inv(curvature)))


def ask_next(runs: Runs, items: int = 20) -> Table:
    """Items whose next answer is expected to shrink the variance of the people's score most.

    The spread of an item is that of its answers (right or wrong, rating by the width of the scale, average precision)
    with one answer of a coin's spread added; one more answer takes ``spread / (n (n + 1))`` off its mean's variance.
    """
    answered = _answers(runs).with_columns(
        pl.when(pl.col("kind") == "sts").then(pl.col("value") / 5).otherwise(pl.col("value")).alias("x")
    )
    table = (
        answered.group_by("pair", "sample", maintain_order=True)
        .agg(pl.len().alias("answers"), ((pl.col("x") - pl.col("x").mean()) ** 2).sum().alias("squares"))
        .with_columns(((PRIOR + pl.col("squares")) / (pl.col("answers") + 1)).alias("spread"))
        .with_columns((pl.col("spread") / (pl.col("answers") + 1) / (pl.col("answers") + 2)).alias("gain"))
    )
    shown = table.sort("gain", "pair", "sample", descending=[True, False, False]).head(items).drop("squares")
    return Table(
        "ask_next", "What to ask next", shown, notes=["gain: variance that one more answer is expected to take off."]
    )


def _answers(runs: Runs) -> pl.DataFrame:
    """Answers of people that were read, with who gave them."""
    parts: list[Any] = []
    for panel in panels(runs, together=False):
        if not panel.people:
            continue
        name = pl.lit(panel.name)
        if "respondent" in panel.records.columns:
            name = pl.coalesce(pl.col("respondent"), name)
        parts.append(
            panel.records.filter(pl.col("value").is_not_null()).select(
                "pair",
                "kind",
                "sample",
                "cluster",
                "value",
                pl.concat_str(name, pl.lit(" "), pl.col("attempt")).alias("who"),
            )
        )
    if not parts:
        raise UsageError("None of these runs was answered by people.")
    return pl.concat(parts)
