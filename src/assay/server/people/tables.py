"""Tables of studies: a slot is one trial to be answered by one person, its questions are the calls of that trial."""

from __future__ import annotations

import datetime as dt
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column, relationship

from assay.server.accounts import new_key
from assay.server.database import Base, now


class Study(Base):
    """The questions of one run. ``person`` is whose answers it wants; empty = a panel, open to whoever has the link."""

    __tablename__ = "people_study"
    __table_args__ = (sa.UniqueConstraint("account_id", "run"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(32), unique=True, default=new_key)
    account_id: Mapped[int] = mapped_column(sa.ForeignKey("account.id"), index=True)
    run: Mapped[str] = mapped_column(sa.String(300))
    title: Mapped[str] = mapped_column(sa.String(300), default="")
    person: Mapped[str] = mapped_column(sa.String(64), default="")
    settings: Mapped[dict[str, Any]] = mapped_column(default=dict)
    open: Mapped[bool] = mapped_column(default=True)
    created: Mapped[dt.datetime] = mapped_column(default=now)


class Respondent(Base):
    """Somebody in a study. Exports know the pseudonym alone; their cookie holds ``key``, signed."""

    __tablename__ = "people_respondent"
    __table_args__ = (
        sa.UniqueConstraint("study_id", "number"),
        sa.UniqueConstraint("study_id", "account_id"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(sa.ForeignKey("people_study.id"), index=True)
    number: Mapped[int]
    account_id: Mapped[int | None] = mapped_column(sa.ForeignKey("account.id"))
    pseudonym: Mapped[str] = mapped_column(sa.String(32), unique=True)
    key: Mapped[str] = mapped_column(sa.String(32), unique=True, default=new_key)
    joined: Mapped[dt.datetime] = mapped_column(default=now)
    seen: Mapped[dt.datetime] = mapped_column(default=now)
    breaks: Mapped[int] = mapped_column(default=0)
    break_seconds: Mapped[float] = mapped_column(default=0.0)
    study: Mapped[Study] = relationship()


class Slot(Base):
    """One attempt at one sample. It is free, leased (``lease_until``), or its respondent's for good (no end).

    The second constraint is the rule of panels: nobody answers one ``unit`` twice. That is the sample; where one person
    is asked alone, it is the attempt at the sample, so that they can be asked again.
    """

    __tablename__ = "people_slot"
    __table_args__ = (
        sa.UniqueConstraint("study_id", "task", "sample", "attempt"),
        sa.UniqueConstraint("study_id", "task", "unit", "respondent_id"),
        sa.Index("people_slot_order", "study_id", "place", "attempt"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(sa.ForeignKey("people_study.id"))
    task: Mapped[str] = mapped_column(sa.String(200))
    sample: Mapped[str] = mapped_column(sa.String(500))
    attempt: Mapped[int]
    unit: Mapped[str] = mapped_column(sa.String(520))
    place: Mapped[int]
    assigned: Mapped[int | None]
    respondent_id: Mapped[int | None] = mapped_column(sa.ForeignKey("people_respondent.id"), index=True)
    lease_until: Mapped[dt.datetime | None]
    open_questions: Mapped[int] = mapped_column(default=0)


class Question(Base):
    """One call of a trial: messages (pictures and recordings as digests) and form. ``digest`` is of what was asked."""

    __tablename__ = "people_question"
    __table_args__ = (sa.UniqueConstraint("slot_id", "digest"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(32), unique=True, default=new_key)
    slot_id: Mapped[int] = mapped_column(sa.ForeignKey("people_slot.id"), index=True)
    digest: Mapped[str] = mapped_column(sa.String(64))
    content: Mapped[dict[str, Any]]
    answered: Mapped[bool] = mapped_column(default=False)
    slot: Mapped[Slot] = relationship()


class Medium(Base):
    """A picture or recording, kept once a study."""

    __tablename__ = "people_medium"
    study_id: Mapped[int] = mapped_column(sa.ForeignKey("people_study.id"), primary_key=True)
    digest: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    type: Mapped[str] = mapped_column(sa.String(40))
    data: Mapped[bytes] = mapped_column(sa.LargeBinary)


class Answer(Base):
    """What somebody sent. ``question_id`` is empty for one that came when its slot was another's and none was free:
    it is kept and exported, and counts for no trial."""

    __tablename__ = "people_answer"
    __table_args__ = (sa.UniqueConstraint("asked_id", "respondent_id"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    study_id: Mapped[int] = mapped_column(sa.ForeignKey("people_study.id"), index=True)
    question_id: Mapped[int | None] = mapped_column(sa.ForeignKey("people_question.id"), unique=True)
    asked_id: Mapped[int] = mapped_column(sa.ForeignKey("people_question.id"))
    respondent_id: Mapped[int] = mapped_column(sa.ForeignKey("people_respondent.id"), index=True)
    position: Mapped[int]
    content: Mapped[dict[str, Any]]
    seconds: Mapped[float]
    given: Mapped[dt.datetime] = mapped_column(default=now)
    question: Mapped[Question | None] = relationship(foreign_keys=[question_id])
    asked: Mapped[Question] = relationship(foreign_keys=[asked_id])
    respondent: Mapped[Respondent] = relationship()


class Draft(Base):
    """What somebody has typed so far, and the active seconds until then; made when the question is first shown."""

    __tablename__ = "people_draft"
    question_id: Mapped[int] = mapped_column(sa.ForeignKey("people_question.id"), primary_key=True)
    respondent_id: Mapped[int] = mapped_column(sa.ForeignKey("people_respondent.id"), primary_key=True)
    content: Mapped[dict[str, Any]] = mapped_column(default=dict)
    seconds: Mapped[float] = mapped_column(default=0.0)
    shown: Mapped[dt.datetime] = mapped_column(default=now)
    saved: Mapped[dt.datetime] = mapped_column(default=now)


class Check(Base):
    """An answer to a practice or attention item. ``passed`` is None where the item has no expected answer."""

    __tablename__ = "people_check"
    __table_args__ = (sa.UniqueConstraint("respondent_id", "kind", "number"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    respondent_id: Mapped[int] = mapped_column(sa.ForeignKey("people_respondent.id"), index=True)
    kind: Mapped[str] = mapped_column(sa.String(16))
    number: Mapped[int]
    content: Mapped[dict[str, Any]]
    passed: Mapped[bool | None]
    seconds: Mapped[float]
    given: Mapped[dt.datetime] = mapped_column(default=now)
