"""Systems that the benchmark brings along, by name; heavy libraries are imported when one is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from assay.core.errors import MissingExtra


def gbt(stages: int = 300, step: float = 0.2, bound: float = 1.0, depth: int = 3) -> Any:
    """Boosted trees of depth 3 with leaves -B and B, as analysed."""
    from assay.learning.smooth_calibration.boosting import GradientBoostingCalibrated

    return GradientBoostingCalibrated(stages, step, bound, depth)


def gbt_deep(stages: int = 300, step: float = 0.2, bound: float = 1.0) -> Any:
    """The same with trees of unlimited depth."""
    from assay.learning.smooth_calibration.boosting import GradientBoostingCalibrated

    return GradientBoostingCalibrated(stages, step, bound, None)


def kernel(
    kernel: Literal["rbf", "laplacian"] = "rbf", stages: int = 300, step: float = 1.0, gamma: float | None = None
) -> Any:
    """Kernel boosting with the Gaussian or the Laplace kernel."""
    from assay.learning.smooth_calibration.boosting import KernelBoostingClassifier

    return KernelBoostingClassifier(stages, step, kernel, gamma)


def laplace(stages: int = 300, step: float = 1.0, gamma: float | None = None) -> Any:
    """Kernel boosting with the Laplace kernel."""
    return kernel("laplacian", stages, step, gamma)


def network(
    units: int = 100, stages: int = 1000, step: float | None = None, beta: float = 0.5, device: str | None = None
) -> Any:
    """Two-layer network under full-batch gradient descent; on a torch device where one is named."""
    from assay.learning.smooth_calibration.network import TwoLayerNetClassifier

    return TwoLayerNetClassifier(units, stages, step, beta, device=device)


def network_small(stages: int = 1000, step: float | None = None, beta: float = 0.5) -> Any:
    """The same with 10 units."""
    return network(10, stages, step, beta)


def logistic() -> Any:
    """Logistic regression of scikit-learn."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000)


def hist_gb(stages: int = 100, step: float = 0.1) -> Any:
    """HistGradientBoosting of scikit-learn."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=stages, learning_rate=step, early_stopping=False)  # pyright: ignore[reportArgumentType]


def xgboost(stages: int = 100, step: float = 0.3, depth: int = 6) -> Any:
    """XGBoost, one thread."""
    try:
        from xgboost import XGBClassifier
    except ImportError:
        raise MissingExtra("method:xgboost", "smooth_calibration") from None

    return XGBClassifier(n_estimators=stages, learning_rate=step, max_depth=depth, n_jobs=1)


def lightgbm(stages: int = 100, step: float = 0.1) -> Any:
    """LightGBM, one thread."""
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        raise MissingExtra("method:lightgbm", "smooth_calibration") from None

    return LGBMClassifier(n_estimators=stages, learning_rate=step, n_jobs=1, verbose=-1)


METHODS: dict[str, Callable[..., Any]] = {
    "gbt": gbt,
    "gbt_deep": gbt_deep,
    "kernel": kernel,
    "laplace": laplace,
    "network": network,
    "network_small": network_small,
    "logistic": logistic,
    "hist_gb": hist_gb,
    "xgboost": xgboost,
    "lightgbm": lightgbm,
}
