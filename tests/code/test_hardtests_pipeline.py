"""hardtests: what runs in the sandbox, from a kit to a verdict, a reward, a smaller counterexample."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from assay.code.hardtests.data import load_problems
from assay.code.hardtests.generator import HardTestGenerator
from assay.code.hardtests.inputs import InputOptions, generate_inputs
from assay.code.hardtests.judging import Judge
from assay.code.hardtests.kit import Generator, Kit
from assay.code.hardtests.mutation import mutation_score
from assay.code.hardtests.outputs import OutputOptions, generate_outputs
from assay.code.hardtests.probing import probe, separates
from assay.code.hardtests.problem import Case, Problem, Solution, rank_oracles
from assay.code.hardtests.rewards import CodeReward, rejection_sample
from assay.code.hardtests.shrinking import counterexample
from assay.code.hardtests.suite import TestSuite
from assay.code.hardtests.verifying import run_and_judge, verify
from assay.core.errors import DataError, UsageError

DOUBLE = "print(int(input()) * 2)\n"
KIT = Kit(
    "double",
    ("1\n", "1\n", "x\n", "2\n"),
    Generator(
        "import random\ndef gen_range_based_input():\n    return f'{random.randint(1, 10**6)}\\n'\n",
        ("gen_range_based_input",),
    ),
    Generator("def gen_hacking_input_big():\n    return '1000000000000\\n'\n", ("gen_hacking_input_big",)),
    "def validate_input(s):\n    return 1 <= int(s) <= 10**12\n",
)
CPP_DOUBLE = "#include <iostream>\nint main(){long long x;std::cin>>x;std::cout<<2*x;}\n"
PROBLEM = Problem(
    "double",
    "Double it.",
    solutions=(Solution(DOUBLE, "python3", "editorial"), Solution(CPP_DOUBLE, "cpp", "code_contests")),
    kit=KIT,
    time_limit=1.0,
    memory_mb=512,
)


@pytest.fixture(scope="module")
def suite(box):
    return HardTestGenerator(sandbox=box, num_RPGen_SPGen_input=5).generate(PROBLEM, seed=3)


def test_a_suite_holds_valid_distinct_inputs_of_every_generator(suite):
    assert suite.status == "success"
    assert [kind for kind, _ in suite.makers()] == ["LLMGen"] * 2 + ["RPGen_SPGen"] * 5 + ["HackGen"]
    assert all(int(c.output) == 2 * int(c.input) for c in suite.cases)
    rows = {row["generator"]: row for row in suite.about["generators"]}
    assert (rows["LLMGen"]["kept"], rows["LLMGen"]["invalid"]) == (2, 1)
    assert (rows["HackGen"]["kept"], rows["HackGen"]["duplicates"], rows["HackGen"]["attempts"]) == (1, 19, 20)
    assert suite.about["oracles"]["distinct_programs"] == 2


def test_equal_seeds_make_equal_suites_and_others_do_not(box, suite):
    generator = HardTestGenerator(sandbox=box, num_RPGen_SPGen_input=5)
    assert generator.generate(PROBLEM, seed=3).cases == suite.cases
    assert generator.generate(PROBLEM, seed=4).cases != suite.cases


def test_a_spent_budget_leaves_what_was_made(box):
    # The published code ends in an assertion here, with no inputs at all.
    slow = Generator(
        "def gen_hacking_input_a():\n    sum(range(3 * 10**6))\n    return '5\\n'\n"
        "def gen_hacking_input_b():\n    return '6\\n'\n",
        ("gen_hacking_input_a", "gen_hacking_input_b"),
    )
    options = InputOptions(input_gen_total_time_limit=0.02)
    made = generate_inputs(replace(KIT, hacking=slow, ranged=Generator()), box, options=options)
    assert made.status == "success"
    assert made.mapping["LLMGen"] == [0, 1]
    assert made.mapping["HackGen"][0] == [2]
    assert len(made.mapping["HackGen"]) == 2
    assert made.inputs[2] == "5\n"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("def gen_range_based_input():\n    return 5\n", "returned a int"),
        ("def gen_range_based_input():\n    return 1 / 0\n", "ZeroDivisionError"),
        ("def gen_range_based_input(:\n", "SyntaxError"),
        ("def gen_range_based_input():\n    import os\n    os._exit(0)\n", "without a value"),
    ],
)
def test_generators_that_fail_are_told_of(box, code, error):
    kit = Kit("p", (), Generator(code, ("gen_range_based_input",)))
    made = generate_inputs(kit, box, options=InputOptions(num_RPGen_SPGen_attempts=2))
    assert made.status == "input_generation_failed"
    assert error in made.rows[1]["error"]


def test_a_validator_that_raises_or_answers_none_refuses(box):
    for source in ("def validate_input(s):\n    raise ValueError\n", "def validate_input(s):\n    pass\n"):
        made = generate_inputs(Kit("p", ("1\n",), validator=source), box)
        assert made.status == "input_generation_failed"
        assert made.rows[0]["invalid"] == 1


def test_without_a_validator_everything_is_valid(box):
    assert generate_inputs(replace(KIT, ranged=Generator(), hacking=Generator(), validator=None), box).inputs == [
        "1\n",
        "x\n",
        "2\n",
    ]


def outputs(box, *codes: str, **options):
    problem = Problem("p", "", solutions=tuple(Solution(code, "python3") for code in codes))
    return generate_outputs(
        rank_oracles("p", problem.solutions), ["1\n", "2\n"], Judge(box, None), box, OutputOptions(**options)
    )


def test_oracles_that_fail_or_differ_have_their_statuses(box):
    assert outputs(box, DOUBLE, DOUBLE).outputs == ["2\n", "4\n"]
    assert outputs(box, DOUBLE, DOUBLE).distinct_programs == 1
    assert outputs(box, DOUBLE, "print(3)").status == "output_generation_verification_failed"
    assert outputs(box, DOUBLE, "def (").status == "output_generation_no_enough_valid_code_solutions"
    assert outputs(box, "input()", "input() and None").status == "output_generation_no_output"
    assert (
        outputs(box, DOUBLE, DOUBLE, output_gen_total_time_limit=1e-9).status == "output_generation_time_limit_exceeded"
    )


def test_a_problem_without_programs_or_kit_says_so(box):
    assert (
        HardTestGenerator(sandbox=box).generate(replace(PROBLEM, solutions=())).status
        == "output_generation_no_code_solutions"
    )
    with pytest.raises(UsageError, match="has no kit"):
        HardTestGenerator(sandbox=box).generate(replace(PROBLEM, kit=None))
    with pytest.raises(UsageError, match="min_num_agreements"):
        HardTestGenerator(min_num_agreement=2)


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_an_empty_suite_accepts_nothing(box):
    found = TestSuite("p").verify(DOUBLE, box=box)
    assert (found.accepted, found.pass_rate, found.killed_by) == (False, 0.0, "")


def test_a_verdict_names_the_first_failing_test_and_its_generator(box, suite):
    found = suite.verify("n = int(input())\nprint(2 * n if n < 10**12 else 0)\n", box=box)
    assert (found.accepted, found.killed_by, found.first_failing) == (False, "HackGen", len(suite) - 1)
    first = suite.verify("print(0)", box=box, until="first", order=[4])
    assert first.first_failing == 4
    assert first.verdicts.count(-1) == len(suite) - 1


def test_giving_up_a_generator_never_changes_who_is_accepted(box):
    cases = tuple(Case(f"{i}\n", f"{i}\n") for i in range(3))
    suite = TestSuite("p", cases, {"LLMGen": [0], "HackGen": [[1, 2]]}, time_limit=0.1)
    found = suite.verify("n = int(input())\nwhile n == 1: pass\nprint(n)\n", box=box, until="kind")
    assert found.verdicts == (1, 0, -1)
    assert not found.accepted


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos._exit(0)",
        "import sys\nprint(open('/proc/1/environ').read())",
        "import sys\nsys.stderr.write('x' * 10**7)\n",
        "raise SystemExit(0)",
        "import os\nwhile True:\n    os.fork()\n",
    ],
)
def test_tricks_earn_no_acceptance(box, code):
    found = run_and_judge(code, "python3", ["1\n"], ["2\n"], time_limit=1, memory_mb=256, box=box)
    assert not found.accepted


@pytest.mark.parametrize(
    "judge",
    [
        "def output_judging_function(a, b, c):\n    print('ok')\n    return True\n",
        "def output_judging_function(a, b, c):\n    return 1\n",
        "def output_judging_function(a, b, c):\n    return None\n",
        "import os\ndef output_judging_function(a, b, c):\n    os._exit(0)\n",
    ],
)
def test_a_judge_says_yes_only_by_a_clean_true(box, judge):
    assert not run_and_judge(DOUBLE, "python3", ["1\n"], ["2\n"], judge, time_limit=1, box=box).accepted


def test_a_judge_without_its_function_is_refused(box):
    with pytest.raises(DataError, match="no function output_judging_function"):
        run_and_judge(DOUBLE, "python3", ["1"], ["2"], "def judge(): ...", box=box)


def test_wrong_arguments_are_one_sentence(box, suite):
    with pytest.raises(UsageError, match="2 inputs and 1 reference"):
        run_and_judge(DOUBLE, "python3", ["1", "2"], ["2"], box=box)
    with pytest.raises(UsageError, match="'pyton'"):
        suite.verify(DOUBLE, "pyton", box=box)
    with pytest.raises(UsageError, match="names test 99"):
        suite.verify(DOUBLE, box=box, order=[99])


def test_a_spent_total_leaves_tests_not_run(box):
    busy = "sum(range(2 * 10**6))\n" + DOUBLE
    found = run_and_judge(busy, "python3", ["1"] * 4, ["2"] * 4, total_seconds=0.03, box=box)
    assert found.verdicts[0] == 1
    assert found.verdicts[-1] == -1
    assert not found.accepted


def test_an_input_too_large_is_not_run(box, suite):
    found = verify(suite, DOUBLE, box=box, input_bytes=3)
    assert "INPUT_TOO_LARGE" in found.statuses
    assert not found.accepted


# -- beyond ------------------------------------------------------------------------------------------------------------


def test_mutants_of_a_correct_program_are_killed_by_a_full_suite(box, suite):
    found = mutation_score(
        suite,
        "n = int(input())\nif n > 0:\n    print(n + n)\nelse:\n    print(7)\n",
        "python3",
        box,
        np.random.default_rng(0),
    )
    assert found.score is not None
    assert found.score >= 0.5
    # "print(7)" is never reached by a valid input: its mutants must live.
    assert any("7 to 8" in m.change for m in found.survivors)


def test_a_counterexample_is_made_small_and_stays_valid(box):
    problem = next(p for p in load_problems("own") if p.pid == "best_block")
    case = Case("6\n-5 -3 -9 -8 -7 -700\n", "-3\n")
    suite = TestSuite(problem.pid, (case,), {"LLMGen": [0]}, kit=problem.kit, time_limit=1.0)
    wrong = next(p for p in problem.programs if p.note == "wrong: starts at zero")
    found = counterexample(suite, wrong.code, wrong.language, problem.solutions[0].code, "python3", box)
    assert found is not None
    assert (found.input, found.output, found.reference) == ("1\n-1\n", "0\n", "-1\n")
    assert (
        counterexample(suite, problem.solutions[0].code, "python3", problem.solutions[0].code, "python3", box) is None
    )


@pytest.mark.slow  # timings: not for a machine with other work
def test_growth_tells_linear_from_quadratic_programs(box):
    def make(n: int) -> str:
        return f"{n}\n"

    linear = "n = int(input())\ns = 0\nfor i in range(n): s += i\nprint(s)\n"
    square = "n = int(input())\ns = 0\nfor i in range(n):\n    for j in range(n): s += j\nprint(s)\n"
    fast = probe(linear, "python3", make, [1_000_000, 2_000_000, 4_000_000], box, time_limit=2)
    slow = probe(square, "python3", make, [1000, 2000, 3000, 1_000_000], box, time_limit=2)
    assert (fast.words, slow.words) == ("linear", "quadratic")
    assert slow.timed_out_at == 1_000_000
    assert separates(fast, slow, 1_000_000, 2.0)
    assert not separates(fast, slow, 2000, 2.0)


def test_probing_ends_where_time_does_and_refuses_what_fails(box):
    found = probe(
        "n = int(input())\nwhile n > 5: pass\n", "python3", lambda n: f"{n}\n", [1, 2, 9], box, time_limit=0.1
    )
    assert (found.sizes, found.timed_out_at, found.exponent, found.words) == ((1, 2), 9, None, "unknown")
    with pytest.raises(UsageError, match="failed at size 1"):
        probe("1 / 0", "python3", str, [1], box)
    with pytest.raises(UsageError, match="must ascend"):
        probe("", "python3", str, [2, 1], box)


def test_rewards_have_the_signatures_of_the_trainers(box, suite):
    reward = CodeReward([suite], box=box)
    good, bad = f"Think.\n```python\n{DOUBLE}```", "```python\nprint(2)\n```"
    chat = [[{"role": "assistant", "content": good}], [{"role": "assistant", "content": "no program"}]]
    assert reward([None, None], [good, bad], pid=["double", "double"]) == [1.0, 0.0]
    assert reward(prompts=[None, None], completions=chat, pid=["double", "double"]) == [1.0, 0.0]
    assert reward.compute_score("hardtests", good, "double") == 1.0
    assert CodeReward([], box=box).compute_score("hardtests", good, json.dumps(suite.to_row()), {}) == 1.0
    found = reward.reward_func([f"Q {good}", f"Q {bad}"], ["Q ", "Q "], ["double", "double"])
    assert found["rewards"].tolist() == [1.0, 0.0]
    partial = CodeReward([suite], box=box, partial=True)
    assert partial.rewards(["double"], [bad]) == [1 / len(suite)]


def test_rewards_on_disk_serve_another_process_until_suite_or_program_changes(box, suite, tmp_path, monkeypatch):
    from assay.code.hardtests import rewards

    good, bad = f"```python\n{DOUBLE}```", "```python\nprint(2)\n```"
    assert CodeReward([suite], box=box, folder=tmp_path).rewards(["double"] * 2, [good, bad]) == [1.0, 0.0]
    judged = []

    def counted(*arguments, **options):
        judged.append(arguments[1])
        return verify(*arguments, **options)

    monkeypatch.setattr(rewards, "verify", counted)
    assert CodeReward([suite], box=box, folder=tmp_path).rewards(["double"] * 2, [good, bad]) == [1.0, 0.0]
    assert judged == []
    shorter = replace(suite, cases=suite.cases[:1], mapping={"LLMGen": [0], "RPGen_SPGen": [], "HackGen": []})
    CodeReward([shorter], box=box, folder=tmp_path).rewards(["double"], [good])
    CodeReward([suite], box=box, folder=tmp_path, partial=True).rewards(["double"], [good])
    assert len(judged) == 2


def test_mistakes_in_rewards_raise(box, suite):
    reward = CodeReward([suite], box=box)
    with pytest.raises(UsageError, match="column 'pid'"):
        reward(["x"], ["y"])
    with pytest.raises(UsageError, match="no suite of problem 'q'"):
        reward(["x"], ["y"], pid=["q"])
    with pytest.raises(UsageError, match="2 completions and 1"):
        reward.rewards(["double"], ["a", "b"])
    with pytest.raises(UsageError, match="has no tests"):
        CodeReward([TestSuite("empty")])


def test_rejection_sampling_keeps_what_is_accepted_and_says_why_others_fell(box, suite):
    good = f"```python\n{DOUBLE}```"
    rows = [{"pid": "double", "completion": text} for text in (good, "```python\nprint(1)\n```", good, good)]
    found = rejection_sample([*rows, {"pid": "other", "completion": good}], {"double": suite}, most=2, box=box)
    assert len(found.rows) == 2
    assert dict(found.fallen) == {1: "rejected", 3: "more than 2 of its problem", 4: "no suite"}
