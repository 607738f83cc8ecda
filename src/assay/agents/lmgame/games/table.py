"""Games for two at one table: tic-tac-toe and heads-up fixed-limit Texas Hold'em.

Both satisfy `assay.systems.environment.MultiAgentEnvironment`, so `to_pettingzoo` takes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np

from assay.core.errors import UsageError, unknown_name
from assay.systems.environment import Info, Observation, check_actions, generator

Stepped = tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Info]]


class TableGame(ABC):
    """A game of turns for two; rewards sum to zero.

    An action that is not legal is replaced by what costs its player most (`penalty`); ``refused`` counts them.

    Attributes
    ----------
    agents
        Seats, the first to act first.
    gains
        What each seat has won so far.
    """

    name: ClassVar[str]
    agents: tuple[str, str]
    gains: dict[str, float]
    refused: dict[str, int]
    turns: dict[str, int]
    rng: np.random.Generator
    turn: str
    over: bool = True

    def reset(self, seed: int | None = None) -> tuple[dict[str, Observation], dict[str, Info]]:
        """Begin a game."""
        self.rng = generator(seed)
        self.gains = dict.fromkeys(self.agents, 0.0)
        self.refused = dict.fromkeys(self.agents, 0)
        self.turns = dict.fromkeys(self.agents, 0)
        self.over = False
        self.turn = self.agents[0]
        self.start()
        return {agent: self.look(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    @property
    def acting(self) -> list[str]:
        """Whose turn it is."""
        return [] if self.over else [self.turn]

    def step(self, actions: Mapping[str, str]) -> Stepped:
        """Play one action; an illegal one is replaced, which its player's info tells as ``refused``."""
        if self.over:
            raise UsageError(f"{self.name}: the game is over; call reset to start another.")
        check_actions(actions, self.acting)
        agent = self.turn
        action = " ".join(actions[agent].lower().split())
        known = action in self.legal()
        self.turns[agent] += 1
        self.refused[agent] += not known
        before = dict(self.gains)
        self.play(action if known else self.penalty())
        rewards = {seat: self.gains[seat] - before[seat] for seat in self.agents}
        infos: dict[str, Info] = {
            seat: {"refused": actions[agent]} if seat == agent and not known else {} for seat in self.agents
        }
        return (
            {seat: self.look(seat) for seat in self.agents},
            rewards,
            dict.fromkeys(self.agents, self.over),
            dict.fromkeys(self.agents, False),
            infos,
        )

    def other(self, agent: str) -> str:
        """The seat opposite."""
        return self.agents[1 - self.agents.index(agent)]

    @abstractmethod
    def start(self) -> None:
        """Set up the first position."""

    @abstractmethod
    def legal(self) -> list[str]:
        """Legal actions of whose turn it is."""

    @abstractmethod
    def play(self, action: str) -> None:
        """Play a legal action or a penalty."""

    @abstractmethod
    def penalty(self) -> str:
        """What an illegal action is replaced by."""

    @abstractmethod
    def look(self, agent: str) -> str:
        """What a seat sees."""


# -- tic-tac-toe -------------------------------------------------------------------------------------------------------

LINES = tuple(
    [tuple(range(3 * r, 3 * r + 3)) for r in range(3)]
    + [tuple(range(c, 9, 3)) for c in range(3)]
    + [(0, 4, 8), (2, 4, 6)]
)


class TicTacToe(TableGame):
    """Three in a row, cells 1 to 9. The winner gains 1; an illegal action loses the game."""

    name = "tic_tac_toe"
    agents = ("X", "O")

    def start(self) -> None:
        self.cells = "." * 9

    def legal(self) -> list[str]:
        return [str(i + 1) for i, cell in enumerate(self.cells) if cell == "."]

    def penalty(self) -> str:
        return "forfeit"

    def play(self, action: str) -> None:
        mover, rival = self.turn, self.other(self.turn)
        if action == "forfeit":
            self._end(rival)
            return
        at = int(action) - 1
        self.cells = self.cells[:at] + mover + self.cells[at + 1 :]
        if won(self.cells):
            self._end(mover)
        elif "." not in self.cells:
            self.over = True
        self.turn = rival

    def _end(self, winner: str) -> None:
        self.over = True
        self.gains = {winner: 1.0, self.other(winner): -1.0}

    def look(self, agent: str) -> str:
        shown = [cell if cell != "." else str(i + 1) for i, cell in enumerate(self.cells)]
        board = "\n".join(" ".join(shown[3 * r : 3 * r + 3]) for r in range(3))
        return f"You play {agent}.\n{board}\nFree cells: {', '.join(self.legal()) or 'none'}"


def won(cells: str) -> bool:
    """Whether somebody has three in a row."""
    return any(cells[a] != "." and cells[a] == cells[b] == cells[c] for a, b, c in LINES)


@cache
def value(cells: str, mover: str) -> int:
    """Outcome for ``mover``, whose turn it is, under perfect play: 1, 0, -1."""
    if won(cells):
        return -1
    if "." not in cells:
        return 0
    rival = "O" if mover == "X" else "X"
    return max(-value(cells[:i] + mover + cells[i + 1 :], rival) for i, cell in enumerate(cells) if cell == ".")


# -- Hold'em -----------------------------------------------------------------------------------------------------------

RANKS, SUITS = "23456789TJQKA", "cdhs"
ROUNDS = ("pre-flop", "flop", "turn", "river")
SHOWN = (0, 3, 4, 5)
BETS = (2, 2, 4, 4)
MOST_BETS = 4


def card(index: int) -> str:
    """Name of card 0 to 51: rank ``index // 4`` from two to ace, suit ``index % 4``."""
    return RANKS[index // 4] + SUITS[index % 4]


def strength(cards: Sequence[int]) -> tuple[int, ...]:
    """What the best five of five to seven cards are worth: category (8 straight flush ... 0 high card), then ranks."""
    ranks = Counter(index // 4 for index in cards)
    suits = Counter(index % 4 for index in cards)
    suit, most = suits.most_common(1)[0]
    flush = sorted({index // 4 for index in cards if index % 4 == suit}, reverse=True) if most >= 5 else []
    if (top := _straight(flush)) is not None:
        return (8, top)
    groups = sorted(ranks, key=lambda rank: (ranks[rank], rank), reverse=True)
    first, second = ranks[groups[0]], ranks[groups[1]] if len(groups) > 1 else 0
    if first == 4:
        return (7, groups[0], max(rank for rank in groups if rank != groups[0]))
    if first == 3 and second >= 2:
        return (6, groups[0], max(rank for rank in groups[1:] if ranks[rank] >= 2))
    if flush:
        return (5, *flush[:5])
    if (top := _straight(sorted(ranks, reverse=True))) is not None:
        return (4, top)
    if first == 3:
        return (3, groups[0], *sorted(groups[1:], reverse=True)[:2])
    if first == second == 2:
        return (2, groups[0], groups[1], max(rank for rank in groups if rank not in groups[:2]))
    return (first - 1, groups[0], *sorted(groups[1:], reverse=True)[: 3 if first == 2 else 4])


def _straight(ranks: Sequence[int]) -> int | None:
    """Highest card of a straight among different ranks, highest first; an ace also stands below the two."""
    there = {*ranks, *([-1] if 12 in ranks else [])}
    return next((rank for rank in ranks if all(rank - k in there for k in range(5))), None)


class Holdem(TableGame):
    """Heads-up fixed-limit Hold'em over several hands; blinds 1 and 2, bets of 2 and 4, at most four a round.

    The dealer posts the small blind, acts first before the flop and last after it; seats take turns to deal. Chips are
    a running account without limit, so every hand is a hand of full stacks. A hand's cards depend on the seed alone:
    the same seed with seats exchanged is a duplicate match. Illegal actions fold.

    Parameters
    ----------
    hands
        Hands of a match.
    """

    name = "holdem"
    agents = ("north", "south")

    def __init__(self, hands: int = 10) -> None:
        if hands < 1:
            raise UsageError(f"Hold'em of {hands} hands cannot be played; give at least 1.")
        self.hands = hands

    def start(self) -> None:
        self.decks = [self.rng.permutation(52)[:9].tolist() for _ in range(self.hands)]
        self.hand = -1
        self.told = ""
        self._deal()

    def _deal(self) -> None:
        self.hand += 1
        deck = self.decks[self.hand]
        self.dealer = self.agents[self.hand % 2]
        self.cards = {self.agents[0]: deck[:2], self.agents[1]: deck[2:4]}
        self.board = deck[4:]
        self.round = 0
        self.paid = {self.dealer: 1, self.other(self.dealer): 2}
        self.turn, self.bets, self.open = self.dealer, 1, 2
        self.said: list[str] = []

    def legal(self) -> list[str]:
        found = ["check"] if self._owed() == 0 else ["call", "fold"]
        return [*found, "raise"] if self.bets < MOST_BETS else found

    def _owed(self) -> int:
        return self.paid[self.other(self.turn)] - self.paid[self.turn]

    def penalty(self) -> str:
        return "fold"

    def play(self, action: str) -> None:
        agent, rival = self.turn, self.other(self.turn)
        self.said.append(f"{agent} {action}s")
        if action == "fold":
            self._finish(rival)
            return
        self.paid[agent] = self.paid[rival] + (BETS[self.round] if action == "raise" else 0)
        if action == "raise":
            self.bets += 1
            self.open = 1
        else:
            self.open -= 1
        self.turn = rival
        if self.open > 0:
            return
        if self.round == 3:
            mine, theirs = (strength([*self.cards[a], *self.board]) for a in self.agents)
            self._finish(None if mine == theirs else self.agents[0] if mine > theirs else self.agents[1])
            return
        self.round += 1
        self.turn, self.bets, self.open = self.other(self.dealer), 0, 2

    def _finish(self, winner: str | None) -> None:
        folded = self.said[-1].endswith("folds")
        if winner is not None:
            loser = self.other(winner)
            self.gains[winner] += self.paid[loser]
            self.gains[loser] -= self.paid[loser]
        shown = "" if folded else f"; {', '.join(f'{a} showed {_names(self.cards[a])}' for a in self.agents)}"
        self.told = f"Hand {self.hand + 1}: {winner or 'nobody'} won{shown}."
        if self.hand + 1 == self.hands:
            self.over = True
        else:
            self._deal()

    def look(self, agent: str) -> str:
        rival = self.other(agent)
        lines = [
            f"You are {agent}. Hand {self.hand + 1} of {self.hands}, {ROUNDS[self.round]}; {self.dealer} deals.",
            f"Your cards: {_names(self.cards[agent])}",
            f"Board: {_names(self.board[: SHOWN[self.round]]) or 'no cards yet'}",
            f"Paid into the pot: you {self.paid[agent]}, {rival} {self.paid[rival]}",
            f"Bets so far in this round: {self.bets} of {MOST_BETS}; a raise is {BETS[self.round]}",
            f"This hand: {', '.join(self.said) or 'nothing yet'}",
            f"Your chips so far: {self.gains[agent]:+g}",
        ]
        if self.told:
            lines.append(self.told)
        if self.turn == agent and not self.over:
            lines.append(f"Legal actions: {', '.join(self.legal())}")
        return "\n".join(lines)


def _names(cards: Sequence[int]) -> str:
    return " ".join(map(card, cards))


def equity(hand: Sequence[int], board: Sequence[int], rng: np.random.Generator, draws: int = 60) -> float:
    """Chance to win against a random hand, half a tie, by drawing what is not known."""
    left = np.array([index for index in range(52) if index not in {*hand, *board}])
    total = 0.0
    for _ in range(draws):
        drawn = rng.choice(left, size=7 - len(board), replace=False).tolist()
        full = [*board, *drawn[2:]]
        mine, theirs = strength([*hand, *full]), strength([*drawn[:2], *full])
        total += (mine > theirs) + 0.5 * (mine == theirs)
    return total / draws


# -- players -----------------------------------------------------------------------------------------------------------

Bot = Callable[[Any, np.random.Generator], str]
"""Chooses an action for whose turn it is; it may look at that seat's cards, not at the other's."""


def _random(game: TableGame, rng: np.random.Generator) -> str:
    legal = game.legal()
    return legal[int(rng.integers(len(legal)))]


def _perfect(game: TicTacToe, rng: np.random.Generator) -> str:
    """Perfect play, equal moves at random."""
    rival = game.other(game.turn)
    worth = {a: -value(game.cells[: int(a) - 1] + game.turn + game.cells[int(a) :], rival) for a in game.legal()}
    good = [action for action, found in worth.items() if found == max(worth.values())]
    return good[int(rng.integers(len(good)))]


def _caller(game: Holdem, rng: np.random.Generator) -> str:
    return game.legal()[0]


def _equity(game: Holdem, rng: np.random.Generator) -> str:
    """Raises with the better of it, calls where the pot pays for it; knows nothing of the rival's ways."""
    legal, agent = game.legal(), game.turn
    chance = equity(game.cards[agent], game.board[: SHOWN[game.round]], rng)
    if chance > 0.6 and "raise" in legal:
        return "raise"
    if "check" in legal:
        return "check"
    owed = game.paid[game.other(agent)] - game.paid[agent]
    return "call" if chance * (sum(game.paid.values()) + owed) >= owed else "fold"


GAMES: Mapping[str, type[TableGame]] = {"tic_tac_toe": TicTacToe, "holdem": Holdem}
BOTS: Mapping[str, Mapping[str, Bot]] = {
    "tic_tac_toe": {"random": _random, "perfect": _perfect},
    "holdem": {"random": _random, "caller": _caller, "equity": _equity},
}


def bot(game: str, name: str) -> Bot:
    """A player without a model, by name."""
    if name not in BOTS[game]:
        raise unknown_name(f"player of {game}", name, BOTS[game])
    return BOTS[game][name]
