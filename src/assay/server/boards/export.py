"""Boards and submissions as files."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session, joinedload

from assay.server.boards import history
from assay.server.boards.submissions import Standing, standings, stored
from assay.server.boards.tables import SCORED, Board, Entry
from assay.server.settings import Settings

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def board_facts(board: Board) -> dict[str, Any]:
    """A board for whoever may look: the name of the file with the hidden options is not in it."""
    return {
        "id": board.key, "name": board.name, "title": board.title, "kind": board.kind, "benchmark": board.benchmark,
        "options": board.options, "metric": board.metric, "higher_is_better": board.higher_is_better,
        "published": board.published, "rounding": board.rounding, "step": board.step, "shown_share": board.shown_share,
        "submissions_a_day": board.a_day, "upload_bytes": board.upload_bytes, "unpacked_bytes": board.unpacked_bytes,
        "files": board.files, "seconds": board.seconds, "memory_mb": board.memory_mb, "state": board.state,
        "expected": board.expected, "created": board.created, "closed": board.closed,
        "history": {"length": board.length, "head": board.head},
    }  # fmt: skip


def standing_facts(line: Standing) -> dict[str, Any]:
    """A line of a board."""
    entry = line.entry
    return {
        "rank": line.rank, "system": entry.system, "team": entry.team.name, "number": entry.number,
        "status": entry.status, "withheld": entry.withheld, "score": line.score, "scores": entry.scores or [],
        "final": entry.final, "note": entry.note, "submitted": entry.created, "team_submissions": line.submissions,
        "team_told": line.told, "team_score_views": line.views,
    }  # fmt: skip


def entry_facts(entry: Entry) -> dict[str, Any]:
    """An entry for its own team."""
    return {
        "id": entry.key, "number": entry.number, "team": entry.team.name, "system": entry.system, "note": entry.note,
        "file": entry.file_name, "sha256": entry.digest, "bytes": entry.bytes, "submitted": entry.created,
        "status": entry.status, "reason": entry.reason, "faults": entry.faults or [], "faults_left": entry.faults_left,
        "withheld": entry.withheld, "scores": entry.scores or [], "final": entry.final, "finished": entry.finished,
        "deleted": entry.deleted, "score_views": entry.views,
    }  # fmt: skip


def board_json(session: Session, board: Board) -> dict[str, Any]:
    """The whole board."""
    return {"board": board_facts(board), "standings": [standing_facts(line) for line in standings(session, board)]}


def board_csv(session: Session, board: Board) -> str:
    """The standings; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    lines = standings(session, board)
    metrics = list(dict.fromkeys(s["metric"] for line in lines for s in line.entry.scores or ()))
    out = io.StringIO()
    write = csv.writer(out)
    columns = ["rank", "system", "team", "number", "status", "submitted", "team_submissions", "team_told",
               "team_score_views"]  # fmt: skip
    named = [c for m in metrics for c in (m, f"{m}_low", f"{m}_high", f"{m}_n")]
    write.writerow([_safe(c) for c in [*columns, *named, "final"]])
    for line in lines:
        entry = line.entry
        scores = {s["metric"]: s for s in entry.scores or ()}
        cells = [scores.get(m, {}).get(part) for m in metrics for part in ("value", "low", "high", "n")]
        final = line.score["value"] if line.score and entry.final is not None else None
        fixed = [line.rank, entry.system, entry.team.name, entry.number, entry.status, entry.created.isoformat(),
                 line.submissions, line.told, line.views]  # fmt: skip
        write.writerow([_safe(cell) for cell in [*fixed, *cells, final]])
    return out.getvalue()


def _safe(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def submissions_zip(session: Session, settings: Settings, board: Board, path: Path) -> Path:
    """Everything that was submitted to a board, deleted entries too, with an index and the history."""
    entries = session.scalars(
        sa.select(Entry).where(Entry.board_id == board.id).order_by(Entry.number).options(joinedload(Entry.team))
    )
    encode = msgspec.json.Encoder(enc_hook=str).encode
    index = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as packed:
        for entry in entries:
            name = ""
            if (file := stored(settings, entry)).is_file():
                name = f"submissions/{entry.number:05d}/{entry.file_name}"
                packed.write(file, name)
            index.append(encode({**entry_facts(entry), "path": name}))
        packed.writestr("index.jsonl", b"\n".join([*index, b""]))
        lines = [encode({"hash": line.hash, "body": line.body}) for line in history.lines(session, board)]
        packed.writestr("history.jsonl", b"\n".join([*lines, b""]))
        packed.writestr("board.json", encode(board_json(session, board)))
    return path


def told(entry: Entry) -> bool:
    """Whether a look at this entry tells its team a score."""
    return entry.status == SCORED and bool(entry.scores)
