"""Replies of local models: the same alone and in company, seeded, stopped, metered, cancellable."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import threading
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scipy import stats  # noqa: E402
from tiny_lm import CHATML, plain_greedy, plain_logprobs, tiny_model  # noqa: E402

from assay.core.errors import BudgetExceeded, ProviderError, UsageError  # noqa: E402
from assay.core.metering import Budget, Meter, RunScope, current_scope, metered  # noqa: E402
from assay.systems import batching  # noqa: E402
from assay.systems.chat.prices import stated_price  # noqa: E402
from assay.systems.hf_model import Defaults  # noqa: E402
from assay.systems.lm_text import token_text  # noqa: E402


def user(text):
    return [{"role": "user", "content": text}]


def varied(count):
    return [user(f"{'the and in ' * (i % 11)}number {i}") for i in range(count)]


@pytest.fixture(scope="module")
def llama():
    return tiny_model("llama")


def gather(model, prompts, **options):
    async def ask():
        return await asyncio.gather(
            *(
                model.generate(p, **(options | {"seed": i} if "temperature" in options else options))
                for i, p in enumerate(prompts)
            )
        )

    return asyncio.run(ask())


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2", "mistral", "gemma3"])
def test_greedy_replies_in_company_are_those_of_a_plain_loop(kind):
    model = tiny_model(kind, max_batch=8)
    prompts = varied(12)
    replies = gather(model, prompts, max_tokens=16, logprobs=0)
    for prompt, reply in zip(prompts, replies, strict=True):
        ids = model._encode(model._render(prompt, None))
        want = plain_greedy(model.module(), ids, 16, model.ends)
        assert [t.token for t in reply.logprobs] == [token_text(model.tokenizer, i) for i in want]
        assert reply.usage.prompt_tokens == len(ids)
        assert reply.stop_reason == ("length" if len(want) == 16 else "stop")


@pytest.mark.parametrize("batch", [7, 32])
def test_sampled_replies_depend_on_their_seed_not_on_their_company(batch, llama):
    prompts = varied(batch)
    together = gather(llama, prompts, temperature=0.8, max_tokens=12)
    alone = [asyncio.run(llama.generate(p, temperature=0.8, max_tokens=12, seed=i)) for i, p in enumerate(prompts)]
    assert [r.text for r in together] == [r.text for r in alone]
    assert len({r.text for r in together}) == batch


def test_settings_of_neighbours_do_not_mix(llama):
    async def ask():
        return await asyncio.gather(
            llama.generate(user("one"), max_tokens=9),
            llama.generate(user("one"), max_tokens=9, temperature=1.5, seed=3),
            llama.generate(user("one"), max_tokens=4, temperature=0.7, seed=3, n=3),
        )

    greedy, hot, many = asyncio.run(ask())
    assert greedy.text == asyncio.run(llama.generate(user("one"), max_tokens=9, temperature=0)).text
    assert hot.text == asyncio.run(llama.generate(user("one"), max_tokens=9, temperature=1.5, seed=3)).text
    assert [c.text for c in many.choices] == [
        c.text for c in asyncio.run(llama.generate(user("one"), max_tokens=4, temperature=0.7, seed=3, n=3)).choices
    ]
    assert len({c.text for c in many.choices}) == 3


def test_without_a_seed_replies_differ(llama):
    texts = {asyncio.run(llama.generate(user("x"), temperature=1.0, max_tokens=8)).text for _ in range(4)}
    assert len(texts) == 4


def test_n_replies_cost_one_prefill(llama):
    read = []
    llama.module()
    hook = llama.module().get_input_embeddings().register_forward_hook(lambda m, i, o: read.append(tuple(i[0].shape)))
    try:
        reply = asyncio.run(llama.generate(user("the and in"), temperature=1.0, n=5, max_tokens=3, seed=1))
    finally:
        hook.remove()
    assert read[0][0] == 1
    assert len(reply.choices) == 5
    assert sum(rows * width for rows, width in read[1:]) <= 10
    assert reply.usage.completion_tokens == 15


def test_more_replies_than_a_batch_holds_run_in_waves_and_are_the_same():
    small, large = tiny_model("llama", max_batch=4), tiny_model("llama", max_batch=32)
    widths = []
    small.module().get_input_embeddings().register_forward_hook(lambda m, i, o: widths.append(i[0].shape[0]))
    ask = {"temperature": 1.0, "n": 10, "max_tokens": 6, "seed": 7}
    one, other = (asyncio.run(m.generate(user("the and in"), **ask)) for m in (small, large))
    assert [c.text for c in one.choices] == [c.text for c in other.choices]
    assert len({c.text for c in one.choices}) == 10
    assert max(widths) == 4
    assert one.usage == other.usage


def row(temperature=1.0, top_p=1.0, top_k=0, seed=0, logprobs=None):
    job = batching.Generation(list, 1, batching.Sampling(temperature, top_p, top_k), (), 1, logprobs, seed)
    return batching.Row(job, batching._generator(seed, 0) if temperature else None)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_with_their_probability(temperature):
    logits = torch.tensor([[0.3, 2.0, -1.0, 0.9, 0.0]])
    one = row(temperature)
    drawn = [batching.draw(logits, [one])[0] for _ in range(2000)]
    want = (logits[0] / temperature).softmax(-1).double().numpy()
    assert stats.chisquare(np.bincount(drawn, minlength=5), 2000 * want / want.sum()).pvalue > 1e-3


def test_top_p_and_top_k_leave_out_the_tail():
    probabilities = torch.tensor([[0.05, 0.4, 0.3, 0.15, 0.1]])
    logits = probabilities.log()

    def seen(**options):
        one = row(**options)
        return {batching.draw(logits, [one])[0] for _ in range(600)}

    assert seen() == {0, 1, 2, 3, 4}
    assert seen(top_k=2) == {1, 2}
    assert seen(top_p=0.6) == {1, 2}
    assert seen(top_p=0.75) == {1, 2, 3}
    assert seen(top_p=0.01) == {1}
    assert seen(top_k=3, top_p=0.6) == {1, 2}
    assert seen(temperature=0.0) == {1}


def test_top_p_of_a_flat_vocabulary_looks_past_the_first_512():
    logits = torch.zeros(1, 5000)
    one = row(top_p=0.5)
    assert len({batching.draw(logits, [one])[0] for _ in range(1200)}) > 550


def test_numbers_that_are_not_finite_are_an_error():
    with pytest.raises(ProviderError, match="not finite"):
        batching.draw(torch.tensor([[0.0, float("nan")]]), [row()])


def test_log_probabilities_of_a_reply_are_the_models_own(llama):
    reply = asyncio.run(llama.generate(user("in and"), temperature=1.3, seed=2, max_tokens=6, logprobs=3))
    ids = llama._encode(llama._render(user("in and"), None))
    names = {token_text(llama.tokenizer, i): i for i in range(llama.vocabulary)}
    assert len(names) == llama.vocabulary
    drawn = [names[t.token] for t in reply.logprobs]
    table = plain_logprobs(llama.module(), [*ids, *drawn])
    assert len(drawn) == 6
    for i, found in enumerate(reply.logprobs):
        values = table[len(ids) - 1 + i]
        assert found.logprob == pytest.approx(values[drawn[i]], abs=1e-5)
        best = np.argsort(-values)[:3]
        assert [names[t] for t in found.top] == best.tolist()
        np.testing.assert_allclose(list(found.top.values()), values[best], atol=1e-5)


def test_a_stop_string_ends_the_text_before_it_wherever_tokens_break(llama):
    free = asyncio.run(llama.generate(user("go"), max_tokens=30)).text
    for start in range(3, 20, 4):
        stop = free[start : start + 3]
        reply = asyncio.run(llama.generate(user("go"), max_tokens=30, stop=["never this", stop], logprobs=0))
        assert reply.text == free[: free.index(stop)]
        assert reply.stop_reason == "stop"
        assert reply.usage.completion_tokens <= start + 6
        assert len(reply.logprobs) <= start


def test_the_end_token_ends_a_reply():
    model = tiny_model("llama")
    head = model.module().get_output_embeddings()
    ids = model._encode(model._render(user("end"), None))
    want = plain_greedy(model.module(), ids, 10, frozenset())
    model._batcher.ends = frozenset([want[4]])
    stop = want.index(want[4])
    reply = asyncio.run(model.generate(user("end"), max_tokens=10, logprobs=0))
    assert head is not None
    assert len(reply.logprobs) == stop
    assert reply.stop_reason == "stop"
    assert reply.usage.completion_tokens == stop + 1


def test_a_reply_fits_into_the_context(llama):
    text = "x" * 480
    reply = asyncio.run(llama.generate(user(text), max_tokens=400))
    assert reply.stop_reason == "length"
    assert reply.usage.prompt_tokens + reply.usage.completion_tokens <= 512
    with pytest.raises(ProviderError, match="longer than the 512"):
        asyncio.run(llama.generate(user("x" * 600)))


def test_options_of_the_name_stand_above_the_request():
    model = tiny_model("llama", defaults=Defaults(max_tokens=3, temperature=0.0))
    reply = asyncio.run(model.generate(user("a"), max_tokens=50, temperature=2.0))
    assert reply.usage.completion_tokens == 3
    assert reply.text == asyncio.run(model.generate(user("a"))).text


def test_the_event_loop_stays_free(monkeypatch):
    model = tiny_model("llama")
    forward = model._decoder._forward

    def slow(*args):
        time.sleep(0.05)
        return forward(*args)

    monkeypatch.setattr(model._decoder, "_forward", slow)

    async def tick(gaps):
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            gaps.append(time.perf_counter() - before)

    async def ask():
        gaps = []
        ticker = asyncio.create_task(tick(gaps))
        await asyncio.gather(*(model.generate(p, max_tokens=8) for p in varied(5)))
        ticker.cancel()
        return gaps

    gaps = asyncio.run(ask())
    assert len(gaps) > 50
    assert np.median(gaps) < 0.02


def test_cancelled_requests_leave_the_batch_and_the_others_stay():
    model = tiny_model("llama")
    prompts = varied(6)
    want = gather(model, prompts[3:], max_tokens=40)
    widths = []
    model.module().get_input_embeddings().register_forward_hook(lambda m, i, o: widths.append(tuple(i[0].shape)))

    async def ask():
        tasks = [asyncio.create_task(model.generate(p, max_tokens=400 if i < 3 else 40)) for i, p in enumerate(prompts)]
        while not any(width == (6, 1) for width in widths):
            await asyncio.sleep(0.001)
        for task in tasks[:3]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(ask())
    assert all(isinstance(r, asyncio.CancelledError) for r in results[:3])
    assert [r.text for r in results[3:]] == [r.text for r in want]
    assert widths[-1] == (3, 1)


def test_requests_join_while_others_are_running_and_finished_rows_cost_nothing():
    model = tiny_model("llama", max_batch=4)
    widths = []
    model.module().get_input_embeddings().register_forward_hook(lambda m, i, o: widths.append(tuple(i[0].shape)))
    gather(model, varied(10), max_tokens=10)
    limits = [5, 30, 5, 5, 5, 5]
    widths.clear()

    async def ask():
        return await asyncio.gather(*(model.generate(user("q"), max_tokens=m, temperature=1.0, seed=m) for m in limits))

    replies = asyncio.run(ask())
    decoding = [rows for rows, width in widths if width == 1]
    assert sum(decoding) <= sum(r.usage.completion_tokens for r in replies)
    assert decoding[-1] == 1
    assert max(decoding) == 4


def out_of_memory_above(model, rows, monkeypatch):
    forward = model._decoder._forward
    failures = []

    def tight(ids, *rest):
        if ids.shape[0] > rows:
            failures.append(ids.shape[0])
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        return forward(ids, *rest)

    monkeypatch.setattr(model._decoder, "_forward", tight)
    return failures


def test_too_little_memory_halves_the_batch_once_said(monkeypatch, caplog):
    model = tiny_model("llama", max_batch=16)
    prompts = varied(16)
    want = gather(model, prompts, max_tokens=6, temperature=1.0)
    scores = asyncio.run(score_all(model, prompts))
    failures = out_of_memory_above(model, 4, monkeypatch)
    with caplog.at_level(logging.WARNING, "assay.lm"):
        assert [r.text for r in gather(model, prompts, max_tokens=6, temperature=1.0)] == [r.text for r in want]
        np.testing.assert_allclose(asyncio.run(score_all(model, prompts)), scores, atol=1e-5)
    assert failures
    assert model.describe()["max_batch"] == 4
    assert len([r for r in caplog.records if "out of memory" in r.message]) == 1


async def score_all(model, prompts):
    return await asyncio.gather(*(model.choice_logprobs(p, ["A", "the"]) for p in prompts))


def test_one_prompt_that_does_not_fit_is_an_error(monkeypatch):
    model = tiny_model("llama", max_batch=2)
    out_of_memory_above(model, 0, monkeypatch)
    with pytest.raises(ProviderError, match="does not fit into memory"):
        asyncio.run(model.generate(user("x")))
    with pytest.raises(ProviderError, match="does not fit into memory"):
        asyncio.run(model.choice_logprobs(user("x"), ["a", "b"]))


def test_a_failing_pass_fails_its_requests_and_no_later_ones(monkeypatch):
    model = tiny_model("llama")
    forward = model._decoder._forward
    monkeypatch.setattr(model._decoder, "_forward", lambda *a: (_ for _ in ()).throw(RuntimeError("broken kernel")))
    for call in (model.generate(user("x"), max_tokens=2), model.choice_logprobs(user("x"), ["a", "b"])):
        with pytest.raises(RuntimeError, match="broken kernel"):
            asyncio.run(asyncio.wait_for(call, 20))
    monkeypatch.setattr(model._decoder, "_forward", forward)
    assert asyncio.run(model.generate(user("x"), max_tokens=2)).usage.completion_tokens == 2


def test_a_bad_request_does_not_touch_its_neighbours(llama):
    async def ask():
        return await asyncio.gather(
            llama.generate(user("fine"), max_tokens=5),
            llama.generate(user("x" * 900), max_tokens=5),
            llama.generate(user("fine"), max_tokens=5),
            return_exceptions=True,
        )

    good, bad, again = asyncio.run(ask())
    assert isinstance(bad, ProviderError)
    assert good.text == again.text


def test_calls_are_metered_by_role_wherever_they_come_from(llama):
    outer = Meter()
    with metered(outer):
        asyncio.run(llama.generate(user("a"), max_tokens=4))
    own = Meter()
    bound = llama.bind(own)
    thread = threading.Thread(target=lambda: asyncio.run(bound.generate(user("a"), max_tokens=4)))
    thread.start()
    thread.join()
    asyncio.run(bound.choice_logprobs(user("a"), ["x", "y"]))
    (call,) = outer.totals()
    assert (call.role, call.model, call.calls, call.completion_tokens, call.cost) == (
        "subject",
        "tiny:llama",
        1,
        4,
        None,
    )
    (call,) = own.totals()
    prompt = len(llama._encode(llama._render(user("a"), None)))
    assert (call.calls, call.prompt_tokens, call.completion_tokens) == (2, 2 * prompt + 2, 4)
    assert call.seconds > 0


def test_a_stated_price_makes_cost_and_keeps_to_the_budget():
    model = tiny_model("llama", price=stated_price(1.0, 10.0))
    reply = asyncio.run(model.generate(user("a"), max_tokens=4))
    assert reply.cost == pytest.approx((reply.usage.prompt_tokens + 10 * 4) / 1e6)
    scope = RunScope(budget=Budget(reply.cost * 6))
    token = current_scope.set(scope)
    try:
        spent = gather_errors(model)
    finally:
        current_scope.reset(token)
    assert any(isinstance(s, BudgetExceeded) for s in spent)
    assert any(not isinstance(s, BudgetExceeded) for s in spent)
    assert scope.budget.spent <= scope.budget.limit
    assert scope.budget.reserved == pytest.approx(0, abs=1e-12)


def gather_errors(model):
    async def ask():
        return await asyncio.gather(
            *(model.generate(user("a"), max_tokens=4) for _ in range(20)), return_exceptions=True
        )

    return asyncio.run(ask())


def test_reasoning_and_tool_calls_are_fields_of_their_own(llama):
    from assay.systems import lm_text

    def said(text, prompt="<|start|>assistant\n", stop=()):
        ids = llama.tokenizer(text, add_special_tokens=False)["input_ids"]
        job = batching.Generation(list, 99, batching.Sampling(), tuple(stop), 1, None, 0)
        done = batching.Row(job, None, ids=ids, stop_reason="stop")
        return lm_text.choice(llama.tokenizer, done, prompt, False)

    assert said("<think>why</think>B").reasoning == "why"
    assert said("<think>why</think>B").text == "B"
    assert said("why</think>B", "<|start|>assistant\n<think>\n").text == "B"
    assert said("never done", "<|start|>assistant\n<think>\n").text == ""
    assert said("never done", "<|start|>assistant\n<think>\n").reasoning == "never done"
    called = said('<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>')
    assert called.stop_reason == "tool_calls"
    assert (called.tool_calls[0].name, called.tool_calls[0].arguments) == ("add", '{"a": 1}')
    assert said("<tool_call>{broken}</tool_call>").tool_calls == ()
    assert said("  plain \n").text == "  plain \n"


def test_tools_reach_a_template_that_knows_them():
    template = "{% if tools %}{{ tools | tojson }}{% endif %}" + CHATML
    model = tiny_model("llama", template=template)
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    assert '"add"' in model._render(user("x"), tools)
    called = [
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]}
    ]
    assert model._render([*user("x"), *called], tools)


def test_a_model_without_a_template_completes_bare_text():
    model = tiny_model("llama", template=None)
    assert model.completion
    assert model._render([{"role": "system", "content": "one "}, *user(" two")], None) == "one \n\n two"
    reply = asyncio.run(model.generate(user("the"), max_tokens=5))
    want = plain_greedy(model.module(), model.tokenizer("the")["input_ids"], 5, model.ends)
    assert reply.text == model.tokenizer.decode(want)
    assert asyncio.run(model.generate(user(""), max_tokens=2)).usage.prompt_tokens == 1


@pytest.mark.parametrize("text", ["  /\\_/\\  \n ( o.o )\n\n\n", "\t tabs\r\n", "é漢🙂", "", " x "])
def test_text_survives_the_round_trip(text, llama):
    assert llama.round_trip(text)


def test_a_template_that_strips_is_noticed():
    model = tiny_model("llama", template=CHATML.replace("m['content']", "m['content'] | trim"))
    assert model.round_trip("x y")
    assert not model.round_trip("  x")


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"messages": []}, "no message"),
        ({"messages": [{"content": "x"}]}, "Message 1 has no role"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "Message 1 holds an image"),
        ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "part of type 'audio'"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "no place for tools"),
        ({"temperature": -1.0}, "temperature=-1.0"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"max_tokens": 0}, "max_tokens=0"),
        ({"n": 0}, "n=0"),
        ({"logprobs": -1}, "logprobs=-1"),
    ],
)
def test_bad_requests_are_refused_in_one_sentence(options, message, llama):
    with pytest.raises(UsageError, match=message) as caught:
        asyncio.run(llama.generate(**({"messages": user("x")} | options)))
    assert "\n" not in str(caught.value)


def test_a_template_that_refuses_is_quoted():
    model = tiny_model("llama", template="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(UsageError, match="refuses these messages: roles must alternate"):
        asyncio.run(model.generate(user("x")))


@pytest.mark.parametrize("options", [{"top_p": 0.0}, {"top_p": 1.5}, {"top_k": -1}, {"max_tokens": 0}])
def test_bad_options_of_a_name_are_refused(options):
    with pytest.raises(UsageError, match="out of range"):
        tiny_model("llama", defaults=Defaults(**options))


def test_built_from_objects_it_does_not_travel(llama):
    with pytest.raises(TypeError, match="built from objects"):
        pickle.dumps(llama)


def test_an_idle_thread_ends_and_the_model_can_be_freed(monkeypatch):
    import weakref

    monkeypatch.setattr(batching, "IDLE", 0.05)
    model = tiny_model("llama")
    asyncio.run(model.generate(user("x"), max_tokens=2))
    thread = model._batcher._threads[0]
    thread.join(5)
    assert not thread.is_alive()
    assert asyncio.run(model.generate(user("x"), max_tokens=2)).usage.completion_tokens == 2
    model._batcher._threads[0].join(5)
    gone = weakref.ref(model._batcher)
    del model
    gc.collect()
    assert gone() is None
