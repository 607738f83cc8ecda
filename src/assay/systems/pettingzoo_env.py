"""Both directions between `MultiAgentEnvironment` and PettingZoo; imported only when an adapter is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pettingzoo import AECEnv, ParallelEnv

from assay.core.errors import UsageError
from assay.systems.environment import (
    ActionReader,
    Info,
    MultiAgentEnvironment,
    Observation,
    check_actions,
    described,
    text_of,
)
from assay.systems.gymnasium_env import AnyText


class _Shared:
    """What both forms keep: texts last seen, and who has finished."""

    def _prepare(self, env: MultiAgentEnvironment, max_length: int) -> None:
        self.source = env
        self.possible_agents = list(env.agents)
        self._space = AnyText(max_length)
        self._seen: dict[str, str] = {}

    def observation_space(self, agent: str) -> AnyText:
        """Texts."""
        return self._space

    def action_space(self, agent: str) -> AnyText:
        """Texts."""
        return self._space

    def _see(self, observations: Mapping[str, Observation]) -> None:
        self._seen.update({agent: text_of(value) for agent, value in observations.items()})

    def _ended(self, terminated: dict[str, bool], truncated: dict[str, bool], agents: Sequence[str]) -> dict[str, bool]:
        """Truncations; when nobody acts any more, whoever has not finished was cut off."""
        over = not self.source.acting
        return {a: bool(truncated.get(a)) or (over and not terminated.get(a)) for a in agents}


class TextAEC(_Shared, AECEnv):
    """Agents act one after the other; see `assay.systems.environment.to_pettingzoo`."""

    metadata = {"name": "assay_text", "is_parallelizable": False, "render_modes": []}
    render_mode = None

    def __init__(self, env: MultiAgentEnvironment, max_length: int) -> None:
        super().__init__()
        self._prepare(env, max_length)
        self.agents: list[str] = []

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode."""
        observations, infos = self.source.reset(seed)
        self.agents = list(self.possible_agents)
        self._seen = dict.fromkeys(self.agents, "")
        self._see(observations)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: dict(infos.get(agent, {})) for agent in self.agents}
        self._round: list[str] = list(self.source.acting)
        self._given: dict[str, str] = {}
        self.agent_selection = self._round[0]

    def observe(self, agent: str) -> str:
        """The last observation of an agent."""
        return self._seen[agent]

    def step(self, action: str | None) -> None:
        """The selected agent acts; None for one that has finished."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        if not isinstance(action, str):
            raise UsageError(f"The action of {agent} is {action!r}; it must be a text.")
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self._given[agent] = action
        waiting = [a for a in self._round if a not in self._given]
        if waiting:
            self.agent_selection = waiting[0]
            return
        observations, rewards, terminated, truncated, infos = self.source.step(self._given)
        self._given = {}
        self._see(observations)
        self.rewards = {a: float(rewards.get(a, 0.0)) for a in self.agents}
        self.terminations.update({a: bool(terminated.get(a)) for a in self.agents})
        self.truncations.update(self._ended(self.terminations, truncated, self.agents))
        self.infos = {a: dict(infos.get(a, {})) for a in self.agents}
        self._round = list(self.source.acting)
        if self._round:
            self.agent_selection = self._round[0]
        self._accumulate_rewards()
        self._deads_step_first()

    def render(self) -> None:
        """Nothing to draw."""

    def close(self) -> None:
        """Close the environment, if it can be closed."""
        _close(self.source)


class TextParallel(_Shared, ParallelEnv):
    """All agents act at once; see `assay.systems.environment.to_pettingzoo`."""

    metadata = {"name": "assay_text", "render_modes": []}
    render_mode = None

    def __init__(self, env: MultiAgentEnvironment, max_length: int) -> None:
        self._prepare(env, max_length)
        self.agents: list[str] = []

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, Info]]:
        """Begin an episode."""
        observations, infos = self.source.reset(seed)
        self.agents = list(self.possible_agents)
        self._seen = dict.fromkeys(self.agents, "")
        self._see(observations)
        return dict(self._seen), {agent: dict(infos.get(agent, {})) for agent in self.agents}

    def step(self, actions: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
        """Act; the actions of agents whose turn it is not are ignored."""
        acting = list(self.source.acting)
        taken = {agent: actions[agent] for agent in acting if agent in actions}
        check_actions(taken, acting)
        observations, rewards, terminated, truncated, infos = self.source.step(taken)
        self._see(observations)
        live = list(self.agents)
        ends = {a: bool(terminated.get(a)) for a in live}
        cuts = self._ended(ends, truncated, live)
        self.agents = [a for a in live if not (ends[a] or cuts[a])]
        return (
            {a: self._seen[a] for a in live},
            {a: float(rewards.get(a, 0.0)) for a in live},
            ends,
            cuts,
            {a: dict(infos.get(a, {})) for a in live},
        )

    def render(self) -> None:
        """Nothing to draw."""

    def close(self) -> None:
        """Close the environment, if it can be closed."""
        _close(self.source)


def as_aec(env: MultiAgentEnvironment, max_length: int) -> TextAEC:
    """``env`` as an AECEnv."""
    return TextAEC(env, max_length)


def as_parallel(env: MultiAgentEnvironment, max_length: int) -> TextParallel:
    """``env`` as a ParallelEnv."""
    return TextParallel(env, max_length)


class PettingZooEnvironment:
    """A PettingZoo environment for us; see `assay.systems.environment.from_pettingzoo`.

    An action that is none of the agent's space is not stepped: the agent's info holds ``invalid_action`` and it is
    asked again.
    """

    def __init__(
        self,
        env: Any,
        actions: Mapping[str, Any] | Sequence[str] | None,
        describe: Callable[[Any], Observation] | None,
    ) -> None:
        if not isinstance(env, (AECEnv, ParallelEnv)):
            raise UsageError(f"{env!r} is neither a PettingZoo AECEnv nor a ParallelEnv.")
        self.env: Any = env
        self.turns = isinstance(env, AECEnv)
        self.describe = describe or described
        self.agents: list[str] = list(env.possible_agents)
        self.read = {agent: ActionReader(env.action_space(agent), actions) for agent in self.agents}
        self._seen: dict[str, Observation] = {}
        self._running = False

    @property
    def acting(self) -> list[str]:
        """Who acts next."""
        if not self._running:
            return []
        return [self.env.agent_selection] if self.turns else list(self.env.agents)

    def reset(self, seed: int | None = None) -> tuple[dict[str, Observation], dict[str, Info]]:
        """Begin an episode."""
        if self.turns:
            self.env.reset(seed=seed)
            self._seen = {a: self.describe(self.env.observe(a)) for a in self.env.agents}
            infos = {a: dict(i) for a, i in self.env.infos.items()}
        else:
            raw, infos = self.env.reset(seed=seed)
            self._seen = {a: self.describe(o) for a, o in raw.items()}
        self._running = True
        return dict(self._seen), infos

    def step(
        self, actions: Mapping[str, str]
    ) -> tuple[dict[str, Observation], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Info]]:
        """Act."""
        acting = self.acting
        if not acting:
            raise UsageError("This environment has no episode under way; call reset first.")
        check_actions(actions, acting)
        values, problems = {}, {}
        for agent, text in actions.items():
            values[agent], problem = self.read[agent](text)
            if problem is not None:
                problems[agent] = {"invalid_action": problem}
        live = list(self.env.agents)
        if problems:
            none = dict.fromkeys(live, False)
            return {a: self._seen[a] for a in acting}, dict.fromkeys(live, 0.0), none, dict(none), problems
        if not self.turns:
            raw, rewards, ends, cuts, infos = self.env.step(values)
            self._seen.update({a: self.describe(o) for a, o in raw.items()})
            self._running = bool(self.env.agents)
            return {a: self._seen[a] for a in raw}, dict(rewards), dict(ends), dict(cuts), infos
        self.env.step(values[acting[0]])
        rewards = {a: float(self.env.rewards.get(a, 0.0)) for a in live}
        ends = {a: bool(self.env.terminations[a]) for a in live}
        cuts = {a: bool(self.env.truncations[a]) for a in live}
        infos = {a: dict(self.env.infos[a]) for a in live}
        self._seen.update({a: self.describe(self.env.observe(a)) for a in live})
        while self.env.agents and (
            self.env.terminations[self.env.agent_selection] or self.env.truncations[self.env.agent_selection]
        ):
            self.env.step(None)
        self._running = bool(self.env.agents)
        return {a: self._seen[a] for a in live}, rewards, ends, cuts, infos

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _close(env: Any) -> None:
    close = getattr(env, "close", None)
    if callable(close):
        close()
