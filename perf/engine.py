"""assay's engine beside inspect-ai and lm-eval, and alone on very many trials.

    python perf/engine.py                       # everything; the peers' environments are made at the first call
    python perf/engine.py --no-peers            # assay alone
    python perf/engine.py --json engine.json    # the same figures for programs
    python perf/engine.py --no-peers --profile  # and where assay's processor time goes

What is measured and what each number means: perf/README.md. This script stays small in memory and imports nothing of
assay: a child's peak memory is never less than what its parent held when it was started.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent / "peers"
sys.path.insert(0, str(HERE))

from clock import MARK  # noqa: E402
from questions import accuracy  # noqa: E402

WARM_UP = 64
COMMAND_SECONDS = 300.0
STARTS = 7


class Broken(Exception):
    """A measurement that cannot be trusted: a command failed, or the contestants did not do the same work."""


@dataclass
class Cost:
    """What one process cost, from its start to its end.

    ``cpu`` counts user and system seconds of the process and of its children that it waited for, ``peak_mb`` the
    largest resident set of any one of them; ``told`` is what the process said of itself.
    """

    cpu: float
    wall: float
    peak_mb: float
    told: dict[str, Any] = field(default_factory=dict)


def measured(
    command: Sequence[str | Path],
    *,
    extra: Mapping[str, str] | None = None,
    killed: bool = False,
    limit: float = COMMAND_SECONDS,
    cwd: Path | None = None,
) -> Cost:
    """Run a command and say what it cost.

    Parameters
    ----------
    extra
        Environment variables beside those of this process.
    killed
        The command ends itself by SIGKILL, and must.
    limit
        Seconds after which it is killed and Broken raised.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **(extra or {})}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = time.perf_counter()
        child = subprocess.Popen(
            [str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, cwd=cwd,
            start_new_session=True,
        )  # fmt: skip
        timer = threading.Timer(limit, os.killpg, (child.pid, signal.SIGKILL))
        timer.start()
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begun
        timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        told = [line[len(MARK) :] for line in out.read().decode().splitlines() if line.startswith(MARK)]
        if child.returncode != (-signal.SIGKILL if killed else 0) or wall >= limit:
            name = " ".join(Path(c).name for c in map(str, command[:3]))
            tail = err.read().decode(errors="replace")[-2000:]
            raise Broken(f"`{name}` ended with {child.returncode} after {wall:.0f} s:\n{tail}")
    return Cost(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024, json.loads(told[-1]) if told else {})


class Server:
    """The loopback server in a process of its own; ``with Server(0.05) as server: server.url``."""

    def __init__(self, latency: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, HERE / "server.py", str(latency)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._ask, self._hear = self._process.stdin, self._process.stdout
        self.url = self._hear.readline().strip()
        if not self.url:
            raise Broken("the loopback server did not start")

    def seen(self) -> dict[str, Any]:
        """Requests, different questions, most at once and CPU seconds since the last call."""
        self._ask.write("\n")
        self._ask.flush()
        return json.loads(self._hear.readline())

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._ask.close()
        self._process.wait(10)
        self._hear.close()


# -- contestants -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contestant:
    """Who answers the questions: a script of ``perf/peers``, the interpreter that runs it, its last arguments."""

    name: str
    script: str
    python: Path
    arguments: tuple[str, ...] = ()


def peer_python(name: str) -> Path:
    """Interpreter of a peer's own environment, made at the first call from ``perf/peers/NAME.txt``."""
    pins = (HERE / f"{name}.txt").read_text()
    cache = Path(os.environ.get("ASSAY_CACHE") or Path.home() / ".cache" / "assay")
    folder = cache / "peers" / name
    stamp, python = folder / "pins.txt", folder / "bin" / "python"
    if stamp.is_file() and stamp.read_text() == pins:
        return python
    print(f"making the environment of {name} in {folder} (minutes, once)", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-deps", "-r", HERE / f"{name}.txt"], capture_output=True, text=True
    )
    if done.returncode:
        raise Broken(f"{name} could not be installed; --no-peers goes on without it:\n{done.stderr[-1500:]}")
    stamp.write_text(pins)
    return python


def contestants(peers: bool) -> list[Contestant]:
    """assay as it comes and without its request cache (the peers have theirs off), then the peers."""
    own = Path(sys.executable)
    found = [
        Contestant("assay", "with_assay.py", own, ("on",)),
        Contestant("assay, cache off", "with_assay.py", own, ("off",)),
    ]
    if peers:
        inspect, lm_eval = peer_python("inspect-ai"), peer_python("lm-eval")
        found += [
            Contestant("inspect-ai", "with_inspect.py", inspect, ("on",)),
            Contestant("inspect-ai, realtime log off", "with_inspect.py", inspect, ("off",)),
            Contestant("lm-eval", "with_lm_eval.py", lm_eval),
        ]
    return found


def ask(who: Contestant, server: Server, options: argparse.Namespace, warm: bool) -> dict[str, Any]:
    """One process of a contestant on all questions; what it did is checked against what the server saw."""
    count, warm_up = options.samples, WARM_UP if warm else 0
    with tempfile.TemporaryDirectory(prefix="assay-perf-") as folder:
        extra = {"ASSAY_CACHE": f"{folder}/cache"}
        command = [who.python, HERE / who.script, server.url, folder, count, warm_up, options.connections]
        cost = measured([*map(str, command), *who.arguments], extra=extra, cwd=Path(folder))
    seen = server.seen()
    expected = accuracy(range(count))
    if seen["requests"] != count + warm_up or seen["questions"] != count + warm_up:
        raise Broken(f"{who.name}: {seen} for {count + warm_up} questions")
    if abs(cost.told["accuracy"] - expected) > 1e-9:
        raise Broken(f"{who.name}: accuracy {cost.told['accuracy']}, expected {expected}")
    return {**asdict(cost), "seen": seen}


def side_by_side(options: argparse.Namespace) -> dict[str, Any]:
    """Figures of all contestants; medians over the repeats of assay's, one call of the peers'."""
    results: dict[str, Any] = {}
    everybody = contestants(options.peers)
    with Server(options.latency) as server:
        for who in everybody:
            own = who.script == "with_assay.py"
            whole, warm = [], []
            for _ in range(options.repeats if own else 1):
                say(who.name)
                whole.append(ask(who, server, options, warm=False))
                warm.append(ask(who, server, options, warm=True))
            each = 1000 / options.samples
            results[who.name] = {
                "whole_cpu_s": middle([w["cpu"] for w in whole]),
                "whole_ms": middle([w["cpu"] for w in whole]) * each,
                "whole_wall_s": middle([w["wall"] for w in whole]),
                "warm_ms": middle([w["told"]["run"]["cpu"] for w in warm]) * each,
                "warm_wall_s": middle([w["told"]["run"]["wall"] for w in warm]),
                "peak_mb": max(w["peak_mb"] for w in whole),
                "accuracy": whole[0]["told"]["accuracy"],
                "requests": whole[0]["seen"]["requests"],
                "most_at_once": whole[0]["seen"]["peak"],
                "server_cpu_s": middle([w["seen"]["cpu"] for w in whole]),
                "calls": {"whole": whole, "warm": warm},
            }
    return results


# -- assay alone -------------------------------------------------------------------------------------------------------


def scale(options: argparse.Namespace) -> dict[str, Any]:
    """Planning, running, resuming and reading back very many trials of a system that answers at once."""
    count = options.records
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="assay-perf-") as folder:
        extra = {"ASSAY_CACHE": f"{folder}/cache"}

        def step(what: str, key: str | None, repeats: int = 1, killed: bool = False) -> dict[str, Any]:
            costs = []
            for _ in range(repeats):
                say(f"{count:,} trials: {what}")
                command = [sys.executable, HERE / "scale.py", what, f"{folder}/run", str(count)]
                costs.append(measured(command, extra=extra, killed=killed, cwd=Path(folder)))
            told = costs[-1].told
            phases = [c.told[key] for c in costs] if key else [{"cpu": c.cpu, "wall": c.wall} for c in costs]
            found = {m: middle([p[m] for p in phases]) for m in ("cpu", "wall")}
            return {**found, "peak_mb": max(c.peak_mb for c in costs), "told": told}

        results["plan"] = step("plan", "plan", options.repeats)
        results["run until killed at 95 %"] = step("kill", None, killed=True)
        results["resume, to the first new trial"] = step("restart", "restart", options.repeats, killed=True)
        results["read the journal of a killed run"] = step("read", "read", options.repeats)
        results["resume to the end, and compact"] = step("finish", "finish")
        results["resume a finished run"] = step("again", "again", options.repeats)
        results["read records"] = step("read", "read", options.repeats)
        results["score with interval"] = step("score", "score", options.repeats)
    told = results["resume to the end, and compact"]["told"]
    if told["records"] != count or told["status"] != "finished" or results["read records"]["told"]["records"] != count:
        raise Broken(f"of {count} records there are {told} after resuming, {results['read records']['told']} read back")
    if results["resume a finished run"]["told"]["answered"]:
        raise Broken("resuming a finished run asked the system again")
    return results


def start_up() -> dict[str, Any]:
    """Medians of seven starts; the first one, which may still read from the disk, is thrown away."""
    command = Path(sys.executable).parent / "assay"
    cases: dict[str, list[str | Path]] = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import assay": [sys.executable, "-c", "import assay"],
        "assay --help": [command, "--help"],
        "assay list": [command, "list"],
    }
    results = {}
    for name, case in cases.items():
        say(name)
        costs = [measured(case) for _ in range(STARTS + 1)][1:]
        results[name] = {"cpu": middle([c.cpu for c in costs]), "wall": middle([c.wall for c in costs])}
    return results


def profile(options: argparse.Namespace) -> str:
    """Where the main thread of a warm assay run spends its processor time."""
    with tempfile.TemporaryDirectory(prefix="assay-perf-") as folder, Server(0.01) as server:
        out = Path(folder) / "profile.txt"
        command = [sys.executable, HERE / "with_assay.py", server.url, folder, 5 * options.samples, WARM_UP]
        arguments = [*map(str, command), str(options.connections), "on", str(out)]
        measured(arguments, extra={"ASSAY_CACHE": f"{folder}/cache"}, cwd=Path(folder))
        return out.read_text()


# -- verdicts ----------------------------------------------------------------------------------------------------------


def targets(found: Mapping[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The design's promises beside what was measured; only those whose figures there are."""
    rows: list[dict[str, Any]] = []

    def promise(text: str, value: float, bound: float, unit: str, *, least: bool = False) -> None:
        kept = value >= bound if least else value <= bound
        rows.append({"target": text, "measured": value, "bound": bound, "unit": unit, "least": least, "met": kept})

    beside, alone, starts = found["side_by_side"], found["scale"], found["start_up"]
    assay = beside["assay"]
    promise("CPU a trial, all in, warm", assay["warm_ms"], 0.6, "ms")
    for peer, times in (("inspect-ai", 30), ("lm-eval", 8)):
        if peer in beside:
            ratio = beside[peer]["whole_cpu_s"] / assay["whole_cpu_s"]
            promise(f"whole process, times less CPU than {peer}", ratio, times, "x", least=True)
    count = f"{options.records:,}"
    promise(f"plan {count} trials, wall", alone["plan"]["wall"], 1.0, "s")
    promise(
        f"resume {count} trials, wall to the first new one", alone["resume, to the first new trial"]["wall"], 1, "s"
    )
    promise(f"read {count} records back, wall", alone["read records"]["wall"], 1.0, "s")
    for name in ("assay --help", "assay list"):
        promise(f"{name}, wall", starts[name]["wall"], 0.3, "s")
    return rows


def middle(values: Sequence[float]) -> float:
    """Median."""
    return statistics.median(values)


def say(text: str) -> None:
    """One line of what is being measured, on standard error."""
    print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr)


def load() -> list[float]:
    """Load averages: how much else this machine is doing."""
    return [round(x, 1) for x in os.getloadavg()]


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned text: the first column to the left, the others to the right."""
    texts = [[c if isinstance(c, str) else f"{c:,.3g}" if abs(c) < 1000 else f"{c:,.0f}" for c in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    lines = [
        "  ".join([r[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(r[1:], widths[1:]))]) for r in [head, *texts]
    ]
    return "\n".join([title, lines[0], "-" * len(lines[0]), *lines[1:], ""])


def shown(found: Mapping[str, Any], options: argparse.Namespace) -> str:
    """All figures as text."""
    beside = found["side_by_side"]
    base, ideal = beside["assay"], found["ideal_wall_s"]
    title = (
        f"{options.samples:,} questions, {options.connections} at a time, answered after {options.latency * 1000:g} ms "
        f"(ideal wall {ideal:.2f} s)"
    )
    lines: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
        ("whole process, CPU s", lambda r: r["whole_cpu_s"]),
        ("  ms a trial", lambda r: r["whole_ms"]),
        ("  over assay's", lambda r: f"{r['whole_cpu_s'] / base['whole_cpu_s']:.2f}x"),
        ("  wall s", lambda r: r["whole_wall_s"]),
        ("  peak MB", lambda r: f"{r['peak_mb']:.0f}"),
        ("warm, CPU ms a trial", lambda r: f"{r['warm_ms']:.3f}"),
        ("  over assay's", lambda r: f"{r['warm_ms'] / base['warm_ms']:.2f}x"),
        ("  wall s", lambda r: r["warm_wall_s"]),
        ("  over ideal wall", lambda r: f"{r['warm_wall_s'] / ideal:.2f}x"),
        ("accuracy", lambda r: f"{r['accuracy']:.4f}"),
        ("requests seen", lambda r: f"{r['requests']:,}"),
        ("most in flight", lambda r: str(r["most_at_once"])),
        ("server's CPU s", lambda r: r["server_cpu_s"]),
    ]
    parts = [table(title, ["", *beside], [[name, *(of(r) for r in beside.values())] for name, of in lines])]
    if not options.peers:
        parts[0] += "The peers were left out (--no-peers).\n"
    per = 1e6 / options.records
    parts.append(
        table(
            f"assay alone, {options.records:,} trials of a system that answers at once",
            ["", "CPU s", "wall s", "CPU us a trial", "peak MB"],
            [[name, r["cpu"], r["wall"], r["cpu"] * per, r["peak_mb"]] for name, r in found["scale"].items()],
        )
    )
    parts.append(
        table(
            f"start-up, median of {STARTS}",
            ["", "CPU s", "wall s"],
            [[name, r["cpu"], r["wall"]] for name, r in found["start_up"].items()],
        )
    )
    verdicts = []
    for t in found["targets"]:
        bound = f"{'>=' if t['least'] else '<='} {t['bound']:g} {t['unit']}"
        verdicts.append([t["target"], bound, t["measured"], "met" if t["met"] else "MISSED"])
    parts.append(table("targets of the design", ["", "target", "measured", "verdict"], verdicts))
    parts.append(
        f"load averages before and after: {found['load_before']}, {found['load_after']} on {os.cpu_count()} cores"
    )
    return "\n".join(parts)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000, help="questions")
    parser.add_argument("--connections", type=int, default=64, help="questions in flight")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds before the server answers")
    parser.add_argument("--records", type=int, default=200_000, help="trials for assay alone")
    parser.add_argument("--repeats", type=int, default=3, help="calls of assay's processes; medians are shown")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="assay alone")
    parser.add_argument("--profile", action="store_true", help="print where assay's processor time goes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 when contestants did not do the same work, missed targets are only printed."""
    options = parsed(arguments)
    begun = time.perf_counter()
    try:
        found: dict[str, Any] = {
            "host": {"python": platform.python_version(), "platform": platform.platform(), "cpus": os.cpu_count()},
            "options": {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()},
            "ideal_wall_s": options.samples / options.connections * options.latency,
            "load_before": load(),
            "start_up": start_up(),
            "scale": scale(options),
            "side_by_side": side_by_side(options),
        }
        found["load_after"] = load()
        found["targets"] = targets(found, options)
        found["seconds"] = time.perf_counter() - begun
        if options.profile:
            found["profile"] = profile(options)
    except Broken as problem:
        print(f"perf/engine.py: {problem}", file=sys.stderr)
        return 1
    print(shown(found, options))
    print(f"measured in {found['seconds']:.0f} s")
    if options.profile:
        print(found["profile"])
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
