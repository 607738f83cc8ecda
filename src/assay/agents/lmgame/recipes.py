"""Makers: baselines, tables of published runs, replays, standard prompts. Each writes a folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from assay.core.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from assay.core.table import Table


def baselines(out: Path, *, games: str = "", random_seeds: int = 100, expert_seeds: int = 10) -> None:
    """What random and strongest players score: the figures of references.json."""
    from assay.agents.lmgame.baselines import measure_all
    from assay.agents.lmgame.benchmark import OWN_GAMES

    chosen = [name.strip() for name in games.split(",") if name.strip()] or list(OWN_GAMES)
    for name in chosen:
        if name not in OWN_GAMES:
            raise unknown_name("game with players", name, OWN_GAMES)
    if random_seeds < 2 or expert_seeds < 2:
        raise UsageError("A standard deviation needs two seeds: random_seeds and expert_seeds are at least 2.")
    found = measure_all(chosen, random_seeds=random_seeds, expert_seeds=expert_seeds)
    write_json(out / "baselines.json", {"games": found})


def published(
    out: Path,
    *,
    data: str = "",
    game_table: Literal["published", "none"] = "published",
    abilities: int = 4,
    degree: int = 1,
) -> None:
    """Every table of published runs: ``data`` is a ``model_perf_rank.json``; nothing = the runs shipped with assay."""
    from assay.agents.lmgame import tables
    from assay.agents.lmgame.published import published_runs, read_performance, references

    frame = tables.frame_of(read_performance(data) if data else published_runs())
    known = references()
    random = {game: float(value[0]) for game, value in known["published_random"].items() if game != "source"}
    made: list[Table] = [
        tables.scores(frame, random),
        tables.beat_random(frame, random),
        tables.harness(frame),
        *(tables.ranks(frame, state=state) for state in ("true", "false") if state in frame["harness"]),
        tables.normalised(frame),
        *tables.ranking(frame),
    ]
    if game_table == "published":
        columns = tables.columns_of(frame, known["benchmarks"])
        games = [game for game in frame["game"].unique(maintain_order=True) if game in columns]
        if not games:
            raise UsageError("No game was played by 3 of the published models; say -o game_table=none.")
        made += [tables.correlations(columns, games), tables.embedding(columns)]
        made += tables.factors(columns, games, abilities=abilities)
        made.append(tables.predictor(frame, degree=degree))
    write_tables(out, made)


def replay(
    out: Path,
    *,
    log: str,
    form: Literal["html", "gif", "both"] = "both",
    game: str = "",
    seed: int = -1,
    seconds: float = 0.4,
) -> None:
    """An episode log as a page, a GIF, or both; ``game`` and ``seed`` for logs that do not say what was played."""
    from assay.agents.lmgame.replay import read_log, to_gif, to_html

    if form not in ("html", "gif", "both"):
        raise unknown_name("form of replay", form, ("html", "gif", "both"))
    episode = read_log(log)
    told = {"game": game or None, "seed": seed if seed >= 0 else None}
    if form != "gif":
        to_html(episode, out / "episode.html", seconds=seconds, **told)
    if form != "html":
        to_gif(episode, out / "episode.gif", seconds=seconds, **told)


def prompts(out: Path, *, games: str = "") -> None:
    """The standard prompts, one ``GAME.json`` each in the published form, to begin from (option ``prompts``)."""
    from assay.agents.lmgame.benchmark import OWN_GAMES
    from assay.agents.lmgame.prompts import prompts_for

    for name in [name.strip() for name in games.split(",") if name.strip()] or OWN_GAMES:
        prompts_for(name).write(out / f"{name}.json")


def write_tables(out: Path, made: Iterable[Table]) -> None:
    """Each table as CSV, and one Markdown page of them all."""
    page = []
    for number, table in enumerate(made, 1):
        name = f"{number:02d}_{table.name}"
        table.frame.write_csv(out / f"{name}.csv")
        page += [f"## {table.title}", "", *_markdown(table), "", *(f"- {note}" for note in table.notes), ""]
    (out / "tables.md").write_text("\n".join(page), encoding="utf-8")


def _markdown(table: Table) -> list[str]:
    def shown(value: object) -> str:
        return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)

    names = table.frame.columns
    lines = [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]
    return lines + [f"| {' | '.join(shown(row[name]) for name in names)} |" for row in table.rows()]


def write_json(path: Path, found: object) -> None:
    """A JSON file with a newline at its end."""
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
