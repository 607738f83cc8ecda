"""Boards and submissions as the server keeps them: taking in, limits, receipts, marks of deletion, standings."""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session, joinedload

from assay.core.errors import AssayError, UsageError, unknown_name
from assay.core.registry import benchmark_entries
from assay.server.accounts import Account, find_account
from assay.server.boards import history
from assay.server.boards.extraction import plain_name
from assay.server.boards.ladder import ranks
from assay.server.boards.tables import (
    CLOSED,
    FAILED,
    OPEN,
    QUEUED,
    REFEREED,
    REFUSED,
    SCORED,
    SELF_REPORTED,
    Board,
    Entry,
    Job,
    Team,
    TeamMember,
)
from assay.server.database import now
from assay.server.settings import Settings

REFUSED_A_DAY = 5
"""How many times the daily limit may be uploaded when faulty files are counted too."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class LimitReached(AssayError):
    """The team has used up its submissions of the day."""


@dataclass(frozen=True)
class Upload:
    """A file that came in and lies under ``uploads``."""

    path: Path
    name: str
    digest: str
    bytes: int


def uploads(settings: Settings) -> Path:
    """Folder of everything that was ever submitted."""
    folder = settings.root / "uploads"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def sealed_folder(settings: Settings) -> Path:
    """Where hidden options lie: ``$ASSAY_SEALED``, else ``sealed`` in the server's folder. No page reads it."""
    return Path(os.environ.get("ASSAY_SEALED") or settings.root / "sealed").resolve()


class Incoming:
    """An upload on its way to disk: size and hash are taken as it comes, and nothing is left of one that is refused."""

    def __init__(self, settings: Settings, name: str, most: int) -> None:
        import tempfile

        self.name, self.most = plain_name(name), most
        self._file = tempfile.NamedTemporaryFile(dir=uploads(settings), prefix="incoming-", delete=False)  # noqa: SIM115
        self._digest, self._size = hashlib.sha256(), 0

    def write(self, chunk: bytes) -> None:
        """Take the next bytes; UsageError when they are too many."""
        self._size += len(chunk)
        if self._size > self.most:
            raise UsageError(f"The file is larger than the {self.most:,} bytes that this board takes.")
        self._digest.update(chunk)
        self._file.write(chunk)

    def finish(self) -> Upload:
        """The whole file."""
        self._file.close()
        if not self._size:
            raise UsageError("The file is empty.")
        return Upload(Path(self._file.name), self.name, self._digest.hexdigest(), self._size)

    def discard(self) -> None:
        """Remove what has not become an entry."""
        self._file.close()
        Path(self._file.name).unlink(missing_ok=True)


def receive(settings: Settings, name: str, chunks: Iterable[bytes], most: int) -> Upload:
    """Write a whole upload to disk."""
    incoming = Incoming(settings, name, most)
    try:
        for chunk in chunks:
            incoming.write(chunk)
        return incoming.finish()
    except BaseException:
        incoming.discard()
        raise


# -- boards ------------------------------------------------------------------------------------------------------------


def create_board(
    session: Session,
    settings: Settings,
    name: str,
    benchmark: str,
    *,
    title: str = "",
    sealed: str = "",
    options: Mapping[str, Any] | None = None,
    kind: str = REFEREED,
    by: str = "",
    **rules: Any,
) -> Board:
    """A new board. A refereed one opens when the scorer has found that the hidden options fit.

    Raises
    ------
    UsageError
        A name that cannot be, a benchmark that does not exist, or a rule out of its range.
    """
    if not _NAME.fullmatch(name):
        raise UsageError("A board's name has 1 to 64 small letters, digits, - or _.")
    if session.scalar(sa.select(Board.id).where(Board.name == name)):
        raise UsageError(f"There is a board {name!r} already; choose another name.")
    if benchmark not in (known := benchmark_entries()):
        raise unknown_name("benchmark", benchmark, known)
    if kind not in (REFEREED, SELF_REPORTED):
        raise unknown_name("kind of board", kind, (REFEREED, SELF_REPORTED))
    if kind == REFEREED and not (sealed and plain_name(sealed) == sealed):
        raise UsageError("A refereed board needs the name of the file with its hidden options, like truth.json.")
    if sealed_folder(settings).is_relative_to(settings.runs.resolve()):
        raise UsageError(
            "The folder of hidden options lies among the runs, which are shown; set ASSAY_SEALED to another."
        )
    rules = {
        "upload_bytes": settings.limits.upload_bytes,
        "unpacked_bytes": 4 * settings.limits.upload_bytes,
        "a_day": settings.limits.submissions_a_day,
        **rules,
    }
    _check_rules(rules)
    board = Board(
        name=name, title=title or name, benchmark=benchmark, sealed=sealed, options=dict(options or {}), kind=kind,
        published=list(rules.pop("published", ())), state=OPEN if kind == SELF_REPORTED else "preparing", **rules,
    )  # fmt: skip
    session.add(board)
    session.flush()
    session.refresh(board)
    history.write(session, history.locked(session, board.id), "created", board=name, benchmark=benchmark, by=by,
                  kind=kind, options=msgspec.json.encode(board.options).decode(), **rules)  # fmt: skip
    if kind == REFEREED:
        session.add(Job(board_id=board.id))
    return board


def _check_rules(rules: Mapping[str, Any]) -> None:
    bounds = {
        "a_day": (1, 10_000), "upload_bytes": (1, 1 << 40), "unpacked_bytes": (1, 1 << 42), "files": (1, 10_000_000),
        "seconds": (1, 86_400), "memory_mb": (64, 1 << 20), "tries": (1, 20), "rounding": (0, 1e6), "step": (0, 1e9),
        "shown_share": (0.05, 1),
    }  # fmt: skip
    for rule, (low, high) in bounds.items():
        if rule in rules and not low <= rules[rule] <= high:
            raise UsageError(f"{rule.replace('_', ' ')} must be between {low} and {high}, not {rules[rule]}.")


def close_board(session: Session, board: Board, by: str) -> None:
    """Take no more submissions; the scorer then publishes what was decided on the part that was not shown."""
    board = history.locked(session, board.id)
    if board.state == CLOSED:
        raise UsageError("This board is closed already.")
    board.state, board.closed = CLOSED, now()
    history.write(session, board, "closed", by=by)
    if board.kind == REFEREED:
        session.add(Job(board_id=board.id))


def find_board(session: Session, text: str) -> Board | None:
    """The board of that key or name."""
    return session.scalar(sa.select(Board).where(sa.or_(Board.key == text, Board.name == text)))


# -- teams -------------------------------------------------------------------------------------------------------------


def team_of(session: Session, account: Account) -> Team:
    """The team of an account; its own is made when it has none."""
    # Two first submissions at once would both make a team.
    session.execute(sa.select(Account.id).where(Account.id == account.id).with_for_update(key_share=True))
    found = session.scalar(sa.select(Team).join(TeamMember).where(TeamMember.account_id == account.id))
    if found is not None:
        return found
    name = account.name
    if session.scalar(sa.select(Team.id).where(Team.name == name)):
        name = f"{account.name[:50]} {account.key[:8]}"
    team = Team(name=name)
    session.add(team)
    session.flush()
    session.add(TeamMember(account_id=account.id, team_id=team.id))
    return team


def join_team(session: Session, account: Account, name: str) -> Team:
    """Put an account into a team; past submissions stay with the team they had.

    A team that does not exist is made; the name of an account means the team which that account is in.
    """
    name = " ".join(name.split())[:64]
    if not name:
        raise UsageError("A team needs a name.")
    team = session.scalar(sa.select(Team).where(Team.name == name))
    if team is None and (owner := find_account(session, name)) is not None:
        team = team_of(session, owner)
    if team is None:
        team = Team(name=name)
        session.add(team)
        session.flush()
    session.merge(TeamMember(account_id=account.id, team_id=team.id))
    return team


# -- submissions -------------------------------------------------------------------------------------------------------


def used_today(session: Session, board: Board, team: Team) -> tuple[int, int]:
    """(submissions that count, all uploads) of a team since midnight UTC."""
    midnight = now().replace(hour=0, minute=0, second=0, microsecond=0)
    counted = sa.case((Entry.status != REFUSED, 1), else_=0)
    row = session.execute(
        sa.select(sa.func.coalesce(sa.func.sum(counted), 0), sa.func.count()).where(
            Entry.board_id == board.id, Entry.team_id == team.id, Entry.created >= midnight
        )
    ).one()
    return int(row[0]), int(row[1])


def check_open(session: Session, board: Board, team: Team) -> None:
    """Whether a team may submit now; raises as `accept` does. Asked before an upload too, to spare a long one."""
    if board.state != OPEN:
        raise UsageError(f"This board is {board.state} and takes no submissions.")
    if board.kind != REFEREED:
        raise UsageError("This board takes reports, not files.")
    counted, sent = used_today(session, board, team)
    tomorrow = "the count begins anew at 00:00 UTC"
    if counted >= board.a_day:
        raise LimitReached(f"{team.name} has made its {board.a_day} submissions of today; {tomorrow}.")
    if sent >= REFUSED_A_DAY * board.a_day:
        raise LimitReached(f"{team.name} has sent {sent} files today, faulty ones among them; {tomorrow}.")


def accept(
    session: Session, settings: Settings, board: Board, account: Account, upload: Upload, system: str, note: str = ""
) -> Entry:
    """Take a submission in and queue it.

    Raises
    ------
    UsageError
        The board takes none, or the team has sent this very file.
    LimitReached
        The team has used up its day.
    """
    system = " ".join(system.split())[:80]
    if not system:
        raise UsageError("A submission needs the name of the system that made it.")
    board = history.locked(session, board.id)
    team = team_of(session, account)
    check_open(session, board, team)
    same = session.scalar(
        sa.select(Entry.number).where(
            Entry.board_id == board.id, Entry.team_id == team.id, Entry.digest == upload.digest,
            Entry.status.not_in((REFUSED, FAILED)),
        )
    )  # fmt: skip
    if same is not None:
        raise UsageError(f"{team.name} sent this very file before, as submission {same}.")
    entry = _add(session, board, team, account, system, note, upload.name, upload.digest, upload.bytes)
    upload.path.rename(stored(settings, entry))
    session.add(Job(board_id=board.id, entry_id=entry.id))
    return entry


def report_scores(
    session: Session, board: Board, account: Account, system: str, scores: Mapping[str, float], note: str = ""
) -> Entry:
    """Scores that a team says it has, for a board of such."""
    system = " ".join(system.split())[:80]
    if board.kind != SELF_REPORTED:
        raise UsageError("This board has a referee; submit predictions, not scores.")
    if not system or not scores or not all(math.isfinite(v) for v in scores.values()):
        raise UsageError("A report needs the name of the system and at least one score, each a number.")
    if odd := [m for m in scores if not (0 < len(m) <= 80 and m.isprintable())]:
        raise UsageError(f"A metric's name has 1 to 80 letters, digits and signs, not {odd[0][:80]!r}.")
    board = history.locked(session, board.id)
    if board.state != OPEN:
        raise UsageError(f"This board is {board.state} and takes no reports.")
    if board.metric and board.metric not in scores:
        raise UsageError(f"This board ranks by {board.metric}, which the report does not hold.")
    team = team_of(session, account)
    if used_today(session, board, team)[0] >= board.a_day:
        raise LimitReached(f"{team.name} has made its {board.a_day} reports of today.")
    body = msgspec.json.encode(dict(scores), order="sorted")
    entry = _add(session, board, team, account, system, note, "", hashlib.sha256(body).hexdigest(), len(body))
    entry.status, entry.finished = SCORED, now()
    entry.scores = [{"metric": m, "value": v, "low": None, "high": None, "n": None} for m, v in scores.items()]
    if not board.metric:
        board.metric = next(iter(scores))
    return entry


def _add(
    session: Session, board: Board, team: Team, account: Account, system: str, note: str, name: str, digest: str,
    size: int,
) -> Entry:  # fmt: skip
    number = 1 + (session.scalar(sa.select(sa.func.max(Entry.number)).where(Entry.board_id == board.id)) or 0)
    entry = Entry(
        board_id=board.id, number=number, team_id=team.id, account_id=account.id, system=system, note=note[:500],
        file_name=name, digest=digest, bytes=size,
    )  # fmt: skip
    session.add(entry)
    session.flush()
    history.write(session, board, "received", entry=number, team=team.name, system=system, sha256=digest, bytes=size)
    return entry


def stored(settings: Settings, entry: Entry) -> Path:
    """Where the file of an entry lies."""
    return uploads(settings) / entry.key


def delete(session: Session, entry: Entry, by: str) -> None:
    """Mark an entry as deleted: it leaves the standings; file, scores and history stay, and so does its count."""
    board = history.locked(session, entry.board_id)
    if entry.deleted is not None:
        raise UsageError("This submission is marked as deleted already.")
    entry.deleted, entry.deleted_by = now(), by[:64]
    history.write(session, board, "deleted", entry=entry.number, by=by)


def place_in_queue(session: Session, entry: Entry) -> int | None:
    """How many jobs come before this one, from 0; None when it does not wait."""
    job = session.scalar(sa.select(Job.id).where(Job.entry_id == entry.id, Job.status == QUEUED))
    if job is None:
        return None
    waiting = sa.select(sa.func.count()).where(Job.status == QUEUED, Job.id < job)
    return int(session.scalar(waiting) or 0)


# -- receipts ----------------------------------------------------------------------------------------------------------


def receipt(settings: Settings, entry: Entry) -> dict[str, Any]:
    """What the submitter holds in hand: that these bytes were received then, signed by the server."""
    said = {
        "board": entry.board.name, "submission": entry.key, "number": entry.number, "team": entry.team.name,
        "sha256": entry.digest, "bytes": entry.bytes, "received": entry.created.isoformat(),
    }  # fmt: skip
    return {**said, "signature": _signature(settings, said)}


def receipt_holds(settings: Settings, shown: Mapping[str, Any]) -> bool:
    """Whether this server gave that receipt."""
    said = {name: value for name, value in shown.items() if name != "signature"}
    signature = shown.get("signature")
    return isinstance(signature, str) and hmac.compare_digest(
        signature.encode("utf-8", "replace"), _signature(settings, said).encode()
    )


def _signature(settings: Settings, said: Mapping[str, Any]) -> str:
    body = b"receipt\n" + msgspec.json.encode(said, order="sorted")
    return hmac.new(settings.key, body, hashlib.sha256).hexdigest()


# -- standings ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """A line of a board, with what its team could learn from: ``submissions``, how many of their scores it was ``told``
    (the board shows them too), and how often it opened one that has a score (``views``)."""

    rank: int | None
    entry: Entry
    score: dict[str, Any] | None
    submissions: int
    told: int
    views: int


def standings(session: Session, board: Board) -> list[Standing]:
    """One line a team and system: its best entry, or the last one where none has a score. Those have no rank."""
    columns = (
        Entry.id,
        Entry.team_id,
        Entry.system,
        Entry.status,
        Entry.scores,
        Entry.final,
        Entry.deleted,
        Entry.views,
    )
    rows = session.execute(sa.select(*columns).where(Entry.board_id == board.id).order_by(Entry.number))
    sign = 1 if board.higher_is_better else -1
    best: dict[tuple[int, str], tuple[int, dict[str, Any] | None]] = {}
    sent, told, views = Counter[int](), Counter[int](), Counter[int]()
    for key, team, system, status, scores, final, deleted, seen in rows:
        sent[team] += 1
        told[team] += status == SCORED and bool(scores)
        views[team] += seen
        if deleted is not None:
            continue
        mine = _ranking(board, status, scores, final)
        _, held = best.get((team, system), (0, None))
        if held is None or (mine is not None and sign * mine["value"] > sign * held["value"]):
            best[team, system] = (key, mine)
    found = list(best.values())
    wanted = sa.select(Entry).where(Entry.id.in_([key for key, _ in found])).options(joinedload(Entry.team))
    entries = {entry.id: entry for entry in session.scalars(wanted)}
    places = ranks([s["value"] if s else None for _, s in found], higher_is_better=board.higher_is_better)
    lines = []
    for (key, mine), rank in zip(found, places):
        team = entries[key].team_id
        lines.append(Standing(rank, entries[key], mine, sent[team], told[team], views[team]))
    return sorted(lines, key=lambda line: (line.rank is None, line.rank or 0, line.entry.number))


def _ranking(board: Board, status: str, scores: list[Any] | None, final: list[Any] | None) -> dict[str, Any] | None:
    """The score that ranks an entry: the final one where there is one, else the shown one; None = none."""
    known = final if final is not None else scores
    if status != SCORED or not known:
        return None
    return next((s for s in known if s["metric"] == board.metric), None)
