"""Request cache: replies by everything that could change them, in one SQLite file a cache folder."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sqlite3
import time
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from assay.core.errors import StorageError

FLUSH_SECONDS = 0.5
FLUSH_ROWS = 256
_SELECT = "SELECT body, seconds, cost, price_date FROM replies WHERE key = ?"
_TRIALS_REMEMBERED = 8192


class Stored(NamedTuple):
    """A reply as it came: body, seconds it took, dollars it cost (None = no price known), date of the price."""

    body: bytes
    seconds: float
    cost: float | None
    price_date: str | None


def request_key(provider: str, url: str, revision: str | None, body: bytes, attempt: int, repeat: int) -> bytes:
    """Key of a request.

    ``body`` is the request as sent, so model, messages, every sampling field, tools, response format, n and seed are
    in it. ``repeat`` counts equal requests within one trial: three votes on one prompt are three replies.
    """
    head = f"{provider}\x1f{url}\x1f{revision or ''}\x1f{attempt}\x1f{repeat}\x1f".encode()
    return hashlib.blake2b(head + body, digest_size=20).digest()


class ReplyCache:
    """Replies on disk. Lives on one event loop; several processes may share the folder.

    Writes are gathered and committed at most half a second later, so a look-up or a write costs tens of
    microseconds. A crash loses that half second of replies, never the file. A disk that takes no more costs no trial:
    from then on replies are kept in memory alone, and ``remark`` says so.
    """

    def __init__(self, folder: Path) -> None:
        self.path = Path(folder) / "replies.sqlite"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, timeout=10, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS replies "
                "(key BLOB PRIMARY KEY, body BLOB NOT NULL, seconds REAL, cost REAL, price_date TEXT, made REAL)"
            )
        except (OSError, sqlite3.DatabaseError) as error:
            raise self._unusable("opened", error) from None
        self.remark: str | None = None
        self._pending: dict[bytes, Stored] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._seen: OrderedDict[int, tuple[object, dict[bytes, int]]] = OrderedDict()

    def repeat(self, trial: object | None, fingerprint: bytes) -> int:
        """How often ``trial`` (its meter) has already asked exactly this; 0 outside a trial."""
        if trial is None:
            return 0
        entry = self._seen.get(id(trial))
        if entry is None:
            # The meter itself is kept too: a dead one's id could be given to the next trial.
            entry = self._seen[id(trial)] = (trial, {})
            if len(self._seen) > _TRIALS_REMEMBERED:
                self._seen.popitem(last=False)
        counts = entry[1]
        before = counts.get(fingerprint, 0)
        counts[fingerprint] = before + 1
        return before

    def get(self, key: bytes) -> Stored | None:
        """The reply stored under ``key``."""
        found = self._pending.get(key)
        if found is not None:
            return found
        try:
            row = self._db.execute(_SELECT, (key,)).fetchone()
        except sqlite3.DatabaseError as error:
            raise self._unusable("read", error) from None
        return None if row is None else Stored(*row)

    def put(self, key: bytes, reply: Stored) -> None:
        """Store a reply; on disk within half a second."""
        self._pending[key] = reply
        if self.remark is not None:
            return
        if len(self._pending) >= FLUSH_ROWS:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def forget(self, key: bytes) -> None:
        """Drop a reply that can no longer be read."""
        self._pending.pop(key, None)
        with contextlib.suppress(sqlite3.OperationalError):
            self._db.execute("DELETE FROM replies WHERE key = ?", (key,))

    def flush(self) -> None:
        """Write what is pending. A lock held by another process for over ten seconds leaves it pending."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending or self.remark is not None:
            return
        made = time.time()
        rows = [(key, *reply, made) for key, reply in self._pending.items()]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?, ?)", rows)
            self._db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            if self._db.in_transaction:
                with contextlib.suppress(sqlite3.DatabaseError):
                    self._db.execute("ROLLBACK")
            if "locked" not in str(error) and "busy" not in str(error):
                self.remark = (
                    f"The request cache {self.path} took no more replies ({error}); "
                    "those since are not in it and would be paid for again."
                )
                return
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
            return
        self._pending.clear()

    def _unusable(self, how: str, error: Exception) -> StorageError:
        return StorageError(
            f"The request cache {self.path} cannot be {how} ({error}); "
            "delete it, or choose another folder (--cache) or none (--no-cache)."
        )

    async def close(self) -> None:
        """Write what is pending and close the file."""
        try:
            self.flush()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._db.close()
