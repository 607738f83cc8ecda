"""Techniques: which calls they make, what each call sees, and what they leave for scoring."""

from __future__ import annotations

import asyncio

import pytest

from assay.core.errors import UsageError
from assay.reasoning.cost_of_pass import techniques
from assay.reasoning.cost_of_pass.data import Problem
from assay.reasoning.cost_of_pass.techniques import Said, read_budget, technique

PROBLEM = Problem("p", "What is 2 + 2?", "4")


def carry_out(name: str, *replies: str):
    asked: list[tuple[str, bool]] = []
    left = iter(replies)

    async def ask(prompt: str, plain: bool) -> Said:
        asked.append((prompt, plain))
        return Said(next(left))

    exchange = asyncio.run(technique(name)(PROBLEM, "number", ask))
    return exchange, asked


def test_vanilla_asks_once_and_says_how_to_answer():
    exchange, asked = carry_out("vanilla", "<answer>4</answer>")
    assert len(asked) == 1
    prompt, plain = asked[0]
    assert plain
    assert PROBLEM.question in prompt
    assert "<answer>" in prompt
    assert "number alone" in prompt
    assert not exchange.voted


@pytest.mark.parametrize(
    ("form", "hint"), [("letter", "letter"), ("number", "number"), ("expression", "LaTeX"), ("text", "complete")]
)
def test_the_prompt_says_what_an_answer_looks_like(form, hint):
    assert hint in techniques.plain_prompt(PROBLEM, form)


def test_self_refinement_shows_the_first_attempt_and_the_last_reply_counts():
    exchange, asked = carry_out("self_refinement", "I say <answer>5</answer>", "<answer>4</answer>")
    assert [plain for _, plain in asked] == [True, False]
    assert "I say <answer>5</answer>" in asked[1][0]
    assert PROBLEM.question in asked[1][0]
    assert exchange.turns[-1][1].text == "<answer>4</answer>"
    assert not exchange.voted


@pytest.mark.parametrize("k", [3, 4, 7])
def test_a_majority_asks_k_times_the_same(k):
    exchange, asked = carry_out(f"majority_{k}", *["<answer>4</answer>"] * k)
    assert len(set(asked)) == 1
    assert len(asked) == k == len(exchange.turns)
    assert exchange.voted


def test_a_token_budget_is_guessed_and_then_given():
    exchange, asked = carry_out("tale_ep", "[[ 30 ]]", "<answer>4</answer>")
    assert "double square brackets" in asked[0][0]
    assert asked[1][0].endswith("Use less than 30 tokens.")
    assert [plain for _, plain in asked] == [False, False]
    assert exchange.notes == {"budget": 30}


@pytest.mark.parametrize("guess", ["about thirty", "[30]", "[[0]]", "[[-3]]", "", "[[many]]"])
def test_a_guess_that_cannot_be_read_means_no_budget(guess):
    exchange, asked = carry_out("tale_ep", guess, "<answer>4</answer>")
    assert asked[1] == (techniques.plain_prompt(PROBLEM, "number"), True)
    assert exchange.notes == {"budget": None}


def test_the_last_readable_budget_counts():
    assert read_budget("[[10]] no, [[1,200]] tokens") == 1200


def test_names_here_and_in_published_records_go_both_ways():
    for short in ("vanilla", "self_refinement", "majority_3", "majority_5", "tale_ep"):
        assert techniques.short_name(techniques.published_name(short)) == short
    assert techniques.published_name("majority_3") == "MajorityVotingMethod_3"
    assert technique("VanillaPromptMethod") is techniques.vanilla


def test_own_techniques_are_found_by_module_and_name():
    assert technique("assay.reasoning.cost_of_pass.techniques:vanilla") is techniques.vanilla
    for name in ("majorty_3", "majority_0", "no.such.module:f", "assay.reasoning.cost_of_pass.techniques:nothing"):
        with pytest.raises(UsageError):
            technique(name)
