"""A benchmark with a referee: binary labels, known to whoever has the truth file, in a published prediction format."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from assay.core.benchmark import Benchmark, Outcome, Sample, Task
from assay.core.errors import DataFaults
from assay.core.metrics import mean
from assay.systems.chat.model import ChatModel


class Labelling(Task):
    """One label a sample. Some outputs make the scorer misbehave, as a room with a fault would."""

    name = "labels"
    system = ChatModel

    def __init__(self, n: int, truth: str) -> None:
        self.n, self.truth = n, truth

    def samples(self):
        known = json.loads(Path(self.truth).read_text()) if self.truth else {}
        return [Sample(f"s{i}", i, known.get(f"s{i}"), {"half": i % 2}) for i in range(self.n)]

    async def trial(self, system, sample, ctx):
        return Outcome(output=(await system.generate([{"role": "user", "content": sample.id}])).text)

    def score(self, sample, output, ctx):
        if output == "crash":
            os._exit(7)
        if output == "hang":
            time.sleep(600)
        if output == "slow":
            time.sleep(2.0)
        if output == "memory":
            hog = bytearray(1_500_000_000)
            hog[::4096] = b"x" * len(hog[::4096])
            time.sleep(60)
        if output == "leak":
            raise ValueError(f"the target of {sample.id} is SECRET-{sample.target}")
        return Outcome({"correct": float(output == sample.target)})


class Labels(Benchmark):
    """Labels to guess.

    Parameters
    ----------
    n
        Samples.
    truth
        JSON file ``{id: label}``; nothing at the participant's.
    """

    name, title = "toy_labels", "Hidden labels"

    def __init__(self, n: int = 20, truth: str = "") -> None:
        self.n, self.truth = n, truth

    metrics = (mean("correct", name="accuracy", headline=True, bounds=(0, 1)),)

    def tasks(self):
        return [Labelling(self.n, self.truth)]

    def read(self, path):
        """JSON lines ``{"id": ..., "label": ...}``, in one file or a folder of such files."""
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        faults, rows = [], []
        for file in files:
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
                try:
                    row = json.loads(line)
                    rows.append(("labels", str(row["id"]), 0, Outcome(output=str(row["label"]))))
                except (ValueError, KeyError, TypeError):
                    faults.append(f"{file}, line {number}: not an object with the fields 'id' and 'label'.")
        if faults:
            raise DataFaults(faults)
        return rows
