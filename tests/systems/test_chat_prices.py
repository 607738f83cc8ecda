"""Prices and facts of models."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import UsageError
from assay.core.metering import Meter
from assay.systems.chat.client import ChatClient
from assay.systems.chat.facts import bare_name, facts, models_file
from assay.systems.chat.loopback import LoopbackServer
from assay.systems.chat.model import Usage
from assay.systems.chat.prices import Price, Rate, price_of, stated_price
from assay.systems.chat.providers import providers


def test_a_listed_price_matches_the_list_itself():
    import genai_prices

    usage = Usage(prompt_tokens=1000, completion_tokens=300, cached_tokens=400, reasoning_tokens=100)
    for provider, listed, model in (
        ("openai", "openai", "gpt-4o-mini"),
        ("openai", "openai", "o1"),
        ("gemini", "google", "gemini-2.5-pro"),
        ("anthropic", "anthropic", "claude-sonnet-4-5"),
        ("xai", "x-ai", "grok-3"),
        ("openrouter", "openrouter", "openai/gpt-4o"),
    ):
        price = price_of(provider, model, "2026-06-01")
        assert price is not None
        expected = genai_prices.calc_price(
            genai_prices.Usage(input_tokens=1000, cache_read_tokens=400, output_tokens=300),
            model,
            provider_id=listed,
            genai_request_timestamp=__import__("datetime").datetime.fromisoformat("2026-06-01T12:00:00+00:00"),
        )
        assert price.cost(usage) == pytest.approx(float(expected.total_price), rel=1e-12)
        assert price.date == "2026-06-01"
        assert price.source.startswith("genai-prices ")


@pytest.mark.parametrize("prompt", [199_999, 200_000, 200_001, 500_000])
def test_long_prompts_are_charged_at_their_own_rate(prompt):
    import genai_prices

    price = price_of("gemini", "gemini-2.5-pro")
    expected = genai_prices.calc_price(
        genai_prices.Usage(input_tokens=prompt, output_tokens=10), "gemini-2.5-pro", provider_id="google"
    )
    assert price is not None
    assert price.cost(Usage(prompt, 10)) == pytest.approx(float(expected.total_price), rel=1e-12)


def test_cached_tokens_are_cheaper_and_reasoning_counts_once():
    price = price_of("openai", "gpt-4o-mini")
    assert price is not None
    full, cached = price.cost(Usage(1000, 0)), price.cost(Usage(1000, 0, cached_tokens=1000))
    assert cached == pytest.approx(full / 2)
    assert price.cost(Usage(0, 100, reasoning_tokens=90)) == price.cost(Usage(0, 100))


def test_an_unknown_price_is_none():
    assert price_of("openai", "no-such-model") is None
    assert price_of("vllm", "gpt-4o") is None
    assert price_of("no-such-provider", "gpt-4o") is None


def test_our_own_rows_add_to_the_list():
    price = price_of("together", "deepseek-ai/DeepSeek-R1")
    assert price is not None
    assert price.cost(Usage(1_000_000, 0)) == pytest.approx(3.0)
    assert price.date == "2025-06-01"
    for row in models_file()["price"]:
        assert row["source"]
        assert row["provider"] in providers()


def test_a_stated_price_stands_above_the_list(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdef")
    client = ChatClient("openai", "gpt-4o-mini", price_in=5.0, price_out=6.0, price_cached=1.0)
    assert client.price is not None
    assert client.price.cost(Usage(1_000_000, 1_000_000, 500_000)) == pytest.approx(2.5 + 0.5 + 6.0)
    assert client.describe()["price"]["source"] == "stated by the user"


@pytest.mark.parametrize("wrong", [(1.0, None), (None, 1.0), (-1.0, 1.0), (float("nan"), 1.0), (float("inf"), 0.0)])
def test_half_a_price_or_none_at_all_is_refused(wrong):
    with pytest.raises(UsageError):
        stated_price(*wrong)


def test_openrouters_own_cost_is_taken(monkeypatch):
    monkeypatch.setenv("OPENROUTER_API_KEY", "k" * 20)

    async def go():
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.0123}
        async with LoopbackServer({"content": "x", "usage": usage}) as server:
            meter = Meter()
            async with ChatClient("openrouter", "openai/gpt-4o", base_url=server.url) as client:
                reply = await client.bind(meter).generate([{"role": "user", "content": "x"}])
            return reply, meter, server

    reply, meter, server = asyncio.run(go())
    assert reply.cost == meter.totals()[0].cost == 0.0123
    assert server.bodies[0]["usage"] == {"include": True}


rates = st.floats(0, 100)
tiers = st.builds(Rate, st.just(0), rates, rates, rates, rates)
higher = st.builds(Rate, st.integers(1, 5000), rates, rates, rates, rates)


@given(tiers, st.lists(higher, max_size=2), st.integers(0, 8000), st.integers(0, 8000), st.data())
def test_no_call_costs_more_than_its_worst(first, more, prompt, completion, data):
    price = Price((first, *sorted(more, key=lambda r: r.start)), request=0.01)
    used = Usage(
        data.draw(st.integers(0, prompt)),
        data.draw(st.integers(0, completion)),
    )
    cached, thought = data.draw(st.integers(0, used.prompt_tokens)), data.draw(st.integers(0, used.completion_tokens))
    used = Usage(used.prompt_tokens, used.completion_tokens, cached, thought)
    assert price.cost(used) <= price.worst(prompt, completion) * (1 + 1e-12) + 1e-15


def test_facts_do_not_depend_on_how_a_model_is_named():
    expected = facts("gpt-4o-mini")
    assert expected["release_date"] == "2024-07-18"
    for name in ("openai:gpt-4o-mini", "openrouter:openai/gpt-4o-mini?temperature=0", "openai/GPT-4o-mini"):
        assert facts(name) == expected
    assert facts("together:meta-llama/Meta-Llama-3.1-8B-Instruct-Turbo")["parameters"] == 8_030_000_000
    assert facts("ollama:llama3.1:8b")["family"] == "Llama 3.1"
    assert facts("local:smollm2")["family"] == "SmolLM2"
    assert facts("gpt-4o-minimal") == {}
    assert bare_name("hf:org/Name@rev") == "name"


def test_the_models_of_the_cost_of_pass_paper_are_known():
    dates = {
        "Llama-3.1-8B-Instruct-Turbo": "2024-07-23",
        "gpt-4o-mini": "2024-07-18",
        "Llama-3.3-70B-Turbo": "2024-12-06",
        "Llama-3.1-405B": "2024-07-23",
        "claude-3-5-sonnet-20240620": "2024-06-20",
        "gpt-4o-2024-05-13": "2024-05-13",
        "o1-mini": "2024-09-12",
        "o1": "2024-12-05",
        "DeepSeek-R1": "2025-01-20",
        "o3-mini": "2025-01-31",
    }
    assert {name: facts(name).get("release_date") for name in dates} == dates


def test_the_facts_file_is_sound():
    names = [bare_name(n) for row in models_file()["model"] for n in row["names"]]
    assert len(names) == len(set(names))
    known = {
        "names", "family", "vendor", "release_date", "parameters", "context", "max_output", "image_tokens", "reasoning",
    }  # fmt: skip
    for row in models_file()["model"]:
        assert row.keys() <= known
        assert {"names", "family", "vendor", "release_date"} <= row.keys()
        assert row.get("max_output", 1) <= row.get("context", 10**9)
