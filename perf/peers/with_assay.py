"""assay on the questions: URL, folder, questions, warm-up questions, connections, request cache (on or off), profile.

The last argument is a file for a sampled profile of the run, or nothing.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from clock import phase, tell
from questions import question, right
from sampling import sampled


def main(url: str, folder: str, count: int, warm_up: int, connections: int, cache: bool, profile: str) -> None:
    found: dict[str, Any] = {}
    with phase(found, "imports"):
        import assay
        from assay.core.benchmark import Benchmark, Outcome, Sample, Task
        from assay.core.metrics import mean
        from assay.systems.chat.model import ChatModel

    class Sums(Task):
        name = "sums"
        system = ChatModel

        def __init__(self, numbers: range) -> None:
            self.numbers = numbers

        def samples(self) -> list[Sample]:
            return [Sample(f"q{n}", question(n), right(n)) for n in self.numbers]

        async def trial(self, system: ChatModel, sample: Sample, ctx: Any) -> Outcome:
            reply = await system.generate([{"role": "user", "content": sample.input}], max_tokens=16, temperature=0.0)
            return Outcome(output=reply.text, groups={"stop_reason": reply.stop_reason})

        def score(self, sample: Sample, output: Any, ctx: Any) -> Outcome:
            return Outcome({"correct": float(output.strip() == sample.target)})

    class Questions(Benchmark):
        name, title = "sums", "Sums"
        metrics = (mean("correct", headline=True),)

        def __init__(self, numbers: range) -> None:
            self.numbers = numbers

        def tasks(self) -> list[Task]:
            return [Sums(self.numbers)]

    def ask(numbers: range, into: str) -> float:
        run = assay.run(
            Questions(numbers), f"vllm:sums@{url}", into=Path(folder) / into, connections=connections, cache=cache
        )
        assert run.status == "finished", run.info
        return run.scores(metrics=Questions.metrics)[0].value

    if warm_up:
        with phase(found, "warm_up"):
            ask(range(count, count + warm_up), "warm-up")
    with sampled(Path(profile)) if profile else nullcontext(), phase(found, "run"):
        found["accuracy"] = ask(range(count), "run")
    tell(found)


if __name__ == "__main__":
    main(
        sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), sys.argv[6] == "on",
        sys.argv[7] if len(sys.argv) > 7 else "",
    )  # fmt: skip
