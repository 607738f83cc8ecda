"""Other measures of calibration: binned, kernel and smoothed errors, proper scores and their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import DataError, MissingExtra, UsageError
from assay.learning.smooth_calibration.chains import laplace_sum
from assay.learning.smooth_calibration.exact import smooth_ce, smooth_ce_logit
from assay.learning.smooth_calibration.inputs import Vector, expit, log_loss_of_logits, logit_of, logits, paired

Strategy = Literal["width", "mass", "quantile"]
Norm = Literal["l1", "l2", "max"]
Kernel = Literal["laplace", "gauss"]
BLOCK = 2048


@dataclass(frozen=True, slots=True)
class Bins:
    """Count, mean prediction and mean label of every bin that holds a sample, shapes (b,); edges of all bins."""

    counts: NDArray[np.int64]
    predicted: Vector
    observed: Vector
    edges: Vector

    @property
    def share(self) -> Vector:
        """Share of the samples in each bin."""
        return self.counts / self.counts.sum()


def bins_of(y_true: ArrayLike, y_prob: ArrayLike, *, bins: int = 15, strategy: Strategy = "width") -> Bins:
    """Samples in bins.

    Parameters
    ----------
    bins
        Number of bins; more than samples leaves some empty, which are left out.
    strategy
        ``width``: [0, 1] in equal parts, the last closed. ``mass``: sorted samples in runs of equal size (the first
        ones larger by one), ties in the order given: with many equal predictions the order of the samples decides.
        ``quantile``: between quantiles of the predictions, equal ones always together, so bins may be uneven.
    """
    y, p = paired(y_true, y_prob)
    if bins < 1:
        raise UsageError(f"bins={bins} is below 1; give the number of bins.")
    if strategy == "width":
        of = np.minimum((p * bins).astype(np.int64), bins - 1)
        edges = np.linspace(0, 1, bins + 1)
    elif strategy == "mass":
        order = np.argsort(p, kind="stable")
        parts = [part for part in np.array_split(order, bins) if len(part)]
        of = np.empty(len(p), np.int64)
        for number, part in enumerate(parts):
            of[part] = number
        edges = np.array([p[parts[0][0]], *(p[part[-1]] for part in parts)])
    elif strategy == "quantile":
        edges = np.asarray(np.quantile(p, np.linspace(0, 1, bins + 1)), np.float64)
        of = np.searchsorted(edges[1:-1], p)
    else:
        raise UsageError(f"strategy={strategy!r} is not a way of binning; write 'width', 'mass' or 'quantile'.")
    counts = np.bincount(of)
    held = counts > 0
    n = counts[held]
    return Bins(n, np.bincount(of, p)[held] / n, np.bincount(of, y)[held] / n, edges)


def ece(
    y_true: ArrayLike, y_prob: ArrayLike, *, bins: int = 15, strategy: Strategy = "width", norm: Norm = "l1"
) -> float:
    """Expected calibration error in bins.

    ``l1`` is the weighted mean of the gaps (ECE), ``l2`` their root mean square, ``max`` the largest (MCE). Not
    continuous: moving a prediction by 1e-9 over an edge can change it, which never happens to `smooth_ce`. Up to the
    bin width it bounds it: smooth_ce <= ece + 1 / bins.
    """
    held = bins_of(y_true, y_prob, bins=bins, strategy=strategy)
    gap = np.abs(held.predicted - held.observed)
    if norm == "l1":
        return float(held.share @ gap)
    if norm == "l2":
        return float(np.sqrt(held.share @ gap**2))
    if norm == "max":
        return float(gap.max())
    raise UsageError(f"norm={norm!r} is not known; write 'l1', 'l2' or 'max'.")


def ece_debiased(y_true: ArrayLike, y_prob: ArrayLike, *, bins: int = 15, strategy: Strategy = "mass") -> float:
    """L2 error in bins without the bias of the labels' variance (Kumar, Liang and Ma 2019, arXiv 1909.10155).

    The square may fall below 0, where 0 is returned; bins of one sample have no variance and are left out.
    """
    held = bins_of(y_true, y_prob, bins=bins, strategy=strategy)
    several = held.counts > 1
    if not several.any():
        raise DataError(f"Every one of {bins} bins holds a single sample; give fewer bins.")
    n, mean = held.counts[several], held.observed[several]
    square = (held.predicted[several] - mean) ** 2 - mean * (1 - mean) / (n - 1)
    return float(np.sqrt(max(0.0, float(held.share[several] @ square))))


def interval_ce(
    y_true: ArrayLike, y_prob: ArrayLike, *, rng: np.random.Generator, shifts: int = 100, finest: float = 1e-3
) -> float:
    """Interval calibration error: smallest over widths 2^-k of width plus ECE in intervals shifted at random.

    Parameters
    ----------
    rng
        Draws the shifts.
    shifts
        Random shifts a width.
    finest
        Smallest width tried.

    References
    ----------
    Blasiok et al. 2023, arXiv 2211.16886, section 6.
    """
    y, p = paired(y_true, y_prob)
    residual = (p - y) / len(y)
    best, width = np.inf, 1.0
    while width > finest:
        drawn = rng.uniform(0, width, shifts)
        errors = [np.abs(np.bincount(((p + shift) / width).astype(np.int64), residual)).sum() for shift in drawn]
        best = min(best, float(np.mean(errors)) + width)
        width /= 2
    return best


def kernel_ce(y_true: ArrayLike, y_prob: ArrayLike, *, kernel: Kernel = "laplace", width: float = 1.0) -> float:
    """Kernel calibration error ``sqrt(r' K r) / n``, r = p - y.

    ``laplace`` is exp(-|u - v| / width), computed exactly in O(n log n); ``gauss`` is exp(-(u - v)^2 / (2 width^2)), in
    blocks of O(n) memory.
    """
    y, p = paired(y_true, y_prob)
    r = p - y
    return float(np.sqrt(max(0.0, _off_diagonal(p, r, kernel, width) + float(r @ r)))) / len(y)


def mmce(y_true: ArrayLike, y_prob: ArrayLike, *, width: float = 0.4) -> float:
    """Maximum mean calibration error with the Laplace kernel (Kumar, Sarawagi and Jain 2018)."""
    return kernel_ce(y_true, y_prob, kernel="laplace", width=width)


def skce(y_true: ArrayLike, y_prob: ArrayLike, *, kernel: Kernel = "laplace", width: float = 0.4) -> float:
    """Squared kernel calibration error, unbiased (a U-statistic, so it may be negative); Widmann et al. 2019."""
    y, p = paired(y_true, y_prob)
    if len(y) < 2:
        raise DataError("The unbiased squared kernel error needs at least two samples.")
    return _off_diagonal(p, p - y, kernel, width) / (len(y) * (len(y) - 1))


def smece(y_true: ArrayLike, y_prob: ArrayLike) -> float:
    """SmoothECE at the width that equals it (Blasiok and Nakkiran 2023), by relplot; resolution about 1e-3."""
    return smece_and_width(y_true, y_prob)[0]


def smece_and_width(y_true: ArrayLike, y_prob: ArrayLike) -> tuple[float, float]:
    """`smece` and the width of its kernel."""
    y, p = paired(y_true, y_prob)
    value, width = _relplot().smECE(p, y, return_width=True)
    return float(value), float(width)


def smece_at(y_true: ArrayLike, y_prob: ArrayLike, *, width: float) -> float:
    """SmoothECE at a width of the reflected Gaussian kernel, by relplot."""
    y, p = paired(y_true, y_prob)
    if width <= 0:
        raise UsageError(f"width={width:g} is not above 0; give the standard deviation of the kernel.")
    return float(_relplot().smECE_sigma(p, y, width))


def brier(y_true: ArrayLike, y_prob: ArrayLike) -> float:
    """Mean of (y - p)^2."""
    y, p = paired(y_true, y_prob)
    return float(np.mean((y - p) ** 2))


def log_loss(y_true: ArrayLike, y_prob: ArrayLike) -> float:
    """Mean cross-entropy in nats; infinite where a certain prediction is wrong."""
    y, p = paired(y_true, y_prob)
    with np.errstate(divide="ignore"):
        # From 0, not from a minus 0.
        return float(0.0 - np.mean(np.log(np.where(y == 1, p, 1 - p))))


@dataclass(frozen=True, slots=True)
class Parts:
    """A proper score: ``calibration - discrimination + uncertainty``; ``refinement`` is the score once recalibrated."""

    score: float
    calibration: float
    refinement: float
    discrimination: float
    uncertainty: float


def decompose(y_true: ArrayLike, y_prob: ArrayLike, *, score: Literal["brier", "log"] = "brier") -> Parts:
    """Parts of a proper score by isotonic recalibration (CORP; Dimitriadis, Gneiting and Jordan 2021)."""
    from sklearn.isotonic import IsotonicRegression

    y, p = paired(y_true, y_prob)
    if score not in ("brier", "log"):
        raise UsageError(f"score={score!r} is not known; write 'brier' or 'log'.")
    measure = brier if score == "brier" else log_loss
    # Pooling keeps [0, 1]; rounding may leave it by 1e-16.
    recalibrated = np.clip(IsotonicRegression(out_of_bounds="clip").fit_transform(p, y), 0, 1)
    whole, refinement = measure(y, p), measure(y, recalibrated)
    uncertainty = measure(y, np.full_like(p, y.mean()))
    return Parts(whole, whole - refinement, refinement, uncertainty - refinement, uncertainty)


def all_measures(y_true: ArrayLike, y_prob: ArrayLike, *, rng: np.random.Generator) -> dict[str, float]:
    """Every measure of this room that needs no linear programme, by name; ``rng`` draws the shifts of interval_ce."""
    from assay.learning.smooth_calibration.postprocess import post_processing_gap, post_processing_gap_logit

    y, p = paired(y_true, y_prob)
    g = logit_of(p)
    parts = decompose(y, p)
    return {
        "smooth_ce": smooth_ce(y, p),
        "smooth_ce_logit": smooth_ce_logit(y, g),
        "smece": smece(y, p),
        "ece_15_width": ece(y, p),
        "ece_15_mass": ece(y, p, strategy="mass"),
        "ece_15_quantile": ece(y, p, strategy="quantile"),
        "ece_15_l2": ece(y, p, norm="l2"),
        "mce_15": ece(y, p, norm="max"),
        "ece_15_debiased": ece_debiased(y, p) if len(y) > 15 else float("nan"),
        "interval_ce": interval_ce(y, p, rng=rng),
        "kernel_ce_laplace": kernel_ce(y, p),
        "mmce": mmce(y, p),
        "skce": skce(y, p) if len(y) > 1 else float("nan"),
        "post_processing_gap": post_processing_gap(y, p),
        "post_processing_gap_logit": post_processing_gap_logit(y, g),
        "brier": parts.score,
        "brier_calibration": parts.calibration,
        "brier_refinement": parts.refinement,
        "log_loss": log_loss(y, p),
        "l1_gradient": float(np.mean(np.abs(y - p))),
        "accuracy": float(np.mean((p >= 0.5) == (y == 1))),
    }


def measure(y_true: ArrayLike, logit: ArrayLike, *, smoothed: bool = True) -> dict[str, float]:
    """The columns of a trace for one set of logits; ``smoothed=False`` leaves out smECE, the slow one."""
    y, g = paired(y_true, logit, logits)
    p = expit(g)
    residual = p - y
    found = {
        "loss": float(log_loss_of_logits(y, g).mean()),
        "accuracy": float(np.mean((g > 0) == (y == 1))),
        "grad_l1": float(np.abs(residual).mean()),
        "grad_l2": float(np.sqrt((residual**2).mean())),
        "smce": smooth_ce(y, p),
        "smce_dual": smooth_ce_logit(y, g),
        "ece15": ece(y, p),
        "mmce": mmce(y, p),
    }
    return found | {"smece": smece(y, p)} if smoothed else found


def _off_diagonal(p: Vector, r: Vector, kernel: Kernel, width: float) -> float:
    if width <= 0:
        raise UsageError(f"width={width:g} is not above 0; give the width of the kernel.")
    if kernel == "laplace":
        order = np.argsort(p)
        return float(laplace_sum(p[order], r[order], width))
    if kernel != "gauss":
        raise UsageError(f"kernel={kernel!r} is not known; write 'laplace' or 'gauss'.")
    total = 0.0
    for start in range(0, len(p), BLOCK):
        rows = slice(start, start + BLOCK)
        total += float(r[rows] @ (np.exp(-0.5 * ((p[rows, None] - p[None, :]) / width) ** 2) @ r))
    return total - float(r @ r)


def _relplot() -> Any:
    try:
        import relplot
    except ImportError:
        raise MissingExtra("smECE", "smooth_calibration") from None
    return relplot
