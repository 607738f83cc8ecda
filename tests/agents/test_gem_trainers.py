"""Trainers learn what can be known, their gradients are those of the formulas, policies agree with themselves."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from assay.agents.gem.env import Env, EnvError, Turn  # noqa: E402
from assay.agents.gem.rollout import Act, Decision, Episode, Rollout  # noqa: E402
from assay.agents.gem.trainers.curriculum import Curriculum  # noqa: E402
from assay.agents.gem.trainers.grpo import GRPO  # noqa: E402
from assay.agents.gem.trainers.loop import EVALUATION_SEEDS, improve, train  # noqa: E402
from assay.agents.gem.trainers.policies import ActionPolicy, CharPolicy, HFPolicy  # noqa: E402
from assay.agents.gem.trainers.ppo import PPO  # noqa: E402
from assay.agents.gem.trainers.rebn import ReBN  # noqa: E402
from assay.agents.gem.trainers.reinforce import Reinforce  # noqa: E402
from assay.agents.gem.trainers.worlds import UNREADABLE, replies, world  # noqa: E402
from assay.core.errors import UsageError  # noqa: E402


class Signal(Env):
    """Two turns; each shows a letter, and answering with that letter pays 1."""

    max_turns = 2

    def begin(self):
        self.letter = "abc"[self.draw(3)]
        return f"say {self.letter}", {}

    def act(self, action):
        reward = float(action == self.letter)
        self.letter = "abc"[self.draw(3)]
        return Turn(f"say {self.letter}", reward, self.turn == 2)


ALGORITHMS = [Reinforce(), ReBN(), PPO(), *(GRPO(kind=kind) for kind in ("grpo", "dr_grpo", "rloo"))]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
def test_every_algorithm_learns_to_answer_a_signal(algorithm):
    done = train(
        algorithm, ActionPolicy("abc", seed=0), Signal, turns=3000, evaluations=2, eval_episodes=32, final_episodes=64
    )
    assert done.curve[0]["return"] < 1.2
    assert done.final["return"] > 1.8
    assert 3000 <= done.turns < 3000 + 2 * 300


def test_a_run_is_repeated_exactly_from_its_seed():
    runs = [train(ReBN(), ActionPolicy("abc", seed=3), Signal, turns=400, seed=3, evaluations=1) for _ in range(2)]
    assert repr(runs[0].curve) == repr(runs[1].curve)  # nan where nothing is ever solved


def test_the_step_of_reinforce_is_the_gradient_of_the_formula():
    policy = ActionPolicy(["a", "b"], hidden=4, seed=1)
    turns = [Decision("x", Act("a", (0,), (0.0,)), 1.0), Decision("y", Act("b", (1,), (0.0,)), 0.0)]
    advantages = np.array([0.7, -0.4])
    before = [p.detach().clone() for p in policy.actor.parameters()]
    logp, _ = policy.logps(["x", "y"], [turn.act for turn in turns])
    wanted = torch.autograd.grad((torch.tensor(advantages) * logp[:, 0]).mean(), list(policy.actor.parameters()))
    rate = 0.1
    optimizer = torch.optim.SGD(policy.parameters(), lr=rate)
    improve(policy, optimizer, turns, advantages, epochs=1, clip=0.2, constant=1, longest_gradient=1e9)
    for was, now, gradient in zip(before, policy.actor.parameters(), wanted, strict=True):
        torch.testing.assert_close(now - was, rate * gradient, atol=1e-6, rtol=1e-4)


def test_rebn_normalises_over_all_turns_and_grpo_within_its_groups():
    def episode(group, *rewards):
        return Episode(group, [Decision("", Act(""), reward) for reward in rewards])

    flat = np.concatenate(ReBN(gamma=0.5).advantages([episode(0, 0, 1), episode(1, 1)]))
    worth = np.array([0.5, 1, 1])
    assert flat == pytest.approx((worth - worth.mean()) / worth.std())
    groups = [
        e.group for e in GRPO(group=4, batch=8).collect(Rollout([Signal()] * 1, ActionPolicy("abc")), iter(range(9)))
    ]
    assert groups == [0] * 4


def test_episodes_of_a_group_begin_alike():
    rollout = Rollout([Signal() for _ in range(8)], ActionPolicy("abc"))
    found = GRPO(group=4, batch=40).collect(rollout, iter(range(100)))
    first: dict = {}
    for episode in found:
        first.setdefault(episode.group, set()).add(episode.decisions[0].prompt)
    assert all(len(prompts) == 1 for prompts in first.values())
    assert all(sum(e.group == g for e in found) == 4 for g in first)


@pytest.mark.parametrize("policy", [ActionPolicy(["a", "b"], seed=2), CharPolicy("01", max_tokens=3, seed=2)])
def test_log_probabilities_now_are_those_of_sampling(policy):
    prompts = ["one", "a longer prompt", "", "one"]
    acts = policy.act(prompts)
    logp, mask = policy.logps(prompts, acts)
    for row, kept, act in zip(logp, mask, acts, strict=True):
        assert kept.sum() == len(act.tokens)
        assert row[: len(act.tokens)].tolist() == pytest.approx(list(act.logps), abs=1e-5)
    assert policy.values(prompts).shape == (4,)


def test_the_letter_policy_writes_boxes_and_says_when_it_was_cut():
    acts = CharPolicy("01", max_tokens=2, seed=0).act([""] * 64)
    assert all(act.text.startswith("\\boxed{") for act in acts)
    assert all(act.cut == (len(act.tokens) == 2 and act.tokens[-1] != 2) for act in acts)
    assert {act.cut for act in acts} == {True, False}


def test_worlds_name_what_can_be_said():
    assert replies("game:GuessTheNumber-v0-easy") == [f"\\boxed{{{n}}}" for n in range(1, 11)] + [UNREADABLE]
    assert len(replies("game:TowerofHanoi-v0-easy")) == 7
    with world("game:GuessTheNumber-v0-easy") as env:
        env.reset(1)
        assert "Guesses left: 3" in env.step("\\boxed{1}")[0]
    with pytest.raises(EnvError, match="no list of replies"):
        replies("game:Wordle-v0-easy")


def test_wrong_settings_are_refused():
    with pytest.raises(UsageError, match="group=1"):
        GRPO(group=1)
    with pytest.raises(UsageError, match="turns=0"):
        train(ReBN(), ActionPolicy("abc"), Signal, turns=0)
    with pytest.raises(EnvError, match="different replies"):
        ActionPolicy(["a", "a"])
    with pytest.raises(EnvError, match="alphabet"):
        CharPolicy("aa")


def tiny_model():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=260, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=256, pad_token_id=256, bos_token_id=257, eos_token_id=258,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


class Bytes:
    """A tokenizer of bytes."""

    pad_token_id, eos_token_id = 256, 258

    def __call__(self, text, add_special_tokens):
        return {"input_ids": list(text.encode())}

    def decode(self, ids, skip_special_tokens):
        return bytes(i for i in ids if i < 256).decode("latin-1")


def test_a_transformers_model_learns_with_the_same_trainer():
    pytest.importorskip("transformers")
    policy = HFPolicy(tiny_model(), Bytes(), max_tokens=3, temperature=0.7)
    prompts = ["ab", "a much longer prompt"]
    acts = policy.act(prompts)
    logp, mask = policy.logps(prompts, acts)
    for row, kept, act in zip(logp, mask, acts, strict=True):
        # padding must not change anything
        assert row[: int(kept.sum())].tolist() == pytest.approx(list(act.logps), abs=1e-4)
    before = policy.model.model.layers[0].self_attn.q_proj.weight.detach().clone()
    make = partial(world, "game:GuessTheNumber-v0-easy")
    done = train(PPO(lr=1e-3, batch=8), policy, make, turns=8, envs=4, evaluations=1, eval_episodes=2, final_episodes=2)
    assert done.updates == 1
    assert not torch.equal(before, policy.model.model.layers[0].self_attn.q_proj.weight)


@pytest.mark.slow
def test_smollm2_takes_one_step():
    from assay.systems.loading import load

    pytest.importorskip("transformers")
    model = load("local:smollm2")  # the packaged weights, as a transformers model
    policy = HFPolicy(model._model, model.tokenizer, max_tokens=8, max_prompt=128)
    done = train(
        ReBN(lr=1e-6, batch=4), policy, partial(world, "game:GuessTheNumber-v0-easy"), turns=4, envs=4, evaluations=1,
        eval_episodes=1, final_episodes=1,
    )  # fmt: skip
    assert done.updates == 1


# -- replies that were cut, curriculum ---------------------------------------------------------------------------------


def test_replies_that_were_cut_are_not_learnt_from_where_that_is_asked():
    def trained(turns, **settings):
        policy = ActionPolicy(["a", "b"], hidden=4, seed=1)
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
        improve(policy, optimizer, turns, np.ones(len(turns)), epochs=1, clip=0.2, constant=1, **settings)
        return torch.cat([p.detach().flatten() for p in policy.actor.parameters()])

    cut = Decision("x", Act("a", (0,), (0.0,), cut=True))
    whole = Decision("y", Act("b", (1,), (0.0,)))
    start = trained([], ignore_no_eos=True)
    assert torch.equal(trained([cut], ignore_no_eos=True), start)
    assert not torch.equal(trained([cut]), start)
    # The cut turn is masked, not taken out: it still counts in the mean, so the step of the other is half as large.
    alone, beside = trained([whole]) - start, trained([cut, whole], ignore_no_eos=True) - start
    torch.testing.assert_close(beside, alone / 2, atol=1e-7, rtol=1e-4)


@pytest.mark.parametrize("algorithm", [ReBN(ignore_no_eos=True), GRPO(ignore_no_eos=True), PPO(ignore_no_eos=True)])
def test_every_algorithm_hands_the_mask_on(algorithm):
    policy = ActionPolicy(["a", "b"], hidden=4, seed=1)
    before = [p.detach().clone() for p in policy.actor.parameters()]
    episodes = [Episode(0, [Decision("x", Act("a", (0,), (0.0,), cut=True), float(i))]) for i in range(4)]
    algorithm.learn(policy, torch.optim.SGD(policy.parameters(), lr=1.0), episodes)
    assert all(torch.equal(was, now) for was, now in zip(before, policy.actor.parameters(), strict=True))


LEVELS = ("game:GuessTheNumber-v0-easy?max_number=2", "game:GuessTheNumber-v0-easy?max_number=4")


def test_a_curriculum_moves_on_when_a_level_is_solved_often_enough():
    levels = Curriculum(LEVELS, target=0.75, window=4)
    for solved in (True, False, True):
        levels.end(0, solved)
    assert levels.level == 0
    levels.end(0, True)
    assert levels.level == 1
    assert levels.stages[0].curve == [1, 1 / 2, 2 / 3, 3 / 4]
    levels.end(0, False)  # begun before: counted, but of no weight
    assert (levels.stages[0].episodes, levels.stages[1].curve) == (5, [])
    for _ in range(9):
        levels.end(1, True)
    assert levels.level == 1


def test_episodes_are_of_the_level_that_was_reached_and_equal_seeds_alike():
    levels = Curriculum(LEVELS, target=1.0, window=1)
    env = levels.world()
    env.reset(0)
    assert env.unwrapped.max_number == 2
    env.step(f"\\boxed{{{env.unwrapped.secret}}}")
    assert levels.level == 1
    env.reset(0)
    assert env.unwrapped.max_number == 2
    env.reset(1)
    assert env.unwrapped.max_number == 4
    state = env.get_state()
    other = levels.world()
    other.set_state(state)
    assert other.step("\\boxed{1}")[:4] == env.step("\\boxed{1}")[:4]
    levels = Curriculum(LEVELS, target=1.0, window=1)
    env = levels.world()
    env.reset(EVALUATION_SEEDS)
    assert env.unwrapped.max_number == 4
    env.step(f"\\boxed{{{env.unwrapped.secret}}}")
    assert (levels.level, levels.stages[1].episodes) == (0, 0)


def test_a_curriculum_says_what_it_needs():
    with pytest.raises(EnvError, match="two levels"):
        Curriculum(LEVELS[:1])
    with pytest.raises(EnvError, match="target=0"):
        Curriculum(LEVELS, target=0)
