"""Quality of a suite as a verifier: counts, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts over programs; positive = the suite accepts, truth = the label.

    A share whose denominator is 0 is None: no program accepted, or none correct.
    """

    tp: int = 0
    fp: int = 0
    fn: int = 0
    tn: int = 0

    @classmethod
    def of(cls, pairs: Iterable[tuple[bool, bool]]) -> Confusion:
        """From (accepted, correct) pairs."""
        found = cls()
        for accepted, correct in pairs:
            found = found.plus(accepted, correct)
        return found

    def plus(self, accepted: bool, correct: bool) -> Confusion:
        """With one more program."""
        return Confusion(
            self.tp + (accepted and correct),
            self.fp + (accepted and not correct),
            self.fn + (correct and not accepted),
            self.tn + (not accepted and not correct),
        )

    def __add__(self, other: Confusion) -> Confusion:
        return Confusion(self.tp + other.tp, self.fp + other.fp, self.fn + other.fn, self.tn + other.tn)

    @property
    def precision(self) -> float | None:
        """Share of truly correct programs among those accepted."""
        return _share(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> float | None:
        """Share of truly correct programs that are accepted."""
        return _share(self.tp, self.tp + self.fn)

    @property
    def false_positive_rate(self) -> float | None:
        """Share of faulty programs that are accepted."""
        return _share(self.fp, self.fp + self.tn)

    @property
    def true_negative_rate(self) -> float | None:
        """Share of faulty programs that are rejected."""
        return _share(self.tn, self.fp + self.tn)

    @property
    def accuracy(self) -> float | None:
        """Share of programs judged rightly."""
        return _share(self.tp + self.tn, self.tp + self.fp + self.fn + self.tn)


def posterior_correct(prior: float, quality: Confusion) -> float:
    """Probability that an accepted program is correct, by Bayes.

    Parameters
    ----------
    prior
        Share of correct programs among those that will be judged, in [0, 1].
    quality
        Measured counts of the suite; both rates get half an observation more on either side (Jeffreys), so a suite
        that never failed on ten programs is not believed infallible.
    """
    accepts_right = (quality.tp + 0.5) / (quality.tp + quality.fn + 1)
    accepts_wrong = (quality.fp + 0.5) / (quality.fp + quality.tn + 1)
    right, wrong = prior * accepts_right, (1 - prior) * accepts_wrong
    return right / (right + wrong) if right + wrong else 0.0


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
