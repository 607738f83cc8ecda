"""Chat models whose answers are known beforehand."""

from __future__ import annotations

import asyncio

import pytest

from assay.core.errors import ProviderError, UsageError
from assay.core.metering import Meter, current_attempt
from assay.systems.chat.model import ChatModel, Choice, Reply, Usage
from assay.systems.loading import describe
from assay.systems.scripted import ReplayModel, ScriptedChatModel, SkilledModel, text_of


def user(text):
    return [{"role": "user", "content": text}]


def ask(model, messages, **call):
    return asyncio.run(model.generate(messages, **call))


def test_all_of_them_are_chat_models():
    for model in (ScriptedChatModel(lambda m, r: "x"), SkilledModel(lambda m: ("a", "b"), 0.5), ReplayModel(["x"])):
        assert isinstance(model, ChatModel)
        assert describe(model)["name"] == model.name


def test_a_function_answers_with_text_choice_or_reply():
    whole = Reply((Choice("r"),), Usage(1, 2, 0, 1), "m-1", 3.0, 0.5)
    for answer, text in (("t", "t"), (Choice("c", reasoning="why"), "c"), (whole, "r")):
        assert ask(ScriptedChatModel(lambda m, r, a=answer: a), user("hi")).text == text
    assert ask(ScriptedChatModel(lambda m, r: whole), user("hi")) is whole


def test_an_async_function_is_awaited():
    async def fn(messages, rng):
        await asyncio.sleep(0)
        return text_of(messages).upper()

    assert ask(ScriptedChatModel(fn), user("hi")).text == "HI"


def test_randomness_depends_on_seed_messages_attempt_and_the_calls_seed_alone():
    def draw(seed=0, text="a", attempt=0, call=None):
        current_attempt.set(attempt)
        return ask(ScriptedChatModel(lambda m, r: str(r.random()), seed=seed), user(text), seed=call).text

    base = draw()
    assert draw() == base
    assert len({base, draw(seed=1), draw(text="b"), draw(attempt=1), draw(call=1)}) == 5
    current_attempt.set(0)


def test_n_draws_n_times_from_one_generator():
    reply = ask(ScriptedChatModel(lambda m, r: str(r.random())), user("a"), n=3)
    assert len({c.text for c in reply.choices}) == 3


def test_words_are_tokens_and_prices_count():
    meter = Meter()
    model = ScriptedChatModel(lambda m, r: Choice("a b", reasoning="c d e"), price_in=1e6, price_out=2e6, role="judge")
    reply = ask(model.bind(meter), user("one two three four"))
    assert reply.usage == Usage(4, 5, 0, 3)
    assert reply.cost == pytest.approx(4 + 10)
    (call,) = meter.totals()
    assert (call.role, call.calls, call.completion_tokens, call.cost) == ("judge", 1, 5, pytest.approx(14))


@pytest.mark.parametrize("skill", [0.0, 0.3, 0.9, 1.0])
def test_skill_is_the_share_of_right_answers(skill):
    model = SkilledModel(lambda m: (text_of(m), ["wrong", "worse"]), skill, template="ANSWER: {answer}")

    async def go():
        replies = [await model.generate(user(f"q{i}")) for i in range(2000)]
        return [r.text for r in replies]

    texts = asyncio.run(go())
    right = sum(t == f"ANSWER: q{i}" for i, t in enumerate(texts)) / 2000
    # Five standard errors of a share of 2,000.
    assert abs(right - skill) <= 5 * (skill * (1 - skill) / 2000) ** 0.5
    if skill < 1:
        assert {t for t in texts if not t.startswith("ANSWER: q")} == {"ANSWER: wrong", "ANSWER: worse"}


def test_a_skill_beyond_a_probability_is_refused():
    with pytest.raises(UsageError, match="probability"):
        SkilledModel(lambda m: ("a", "b"), 1.2)


def test_replies_are_replayed_in_order_and_end_in_an_error():
    model = ReplayModel(["a", ProviderError("down"), Choice("b")])
    assert ask(model, user("1")).text == "a"
    with pytest.raises(ProviderError, match="down"):
        ask(model, user("2"))
    assert ask(model.bind(Meter()), user("3")).text == "b"
    with pytest.raises(ProviderError, match="no reply left after 3 calls"):
        ask(model, user("4"))
    assert [m[0]["content"] for m in model.seen] == ["1", "2", "3", "4"]
