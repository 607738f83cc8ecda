"""LoopbackServer: an OpenAI-compatible server on 127.0.0.1, with scripted faults, for tests and measurements."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from aiohttp import web

Kind = Literal[
    "status", "hang", "cut", "truncated", "garbage", "empty", "refusal", "unfinished", "html", "huge", "redirect"
]
KINDS = ("status", "hang", "cut", "truncated", "garbage", "empty", "refusal", "unfinished", "html", "huge", "redirect")
Answer = str | Mapping[str, Any]
ReplyFunction = Callable[[dict[str, Any]], Answer | Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request.

    Parameters
    ----------
    kind
        ``status`` answers with ``status``; ``hang`` never does; ``cut`` closes the connection; ``truncated`` breaks
        the JSON off; ``garbage`` is no JSON; ``empty`` has no choices; ``refusal`` fills the refusal field;
        ``unfinished`` says that the service broke off; ``html`` is a page of status 200; ``huge`` is a reply of 50 MB;
        ``redirect`` points elsewhere.
    status, retry_after, error
        Of ``status``: HTTP status, Retry-After header (seconds or an HTTP date), ``error`` object of the body.
    """

    kind: Kind
    status: int = 500
    retry_after: str | None = None
    error: Any = None


def fault(text: str) -> Fault:
    """Fault from text: ``429``, ``429:2`` (Retry-After 2), ``hang``, ``cut``, ``truncated``, ``empty`` ..."""
    head, _, rest = text.partition(":")
    if head.isdigit():
        return Fault("status", int(head), rest or None)
    if head not in KINDS:
        raise ValueError(f"there is no fault {text!r}; there are: an HTTP status, {', '.join(KINDS)}")
    return Fault(head)


class LoopbackServer:
    """``async with LoopbackServer(reply=...) as server: ... server.url``.

    Parameters
    ----------
    reply
        Text of every answer, or a function of the request body that gives the text, or a mapping with fields of the
        message (``content``, ``reasoning_content``, ``tool_calls``, ``refusal``) and, beside them, ``finish_reason``
        and ``usage``. The function may be async. With n > 1 it is called once a choice.
    latency
        Seconds before an answer.
    faults
        One entry a request in order of arrival (text for `fault`, a Fault, or None = answer); afterwards all is well.
        Or a function of (number of the request, body).
    record
        Keep request bodies and headers.
    model
        Model named in replies; None = the one asked for.

    Attributes
    ----------
    url : str
        Base URL, ending in /v1.
    requests, active, peak : int
        Requests so far; at work now; most at work at once.
    sent_of_huge : int
        Bytes of ``huge`` replies that clients took before they hung up.
    bodies, headers, times
        Of the requests so far (times in seconds of the event loop).
    """

    def __init__(
        self,
        reply: Answer | ReplyFunction = "ok",
        *,
        latency: float = 0.0,
        faults: Sequence[str | Fault | None] | Callable[[int, dict[str, Any]], str | Fault | None] = (),
        record: bool = True,
        model: str | None = None,
        port: int = 0,
    ) -> None:
        self.reply = reply
        self.latency = latency
        self.faults = faults
        self.record = record
        self.model = model
        self.url = ""
        self.requests = self.active = self.peak = self.sent_of_huge = 0
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.times: list[float] = []
        self._port = port
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> LoopbackServer:
        app = web.Application(client_max_size=256 * 2**20)
        app.router.add_post("/v1/chat/completions", self._handle)
        app.router.add_post("/v1/completions", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=4096)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        number = self.requests
        self.requests += 1
        self.active += 1
        self.peak = max(self.peak, self.active)
        try:
            body = msgspec.json.decode(await request.read())
            if self.record:
                self.bodies.append(body)
                self.headers.append(dict(request.headers))
                self.times.append(asyncio.get_running_loop().time())
            found = self._fault(number, body)
            if found is not None:
                return await self._fail(found, request, body)
            if self.latency:
                await asyncio.sleep(self.latency)
            return _json(await self._answer(request, body))
        finally:
            self.active -= 1

    def _fault(self, number: int, body: dict[str, Any]) -> Fault | None:
        if callable(self.faults):
            found = self.faults(number, body)
        else:
            found = self.faults[number] if number < len(self.faults) else None
        return fault(found) if isinstance(found, str) else found

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> dict[str, Any]:
        raw = request.path.endswith("/v1/completions")
        choices, usages, completion = [], [], 0
        for index in range(body.get("n") or 1):
            given: Any = self.reply
            if callable(given):
                given = given(body)
                if inspect.isawaitable(given):
                    given = await given
            message: dict[str, Any] = {"content": given} if isinstance(given, str) else dict(given)
            finish = message.pop("finish_reason", "stop")
            if (usage := message.pop("usage", None)) is not None:
                usages.append(usage)
            text = message.get("content") or ""
            tokens = _tokens(text) if isinstance(text, str) else []
            completion += len(tokens)
            choice: dict[str, Any] = {"index": index, "finish_reason": finish}
            choice |= {"text": text} if raw else {"message": {"role": "assistant", **message}}
            if body.get("logprobs"):
                choice["logprobs"] = _logprobs(tokens, body, raw)
            choices.append(choice)
        prompt = len(_tokens(str(body.get("prompt") or [m.get("content") for m in body.get("messages", ())])))
        usage = usages[-1] if usages else _usage(prompt, completion)
        return {
            "id": f"loopback-{self.requests}",
            "object": "text_completion" if raw else "chat.completion",
            "created": 0,
            "model": self.model or body.get("model"),
            "choices": choices,
            "usage": usage,
        }

    async def _fail(self, found: Fault, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        kind = found.kind
        if kind == "status":
            headers = {} if found.retry_after is None else {"Retry-After": found.retry_after}
            error = found.error if found.error is not None else {"message": f"scripted {found.status}", "code": None}
            return _json({"error": error}, found.status, headers)
        if kind == "redirect":
            return web.Response(status=307, headers={"Location": "http://127.0.0.1:9/v1/chat/completions"})
        if kind == "hang":
            await asyncio.sleep(3600)
        if kind == "cut":
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if kind == "html":
            return web.Response(text="<html><body>gateway</body></html>", content_type="text/html")
        if kind == "huge":
            return await self._huge(request)
        if kind == "garbage":
            return web.Response(body=b"\xff\xfe not json", content_type="application/json")
        answer = await self._answer(request, body)
        if kind == "truncated":
            text = msgspec.json.encode(answer)
            return web.Response(body=text[: len(text) // 2], content_type="application/json")
        if kind == "empty":
            answer["choices"] = []
        elif kind == "unfinished":
            answer["choices"][0]["finish_reason"] = "error"
        else:
            answer["choices"][0]["message"] = {"role": "assistant", "content": None, "refusal": "I will not do that."}
        return _json(answer)

    async def _huge(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):  # the client had enough, as it should
            await response.write(b'{"choices": [{"message": {"content": "')
            for _ in range(50):
                await response.write(b"x" * 1_000_000)
                self.sent_of_huge += 1_000_000
            await response.write(b'"}}]}')
        return response


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, headers=headers, content_type="application/json"
    )


def _tokens(text: str) -> list[str]:
    return re.findall(r"\s*\S+|\s+$", text)


def _usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _logprobs(tokens: Sequence[str], body: Mapping[str, Any], raw: bool) -> dict[str, Any]:
    """Made-up but well-formed log-probabilities: -0.1 for the token written, falling by one an alternative."""
    count = int(body["logprobs"]) if raw else int(body.get("top_logprobs") or 0)

    def top(token: str) -> list[tuple[str, float]]:
        return [(token if i == 0 else f"{token}~{i}", -0.1 - i) for i in range(count)]

    if raw:
        return {
            "tokens": list(tokens),
            "token_logprobs": [-0.1] * len(tokens),
            "top_logprobs": [dict(top(t)) for t in tokens],
        }
    return {
        "content": [
            {
                "token": t,
                "logprob": -0.1,
                "bytes": list(t.encode()),
                "top_logprobs": [{"token": a, "logprob": p} for a, p in top(t)],
            }
            for t in tokens
        ]
    }


async def _serve(arguments: argparse.Namespace) -> None:
    server = LoopbackServer(arguments.reply, latency=arguments.latency, record=False, port=arguments.port)
    async with server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """``python -m assay.systems.chat.loopback``: print the URL and serve until interrupted."""
    parser = argparse.ArgumentParser(description="OpenAI-compatible server on 127.0.0.1 for measurements.")
    parser.add_argument("--port", type=int, default=0, help="0 = any free one")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--reply", default="ok", help="text of every answer")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
