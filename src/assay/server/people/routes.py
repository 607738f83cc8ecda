"""Pages and addresses of studies: for people who answer, for whoever asks, for the run that waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Form, Query
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from assay.core.errors import DataError
from assay.server.accounts import Account, audit, fold
from assay.server.people import results, studies
from assay.server.people.tables import Respondent, Slot, Study
from assay.server.security import Viewer, address_of, person_cookie, set_cookie, signed, unsigned
from assay.server.settings import Settings
from assay.server.web import GUEST_HOURS, Config, Db, SignedIn, SignInNeeded, Submitter, Who, go_to, render

router = APIRouter()
JOINED = 500
"""Studies of a list at most."""


class Item(BaseModel):
    """A practice or attention item."""

    messages: list[dict[str, Any]] = Field(min_length=1, max_length=200)
    response_format: dict[str, Any] | None = None
    expected: Any = None
    feedback: str = Field(default="", max_length=2000)


class StudySettings(BaseModel):
    """How a study goes; see `assay.systems.human.HumanModel`."""

    practice: list[Item] = Field(default=[], max_length=100)
    attention: list[Item] = Field(default=[], max_length=100)
    every: int = Field(default=10, ge=1, le=10_000)
    order: str = Field(default="given", pattern="^(given|random)$")
    plan: str = Field(default="fill", pattern="^(fill|spread)$")
    people: int | None = Field(default=None, ge=1, le=1000)
    per_person: int | None = Field(default=None, ge=1, le=1_000_000)
    lease: float = Field(default=30.0, gt=0, le=60 * 24 * 365, allow_inf_nan=False)
    seed: int = Field(default=0, ge=0, le=2**31)
    instructions: str = Field(default="", max_length=50_000)


class NewStudy(BaseModel):
    """What a run says before it asks."""

    run: str = Field(min_length=1, max_length=300)
    title: str = Field(default="", max_length=300)
    person: str = Field(default="", max_length=64)
    settings: StudySettings = StudySettings()


class NewQuestion(BaseModel):
    """One call of a trial."""

    id: str = Field(min_length=1, max_length=100)
    task: str = Field(max_length=200)
    sample: str = Field(max_length=500)
    attempt: int = Field(default=0, ge=0, le=1_000_000)
    index: int = Field(default=0, ge=0, le=999_999)
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=2000)
    response_format: dict[str, Any] | None = None


class Questions(BaseModel):
    """Some of a run's questions."""

    questions: list[NewQuestion] = Field(max_length=2000)


class Sent(BaseModel):
    """What a page sends: a draft, or an answer."""

    question: str = Field(max_length=64)
    value: Any = None
    seconds: float = Field(default=0.0, ge=0, le=1e8, allow_inf_nan=False)


class BreakTaken(BaseModel):
    """A break that is over."""

    seconds: float = Field(ge=0, le=1e8, allow_inf_nan=False)


# -- the run -----------------------------------------------------------------------------------------------------------


@router.post("/api/people/studies")
def make_study(db: Db, settings: Config, who: Submitter, given: NewStudy) -> dict[str, str]:
    """The study of a run, made or found again; ``link`` is for the people who answer."""
    options = given.settings.model_dump()
    _sound(options)
    with db.session() as session:
        study = studies.open_study(
            session, who.id, given.run, title=given.title or given.run, person=given.person, settings=options
        )
        return {
            "study": study.key,
            "link": _link(settings, study),
            "overview": f"{settings.url}/people/{study.key}/overview",
        }


@router.post("/api/people/studies/{key}/questions")
def ask(db: Db, who: Submitter, key: str, given: Questions) -> dict[str, Any]:
    """Put questions; those put before are found again."""
    listed = [q.model_dump() for q in given.questions]
    _sound(listed)
    with db.session() as session:
        return {"questions": studies.add_questions(session, _own(session, who, key), listed)}


@router.get("/api/people/studies/{key}/answers")
def answers(db: Db, who: Submitter, key: str, after: Annotated[int, Query(ge=0, le=2**31)] = 0) -> dict[str, Any]:
    """Answers numbered above ``after``, and how many there are in all."""
    with db.reading() as session:
        count, found = studies.answers_after(session, _own(session, who, key), after)
    return {"count": count, "answers": found}


@router.get("/api/people/studies")
def list_studies(db: Db, settings: Config, who: SignedIn) -> list[dict[str, Any]]:
    """Studies of one's own, or that one may take part in."""
    with db.reading() as session:
        return [
            {"study": s.key, "title": s.title, "run": s.run, "open": s.open, "own": _owns(who, s)}
            | ({"link": _link(settings, s)} if _owns(who, s) else {})
            for s in _listed(session, who)
        ]


@router.get("/api/people/studies/{key}")
def show_study(db: Db, who: Submitter, key: str) -> dict[str, Any]:
    """How a study goes."""
    with db.reading() as session:
        return results.overview(session, _own(session, who, key))


@router.post("/api/people/studies/{key}/close")
def close_study(db: Db, who: Submitter, key: str) -> dict[str, bool]:
    """Hand out no more questions."""
    with db.session() as session:
        _own(session, who, key).open = False
    return {"open": False}


@router.get("/people/{key}/export.jsonl")
def export_page(request: Request, db: Db, who: Submitter, key: str) -> Response:
    """The export as a file to save."""
    return export_study(request, db, who, key)


@router.get("/api/people/studies/{key}/export")
def export_study(request: Request, db: Db, who: Submitter, key: str) -> Response:
    """All answers as JSON lines, under pseudonyms."""
    with db.session() as session:
        study = _own(session, who, key)
        audit(session, "study exported", study.key, actor=who.name, address=address_of(request))

    def lines() -> Iterator[str]:
        with db.reading() as session:
            for row in results.export(session, session.get_one(Study, study.id)):
                yield json.dumps(row, ensure_ascii=False) + "\n"

    name = {"content-disposition": f'attachment; filename="answers-{study.key}.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=name)


# -- whoever asks ------------------------------------------------------------------------------------------------------


@router.get("/people")
def people_page(request: Request, db: Db, settings: Config, who: SignedIn) -> Response:
    """Studies to answer, and studies of one's own."""
    with db.reading() as session:
        listed = _listed(session, who)
        joined = set(session.scalars(sa.select(Respondent.study_id).where(Respondent.account_id == who.id)))
        own = [{"study": s, "link": _link(settings, s), **_counts(session, s)} for s in listed if _owns(who, s)]
        open_ = [{"study": s, "joined": s.id in joined} for s in listed if s.open and _invited(who, s)]
        return render(request, "people/list.html.j2", own=own, open=open_)


@router.get("/people/{key}/overview")
def overview_page(request: Request, db: Db, settings: Config, who: Submitter, key: str) -> Response:
    """How a study goes: progress, people, agreement; it looks again by itself."""
    with db.reading() as session:
        study = _own(session, who, key)
        return render(
            request, "people/overview.html.j2",
            study=study, link=_link(settings, study), found=results.overview(session, study),
        )  # fmt: skip


@router.post("/people/{key}/state")
def change_state(
    request: Request, db: Db, who: Submitter, key: str, open: Annotated[str, Form(max_length=3)] = "no"
) -> Response:
    """Close a study, or open it again."""
    wanted = open == "yes"
    with db.session() as session:
        study = _own(session, who, key)
        study.open = wanted
        audit(
            session,
            "study opened" if wanted else "study closed",
            study.key,
            actor=who.name,
            address=address_of(request),
        )
    return go_to(f"/people/{key}/overview")


# -- people who answer -------------------------------------------------------------------------------------------------


@router.get("/people/join/{token}")
def welcome(request: Request, db: Db, settings: Config, token: str) -> Response:
    """What a link shows first: what it is about."""
    with db.reading() as session:
        study = _linked(session, settings, token)
        return render(request, "people/welcome.html.j2", study=study, action=f"/people/join/{token}")


@router.post("/people/join/{token}")
def join_by_link(request: Request, db: Db, settings: Config, who: Who, token: str) -> Response:
    """Begin, or go on."""
    with db.session() as session:
        study = _linked(session, settings, token)
        # In a browser that has joined before, the same person goes on.
        known = _respondent(session, request, settings, who, study)
        respondent = known or _join(session, study, who)
        return _with_cookie(settings, study, respondent)


@router.post("/people/{key}/join")
def join_by_account(db: Db, settings: Config, who: SignedIn, key: str) -> Response:
    """Begin with an account instead of a link."""
    with db.session() as session:
        study = _study(session, key)
        if not (study.open and _invited(who, study)):
            raise HTTPException(403, "This study is not open to you; ask whoever runs it for its link.")
        return _with_cookie(settings, study, _join(session, study, who))


@router.get("/people/{key}")
def answer_page(request: Request, db: Db, settings: Config, who: Who, key: str) -> Response:
    """Where questions are answered."""
    with db.reading() as session:
        study = _study(session, key)
        if _respondent(session, request, settings, who, study) is None:
            if _owns(who, study):
                return go_to(f"/people/{key}/overview")
            if not who.via:
                raise SignInNeeded
            raise HTTPException(403, "Open the link that you were sent: it lets you into this study.")
        return render(request, "people/answer.html.j2", study=study)


@router.get("/people/{key}/next")
def next_question(request: Request, db: Db, settings: Config, who: Who, key: str) -> dict[str, Any]:
    """The question that this person has now."""
    with db.session() as session:
        study, respondent = _here(session, request, settings, who, key)
        return studies.next_question(session, study, respondent)


@router.post("/people/{key}/draft")
def draft(request: Request, db: Db, settings: Config, who: Who, key: str, sent: Sent) -> dict[str, bool]:
    """Keep what is typed so far; ``yours`` is False when the lease ran out and somebody else has the question."""
    _sound(sent.value)
    with db.session() as session:
        study, respondent = _here(session, request, settings, who, key)
        return {"yours": studies.save_draft(session, study, respondent, sent.question, sent.value, sent.seconds)}


@router.post("/people/{key}/answer")
def answer(request: Request, db: Db, settings: Config, who: Who, key: str, sent: Sent) -> dict[str, Any]:
    """Take an answer and give the next question."""
    _sound(sent.value)
    with db.session() as session:
        study, respondent = _here(session, request, settings, who, key)
        taken = studies.submit(session, study, respondent, sent.question, sent.value, sent.seconds)
    with db.session() as session:
        study, respondent = _here(session, request, settings, who, key)
        return {**taken, "next": studies.next_question(session, study, respondent)}


@router.post("/people/{key}/break")
def end_break(request: Request, db: Db, settings: Config, who: Who, key: str, sent: BreakTaken) -> dict[str, int]:
    """Count a break that is over."""
    with db.session() as session:
        _, respondent = _here(session, request, settings, who, key)
        studies.take_break(session, respondent, sent.seconds)
        return {"breaks": respondent.breaks}


@router.get("/people/{key}/media/{digest}")
def media(request: Request, db: Db, settings: Config, who: Who, key: str, digest: str) -> Response:
    """A picture or recording of a study, for its people and its owner."""
    with db.reading() as session:
        study = _study(session, key)
        if _respondent(session, request, settings, who, study) is None and not _owns(who, study):
            raise HTTPException(403, "This belongs to a study that you are not part of.")
        found = results.medium(session, study, digest)
        if found is None:
            raise HTTPException(404, "There is no such picture or recording.")
        kept = {"cache-control": "private, max-age=86400, immutable"}
        return Response(found.data, media_type=found.type, headers=kept)


# -- parts -------------------------------------------------------------------------------------------------------------


def _sound(value: Any) -> None:
    """Refuse what no answer in JSON can carry (NaN, half a character): it could be written and never be read again."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise DataError("The request holds a number or a character that JSON does not have.") from None


def _link(settings: Settings, study: Study) -> str:
    # Named like other invitations, so that logs leave it out.
    return f"{settings.url}/people/join/invite_{signed(settings, 'join', study.key)}"


def _linked(session: Session, settings: Settings, token: str) -> Study:
    key = unsigned(settings, "join", token.removeprefix("invite_"))
    found = key and session.scalar(sa.select(Study).where(Study.key == key))
    if not found:
        raise HTTPException(404, "This link leads nowhere; copy it whole, or ask for a new one.")
    return found


def _study(session: Session, key: str) -> Study:
    found = session.scalar(sa.select(Study).where(Study.key == key))
    if found is None:
        raise HTTPException(404, "There is no study at this address.")
    return found


def _owns(who: Viewer, study: Study) -> bool:
    return bool(who.via) and (who.role == "admin" or (who.id == study.account_id and who.may("submitter")))


def _own(session: Session, who: Viewer, key: str) -> Study:
    """A study of one's own; another's is not even known to exist."""
    study = session.scalar(sa.select(Study).where(Study.key == key))
    if study is None or not _owns(who, study):
        raise HTTPException(404, "There is no study of yours at this address.")
    return study


def _invited(who: Viewer, study: Study) -> bool:
    """Whether an account may answer without the link: panels are open to annotators, the rest to whom it names."""
    return fold(study.person) == fold(who.name) if study.person else who.may("annotator")


def _listed(session: Session, who: Viewer) -> list[Study]:
    every = session.scalars(sa.select(Study).order_by(Study.created.desc()).execution_options(yield_per=100))
    return list(islice((s for s in every if _owns(who, s) or (s.open and _invited(who, s))), JOINED))


def _counts(session: Session, study: Study) -> dict[str, int]:
    counts = sa.select(
        sa.func.count(), sa.func.coalesce(sa.func.sum(sa.case((Slot.open_questions == 0, 1), else_=0)), 0)
    )
    slots, done = session.execute(counts.where(Slot.study_id == study.id)).one()
    return {"slots": slots, "done": done}


def _join(session: Session, study: Study, who: Viewer) -> Respondent:
    account = session.get(Account, who.id) if who.via else None
    return studies.join(session, study, account and account.id, account and account.pseudonym)


def _with_cookie(settings: Settings, study: Study, respondent: Respondent) -> Response:
    response = go_to(f"/people/{study.key}")
    token = signed(settings, "respondent", respondent.key)
    set_cookie(response, settings, person_cookie(settings, study.key), token, GUEST_HOURS)
    return response


def _respondent(session: Session, request: Request, settings: Settings, who: Viewer, study: Study) -> Respondent | None:
    """Who answers here: by their cookie, else by their account."""
    token = request.cookies.get(person_cookie(settings, study.key))
    key = unsigned(settings, "respondent", token) if token else None
    mine = sa.select(Respondent).where(Respondent.study_id == study.id)
    if key is not None:
        # Whoever joined with an account that was closed since is let in no more.
        closed = sa.exists().where(Account.id == Respondent.account_id, ~Account.active)
        return session.scalar(mine.where(Respondent.key == key, ~closed))
    return session.scalar(mine.where(Respondent.account_id == who.id)) if who.via else None


def _here(session: Session, request: Request, settings: Settings, who: Viewer, key: str) -> tuple[Study, Respondent]:
    study = _study(session, key)
    respondent = _respondent(session, request, settings, who, study)
    if respondent is None:
        raise HTTPException(403, "Open the link that you were sent: it lets you into this study.")
    return study, respondent
