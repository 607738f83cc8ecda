"""What an estimator must have to be measured here, and what it is asked to estimate; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from assay.core.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["rmst", "survival"]


@runtime_checkable
class EffectEstimator(Protocol):
    """An estimator of individual effects on a right-censored outcome.

    ``fit(X, W, y)`` takes covariates (n, p), treatment (n,) of 0 and 1, and ``y``, scikit-survival's structured array
    of event and time; ``effect(X)`` gives (m,) estimated effects. Where ``effect`` has a parameter ``W`` it is handed
    the treatment of the rows too (matching needs it). Parameters ``estimand``, ``horizon`` and ``random_state`` of the
    constructor are set by ``set_params`` before fitting.
    """

    def fit(self, X: Any, W: Any, y: Any) -> Any: ...

    def effect(self, X: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Estimand:
    """The functional of the event time whose difference between the arms is the effect.

    ``rmst``: E min(T, horizon), without a horizon E T. ``survival``: P(T > horizon).
    """

    kind: Kind = "rmst"
    horizon: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("rmst", "survival"):
            raise UsageError(f"An estimand is rmst or survival; got {self.kind!r}.")
        if self.kind == "survival" and self.horizon is None:
            raise UsageError("The estimand 'survival' needs a horizon: the time at which survival is compared.")
        if self.horizon is not None and not self.horizon > 0:
            raise UsageError(f"A horizon is a time above 0; got {self.horizon!r}.")

    def of(self, time: np.ndarray) -> np.ndarray:
        """The functional at event times; shape of ``time``."""
        import numpy as np

        time = np.asarray(time, float)
        if self.kind == "survival":
            return (time > self.horizon).astype(float)
        return time if self.horizon is None else np.minimum(time, self.horizon)
