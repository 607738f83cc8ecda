"""The history of a board: a chain of lines, so that a line that was changed, dropped or put in shows."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.orm import Session

from assay.server.boards.tables import Board, History
from assay.server.database import now


def locked(session: Session, board_id: int) -> Board:
    """The board, locked until the transaction ends: what follows sees no other writer."""
    statement = sa.select(Board).where(Board.id == board_id).with_for_update()
    return session.execute(statement.execution_options(populate_existing=True)).scalar_one()


def write(session: Session, board: Board, event: str, /, **facts: Any) -> None:
    """Add a line; ``board`` is `locked`."""
    line = {"number": board.length + 1, "at": now().isoformat(), "event": event, **facts}
    body = msgspec.json.encode(line, order="sorted").decode()
    board.length += 1
    board.head = link(board.head, body)
    session.add(History(board_id=board.id, number=board.length, body=body, hash=board.head))


def link(previous: str, body: str) -> str:
    """Hash of a line after the one with the hash ``previous``."""
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()


def lines(session: Session, board: Board) -> list[History]:
    """All lines of a board, in order."""
    return list(session.scalars(sa.select(History).where(History.board_id == board.id).order_by(History.number)))


def broken(session: Session, board: Board) -> int | None:
    """Number of the first line that does not follow from the ones before; None = the history is whole."""
    previous = ""
    found = lines(session, board)
    for number, line in enumerate(found, start=1):
        if line.number != number or link(previous, line.body) != line.hash:
            return number
        previous = line.hash
    return None if len(found) == board.length and previous == board.head else len(found) + 1
