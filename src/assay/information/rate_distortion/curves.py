"""Curves of rate against distortion: units, lower convex envelope, slopes, files."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.datasets.readers import guarded, parse_json, read_text
from assay.core.errors import DataError, UsageError

Array = NDArray[np.float64]
RateUnit = Literal["nats", "bits"]
DistortionUnit = Literal["half_mse", "mse", "mse_per_dimension", "psnr"]
COLUMNS = (
    "source", "method", "eps", "rate_nats", "half_mse", "mse", "entropy_x1", "energy", "se_rate", "bound",
)  # fmt: skip


def convert_rate(nats: ArrayLike, unit: RateUnit = "bits", *, d: int | None = None) -> Array:
    """Nats in another unit; per dimension when ``d`` is given."""
    if unit not in ("nats", "bits"):
        raise UsageError(f"unit must be nats or bits; got {unit!r}.")
    return np.asarray(nats, float) / (math.log(2) if unit == "bits" else 1.0) / (d or 1)


def convert_distortion(half_mse: ArrayLike, unit: DistortionUnit, *, d: int = 1, peak: float = 1.0) -> Array:
    """Half the squared error in another unit; ``psnr`` is 10 log10(peak^2 d / (2D)) in dB."""
    value = np.asarray(half_mse, float)
    if unit == "psnr":
        return 10 * np.log10(peak**2 * d / (2 * value))
    return value * _factor(unit, d)


def half_mse_of(distortion: ArrayLike, unit: DistortionUnit, *, d: int = 1, peak: float = 1.0) -> Array:
    """Half the squared error of a distortion in another unit: the inverse of `convert_distortion`."""
    value = np.asarray(distortion, float)
    if unit == "psnr":
        return peak**2 * d / 2 * 10 ** (-value / 10)
    return value / _factor(unit, d)


def _factor(unit: str, d: int) -> float:
    factors = {"half_mse": 1.0, "mse": 2.0, "mse_per_dimension": 2.0 / d}
    if unit not in factors:
        raise UsageError(f"A distortion's unit must be half_mse, mse, mse_per_dimension or psnr; got {unit!r}.")
    return factors[unit]


@dataclass(frozen=True, slots=True)
class Point:
    """One measured point. ``bound``: upper, estimate or exact. ``extra`` holds what a method tells beside."""

    eps: float
    rate_nats: float
    half_mse: float
    entropy_x1: float = math.nan
    energy: float = math.nan
    se_rate: float = math.nan
    bound: str = "upper"
    extra: Mapping[str, float] = field(default_factory=dict)

    @property
    def lagrangian(self) -> float:
        """R + D / eps."""
        return self.rate_nats + self.half_mse / self.eps


@dataclass(frozen=True)
class Curve:
    """Points of one method on one source, sorted by eps.

    Attributes
    ----------
    d
        Dimension of the source.
    half_mse_max
        Half the trace of the covariance: rate 0 is reached there by the mean alone. None = unknown.
    """

    points: Sequence[Point]
    d: int
    source: str = "samples"
    method: str = ""
    half_mse_max: float | None = None

    def __post_init__(self) -> None:
        if not self.points:
            raise UsageError("A curve needs at least one point.")
        object.__setattr__(self, "points", tuple(sorted(self.points, key=lambda p: p.eps)))

    @property
    def eps(self) -> Array:
        """Noise levels, ascending."""
        return np.array([p.eps for p in self.points])

    @property
    def rate_nats(self) -> Array:
        """Rates."""
        return np.array([p.rate_nats for p in self.points])

    @property
    def half_mse(self) -> Array:
        """Distortions."""
        return np.array([p.half_mse for p in self.points])

    def envelope(self) -> Array:
        """Corners (half_mse, rate_nats) of the lower convex envelope, by distortion; still an upper bound of R(D)."""
        found = list(zip(self.half_mse, np.maximum(self.rate_nats, 0.0)))
        if self.half_mse_max is not None:
            found.append((self.half_mse_max, 0.0))
        return lower_envelope(np.array(found))

    def rate(
        self,
        distortion: ArrayLike,
        unit: RateUnit = "bits",
        *,
        distortion_unit: DistortionUnit = "half_mse",
        peak: float = 1.0,
    ) -> Array:
        """Rate at a distortion, on the lower convex envelope.

        Raises
        ------
        UsageError
            Below the smallest measured distortion nothing is known.
        """
        wanted = half_mse_of(distortion, distortion_unit, d=self.d, peak=peak)
        corners = self.envelope()
        if np.any(wanted < corners[0, 0] * (1 - 1e-12)):
            raise UsageError(
                f"The curve begins at half_mse={corners[0, 0]:.4g}, above the {float(np.min(wanted)):.4g} asked for; "
                "ask curve() for smaller eps."
            )
        return convert_rate(np.interp(wanted, corners[:, 0], corners[:, 1]), unit)

    def slopes(self) -> Array:
        """(D between neighbours, finite difference dR/dD, -1/eps in the middle), a row a pair of neighbours."""
        d, r, eps = self.half_mse, self.rate_nats, self.eps
        step = np.diff(d)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(step != 0, np.diff(r) / step, np.nan)
        return np.column_stack([(d[1:] + d[:-1]) / 2, found, -np.log(eps[1:] / eps[:-1]) / np.diff(eps)])

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary a point, in the columns of the published table."""
        return [
            {
                "source": self.source,
                "method": self.method,
                "eps": p.eps,
                "rate_nats": p.rate_nats,
                "half_mse": p.half_mse,
                "mse": 2 * p.half_mse,
                "entropy_x1": p.entropy_x1,
                "energy": p.energy,
                "se_rate": p.se_rate,
                "bound": p.bound,
            }
            for p in self.points
        ]

    def save(self, path: Path | str) -> Path:
        """Write ``.csv`` or ``.json``; in JSON with dimension and extras."""
        path = Path(path)
        if path.suffix == ".csv":
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(["" if row[c] != row[c] else row[c] for c in COLUMNS] for row in self.rows())
            path.write_text(text.getvalue(), encoding="utf-8")
        elif path.suffix == ".json":
            plain = [
                {k: None if v != v else v for k, v in row.items()} | {"extra": dict(p.extra)}
                for row, p in zip(self.rows(), self.points)
            ]
            whole = {"d": self.d, "half_mse_max": self.half_mse_max, "points": plain}
            path.write_text(json.dumps(whole, indent=1), encoding="utf-8")
        else:
            raise UsageError(f"A curve is written as .csv or .json; got {path.name!r}.")
        return path

    @classmethod
    def load(cls, path: Path | str, *, d: int = 1) -> Curve:
        """Read what `save` wrote; a CSV file does not say the dimension, so ``d`` does."""
        path = Path(path)
        text = read_text(path)
        with guarded(path, "a curve"):
            if path.suffix == ".json":
                whole = parse_json(text, path)
                rows, d, top = list(whole["points"]), int(whole["d"]), whole["half_mse_max"]
            else:
                rows, top = list(csv.DictReader(io.StringIO(text))), None
        points = []
        row: Any
        for number, row in enumerate(rows, 2):
            try:
                numbers = {k: float(row[k]) for k in ("eps", "rate_nats", "half_mse")}
                optional = {k: _number(row[k]) for k in ("entropy_x1", "energy", "se_rate")}
                extra = {str(k): float(v) for k, v in (row.get("extra") or {}).items()}
                points.append(Point(**numbers, **optional, bound=row["bound"], extra=extra))
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError, DataError, UsageError) as error:
                raise DataError(
                    f"{path}, row {number}: a point needs the columns {', '.join(COLUMNS)} ({error!r})."
                ) from None
        if not points:
            raise DataError(f"{path} holds no points.")
        with guarded(path, "a curve"):
            return cls(points, d, str(rows[0]["source"]), str(rows[0]["method"]), top)


def lower_envelope(points: ArrayLike) -> Array:
    """Corners of the lower convex envelope of (x, y) points that falls with x; points that lie above drop out."""
    given = np.asarray(points, float)
    if given.ndim != 2 or given.shape[1] != 2 or not np.isfinite(given).all():
        raise UsageError("An envelope needs finite points (distortion, rate).")
    hull: list[tuple[float, float]] = []
    for x, y in given[np.lexsort((given[:, 1], given[:, 0]))]:
        if hull and y >= hull[-1][1]:
            continue
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-2][0]) >= (y - hull[-2][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        hull.append((float(x), float(y)))
    return np.array(hull)


def dual_lower_bound(half_mse: ArrayLike, eps: ArrayLike, lagrangians: ArrayLike) -> Array:
    """max over slopes of (L - D/eps), at least 0: a lower bound of R(D) where every L bounds R + D/eps from below."""
    lines = (
        np.asarray(lagrangians, float)[:, None] - np.asarray(half_mse, float)[None] / np.asarray(eps, float)[:, None]
    )
    return np.maximum(0.0, lines.max(0))


def _number(value: Any) -> float:
    return math.nan if value in (None, "") else float(value)
