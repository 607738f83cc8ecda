"""A run's end of a study: puts questions to an assay server, waits for answers, starts a server where none is given."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, DataError, TrialPostponed

TOKEN_VARIABLE = "ASSAY_SERVER_TOKEN"
BATCH_BYTES = 4_000_000
BATCH_QUESTIONS = 200
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 2.0
LONGEST_RETRY = 15.0


@dataclass(frozen=True, slots=True)
class PersonsAnswer:
    """One answer: reply, pseudonym, active seconds, which of theirs it was, attention items failed by then."""

    reply: str
    respondent: str
    seconds: float
    position: int
    attention_failed: int = 0


@dataclass
class Desk:
    """One run's study at a server: sends questions in batches, fetches answers, wakes who waits for them.

    Parameters
    ----------
    name, person, address, settings, root
        Of the `HumanModel`.
    run
        What the study is known by: asked for again, it is the same study.
    """

    name: str
    person: str
    address: str | None
    settings: Mapping[str, Any]
    root: Path | None
    run: str
    waiting: dict[str, list[asyncio.Future[PersonsAnswer]]] = field(default_factory=dict)
    answers: dict[str, PersonsAnswer] = field(default_factory=dict)
    last: int = 0
    dropped: bool = False

    def __post_init__(self) -> None:
        self._outbox: list[tuple[dict[str, Any], asyncio.Future[PersonsAnswer]]] = []
        self._news = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._server: LocalServer | None = None
        self._session: Any = None
        self._url = ""
        self._study = ""
        self._failure: AssayError | None = None

    async def ask(self, question: dict[str, Any]) -> PersonsAnswer:
        """Put a question and wait for its answer."""
        if self._failure is not None:
            raise self._failure
        future: asyncio.Future[PersonsAnswer] = asyncio.get_running_loop().create_future()
        self._outbox.append((question, future))
        self._news.set()
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        try:
            return await future
        except asyncio.CancelledError:
            self.dropped = True
            raise

    async def close(self) -> None:
        """Close the study when every question has its answer; else it stays open, and a resumed run finds it."""
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._worker
        try:
            if self._study and not self.dropped and not self.waiting and not self._outbox and self._failure is None:
                with contextlib.suppress(Exception):
                    await self._call("POST", f"/api/people/studies/{self._study}/close")
        finally:
            if self._session is not None:
                await self._session.close()
            if self._server is not None:
                await self._server.stop()

    async def _work(self) -> None:
        try:
            await self._open()
            pause = FIRST_PAUSE
            while True:
                if self._outbox:
                    await self._send()
                    pause = FIRST_PAUSE
                if await self._fetch():
                    pause = FIRST_PAUSE
                self._news.clear()
                if not self._outbox:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._news.wait(), pause)
                pause = min(LONGEST_PAUSE, pause * 1.3)
        except asyncio.CancelledError:
            raise
        except AssayError as error:
            self._fail(error)
        except Exception as error:
            self._fail(TrialPostponed(f"The questions of {self.name} cannot be put ({type(error).__name__}: {error})."))

    def _fail(self, error: AssayError) -> None:
        self._failure = error
        everybody = [f for futures in self.waiting.values() for f in futures] + [f for _, f in self._outbox]
        for future in everybody:
            if not future.done():
                future.set_exception(error)

    async def _open(self) -> None:
        import aiohttp

        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=120), cookie_jar=aiohttp.DummyCookieJar()
        )
        if self.address is None:
            self._server = LocalServer(self.root)
            self._url, token = await self._server.start()
        else:
            self._url, token = self.address, os.environ[TOKEN_VARIABLE]
        self._session.headers["Authorization"] = f"Bearer {token}"
        body = {"run": self.run, "title": self.run.partition(" ")[0].partition("--")[0], "person": self.person}
        settings = {k: v for k, v in self.settings.items() if v is not None}
        made = await self._call("POST", "/api/people/studies", {**body, "settings": settings}, patient=False)
        self._study = made["study"]
        who = self.person or "a panel"
        # A line of its own: a terminal that breaks lines must not break the address.
        print(f"{self.name}: questions for {who} at\n{made['link']}", file=sys.stderr, flush=True)

    async def _send(self) -> None:
        """Everything in the outbox, in requests of bounded size."""
        await asyncio.sleep(0.02)  # whatever else is being asked at this moment goes along
        while self._outbox:
            batch, size = [], 0
            while self._outbox and len(batch) < BATCH_QUESTIONS:
                weight = sum(len(json.dumps(m)) for m in self._outbox[0][0]["messages"])
                if batch and size + weight > BATCH_BYTES:
                    break
                batch.append(self._outbox.pop(0))
                size += weight
            await self._put([b for b in batch if not b[1].done()])

    async def _put(self, batch: list[tuple[dict[str, Any], asyncio.Future[PersonsAnswer]]]) -> None:
        if not batch:
            return
        try:
            found = await self._call(
                "POST", f"/api/people/studies/{self._study}/questions", {"questions": [q for q, _ in batch]}
            )
        except DataError as error:
            # One question that cannot be shown must not take the others with it.
            if len(batch) == 1:
                batch[0][1].set_exception(error)
                return
            for one in batch:
                await self._put([one])
            return
        for question, future in batch:
            self.waiting.setdefault(found["questions"][question["id"]], []).append(future)
        self._wake()

    async def _fetch(self) -> bool:
        """Answers since the last time; whether there were any."""
        found = await self._call("GET", f"/api/people/studies/{self._study}/answers?after={self.last}")
        news = self._take(found["answers"])
        if found["count"] > len(self.answers):
            # An answer with a lower number came to light later than one with a higher.
            news |= self._take((await self._call("GET", f"/api/people/studies/{self._study}/answers"))["answers"])
        self._wake()
        return news

    def _take(self, found: Sequence[Mapping[str, Any]]) -> bool:
        for a in found:
            self.answers[a["question"]] = PersonsAnswer(
                a["reply"], a["respondent"], a["seconds"], a["position"], a["attention_failed"]
            )
            self.last = max(self.last, a["number"])
        return bool(found)

    def _wake(self) -> None:
        for key in [k for k in self.waiting if k in self.answers]:
            for future in self.waiting.pop(key):
                if not future.done():
                    future.set_result(self.answers[key])

    async def _call(self, method: str, path: str, body: Any = None, *, patient: bool = True) -> Any:
        """One request; waits out a server that is down or busy, unless it was never reached."""
        import aiohttp

        pause, told = 0.2, False
        while True:
            try:
                async with self._session.request(
                    method, self._url + path, json=body, allow_redirects=False
                ) as response:
                    status, text = response.status, await response.text()
                    wait = response.headers.get("Retry-After", "")
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if not patient:
                    raise TrialPostponed(
                        f"No assay server answers at {self._url} ({error}); start one with `assay serve`, or leave the "
                        "address out, and resume the run."
                    ) from None
                if not told:
                    print(f"{self.name}: {self._url} does not answer; trying on", file=sys.stderr, flush=True)
                told = True
                if self._server is not None and self._server.ended:
                    self._url, token = await self._server.start()
                    self._session.headers["Authorization"] = f"Bearer {token}"
                await asyncio.sleep(pause)
                pause = min(LONGEST_RETRY, pause * 2)
                continue
            if status == 200:
                return json.loads(text)
            if status == 429 or status >= 500:
                await asyncio.sleep(float(wait) if wait.isdigit() else pause)
                pause = min(LONGEST_RETRY, pause * 2)
                continue
            try:
                said = json.loads(text)["error"]
            except (ValueError, KeyError, TypeError):
                said = f"it answered {status}"
            if status in (400, 413, 422) and path.endswith("/questions"):
                raise DataError(f"The server does not take the question: {said}")
            hint = f" Set {TOKEN_VARIABLE} to a token of the role submitter." if status in (401, 403) else ""
            raise TrialPostponed(f"The server at {self._url} refuses: {said}{hint}")


class LocalServer:
    """A server of our own on this machine, in a process that ends with us. It keeps its port when it starts again."""

    def __init__(self, root: Path | None) -> None:
        from assay.core.results import runs_folder

        self.runs = runs_folder()
        self.root = root if root is not None else self.runs.parent / "server"
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process is None or self._process.returncode is not None

    async def start(self) -> tuple[str, str]:
        """Address and token."""
        command = [sys.executable, "-m", "assay.server.people.local", str(self.root), str(self.runs), str(self.port)]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise TrialPostponed(
                "assay's server could not be started (what it said stands above); it needs: pip install 'assay[server]'"
            )
        said = json.loads(line)
        self.port = said["port"]
        return said["url"], said["token"]

    async def stop(self) -> None:
        """End the process: it ends when its input does."""
        if self._process is None or self._process.returncode is not None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 15)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
