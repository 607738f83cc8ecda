"""codebubble on programs that come as lines of JSON; one line of verdicts, outputs and cost for each."""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
import sys
import time

from clock import adopt, cpu_seconds, reap
from codebubble.executor.cpp import CppExecutor, CppExecutorConfig
from codebubble.executor.python import PythonExecutor, PythonExecutorConfig
from codebubble.sandbox.bwrap import BwrapSandbox, BwrapSandboxConfig
from codebubble.utils import ResourceLimits
from loguru import logger


def main() -> None:
    """Answer until standard input ends; the folder for workspaces is the first argument."""
    logger.remove()
    adopt()
    folder = sys.argv[1]
    makers = {
        "python": lambda box: PythonExecutor(PythonExecutorConfig(), box),
        "cpp": lambda box: CppExecutor(CppExecutorConfig(compiler_flags=["-std=c++20", "-O2", "-w"]), box),
    }
    for line in sys.stdin:
        job = json.loads(line)
        box = BwrapSandbox(BwrapSandboxConfig(workspace=folder))
        limits = ResourceLimits(
            time_limit=job["seconds"], overall_time_limit=10_000, memory_limit=job["memory_mb"] << 10,
            max_input_size=100 << 10, max_output_size=100 << 10,
        )  # fmt: skip
        executor = makers[job["language"]](box)
        compiling: list[float] = []

        def prepare(*given, usual=executor.prepare, compiling=compiling):
            before = cpu_seconds()
            done = usual(*given)
            compiling.append(cpu_seconds() - before)
            return done

        executor.prepare = prepare
        cpu, begun = cpu_seconds(), time.perf_counter()
        results = executor.run(job["source"], job["inputs"], limits)
        wall = time.perf_counter() - begun
        reap()
        told = {
            "wall": wall - (results[0].compile_time or 0.0),
            "cpu": cpu_seconds() - cpu - sum(compiling),
            "verdicts": [[r.status.name, (r.stdout or "").rstrip()] for r in results],
        }
        print(json.dumps(told), flush=True)


main()
