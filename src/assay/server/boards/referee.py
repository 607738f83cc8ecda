"""The referee: reads a submission with what everybody knows, scores it with what only the referee knows.

A submission is read by the benchmark with its public options alone, before the truth is touched: whatever a reader says
about a file can hold nothing of the truth. What it read, and only the outputs of it, is then scored by the same class
with the hidden options. Claimed scores, groups and costs are dropped, so that no file can bring its own verdict.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.benchmark import Benchmark, Outcome
from assay.core.errors import AssayError, DataError, UsageError
from assay.core.execute import overrides, tasks_by_name
from assay.report.formats import one_line
from assay.systems.submission import Key, Submission

if TYPE_CHECKING:
    from assay.core.metrics import Score
    from assay.core.results import Run

SHOWN_FAULTS = 20
LONGEST_FAULT = 500
"""Characters; a fault names what a submission holds, which may be of any length."""


class RefereeError(AssayError):
    """Scoring went wrong; the message is fit for the submitter, ``detail`` for the organiser alone."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


@dataclass(frozen=True)
class Checked:
    """What was read of a submission: outputs by key, and one sentence a fault."""

    outcomes: dict[Key, Outcome] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    artifacts: Path | None = None

    def shown(self) -> tuple[list[str], int]:
        """The first faults and the number left."""
        return [one_line(f, LONGEST_FAULT) for f in self.faults[:SHOWN_FAULTS]], max(0, len(self.faults) - SHOWN_FAULTS)


class Refereed:
    """A submission of which only the outputs count."""

    is_submission = True

    def __init__(self, name: str, checked: Checked) -> None:
        self.name = name
        self.artifacts = checked.artifacts
        self._outcomes = checked.outcomes

    def outcomes(self, benchmark: Benchmark) -> dict[Key, Outcome]:
        """Outputs by (task, sample, attempt); ``benchmark`` knows the truth and so reads nothing."""
        return self._outcomes


def expected(benchmark: Benchmark) -> dict[Key, None]:
    """Keys of all predictions that a submission must hold, in order.

    Raises
    ------
    UsageError
        No task has a scorer apart from its trial: the benchmark can have no referee.
    """
    tasks = {name: task for name, task in tasks_by_name(benchmark).items() if overrides(task, "score")}
    if not tasks:
        raise UsageError(f"No task of {benchmark.name!r} has a scorer of its own, so it takes no submissions.")
    return {
        (name, sample.id, attempt): None
        for name, task in tasks.items()
        for sample in task.samples()
        for attempt in range(task.attempts)
    }


def check(benchmark: Benchmark, path: Path) -> Checked:
    """Read a submission by the benchmark's own reader and say all that is wrong with it.

    ``benchmark`` is the public one. A fault is a sentence; a reader that collects several raises `DataFaults`.
    """
    submission = Submission(path)
    keys = expected(benchmark)
    outcomes: dict[Key, Outcome] = {}
    first: dict[Key, int] = {}
    faults: list[str] = []
    whole = True
    try:
        for number, (task, sample, attempt, outcome) in enumerate(_rows(submission, benchmark), start=1):
            key = (task, sample, attempt)
            where = f"Prediction {number} ({named(key)})"
            if key not in keys:
                faults.append(f"{where}: {_unknown(key, keys)}")
            elif key in first:
                faults.append(f"{where} was given already as prediction {first[key]}; keep one of them.")
            elif outcome.output is None:
                faults.append(f"{where} holds no output; scores that a submission brings along are not taken.")
            else:
                outcomes[key] = Outcome(output=outcome.output)
            first.setdefault(key, number)
    except (DataError, UsageError) as error:
        whole = False
        faults += getattr(error, "faults", (str(error),))
    if whole and not first:
        faults.append(f"It holds no prediction for {benchmark.name!r}.")
    elif whole:
        faults += [f"There is no prediction for {named(key)}." for key in keys if key not in first]
    return Checked(outcomes, tuple(faults), submission.artifacts)


def _rows(submission: Submission, benchmark: Benchmark):
    if not submission.is_run:
        return benchmark.read(submission.path)
    from assay.core.store import read_outputs

    of = _manifest(submission.path / "run.json")
    if of != benchmark.name:
        raise DataError(f"run.json: field 'benchmark' is {of!r}; this board takes runs of {benchmark.name!r}.")
    return read_outputs(submission.path)


def _manifest(path: Path) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(path.read_bytes())["benchmark"]
    except (OSError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise DataError(f"{path} is not the manifest of a run ({type(error).__name__}).") from None


def named(key: Key) -> str:
    """``task/sample``, with the attempt where it is not the first."""
    return f"{key[0]}/{key[1]}" + (f", attempt {key[2]}" if key[2] else "")


def _unknown(key: Key, keys: Mapping[Key, None]) -> str:
    tasks = sorted({t for t, _, _ in keys})
    if key[0] not in tasks:
        return f"there is no task {key[0]!r}; there are {', '.join(tasks)}."
    if (key[0], key[1], 0) not in keys:
        return f"there is no sample {key[1]!r}."
    return f"there is no attempt {key[2]}; attempts count from 0."


def score(
    name: str, public: Mapping[str, Any], sealed: Mapping[str, Any], checked: Checked, system: str, folder: Path
) -> Run:
    """Score what was read with the hidden options; the run lies in ``folder``, which nobody but the referee may see.

    Raises
    ------
    RefereeError
        Scoring was not possible; nothing of the truth is in its message.
    """
    import assay

    try:
        run = assay.run(name, Refereed(system, checked), options={**public, **sealed}, into=folder, cache=False)
        statuses = run.records["status"].to_list()
    except Exception as error:
        detail = f"{type(error).__name__}: {error}"
        raise RefereeError("The referee could not score this submission; the organiser can see why.", detail) from error
    if unscored := statuses.count("unscored"):
        raise RefereeError(
            "The board is not set up: the referee has no truth for some samples.", f"{unscored} samples have no target"
        )
    if statuses and not any(s == "ok" for s in statuses):
        first = run.records["error"].drop_nulls().to_list()[:1]
        raise RefereeError("None of the predictions could be scored.", *first)
    return run


def parts(run: Run, share: float, key: bytes) -> tuple[Sequence[Score], Sequence[Score]]:
    """Scores on the shown part of the clusters and on the rest, which decides in the end.

    A cluster's part follows from a keyed hash of its name, so that nobody without the key can tell it, and it is the
    same for every submission. With ``share`` 1 everything is shown and decides.
    """
    import polars as pl

    if share >= 1:
        scores = overall(run, run.records)
        return scores, scores
    clusters = run.records["cluster"].unique().to_list()
    shown = [c for c in clusters if _fraction(key, c) < share]
    inside = pl.col("cluster").is_in(shown)
    return overall(run, run.records.filter(inside)), overall(run, run.records.filter(~inside))


def _fraction(key: bytes, cluster: str) -> float:
    return int.from_bytes(hmac.digest(key, cluster.encode(), hashlib.sha256)[:7], "big") / 2**56


def overall(run: Run, records: Any) -> list[Score]:
    """Every metric that these records give a value, over all of them; no groups."""
    from assay.core.metrics import evaluate_all

    metrics = run.metrics()
    resample = {name: task["resample"] for name, task in run.info["tasks"].items()}
    rows = run.all_rows() if any(m.over == "rows" for m in metrics) else None
    found = evaluate_all(metrics, records, resample, rows=rows)
    return [s for s in found if not s.by and math.isfinite(s.value)]


def headline(scores: Sequence[Score], wanted: str | None = None) -> Score:
    """The score that ranks: the wanted metric, the benchmark's headline, or the first.

    Raises
    ------
    RefereeError
        The metric has no value.
    """
    fitting = [s for s in scores if s.metric == wanted] if wanted else [*[s for s in scores if s.headline], *scores]
    if not fitting:
        raise RefereeError(
            "The metric of this board has no value for this submission.", f"metric {wanted or 'headline'}"
        )
    return fitting[0]
