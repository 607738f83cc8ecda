"""The twelve scores: relative spectral norms, spatial power spectra, histograms; clipping and the average.

Matrices are (rows of time, sensors). Scores are 100 for a perfect prediction and unbounded below; reports clip.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import DataError
from assay.science.seismic_ctf.norm import spectral_norm

if TYPE_CHECKING:
    from assay.science.seismic_ctf.definition import Definition

Matrix = NDArray[Any]
Spectrum = Literal["psd", "logpsd"]

E_OF = {
    (1, "short_time"): 1, (1, "long_time"): 2, (2, "reconstruction"): 3, (3, "long_time"): 4,
    (4, "reconstruction"): 5, (5, "long_time"): 6, (6, "short_time"): 7, (6, "long_time"): 8,
    (7, "short_time"): 9, (7, "long_time"): 10, (8, "short_time"): 11, (9, "short_time"): 12,
}  # fmt: skip
"""Number of the score by (pair, metric)."""

ABILITIES = {
    "forecast": (1, 2), "noise": (3, 4, 5, 6), "limited data": (7, 8, 9, 10), "generalisation": (11, 12),
}  # fmt: skip
"""What groups of scores tell."""


def checked(matrix: Any, shape: tuple[int, int] | None = None, what: str = "The prediction") -> Matrix:
    """``matrix`` as an array of real, finite numbers, rows of time by sensors.

    Raises
    ------
    DataError
        Not a numeric matrix, another shape than ``shape``, or a number that is not finite (its place is named).
    """
    a = np.asarray(matrix)
    if a.dtype == object or a.dtype.kind not in "fiub":
        kind = "complex numbers" if a.dtype.kind == "c" else f"values of type {a.dtype}"
        raise DataError(f"{what} holds {kind}; it must be a matrix of real numbers.")
    if a.ndim != 2:
        raise DataError(f"{what} has {a.ndim} dimensions; it must be a matrix of rows (time) by sensors.")
    if shape is not None and a.shape != tuple(shape):
        turned = " (it looks transposed: rows are time, columns are sensors)" if a.shape == tuple(shape)[::-1] else ""
        raise DataError(f"{what} has shape {a.shape}; expected {tuple(shape)}{turned}.")
    if a.dtype.kind == "f" and not np.isfinite(a).all():
        row, column = np.argwhere(~np.isfinite(a))[0]
        raise DataError(f"{what} is not finite at row {row}, column {column}.")
    return a if a.dtype.kind == "f" and a.dtype.itemsize >= 4 else a.astype(np.float64)


def _both(truth: ArrayLike, prediction: ArrayLike) -> tuple[Matrix, Matrix]:
    t = checked(truth, what="The truth")
    return t, checked(prediction, (t.shape[0], t.shape[1]))


def _relative(truth: Matrix, prediction: Matrix) -> float:
    scale = spectral_norm(truth)
    if scale == 0.0:
        raise DataError("The truth is zero everywhere, so no relative error exists.")
    difference = np.subtract(truth, prediction, dtype=np.float64)
    return 100.0 * (1.0 - spectral_norm(difference) / scale)


def short_time(truth: ArrayLike, prediction: ArrayLike, k: int = 20) -> float:
    """100 x (1 - relative spectral norm of the error) over the first ``k`` rows; all rows, with a warning, if fewer."""
    t, p = _both(truth, prediction)
    if k < 1:
        raise DataError(f"k_short must be at least 1; got {k}.")
    if k > len(t):
        warnings.warn(f"k_short={k} is more than the {len(t)} rows there are; all are used.", stacklevel=2)
    return _relative(t[:k], p[:k])


def reconstruction(truth: ArrayLike, prediction: ArrayLike) -> float:
    """100 x (1 - relative spectral norm of the error) over all rows."""
    return _relative(*_both(truth, prediction))


def power_spectrum(matrix: ArrayLike, k: int = 20, modes: int = 100) -> Matrix:
    """Mean over the last ``k`` rows of the squared magnitude of the transform over sensors.

    Frequencies 0, 1, ... ``modes`` - 1; shape (modes,).

    Raises
    ------
    DataError
        More rows, or more frequencies, than there are.
    """
    a = np.asarray(matrix)
    rows, sensors = a.shape
    if not 1 <= k <= rows:
        raise DataError(f"k_long={k} must lie between 1 and the number of rows, {rows}.")
    if not 1 <= modes <= sensors - sensors // 2:
        raise DataError(
            f"modes={modes} must lie between 1 and {sensors - sensors // 2}: {sensors} sensors have no more "
            "frequencies that are not negative."
        )
    found = np.fft.rfft(a[rows - k :].astype(np.float64), axis=1)[:, :modes]
    return (found.real**2 + found.imag**2).mean(axis=0)


def long_time_spectral(
    truth: ArrayLike, prediction: ArrayLike, k: int = 20, modes: int = 100, spectrum: Spectrum = "psd"
) -> float:
    """100 x (1 - relative error of the power spectrum).

    ``psd`` compares powers, as the official code does; ``logpsd`` their natural logarithms, as the paper prints: there
    a power of zero gives -inf, and one that is zero but for rounding weighs as its rounding does.
    """
    t, p = _both(truth, prediction)
    of_truth, of_prediction = power_spectrum(t, k, modes), power_spectrum(p, k, modes)
    if spectrum == "logpsd":
        # Here the transform of the official code, for its rounding shows where a power is zero but for rounding.
        with np.errstate(divide="ignore"):
            of_truth, of_prediction = (
                np.log((np.abs(np.fft.fft(a[-k:].astype(np.float64), axis=1)[:, :modes]) ** 2).mean(axis=0))
                for a in (t, p)
            )
    scale = float(np.linalg.norm(of_truth))
    if scale == 0.0 or not np.isfinite(scale):
        raise DataError("The spectrum of the truth is zero at a frequency or everywhere, so no relative error exists.")
    with np.errstate(invalid="ignore"):
        return float(100.0 * (1.0 - np.linalg.norm(of_truth - of_prediction) / scale))


def long_time_histogram(truth: ArrayLike, prediction: ArrayLike, modes: int = 500, bins: int = 41) -> float:
    """100 x (1 - error of histograms), each feature over the last ``modes`` rows and the joint range of both.

    The error is the sum of absolute differences of counts by the sum of counts, averaged over features.
    """
    t, p = _both(truth, prediction)
    if modes < 1 or bins < 1:
        raise DataError(f"modes and bins must be at least 1; got {modes} and {bins}.")
    t, p = t[-modes:], p[-modes:]
    error = 0.0
    for one, other in zip(t.T, p.T, strict=True):
        span = (min(one.min(), other.min()), max(one.max(), other.max()))
        counts = np.histogram(one, bins, range=span)[0]
        error += np.abs(counts - np.histogram(other, bins, range=span)[0]).sum() / counts.sum()
    return float(100.0 * (1.0 - error / t.shape[1]))


def metric_score(
    metric: str, definition: Definition, truth: ArrayLike, prediction: ArrayLike, spectrum: Spectrum = "psd"
) -> float:
    """One of ``short_time``, ``long_time``, ``reconstruction`` by a data set's own parameters, not clipped."""
    if metric == "short_time":
        return short_time(truth, prediction, definition.k_short)
    if metric == "reconstruction":
        return reconstruction(truth, prediction)
    if metric != "long_time":
        raise DataError(f"{definition.name}: there is no metric {metric!r}; short_time, long_time, reconstruction are.")
    if definition.long_time == "histogram_L2_error":
        return long_time_histogram(truth, prediction, definition.modes, definition.bins)
    return long_time_spectral(truth, prediction, definition.k_long, definition.modes, spectrum)


def clip(value: float | None) -> float:
    """Into [-100, 100]; what is missing or not a number is -100."""
    if value is None or np.isnan(value):
        return -100.0
    return float(min(100.0, max(-100.0, value)))


def average(scores: Mapping[str, float | None] | Sequence[float | None]) -> float:
    """AvgScore: mean of the twelve clipped scores, missing ones -100.

    Raises
    ------
    DataError
        A sequence of other than twelve, or a name that is not E1 .. E12.
    """
    if isinstance(scores, Mapping):
        names = [f"E{i}" for i in range(1, 13)]
        if unknown := sorted(set(scores) - set(names)):
            raise DataError(f"Scores are named E1 to E12; got {unknown[0]!r}.")
        scores = [scores.get(name) for name in names]
    if len(scores) != 12:
        raise DataError(f"An average is over twelve scores; got {len(scores)}.")
    return float(np.mean([clip(value) for value in scores]))


def ability_averages(scores: Mapping[str, float | None]) -> dict[str, float]:
    """Mean of the clipped scores a group of `ABILITIES`."""
    return {name: float(np.mean([clip(scores.get(f"E{i}")) for i in of])) for name, of in ABILITIES.items()}
