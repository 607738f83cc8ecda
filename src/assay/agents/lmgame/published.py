"""Published formats: ``model_perf_rank.json`` and run folders, read into scores and outcomes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.agents.lmgame.benchmark import OWN_GAMES, PUBLISHED_GAMES, ROM_GAMES
from assay.core.benchmark import Outcome
from assay.core.datasets.readers import guarded, read_json, shown
from assay.core.errors import DataError, UsageError, unknown_name

if TYPE_CHECKING:
    from assay.agents.lmgame.benchmark import LMGame

CONDITIONS = {"harness_true": True, "harness_false": False}
# Stored on the reported scale among raw scores: see references.json.
ODD_MODEL = "claude-3-haiku-20240307"


@dataclass(frozen=True, slots=True)
class RunScore:
    """One episode: model, harness on or off, game, number of the run, raw score."""

    model: str
    harness: bool
    game: str
    run: int
    score: float


def read_performance(path: str | Path) -> list[RunScore]:
    """Scores of a ``model_perf_rank.json``.

    Raises
    ------
    DataError
        No such file, another form, a game that is none of the published ones, or a score that is no number.
    """
    path = Path(path)
    return list(performance(read_json(path), str(path)))


def performance(found: Any, where: str) -> Iterator[RunScore]:
    """Scores of the parsed content of a ``model_perf_rank.json``; ``where`` names it in errors."""
    if not isinstance(found, Mapping):
        raise DataError(f"{where} holds no object of models.")
    for model, conditions in found.items():
        if not isinstance(conditions, Mapping):
            raise DataError(f"{where}, {model}: give an object with harness_true and harness_false.")
        for condition, games in conditions.items():
            if condition not in CONDITIONS or not isinstance(games, Mapping):
                raise DataError(
                    f"{where}, {model}: {condition!r} is neither harness_true nor harness_false with games."
                )
            for game, scores in games.items():
                if game not in (*PUBLISHED_GAMES, *OWN_GAMES):
                    raise DataError(f"{where}, {model}, {condition}: {unknown_name('game', game, PUBLISHED_GAMES)}")
                if not isinstance(scores, list):
                    raise DataError(f"{where}, {model}, {condition}, {game}: {scores!r} is no list of run scores.")
                for run, score in enumerate(scores):
                    if isinstance(score, bool) or not isinstance(score, int | float):
                        raise DataError(
                            f"{where}, {model}, {condition}, {game}, run {run + 1}: {score!r} is no number."
                        )
                    yield RunScore(model, CONDITIONS[condition], game, run, float(score))


def references() -> Mapping[str, Any]:
    """Everything of references.json: published runs, outside benchmarks, category ranks, baselines."""
    return json.loads((Path(__file__).parent / "references.json").read_text(encoding="utf-8"))


def published_runs() -> list[RunScore]:
    """The published runs, without the model that is stored on another scale."""
    return [row for row in performance(references()["runs"], "references.json, runs") if row.model != ODD_MODEL]


def read_run_folder(folder: str | Path) -> list[dict[str, Any]]:
    """Episodes of a published run folder: game, model, harness, seed and score of each, from its logs and summary.

    The score is the sum of ``perf_score`` over steps (Sokoban: the last ``total_score``, for its perf_score is a
    running total), or ``total_score`` where the log says it.

    Raises
    ------
    DataError
        No summary, no episode log, or a log in another form.
    """
    from assay.agents.lmgame.replay import read_log

    folder = Path(folder)
    config: dict[str, Any] = {}
    for name in ("agent_config.json", "gym_run_summary.json"):
        path = folder / name
        if path.is_file():
            facts = read_json(path)
            if not isinstance(facts, dict):
                raise DataError(f"{path} must hold an object of facts about the run, not {shown(facts)}.")
            config |= facts
    logs = sorted(folder.glob("episode_*_log.jsonl"))
    if not config or not logs:
        raise DataError(f"{folder} is no run folder: it needs gym_run_summary.json and episode_001_log.jsonl.")
    found = []
    for path in logs:
        log = read_log(path)
        with guarded(path, "a log of steps with numbers for scores"):
            last = log.steps[-1].get("info") or {}
            score = last.get("total_score")
            if score is None:
                score = sum(float(step.get("perf_score") or 0.0) for step in log.steps)
            score = float(score)
        found.append(
            {
                "game": log.start.get("game") or config.get("game_name") or config.get("game"),
                "model": config.get("model_name"),
                "harness": config.get("harness"),
                "seed": config.get("seed"),
                "score": score,
                "steps": len(log.steps),
                "end": last.get("end") or "unknown",
                "log": str(path),
            }
        )
    return found


def submission(benchmark: LMGame, path: Path) -> Iterable[tuple[str, str, int, Outcome]]:
    """Outcomes of a results file or of a folder of run folders, for the benchmark's own samples.

    Run k of a results file counts as the k-th seed: the published boards are other ones.
    """
    if path.is_dir():
        yield from _folders(benchmark, path)
        return
    rows = read_performance(path)
    models = sorted({row.model for row in rows})
    if benchmark.model is None and len(models) > 1:
        raise UsageError(f"{path} holds {len(models)} models; choose one with -o model=NAME, of {', '.join(models)}.")
    model = benchmark.model or models[0]
    if model not in models:
        raise unknown_name("model", model, models, f"in {path}")
    for row in rows:
        if row.model != model or row.game not in benchmark.games or row.run >= len(benchmark.seeds):
            continue
        label = "true" if row.harness else "false"
        if label in {m.label for m in benchmark.conditions}:
            yield (
                row.game,
                f"seed{benchmark.seeds[row.run]}-{benchmark.mode}-{label}",
                0,
                Outcome(output={"score": row.score}),
            )


def _folders(benchmark: LMGame, path: Path) -> Iterable[tuple[str, str, int, Outcome]]:
    summaries = sorted(path.rglob("gym_run_summary.json"))
    if not summaries:
        raise DataError(f"{path} holds no run folder (none with a gym_run_summary.json).")
    labels = {m.label for m in benchmark.conditions}
    for summary in summaries:
        for number, row in enumerate(read_run_folder(summary.parent)):
            game, harness = row["game"], str(row["harness"]).lower()
            if game not in (*OWN_GAMES, *ROM_GAMES):
                raise DataError(f"{summary.parent}: {unknown_name('game', str(game), (*OWN_GAMES, *ROM_GAMES))}")
            seed = row["seed"] if row["seed"] in benchmark.seeds else None
            if len(benchmark.seeds) > number and seed is not None and game in benchmark.games and harness in labels:
                at = seed + number
                output = {k: row[k] for k in ("score", "steps", "end")}
                yield game, f"seed{at}-{benchmark.mode}-{harness}", 0, Outcome(output=output)
