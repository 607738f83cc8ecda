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
    form: str = "html,gif",
    game: str = "",
    seed: int = -1,
    seconds: float = 0.4,
) -> None:
    """An episode log as ``html``, ``gif``, ``mp4``, or several; ``game`` and ``seed`` for logs that do not say them."""
    from assay.agents.lmgame.replay import read_log, to_gif, to_html, to_mp4

    makers = {"html": to_html, "gif": to_gif, "mp4": to_mp4}
    chosen = [name.strip() for name in form.split(",") if name.strip()]
    for name in chosen:
        if name not in makers:
            raise unknown_name("form of replay", name, makers)
    episode = read_log(log)
    for name in chosen:
        told = {"game": game or None, "seed": seed if seed >= 0 else None}
        makers[name](episode, out / f"episode.{name}", seconds=seconds, **told)


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


def diagnostics(
    out: Path,
    *,
    system: str,
    games: str = "twenty_forty_eight,candy_crush,sokoban,tetris",
    boards: int = 20,
    episodes: int = 5,
    sizes: str = "0,5,10,20,50",
    max_steps: int | None = None,
    pictures: bool = True,
    seed: int = 0,
) -> None:
    """State reading, effect reflection, prediction and the memory curve of one system; a table with intervals.

    ``pictures=false`` leaves out state reading, for models that read text only. Killed and run again, it goes on.
    """
    from dataclasses import asdict

    from assay.agents.lmgame import diagnostics as d
    from assay.core.map import resumable_map
    from assay.systems.loading import load

    model = load(system, benchmark="lmgame")
    chosen = [name.strip() for name in games.split(",") if name.strip()]
    curve = [int(size) for size in sizes.split(",") if size.strip().isdigit()]
    jobs = [("reflection", g, 0) for g in chosen]
    jobs += [("prediction", g, k) for g in chosen if g in d.FORESEEN for k in (1, 2, 4)]
    jobs += [("memory", g, size) for g in chosen for size in curve]
    jobs += [("reading", g, 0) for g in chosen] if pictures else []

    async def one(job: tuple[str, str, int]) -> list[dict[str, object]]:
        kind, game, k = job
        if kind == "reading":
            found = [await d.state_reading(model, game, boards=boards, seed=seed)]
        elif kind == "reflection":
            found = [await d.effect_reflection(model, game, boards=boards, seed=seed)]
        elif kind == "prediction":
            found = await d.prediction(model, game, steps=(k,), boards=boards, seed=seed)
        else:
            found = await d.memory_curve(model, game, sizes=(k,), episodes=episodes, max_steps=max_steps)
        return [asdict(f) for f in found]

    made = resumable_map(one, jobs, key=lambda job: f"{job[0]}-{job[1]}-{job[2]}", out=out)
    write_tables(out, [d.table([d.Found(**row) for rows in made for row in rows])])


def contamination(
    out: Path,
    *,
    system: str,
    encoder: str = "minilm",
    script: str = "",
    frames: bool = True,
    k: int = 5,
    rounds: int = 20,
    paraphraser: str = "",
    seed: int = 0,
) -> None:
    """Order of frames and recall of the courtroom script, before and after mitigation; writes ``mapping.json`` too.

    Mitigation: other names, and other words where ``paraphraser`` names a chat model. ``mapping.json`` is for option
    ``masks`` of the benchmark. ``frames=false``: for models that read text only.
    """
    from dataclasses import asdict

    import numpy as np

    from assay.agents.lmgame import contamination as c
    from assay.agents.lmgame.games.courtroom import Masks
    from assay.agents.lmgame.games.courtroom_script import read_script, shipped_script
    from assay.core.map import resumable_map
    from assay.systems.embedding import load_encoder
    from assay.systems.loading import load

    model, known = load(system, benchmark="lmgame"), read_script(script) if script else shipped_script()
    mapping = c.entity_masks(known, np.random.default_rng(seed))
    writer = load(paraphraser, benchmark="lmgame", role="paraphraser") if paraphraser else None

    async def one(job: str) -> dict[str, object]:
        rng = np.random.default_rng([seed, len(job)])
        if job == "paraphrases":
            # A line is stored as "Speaker: text"; what the game shows, and masks, is the text.
            lines = [line.partition(": ")[2] for scene in c.scenes_of(known) for line in scene.lines]
            keep = [*mapping["name_mappings"], *mapping["evidence_mappings"]]
            return dict(await c.paraphrase(writer, lines, keep=keep, rng=rng)) if writer else {}
        if job == "frames":
            seen = c.record_frames("platformer", seed=seed)
            return asdict(await c.frame_order(model, seen, title="a platform game", k=k, rounds=rounds, rng=rng))
        masks = Masks.of(mapping) if job == "masked" else None
        return asdict(await c.script_recall(model, c.scenes_of(known, masks), load_encoder(encoder), rng=rng))

    (mapping["dialog"],) = resumable_map(one, ["paraphrases"], key=str, out=out)
    write_json(out / "mapping.json", mapping)
    jobs = ["recall", "masked", *(["frames"] if frames else [])]
    made = dict(zip(jobs, resumable_map(one, jobs, key=str, out=out)))
    write_json(out / "contamination.json", {"system": model.name, **made})
    write_tables(out, [c.table(c.Recall(**made["recall"]), c.Recall(**made["masked"]))])


def optimise(
    out: Path,
    *,
    system: str,
    games: str = "twenty_forty_eight,candy_crush",
    rewriters: str = "skeleton",
    module: str = "base",
    harness: str = "false",
    rounds: int = 4,
    candidates: int = 3,
    batch: int = 4,
    final: int = 10,
    max_steps: int | None = None,
    budget: int | None = None,
    seed: int = 0,
) -> None:
    """Prompt variants of each game, optimised for one system; tables, and the best prompts as ``GAME.json``.

    ``rewriters``: ``skeleton`` and names of chat models (the optimiser models), separated by commas. Killed and run
    again, games that are done are kept.
    """
    from dataclasses import asdict

    from assay.agents.lmgame import optimise as o
    from assay.agents.lmgame.harness import read_modules
    from assay.agents.lmgame.prompts import prompts_for
    from assay.core.map import resumable_map
    from assay.systems.loading import load

    if module != "base":
        raise UsageError(
            f"Option module={module!r}: variants are written for the base prompt; others are optimised from Python."
        )
    model = load(system, benchmark="lmgame")
    modules = read_modules(harness)[0]
    named = [name.strip() for name in rewriters.split(",") if name.strip()]
    writers = {name: load(name, benchmark="lmgame", role="optimiser") for name in named if name != "skeleton"}

    async def one(game: str) -> dict[str, object]:
        chosen: list[o.Rewriter] = [
            o.SkeletonRewriter(game) if name == "skeleton" else o.ModelRewriter(writers[name], game) for name in named
        ]
        evaluate = o.evaluator(game, model, modules=modules, max_steps=max_steps)
        found = await o.optimise(
            o.seed_variants(game),
            evaluate,
            chosen,
            rounds=rounds,
            candidates=candidates,
            batch=batch,
            final=final,
            budget=budget,
            seed=seed,
        )
        return asdict(found)

    chosen_games = [name.strip() for name in games.split(",") if name.strip()]
    made = []
    for game, row in zip(chosen_games, resumable_map(one, chosen_games, key=str, out=out)):
        result = o.Optimised(**{**row, "variants": [o.Variant(**v) for v in row["variants"]]})
        prompts_for(game).with_template("base", result.best.after).write(out / f"{game}.json")
        table = o.report(result)
        table.name, table.title = f"prompts_{game}", f"{table.title}: {game}"
        made.append(table)
    write_tables(out, made)


def train(
    out: Path,
    *,
    size: int = 5,
    larger: int = 6,
    levels: int = 40,
    held_out: int = 60,
    updates: int = 150,
    seed: int = 0,
) -> None:
    """A small policy trained by PPO on Sokoban of one size, and its transfer to held-out larger levels."""
    from dataclasses import asdict

    import numpy as np
    import torch

    from assay.agents.lmgame.transfer import RADIUS, Training, draw_levels, transfer
    from assay.agents.lmgame.transfer import train as fit

    if max(size, larger) > RADIUS + 3:
        raise UsageError(f"Boards beyond {RADIUS + 3} cells are wider than what the policy sees; give smaller sizes.")
    torch.set_num_threads(1)
    small = draw_levels(size, levels, np.random.default_rng([seed, 0]))
    large = draw_levels(larger, held_out, np.random.default_rng([seed, 1]), pushes=(2, 12))
    net, history = fit(small, Training(updates=updates), seed=seed)
    torch.save(net.state_dict(), out / "policy.pt")
    write_json(out / "transfer.json", {**asdict(transfer(net, large, seed=seed)), "training_solved": history})
