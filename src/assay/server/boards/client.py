"""What `assay submit` does: look for faults here with the reader that grades there, then send, then wait."""

from __future__ import annotations

import http.client
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from assay.core.errors import AssayError, UsageError

DONE = ("scored", "refused", "failed")
_TIMEOUT = 60.0


class Boards:
    """The leaderboards of a server, over HTTP.

    Parameters
    ----------
    url
        Address of the server.
    token
        An API token of a submitter.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url!r} is not the address of a server; it begins with https:// or http://.")
        if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise UsageError("A token is not sent over plain http:// to another machine; use https://.")
        self._parts, self._token = parts, token

    def board(self, key: str) -> dict[str, Any]:
        """A board: its facts and standings."""
        return self._ask("GET", f"/api/boards/{quote(key, safe='')}")

    def submit(self, key: str, path: Path, system: str, note: str = "") -> dict[str, Any]:
        """Send a file; answers with id, number and receipt."""
        query = urlencode({"system": system, "file": path.name, "note": note})
        with path.open("rb") as body:
            size = path.stat().st_size
            return self._ask("POST", f"/api/boards/{quote(key, safe='')}/submissions?{query}", body, size)

    def entry(self, key: str, entry: str) -> dict[str, Any]:
        """A submission as it stands."""
        return self._ask("GET", f"/api/boards/{quote(key, safe='')}/submissions/{quote(entry, safe='')}")

    def wait(self, key: str, entry: str, seconds: float, told: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Look until the submission is done, or time is up."""
        end, pause = time.monotonic() + seconds, 0.5
        while True:
            found = self.entry(key, entry)
            told(found)
            if found["status"] in DONE or time.monotonic() > end:
                return found
            time.sleep(pause)
            pause = min(10.0, 1.5 * pause)

    def _ask(self, method: str, target: str, body: IO[bytes] | None = None, size: int = 0) -> Any:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            link = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=ssl.create_default_context())
        else:
            link = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        if body is not None:
            headers |= {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        try:
            link.request(method, target, body=body, headers=headers)
            reply = link.getresponse()
            text = reply.read(64 << 20)
        except (OSError, http.client.HTTPException) as error:
            raise AssayError(f"The server {self._parts.netloc} cannot be reached: {error}.") from None
        finally:
            link.close()
        try:
            answer = msgspec.json.decode(text)
        except msgspec.MsgspecError:
            raise AssayError(f"The server answered {reply.status} with something that is not JSON.") from None
        if reply.status >= 400:
            said = answer.get("error") if isinstance(answer, dict) else None
            raise (UsageError if reply.status < 500 else AssayError)(said or f"The server answered {reply.status}.")
        return answer


def split_board(text: str, server: str | None) -> tuple[str, str]:
    """(address of the server, board) of what was given: a board's page, or its name with a server beside it.

    Raises
    ------
    UsageError
        A name alone, and no server is known.
    """
    if "://" in text:
        parts = urlsplit(text)
        _, found, key = parts.path.rpartition("/boards/")
        if not found or not key.strip("/"):
            raise UsageError(f"{text} is not the page of a board; it looks like https://host/boards/NAME.")
        return f"{parts.scheme}://{parts.netloc}", key.split("/")[0]
    if not server:
        raise UsageError(f"{text!r} is the name of a board; give its whole address, or set ASSAY_SERVER.")
    return server.rstrip("/"), text


def faults_of(path: Path, board: dict[str, Any], options: dict[str, Any]) -> tuple[list[str], int, int]:
    """(first faults, number left, predictions) of a submission, found by the reader that grades.

    ``options`` replace those of the board where this machine keeps things elsewhere.
    """
    from assay.core.errors import DataError
    from assay.core.registry import load_benchmark
    from assay.server.boards.extraction import Bounds, is_archive, open_upload
    from assay.server.boards.referee import check

    benchmark = load_benchmark(board["benchmark"], **{**board["options"], **options})
    with tempfile.TemporaryDirectory(prefix="assay-submit-") as scratch:
        if path.is_file() and is_archive(path.name):
            try:
                bounds = Bounds(board["unpacked_bytes"], board["files"])
                path = open_upload(path, path.name, Path(scratch), bounds)
            except DataError as error:
                return [str(error)], 0, 0
        checked = check(benchmark, path)
    return *checked.shown(), len(checked.outcomes)


def packed(path: Path, into: Path) -> Path:
    """What is sent: a file as it is, a folder as a zip archive without links and hidden files."""
    if path.is_file():
        return path
    import zipfile

    archive = into / f"{path.resolve().name}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for file in sorted(path.rglob("*")):
            inside = file.relative_to(path)
            if file.is_file() and not file.is_symlink() and not any(p.startswith(".") for p in inside.parts):
                # A fixed time: the same folder is the same file, which a board takes once.
                entry = zipfile.ZipInfo(str(inside), (1980, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
                with file.open("rb") as data, out.open(entry, "w", force_zip64=True) as target:
                    while chunk := data.read(1 << 20):
                        target.write(chunk)
    return archive
