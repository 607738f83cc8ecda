"""The Kuramoto-Sivashinsky equation on a ring, by exponential time differencing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PARAMETER = "viscosity"
VALUES = (0.8, 0.9, 1.1, 1.0, 1.2)
DELTA_T = 0.025


def simulate(
    rng: np.random.Generator,
    rows: int,
    *,
    sensors: int = 256,
    viscosity: float = 1.0,
    length: float = 32 * np.pi,
    delta_t: float = DELTA_T,
    spin_up: float = 50.0,
) -> NDArray[Any]:
    """u of u_t = -u u_x - u_xx - viscosity u_xxxx every ``delta_t``, shape (rows, sensors); periodic in ``length``.

    Fourth-order exponential Runge-Kutta with contour integrals for the coefficients (Kassam and Trefethen 2005),
    products dealiased by the two-thirds rule. A time ``spin_up`` is left out.
    """
    x = length * np.arange(sensors) / sensors
    waves = 2 * np.pi / length * np.arange(sensors // 2 + 1)
    linear = waves**2 - viscosity * waves**4
    h = delta_t
    full, half = np.exp(h * linear), np.exp(h * linear / 2)
    points = np.exp(1j * np.pi * (np.arange(32) + 0.5) / 32)
    lr = h * linear[:, None] + points[None, :]
    q = h * np.mean((np.exp(lr / 2) - 1) / lr, axis=1).real
    f1 = h * np.mean((-4 - lr + np.exp(lr) * (4 - 3 * lr + lr**2)) / lr**3, axis=1).real
    f2 = h * np.mean((2 + lr + np.exp(lr) * (-2 + lr)) / lr**3, axis=1).real
    f3 = h * np.mean((-4 - 3 * lr - lr**2 + np.exp(lr) * (4 - lr)) / lr**3, axis=1).real
    keep = np.arange(len(waves)) < len(waves) * 2 / 3
    g = -0.5j * waves * keep

    def advection(v: NDArray[Any]) -> NDArray[Any]:
        return g * np.fft.rfft(np.fft.irfft(v, sensors) ** 2)

    u = sum(
        rng.normal() * np.cos(2 * np.pi * m * x / length) + rng.normal() * np.sin(2 * np.pi * m * x / length)
        for m in range(1, 9)
    )
    v = np.fft.rfft(u)
    skip = round(spin_up / h)
    found = np.empty((rows, sensors))
    for step in range(skip + rows):
        if step >= skip:
            found[step - skip] = np.fft.irfft(v, sensors)
        nv = advection(v)
        a = half * v + q * nv
        na = advection(a)
        b = half * v + q * na
        nb = advection(b)
        c = half * a + q * (2 * nb - nv)
        v = full * v + nv * f1 + 2 * (na + nb) * f2 + advection(c) * f3
    return found
