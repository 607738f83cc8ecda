"""The worker: takes jobs from the database and has each scored by a process of its own, within time and memory.

A claim is a lease: a random name that alone may finish the job, and a count that is raised while the worker lives. A
worker that sees the count of another stand still for longer than the lease takes the job over. No clock of any machine
is compared with another, so clocks may jump; and what a worker finishes after its lease was taken is thrown away.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from assay.server.boards import history
from assay.server.boards.judge import DISK_FULL, RESULT
from assay.server.boards.ladder import released, rounded, rounded_interval
from assay.server.boards.submissions import sealed_folder, stored, uploads
from assay.server.boards.tables import BROKEN, CLOSED, FAILED, OPEN, QUEUED, REFUSED, RUNNING, SCORED, Board, Entry, Job
from assay.server.database import Database, now, open_database
from assay.server.settings import Settings

LEASE_SECONDS = 30.0
POLL_SECONDS = 0.5
MEMORY_SECONDS = 0.1
LEFT_SECONDS = 2 * 86_400
"""Longer than any upload or scoring lasts."""
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "OMP_NUM_THREADS", "SSL_CERT_FILE")


@dataclass
class Claim:
    """A job that this worker holds."""

    job: int
    lease: str
    tries: int
    board: Board
    entry: Entry | None


@dataclass
class Worker:
    """One worker; several may share a database.

    Parameters
    ----------
    sealed
        Folder of the hidden options, 0700; None = ``sealed`` in the server's folder.
    lease_seconds
        How long another worker's count may stand still.
    """

    database: Database
    settings: Settings
    sealed: Path | None = None
    lease_seconds: float = LEASE_SECONDS
    name: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}")

    def __post_init__(self) -> None:
        self._seen: dict[int, tuple[str, int, float]] = {}
        self._sealed = self.sealed or sealed_folder(self.settings)
        self._sealed.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()

    def _sweep(self) -> None:
        """Remove what was left behind by processes that were killed: halves of uploads, exports, folders of judges."""
        folder = uploads(self.settings)
        left = [*folder.glob("incoming-*"), *folder.glob("export-*"), *self._private("scratch").glob("judge-*")]
        for path in left:
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > LEFT_SECONDS:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set."""
        while not stop.is_set():
            try:
                worked = self.step(stop)
            except OperationalError as error:
                # The database is away or busy: its jobs are safe, and it may come back.
                print(f"board worker: {str(error.orig or error).splitlines()[0]}", file=sys.stderr)
                worked = False
            if not worked:
                stop.wait(POLL_SECONDS)

    def step(self, stop: threading.Event | None = None) -> bool:
        """Take over what was left behind, then do one job; False = there was none."""
        self.reap()
        claim = self.claim()
        if claim is None:
            return False
        self.work(claim, stop or threading.Event())
        return True

    def claim(self) -> Claim | None:
        """Take the oldest job that waits; it is nobody else's then."""
        with self.database.session() as session:
            waiting = sa.select(Job).where(Job.status == QUEUED).order_by(Job.id).limit(1)
            job = session.scalar(waiting.with_for_update(skip_locked=True, of=Job))
            if job is None:
                return None
            job.status, job.lease, job.worker = RUNNING, secrets.token_urlsafe(16), self.name
            job.beats, job.tries = 0, job.tries + 1
            if job.entry is not None:
                job.entry.status = RUNNING
            return Claim(job.id, job.lease, job.tries, job.board, job.entry)

    def reap(self) -> None:
        """Put jobs back whose worker shows no life, or fail them when they were tried often enough."""
        at = time.monotonic()
        with self.database.reading() as session:
            running = session.execute(sa.select(Job.id, Job.lease, Job.beats).where(Job.status == RUNNING)).all()
        seen = {}
        for job, lease, beats in running:
            known = self._seen.get(job)
            since = known[2] if known and known[:2] == (lease, beats) else at
            seen[job] = (lease, beats, since)
            if at - since > self.lease_seconds:
                self._give_back(job, lease, beats, "The process that scored it came to an end.")
        self._seen = seen

    def _give_back(self, job_id: int, lease: str, beats: int | None, why: str, *, counts: bool = True) -> None:
        """Queue a job again, or fail it when it was tried often enough; a try that was stopped on purpose is none."""
        with self.database.session() as session:
            board_id = session.scalar(sa.select(Job.board_id).where(Job.id == job_id))
            board = history.locked(session, int(board_id or 0))
            held = sa.select(Job).where(Job.id == job_id, Job.lease == lease, Job.status == RUNNING)
            if beats is not None:
                held = held.where(Job.beats == beats)
            job = session.scalar(held.with_for_update(of=Job))
            if job is None:
                return
            job.lease, job.worker = "", ""
            job.tries -= not counts
            if job.tries < board.tries:
                job.status = QUEUED
                if job.entry is not None:
                    job.entry.status = QUEUED
                return
            job.status = FAILED
            times = f"{job.tries} times" if job.tries > 1 else "once"
            if job.entry is not None:
                _fail(session, board, job.entry, f"{why} It was tried {times}.")
            elif board.state != CLOSED:
                board.state, board.reason = BROKEN, f"{why} It was tried {times}."

    # -- one job -------------------------------------------------------------------------------------------------------

    def work(self, claim: Claim, stop: threading.Event) -> None:
        """Carry out a claim, beating all the while."""
        if claim.entry is None and claim.board.state == CLOSED:
            self._publish_final(claim)
            return
        scratch = Path(tempfile.mkdtemp(prefix="judge-", dir=self._private("scratch")))
        try:
            answer = self._judged(claim, scratch, stop)
            if answer is None:
                return
            if answer.get("detail"):
                self._note(claim, answer["detail"])
            if claim.entry is None:
                self._prepared(claim, answer)
            else:
                self._finish(claim, answer)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _judged(self, claim: Claim, scratch: Path, stop: threading.Event) -> dict[str, Any] | None:
        """What the judge says; None = the job is no longer ours, or was given back."""
        board = claim.board
        order = {
            "task": "prepare" if claim.entry is None else "judge", "scratch": str(scratch),
            "benchmark": board.benchmark, "options": board.options, "metric": board.metric,
            "sealed": str(self._sealed / board.sealed), "share": board.shown_share, "salt": self._salt(board).hex(),
            "truth": mark.read_text() if (mark := self._mark(board)).is_file() else "",
            "unpacked_bytes": board.unpacked_bytes, "files": board.files,
        }  # fmt: skip
        if claim.entry is not None:
            order |= {
                "upload": str(stored(self.settings, claim.entry)), "file_name": claim.entry.file_name,
                "system": claim.entry.system,
            }  # fmt: skip
        said = scratch / "said.txt"
        with said.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "assay.server.boards.judge"], stdin=subprocess.PIPE, stdout=log, stderr=log,
                cwd=scratch, env=self._environment(scratch), start_new_session=True,
            )  # fmt: skip
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(msgspec.json.encode(order))  # type: ignore[union-attr]
                process.stdin.close()  # type: ignore[union-attr]
            ended = self._watch(process, claim, stop)
        finally:
            _kill_tree(process)
        if ended == "lost":
            return None
        if ended == "stop":
            self._give_back(claim.job, claim.lease, None, "The worker was stopped.", counts=False)
            return None
        if ended:
            return {"status": FAILED, "reason": ended}
        if process.returncode == DISK_FULL:
            return self._without_room(claim, stop)
        try:
            return msgspec.json.decode((scratch / RESULT).read_bytes())
        except (OSError, msgspec.MsgspecError):
            self._note(claim, f"exit code {process.returncode}\n{said.read_text(errors='replace')[-4000:]}")
            self._give_back(claim.job, claim.lease, None, "The process that scored it came to an end.")
            return None

    def _without_room(self, claim: Claim, stop: threading.Event) -> None:
        """Put a job back for which the disk had no room, and give people time to make some."""
        print("board worker: the disk is full; free some space.", file=sys.stderr)
        self._give_back(claim.job, claim.lease, None, "The server's disk was full.")
        stop.wait(self.lease_seconds)

    def _watch(self, process: subprocess.Popen[bytes], claim: Claim, stop: threading.Event) -> str:
        """Wait for the judge; "" = it ended by itself, ``lost`` = the lease is another's, else why it was stopped."""
        board, begun = claim.board, time.monotonic()
        beat = begun
        while process.poll() is None:
            at = time.monotonic()
            if at - begun > board.seconds:
                return f"Scoring took longer than the {board.seconds:g} s that this board allows."
            if _memory_mb(process.pid) > board.memory_mb:
                return f"Scoring took more memory than the {board.memory_mb} MB that this board allows."
            if stop.is_set():
                return "stop"
            if at - beat > self.lease_seconds / 5:
                beat = at
                if not self.beat(claim):
                    return "lost"
            time.sleep(MEMORY_SECONDS if at - begun > 1 else 0.02)
        return ""

    def beat(self, claim: Claim) -> bool:
        """Show life; False = the lease is no longer ours."""
        with self.database.session() as session:
            mine = sa.update(Job).where(Job.id == claim.job, Job.lease == claim.lease, Job.status == RUNNING)
            return session.scalar(mine.values(beats=Job.beats + 1).returning(Job.id)) is not None

    def _finish(self, claim: Claim, answer: dict[str, Any]) -> bool:
        """Write the verdict down, if the lease still holds."""
        with self.database.session() as session:
            board = history.locked(session, claim.board.id)
            job = self._held(session, claim)
            if job is None or job.entry is None:
                return False
            entry = job.entry
            job.status, job.lease = SCORED, ""
            if answer["status"] == REFUSED:
                entry.status, entry.finished = REFUSED, now()
                entry.faults, entry.faults_left = answer["faults"], answer["left"]
                entry.reason = answer["faults"][0]
                history.write(
                    session, board, "refused", entry=entry.number, faults=len(answer["faults"]) + answer["left"]
                )
            elif answer["status"] == FAILED:
                _fail(session, board, entry, answer["reason"])
            else:
                self._keep_final(entry, answer["final"])
                _publish(session, board, entry, answer["shown"])
                if board.state == CLOSED:
                    self._show_final(session, board, entry)
            return True

    def _prepared(self, claim: Claim, answer: dict[str, Any]) -> None:
        with self.database.session() as session:
            board = history.locked(session, claim.board.id)
            job = self._held(session, claim)
            if job is None:
                return
            job.status, job.lease = SCORED, ""
            if board.state == CLOSED:
                # Closed while the truth was looked at: it stays so.
                return
            if answer["status"] != "open":
                board.state, board.reason = BROKEN, answer["reason"]
                return
            board.state, board.reason, board.expected = OPEN, "", answer["expected"]
            board.metric, board.higher_is_better = answer["headline"], answer["higher_is_better"]
            self._mark(board).touch(mode=0o600)
            self._mark(board).write_text(answer["truth"])
            history.write(session, board, "opened", metric=board.metric, expected=board.expected)

    def _publish_final(self, claim: Claim) -> None:
        """Publish what entries got on the part that was not shown."""
        with self.database.session() as session:
            board = history.locked(session, claim.board.id)
            job = self._held(session, claim)
            if job is None:
                return
            job.status, job.lease = SCORED, ""
            entries = sa.select(Entry).where(Entry.board_id == board.id, Entry.status == SCORED, Entry.final.is_(None))
            for entry in session.scalars(entries.order_by(Entry.number)):
                self._show_final(session, board, entry)

    def _show_final(self, session: Any, board: Board, entry: Entry) -> None:
        path = self._private("finals") / f"{entry.key}.json"
        if not entry.withheld and path.is_file():
            entry.final = _shown(board, msgspec.json.decode(path.read_bytes()))
            history.write(session, board, "final", entry=entry.number, scores=entry.final)

    def _held(self, session: Any, claim: Claim) -> Job | None:
        mine = sa.select(Job).where(Job.id == claim.job, Job.lease == claim.lease, Job.status == RUNNING)
        return session.scalar(mine.with_for_update(of=Job))

    # -- what only the scorer keeps ------------------------------------------------------------------------------------

    def _private(self, name: str) -> Path:
        folder = self._sealed / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _salt(self, board: Board) -> bytes:
        """What decides the part of each sample; made once a board."""
        path = self._private("salts") / board.key
        with contextlib.suppress(FileExistsError):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(32))
        return path.read_bytes()

    def _mark(self, board: Board) -> Path:
        """Where the mark of the truth lies that the board opened with."""
        return self._private("marks") / board.key

    def _keep_final(self, entry: Entry, scores: list[dict[str, Any]]) -> None:
        path = self._private("finals") / f"{entry.key}.json"
        path.touch(mode=0o600)
        path.write_bytes(msgspec.json.encode(scores))

    def _note(self, claim: Claim, detail: str) -> None:
        """For the organiser: why something could not be scored. Never shown by the server."""
        name = claim.entry.key if claim.entry else f"board-{claim.board.name}"
        path = self._private("log") / f"{name}.{claim.tries}.txt"
        path.touch(mode=0o600)
        path.write_text(detail, encoding="utf-8")

    def _environment(self, scratch: Path) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k in _ENVIRONMENT or k.endswith(("_API_KEY", "_BASE_URL"))}
        return {
            **kept, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONUNBUFFERED": "1",
            "ASSAY_CACHE": str(self._private("cache")), "ASSAY_RUNS": str(scratch / "runs"),
        }  # fmt: skip


@contextlib.contextmanager
def started(settings: Settings) -> Iterator[None]:
    """A worker in a process of its own, as long as the block lasts; another takes its place when it dies."""
    stop = threading.Event()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    if settings.database_url:
        environment["ASSAY_DATABASE_URL"] = settings.database_url
    command = [sys.executable, "-m", "assay.server.boards.worker", str(settings.root.resolve())]

    def keep() -> None:
        while not stop.is_set():
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
            while process.poll() is None and not stop.wait(0.2):
                pass
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
                process.wait()
            # One that cannot start is not started over and over at once.
            stop.wait(2)

    keeper = threading.Thread(target=keep, name="board worker", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join(15)


def _publish(session: Any, board: Board, entry: Entry, scores: list[dict[str, Any]]) -> None:
    """Rounded scores, or none where the team has not got better by more than the step."""
    shown = _shown(board, scores)
    exact = next(s["value"] for s in scores if s["metric"] == board.metric)
    earlier = session.scalars(
        sa.select(Entry).where(
            Entry.board_id == board.id, Entry.team_id == entry.team_id, Entry.status == SCORED, Entry.id != entry.id,
            Entry.withheld.is_(False),
        )
    )  # fmt: skip
    values = [s["value"] for e in earlier for s in e.scores or () if s["metric"] == board.metric]
    best = (max if board.higher_is_better else min)(values, default=None)
    entry.status, entry.finished, entry.reason = SCORED, now(), ""
    if released(exact, best, board.step, higher_is_better=board.higher_is_better):
        entry.scores = shown
        history.write(session, board, "scored", entry=entry.number, scores=shown)
    else:
        entry.withheld = True
        history.write(session, board, "scored", entry=entry.number, withheld=True)


def _shown(board: Board, scores: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for score in scores:
        if board.published and score["metric"] not in (*board.published, board.metric):
            continue
        low, high = score["low"], score["high"]
        if low is not None and high is not None:
            low, high = rounded_interval(low, high, board.rounding)
        found.append({**score, "value": rounded(score["value"], board.rounding), "low": low, "high": high})
    return found


def _fail(session: Any, board: Board, entry: Entry, reason: str) -> None:
    entry.status, entry.reason, entry.finished = FAILED, reason, now()
    history.write(session, board, "failed", entry=entry.number, reason=reason)


def _tree(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for process in found:
        with contextlib.suppress(OSError):
            for thread in os.scandir(f"/proc/{process}/task"):
                found += map(int, Path(thread.path, "children").read_text().split())
    return found


def _memory_mb(pid: int) -> float:
    """Resident memory of a process and all below it."""
    pages = 0
    for process in _tree(pid):
        with contextlib.suppress(OSError, IndexError, ValueError):
            pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """End a judge and whatever it started, which may have left its process group."""
    for pid in _tree(process.pid)[::-1]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main(argv: list[str] | None = None) -> None:
    """``python -m assay.server.boards.worker ROOT``, the URL in ``ASSAY_DATABASE_URL``; ends with its parent."""
    words = sys.argv[1:] if argv is None else argv
    root = Path(words[0])
    # The URL may hold a password, and arguments can be read by everybody on the machine.
    settings = Settings(root, root / "runs", database_url=os.environ.get("ASSAY_DATABASE_URL") or None)
    settings.prepare()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    worker = Worker(open_database(settings.database), settings)
    parent = os.getppid()
    threading.Thread(target=_stop_with_parent, args=(parent, stop), daemon=True).start()
    worker.run(stop)


def _stop_with_parent(parent: int, stop: threading.Event) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    stop.set()


if __name__ == "__main__":
    main()
