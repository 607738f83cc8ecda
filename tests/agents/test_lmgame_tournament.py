"""Games for two at one table, and tournaments of models and players without one."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.agents.lmgame.games import table
from assay.agents.lmgame.prompts import prompts_for
from assay.agents.lmgame.tournament import Contestant, Match, contestants, match, pairs, standings, tournament
from assay.core.errors import UsageError
from assay.systems.environment import MultiAgentEnvironment, to_pettingzoo
from assay.systems.scripted import ReplayModel, ScriptedChatModel, text_of

CARDS = {table.card(i): i for i in range(52)}


def cards(text: str) -> list[int]:
    return [CARDS[name] for name in text.split()]


def plain(five: tuple[int, ...]) -> tuple[int, ...]:
    """Worth of five cards, read from the rules in the plainest way."""
    ranks = sorted((c // 4 for c in five), reverse=True)
    groups = sorted(Counter(ranks).items(), key=lambda entry: (-entry[1], -entry[0]))
    shape, order = [n for _, n in groups], tuple(rank for rank, _ in groups)
    flush = len({c % 4 for c in five}) == 1
    straight = order[0] if len(order) == 5 and all(a - b == 1 for a, b in pairwise(order)) else None
    if order == (12, 3, 2, 1, 0):
        straight = 3
    if straight is not None:
        return (8 if flush else 4, straight)
    if flush:
        return (5, *order)
    kind = {(4, 1): 7, (3, 2): 6, (3, 1, 1): 3, (2, 2, 1): 2, (2, 1, 1, 1): 1}.get(tuple(shape), 0)
    return (kind, *order)


@given(st.sets(st.integers(0, 51), min_size=5, max_size=7))
@settings(max_examples=300, deadline=None)
def test_a_hand_is_worth_its_best_five_cards(chosen: set[int]) -> None:
    assert table.strength(sorted(chosen)) == max(plain(five) for five in combinations(sorted(chosen), 5))


@pytest.mark.parametrize(
    ("hand", "category"),
    [
        ("Ah 2h 3h 4h 5h Kd Ks", 8),
        ("9c 9d 9h 9s Kd Ks Kh", 7),
        ("9c 9d 9h Ks Kd Kh 2c", 6),
        ("Ah Kh 9h 4h 2h 2c 2d", 5),
        ("Ah 2c 3d 4s 5h 9c 9d", 4),
        ("Ah Kc Qd Js 2h 3c 4d", 0),
    ],
)
def test_categories_of_seven_cards(hand: str, category: int) -> None:
    assert table.strength(cards(hand))[0] == category


def test_five_card_hands_are_as_frequent_as_combinatorics_says() -> None:
    rng = np.random.default_rng(0)
    counts = Counter(table.strength(rng.choice(52, 5, replace=False).tolist())[0] for _ in range(8000))
    expected = {0: 0.501177, 1: 0.422569, 2: 0.047539, 3: 0.021128, 4: 0.003925, 5: 0.001965, 6: 0.001441}
    chi = sum((counts[k] - 8000 * p) ** 2 / (8000 * p) for k, p in expected.items())
    assert chi < 24.3  # chi-square, 7 degrees of freedom, p 0.001


def play(game: table.TableGame, actions: str, seed: int = 0) -> table.TableGame:
    game.reset(seed)
    for action in actions.split():
        (seat,) = game.acting
        game.step({seat: action})
    return game


def test_a_line_wins_and_an_illegal_cell_loses() -> None:
    game = play(table.TicTacToe(), "1 4 2 5 3")
    assert (game.acting, game.gains) == ([], {"X": 1.0, "O": -1.0})
    lost = play(table.TicTacToe(), "1 1")
    assert (lost.gains, lost.refused) == ({"X": 1.0, "O": -1.0}, {"X": 0, "O": 1})
    drawn = play(table.TicTacToe(), "1 5 9 2 8 7 3 6 4")
    assert (drawn.acting, drawn.gains) == ([], {"X": 0.0, "O": 0.0})
    with pytest.raises(UsageError, match="over"):
        drawn.step({"X": "1"})


def test_perfect_play_draws_against_itself_and_never_loses() -> None:
    assert table.value("." * 9, "X") == 0
    perfect, random = Contestant("perfect"), Contestant("random")
    results = []
    for seed in range(15):
        for first, second in ((perfect, random), (random, perfect), (perfect, Contestant("perfect"))):
            found = asyncio.run(match(table.TicTacToe(), first, second, seed))
            results.append(found)
    assert all(m.result == 0.5 for m in results if m.first == m.second)
    mine = [m.result if m.first == "perfect" else 1 - m.result for m in results if m.first != m.second]
    assert min(mine) == 0.5
    assert np.mean(mine) > 0.8


def test_blinds_bets_and_the_cap_of_a_hand() -> None:
    game = table.Holdem(hands=1)
    assert isinstance(game, MultiAgentEnvironment)
    play(game, "raise raise raise")
    assert isinstance(game, table.Holdem)
    assert (game.paid, game.legal()) == ({"north": 8, "south": 6}, ["call", "fold"])
    game.step({"south": "call"})
    assert (game.round, game.turn, game.legal()) == (1, "south", ["check", "raise"])
    for seat, action in (("south", "check"), ("north", "raise"), ("south", "call")):
        game.step({seat: action})
    assert (game.round, game.paid) == (2, {"north": 10, "south": 10})
    game.step({"south": "raise"})
    assert game.paid == {"north": 10, "south": 14}
    game.step({"north": "I do not know"})
    assert (game.gains, game.refused["north"]) == ({"north": -10.0, "south": 10.0}, 1)


def test_the_better_hand_takes_the_pot_and_seats_see_their_own_cards_only() -> None:
    for seed in range(20):
        game = table.Holdem(hands=1)
        game.reset(seed)
        north, south = (set(map(table.card, game.cards[seat])) for seat in game.agents)
        assert north <= set(game.look("north").replace("\n", " ").split())
        assert not south & set(game.look("north").replace("\n", " ").split())
        while game.acting:
            (seat,) = game.acting
            game.step({seat: game.legal()[0]})
        mine, theirs = (table.strength([*game.cards[seat], *game.board]) for seat in game.agents)
        assert game.gains["north"] == 2 * ((mine > theirs) - (mine < theirs))
        assert sum(game.gains.values()) == 0


def test_the_same_seed_deals_the_same_cards_and_exchanged_seats_cancel() -> None:
    for seed in range(5):
        one, two = (asyncio.run(match(table.Holdem(6), Contestant("caller"), Contestant("caller"), seed)) for _ in "ab")
        assert one == two
    games = [table.Holdem(3), table.Holdem(3)]
    for game in games:
        game.reset(9)
    assert games[0].decks == games[1].decks


def test_equity_of_aces_is_what_is_known() -> None:
    found = table.equity(cards("Ah As"), [], np.random.default_rng(0), draws=800)
    assert found == pytest.approx(0.852, abs=0.04)


def test_every_game_goes_to_its_end_through_pettingzoo() -> None:
    pytest.importorskip("pettingzoo")
    for game in (table.TicTacToe(), table.Holdem(2)):
        env = to_pettingzoo(game)
        env.reset(seed=1)
        rng = np.random.default_rng(0)
        for _ in env.agent_iter(200):
            done = env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
            legal = [] if done else game.legal()
            env.step(None if done else legal[int(rng.integers(len(legal)))])
        assert not env.agents


def test_a_model_plays_through_the_harness_and_its_prompts_are_contestants_of_their_own(tmp_path: Path) -> None:
    model = ReplayModel(["thought: middle\nmove: 5", "no move at all"])
    found = asyncio.run(match(table.TicTacToe(), Contestant("m", model), Contestant("random"), 0))
    assert (found.result, found.refused, found.turns[0]) == (0.0, (1, 0), 2)
    assert "You play X." in text_of(model.seen[0])
    for name in ("calm", "bold"):
        prompts_for("holdem").write(tmp_path / f"{name}.json")
    files = [str(tmp_path / f"{name}.json") for name in ("calm", "bold")]
    echo = ScriptedChatModel(lambda messages, rng: "move: call")
    listed = contestants("holdem", ["echo", "random"], {"echo": echo}, files, "true")
    assert [c.name for c in listed] == ["echo · calm", "echo · bold", "random"]
    with pytest.raises(UsageError, match="one state"):
        contestants("holdem", ["echo", "random"], {"echo": echo}, [], "both")
    with pytest.raises(UsageError, match="two players"):
        contestants("holdem", ["random"], {}, [], "false")


def test_standings_follow_results_and_test_pairs_over_seeds() -> None:
    played = [Match(a, b, s, 1.0 if a < b else 0.0, 4.0 if a < b else -4.0, (3, 3), (0, 1))
              for s in range(8) for x, y in combinations("abc", 2) for a, b in ((x, y), (y, x))]  # fmt: skip
    found = standings(played).frame
    assert found["player"].to_list() == ["a", "b", "c"]
    assert found["elo"].is_sorted(descending=True)
    assert found["points"].to_list() == [1.0, 0.5, 0.0]
    assert found["gain"].to_list() == [4.0, 0.0, -4.0]
    table_of_pairs = pairs(played).frame
    assert table_of_pairs["gain_of_a"].to_list() == [4.0, 4.0, 4.0]
    assert table_of_pairs["p"].to_list() == pytest.approx([2 / 2**8] * 3)
    with pytest.raises(UsageError, match="no match"):
        standings([])


def test_a_tournament_leaves_matches_and_tables_and_refuses_unknown_games(tmp_path: Path) -> None:
    tournament(tmp_path, players="random,caller", rounds=2, hands=2)
    rows = [json.loads(line) for line in (tmp_path / "matches.jsonl").read_text().splitlines()]
    assert [(r["first"], r["second"], r["seed"]) for r in rows] == [
        ("random", "caller", 0), ("caller", "random", 0), ("random", "caller", 1), ("caller", "random", 1),
    ]  # fmt: skip
    assert "## Standings" in (tmp_path / "tables.md").read_text()
    before = (tmp_path / "matches.jsonl").read_bytes()
    tournament(tmp_path, players="random,caller", rounds=2, hands=2)
    assert (tmp_path / "matches.jsonl").read_bytes() == before
    with pytest.raises(UsageError, match="chess"):
        tournament(tmp_path, players="random,caller", game="chess")
