"""The paper's claims measured anew, with pass or fail for each: ``assay make survhte reproduce``."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.claims import Claim, save_claims
from assay.core.errors import AssayError
from assay.core.map import resumable_map
from assay.core.stats.ranks import family_ranks, ranks
from assay.learning.survhte import synthetic
from assay.learning.survhte.base import surv
from assay.learning.survhte.data import synthetic_data
from assay.learning.survhte.registry import family, get_method

CONFIGS = ("RCT-50", "OBS-CPS", "OBS-NoPos")
SCENARIOS = ("A", "C", "D", "E")
DML = "double_ml+margin"
IMPUTING = (
    *(f"{learner}+{base}+margin" for learner in ("t_learner", "s_learner", "x_learner", "dr_learner")
      for base in ("lasso", "rf")),
    DML, "causal_forest+margin",
)  # fmt: skip
S_SURVIVAL = ("s_learner_survival+rsf", "s_learner_survival+deepsurv")
T_SURVIVAL = ("t_learner_survival+rsf", "t_learner_survival+deepsurv")
MATCHING = ("matching_learner_survival+rsf", "matching_learner_survival+deepsurv")
FOREST = "causal_survival_forest"
METHODS = (*IMPUTING, *S_SURVIVAL, *T_SURVIVAL, *MATCHING, FOREST)
_PUBLISHED = Path(__file__).with_name("references.json")


@dataclass(frozen=True, slots=True)
class Cell:
    """One split of one data set, and the methods to try on it."""

    config: str
    scenario: str
    repeat: int
    train: int
    test: int
    methods: tuple[str, ...]

    @property
    def key(self) -> str:
        """Name of the cell."""
        return f"{self.config}/{self.scenario}/{self.repeat}/{self.train}/{self.test}"


def reproduce(out: Path, *, repeats: int = 3, train: int = 1500, test: int = 1500) -> None:
    """Measure the claims; writes ``report.md``, ``claims.json`` and ``cells.json``. A broken-off run goes on.

    Parameters
    ----------
    repeats
        Splits a data set.
    train, test
        Rows.
    """
    begun = time.monotonic()
    cells = [Cell(c, s, r, train, test, METHODS) for c in CONFIGS for s in SCENARIOS for r in range(repeats)]
    rare = [
        Cell("RCT-5", s, r, train, test, (*S_SURVIVAL, *T_SURVIVAL))
        for s in synthetic.SCENARIOS
        for r in range(repeats)
    ]
    claims = [suite_is_exact()]
    measured = list(resumable_map(try_cell, [*cells, *rare], key=lambda cell: cell.key, out=out))
    main, few = measured[: len(cells)], measured[len(cells) :]
    claims += [
        *(double_ml_wins_low(main, best) for best in _VIEWS),
        *(survival_learners_win_high(main, best) for best in _VIEWS),
        two_models_fail_rare_treatment(few),
        *(average_is_right(main, within) for within in (False, True)),
        nobody_beats_noise(main),
    ]
    seconds = time.monotonic() - begun
    (out / "cells.json").write_text(json.dumps(measured, indent=1), encoding="utf-8")
    save_claims(out, claims)
    (out / "report.md").write_text(report(claims, main, seconds), encoding="utf-8")


def _method(name: str) -> Any:
    if name == FOREST:
        return get_method(name, trees=200, grid=100)
    if name.endswith("+deepsurv"):
        return get_method(name, tune=False, epochs=100)
    return get_method(name, tune=False, trees=50) if name.endswith("+rsf") else get_method(name)


def try_cell(cell: Cell) -> dict[str, Any]:
    """All methods of a cell: squared errors against draws and against the exact effect, average effect; or why not."""
    data = synthetic_data(cell.config, cell.scenario, synthetic.SIZE, synthetic.SEED)
    rows, _, held = data.split(cell.repeat, (cell.train, 1, cell.test))
    estimand = data.estimand("rmst")
    draws, noise = data.effects(estimand), data.noise
    assert draws is not None
    assert noise is not None
    assert data.exact is not None
    exact = data.exact(estimand)[held]
    moments = synthetic.effect_moments(cell.config, cell.scenario, data.X[held])
    seen = data.effects(data.estimand("followup", rows))
    assert seen is not None
    found: dict[str, Any] = {}
    for name in cell.methods:
        estimator = _method(name).set_params(random_state=2025 + cell.repeat)
        begun = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                estimator.fit(data.X[rows], data.W[rows], surv(data.event[rows], data.time[rows]))
                matched = {"W": data.W[held]} if name.startswith("matching") else {}
                effects = estimator.effect(data.X[held], **matched)
        except (AssayError, ValueError, ArithmeticError) as error:
            found[name] = {"failure": f"{type(error).__name__}: {error}"}
            continue
        squared = (effects - draws[held]) ** 2
        excess = squared - noise[held]
        found[name] = {
            "mse": float(squared.mean()),
            "mse_exact": float(np.mean((effects - exact) ** 2)),
            "ate_bias": float(effects.mean() - draws.mean()),
            "ate_bias_seen": float(effects.mean() - seen.mean()),
            "over_floor_in_sample_se": float(excess.mean() / (excess.std() / math.sqrt(len(held)))),
            "over_floor_in_se": float(excess.mean() / excess_error(exact - effects, moments)),
            "seconds": time.perf_counter() - begun,
        }
    return {"config": cell.config, "scenario": cell.scenario, "repeat": cell.repeat, "methods": found}


def excess_error(bias: np.ndarray, moments: np.ndarray) -> float:
    """Exact standard error of the mean of (T(1) - T(0) - estimate)^2 given covariates and estimates.

    Parameters
    ----------
    bias
        Exact conditional effect less the estimate, shape (m,).
    moments
        `synthetic.effect_moments` of the rows, shape (4, m).
    """
    _, second, third, fourth = moments
    variance = fourth - second**2 + 4 * bias * third + 4 * bias**2 * second
    return float(np.sqrt(variance.sum()) / len(bias))


# -- claims -----------------------------------------------------------------------------------------------------------


def suite_is_exact() -> Claim:
    """Average effects, treated and censored shares of all forty data sets against what was published."""
    published = json.loads(_PUBLISHED.read_text(encoding="utf-8"))["suite"]
    worst_effect = worst_rate = 0.0
    effects = 0
    for config in synthetic.CONFIGS:
        for place, scenario in enumerate(synthetic.SCENARIOS):
            data = synthetic_data(config, scenario, synthetic.SIZE, synthetic.SEED)
            worst_rate = max(worst_rate, abs(float(1 - data.event.mean()) - published["censoring_rate"][config][place]))
            effect = data.effects(data.estimand("rmst"))
            known = published["ate"].get(config.removesuffix("-IC"), published["ate"]["RCT-50"])
            assert effect is not None
            worst_effect = max(worst_effect, abs(float(effect.mean()) - known[place]))
            effects += 1
    return Claim(
        "(1) average effects (1e-4) and censoring rates (0.1 points) of all 40 sets, n = 50,000",
        f"largest differences {worst_effect:.1e} and {100 * worst_rate:.1e} points over {effects} sets",
        worst_effect <= 1e-4 and worst_rate <= 1e-3,
    )


def _mse(cell: Mapping[str, Any], name: str) -> float:
    return cell["methods"][name].get("mse", math.nan)


def _ranks(cells: Sequence[Mapping[str, Any]], names: Sequence[str]) -> np.ndarray:
    """Ranks by squared error against draws; shape (cells, methods); a failure ranks worst."""
    return ranks([[_mse(cell, name) for name in names] for cell in cells], higher_is_better=False)


def sign_test(differences: Sequence[float]) -> tuple[int, int, float]:
    """Differences below zero, differences that are not zero, and the one-sided p of that many or more."""
    from scipy.stats import binomtest

    below, n = int(sum(d < 0 for d in differences)), int(sum(d != 0 for d in differences))
    return below, n, float(binomtest(below, n, 0.5, alternative="greater").pvalue) if n else 1.0


_VIEWS = {True: "families ranked by their best member in a cell", False: "mean rank of members"}


def _family_ranks(cells: Sequence[Mapping[str, Any]], best: bool) -> dict[str, np.ndarray]:
    """Rank of each family in each cell: by its ``best`` member among families, as published, or the mean of its
    members' among methods."""
    of = [family(name) for name in METHODS]
    if best:
        names, table = family_ranks(
            [[_mse(cell, name) for name in METHODS] for cell in cells], of, higher_is_better=False
        )
        return dict(zip(names, table.T, strict=True))
    table = _ranks(cells, METHODS)
    return {name: table[:, [f == name for f in of]].mean(axis=1) for name in set(of)}


def double_ml_wins_low(cells: Sequence[Mapping[str, Any]], best: bool) -> Claim:
    """Low censoring: completing outcomes costs little."""
    ranked = _family_ranks([cell for cell in cells if cell["scenario"] in "AC"], best)
    dml, s, t = (ranked[name] for name in ("Double-ML", "S-Learner-Survival", "T-Learner-Survival"))
    below, n, p = sign_test(list(dml - (s + t) / 2))
    apart = ", ".join(
        "{} {:.2f}: {} of {}, p = {:.2g}".format(name, rival.mean(), *sign_test(list(dml - rival)))
        for name, rival in (("S", s), ("T", t))
    )
    return Claim(
        "(2a) low censoring (A, C): Double-ML+Margin has a lower mean rank than S- and T-survival learners, sign test "
        f"over cells p < .1; {_VIEWS[best]}",
        f"{dml.mean():.2f} against {np.mean([s, t]):.2f}; lower in {below} of {n} cells, p = {p:.2g} ({apart})",
        bool(dml.mean() < np.mean([s, t]) and p < 0.1),
    )


def survival_learners_win_high(cells: Sequence[Mapping[str, Any]], best: bool) -> Claim:
    """High censoring: survival models do not need to complete anything."""
    high = [cell for cell in cells if cell["scenario"] in "DE"]
    of = np.array([cell["scenario"] for cell in high])
    ranked = _family_ranks(high, best)
    dml = ranked["Double-ML"]
    words, holds = [], False
    for name in ("S-Learner-Survival", "Matching-Survival"):
        rival = ranked[name]
        below, n, p = sign_test(list(rival - dml))
        apart = ", ".join(
            "{}: {:.2f} against {:.2f}, {} of {}".format(
                s, rival[of == s].mean(), dml[of == s].mean(), *sign_test(list((rival - dml)[of == s]))[:2]
            )
            for s in "DE"
        )
        words.append(
            f"{name} {rival.mean():.2f} against {dml.mean():.2f}, lower in {below} of {n}, p = {p:.2g} ({apart})"
        )
        holds |= bool(rival.mean() < dml.mean() and p < 0.1)
    return Claim(
        "(2b) high censoring (D, E): S- or Matching-survival has a lower mean rank than Double-ML+Margin, sign test "
        f"p < .1; {_VIEWS[best]}",
        "; ".join(words),
        holds,
    )


def two_models_fail_rare_treatment(cells: Sequence[Mapping[str, Any]]) -> Claim:
    """Five per cent treated: a model of the treated arm alone has too few rows."""
    table = _ranks(cells, (*S_SURVIVAL, *T_SURVIVAL))
    differences = table[:, :2].mean(axis=1) - table[:, 2:].mean(axis=1)
    below, n, p = sign_test(list(differences))
    failed = sum("failure" in cell["methods"][name] for cell in cells for name in T_SURVIVAL)
    return Claim(
        "(3) RCT-5, A to E: T-survival ranks worse than S-survival, sign test p < .05",
        f"mean rank {table[:, 2:].mean():.2f} against {table[:, :2].mean():.2f}; worse in {below} of {n} cells, "
        f"p = {p:.2g}; T-survival failed {failed} times",
        p < 0.05,
    )


def average_is_right(cells: Sequence[Mapping[str, Any]], within_followup: bool) -> Claim:
    """A randomised trial: against the average of T(1) - T(0), as published, or of the part before the longest
    follow-up of the training rows."""
    chosen = [cell for cell in cells if cell["config"] == "RCT-50" and cell["scenario"] == "A"]
    key = "ate_bias_seen" if within_followup else "ate_bias"
    bias = {name: float(np.mean([cell["methods"][name].get(key, math.nan) for cell in chosen])) for name in METHODS}
    beyond = [name for name, value in bias.items() if not abs(value) <= 0.1]
    worst = max(bias, key=lambda name: abs(bias[name]))
    data = synthetic_data("RCT-50", "A", synthetic.SIZE, synthetic.SEED)
    estimand = data.estimand("followup" if within_followup else "rmst")
    true = data.effects(estimand)
    assert true is not None
    return Claim(
        "(4) RCT-50 A: mean bias of the average effect within .1 for every method, "
        + (
            f"times counted up to the longest follow-up ({estimand.horizon:.2f})"
            if within_followup
            else "times unrestricted"
        ),
        f"largest {bias[worst]:+.3f} ({worst}), true average {true.mean():.3f}; {len(beyond)} of {len(METHODS)} "
        "beyond .1",
        not beyond,
    )


def nobody_beats_noise(cells: Sequence[Mapping[str, Any]]) -> Claim:
    """The variance of individual effects given covariates cannot be predicted away."""
    over, by_sample = (
        [
            (entry[key], f"{name} on {cell['config']}/{cell['scenario']}/{cell['repeat']}")
            for cell in cells
            for name, entry in cell["methods"].items()
            if "failure" not in entry
        ]
        for key in ("over_floor_in_se", "over_floor_in_sample_se")
    )
    smallest, where = min(over)
    low = sorted({place.partition(" on ")[2] for value, place in by_sample if value < -3})
    return Claim(
        "(5) no squared error against draws is below Var(T(1) - T(0) given X) by more than 3 standard errors",
        f"smallest distance {smallest:+.2f} exact standard errors ({where}), over {len(over)} fits; by the "
        f"sample's own standard error {min(by_sample)[0]:+.2f} ({min(by_sample)[1]})"
        + (f", below -3 on {', '.join(low)}" if low else ""),
        smallest >= -3,
    )


def report(claims: Sequence[Claim], cells: Sequence[Mapping[str, Any]], seconds: float) -> str:
    """Tables of claims and of mean ranks."""
    lines = ["# SurvHTE-Bench: claims measured anew", "", "| claim | found | |", "| --- | --- | --- |"]
    lines += [f"| {c.claim} | {c.found} | {'pass' if c.holds else 'FAIL'} |" for c in claims]
    table = _ranks(cells, METHODS)
    scenarios = np.array([cell["scenario"] for cell in cells])
    lines += ["", f"Mean ranks over {len(cells)} cells, by squared error against draws, failures worst.", ""]
    lines += [
        f"| method | all | {' | '.join(SCENARIOS)} | share of cells failed | seconds a fit |",
        "| --- | --- |" + " --- |" * (len(SCENARIOS) + 2),
    ]
    for at in np.argsort(table.mean(axis=0), kind="stable"):
        name = METHODS[at]
        by = " | ".join(f"{table[scenarios == s, at].mean():.2f}" for s in SCENARIOS)
        entries = [cell["methods"][name] for cell in cells]
        failed = np.mean(["failure" in entry for entry in entries])
        taken = [entry["seconds"] for entry in entries if "seconds" in entry]
        spent = f"{np.mean(taken):.2f}" if taken else "-"
        lines.append(f"| {name} | {table[:, at].mean():.2f} | {by} | {failed:.2f} | {spent} |")
    return "\n".join([*lines, "", f"Took {seconds:.0f} s.", ""])
