"""hardtests beside what the published code gave on the same input."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from assay.code.hardtests.codec import decode_cases, encode_cases
from assay.code.hardtests.data import load_problems, read_problems
from assay.code.hardtests.inputs import InputOptions
from assay.code.hardtests.judging import same_output
from assay.code.hardtests.kit import kit_from_replies, parse_reply
from assay.code.hardtests.outputs import agree
from assay.code.hardtests.problem import Case, Solution, rank_oracles
from assay.code.hardtests.scoring import Confusion
from assay.code.hardtests.suite import TestSuite, drop_missing, published
from assay.code.hardtests.verifying import run_and_judge, verify
from assay.core.metrics import pass_at_k
from assay.nn.policy_gradient import group_advantages

ORACLES = Path(__file__).parents[1] / "oracles" / "hardtests"


def oracle_file(name: str) -> dict:
    return json.loads((ORACLES / f"{name}.json").read_text())


def cases(name: str) -> list:
    return [pytest.param(case, id=str(case.get("name", i))) for i, case in enumerate(oracle_file(name)["cases"])]


@pytest.mark.parametrize("case", cases("default_output_judge"))
def test_default_comparison_is_the_published_one(case):
    assert same_output(case["candidate_output"], case["reference_output"]) is case["expected"]


@pytest.mark.parametrize("case", cases("kit_response_parse"))
def test_replies_are_read_as_published(case):
    assert parse_reply(case["response"]) == case["expected"]


@pytest.mark.parametrize("case", cases("kit_extraction"))
def test_kits_and_quotas_are_the_published_ones(case):
    kit = kit_from_replies("p1", case["iv_response"], case["ig_response"])
    assert kit is not None
    assert kit.to_row() == case["expected_kit"]
    assert kit.multi_category is case["expected_multi_category"]
    quota = (case["expected_quota_per_function"], case["expected_attempts_per_function"])
    assert InputOptions().quota(kit, "RPGen_SPGen") == quota
    assert type(kit).from_row(kit.to_row()) == kit


@pytest.mark.parametrize("case", cases("mapping_after_filter"))
def test_tests_without_output_fall_and_the_mapping_is_renumbered(case):
    kept, mapping = drop_missing(case["test_cases"], case["mapping"])
    assert kept == case["expected_test_cases"]
    assert mapping == case["expected_mapping"]


@pytest.mark.parametrize("case", cases("oracle_program_ranking"))
def test_trusted_programs_are_ranked_as_published(case):
    solutions = [Solution(s["code"], s["language"], s["source"]) for s in case["solutions"]]
    ranked = rank_oracles(
        case["pid"],
        solutions,
        languages=case["languages"],
        lowest_level=case["lowest_reliability_level"],
        most=case["max_num"],
    )
    assert [o.id for o in ranked] == case["expected_ids_in_order"]
    assert [o.level for o in ranked] == case["expected_levels"]


@pytest.mark.parametrize("case", cases("oracle_agreement"))
def test_reference_outputs_are_those_of_the_published_agreement(case):
    found = agree(
        case["outputs_per_program"],
        len(case["outputs_per_program"]),
        lambda a, b: [same_output(x, y) for x, y in zip(a, b)],
        min_num_agreements=case["min_num_agreements"],
        tolerance=case["tolerance"],
    )
    assert found.status == case["expected_status"]
    assert found.outputs == case["expected_outputs"]


@pytest.mark.parametrize("case", cases("published_row_conversion"))
def test_rows_become_the_published_form(case):
    assert published(case["raw"]) == case["expected"]


@pytest.mark.parametrize("case", cases("test_case_codec"))
def test_published_coding_is_read_and_written(case):
    expected = [Case(c["input"], c["output"]) for c in case["expected"]]
    assert decode_cases(case["encoded"]) == expected
    assert decode_cases(encode_cases(expected)) == expected


@pytest.mark.parametrize("case", cases("verifier_metrics"))
def test_quality_of_a_verifier_is_the_closed_form(case):
    found = Confusion(case["TP"], case["FP"], case["FN"], case["TN"])
    for name, value in case["expected"].items():
        got = getattr(found, name)
        assert got is None if value is None else math.isclose(got, value, abs_tol=1e-12)


def test_training_signals_are_the_closed_forms():
    given = oracle_file("training_signals")
    for row in given["pass_at_k"]:
        assert float(pass_at_k([row["n"]], [row["c"]], row["k"])[0]) == pytest.approx(row["expected"], abs=1e-9)
    for row in given["advantages"]:
        # The library divides by the deviation plus 1e-9; the closed form by the deviation.
        assert group_advantages(row["rewards"], "grpo") == pytest.approx(row["expected"], abs=1e-8)


@pytest.mark.parametrize("case", cases("run_and_judge"))
def test_verdicts_are_those_of_the_published_judge(case, box):
    found = run_and_judge(
        case["program"],
        case["language"],
        case["inputs"],
        case["reference_outputs"],
        case["output_judging_function"],
        time_limit=case["time_limit_s"] / 4,  # its endless loop need not run longer
        memory_mb=case["memory_limit_kb"] // 1024,
        early_exit=case["early_exit"],
        box=box,
    )
    assert list(found.verdicts) == case["expected_verdicts"]
    assert list(found.statuses) == case["expected_run_status"]
    assert found.pass_rate == pytest.approx(case["expected_pass_rate"])


def test_examples_of_the_mini_bench_accept_what_weak_tests_accept(box):
    bench = oracle_file("mini_verifier_bench")
    problems = {p.pid: p for p in load_problems("mini")}
    found = Confusion()
    for row in bench["problems"]:
        problem = problems[row["pid"]]
        suite = TestSuite(problem.pid, problem.examples, time_limit=2.0)
        assert [(c.input, c.output) for c in problem.examples] == [(t["input"], t["output"]) for t in row["weak_tests"]]
        labels = {c["candidate_id"]: c for c in row["candidates"]}
        assert {p.id for p in problem.programs} == set(labels)
        for program in problem.programs:
            expected = labels[program.id]
            assert (program.code, program.correct) == (expected["program"], expected["truly_correct"])
            accepted = verify(suite, program.code, program.language, box=box).accepted
            assert accepted is expected["passes_weak_tests"], program.id
            found = found.plus(accepted, program.correct)
    expected = bench["expected_for_weak_tests"]
    assert (found.tp, found.fp, found.fn, found.tn) == (expected["TP"], expected["FP"], expected["FN"], expected["TN"])
    assert found.precision == pytest.approx(expected["precision"])


def test_published_samples_are_read():
    problems = read_problems(ORACLES / "problems_sample.jsonl")
    assert [p.pid for p in problems] == ["even_split", "double_or_triple", "adjacent_pairs"]
    assert problems[0].time_limit == 2.0
    assert problems[0].memory_mb == 256
    assert [p.difficulty for p in problems] == [1, 2, 3]
    for line in (ORACLES / "tests_sample.jsonl").read_text().splitlines():
        suite = TestSuite.from_row(json.loads(line))
        assert [kind for kind, _ in suite.makers()] == ["LLMGen"] * 3
        problem = next(p for p in problems if p.pid == suite.pid)
        assert [c.input for c in suite.cases] == [c.input for c in problem.examples]
        assert all(same_output(a.output, b.output) for a, b in zip(suite.cases, problem.examples))


# The programs are not part of this repository; they lie beside it where the samples of published data are.
QUIXBUGS = Path(__file__).parents[3] / "shared" / "data" / "hardtests" / "quixbugs_sample.json"


@pytest.mark.skipif(not QUIXBUGS.exists(), reason=f"no {QUIXBUGS.name} beside the repository")
@pytest.mark.parametrize("case", cases("quixbugs_sample_verdicts"))
def test_quixbugs_pairs_give_the_same_verdicts_over_standard_input(case, box):
    problem = next(p for p in load_problems(f"quixbugs:{QUIXBUGS}") if p.title == case["name"])
    row = next(r for r in json.loads(QUIXBUGS.read_text()) if r["name"] == case["name"])
    tests = tuple(Case(json.dumps(a) + "\n", json.dumps(b) + "\n") for a, b in row["tests"])
    suite = TestSuite(problem.pid, tests, time_limit=0.5 if case["name"].startswith("longest") else 0.1)
    for program, expected in zip(problem.programs, (case["correct_verdicts"], case["buggy_verdicts"])):
        found = verify(suite, program.code, program.language, box=box)
        assert [v == 1 for v in found.verdicts] == [v == "pass" for v in expected]
