"""Studies: what a run asks goes in, answers come out; people get questions, leave drafts, send answers."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from assay.core.errors import DataError, UsageError
from assay.server.database import now
from assay.server.people import assignment
from assay.server.people.tables import Answer, Check, Draft, Medium, Question, Respondent, Slot, Study
from assay.systems import forms

AUDIO_FORMATS = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "webm": "audio/webm",
}
MEDIA_TYPES = {"image/png", "image/jpeg", "image/gif", "image/webp", *AUDIO_FORMATS.values()}
"""What is shown. SVG is not among them: it may hold scripts."""
SLACK_SECONDS = 2.0
ROLES = ("system", "developer", "user", "assistant", "tool")

# -- from the run ------------------------------------------------------------------------------------------------------


def open_study(
    session: Session, account: int, run: str, *, title: str, person: str, settings: Mapping[str, Any]
) -> Study:
    """The study of a run, made or opened again. Settings that are given now hold from now on."""
    study = session.scalar(sa.select(Study).where(Study.account_id == account, Study.run == run).with_for_update())
    if study is None:
        study = Study(account_id=account, run=run)
        session.add(study)
    elif study.person != person:
        raise UsageError(
            f"The run {run!r} asks {study.person or 'a panel'!r} already; it cannot ask {person or 'a panel'!r}."
        )
    study.title, study.person, study.open = title, person, True
    session.flush()
    items = {
        kind: [_item(session, study, item, f"{kind} item {n}") for n, item in enumerate(settings.get(kind, ()), 1)]
        for kind in ("practice", "attention")
    }
    study.settings = {**settings, **items}
    return study


def add_questions(session: Session, study: Study, given: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Take questions; those that are known stay as they are.

    Parameters
    ----------
    given
        ``id``, ``task``, ``sample``, ``attempt``, ``index`` (order), ``messages``, ``response_format``.

    Returns
    -------
    dict
        ``id`` to the question's public key.

    Raises
    ------
    DataError, UsageError
        A question cannot be shown: its messages, a part of them, or its form.
    """
    # An answer that is being written refers to the study's row: it must not wait for this, nor this for it.
    session.execute(sa.select(Study.id).where(Study.id == study.id).with_for_update(key_share=True))
    known_slots = sa.select(Slot).where(Slot.study_id == study.id).order_by(Slot.place)
    slots = {(s.task, s.sample, s.attempt): s for s in session.scalars(known_slots)}
    plan: assignment.Plan | None = None
    if study.settings.get("people"):
        plan = assignment.Plan(int(study.settings["people"]), int(study.settings.get("seed", 0)))
        for slot in slots.values():
            if slot.assigned is not None:
                plan.add((slot.task, slot.sample), slot.assigned)
    tasks = list(dict.fromkeys(t for t, _, _ in slots))
    asked: dict[str, str] = {}
    for one in given:
        key = (str(one["task"])[:200], str(one["sample"]), int(one["attempt"]))
        if len(key[1]) > 500:
            raise DataError(f"The sample id {key[1][:40]!r}... is longer than 500 characters.")
        slot = slots.get(key)
        if slot is None:
            if key[0] not in tasks:
                tasks.append(key[0])
            slot = Slot(
                study_id=study.id, task=key[0], sample=key[1], attempt=key[2],
                unit=f"{key[1]}#{key[2]}" if study.person else key[1],
                place=tasks.index(key[0]) * 1_000_000 + int(one.get("index", 0)),
                assigned=plan.assign(key[:2]) if plan else None, open_questions=0,
            )  # fmt: skip
            session.add(slot)
            session.flush()
            slots[key] = slot
        where = f"the question about {key[0]}/{key[1]}"
        content = _content(session, study, one["messages"], one.get("response_format"), where)
        name = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        known = session.scalar(sa.select(Question).where(Question.slot_id == slot.id, Question.digest == name))
        if known is None:
            known = Question(slot_id=slot.id, digest=name, content=content)
            session.add(known)
            # In the database, not here: an answer to another question of the slot may count down at this moment.
            more = sa.update(Slot).where(Slot.id == slot.id).values(open_questions=Slot.open_questions + 1)
            session.execute(more.execution_options(synchronize_session=False))
            session.flush()
        asked[one["id"]] = known.key
    return asked


def answers_after(session: Session, study: Study, after: int) -> tuple[int, list[dict[str, Any]]]:
    """How many answers there are, and those numbered above ``after``. Whoever has got fewer asks again from 0: numbers
    are given out before they are seen, so a slow one may come late."""
    counted = sa.select(Answer).where(Answer.study_id == study.id, Answer.question_id.is_not(None))
    count = session.scalar(sa.select(sa.func.count()).select_from(counted.subquery())) or 0
    found = session.scalars(counted.where(Answer.id > after).order_by(Answer.id)).unique().all()
    failed = _failed_checks(session, [a.respondent_id for a in found])
    return count, [
        {
            "number": a.id,
            "question": a.question.key if a.question else "",
            "reply": a.content["reply"],
            "respondent": a.respondent.pseudonym,
            "seconds": a.seconds,
            "position": a.position,
            "attention_failed": failed.get(a.respondent_id, 0),
        }
        for a in found
    ]


# -- people ------------------------------------------------------------------------------------------------------------


def join(session: Session, study: Study, account: int | None = None, pseudonym: str | None = None) -> Respondent:
    """A respondent of a study.

    A study that asks one person has one respondent: whoever holds the link goes on where they were, on any device. In
    a panel, everybody who joins is somebody new, except an account, which is one person.
    """
    session.execute(sa.select(Study.id).where(Study.id == study.id).with_for_update(key_share=True))
    everybody = sa.select(Respondent).where(Respondent.study_id == study.id)
    found = None
    if study.person:
        found = session.scalar(everybody.order_by(Respondent.number).limit(1))
    elif account is not None:
        found = session.scalar(everybody.where(Respondent.account_id == account))
    if found is not None:
        return found
    number = (session.scalar(sa.select(sa.func.max(Respondent.number)).where(Respondent.study_id == study.id)) or 0) + 1
    people = study.settings.get("people")
    if people and number > people:
        raise UsageError(f"This study is for {people} people, and as many have joined; thank you all the same.")
    if pseudonym is None or session.scalar(sa.select(Respondent.id).where(Respondent.pseudonym == pseudonym)):
        pseudonym = f"p-{secrets.token_hex(5)}"
    found = Respondent(study_id=study.id, number=number, account_id=account, pseudonym=pseudonym)
    session.add(found)
    session.flush()
    return found


def next_question(session: Session, study: Study, respondent: Respondent) -> dict[str, Any]:
    """What a respondent's page shows now: ``state`` is question, practice, attention, wait or done."""
    respondent.seen = now()
    progress = _progress(session, study, respondent)
    for kind in ("practice", "attention"):
        number = _due(session, study, respondent, kind, progress["done"])
        if number is not None:
            item = study.settings[kind][number]
            shown = _shown(item, _order(study, respondent, f"{kind}{number}"))
            # An attention item looks like any other.
            state = "practice" if kind == "practice" else "question"
            return {"state": state, "question": f"{kind}-{number}", **shown, "progress": progress}
    slot = assignment.claim(session, study, respondent) if study.open else None
    question = slot and session.scalar(
        sa.select(Question).where(Question.slot_id == slot.id, ~Question.answered).order_by(Question.id).limit(1)
    )
    if question is None:
        over = not study.open or (_limit(study) is not None and progress["done"] >= progress["total"])
        return {"state": "done" if over else "wait", "progress": progress}
    draft = session.get(Draft, (question.id, respondent.id))
    if draft is None:
        draft = Draft(question_id=question.id, respondent_id=respondent.id, content={}, seconds=0.0, shown=now())
        session.add(draft)
    return {
        "state": "question",
        "question": question.key,
        **_shown(question.content, _order(study, respondent, question.digest)),
        "draft": draft.content.get("value"),
        "seconds": draft.seconds,
        "progress": progress,
    }


def save_draft(session: Session, study: Study, respondent: Respondent, key: str, value: Any, seconds: float) -> bool:
    """Keep what is typed so far and renew the lease; False where the question is no longer theirs to answer."""
    question = _question(session, study, key)
    draft = question and session.get(Draft, (question.id, respondent.id))
    if question is None or draft is None:
        return False
    draft.content, draft.saved = {"value": value}, now()
    draft.seconds = max(draft.seconds, _believable(seconds, draft))
    respondent.seen = now()
    assignment.renew(session, study, respondent)
    return not question.answered and question.slot.respondent_id == respondent.id


def submit(
    session: Session, study: Study, respondent: Respondent, key: str, value: Any, seconds: float
) -> dict[str, Any]:
    """Take an answer. Sent twice it counts once; sent late it takes another free slot of the sample, or is kept apart.

    Returns
    -------
    dict
        ``taken``: counted, again (known already), late (kept apart), practice; for practice also ``passed``,
        ``expected`` and ``feedback``.

    Raises
    ------
    DataError
        The answer is not of the form.
    UsageError
        The question was never shown to this respondent.
    """
    session.execute(sa.select(Respondent.id).where(Respondent.id == respondent.id).with_for_update())
    respondent.seen = now()
    kind, _, number = key.partition("-")
    if kind in ("practice", "attention") and number.isdigit():
        return _submit_check(session, study, respondent, kind, int(number), value, seconds)
    question = _question(session, study, key)
    if question is not None:
        before = sa.select(Answer.id).where(Answer.asked_id == question.id, Answer.respondent_id == respondent.id)
        if session.scalar(before) is not None:
            return {"taken": "again"}
    draft = question and session.get(Draft, (question.id, respondent.id))
    if question is None or draft is None:
        raise UsageError("This question was not put to you; reload the page.")
    form = forms.read(question.content["response_format"])
    if fault := form.fault(value):
        raise DataError(f"The answer cannot be taken: {fault}.")
    target = _home(session, study, respondent, question)
    session.add(
        Answer(
            study_id=study.id, question_id=target and target.id, asked_id=question.id, respondent_id=respondent.id,
            position=assignment.answered(session, respondent) + 1,
            content={"value": value, "reply": form.reply(value), "order": _order(study, respondent, question.digest)},
            seconds=_believable(seconds, draft),
        )
    )  # fmt: skip
    if target is not None:
        target.answered = True
        closing = sa.update(Slot).where(Slot.id == target.slot_id)
        session.execute(closing.values(open_questions=Slot.open_questions - 1))
    session.delete(draft)
    session.flush()
    return {"taken": "late" if target is None else "counted"}


def take_break(session: Session, respondent: Respondent, seconds: float) -> None:
    """Count a break that is over."""
    respondent.breaks += 1
    respondent.break_seconds += min(max(seconds, 0.0), 30 * 86400.0)


# -- parts -------------------------------------------------------------------------------------------------------------


def _home(session: Session, study: Study, respondent: Respondent, question: Question) -> Question | None:
    """The question that an answer counts for: the one asked, while its slot is theirs and it is open; else the same
    question of a free slot; None = there is none."""
    mine = sa.update(Slot).where(Slot.id == question.slot_id, Slot.respondent_id == respondent.id)
    kept = session.execute(mine.values(lease_until=None).execution_options(synchronize_session=False))
    if kept.rowcount == 1:  # type: ignore[attr-defined]
        session.refresh(question)
        return None if question.answered else question
    others = (
        sa.select(Question)
        .join(Slot, Question.slot_id == Slot.id)
        .where(
            Slot.study_id == study.id, Slot.task == question.slot.task, Slot.unit == question.slot.unit,
            Question.digest == question.digest, ~Question.answered,
        )
        .order_by(Slot.attempt)
    )  # fmt: skip
    for other in session.scalars(others).all():
        if assignment.take(session, other.slot_id, respondent, None):
            return other
    return None


def _submit_check(
    session: Session, study: Study, respondent: Respondent, kind: str, number: int, value: Any, seconds: float
) -> dict[str, Any]:
    items = study.settings.get(kind, [])
    if number > _had(session, respondent, kind) or number >= len(items):
        raise UsageError("This question was not put to you; reload the page.")
    item = items[number]
    if fault := forms.read(item["response_format"]).fault(value):
        raise DataError(f"The answer cannot be taken: {fault}.")
    expected = item["expected"]
    passed = None if expected is None else value == expected
    known = sa.select(Check).where(Check.respondent_id == respondent.id, Check.kind == kind, Check.number == number)
    found = session.scalar(known)
    if found is None:
        seconds = min(max(float(seconds), 0.0), 86400.0)
        session.add(
            Check(
                respondent_id=respondent.id, kind=kind, number=number, content={"value": value}, passed=passed,
                seconds=seconds,
            )
        )  # fmt: skip
    elif kind == "attention":
        return {"taken": "again"}
    if kind == "attention":
        return {"taken": "counted"}
    return {"taken": "practice", "passed": passed, "expected": expected, "feedback": item["feedback"]}


def _due(session: Session, study: Study, respondent: Respondent, kind: str, done: int) -> int | None:
    """Number of the practice or attention item that comes now; None = none."""
    items = study.settings.get(kind, ())
    if not items:
        return None
    had = _had(session, respondent, kind)
    if had >= len(items):
        return None
    if kind == "practice":
        return had
    return had if done >= (had + 1) * int(study.settings.get("every", 10)) else None


def _had(session: Session, respondent: Respondent, kind: str) -> int:
    """How many practice or attention items a respondent has answered."""
    mine = sa.select(sa.func.count()).select_from(Check)
    return session.scalar(mine.where(Check.respondent_id == respondent.id, Check.kind == kind)) or 0


def _limit(study: Study) -> int | None:
    return study.settings.get("per_person")


def _progress(session: Session, study: Study, respondent: Respondent) -> dict[str, int]:
    """Answers given, and given and still to give; what there is to give may grow while the run asks on."""
    done = assignment.answered(session, respondent)
    free = sa.select(Slot.task, Slot.unit).where(assignment.eligible(study, respondent)).distinct()
    left = session.scalar(sa.select(sa.func.count()).select_from(free.subquery())) or 0
    mine = sa.select(sa.func.coalesce(sa.func.sum(Slot.open_questions), 0))
    left += session.scalar(mine.where(Slot.respondent_id == respondent.id, ~assignment.is_free())) or 0
    limit = _limit(study)
    return {"done": done, "total": done + left if limit is None else min(done + left, limit)}


def _failed_checks(session: Session, respondents: Sequence[int]) -> dict[int, int]:
    failed = sa.select(Check.respondent_id, sa.func.count()).where(
        Check.respondent_id.in_(set(respondents)), Check.kind == "attention", Check.passed.is_(False)
    )
    return {row[0]: row[1] for row in session.execute(failed.group_by(Check.respondent_id))}


def _question(session: Session, study: Study, key: str) -> Question | None:
    found = sa.select(Question).join(Slot, Question.slot_id == Slot.id)
    return session.scalar(found.where(Question.key == key, Slot.study_id == study.id))


def _believable(seconds: float, draft: Draft) -> float:
    """Seconds that a page claims, at most those since it was shown the question."""
    since = (now() - draft.shown).total_seconds() + SLACK_SECONDS
    return min(max(float(seconds), 0.0), since)


def _order(study: Study, respondent: Respondent, question: str) -> str:
    """What the page shuffles a form's items by: the same whenever this person sees this question."""
    return hashlib.sha256(f"{study.key} {respondent.key} {question}".encode()).hexdigest()[:16]


def _item(session: Session, study: Study, item: Any, where: str) -> dict[str, Any]:
    """A practice or attention item as it is kept."""
    if not isinstance(item, Mapping):
        raise DataError(f"The {where} must be an object with a list 'messages'.")
    asked, expected = item.get("response_format"), item.get("expected")
    form = forms.read(asked)
    if expected is not None and (fault := form.fault(expected)):
        raise DataError(f"The expected answer of the {where} is not of its form: {fault}.")
    return {
        **_content(session, study, item.get("messages"), asked, f"the {where}"),
        "expected": expected,
        "feedback": str(item.get("feedback", "")),
    }


def _content(session: Session, study: Study, messages: Any, response_format: Any, where: str) -> dict[str, Any]:
    """Messages and form of a question as they are kept."""
    form = forms.read(response_format)
    stored = _stored(session, study, messages, where)
    media = sum(part["type"] != "text" for message in stored for part in message["parts"])
    if any(part >= media for part in form.parts()):
        raise DataError(
            f"The form of {where} points at part {max(form.parts())}, and its messages hold {media} (from 0)."
        )
    return {"messages": stored, "response_format": response_format}


def _stored(session: Session, study: Study, messages: Any, where: str) -> list[dict[str, Any]]:
    """Messages with their pictures and recordings put away: what is left holds text and digests only."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise DataError(f"The messages of {where} must be a list of at least one.")
    found = []
    for message in messages:
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise DataError(f"A message of {where} has no role of {', '.join(ROLES)}.")
        content = message.get("content")
        parts = [{"type": "text", "text": content or ""}] if content is None or isinstance(content, str) else content
        if not isinstance(parts, Sequence):
            raise DataError(f"The content of a message of {where} must be a text or a list of parts.")
        found.append({"role": message["role"], "parts": [_stored_part(session, study, p, where) for p in parts]})
    return found


def _stored_part(session: Session, study: Study, part: Any, where: str) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind == "image_url" and isinstance(part.get("image_url"), Mapping):
        url = part["image_url"].get("url")
        head, comma, data = str(url).partition(",")
        if not head.startswith("data:") or not comma or not head.endswith(";base64"):
            raise DataError(
                f"A picture of {where} is an address; people are shown data alone (data:image/png;base64,...)."
            )
        return {"type": "image", "medium": _put(session, study, head[5:-7], data, where)}
    if kind == "input_audio" and isinstance(part.get("input_audio"), Mapping):
        audio = part["input_audio"]
        media_type = AUDIO_FORMATS.get(str(audio.get("format")))
        if media_type is None:
            raise DataError(
                f"A recording of {where} has the format {audio.get('format')!r}; {', '.join(AUDIO_FORMATS)} are played."
            )
        return {"type": "audio", "medium": _put(session, study, media_type, str(audio.get("data")), where)}
    raise DataError(f"A part of {where} is of type {kind!r}; people are shown text, image_url and input_audio.")


def _put(session: Session, study: Study, media_type: str, data: str, where: str) -> str:
    if media_type not in MEDIA_TYPES:
        raise DataError(f"A part of {where} is {media_type[:40]!r}; people are shown {', '.join(sorted(MEDIA_TYPES))}.")
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"The {media_type} of {where} is not base64.") from None
    name = hashlib.sha256(media_type.encode() + b" " + raw).hexdigest()
    if session.get(Medium, (study.id, name)) is None:
        session.add(Medium(study_id=study.id, digest=name, type=media_type, data=raw))
        session.flush()
    return name


def _shown(content: Mapping[str, Any], order: str) -> dict[str, Any]:
    """What a page needs of a question."""
    return {"messages": content["messages"], "form": forms.read(content["response_format"]).json(), "order": order}
