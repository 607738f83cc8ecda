"""Tables over run scores (model, harness, game, run, score): the same for runs of assay and for published results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from assay.agents.lmgame import scoring
from assay.agents.lmgame.env import reported_score
from assay.agents.lmgame.published import RunScore, references
from assay.core.errors import DataError, UsageError
from assay.core.stats.intervals import critical
from assay.core.stats.ratings import bradley_terry
from assay.core.table import Chart, Table

LOGGED = "2048 is reported as the mean over runs of 10*log2(score)."
HIGHER = "Rank 1 is best; ties share their average."


def frame_of(rows: Iterable[RunScore]) -> pl.DataFrame:
    """Run scores as a frame: model, harness ("true", "false"), game, run, score, reported."""
    found = [
        {
            "model": row.model,
            "harness": "true" if row.harness else "false",
            "game": row.game,
            "run": str(row.run),
            "score": row.score,
            "reported": reported_score(row.game, row.score),
        }
        for row in rows
    ]
    if not found:
        raise DataError("There is no run score to tabulate.")
    return pl.DataFrame(found)


def scores(frame: pl.DataFrame, random: Mapping[str, float] | None = None) -> Table:
    """Mean and spread by model, game and harness; with the share of runs above the random player's mean."""
    rows = []
    for (game, model, harness), part in frame.group_by("game", "model", "harness", maintain_order=True):
        found = scoring.aggregate(str(game), part["score"].to_list())
        reported = part["reported"].to_numpy()
        low, high = _t_interval(reported)
        row = {
            "game": game,
            "model": model,
            "harness": harness,
            "score": found.mean,
            "std": _none(found.std_sample),
            "reported": found.reported_mean,
            "low": low,
            "high": high,
            "variation": _none(scoring.variation(reported)),
            "runs": found.n,
        }
        if random and game in random:
            row["beat_random"] = float(np.mean(reported > random[str(game)]))
        rows.append(row)
    return Table(
        "scores",
        "Scores by game, model and harness",
        pl.DataFrame(rows, infer_schema_length=None).sort(
            "game", "harness", "reported", descending=[False, True, True]
        ),
        notes=[
            LOGGED,
            "low and high: 95 % t interval of the reported mean over runs; missing for one run.",
            "variation: sample standard deviation by mean of the reported scores.",
        ],
        chart=Chart("interval", x="model", y="reported", low="low", high="high", color="harness", facet="game"),
    )


def beat_random(frame: pl.DataFrame, random: Mapping[str, float]) -> Table:
    """Share of runs above the random player's mean, with and without harness, with Wilson's interval."""
    from assay.core.stats.intervals import wilson

    known = frame.filter(pl.col("game").is_in(list(random)))
    mean = pl.col("game").replace_strict(random, default=None, return_dtype=pl.Float64)
    rows = []
    for (harness,), part in known.with_columns((pl.col("reported") > mean).alias("above")).group_by(["harness"]):
        over = int(part["above"].sum())
        low, high = wilson(over, part.height)
        rows.append(
            {
                "harness": harness,
                "beat_random": over / part.height,
                "low": float(low),
                "high": float(high),
                "runs": part.height,
            }
        )
    return Table(
        "beat_random",
        "Share of runs above the random player's mean",
        pl.DataFrame(rows).sort("harness"),
        notes=["95 % Wilson intervals over runs; runs of one model are not independent, so they are too narrow."],
        chart=Chart("interval", x="harness", y="beat_random", low="low", high="high"),
    )


def harness(frame: pl.DataFrame, *, on: str = "true", off: str = "false", scale: str = "score") -> Table:
    """Harness on against off, paired over models by their means: t, Wilcoxon, Glass's delta, variation."""
    rows, left_out = [], []
    for game in frame["game"].unique(maintain_order=True):
        a, b = (_means(frame.filter(pl.col("game") == game), state, scale) for state in (on, off))
        models = [m for m in a if m in b]
        if len(models) < 3:
            left_out.append(f"{game} ({len(models)})")
            continue
        effect = scoring.harness_effect([a[m] for m in models], [b[m] for m in models])
        rows.append(
            {
                "game": game,
                "difference": effect.mean_difference,
                "low": effect.low,
                "high": effect.high,
                "t": effect.t,
                "p": effect.p,
                "wilcoxon_p": effect.wilcoxon_p,
                "glass_delta": effect.glass_delta,
                "variation_on": scoring.variation(list(a.values())),
                "variation_off": scoring.variation(list(b.values())),
                "models": effect.n,
            }
        )
    if not rows:
        raise DataError(
            f"No game has both harness={on} and harness={off} for at least 3 models: {', '.join(left_out)}."
        )
    notes = [
        f"Paired over models by their mean {scale}; 95 % t intervals; p values are not corrected for several games.",
        "glass_delta: mean difference by the standard deviation without harness.",
    ]
    if left_out:
        notes.append(f"Left out for fewer than 3 models with both settings: {', '.join(left_out)}.")
    return Table(
        "harness",
        f"Harness {on} against {off}",
        pl.DataFrame(rows),
        notes=notes,
        chart=Chart("interval", x="game", y="difference", low="low", high="high"),
    )


def ranks(frame: pl.DataFrame, *, state: str = "true", scale: str = "reported") -> Table:
    """Ranks of the models in every game, and their average."""
    names, games, table = _matrix(frame, state, scale)
    columns = {game: scoring.rank(table[:, i]) for i, game in enumerate(games)}
    average = np.nanmean(np.array(list(columns.values())), axis=0)
    found = pl.DataFrame({"model": names, **columns, "average_rank": average}).with_columns(
        pl.col(pl.Float64).fill_nan(None)
    )
    return Table(
        "ranks",
        f"Ranks of the models, harness {state}",
        found.sort("average_rank"),
        notes=[HIGHER, LOGGED, "The average is over the games that a model played."],
        chart=Chart("bar", x="model", y="average_rank"),
    )


def normalised(frame: pl.DataFrame, *, state: str = "true") -> Table:
    """Reported means on a scale of 1 to 100 a game, for radars and bars."""
    names, games, table = _matrix(frame, state, "reported")
    rows = []
    for i, game in enumerate(games):
        column = scoring.normalise([None if math.isnan(x) else float(x) for x in table[:, i]])
        rows += [{"game": game, "model": m, "normalised": x} for m, x in zip(names, column) if x is not None]
    return Table(
        "normalised",
        f"Reported means on a scale of 1 to 100, harness {state}",
        pl.DataFrame(rows),
        notes=["(x - min) / (max - min) * 99 + 1 over the models present; all equal gives 1.", LOGGED],
        chart=Chart("bar", x="game", y="normalised", color="model"),
    )


def correlations(columns: Mapping[str, Sequence[float | None]], games: Sequence[str]) -> Table:
    """Spearman's rho of each game with every other column over the models that both have."""
    names, rho, counts = scoring.spearman_matrix(columns)
    rows = []
    for game in games:
        for other in names:
            i, j = names.index(game), names.index(other)
            low, high = scoring.spearman_interval(float(rho[i, j]), int(counts[i, j]))
            rows.append(
                {
                    "game": game,
                    "benchmark": other,
                    "rho": _none(rho[i, j]),
                    "low": _none(low),
                    "high": _none(high),
                    "models": int(counts[i, j]),
                }
            )
    return Table(
        "correlations",
        "Spearman correlation of games and benchmarks over models",
        pl.DataFrame(rows, infer_schema_length=None),
        notes=[
            "Pairwise complete: each cell over the models that have both.",
            "95 % intervals by Fisher's z (Bonett and Wright 2000): wide, for there are few models.",
            "Nothing is corrected for the number of cells.",
        ],
        chart=Chart("heatmap", x="benchmark", y="game", color="rho"),
    )


def embedding(columns: Mapping[str, Sequence[float | None]], *, perplexity: float = 7.0, seed: int = 0) -> Table:
    """t-SNE of the rank vectors of games and benchmarks: near ones order the models alike."""
    table = np.array([scoring.rank([math.nan if v is None else v for v in column]) for column in columns.values()])
    places = scoring.embed(table, perplexity=perplexity, seed=seed)
    return Table(
        "embedding",
        "t-SNE of the rank vectors of games and benchmarks",
        pl.DataFrame({"benchmark": list(columns), "x": places[:, 0].astype(float), "y": places[:, 1].astype(float)}),
        notes=[
            f"Perplexity {min(perplexity, len(table) - 1):g}, seed {seed}; distances between far points mean nothing."
        ],
        chart=Chart("scatter", x="x", y="y", label="benchmark"),
    )


def factors(
    columns: Mapping[str, Sequence[float | None]], games: Sequence[str], *, abilities: int = 4, seed: int = 12
) -> list[Table]:
    """Low-rank model of the rank table: what each game and benchmark asks for, and what each model has."""
    table = np.array([scoring.rank([math.nan if v is None else v for v in column]) for column in columns.values()]).T
    found = scoring.factorise(table, abilities, seed=seed)
    names = [f"ability_{i + 1}" for i in range(abilities)]
    tasks = pl.DataFrame({"benchmark": list(columns), **{n: found.tasks[i] for i, n in enumerate(names)}})
    tasks = tasks.with_columns(pl.col("benchmark").is_in(list(games)).alias("game"))
    notes = [
        f"0.2 * ranks ~ U V, both non-negative, L-BFGS-B, l1 0.08 on V, 0.01 squared on U, seed {seed}; "
        f"root mean square error {found.rmse:.3g}.",
        "Ranks are factorised, so a weight means a worse place; abilities have no order and no name of their own.",
    ]
    return [
        Table("factors", "Latent abilities of games and benchmarks", tasks, notes=notes),
        Table(
            "factors_models",
            "Latent abilities of models",
            pl.DataFrame(
                {"model_index": list(range(len(table))), **{n: found.models[:, i] for i, n in enumerate(names)}}
            ),
            notes=notes,
        ),
    ]


SUBSETS = (
    ("knowledge", "math", "coding"),
    ("knowledge", "visual", "coding"),
    ("knowledge", "visual", "math", "coding"),
    ("knowledge", "puzzle", "visual", "math", "coding"),
)


def predictor(frame: pl.DataFrame, *, degree: int = 1) -> Table:
    """Ranks in the games from the ranks of the published eight models in categories of benchmarks."""
    published = references()
    models, rows = published["benchmarks"]["models"], published["category_ranks"]
    result = []
    for game in frame["game"].unique(maintain_order=True):
        means = _means(frame.filter(pl.col("game") == game), "true", "score")
        if any(m not in means for m in models):
            continue
        # The published rule takes the integer part of average ranks.
        target = np.floor(scoring.rank([means[m] for m in models]))
        for subset in SUBSETS:
            found = scoring.predict_ranks({c: rows[c] for c in subset}, target, degree=degree)
            result += [
                {
                    "game": game,
                    "categories": " + ".join(subset),
                    "feature": f,
                    "weight": float(w),
                    "residual": found.residual,
                    "pearson": found.pearson,
                }
                for f, w in zip(found.features, found.weights)
            ]
    if not result:
        raise DataError("The rank predictor needs a game that all eight published models played with harness.")
    return Table(
        "predictor",
        "Game ranks from category ranks (non-negative weights)",
        pl.DataFrame(result),
        notes=[
            "Projected gradient descent over all combinations of rank rows, in fixed order; eight models: descriptive.",
            "residual: mean of ||Xw - y|| / mean(y); pearson: mean over combinations.",
        ],
    )


def ranking(frame: pl.DataFrame, *, state: str = "true", resamples: int = 2000, seed: int = 0) -> list[Table]:
    """Models in order, and how sure it is: runs resampled; Bradley-Terry over pairs of runs within games."""
    from scipy.stats import rankdata

    part = frame.filter(pl.col("harness") == state)
    games = list(part["game"].unique(maintain_order=True))
    played = part.group_by("model").agg(pl.col("game").n_unique())
    names = sorted(played.filter(pl.col("game") == len(games))["model"])
    if len(names) < 2:
        raise UsageError(f"A ranking needs two models that played all of {', '.join(games)} with harness={state}.")
    by = {k: p["reported"].to_numpy() for k, p in part.group_by(["model", "game"])}
    rng = np.random.default_rng(seed)
    drawn = np.zeros((resamples, len(names)))
    for g in games:
        means = [rng.choice(by[m, g], (resamples, len(by[m, g]))).mean(axis=1) for m in names]
        drawn += rankdata(-np.stack(means, axis=1), axis=1) / len(games)
    mean = np.mean([scoring.rank([float(by[m, g].mean()) for m in names]) for g in games], axis=0)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    first = (drawn == drawn.min(axis=1, keepdims=True)).mean(axis=0)
    single = sum(len(x) == 1 for (m, _), x in by.items() if m in names)
    order = Table(
        "ranking",
        f"Average rank over {len(games)} games, harness {state}",
        pl.DataFrame({"model": names, "average_rank": mean, "low": low, "high": high, "first": first}).sort(
            "average_rank"
        ),
        notes=[
            HIGHER,
            f"95 % percentile intervals of {resamples} resamples of runs within model and game; games are fixed.",
            f"{single} of {len(names) * len(games)} cells hold a single run: the intervals are too narrow.",
        ],
        chart=Chart("interval", x="model", y="average_rank", low="low", high="high"),
    )
    wins = np.zeros((len(names), len(names)))
    for a, b in combinations(range(len(names)), 2):
        for g in games:
            x, y = by[names[a], g][:, None], by[names[b], g][None, :]
            share = float(np.mean((x > y) + 0.5 * (x == y)))
            wins[a, b] += share
            wins[b, a] += 1 - share
    rated = bradley_terry(wins, names, prior=0.1)
    strength = Table(
        "bradley_terry",
        f"Bradley-Terry strengths over games, harness {state}",
        pl.DataFrame({"model": names, "strength": rated.strength, "low": rated.low, "high": rated.high}).sort(
            "strength", descending=True
        ),
        notes=[
            "A contest is a game between two models; its result is the share of run pairs won, ties half.",
            "0.1 wins and losses are added to every pair; 95 % Wald limits.",
        ],
        chart=Chart("interval", x="model", y="strength", low="low", high="high"),
    )
    return [order, strength]


def columns_of(
    frame: pl.DataFrame, benchmarks: Mapping[str, Any], *, state: str = "true"
) -> dict[str, list[float | None]]:
    """Columns for correlations: outside benchmarks over their models, then the games of ``frame`` over them."""
    models = list(benchmarks["models"])
    columns = {name: list(column) for name, column in benchmarks["table"].items()}
    for game in frame["game"].unique(maintain_order=True):
        means = _means(frame.filter(pl.col("game") == game), state, "reported")
        if sum(m in means for m in models) >= 3:
            columns[str(game)] = [means.get(m) for m in models]
    return columns


def _means(frame: pl.DataFrame, state: str, scale: str) -> dict[str, float]:
    part = frame.filter(pl.col("harness") == state).group_by("model", maintain_order=True).agg(pl.col(scale).mean())
    return dict(zip(part["model"], part[scale]))


def _matrix(frame: pl.DataFrame, state: str, scale: str) -> tuple[list[str], list[str], scoring.Array]:
    part = frame.filter(pl.col("harness") == state)
    if part.is_empty():
        raise UsageError(f"No score has harness={state}; there are {', '.join(sorted(frame['harness'].unique()))}.")
    names = list(part["model"].unique(maintain_order=True))
    games = list(part["game"].unique(maintain_order=True))
    table = np.full((len(names), len(games)), math.nan)
    for (model, game), runs in part.group_by(["model", "game"]):
        table[names.index(str(model)), games.index(str(game))] = float(runs[scale].to_numpy().mean())
    return names, games, table


def _t_interval(x: scoring.Array) -> tuple[float | None, float | None]:
    if len(x) < 2:
        return None, None
    half = critical(0.95, len(x) - 1) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return float(x.mean()) - half, float(x.mean()) + half


def _none(x: float) -> float | None:
    return None if math.isnan(x) else float(x)
