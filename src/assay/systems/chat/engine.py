"""Engine of requests: one session and one limiter a provider and run; the only place where a request is repeated."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import re
import resource
import urllib.request
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar

import aiohttp
import msgspec
from yarl import URL

from assay.core.errors import ProviderError, UsageError
from assay.systems.chat.limiter import Clock, Limiter, SystemClock

T = TypeVar("T")

MAX_REPLY_BYTES = 20_000_000
UNUSABLE_REPLIES = 3
"""Attempts at a reply that arrives and cannot be read: each may have been billed."""
FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 60.0
CONNECT_SECONDS = 30.0
GIVEN_UP, AWAY_SECONDS = 3, 60.0
"""A provider is away, for everybody, when so many calls in a row gave up on it and none was answered for so long."""
FATAL_CODES = {"insufficient_quota", "account_deactivated", "billing_hard_limit_reached", "invalid_api_key"}
FILTERED_CODES = {"content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"}


class Unusable(Exception):
    """A reply that arrived with status 200 and cannot be used: broken JSON, no choices, an error inside."""


class Filtered(Exception):
    """The provider's content filter refused the request: an answer about the input, not a failure."""


class Patience(NamedTuple):
    """How long a call is tried: seconds an attempt, repetitions, seconds in all."""

    timeout: float = 600.0
    retries: int = 16
    deadline: float = 1800.0


class _Failure(NamedTuple):
    reason: str
    overload: bool = False
    wait: float | None = None
    unusable: bool = False


class _Reply(NamedTuple):
    status: int
    content_type: str
    wait: float | None
    body: bytes


class ErrorBody(msgspec.Struct):
    """``{"error": ...}`` as services send it: a text, or an object with message, code and more."""

    error: Any = None
    message: Any = None
    detail: Any = None


_decode_error = msgspec.json.Decoder(ErrorBody).decode
_KEY_LIKE = re.compile(
    r"(?i)\b(?:sk|pk|rk|gsk|xai|hf|AIza|key)[-_][\w*.-]{6,}|\bAIza[\w-]{20,}|\bbearer\s+\S+|(?<=://)[^/\s@]+@"
)


def scrub(text: str, secrets: Sequence[str] = (), limit: int = 300) -> str:
    """``text`` on one line, cut to ``limit``, without the secrets and without anything that looks like a key."""
    for secret in secrets:
        text = text.replace(secret, "***")
    text = " ".join(_KEY_LIKE.sub("***", text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def error_of(body: bytes) -> tuple[str, str]:
    """(message, code) of an error body, whatever its shape."""
    try:
        found = _decode_error(body)
    except msgspec.MsgspecError:
        return body[:1000].decode("utf-8", "replace"), ""
    error = found.error if found.error is not None else (found.message or found.detail or "")
    if isinstance(error, dict):
        metadata = error.get("metadata")
        # OpenRouter answers 403 when moderation flags the input; only the metadata tells it from a bad key.
        if isinstance(metadata, dict) and ("flagged_input" in metadata or "reasons" in metadata):
            return str(error.get("message", "")), "content_filter"
        inner = error.get("innererror")
        code = inner.get("code") if isinstance(inner, dict) and inner.get("code") in FILTERED_CODES else None
        code = code or error.get("code") or error.get("type") or ""
        return str(error.get("message") or error.get("detail") or error), str(code)
    return str(error), ""


def retry_after(headers: Any, wall: float) -> float | None:
    """Seconds that a reply asks to wait: ``retry-after-ms``, or Retry-After as seconds or as an HTTP date.

    A date is read by the clock that wrote it, the reply's own; ``wall`` stands in where the reply has no date.
    """
    text = headers.get("retry-after-ms")
    if text is not None:
        try:
            return max(0.0, float(text) / 1000)
        except ValueError:
            pass
    text = headers.get("Retry-After")
    if text is None:
        return None
    try:
        seconds = float(text)
        return max(0.0, seconds) if seconds == seconds else None
    except ValueError:
        pass
    with contextlib.suppress(TypeError, ValueError):
        wall = parsedate_to_datetime(headers.get("Date")).timestamp()
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - wall)
    except (TypeError, ValueError):
        return None


def _proxy(url: URL) -> str | None:
    # Looked up once an engine: aiohttp's trust_env reads the environment and ~/.netrc at every request.
    if not url.host or urllib.request.proxy_bypass(url.host):
        return None
    return urllib.request.getproxies().get(url.scheme)


def _allow_connections(connections: int) -> None:
    # One descriptor a connection, and room for files, pipes and a second provider.
    need = 2 * connections + 256
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= need:
        return
    if hard != resource.RLIM_INFINITY and hard < connections + 128:
        raise UsageError(
            f"{connections} connections need about {need} open files and this system allows {hard}; "
            "ask for fewer connections or raise the limit (ulimit -Hn)."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (need if hard == resource.RLIM_INFINITY else min(need, hard), hard))


class Engine:
    """Session, limiter and retries for one provider at one base URL. Lives on the event loop that made it.

    Parameters
    ----------
    name
        The provider, for messages.
    base_url
        Address below which requests go.
    connections
        Most requests in flight.
    clock, rng
        Time and jitter; the real ones unless a test hands in others.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        connections: int,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if connections < 1:
            raise UsageError(f"connections is {connections}; at least 1 is needed.")
        _allow_connections(connections)
        self.name = name
        self.base_url = base_url
        self.loop = asyncio.get_running_loop()
        self.clock = clock or SystemClock()
        self.limiter = Limiter(connections, self.clock)
        self.reached = False
        self._given_up = 0
        self._answered_at = self.clock.now()
        self._rng = rng or random.Random()
        self._proxy = _proxy(URL(base_url))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ttl_dns_cache=300),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            # Replies are small and decompressing them costs more than the loopback or datacentre link saves.
            headers={
                "Content-Type": "application/json",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "assay",
            },
        )

    async def close(self) -> None:
        """Close the session; calls under way fail."""
        await self._session.close()

    async def post(
        self,
        url: URL,
        headers: dict[str, str],
        body: bytes,
        read: Callable[[bytes], T],
        *,
        patience: Patience,
        secrets: Sequence[str] = (),
    ) -> tuple[T, float]:
        """Send until a usable reply comes; returns what ``read`` made of it and the seconds that attempt took.

        Raises
        ------
        ProviderError
            No usable reply within the patience (retryable), a request the service refuses (not retryable), or an
            account that it refuses (fatal).
        Filtered
            The service's content filter refused the input.
        """
        clock, limiter = self.clock, self.limiter
        tries = unusable = 0
        started: float | None = None
        timeout = aiohttp.ClientTimeout(total=patience.timeout, sock_connect=CONNECT_SECONDS)
        while True:
            epoch = await limiter.acquire()
            began = clock.now()
            if started is None:
                started = began
            tries += 1
            good = overload = False
            try:
                outcome = await self._attempt(url, headers, body, timeout, read, secrets)
                good = not isinstance(outcome, _Failure)
                overload = not good and outcome.overload  # type: ignore[union-attr]
            finally:
                limiter.release(epoch, good=good, overload=overload)
            now = clock.now()
            if not isinstance(outcome, _Failure):
                self._given_up, self._answered_at = 0, now
                return outcome, now - began
            unusable += outcome.unusable
            wait = outcome.wait
            if wait is None:
                wait = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** (tries - 1)) * self._rng.uniform(0.5, 1.0)
            spent = now - started
            if (
                tries > patience.retries
                or unusable >= UNUSABLE_REPLIES
                or spent + wait > patience.deadline
                or (not self.reached and tries >= UNUSABLE_REPLIES)
            ):
                late = spent + wait > patience.deadline
                self._given_up += outcome.overload
                away = self._given_up >= GIVEN_UP and now - self._answered_at >= AWAY_SECONDS
                raise ProviderError(
                    f"{self.name} gave no usable reply in {tries} {'try' if tries == 1 else 'tries'} and "
                    f"{spent:.0f} s; the last one: {outcome.reason}"
                    + (
                        f" (asked to wait {wait:.0f} s, past the deadline of {patience.deadline:.0f} s)."
                        if late
                        else "."
                    )
                    + (f" Nobody was answered for {now - self._answered_at:.0f} s; resume when it is back." * away),
                    fatal=away or not self.reached,
                )
            if outcome.wait is not None:
                limiter.pause(outcome.wait)
            await clock.sleep(wait)

    async def _attempt(
        self,
        url: URL,
        headers: dict[str, str],
        body: bytes,
        timeout: aiohttp.ClientTimeout,
        read: Callable[[bytes], T],
        secrets: Sequence[str],
    ) -> T | _Failure:
        try:
            reply = await self._send(url, headers, body, timeout)
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError) as error:
            raise ProviderError(
                f"No secure connection to {self.name} at {url.origin()}: {scrub(str(error), secrets)}",
                retryable=False,
                fatal=True,
            ) from None
        except aiohttp.ClientConnectorError as error:
            return _Failure(f"no connection to {url.origin()} ({scrub(str(error.os_error), secrets)})", overload=True)
        except aiohttp.ConnectionTimeoutError:
            return _Failure(f"no connection to {url.origin()} within {timeout.sock_connect:g} s", overload=True)
        except TimeoutError:
            self.reached = True
            return _Failure(f"nothing came within {timeout.total:g} s", overload=True)
        except aiohttp.InvalidURL:
            raise UsageError(f"The address {self.base_url!r} of {self.name} is not one that can be asked.") from None
        except (aiohttp.ClientError, OSError) as error:
            self.reached = True
            reason = scrub(str(error), secrets) or type(error).__name__
            return _Failure(f"the connection failed ({reason})", overload=True)
        self.reached = True
        if reply.status != 200:
            message, code = error_of(reply.body)
            return self._refused(reply.status, code, scrub(message, secrets), reply.wait)
        if len(reply.body) > MAX_REPLY_BYTES:
            return _Failure(f"a reply of more than {MAX_REPLY_BYTES // 1_000_000} MB", unusable=True)
        if "json" not in reply.content_type:
            return _Failure(f"a reply of type {reply.content_type!r} instead of JSON", unusable=True)
        try:
            return read(reply.body)
        except msgspec.MsgspecError as error:
            return _Failure(f"a reply that is not the JSON expected ({scrub(str(error), secrets)})", unusable=True)
        except Unusable as error:
            message, code = error_of(reply.body)
            if code.isdigit() and 400 <= int(code) < 600:  # OpenRouter sends upstream errors with status 200
                return self._refused(int(code), code, scrub(message, secrets), reply.wait)
            reason = f"{error}: {message}" if message else str(error)
            return _Failure(scrub(reason, secrets), unusable=True)

    async def _send(self, url: URL, headers: dict[str, str], body: bytes, timeout: aiohttp.ClientTimeout) -> _Reply:
        # aiohttp wants long bodies (images) as files, which it sends piece by piece.
        # Redirects are not followed: the key would travel along.
        data = body if len(body) < 2**20 else io.BytesIO(body)
        async with self._session.post(
            url, data=data, headers=headers, timeout=timeout, allow_redirects=False, proxy=self._proxy
        ) as response:
            chunks, size = [], 0
            async for chunk in response.content.iter_any():
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_REPLY_BYTES:
                    response.close()
                    break
            status = response.status
            wait = None if status == 200 else retry_after(response.headers, self.clock.wall())
            received = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            return _Reply(status, response.headers.get("Content-Type", ""), wait, received)

    def _refused(self, status: int, code: str, message: str, wait: float | None) -> _Failure:
        said = f"HTTP {status}" + (f": {message}" if message else "")
        if code in FILTERED_CODES:
            raise Filtered(message)
        if status in (401, 402, 403) or code in FATAL_CODES:
            hint = "check the key and the account" if status != 402 else "the account is out of credit"
            raise ProviderError(f"{self.name} refuses the account ({said}); {hint}.", retryable=False, fatal=True)
        if status in (408, 409, 425, 429) or status >= 500:
            return _Failure(said, overload=status != 409, wait=wait)
        if 300 <= status < 400:
            said += f" (a redirect, not followed; check the base URL {self.base_url})"
        elif status == 404:
            said += f" (check the model's name and the base URL {self.base_url})"
        raise ProviderError(f"{self.name} refuses the request: {said}", retryable=False)
