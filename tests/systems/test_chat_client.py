"""The chat client's requests and replies, against the loopback server."""

from __future__ import annotations

import asyncio
import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import DataError, ProviderError, UsageError
from assay.core.metering import Meter, metered
from assay.systems.chat.client import ChatClient
from assay.systems.chat.loopback import LoopbackServer
from assay.systems.chat.model import ChatModel, Usage
from assay.systems.chat.request import plain_prompt
from assay.systems.chat.wire import choices_of, read_body, split_think, usage_of

HELLO = [{"role": "user", "content": "Say hello"}]


def ask(reply="ok", *, messages=HELLO, client=None, server=None, **call):
    """One call through a fresh server: (reply, server)."""

    async def go():
        async with (
            LoopbackServer(reply, **(server or {})) as running,
            ChatClient("vllm", "m", base_url=running.url, **(client or {})) as model,
        ):
            return await model.generate(messages, **call), running

    return asyncio.run(go())


def test_a_client_is_a_chat_model():
    assert isinstance(ChatClient("vllm", "m"), ChatModel)


def test_only_what_was_asked_for_is_sent():
    _, server = ask()
    assert server.bodies == [{"model": "m", "messages": HELLO}]
    assert "Authorization" not in server.headers[0]


def test_every_field_of_a_call_is_sent():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    response_format = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    _, server = ask(
        tools=tools,
        response_format=response_format,
        max_tokens=7,
        temperature=0.5,
        stop=["\n"],
        n=2,
        logprobs=3,
        seed=2**40 + 5,
        client={"top_p": 0.9, "top_k": 4, "reasoning_effort": "low", "min_p": 0.1, "presence_penalty": 0.2},
    )
    assert server.bodies[0] == {
        "model": "m",
        "messages": HELLO,
        "tools": tools,
        "response_format": response_format,
        "max_tokens": 7,
        "temperature": 0.5,
        "stop": ["\n"],
        "n": 2,
        "logprobs": True,
        "top_logprobs": 3,
        "seed": 5,
        "top_p": 0.9,
        "top_k": 4,
        "reasoning_effort": "low",
        "min_p": 0.1,
        "presence_penalty": 0.2,
    }


def test_options_of_the_name_stand_above_the_call():
    _, server = ask(client={"temperature": 0.0, "max_tokens": 9}, temperature=1.0, max_tokens=5)
    assert server.bodies[0]["temperature"] == 0.0
    assert server.bodies[0]["max_tokens"] == 9


def test_a_reply_carries_text_usage_model_and_seconds():
    reply, _ = ask("one two three", server={"model": "m-2024"})
    assert reply.text == "one two three"
    assert reply.usage == Usage(prompt_tokens=2, completion_tokens=3)
    assert reply.model == "m-2024"
    assert reply.seconds > 0
    assert reply.stop_reason == "stop"
    assert reply.cost is None


def test_logprobs_of_chat_and_of_raw_completions_read_alike():
    chat, _ = ask("a b", logprobs=2)
    raw, server = ask("a b", logprobs=2, client={"completion": True})
    assert server.bodies[0] == {"model": "m", "prompt": "Say hello", "logprobs": 2}
    assert chat.logprobs == raw.logprobs
    assert chat.logprobs is not None
    assert [t.token for t in chat.logprobs] == ["a", " b"]
    assert chat.logprobs[0].top == {"a": -0.1, "a~1": -1.1}


def test_raw_completions_take_no_images_tools_or_formats():
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]
    with pytest.raises(UsageError, match="text only"):
        ask(messages=image, client={"completion": True})
    with pytest.raises(UsageError, match="neither tools"):
        ask(tools=[{}], client={"completion": True})


def test_plain_prompt_keeps_texts_exactly():
    messages = [
        {"role": "system", "content": " a\n"},
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": " c"}]},
    ]
    assert plain_prompt(messages) == " a\n\nb c"


def test_tool_calls_are_read_as_text_or_object():
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
        {"function": {"name": "g", "arguments": {"y": [2]}}},
    ]
    reply, _ = ask({"content": None, "tool_calls": calls, "finish_reason": "tool_calls"})
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == [
        ("c1", "f", '{"x": 1}'),
        ("call_1", "g", '{"y":[2]}'),
    ]
    assert reply.text == ""
    assert reply.stop_reason == "tool_calls"


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "content_filter"),
        ("function_call", "tool_calls"),
        ("something new", "stop"),
        (None, "stop"),
    ],
)
def test_stop_reasons(finish, stop):
    assert ask({"content": "x", "finish_reason": finish})[0].stop_reason == stop


def test_a_refusal_is_a_reply():
    reply, _ = ask(server={"faults": ["refusal"]})
    assert reply.stop_reason == "refusal"
    assert reply.text == "I will not do that."


def test_a_filtered_input_is_a_reply():
    from assay.systems.chat.loopback import Fault

    found = Fault("status", 400, error={"message": "flagged", "code": "content_filter"})
    meter = Meter()
    with metered(meter):
        reply, server = ask(server={"faults": [found]})
    assert reply.stop_reason == "content_filter"
    assert server.requests == 1
    assert meter.totals()[0].calls == 1


def test_moderation_by_openrouter_is_not_a_bad_key():
    from assay.systems.chat.loopback import Fault

    found = Fault("status", 403, error={"message": "flagged", "code": 403, "metadata": {"flagged_input": "x"}})
    assert ask(server={"faults": [found]})[0].stop_reason == "content_filter"


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_kept_apart(field):
    reply, _ = ask({"content": "42", field: "six times seven"})
    assert (reply.text, reply.reasoning) == ("42", "six times seven")


def test_mistrals_parts_are_read():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "42"},
    ]
    reply, _ = ask({"content": parts})
    assert (reply.text, reply.reasoning) == ("42", "hm")


@pytest.mark.parametrize(
    ("text", "answer", "thought"),
    [
        ("plain", "plain", None),
        (" keeps  its\n blanks ", " keeps  its\n blanks ", None),
        ("<think>a</think>b", "b", "a"),
        ("<think>\na\n</think>\n\nb\n", "b", "a"),
        ("<think>never closed: the answer is B", "", "never closed: the answer is B"),
        ("opened by the template</think>b", "b", "opened by the template"),
        ("<think></think>b", "b", ""),
        ("<think>a</think>b<think>c</think>d", "bd", "a\nc"),
        ("first <think>cut off", "first", "cut off"),
        ("a</think>b<think>c", "b", "a\nc"),
        ("I rethink> it", "I rethink> it", None),
    ],
)
def test_think_blocks(text, answer, thought):
    assert split_think(text) == (answer, thought)


@given(st.text(alphabet="ab<>/think \n", max_size=60))
def test_no_reasoning_is_left_in_an_answer(text):
    answer, thought = split_think(text)
    if thought is None:
        assert answer == text
        assert "</think>" not in text
    else:
        assert "<think>" in text or "</think>" in text


def test_tokens_are_counted_the_same_at_every_provider():
    def usage(**fields):
        return usage_of(read_body(msgspec.json.encode({"choices": [{"text": ""}], "usage": fields})))

    openai = usage(
        prompt_tokens=10,
        completion_tokens=8,
        total_tokens=18,
        prompt_tokens_details={"cached_tokens": 4},
        completion_tokens_details={"reasoning_tokens": 5},
    )
    assert openai == Usage(10, 8, 4, 5)
    # xAI: reasoning beside the completion; Gemini: only the total tells.
    assert usage(
        prompt_tokens=10, completion_tokens=3, total_tokens=18, completion_tokens_details={"reasoning_tokens": 5}
    ) == Usage(10, 8, 0, 5)
    assert usage(prompt_tokens=10, completion_tokens=3, total_tokens=18) == Usage(10, 8, 0, 5)
    assert usage(prompt_tokens=10, completion_tokens=3, prompt_cache_hit_tokens=6) == Usage(10, 3, 6, 0)
    assert usage(prompt_tokens=None, completion_tokens=None) is None


def test_null_fields_of_a_reply_do_no_harm():
    body = b"""{"choices": [{"message": {"content": null, "refusal": null, "tool_calls": null, "reasoning": null},
      "finish_reason": null, "logprobs": null}], "usage": {"prompt_tokens": 1, "completion_tokens": 0,
      "prompt_tokens_details": null, "completion_tokens_details": null}, "model": null, "novelty": [1, {}]}"""
    (choice,) = choices_of(read_body(body))
    assert choice.text == ""
    assert choice.logprobs is None


@pytest.mark.filterwarnings("error")
def test_long_bodies_arrive_whole_and_without_warnings():
    text = "x" * 3_000_000
    _, server = ask(messages=[{"role": "user", "content": text}])
    assert server.bodies[0]["messages"][0]["content"] == text


def test_n_choices_come_in_one_request():
    reply, server = ask(lambda body: "x", n=3)
    assert len(reply.choices) == 3
    assert server.requests == 1


def test_n_choices_come_in_n_requests_where_the_service_gives_one():
    async def go():
        meter = Meter()
        async with (
            LoopbackServer("x y") as server,
            ChatClient("llamacpp", "m", base_url=server.url, price_in=1, price_out=1) as model,
        ):
            return await model.bind(meter).generate(HELLO, n=3, seed=5), server, meter

    reply, server, meter = asyncio.run(go())
    assert len(reply.choices) == 3
    assert all("n" not in b for b in server.bodies)
    assert sorted(b["seed"] for b in server.bodies) == [5, 6, 7]
    assert reply.usage == Usage(6, 6)
    assert meter.totals()[0].calls == 3
    assert reply.cost == pytest.approx(12e-6)


def test_choices_asked_one_by_one_differ_in_the_seed_of_the_name_too():
    async def go():
        async with (
            LoopbackServer("x") as server,
            ChatClient("llamacpp", "m", base_url=server.url, seed=2**31 - 1) as model,
        ):
            await model.generate(HELLO, n=3)
            return server

    assert sorted(b["seed"] for b in asyncio.run(go()).bodies) == [0, 1, 2**31 - 1]


def test_n_is_made_up_where_a_service_ignores_it():
    async def go():
        async with LoopbackServer("x") as server:
            answer = server._answer

            async def one(request, body):
                return await answer(request, {**body, "n": 1})

            server._answer = one
            async with ChatClient("vllm", "m", base_url=server.url) as model:
                return await model.generate(HELLO, n=3), server

    reply, server = asyncio.run(go())
    assert len(reply.choices) == 3
    assert [b.get("n") for b in server.bodies] == [3, None, None]


def test_openais_reasoning_models_get_no_sampling_fields(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    model = ChatClient("openai", "o3-mini")
    body = msgspec.json.decode(model._build(HELLO, {"temperature": 0.0, "max_tokens": 5, "stop": ["x"]}, 1).body)
    assert body == {"model": "o3-mini", "messages": HELLO, "max_completion_tokens": 5}
    plain = ChatClient("openai", "gpt-4o-mini")
    body = msgspec.json.decode(plain._build(HELLO, {"temperature": 0.0, "max_tokens": 5}, 1).body)
    assert body == {"model": "gpt-4o-mini", "messages": HELLO, "temperature": 0.0, "max_completion_tokens": 5}
    assert model.describe()["left_out"]


def test_a_compatible_server_behind_openais_variable_gets_max_tokens(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/")
    model = ChatClient("openai", "o3-mini")
    assert model.base_url == "http://127.0.0.1:9/v1"
    body = msgspec.json.decode(model._build(HELLO, {"temperature": 0.0, "max_tokens": 5}, 1).body)
    assert body["max_tokens"] == 5
    assert body["temperature"] == 0.0


def test_mistrals_seed_has_its_own_name(monkeypatch):
    monkeypatch.setenv("MISTRAL_API_KEY", "k" * 32)
    body = msgspec.json.decode(ChatClient("mistral", "mistral-small-latest")._build(HELLO, {"seed": 3}, 1).body)
    assert body["random_seed"] == 3


def test_ollamas_host_variable_is_obeyed(monkeypatch):
    monkeypatch.setenv("OLLAMA_HOST", "0.0.0.0")
    assert ChatClient("ollama", "m").base_url == "http://localhost:11434/v1"
    monkeypatch.setenv("OLLAMA_HOST", "box:999")
    assert ChatClient("ollama", "m").base_url == "http://box:999/v1"
    monkeypatch.setenv("OLLAMA_HOST", "https://box/ollama/v1")
    assert ChatClient("ollama", "m").base_url == "https://box/ollama/v1"


def test_calls_are_metered_by_role_and_model():
    async def go():
        meter, other = Meter(), Meter()
        async with (
            LoopbackServer("a b c", model="m-1") as server,
            ChatClient("vllm", "m", base_url=server.url, role="judge", price_in=1e6, price_out=2e6) as model,
        ):
            with metered(other):
                await model.bind(meter).generate(HELLO)
                await model.generate(HELLO)
                await model.generate(HELLO)
        return meter.totals(), other.totals()

    (bound,), (context,) = asyncio.run(go())
    assert (bound.role, bound.model, bound.resolved) == ("judge", "vllm:m", "m-1")
    assert (bound.calls, bound.cached, bound.prompt_tokens, bound.completion_tokens) == (1, 0, 2, 3)
    assert bound.cost == bound.paid == pytest.approx(2 + 6)
    assert bound.seconds > 0
    assert context.calls == 2


def test_what_json_cannot_hold_is_one_sentence():
    with pytest.raises(DataError, match="cannot be written as JSON"):
        ask(messages=[{"role": "user", "content": {1j}}])
    with pytest.raises(DataError, match="cannot be written as JSON"):
        ask(messages=[{"role": "user", "content": "\ud800"}])


def test_bad_settings_are_refused_at_once():
    for wrong in ({"timeout": 0}, {"retries": -1}, {"price_in": 1.0}, {"price_in": -1, "price_out": 0}):
        with pytest.raises(UsageError):
            ChatClient("vllm", "m", **wrong)
    with pytest.raises(UsageError, match="did you mean 'openai'"):
        ChatClient("opnai", "m")
    with pytest.raises(UsageError, match="names no model"):
        ChatClient("openai", "")
    with pytest.raises(UsageError, match="not an address"):
        ChatClient("vllm", "m", base_url="localhost:8000")
    with pytest.raises(UsageError, match="at least one"):
        ask(n=0)


def test_a_missing_key_names_its_variable():
    with pytest.raises(UsageError, match="ANTHROPIC_API_KEY"):
        ChatClient("anthropic", "claude-3-5-haiku-latest")
    with pytest.raises(UsageError, match="GEMINI_API_KEY or GOOGLE_API_KEY"):
        ChatClient("gemini", "gemini-2.5-flash")


def test_pickling_rebuilds_without_the_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-0123456789")
    model = ChatClient("openai", "gpt-4o-mini", role="judge", temperature=0.5)
    data = pickle.dumps(model)
    assert b"secret" not in data
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other-0123456789")
    again = pickle.loads(data)  # noqa: S301 - made two lines above
    assert (again.name, again.role) == (model.name, "judge")
    assert again._headers["Authorization"] == "Bearer sk-other-0123456789"


def test_outside_a_run_a_client_serves_one_event_loop_after_another():
    async def serve(model):
        async with LoopbackServer("x") as server:
            model._url = model._url.with_port(int(server.url.split(":")[2].split("/")[0]))
            reply = await model.generate(HELLO)
            await model.aclose()
            return reply.text

    model = ChatClient("vllm", "m", base_url="http://127.0.0.1:1/v1")
    assert [asyncio.run(serve(model)) for _ in range(2)] == ["x", "x"]


def test_nobody_at_the_address_is_a_fatal_error_soon(unused_port):
    async def go():
        async with ChatClient("vllm", "m", base_url=f"http://127.0.0.1:{unused_port}/v1", clock=Instant()) as model:
            await model.generate(HELLO)

    with pytest.raises(ProviderError, match="no connection to") as caught:
        asyncio.run(go())
    assert caught.value.fatal
    assert caught.value.retryable
    assert "3 tries" in str(caught.value)


class Instant:
    """A clock whose sleeps take no time."""

    def __init__(self):
        self.time = 1000.0

    def now(self):
        return self.time

    def wall(self):
        return 1.7e9 + self.time

    async def sleep(self, seconds):
        self.time += seconds
        await asyncio.sleep(0)


@pytest.fixture
def unused_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
