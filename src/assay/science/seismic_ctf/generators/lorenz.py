"""The Lorenz system."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PARAMETER = "rho"
VALUES = (24.5, 26.0, 30.0, 28.0, 32.0)
DELTA_T = 0.05


def simulate(
    rng: np.random.Generator, rows: int, *, sensors: int = 3, rho: float = 28.0, delta_t: float = DELTA_T
) -> NDArray[Any]:
    """x, y, z on the attractor every ``delta_t``, shape (rows, 3); sigma 10, beta 8/3. Ten time units are left out."""
    from scipy.integrate import solve_ivp

    def slope(t: float, s: NDArray[Any]) -> list[float]:
        x, y, z = s
        return [10.0 * (y - x), x * (rho - z) - y, x * y - 8.0 / 3.0 * z]

    times = 10.0 + np.arange(rows) * delta_t
    start = rng.normal([0.0, 0.0, 25.0], 5.0)
    found = solve_ivp(slope, (0.0, times[-1]), start, method="DOP853", t_eval=times, rtol=1e-9, atol=1e-9)
    return found.y.T
