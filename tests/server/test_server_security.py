"""Each attack that the server must stand, tried."""

from __future__ import annotations

import ast
import gzip
import io
import json
import logging
import re
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from starlette.routing import Mount

import assay.server
from assay.core.errors import UsageError
from assay.server import accounts, security
from assay.server.accounts import Account
from assay.server.security import SecretFilter
from assay.server.settings import Limits, Settings

PASSWORD = "horses like green apples"
PUBLIC = {"/", "/sign-in", "/join/{token}", "/health", "/api/openapi.json"}
FOREIGN = "https://evil.example"


def routes(house):
    """(path with made-up values, method, template) of every route."""
    found = []
    for route in house.app.routes:
        found += route.original_router.routes if hasattr(route, "original_router") else [route]
    for route in found:
        if isinstance(route, Mount):
            continue
        for method in sorted(getattr(route, "methods", None) or ()):
            if method not in ("HEAD", "OPTIONS"):
                yield re.sub(r"\{[^}]*\}", "x1", route.path), method, route.path


# -- who may -----------------------------------------------------------------------------------------------------------


def test_nobody_sees_anything_without_signing_in(house):
    house.account("admin")
    guest = house.client()
    seen = 0
    for path, method, template in routes(house):
        if template in PUBLIC:
            continue
        answer = guest.request(method, path)
        allowed = (401, 403, 404, 405, 422) if method != "GET" or path.startswith("/api/") else (303, 401, 404)
        assert answer.status_code in allowed, (method, path, answer.status_code)
        assert answer.status_code != 303 or answer.headers["location"].startswith("/sign-in"), path
        seen += 1
    assert seen > 20


# Whom the table of roles in docs/server.md lets in, by the beginning of an address; pages and their twins alike.
MAY = (
    ("GET", "/runs", {"reader"}),
    ("GET", "/compare", {"reader"}),
    ("GET", "/boards/{key}/submissions.zip", set()),
    ("GET", "/boards", {"reader", "submitter"}),
    ("POST", "/boards/{key}/close", set()),
    ("POST", "/boards/{key}/teams", set()),
    ("POST", "/boards/{key}", {"submitter"}),
    ("POST", "/boards", set()),
    ("POST", "/people/studies", {"submitter"}),
    ("GET", "/people/studies/{key}", {"submitter"}),
    ("GET", "/people/{key}/overview", {"submitter"}),
    ("GET", "/people/{key}/export", {"submitter"}),
    ("POST", "/people/{key}/state", {"submitter"}),
    ("GET", "/admin", set()),
    ("POST", "/admin", set()),
)


@pytest.mark.parametrize("role", ["reader", "annotator", "submitter"])
def test_a_role_opens_what_it_says_and_no_twin_opens_more(house, role):
    client = house.client(role)
    refused = 0
    for path, method, template in routes(house):
        named = template.removeprefix("/api")
        rule = next((may for way, start, may in MAY if way == method and named.startswith(start)), None)
        if rule is None or role in rule:
            continue
        sent = client.request(method, path, **({} if method == "GET" else {"json": {}}))
        assert sent.status_code == 403, (method, path, sent.status_code)
        assert "This needs the role" in sent.text
        refused += 1
    assert refused > 15


def test_every_form_needs_its_token(house):
    """An admin's cookies alone change nothing, on any route."""
    admin = house.client("admin")
    token = admin.headers.pop("X-CSRF-Token")
    changing = [(path, method) for path, method, _ in routes(house) if method != "GET"]
    assert len(changing) >= 8
    for path, method in changing:
        for body in ({"data": {"a": "b"}}, {"json": {"a": "b"}}, {"data": {"csrf": "0" * 64}}):
            answer = admin.request(method, path, **body)
            assert answer.status_code == 403, (method, path, answer.status_code)
            assert "form" in answer.text
    other = house.client("reader").headers["X-CSRF-Token"]
    assert admin.post("/sign-out", data={"csrf": other}).status_code == 403
    assert admin.post("/sign-out", data={"csrf": token}).status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": FOREIGN},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:8765"},
        {"Origin": "http://[::1"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://127.0.0.1:8765.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_site_cannot_send_forms(house, headers):
    """Even one that has got hold of the form's token."""
    admin = house.client("admin")
    answer = admin.post("/admin/accounts", data={"name": "eve", "role": "admin"}, headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.text
    with house.database.reading() as session:
        assert accounts.find_account(session, "eve") is None
    assert admin.post(
        "/admin/accounts", data={"name": "bo", "role": "reader"}, headers={"Origin": house.settings.url}
    ).status_code == 200  # fmt: skip


def test_no_answer_may_be_read_by_another_site(house):
    answer = house.client("reader").get("/api/account", headers={"Origin": FOREIGN})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("role", ["reader", "annotator", "submitter"])
def test_no_role_makes_itself_more(house, role):
    with house.database.session() as session:
        accounts.create_account(session, "root", "admin")
    client, program = house.client(role), house.program(role)
    with house.database.reading() as session:
        key = session.scalar(sa.select(Account.key).where(Account.name == role))
    for who in (client, program):
        for path in ("/admin/accounts", "/admin/audit"):
            assert who.get(path).status_code == 403
        for form in ({"action": "role", "role": "admin"}, {"action": "link"}, {"action": "open"}):
            assert who.post(f"/admin/accounts/{key}", data=form).status_code == 403
        assert who.post("/admin/accounts", data={"name": "eve", "role": "admin"}).status_code == 403
    form = {"old": PASSWORD, "password": PASSWORD, "again": PASSWORD, "role": "admin", "label": "x"}
    for path in ("/account/password", "/account/tokens"):
        client.post(path, data=form)
    with house.database.reading() as session:
        assert session.scalar(sa.select(Account.role).where(Account.key == key)) == role


def test_a_token_makes_no_tokens_and_no_accounts(house):
    """A stolen token dies when it is revoked."""
    program = house.program("admin")
    for path, form in (
        ("/account/tokens", {"label": "mine"}),
        ("/admin/accounts", {"name": "eve", "role": "admin"}),
        ("/admin/accounts/x1", {"action": "link"}),
    ):
        assert program.post(path, data=form).status_code == 403


def test_another_account_s_token_cannot_be_revoked(house):
    ann, bo = house.client("reader", "ann"), house.client("reader", "bo")
    ann.post("/account/tokens", data={"label": "x"})
    key = re.search(r"/account/tokens/([^/]+)/revoke", ann.get("/account").text)[1]
    assert bo.post(f"/account/tokens/{key}/revoke").status_code == 404
    assert key in ann.get("/account").text


# -- sizes and shapes --------------------------------------------------------------------------------------------------


def test_a_body_above_the_limit_is_refused_before_and_while_it_arrives(house):
    client = house.client("reader")
    size = house.settings.limits.body_bytes + 1
    answer = client.post("/account/tokens", content=b"a" * size, headers={"content-type": "text/plain"})
    assert answer.status_code == 413
    assert "too large" in answer.text
    sent = []

    def chunks():
        for _ in range(100):
            sent.append(1)
            yield b"a" * (size // 10)

    form = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/account/tokens", content=chunks(), headers=form).status_code == 413
    assert client.post("/sign-in", content=chunks(), headers=form).status_code == 413


def test_only_submitters_may_send_uploads(house):
    guard = security.Guard(house.app, house.settings, house.database, None, None)
    limits = house.settings.limits

    def limit(path, role):
        return guard._limit({"path": path, "state": {"viewer": security.Viewer(role=role, via="session")}})

    assert limit("/boards/x/submissions", "submitter") == limits.upload_bytes
    assert limit("/api/boards/x/submissions", "admin") == limits.upload_bytes
    # Questions are read as JSON in memory, where a whole upload would be too much.
    assert limit("/api/people/studies/x/questions", "submitter") == security.MOST_QUESTION_BYTES
    assert limit("/api/people/studies", "annotator") == limits.body_bytes
    for path, role in (
        ("/boards/x/submissions", "reader"),
        ("/boards/x/submissions", ""),
        ("/account/tokens", "admin"),
    ):
        assert limit(path, role) == limits.body_bytes


def test_a_compressed_body_is_not_unpacked(house):
    bomb = gzip.compress(b" " * 50_000_000)
    headers = {"content-encoding": "gzip", "content-type": "application/x-www-form-urlencoded"}
    begun = time.perf_counter()
    answer = house.client("reader").post("/account/tokens", content=bomb, headers=headers)
    assert answer.status_code in (400, 403, 422, 200)
    assert time.perf_counter() - begun < 5


@pytest.mark.parametrize("path", ["/runs?text=" + "a" * 9000, "/runs?text=%00", "/runs/%00", "/runs?sort=" + "a" * 400])
def test_addresses_that_are_too_long_or_hold_nulls_are_refused(house, path):
    assert house.client("reader").get(path).status_code in (400, 404, 414, 422)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::1", "127.0.0.1:1:2@x"])
def test_a_name_that_is_not_the_server_s_is_refused(house, host):
    """DNS rebinding: a page of evil.example whose name leads to this machine."""
    answer = house.client("reader").get("/account", headers={"host": host})
    assert answer.status_code == 421
    for name in ("localhost:8765", "127.0.0.1:8765", "[::1]:8765"):
        assert house.client("reader").get("/account", headers={"host": name}).status_code == 200


def test_too_many_requests_wait(house, tmp_path):
    few = type(house)(replace(house.settings, root=tmp_path / "few", limits=Limits(requests_a_minute=20)))
    reader, other, guest = few.client("reader"), few.client("reader", "other"), few.client()
    answers = [reader.get("/account") for _ in range(22)]
    assert [a.status_code for a in answers].count(429) in (1, 2)
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert other.get("/account").status_code == 200
    assert [guest.get("/sign-in").status_code for _ in range(22)].count(429) in (1, 2)
    # A new cookie or token at every request is no way around.
    for i in range(3):
        guest.cookies.set(security.cookie_name(few.settings), f"made up {i}")
    assert guest.get("/sign-in").status_code == 429
    assert guest.get("/api/account", headers={"Authorization": "Bearer made-up"}).status_code == 429
    assert guest.get("/static/base.css").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/static/../security.py", "/static/%2e%2e/security.py", "/static/..%2fsecurity.py", "/static//etc/passwd",
     "/static/%2fetc%2fpasswd", "/static/..%5c..%5csecurity.py", "/static/%252e%252e/security.py", "/static/",
     "/static/../../../../../../etc/passwd"],
)  # fmt: skip
def test_static_files_are_those_of_the_package(house, path):
    """The path is put on the wire as it is: a client would tidy it up."""
    answer = raw(house, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    assert re.match(rb"HTTP/1.1 (404|405|400|303)", answer), answer[:200]
    assert b"root:" not in answer
    assert b"class Guard" not in answer


def test_headers_without_end_are_refused(house):
    endless = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"a" * 200_000 + b"\r\n\r\n"
    assert raw(house, endless)[:20].startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
    many = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"".join(b"X-%d: a\r\n" % i for i in range(20_000)) + b"\r\n"
    assert raw(house, many)[:20].startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
    smuggled = (
        b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    assert not raw(house, smuggled).startswith(b"HTTP/1.1 200")


def raw(house, data: bytes) -> bytes:
    """What a real socket answers to these bytes."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(house.app, log_level="critical", h11_max_incomplete_event_size=64 * 1024))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        with socket.create_connection(listener.getsockname(), timeout=10) as client:
            answer = b""
            try:
                client.sendall(data)
                while piece := client.recv(65536):
                    answer += piece
                    if len(answer) > 1_000_000 or (b"\r\n\r\n" in answer and b"Connection: close" not in data):
                        break
            except (ConnectionError, TimeoutError):
                pass
        return answer
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


# -- what answers carry, and what logs do not --------------------------------------------------------------------------


def test_every_answer_carries_the_policy(house, monkeypatch):
    reader = house.client("reader")
    monkeypatch.setattr("assay.server.runs.folders.RunFolders.all", lambda self: 1 / 0)
    answers = {
        200: reader.get("/account"), 303: house.client().get("/runs"), 404: reader.get("/nothing"),
        405: reader.put("/account"), 403: reader.get("/admin/audit"), 421: reader.get("/", headers={"host": "x"}),
        422: reader.post("/account/tokens", data={"days": "many"}), 500: reader.get("/runs"),
    }  # fmt: skip
    for status, answer in answers.items():
        assert answer.status_code == status, (status, answer.status_code)
        assert answer.headers["content-security-policy"] == security.POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "server" not in answer.headers
    static = reader.get("/static/base.css")
    assert static.headers["x-content-type-options"] == "nosniff"
    assert "ZeroDivisionError" not in answers[500].text
    for source in ("script-src", "style-src"):
        assert "unsafe" not in re.search(rf"{source} ([^;]+)", security.POLICY)[1]


@pytest.mark.parametrize("path", ["/runs", "/api/runs"])
def test_without_its_database_the_server_lets_nobody_in_and_says_so(house, monkeypatch, path):
    def gone(*_):
        raise sa.exc.OperationalError("SELECT secret", {}, Exception("connection refused"))

    reader = house.client("reader")
    monkeypatch.setattr(security, "find_viewer", gone)
    answer = reader.get(path)
    assert answer.status_code == 500
    assert answer.headers["content-security-policy"] == security.POLICY
    assert "Something went wrong here" in answer.text
    assert "SELECT" not in answer.text


def test_templates_hold_no_inline_script_or_style():
    folder = Path(assay.server.__file__).parent / "templates"
    for page in folder.rglob("*.j2"):
        text = page.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)(?![^>]*type=\"application/json\")", text), page
        assert not re.search(r"\sstyle=|<style|\son[a-z]+=|javascript:", text), page
        assert not re.search(r"(src|href)=\"(https?:)?//", text), page
        assert "|safe" not in text.replace(" ", ""), page


def test_no_secret_reaches_a_log(house):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(SecretFilter())
    log = logging.getLogger("assay.server")
    log.addHandler(handler)
    try:
        token, key = house.token("reader"), "sk-abcdefghijklmnopqrstuvwxyz"
        with house.database.session() as session:
            link = accounts.issue_invitation(session, accounts.create_account(session, "bo", "reader"))
        said = [
            ("GET /join/%s", link), ("Authorization: Bearer %s", token), ("cookie: assay=%s; b=c", token[6:]),
            ("password=%s", PASSWORD.split()[0]), ("form {'password': '%s'}", "hunter2hunter2"), ("key %s", key),
        ]  # fmt: skip
        for text, secret in said:
            log.error(text, secret)
            try:
                raise ValueError(text % secret)
            except ValueError:
                log.exception("it failed")
    finally:
        log.removeHandler(handler)
    written = stream.getvalue()
    assert written.count("[secret]") + written.count("[key]") >= 2 * len(said)
    for _, secret in said:
        assert secret not in written, secret


def test_the_server_fetches_no_url(house, monkeypatch):
    """No module of it imports a client (except the clients that people run), and addresses in any field stay text."""
    folder = Path(assay.server.__file__).parent
    clients = {"aiohttp", "httpx", "requests", "urllib.request", "urllib3", "http.client", "ftplib"}
    for path in folder.rglob("*.py"):
        if path.name in ("client.py", "local.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not clients & set(names), (path, names)
    reached = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: reached.append(address))
    admin, url = house.client("admin"), "http://169.254.169.254/latest"
    for path, method, _ in routes(house):
        fields = dict.fromkeys(("name", "url", "text", "value", "label", "run", "next", "file", "benchmark"), url)
        admin.request(method, path, params=fields, **({} if method == "GET" else {"data": fields}))
    assert reached == []


# -- where it listens --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "eval.example.org"])
def test_nothing_listens_beyond_this_machine_without_tls_or_a_flag(tmp_path, host):
    with pytest.raises(UsageError, match="--tls-cert"):
        Settings(root=tmp_path, runs=tmp_path, host=host)
    assert Settings(root=tmp_path, runs=tmp_path, host=host, insecure_bind=True).host == host
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).touch()
    files = {"tls_certificate": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem"}
    assert Settings(root=tmp_path, runs=tmp_path, host=host, **files).secure
    with pytest.raises(UsageError, match="both files"):
        Settings(root=tmp_path, runs=tmp_path, tls_key=tmp_path / "key.pem")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_this_machine_needs_no_tls(tmp_path, host):
    assert not Settings(root=tmp_path, runs=tmp_path, host=host).secure


def test_the_command_refuses_a_wide_address(tmp_path, capsys):
    from assay.cli import main

    assert main(["serve", "--root", str(tmp_path / "s"), "--host", "0.0.0.0"]) == 2
    assert "--insecure-bind" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_json_errors_are_one_sentence(house):
    answer = house.client().get("/api/runs")
    assert json.loads(answer.text) == {"error": "Sign in first, or send a token: Authorization: Bearer TOKEN."}
