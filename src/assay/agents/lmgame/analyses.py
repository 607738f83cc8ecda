"""Analyses: runs of lmgame to tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from assay.agents.lmgame import tables
from assay.agents.lmgame.benchmark import baselines
from assay.core.datasets.readers import read_json
from assay.core.errors import DataError, UsageError
from assay.core.table import Chart, Table

if TYPE_CHECKING:
    from assay.core.results import Runs


def run_scores(runs: Runs) -> pl.DataFrame:
    """Scored episodes as model (system), harness, game, run (sample and attempt), score, reported, steps, unread."""
    records = runs.records.filter(pl.col("benchmark") == "lmgame")
    if records.is_empty():
        raise UsageError("None of the given runs is a run of lmgame; its analyses read no others.")
    records = records.filter((pl.col("status") == "ok") & pl.col("score").is_not_null())
    if records.is_empty():
        raise DataError("No episode of the given runs has a score; see the errors with `assay report`.")
    several = records.group_by("system").agg(pl.col("run").n_unique().alias("_runs"))
    label = pl.when(pl.col("_runs") > 1).then(pl.col("system") + " · " + pl.col("run").str.tail(6)).otherwise("system")
    extra = [
        name for name in ("steps", "unread", "unknown", "skill", "end", "calls", "seconds") if name in records.columns
    ]
    return records.join(several, on="system").select(
        label.alias("model"),
        pl.col("harness").cast(pl.String),
        "game",
        (pl.col("sample").str.extract(r"^(seed\d+)") + "/" + pl.col("attempt").cast(pl.String)).alias("run"),
        "score",
        "reported",
        "mode",
        *extra,
    )


def scores(runs: Runs) -> Table:
    """Mean and spread by game, system and state of the harness."""
    return tables.scores(run_scores(runs), {game: row["random"] for game, row in baselines().items()})


def beat_random(runs: Runs) -> Table:
    """Share of episodes above the random player's mean."""
    return tables.beat_random(run_scores(runs), {game: row["random"] for game, row in baselines().items()})


def harness(runs: Runs, *, on: str = "true", off: str = "false") -> Table:
    """Harness on against off: paired over seeds within each system, and over systems where there are three."""
    frame = run_scores(runs)
    rows: list[dict[str, Any]] = []
    for (model,), part in frame.group_by(["model"], maintain_order=True):
        # Seeds take the place of models: the same paired statistics.
        seeds = part.with_columns(pl.col("run").alias("model"))
        try:
            found = tables.harness(seeds, on=on, off=off, scale="reported").frame
        except DataError:
            continue
        rows += [{"model": model, "paired_over": "seeds", **row} for row in found.rename({"models": "n"}).to_dicts()]
    both = frame.filter(pl.col("harness").is_in([on, off])).group_by("model").agg(pl.col("harness").n_unique())
    if (both["harness"] == 2).sum() >= 3:
        found = tables.harness(frame, on=on, off=off, scale="reported").frame
        rows += [{"model": "all", "paired_over": "systems", **row} for row in found.rename({"models": "n"}).to_dicts()]
    if not rows:
        raise UsageError(f"No game has harness={on} and harness={off} on at least 3 seeds of one system, or 3 systems.")
    return Table(
        "harness",
        f"Harness {on} against {off}, reported scores",
        pl.DataFrame(rows, infer_schema_length=None),
        notes=[
            "95 % t intervals of the paired difference; p values are not corrected for several games.",
            tables.LOGGED,
        ],
        chart=Chart("interval", x="game", y="difference", low="low", high="high", color="model"),
    )


def modules(runs: Runs, *, off: str = "false") -> Table:
    """Every state of the harness against none, paired over seeds: what each module alone is worth."""
    frame = run_scores(runs)
    rows = []
    for state in frame["harness"].unique(maintain_order=True):
        if state == off:
            continue
        try:
            rows += [{"harness": state, **row} for row in harness(runs, on=state, off=off).frame.to_dicts()]
        except UsageError:
            continue
    if not rows:
        raise UsageError("There is no second state of the harness on 3 seeds; run with -o harness=each -o runs=3.")
    return Table(
        "modules",
        "Modules of the harness against none",
        pl.DataFrame(rows, infer_schema_length=None),
        notes=["Paired over seeds; 95 % t intervals; p values are not corrected."],
        chart=Chart("interval", x="harness", y="difference", low="low", high="high", facet="game"),
    )


def ranks(runs: Runs, *, state: str = "true") -> Table:
    """Ranks of the systems in every game."""
    return tables.ranks(run_scores(runs), state=state)


def normalised(runs: Runs, *, state: str = "true") -> Table:
    """Reported means on a scale of 1 to 100."""
    return tables.normalised(run_scores(runs), state=state)


def ranking(runs: Runs, *, state: str = "true", resamples: int = 2000) -> list[Table]:
    """Systems in order, by resampled runs and by Bradley-Terry."""
    return tables.ranking(run_scores(runs), state=state, resamples=resamples)


def correlations(runs: Runs, *, table: str, state: str = "true") -> Table:
    """Spearman's rho of games and other benchmarks: ``table`` is ``{"models": [...], "table": {benchmark: [...]}}``.

    ``models`` are names of systems, as in the runs.
    """
    columns = tables.columns_of(run_scores(runs), read_table(table), state=state)
    games = [g for g in run_scores(runs)["game"].unique(maintain_order=True) if g in columns]
    if not games:
        raise UsageError(f"No game was played by 3 of the models of {table}; its models must be names of systems.")
    return tables.correlations(columns, games)


def steps(runs: Runs) -> Table:
    """Unread and unknown moves, repeated boards, calls and seconds a step: where an agent loses its turns."""
    rows = []
    for run in runs:
        if run.benchmark != "lmgame":
            continue
        found = run.all_rows()
        if found.is_empty():
            continue
        part = found.group_by("game", "harness", maintain_order=True).agg(
            pl.len().alias("steps"),
            (~pl.col("read")).mean().alias("unread"),
            (~pl.col("known")).mean().alias("unknown"),
            (pl.col("unchanged") > 0).mean().alias("unchanged"),
            pl.col("reward").mean().alias("reward_a_step"),
            pl.col("calls").mean().alias("calls_a_step"),
            pl.col("seconds").mean().alias("seconds_a_step"),
        )
        rows.append(part.select(pl.lit(run.system).alias("system"), pl.all()))
    if not rows:
        raise UsageError("None of the given runs holds steps of lmgame.")
    return Table(
        "steps",
        "Steps by system, game and harness",
        pl.concat(rows, how="diagonal_relaxed"),
        notes=["Shares of steps; unread: no move in the reply; unknown: the game does not know the move."],
    )


def budget(runs: Runs) -> Table:
    """Skill and reported score by tokens, calls and seconds spent."""
    records = runs.records.filter((pl.col("benchmark") == "lmgame") & (pl.col("status") == "ok"))
    if records.is_empty():
        raise UsageError("None of the given runs holds a finished episode of lmgame.")
    calls = pl.col("calls").list
    spent = records.with_columns(
        calls.eval(pl.element().struct.field("prompt_tokens") + pl.element().struct.field("completion_tokens"))
        .list.sum()
        .alias("tokens"),
        calls.eval(pl.element().struct.field("calls")).list.sum().alias("n_calls"),
    )
    skill = [pl.col("skill").mean()] if "skill" in records.columns else []
    found = spent.group_by("system", "game", "harness", maintain_order=True).agg(
        pl.col("reported").mean(),
        *skill,
        pl.col("tokens").mean().alias("tokens_an_episode"),
        pl.col("n_calls").mean().alias("calls_an_episode"),
        pl.col("seconds").mean().alias("seconds_an_episode"),
    )
    found = found.with_columns(
        pl.when(pl.col("tokens_an_episode") > 0)
        .then(1000 * pl.col("reported") / pl.col("tokens_an_episode"))
        .alias("reported_a_thousand_tokens")
    )
    return Table("budget", "What scores cost", found, notes=["Means over episodes; errored episodes are left out."])


def regret(runs: Runs, *, worst: int = 20) -> list[Table]:
    """What steps gave away by the judgement of a solver, and the ``worst`` of them; needs the logs of the episodes."""
    from assay.agents.lmgame import regret as judged
    from assay.agents.lmgame.episode import LOG
    from assay.core.stats.intervals import ratio_interval

    episodes, moments = [], []
    for run in runs:
        played = run.records.filter((pl.col("status") == "ok") & pl.col("task").is_in(judged.JUDGED))
        for record in played.iter_rows(named=True) if run.benchmark == "lmgame" else ():
            log = next((f["path"] for f in record["artifacts"] if f["path"].endswith(LOG)), None)
            if log is None:
                continue
            about = {"system": run.system, "game": record["game"], "harness": record["harness"]}
            steps = list(judged.regrets(run.path / log))
            found = [(row, j) for row, j in steps if j is not None]
            episodes.append(
                about
                | {
                    "cluster": record["cluster"],
                    "steps": len(steps),
                    "judged": len(found),
                    "regret": sum(j.regret for _, j in found),
                    "best": sum(j.regret < 1e-9 for _, j in found),
                    "blunders": sum(j.blunder for _, j in found),
                }
            )
            moments += [
                about
                | {"sample": record["sample"], "step": row["step"], "action": row["agent_action"], "better": j.best}
                | {"regret": j.regret, "blunder": j.blunder}
                for row, j in found
                if j.regret > 1e-9
            ]
    if not episodes:
        raise UsageError(
            f"None of the given runs holds the log of an episode of {', '.join(judged.JUDGED)}; run with -o logs=true."
        )
    rows = []
    for (system, game, harness), part in pl.DataFrame(episodes).group_by(
        ["system", "game", "harness"], maintain_order=True
    ):
        row: dict[str, Any] = {"system": system, "game": game, "harness": harness, "episodes": part.height}
        row |= {"steps": part["steps"].sum(), "judged": part["judged"].sum()}
        if row["judged"]:
            row |= {name: part[name].sum() / row["judged"] for name in ("regret", "best", "blunders")}
            if part["cluster"].n_unique() > 1:
                rng = np.random.default_rng(0)
                found = ratio_interval(part["regret"], part["judged"], part["cluster"], rng=rng)
                row |= {"low": found.low, "high": found.high}
        rows.append(row)
    units = [f"{game}: {unit}; blunder: {what}." for game, (unit, what) in judged.UNITS.items()]
    schema = {"system": pl.String, "game": pl.String, "harness": pl.String, "sample": pl.String, "step": pl.Int64}
    schema |= {"action": pl.String, "better": pl.String, "regret": pl.Float64, "blunder": pl.Boolean}
    most = pl.DataFrame(moments, schema=schema).sort("blunder", "regret", descending=True)
    return [
        Table(
            "regret",
            "What a step gives away, by a solver's judgement",
            pl.DataFrame(rows, infer_schema_length=None),
            notes=[
                "Means over judged steps, 95 % intervals over boards; best, blunders: shares of judged steps.",
                "Not judged: steps at which nothing was at stake (walks, slides that change nothing, falling pieces).",
                *units,
            ],
            chart=Chart("interval", x="system", y="regret", low="low", high="high", color="harness", facet="game"),
        ),
        Table("blunders", "The worst steps", most.group_by("game", maintain_order=True).head(worst)),
    ]


def recall(runs: Runs, *, folders: str) -> Table:
    """Does knowing the script by heart go with scoring in the courtroom? Spearman's rho over systems.

    ``folders``: what ``assay make lmgame contamination`` left for each system, separated by commas. "after" takes runs
    with option ``masks`` and the recall of the masked script.
    """
    from assay.agents.lmgame.contamination import recall_and_score

    known: dict[str, Any] = {}
    for name in [name.strip() for name in folders.split(",") if name.strip()]:
        place = Path(name) / "contamination.json"
        try:
            found = read_json(place)
            known[found["system"]] = {"before": found["recall"]["mean"], "after": found["masked"]["mean"]}
        except (KeyError, TypeError) as error:
            raise DataError(f"{place} is not what `assay make lmgame contamination` writes: {error!r}.") from error
    rows = []
    for when in ("before", "after"):
        played: dict[str, list[float]] = {}
        for run in runs:
            if run.benchmark == "lmgame" and bool(run.info["options"].get("masks")) == (when == "after"):
                part = run.records.filter((pl.col("task") == "courtroom") & (pl.col("status") == "ok"))
                played.setdefault(run.system, []).extend(part["score"].to_list())
        both = [name for name, values in played.items() if values and name in known]
        if len(both) >= 3:
            similarity, scored = ([known[n][when] for n in both], [float(np.mean(played[n])) for n in both])
            rows.append(
                {"mitigation": when, "recall": float(np.mean(similarity)), "score": float(np.mean(scored))}
                | recall_and_score(similarity, scored)
            )
    if not rows:
        raise UsageError("Fewer than 3 systems have both courtroom episodes in the runs and a folder in `folders`.")
    return Table(
        "recall",
        "Recall of the script and score in the courtroom, over systems",
        pl.DataFrame(rows),
        notes=["95 % intervals by Fisher's z; recall: mean cosine of the model's version of each scene with the true."],
    )


def read_table(path: str) -> dict[str, Any]:
    """A table of outside benchmarks: ``{"models": [...], "table": {benchmark: [score or null, ...]}}``."""
    place = Path(path)
    found = read_json(place)
    if (
        not isinstance(found, dict)
        or not isinstance(found.get("models"), list)
        or not isinstance(found.get("table"), dict)
    ):
        raise DataError(f"{place} needs 'models' (names) and 'table' (benchmark to scores in the same order).")
    for name, column in found["table"].items():
        if not isinstance(column, list) or len(column) != len(found["models"]):
            raise DataError(f"{place}, {name}: give {len(found['models'])} scores, null where there is none.")
    return found
