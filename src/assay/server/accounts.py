"""Accounts: who there is, how they prove it, and what was done. Passwords and tokens are kept as hashes only."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import secrets
import threading
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, Session, mapped_column, relationship

from assay.core.errors import UsageError, unknown_name
from assay.server.database import Base, now

if TYPE_CHECKING:
    from argon2 import PasswordHasher

Role = Literal["admin", "submitter", "annotator", "reader"]
ROLES: tuple[Role, ...] = get_args(Role)
SHORTEST_PASSWORD = 10
LONGEST_PASSWORD = 1000
INVITATION_HOURS = 72
_NAME = re.compile(r"[\w.@+ -]{1,64}")
# Argon2 takes 64 MB a password: a crowd at the sign-in page must not take them all at once.
_hashing = threading.BoundedSemaphore(2)


def new_key() -> str:
    """A random name for a row that shows in addresses."""
    return secrets.token_urlsafe(12)


class Account(Base):
    """A person or a program. ``key`` names it in addresses, ``pseudonym`` in whatever is published."""

    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(32), unique=True, default=new_key)
    name: Mapped[str] = mapped_column(sa.String(64))
    folded: Mapped[str] = mapped_column(sa.String(64), unique=True)
    role: Mapped[str] = mapped_column(sa.String(16))
    pseudonym: Mapped[str] = mapped_column(sa.String(32), unique=True)
    password_hash: Mapped[str | None] = mapped_column(sa.String(256))
    active: Mapped[bool] = mapped_column(default=True)
    created: Mapped[dt.datetime] = mapped_column(default=now)
    signed_in: Mapped[dt.datetime | None]
    tokens: Mapped[list[ApiToken]] = relationship(back_populates="account", order_by="ApiToken.created")


class ApiToken(Base):
    """A token for programs; only its digest is kept."""

    __tablename__ = "api_token"
    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(32), unique=True, default=new_key)
    digest: Mapped[str] = mapped_column(sa.String(64), unique=True)
    account_id: Mapped[int] = mapped_column(sa.ForeignKey("account.id"), index=True)
    label: Mapped[str] = mapped_column(sa.String(80))
    created: Mapped[dt.datetime] = mapped_column(default=now)
    expires: Mapped[dt.datetime | None]
    used: Mapped[dt.datetime | None]
    revoked: Mapped[dt.datetime | None]
    account: Mapped[Account] = relationship(back_populates="tokens")


class BrowserSession(Base):
    """A signed-in browser; the cookie holds the token, this row its digest."""

    __tablename__ = "browser_session"
    digest: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    account_id: Mapped[int] = mapped_column(sa.ForeignKey("account.id"), index=True)
    created: Mapped[dt.datetime] = mapped_column(default=now)
    seen: Mapped[dt.datetime] = mapped_column(default=now)
    account: Mapped[Account] = relationship()


class Invitation(Base):
    """A link that lets its holder set the password of one account, once."""

    __tablename__ = "invitation"
    digest: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    account_id: Mapped[int] = mapped_column(sa.ForeignKey("account.id"), index=True)
    expires: Mapped[dt.datetime]
    used: Mapped[dt.datetime | None]
    account: Mapped[Account] = relationship()


class AuditEntry(Base):
    """Something that was done: by whom, to what, from where. Rows are only ever added."""

    __tablename__ = "audit_entry"
    id: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[dt.datetime] = mapped_column(default=now, index=True)
    actor: Mapped[str] = mapped_column(sa.String(64))
    action: Mapped[str] = mapped_column(sa.String(40), index=True)
    subject: Mapped[str] = mapped_column(sa.String(200))
    detail: Mapped[str] = mapped_column(sa.Text, default="")
    address: Mapped[str] = mapped_column(sa.String(64), default="")


# -- accounts ----------------------------------------------------------------------------------------------------------


def create_account(session: Session, name: str, role: str, password: str | None = None) -> Account:
    """A new account; without a password it can sign in only after `issue_invitation`.

    Raises
    ------
    UsageError
        The name is taken or no name, the role does not exist, or the password is too short.
    """
    name = " ".join(name.split())
    if not _NAME.fullmatch(name):
        raise UsageError("A name has 1 to 64 letters, digits, spaces or . _ @ + -.")
    if role not in ROLES:
        raise unknown_name("role", role, ROLES)
    if find_account(session, name):
        raise UsageError(f"There is an account {name!r} already; choose another name.")
    account = Account(name=name, folded=fold(name), role=role, pseudonym=f"p-{secrets.token_hex(5)}")
    if password is not None:
        set_password(account, password)
    session.add(account)
    session.flush()
    return account


def find_account(session: Session, name: str) -> Account | None:
    """The account of that name, however it is capitalised."""
    return session.scalar(sa.select(Account).where(Account.folded == fold(name)))


def fold(name: str) -> str:
    """A name as it is compared."""
    return " ".join(name.split()).casefold()[:64]


# -- passwords ---------------------------------------------------------------------------------------------------------


@cache
def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher

    return PasswordHasher()


@cache
def _nobody() -> str:
    """Hash of a password that nobody knows: unknown names take as long as known ones."""
    return _hasher().hash(secrets.token_urlsafe(24))


def set_password(account: Account, password: str) -> None:
    """Set a password; UsageError where it is too easy to guess."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise UsageError(f"A password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters.")
    if fold(password) == account.folded or len(set(password)) < 4:
        raise UsageError("This password is too easy to guess; use several words.")
    with _hashing:
        account.password_hash = _hasher().hash(password)


def check_password(session: Session, name: str, password: str) -> Account | None:
    """The account whose name and password these are. Takes as long when there is none."""
    from argon2.exceptions import VerificationError

    account = find_account(session, name)
    known = account is not None and account.active and account.password_hash is not None
    stored = account.password_hash if known and account and account.password_hash else _nobody()
    with _hashing:
        try:
            _hasher().verify(stored, password[:LONGEST_PASSWORD])
        except VerificationError:
            return None
    return account if known else None


# -- tokens, sessions, invitations -------------------------------------------------------------------------------------


def digest(secret: str) -> str:
    """What is kept of a secret. Secrets are random, so a plain hash is as good as a slow one."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def issue_token(session: Session, account: Account, label: str, days: float | None = None) -> str:
    """A new API token; this is the only time it can be seen."""
    token = f"assay_{secrets.token_urlsafe(32)}"
    expires = None if days is None else now() + dt.timedelta(days=days)
    label = " ".join(label.split())[:80] or "token"
    session.add(ApiToken(account_id=account.id, digest=digest(token), label=label, expires=expires))
    return token


def token_account(session: Session, token: str) -> tuple[Account, ApiToken] | None:
    """Whose token this is; None where it is unknown, expired or revoked, or the account is closed."""
    found = session.scalar(sa.select(ApiToken).where(ApiToken.digest == digest(token)))
    if found is None or found.revoked is not None or not found.account.active:
        return None
    return None if found.expires is not None and found.expires <= now() else (found.account, found)


def begin_session(session: Session, account: Account) -> str:
    """A new browser session; the token goes into the cookie."""
    token = secrets.token_urlsafe(32)
    session.add(BrowserSession(digest=digest(token), account_id=account.id))
    account.signed_in = now()
    return token


def session_account(session: Session, token: str, hours: float) -> tuple[Account, BrowserSession] | None:
    """Whose session this is; None where it is unknown or too old, or the account is closed."""
    found = session.get(BrowserSession, digest(token))
    if found is None or not found.account.active:
        return None
    at, idle = now(), dt.timedelta(hours=hours)
    return None if at - found.seen > idle or at - found.created > 7 * idle else (found.account, found)


def forget_sessions(session: Session, hours: float) -> None:
    """Delete sessions that are too old to be of use."""
    oldest = now() - 7 * dt.timedelta(hours=hours)
    session.execute(sa.delete(BrowserSession).where(BrowserSession.created < oldest))


def end_session(session: Session, token: str) -> None:
    """Sign one browser out."""
    session.execute(sa.delete(BrowserSession).where(BrowserSession.digest == digest(token)))


def end_sessions(session: Session, account: Account, but: str | None = None) -> None:
    """Sign an account out of every browser, except the one whose session token is ``but``."""
    ended = sa.delete(BrowserSession).where(BrowserSession.account_id == account.id)
    if but is not None:
        ended = ended.where(BrowserSession.digest != digest(but))
    session.execute(ended)


def issue_invitation(session: Session, account: Account, hours: float = INVITATION_HOURS) -> str:
    """A one-time token to set the account's password with; earlier ones stop working."""
    withdraw = sa.update(Invitation).where(Invitation.account_id == account.id, Invitation.used.is_(None))
    session.execute(withdraw.values(used=now()))
    token = f"invite_{secrets.token_urlsafe(32)}"
    session.add(Invitation(digest=digest(token), account_id=account.id, expires=now() + dt.timedelta(hours=hours)))
    return token


def invited_account(session: Session, token: str) -> Account | None:
    """Whose invitation this is; None where it is unknown, used or expired, or the account is closed."""
    found = session.get(Invitation, digest(token), with_for_update=True)
    usable = found is not None and found.used is None and found.expires > now() and found.account.active
    return found.account if found is not None and usable else None


def accept_invitation(session: Session, token: str, password: str) -> Account:
    """Set the password of an invitation's account and use the invitation up."""
    account = invited_account(session, token)
    if account is None:
        raise UsageError("This link was used before or is too old; ask for a new one.")
    set_password(account, password)
    session.execute(sa.update(Invitation).where(Invitation.digest == digest(token)).values(used=now()))
    end_sessions(session, account)
    return account


# -- audit -------------------------------------------------------------------------------------------------------------


def audit(session: Session, action: str, subject: str, *, actor: str = "", address: str = "", **detail: Any) -> None:
    """Write down that something was done. No secrets: the log is read by every admin."""
    said = "; ".join(f"{name}: {value}" for name, value in detail.items())
    session.add(
        AuditEntry(
            actor=actor[:64], action=action[:40], subject=subject[:200], detail=said[:2000], address=address[:64]
        )
    )
