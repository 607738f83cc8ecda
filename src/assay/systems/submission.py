"""Submission: predictions that exist already, scored like those of a live system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from assay.core.benchmark import Benchmark, Outcome

Key = tuple[str, str, int]


class Submission:
    """A file or folder of predictions in a benchmark's published format, or the folder of a run.

    It satisfies every task that has a `score` of its own.

    Raises
    ------
    UsageError
        There is nothing at ``path``.
    """

    is_submission = True

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        if not self.path.exists():
            raise UsageError(f"There is no submission at {self.path}; give a file of predictions or a run folder.")
        self.name = f"submission:{path}"

    def __repr__(self) -> str:
        return f"Submission({str(self.path)!r})"

    @property
    def is_run(self) -> bool:
        """Whether it is the folder of a run."""
        return (self.path / "run.json").is_file()

    @property
    def artifacts(self) -> Path | None:
        """Files that a run's outputs name."""
        return self.path / "artifacts" if self.is_run else None

    def history(self) -> Mapping[Key, Any]:
        """Calls and exchanges of a run's trials, so that what its answers cost stays known."""
        if not self.is_run:
            return {}
        from assay.core.store import read_history

        return read_history(self.path)

    def describe(self) -> dict[str, Any]:
        """Facts for ``run.json``; of a run's folder also the system that made the outputs."""
        found: dict[str, Any] = {"name": self.name, "kind": "submission", "path": str(self.path)}
        if self.is_run:
            import msgspec

            try:
                info = msgspec.json.decode((self.path / "run.json").read_bytes())
                found |= {"made_by": info["system"], "made_in": info.get("id", self.path.name)}
            except (OSError, KeyError, TypeError, RecursionError, msgspec.MsgspecError) as error:
                raise DataError(f"{self.path / 'run.json'} is not the manifest of a run ({error}).") from None
        return found

    def outcomes(self, benchmark: Benchmark) -> Mapping[Key, Outcome]:
        """Outcomes by (task, sample, attempt).

        Raises
        ------
        DataError
            A prediction is given twice (both rows are named), or there is none at all.
        """
        rows: Iterable[tuple[str, str, int, Outcome]]
        if self.is_run:
            from assay.core.store import read_outputs

            rows = read_outputs(self.path)
        else:
            rows = benchmark.read(self.path)
        found: dict[Key, Outcome] = {}
        lines: dict[Key, int] = {}
        twice: list[str] = []
        for number, (task, sample, attempt, outcome) in enumerate(rows, start=1):
            key = (task, sample, attempt)
            if key in lines:
                twice.append(f"{task}/{sample}, attempt {attempt} (rows {lines[key]} and {number})")
            else:
                lines[key] = number
                found[key] = outcome
        if twice:
            more = f" and {len(twice) - 5} more" if len(twice) > 5 else ""
            raise DataError(f"{self.path} holds predictions twice: {'; '.join(twice[:5])}{more}; keep one of each.")
        if not found:
            raise DataError(f"{self.path} holds no predictions for {benchmark.name!r}.")
        return found
