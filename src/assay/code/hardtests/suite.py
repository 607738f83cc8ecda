"""Test suites: tests with the generator that made each, and the verdict of a suite on a program."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.code.hardtests.codec import decode_cases, encode_cases
from assay.code.hardtests.kit import KINDS, Kit
from assay.code.hardtests.problem import Case, Problem
from assay.core.datasets.readers import guarded, read_json, shown
from assay.core.errors import DataError

if TYPE_CHECKING:
    from assay.code.hardtests.verifying import Verdicts
    from assay.sandbox import Sandbox

Mapped = Mapping[str, Sequence[Any]]
Until = Literal["all", "first", "kind"]


@dataclass(frozen=True, slots=True)
class TestSuite:
    """Tests of one problem, used as a verifier.

    Attributes
    ----------
    cases
        The tests, in order.
    mapping
        Which generator made which test: ``LLMGen`` a list of places, ``RPGen_SPGen`` and ``HackGen`` a list of places
        a function. Other names (``Mutation``, ``Public``) are as good.
    judge
        Source of the output judging function; None = default comparison.
    status
        ``success``, or why there is no usable test.
    time_limit, memory_mb
        Of one run: seconds of processor time, MB.
    about
        What happened on the way: statistics of generators, programs that agreed.
    """

    __test__ = False

    pid: str
    cases: tuple[Case, ...] = ()
    mapping: Mapped = field(default_factory=dict)
    judge: str | None = None
    kit: Kit | None = None
    status: str = "success"
    time_limit: float = 5.0
    memory_mb: int = 2048
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = sorted(place for group in self.mapping.values() for place in _flat(group))
        if places and (places[0] < 0 or places[-1] >= len(self.cases)):
            raise DataError(f"Suite of {self.pid!r}: the mapping names test {places[-1]}, of {len(self.cases)}.")

    def __len__(self) -> int:
        return len(self.cases)

    def makers(self) -> list[tuple[str, int]]:
        """(generator, number of its function) of every test; ``("", 0)`` where the mapping does not name it."""
        found = [("", 0)] * len(self.cases)
        for kind, group in self.mapping.items():
            for function, places in enumerate(group):
                for place in _flat([places]):
                    found[place] = (kind, function if isinstance(places, (list, tuple)) else 0)
        return found

    def chosen(self, places: Iterable[int]) -> TestSuite:
        """The suite of these tests, in ascending order."""
        kept = sorted(set(places))
        new = {old: place for place, old in enumerate(kept)}
        return replace(self, cases=tuple(self.cases[p] for p in kept), mapping=_renumbered(self.mapping, new))

    def of_kinds(self, *kinds: str) -> TestSuite:
        """The suite of the tests that these generators made."""
        return self.chosen(place for place, (kind, _) in enumerate(self.makers()) if kind in kinds)

    def verify(
        self, code: str, language: str = "python3", *, box: Sandbox | None = None, until: Until = "all",
        order: Sequence[int] | None = None,
    ) -> Verdicts:  # fmt: skip
        """Run a program on the tests; see `assay.code.hardtests.verifying.verify`."""
        from assay.code.hardtests.verifying import verify

        return verify(self, code, language, box=box, until=until, order=order)

    # -- files --------------------------------------------------------------------------------------------------------

    def to_row(self) -> dict[str, Any]:
        """As the pipeline writes it: ``{pid, test_cases_kit, mapping, status, test_cases}``, and limits."""
        return {
            "pid": self.pid,
            "test_cases_kit": (self.kit or Kit(self.pid, judge=self.judge)).to_row(),
            "mapping": {kind: list(group) for kind, group in self.mapping.items()},
            "status": self.status,
            "test_cases": encode_cases(self.cases),
            "time_limit": self.time_limit,
            "memory_mb": self.memory_mb,
            "about": dict(self.about),
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any], where: str = "", problem: Problem | None = None) -> TestSuite:
        """From a row of the pipeline or of the published data; limits from ``problem`` where the row has none.

        Raises
        ------
        DataError
            A field is missing or damaged, or the mapping names a test that is not there.
        """
        where = where or "A suite"
        pid = row.get("pid") if isinstance(row, Mapping) else None
        if not isinstance(pid, str):
            raise DataError(f"{where}: field 'pid' must be a text, not {shown(pid)}.")
        kit = Kit.from_row(row.get("test_cases_kit") or {}, pid, where)
        coded = row.get("test_cases")
        cases = coded if isinstance(coded, list) else decode_cases(coded, where) if coded else []
        if isinstance(coded, list):
            from assay.code.hardtests.codec import case_of

            try:
                cases = [case_of(case) for case in coded]
            except (TypeError, KeyError) as error:
                raise DataError(f"{where}: field 'test_cases' is not a list of tests ({error}).") from None
        with guarded(where, "a suite: mapping holds places of tests, time_limit and memory_mb are numbers"):
            return cls(
                pid,
                tuple(cases),
                merged_mapping(row.get("mapping") or {}),
                kit.judge,
                kit,
                row.get("status") or "success",
                float(row.get("time_limit") or (problem.time_limit if problem else 5.0)),
                int(row.get("memory_mb") or (problem.memory_mb if problem else 2048)),
                dict(row.get("about") or {}),
            )

    def save(self, folder: Path) -> Path:
        """Write ``<pid>.json.gz``; the same suite gives the same bytes."""
        from assay.core.store import safe_name

        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{safe_name(self.pid)}.json.gz"
        new = path.with_name(path.name + ".new")
        new.write_bytes(gzip.compress(json.dumps(self.to_row()).encode(), 5, mtime=0))
        return new.rename(path)

    @classmethod
    def load(cls, path: Path, problem: Problem | None = None) -> TestSuite:
        """Read what `save` wrote."""
        return cls.from_row(read_json(path), str(path), problem)


def _flat(group: Iterable[Any]) -> list[int]:
    return [place for part in group for place in (part if isinstance(part, (list, tuple)) else [part])]


def _renumbered(mapping: Mapped, new: Mapping[int, int]) -> dict[str, list[Any]]:
    def part(places: Sequence[Any]) -> list[Any]:
        return [new[p] for p in places if p in new]

    return {
        kind: [part(p) for p in group] if any(isinstance(p, (list, tuple)) for p in group) else part(group)
        for kind, group in mapping.items()
    }


def merged_mapping(mapping: Mapped) -> dict[str, list[Any]]:
    """A mapping whose RPGen and SPGen, which the published form keeps apart, are one group again."""
    found = {kind: list(group or []) for kind, group in mapping.items()}
    if "RPGen" in found or "SPGen" in found:
        ranged = found.pop("RPGen", []) or found.pop("SPGen", [])
        found.pop("SPGen", None)
        found["RPGen_SPGen"] = ranged
    return {kind: found.pop(kind, []) for kind in KINDS} | found


def drop_missing(cases: Sequence[Case | Mapping[str, Any]], mapping: Mapped) -> tuple[list[Any], dict[str, list[Any]]]:
    """Tests whose input and output are both there, and the mapping renumbered to them."""

    def whole(case: Any) -> bool:
        parts = (case["input"], case["output"]) if isinstance(case, Mapping) else (case.input, case.output)
        return None not in parts

    kept = [place for place, case in enumerate(cases) if whole(case)]
    return [cases[place] for place in kept], _renumbered(mapping, {old: place for place, old in enumerate(kept)})


def published(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """A row of the pipeline in the published form; None unless its status is success.

    The stratified or range-based generator is named by the functions that its source holds; without either it is
    dropped, with its part of the mapping.
    """
    if row.get("status") != "success":
        return None
    kit, inner = row["test_cases_kit"], row["test_cases_kit"]["input_generation"]
    ranged, places = inner["RPGen_SPGen_input_generator"], row["mapping"].get("RPGen_SPGen", [])
    source = ranged.get("code") or ""
    kind = "RPGen" if "gen_range_based_input" in source else "SPGen" if "gen_stratified_input" in source else ""
    pid = row["pid"]
    return {
        "pid": pid,
        "test_cases_kit": {
            "pid": pid,
            "output_judging_function": kit["output_judging_function"],
            "input_validator": kit["input_validator"],
            "LLMGen": inner["LLMGen_input"],
            "RPGen": ranged if kind == "RPGen" else None,
            "SPGen": ranged if kind == "SPGen" else None,
            "HackGen": inner["HackGen_input_generator"],
        },
        "mapping": {
            "LLMGen": row["mapping"].get("LLMGen", []),
            "RPGen": places if kind == "RPGen" else [],
            "SPGen": places if kind == "SPGen" else [],
            "HackGen": row["mapping"].get("HackGen", []),
        },
        "test_cases": row["test_cases"],
    }
