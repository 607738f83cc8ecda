"""Kill matrices: which test rejects which faulty program, and how few tests are enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.core.errors import UsageError

if TYPE_CHECKING:
    from assay.code.hardtests.suite import TestSuite
    from assay.code.hardtests.verifying import Verdicts


@dataclass(frozen=True, slots=True)
class KillMatrix:
    """``kills[program]`` = the tests that the program fails. A test that was not run kills nothing."""

    tests: int
    kills: Mapping[str, frozenset[int]]

    @classmethod
    def of(cls, tests: int, verdicts: Mapping[str, Verdicts]) -> KillMatrix:
        """From the verdicts of faulty programs on all tests (``until="all"``)."""
        return cls(
            tests,
            {name: frozenset(i for i, v in enumerate(found.verdicts) if v == 0) for name, found in verdicts.items()},
        )

    @property
    def survivors(self) -> list[str]:
        """Programs that no test kills."""
        return [name for name, tests in self.kills.items() if not tests]

    def counts(self) -> list[int]:
        """Programs killed, a test."""
        found = [0] * self.tests
        for tests in self.kills.values():
            for test in tests:
                found[test] += 1
        return found

    def order(self) -> list[int]:
        """Tests in the order that rejects soonest: the next one always kills most of what still lives.

        Ties fall to the earlier test; tests that kill nothing new follow, the deadlier first.
        """
        chosen = self.minimal()
        counts = self.counts()
        rest = sorted(set(range(self.tests)) - set(chosen), key=lambda test: (-counts[test], test))
        return chosen + rest

    def minimal(self, at_least: int = 1) -> list[int]:
        """Fewest tests (greedy set cover, within a factor ln n of the fewest) that keep every kill.

        Parameters
        ----------
        at_least
            Tests that shall kill each program, or all that do where there are fewer: more of them also catch
            programs that nobody has seen.
        """
        if at_least < 1:
            raise UsageError(f"at_least={at_least}: a program is killed by at least 1 test.")
        left = {name: min(at_least, len(tests)) for name, tests in self.kills.items() if tests}
        chosen: list[int] = []
        while left:
            gains = [0] * self.tests
            for name in left:
                for test in self.kills[name]:
                    gains[test] += 1
            for test in chosen:
                gains[test] = 0
            best = max(range(self.tests), key=lambda test: (gains[test], -test))
            chosen.append(best)
            for name in [name for name in left if best in self.kills[name]]:
                left[name] -= 1
                if not left[name]:
                    del left[name]
        return chosen


def minimal_suite(suite: TestSuite, matrix: KillMatrix, *, at_least: int = 1, keep: Sequence[int] = ()) -> TestSuite:
    """The suite of the tests that keep every kill, and of those in ``keep``.

    Raises
    ------
    UsageError
        The matrix is of another suite, or nothing would be left.
    """
    if matrix.tests != len(suite.cases):
        raise UsageError(f"The kill matrix has {matrix.tests} tests, the suite {len(suite.cases)}.")
    chosen = {*matrix.minimal(at_least), *keep}
    if not chosen:
        raise UsageError("No program is killed by any test, so no test is worth more than another; keep the suite.")
    return suite.chosen(chosen)
