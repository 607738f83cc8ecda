"""The server under load: 1,000 readers and 50 submitters at once, on this machine, against `assay serve`.

Readers turn pages (the list of runs, a run, records sorted and filtered, one record, a leaderboard); submitters upload
predictions to a board and look how they fare, while the server's worker scores them. Every answer must be the one that
was asked for; memory is that of the server and all processes it started.

    python perf/server.py [--seconds 60] [--readers 1000] [--submitters 50] [--records 20000]

The benchmark behind the board is a toy of the tests: what is measured is the server, not a room.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

START = 60.0
PAGES = (
    ("/runs", 3),
    ("/runs/run", 2),
    ("/runs/run/records", 4),
    ("/runs/run/records?sort=-seconds&start={page}", 3),
    ("/runs/run/records?status=error", 1),
    ("/runs/run/record?at=doubling&sample=s{sample}", 6),
    ("/api/runs/run/progress", 2),
    ("/api/runs/run/records?start={page}&limit=20", 2),
    ("/boards", 1),
    ("/boards/{board}", 2),
)
SAMPLES = 200
SUBMIT_EVERY, LOOK_EVERY = 8.0, 2.0
TOYS = Path(__file__).parents[1] / "tests" / "support"


def main() -> None:
    """Prepare a server's folder, start it, load it, print what was seen; exit code 1 on any error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--readers", type=int, default=1000)
    parser.add_argument("--submitters", type=int, default=50)
    parser.add_argument("--records", type=int, default=20_000, help="records of the run that is read")
    parser.add_argument("--pause", type=float, default=2.0, help="mean seconds a reader looks at a page")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(load(Path(folder), arguments))


def load(folder: Path, arguments: argparse.Namespace) -> int:
    """One measurement; the exit code."""
    write_run(folder / "runs" / "run", arguments.records)
    tokens, board = prepare(folder, arguments.readers, arguments.submitters)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "assay.cli", "serve", "--root", str(folder / "server"), "--port", str(port)]
    log = (folder / "log").open("w")
    environment = {**os.environ, "PYTHONPATH": str(TOYS)}
    server = subprocess.Popen(
        [*command, "--runs", str(folder / "runs")], stderr=log, start_new_session=True, env=environment
    )
    try:
        wait_for(port, server)
        seen = asyncio.run(crowd(port, tokens, board, arguments, server.pid))
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)
        log.close()
    print((folder / "log").read_text()[-2000:], file=sys.stderr)
    return report(seen, arguments)


def write_run(path: Path, n: int) -> None:
    """A finished run of ``n`` records, each with an exchange of about 1.5 KB."""
    import assay
    from assay.core.benchmark import Benchmark, Outcome, Sample, Task
    from assay.core.metrics import mean
    from assay.systems.chat.model import ChatModel
    from assay.systems.scripted import ScriptedChatModel

    class Doubling(Task):
        name, system = "doubling", ChatModel

        def samples(self):
            return [Sample(f"s{i}", i, 2 * i, {"digit": i % 10}) for i in range(n)]

        async def trial(self, system: Any, sample: Any, ctx: Any) -> Outcome:
            if sample.input % 100 == 7:
                raise ConnectionError("the provider is away")
            text = f"Twice {sample.input}? " + "Think about it carefully. " * 25
            reply = await system.generate([{"role": "user", "content": text}])
            return Outcome({"correct": float(sample.input % 3 > 0)}, output=reply.text)

    class Doubled(Benchmark):
        name, title, metrics = "doubled", "Doubling", (mean("correct", headline=True),)

        def tasks(self):
            return [Doubling()]

    model = ScriptedChatModel(lambda messages, rng: f"{rng.random()} " + "because " * 80, name="talker")
    assay.run(Doubled(), model, into=path)


def prepare(folder: Path, readers: int, submitters: int) -> tuple[dict[str, list[str]], str]:
    """Accounts with a token each, and a board with hidden labels to submit to: tokens by role, key of the board."""
    sys.path.insert(0, str(TOYS))
    from assay.server import accounts
    from assay.server.boards.submissions import create_board
    from assay.server.boards.worker import sealed_folder
    from assay.server.database import open_database
    from assay.server.settings import Settings

    settings = Settings(root=folder / "server", runs=folder / "runs")
    settings.prepare()
    database = open_database(settings.database)
    tokens: dict[str, list[str]] = {"reader": [], "submitter": []}
    with database.session() as session:
        for role, number in (("reader", readers), ("submitter", submitters)):
            for i in range(number):
                account = accounts.create_account(session, f"{role} {i}", role)
                tokens[role].append(accounts.issue_token(session, account, "load"))
        board = create_board(
            session, settings, "labels", "toy_labels", sealed="truth.json", options={"n": SAMPLES}, a_day=10_000
        )
        key = board.key
    sealed = sealed_folder(settings)
    sealed.mkdir(mode=0o700, exist_ok=True)
    truth = {f"s{i}": str(i % 2) for i in range(SAMPLES)}
    for name, value in (("truth.json", {"truth": "./labels.json"}), ("labels.json", truth)):
        (sealed / name).write_text(json.dumps(value))
        (sealed / name).chmod(0o600)
    database.close()
    return tokens, key


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Until the server answers."""
    begun = time.monotonic()
    while time.monotonic() - begun < START:
        if server.poll() is not None:
            raise SystemExit(f"The server ended with {server.returncode} before it answered.")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("The server did not answer.")


async def crowd(
    port: int, tokens: dict[str, list[str]], board: str, arguments: argparse.Namespace, server: int
) -> dict[str, Any]:
    """Everybody at once, for as long as was asked."""
    import aiohttp

    seen: dict[str, Any] = {"times": {}, "errors": Counter(), "memory": [], "counts": Counter()}
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector, timeout=timeout) as http:
        await opened(http, board, tokens["submitter"][0])
        end = time.monotonic() + arguments.seconds
        watch = asyncio.create_task(memory(server, seen, end))
        readers = [read(http, token, i, board, arguments, seen, end) for i, token in enumerate(tokens["reader"])]
        submitters = [submit(http, token, i, board, seen, end) for i, token in enumerate(tokens["submitter"])]
        await asyncio.gather(*readers, *submitters)
        await watch
        states = [await entries(http, board, token) for token in tokens["submitter"]]
        seen["entries"] = sum(states, Counter())
    return seen


async def opened(http: Any, board: str, token: str) -> None:
    """Until the worker has opened the board."""
    begun = time.monotonic()
    while time.monotonic() - begun < START:
        async with http.get(f"/api/boards/{board}", headers={"Authorization": f"Bearer {token}"}) as answer:
            found = await answer.json()
            if found["board"]["state"] == "open":
                return
        await asyncio.sleep(0.3)
    raise SystemExit(f"The board did not open: {found}.")


async def entries(http: Any, board: str, token: str) -> Counter[str]:
    """Submissions of one team by status."""
    async with http.get(f"/api/boards/{board}/submissions", headers={"Authorization": f"Bearer {token}"}) as answer:
        found = await answer.json()
    return Counter(entry["status"] for entry in found)


async def read(
    http: Any, token: str, number: int, board: str, arguments: argparse.Namespace, seen: Any, end: float
) -> None:
    """One reader: a page, a look at it, the next page."""
    rng = random.Random(number)
    pages, weights = zip(*PAGES)
    # Nobody arrives in the same millisecond.
    await asyncio.sleep(rng.random() * arguments.pause)
    while time.monotonic() < end:
        (page,) = rng.choices(pages, weights)
        sample, start = rng.randrange(arguments.records), rng.randrange(arguments.records // 50) * 50
        await ask(http, "GET", page.format(sample=sample, page=start, board=board), page, token, seen, 200)
        await asyncio.sleep(rng.expovariate(1 / arguments.pause))


async def submit(http: Any, token: str, number: int, board: str, seen: Any, end: float) -> None:
    """One submitter: a submission, a few looks at how it fares, the next one."""
    rng = random.Random(-number)
    path = f"/api/boards/{board}/submissions"
    while time.monotonic() < end:
        await asyncio.sleep(rng.expovariate(1 / SUBMIT_EVERY))
        rows = [{"id": f"s{i}", "label": str(rng.randrange(2))} for i in range(SAMPLES)]
        body = "\n".join(map(json.dumps, rows)).encode()
        query = f"?system=guess-{number}&file=labels.jsonl"
        sent = await ask(http, "POST", path + query, "submit", token, seen, 201, data=body)
        for _ in range(3):
            await asyncio.sleep(rng.expovariate(1 / LOOK_EVERY))
            if sent:
                await ask(http, "GET", f"{path}/{sent['id']}", "how it fares", token, seen, 200)


async def ask(http: Any, method: str, path: str, name: str, token: str, seen: Any, wanted: int, **body: Any) -> Any:
    """One request; its time, and whether the answer was the one wanted. Gives JSON answers back."""
    import aiohttp

    begun = time.perf_counter()
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with http.request(method, path, headers=headers, **body) as answer:
            text = await answer.read()
            seen["counts"][answer.status] += 1
            if answer.status != wanted:
                seen["errors"][f"{name}: {answer.status} {text[:120]!r}"] += 1
                return None
            return json.loads(text) if answer.content_type == "application/json" else None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        seen["errors"][f"{name}: {type(error).__name__}"] += 1
        return None
    finally:
        seen["times"].setdefault(name, []).append(time.perf_counter() - begun)


async def memory(server: int, seen: Any, end: float) -> None:
    """Resident megabytes of the server and the processes it started, twice a second."""
    import psutil

    process = psutil.Process(server)
    while time.monotonic() < end:
        total = 0
        for one in (process, *process.children(recursive=True)):
            try:
                total += one.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        seen["memory"].append(total / 2**20)
        await asyncio.sleep(0.5)
    seen["cpu"] = sum(process.cpu_times()[:2])


def report(seen: dict[str, Any], arguments: argparse.Namespace) -> int:
    """Print it; 1 where anything went wrong."""
    everything = np.concatenate([np.array(times) for times in seen["times"].values()])
    print(f"{arguments.readers} readers, {arguments.submitters} submitters, {arguments.seconds:.0f} s")
    print(f"{'page':55} {'requests':>9} {'p50 ms':>8} {'p99 ms':>8}")
    for name, times in sorted(seen["times"].items()):
        p50, p99 = np.percentile(times, [50, 99]) * 1000
        print(f"{name:55} {len(times):9,} {p50:8.0f} {p99:8.0f}")
    p50, p99 = np.percentile(everything, [50, 99]) * 1000
    rate = everything.size / arguments.seconds
    print(f"{'all':55} {everything.size:9,} {p50:8.0f} {p99:8.0f}   {rate:.0f} requests a second")
    rss = seen["memory"]
    half = rss[len(rss) // 2] if rss else 0.0
    print(f"memory: {rss[0]:.0f} MB at first, {half:.0f} half way, {rss[-1]:.0f} at the end, {max(rss):.0f} at most")
    print(f"CPU: {seen['cpu']:.0f} s of the server; load {os.getloadavg()[0]:.1f}; answers: {dict(seen['counts'])}")
    print(f"submissions: {dict(seen['entries'])}")
    for error, number in seen["errors"].most_common(10):
        print(f"error x{number}: {error}")
    print("errors:", seen["errors"].total())
    return 1 if seen["errors"] else 0


if __name__ == "__main__":
    main()
