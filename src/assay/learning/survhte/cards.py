"""Data cards: what each data set holds, where it is from, what is known of its truth."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.errors import DataError
from assay.learning.survhte import synthetic
from assay.learning.survhte.base import OVERLAP
from assay.learning.survhte.benchmark import SurvHTE
from assay.learning.survhte.data import ESTIMANDS

if TYPE_CHECKING:
    from assay.learning.survhte.sources import Source

_TRUTH = {
    "exact": "both potential times of every row, and the exact conditional effect",
    "draws": "both potential times of every row",
    "unknown": "unknown",
}


def card(source: Source) -> Mapping[str, Any]:
    """Facts of a data set, JSON-able.

    Counts, treated and censored shares, quantiles of times, covariates, overlap where the propensity is known, the
    average effect and the sd of conditional effects for each estimand, licence and origin.
    """
    whole = source.load()
    data = whole.version(0)
    train, val, test = (len(rows) for rows in data.split(0))
    facts: dict[str, Any] = {
        "name": source.name,
        "kind": source.provenance.kind,
        "source": source.provenance.source,
        "licence": source.provenance.licence or "see its source",
        "rows": len(data),
        "split": [train, val, test],
        "treated": float(data.W.mean()),
        "censored": float(1 - data.event.mean()),
        "time_quantiles": {str(q): float(np.quantile(data.time, q)) for q in (0.0, 0.25, 0.5, 0.75, 1.0)},
        "distinct_times": len(np.unique(data.time)),
        "truth": _TRUTH[source.truth],
        "covariates": [
            {"name": name, "mean": float(column.mean()), "sd": float(column.std()), "low": float(column.min()),
             "high": float(column.max()), "distinct": len(np.unique(column))}
            for name, column in zip(data.features, data.X.T, strict=True)
        ],
    }  # fmt: skip
    if whole.versions is not None:
        facts["versions"] = len(whole.versions)
    if data.propensity is not None:
        low, high = OVERLAP
        facts["without_overlap"] = float(np.mean((data.propensity < low) | (data.propensity > high)))
    facts["effects"] = {}
    for name in ESTIMANDS if data.T0 is not None else ():
        try:
            estimand = data.estimand(name)
        except DataError:
            continue  # a quantile of event times at 0, as counts may have it
        draws = data.effects(estimand)
        assert draws is not None
        about: dict[str, float | None] = {"horizon": estimand.horizon, "average": float(draws.mean())}
        if data.exact is not None:
            about["sd_of_conditional"] = float(data.exact(estimand).std())
        facts["effects"][name] = about
    return facts


def cards(
    out: Path, *, data: str | None = None, sets: str = "*", n: int = synthetic.SIZE, seed: int = synthetic.SEED
) -> None:
    """Write a card of every chosen data set: ``cards.json`` and ``cards.md``.

    Parameters
    ----------
    data, sets, n, seed
        As the benchmark has them.
    """
    chosen = SurvHTE(data, sets=sets, n=n, seed=seed).sources
    found = [card(source) for source in chosen]
    (out / "cards.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (out / "cards.md").write_text("\n".join(_text(one) for one in found), encoding="utf-8")


def _text(facts: Mapping[str, Any]) -> str:
    quantiles = ", ".join(f"{value:.3g}" for value in facts["time_quantiles"].values())
    lines = [
        f"# {facts['name']}", "",
        f"{facts['source']} ({facts['kind']}; licence: {facts['licence']}).", "",
        f"- {facts['rows']} rows ({', '.join(map(str, facts['split']))} to train, validate, test on), "
        f"{len(facts['covariates'])} covariates, {facts['treated']:.1%} treated, {facts['censored']:.1%} censored",
        f"- times: {quantiles} (smallest, quartiles, largest), {facts['distinct_times']} distinct",
        f"- truth: {facts['truth']}",
    ]  # fmt: skip
    if "without_overlap" in facts:
        lines.append(f"- propensity outside [.01, .99]: {facts['without_overlap']:.1%} of rows")
    if "versions" in facts:
        lines.append(f"- censoring drawn {facts['versions']} times; the numbers here are of the first")
    if facts["effects"]:
        lines += [
            "",
            "| estimand | horizon | average effect | sd of conditional effects |",
            "| --- | --- | --- | --- |",
        ]
        for name, about in facts["effects"].items():
            horizon = "-" if about["horizon"] is None else f"{about['horizon']:.4g}"
            spread = f"{about['sd_of_conditional']:.4g}" if "sd_of_conditional" in about else "-"
            lines.append(f"| {name} | {horizon} | {about['average']:.4g} | {spread} |")
    lines += ["", "| covariate | mean | sd | from | to | distinct |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [
        f"| {c['name']} | {c['mean']:.4g} | {c['sd']:.4g} | {c['low']:.4g} | {c['high']:.4g} | {c['distinct']} |"
        for c in facts["covariates"]
    ]
    return "\n".join([*lines, ""])
