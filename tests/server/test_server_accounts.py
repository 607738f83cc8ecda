"""Accounts: passwords, sessions, tokens, invitations, roles, the audit log; on both databases."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa

from assay.core.errors import UsageError
from assay.server import accounts
from assay.server.accounts import Account, AuditEntry
from assay.server.database import SchemaVersion, open_database

both = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
PASSWORD = "horses like green apples"


def sign_in(house, name, password, client=None):
    client = client or house.client()
    form = {"csrf": house.csrf(client), "name": name, "password": password, "next": "/account"}
    return client, client.post("/sign-in", data=form)


def with_password(house, name="Ann", role="reader"):
    with house.database.session() as session:
        accounts.create_account(session, name, role, PASSWORD)


@both
def test_a_password_signs_in_and_a_wrong_one_does_not(house):
    with_password(house)
    client, answer = sign_in(house, "ann", PASSWORD)
    assert (answer.status_code, answer.headers["location"]) == (303, "/account")
    assert "Ann" in client.get("/account").text
    client, answer = sign_in(house, "ann", PASSWORD + "x")
    assert answer.status_code == 403
    assert client.get("/account").headers["location"].startswith("/sign-in")


@both
def test_an_invitation_works_once(house):
    admin = house.client("admin")
    page = admin.post("/admin/accounts", data={"name": "Bo", "role": "annotator"}).text
    link = re.search(r'id="link">[^<]*(/join/[^<]+)<', page)[1]
    guest = house.client()
    assert "Bo" in guest.get(link).text
    form = {"csrf": house.csrf(guest), "password": PASSWORD, "again": PASSWORD}
    assert guest.post(link, data={**form, "again": "another long one"}).status_code == 400
    assert guest.post(link, data={**form, "password": "short", "again": "short"}).status_code == 400
    assert guest.post(link, data=form).status_code == 303
    assert guest.get("/account").status_code == 200
    other = house.client()
    assert other.get(link).status_code == 404
    assert other.post(link, data=form | {"csrf": house.csrf(other)}).status_code == 404


@both
def test_a_token_is_shown_once_and_kept_as_a_hash(house):
    client = house.client("reader")
    page = client.post("/account/tokens", data={"label": "laptop", "days": "5"}).text
    token = re.search(r'id="token">([^<]+)<', page)[1]
    assert token not in client.get("/account").text
    program = house.client()
    program.headers["Authorization"] = f"Bearer {token}"
    assert program.get("/api/account").json()["role"] == "reader"
    with house.database.reading() as session:
        stored = session.scalars(sa.select(accounts.ApiToken.digest)).all()
    assert stored == [accounts.digest(token)]
    key = re.search(r"/account/tokens/([^/]+)/revoke", client.get("/account").text)[1]
    assert client.post(f"/account/tokens/{key}/revoke").status_code == 303
    assert program.get("/api/account").status_code == 401


@both
def test_what_is_done_to_accounts_is_written_down(house):
    with_password(house)
    sign_in(house, "Ann", "wrong")
    sign_in(house, "Ann", PASSWORD)
    admin = house.client("admin")
    admin.post("/admin/accounts", data={"name": "Bo", "role": "annotator"})
    with house.database.reading() as session:
        done = [(e.actor, e.action, e.subject) for e in session.scalars(sa.select(AuditEntry).order_by(AuditEntry.id))]
        said = " ".join(e.detail for e in session.scalars(sa.select(AuditEntry)))
    assert done == [
        ("", "sign-in failed", "Ann"),
        ("Ann", "signed in", "Ann"),
        ("admin", "account made", "Bo"),
    ]
    assert PASSWORD not in said
    program = house.program("admin")
    told = program.get("/api/admin/audit").json()["entries"]
    assert [(e["actor"], e["action"], e["subject"]) for e in told] == done[::-1]
    newest = program.get("/api/admin/audit", params={"action": "signed in"}).json()
    assert (len(newest["entries"]), newest["before"]) == (1, None)
    assert [a["name"] for a in program.get("/api/admin/accounts").json()] == ["admin", "Ann", "Bo"]
    assert "account made" in admin.get("/admin/audit").text


@both
def test_the_only_admin_stays_admin(house):
    admin = house.client("admin")
    with house.database.reading() as session:
        key = session.scalar(sa.select(Account.key))
    for form in ({"action": "role", "role": "reader"}, {"action": "close"}):
        answer = admin.post(f"/admin/accounts/{key}", data=form)
        assert answer.status_code == 400
        assert "only admin" in answer.text


@both
def test_closing_an_account_ends_its_sessions_and_tokens(house):
    reader, program, admin = house.client("reader"), house.program("reader"), house.client("admin")
    assert reader.get("/account").status_code == program.get("/api/account").status_code == 200
    with house.database.reading() as session:
        key = session.scalar(sa.select(Account.key).where(Account.name == "reader"))
    admin.post(f"/admin/accounts/{key}", data={"action": "close"})
    assert reader.get("/account").status_code == 303
    assert program.get("/api/account").status_code == 401


@both
def test_names_differ_by_more_than_case(house):
    with house.database.session() as session:
        accounts.create_account(session, "Ann", "reader")
        with pytest.raises(UsageError, match="already"):
            accounts.create_account(session, " ANN ", "reader")


@pytest.mark.parametrize("password", ["short", "aaaaaaaaaaaa", "ann ann ann", "x" * 1001])
def test_a_password_that_is_easy_to_guess_is_refused(house, password):
    with house.database.session() as session:
        account = accounts.create_account(session, "ann ann ann", "reader")
        with pytest.raises(UsageError):
            accounts.set_password(account, password)


@both
def test_a_database_of_a_newer_assay_is_refused(house):
    with house.database.session() as session:
        session.execute(sa.update(SchemaVersion).values(version=1_000))
    with pytest.raises(UsageError, match="newer assay"):
        open_database(house.settings.database)


def test_a_database_that_is_away_is_one_sentence_without_its_password():
    with pytest.raises(UsageError, match="cannot be used") as error:
        open_database("postgresql://assay:geheim@127.0.0.1:1/none")
    assert "geheim" not in str(error.value)
