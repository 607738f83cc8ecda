"""inspect-ai on the questions: URL, folder, questions, warm-up questions, connections, realtime log (on or off)."""

# pyright: reportMissingImports=false

from __future__ import annotations

import os
import sys
from typing import Any

from clock import phase, tell
from questions import question, right


def main(url: str, folder: str, count: int, warm_up: int, connections: int, realtime: bool) -> None:
    found: dict[str, Any] = {}
    os.environ["LOOPBACK_API_KEY"] = "none"
    os.environ["LOOPBACK_BASE_URL"] = url
    with phase(found, "imports"):
        from inspect_ai import Task, eval
        from inspect_ai.dataset import MemoryDataset, Sample
        from inspect_ai.scorer import exact
        from inspect_ai.solver import generate

    def ask(numbers: range, log: str) -> float:
        samples = [Sample(id=f"q{n}", input=question(n), target=right(n)) for n in numbers]
        (done,) = eval(
            Task(dataset=MemoryDataset(samples), solver=generate(), scorer=exact(), name="sums"),
            model="openai-api/loopback/sums",
            max_connections=connections,
            max_samples=connections,
            max_tokens=16,
            temperature=0.0,
            log_dir=f"{folder}/{log}",
            log_realtime=realtime,
            display="none",
        )
        assert done.status == "success", done.error
        assert done.results is not None
        metrics = {name: metric.value for score in done.results.scores for name, metric in score.metrics.items()}
        # The scorer's name for a share of right answers is mean or accuracy, by version.
        return float(metrics["accuracy"] if "accuracy" in metrics else metrics["mean"])

    if warm_up:
        with phase(found, "warm_up"):
            ask(range(count, count + warm_up), "warm-up")
    with phase(found, "run"):
        found["accuracy"] = ask(range(count), "logs")
    tell(found)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6] == "on")
