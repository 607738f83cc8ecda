"""The sandbox beside codebubble and beside a plain subprocess, with the same verdicts, in one run.

    python perf/sandbox.py [--tests 40] [--rounds 3] [--no-peers] [--json FILE]

codebubble 0.1.0 runs every test in a bubblewrap of its own (under GNU time, timeout and prlimit, which must be
installed); its environment is made at the first call. The two take turns program by program, so that what else the
machine does hits both. Times are without compiling. What a program prints and how it ends must agree everywhere, or
the script stops.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine import HERE, Broken, load, peer_python, table

from assay.sandbox import Limits, Program, Sandbox
from assay.sandbox.view import base_python

sys.path.insert(0, str(HERE))

from clock import adopt, cpu_seconds, reap

SECONDS, MEMORY_MB = 2.0, 1024
NAMES = {
    "ok": "SUCCESS", "runtime error": "RUNTIME_ERROR", "time limit": "TIME_LIMIT_EXCEEDED",
    "compile error": "COMPILE_ERROR", "memory limit": "MEMORY_LIMIT_EXCEEDED",
}  # fmt: skip

PYTHON = {
    "double": "print(int(input()) * 2)",
    "sort": "import sys\nprint(*sorted(map(int, sys.stdin.read().split())))",
    "words": "import collections, sys\nprint(collections.Counter(sys.stdin.read().split()).most_common(3))",
    "primes": "n = 2000 + int(input())\ns = bytearray([1]) * n\nfor i in range(2, n):\n    if s[i]:\n"
    "        for j in range(i * i, n, i): s[j] = 0\nprint(sum(s) - 2)",
    "wrong exit": "print(1)\nraise SystemExit(int(input()) % 2)",
    "exception": "print(10 // (int(input()) % 3))",
}
CPP = {
    "sum": "#include <iostream>\nint main(){long long a=0,b;while(std::cin>>b)a+=b;std::cout<<a<<std::endl;}",
    "sort": "#include <bits/stdc++.h>\nusing namespace std;int main(){vector<int> v;int x;while(cin>>x)v.push_back(x);"
    'sort(v.begin(),v.end());for(int y:v)printf("%d ",y);}',
    "exit code": "#include <iostream>\nint main(){int x;std::cin>>x;std::cout<<x;return x%2;}",
    "crash": "#include <iostream>\n#include <cstdlib>\nint main(){int x;std::cin>>x;if(x%3==0)abort();std::cout<<x;}",
    "does not compile": "int main(){ return x; }",
}


def job(language: str, source: str, tests: int) -> dict[str, Any]:
    """A program with its inputs."""
    inputs = [f"{n}\n" for n in range(tests)]
    return {"language": language, "source": source, "inputs": inputs, "seconds": SECONDS, "memory_mb": MEMORY_MB}


def by_assay(box: Sandbox, what: dict[str, Any]) -> dict[str, Any]:
    """One program through assay, a test at a time, as codebubble does it."""
    limits = Limits(cpu_seconds=what["seconds"], memory_mb=what["memory_mb"], output_bytes=100 << 20)
    program: Program = (box.python if what["language"] == "python" else box.cpp)(what["source"])
    begun = time.perf_counter()
    results = [program.run(text.encode(), limits) for text in what["inputs"]]
    wall = time.perf_counter() - begun
    return {"wall": wall, "verdicts": [[NAMES[r.status], r.stdout.decode(errors="replace").rstrip()] for r in results]}


class Codebubble:
    """The peer in a process of its own."""

    def __init__(self, folder: str) -> None:
        if not os.access("/usr/bin/time", os.X_OK):
            raise Broken("codebubble needs GNU time: apt-get install time; --no-peers goes on without it")
        command = [peer_python("codebubble"), HERE / "with_codebubble.py", f"{folder}/workspace"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, what: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise Broken("codebubble ended")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


def side_by_side(options: argparse.Namespace, folder: str) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Seconds a test by language and contestant: on the clock, one figure a program and round; of processors, a round.

    assay's processor time is all of it: this process, the start and the end of its box, the server in there.
    """
    found: dict[str, dict[str, dict[str, list[float]]]] = {"python": {}, "cpp": {}}
    peer = Codebubble(folder) if options.peers else None
    try:
        for language, sources in (("python", PYTHON), ("cpp", CPP)):
            work = [(name, job(language, source, options.tests)) for name, source in sources.items()]
            with Sandbox(boxes=1) as box:  # compiled programs are kept from here on
                for name, what in work:
                    told = by_assay(box, {**what, "inputs": what["inputs"][:1]})
                    if peer is not None and "COMPILE_ERROR" in told["verdicts"][0]:
                        agree(name, by_assay(box, what), peer.run(what))
            work = [(name, what) for name, what in work if name != "does not compile"]
            tests = options.tests * len(work)
            for _ in range(options.rounds):
                cpu, theirs = cpu_seconds(), 0.0
                with Sandbox(boxes=1) as box:
                    for name, what in work:
                        told = {"assay": by_assay(box, what)}
                        if peer is not None:
                            told["codebubble"] = peer.run(what)
                            theirs += told["codebubble"]["cpu"]
                            agree(name, told["assay"], told["codebubble"])
                        for who, cost in told.items():
                            costs = found[language].setdefault(who, {"wall": [], "cpu": []})
                            costs["wall"].append(cost["wall"] / options.tests)
                reap()
                found[language]["assay"]["cpu"].append((cpu_seconds() - cpu) / tests)
                if peer is not None:
                    found[language]["codebubble"]["cpu"].append(theirs / tests)
    finally:
        if peer is not None:
            peer.close()
    return found


def agree(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Stop unless both said the same of every test."""
    if ours["verdicts"] != theirs["verdicts"]:
        pairs = zip(ours["verdicts"], theirs["verdicts"], strict=True)
        raise Broken(f"{name}: verdicts differ: {next((a, b) for a, b in pairs if a != b)}")


def snippets(count: int) -> dict[str, list[float]]:
    """Seconds for snippets of Python, each a new one, as a tool gets them: in a warm sandbox and by a subprocess."""
    found: dict[str, list[float]] = {"assay": [], "subprocess": []}
    python = base_python()

    def timed(who: str, do: Callable[[], bytes], wanted: int) -> None:
        begun = time.perf_counter()
        said = do()
        found[who].append(time.perf_counter() - begun)
        if said != b"%d\n" % wanted:
            raise Broken(f"{who} said {said!r}, not {wanted}")

    with Sandbox(boxes=1) as box:
        driver = box.python("def run(code): exec(code, {'__name__': '__main__'})")
        driver.call("run", "")
        for n in range(count):
            source = f"import math\nx = {n}\nprint(math.isqrt(x * x) + sum(range(10)))"
            timed("assay", lambda s=source: driver.call("run", s).stdout, n + 45)
            timed(
                "subprocess",
                lambda s=source: subprocess.run([python, "-I", "-c", s], capture_output=True).stdout,
                n + 45,
            )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when the contestants disagree, missed targets are only printed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, default=40, help="inputs a program")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="assay alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args(arguments)
    before = load()
    adopt()
    try:
        with tempfile.TemporaryDirectory(prefix="assay-perf-") as folder:
            found = {"runs": side_by_side(options, folder), "snippets": snippets(2 * options.tests)}
    except Broken as problem:
        print(f"perf/sandbox.py: {problem}", file=sys.stderr)
        return 1
    rows, verdicts = [], []
    for language, costs in found["runs"].items():
        middle: dict[str, float] = {}
        quiet: dict[str, float] = {}
        for who, kinds in costs.items():
            wall = kinds["wall"]
            programs = len(wall) // options.rounds
            middle[who] = statistics.median(wall)
            quiet[who] = statistics.median(min(wall[n::programs]) for n in range(programs))
            cpu = 1000 * statistics.median(kinds["cpu"])
            rows.append([f"{language}, {who}", 1000 * middle[who], 1 / middle[who], 1000 * quiet[who], cpu])
        if "codebubble" in middle:
            least = 10 if language == "python" else 3
            for of, text in ((middle, "tests/s over codebubble's"), (quiet, "the same, best round of each program")):
                times = of["codebubble"] / of["assay"]
                verdicts.append([f"{language}: {text}", f">= {least}", times, times >= least])
    middle, quiet = ({w: f(v) for w, v in found["snippets"].items()} for f in (statistics.median, min))
    for who, seconds in middle.items():
        rows.append([f"a new snippet, {who}", 1000 * seconds, 1 / seconds, 1000 * quiet[who], ""])
    verdicts.append(["a new snippet, ms", "< 5", 1000 * middle["assay"], middle["assay"] < 0.005])
    times = middle["subprocess"] / middle["assay"]
    verdicts.append(["snippets/s over a bare subprocess's", ">= 10", times, times >= 10])
    title = f"medians, one test at a time, {options.tests} tests a program, {options.rounds} rounds"
    print(table(title, ["", "ms", "a second", "best ms", "CPU ms"], rows))
    shown = [[*row[:3], "met" if row[3] else "MISSED"] for row in verdicts]
    print(table("targets", ["", "target", "measured", "verdict"], shown))
    print(f"load averages before and after: {before}, {load()} on {os.cpu_count()} cores")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
