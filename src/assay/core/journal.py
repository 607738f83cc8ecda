"""Journal: append-only, checksummed lines. What was written is either whole or not there.

A line is ``{"crc":"xxxxxxxx","records":[...]}``: valid JSON for any reader, with the CRC-32 of the array's bytes. One
line holds what must be kept or lost together (one trial, or a whole batch). Lines reach the operating system at once,
so killing the process loses nothing, and the disk within a second, so a power cut loses at most that second.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from assay.core.errors import StorageError
from assay.core.files import refused, sync_folder

_HEAD = b'{"crc":"%08x","records":'
_HEAD_LENGTH = len(_HEAD % 0)
SYNC_SECONDS = 0.8


class Journal:
    """Writer of one journal file in ``folder``; every writer starts a file of its own, so a torn tail stays behind.

    Parameters
    ----------
    folder
        Made when missing. Files are named 000001.jsonl, 000002.jsonl, ...
    """

    def __init__(self, folder: Path) -> None:
        self.path, self._fd = _new_file(folder)
        self._failed: StorageError | None = None
        self._size = 0
        self._dirty = False
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._syncer = threading.Thread(target=self._sync_loop, name="assay-journal", daemon=True)
        self._syncer.start()

    def write(self, records: Any) -> None:
        """Append one line holding ``records`` (a list of JSON-able values or msgspec structs)."""
        self.write_encoded(msgspec.json.encode(records))

    def write_encoded(self, array: bytes) -> None:
        """Append one line holding an array that is JSON text already."""
        line = b"".join((_HEAD % zlib.crc32(array), array, b"}\n"))
        with self._lock:
            if self._failed is not None:
                # Behind half a line no other one may follow.
                raise self._failed
            try:
                done = 0
                while done < len(line):
                    done += os.write(self._fd, line[done:])
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self._size)
                self._failed = refused(self.path, error)
                raise self._failed from error
            self._size += len(line)
            if not self._dirty:
                self._dirty = True
                self._wake.set()

    def sync(self) -> None:
        """Force what was written to the disk."""
        with self._lock:
            self._dirty = False
        try:
            os.fsync(self._fd)
            if not os.fstat(self._fd).st_nlink:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        except OSError as error:
            # What the system could not bring to the disk it may have dropped: nothing more is taken.
            self._failed = refused(self.path, error)
            raise self._failed from error

    def _sync_loop(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._closing:
                return
            pause = threading.Event()
            pause.wait(SYNC_SECONDS)
            if self._closing:
                return
            with contextlib.suppress(StorageError):
                # The next write says so.
                self.sync()

    def close(self) -> None:
        """Sync, stop the syncing thread, and drop the file if nothing was written.

        Raises
        ------
        StorageError
            The last lines may not have reached the disk.
        """
        if self._closing:
            return
        self._closing = True
        self._wake.set()
        self._syncer.join()
        try:
            self.sync()
        finally:
            os.close(self._fd)
            if self._size == 0:
                with contextlib.suppress(OSError):
                    self.path.unlink(missing_ok=True)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _new_file(folder: Path) -> tuple[Path, int]:
    """The next numbered file, and its descriptor."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = max((int(p.stem) for p in journal_files(folder)), default=0)
        while True:
            number += 1
            path = folder / f"{number:06d}.jsonl"
            # Another process may begin a file at the same moment.
            with contextlib.suppress(FileExistsError):
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
                sync_folder(folder)
                return path, handle
    except OSError as error:
        raise refused(folder, error) from error


def journal_files(folder: Path) -> list[Path]:
    """Journal files in the order they were begun."""
    return sorted(p for p in folder.glob("*.jsonl") if p.stem.isdecimal())


def read_arrays(folder: Path) -> Iterator[bytes]:
    """The JSON arrays of all whole lines, oldest first; a line that is torn or damaged is passed over."""
    for path in journal_files(folder):
        with path.open("rb") as file:
            for line in file:
                array = checked_array(line)
                if array is not None:
                    yield array


def damaged_lines(folder: Path) -> list[tuple[Path, int]]:
    """File and line number of every line that does not match its checksum."""
    found = []
    for path in journal_files(folder):
        with path.open("rb") as file:
            found.extend((path, number) for number, line in enumerate(file, 1) if checked_array(line) is None)
    return found


def checked_array(line: bytes) -> bytes | None:
    """The JSON array of one line; None where the line is torn or damaged."""
    if not line.endswith(b"}\n"):
        return None
    array = line[_HEAD_LENGTH:-2]
    return array if line[:_HEAD_LENGTH] == _HEAD % zlib.crc32(array) else None
