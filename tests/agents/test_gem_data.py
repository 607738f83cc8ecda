"""Environments on data: readers and graders against published verdicts, order of rows, faults in files."""

import json
import re
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.agents.gem.catalogue import DATA, GEM24
from assay.agents.gem.data import CodeEnv, MathEnv, MathVisualEnv, QaEnv, table_folder
from assay.agents.gem.env import TERMINAL_STATE, EnvError
from assay.agents.gem.grading import Grader, shared_grader
from assay.agents.gem.readers import exact_match, last_answer, last_block, last_box
from assay.agents.gem.registry import REGISTRY, make
from assay.core.errors import DataError

ORACLES = Path(__file__).parents[1] / "oracles" / "gem"


def oracle(name):
    return json.loads((ORACLES / f"{name}.json").read_text())


@pytest.fixture(scope="module", autouse=True)
def graders():
    yield
    shared_grader().close()


@pytest.mark.parametrize(
    ("read", "name"), [(last_box, "boxed"), (last_block, "code_block"), (last_answer, "answer_tag")]
)
def test_readers_read_as_published(read, name):
    for text, expected in oracle("parsers")[name]:
        assert read(text) == expected, text


@pytest.mark.parametrize("case", oracle("qa_exact_match")["cases"], ids=str)
def test_exact_match_is_as_published(case):
    assert exact_match(case["prediction"], case["gold"]) == case["match"]
    assert exact_match(case["prediction"], ["something else", case["gold"]]) == case["match"]


@given(st.text(), st.text())
def test_no_text_breaks_a_reader(text, more):
    for read in (last_box, last_block, last_answer):
        read(f"{text}\\boxed{{<answer>```{more}")
    assert last_box(f"{text.replace('{', '').replace('}', '')}\\boxed{{7}}") == "7" or "\\" in text


@pytest.mark.parametrize("case", oracle("math_grading")["cases"], ids=lambda case: case["response"])
def test_math_rewards_are_as_published(case):
    env = MathEnv(data=[{"problem": "?", "answer": case["gold"]}], seconds=20)
    env.reset(0)
    observation, reward, terminated, truncated, info = env.step(case["response"])
    assert reward == case["official_reward"]
    assert (observation, terminated, truncated) == (TERMINAL_STATE, True, True)
    assert info["correct"] == info["solved"] == bool(reward)


def test_any_of_several_answers_is_right():
    env = MathEnv(data=[{"problem": "?", "answer": ["\\frac12", "7"]}], seconds=20)
    for answer, reward in (("0.5", 1), ("7", 1), ("8", 0)):
        env.reset(0)
        assert env.step(f"\\boxed{{{answer}}}")[1] == reward


def test_an_answer_without_a_box_costs_what_was_asked():
    for settings, expected in (({}, 0.0), ({"format_reward": -0.1}, -0.1)):
        env = MathEnv(data=[{"problem": "?", "answer": "5"}], **settings)
        env.reset(0)
        _, reward, *_, info = env.step("the answer is 5")
        assert (reward, info["format_error"]) == (expected, True)


def test_a_comparison_that_takes_for_ever_is_killed_and_the_next_one_works():
    grader = Grader(workers=1)
    try:
        assert grader.equal("\\sqrt{8}", "2\\sqrt{2}", seconds=20).equal
        begun = time.monotonic()
        verdict = grader.equal("\\sqrt{8}", "2\\sqrt{2}", seconds=0.0)
        assert (verdict.equal, verdict.how) == (False, "time limit")
        assert time.monotonic() - begun < 5
        assert grader.equal("\\sqrt{8}", "2\\sqrt{2}", seconds=20).equal
    finally:
        grader.close()


def test_grading_works_in_threads():
    found = {}

    def work(number):
        env = MathEnv(data=[{"problem": "?", "answer": f"\\frac{{{number}}}{{2}}"}], seconds=20)
        env.reset(0)
        found[number] = env.step(f"\\boxed{{{number / 2}}}")[1]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(1, 7), 1.0)


ROWS = [{"problem": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(5)]


def taken(env, resets, seed=0):
    rows = [env.reset(seed)[1]["row"]]
    for _ in range(resets - 1):
        rows.append(env.reset()[1]["row"])
    return rows


def test_random_order_sees_every_row_once_an_epoch():
    env = MathEnv(data=ROWS)
    rows = taken(env, 15)
    assert sorted(rows[:5]) == sorted(rows[5:10]) == sorted(rows[10:]) == list(range(5))
    assert len({tuple(rows[at : at + 5]) for at in (0, 5, 10)}) > 1
    assert taken(MathEnv(data=ROWS), 15) == rows
    assert len({tuple(taken(MathEnv(data=ROWS), 5, seed)) for seed in range(10)}) > 3


def test_sequential_order_counts_through_the_rows():
    env = MathEnv(data=ROWS, order="sequential")
    assert [env.reset(seed)[1]["row"] for seed in range(7)] == [0, 1, 2, 3, 4, 0, 1]
    assert taken(env, 4, seed=3) == [3, 4, 0, 1]
    with pytest.raises(EnvError, match="order is 'shuffled'"):
        MathEnv(data=ROWS, order="shuffled")


def test_the_state_of_a_data_environment_goes_on_in_another():
    env = MathEnv(data=ROWS)
    env.reset(1)
    twin = env.spawn(same_state=True)
    assert [twin.reset() for _ in range(7)] == [env.reset() for _ in range(7)]
    other = MathEnv(data=ROWS)
    other.set_state(json.loads(json.dumps(env.get_state())))
    assert other.step("\\boxed{1}") == env.step("\\boxed{1}")


def test_files_of_the_published_format_are_read(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"problem": "What is 2+3?", "answer": "5"}\n')
    env = make("math:GSM8K", data=file)
    text, _ = env.reset(0)
    assert text.startswith("What is 2+3?\n")
    assert env.step("\\boxed{5}")[1] == 1
    env = make("eval:AIME24", data=str(file), instruction="")
    assert env.reset(0)[0] == "What is 2+3?"


def test_tables_of_a_snapshot_are_found_and_splits_chosen(tmp_path):
    for layout in ("", "data", "nq_open"):
        folder = tmp_path / f"set_{layout}" / layout
        folder.mkdir(parents=True)
        for split, answer in (("train", "1"), ("validation", "2")):
            row = json.dumps({"question": "?", "answer": [answer]})
            (folder / f"{split}-00000-of-00001.jsonl").write_text(row + "\n")
        assert table_folder(tmp_path / f"set_{layout}") == folder
        env = make("eval:QaOpen", data=tmp_path / f"set_{layout}")
        env.reset(0)
        assert env.step("<answer>2</answer>")[1] == 1
        with pytest.raises(DataError, match="no split 'nq'"):
            make("eval:NaturalQuestions", data=folder).reset(0)


def test_faults_in_data_are_named(tmp_path):
    env = MathEnv(data=[{"question": "?", "answer": "5"}])
    with pytest.raises(DataError, match="row 0: field 'problem' is missing or empty; there are 'question', 'answer'"):
        env.reset(0)
    with pytest.raises(DataError, match="holds no rows"):
        MathEnv(data=[]).reset(0)
    with pytest.raises(DataError, match="does not exist"):
        MathEnv(data=tmp_path / "none.jsonl").reset(0)
    with pytest.raises(EnvError, match="needs data"):
        MathEnv()
    for tests in ("{", {"inputs": ["1"]}, {"inputs": ["1"], "outputs": []}, {"inputs": [], "outputs": []}):
        env = CodeEnv(data=[{"problem": "?", "answer": "", "tests": tests}])
        env.reset(0)
        with pytest.raises(DataError, match="field 'tests'"):
            env.step("```\nprint(1)\n```")


def test_questions_are_read_from_tag_or_box():
    rows = [{"problem": "Who?", "answer": ["The Beatles", "Beatles"]}]
    for boxed, reply, reward in [
        (False, "<answer>x</answer> <answer>the beatles!</answer>", 1),
        (False, "\\boxed{Beatles}", 0),
        (True, "\\boxed{Beatles}", 1),
        (True, "<answer>Beatles</answer>", 0),
    ]:
        env = QaEnv(data=rows, extract_boxed=boxed)
        env.reset(0)
        assert env.step(reply)[1] == reward
        env.reset()
        assert env.step(env.sample_random_action())[1] == 1


def test_logic_ids_take_rule_taker_rows():
    rows = [{"question": "Bob is big. All big people are kind. Bob is kind?", "answer": "True"}]
    env = make("logic:RuleTaker-d1", data=rows)
    env.reset(0)
    assert env.step("So it is \\boxed{true}.")[1] == 1


CODE = [
    {
        "problem": "Echo the number",
        "tests": json.dumps({"inputs": ["1\n", ["2", "3"]], "outputs": ["1\n", ["2", "3"]]}),
    }
]


@pytest.mark.parametrize(
    ("program", "reward", "how"),
    [
        ("import sys\nprint(sys.stdin.read())", 1, "passed"),
        ("print(input())", 0, "wrong output"),
        ("print(1", 0, "compile error"),
        ("raise ValueError", 0, "runtime error"),
    ],
)
def test_programs_are_judged_by_all_tests(program, reward, how):
    with CodeEnv(data=CODE) as env:
        env.reset(0)
        _, got, terminated, _, info = env.step(f"Here:\n```python\n{program}\n```")
        assert (got, info["how"], terminated) == (reward, how, True)


def test_a_reply_without_a_program_costs_the_format_penalty():
    env = CodeEnv(data=CODE)
    env.reset(0)
    assert env.step("print(1)")[1] == -0.1


def test_the_longest_inputs_are_the_tests_that_run():
    inputs = [str(10**n) for n in range(20)]
    env = CodeEnv(data=[{"problem": "?", "tests": {"inputs": inputs, "outputs": inputs}}])
    env.reset(0)
    kept = [given for given, _ in env.tests(env.rows[0])]
    assert sorted(kept, key=len) == inputs[8:]


def test_code_that_a_sandbox_must_stop_earns_nothing(tmp_path):
    """What the published word filter lets through or stops: here only what the code does counts."""
    marker = tmp_path / "escaped"
    attempts = [
        f"open({str(marker)!r}, 'w').write('x')",
        f"import subprocess\nsubprocess.run(['touch', {str(marker)!r}], check=True)",
        f"from os import system\nraise SystemExit(system('touch {marker}'))",
        "import  socket\nsocket.create_connection(('127.0.0.1', 9), 1)",
    ]
    with CodeEnv(data=[{"problem": "?", "tests": {"inputs": [""], "outputs": [""]}}]) as env:
        for source in attempts:
            env.reset(0)
            env.step(f"```python\n{source}\n```")
            assert not marker.exists()
        for harmless in ("x='import socket'", "import sys\nsys.exit(0)", "import math"):
            env.reset(0)
            assert env.step(f"```python\n{harmless}\n```")[1] == 1


def test_pictures_come_as_arrays(tmp_path):
    from PIL import Image

    Image.new("RGB", (6, 4), (255, 0, 0)).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"problem": "Area?", "answer": "24", "images": ["a.png"]}) + "\n")
    rows = [{"problem": "Area?", "answer": "24", "images": [{"bytes": content, "path": "a.png"}]}]
    for data in (file, rows):
        env = MathVisualEnv(data=data)
        observation, _ = env.reset(0)
        assert observation["image"].shape == (4, 6, 3)
        assert observation["image"].dtype == np.uint8
        assert observation["text"].startswith("Area?")
        assert env.step("\\boxed{24}")[1] == 1
    broken = MathVisualEnv(data=[{"problem": "?", "answer": "1", "images": [b"no picture"]}])
    with pytest.raises(DataError, match="row 0: the picture cannot be read"):
        broken.reset(0)


def test_the_ids_of_the_sheet_are_there():
    families = {family: len(REGISTRY.ids(family)) for family in ("game", "math", "code", "qa", "eval")}
    assert families == {"game": 39, "math": 7, "code": 3, "qa": 2, "eval": 14}
    assert len([name for name in REGISTRY.ids("logic") if "RuleTaker" in name]) == 5
    assert len(GEM24) == len(set(GEM24)) == 24
    assert set(GEM24) <= set(REGISTRY.ids())
    assert set(DATA) <= set(REGISTRY.ids())


def test_every_reasoning_gym_set_is_an_environment():
    pytest.importorskip("reasoning_gym")
    names = REGISTRY.ids("rg")
    assert len(names) >= 100
    env = make("rg:chain_sum", size=10)
    text, info = env.reset(3)
    gold = env.rows[info["row"]]["answer"]
    assert env.rows[info["row"]]["question"] in text
    assert env.step(f"\\boxed{{{gold}}}")[1] == 1
    assert len(env) == 10
    with pytest.raises(EnvError, match="no data set"):
        make("rg:composite").reset(0)


def proofs(facts, rules, goal):
    """Least depth of a proof by backward search; None where there is none."""

    def prove(person, quality, open_goals):
        if (person, quality) in facts:
            return 0
        found = []
        for conditions, conclusion in rules:
            if conclusion == quality and quality not in open_goals:
                steps = [prove(person, condition, open_goals | {quality}) for condition in conditions]
                if None not in steps:
                    found.append(1 + max(steps))
        return min(found, default=None)

    return prove(*goal, frozenset())


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 5])
def test_made_up_theories_are_judged_as_a_backward_prover_does(depth):
    env = make(f"logic:Theories-d{depth}", size=60)
    answers = Counter()
    for row in env.rows:
        text, statement = row["question"].split("\nWhat cannot be concluded is false. True or False: ")
        facts = set(re.findall(r"(\w+) is (\w+)\.", re.sub(r"If .*?\.", "", text)))
        rules = [(c.split(" and "), q) for c, q in re.findall(r"If someone is (.*?) then they are (\w+)\.", text)]
        person, negation, quality = re.fullmatch(r"(\w+) is (not )?(\w+)\.", statement).groups()
        steps = proofs(facts, rules, (person, quality))
        assert row["answer"] == str((steps is not None) != bool(negation))
        assert (steps is not None) == row["follows"]
        if steps is not None:
            assert steps == depth
        answers[row["answer"], row["follows"]] += 1
    assert len(answers) == 4
    env.reset(0)
    assert env.step(f"\\boxed{{{env.rows[env.row]['answer']}}}")[1] == 1
    with pytest.raises(EnvError, match="depth is 10"):
        make("logic:Theories-d1", depth=10)


@pytest.mark.slow
def test_reasoning_gym_sets_give_their_own_answers_full_marks():
    pytest.importorskip("reasoning_gym")
    wrong = []
    for name in REGISTRY.ids("rg"):
        if name == "rg:composite":
            continue
        env = make(name, size=2)
        info = env.reset(0)[1]
        gold = env.rows[info["row"]]["answer"]
        if gold is not None and env.step(f"\\boxed{{{gold}}}")[1] != 1:
            wrong.append(name)
    assert len(wrong) < 15, wrong


def test_entries_are_made_once_and_never_shared_for_writing():
    a, b = make("rg:syllogism", size=5), make("rg:syllogism", size=5)
    assert a.rows[1] == b.rows[1] == a.dataset[1]
    a.rows[1]["question"] = "changed"
    assert b.rows[1] == b.dataset[1]
    assert make("rg:syllogism", size=5, seed=1).rows[1] != a.rows[1]
