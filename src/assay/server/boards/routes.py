"""Pages and API of the leaderboards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import anyio.to_thread
import sqlalchemy as sa
from fastapi import APIRouter, Depends, Form, Query, UploadFile
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session, joinedload
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from assay.core.errors import UsageError
from assay.server import accounts
from assay.server.accounts import Account
from assay.server.boards import export, history
from assay.server.boards import submissions as desk
from assay.server.boards.tables import OPEN, REFEREED, Board, Entry, Team, TeamMember
from assay.server.database import Database
from assay.server.security import Viewer, address_of
from assay.server.settings import Settings
from assay.server.web import Admin, Config, Db, Submitter, answer, go_to, render, require, settings_of

router = APIRouter()
Looker = Annotated[Viewer, Depends(require("submitter", "reader"))]
Short = Annotated[str, Form(max_length=200)]
SHOWN = 200


class NewBoard(BaseModel):
    """A board as an admin asks for it."""

    name: str = Field(max_length=64)
    benchmark: str = Field(max_length=64)
    title: str = Field("", max_length=200)
    kind: str = REFEREED
    sealed: str = Field("", max_length=64)
    options: dict[str, Any] = {}
    metric: str = Field("", max_length=80)
    higher_is_better: bool = True
    published: list[str] = []
    rounding: float = Field(0.001, allow_inf_nan=False)
    step: float = Field(0.0, allow_inf_nan=False)
    shown_share: float = Field(1.0, allow_inf_nan=False)
    a_day: int | None = None
    upload_bytes: int | None = None
    unpacked_bytes: int | None = None
    files: int = 10_000
    seconds: Annotated[float, Field(allow_inf_nan=False)] = 600.0
    memory_mb: int = 2048
    tries: int = 3


class Report(BaseModel):
    """Scores that a team says it has."""

    system: str = Field(max_length=80)
    scores: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(max_length=50)
    note: str = Field("", max_length=500)


# -- what the routes share ---------------------------------------------------------------------------------------------


def board_of(session: Session, text: str) -> Board:
    """The board of an address."""
    board = desk.find_board(session, text)
    if board is None:
        raise HTTPException(404, "There is no such board.")
    return board


def entry_of(session: Session, board: Board, key: str, who: Viewer) -> Entry:
    """An entry that this person may see: their team's, or any for an admin."""
    entry = session.scalar(sa.select(Entry).where(Entry.board_id == board.id, Entry.key == key))
    if entry is None or not (who.may() or entry.team_id == team_id(session, who)):
        raise HTTPException(404, "There is no such submission of your team.")
    return entry


def team_id(session: Session, who: Viewer) -> int | None:
    """The team of who asks; None while they have none."""
    return session.scalar(sa.select(TeamMember.team_id).where(TeamMember.account_id == who.id))


def entries_of(session: Session, board: Board, who: Viewer) -> list[Entry]:
    """The newest submissions that this person may see."""
    wanted = sa.select(Entry).where(Entry.board_id == board.id).options(joinedload(Entry.team))
    if not who.may():
        wanted = wanted.where(Entry.team_id == (team_id(session, who) or 0))
    return list(session.scalars(wanted.order_by(Entry.number.desc()).limit(SHOWN)))


def look(db: Database, key: str, entry_key: str, who: Viewer) -> tuple[Board, Entry, int | None]:
    """An entry with its place in the queue; a look of its own team at a score is counted."""
    with db.reading() as session:
        board = board_of(session, key)
        entry = entry_of(session, board, entry_key, who)
        _ = entry.team.name
        place, own = desk.place_in_queue(session, entry), entry.team_id == team_id(session, who)
    if own and export.told(entry):
        with db.session() as session:
            session.execute(sa.update(Entry).where(Entry.id == entry.id).values(views=Entry.views + 1))
        entry.views += 1
    return board, entry, place


def take(db: Database, settings: Settings, key: str, who: Viewer, upload: desk.Upload, system: str, note: str) -> Any:
    """Enter an upload; (entry, receipt)."""
    try:
        with db.session() as session:
            board = board_of(session, key)
            account = session.get_one(Account, who.id)
            entry = desk.accept(session, settings, board, account, upload, system, note)
            return entry, desk.receipt(settings, entry)
    except desk.LimitReached as error:
        raise HTTPException(429, str(error)) from None


def most_bytes(db: Database, key: str, who: Viewer) -> int:
    """Bytes that may be sent to a board; refuses at once where nothing may."""
    try:
        with db.session() as session:
            board = board_of(session, key)
            desk.check_open(session, board, desk.team_of(session, session.get_one(Account, who.id)))
            return board.upload_bytes
    except desk.LimitReached as error:
        raise HTTPException(429, str(error)) from None


# -- pages -------------------------------------------------------------------------------------------------------------


@router.get("/boards")
def boards_page(request: Request, db: Db, who: Looker) -> Response:
    """All boards."""
    with db.reading() as session:
        boards = list(session.scalars(sa.select(Board).order_by(Board.name)))
        counts = session.execute(sa.select(Entry.board_id, sa.func.count()).group_by(Entry.board_id))
        return render(
            request, "boards/list.html.j2", boards=boards, counts={row[0]: row[1] for row in counts}, fault=""
        )


@router.post("/boards")
def new_board(
    request: Request, db: Db, settings: Config, who: Admin, name: Short, benchmark: Short, title: Short = "",
    sealed: Short = "", options: Annotated[str, Form(max_length=5000)] = "", kind: Short = REFEREED,
    metric: Short = "", a_day: Annotated[int, Form(ge=1, le=10_000)] = 10,
    rounding: Annotated[float, Form(ge=0, allow_inf_nan=False)] = 0.001,
    step: Annotated[float, Form(ge=0, allow_inf_nan=False)] = 0.0,
    shown_share: Annotated[float, Form(allow_inf_nan=False)] = 1.0,
) -> Response:  # fmt: skip
    """Make a board."""
    asked = NewBoard(
        name=name, benchmark=benchmark, title=title, sealed=sealed, kind=kind, metric=metric, rounding=rounding,
        step=step, shown_share=shown_share, a_day=a_day, options=_options(options),
    )  # fmt: skip
    return go_to(f"/boards/{_make(request, db, settings, who, asked)['id']}")


@router.get("/boards/{key}")
def board_page(request: Request, key: str, db: Db, who: Looker) -> Response:
    """Standings, the form to submit with, and the rules."""
    with db.reading() as session:
        board = board_of(session, key)
        lines = desk.standings(session, board)
        mine = team_id(session, who)
        used = 0
        if mine is not None:
            used = desk.used_today(session, board, session.get_one(Team, mine))[0]
        return render(
            request, "boards/board.html.j2", board=board, lines=lines, entries=entries_of(session, board, who)[:20],
            mine=mine, left=max(0, board.a_day - used), open=board.state == OPEN, address=settings_of(request).url,
        )  # fmt: skip


@router.post("/boards/{key}/submissions")
def submit_form(
    request: Request, key: str, db: Db, settings: Config, who: Submitter, file: UploadFile,
    system: Annotated[str, Form(max_length=80)], note: Annotated[str, Form(max_length=500)] = "",
) -> Response:  # fmt: skip
    """Submit by the form."""
    most = most_bytes(db, key, who)
    upload = desk.receive(settings, file.filename or "submission", _chunks(file), most)
    try:
        entry, _ = take(db, settings, key, who, upload, system, note)
    finally:
        upload.path.unlink(missing_ok=True)
    return go_to(f"/boards/{key}/submissions/{entry.key}")


def _chunks(file: UploadFile) -> Iterator[bytes]:
    while chunk := file.file.read(1 << 18):
        yield chunk


@router.get("/boards/{key}/submissions")
def entries_page(request: Request, key: str, db: Db, who: Looker) -> Response:
    """Submissions of one's team; all of them for an admin."""
    with db.reading() as session:
        board = board_of(session, key)
        return render(request, "boards/entries.html.j2", board=board, entries=entries_of(session, board, who))


@router.get("/boards/{key}/submissions/{entry_key}")
def entry_page(request: Request, key: str, entry_key: str, db: Db, settings: Config, who: Looker) -> Response:
    """One submission."""
    board, entry, place = look(db, key, entry_key, who)
    with db.reading() as session:
        receipt = desk.receipt(settings, session.get_one(Entry, entry.id)) if entry.file_name else None
    return render(request, "boards/entry.html.j2", board=board, entry=entry, place=place, receipt=receipt)


@router.post("/boards/{key}/submissions/{entry_key}/delete")
def delete_form(request: Request, key: str, entry_key: str, db: Db, who: Submitter) -> Response:
    """Mark a submission as deleted."""
    _delete(request, db, key, entry_key, who)
    return go_to(f"/boards/{key}/submissions")


@router.post("/boards/{key}/reports")
def report_form(
    key: str, db: Db, who: Submitter, system: Annotated[str, Form(max_length=80)],
    score: Annotated[float, Form(allow_inf_nan=False)], metric: Annotated[str, Form(max_length=80)] = "",
    note: Annotated[str, Form(max_length=500)] = "",
) -> Response:  # fmt: skip
    """Report a score by the form."""
    with db.reading() as session:
        name = board_of(session, key).metric or metric or "score"
    _report(db, key, who, Report(system=system, scores={name: score}, note=note))
    return go_to(f"/boards/{key}")


@router.get("/boards/{key}/history")
def history_page(request: Request, key: str, db: Db, who: Looker) -> Response:
    """What happened on a board."""
    import msgspec

    with db.reading() as session:
        board = board_of(session, key)
        lines = [(msgspec.json.decode(line.body), line.hash) for line in history.lines(session, board)]
        return render(
            request,
            "boards/history.html.j2",
            board=board,
            lines=lines[::-1][:1000],
            broken=history.broken(session, board),
        )


@router.post("/boards/{key}/close")
def close_form(request: Request, key: str, db: Db, who: Admin) -> Response:
    """Close a board."""
    _close(request, db, key, who)
    return go_to(f"/boards/{key}")


@router.post("/boards/{key}/teams")
def team_form(request: Request, key: str, db: Db, who: Admin, account: Short, team: Short) -> Response:
    """Put an account into a team."""
    _join(request, db, who, account, team)
    return go_to(f"/boards/{key}")


@router.get("/boards/{key}/export.csv")
def csv_file(key: str, db: Db, who: Looker) -> Response:
    """The standings as a table."""
    with db.reading() as session:
        board = board_of(session, key)
        return _file(export.board_csv(session, board), "text/csv; charset=utf-8", f"{board.name}.csv")


@router.get("/boards/{key}/export.json")
def json_file(key: str, db: Db, who: Looker) -> Response:
    """The whole board."""
    with db.reading() as session:
        board = board_of(session, key)
        response = answer(export.board_json(session, board))
        response.headers["content-disposition"] = f'attachment; filename="{board.name}.json"'
        return response


@router.get("/boards/{key}/submissions.zip")
def zip_file(request: Request, key: str, db: Db, settings: Config, who: Admin) -> Response:
    """All submissions as files."""
    with tempfile.NamedTemporaryFile(dir=desk.uploads(settings), prefix="export-", suffix=".zip", delete=False) as file:
        path = Path(file.name)
    try:
        with db.session() as session:
            board = board_of(session, key)
            accounts.audit(session, "submissions exported", board.name, actor=who.name, address=address_of(request))
        with db.reading() as session:
            export.submissions_zip(session, settings, board, path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    gone = BackgroundTask(path.unlink, missing_ok=True)
    return FileResponse(path, media_type="application/zip", filename=f"{board.name}.zip", background=gone)


def _file(text: str, kind: str, name: str) -> Response:
    return Response(text, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})


# -- API ---------------------------------------------------------------------------------------------------------------


@router.get("/api/boards")
def api_boards(db: Db, who: Looker) -> Response:
    """All boards."""
    with db.reading() as session:
        return answer([export.board_facts(b) for b in session.scalars(sa.select(Board).order_by(Board.name))])


@router.post("/api/boards", status_code=201)
def api_new_board(request: Request, db: Db, settings: Config, who: Admin, asked: NewBoard) -> Response:
    """Make a board; ``sealed`` names a file that lies in the scorer's folder already."""
    return answer(_make(request, db, settings, who, asked), 201)


@router.get("/api/boards/{key}")
def api_board(key: str, db: Db, who: Looker) -> Response:
    """A board and its standings."""
    with db.reading() as session:
        return answer(export.board_json(session, board_of(session, key)))


@router.post("/api/boards/{key}/submissions", status_code=201)
async def api_submit(
    request: Request, key: str, db: Db, settings: Config, who: Submitter,
    system: Annotated[str, Query(max_length=80)], file: Annotated[str, Query(max_length=300)],
    note: Annotated[str, Query(max_length=500)] = "",
) -> Response:  # fmt: skip
    """Submit: the file is the body, as it is. Answers with the submission and a signed receipt."""
    most = await anyio.to_thread.run_sync(most_bytes, db, key, who)
    incoming = desk.Incoming(settings, file, most)
    try:
        async for chunk in request.stream():
            incoming.write(chunk)
        upload = incoming.finish()
        entry, receipt = await anyio.to_thread.run_sync(take, db, settings, key, who, upload, system, note)
    finally:
        incoming.discard()
    return answer({"id": entry.key, "number": entry.number, "status": entry.status, "receipt": receipt}, 201)


@router.get("/api/boards/{key}/submissions")
def api_entries(key: str, db: Db, who: Looker) -> Response:
    """Submissions of one's team, without their scores, which a look at each one counts; all for an admin."""
    with db.reading() as session:
        found = entries_of(session, board_of(session, key), who)
        hidden = ("scores", "final")
        return answer([{k: v for k, v in export.entry_facts(e).items() if k not in hidden} for e in found])


@router.get("/api/boards/{key}/submissions/{entry_key}")
def api_entry(key: str, entry_key: str, db: Db, who: Looker) -> Response:
    """One submission, with its place in the queue while it waits."""
    _, entry, place = look(db, key, entry_key, who)
    return answer({**export.entry_facts(entry), "before_it": place})


@router.post("/api/boards/{key}/submissions/{entry_key}/delete")
def api_delete(request: Request, key: str, entry_key: str, db: Db, who: Submitter) -> Response:
    """Mark a submission as deleted."""
    _delete(request, db, key, entry_key, who)
    return answer({"deleted": entry_key})


@router.post("/api/boards/{key}/reports", status_code=201)
def api_report(key: str, db: Db, who: Submitter, report: Report) -> Response:
    """Report scores to a board without a referee."""
    return answer({"number": _report(db, key, who, report)}, 201)


@router.get("/api/boards/{key}/history")
def api_history(key: str, db: Db, who: Looker) -> Response:
    """The history: each hash is SHA-256 of the one before, a newline, and the line."""
    with db.reading() as session:
        board = board_of(session, key)
        lines = [{"line": line.body, "hash": line.hash} for line in history.lines(session, board)]
        return answer({"whole": history.broken(session, board) is None, "lines": lines})


@router.post("/api/boards/{key}/close")
def api_close(request: Request, key: str, db: Db, who: Admin) -> Response:
    """Close a board."""
    _close(request, db, key, who)
    return answer({"closed": key})


@router.post("/api/receipts")
def api_receipt(settings: Config, who: Looker, receipt: dict[str, str | int]) -> Response:
    """Whether this server gave that receipt."""
    return answer({"holds": desk.receipt_holds(settings, receipt)})


# -- what forms and API both do ----------------------------------------------------------------------------------------


def _options(text: str) -> dict[str, str]:
    """``KEY=VALUE KEY=VALUE`` as options."""
    pairs = [word.partition("=") for word in text.split()]
    if odd := [key for key, equals, _ in pairs if not (key and equals)]:
        raise UsageError(f"Options are written KEY=VALUE, with spaces between, not {odd[0]!r}.")
    return {key: value for key, _, value in pairs}


def _make(request: Request, db: Database, settings: Settings, who: Viewer, asked: NewBoard) -> dict[str, Any]:
    given = {k: v for k, v in asked.model_dump().items() if v is not None}
    with db.session() as session:
        board = desk.create_board(session, settings, given.pop("name"), given.pop("benchmark"), by=who.name, **given)
        accounts.audit(session, "board made", board.name, actor=who.name, address=address_of(request))
        return export.board_facts(board)


def _delete(request: Request, db: Database, key: str, entry_key: str, who: Viewer) -> None:
    with db.session() as session:
        entry = entry_of(session, board_of(session, key), entry_key, who)
        desk.delete(session, entry, who.name)
        said = f"{entry.board.name} {entry.number}"
        accounts.audit(session, "submission deleted", said, actor=who.name, address=address_of(request))


def _close(request: Request, db: Database, key: str, who: Viewer) -> None:
    with db.session() as session:
        board = board_of(session, key)
        desk.close_board(session, board, who.name)
        accounts.audit(session, "board closed", board.name, actor=who.name, address=address_of(request))


def _join(request: Request, db: Database, who: Viewer, name: str, team: str) -> None:
    with db.session() as session:
        account = accounts.find_account(session, name)
        if account is None:
            raise HTTPException(404, f"There is no account {name!r}.")
        desk.join_team(session, account, team)
        accounts.audit(session, "team", account.name, actor=who.name, address=address_of(request), team=team)


def _report(db: Database, key: str, who: Viewer, report: Report) -> int:
    try:
        with db.session() as session:
            account = session.get_one(Account, who.id)
            board = board_of(session, key)
            return desk.report_scores(session, board, account, report.system, report.scores, report.note).number
    except desk.LimitReached as error:
        raise HTTPException(429, str(error)) from None
