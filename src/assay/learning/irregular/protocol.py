"""What a classifier must offer; nothing heavy is imported here."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class SeriesEstimator(Protocol):
    """A scikit-learn classifier of arrays (n, channels, time) in which NaN marks what is missing or past the end.

    If ``fit`` and ``predict`` take ``times``, they are given the time stamps, (n, time), NaN past the end. If
    ``get_params`` lists ``random_state``, it is set from the trial's seed.
    """

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from the training side."""
        ...

    def predict(self, X: Any) -> Any:
        """A label for each series."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters, so that each trial begins with a fresh copy."""
        ...
