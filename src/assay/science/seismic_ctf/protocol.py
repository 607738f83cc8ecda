"""What a system under test is: a forecaster in scikit-learn's manner."""

from __future__ import annotations

import copy
import inspect
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Forecaster(Protocol):
    """Learns from matrices of (rows of time, sensors) and predicts rows at given times.

    ``fit(train, init, times)`` takes a sequence of training matrices, the burn-in matrix or None and
    `assay.science.seismic_ctf.data.Times`; ``predict(times)`` a vector of times, and returns a matrix with as many
    rows. Times inside the training window ask for a denoised reconstruction, later ones for a forecast.
    """

    def fit(self, train: Any, init: Any, times: Any) -> Any:
        """Learn."""
        ...

    def predict(self, times: Any) -> Any:
        """Rows at these times."""
        ...


class Parameters:
    """``get_params`` and ``set_params`` from the signature of ``__init__``, as scikit-learn's estimators have them."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Hyper-parameters by name."""
        names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> Any:
        """Set hyper-parameters."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                from assay.core.errors import unknown_name

                raise unknown_name("parameter", name, known)
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.get_params().items())
        return f"{type(self).__name__}({shown})"


def seeded_copy(system: Any, seed: int) -> Any:
    """A copy of an unfitted system, with ``random_state`` set where it has that parameter."""
    fresh = copy.deepcopy(system)
    if hasattr(fresh, "get_params") and hasattr(fresh, "set_params") and "random_state" in fresh.get_params():
        fresh.set_params(random_state=seed)
    return fresh
