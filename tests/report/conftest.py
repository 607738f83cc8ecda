"""Real run folders with made-up results: three systems of known skill on one small benchmark."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from assay.core.metering import Call
from assay.core.metrics import macro, mean, rate
from assay.core.results import Run
from assay.core.store import Artifact, Record, Store

HOSTILE = (
    "</pre></script><script>document.title='owned'</script><img src=x onerror=alert(1)> \x1b[31mred\x1b[0m \u202eabc"
)
METRICS = (
    macro("correct", over="concept", name="macro_accuracy", headline=True),
    mean("correct", name="accuracy"),
    rate("how", "unread", name="unread"),
)


class MadeRun(Run):
    """A run of a benchmark that no package registers."""

    def metrics(self) -> Any:
        return METRICS


def _messages(sample: str, answer: str) -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": "zoom", "arguments": '{"x": 3, "why": "<b>look</b>"}'}}
    return [
        {"role": "system", "content": "Answer with one letter."},
        {"role": "user", "content": [{"type": "text", "text": f"What is {sample}?\n /\\_/\\ \n( o.o )"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "nothing new"},
        {"role": "assistant", "reasoning": "It has ears. " * 200, "content": answer},
    ]


def make_run(
    folder: Path,
    system: str,
    skill: float,
    *,
    n: int = 120,
    attempts: int = 1,
    usd: float | None = 0.001,
    kind: str = "generated",
    benchmark: str = "drawn",
    error_share: float = 0.05,
    hostile: bool = False,
    seed: int = 0,
) -> MadeRun:
    """Write a run folder as the engine does and read it back."""
    rng = random.Random(f"{system}{seed}")
    concepts = ["cat", "boat", "tree", "lamp"]
    samples = pl.DataFrame(
        {
            "task": ["text"] * n,
            "sample": [f"s{i:05d}" for i in range(n)],
            "index": list(range(n)),
            "cluster": [f"s{i:05d}" for i in range(n)],
            "target": [json.dumps("ABCD"[i % 4]) for i in range(n)],
            "concept": [concepts[i % 4] for i in range(n)],
            "lines": [i % 7 for i in range(n)],
        }
    )
    path = folder / f"{benchmark}--{system.replace(':', '-').replace('/', '-')}--{seed}"
    info = {
        "format": 1, "id": path.name, "assay": "0.1.0", "benchmark": benchmark, "benchmark_version": "1",
        "title": "Letters drawn", "options": {"size": 12}, "options_fingerprint": "ab12", "rebuildable": True,
        "system": system, "system_info": {"name": system}, "tags": {}, "seed": seed, "attempts": attempts,
        "selection": {"limit": None, "ids": [], "tasks": []}, "skipped_tasks": {},
        "data": {"kind": kind, "source": "made by a test", "licence": "Apache-2.0"}, "data_fingerprint": "cd34",
        "parent": None, "status": "finished", "created": "2026-01-02T03:04:05+00:00",
        "finished": "2026-01-02T03:05:05+00:00", "host": {"python": "3.11"}, "command": ["assay", "run"], "git": None,
        "trials": n * attempts, "seconds": 12.5, "paid": (usd or 0.0) * n,
        "tasks": {"text": {"samples": n, "attempts": attempts, "resample": "samples", "system": "ChatModel"}},
        "scores": ["correct"], "groups": ["concept", "lines"], "outcome_groups": ["how", "stop_reason"],
    }  # fmt: skip
    store = Store.create(path, info)
    store.write_samples(samples)
    records = []
    for i in range(n):
        for attempt in range(attempts):
            record = Record(
                "text", f"s{i:05d}", attempt, i, seed=i, started=1.7e9 + i, seconds=rng.lognormvariate(0, 0.5)
            )
            tokens = rng.randint(80, 200)
            call = Call(
                "subject", system, 1, prompt_tokens=tokens, completion_tokens=tokens // 9, seconds=0.5, cost=usd
            )
            record.calls = [call, Call("judge", "judge-model", 1, prompt_tokens=9999, cost=9.0)]
            if rng.random() < error_share:
                record.status, record.error_type = "error", rng.choice(["ProviderError", "TimeoutError"])
                record.error = HOSTILE if hostile else "the server cut the connection"
                record.retryable = True
            else:
                right, unread = rng.random() < skill, rng.random() < 0.04
                record.scores = {"correct": float(right and not unread)}
                record.groups = {"how": "unread" if unread else "marker", "stop_reason": "length" if unread else "stop"}
                answer = HOSTILE if hostile else f"Answer: {'ABCD'[(i + (not right)) % 4]}"
                output: Any = answer if i % 3 else {"messages": _messages(f"s{i:05d}", answer), "letter": "B"}
                record.output = msgspec.Raw(msgspec.json.encode(output))
            records.append(record)
    with_image = path / "artifacts" / "look.png"
    with_image.parent.mkdir()
    with_image.write_bytes(png())
    records[0].artifacts = [Artifact("artifacts/look.png", with_image.stat().st_size, "00")]
    with store.journal() as journal:
        journal.write(records)
    store.compact()
    return MadeRun(path)


def png(size: int = 24) -> bytes:
    """A small picture."""
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.linear_gradient("L").resize((size, size)).save(buffer, "png")
    return buffer.getvalue()


@pytest.fixture(scope="session")
def new_run() -> Callable[..., MadeRun]:
    return make_run


@pytest.fixture(scope="session")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> list[MadeRun]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        make_run(folder, "local:smollm2", 0.35, usd=0.00002),
        make_run(folder, "openai:big", 0.93, usd=0.004),
        make_run(folder, "method:constant", 0.3, usd=0.0),
    ]


@pytest.fixture(scope="session")
def hostile_runs(tmp_path_factory: pytest.TempPathFactory) -> list[MadeRun]:
    folder = tmp_path_factory.mktemp("hostile")
    names = ["openai:<script>alert(1)</script>", 'vllm:"quoted" & \u2028'[:18]]
    return [make_run(folder, name, skill, hostile=True, kind="stand-in") for name, skill in zip(names, (0.4, 0.8))]
