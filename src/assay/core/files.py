"""Files of a run: replaced in one step, refused with a sentence, locked against a second writer."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from assay.core.errors import StorageError, UsageError

PROBE_BYTES = 2**16
LOCK_TRIES, LOCK_PAUSE = 20, 0.05
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
CLOSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_OS_ERROR = re.compile(r"\(os error (\d+)\)")


def disk_errno(error: BaseException) -> int | None:
    """Why the system refused to write, also where polars wrapped it in an error of its own; None = it did not."""
    if isinstance(error, OSError):
        return error.errno
    found = _OS_ERROR.search(str(error)) if type(error).__module__.startswith(("polars", "pyo3")) else None
    return int(found[1]) if found else None


def refused(path: Path | str, error: BaseException) -> StorageError:
    """The sentence for a file that could not be written."""
    number = disk_errno(error)
    if number == errno.ENOENT:
        return StorageError(
            f"{path} was moved or deleted while it was written; bring it back and resume, or begin anew."
        )
    why = os.strerror(number) if number is not None else str(error)
    if number in FULL:
        advice = "free some space"
    elif number in CLOSED:
        advice = "make its folder writable"
    else:
        advice = "see to the disk"
    return StorageError(f"Could not write to {path} ({why}); what was written before is kept: {advice} and resume.")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file to write, which takes the place of ``path`` in one step: readers see the old or the new one.

    Raises
    ------
    StorageError
        It could not be written; ``path`` is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        # A library that writes may say only that it could not; the disk says why when it is asked again.
        refusal = error if disk_errno(error) is not None else _refusal(temporary)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if refusal is not None:
            raise refused(path, refusal) from error
        raise


def _refusal(path: Path) -> OSError | None:
    """What the system says to more bytes in a file; None = it takes them."""
    try:
        with path.open("ab") as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` in one step: readers see the old or the new file, whole."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def sync_folder(path: Path) -> None:
    """Force a folder's entries (new names, new places) to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove the halves of files that killed processes left; only for whoever holds the folder's lock."""
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, made when missing, for writing. The lock is the system's, so it ends with the process.

    Raises
    ------
    UsageError
        Another process holds it; the sentence names it.
    StorageError
        The folder cannot be written to.
    """
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Not "w": who holds the lock stands in the file.
        file = path.open("a+b")
    except OSError as error:
        raise refused(path, error) from error
    with file:
        # A process that was just killed may hold it for a moment, through a child between fork and exec.
        for patience in range(LOCK_TRIES, -1, -1):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not patience:
                    raise UsageError(_taken(folder, path)) from None
                time.sleep(LOCK_PAUSE)
            except OSError as error:
                raise StorageError(
                    f"{path} cannot be locked ({error.strerror}); keep runs on a disk that has locks."
                ) from error
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": dt.datetime.now(dt.UTC).isoformat()}
        # On a full disk the lock holds without a name in it.
        with contextlib.suppress(OSError):
            file.truncate(0)
            file.write(msgspec.json.encode(holder))
            file.flush()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                file.truncate(0)


def is_locked(folder: Path) -> bool:
    """Whether a process holds the folder for writing."""
    try:
        with (folder / ".lock").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            fcntl.flock(file, fcntl.LOCK_UN)
    except OSError:
        return False
    return False


def _taken(folder: Path, lock: Path) -> str:
    try:
        holder: Any = msgspec.json.decode(lock.read_bytes())
        pid, host, since = int(holder["pid"]), str(holder["host"]), str(holder["since"])[:19]
    except (OSError, ValueError, TypeError, KeyError, msgspec.MsgspecError):
        return f"Another process is writing to {folder}; wait until it is done, or stop it, and resume."
    if host != socket.gethostname():
        who = f"pid {pid} on {host}"
    elif pid == os.getpid():
        who = f"another thread of this process, pid {pid}"
    elif _alive(pid):
        who = f"pid {pid} on this machine, {host}"
    else:
        who = f"one that pid {pid}, which has ended, left behind on {host}"
    return (
        f"Another process is writing to {folder} ({who}, since {since} UTC); "
        "wait until it is done, or stop it, and resume."
    )


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
