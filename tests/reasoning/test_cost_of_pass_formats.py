"""Published records written and read again; logs of inspect-ai and lm-evaluation-harness."""

from __future__ import annotations

import json
import zipfile

import polars as pl
import pytest

from assay.core.errors import DataError, UsageError
from assay.reasoning.cost_of_pass.estimator import CostOfPass
from assay.reasoning.cost_of_pass.formats import RecordStore, incomplete, read_records
from assay.reasoning.cost_of_pass.logs import read_inspect, read_lm_eval
from assay.reasoning.cost_of_pass.prices import PriceBook, Tariff

KEY = ("TwoDigitAddition", "org/model-7b", "VanillaPromptMethod")


def metric_rows(*pairs: tuple[int, float, bool], task: str = KEY[0], model: str = KEY[1]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "model_name": model, "task_name": task, "tt_method_name": KEY[2], "input_idx": idx, "answer": "4",
                "num_input_tokens": 5, "num_prompt_tokens": 612, "num_completion_tokens": 2210, "num_answer_tokens": 1,
                "cost_per_prompt_token": 3e-6, "cost_per_completion_token": 7e-6, "completed": done,
                "metric_name": "MathExpressionMatch", "metric_score": score,
            }
            for idx, score, done in pairs
        ]
    )  # fmt: skip


METRIC = "MathExpressionMatch"


def test_records_lie_where_the_published_layout_has_them(tmp_path):
    store = RecordStore(tmp_path)
    store.write(metric_rows((4, 1.0, True), (4, 0.0, True)), METRIC)
    folder = tmp_path / "TwoDigitAddition" / "org" / "model-7b" / "VanillaPromptMethod"
    assert (folder / "MathExpressionMatch_records" / "dataset.parquet").is_file()
    assert json.loads((folder / "metadata.json").read_text()) == {
        "MathExpressionMatch_records": {"n_runs": 2, "n_queries": 1, "n_records": 2, "n_completed": 2}
    }
    back = read_records(tmp_path)
    assert back.columns[:4] == ["model_name", "task_name", "tt_method_name", "input_idx"]
    assert CostOfPass(back, 20.0).values[0, 0] == pytest.approx((612 * 3e-6 + 2210 * 7e-6) / 0.5)


def test_appending_overwriting_trimming_and_what_is_missing(tmp_path):
    store = RecordStore(tmp_path)
    store.write(metric_rows((0, 1.0, True), (0, 0.0, False), (1, 1.0, True)), METRIC)
    store.write(metric_rows((0, 1.0, True)), METRIC)
    assert store.read(*KEY, METRIC).height == 4
    assert store.missing(*KEY, [0, 1, 2], 2, METRIC) == {1: 1, 2: 2}
    assert store.trim(*KEY, 2, METRIC) == 1
    assert store.read(*KEY, METRIC)["completed"].to_list() == [True, True, True]  # the incomplete one went first
    store.write(metric_rows((7, 1.0, True)), METRIC, mode="overwrite")
    assert store.read(*KEY, METRIC)["input_idx"].to_list() == [7]


def test_failed_records_can_be_dropped_to_run_again(tmp_path):
    store = RecordStore(tmp_path)
    store.write(metric_rows((0, 1.0, True), (0, 0.0, False)), METRIC)
    assert store.drop_failed(*KEY, METRIC) == 1
    assert store.missing(*KEY, [0], 2, METRIC) == {0: 1}
    assert store.metadata(*KEY)["MathExpressionMatch_records"]["n_completed"] == 1


def test_a_record_is_never_stored_twice(tmp_path):
    store = RecordStore(tmp_path)
    rows = metric_rows((0, 1.0, True)).with_columns(uid=pl.lit("u1"))
    store.write(rows, METRIC)
    with pytest.raises(DataError, match=r"Record 'u1' of .* is there already"):
        store.write(rows, METRIC)


@pytest.mark.parametrize("name", ["../x", "a//b", "a\\b", ""])
def test_names_cannot_lead_out_of_the_store(tmp_path, name):
    with pytest.raises(UsageError, match="cannot be a folder"):
        RecordStore(tmp_path).folder("task", name, "t")


def test_incomplete_records_are_known_by_flag_or_by_their_answer(tmp_path):
    rows = metric_rows((0, 0.0, True), (1, 1.0, True)).with_columns(
        completed=pl.lit(None, pl.Boolean), answer=pl.Series([incomplete("half"), "4"])
    )
    path = tmp_path / "dataset.parquet"
    rows.write_parquet(path)
    back = read_records(path)
    assert back["completed"].to_list() == [False, True]
    with pytest.raises(DataError, match="1 of 2 records are incomplete"):
        CostOfPass(back)
    assert CostOfPass(back, errors="exclude").cells.problems == ("1",)
    assert incomplete(incomplete("x")) == incomplete("x")


def test_missing_files_and_columns_are_named(tmp_path):
    with pytest.raises(DataError, match="no metric records here"):
        read_records(tmp_path)
    metric_rows((0, 1.0, True)).drop("answer").write_parquet(tmp_path / "dataset.parquet")
    with pytest.raises(DataError, match="column 'answer' is missing"):
        read_records(tmp_path / "dataset.parquet")
    (tmp_path / "dataset.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_records(tmp_path / "dataset.parquet")
    with pytest.raises(DataError, match="Column 'metric_score' is missing"):
        RecordStore(tmp_path).write(metric_rows((0, 1.0, True)).drop("metric_score"), METRIC)


# -- inspect-ai --------------------------------------------------------------------------------------------------------


def inspect_sample(id: int, epoch: int, value: object, *, error: bool = False, cost: float | None = None) -> dict:
    usage = {
        "input_tokens": 66, "output_tokens": 30, "total_tokens": 146, "input_tokens_cache_read": 50,
        "reasoning_tokens": 20,
    } | ({} if cost is None else {"total_cost": cost})  # fmt: skip
    return {
        "id": id, "epoch": epoch, "input": "q", "target": "a", "total_time": 2.5,
        "scores": {"match": {"value": value}, "judge": {"value": 0.25}},
        "model_usage": {"openai/gpt-4o-mini": usage, "openai/grader": {"input_tokens": 9999, "output_tokens": 9999}},
        "error": {"message": "boom"} if error else None,
    }  # fmt: skip


def inspect_log(samples: list[dict]) -> dict:
    about = {"task": "popularity", "model": "openai/gpt-4o-mini"}
    return {"version": 2, "status": "success", "eval": about, "samples": samples}


def test_logs_of_inspect_are_read_from_json_and_eval(tmp_path):
    samples = [inspect_sample(1, 1, "C"), inspect_sample(1, 2, "I"), inspect_sample(2, 1, 1.0)]
    (tmp_path / "a.json").write_text(json.dumps(inspect_log(samples)))
    with zipfile.ZipFile(tmp_path / "b.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        header = inspect_log([])
        del header["samples"]
        archive.writestr("header.json", json.dumps(header))
        for sample in samples:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
    a, b = (read_inspect(tmp_path / name) for name in ("a.json", "b.eval"))
    assert a.equals(b)
    row = a.row(0, named=True)
    assert (row["prompt_tokens"], row["cached_tokens"]) == (116, 50)
    assert (row["completion_tokens"], row["reasoning_tokens"]) == (30, 20)  # a part of the output, not added to it
    assert a["correct"].to_list() == [1.0, 0.0, 1.0]
    book = PriceBook([Tariff.of("openai/gpt-4o-mini", 1.0, 2.0, cached=0.5)], lists=False)
    cop = CostOfPass(a, 5.0, prices=book)
    one = (66 + 25 + 60) / 1e6
    assert cop.values.tolist() == [pytest.approx([2 * one, one])]


def test_errors_scorers_and_costs_of_inspect_logs(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps(inspect_log([inspect_sample(1, 1, "C", cost=0.5), inspect_sample(1, 2, "C", error=True)]))
    )
    frame = read_inspect(path)
    assert frame["status"].to_list() == ["ok", "error"]
    assert CostOfPass(frame.filter(pl.col("status") == "ok"), 5.0).values[0, 0] == 0.5
    assert read_inspect(path, scorer="judge")["correct"][0] == 0.25
    with pytest.raises(UsageError, match="There is no scorer 'jugde'; did you mean 'judge'"):
        read_inspect(path, scorer="jugde")
    path.write_text(json.dumps(inspect_log([inspect_sample(1, 1, {"a": 1})])))
    with pytest.raises(DataError, match=r"sample 1, epoch 1: value .* of scorer 'match' is no number"):
        read_inspect(path)
    path.write_text(json.dumps(inspect_log([inspect_sample(1, 1, "C") | {"scores": None}])))
    with pytest.raises(DataError, match="not scored"):
        read_inspect(path)


def test_what_is_no_log_of_inspect_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(DataError, match="not a log of inspect-ai"):
        read_inspect(tmp_path / "x.json")
    (tmp_path / "x.eval").write_bytes(b"nothing")
    with pytest.raises(DataError, match="not a log of inspect-ai"):
        read_inspect(tmp_path / "x.eval")
    with pytest.raises(UsageError, match="does not exist"):
        read_inspect(tmp_path / "y.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no log"):
        read_inspect(tmp_path / "empty")


# -- lm-evaluation-harness ---------------------------------------------------------------------------------------------


def lm_eval_row(doc: int, score: float, filter: str, arguments: object = None) -> dict:
    arguments = {"gen_args_0": {"arg_0": "one two three", "arg_1": {}}} if arguments is None else arguments
    return {
        "doc_id": doc, "doc": {}, "target": "5", "arguments": arguments, "resps": [["four five"]],
        "filtered_resps": ["5"], "filter": filter, "metrics": ["exact_match"], "exact_match": score,
    }  # fmt: skip


def test_samples_of_lm_eval_are_read_and_counted(tmp_path):
    folder = tmp_path / "org__model"
    folder.mkdir()
    path = folder / "samples_gsm8k_2025-01-01T00-00-00.jsonl"
    rows = [lm_eval_row(0, 1.0, "strict"), lm_eval_row(0, 0.0, "flexible"), lm_eval_row(1, 0.0, "strict")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame = read_lm_eval(folder, count=lambda text: len(text.split()))
    assert frame.to_dicts()[0] == {
        "task": "gsm8k", "model": "org__model", "sample": "0", "attempt": 0, "correct": 1.0, "prompt_tokens": 3,
        "completion_tokens": 2,
    }  # fmt: skip
    assert frame["correct"].to_list() == [1.0, 0.0]
    assert read_lm_eval(path, count=len, filter="flexible")["correct"].to_list() == [0.0]
    book = PriceBook([Tariff.of("org__model", 1e6, 1e6)], lists=False)
    assert CostOfPass(frame, 9.0, prices=book).values[0].tolist() == [5.0, float("inf")]


def test_older_samples_of_lm_eval_with_lists_of_arguments(tmp_path):
    path = tmp_path / "samples_t.jsonl"
    path.write_text(json.dumps(lm_eval_row(0, 1.0, "none", [["a b", {}]])) + "\n")
    assert read_lm_eval(path, count=lambda t: len(t.split()), model="m")["prompt_tokens"].to_list() == [2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resps": None}, "not a sample of generated text"),
        ({"resps": [[[-1.5, False]]]}, "log-likelihood tasks have no answer to price"),
        ({"arguments": {}}, "not a sample of generated text"),
    ],
)
def test_samples_without_generated_text_are_refused(tmp_path, change, message):
    path = tmp_path / "samples_t.jsonl"
    path.write_text(json.dumps(lm_eval_row(0, 1.0, "none") | change) + "\n")
    with pytest.raises(DataError, match=message):
        read_lm_eval(path, count=len)


def test_a_metric_that_a_sample_lacks_is_named(tmp_path):
    path = tmp_path / "samples_t.jsonl"
    path.write_text(json.dumps(lm_eval_row(0, 1.0, "none")) + "\n")
    with pytest.raises(DataError, match="line 1: no metric 'acc'; there are exact_match"):
        read_lm_eval(path, count=len, metric="acc")
