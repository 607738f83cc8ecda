"""A server to test: on SQLite or PostgreSQL, with signed-in clients, in this process or on a port."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

# Debian keeps the server's programs of each version out of the PATH.
POSTGRES = max(
    Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), default=Path("/usr/bin")
)


class House:
    """One server: ``settings``, ``database``, ``app``, and whoever visits it."""

    def __init__(self, settings):
        from assay.server.app import create_app

        self.settings = settings
        self.app = create_app(settings)
        self.database = self.app.state.database

    def account(self, role: str, name: str | None = None) -> int:
        """Id of the account of that name, made when missing."""
        from assay.server import accounts

        with self.database.session() as session:
            found = accounts.find_account(session, name or role)
            return (found or accounts.create_account(session, name or role, role)).id

    def client(self, role: str | None = None, name: str | None = None):
        """A browser: cookies, and the CSRF token as a header of every request. No role = nobody is signed in."""
        from starlette.testclient import TestClient

        from assay.server import accounts, security

        client = TestClient(self.app, base_url=self.settings.url, follow_redirects=False)
        if role is None:
            return client
        account = self.account(role, name)
        with self.database.session() as session:
            token = accounts.begin_session(session, session.get_one(accounts.Account, account))
        client.cookies.set(security.cookie_name(self.settings), token)
        client.headers["X-CSRF-Token"] = security.csrf_token(self.settings, token)
        return client

    def token(self, role: str, name: str | None = None) -> str:
        """An API token."""
        from assay.server import accounts

        account = self.account(role, name)
        with self.database.session() as session:
            return accounts.issue_token(session, session.get_one(accounts.Account, account), "test")

    def program(self, role: str, name: str | None = None):
        """A client with a token instead of cookies."""
        client = self.client()
        client.headers["Authorization"] = f"Bearer {self.token(role, name)}"
        return client

    def csrf(self, client) -> str:
        """The CSRF token that a browser's page holds; fetched where nobody is signed in."""
        import re

        return re.search(r'name="csrf" value="([0-9a-f]+)"', client.get("/sign-in").text)[1]


@pytest.fixture
def house(settings):
    """A server on SQLite; on both databases where ``database_url`` is parametrised, indirectly, with their names."""
    made = House(settings)
    yield made
    made.database.close()


@pytest.fixture
def settings(tmp_path, database_url):
    """Settings of that server; its folder and its runs are in ``tmp_path``."""
    from assay.server.settings import Settings

    runs = tmp_path / "runs"
    runs.mkdir(exist_ok=True)
    return Settings(root=tmp_path / "server", runs=runs, database_url=database_url)


@pytest.fixture
def database_url(request):
    """None = SQLite; a fresh PostgreSQL database when parametrised so."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield None
        return
    folder = request.getfixturevalue("postgres")
    name = f"test_{time.monotonic_ns()}"
    _psql(folder, f"CREATE DATABASE {name}")
    yield f"postgresql://assay@/{name}?host={folder}"
    _psql(folder, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """Folder of the socket of a PostgreSQL server, run as an unprivileged user."""
    if not (POSTGRES / "postgres").exists():
        pytest.skip("PostgreSQL is not installed (Debian: postgresql)")
    # Sockets have short names, and the server's user must reach the folder.
    folder = Path(f"/tmp/assay-pg-{os.getpid()}")
    folder.mkdir(mode=0o700)
    user = None
    if os.getuid() == 0:
        user = "nobody"
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    environment = {"PATH": f"{POSTGRES}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    quiet = {"user": user, "env": environment, "cwd": folder, "stdout": subprocess.DEVNULL}
    data = folder / "data"
    subprocess.run([POSTGRES / "initdb", "-U", "assay", "-A", "trust", "-N", "-D", data], check=True, **quiet)
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [POSTGRES / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off",
             "-c", "max_connections=120"],
            stderr=log, **quiet,
        )  # fmt: skip
        try:
            for _ in range(200):
                with contextlib.suppress(Exception):
                    _psql(folder, "SELECT 1")
                    break
                time.sleep(0.1)
            yield folder
        finally:
            server.terminate()
            server.wait(30)
            shutil.rmtree(folder, ignore_errors=True)


def _psql(folder, statement: str) -> None:
    import psycopg

    with psycopg.connect(f"postgresql://assay@/postgres?host={folder}", autocommit=True) as connection:
        connection.execute(statement)


@contextlib.contextmanager
def serving(house):
    """The house on a port of this machine; its address follows the port."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", house.settings.port))
    server = uvicorn.Server(uvicorn.Config(house.app, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield house.settings.url
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


@pytest.fixture
def live(tmp_path, database_url):
    """A house that listens on a free port; ``live.settings.url`` is its address."""
    from assay.server.settings import Settings

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (tmp_path / "runs").mkdir(exist_ok=True)
    made = House(Settings(root=tmp_path / "server", runs=tmp_path / "runs", database_url=database_url, port=port))
    with serving(made):
        yield made
    made.database.close()


@pytest.fixture(scope="session")
def chromium():
    """A browser; every page of it is closed at the end."""
    if not Path("/usr/bin/chromium").exists():
        pytest.skip("Chromium is not installed (Debian: chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def browse(chromium, live):
    """``browse("reader", name=None, **context options)``: a page of a browser in which that role is signed in."""
    from assay.server.security import cookie_name

    contexts = []

    def open_page(role: str | None = None, name: str | None = None, **options):
        context = chromium.new_context(base_url=live.settings.url, **options)
        contexts.append(context)
        if role is not None:
            cookie = cookie_name(live.settings)
            token = live.client(role, name).cookies.get(cookie)
            context.add_cookies([{"name": cookie, "value": token, "url": live.settings.url, "httpOnly": True}])
        page = context.new_page()
        page.faults = []
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("console", lambda m: page.faults.append(m.text) if m.type == "error" else None)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def quick(monkeypatch):
    """From now on a worker's verdicts come without a process."""
    from board_desk import TRUTH
    from board_verdict import quick_verdict

    from assay.server.boards.worker import Worker

    return lambda: monkeypatch.setattr(Worker, "_judged", quick_verdict(TRUTH))


@pytest.fixture
def desk(settings):
    """A board and its worker, without pages."""
    from board_desk import Desk

    made = Desk(settings)
    yield made
    made.database.close()
