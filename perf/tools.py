"""The Python tool and MCP tools beside gem-llm 0.1.0's, with the same results, in one run.

    python perf/tools.py [--calls 40] [--mcp-calls 8] [--rounds 3] [--no-peers] [--json FILE]

Python: assay's tool forks a warm process in a sandbox for every call. Beside it: gem-llm's ``bwrap`` mode, which
isolates too (it finds no interpreter when it runs in a virtual environment, so it is shown a copy of the system's);
gem-llm's default, a plain process that isolates nothing; and a bubblewrap with assay's own interpreter for every call.

MCP: assay's session stays open; gem-llm opens one, and with it starts the server, for every call. Two servers over
stdio: one of a few lines, that starts at once, and one on the official SDK, as most servers are.
The contestants take turns, round by round; the first call of each, which starts what stays, is timed apart. Processor
time counts all processes that a contestant starts: that of all calls less that of the first alone. It moves less than
wall time when the machine does other things as well.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine import HERE, Broken, load, peer_python, table

from assay.systems.tools.mcp import MCPServers
from assay.systems.tools.python import PythonTool

SERVERS = {
    "plain": [sys.executable, "-S", str(HERE.parents[1] / "tests" / "support" / "toy_mcp_server.py")],
    "official SDK": [sys.executable, str(HERE.parents[1] / "tests" / "support" / "toy_mcp_http.py")],
}
BWRAP = [
    "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--proc", "/proc",
    "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/tmp", "--clearenv",
]  # fmt: skip
Outcome = tuple[float, str]


def codes(calls: int) -> list[str]:
    """Snippets as models write them: one line of arithmetic, a loop, a standard module."""
    kinds = ["print({n} + 1)", "print(sum(i * i for i in range({n})))", "import math\nprint(math.factorial({n} % 20))"]
    return [kinds[n % 3].format(n=n) for n in range(calls)]


def assay_python(programs: Sequence[str], session: bool = False) -> list[Outcome]:
    """Seconds and output of each call of assay's tool; the first includes the sandbox's start."""

    async def run() -> list[Outcome]:
        found = []
        with PythonTool(session=session) as tool:
            for code in programs:
                begun = time.perf_counter()
                call = tool.find(f"I compute it. <python>{code}</python>")
                assert call is not None
                result = await tool.call(call.arguments)
                found.append((time.perf_counter() - begun, result.text.strip()))
        return found

    return asyncio.run(run())


def fresh_python(programs: Sequence[str], *, bare: bool) -> list[Outcome]:
    """The same, with a bubblewrap and an interpreter for every call; ``bare`` = without looking for packages."""
    python = os.path.realpath(sys.executable)
    shown = ["/usr", "/lib", "/lib64", "/bin", str(Path(python).resolve().parents[1])]
    binds = [word for path in dict.fromkeys(shown) if os.path.exists(path) for word in ("--ro-bind", path, path)]
    flags = ["-I", "-S"] if bare else ["-I"]
    found = []
    for code in programs:
        begun = time.perf_counter()
        done = subprocess.run([*BWRAP, *binds, python, *flags, "-c", code], capture_output=True, text=True)
        found.append((time.perf_counter() - begun, done.stdout.strip()))
        if done.returncode:
            raise Broken(f"bubblewrap with an interpreter fails here: {done.stderr.strip()[-300:]}")
    return found


def gem(job: dict[str, Any]) -> list[Outcome]:
    """gem-llm in its own environment; a call that it reports as an error counts as none."""
    python = peer_python("gem-llm-tools")
    env = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:  # it makes its working folders where it is
        if job.get("sandbox") == "bwrap":
            job = {**job, "prefix": str(system_prefix(Path(folder)))}
        done = subprocess.run(
            [python, HERE / "with_gem_tools.py"],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            env=env,
            cwd=folder,
        )
    if done.returncode:
        raise Broken(f"gem-llm failed: {done.stderr[-800:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    for error, text in told["said"]:
        if error:
            raise Broken(f"gem-llm reports: {text.strip()[:200]}")
    return [(s, t) for s, (_, t) in zip(told["seconds"], told["said"], strict=True)]


def system_prefix(folder: Path) -> Path:
    """What gem-llm's bwrap mode can use as its prefix: the system's interpreter under the name ``python``.

    It shows ``sys.prefix`` inside and looks for ``python`` there, which a virtual environment only links to.
    """
    found = Path("/usr/bin/python3").resolve()
    if not found.is_file():
        raise Broken("gem-llm's bwrap mode needs an interpreter in /usr/bin (apt-get install python3)")
    target = folder / "prefix" / "bin" / "python"
    target.parent.mkdir(parents=True)
    shutil.copy2(found, target)
    return folder / "prefix"


def gem_python(programs: Sequence[str], sandbox: str) -> list[Outcome]:
    """gem-llm's Python tool."""
    actions = [f"I compute it. <python>{code}</python>" for code in programs]
    found = gem({"tool": "python", "sandbox": sandbox, "actions": actions})
    return [(s, t.removeprefix("Code execution result:").strip()) for s, t in found]


def assay_mcp(command: Sequence[str], calls: int) -> list[Outcome]:
    """An addition a call; the first time is the server's start."""
    begun = time.perf_counter()
    with MCPServers.from_command(command) as servers:
        tool = next(t for t in servers.tools if t.name == "add")
        found = [(time.perf_counter() - begun, "")]
        for n in range(calls):
            begun = time.perf_counter()
            text = f'<tool_call><tool_name>add</tool_name><arguments>{{"a": {n}, "b": 1}}</arguments></tool_call>'
            call = tool.find(text)
            assert call is not None
            found.append((0.0, tool.call_sync(call.arguments).text))
            found[-1] = (time.perf_counter() - begun, found[-1][1])
    return found


def gem_mcp(command: Sequence[str], calls: int) -> list[Outcome]:
    """The same through gem-llm."""
    actions = [
        f'<tool_call><tool_name>add</tool_name><arguments>{{"a": {n}, "b": 1}}</arguments></tool_call>'
        for n in range(calls)
    ]
    found = gem({"tool": "mcp", "command": list(command), "actions": actions})
    return [(s, "".join(c for c in t if c.isdigit())) for s, t in found]


def median_ms(rounds: Sequence[list[Outcome]]) -> float:
    """Median milliseconds a call over all rounds."""
    return 1000 * statistics.median(seconds for outcomes in rounds for seconds, _ in outcomes)


def cpu_seconds() -> float:
    """Processor time of this process and of all below it that have ended; orphans come to us to be counted."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def costed(run: Callable[[Sequence[str]], list[Outcome]], programs: Sequence[str]) -> tuple[list[Outcome], float]:
    """Outcomes, and processor milliseconds of a call after the first."""
    spent = []
    outcomes: list[Outcome] = []
    for some in (programs[:1], programs):
        begun = cpu_seconds()
        outcomes = run(some)
        time.sleep(0.3)  # what was told to end has ended
        spent.append(cpu_seconds() - begun)
    return outcomes, 1000 * (spent[1] - spent[0]) / (len(programs) - 1)


def python_part(options: argparse.Namespace) -> tuple[list[list[str]], dict[str, Any], list[str]]:
    """Rows, figures and remarks of the Python tool."""
    programs = codes(options.calls)
    contestants: dict[str, Callable[[Sequence[str]], list[Outcome]]] = {
        "assay": assay_python,
        "assay, session": lambda some: assay_python(some, session=True),
        "bubblewrap and python -c a call": lambda some: fresh_python(some, bare=False),
        "bubblewrap and python -S -c a call": lambda some: fresh_python(some, bare=True),
    }
    notes = []
    if options.peers:
        contestants["gem-llm, no isolation (its default)"] = lambda some: gem_python(some, "none")
        try:
            gem_python(programs[:1], "bwrap")
            contestants["gem-llm, bwrap"] = lambda some: gem_python(some, "bwrap")
        except Broken as problem:
            notes.append(f"gem-llm's bwrap mode does not run here ({problem}).")
    rounds: dict[str, list[list[Outcome]]] = {name: [] for name in contestants}
    first: dict[str, list[float]] = {name: [] for name in contestants}
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(options.rounds):
        told = {}
        for name, run in contestants.items():
            outcomes, spent = costed(run, programs)
            told[name] = [text for _, text in outcomes]
            cpu[name].append(spent)
            first[name].append(outcomes[0][0])
            rounds[name].append(outcomes[1:])
        if len({json.dumps(texts) for texts in told.values()}) > 1:
            raise Broken(f"outputs differ: {told}")
    figures = {
        name: {
            "wall": median_ms(rounds[name]),
            "least": 1000 * min(seconds for outcomes in rounds[name] for seconds, _ in outcomes),
            "cpu": statistics.median(cpu[name]),
        }
        for name in rounds
    }
    rows = []
    for name, own in figures.items():
        row = [name, f"{1000 * statistics.median(first[name]):.0f}"]
        for key in ("wall", "least", "cpu"):
            row += [f"{own[key]:.1f}", f"{own[key] / figures['assay'][key]:.1f}x"]
        rows.append(row)
    return rows, figures, notes


def mcp_part(options: argparse.Namespace) -> tuple[list[list[str]], dict[str, Any]]:
    """Rows and figures of MCP tools."""
    rows, figures = [], {}
    for name, command in SERVERS.items():
        ours: list[list[Outcome]] = []
        theirs: list[list[Outcome]] = []
        starts = []
        for _ in range(options.rounds):
            outcomes = assay_mcp(command, 20 * options.mcp_calls)
            starts.append(outcomes[0][0])
            ours.append(outcomes[1:])
            if options.peers:
                theirs.append(gem_mcp(command, options.mcp_calls))
                if [t for _, t in theirs[-1]] != [t for _, t in ours[-1][: options.mcp_calls]]:
                    raise Broken("results of MCP calls differ")
        figures[name] = {"assay": median_ms(ours), "start": 1000 * statistics.median(starts)}
        rows.append([f"{name}: assay", f"{figures[name]['start']:.0f}", f"{figures[name]['assay']:.2f}", "1.0x"])
        if options.peers:
            figures[name]["gem-llm"] = median_ms(theirs)
            ratio = figures[name]["gem-llm"] / figures[name]["assay"]
            rows.append([f"{name}: gem-llm", "", f"{figures[name]['gem-llm']:.1f}", f"{ratio:.0f}x"])
    return rows, figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--mcp-calls", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="without gem-llm")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    begun = load()
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    try:
        rows, python, notes = python_part(options)
        mcp_rows, mcp = mcp_part(options)
    except Broken as problem:
        raise SystemExit(str(problem)) from None
    print(f"load {begun} at the start, {load()} at the end\n")
    print(table("The Python tool", ["", "first, ms", "median, ms", "x", "least, ms", "x", "CPU, ms", "x"], rows))
    print(*notes, sep="\n")
    print(table("MCP over stdio", ["", "start, ms", "median, ms", "x"], mcp_rows))
    if options.json:
        options.json.write_text(json.dumps({"python": python, "mcp": mcp, "load": [begun, load()]}, indent=1))


if __name__ == "__main__":
    main()
