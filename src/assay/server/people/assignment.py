"""Who answers what: overlap designs, and leases on slots that no two people can hold at once."""

from __future__ import annotations

import datetime as dt
import hashlib

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased

from assay.core.errors import UsageError
from assay.server.database import now
from assay.server.people.tables import Answer, Respondent, Slot, Study

CANDIDATES = 25
"""Slots tried before giving up for this time; each fails only when somebody else took it just now."""


class Plan:
    """Gives every slot to one of ``people`` (numbers from 1), no sample to anybody twice.

    The next slot goes to whoever has least to do; among those, to whoever has shared the fewest samples with those who
    have this one already, so that every two people come to compare; ties fall by ``seed``. When the slots of a sample
    come together, loads never differ by more than one.
    """

    def __init__(self, people: int, seed: int = 0) -> None:
        if people < 1:
            raise UsageError(f"A plan is for one person or more, not for {people}.")
        self.people = people
        self.seed = seed
        self.load = [0] * (people + 1)
        self.shared = [[0] * (people + 1) for _ in range(people + 1)]
        self._members: dict[tuple[str, str], list[int]] = {}

    def add(self, unit: tuple[str, str], person: int) -> None:
        """Count a slot of the sample ``unit`` that was given away before."""
        members = self._members.setdefault(unit, [])
        self.load[person] += 1
        for other in members:
            self.shared[person][other] += 1
            self.shared[other][person] += 1
        members.append(person)

    def assign(self, unit: tuple[str, str]) -> int:
        """Who gets the next slot of a sample.

        Raises
        ------
        UsageError
            Everybody has one already: more attempts than people.
        """
        members = self._members.get(unit, [])
        rest = [p for p in range(1, self.people + 1) if p not in members]
        if not rest:
            raise UsageError(f"The plan is for {self.people} people, and {unit[1]!r} has more attempts than that.")

        def cost(p: int) -> tuple[int, int, bytes]:
            return self.load[p], sum(self.shared[p][q] for q in members), _toss(self.seed, unit, p)

        person = min(rest, key=cost)
        self.add(unit, person)
        return person


def _toss(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()


def lease_of(study: Study) -> dt.timedelta:
    """How long a slot stays with somebody who does nothing."""
    return dt.timedelta(minutes=float(study.settings.get("lease", 30)))


def held(session: Session, respondent: Respondent) -> Slot | None:
    """The slot that a respondent has in hand: theirs, with a question open, whether the lease is running or not."""
    return session.scalar(
        sa.select(Slot)
        .where(Slot.respondent_id == respondent.id, Slot.open_questions > 0)
        .order_by(Slot.place, Slot.attempt)
        .limit(1)
    )


def claim(session: Session, study: Study, respondent: Respondent) -> Slot | None:
    """A slot for a respondent: the one in hand, else a free one by the study's plan; None = none is left for them.

    The respondent's row is locked meanwhile, so that their second window gets the same slot as the first.
    """
    session.execute(sa.select(Respondent.id).where(Respondent.id == respondent.id).with_for_update())
    until = now() + lease_of(study)
    slot = held(session, respondent)
    if slot is not None:
        # A lease without an end is theirs for good; one that ran out may have been taken since it was read.
        keep = sa.update(Slot).where(Slot.id == slot.id, Slot.respondent_id == respondent.id)
        kept = keep.values(lease_until=sa.case((Slot.lease_until.is_(None), None), else_=until))
        if _changed(session, kept):
            session.refresh(slot)
            return slot
    limit = study.settings.get("per_person")
    if limit is not None and answered(session, respondent) >= limit:
        return None
    for number in _free(session, study, respondent):
        if take(session, number, respondent, until):
            return session.get(Slot, number, populate_existing=True)
    return None


def take(session: Session, slot: int, respondent: Respondent, until: dt.datetime | None) -> bool:
    """Give a slot to a respondent if it is still free; at most one of any number of callers gets True."""
    taking = sa.update(Slot).where(Slot.id == slot, is_free(), Slot.open_questions > 0)
    try:
        with session.begin_nested():
            return _changed(session, taking.values(respondent_id=respondent.id, lease_until=until))
    except IntegrityError:
        # They hold another slot of the same sample.
        return False


def renew(session: Session, study: Study, respondent: Respondent) -> None:
    """Push the end of a running lease on: the page is open and in use."""
    running = sa.update(Slot).where(Slot.respondent_id == respondent.id, Slot.lease_until.is_not(None))
    session.execute(running.values(lease_until=now() + lease_of(study)).execution_options(synchronize_session=False))


def answered(session: Session, respondent: Respondent) -> int:
    """Answers that a respondent has given."""
    count = sa.select(sa.func.count()).select_from(Answer).where(Answer.respondent_id == respondent.id)
    return session.scalar(count) or 0


def eligible(study: Study, respondent: Respondent) -> sa.ColumnElement[bool]:
    """Slots open to a respondent: free, of samples they have no part in, theirs by the plan where there is one."""
    mine = aliased(Slot)
    known = sa.exists().where(
        mine.study_id == study.id,
        mine.task == Slot.task,
        mine.unit == Slot.unit,
        mine.respondent_id == respondent.id,
    )
    wanted = sa.and_(Slot.study_id == study.id, Slot.open_questions > 0, is_free(), ~known)
    if study.settings.get("people"):
        wanted = sa.and_(wanted, Slot.assigned == respondent.number)
    return wanted


def _free(session: Session, study: Study, respondent: Respondent) -> list[int]:
    # Somebody who is asked twice is not asked twice in a row.
    by_layer = study.settings.get("plan") == "spread" or bool(study.person)
    order = (Slot.attempt, Slot.place) if by_layer else (Slot.place, Slot.attempt)
    found = sa.select(Slot.id, Slot.place, Slot.attempt).where(eligible(study, respondent)).order_by(*order)
    if study.settings.get("order") != "random":
        return [row.id for row in session.execute(found.limit(CANDIDATES))]
    seed = study.settings.get("seed", 0)

    def drawn(row: sa.Row) -> tuple[int, bytes]:
        return row.attempt if by_layer else 0, _toss(seed, respondent.number, row.place)

    return [row.id for row in sorted(session.execute(found), key=drawn)[:CANDIDATES]]


def is_free() -> sa.ColumnElement[bool]:
    """Slots that anybody may take: nobody's, or of a lease that ran out."""
    return sa.or_(Slot.respondent_id.is_(None), Slot.lease_until < now())


def _changed(session: Session, statement: sa.Update) -> bool:
    return session.execute(statement.execution_options(synchronize_session=False)).rowcount == 1  # type: ignore[attr-defined]
