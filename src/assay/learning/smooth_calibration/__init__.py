"""Smooth calibration error, exact in near-linear time, with its witness, relatives, bounds and training algorithms.

The bounds are the module ``assay.learning.smooth_calibration.bounds``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.learning.smooth_calibration.benchmark import (
        Classifier,
        SmoothCalibration,
    )
    from assay.learning.smooth_calibration.boosting import (
        GradientBoostingCalibrated,
        KernelBoostingClassifier,
    )
    from assay.learning.smooth_calibration.data import (
        gauss,
        gauss_truth,
        read_predictions,
        separable,
        separable_truth,
        split,
        xor,
        xor_truth,
    )
    from assay.learning.smooth_calibration.diagram import (
        reliability_diagram,
        save_diagram,
        witness_map,
    )
    from assay.learning.smooth_calibration.exact import (
        BinarySmoothCalibrationError,
        Witness,
        smooth_ce,
        smooth_ce_gradient,
        smooth_ce_logit,
        smooth_ce_logit_gradient,
        smooth_ce_many,
    )
    from assay.learning.smooth_calibration.inference import (
        CalibrationTest,
        DistanceTest,
        Interval,
        bootstrap_interval,
        calibration_test,
        distance_test,
        margin,
    )
    from assay.learning.smooth_calibration.measures import (
        Bins,
        Parts,
        all_measures,
        bins_of,
        brier,
        decompose,
        ece,
        ece_debiased,
        interval_ce,
        kernel_ce,
        log_loss,
        measure,
        mmce,
        skce,
        smece,
        smece_and_width,
        smece_at,
    )
    from assay.learning.smooth_calibration.network import (
        TwoLayerNetClassifier,
    )
    from assay.learning.smooth_calibration.penalty import (
        smooth_ce_penalty,
    )
    from assay.learning.smooth_calibration.postprocess import (
        Correction,
        post_processing_gap,
        post_processing_gap_logit,
    )
    from assay.learning.smooth_calibration.recalibration import (
        Recalibrator,
        compare_recalibrations,
    )
    from assay.learning.smooth_calibration.reference import (
        lower_distance,
        smooth_ce_lp,
    )
    from assay.learning.smooth_calibration.several import (
        GroupError,
        Projected,
        classwise_smooth_ce,
        group_smooth_ce,
        projected_smooth_ce,
        top_label,
    )
    from assay.learning.smooth_calibration.staged import (
        logits_of,
        staged_logits,
    )
    from assay.learning.smooth_calibration.streaming import (
        SmoothCalibrationStream,
    )
    from assay.learning.smooth_calibration.tracing import (
        StopRule,
        best_stage,
        lightgbm_callback,
        read_traces,
        save_traces,
        stopped,
        trace,
        witness_trace,
        xgboost_callback,
    )

_HOMES = {
    "BinarySmoothCalibrationError": "exact",
    "Bins": "measures",
    "CalibrationTest": "inference",
    "Classifier": "benchmark",
    "Correction": "postprocess",
    "DistanceTest": "inference",
    "GradientBoostingCalibrated": "boosting",
    "GroupError": "several",
    "Interval": "inference",
    "KernelBoostingClassifier": "boosting",
    "Parts": "measures",
    "Projected": "several",
    "Recalibrator": "recalibration",
    "SmoothCalibration": "benchmark",
    "SmoothCalibrationStream": "streaming",
    "StopRule": "tracing",
    "TwoLayerNetClassifier": "network",
    "Witness": "exact",
    "all_measures": "measures",
    "best_stage": "tracing",
    "bins_of": "measures",
    "bootstrap_interval": "inference",
    "brier": "measures",
    "calibration_test": "inference",
    "classwise_smooth_ce": "several",
    "compare_recalibrations": "recalibration",
    "decompose": "measures",
    "distance_test": "inference",
    "ece": "measures",
    "ece_debiased": "measures",
    "gauss": "data",
    "gauss_truth": "data",
    "group_smooth_ce": "several",
    "interval_ce": "measures",
    "kernel_ce": "measures",
    "lightgbm_callback": "tracing",
    "log_loss": "measures",
    "logits_of": "staged",
    "lower_distance": "reference",
    "margin": "inference",
    "measure": "measures",
    "mmce": "measures",
    "post_processing_gap": "postprocess",
    "post_processing_gap_logit": "postprocess",
    "projected_smooth_ce": "several",
    "read_predictions": "data",
    "read_traces": "tracing",
    "reliability_diagram": "diagram",
    "save_diagram": "diagram",
    "save_traces": "tracing",
    "separable": "data",
    "separable_truth": "data",
    "skce": "measures",
    "smece": "measures",
    "smece_and_width": "measures",
    "smece_at": "measures",
    "smooth_ce": "exact",
    "smooth_ce_gradient": "exact",
    "smooth_ce_logit": "exact",
    "smooth_ce_logit_gradient": "exact",
    "smooth_ce_lp": "reference",
    "smooth_ce_many": "exact",
    "smooth_ce_penalty": "penalty",
    "split": "data",
    "staged_logits": "staged",
    "stopped": "tracing",
    "top_label": "several",
    "trace": "tracing",
    "witness_map": "diagram",
    "witness_trace": "tracing",
    "xgboost_callback": "tracing",
    "xor": "data",
    "xor_truth": "data",
}

__all__ = [
    "BinarySmoothCalibrationError",
    "Bins",
    "CalibrationTest",
    "Classifier",
    "Correction",
    "DistanceTest",
    "GradientBoostingCalibrated",
    "GroupError",
    "Interval",
    "KernelBoostingClassifier",
    "Parts",
    "Projected",
    "Recalibrator",
    "SmoothCalibration",
    "SmoothCalibrationStream",
    "StopRule",
    "TwoLayerNetClassifier",
    "Witness",
    "all_measures",
    "best_stage",
    "bins_of",
    "bootstrap_interval",
    "brier",
    "calibration_test",
    "classwise_smooth_ce",
    "compare_recalibrations",
    "decompose",
    "distance_test",
    "ece",
    "ece_debiased",
    "gauss",
    "gauss_truth",
    "group_smooth_ce",
    "interval_ce",
    "kernel_ce",
    "lightgbm_callback",
    "log_loss",
    "logits_of",
    "lower_distance",
    "margin",
    "measure",
    "mmce",
    "post_processing_gap",
    "post_processing_gap_logit",
    "projected_smooth_ce",
    "read_predictions",
    "read_traces",
    "reliability_diagram",
    "save_diagram",
    "save_traces",
    "separable",
    "separable_truth",
    "skce",
    "smece",
    "smece_and_width",
    "smece_at",
    "smooth_ce",
    "smooth_ce_gradient",
    "smooth_ce_logit",
    "smooth_ce_logit_gradient",
    "smooth_ce_lp",
    "smooth_ce_many",
    "smooth_ce_penalty",
    "split",
    "staged_logits",
    "stopped",
    "top_label",
    "trace",
    "witness_map",
    "witness_trace",
    "xgboost_callback",
    "xor",
    "xor_truth",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
