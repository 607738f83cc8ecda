"""The application: all routes, behind one guard."""

from __future__ import annotations

from importlib.resources import files

from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from assay.server import accounts_routes
from assay.server.boards import routes as boards
from assay.server.database import Database, open_database
from assay.server.people import routes as people
from assay.server.runs import routes as runs
from assay.server.security import Guard, SignInLimiter, Viewer, check_csrf
from assay.server.settings import Settings
from assay.server.web import install_errors, refusal, unexpected, viewer

_HOME = {"annotator": "/people", "submitter": "/boards", "reader": "/runs", "admin": "/runs"}


def create_app(settings: Settings, database: Database | None = None) -> FastAPI:
    """The server as an ASGI application.

    Parameters
    ----------
    settings
        Where its files are and what it allows; also ``app.state.settings``.
    database
        An open one; None = opened by the settings. Also ``app.state.database``.
    """
    settings.prepare()
    database = database or open_database(settings.database)
    app = FastAPI(
        title="assay",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        dependencies=[Depends(check_csrf)],
    )
    app.state.settings = settings
    app.state.database = database
    app.state.library = runs.Library(settings)
    app.state.sign_ins = SignInLimiter(settings.limits.sign_in_failures)
    install_errors(app)
    app.mount("/static", _Static(directory=str(files("assay.server").joinpath("static"))), name="static")
    for part in (accounts_routes, runs, boards, people):
        app.include_router(part.router)

    @app.get("/", include_in_schema=False)
    def home(request: Request) -> Response:
        who: Viewer = viewer(request)
        return RedirectResponse(_HOME.get(who.role, "/sign-in"), 303)

    @app.get("/health", include_in_schema=False)
    def health() -> dict[str, str]:
        return {"status": "ok"}

    app.add_middleware(Guard, settings=settings, database=database, refuse=refusal, failed=unexpected)
    return app


class _Static(StaticFiles):
    """Files of the package; their addresses change with their content, so they may be kept for long."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # pyright: ignore[reportArgumentType]
        response.headers["cache-control"] = "public, max-age=604800"
        return response
