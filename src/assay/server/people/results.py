"""What comes of a study while it runs and after: progress, agreement, an export that knows pseudonyms only."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, joinedload

from assay.server.people.tables import Answer, Check, Medium, Question, Respondent, Slot, Study
from assay.systems import forms

LEAST_RATED = 2
"""Items with two answers or more before a number is shown."""
RESAMPLES, MOST_RESAMPLED = 200, 2000
MOST_UNITS = 2000
"""Items of one question: a grouping of 500 texts has 124,750 pairs, and a long text as many characters."""


def overview(session: Session, study: Study) -> dict[str, Any]:
    """Counts, people, agreement."""
    slots = session.execute(
        sa.select(sa.func.count(), sa.func.count(sa.func.distinct(Slot.place))).where(Slot.study_id == study.id)
    ).one()
    asked = sa.select(sa.func.count()).select_from(Question).join(Slot, Question.slot_id == Slot.id)
    asked = asked.where(Slot.study_id == study.id)
    answers = list(
        session.scalars(
            sa.select(Answer)
            .where(Answer.study_id == study.id)
            .options(joinedload(Answer.asked).joinedload(Question.slot), joinedload(Answer.respondent))
            .order_by(Answer.id)
        )
    )
    counted = [a for a in answers if a.question_id is not None]
    return {
        "key": study.key,
        "title": study.title,
        "run": study.run,
        "person": study.person,
        "open": study.open,
        "slots": slots[0],
        "samples": slots[1],
        "questions": session.scalar(asked) or 0,
        "answered": len(counted),
        "late": len(answers) - len(counted),
        "respondents": _people(session, study, answers),
        "agreement": agreement(counted, study.id),
    }


def _people(session: Session, study: Study, answers: Sequence[Answer]) -> list[dict[str, Any]]:
    checks: dict[int, list[Check]] = defaultdict(list)
    found = sa.select(Check).join(Respondent, Check.respondent_id == Respondent.id)
    for check in session.scalars(found.where(Respondent.study_id == study.id)):
        checks[check.respondent_id].append(check)
    mine: dict[int, list[Answer]] = defaultdict(list)
    for answer in answers:
        mine[answer.respondent_id].append(answer)
    everybody = session.scalars(
        sa.select(Respondent).where(Respondent.study_id == study.id).order_by(Respondent.number)
    )
    return [
        {
            "respondent": who.pseudonym,
            "answers": len(mine[who.id]),
            "median_seconds": median(a.seconds for a in mine[who.id]) if mine[who.id] else None,
            "practice": sum(c.kind == "practice" for c in checks[who.id]),
            "attention_passed": sum(c.kind == "attention" and c.passed is True for c in checks[who.id]),
            "attention_failed": sum(c.kind == "attention" and c.passed is False for c in checks[who.id]),
            "breaks": who.breaks,
            "break_seconds": who.break_seconds,
            "seen": who.seen.isoformat(timespec="seconds"),
        }
        for who in everybody
    ]


def agreement(answers: Sequence[Answer], seed: int = 0) -> list[dict[str, Any]]:
    """Krippendorff's alpha a task and kind of form, over what two people or more have answered.

    Items are what `forms.Form.units` says: a choice, a rating, each item of a ranking, each pair of a grouping. The
    95 % interval draws samples with their items; it is left out where that would take long.
    """
    tables: dict[tuple[str, str, str], dict[tuple[str, str, str], dict[int, Any]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for answer in answers:
        form = forms.read(answer.asked.content["response_format"])
        slot = answer.asked.slot
        for unit, rating in _drawn(form.units(answer.content["value"]), answer.asked.digest).items():
            item = (slot.sample, answer.asked.digest, unit)
            # Nominal ratings of several types (texts, numbers, yes and no) are told apart by their names.
            rating = rating if rating is None or form.level != "nominal" else repr(rating)
            tables[slot.task, form.kind, form.level][item][answer.respondent_id] = rating
    found = []
    for (task, kind, level), items in tables.items():
        shared = {i: by for i, by in items.items() if sum(r is not None for r in by.values()) > 1}
        samples = {i[0] for i in shared}
        alpha, low, high = _alpha(shared, level, seed)
        found.append(
            {
                "task": task,
                "form": kind,
                "level": level,
                "alpha": alpha,
                "low": low,
                "high": high,
                "items": len(shared),
                "samples": len(samples),
                "people": len({r for by in shared.values() for r in by}),
                "same": _same(shared.values()),
            }
        )
    return found


def _drawn(units: dict[str, Any], question: str) -> dict[str, Any]:
    """At most `MOST_UNITS` items of a question, the same ones for everybody who answers it."""
    if len(units) <= MOST_UNITS:
        return units
    return {unit: units[unit] for unit in random.Random(question).sample(sorted(units), MOST_UNITS)}


def _alpha(
    shared: Mapping[tuple[str, str, str], Mapping[int, Any]], level: str, seed: int
) -> tuple[float | None, float | None, float | None]:
    """Alpha with its interval; None where it is undefined."""
    import numpy as np

    from assay.core.stats.agreement import bootstrap_agreement, krippendorff_alpha

    if len(shared) < LEAST_RATED:
        return None, None, None
    people = sorted({p for by in shared.values() for p in by})
    clusters: dict[str, list[list[Any]]] = defaultdict(list)
    for item, by in shared.items():
        clusters[item[0]].append([by.get(p) for p in people])
    columns = list(clusters.values())

    def statistic(drawn: Any) -> float:
        items = [column for n in drawn for column in columns[n]]
        return krippendorff_alpha(list(zip(*items)), level=level)  # type: ignore[arg-type]

    alpha = statistic(range(len(columns)))
    if math.isnan(alpha):
        return None, None, None
    if len(columns) < LEAST_RATED or len(shared) > MOST_RESAMPLED:
        return alpha, None, None
    low, high = bootstrap_agreement(statistic, len(columns), resamples=RESAMPLES, rng=np.random.default_rng(seed))
    return (alpha, None, None) if math.isnan(low) or math.isnan(high) else (alpha, low, high)


def _same(items: Any) -> float | None:
    """Share of pairs of answers to one item that are equal, each item counting once."""
    shares = []
    for by in items:
        given = [r for r in by.values() if r is not None]
        pairs = len(given) * (len(given) - 1) / 2
        equal = sum(a == b for n, a in enumerate(given) for b in given[n + 1 :])
        shares.append(equal / pairs)
    return sum(shares) / len(shares) if shares else None


def export(session: Session, study: Study) -> Iterator[dict[str, Any]]:
    """A line an answer, practice and attention included. Nobody's name, account or address is in it."""
    answers = (
        sa.select(Answer)
        .where(Answer.study_id == study.id)
        .options(joinedload(Answer.asked).joinedload(Question.slot), joinedload(Answer.respondent))
        .order_by(Answer.id)
    )
    for a in session.scalars(answers):
        # The attempt that it counts for may be another one than the one asked.
        slot = a.question.slot if a.question is not None else a.asked.slot
        yield {
            "kind": "answer" if a.question_id is not None else "late",
            "task": slot.task,
            "sample": slot.sample,
            "attempt": slot.attempt if a.question_id is not None else None,
            "respondent": a.respondent.pseudonym,
            "position": a.position,
            "form": forms.read(a.asked.content["response_format"]).kind,
            "value": a.content["value"],
            "reply": a.content["reply"],
            "order": a.content["order"],
            "seconds": round(a.seconds, 3),
            "given": a.given.isoformat(timespec="milliseconds"),
        }
    checks = sa.select(Check, Respondent.pseudonym).join(Respondent, Check.respondent_id == Respondent.id)
    for check, pseudonym in session.execute(checks.where(Respondent.study_id == study.id).order_by(Check.id)):
        yield {
            "kind": check.kind,
            "number": check.number + 1,
            "respondent": pseudonym,
            "value": check.content["value"],
            "passed": check.passed,
            "seconds": round(check.seconds, 3),
            "given": check.given.isoformat(timespec="milliseconds"),
        }


def medium(session: Session, study: Study, digest: str) -> Medium | None:
    """A picture or recording of a study."""
    return session.get(Medium, (study.id, digest))
