"""Pages and answers: templates, who may see what, errors in one sentence, the same for browsers and programs."""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import jinja2
import msgspec
from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from assay.core.errors import AssayError, UsageError
from assay.report.formats import dollars, duration, format_value, one_line, visible
from assay.server.database import Database
from assay.server.security import NOBODY, Viewer, csrf_secret, csrf_token, guest_cookie, set_cookie, without_secrets
from assay.server.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

log = logging.getLogger("assay.server")
GUEST_HOURS = 24.0 * 90
"""As long as somebody may answer a study without an account: their page's token must not end in the middle."""

_NAVIGATION = (
    ("Runs", "/runs", ("reader",)),
    ("Leaderboards", "/boards", ("submitter", "reader")),
    ("Questions", "/people", ("annotator", "submitter")),
    ("Accounts", "/admin/accounts", ("admin",)),
    ("Audit log", "/admin/audit", ("admin",)),
)


class SignInNeeded(Exception):
    """Only somebody who is signed in may see this."""


# -- what a route asks for ---------------------------------------------------------------------------------------------


def viewer(request: Request) -> Viewer:
    """Who asks; `NOBODY` when they are not signed in. A dependency."""
    return request.state.viewer


def require(*roles: str) -> Callable[[Request], Viewer]:
    """A dependency: lets in who holds one of ``roles`` (an admin holds all; none named = whoever is signed in)."""

    def check(request: Request) -> Viewer:
        found: Viewer = request.state.viewer
        if not found.via:
            raise SignInNeeded
        if roles and not found.may(*roles):
            allowed = " or ".join(sorted({*roles, "admin"}))
            raise HTTPException(403, f"This needs the role {allowed}; you are signed in as {found.role}.")
        return found

    return check


def settings_of(request: Request) -> Settings:
    """The server's settings. A dependency."""
    return request.app.state.settings


def database_of(request: Request) -> Database:
    """The server's database. A dependency."""
    return request.app.state.database


Db = Annotated[Database, Depends(database_of)]
Config = Annotated[Settings, Depends(settings_of)]
Who = Annotated[Viewer, Depends(viewer)]
SignedIn = Annotated[Viewer, Depends(require())]
Submitter = Annotated[Viewer, Depends(require("submitter"))]
Admin = Annotated[Viewer, Depends(require("admin"))]


# -- pages -------------------------------------------------------------------------------------------------------------


def render(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A page from ``templates/``; beside ``values`` it has ``viewer``, ``csrf`` (token), ``path``, ``url_with``."""
    settings: Settings = request.app.state.settings
    who: Viewer = getattr(request.state, "viewer", NOBODY)
    text = (
        _templates()
        .get_template(template)
        .render(
            viewer=who,
            nav=[(label, target) for label, target, roles in _NAVIGATION if who.may(*roles)],
            csrf=csrf_token(settings, csrf_secret(request)),
            path=request.url.path,
            url_with=lambda **changed: url_with(request, **changed),
            **values,
        )
    )
    response = HTMLResponse(text, status)
    if getattr(request.state, "guest", None):
        set_cookie(response, settings, guest_cookie(settings), request.state.guest, GUEST_HOURS)
    return response


def answer(value: Any, status: int = 200) -> Response:
    """JSON; NaN and infinities become null, times ISO 8601, dataclasses objects."""
    return Response(msgspec.json.encode(value, enc_hook=str), status, media_type="application/json")


def url_with(request: Request, **changed: Any) -> str:
    """This address with some parameters of its query changed; None takes one out, a list gives it several times."""
    kept = [(k, v) for k, v in request.query_params.multi_items() if k not in changed]
    query = urlencode([*kept, *((k, v) for k, v in changed.items() if v is not None)], doseq=True)
    return f"{request.url.path}?{query}" if query else request.url.path


def go_to(path: str) -> RedirectResponse:
    """After a form: look at another page. Only pages of this server."""
    return RedirectResponse(path if is_own_path(path) else "/", 303)


def is_own_path(path: str) -> bool:
    """Whether a text is an address on this server, and on no other whatever a browser makes of it."""
    return path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("assay.server", "templates"),
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters.update(value=format_value, duration=duration, dollars=dollars, line=one_line, visible=visible)
    environment.globals.update(asset=asset, json_text=lambda v: json.dumps(v, ensure_ascii=False))
    return environment


@cache
def asset(name: str) -> str:
    """Address of a file in ``static/``, with a mark that changes with its content."""
    data = files("assay.server").joinpath("static", name).read_bytes()
    return f"/static/{name}?v={hashlib.sha256(data).hexdigest()[:12]}"


# -- errors ------------------------------------------------------------------------------------------------------------


def wants_json(request: Request) -> bool:
    """Whether a program asks."""
    accepted = request.headers.get("accept", "")
    return request.url.path.startswith("/api/") or ("application/json" in accepted and "text/html" not in accepted)


def refusal(request: Request, status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error in one sentence, as page or JSON."""
    if wants_json(request):
        return JSONResponse({"error": message}, status, headers)
    title = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Error"
    response = render(request, "error.html.j2", status=status, title=title, message=message)
    response.headers.update(headers or {})
    return response


def install_errors(app: FastAPI) -> None:
    """Every error that leaves a route becomes one sentence."""
    from sqlalchemy.exc import DataError, IntegrityError

    @app.exception_handler(SignInNeeded)
    async def _sign_in(request: Request, error: SignInNeeded) -> Response:
        if wants_json(request) or request.method not in ("GET", "HEAD"):
            return refusal(request, 401, "Sign in first, or send a token: Authorization: Bearer TOKEN.")
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/sign-in?{urlencode({'next': target})}", 303)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        said = error.detail if isinstance(error.detail, str) else str(error.detail)
        if said == HTTPStatus.NOT_FOUND.phrase:
            said = "There is nothing at this address."
        return refusal(request, error.status_code, said, dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> Response:
        faults = [f"{'.'.join(map(str, f['loc'][1:])) or f['loc'][0]}: {f['msg'].lower()}" for f in error.errors()[:5]]
        return refusal(request, 422, one_line(f"The request is not as it should be: {'; '.join(faults)}.", 600))

    @app.exception_handler(AssayError)
    async def _known(request: Request, error: AssayError) -> Response:
        return refusal(request, 400 if isinstance(error, UsageError) else 422, without_secrets(str(error)))

    @app.exception_handler(FileNotFoundError)
    async def _replaced(request: Request, error: FileNotFoundError) -> Response:
        # A run that goes on folds its journal while somebody reads it.
        return refusal(request, 503, "What this page shows was just replaced; load it again.", {"retry-after": "1"})

    @app.exception_handler(IntegrityError)
    async def _twice(request: Request, error: IntegrityError) -> Response:
        # Two requests at once: each found the name free, and the database keeps one.
        log.warning("two at once, or a row that is only ever added to: %s %s", request.method, request.url.path)
        return refusal(request, 409, "The same was just done by another request; look at what is there now.")

    @app.exception_handler(DataError)
    @app.exception_handler(OverflowError)
    @app.exception_handler(UnicodeError)
    async def _unkeepable(request: Request, error: Exception) -> Response:
        return refusal(request, 422, "The request holds a number or a character that cannot be kept.")


def unexpected(request: Request, error: Exception) -> Response:
    """The answer to an error nobody expected: a number under which the log says more."""
    number = secrets.token_hex(4)
    log.error("error %s at %s %s", number, request.method, request.url.path, exc_info=error)
    if type(error).__module__.startswith("polars") and str(error).startswith("parquet:"):
        said = f"A table of this run is damaged and cannot be read; the server's log says more under {number}."
        return refusal(request, 422, said)
    return refusal(request, 500, f"Something went wrong here; the server's log says more under {number}.")
