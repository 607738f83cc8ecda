"""The zoo inside other frameworks' training loops. Each adapter speaks the other's interface and imports nothing of it.

An episode is named by its environment's id and a seed; a data set of such names is all that a framework has to carry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from assay.agents.gem.env import Env, EnvError
from assay.agents.gem.episodes import built
from assay.agents.gem.wrappers import ObservationWrapper
from assay.systems.environment import text_of


def _shown(env: str) -> Env:
    """The environment, each observation with its board."""
    return ObservationWrapper(built(env), include_action=False, include_chat_template=False, max_history_length=0)


def prompts(env: str, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Rows of a training set: ``prompt`` (messages), ``env``, ``seed``; for verl ``data_source``, ``reward_model`` and
    ``extra_info``, for OpenRLHF ``label``, for verifiers ``info``. ``datasets.Dataset.from_list`` takes them."""
    rows = []
    with _shown(env) as made:
        for seed in seeds:
            text = text_of(made.reset(seed)[0])
            rows.append(
                {
                    "prompt": [{"role": "user", "content": text}],
                    "env": env,
                    "seed": seed,
                    "data_source": env,
                    "reward_model": {"style": "rule", "ground_truth": ""},
                    "extra_info": {"env": env, "seed": seed},
                    "label": f"{env}#{seed}",
                    "info": {"env": env, "seed": seed},
                }
            )
    return rows


def one_turn(env: str, seed: int, reply: str) -> tuple[float, dict[str, Any]]:
    """Reward and info of a reply in an environment of one turn.

    Raises
    ------
    EnvError
        The episode goes on: such an environment needs an adapter for many turns.
    """
    with built(env) as made:
        made.reset(seed)
        _, reward, terminated, truncated, info = made.step(reply)
        if not terminated and not truncated:
            raise EnvError(
                f"{env} goes on after the first turn; use an adapter for many turns: TRLEnvironment, OpenRLHFAgent, "
                "TinkerEnv or verifiers_episode."
            )
        return float(reward), info


def trl_reward(
    prompts: Sequence[Any], completions: Sequence[Any], *, env: Sequence[str], seed: Sequence[int], **_: Any
) -> list[float]:
    """A reward function for TRL's ``GRPOTrainer(reward_funcs=trl_reward)``; the columns ``env`` and ``seed`` come from
    `prompts`. For environments of one turn; `TRLEnvironment` has many."""
    if not len(completions) == len(env) == len(seed):
        raise EnvError(f"There are {len(completions)} completions, {len(env)} env and {len(seed)} seed; one each.")
    texts = [one if isinstance(one, str) else one[-1].get("content") or "" for one in completions]
    return [one_turn(e, int(s), text)[0] for e, s, text in zip(env, seed, texts)]


def verl_score(
    data_source: str, solution_str: str, ground_truth: Any = None, extra_info: Mapping[str, Any] | None = None, **_: Any
) -> float:
    """verl's reward function: ``reward.custom_reward_function.path=pkg://assay.agents.gem.adapters`` and
    ``name=verl_score``. For environments of one turn."""
    if extra_info is None or "seed" not in extra_info:
        raise EnvError("verl_score needs extra_info with env and seed; prompts() writes it.")
    return one_turn(str(extra_info.get("env", data_source)), int(extra_info["seed"]), solution_str)[0]


class TRLEnvironment:
    """Episodes of many turns for TRL: ``GRPOTrainer(environment_factory=TRLEnvironment)`` over rows of `prompts`.

    The model acts by calling the tool `act`; the sum of an episode's rewards is its reward. TRL calls an instance's
    methods one after the other and uses it again for later episodes.
    """

    def __init__(self) -> None:
        self._env: Env | None = None
        self._over, self._sum = True, 0.0

    def reset(self, *, env: str, seed: int, **_: Any) -> None:
        """Begin the episode that a row names; its first observation is the row's prompt."""
        if self._env is not None:
            self._env.close()
        self._env = _shown(env)
        self._env.reset(int(seed))
        self._over, self._sum = False, 0.0

    def act(self, action: str) -> str:
        """Act in the environment, in the form that the task asks for.

        Args:
            action: What you do in this turn.

        Returns:
            What you see then.
        """
        if self._env is None or self._over:
            raise EnvError("The episode is over; no further action counts.")
        observation, reward, terminated, truncated, _ = self._env.step(action)
        self._sum += float(reward)
        self._over = terminated or truncated
        return text_of(observation)

    def get_reward(self) -> float:
        """Sum of the rewards so far."""
        return self._sum


class OpenRLHFAgent:
    """What OpenRLHF's agent instance does: ``reset`` and ``step`` on dictionaries of states.

    ``states["label"]`` names the episode as ``env#seed``, as `prompts` does. OpenRLHF asks for a subclass of its own
    base: ``class AgentInstance(OpenRLHFAgent, AgentInstanceBase): turn = ...``.

    Attributes
    ----------
    turn
        What stands between two actions of the model, ``{}`` being the observation: the end of its turn, the user's, and
        the beginning of its next, in the model's chat template. The framework applies the template to the prompt alone.
    """

    turn: ClassVar[str] = "\n\n{}\n\n"

    def __init__(self, *_: Any, **__: Any) -> None:
        self.env: Env | None = None
        self.total = 0.0

    async def reset(self, states: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        """First observation: the prompt as the framework made it from the row, else what the environment shows."""
        name, mark, seed = str(states["label"]).rpartition("#")
        if not mark or not seed.isdecimal():
            raise EnvError(f"label is {states['label']!r}; it must be env#seed.")
        if self.env is not None:
            self.env.close()
        self.env, self.total = await asyncio.to_thread(_shown, name), 0.0
        observation, _info = await asyncio.to_thread(self.env.reset, int(seed))
        return {"observation": states.get("observation") or text_of(observation)}

    async def step(self, states: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        """Act with ``states["action_text"]``; ``scores`` is the sum of the rewards so far."""
        import torch

        if self.env is None:
            raise EnvError("step was called before reset.")
        result = await asyncio.to_thread(self.env.step, str(states["action_text"]))
        observation, reward, terminated, truncated, info = result
        self.total += float(reward)
        if terminated or truncated:
            self.env.close()
        return {
            "rewards": torch.tensor(float(reward)),
            "scores": torch.tensor(self.total),
            "environment_feedback": self.turn.replace("{}", text_of(observation)),
            "done": terminated or truncated,
            "sampling_params": states.get("sampling_params"),
            "extra_logs": {"solved": torch.tensor(float(bool(info.get("solved"))))},
        }


@dataclass(slots=True)
class StepResult:
    """Fields of tinker-cookbook's StepResult."""

    reward: float
    episode_done: bool
    next_observation: Any
    next_stop_condition: Any
    metrics: dict[str, float] = field(default_factory=dict)
    logs: dict[str, Any] = field(default_factory=dict)


class TinkerEnv:
    """tinker-cookbook's single-use environment: messages in the renderer's form, one episode.

    Parameters
    ----------
    env, seed
        The episode.
    render
        Messages to the framework's observation (``renderer.build_generation_prompt``).
    read
        The framework's action (token ids) to a text.
    stop
        Stop condition (``renderer.get_stop_sequences()``).
    """

    def __init__(
        self, env: str, seed: int, *, render: Callable[[list[dict[str, str]]], Any], read: Callable[[Any], str],
        stop: Any = (),
    ) -> None:  # fmt: skip
        self.env, self.seed = _shown(env), seed
        self.render, self.read, self.stop = render, read, stop
        self.messages: list[dict[str, str]] = []

    async def initial_observation(self) -> tuple[Any, Any]:
        """First observation and stop condition."""
        observation, _ = await asyncio.to_thread(self.env.reset, self.seed)
        self.messages = [{"role": "user", "content": text_of(observation)}]
        return self.render(self.messages), self.stop

    async def step(self, action: Any, *, extra: Any = None) -> StepResult:
        """Act; ``extra``, how the sampling ended, changes nothing."""
        reply = self.read(action)
        observation, reward, terminated, truncated, info = await asyncio.to_thread(self.env.step, reply)
        self.messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": text_of(observation)}]
        done = terminated or truncated
        if done:
            self.env.close()
        metrics = {"solved": float(bool(info.get("solved")))} if done else {}
        return StepResult(float(reward), done, self.render(self.messages), self.stop, metrics)


class OatActor:
    """Oat's way of collecting: replies for a list of prompts in, a transition a turn out.

    Parameters
    ----------
    envs
        Ids, one an environment; episodes go on from call to call.
    """

    def __init__(self, envs: Sequence[str], seed: int = 0) -> None:
        from assay.agents.gem.vector import SyncVectorEnv

        self.vector = SyncVectorEnv(list(envs), [_Maker(env) for env in envs])
        self.observations, _ = self.vector.reset(seed)

    def collect(self, generate: Callable[[Sequence[str]], Sequence[str]], steps: int) -> list[list[dict[str, Any]]]:
        """Episodes that ended within ``steps`` steps of all environments: lists of ``{obs, action, reward, done}``."""
        running: list[list[dict[str, Any]]] = [[] for _ in self.observations]
        done: list[list[dict[str, Any]]] = []
        for _ in range(steps):
            actions = list(generate([text_of(observation) for observation in self.observations]))
            following, rewards, terminated, truncated, _ = self.vector.step(actions)
            for i, action in enumerate(actions):
                over = bool(terminated[i] or truncated[i])
                turn = {"obs": self.observations[i], "action": action, "reward": float(rewards[i]), "done": over}
                running[i].append(turn)
                if over:
                    done.append(running[i])
                    running[i] = []
            self.observations = following
        return done


@dataclass(frozen=True, slots=True)
class _Maker:
    env: str

    def __call__(self) -> Env:
        return _shown(self.env)


class VerifiersRollout:
    """What a ``MultiTurnEnv`` of verifiers 0.1.14 asks of its subclass; for 0.4 there is `verifiers_episode`.

    ``class Games(VerifiersRollout, vf.MultiTurnEnv): pass``, over the rows of `prompts`; `reward` is a reward function
    for its rubric. The live environment stays outside the state, which frameworks copy and print.
    """

    async def setup_state(self, state: dict[str, Any], **_: Any) -> None:
        """Begin the episode that the row names; its first observation is the row's prompt."""
        info = state["info"]
        env = await asyncio.to_thread(_shown, str(info["env"]))
        await asyncio.to_thread(env.reset, int(info["seed"]))
        # Here and not in __init__, which is the framework's.
        live: dict[int, Env] = self.__dict__.setdefault("_live", {})
        number = max(live, default=-1) + 1
        live[number] = env
        state |= {"episode": number, "rewards": [], "solved": False}

    async def env_response(self, messages: Sequence[Any], state: dict[str, Any], **_: Any) -> list[dict[str, str]]:
        """Act with the last message; the observation as a message, which ends the rollout with the episode."""
        env: Env = self.__dict__["_live"][state["episode"]]
        last = messages[-1]
        reply = last["content"] if isinstance(last, Mapping) else last.content
        observation, reward, terminated, truncated, info = await asyncio.to_thread(env.step, str(reply or ""))
        state["rewards"].append(float(reward))
        state["solved"] = bool(info.get("solved"))
        answer = [{"role": "user", "content": text_of(observation)}]
        if terminated or truncated:
            state["final_env_response"] = answer
        return answer

    async def close_episode(self, state: Mapping[str, Any]) -> None:
        """Let go of the environment, however the rollout ended."""
        env = self.__dict__.get("_live", {}).pop(state.get("episode"), None)
        if env is not None:
            env.close()

    # As the framework's own decorator marks what it calls at the end of a rollout.
    close_episode.cleanup, close_episode.cleanup_priority = True, 0

    @staticmethod
    def reward(state: Mapping[str, Any], **_: Any) -> float:
        """Sum of the rewards."""
        return float(sum(state.get("rewards", ())))


async def verifiers_episode(agent: Any, task: Any) -> Any:
    """An episode in verifiers 0.4, whose environments drive their agents: in the ``run`` of a ``vf.Env``,
    ``await verifiers_episode(agents.player, task)``.

    Parameters
    ----------
    agent
        An ``Agent``.
    task
        With ``env`` and ``seed`` in its data, and as prompt the first observation, as rows of `prompts` have them.

    Returns
    -------
    Trace
        The agent's, with the sum of the episode's rewards as reward ``episode`` and the metric ``solved``.
    """
    env = await asyncio.to_thread(_shown, str(task.data.env))
    try:
        await asyncio.to_thread(env.reset, int(task.data.seed))
        total, solved = 0.0, False
        async with agent.interaction(task) as interaction:
            said = await interaction.turn()
            while not said.terminated:
                result = await asyncio.to_thread(env.step, said.last_reply)
                observation, reward, terminated, truncated, info = result
                total, solved = total + float(reward), bool(info.get("solved"))
                if terminated or truncated:
                    break
                said = await interaction.turn(text_of(observation))
            interaction.trace.record_reward("episode", total)
            interaction.trace.record_metric("solved", float(solved))
        return interaction.trace
    finally:
        env.close()
