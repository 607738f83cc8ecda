"""Attacks on passwords, sessions, tokens and links, tried."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import pytest
import sqlalchemy as sa

from assay.server import accounts, security
from assay.server.accounts import AuditEntry, BrowserSession
from assay.server.database import now
from assay.server.security import RateLimiter, SignInLimiter

PASSWORD = "horses like green apples"


def with_password(house, name="ann", role="reader"):
    with house.database.session() as session:
        return accounts.create_account(session, name, role, PASSWORD).key


def sign_in(house, client, password=PASSWORD, name="ann", **more):
    form = {"csrf": house.csrf(client), "name": name, "password": password}
    return client.post("/sign-in", data=form | more)


def test_guessing_a_password_is_stopped_and_the_right_one_waits_too(house):
    with_password(house)
    guess = house.client()
    answers = [sign_in(house, guess, f"wrong {i}").status_code for i in range(7)]
    assert answers == [403] * 5 + [429] * 2
    stopped = sign_in(house, guess)
    assert stopped.status_code == 429
    assert 0 < int(stopped.headers["retry-after"]) <= 181
    with house.database.reading() as session:
        tries = session.scalar(sa.select(sa.func.count()).where(AuditEntry.action == "sign-in failed"))
    assert tries == 5


def test_guessing_at_once_is_stopped_too(house):
    with_password(house)
    clients = [house.client() for _ in range(12)]
    tokens = [house.csrf(c) for c in clients]
    answers = []

    def guess(client, token):
        form = {"csrf": token, "name": "ann", "password": "wrong wrong"}
        answers.append(client.post("/sign-in", data=form).status_code)

    threads = [threading.Thread(target=guess, args=pair) for pair in zip(clients, tokens)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.count(403) <= 6
    assert answers.count(403) + answers.count(429) == 12


def test_many_names_from_one_address_and_one_name_from_many_are_stopped():
    clock = [0.0]
    limiter = SignInLimiter(5, lambda: clock[0])
    for i in range(20):
        assert limiter.wait(f"name{i}", "a") == 0
        limiter.failed(f"name{i}", "a")
    assert limiter.wait("fresh", "a") > 0
    assert limiter.wait("fresh", "b") == 0
    for i in range(50):
        limiter.failed("ann", f"address{i}")
    assert limiter.wait("ann", "new") > 0
    clock[0] += 900
    assert limiter.wait("ann", "new") == limiter.wait("fresh", "a") == 0


def test_a_limiter_lets_through_its_pace_and_forgets_old_names():
    clock = [0.0]
    limiter = RateLimiter(10, 60, lambda: clock[0])
    assert [limiter.take("a") for _ in range(10)] == [0.0] * 10
    assert limiter.take("a") == pytest.approx(6.0)
    clock[0] += 6.0
    assert limiter.take("a") == 0.0
    for i in range(60_000):
        limiter.take(str(i))
    assert len(limiter._buckets) <= 50_000


def test_a_name_that_does_not_exist_takes_as_long(house, monkeypatch):
    """One hash is checked, whoever is asked for: unknown, closed, without a password."""
    with_password(house)
    with house.database.session() as session:
        accounts.create_account(session, "invited", "reader")
        accounts.create_account(session, "closed", "reader", PASSWORD).active = False
    checked = []

    class Counting:
        def verify(self, stored, password):
            checked.append(stored.split("$")[:4])
            return real.verify(stored, password)

        def hash(self, password):
            return real.hash(password)

    real = accounts._hasher()
    monkeypatch.setattr(accounts, "_hasher", Counting)
    pages = set()
    for name in ("ann", "nobody", "invited", "closed"):
        client = house.client()
        answer = sign_in(house, client, "wrong wrong wrong", name)
        assert answer.status_code == 403
        pages.add(re.search(r'role="alert">([^<]+)<', answer.text)[1])
    assert len(checked) == 4
    assert len({tuple(parameters) for parameters in checked}) == 1
    assert pages == {"Name or password is wrong."}


def test_a_session_chosen_by_an_attacker_is_not_taken_over(house):
    """Session fixation: signing in gives a new cookie, and the old session of that browser ends."""
    with_password(house)
    name = security.cookie_name(house.settings)
    victim = house.client()
    victim.cookies.set(name, "chosen-by-the-attacker", domain="127.0.0.1", path="/")
    assert sign_in(house, victim).status_code == 303
    attacker = house.client()
    attacker.cookies.set(name, "chosen-by-the-attacker")
    assert attacker.get("/account").status_code == 303
    eve = house.client("reader", "eve")
    planted = eve.cookies[name]
    shared = house.client()
    shared.cookies.set(name, planted, domain="127.0.0.1", path="/")
    sign = {"csrf": security.csrf_token(house.settings, planted), "name": "ann", "password": PASSWORD}
    answer = shared.post("/sign-in", data=sign)
    assert answer.status_code == 303
    assert planted not in answer.headers["set-cookie"]
    assert eve.get("/account").status_code == 303


def test_a_session_ends(house):
    """By signing out, by idling, by age, by a new password; the cookie alone is then worth nothing."""
    name = security.cookie_name(house.settings)

    def fresh(**times):
        client = house.client("reader", "ann")
        with house.database.session() as session:
            found = session.get_one(BrowserSession, accounts.digest(client.cookies[name]))
            for column, hours in times.items():
                setattr(found, column, now() - accounts.dt.timedelta(hours=hours))
        return client

    assert fresh(seen=23.9).get("/account").status_code == 200
    assert fresh(seen=24.1).get("/account").status_code == 303
    assert fresh(created=7 * 24 + 0.1).get("/account").status_code == 303
    client = fresh()
    stolen = house.client()
    stolen.cookies.set(name, client.cookies[name])
    assert stolen.get("/account").status_code == 200
    client.post("/sign-out")
    assert stolen.get("/account").status_code == 303
    with_password(house, "bo")
    mine, other = house.client("reader", "bo"), house.client("reader", "bo")
    form = {"old": PASSWORD, "password": "another good one", "again": "another good one"}
    assert mine.post("/account/password", data=form).status_code == 200
    assert mine.get("/account").status_code == 200
    assert other.get("/account").status_code == 303


def test_a_token_ends(house):
    token = house.token("reader")
    program = house.client()
    program.headers["Authorization"] = f"Bearer {token}"
    assert program.get("/api/account").status_code == 200
    with house.database.session() as session:
        row = session.scalar(sa.select(accounts.ApiToken))
        row.expires = now() - accounts.dt.timedelta(seconds=1)
    answer = program.get("/api/account")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    for bad in ("Bearer", "Bearer x", f"Basic {token}", f"Bearer {token}x", f"Bearer {accounts.digest(token)}", "ü"):
        client = house.client("admin")
        assert client.get("/api/account", headers={"Authorization": bad.encode()}).status_code == 401, bad


def test_a_copy_of_the_database_signs_nobody_in(house):
    """Passwords, sessions, tokens and links are kept as digests."""
    with_password(house)
    token, client = house.token("reader"), house.client("reader")
    with house.database.session() as session:
        link = accounts.issue_invitation(session, accounts.create_account(session, "bo", "reader"))
    secrets = [PASSWORD, token, client.cookies[security.cookie_name(house.settings)], link]
    folder = house.settings.root
    stored = b"".join(p.read_bytes() for p in folder.glob("server.sqlite*"))
    assert b"$argon2id$" in stored
    for secret in secrets:
        assert secret.encode() not in stored
    for name in ("server.sqlite", "key"):
        _ = house.settings.key
        assert (folder / name).stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("url", [None, "https://eval.example.org"])
def test_cookies_are_out_of_reach_of_scripts_and_other_sites(house, url, tmp_path):
    if url:
        house = type(house)(replace(house.settings, public_url=url, root=tmp_path / "tls"))
    with_password(house)
    answer = sign_in(house, house.client())
    cookies = answer.headers.get_list("set-cookie")
    session = next(c for c in cookies if not c.split("=")[0].endswith("-guest"))
    assert "HttpOnly" in session
    assert "SameSite=lax" in session
    assert "Path=/" in session
    assert "Domain" not in session
    assert session.startswith("__Host-assay=") == ("Secure" in session) == bool(url)
    assert ("strict-transport-security" in answer.headers) == bool(url)


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/\t/evil.example"],
)  # fmt: skip
def test_signing_in_leads_to_no_other_site(house, target):
    with_password(house)
    client = house.client()
    page = client.get("/sign-in", params={"next": target})
    assert 'name="next" value="/"' in page.text
    assert sign_in(house, client, next=target).headers["location"] == "/"
    assert client.get("/sign-in", params={"next": target}).headers["location"] == "/"
