"""A run's budget where all agents of a Ray cluster reserve."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from assay.core.errors import BudgetExceeded
from assay.core.metering import Budget


class Treasury:
    """A run's budget in a process of its own, where all agents reserve."""

    def __init__(self, limit: float, spent: float) -> None:
        self._budget = Budget(limit, spent)
        self._held: defaultdict[str, float] = defaultdict(float)

    def reserve(self, who: str, worst: float) -> tuple[str | None, float, float]:
        """Set dollars aside. Returns a sentence when they are not there, what is set aside, what is spent."""
        refused = None
        try:
            self._budget.reserve(worst)
            self._held[who] += worst
        except BudgetExceeded as error:
            refused = str(error)
        return refused, self._budget.reserved, self._budget.spent

    def settle(self, who: str, worst: float, actual: float) -> None:
        """Give back a reservation and book what the call cost."""
        self._held[who] -= worst
        self._budget.settle(worst, actual)

    def forfeit(self, who: str) -> None:
        """Book all that a lost agent had reserved: its calls may have been made."""
        self._budget.settle(held := self._held.pop(who, 0), held)


@dataclass
class RemoteBudget:
    """`assay.core.metering.Budget` as an agent sees it: one question to the treasury before a call."""

    treasury: Any
    who: str
    limit: float
    reserved: float = 0.0
    spent: float = 0.0

    def reserve(self, worst: float) -> None:
        """Set ``worst`` dollars aside, or raise BudgetExceeded."""
        import ray

        refused, self.reserved, self.spent = ray.get(self.treasury.reserve.remote(self.who, worst))
        if refused is not None:
            raise BudgetExceeded(refused)

    def settle(self, worst: float, actual: float) -> None:
        """Give back a reservation and book what the call really cost."""
        self.treasury.settle.remote(self.who, worst, actual)
