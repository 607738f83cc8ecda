"""Pages of accounts: sign in and out, one's own account, and for admins accounts and the audit log."""

from __future__ import annotations

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Form, Query
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from assay.core.errors import UsageError
from assay.server import accounts
from assay.server.accounts import Account, ApiToken, AuditEntry
from assay.server.database import Database, now
from assay.server.security import Viewer, address_of, cookie_name, guest_cookie, set_cookie
from assay.server.settings import Settings
from assay.server.web import Admin, Config, Db, SignedIn, Who, answer, go_to, is_own_path, render

router = APIRouter()
Text = Annotated[str, Form(max_length=2000)]
AUDIT_PAGE = 100


# -- signing in and out ------------------------------------------------------------------------------------------------


@router.get("/sign-in")
def sign_in_page(request: Request, who: Who, next: str = "/") -> Response:
    """The form."""
    if who.via:
        return go_to(next)
    return render(request, "accounts/sign_in.html.j2", next=next if is_own_path(next) else "/", name="", fault="")


@router.post("/sign-in")
def sign_in(request: Request, db: Db, settings: Config, name: Text, password: Text, next: Text = "/") -> Response:
    """Check a password and begin a session under a new token."""
    address, folded = address_of(request), accounts.fold(name)
    limiter = request.app.state.sign_ins
    target = next if is_own_path(next) else "/"
    wait = limiter.wait(folded, address)
    if wait:
        fault = f"Too many wrong passwords; try again in {int(wait / 60) + 1} minutes."
        response = render(request, "accounts/sign_in.html.j2", status=429, next=target, name=name, fault=fault)
        response.headers["retry-after"] = str(int(wait) + 1)
        return response
    # Counted before it is checked: tries at the same time count too.
    limiter.failed(folded, address)
    with db.reading() as session:
        account = accounts.check_password(session, name, password)
        who = account.id if account else None
    if who is None:
        with db.session() as session:
            accounts.audit(session, "sign-in failed", name, address=address)
        fault = "Name or password is wrong."
        return render(request, "accounts/sign_in.html.j2", status=403, next=target, name=name, fault=fault)
    limiter.succeeded(folded, address)
    return _signed_in(request, db, settings, who, target)


def _signed_in(request: Request, db: Database, settings: Settings, account_id: int, target: str) -> Response:
    with db.session() as session:
        account = session.get_one(Account, account_id)
        old = request.cookies.get(cookie_name(settings))
        if old:
            accounts.end_session(session, old)
        accounts.forget_sessions(session, settings.limits.session_hours)
        token = accounts.begin_session(session, account)
        accounts.audit(session, "signed in", account.name, actor=account.name, address=address_of(request))
    response = go_to(target)
    set_cookie(response, settings, cookie_name(settings), token, 7 * settings.limits.session_hours)
    response.delete_cookie(guest_cookie(settings), secure=settings.secure, httponly=True, samesite="lax")
    return response


@router.post("/sign-out")
def sign_out(request: Request, db: Db, settings: Config, who: SignedIn) -> Response:
    """End this browser's session."""
    name = cookie_name(settings)
    with db.session() as session:
        accounts.end_session(session, request.cookies.get(name, ""))
        accounts.audit(session, "signed out", who.name, actor=who.name, address=address_of(request))
    response = go_to("/sign-in")
    response.delete_cookie(name, secure=settings.secure, httponly=True, samesite="lax")
    return response


@router.get("/join/{token}")
def join_page(request: Request, token: str, db: Db) -> Response:
    """Where a one-time link leads: choose a password."""
    with db.reading() as session:
        account = accounts.invited_account(session, token)
        if account is None:
            raise HTTPException(404, "This link was used before or is too old; ask for a new one.")
        name, role = account.name, account.role
    return render(request, "accounts/join.html.j2", name=name, role=role, token=token, fault="")


@router.post("/join/{token}")
def join(request: Request, token: str, db: Db, settings: Config, password: Text, again: Text) -> Response:
    """Set the password of an invitation's account, and sign in."""
    with db.reading() as session:
        account = accounts.invited_account(session, token)
        if account is None:
            raise HTTPException(404, "This link was used before or is too old; ask for a new one.")
        name, role = account.name, account.role
    try:
        if password != again:
            raise UsageError("The two passwords differ; type the same one twice.")
        with db.session() as session:
            account = accounts.accept_invitation(session, token, password)
            accounts.audit(session, "password set", account.name, actor=account.name, address=address_of(request))
            who = account.id
    except UsageError as error:
        return render(request, "accounts/join.html.j2", status=400, name=name, role=role, token=token, fault=str(error))
    return _signed_in(request, db, settings, who, "/")


# -- one's own account -------------------------------------------------------------------------------------------------


@router.get("/account")
def account_page(request: Request, db: Db, who: SignedIn) -> Response:
    """Password, tokens, sessions."""
    return _account_page(request, db, who)


def _account_page(request: Request, db: Database, who: Viewer, *, status: int = 200, **shown: Any) -> Response:
    with db.reading() as session:
        account = session.get_one(Account, who.id)
        tokens = [t for t in account.tokens if t.revoked is None]
        values = {"fault": "", "token": "", "done": ""} | shown
        return render(request, "accounts/account.html.j2", status=status, account=account, tokens=tokens, **values)


@router.post("/account/password")
def change_password(
    request: Request, db: Db, settings: Config, who: SignedIn, old: Text, password: Text, again: Text
) -> Response:
    """Change the password and end all other sessions."""
    address, folded = address_of(request), accounts.fold(who.name)
    limiter = request.app.state.sign_ins
    if limiter.wait(folded, address):
        return _account_page(request, db, who, status=429, fault="Too many wrong passwords; try again later.")
    limiter.failed(folded, address)
    with db.reading() as session:
        known = accounts.check_password(session, who.name, old) is not None
    if not known:
        return _account_page(request, db, who, status=403, fault="The old password is wrong.")
    limiter.succeeded(folded, address)
    if password != again:
        return _account_page(request, db, who, status=400, fault="The two new passwords differ.")
    try:
        with db.session() as session:
            account = session.get_one(Account, who.id)
            accounts.set_password(account, password)
            accounts.end_sessions(session, account, but=request.cookies.get(cookie_name(settings)))
            accounts.audit(session, "password changed", who.name, actor=who.name, address=address)
    except UsageError as error:
        return _account_page(request, db, who, status=400, fault=str(error))
    return _account_page(request, db, who, done="The password was changed; other browsers are signed out.")


@router.post("/account/tokens")
def make_token(
    request: Request, db: Db, who: SignedIn, label: Annotated[str, Form(max_length=80)] = "",
    days: Annotated[int, Form(ge=1, le=3650)] = 90,
) -> Response:  # fmt: skip
    """A new token, shown this once. A token cannot make tokens: a stolen one must not outlive its revocation."""
    _browser_only(who)
    with db.session() as session:
        token = accounts.issue_token(session, session.get_one(Account, who.id), label, days)
        accounts.audit(session, "token made", who.name, actor=who.name, address=address_of(request), label=label)
    return _account_page(request, db, who, token=token)


@router.post("/account/tokens/{key}/revoke")
def revoke_token(request: Request, db: Db, who: SignedIn, key: str) -> Response:
    """A token stops working at once."""
    with db.session() as session:
        token = session.scalar(sa.select(ApiToken).where(ApiToken.key == key, ApiToken.account_id == who.id))
        if token is None:
            raise HTTPException(404, "You have no such token.")
        token.revoked = token.revoked or now()
        accounts.audit(
            session, "token revoked", who.name, actor=who.name, address=address_of(request), label=token.label
        )
    return go_to("/account")


@router.get("/api/account")
def whoami(who: SignedIn) -> dict[str, str]:
    """Who a token belongs to."""
    return {"name": who.name, "role": who.role, "pseudonym": who.pseudonym}


def _browser_only(who: Viewer) -> None:
    if who.via != "session":
        raise HTTPException(403, "Sign in with a browser for this; a token cannot do it.")


# -- admins ------------------------------------------------------------------------------------------------------------


@router.get("/admin/accounts")
def accounts_page(request: Request, db: Db, who: Admin) -> Response:
    """All accounts."""
    return _accounts_page(request, db)


def _accounts_page(request: Request, db: Database, *, status: int = 200, **shown: Any) -> Response:
    with db.reading() as session:
        everyone = session.scalars(sa.select(Account).order_by(Account.active.desc(), Account.folded)).all()
        values = {"fault": "", "link": "", "invited": ""} | shown
        return render(
            request, "accounts/accounts.html.j2", status=status, accounts=everyone, roles=accounts.ROLES, **values
        )


@router.post("/admin/accounts")
def add_account(request: Request, db: Db, settings: Config, who: Admin, name: Text, role: Text) -> Response:
    """A new account and the one-time link for whoever it is for."""
    _browser_only(who)
    try:
        with db.session() as session:
            account = accounts.create_account(session, name, role)
            link = f"{settings.url}/join/{accounts.issue_invitation(session, account)}"
            accounts.audit(
                session, "account made", account.name, actor=who.name, address=address_of(request), role=role
            )
            invited = account.name
    except UsageError as error:
        return _accounts_page(request, db, status=400, fault=str(error))
    return _accounts_page(request, db, link=link, invited=invited)


@router.post("/admin/accounts/{key}")
def change_account(
    request: Request, db: Db, settings: Config, who: Admin, key: str, action: Text, role: Text = ""
) -> Response:
    """Change a role, close or open an account, make a new link for it, revoke its tokens."""
    _browser_only(who)
    link = ""
    with db.session() as session:
        account = session.scalar(sa.select(Account).where(Account.key == key).with_for_update())
        if account is None:
            raise HTTPException(404, "There is no such account.")
        name = account.name
        if action in ("role", "close") and account.role == "admin" and not (action == "role" and role == "admin"):
            others = sa.select(sa.func.count()).where(Account.role == "admin", Account.active, Account.id != account.id)
            if not session.scalar(others):
                raise UsageError("This is the only admin; make another one first.")
        if action == "role":
            if role not in accounts.ROLES:
                raise UsageError(f"There is no role {role!r}; there are: {', '.join(accounts.ROLES)}.")
            account.role = role
        elif action == "close":
            account.active = False
            accounts.end_sessions(session, account)
        elif action == "open":
            account.active = True
        elif action == "link":
            if not account.active:
                raise UsageError("This account is closed; open it first.")
            link = f"{settings.url}/join/{accounts.issue_invitation(session, account)}"
        elif action == "tokens":
            live = sa.update(ApiToken).where(ApiToken.account_id == account.id, ApiToken.revoked.is_(None))
            session.execute(live.values(revoked=now()))
            accounts.end_sessions(session, account)
        else:
            raise UsageError("The action is one of role, close, open, link, tokens.")
        said = {"role": role} if action == "role" else {}
        accounts.audit(session, f"account: {action}", name, actor=who.name, address=address_of(request), **said)
    return _accounts_page(request, db, link=link, invited=name) if link else go_to("/admin/accounts")


@router.get("/api/admin/accounts")
def accounts_json(db: Db, who: Admin) -> Response:
    """All accounts."""
    names = ("key", "name", "role", "pseudonym", "active", "created", "signed_in")
    with db.reading() as session:
        everyone = session.scalars(sa.select(Account).order_by(Account.folded)).all()
        return answer([{name: getattr(account, name) for name in names} for account in everyone])


Action = Annotated[str, Query(max_length=40)]
Before = Annotated[int | None, Query(ge=1, le=2**31 - 1)]


def _entries(db: Database, action: str, before: int | None) -> tuple[list[AuditEntry], int | None]:
    """A page of the audit log, newest first, and where the next one begins."""
    chosen = sa.select(AuditEntry).order_by(AuditEntry.id.desc()).limit(AUDIT_PAGE + 1)
    if action:
        chosen = chosen.where(AuditEntry.action == action)
    if before is not None:
        chosen = chosen.where(AuditEntry.id < before)
    with db.reading() as session:
        entries = list(session.scalars(chosen))
    return entries[:AUDIT_PAGE], entries[AUDIT_PAGE - 1].id if len(entries) > AUDIT_PAGE else None


@router.get("/api/admin/audit")
def audit_json(db: Db, who: Admin, action: Action = "", before: Before = None) -> Response:
    """What was done, newest first; ``before`` in the answer asks for the page after it."""
    entries, older = _entries(db, action, before)
    names = ("at", "actor", "action", "subject", "detail", "address")
    return answer({"before": older, "entries": [{name: getattr(e, name) for name in names} for e in entries]})


@router.get("/admin/audit")
def audit_page(request: Request, db: Db, who: Admin, action: Action = "", before: Before = None) -> Response:
    """What was done, newest first."""
    entries, older = _entries(db, action, before)
    with db.reading() as session:
        actions = session.scalars(sa.select(AuditEntry.action).distinct().order_by(AuditEntry.action)).all()
    return render(request, "accounts/audit.html.j2", entries=entries, actions=actions, action=action, older=older)
