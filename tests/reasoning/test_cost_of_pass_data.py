"""Data sets: addition made here, the others in their sources' layouts, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from assay.core.errors import DataError, UsageError
from assay.reasoning.cost_of_pass import data
from assay.reasoning.cost_of_pass.experts import expert_costs, published_class, references
from assay.reasoning.cost_of_pass.sampling import published_sample

SAVED = Path(__file__).parents[1] / "oracles" / "cost_of_pass" / "Basic_Two_Digit_Addition"


def lines(path: Path, *rows: dict) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_additions_are_right_different_and_always_the_same():
    problems = data.addition()
    assert len({p.id for p in problems}) == 250
    for problem in problems:
        a, b = map(int, problem.id.split("+"))
        assert 0 <= a <= 99
        assert 0 <= b <= 99
        assert problem.question == f"What is {a} + {b}?"
        assert problem.target == str(a + b)
    assert data.fingerprint(problems) == data.fingerprint(data.addition())
    assert [p.id for p in problems[:3]] == [p.id for p in data.addition(3)]


def test_a_folder_saved_by_datasets_is_read():
    problems = data.load("addition", SAVED, n=None)
    assert len(problems) == 250
    assert (problems[0].question, problems[0].target, problems[0].id) == ("What is 64 + 66?", "130", "64+66")
    assert data.load("addition", SAVED.parent, n=None) == problems
    chosen = data.load("TwoDigitAddition", SAVED)
    assert [p.position for p in chosen] == published_sample(128, 250)


def test_gsm8k_rows_lose_their_working(tmp_path):
    lines(tmp_path / "gsm8k.jsonl", {"question": "How many?", "answer": "2 + 3 = 5 <<2+3=5>>\n#### 1,005 Apples"})
    (problem,) = data.load("gsm8k", tmp_path, n=None)
    assert (problem.target, problem.id) == ("1,005 apples", data.digest("How many?"))


def test_math500_and_aime_keep_the_ids_of_their_sources(tmp_path):
    lines(
        tmp_path / "MATH500.jsonl",
        {"problem": "p", "answer": "\\frac12", "unique_id": "test/algebra/1.json", "level": 3},
    )
    lines(tmp_path / "aime_2024.jsonl", {"ID": "2024-I-4", "Problem": "q", "Answer": 116})
    (algebra,) = data.load("math500", tmp_path, n=None)
    assert (algebra.id, algebra.target, algebra.groups) == ("test/algebra/1.json", "\\frac12", {"level": 3})
    (aime,) = data.load("aime_2024", tmp_path, n=None)
    assert (aime.id, aime.target) == ("2024-I-4", "116")


def bbq(example: int, condition: str, label: int) -> dict:
    return {
        "category": "Age", "example_id": example, "context_condition": condition, "context": "C.", "question": "Q?",
        "ans0": "x", "ans1": "y", "ans2": "z", "answer_label": label,
    }  # fmt: skip


def test_bbq_takes_all_splits_and_filters_by_condition(tmp_path):
    folder = tmp_path / "BBQ"
    folder.mkdir()
    lines(folder / "a.jsonl", bbq(0, "ambig", 2))
    lines(folder / "b.jsonl", bbq(1, "disambig", 0))
    both = data.load("bbq", tmp_path, n=None)
    assert both[0].question == "C. Q?\n(a) x\n(b) y\n(c) z"
    assert [p.target for p in both] == ["(c)", "(a)"]
    assert [p.id for p in data.load("bbq", tmp_path, n=None, context_condition="disambig")] == ["Age-1"]
    with pytest.raises(UsageError, match="ambig and disambig"):
        data.load("bbq", tmp_path, context_condition="clear")
    with pytest.raises(UsageError, match="Only bbq has context conditions"):
        data.load("addition", context_condition="ambig")


def test_gpqa_options_have_an_order_that_does_not_betray_the_answer(tmp_path):
    rows = [
        {"Question": f"q{i}", "Correct Answer": "right", "Record ID": f"r{i}"}
        | {f"Incorrect Answer {k}": f"wrong {k}" for k in (1, 2, 3)}
        for i in range(60)
    ]
    lines(tmp_path / "gpqa_diamond.jsonl", *rows)
    problems = data.load("gpqa_diamond", tmp_path, n=None)
    for problem in problems:
        assert f"{problem.target} right" in problem.question
    assert {p.target for p in problems} == {"(A)", "(B)", "(C)", "(D)"}
    assert problems == data.load("gpqa_diamond", tmp_path, n=None)


def test_prepared_rows_and_other_formats_are_read(tmp_path):
    pl.DataFrame({"input": ["q"], "target": ["(C)"]}).write_parquet(tmp_path / "gpqa_diamond.parquet")
    pl.DataFrame({"input": ["q"], "target": ["5"]}).write_ipc(tmp_path / "gsm8k.arrow")
    pl.DataFrame({"question": ["q"], "answer": ["w #### 6"]}).write_csv(tmp_path / "GSM8K.csv")
    assert data.load("gpqa_diamond", tmp_path)[0].target == "(C)"
    assert data.load("gsm8k", tmp_path / "gsm8k.arrow")[0].target == "5"
    assert data.load("gsm8k", tmp_path / "GSM8K.csv")[0].target == "6"


def test_the_right_split_of_a_hub_folder_is_taken(tmp_path):
    folder = tmp_path / "gsm8k" / "main"
    folder.mkdir(parents=True)
    for part in ("train", "test"):
        pl.DataFrame({"question": [part], "answer": ["#### 1"]}).write_parquet(
            folder / f"{part}-00000-of-00001.parquet"
        )
    assert [p.question for p in data.load("gsm8k", tmp_path, n=None)] == ["test"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "q"}, "line 2: field 'answer' is missing for 'gsm8k'; the row has question"),
        ({"question": "q", "answer": "no mark ####"}, "line 2: the target is empty"),
        ({"question": " ", "answer": "#### 1"}, "line 2: the question is empty"),
        ({"question": "first", "answer": "#### 1"}, "line 2: id .* stands at .*line 1 already"),
    ],
)
def test_bad_rows_are_named(tmp_path, row, message):
    lines(tmp_path / "gsm8k.jsonl", {"question": "first", "answer": "#### 1"}, row)
    with pytest.raises(DataError, match=message):
        data.load("gsm8k", tmp_path)


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("custom", {"input": None, "target": "3"}, "line 1: .*field 'input' is empty"),
        ("custom", {"input": "q", "target": None}, "line 1: .*field 'target' is empty"),
        ("custom", {"input": {"a": 1}, "target": "3"}, "field 'input' is {'a': 1}, not a text or number"),
        ("custom", {"input": "q", "target": True}, "field 'target' is True"),
        ("gsm8k", {"question": "q", "answer": None}, "field 'answer' is empty"),
        ("math500", {"problem": None, "answer": "1"}, "field 'problem' is empty"),
        ("aime_2024", {"Problem": "p", "Answer": None}, "field 'answer' is empty"),
        ("bbq", bbq(0, "ambig", -1), "field 'answer_label' is -1, not 0, 1 or 2"),
        ("bbq", bbq(0, "ambig", 3), "field 'answer_label' is 3, not 0, 1 or 2"),
        ("bbq", bbq(0, "ambig", 0) | {"ans2": None}, "field 'ans2' is empty"),
        (
            "gpqa_diamond",
            {"Question": "q", "Correct Answer": "x", **{f"Incorrect Answer {i}": v for i, v in enumerate("yxz", 1)}},
            "right answer stands among the wrong ones",
        ),
    ],
)
def test_nothing_is_asked_or_matched_that_a_row_does_not_say(tmp_path, name, row, message):
    path = lines(tmp_path / f"{name}.jsonl", row)
    one = data.custom_data_set("exact", "text", "mine") if name == "custom" else data.data_set(name)
    with pytest.raises(DataError, match=message):
        data.read_problems(one, path)


def test_an_empty_field_of_a_table_is_no_answer(tmp_path):
    (tmp_path / "own.csv").write_text("input,target\na,\nb,3\n", encoding="utf-8")
    own = data.custom_data_set("exact", "text", "mine")
    with pytest.raises(DataError, match=r"row 1: .*field 'target' is empty"):
        data.read_problems(own, tmp_path / "own.csv")
    (tmp_path / "own.csv").write_text("\ufeffinput,target\r\na,2\r\nb,3\r\n", encoding="utf-8")
    assert [(p.question, p.target) for p in data.read_problems(own, tmp_path / "own.csv")] == [("a", "2"), ("b", "3")]


def test_what_is_not_there_is_said_with_the_way_to_get_it(tmp_path):
    with pytest.raises(UsageError, match=r"'gsm8k' \(hf:openai/gsm8k .* put it as GSM8K.jsonl .* data=FOLDER"):
        data.load("gsm8k")
    with pytest.raises(UsageError, match="is not part of assay"):
        data.load("gsm8k", tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        data.load("gsm8k", tmp_path / "nowhere")
    with pytest.raises(UsageError, match="There is no data set 'gsm8'; did you mean 'gsm8k'"):
        data.load("gsm8")
    (tmp_path / "gsm8k").mkdir()
    with pytest.raises(DataError, match="no data file"):
        data.load("gsm8k", tmp_path)


def test_available_data_sets_and_their_provenance(tmp_path):
    assert data.available(None) == ["addition"]
    lines(tmp_path / "gsm8k.jsonl", {"question": "q", "answer": "#### 1"})
    assert data.available(tmp_path) == ["addition", "gsm8k"]
    both = [data.data_set(name) for name in ("addition", "gsm8k")]
    found = data.provenance(both, tmp_path)
    assert found["kind"] == "real"
    assert found["source"]["addition"] == "made by assay"
    assert "openai/gsm8k" in found["source"]["gsm8k"]
    assert data.provenance(both[:1], None)["kind"] == "generated"


def test_every_data_set_has_an_expert_cost_and_the_published_one():
    assert dict(expert_costs()) == {
        "addition": 0.02, "gsm8k": 3.5, "bbq": 0.1, "gpqa_diamond": 58.0, "math500": 12.0, "aime_2024": 20.0,
    }  # fmt: skip
    assert set(expert_costs()) == set(data.DATA_SETS)


def test_references_name_confirmed_values_that_exist():
    published = references()
    assert len(published["confirmed"]) == 7
    for model, task in published["confirmed"]:
        assert published["single_model_frontier"][model][task] > 0
    assert set(published["single_model_frontier"]) == set(published["models"])
    assert published_class("openai:gpt-4o-mini") == "lightweight"
    assert published_class("together:deepseek-ai/DeepSeek-R1") == "reasoning"
    assert published_class("gpt-9") is None
