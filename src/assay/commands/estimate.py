"""What a run would do and cost (--dry-run), and where the time of one went (--profile)."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.cli import DONE
from assay.commands.output import print_json, show_rows
from assay.core.benchmark import trial_seed
from assay.core.context import Context
from assay.core.errors import AssayError
from assay.core.execute import TaskRunner, unit_name
from assay.core.metering import Budget, RunScope, current_scope
from assay.core.plan import Plan, Selection, TaskPlan
from assay.core.results import Run
from assay.systems.chat.model import ChatModel, Choice, Reply, Usage

PROBED = 5
BYTES_A_TOKEN = 4
# What a reply is taken to be long where the room states no limit.
USUAL_REPLY = 512


class _Probe:
    """Looks like a chat model; notes what it is asked, answers a letter, sends nothing."""

    name = "probe"

    def __init__(self) -> None:
        self.prompts: list[int] = []
        self.limits: list[int] = []

    async def generate(self, messages: Sequence[Any], *, max_tokens: int | None = None, n: int = 1, **_: Any) -> Reply:
        """A reply that costs nothing."""
        size = sum(_size(m.get("content")) for m in messages)
        self.prompts.append(-(-size // BYTES_A_TOKEN) + 8 * len(messages))
        self.limits.append((max_tokens or USUAL_REPLY) * n)
        return Reply(choices=(Choice("A"),) * n, usage=Usage(1, 1))


def _size(content: Any) -> int:
    if isinstance(content, str):
        return len(content.encode())
    # An image is billed by its pixels; a thousand tokens is what the common ones charge at most.
    return sum(
        len(p.get("text", "").encode()) if p.get("type") == "text" else 1000 * BYTES_A_TOKEN for p in content or ()
    )


def dry_run(
    names: Sequence[str], systems: Sequence[str], options: dict[str, str], selection: Selection, arguments: Any
) -> int:
    """Print the plan, the requests and the cost at most. Nothing is sent, nothing is written."""
    from assay.commands.running import plan_of

    rows = []
    for name in names:
        for system in systems:
            ready = plan_of(name, system, options, selection, arguments)
            for task, plan in ready.plan.tasks.items():
                calls, prompt, reply = _asked(plan, ready.plan)
                requests = None if calls is None else round(calls * plan.trials)
                price = getattr(ready.system, "price", None)
                cost = None
                if calls is not None and price is not None:
                    cost = requests * price.worst(round(prompt), round(reply))
                rows.append(
                    {"benchmark": name, "system": system, "task": task, "samples": len(plan.indices),
                     "attempts": plan.attempts, "trials": plan.trials, "requests": requests,
                     "prompt tokens a request": None if calls is None else round(prompt), "USD at most": cost}
                )  # fmt: skip
            for task, reason in ready.skipped.items():
                rows.append({"benchmark": name, "system": system, "task": task, "left out": reason})
    if arguments.json:
        print_json(rows)
        return DONE
    notes = [
        f"Estimated from {PROBED} samples a task at {BYTES_A_TOKEN} bytes a token, replies at their limit "
        f"({USUAL_REPLY} tokens where the room states none); judges are not in it. Nothing was sent."
    ]
    if any("trials" in row and row["requests"] is None for row in rows):
        notes.append(
            "–: cannot be told beforehand; a method makes no requests, an episode as many as its answers call for. "
            "--budget USD is never passed."
        )
    show_rows("Plan", rows, notes=notes)
    return DONE


def _asked(plan: TaskPlan, whole: Plan) -> tuple[float | None, float, float]:
    """Requests a trial, prompt tokens and longest reply a request, from a few samples; None = cannot be told."""
    runner = plan.runner
    if (
        runner.task.system is not ChatModel
        or runner.batched
        or runner.has_setup
        or not inspect.iscoroutinefunction(runner.task.trial)
    ):
        return None, 0.0, 0.0
    probe = _Probe()
    step = max(1, len(plan.indices) // PROBED)
    chosen = plan.indices[::step][:PROBED]
    with tempfile.TemporaryDirectory(prefix="assay-plan-") as folder:
        asyncio.run(_try(runner, probe, chosen, whole.run_seed, Path(folder)))
    if not probe.prompts:
        return None, 0.0, 0.0
    return len(probe.prompts) / len(chosen), sum(probe.prompts) / len(probe.prompts), max(probe.limits)


async def _try(runner: TaskRunner, probe: _Probe, indices: Sequence[int], seed: int, folder: Path) -> None:
    # A budget of nothing: whatever else a trial would ask cannot be sent.
    token = current_scope.set(RunScope(budget=Budget(0.0)))
    try:
        for index in indices:
            sample = runner.samples[index]
            ctx = Context(
                seed=trial_seed(seed, runner.task.name, sample.id, 0), attempt=0, run_folder=folder,
                name=(runner.task.name, unit_name(sample.id, 0)), cache_folder=folder, compute=_here,
            )  # fmt: skip
            # The probe's answer may be one the room cannot use; what it asked is known by then.
            with contextlib.suppress(AssayError, RuntimeError, ValueError, TypeError, KeyError, AttributeError):
                await runner.task.trial(probe, sample, ctx)  # type: ignore[misc]
    finally:
        current_scope.reset(token)


async def _here(fn: Any, *arguments: Any, timeout: float | None = None) -> Any:
    return fn(*arguments)


def profile(runs: Sequence[Run]) -> None:
    """Where the time of each run went."""
    import polars as pl

    rows = []
    for run in runs:
        records = run.records
        wall, cpu = run.info["seconds"], run.info["cpu_seconds"]
        trials = float(records["seconds"].sum())
        calls = records.select(pl.col("calls").explode()).drop_nulls()
        rows.append(
            {
                "system": run.system,
                "wall s": wall,
                "in trials s": trials,
                "in model calls s": float(calls.unnest("calls")["seconds"].sum()) if calls.height else 0.0,
                "CPU s": cpu,
                "CPU ms a trial": 1e3 * cpu / max(1, records.height),
                "trials at once": trials / wall if wall else 0.0,
            }
        )
    notes = ["CPU of this process: planning, requests, scoring, journal, a local model's arithmetic; not the workers'."]
    show_rows("Where the time went", rows, notes=notes)
