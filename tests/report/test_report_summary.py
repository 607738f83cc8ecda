from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from assay.core.metrics import function, mean
from assay.report.conduct import number_format, subject_calls
from assay.report.exchange import ImageBudget
from assay.report.summary import Board, boards, labels
from assay.report.trials import KINDS, choose


@pytest.fixture(scope="module")
def board(three_runs: list[Any]) -> Board:
    return Board(three_runs)


def test_the_headline_comes_first_and_is_ranked_best_first(board: Board) -> None:
    assert board.metrics[0] == "macro_accuracy"
    table = board.ranking("macro_accuracy")
    assert table.frame["system"][0] == "openai:big"
    assert table.frame["value"].to_list() == sorted(table.frame["value"].to_list(), reverse=True)
    assert table.frame["rank"].to_list() == [1, 2, 3]


def test_a_metric_where_lower_is_better_is_ranked_the_other_way(three_runs: list[Any]) -> None:
    class Loss(type(three_runs[0])):  # type: ignore[misc]
        def metrics(self) -> Any:
            return (mean("correct", name="loss", higher_is_better=False),)

    table = Board([Loss(run.path) for run in three_runs]).ranking("loss")
    assert table.frame["system"][-1] == "openai:big"
    assert "lower is better" in str(table.chart.x_title if table.chart else "")


def test_every_value_stands_beside_interval_n_errors_and_unread(board: Board) -> None:
    table = board.ranking("accuracy")
    for row in table.frame.iter_rows(named=True):
        records = board.frames[row["system"]]
        assert row["low"] < row["value"] < row["high"]
        assert row["n"] == records.height == 120
        assert row["errors"] == records.filter(pl.col("status") == "error").height > 0
        # An errored trial counts as wrong: it stays in the denominator.
        assert row["value"] == pytest.approx(records["correct"].fill_null(0).mean())
        assert row["unread"] == pytest.approx(records.filter(pl.col("how") == "unread").height / 120)
    assert any("95 %" in note for note in table.notes)


def test_equal_values_share_a_rank(new_run: Callable[..., Any], tmp_path: Path) -> None:
    runs = [new_run(tmp_path, name, 1.0, error_share=0.0, n=40) for name in ("a", "b")]
    for run in runs:
        run.records = run.records.with_columns(correct=pl.lit(1.0))
    assert Board(runs).ranking("accuracy").frame["rank"].to_list() == [1, 1]


def test_comparisons_name_the_better_system_or_say_that_it_is_open(board: Board) -> None:
    table = board.comparison()
    assert table is not None
    verdicts = {row["pair"]: row["verdict"] for row in table.frame.iter_rows(named=True)}
    assert len(verdicts) == 3
    assert all(v == "openai:big better" for pair, v in verdicts.items() if "openai:big" in pair)
    assert "not decisive" in verdicts.values()
    assert "openai:big leads decisively" in board.verdict()


def test_one_run_has_no_comparison_and_says_so(three_runs: list[Any]) -> None:
    board = Board(three_runs[:1])
    assert board.comparison() is None
    assert "only one system" in board.verdict()


def test_groups_are_broken_down_by_value_and_system(board: Board) -> None:
    assert board.groups == ["concept", "lines"]
    table = board.by_group("concept", "accuracy")
    assert table is not None
    assert table.frame.height == 4 * 3
    assert set(table.frame["concept"]) == {"cat", "boat", "tree", "lamp"}
    assert table.frame.group_by("system").agg(pl.col("n").sum())["n"].to_list() == [120] * 3


def test_numbers_as_group_values_stand_in_numeric_order(new_run: Callable[..., Any], tmp_path: Path) -> None:
    run = new_run(tmp_path, "a", 0.5)
    run.samples = run.samples.with_columns(lines=pl.col("index") % 12)
    run.records = run.records.with_columns(lines=pl.col("index") % 12)
    table = Board([run]).by_group("lines", "accuracy")
    assert table is not None
    assert table.frame["lines"].to_list() == [str(i) for i in range(12)]


def test_costs_are_those_of_the_subject_alone(board: Board) -> None:
    frame = board.costs().frame
    rows = {row["system"]: row for row in frame.iter_rows(named=True)}
    assert rows["openai:big"]["usd_a_trial"] == pytest.approx(0.004)
    assert rows["openai:big"]["usd_total"] == pytest.approx(0.48)
    # The judge's 9999 prompt tokens a trial are not the subject's.
    assert rows["openai:big"]["prompt_tokens"] < 250


def test_calls_without_a_price_are_missing_not_free(new_run: Callable[..., Any], tmp_path: Path) -> None:
    run = new_run(tmp_path, "a", 0.5, usd=None)
    calls = subject_calls(run.records)
    assert calls["cost"].null_count() == calls.height == 120
    table = Board([run]).costs()
    assert "usd_a_trial" not in table.frame.columns
    assert any("120 trials called a model with no known price" in note for note in table.notes)


def test_endings_add_up_and_tell_the_share_cut_by_length(board: Board) -> None:
    table = board.endings()
    assert table.frame.group_by("system").agg(pl.col("share").sum())["share"].to_list() == pytest.approx([1.0] * 3)
    assert table.frame.group_by("system").agg(pl.col("trials").sum())["trials"].to_list() == [120] * 3
    assert any(note.startswith("Cut by the length limit: ") for note in table.notes)


def test_errors_are_counted_by_system_and_kind(board: Board) -> None:
    table = board.errors()
    assert table is not None
    errored = sum(f.filter(pl.col("status") == "error").height for f in board.frames.values())
    assert table.frame["trials"].sum() == errored
    assert set(table.frame["error"]) <= {"ProviderError", "TimeoutError"}


def test_runs_of_one_system_are_told_apart_by_what_differs(new_run: Callable[..., Any], tmp_path: Path) -> None:
    runs = [new_run(tmp_path, "a", 0.5, seed=seed, n=20) for seed in (1, 2)]
    assert labels(runs) == ["a (seed 1)", "a (seed 2)"]
    runs[0].info["options"] = {"size": 3}
    assert labels(runs)[0] == "a (size=3, seed 1)"


def test_runs_of_several_benchmarks_get_a_board_each(new_run: Callable[..., Any], tmp_path: Path) -> None:
    runs = [new_run(tmp_path, "a", 0.5, benchmark=name, n=20) for name in ("one", "two", "three")]
    assert [board.benchmark for board in boards(runs)] == ["one", "two", "three"]


def test_a_benchmark_that_is_not_installed_is_summarised_by_its_scores(three_runs: list[Any]) -> None:
    from assay.core.results import Run

    board = Board([Run(run.path) for run in three_runs])
    assert board.metrics == ["correct"]
    assert board.ranking("correct").frame["system"][0] == "openai:big"


def test_a_run_without_records_is_summarised_without_failing(new_run: Callable[..., Any], tmp_path: Path) -> None:
    run = new_run(tmp_path, "a", 0.5, n=20)
    run.records = run.records.clear()
    board = Board([run])
    assert board.tables()
    assert board.verdict()


def test_trials_are_chosen_evenly_from_all_kinds_and_counted(board: Board) -> None:
    choice = choose(board, ImageBudget())
    assert {trial.kind for trial in choice.trials} == {"error", "unread", "low", "full"}
    for kind in KINDS:
        assert choice.shown(kind) <= choice.total(kind)
    assert sum(choice.total(kind) for kind in KINDS) == board.n_records
    low = [trial for trial in choice.trials if trial.kind == "low" and trial.system == "local:smollm2"]
    places = [int(trial.sample[1:]) for trial in low]
    # From the beginning to the end of the run, not its first trials.
    assert places == sorted(places)
    assert places[0] < 10
    assert places[-1] > 105


def test_a_rare_error_is_shown_beside_a_common_one(new_run: Callable[..., Any], tmp_path: Path) -> None:
    run = new_run(tmp_path, "a", 0.5, n=200, error_share=0.9)
    rare = pl.when(pl.col("index") == run.records.filter(pl.col("status") == "error")["index"][-1])
    run.records = run.records.with_columns(error_type=rare.then(pl.lit("Rare")).otherwise("error_type"))
    shown = [trial.error for trial in choose(Board([run]), ImageBudget()).trials if trial.kind == "error"]
    assert any(error.startswith("Rare") for error in shown)


def test_unread_answers_are_those_of_the_benchmarks_own_rate(board: Board) -> None:
    for label, frame in board.frames.items():
        rule = board.is_unread(label)
        assert rule is not None
        unread = frame.filter(rule)
        assert set(unread["how"]) == {"unread"}
        assert board.unread(label) == pytest.approx(unread.height / frame.height)


def test_a_metric_with_groups_of_its_own_is_broken_down_once(three_runs: list[Any]) -> None:
    class Grouped(type(three_runs[0])):  # type: ignore[misc]
        def metrics(self) -> Any:
            return (mean("correct", by=("concept",), headline=True),)

    board = Board([Grouped(run.path) for run in three_runs])
    table = board.by_group("concept", "correct")
    assert table is not None
    assert table.frame.height == 4 * 3


def test_many_systems_are_drawn_as_cells_instead_of_rows(new_run: Callable[..., Any], tmp_path: Path) -> None:
    runs = [new_run(tmp_path, f"m{i:02d}", 0.3 + 0.05 * i, n=40) for i in range(13)]
    board = Board(runs)
    table = board.comparison()
    assert table is not None
    assert table.frame.height == 12 * 11 // 2
    assert any("best 12 of 13" in note for note in table.notes)
    by_group = board.by_group("concept", "accuracy")
    for drawn in (table, by_group):
        assert drawn is not None
        assert drawn.chart is not None
        assert drawn.chart.kind == "heatmap"


def test_low_and_full_follow_a_score_whose_direction_is_known(new_run: Callable[..., Any], tmp_path: Path) -> None:
    run = new_run(tmp_path, "a", 0.5)
    cost = function("dollars", lambda f: f["correct"].len() / f["correct"].sum(), higher_is_better=False, headline=True)

    class Dollars(type(run)):  # type: ignore[misc]
        metrics_given: Any = ()

        def metrics(self) -> Any:
            return self.metrics_given

    mixed, alone = Dollars(run.path), Dollars(run.path)
    mixed.metrics_given, alone.metrics_given = (cost, mean("correct")), (cost,)
    assert Board([mixed]).headline == "dollars"
    assert Board([mixed]).trial_score() == ("correct", True)
    scores = {trial.kind: trial.score for trial in choose(Board([mixed]), ImageBudget()).trials if trial.score}
    assert scores["low"] == "0"
    assert scores["full"] == "1"
    assert {trial.kind for trial in choose(Board([alone]), ImageBudget()).trials} == {"error", "some"}


def test_a_group_that_names_single_samples_is_not_broken_down(new_run: Callable[..., Any], tmp_path: Path) -> None:
    run = new_run(tmp_path, "a", 0.5, n=30)
    run.samples = run.samples.with_columns(lines=pl.col("index"))
    assert Board([run]).groups == ["concept"]


@pytest.mark.parametrize(("values", "spec"), [([0.5, 1.0], ".3f"), ([2e-4], ".4g"), ([12.0], ".4g"), ([None], ".4g")])
def test_numbers_keep_the_digits_that_matter(values: list[float | None], spec: str) -> None:
    assert number_format(values) == spec
