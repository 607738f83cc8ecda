"""ChatClient: one client for every service that speaks OpenAI's chat-completions dialect."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from yarl import URL

from assay.core.errors import BudgetExceeded, UsageError
from assay.core.metering import (
    Call,
    Meter,
    RunScope,
    current_attempt,
    current_meter,
    current_scope,
    report_call,
    report_exchange,
)
from assay.systems.chat.cache import ReplyCache, Stored, request_key
from assay.systems.chat.engine import Engine, Filtered, Patience, Unusable
from assay.systems.chat.facts import facts
from assay.systems.chat.limiter import Clock
from assay.systems.chat.model import Choice, Message, Reply, Usage
from assay.systems.chat.prices import Price, price_of, stated_price
from assay.systems.chat.providers import base_url_of, is_own_host, key_of
from assay.systems.chat.providers import provider as find_provider
from assay.systems.chat.request import IMAGE_TOKENS, SEED_MASK, Request, build
from assay.systems.chat.wire import WireReply, choices_of, read_body, usage_of

_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "max_tokens", "reasoning_effort", "seed",
)  # fmt: skip
_NOT_OPTIONS = {"self", "provider", "model", "base_url", "role", "connections", "clock"}


class _Context(NamedTuple):
    """Whose call it is: found where `generate` is awaited, used wherever the engine's loop runs."""

    scope: RunScope | None
    meter: Meter | None
    attempt: int


class ChatClient:
    """A model behind an OpenAI-compatible HTTP service; satisfies ChatModel.

    Within a run, all clients of one provider share a session and a limiter (`RunScope.shared`), the request cache and
    the budget; the run closes them. Outside a run the client owns its session: use ``async with`` or `aclose`.

    Parameters
    ----------
    provider, model
        Row of ``providers.toml``; the model's name at that provider.
    base_url
        Address instead of the provider's own (``vllm:MODEL@URL``).
    role
        What its calls are metered as.
    revision
        Label of the weights a server of your own serves: part of the cache key and of the record.
    temperature, top_p, top_k, min_p, presence_penalty, frequency_penalty, repetition_penalty
        See max_tokens.
    max_tokens, reasoning_effort, seed
        Sampling fields. One that is given here stands above what `generate` is asked for: whoever names a system with
        ``?temperature=0`` wants just that.
    completion
        Ask ``/completions`` with the bare text of the messages, without a chat template: for base models.
    price_in, price_out, price_cached
        USD per million tokens, for models that no price list knows; 0 = free.
    timeout, retries, deadline
        Seconds an attempt; repetitions of a failed one; seconds in all.
    connections
        Most requests in flight outside a run; within one the run's number holds.
    clock
        Time for waits and deadlines; tests hand in their own.

    Raises
    ------
    UsageError
        Unknown provider, missing key (named), an address or a price that is none.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        *,
        base_url: str | None = None,
        role: str = "subject",
        revision: str | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        min_p: float | None = None,
        presence_penalty: float | None = None,
        frequency_penalty: float | None = None,
        repetition_penalty: float | None = None,
        max_tokens: int | None = None,
        reasoning_effort: str | None = None,
        seed: int | None = None,
        completion: bool = False,
        price_in: float | None = None,
        price_out: float | None = None,
        price_cached: float | None = None,
        timeout: float = 600.0,
        retries: int = 16,
        deadline: float = 1800.0,
        connections: int = 32,
        clock: Clock | None = None,
    ) -> None:
        given = dict(locals())
        self.provider = find_provider(provider)
        if not model:
            raise UsageError(f"{provider}: names no model; write {provider}:MODEL.")
        if timeout <= 0 or deadline <= 0 or retries < 0:
            raise UsageError("timeout and deadline must be above 0 seconds and retries at least 0.")
        self.model = model
        self.role = role
        self.revision = revision
        self.base_url = base_url_of(self.provider, base_url)
        self.completion = completion
        self.connections = connections
        self.price: Price | None = stated_price(price_in, price_out, price_cached) or price_of(provider, model)
        self.options = {k: v for k, v in given.items() if k not in _NOT_OPTIONS and v != _DEFAULTS[k]}
        self.label = f"{provider}:{model}"
        self.name = self.label + (f"@{self.base_url}" if base_url else "") + option_text(self.options)
        self._rebuild = {k: given[k] for k in ("role", "connections")} | self.options
        self._given_url = base_url
        self._sampling = {k: given[k] for k in _SAMPLING if given[k] is not None}
        self._patience = Patience(timeout, retries, deadline)
        self._clock = clock
        own = is_own_host(self.provider, self.base_url)
        self._length_field = self.provider.max_tokens if own and not completion else "max_tokens"
        self._refused = self.provider.refuses(model) if own else frozenset()
        self._url = URL(self.base_url + ("/completions" if completion else "/chat/completions"))
        self._fixed = {"model": model, **self.provider.extra}
        key = key_of(self.provider, self.base_url)
        self._secrets = (key,) if key else ()
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._facts = facts(model)
        self._image_tokens = self._facts.get("image_tokens", IMAGE_TOKENS)
        self._price_date = self.price.date if self.price is not None else None
        self._bound: _Context | None = None
        # The engine of a client outside a run: one dictionary for all bound copies, empty until the first call.
        self._own: dict[str, Engine] = {}

    def __repr__(self) -> str:
        return f"ChatClient({self.name!r}, role={self.role!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the key: whoever unpickles reads it from the environment, like whoever builds.
        return _rebuilt, (self.provider.name, self.model, self._given_url, self._rebuild)

    def describe(self) -> dict[str, Any]:
        """Facts for ``run.json``: provider, model, address, options, price, model facts. Never a key."""
        found = describe_chat(self.provider.name, self.model, self.base_url, self.options)
        return {"name": self.name, **found, "role": self.role}

    def bind(self, meter: Meter) -> ChatClient:
        """A copy that reports to ``meter`` and remembers the run, whatever thread or loop it is used from."""
        copy = object.__new__(ChatClient)
        copy.__dict__.update(self.__dict__)
        copy._bound = _Context(current_scope.get(), meter, current_attempt.get())
        return copy

    async def __aenter__(self) -> ChatClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the session that a client outside a run owns."""
        engine = self._own.pop("engine", None)
        if engine is None or engine.loop.is_closed():
            return
        if engine.loop is asyncio.get_running_loop():
            await engine.close()
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(engine.close(), engine.loop))

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        response_format: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        stop: Sequence[str] | None = None,
        n: int = 1,
        logprobs: int | None = None,
        seed: int | None = None,
    ) -> Reply:
        """Answer ``messages``; see `ChatModel`.

        Raises
        ------
        ProviderError
            No usable reply after all retries (``retryable``), a refused request, or a refused account (``fatal``).
        BudgetExceeded
            The call could pass the run's budget.
        UsageError
            A budget without a known price; tools or images for a raw completion.
        """
        fields: dict[str, Any] = {}
        if temperature is not None:
            fields["temperature"] = temperature
        if max_tokens is not None:
            fields["max_tokens"] = max_tokens
        if stop:
            fields["stop"] = list(stop)
        if seed is not None:
            fields["seed"] = seed
        if logprobs is not None:
            fields["logprobs"] = logprobs
        if tools or response_format:
            if self.completion:
                raise UsageError(f"{self.name}: a raw completion takes neither tools nor a response format.")
            if tools:
                fields["tools"] = tools
            if response_format:
                # How a person's page shows the schema; services refuse fields that they do not know.
                fields["response_format"] = {k: v for k, v in response_format.items() if k != "form"}
        if n < 1:
            raise UsageError(f"n is {n}; at least one continuation is needed.")
        context = self._context()
        loop = self._loop(context.scope)
        work = self._choices(messages, fields, n, context)
        if loop is asyncio.get_running_loop():
            reply = await work
        else:
            # A room's own thread: session, limiter and cache are the run's, so the call is made on the run's loop.
            reply = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
        report_exchange(self.role, self.label, messages, reply.choices, context.meter)
        return reply

    def _context(self) -> _Context:
        bound, scope = self._bound, current_scope.get()
        if bound is None:
            return _Context(scope, current_meter.get(), current_attempt.get())
        if scope is None:  # a plain thread: context variables did not travel, what was bound did
            return bound
        return _Context(scope, bound.meter, current_attempt.get())

    def _loop(self, scope: RunScope | None) -> asyncio.AbstractEventLoop:
        running = asyncio.get_running_loop()
        if scope is not None:
            return scope.shared.setdefault("loop", running)
        engine = self._own.get("engine")
        return running if engine is None or not engine.loop.is_running() else engine.loop

    def _engine(self, scope: RunScope | None) -> Engine:
        if scope is None:
            engine = self._own.get("engine")
            if engine is None or engine.loop is not asyncio.get_running_loop():
                engine = Engine(self.provider.name, self.base_url, self.connections, clock=self._clock)
                self._own["engine"] = engine
            return engine
        key = ("chat", self.provider.name, self.base_url)
        engine = scope.shared.get(key)
        if engine is None:
            engine = Engine(self.provider.name, self.base_url, scope.connections, clock=self._clock)
            scope.shared[key] = engine
            scope.closers.append(engine.close)
        return engine

    def _cache(self, scope: RunScope | None) -> ReplyCache | None:
        if scope is None or scope.cache_folder is None:
            return None
        cache = scope.shared.get("reply cache")
        if cache is None:
            cache = scope.shared["reply cache"] = ReplyCache(scope.cache_folder)

            async def close() -> None:
                await cache.close()
                if cache.remark is not None:
                    scope.remarks.append(cache.remark)

            scope.closers.append(close)
        return cache

    def _build(self, messages: Sequence[Message], fields: Mapping[str, Any], n: int, number: int = 0) -> Request:
        sent = {**fields, **self._sampling}
        for name in self._refused & sent.keys():
            del sent[name]
        alternatives = sent.pop("logprobs", None)
        if alternatives is not None:
            if self.completion:
                sent["logprobs"] = alternatives
            else:
                sent["logprobs"] = True
                sent["top_logprobs"] = alternatives or None
        if "max_tokens" in sent and self._length_field != "max_tokens":
            sent[self._length_field] = sent.pop("max_tokens")
        if "seed" in sent:
            sent[self.provider.seed] = (sent.pop("seed") + number) & SEED_MASK
        if n > 1:
            sent["n"] = n
        return build(self._fixed, sent, messages, completion=self.completion, image_tokens=self._image_tokens)

    async def _choices(
        self, messages: Sequence[Message], fields: Mapping[str, Any], n: int, context: _Context
    ) -> Reply:
        """One reply with ``n`` choices, by as many requests as the provider makes necessary."""
        asked = 1 if self.provider.single else n
        reply = await self._ask(self._build(messages, fields, asked), asked, context)
        missing = n - len(reply.choices)
        if missing <= 0:
            return reply
        # Each with the next seed, where there is one: equal requests would be equal choices.
        requests = [self._build(messages, fields, 1, number) for number in range(1, missing + 1)]
        replies = [reply, *await asyncio.gather(*(self._ask(r, 1, context) for r in requests))]
        return _merged(replies)

    async def _ask(self, request: Request, n: int, context: _Context) -> Reply:
        scope, meter, attempt = context
        cache, key = self._cache(scope), b""
        if cache is not None:
            place = (self.provider.name, str(self._url), self.revision, request.body, attempt)
            key = request_key(*place, repeat=0)
            if not request.repeatable:
                repeat = cache.repeat(meter, key)
                key = key if repeat == 0 else request_key(*place, repeat=repeat)
            stored = cache.get(key)
            if stored is not None:
                try:
                    return self._reply(read_body(stored.body), stored, meter, cached=True)
                except (msgspec.MsgspecError, Unusable):
                    cache.forget(key)
        engine = self._engine(scope)
        reserved = 0.0 if scope is None or scope.budget is None else await self._reserve(scope, request, n)
        paid = 0.0
        try:
            (body, wire), seconds = await engine.post(
                self._url, self._headers, request.body, _read, patience=self._patience, secrets=self._secrets
            )
            cost = self._cost(wire)
            # What it cost is unknown: the budget must assume the worst.
            paid = reserved if cost is None else cost
        except Filtered as refusal:
            usage = Usage()
            self._report(meter, usage, 0.0, 0.0, 0.0, cached=False, resolved=None)
            return Reply((Choice(str(refusal), stop_reason="content_filter"),), usage, self.model, 0.0, 0.0)
        finally:
            if reserved or paid:
                self._settle(scope, reserved, paid)
        stored = Stored(body, seconds, cost, self._price_date)
        if cache is not None:
            cache.put(key, stored)
        return self._reply(wire, stored, meter, cached=False)

    def _cost(self, wire: WireReply) -> float | None:
        if self.provider.reports_cost and wire.usage is not None and wire.usage.cost is not None:
            return wire.usage.cost
        if self.price is None:
            return None
        usage = usage_of(wire)
        if usage is None:
            return 0.0 if self.price.free else None
        return self.price.cost(usage)

    def _reply(self, wire: WireReply, stored: Stored, meter: Meter | None, *, cached: bool) -> Reply:
        usage = usage_of(wire) or Usage()
        cost = self._cost(wire) if stored.cost is None else stored.cost
        self._report(meter, usage, stored.seconds, cost, 0.0 if cached else cost or 0.0, cached, wire.model)
        return Reply(choices_of(wire), usage, wire.model or self.model, stored.seconds, cost)

    def _report(
        self,
        meter: Meter | None,
        usage: Usage,
        seconds: float,
        cost: float | None,
        paid: float,
        cached: bool,
        resolved: str | None,
    ) -> None:
        call = Call(
            role=self.role,
            model=self.label,
            calls=1,
            cached=int(cached),
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            seconds=seconds,
            cost=cost,
            paid=paid,
            price_date=self._price_date,
            resolved=resolved,
        )
        report_call(call, meter)

    async def _reserve(self, scope: RunScope, request: Request, n: int) -> float:
        """Set the worst cost aside; while calls in flight may give some back, wait for them rather than give up."""
        worst = self._worst(request, n)
        budget = scope.budget
        assert budget is not None
        if worst == 0:
            return 0.0
        waiting: deque[asyncio.Future[None]] = scope.shared.setdefault("budget queue", deque())
        while True:
            try:
                budget.reserve(worst)
            except BudgetExceeded:
                if budget.reserved <= 0 or budget.spent + worst > budget.limit:
                    raise
                turn = asyncio.get_running_loop().create_future()
                waiting.append(turn)
                # Reservations of others (a room's own systems) wake nobody: look again now and then.
                await asyncio.wait([turn], timeout=1.0)
            else:
                return worst

    def _settle(self, scope: RunScope | None, reserved: float, paid: float) -> None:
        if scope is None or scope.budget is None:
            return
        scope.budget.settle(reserved, paid)
        waiting: deque[asyncio.Future[None]] = scope.shared.get("budget queue", deque())
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    def _worst(self, request: Request, n: int = 1) -> float:
        """USD that a request cannot pass.

        Raises
        ------
        UsageError
            No price is known, or the reply's length has no known limit.
        """
        if self.price is None:
            raise UsageError(
                f"A budget needs the price of {self.label}, which no list knows; "
                "add ?price_in=...&price_out=... (USD per million tokens, 0 for free) to its name."
            )
        if self.price.free:
            return 0.0
        longest = (
            request.max_tokens or self._facts.get("max_output") or self.price.context or self._facts.get("context")
        )
        if longest is None:
            raise UsageError(
                f"A budget needs a longest reply of {self.label}, and none is known; add ?max_tokens=... to its name."
            )
        return self.price.worst(request.prompt_tokens, longest * n)


_DEFAULTS = {name: p.default for name, p in inspect.signature(ChatClient).parameters.items()}


def _rebuilt(provider: str, model: str, base_url: str | None, options: dict[str, Any]) -> ChatClient:
    return ChatClient(provider, model, base_url=base_url, **options)


def describe_chat(provider: str, model: str, base_url: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a model at a provider, known without its key."""
    row = find_provider(provider)
    url = base_url_of(row, base_url)
    price = stated_price(*(options.get(f"price_{k}") for k in ("in", "out", "cached"))) or price_of(provider, model)
    return {
        "kind": "chat",
        "provider": provider,
        "model": model,
        "base_url": url,
        "options": dict(options),
        "left_out": sorted(row.refuses(model)) if is_own_host(row, url) else [],
        "price": None if price is None else price.describe(),
        **facts(model),
    }


def option_text(options: Mapping[str, Any]) -> str:
    """``?key=value&...`` in the order of the keys, "" without options; `loading.load` reads it back."""
    if not options:
        return ""
    texts = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in options.items()}
    return "?" + "&".join(f"{k}={quote(v, safe=':/,')}" for k, v in sorted(texts.items()))


def _read(body: bytes) -> tuple[bytes, WireReply]:
    return body, read_body(body)


def _merged(replies: Sequence[Reply]) -> Reply:
    usages = [r.usage for r in replies]
    costs = [r.cost for r in replies]
    return Reply(
        tuple(c for r in replies for c in r.choices),
        Usage(
            sum(u.prompt_tokens for u in usages),
            sum(u.completion_tokens for u in usages),
            sum(u.cached_tokens for u in usages),
            sum(u.reasoning_tokens for u in usages),
        ),
        replies[0].model,
        max(r.seconds for r in replies),
        None if None in costs else sum(c for c in costs if c is not None),
    )
