"""Main scores by pair, from records: what metrics and analyses share. Importing it is cheap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

MEANS = {"classification": "correct", "clustering": "v_measure", "reranking": "ap"}


def mean_over_pairs(frame: pl.DataFrame, wanted: Sequence[str]) -> float:
    """Unweighted mean of the main scores of the pairs; NaN (void) when one is missing or undefined."""
    present = set(frame["pair"].unique().to_list())
    if not present.issuperset(wanted):
        return float("nan")
    found = main_scores(frame)
    return sum(found[name] for name in wanted) / len(wanted) if wanted else 0.0


def spearman(frame: pl.DataFrame) -> float:
    """Mean over pairs of the Spearman correlation of mean rating and gold."""
    found = list(main_scores(frame).values())
    return sum(found) / len(found) if found else float("nan")


def main_scores(frame: pl.DataFrame) -> dict[str, float]:
    """Main score of each pair, over annotators as published: majority label, mean rating, mean of scores.

    Attempts of a model's classification are experiments, whose accuracies are averaged.
    """
    import polars as pl

    found = {}
    for (name, kind), part in frame.partition_by("pair", "kind", as_dict=True).items():
        column = {"sts": "rating", **MEANS}[str(kind)]
        part = part.filter(pl.col(column).is_not_null()) if column in part.columns else part.clear()
        found[str(name)] = _main(part, str(kind)) if part.height else float("nan")
    return found


def _main(part: pl.DataFrame, kind: str) -> float:
    import polars as pl

    if kind == "sts":
        import numpy as np
        from scipy.stats import rankdata

        several = part["sample"].n_unique() < part.height
        if several:
            part = part.group_by("sample", maintain_order=True).agg(pl.col("rating").mean(), pl.col("gold").first())
        x, y = (rankdata(part[c].to_numpy()) for c in ("rating", "gold"))
        if part.height < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
            return 0.0
        return float(np.corrcoef(x, y)[0, 1])
    if kind == "classification" and "answers_as" in part.columns and part["answers_as"][0] == "annotator":
        if part["attempt"].n_unique() > 1:
            part = votes(part)
        return float(part["correct"].mean())  # type: ignore[arg-type]
    return float(part[MEANS[kind]].mean())  # type: ignore[arg-type]


def votes(part: pl.DataFrame) -> pl.DataFrame:
    """Majority answer an item (ties alphabetically first) and whether it is right, columns sample, answer, correct."""
    import polars as pl

    counted = part.group_by("sample", "answer").agg(pl.len().alias("votes"), pl.col("gold_label").first())
    first = counted.sort("votes", "answer", descending=[True, False]).unique(
        "sample", keep="first", maintain_order=True
    )
    return first.with_columns((pl.col("answer") == pl.col("gold_label")).cast(pl.Float64).alias("correct"))
