"""The rewards of hardtests inside the trainers that they are made for. A framework that is not installed is skipped.

Held with TRL 1.16.0, verl 0.9.1 and OpenRLHF 0.11.2.
"""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from tiny_language import byte_tokenizer

from assay.code.hardtests.problem import Case
from assay.code.hardtests.rewards import CodeReward
from assay.code.hardtests.suite import TestSuite

SUITE = TestSuite("double", (Case("1\n", "2\n"), Case("21\n", "42\n")), {"LLMGen": [0, 1]}, time_limit=2.0)
GOOD = "```python\nprint(int(input()) * 2)\n```"
BAD = "```python\nprint(2)\n```"


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer()


@pytest.mark.parametrize("conversational", [False, True])
def test_trl_trains_on_the_verdicts(tmp_path, box, tokenizer, conversational):
    """A step of GRPO on two answers, one of them right; the texts are told, the learning is real."""
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    import torch
    import transformers

    class Scripted(transformers.LlamaForCausalLM):
        def generate(self, input_ids, **_):
            texts = [(GOOD, BAD)[row % 2] + tokenizer.eos_token for row in range(len(input_ids))]
            written = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt").input_ids
            return torch.cat([input_ids, written], dim=1)

    model = Scripted(
        transformers.LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
            num_attention_heads=2, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip
    settings = trl.GRPOConfig(
        output_dir=str(tmp_path / "out"), max_steps=1, per_device_train_batch_size=2, num_generations=2,
        max_completion_length=128, learning_rate=0.1, report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True, logging_steps=1, seed=0,
    )  # fmt: skip
    prompt = [{"role": "user", "content": "Double it."}] if conversational else "Double it."
    rows = [{"prompt": prompt, "pid": "double", "difficulty": 1}]
    trainer = trl.GRPOTrainer(
        model=model, args=settings, processing_class=tokenizer, reward_funcs=CodeReward([SUITE], box=box),
        train_dataset=datasets.Dataset.from_list(rows),
    )  # fmt: skip
    before = [weight.detach().clone() for weight in model.parameters()]
    trainer.train()
    assert trainer.state.global_step == 1
    assert trainer.state.log_history[0]["rewards/code_reward/mean"] == 0.5
    assert trainer.state.log_history[0]["rewards/code_reward/std"] == pytest.approx(0.5**0.5)
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters()))


@pytest.mark.parametrize("router", [None, "http://localhost:1"])
def test_verl_s_reward_manager_scores_by_the_suite(tokenizer, box, tmp_path, router):
    """The manager loads the function from a file of the user's, and hands further arguments on."""
    for module in ("verl", "ray", "tensordict"):
        pytest.importorskip(module)
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.trainer.ppo.reward import load_reward_manager

    row = tmp_path / "suite.json"
    row.write_text(json.dumps(SUITE.to_row()))
    file = tmp_path / "my_reward.py"
    file.write_text(
        "import json\nfrom assay.code.hardtests import CodeReward, TestSuite\n"
        f"suite = TestSuite.from_row(json.loads(open({str(row)!r}).read()), 'mine')\n"
        "compute_score = CodeReward([suite]).compute_score\n"
    )
    config = OmegaConf.create(
        {
            "reward": {
                "custom_reward_function": {"path": str(file), "name": "compute_score"},
                "reward_manager": {"source": "register", "name": "naive"},
            }
        }
    )

    async def scores() -> list[float]:
        manager = load_reward_manager(config, tokenizer, reward_router_address=router, reward_model_tokenizer=None)

        async def score(text: str, truth: str) -> float:
            ids = tokenizer(text, return_tensors="pt").input_ids
            rest = {
                "data_source": "hardtests", "reward_model": {"style": "rule", "ground_truth": truth}, "extra_info": {},
            }  # fmt: skip
            data = DataProto.from_dict(
                tensors={"responses": ids, "attention_mask": torch.ones_like(ids)},
                non_tensors={key: np.array([value], dtype=object) for key, value in rest.items()},
            )
            return (await manager.run_single(data))["reward_score"]

        texts = [(GOOD, "double"), (BAD, "double"), ("I do not know.", "double"), (GOOD, row.read_text())]
        return await asyncio.gather(*(score(*one) for one in texts))

    assert asyncio.run(scores()) == [1.0, 0.0, 0.0, 1.0]


def test_openrlhf_s_executor_rewards_an_answer(tokenizer, box, tmp_path):
    agents = pytest.importorskip("openrlhf.utils.agent")
    file = tmp_path / "reward_func.py"
    file.write_text("def reward_func(queries, prompts, labels):\n    raise AssertionError('replaced below')\n")
    executor = agents.SingleTurnAgentExecutor(str(file))
    executor.reward_func = CodeReward([SUITE], box=box).reward_func

    class Engine:
        async def generate(self, prompt, sampling, multi_modal_data=None):
            output = SimpleNamespace(text=GOOD, token_ids=tokenizer(GOOD).input_ids, finish_reason="stop")
            return SimpleNamespace(outputs=[output])

    sampling = SimpleNamespace(max_tokens=256, logprobs=None)
    out = asyncio.run(executor.execute("Double it.", "double", sampling, 1024, tokenizer, Engine()))
    assert [out["reward"].item(), out["scores"].item(), out["extra_logs"]["accepted"].item()] == [1.0, 1.0, 1.0]
