"""Sea waves over a fibre on the sea floor: random dispersive components with a JONSWAP spectrum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import UsageError

GRAVITY = 9.81
STEP_SECONDS = 0.2
PARAMETER = "depth_m"
VALUES = (10.0, 20.0, 40.0, 30.0, 50.0)


def wavenumber(frequency: ArrayLike, depth: float) -> NDArray[np.float64]:
    """k (rad/m) with omega^2 = g k tanh(k h), for frequencies in Hz > 0 and a depth in m > 0; relative error 1e-12."""
    omega = 2 * np.pi * np.asarray(frequency, float)
    if np.any(omega <= 0) or depth <= 0:
        raise UsageError("The dispersion relation needs frequencies and a depth above zero.")
    # Newton in y = k h on y tanh y = x, from the better of the two limits; convex, so it never overshoots below zero.
    x = omega**2 * depth / GRAVITY
    y = np.where(x > 1, x, np.sqrt(x))
    for _ in range(50):
        t = np.tanh(y)
        step = (y * t - x) / (t + y * (1 - t * t))
        y = y - step
        if np.all(np.abs(step) <= 1e-14 * y):
            break
    return y / depth


def jonswap(frequency: ArrayLike, peak: float = 0.12, gamma: float = 3.3) -> NDArray[np.float64]:
    """Shape of the JONSWAP spectrum (Hasselmann et al. 1973), not normalised; frequencies in Hz."""
    f = np.asarray(frequency, float)
    width = np.where(f <= peak, 0.07, 0.09)
    bump = gamma ** np.exp(-((f - peak) ** 2) / (2 * width**2 * peak**2))
    return f**-5.0 * np.exp(-1.25 * (f / peak) ** -4.0) * bump


def simulate(
    rng: np.random.Generator,
    rows: int,
    *,
    sensors: int = 256,
    depth_m: float = 30.0,
    components: int = 120,
    spacing_m: float = 5.0,
    spread_degrees: float = 20.0,
    quantity: str = "strain",
    seabed: bool = True,
) -> NDArray[Any]:
    """Strain along the fibre at 5 Hz, low-passed at 1 Hz.

    Parameters
    ----------
    rng
        Draws frequencies, phases, directions, the peak of the spectrum.
    spread_degrees
        Standard deviation of directions about the fibre's.
    quantity
        ``strain`` (wavenumber along the fibre x displacement) or ``elevation``.
    seabed
        Whether components are weakened by 1 / cosh(k h) on their way down to the fibre; False = as at the surface.

    Returns
    -------
    ndarray
        Shape (rows, sensors).
    """
    if quantity not in ("strain", "elevation"):
        raise UsageError(f"quantity must be strain or elevation; got {quantity!r}.")
    edges = np.linspace(0.05, 1.0, components + 1)
    frequency = rng.uniform(edges[:-1], edges[1:])
    peak = rng.uniform(0.10, 0.16)
    amplitude = np.sqrt(2 * jonswap(frequency, peak) * np.diff(edges))
    k = wavenumber(frequency, depth_m)
    if seabed:
        amplitude = amplitude / np.cosh(k * depth_m)
    along = k * np.cos(np.radians(spread_degrees * rng.standard_normal(components)))
    phase = rng.uniform(0, 2 * np.pi, components)
    if quantity == "strain":
        amplitude = amplitude * np.abs(along)
    x = np.outer(along, np.arange(sensors) * spacing_m) + phase[:, None]
    t = np.outer(np.arange(rows) * STEP_SECONDS, 2 * np.pi * frequency)
    return (np.cos(t) * amplitude) @ np.cos(x) + (np.sin(t) * amplitude) @ np.sin(x)
