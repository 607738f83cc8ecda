"""Makers: all measures and the diagram of a file of predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from assay.learning.smooth_calibration.data import read_column, read_predictions
from assay.learning.smooth_calibration.diagram import reliability_diagram, save_diagram
from assay.learning.smooth_calibration.exact import smooth_ce
from assay.learning.smooth_calibration.inference import bootstrap_interval, calibration_test
from assay.learning.smooth_calibration.measures import all_measures
from assay.learning.smooth_calibration.recalibration import compare_recalibrations
from assay.learning.smooth_calibration.several import GroupError, group_smooth_ce

FOLDS = 5


def measure(out: Path, *, file: Path, groups: str | None = None, resamples: int = 500, seed: int = 0) -> None:
    """Measure a table of predictions (columns ``prob`` or ``logit``, and ``label``).

    Writes ``measures.json``, ``report.md`` (with every recalibration, cross-fitted), ``witness.csv`` and
    ``reliability.svg``.

    Parameters
    ----------
    file
        CSV, Parquet or JSON lines, one row a sample.
    groups
        A column by whose values the error is shown too.
    resamples
        Of the bootstrap interval and of the test of perfect calibration.
    """
    y, p = read_predictions(file)
    rng = np.random.default_rng(seed)
    found = all_measures(y, p, rng=rng)
    interval = bootstrap_interval(y, p, resamples=resamples, rng=rng)
    test = calibration_test(y, p, draws=resamples, rng=rng)
    parts = [] if groups is None else group_smooth_ce(y, p, read_column(file, groups))
    changed = compare_recalibrations(p, y, folds=min(FOLDS, len(y)), rng=rng) if len(y) > 1 else {}
    _, witness = smooth_ce(y, p, return_witness=True)
    whole = {
        "n": len(y),
        "measures": found,
        "interval": {"low": interval.low, "high": interval.high, "bias": interval.bias},
        "test": {"p": test.p, "expected_if_calibrated": test.null_mean, "critical": test.critical},
        "groups": [asdict(part) for part in parts],
        "recalibrated": changed,
        "certificate": witness.gap,
    }
    (out / "measures.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")
    columns = (witness.points.tolist(), witness.values.tolist(), witness.residuals.tolist())
    lines = ["at,witness,residual", *(f"{u!r},{h!r},{r!r}" for u, h, r in zip(*columns, strict=True))]
    (out / "witness.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = [
        f"# Calibration of {file.name}", "",
        f"n = {len(y)}, smooth calibration error {interval.value:.4f}, 95 % interval {interval.low:.4f} to "
        f"{interval.high:.4f} (basic bootstrap, {resamples} resamples).",
        f"A calibrated predictor with these probabilities would show {test.null_mean:.4f} on average; p = {test.p:.3g} "
        f"({resamples} draws).", "",
        "| measure | value |", "| --- | --- |", *(f"| {name} | {value:.4f} |" for name, value in found.items()), "",
        *_groups(groups, parts), *_recalibrations(changed),
        "![reliability](reliability.svg)", "",
    ]  # fmt: skip
    (out / "report.md").write_text("\n".join(report), encoding="utf-8")
    save_diagram(reliability_diagram(y, p, title=file.name), out / "reliability.svg")


def _groups(name: str | None, parts: Sequence[GroupError]) -> list[str]:
    if name is None:
        return []
    lines = [f"| {name} | n | smooth_ce | share x smooth_ce |", "| --- | --- | --- | --- |"]
    lines += [f"| {part.group} | {part.n} | {part.value:.4f} | {part.part:.4f} |" for part in parts]
    return [*lines, "", "The largest of the last column is the smooth multicalibration error over these groups.", ""]


def _recalibrations(changed: Mapping[str, Mapping[str, float]]) -> list[str]:
    if not changed:
        return []
    lines = ["| recalibration, cross-fitted | smooth_ce | brier | log_loss |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {name} | {found['smooth_ce']:.4f} | {found['brier']:.4f} | {found['log_loss']:.4f} |"
        for name, found in changed.items()
    ]
    return [*lines, ""]
