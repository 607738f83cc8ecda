"""What stands before every page: who asks, how often, from which page, how much they send; and what answers carry.

One ASGI layer, so that no route can forget it. It refuses requests under another host's name, requests of other
sites, bodies above the limit (counted while they arrive) and too many requests; it finds out who asks before a byte of
the body is read. Cross-site forms are stopped twice: by the Origin header here, by a token in `assay.server.web`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio.to_thread
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request

from assay.core.errors import scrub
from assay.server import accounts
from assay.server.database import Database, now

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from assay.server.settings import Settings

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
UPLOADS = re.compile(r"(/api)?/boards/[^/]+/submissions")
"""Paths whose body may have ``upload_bytes``, for those who may submit: it goes to disk as it comes."""
QUESTIONS = re.compile(r"/api/people/studies(/[^/]+/questions)?")
MOST_QUESTION_BYTES = 32 * 1024 * 1024
"""Bytes of one body of questions: it is read as JSON, in memory, a few times its size."""
LONGEST_QUERY = 8192
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "media-src 'self' data: blob:; connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who asks. ``via`` is how they proved it: a browser's session, a token, or not at all."""

    id: int = 0
    key: str = ""
    name: str = ""
    role: str = ""
    pseudonym: str = ""
    via: str = ""

    def may(self, *roles: str) -> bool:
        """Whether they hold one of these roles; an admin holds all."""
        return self.role == "admin" or self.role in roles


NOBODY = Viewer()


class RateLimiter:
    """Token buckets by name: ``number`` at once, refilled over ``seconds``. At most 50,000 names are remembered."""

    def __init__(self, number: float, seconds: float, clock: Any = time.monotonic) -> None:
        self.number = number
        self._pace = number / seconds
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, name: str) -> float:
        """Seconds until ``name`` may go on, 0 when it may now; takes nothing."""
        with self._lock:
            return max(0.0, (1.0 - self._level(name)) / self._pace)

    def take(self, name: str) -> float:
        """Take one; seconds to wait where there is none left, else 0."""
        with self._lock:
            level = self._level(name)
            if level < 1.0:
                return (1.0 - level) / self._pace
            self._buckets[name] = (level - 1.0, self._clock())
            self._buckets.move_to_end(name)
            if len(self._buckets) > 50_000:
                self._buckets.popitem(last=False)
            return 0.0

    def forget(self, name: str) -> None:
        """Fill a bucket again."""
        with self._lock:
            self._buckets.pop(name, None)

    def _level(self, name: str) -> float:
        level, at = self._buckets.get(name, (self.number, 0.0))
        return min(self.number, level + (self._clock() - at) * self._pace)


class SignInLimiter:
    """Wrong passwords: few for one name from one address, more for an address, more still for a name from anywhere."""

    def __init__(self, failures: int, clock: Any = time.monotonic) -> None:
        quarter = 900.0
        self._both = RateLimiter(failures, quarter, clock)
        self._address = RateLimiter(4 * failures, quarter, clock)
        self._name = RateLimiter(10 * failures, quarter, clock)

    def wait(self, name: str, address: str) -> float:
        """Seconds until another try is allowed."""
        return max(self._both.wait(f"{address} {name}"), self._address.wait(address), self._name.wait(name))

    def failed(self, name: str, address: str) -> None:
        """Count a wrong password."""
        self._both.take(f"{address} {name}")
        self._address.take(address)
        self._name.take(name)

    def succeeded(self, name: str, address: str) -> None:
        """A right password ends the wait of this name at this address."""
        self._both.forget(f"{address} {name}")


def address_of(request: Request) -> str:
    """Where a request comes from; an IPv6 network of a household counts as one."""
    host = request.client.host if request.client else "unknown"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False).network_address)
    return host


# -- cookies and tokens ------------------------------------------------------------------------------------------------


def cookie_name(settings: Settings) -> str:
    """Name of the session cookie; over TLS no other host of the domain can set it."""
    return "__Host-assay" if settings.secure else "assay"


def guest_cookie(settings: Settings) -> str:
    """Name of the cookie that ties the sign-in form to a browser."""
    return f"{cookie_name(settings)}-guest"


def set_cookie(response: Any, settings: Settings, name: str, value: str, hours: float) -> None:
    """A cookie that scripts cannot read and other sites' forms do not send."""
    response.set_cookie(
        name, value, max_age=int(hours * 3600), path="/", httponly=True, samesite="lax", secure=settings.secure
    )


def signed(settings: Settings, purpose: str, key: str) -> str:
    """A row's key with the server's mark (96 bits) behind it: a secret that need not be kept anywhere. Short, because
    people copy it out of terminals."""
    mark = hmac.new(settings.key, f"{purpose}:{key}".encode("utf-8", "replace"), hashlib.sha256).digest()[:12]
    return key + base64.urlsafe_b64encode(mark).decode()


def unsigned(settings: Settings, purpose: str, token: str) -> str | None:
    """The key in a signed token; None where the mark is not the server's."""
    key = token[:-16]
    right = hmac.compare_digest(
        signed(settings, purpose, key).encode("utf-8", "replace"), token.encode("utf-8", "replace")
    )
    return key if key and right else None


def person_cookie(settings: Settings, study: str) -> str:
    """Name of the cookie that says who somebody is in a study; it holds their signed key."""
    return f"{cookie_name(settings)}-person-{study}"


def csrf_token(settings: Settings, secret: str) -> str:
    """The token that forms of one session carry."""
    return hmac.new(settings.key, b"csrf:" + secret.encode(), hashlib.sha256).hexdigest()


def csrf_secret(request: Request) -> str:
    """What this browser's form token is made from: its session, or the guest cookie; made up where it has none."""
    settings = request.app.state.settings
    found = request.cookies.get(cookie_name(settings)) if request.state.viewer.via == "session" else None
    found = found or request.cookies.get(guest_cookie(settings)) or getattr(request.state, "guest", None)
    if found is None:
        found = request.state.guest = secrets.token_urlsafe(24)
    return found


async def check_csrf(request: Request) -> None:
    """Refuse what would change something and does not come from one of our own forms. A dependency of every route."""
    viewer = request.state.viewer
    if request.method in SAFE_METHODS or viewer.via == "token":
        return
    if request.url.path.startswith("/api/") and not viewer.via:
        raise HTTPException(401, "Send a token: Authorization: Bearer TOKEN.")
    given = request.headers.get("x-csrf-token")
    if given is None and request.headers.get("content-type", "").startswith(
        ("application/x-www-form-urlencoded", "multipart/form-data")
    ):
        field = (await request.form()).get("csrf")
        given = field if isinstance(field, str) else None
    expected = csrf_token(request.app.state.settings, csrf_secret(request))
    if given is None or not hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode()):
        raise HTTPException(
            403, "This form is too old or was not made by this server; go back, reload it and send it again."
        )


def foreign(headers: Headers, settings: Settings) -> bool:
    """Whether another site sent this request, as far as the browser says."""
    origin = headers.get("origin")
    if origin is not None:
        scheme = settings.url.partition(":")[0]
        return origin not in (settings.url, f"{scheme}://{headers.get('host', '')}")
    return headers.get("sec-fetch-site", "none") not in ("same-origin", "none")


def find_viewer(database: Database, settings: Settings, headers: Headers, cookie: str | None) -> Viewer | None:
    """Who sends these headers; None where they show a token that is worth nothing."""
    bearer = headers.get("authorization")
    if bearer is not None:
        kind, _, token = bearer.partition(" ")
        with database.reading() as session:
            found = accounts.token_account(session, token.strip()) if kind.lower() == "bearer" else None
            if found is None:
                return None
            account, row = found
            viewer = _viewer(account, "token")
            stale = row.used is None or (now() - row.used).total_seconds() > 60
        if stale:
            with database.session() as session:
                again = accounts.token_account(session, token.strip())
                if again is not None:
                    again[1].used = now()
        return viewer
    if not cookie:
        return NOBODY
    hours = settings.limits.session_hours
    with database.reading() as session:
        signed = accounts.session_account(session, cookie, hours)
        if signed is None:
            return NOBODY
        viewer = _viewer(signed[0], "session")
        stale = (now() - signed[1].seen).total_seconds() > 60
    if stale:
        with database.session() as session:
            signed = accounts.session_account(session, cookie, hours)
            if signed is not None:
                signed[1].seen = now()
    return viewer


def _viewer(account: accounts.Account, via: str) -> Viewer:
    return Viewer(account.id, account.key, account.name, account.role, account.pseudonym, via)


class Guard:
    """The ASGI layer.

    ``refuse(request, status, message, headers)`` makes the answer to what is not let in, ``failed(request, error)`` the
    one to what nobody expected.
    """

    def __init__(self, app: ASGIApp, settings: Settings, database: Database, refuse: Any, failed: Any) -> None:
        self.app = app
        self.settings = settings
        self.database = database
        self.refuse = refuse
        self.failed = failed
        self.requests = RateLimiter(settings.limits.requests_a_minute, 60.0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        scope["state"] = {**scope.get("state", {}), "viewer": NOBODY}
        started = False
        static = scope["path"].startswith("/static/")

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if not static:
                    headers.setdefault("cache-control", "no-store")
                if self.settings.secure:
                    headers["strict-transport-security"] = "max-age=31536000"
                if "server" in headers:
                    del headers["server"]
            await send(message)

        refused = self._malformed(scope, request)
        if refused is None and not static:
            try:
                refused = await self._unwelcome(scope, request)
            except Exception as error:
                # The database is away: nobody is let in, and the answer is one of ours.
                await self.failed(request, error)(scope, receive, answer)
                return
        if refused is not None:
            status, message, extra = refused
            await self.refuse(request, status, message, extra)(scope, receive, answer)
            return
        limit = self._limit(scope)
        if int(request.headers.get("content-length", 0)) > limit:
            response = self.refuse(request, 413, too_large(limit), {"connection": "close"})
            await response(scope, receive, answer)
            return
        try:
            await self.app(scope, _counted(receive, limit), answer)
        except Exception as error:
            response = self.failed(request, error)
            if started:
                raise
            await response(scope, receive, answer)

    def _malformed(self, scope: Scope, request: Request) -> tuple[int, str, dict[str, str]] | None:
        if len(scope["query_string"]) > LONGEST_QUERY:
            return (
                414,
                f"The address is too long: at most {LONGEST_QUERY:,} characters may follow the question mark.",
                {},
            )
        if "\0" in scope["path"] or b"%00" in scope["query_string"] or b"\0" in scope["query_string"]:
            return 400, "The address holds a null character.", {}
        if not request.headers.get("content-length", "0").isdigit():
            return 400, "The Content-Length header is no number.", {}
        hosts = self.settings.hosts
        if hosts is not None:
            try:
                name = urlsplit(f"//{request.headers.get('host', '')}").hostname
            except ValueError:
                name = None
            if name not in hosts:
                return (
                    421,
                    "This server does not go by that name; --public-url tells it under which name it is reached.",
                    {},
                )
        return None

    async def _unwelcome(self, scope: Scope, request: Request) -> tuple[int, str, dict[str, str]] | None:
        headers, settings = request.headers, self.settings
        address = address_of(request)
        cookie = request.cookies.get(cookie_name(settings))
        viewer = await anyio.to_thread.run_sync(find_viewer, self.database, settings, headers, cookie)
        known = f"account {viewer.via} {viewer.id}" if viewer and viewer.via else self._person(request)
        wait = self.requests.take(known or f"address {address}")
        if wait:
            seconds = str(int(wait) + 1)
            return 429, f"Too many requests; try again in {seconds} seconds.", {"retry-after": seconds}
        if viewer is None:
            return 401, "This token is unknown, expired or revoked.", {"www-authenticate": "Bearer"}
        scope["state"]["viewer"] = viewer
        if scope["method"] not in SAFE_METHODS and viewer.via != "token" and foreign(headers, settings):
            return 403, "This request was sent by a page of another site.", {}
        return None

    def _person(self, request: Request) -> str | None:
        """Who answers without an account counts for themselves: a class at one address must not run out of requests."""
        path = request.url.path.split("/")
        token = (
            request.cookies.get(person_cookie(self.settings, path[2])) if path[1:2] == ["people"] and path[2:] else None
        )
        key = unsigned(self.settings, "respondent", token) if token else None
        return key and f"person {key}"

    def _limit(self, scope: Scope) -> int:
        limits = self.settings.limits
        if not scope["state"]["viewer"].may("submitter"):
            return limits.body_bytes
        if QUESTIONS.fullmatch(scope["path"]):
            return max(limits.body_bytes, min(limits.upload_bytes, MOST_QUESTION_BYTES))
        return limits.upload_bytes if UPLOADS.fullmatch(scope["path"]) else limits.body_bytes


def too_large(limit: int) -> str:
    """What is said of a body above the limit."""
    return f"The request is too large: at most {limit:,} bytes may be sent here."


def _counted(receive: Receive, limit: int) -> Receive:
    """Bytes are counted as they arrive: a chunked body need not say how long it is."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > limit:
                raise HTTPException(413, too_large(limit), headers={"connection": "close"})
        return message

    return counted


# -- logs --------------------------------------------------------------------------------------------------------------

_SECRETS = re.compile(
    r"((?:assay|invite)_)[A-Za-z0-9_-]{16,}"
    r"|((?:authorization|cookie|x-csrf-token)\W{1,4}(?:bearer\s+)?)[^\s,'\"]+"
    r"|((?:password|csrf|token)[\"']?\s*[=:]\s*[\"']?)[^\s&,'\"]+",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """A line of a log without tokens, cookies, passwords and keys."""
    return scrub(_SECRETS.sub(lambda m: f"{m[1] or m[2] or m[3]}[secret]", text))


class SecretFilter(logging.Filter):
    """Takes secrets out of log records, their arguments and tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record; it is always kept."""
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = without_secrets(record.exc_text)
        if record.name == "uvicorn.access" and isinstance(record.args, tuple):
            # Its formatter takes the arguments apart.
            record.args = tuple(without_secrets(a) if isinstance(a, str) else a for a in record.args)
        else:
            record.msg, record.args = without_secrets(record.getMessage()), ()
        return True
