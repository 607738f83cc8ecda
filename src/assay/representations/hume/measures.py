"""Main scores by pair, from records: what metrics and analyses share. Importing it is cheap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

READS = ("value", "pair", "kind", "answers_as", "answer", "gold_answer")


def mean_over_pairs(frame: pl.DataFrame, wanted: Sequence[str]) -> float:
    """Unweighted mean of the main scores of the pairs; NaN (void) when one is missing or undefined."""
    if frame["pair"].n_unique() < len(wanted):
        return float("nan")
    found = main_scores(frame)
    return sum(found.get(name, float("nan")) for name in wanted) / len(wanted) if wanted else 0.0


def spearman(frame: pl.DataFrame) -> float:
    """Mean over pairs of the Spearman correlation of mean rating and gold."""
    found = list(main_scores(frame).values())
    return sum(found) / len(found) if found else float("nan")


def main_scores(frame: pl.DataFrame) -> dict[str, float]:
    """Main score of each pair, over annotators as published: majority label, mean rating, mean of scores.

    Attempts of a model's classification are experiments, whose accuracies are averaged; without answers NaN.
    """
    import polars as pl

    done = frame.filter(pl.col("value").is_not_null())
    if done["attempt"].n_unique() > 1:
        done = together(done)
    ranks = (pl.col("value").rank(), pl.col("gold_answer").cast(pl.Float64, strict=False).rank())
    sts = pl.when((pl.col("value").n_unique() > 1) & (pl.col("gold_answer").n_unique() > 1)).then(pl.corr(*ranks))
    found = done.group_by("pair").agg(
        pl.when(pl.col("kind").first() == "sts").then(sts.otherwise(0.0).first()).otherwise(pl.col("value").mean())
    )
    nan = float("nan")
    scores = dict.fromkeys(frame["pair"].unique().to_list(), nan)
    return scores | {name: nan if value is None else value for name, value in found.iter_rows()}


def together(done: pl.DataFrame) -> pl.DataFrame:
    """One row an item: the majority label of annotators (ties alphabetically first), else the mean value."""
    import polars as pl

    vote = (pl.col("kind") == "classification") & (pl.col("answers_as") == "annotator")
    keep = ("pair", "kind", "gold_answer")
    counted = (
        done.filter(vote)
        .group_by("pair", "sample", "answer")
        .agg(pl.len().alias("votes"), pl.col("kind", "gold_answer").first())
    )
    voted = counted.sort("votes", "answer", descending=[True, False]).unique(["pair", "sample"], keep="first")
    right = (pl.col("answer") == pl.col("gold_answer")).cast(pl.Float64).alias("value")
    means = (
        done.filter(~vote)
        .group_by("pair", "sample", maintain_order=True)
        .agg(pl.col("kind", "gold_answer").first(), pl.col("value").mean())
    )
    names = ("sample", *keep, "value")
    return pl.concat([voted.with_columns(right).select(names), means.select(names)]).sort("pair", "sample")
