"""Elastic waves of a double couple in a heterogeneous block of crust, three components at the free surface.

Velocity and stress on staggered grids, second order in space and time (Virieux 1986; Graves 1996 for the averaging of
moduli), a free surface above, damping layers at the other five sides (Cerjan et al. 1985).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import MissingExtra, UsageError

PARAMETER = "depth_m"
VALUES = (800.0, 1200.0, 2000.0, 1600.0, 2400.0)
SPACING_M = 100.0
STEP_SECONDS = 0.01
DAMPED = 8
"""Cells of the damping layers."""


def medium(rng: np.random.Generator, cells: int, blocks: int = 32) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Density (kg/m3), P and S speed (m/s) on a cubic grid: a correlated random field of ``blocks`` a side, stretched.

    S speeds lie between 1,400 and 3,100 m/s, P is sqrt 3 of S, density after Gardner's rule.
    """
    from scipy.ndimage import gaussian_filter, zoom

    field = gaussian_filter(rng.standard_normal((blocks,) * 3), sigma=(3, 3, 1.5), mode="wrap")
    field /= np.abs(field).max()
    depth = np.linspace(-0.5, 0.5, blocks)
    wanted = np.asarray(zoom(field * 0.6 + depth, cells / blocks, order=1))[:cells, :cells, :cells]
    s = np.clip(2250.0 + 900.0 * wanted, 1400.0, 3100.0)
    p = np.sqrt(3.0) * s
    return 310.0 * p**0.25, p, s


def double_couple(strike: float, dip: float, rake: float) -> NDArray[np.float64]:
    """Unit moment tensor (x north, y east, z down) of angles in degrees; Aki and Richards 2002, box 4.4."""
    f, d, r = np.radians([strike, dip, rake])
    xx = -(np.sin(d) * np.cos(r) * np.sin(2 * f) + np.sin(2 * d) * np.sin(r) * np.sin(f) ** 2)
    xy = np.sin(d) * np.cos(r) * np.cos(2 * f) + 0.5 * np.sin(2 * d) * np.sin(r) * np.sin(2 * f)
    xz = -(np.cos(d) * np.cos(r) * np.cos(f) + np.cos(2 * d) * np.sin(r) * np.sin(f))
    yy = np.sin(d) * np.cos(r) * np.sin(2 * f) - np.sin(2 * d) * np.sin(r) * np.cos(f) ** 2
    yz = -(np.cos(d) * np.cos(r) * np.sin(f) - np.cos(2 * d) * np.sin(r) * np.cos(f))
    zz = np.sin(2 * d) * np.sin(r)
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def simulate(
    rng: np.random.Generator,
    rows: int,
    *,
    sensors: int = 192,
    depth_m: float | None = None,
    cells: int = 40,
    frequency_hz: float = 2.0,
) -> NDArray[Any]:
    """Velocities at a square array on the surface, 100 rows a second, shape (rows, sensors).

    Columns are three blocks: north, east, down. ``sensors`` is three times a square; the array spans what is not
    damped. Position, strike, dip and rake of the source are drawn, its depth too unless given.
    """
    side = round((sensors / 3) ** 0.5)
    if 3 * side * side != sensors:
        raise UsageError(f"sensors={sensors} must be three times a square, for three components of a square array.")
    if cells < 2 * DAMPED + 8:
        raise UsageError(f"cells={cells} leave no room between the damping layers; at least {2 * DAMPED + 8} do.")
    rho, p, s = medium(rng, cells)
    inner = cells - 2 * DAMPED
    at = DAMPED + (inner * rng.uniform(0.3, 0.7, 2)).astype(int)
    drawn = float(rng.uniform(800.0, 2000.0))
    deep = round((drawn if depth_m is None else depth_m) / SPACING_M)
    if not 1 <= deep < cells - DAMPED:
        raise UsageError(
            f"A source {deep * SPACING_M:g} m deep lies outside the block of {(cells - DAMPED) * SPACING_M:g} m."
        )
    tensor = double_couple(rng.uniform(0, 360), rng.uniform(20, 90), rng.uniform(-180, 180))
    delay = 1.2 / frequency_hz
    t = np.arange(rows) * STEP_SECONDS - delay
    ricker = (1 - 2 * (np.pi * frequency_hz * t) ** 2) * np.exp(-((np.pi * frequency_hz * t) ** 2))
    where = DAMPED + np.linspace(0, inner - 1, side).round().astype(np.int64)
    return propagate(rho, p, s, (int(at[0]), int(at[1]), deep), tensor, ricker, where)


def propagate(
    rho: NDArray[Any],
    p: NDArray[Any],
    s: NDArray[Any],
    source: tuple[int, int, int],
    tensor: NDArray[Any],
    wavelet: NDArray[Any],
    receivers: NDArray[Any],
    *,
    spacing: float = SPACING_M,
    step: float = STEP_SECONDS,
) -> NDArray[Any]:
    """Velocity at the surface of a block, one row a time step, shape (steps, 3 x receivers squared).

    Parameters
    ----------
    rho, p, s
        Density, P and S speed; cubes of equal side; x, y, z with z down.
    source
        Cell of the moment tensor ``tensor``, whose rate is ``wavelet``.
    receivers
        Cells along x and along y.

    Raises
    ------
    UsageError
        The time step is too long for the fastest wave.
    """
    courant = float(p.max()) * step / spacing
    if courant > 0.57:
        raise UsageError(f"A step of {step:g} s is unstable at {p.max():.0f} m/s and {spacing:g} m cells; shorten it.")
    n = rho.shape[0]
    mu = (rho * s * s).astype(np.float32)
    lam = (rho * p * p - 2 * rho * s * s).astype(np.float32)
    i = np.arange(n)
    edge = np.minimum(i, n - 1 - i)
    side = np.exp(-((0.06 * np.maximum(DAMPED - edge, 0)) ** 2))
    below = np.exp(-((0.06 * np.maximum(DAMPED - (n - 1 - i), 0)) ** 2))
    damp = (side[:, None, None] * side[None, :, None] * below[None, None, :]).astype(np.float32)
    found = np.zeros((len(wavelet), 3, len(receivers), len(receivers)), np.float32)
    _kernel()(
        rho.astype(np.float32), lam, mu, damp, source, tensor.astype(np.float32), wavelet.astype(np.float32),
        receivers.astype(np.int64), np.float32(step / spacing), found,
    )  # fmt: skip
    return found.reshape(len(wavelet), -1)


@cache
def _kernel() -> Any:
    try:
        from numba import njit
    except ImportError:
        raise MissingExtra("The crustal wavefield", "seismic_ctf") from None
    return njit(cache=True, fastmath=True)(_march)


def _march(rho, lam, mu, damp, source, tensor, wavelet, receivers, r, found):  # compiled: plain loops on arrays
    n = rho.shape[0]
    shape = (n, n, n)
    f32 = np.float32
    vx, vy, vz = np.zeros(shape, f32), np.zeros(shape, f32), np.zeros(shape, f32)
    xx, yy, zz = np.zeros(shape, f32), np.zeros(shape, f32), np.zeros(shape, f32)
    xy, xz, yz = np.zeros(shape, f32), np.zeros(shape, f32), np.zeros(shape, f32)
    sx, sy, sz = source
    half, quarter, tiny = f32(0.5), f32(0.25), f32(1e-30)
    for step in range(wavelet.shape[0]):
        # vx at (i+1/2, j, k), vy at (i, j+1/2, k), vz at (i, j, k+1/2); normal stresses at the nodes, z = 0 is free.
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                for k in range(n - 1):
                    # Above the surface the shear stresses are mirrored with the other sign.
                    xz_up = xz[i, j, k - 1] if k > 0 else -xz[i, j, 0]
                    yz_up = yz[i, j, k - 1] if k > 0 else -yz[i, j, 0]
                    d = damp[i, j, k]
                    bx = half * (rho[i, j, k] + rho[i + 1, j, k])
                    by = half * (rho[i, j, k] + rho[i, j + 1, k])
                    bz = half * (rho[i, j, k] + rho[i, j, k + 1])
                    vx[i, j, k] = d * (
                        vx[i, j, k]
                        + r / bx * (xx[i + 1, j, k] - xx[i, j, k] + xy[i, j, k] - xy[i, j - 1, k] + xz[i, j, k] - xz_up)
                    )
                    vy[i, j, k] = d * (
                        vy[i, j, k]
                        + r / by * (xy[i, j, k] - xy[i - 1, j, k] + yy[i, j + 1, k] - yy[i, j, k] + yz[i, j, k] - yz_up)
                    )
                    vz[i, j, k] = d * (
                        vz[i, j, k]
                        + r
                        / bz
                        * (
                            xz[i, j, k]
                            - xz[i - 1, j, k]
                            + yz[i, j, k]
                            - yz[i, j - 1, k]
                            + zz[i, j, k + 1]
                            - zz[i, j, k]
                        )
                    )
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                for k in range(n - 1):
                    d = damp[i, j, k]
                    ex = vx[i, j, k] - vx[i - 1, j, k]
                    ey = vy[i, j, k] - vy[i, j - 1, k]
                    la, m = lam[i, j, k], mu[i, j, k]
                    if k > 0:
                        ez = vz[i, j, k] - vz[i, j, k - 1]
                    else:
                        # zz stays zero at the surface, which fixes the vertical strain rate.
                        ez = -la / (la + 2 * m) * (ex + ey)
                    trace = la * (ex + ey + ez)
                    xx[i, j, k] = d * (xx[i, j, k] + r * (trace + 2 * m * ex))
                    yy[i, j, k] = d * (yy[i, j, k] + r * (trace + 2 * m * ey))
                    if k > 0:
                        zz[i, j, k] = d * (zz[i, j, k] + r * (trace + 2 * m * ez))
                    # Harmonic means of the moduli at the edges of the cells.
                    a, b = mu[i + 1, j, k], mu[i, j + 1, k]
                    c, e = mu[i, j, k + 1], mu[i + 1, j + 1, k]
                    f, g = mu[i + 1, j, k + 1], mu[i, j + 1, k + 1]
                    mxy = 1 / (quarter * (1 / (m + tiny) + 1 / (a + tiny) + 1 / (b + tiny) + 1 / (e + tiny)))
                    mxz = 1 / (quarter * (1 / (m + tiny) + 1 / (a + tiny) + 1 / (c + tiny) + 1 / (f + tiny)))
                    myz = 1 / (quarter * (1 / (m + tiny) + 1 / (b + tiny) + 1 / (c + tiny) + 1 / (g + tiny)))
                    xy[i, j, k] = d * (
                        xy[i, j, k] + r * mxy * (vx[i, j + 1, k] - vx[i, j, k] + vy[i + 1, j, k] - vy[i, j, k])
                    )
                    xz[i, j, k] = d * (
                        xz[i, j, k] + r * mxz * (vx[i, j, k + 1] - vx[i, j, k] + vz[i + 1, j, k] - vz[i, j, k])
                    )
                    yz[i, j, k] = d * (
                        yz[i, j, k] + r * myz * (vy[i, j, k + 1] - vy[i, j, k] + vz[i, j + 1, k] - vz[i, j, k])
                    )
        w = wavelet[step]
        xx[sx, sy, sz] -= w * tensor[0, 0]
        yy[sx, sy, sz] -= w * tensor[1, 1]
        zz[sx, sy, sz] -= w * tensor[2, 2]
        # A shear couple sits at the node: spread over the four edges around it.
        for a in range(2):
            for b in range(2):
                xy[sx - a, sy - b, sz] -= quarter * w * tensor[0, 1]
                xz[sx - a, sy, sz - b] -= quarter * w * tensor[0, 2]
                yz[sx, sy - a, sz - b] -= quarter * w * tensor[1, 2]
        for p in range(receivers.shape[0]):
            for q in range(receivers.shape[0]):
                i, j = receivers[p], receivers[q]
                found[step, 0, p, q] = vx[i, j, 0]
                found[step, 1, p, q] = vy[i, j, 0]
                found[step, 2, p, q] = vz[i, j, 0]
