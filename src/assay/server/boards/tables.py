"""Tables of the leaderboards. What counts is only ever added: the database itself refuses to change or delete it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Mapped, mapped_column, relationship

from assay.server.accounts import Account, new_key
from assay.server.database import Base, now

QUEUED, RUNNING, SCORED, REFUSED, FAILED = "queued", "running", "scored", "refused", "failed"
STATUSES = (QUEUED, RUNNING, SCORED, REFUSED, FAILED)
"""Refused: not in the published format, so it does not count against the limit. Failed: could not be scored."""
REFEREED, SELF_REPORTED = "refereed", "self-reported"
PREPARING, OPEN, BROKEN, CLOSED = "preparing", "open", "broken", "closed"


class Team(Base):
    """Whose submissions count together. An account that nobody put into a team is one of its own."""

    __tablename__ = "board_team"
    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(32), unique=True, default=new_key)
    name: Mapped[str] = mapped_column(sa.String(64), unique=True)
    created: Mapped[dt.datetime] = mapped_column(default=now)


class TeamMember(Base):
    """An account's team."""

    __tablename__ = "board_team_member"
    account_id: Mapped[int] = mapped_column(sa.ForeignKey("account.id"), primary_key=True, autoincrement=False)
    team_id: Mapped[int] = mapped_column(sa.ForeignKey("board_team.id"), index=True)
    team: Mapped[Team] = relationship()


class Board(Base):
    """A benchmark with its public options, and what may be asked of its referee.

    Attributes
    ----------
    sealed
        Name of the file with the hidden options, in the folder that the scorer alone reads; empty = self-reported.
    metric
        What ranks; empty = the benchmark's headline.
    published
        Metrics whose scores are shown; [] = all.
    rounding, step
        Scores are shown as multiples of ``rounding``; a team's next score is shown only when it is better than its best
        by more than ``step`` (0 = always).
    shown_share
        Share of the independent units that the shown scores are computed on; the rest decides when the board closes.
    state, reason
        preparing (the scorer has not looked at the truth yet), open, broken (why: ``reason``) or closed.
    expected
        Predictions that a submission holds.
    length, head
        Number of lines and last hash of the history.
    """

    __tablename__ = "board"
    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(32), unique=True, default=new_key)
    name: Mapped[str] = mapped_column(sa.String(64), unique=True)
    title: Mapped[str] = mapped_column(sa.String(200))
    kind: Mapped[str] = mapped_column(sa.String(16), default=REFEREED)
    benchmark: Mapped[str] = mapped_column(sa.String(64))
    options: Mapped[dict[str, Any]]
    sealed: Mapped[str] = mapped_column(sa.String(64), default="")
    metric: Mapped[str] = mapped_column(sa.String(80), default="")
    higher_is_better: Mapped[bool] = mapped_column(default=True)
    published: Mapped[list[Any]]
    rounding: Mapped[float] = mapped_column(default=0.001)
    step: Mapped[float] = mapped_column(default=0.0)
    shown_share: Mapped[float] = mapped_column(default=1.0)
    a_day: Mapped[int] = mapped_column(default=10)
    upload_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    unpacked_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    files: Mapped[int] = mapped_column(default=10_000)
    seconds: Mapped[float] = mapped_column(default=600.0)
    memory_mb: Mapped[int] = mapped_column(default=2048)
    tries: Mapped[int] = mapped_column(default=3)
    created: Mapped[dt.datetime] = mapped_column(default=now)
    closed: Mapped[dt.datetime | None]
    state: Mapped[str] = mapped_column(sa.String(16), default=PREPARING)
    reason: Mapped[str] = mapped_column(sa.Text, default="")
    expected: Mapped[int] = mapped_column(default=0)
    length: Mapped[int] = mapped_column(default=0)
    head: Mapped[str] = mapped_column(sa.String(64), default="")


class Entry(Base):
    """A submission to a board, and what came of it.

    ``scores`` is a list of ``{metric, value, low, high, n, ...}`` as published (rounded); null while there is none.
    ``withheld``: scored, but not better than the team's best by more than the board's step. ``final`` holds the scores
    on the part that was not shown, once the board is closed. ``views`` counts how often its team was told a score.
    """

    __tablename__ = "board_entry"
    __table_args__ = (sa.UniqueConstraint("board_id", "number"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(32), unique=True, default=new_key)
    board_id: Mapped[int] = mapped_column(sa.ForeignKey("board.id"), index=True)
    number: Mapped[int]
    team_id: Mapped[int] = mapped_column(sa.ForeignKey("board_team.id"), index=True)
    account_id: Mapped[int] = mapped_column(sa.ForeignKey("account.id"))
    system: Mapped[str] = mapped_column(sa.String(80))
    note: Mapped[str] = mapped_column(sa.String(500), default="")
    file_name: Mapped[str] = mapped_column(sa.String(120))
    digest: Mapped[str] = mapped_column(sa.String(64))
    bytes: Mapped[int] = mapped_column(sa.BigInteger)
    created: Mapped[dt.datetime] = mapped_column(default=now)
    status: Mapped[str] = mapped_column(sa.String(16), default=QUEUED, index=True)
    reason: Mapped[str] = mapped_column(sa.Text, default="")
    faults: Mapped[list[Any] | None]
    faults_left: Mapped[int] = mapped_column(default=0)
    withheld: Mapped[bool] = mapped_column(default=False)
    scores: Mapped[list[Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    final: Mapped[list[Any] | None] = mapped_column(sa.JSON(none_as_null=True))
    finished: Mapped[dt.datetime | None]
    views: Mapped[int] = mapped_column(default=0)
    deleted: Mapped[dt.datetime | None]
    deleted_by: Mapped[str] = mapped_column(sa.String(64), default="")
    board: Mapped[Board] = relationship()
    team: Mapped[Team] = relationship()
    account: Mapped[Account] = relationship()


class Job(Base):
    """Work for a worker: to score an entry, or (without one) to prepare or close a board.

    ``lease`` names the one attempt that may finish it; ``beats`` is counted up while that attempt lives. Whether it
    lives is told by whether the count moves, never by anyone's clock.
    """

    __tablename__ = "board_job"
    id: Mapped[int] = mapped_column(primary_key=True)
    board_id: Mapped[int] = mapped_column(sa.ForeignKey("board.id"), index=True)
    entry_id: Mapped[int | None] = mapped_column(sa.ForeignKey("board_entry.id"), unique=True)
    status: Mapped[str] = mapped_column(sa.String(16), default=QUEUED, index=True)
    lease: Mapped[str] = mapped_column(sa.String(32), default="")
    worker: Mapped[str] = mapped_column(sa.String(80), default="")
    beats: Mapped[int] = mapped_column(default=0)
    tries: Mapped[int] = mapped_column(default=0)
    board: Mapped[Board] = relationship()
    entry: Mapped[Entry | None] = relationship()


class History(Base):
    """What happened on a board, each line holding the hash of the one before."""

    __tablename__ = "board_history"
    __table_args__ = (sa.UniqueConstraint("board_id", "number"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    board_id: Mapped[int] = mapped_column(sa.ForeignKey("board.id"), index=True)
    number: Mapped[int]
    body: Mapped[str] = mapped_column(sa.Text)
    hash: Mapped[str] = mapped_column(sa.String(64))


_FIXED = {
    "board_history": ("id", "board_id", "number", "body", "hash"),
    "board_entry": ("id", "key", "board_id", "number", "team_id", "account_id", "system", "file_name", "digest",
                    "bytes", "created"),
}  # fmt: skip
"""Columns that never change once written."""
_ONCE = {"board_entry": ("scores", "final", "deleted")}
"""Columns that never change once they are not null."""


def _triggers(table: str) -> dict[str, list[str]]:
    fixed = " OR ".join(f"OLD.{c} IS DISTINCT FROM NEW.{c}" for c in _FIXED[table])
    once = "".join(
        f" OR (OLD.{c} IS NOT NULL AND CAST(OLD.{c} AS TEXT) IS DISTINCT FROM CAST(NEW.{c} AS TEXT))"
        for c in _ONCE.get(table, ())
    )
    message = f"{table} is only ever added to"
    changed = f"({fixed}{once})"
    lite = changed.replace("IS DISTINCT FROM", "IS NOT")
    return {
        "sqlite": [
            f"CREATE TRIGGER {table}_kept BEFORE DELETE ON {table} BEGIN SELECT RAISE(ABORT, '{message}'); END",
            f"CREATE TRIGGER {table}_fixed BEFORE UPDATE ON {table} WHEN {lite} "
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END",
        ],
        "postgresql": [
            f"CREATE OR REPLACE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
            f"$body$ BEGIN RAISE EXCEPTION '{message}' USING ERRCODE = 'integrity_constraint_violation'; END $body$",
            f"CREATE TRIGGER {table}_kept BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_refuse()",
            f"CREATE TRIGGER {table}_whole BEFORE TRUNCATE ON {table} EXECUTE FUNCTION {table}_refuse()",
            f"CREATE TRIGGER {table}_fixed BEFORE UPDATE ON {table} FOR EACH ROW WHEN {changed} "
            f"EXECUTE FUNCTION {table}_refuse()",
        ],
    }


for _table in (History, Entry):
    for _dialect, _statements in _triggers(_table.__tablename__).items():
        for _statement in _statements:
            event.listen(
                _table.__table__, "after_create", sa.DDL(_statement.replace("%", "%%")).execute_if(dialect=_dialect)
            )
