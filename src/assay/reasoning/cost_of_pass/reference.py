"""A plain reading of the definitions: loops over dictionaries, no matrices, nothing shared between questions.

Slow on purpose. `reproduce` and the performance script set the estimator against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class PlainLoops:
    """Frontiers of records with model, family, release_date, problem, tokens, prices a token and correct.

    Parameters
    ----------
    records
        Dictionaries.
    expert
        USD of the expert.
    """

    def __init__(self, records: Sequence[Mapping[str, Any]], expert: float) -> None:
        self.records = records
        self.expert = expert

    def models(self) -> list[str]:
        """Names in order."""
        return sorted({record["model"] for record in self.records})

    def by_cell(self) -> dict[tuple[str, Any], list[Mapping[str, Any]]]:
        """Records of each model and problem."""
        cells: dict[tuple[str, Any], list[Mapping[str, Any]]] = {}
        for record in self.records:
            cells.setdefault((record["model"], record["problem"]), []).append(record)
        return cells

    def frontier(self, models: Iterable[str] | None = None) -> float:
        """Mean over problems of the cheapest of these models and the expert."""
        chosen = set(self.models() if models is None else models)
        best: dict[Any, float] = {record["problem"]: self.expert for record in self.records}
        for (model, problem), records in self.by_cell().items():
            if model in chosen:
                best[problem] = min(best[problem], self._cost_of_pass(records))
        return sum(best.values()) / len(best)

    @staticmethod
    def _cost_of_pass(records: Sequence[Mapping[str, Any]]) -> float:
        cost = sum(
            r["prompt_tokens"] * r["usd_per_prompt_token"] + r["completion_tokens"] * r["usd_per_completion_token"]
            for r in records
        ) / len(records)
        rate = sum(r["correct"] for r in records) / len(records)
        return cost / rate if rate > 0 else float("inf")

    def essentialness(self, by: str) -> dict[str, float]:
        """Relative loss without each value of a field."""
        everything = self.frontier()
        found = {}
        for value in sorted({record[by] for record in self.records}):
            left = {record["model"] for record in self.records if record[by] != value}
            without = self.frontier(left)
            found[value] = (without - everything) / without if without > 0 else 0.0
        return found

    def progress(self) -> list[float]:
        """Frontier after each release, models in order of day and name."""
        order = sorted({(record["release_date"], record["model"]) for record in self.records})
        return [self.frontier([model for _, model in order[: i + 1]]) for i in range(len(order))]
