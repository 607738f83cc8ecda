"""Global wavefields from a database of Green's functions, by Instaseis (an optional extra; no database ships)."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import DataError, MissingExtra, UsageError

PARAMETER = "latitude"
VALUES = (-40.0, -20.0, 20.0, 0.0, 40.0)


def fibonacci_sphere(n: int = 2048) -> NDArray[np.float64]:
    """Stations spread evenly over the sphere: columns latitude, longitude (degrees), x, y, z (unit sphere); (n, 5)."""
    if n < 1:
        raise UsageError(f"A sphere needs at least one station; got {n}.")
    i = np.arange(n)
    z = 1 - (2 * i + 1) / n
    theta = -i * np.pi * (3 - np.sqrt(5))
    r = np.sqrt(1 - z * z)
    x, y = r * np.cos(theta), r * np.sin(theta)
    longitude = -((-np.degrees(theta) + 180.0) % 360.0 - 180.0)
    return np.column_stack([np.degrees(np.arcsin(z)), longitude, x, y, z])


def open_database(path: Path | str) -> Any:
    """An AxiSEM database: a folder such as ``tests/data/100s_db_bwd_displ_only`` of the Instaseis source archive.

    Raises
    ------
    MissingExtra, DataError
        Instaseis is not installed; the folder is no database.
    """
    if not Path(path).expanduser().is_dir():
        raise DataError(f"There is no folder {path} with a database of Green's functions.")
    try:
        import instaseis
    except ImportError:
        raise MissingExtra("The global wavefield", "seismic_ctf-global") from None
    try:
        return instaseis.open_db(str(Path(path).expanduser()))
    except Exception as error:
        raise DataError(f"{path} is not a database that Instaseis opens ({type(error).__name__}: {error}).") from None


def simulate(
    rng: np.random.Generator, rows: int, *, sensors: int = 256, latitude: float | None = None, database: Any = None
) -> NDArray[Any]:
    """Vertical velocity of a random earthquake at Fibonacci stations, shape (rows, sensors).

    Source position, depth (where the database allows one), mechanism and size are drawn. Rows are as far apart as lets
    the database's length hold them: 1 s, or less where it is shorter than ``rows`` seconds (the signal is band-limited
    by the database, so that finer rows are only smoother).
    """
    if database is None:
        raise UsageError("The global wavefield needs database=FOLDER; see the README on where one lies.")
    import instaseis

    db = database if hasattr(database, "get_seismograms") else open_database(database)
    moment = rng.standard_normal((3, 3)) * 10 ** rng.uniform(18, 20)
    moment = moment + moment.T
    moment -= np.eye(3) * np.trace(moment) / 3
    drawn = float(np.degrees(np.arcsin(rng.uniform(-0.9, 0.9))))
    longitude, depth = float(rng.uniform(-180, 180)), float(rng.uniform(1e4, 2e5))
    (rr, rt, rp), (_, tt, tp), (_, _, pp) = moment
    source = instaseis.Source(
        latitude=drawn if latitude is None else latitude, longitude=longitude, depth_in_m=depth,
        m_rr=rr, m_tt=tt, m_pp=pp, m_rt=rt, m_rp=rp, m_tp=tp,
    )  # fmt: skip
    step = row_seconds(db, rows)
    found = np.empty((rows, sensors))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Source depth cannot be changed")
        for i, (lat, lon, *_) in enumerate(fibonacci_sphere(sensors)):
            receiver = instaseis.Receiver(latitude=lat, longitude=lon)
            trace = db.get_seismograms(source, receiver, components="Z", kind="velocity", dt=step)[0]
            found[:, i] = trace.data[:rows]
    return found


def row_seconds(db: Any, rows: int) -> float:
    """Seconds between rows: 1, or the database's usable length by ``rows`` where that is shorter."""
    import instaseis

    source = instaseis.Source(latitude=0.0, longitude=0.0, depth_in_m=1e4, m_rr=1e18, m_tt=-1e18)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Source depth cannot be changed")
        trace = db.get_seismograms(source, instaseis.Receiver(latitude=30.0, longitude=30.0), components="Z",
                                   kind="velocity", dt=1.0)[0]  # fmt: skip
    return min(1.0, (len(trace.data) - 1) / (rows + 1))
