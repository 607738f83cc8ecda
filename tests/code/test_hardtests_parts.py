"""hardtests: parts that need no sandbox."""

from __future__ import annotations

import base64
import json
import pickle
import random
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.code.hardtests import testlib
from assay.code.hardtests.codec import decode_cases, encode_cases
from assay.code.hardtests.data import filtered, load_problems, megabytes_of, problem_of, read_toml, seconds_of
from assay.code.hardtests.inputs import InputOptions, attempt_seed
from assay.code.hardtests.judging import same_output
from assay.code.hardtests.kills import KillMatrix, minimal_suite
from assay.code.hardtests.kit import Generator, Kit, lint, parse_reply
from assay.code.hardtests.mutation import mutants, mutate_input
from assay.code.hardtests.outputs import agree
from assay.code.hardtests.probing import Growth, fit_exponent, separates
from assay.code.hardtests.problem import Case, Solution, distinct, rank_oracles
from assay.code.hardtests.scoring import Confusion, posterior_correct
from assay.code.hardtests.shrinking import shrink
from assay.code.hardtests.suite import TestSuite, merged_mapping
from assay.code.hardtests.toys import Judged, bandit, filtered_pool
from assay.code.hardtests.writing import prompt
from assay.core.errors import DataError, UsageError


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


class Bomb:
    def __reduce__(self):
        import os

        return (os.getcwd, ())


def test_a_pickle_that_calls_something_is_refused():
    with pytest.raises(DataError, match=r"line 3.*only a pickled text is read"):
        decode_cases(packed(Bomb()), "f.jsonl, line 3")


@pytest.mark.parametrize("value", [["x"], {"a": 1}, 7, None, b"[]"])
def test_a_pickle_of_anything_but_a_text_is_refused(value):
    with pytest.raises(DataError):
        decode_cases(packed(value))


@pytest.mark.parametrize("field", ["", "!!", "aGVsbG8=", packed("no json"), packed('[{"input": 1, "output": "x"}]')])
def test_a_damaged_field_is_one_sentence(field):
    with pytest.raises(DataError, match="test_cases"):
        decode_cases(field)


def test_a_field_that_unpacks_to_too_much_is_refused(monkeypatch):
    from assay.code.hardtests import codec

    monkeypatch.setattr(codec, "LARGEST", 1000)
    assert decode_cases(encode_cases([Case("1", "2")])) == [Case("1", "2")]
    with pytest.raises(DataError, match="more than 1,000 bytes"):
        decode_cases(encode_cases([Case("1" * 2000, "2")]))


@given(st.lists(st.tuples(st.text(), st.none() | st.text())))
def test_any_tests_survive_the_coding(pairs):
    cases = [Case(*pair) for pair in pairs]
    assert decode_cases(encode_cases(cases)) == cases


@given(st.text(), st.text())
def test_comparison_is_symmetric_and_blind_to_blanks_at_the_end(a, b):
    assert same_output(a, b) is same_output(b, a)
    assert same_output(a, a + " \n\n")


def test_a_form_feed_counts_as_a_line_end_as_published():
    assert same_output("1\x0c2", "1\n2")


@given(st.text())
def test_reading_a_reply_never_fails(text):
    assert isinstance(parse_reply("# Result\n```json\n" + text + "\n```"), dict)


# -- kits --------------------------------------------------------------------------------------------------------------


def test_shipped_kits_pass_the_linter():
    problems = load_problems("own")
    assert len([p for p in problems if p.platform == "own"]) >= 12
    assert [fault for p in problems for fault in lint(p.kit or Kit(p.pid))] == []


def test_shipped_problems_hold_correct_wrong_and_slow_programs_in_both_languages():
    own = load_problems("own")
    for problem in own:
        programs = problem.programs
        assert {p.language for p in programs if p.correct} >= {"python3"}
        assert sum(p.correct for p in programs) >= 2
        assert any(p.fault == "wrong" for p in programs)
    assert sum(any(p.fault == "slow" for p in q.programs) for q in own) >= 12
    assert {(p.language, p.fault) for q in own for p in q.programs} == {
        (language, fault) for language in ("cpp", "python3") for fault in ("", "wrong", "slow")
    }
    assert all(distinct([s.code for s in q.solutions]) == 2 for q in own)


@pytest.mark.parametrize(
    ("kit", "words"),
    [
        (Kit("p"), "nothing can be made"),
        (Kit("p", ("1",), validator="def validate(x): ..."), "no function validate_input"),
        (Kit("p", ("1",), judge="def output_judging_function(a, b, c:"), "does not parse"),
        (
            Kit("p", ("1",), Generator("import numpy\ndef gen_range_based_input(): ...", ("gen_range_based_input",))),
            "numpy",
        ),
        (Kit("p", ("1",), Generator("def f(): ...", ())), "no function with a generator's name"),
        (
            Kit("p", ("1",), Generator("def gen_range_based_input():\n while True: pass", ("gen_range_based_input",))),
            "for ever",
        ),
        (
            Kit(
                "p",
                (),
                Generator(
                    "def gen_range_based_input(): ...\ndef gen_stratified_input_a(): ...",
                    ("gen_range_based_input", "gen_stratified_input_a"),
                ),
            ),
            "exclude each other",
        ),
    ],
)
def test_the_linter_names_what_is_wrong(kit, words):
    assert any(words in fault for fault in lint(kit))


def test_a_kit_that_is_none_is_one_sentence():
    with pytest.raises(DataError, match="line 4: not a kit"):
        Kit.from_row({"input_validator": 7}, "p", "k.jsonl, line 4")


def test_own_quotas_replace_the_published_ones():
    kit = Kit("p", ranged=Generator("", ("gen_range_based_input",)))
    assert InputOptions().quota(kit, "HackGen") == (10, 20)
    assert InputOptions(num_RPGen_SPGen_input=3).quota(kit, "RPGen_SPGen") == (3, 40)
    assert InputOptions(num_RPGen_SPGen_input=50).quota(kit, "RPGen_SPGen") == (50, 100)


def test_seeds_of_attempts_differ_and_stay():
    seeds = {attempt_seed(0, "p", f, i) for f in ("a", "b") for i in range(20)} | {attempt_seed(1, "p", "a", 0)}
    assert len(seeds) == 41
    assert attempt_seed(0, "p", "a", 0) == attempt_seed(0, "p", "a", 0)


# -- testlib -----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(0, 200), st.integers(0, 3), st.integers())
def test_partitions_keep_their_promises(parts, extra, low, seed):
    found = testlib.partition(parts * low + extra, parts, low, random.Random(seed))
    assert (len(found), sum(found), min(found) >= low) == (parts, parts * low + extra, True)


def test_partitions_are_uniform():
    rng = random.Random(0)
    drawn = [tuple(testlib.partition(4, 3, 1, rng)) for _ in range(3000)]
    counts = [drawn.count(p) for p in ((1, 1, 2), (1, 2, 1), (2, 1, 1))]
    assert sum(counts) == 3000
    assert max(abs(c - 1000) for c in counts) < 4 * (3000 * (1 / 3) * (2 / 3)) ** 0.5


@given(st.integers(1, 60), st.sampled_from(["random", "path", "star", "binary", "caterpillar", "broom"]), st.integers())
def test_trees_are_trees(n, shape, seed):
    assert testlib.is_tree(n, testlib.tree(n, shape, random.Random(seed)))


@given(st.integers(2, 15), st.data())
def test_graphs_have_the_edges_asked_for(n, data):
    connected, directed, acyclic = data.draw(st.booleans()), data.draw(st.booleans()), data.draw(st.booleans())
    most = n * (n - 1) // (1 if directed and not acyclic else 2)
    m = data.draw(st.integers(n - 1 if connected else 0, most))
    rng = random.Random(data.draw(st.integers()))
    edges = testlib.graph(n, m, connected=connected, directed=directed, acyclic=acyclic and directed, rng=rng)
    assert len(edges) == m
    assert testlib.is_simple(edges, directed=directed)
    assert not connected or testlib.is_connected(n, edges)
    if acyclic and directed:
        before = {v: {a for a, b in edges if b == v} for v in range(1, n + 1)}
        done: set[int] = set()
        while free := {v for v in before if v not in done and before[v] <= done}:
            done |= free
        assert len(done) == n


@given(st.integers(0, 30), st.integers())
def test_brackets_are_balanced(pairs, seed):
    depth = 0
    text = testlib.brackets(pairs, "()[]", random.Random(seed))
    stack = []
    for c in text:
        if c in "([":
            stack.append(c)
        else:
            assert stack.pop() + c in ("()", "[]")
    assert (len(text), stack, depth) == (2 * pairs, [], 0)


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1))
def test_the_reader_takes_what_text_writes(values):
    read = testlib.Reader(testlib.text(len(values), values))
    n = read.line(1, 10**6, count=1)[0]
    assert read.line(-(10**9), 10**9, count=n) == values
    assert read.end()


@pytest.mark.parametrize(
    "text",
    ["1  2\n", " 1 2\n", "1 2 \n", "01 2\n", "1\n", "1 2\n3\n", "1 +2\n", "1 11\n", "-0 1\n", "", "1\t2\n", "1 ２\n"],
)
def test_the_reader_refuses_loose_input(text):
    def validated() -> bool:
        read = testlib.Reader(text)
        read.line(0, 10, count=2)
        return read.end()

    with pytest.raises(testlib.Invalid):
        validated()


@given(st.integers(1, 10**18), st.integers(0, 10**18), st.integers())
def test_log_uniform_stays_inside(low, extra, seed):
    assert low <= testlib.log_uniform(low, low + extra, random.Random(seed)) <= low + extra


# -- suites and kills --------------------------------------------------------------------------------------------------


def test_a_mapping_beyond_the_tests_is_refused():
    with pytest.raises(DataError, match="names test 3"):
        TestSuite("p", (Case("1", "1"),), {"LLMGen": [3]})


def test_subsets_keep_who_made_what():
    suite = TestSuite("p", tuple(Case(str(i), "") for i in range(5)), {"LLMGen": [0, 1], "HackGen": [[2], [3, 4]]})
    part = suite.chosen([4, 1, 2])
    assert [c.input for c in part.cases] == ["1", "2", "4"]
    assert part.makers() == [("LLMGen", 0), ("HackGen", 0), ("HackGen", 1)]
    assert len(suite.of_kinds("HackGen")) == 3


def test_a_suite_survives_its_file_byte_for_byte(tmp_path):
    kit = load_problems("mini")[0].kit
    assert kit is not None
    suite = TestSuite("a/b", (Case("é\n", "1"),), {"LLMGen": [0]}, kit.judge, kit, time_limit=1.5, about={"x": 1})
    first = suite.save(tmp_path).read_bytes()
    assert TestSuite.load(next(tmp_path.glob("*.json.gz"))).cases == suite.cases
    assert TestSuite.load(next(tmp_path.glob("*.json.gz"))).kit == kit
    assert suite.save(tmp_path).read_bytes() == first


def test_published_mappings_become_one_group_again():
    assert merged_mapping({"LLMGen": [0], "RPGen": [], "SPGen": [[1]], "HackGen": []})["RPGen_SPGen"] == [[1]]


kill_sets = st.dictionaries(st.text(min_size=1, max_size=3), st.frozensets(st.integers(0, 9)), max_size=12)


@given(kill_sets, st.integers(1, 3))
def test_a_minimal_suite_keeps_every_kill(kills, at_least):
    matrix = KillMatrix(10, kills)
    chosen = matrix.minimal(at_least)
    assert len(set(chosen)) == len(chosen)
    for tests in kills.values():
        assert len(tests & set(chosen)) >= min(at_least, len(tests))
    assert sorted(matrix.order()) == list(range(10))


@given(kill_sets)
def test_greedy_is_within_its_bound_of_the_fewest(kills):
    from itertools import combinations

    matrix = KillMatrix(10, kills)
    targets = [tests for tests in kills.values() if tests]
    fewest = next(k for k in range(11) if any(all(t & set(c) for t in targets) for c in combinations(range(10), k)))
    assert len(matrix.minimal()) <= fewest * (1 + np.log(max(1, len(targets)))) + 1e-9


def test_a_suite_that_kills_nothing_is_not_minimised():
    suite = TestSuite("p", (Case("1", "1"),), {"LLMGen": [0]})
    with pytest.raises(UsageError, match="keep the suite"):
        minimal_suite(suite, KillMatrix(1, {"a": frozenset()}))
    with pytest.raises(UsageError, match="has 2 tests"):
        minimal_suite(suite, KillMatrix(2, {}))


# -- agreement ---------------------------------------------------------------------------------------------------------


def equal(a, b):
    return [x == y for x, y in zip(a, b)]


@pytest.mark.parametrize(
    ("tolerance", "status"), [(0, "output_generation_verification_failed"), (0.25, "success"), (1, "success")]
)
def test_within_the_tolerance_what_differs_is_dropped(tolerance, status):
    found = agree([["1", "2", "3", "4"], ["1", "2", "3", "5"]], 2, equal, tolerance=tolerance)
    assert found.status == status
    if status == "success":
        assert found.outputs == ["1", "2", "3", None]
        assert found.disagreements == 1


def test_no_further_program_is_run_than_needed():
    drawn = []

    def lists():
        for i in range(5):
            drawn.append(i)
            yield ["1"]

    assert agree(lists(), 5, equal).agreed == [0, 1]
    assert drawn == [0, 1]


def test_no_program_at_all_has_its_own_status():
    assert agree([], 0, equal).status == "output_generation_no_code_solutions"


def test_unknown_sources_are_warned_of_and_left_out():
    with pytest.warns(UserWarning, match="'blog'"):
        assert rank_oracles("p", [Solution("x", "cpp", "blog")]) == []


def test_copies_of_a_program_count_once():
    assert distinct(["a = 1\n", "a=1", "a = 2"]) == 2


# -- mutants, shrinking, growth ----------------------------------------------------------------------------------------


def test_python_mutants_are_programs_that_differ():
    code = "n = int(input())\nif n < 3 and n != 0:\n    n += 1\nprint(max(n, 2) // 2)\n"
    made = mutants(code)
    changes = " ".join(m.change for m in made)
    for what in (
        "Lt to LtE",
        "And to Or",
        "NotEq to Eq",
        "3 to 4",
        "Add to Sub",
        "max to min",
        "FloorDiv to Mult",
        "removed",
    ):
        assert what in changes
    assert len({m.code for m in made}) == len(made)
    for m in made:
        compile(m.code, "m", "exec")


def test_cpp_mutants_leave_includes_texts_and_comments_alone():
    body = 'int main(){ long long s = 0; for (int i = 0; i < 3; i++) s += i; puts("1 < 0"); }'
    code = f"#include <vector>\n// a < b\n{body}\n"
    made = mutants(code, "cpp")
    assert made
    for m in made:
        assert m.code.startswith("#include <vector>\n// a < b\n")
        assert '"1 < 0"' in m.code
    assert any("long long to int" in m.change for m in made)


@given(st.text(alphabet="0123456789 -ab\n", max_size=40), st.integers(0, 2**32))
def test_changed_inputs_keep_their_lines(text, seed):
    new = mutate_input(text, np.random.default_rng(seed))
    assert new.count("\n") == text.count("\n")


def test_a_counted_list_shrinks_with_its_count():
    def fails(text: str) -> bool:
        lines = text.splitlines()
        if len(lines) != 2:
            return False
        values = [int(w) for w in lines[1].split()]
        return int(lines[0]) == len(values) >= 1 and max(values) >= 50

    small, tries = shrink("9\n" + " ".join(map(str, [3, 7, 99, 4, 60, 1, 2, 8, 5])) + "\n", fails, most=1000)
    assert fails(small)
    assert small == "1\n50\n"
    assert tries <= 1000


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=8))
def test_shrinking_never_loses_the_fault(values):
    def fails(text: str) -> bool:
        words = text.split()
        return sum(abs(int(w)) for w in words) >= 5

    start = " ".join(map(str, values)) + "\n"
    if fails(start):
        small, _ = shrink(start, fails)
        assert fails(small)
        assert len(small) <= len(start)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0])
def test_growth_is_fitted_above_the_cost_of_a_process(exponent):
    sizes = [100, 200, 400, 800, 1600]
    seconds = [0.004 + 1e-2 * (s / 100) ** exponent for s in sizes]
    assert fit_exponent(sizes, seconds) == pytest.approx(exponent, abs=1e-6)
    assert fit_exponent(sizes, [0.004] * 5) is None


def test_a_suite_separates_growth_only_with_inputs_that_are_large_enough():
    fast = Growth((1000, 2000, 4000), (0.02, 0.04, 0.08), 1.0, None)
    slow = Growth((1000, 2000, 4000), (0.1, 0.4, 1.6), 2.0, None)
    assert (fast.words, slow.words) == ("linear", "quadratic")
    assert slow.seconds_at(8000) == pytest.approx(6.4)
    assert separates(fast, slow, 8000, 5.0)
    assert not separates(fast, slow, 6000, 5.0)
    assert not separates(fast, slow, 10**6, 5.0)  # the fast one is too slow there


# -- counts, toys, data ------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.booleans())), st.lists(st.tuples(st.booleans(), st.booleans())))
def test_counts_add_up(a, b):
    assert Confusion.of(a) + Confusion.of(b) == Confusion.of(a + b)


def test_confidence_grows_with_evidence_and_never_reaches_one():
    few, many = Confusion(5, 0, 0, 5), Confusion(500, 0, 0, 500)
    assert 0.3 < posterior_correct(0.3, few) < posterior_correct(0.3, many) < 1


def test_a_filtered_pool_holds_the_share_that_bayes_says():
    programs = [Judged(True, True)] * 9 + [Judged(True, False)] + [Judged(False, True)] * 2 + [Judged(False, False)] * 6
    found = filtered_pool(programs, np.random.default_rng(0), size=20000)
    assert found.expected == pytest.approx(0.3 * 0.9 / (0.3 * 0.9 + 0.7 * 0.25))
    assert abs(found.z) < 3


def test_a_policy_learns_what_is_rewarded():
    weak = {"p": [Judged(True, True), Judged(False, True), Judged(False, True), Judged(False, False)]}
    hard = {"p": [Judged(True, True), Judged(False, False), Judged(False, False), Judged(False, False)]}
    finals = [[bandit(x, np.random.default_rng(s)) for s in range(5)] for x in (weak, hard)]
    assert min(finals[1]) > 0.9
    assert np.mean(finals[0]) < np.mean(finals[1])


@pytest.mark.parametrize(
    ("words", "seconds"),
    [("2 seconds", 2), ("1500 ms", 1.5), ("0.5 s", 0.5), ("", None), (None, None), ("1500 milliseconds", 1.5)],
)
def test_time_limits_are_read(words, seconds):
    assert seconds_of(words) == seconds


@pytest.mark.parametrize(
    ("words", "mb"), [("256 megabytes", 256), ("1 GB", 1024), ("65536 KB", 64), ("268435456 bytes", 256), (None, None)]
)
def test_memory_limits_are_read(words, mb):
    assert megabytes_of(words) == mb


def test_bad_data_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="mini"):
        load_problems("mimi")
    with pytest.raises(DataError, match=r"x\.toml is not TOML"):
        read_toml("a = ", "x.toml")
    with pytest.raises(DataError, match=r"x\.toml: not a problem"):
        read_toml('pid = "p"', "x.toml")
    with pytest.raises(DataError, match="line 2"):
        problem_of({"pid": "p", "question_content": "s", "solutions": [{"code": 1}]}, "f, line 2")
    with pytest.raises(UsageError, match="difficulty"):
        filtered([], difficulty="hard")
    assert [p.pid for p in filtered(load_problems("mini"), difficulty="1-2")] == ["double_or_triple", "even_split"]


def test_prompts_hold_what_they_are_given_and_no_placeholder():
    texts = [
        prompt("checks", statement="S1", program="P1", language="cpp", python="3"),
        prompt("inputs", statement="S1", program="P1", language="cpp", python="3", validator="V1"),
    ]
    for messages in texts:
        text = messages[0]["content"]
        assert "S1" in text
        assert "P1" in text
        assert "{{" not in text
    assert "V1" in texts[1][0]["content"]


def test_examples_of_the_prompt_are_of_the_form_that_is_read():
    text = prompt("checks", statement="S", program="P", language="cpp", python="3")[0]["content"]
    filled = text.replace('"<Python source>" or null', "null").replace("true or false", "false")
    assert set(json.loads(filled.split("```json")[1].split("```")[0])) == {
        "input_validator", "needs_custom_output_judging_function", "output_judging_function",
    }  # fmt: skip


def test_a_checkout_of_quixbugs_is_read_as_pairs_of_programs(tmp_path):
    for folder, body in (("correct_python_programs", "x + 1"), ("python_programs", "x - 1")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "after.py").write_text(f'def after(x):\n    return {body}\n\n"""\nThe next number.\n"""\n')
    (tmp_path / "json_testcases").mkdir()
    (tmp_path / "json_testcases" / "after.json").write_text("[[1], 2]\n[3, 4]\n")
    (problem,) = load_problems(f"quixbugs:{tmp_path}")
    assert problem.title == "after"
    assert "The next number." in problem.statement
    assert [(c.input, c.output) for c in problem.examples] == [("[1]\n", "2\n"), ("[3]\n", "4\n")]
    assert [p.correct for p in problem.programs] == [True, False]


def test_what_is_no_quixbugs_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(UsageError, match="nothing at"):
        load_problems(f"quixbugs:{tmp_path / 'none'}")
    with pytest.raises(DataError, match="json_testcases"):
        load_problems(f"quixbugs:{tmp_path}")
    (tmp_path / "rows.json").write_text('[{"name": "f"}]')
    with pytest.raises(DataError, match="program f"):
        load_problems(f"quixbugs:{tmp_path / 'rows.json'}")
