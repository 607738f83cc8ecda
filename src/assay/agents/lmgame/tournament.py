"""Tournaments at one table: models, prompts and players without a model against each other, and their ratings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from assay.agents.lmgame.episode import UNREAD
from assay.agents.lmgame.games.table import BOTS, GAMES, Bot, TableGame, bot
from assay.agents.lmgame.harness import Agent, Modules, Settings, read_modules
from assay.agents.lmgame.prompts import Prompts, prompts_for, read_prompts
from assay.core.errors import UsageError, unknown_name
from assay.core.table import Chart, Table
from assay.systems.chat.model import ChatModel


class Seat(Protocol):
    """Who sits at the table for one match."""

    async def act(self, game: TableGame) -> str:
        """The action of the seat whose turn it is."""
        ...


@dataclass
class BotSeat:
    """A player without a model."""

    play: Bot
    rng: np.random.Generator

    async def act(self, game: TableGame) -> str:
        return self.play(game, self.rng)


@dataclass
class ModelSeat:
    """A chat model through the harness, with a memory for the match."""

    agent: Agent

    async def act(self, game: TableGame) -> str:
        decision = await self.agent.decide(game.look(game.turn))
        action = decision.action or UNREAD
        self.agent.done(action, decision)
        return action


@dataclass(frozen=True)
class Contestant:
    """Who takes part: a name, and a chat model with prompts, or the name of a player without a model."""

    name: str
    model: ChatModel | None = None
    prompts: Prompts | None = None
    modules: Modules = field(default_factory=Modules)
    settings: Settings | None = None

    def seat(self, game: str, seed: int) -> Seat:
        """Sits down for a match."""
        if self.model is None:
            return BotSeat(bot(game, self.name), np.random.default_rng(seed))
        return ModelSeat(Agent(self.model, self.modules, self.prompts or prompts_for(game), self.settings, seed=seed))


@dataclass(frozen=True)
class Match:
    """A match: the first seat's result (1 won, 0.5 drawn, 0 lost) and gain; turns and refused actions by seat."""

    first: str
    second: str
    seed: int
    result: float
    gain: float
    turns: tuple[int, int]
    refused: tuple[int, int]


async def match(game: TableGame, first: Contestant, second: Contestant, seed: int) -> Match:
    """Play one match; ``seed`` fixes the cards and the draws of players without a model."""
    game.reset(seed)
    a, b = game.agents
    seats = {seat: who.seat(game.name, 2 * seed + i) for i, (seat, who) in enumerate(zip(game.agents, (first, second)))}
    while game.acting:
        (seat,) = game.acting
        game.step({seat: await seats[seat].act(game)})
    gain = game.gains[a]
    return Match(
        first.name,
        second.name,
        seed,
        0.5 + 0.5 * float(np.sign(gain)),
        gain,
        (game.turns[a], game.turns[b]),
        (game.refused[a], game.refused[b]),
    )


def standings(matches: Sequence[Match]) -> Table:
    """Ratings of all who played: TrueSkill in the order of the matches, Bradley-Terry over all, gains, refused actions.

    Raises
    ------
    UsageError
        No match.
    """
    import polars as pl

    from assay.core.stats.intervals import mean_interval
    from assay.core.stats.ratings import GaussianRatings, bradley_terry, win_table

    if not matches:
        raise UsageError("There is no match to rate.")
    drawn = float(np.mean([m.result == 0.5 for m in matches]))
    skill = GaussianRatings(draw=min(max(drawn, 0.01), 0.9))
    for m in matches:
        winner, loser = (m.first, m.second) if m.result >= 0.5 else (m.second, m.first)
        skill.update([winner], [loser], drawn=m.result == 0.5)
    names, wins = win_table((m.first, m.second, m.result) for m in matches)
    # Half a win and half a loss between every pair: somebody who never loses keeps a finite strength.
    strengths = bradley_terry(wins, names, prior=0.5)
    elo = strengths.elo()
    rows = []
    for name in sorted(names, key=lambda n: -skill.rating(n).conservative):
        mine = [(m, m.first == name) for m in matches if name in (m.first, m.second)]
        gains = [m.gain if first else -m.gain for m, first in mine]
        results = [m.result if first else 1 - m.result for m, first in mine]
        # Both seatings of one seed against one rival deal the same cards: they are one unit.
        units = [f"{m.seed}/{m.second if first else m.first}" for m, first in mine]
        found = mean_interval(gains, units, rng=np.random.default_rng(0)) if len(set(units)) > 1 else None
        turns = sum(m.turns[not first] for m, first in mine)
        rows.append(
            {
                "player": name,
                "matches": len(mine),
                "points": float(np.mean(results)),
                "trueskill": skill.rating(name).mu,
                "sigma": skill.rating(name).sigma,
                "conservative": skill.rating(name).conservative,
                "elo": elo[name],
                "gain": float(np.mean(gains)),
                "low": found.low if found else None,
                "high": found.high if found else None,
                "refused": sum(m.refused[not first] for m, first in mine) / max(turns, 1),
            }
        )
    return Table(
        "standings",
        "Standings",
        pl.DataFrame(rows, infer_schema_length=None),
        notes=[
            "points: 1 won, 0.5 drawn, 0 lost. TrueSkill takes matches in order; conservative: mean less 3 sigma.",
            "elo: Bradley-Terry over all matches around 1000, half a win and half a loss added between every pair.",
            "gain a match with its 95 % interval; both seatings of one seed are one unit. refused: share of turns.",
        ],
        chart=Chart("interval", x="player", y="gain", low="low", high="high"),
    )


def pairs(matches: Sequence[Match]) -> Table:
    """Every pair: matches, points and gain of the first, two-sided sign-flip test over seeds."""
    import polars as pl

    from assay.core.stats.paired import sign_flip_test

    by_pair: dict[tuple[str, str], dict[int, list[tuple[float, float]]]] = {}
    for m in matches:
        swap = m.first > m.second
        key = (m.second, m.first) if swap else (m.first, m.second)
        told = (1 - m.result, -m.gain) if swap else (m.result, m.gain)
        by_pair.setdefault(key, {}).setdefault(m.seed, []).append(told)
    rows = []
    for (a, b), seeds in sorted(by_pair.items()):
        every = [told for both in seeds.values() for told in both]
        per_seed = [float(np.mean([gain for _, gain in both])) for both in seeds.values()]
        p = sign_flip_test(per_seed, rng=np.random.default_rng(0))[0] if len(per_seed) > 1 else None
        rows.append(
            {
                "a": a,
                "b": b,
                "matches": len(every),
                "points_of_a": float(np.mean([result for result, _ in every])),
                "gain_of_a": float(np.mean(per_seed)),
                "p": p,
            }
        )
    return Table(
        "pairs",
        "Head to head",
        pl.DataFrame(rows, infer_schema_length=None),
        notes=["p: sign-flip test of the gain over seeds, not corrected for several pairs."],
    )


def contestants(
    game: str, players: Sequence[str], models: Mapping[str, ChatModel], prompts: Sequence[str], harness: str
) -> list[Contestant]:
    """Players without a model by name, and every model with the standard prompts or with each file of prompts."""
    modules = read_modules(harness)
    if len(modules) != 1:
        raise UsageError(f"Option harness={harness!r}: a tournament takes one state of the harness.")
    found: list[Contestant] = []
    for name in players:
        if name not in models:
            found.append(Contestant(name))
            continue
        for file in prompts or [""]:
            label = f"{name} · {Path(file).stem}" if file else name
            own = read_prompts(file, game) if file else None
            found.append(Contestant(label, models[name], own, modules[0]))
    if len({c.name for c in found}) < max(2, len(found)):
        raise UsageError("A tournament needs two players or more, each named once; prompt files differ in their names.")
    return found


def tournament(
    out: Path,
    *,
    players: str,
    game: str = "holdem",
    rounds: int = 10,
    hands: int = 10,
    prompts: str = "",
    harness: str = "false",
    seed: int = 0,
) -> None:
    """Every pair at one table, ``rounds`` seeds in both seatings; ``matches.jsonl``, standings and pairs as tables.

    ``players``: names of chat models, and of players without one (holdem: random, caller, equity; tic_tac_toe: random,
    perfect). ``prompts``: files of prompts; each model plays once with each. Killed and run again, it goes on.
    """
    from assay.agents.lmgame.recipes import write_tables
    from assay.core.map import resumable_map
    from assay.systems.loading import load

    if game not in GAMES:
        raise unknown_name("game at a table", game, GAMES)
    if rounds < 1:
        raise UsageError(f"Option rounds={rounds}: give at least 1.")
    named = [name.strip() for name in players.split(",") if name.strip()]
    models = {name: load(name, benchmark="lmgame") for name in named if name not in BOTS[game]}
    files = [name.strip() for name in prompts.split(",") if name.strip()]
    listed = contestants(game, named, models, files, harness)
    by_name = {c.name: c for c in listed}
    options = {"hands": hands} if game == "holdem" else {}
    jobs = [
        (a.name, b.name, seed + number)
        for number in range(rounds)
        for x, y in combinations(listed, 2)
        for a, b in ((x, y), (y, x))
    ]

    async def one(job: tuple[str, str, int]) -> dict[str, Any]:
        first, second, number = job
        return asdict(await match(GAMES[game](**options), by_name[first], by_name[second], number))

    rows = list(resumable_map(one, jobs, key=lambda job: "/".join(map(str, job)), out=out))
    with (out / "matches.jsonl").open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    played = [Match(**{**row, "turns": tuple(row["turns"]), "refused": tuple(row["refused"])}) for row in rows]
    write_tables(out, [standings(played), pairs(played)])
