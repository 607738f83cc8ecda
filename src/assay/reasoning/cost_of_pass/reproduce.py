"""The claims of the paper's kind, measured anew, with pass or fail for each: ``assay make cost_of_pass.reproduce``."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from assay.core.claims import Claim, save_claims
from assay.core.errors import AssayError
from assay.reasoning.cost_of_pass import reference, simulate
from assay.reasoning.cost_of_pass.decay import fit_half_life
from assay.reasoning.cost_of_pass.estimator import CostOfPass
from assay.reasoning.cost_of_pass.values import cost_of_pass, technique_gain

EXPERT = 20.0
EASY, HARD = -1.5, 3.0


def reproduce(
    out: Path, *, seeds: int = 20, model: str = "local:smollm2", sums: int = 10, attempts: int = 2, seed: int = 0
) -> None:
    """Measure the claims; writes ``report.md`` and ``claims.json``.

    Parameters
    ----------
    seeds
        Simulated worlds a claim, at least 20 for the published thresholds.
    model
        A real model set against the rule that adds; ``none`` leaves that claim untested and says so.
    sums, attempts
        Additions it is asked, and how often each.
    """
    start = time.monotonic()
    children = np.random.SeedSequence(seed).spawn(5)
    claims = [
        equals_plain_loops(seeds, np.random.default_rng(children[0])),
        *families_win_where_expected(seeds, np.random.default_rng(children[1])),
        voting_never_gains(np.random.default_rng(children[2])),
        refinement_gains_where_it_pays(),
        half_life_is_recovered(seeds, np.random.default_rng(children[3])),
        rule_beats_model(model, sums, attempts, out, seed),
        few_attempts_mislead(seeds, np.random.default_rng(children[4])),
    ]
    seconds = time.monotonic() - start
    save_claims(out, claims)
    (out / "report.md").write_text(markdown(claims, seconds), encoding="utf-8")


def markdown(claims: list[Claim], seconds: float) -> str:
    """Table of claims."""
    words = {True: "pass", False: "FAIL", None: "not tested"}
    lines = ["| claim | found | |", "| --- | --- | --- |"]
    lines += [f"| {c.claim} | {c.found} | {words[c.holds]} |" for c in claims]
    return "\n".join(["# Cost-of-Pass: claims measured anew", "", *lines, "", f"Took {seconds:.0f} s.", ""])


def equals_plain_loops(seeds: int, rng: np.random.Generator) -> Claim:
    """Matrix forms against a plain reading of the definitions."""
    worst = 0.0
    for _ in range(seeds):
        frame = simulate.draw(simulate.truth(rng.normal(1.5, 2.0, 16)), 8, rng)
        cop = CostOfPass(frame, expert_cost=EXPERT)
        plain = reference.PlainLoops(frame.to_dicts(), EXPERT)
        pairs = [(cop.frontier().value, plain.frontier())]
        pairs += [(cop.frontier([name]).value, plain.frontier([name])) for name in cop.cells.strategies]
        for groups in ("family", "model"):
            found = dict(cop.essentialness(groups).select("group", "essentialness").iter_rows())
            pairs += [(found[name], value) for name, value in plain.essentialness(groups).items()]
        pairs += list(zip(cop.progress().get_column("frontier"), plain.progress(), strict=True))
        worst = max(worst, *(abs(a - b) for a, b in pairs))
    return Claim(
        f"(a) frontier, essentialness and progress equal a plain-loop reading of the definitions to 1e-12 ({seeds} "
        "worlds)",
        f"largest difference {worst:.1e}",
        worst <= 1e-12,
    )


def families_win_where_expected(seeds: int, rng: np.random.Generator) -> list[Claim]:
    """Lightweight models win easy problems, reasoning models hard ones, and each is missed most there."""
    claims = []
    for label, difficulty, family in (("easy", EASY, "lightweight"), ("hard", HARD, "reasoning")):
        wins = most = 0
        for _ in range(seeds):
            cop = CostOfPass(simulate.draw(simulate.truth(rng.normal(difficulty, 0.7, 64)), 8, rng), EXPERT)
            family_of = dict(cop.strategies.select("strategy", "family").iter_rows())
            won = [family_of.get(name, "expert") for name in cop.frontier().winners]
            wins += max(set(won), key=won.count) == family
            most += cop.essentialness("family").get_column("group")[0] == family
        need = round(0.95 * seeds)
        p = _sign_test(most, seeds)
        claims += [
            Claim(
                f"(b) {family} models are the cheapest on most {label} problems in at least {need} of {seeds} worlds",
                f"{wins} of {seeds}",
                wins >= need,
            ),
            Claim(
                f"(b) leaving out the {family} models raises the frontier of {label} problems most (sign test, p < "
                "0.01)",
                f"{most} of {seeds} worlds, p = {p:.1e}",
                p < 0.01,
            ),
        ]
    return claims


def _sign_test(successes: int, n: int) -> float:
    from scipy.stats import binomtest

    # Against "some other family is missed more": one half.
    return float(binomtest(successes, n, 0.5, alternative="greater").pvalue)


def voting_never_gains(rng: np.random.Generator) -> Claim:
    """Majority votes of independent attempts: v_k >= v_1 because R_k <= k R."""
    worst, gains = -np.inf, []
    for k in (3, 4):
        for rate in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98):
            share = simulate.vote_successes(rate, k, 4000, 3, rng)
            worst = max(worst, share / (k * rate) - 3 * np.sqrt(share * (1 - share) / 4000) / (k * rate))
            plain = cost_of_pass(np.array([[1.0]]), np.array([[rate]]))
            voted = cost_of_pass(np.array([[float(k)]]), np.array([[share]]))
            gains.append(technique_gain(plain, voted, 1e9))
    return Claim(
        "(b) majority votes of 3 and 4 independent attempts never move the frontier: R_k <= k R",
        f"gain 0 at {sum(g == 0 for g in gains)} of {len(gains)} points; largest R_k / (k R) is {worst:.2f}, 3 "
        "standard "
        "errors off",
        worst <= 1 and all(g == 0 for g in gains),
    )


def refinement_gains_where_it_pays() -> Claim:
    """Self-refinement gains exactly where it multiplies R by more than it multiplies C."""
    right = total = 0
    for rate in (0.05, 0.2, 0.4, 0.8):
        for lift in (0.8, 1.0, 1.5, 2.0, 2.5, 4.0):
            for ratio in (1.5, 2.2, 3.0):
                refined = min(1.0, rate * lift)
                plain = cost_of_pass(np.array([0.01]), np.array([rate]))
                second = cost_of_pass(np.array([0.01 * ratio]), np.array([refined]))
                gained = technique_gain(plain, second, EXPERT) > 1e-12
                right += gained == (refined / rate > ratio * (1 + 1e-12))
                total += 1
    return Claim(
        "(b) self-refinement gains exactly where it multiplies the success rate by more than the cost",
        f"{right} of {total} combinations of rate, lift and cost ratio",
        right == total,
    )


def half_life_is_recovered(seeds: int, rng: np.random.Generator) -> Claim:
    """Exponential decay with 2 % noise, fifteen releases over two years."""
    errors, covered = [], 0
    for _ in range(seeds):
        half = float(rng.uniform(2.5, 7.0))
        months = np.concatenate(([0.0], np.sort(rng.uniform(0, 24, 14))))
        clean = np.exp(-np.log(2) / half * months) + 0.1
        fit = fit_half_life(months, clean * (1 + 0.02 * rng.standard_normal(len(months))))
        errors.append(abs(fit.half_life / half - 1))
        covered += fit.low <= half <= fit.high
    within = sum(error <= 0.1 for error in errors)
    return Claim(
        "(c) the half-life is recovered within 10 % from curves with 2 % noise (median error; 15 releases in two "
        "years)",
        f"median error {100 * float(np.median(errors)):.1f} %, within 10 % in {within} of {seeds}; the 95 % interval "
        "holds "
        f"the truth in {covered}",
        float(np.median(errors)) <= 0.1,
    )


def few_attempts_mislead(seeds: int, rng: np.random.Generator) -> Claim:
    """Estimate over truth with 8 and with 64 attempts: problems that few attempts never solve go to the expert."""
    ratios: dict[int, list[float]] = {8: [], 64: []}
    held = {8: 0, 64: 0}
    for _ in range(seeds):
        world = simulate.truth(rng.normal(3.0, 2.0, 64))
        true = world.frontier(EXPERT)
        for runs, found in ratios.items():
            cop = CostOfPass(simulate.draw(world, runs, rng), EXPERT)
            found.append(cop.frontier().value / true)
            low, high = cop.bootstrap(200, "runs", rng, groups={}).frame().select("low", "high").row(0)
            held[runs] += low <= true <= high
    few, many = (float(np.mean(ratios[runs])) for runs in (8, 64))
    return Claim(
        "(e) beyond the paper: with 8 attempts the frontier is estimated too high, with 64 less so (mixed problems)",
        f"estimate / truth {few:.2f} with 8 attempts, {many:.2f} with 64; the 95 % percentile bootstrap of runs holds "
        f"the truth in {held[8]} and {held[64]} of {seeds} worlds",
        few > many > 0.98 and few > 1.02,
    )


def rule_beats_model(model: str, sums: int, attempts: int, out: Path, seed: int) -> Claim:
    """A real small model and a rule on the same additions, with the model at a price a token."""
    claim = f"(d) on two-digit addition a rule costs less a correct answer than {model}"
    if model == "none":
        return Claim(claim, "no model was asked for", None)
    import assay

    options = {"n": sums, "max_tokens": 48, "reading": "robust"}
    priced = model + ("&" if "?" in model else "?") + "price_in=0.01&price_out=0.04"
    try:
        runs = [
            assay.run("cost_of_pass", name, options=options, attempts=attempts, seed=seed, into=out / "runs" / label)
            for name, label in (("method:rule?price_in=0.01&price_out=0.04", "rule"), (priced, "model"))
        ]
        from assay.core.results import Runs

        cop = CostOfPass(Runs(runs), expert_cost=0.02, errors="exclude", missing="drop")
    except AssayError as error:
        return Claim(claim, f"could not be run here: {error}", None)
    rows = {row["model"]: row for row in cop.summary().iter_rows(named=True)}
    rule, other = (next(row for name, row in rows.items() if ("rule" in name) is wanted) for wanted in (True, False))
    words = "; ".join(
        f"{row['model'].partition('?')[0]}: accuracy {row['accuracy']:.2f}, {row['frontier']:.2g} USD"
        for row in (rule, other)
    )
    return Claim(claim, f"{words} ({sums} sums, {attempts} attempts)", rule["frontier"] < other["frontier"])
