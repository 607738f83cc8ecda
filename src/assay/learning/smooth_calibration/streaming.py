"""The error of a stream in fixed memory: samples come, go and are merged, with a certificate of what the cells cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from assay.core.errors import UsageError
from assay.learning.smooth_calibration.exact import Witness, witness_of_points
from assay.learning.smooth_calibration.inputs import Vector, paired


class SmoothCalibrationStream:
    """`smooth_ce` of all samples added so far, from one number a cell.

    A prediction is looked up at the nearest of ``cells + 1`` even points, its residual label - prediction is kept as it
    is. A 1-Lipschitz function changes by no more than the way moved, so the value is off by at most ``error_bound``,
    the mean of |way| |residual| <= 1 / (2 cells); it is exact where predictions lie on the points.

    Parameters
    ----------
    cells
        Resolution. A power of two costs no rounding; 16,384 are off by at most 3.1e-5.
    """

    def __init__(self, cells: int = 16_384) -> None:
        if cells < 1:
            raise UsageError(f"cells={cells} is below 1; give the number of cells that [0, 1] is cut into.")
        self.cells = cells
        self._residuals = np.zeros(cells + 1)
        self._moved = 0.0
        self._n = 0

    def __len__(self) -> int:
        """Samples in the stream."""
        return self._n

    def update(self, y_true: ArrayLike, y_prob: ArrayLike) -> None:
        """Add samples, shape (n,); O(n), whatever the stream holds."""
        self._change(y_true, y_prob, 1)

    def remove(self, y_true: ArrayLike, y_prob: ArrayLike) -> None:
        """Take samples out that were added before, as a sliding window does."""
        self._change(y_true, y_prob, -1)

    def merge(self, other: SmoothCalibrationStream) -> None:
        """Add all samples of another stream of as many cells; the order of merging does not matter."""
        if other.cells != self.cells:
            raise UsageError(f"A stream of {other.cells} cells does not merge with one of {self.cells}.")
        self._residuals += other._residuals
        self._moved += other._moved
        self._n += other._n

    def compute(self) -> float:
        """The error, within ``error_bound`` of the exact one; O(cells log cells)."""
        return self._solved()[0]

    def witness(self) -> Witness:
        """The test function that attains it."""
        return self._solved()[1]

    @property
    def error_bound(self) -> float:
        """How far `compute` may be from `smooth_ce` of the samples."""
        return max(0.0, self._moved) / self._n if self._n else 0.0

    def _change(self, y_true: ArrayLike, y_prob: ArrayLike, sign: int) -> None:
        y, p = paired(y_true, y_prob)
        if self._n + sign * len(y) < 0:
            raise UsageError(f"{len(y)} samples cannot be removed from a stream of {self._n}; remove what was added.")
        at = np.rint(p * self.cells).astype(np.int64)
        residual = y - p
        self._residuals += sign * np.bincount(at, residual, self.cells + 1)
        self._moved += sign * float(np.abs(p - at / self.cells) @ np.abs(residual))
        self._n += sign * len(y)
        if not self._n:
            # Rounding must not outlive the samples.
            self._residuals[:] = 0.0
            self._moved = 0.0

    def _solved(self) -> tuple[float, Witness]:
        if not self._n:
            raise UsageError("The stream holds no sample yet; call update before compute.")
        held = np.flatnonzero(self._residuals)
        if not len(held):
            held = np.array([0])
        points: Vector = held / self.cells
        return witness_of_points(points, self._residuals[held] / self._n)
