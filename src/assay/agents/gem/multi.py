"""Environments for several agents: actions by agent, in turns or all at once, with a memory that they share.

They satisfy `assay.systems.environment.MultiAgentEnvironment`, so `to_pettingzoo` takes them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from assay.agents.gem.env import Env, EnvError
from assay.agents.gem.games.base import FORMAT_ERROR_REWARD, boxed
from assay.systems.environment import check_actions

Mode = Literal["sequential", "parallel"]


class Round(NamedTuple):
    """What a step led to: rewards by agent, agents that are done, and whether the episode is over for all."""

    rewards: Mapping[str, float]
    done: Sequence[str] = ()
    ended: bool = False
    infos: Mapping[str, dict[str, Any]] = {}


class MultiAgentEnv(Env, ABC):
    """Several agents in one world.

    What an agent sees is `look` and, with ``share``, everything that others have said since its last turn. The memory
    is part of the state. Terminated and truncated are apart here, as PettingZoo has them.

    Parameters
    ----------
    agents
        Their names, two at least.
    mode
        ``sequential``: one acts a step, in turns. ``parallel``: all act at once.
    share
        Whether the texts of an agent are shown to the others.
    max_turns
        Steps an episode may have.
    """

    mode: Mode = "sequential"
    saved: ClassVar[tuple[str, ...]] = ("memory", "alive", "next", "heard")

    def __init__(
        self,
        agents: Sequence[str] = ("first", "second"),
        *,
        mode: Mode | None = None,
        share: bool = True,
        max_turns: int | None = None,
        seed_global: bool = False,
    ) -> None:
        super().__init__(seed_global=seed_global, max_turns=max_turns)
        if len(agents) < 2 or len(set(agents)) < len(agents):
            raise EnvError(f"agents is {list(agents)}; there must be two names at least, none twice.")
        if mode is not None and mode not in ("sequential", "parallel"):
            raise EnvError(f"mode is {mode!r}; it must be sequential or parallel.")
        self.agents = list(agents)
        self.mode = mode or self.mode
        self.share = share
        self.memory: list[list[str]] = []
        """[agent, text] in the order in which they were said."""
        self.alive: list[str] = []
        self.next = 0
        self.heard: dict[str, int] = {}

    # -- what an environment defines --------------------------------------------------------------------------------

    @abstractmethod
    def deal(self) -> None:
        """Set up a new episode, drawn from ``self.rng``."""

    @abstractmethod
    def look(self, agent: str) -> str:
        """What an agent sees of the world now."""

    @abstractmethod
    def play(self, actions: Mapping[str, str]) -> Round:
        """The actions of a step."""

    # -- the interface ----------------------------------------------------------------------------------------------

    @property
    def acting(self) -> list[str]:
        """Agents whose actions the next step takes."""
        if self._phase != "running":
            return []
        return [self.alive[self.next]] if self.mode == "sequential" else list(self.alive)

    def reset(self, seed: int | None = None) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
        """Begin an episode: observations and infos of all agents."""
        if seed is not None:
            self.seed(seed)
        self.turn = 0
        self.memory, self.alive, self.next = [], list(self.agents), 0
        self.heard = dict.fromkeys(self.agents, 0)
        self.deal()
        self._phase = "running"
        return {agent: self._observe(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Take the actions of those who act: observations, rewards, terminated, truncated and infos by agent.

        Raises
        ------
        EnvError
            There is no episode, or an action is missing, not asked for, or no text.
        """
        if self._phase != "running":
            why = "no episode was begun" if self._phase == "new" else "the episode is over"
            raise EnvError(f"{self.name}: step was called but {why}; call reset first.")
        acting, present = self.acting, list(self.alive)
        check_actions(actions, acting)
        for agent, text in actions.items():
            if not isinstance(text, str):
                raise EnvError(f"{self.name}: an action is text; that of {agent} is {type(text).__name__}.")
        self.turn += 1
        # What was said before this step is known to those who act now, and to them alone.
        for agent in acting:
            self.heard[agent] = len(self.memory)
        result = self.play(actions)
        self.memory += [[agent, actions[agent]] for agent in acting]
        limit = self.max_turns is not None and self.turn >= self.max_turns
        done = set(present if result.ended else result.done)
        self._advance(acting, done)
        if limit or not self.alive:
            self._phase = "over"
        return (
            {agent: self._observe(agent) for agent in present},
            {agent: float(result.rewards.get(agent, 0.0)) for agent in present},
            {agent: agent in done for agent in present},
            {agent: limit and agent not in done for agent in present},
            {agent: dict(result.infos.get(agent, {})) for agent in present},
        )

    def _advance(self, acting: Sequence[str], done: set[str]) -> None:
        after = self.alive[self.next + 1 :] + self.alive[: self.next + 1] if self.mode == "sequential" else []
        self.alive = [agent for agent in self.alive if agent not in done]
        following = [agent for agent in after if agent not in done]
        self.next = self.alive.index(following[0]) if following else 0

    def _observe(self, agent: str) -> str:
        said = self.memory[self.heard[agent] :] if self.share else []
        lines = [f"{other}: {text}" for other, text in said if other != agent]
        return "\n".join([*lines, self.look(agent)])


class SharedGame(MultiAgentEnv):
    """Agents play one game of the zoo together: they take turns at the same board and all get its reward.

    Parameters
    ----------
    env
        Id of the game.
    """

    saved = (*MultiAgentEnv.saved, "game_state", "last", "opening")

    def __init__(
        self, env: str = "game:Wordle-v0-easy", agents: Sequence[str] = ("first", "second"), **options: Any
    ) -> None:
        from assay.agents.gem.registry import make

        super().__init__(agents, **options)
        if self.mode != "sequential":
            raise EnvError(f"{self.name}: one board takes one action at a time; mode must be sequential.")
        self.game = make(env)
        self.game_state: dict[str, Any] = {}
        self.opening = self.last = ""

    def deal(self) -> None:
        self.opening, info = self.game.reset(int(self.rng.integers(2**31)))
        self.last = info.get("suffix", "")
        self.game_state = self.game.get_state()

    def look(self, agent: str) -> str:
        return f"{self.opening}\n{self.last}" if not self.memory else self.last

    def play(self, actions: Mapping[str, str]) -> Round:
        (text,) = actions.values()
        observation, reward, terminated, truncated, info = self.game.step(text)
        self.last = f"{observation}\n{info.get('suffix', '')}"
        self.game_state = self.game.get_state()
        over = terminated or truncated
        return Round(dict.fromkeys(self.alive, reward), ended=over, infos={agent: dict(info) for agent in self.alive})

    def restored(self) -> None:
        self.game.set_state(self.game_state)

    def random_action(self, rng: np.random.Generator) -> str:
        return self.game.random_action(rng)


class PrisonersDilemma(MultiAgentEnv):
    """The repeated dilemma, all at once: who betrays gains, and both lose when both do.

    Rewards: 3 each for two who cooperate, 1 each for two who betray, 5 and 0 otherwise, divided by five times the
    rounds; with more than two agents the mean over pairs. An action that cannot be read costs 0.1 and counts as
    cooperation.
    """

    mode = "parallel"
    saved = (*MultiAgentEnv.saved, "history")
    max_turns = 10
    _pattern = boxed("((?i:cooperate|betray))")
    _payoff = {("c", "c"): 3, ("c", "b"): 0, ("b", "c"): 5, ("b", "b"): 1}

    def deal(self) -> None:
        self.history: list[dict[str, str]] = []

    def look(self, agent: str) -> str:
        rounds = [", ".join(f"{name} {choice}" for name, choice in past.items()) for past in self.history]
        past = "\n".join(f"Round {number}: {text}" for number, text in enumerate(rounds, 1)) or "No rounds yet."
        return (
            f"You are {agent}. In each of {self.max_turns} rounds all choose at once: \\boxed{{cooperate}} or "
            "\\boxed{betray}. Two who cooperate get 3 points each, two who betray 1 each; who betrays one who "
            f"cooperates gets 5, and that one 0.\n{past}"
        )

    def play(self, actions: Mapping[str, str]) -> Round:
        assert self.max_turns is not None
        chosen, rewards = {}, {}
        for agent, text in actions.items():
            boxes: list[re.Match[str]] = list(self._pattern.finditer(text))
            chosen[agent] = boxes[-1][1].lower() if boxes else "cooperate"
            rewards[agent] = 0.0 if boxes else FORMAT_ERROR_REWARD
        for agent in actions:
            points = [self._payoff[chosen[agent][0], chosen[other][0]] for other in actions if other != agent]
            rewards[agent] += sum(points) / len(points) / (5 * self.max_turns)
        self.history.append(chosen)
        return Round(rewards)

    def random_action(self, rng: np.random.Generator) -> str:
        return f"\\boxed{{{'cooperate' if rng.random() < 0.5 else 'betray'}}}"
