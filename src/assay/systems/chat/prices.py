"""Prices: US dollars of a call, from genai-prices and the additions in ``models.toml``."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from assay.core.errors import UsageError
from assay.systems.chat.facts import bare_name, models_file
from assay.systems.chat.model import Usage
from assay.systems.chat.providers import providers

PER = 1e-6


@dataclass(frozen=True, slots=True)
class Rate:
    """USD per million tokens for prompts of at least ``start`` tokens; the rate in force applies to all tokens."""

    start: int
    prompt: float
    cached: float
    completion: float
    reasoning: float


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs.

    Parameters
    ----------
    rates
        By rising ``start``; the first starts at 0.
    request
        USD a request, whatever its tokens.
    date
        Day (ISO) whose prices these are.
    source
        Where they come from.
    context
        Longest prompt and completion together in tokens, where the list says.
    """

    rates: tuple[Rate, ...]
    request: float = 0.0
    date: str | None = None
    source: str = ""
    context: int | None = None

    def cost(self, usage: Usage) -> float:
        """USD of one call. Cached tokens are part of the prompt's, reasoning tokens part of the completion's."""
        rate = self.rates[0]
        for candidate in self.rates[1:]:
            if usage.prompt_tokens > candidate.start:
                rate = candidate
        plain = usage.prompt_tokens - usage.cached_tokens
        answer = usage.completion_tokens - usage.reasoning_tokens
        return self.request + PER * (
            plain * rate.prompt
            + usage.cached_tokens * rate.cached
            + answer * rate.completion
            + usage.reasoning_tokens * rate.reasoning
        )

    def worst(self, prompt_tokens: int, completion_tokens: int) -> float:
        """USD that a call of at most so many tokens cannot pass."""
        rates = [r for r in self.rates if r.start <= prompt_tokens]
        return self.request + PER * (
            prompt_tokens * max(max(r.prompt, r.cached) for r in rates)
            + completion_tokens * max(max(r.completion, r.reasoning) for r in rates)
        )

    def describe(self) -> dict[str, Any]:
        """USD per million tokens (of short prompts, where the length matters), day and source."""
        rate = self.rates[0]
        return {
            "prompt": rate.prompt,
            "cached": rate.cached,
            "completion": rate.completion,
            "date": self.date,
            "source": self.source,
        }

    @property
    def free(self) -> bool:
        """Whether nothing is ever charged."""
        return self.request == 0 and all(r.prompt == r.cached == r.completion == r.reasoning == 0 for r in self.rates)


def stated_price(price_in: float | None, price_out: float | None, price_cached: float | None = None) -> Price | None:
    """Price from the options ``price_in``, ``price_out`` and ``price_cached`` (USD per million tokens)."""
    given = {"price_in": price_in, "price_out": price_out, "price_cached": price_cached}
    for name, value in given.items():
        if value is not None and not 0 <= value < float("inf"):
            raise UsageError(f"{name}={value} is not a price; give USD per million tokens, 0 for free.")
    if price_in is None and price_out is None:
        if price_cached is not None:
            raise UsageError("price_cached needs price_in and price_out beside it.")
        return None
    if price_in is None or price_out is None:
        missing = "price_in" if price_in is None else "price_out"
        raise UsageError(f"{missing} is missing: give price_in and price_out together (USD per million tokens).")
    cached = price_in if price_cached is None else price_cached
    return Price((Rate(0, price_in, cached, price_out, price_out),), source="stated by the user")


@cache
def price_of(provider: str, model: str, date: str | None = None) -> Price | None:
    """Price of ``model`` at ``provider`` on ``date`` (ISO day, None = today), None where no list knows it.

    ``models.toml`` stands above genai-prices: its rows are corrections and additions.
    """
    day = date or datetime.datetime.now(datetime.UTC).date().isoformat()
    own = _own_price(provider, model)
    if own is not None:
        return own
    known = providers().get(provider)
    listed = provider if known is None or known.prices is None else known.prices
    return _listed_price(listed, model, day) if listed else None


def _own_price(provider: str, model: str) -> Price | None:
    name = bare_name(model)
    for row in models_file().get("price", ()):
        if row["provider"] == provider and name in map(bare_name, row["models"]):
            cached = row.get("cached", row["prompt"])
            rate = Rate(0, row["prompt"], cached, row["completion"], row["completion"])
            return Price((rate,), date=row["date"], source=row["source"])
    return None


def _listed_price(provider: str, model: str, day: str) -> Price | None:
    import genai_prices
    from genai_prices.types import ModelPrice

    noon = datetime.datetime.fromisoformat(f"{day}T12:00:00+00:00")
    usage = genai_prices.Usage(input_tokens=0, output_tokens=0)
    try:
        found = genai_prices.calc_price(usage, model, provider_id=provider, genai_request_timestamp=noon)
    except LookupError:
        return None
    price: ModelPrice = found.model_price
    prompt, completion = _tiers(price, "input_mtok"), _tiers(price, "output_mtok")
    if prompt is None or completion is None:
        return None
    cached = _tiers(price, "cache_read_mtok") or prompt
    reasoning = _tiers(price, "output_reasoning_mtok") or completion
    starts = sorted({0, *prompt, *cached, *completion, *reasoning})
    rates = tuple(Rate(s, _at(prompt, s), _at(cached, s), _at(completion, s), _at(reasoning, s)) for s in starts)
    fees = _tiers(price, "requests_kcount")
    request = 0.0 if fees is None else fees[0] / 1000
    version = f"genai-prices {genai_prices.__version__}"
    return Price(rates, request, day, version, found.model.context_window)


def _tiers(price: Any, field: str) -> Mapping[int, float] | None:
    value = getattr(price, field)
    if value is None:
        return None
    tiers = getattr(value, "tiers", None)
    if tiers is None:
        return {0: float(value)}
    return {0: float(value.base), **{tier.start: float(tier.price) for tier in tiers}}


def _at(tiers: Mapping[int, float], start: int) -> float:
    return tiers[max(s for s in tiers if s <= start)]
