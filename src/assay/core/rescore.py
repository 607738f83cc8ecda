"""Re-scoring: a run's stored outputs, judged again under other options, as a new run that names its parent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.core.benchmark import Benchmark, Outcome
from assay.core.engine import Engine
from assay.core.errors import UsageError
from assay.core.metering import Call
from assay.core.results import Run
from assay.core.run import run as run_benchmark
from assay.core.store import read_history, read_outputs


class StoredOutputs:
    """A system that has answered already: the outputs of a run."""

    is_submission = True

    def __init__(self, run: Run) -> None:
        self.name = run.system
        self.artifacts = run.path / "artifacts"
        self._path = run.path

    def outcomes(self, benchmark: Benchmark) -> dict[tuple[str, str, int], Outcome]:
        """Outputs by (task, sample id, attempt)."""
        return {(task, sample, attempt): outcome for task, sample, attempt, outcome in read_outputs(self._path)}

    def history(self) -> dict[tuple[str, str, int], tuple[list[Call], list[dict[str, Any]]]]:
        """What the system's own calls were and cost; those of a judge are made anew."""
        return read_history(self._path)


def rescore(
    run: Run,
    *,
    loading: str,
    options: Mapping[str, Any] | None = None,
    into: Path | str | None = None,
    engine: Engine = Engine(),
) -> Run:
    """Score a run's outputs with its benchmark under changed options; see `assay.rescore`.

    The new run has the same system, seed and samples; its records carry the new scores, the system's own calls (paid
    nothing) and the judge's new ones; ``parent`` in its manifest names the run that was judged.
    Trials that ended in an error are errors again.
    """
    info = run.info
    if not info.get("named"):
        raise UsageError(f"{run.id} was made from Python objects, which no name can rebuild; run its benchmark again.")
    ids = tuple(dict.fromkeys(run.samples["sample"].to_list()))
    return run_benchmark(
        info["benchmark"],
        StoredOutputs(run),
        loading=loading,
        options={**info["options"], **(options or {})},
        samples=ids,
        tasks=tuple(info["tasks"]),
        attempts=info["attempts"],
        seed=info["seed"],
        into=into,
        tags=info.get("tags"),
        engine=engine,
        parent={"run": run.id, "path": str(run.path.resolve()), "options": info["options"]},
        system_info=info.get("system_info"),
    )
