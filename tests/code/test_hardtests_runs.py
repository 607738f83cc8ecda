"""hardtests through the engine: studies, analyses, recipes, submissions, models that write programs, conformance."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from assay.code.hardtests.benchmark import HardTests
from assay.code.hardtests.data import load_problems, read_suites
from assay.code.hardtests.makers import ModelOutputs, Pipeline
from assay.code.hardtests.reproduce import checks, report
from assay.core.analyze import analyze
from assay.core.errors import UsageError
from assay.core.map import make
from assay.core.plan import Selection
from assay.core.registry import benchmark_entries
from assay.core.results import Run, Runs
from assay.core.run import run as core_run
from assay.systems.scripted import ScriptedChatModel

run = partial(core_run, loading="assay.systems.loading")
KIT_REPLIES = {
    "checks": {
        "input_validator": "def validate_input(input_str):\n    return 1 <= int(input_str) <= 100\n",
        "needs_custom_output_judging_function": False,
        "output_judging_function": None,
    },
    "inputs": {
        "LLMGen_input": ["8\n", "7\n", "101\n"],
        "RPGen_SPGen_input_generator": "import random\n"
        "def gen_stratified_input_yes():\n    return f'{2 * random.randint(2, 50)}\\n'\n"
        "def gen_stratified_input_no():\n    return f'{random.randrange(1, 100, 2)}\\n'\n",
        "HackGen_input_generator": "def gen_hacking_input_two():\n    return '2\\n'\n",
    },
}


def kit_writer() -> ScriptedChatModel:
    """Answers both prompts of the kit of even_split."""

    def answer(messages, rng):
        kind = "checks" if "output_judging_function(input_str" in messages[0]["content"] else "inputs"
        return f"# Analysis\nShort.\n# Result\n```json\n{json.dumps(KIT_REPLIES[kind])}\n```"

    return ScriptedChatModel(answer, name="kit writer")


def entry(factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch) -> None:
    """The entry points, where the package's own are not there yet."""
    if "hardtests" in benchmark_entries():
        return
    info = factory.mktemp("entry") / "hardtests-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hardtests\nVersion: 0\n")
    module = "assay.code.hardtests.benchmark"
    (info / "entry_points.txt").write_text(
        f"[assay.benchmarks]\nhardtests = {module}:HardTests\nhardtests-code = {module}:HardTestsCode\n"
    )
    patch.syspath_prepend(str(info.parent))


@pytest.fixture(scope="module", autouse=True)
def _entry(tmp_path_factory, box):
    with pytest.MonkeyPatch.context() as patch:
        entry(tmp_path_factory, patch)
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    folder = tmp_path_factory.mktemp("runs")
    small = Selection(ids=("even_split", "double_or_triple"))
    return Runs(
        [
            run("hardtests", system, options={"data": "mini"}, samples=small, into=folder / str(i))
            for i, system in enumerate(("method:public", "method:full?quota=10"))
        ]
    )


def test_a_study_counts_what_suites_accept(runs):
    for study in runs:
        records = study.records
        assert set(records["status"]) == {"ok"}
        for row in records.iter_rows(named=True):
            assert row["tp"] + row["fn"] == row["correct_programs"] == 2
            assert row["fp"] + row["tn"] == row["faulty_programs"] == 3
    weak, full = ({s.metric: s.value for s in study.scores() if not s.by} for study in runs)
    assert weak["precision"] < 1
    assert full == full | {"precision": 1.0, "recall": 1.0, "suites_made": 1.0}


def test_analyses_agree_with_the_scores_and_one_another(runs):
    frame = analyze("hardtests.quality", runs)[0].frame
    full = frame.row(by_predicate=pl.col("system") == "method:full?quota=10", named=True)
    assert (full["precision"], full["recall"], full["fp"]) == (1.0, 1.0, 0)
    assert set(analyze("hardtests.quality", runs, by="language")[0].frame["language"]) <= {"python3", "cpp"}
    ladder = analyze("hardtests.ladder", Runs([runs[1]]))[0].frame
    assert ladder["fp"].is_sorted(descending=True)
    assert ladder["precision"][-1] == 1.0
    kills, living = analyze("hardtests.kills", Runs([runs[1]]))
    assert living.frame.is_empty()
    assert (kills.frame["alone"] <= kills.frame["kills"]).all()
    minimal = analyze("hardtests.minimal", Runs([runs[1]]))[0].frame
    assert (minimal["minimal"] <= 3).all()
    assert (minimal["times_fewer"] > 3).all()
    between = analyze("hardtests.tests_between", runs)[0].frame.row(0, named=True)
    assert between["only_a_right"] == 0
    assert between["only_b_right"] == frame.filter(pl.col("system") == "method:public")["fp"].item()
    sure = analyze("hardtests.confidence", runs, prior=0.3)[0].frame
    assert sure.filter(pl.col("system") == full["system"])["posterior"].item() == sure["posterior"].max()
    assert set(analyze("hardtests.generators", runs)[0].frame["generator"]) >= {"Public", "HackGen"}
    with pytest.raises(UsageError, match="by='level'"):
        analyze("hardtests.quality", runs, by="level")


@pytest.fixture(scope="module")
def suites(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("suites")
    problems = folder / "problems"
    problems.mkdir()
    from importlib.resources import files

    source = files("assay.code.hardtests") / "problems"
    for pid in ("even_split", "apart_permutation"):
        (problems / f"{pid}.toml").write_text((source / f"{pid}.toml").read_text())
    make(
        "hardtests.suites",
        folder / "out",
        problems=str(problems),
        num_RPGen_SPGen_input=3,
        num_HackGen_input_per_func=2,
    )
    return folder / "out"


def test_suites_of_many_problems_are_made_once(suites):
    manifest = json.loads((suites / "manifest.json").read_text())
    assert manifest["counts"] == {"success": 2}
    before = {p.name: p.stat().st_mtime_ns for p in (suites / "suites").iterdir()}
    make(
        "hardtests.suites",
        suites,
        problems=str(suites.parent / "problems"),
        num_RPGen_SPGen_input=3,
        num_HackGen_input_per_func=2,
    )
    assert {p.name: p.stat().st_mtime_ns for p in (suites / "suites").iterdir()} == before
    assert "2 problems" in (suites / "README.md").read_text()


def test_a_folder_of_suites_is_a_submission_and_can_be_scored_again(suites, tmp_path):
    from assay.core.rescore import rescore

    found = run(
        "hardtests", f"submission:{suites}", options={"data": str(suites.parent / "problems")}, into=tmp_path / "run"
    )
    assert found.records.filter(pl.col("status") == "ok").height == 2
    again = rescore(found, loading="assay.systems.loading")
    columns = ["sample", "tp", "fp", "fn", "tn", "tests"]
    assert again.records.select(columns).equals(found.records.select(columns))


def test_labelled_programs_can_be_a_referee_s_secret(suites, tmp_path):
    from assay.server.boards.judge import prepare
    from assay.server.boards.referee import check, score

    public = {"data": str(suites.parent / "problems"), "programs": "hidden"}
    assert [s.target for s in HardTests(**public).tasks()[0].samples()] == [None, None]
    labels = [
        {"pid": pid, "id": f"{pid}-secret", "code": "print(input())", "language": "python", "correct": False}
        for pid in ("even_split", "apart_permutation")
    ]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in labels))
    (tmp_path / "truth.json").write_text('{"programs": "./labels.jsonl"}')
    for name in ("labels.jsonl", "truth.json"):
        (tmp_path / name).chmod(0o600)
    order = {"benchmark": "hardtests", "options": public, "sealed": str(tmp_path / "truth.json"), "metric": "",
             "salt": "00"}  # fmt: skip
    made = prepare(order)
    assert (made["status"], made["expected"], made["headline"]) == ("open", 2, "precision")
    checked = check(HardTests(**public), suites)
    assert checked.faults == ()
    scored = score(
        "hardtests", public, {"programs": str(tmp_path / "labels.jsonl")}, checked, "ours", tmp_path / "run"
    ).records
    assert scored["status"].to_list() == ["ok", "ok"]
    assert all(f"{pid}-secret" in target for pid, target in Run(tmp_path / "run").samples[["sample", "target"]].rows())


def test_suites_become_the_published_form_and_come_back(suites, tmp_path):
    make("hardtests.convert", tmp_path / "card", suites=str(suites))
    back = {s.pid: s for s in read_suites(tmp_path / "card" / "test_cases.jsonl")}
    for suite in read_suites(suites):
        assert back[suite.pid].cases == suite.cases
        assert back[suite.pid].makers() == suite.makers()
    assert "| HackGen |" in (tmp_path / "card" / "README.md").read_text()


def test_programs_are_judged_and_trajectories_filtered_from_files(suites, tmp_path):
    programs = [p for q in load_problems("mini") if q.pid == "even_split" for p in q.programs]
    lines = [{"pid": "even_split", "id": p.id, "code": p.code, "language": p.language} for p in programs]
    (tmp_path / "programs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    make("hardtests.judge", tmp_path / "verdicts", suites=str(suites), programs=str(tmp_path / "programs.jsonl"))
    rows = [json.loads(line) for line in (tmp_path / "verdicts" / "verdicts.jsonl").read_text().splitlines()]
    assert [r["id"] for r in rows] == [p.id for p in programs]
    assert all(r["accepted"] for r, p in zip(rows, programs) if p.correct)
    texts = [{"pid": "even_split", "completion": f"```python\n{p.code}```"} for p in programs]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in texts))
    make("hardtests.filter", tmp_path / "kept", suites=str(suites), trajectories=str(tmp_path / "t.jsonl"), most=1)
    kept = (tmp_path / "kept" / "kept.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in kept] == [texts[0]]
    assert json.loads((tmp_path / "kept" / "manifest.json").read_text())["counts"] == {"kept": 1}


def test_mutants_score_a_suite_without_labels(suites, tmp_path):
    make("hardtests.mutants", tmp_path, suites=str(suites), problems=str(suites.parent / "problems"), most=8)
    rows = [json.loads(line) for line in (tmp_path / "mutants.jsonl").read_text().splitlines()]
    assert {r["pid"] for r in rows} == {"apart_permutation", "even_split"}
    assert all(r["killed"] + r["survived"] + r["dead_born"] <= 8 for r in rows)
    assert max(r["score"] for r in rows) > 0.5


def test_a_chat_model_writes_kits_that_make_suites(tmp_path, monkeypatch):
    import assay.systems.loading as loading

    monkeypatch.setattr(loading, "load", lambda *_, **__: kit_writer())
    make("hardtests.kits", tmp_path, model="openai:any", problems="mini", start=3, end=4)
    row = json.loads((tmp_path / "test_cases_kits.jsonl").read_text())
    assert row["pid"] == "even_split"
    assert row["input_generation"]["HackGen_input_generator"]["func_names"] == ["gen_hacking_input_two"]
    assert (tmp_path / "lint.jsonl").read_text() == ""


def test_methods_with_models_make_suites(box, tmp_path):
    maker = Pipeline("written", quota=8, model=kit_writer())
    study = run(HardTests("mini"), maker, samples=Selection(ids=("even_split",)), into=tmp_path / "a")
    assert study.records.select("tp", "fp").row(0) == (2, 0)
    even = ScriptedChatModel(
        lambda messages, rng: "```\n" + ("NO" if "\n7\n" in messages[0]["content"] else "YES") + "\n```"
    )
    study = run(HardTests("mini"), ModelOutputs(even), samples=Selection(ids=("even_split",)), into=tmp_path / "b")
    # The model takes 1 for an even number: its tests reject correct programs.
    assert study.records.select("tp", "fn").row(0) == (0, 2)


def test_models_that_write_programs_get_pass_at_k(tmp_path):
    options = {"data": "mini", "difficulty": "1", "quota": 5}
    best = run("hardtests-code", "method:trusted", options=options, attempts=1, into=tmp_path / "a")
    assert {s.metric: s.value for s in best.scores()}["pass@1"] == 1.0
    some = run("hardtests-code", "method:labelled", options=options, attempts=12, into=tmp_path / "b")
    scores = {s.metric: s.value for s in some.scores() if not s.by}
    assert 0 < scores["pass@1"] < scores["pass@10"] <= 1
    assert set(some.records["verdict"]) >= {"ACCEPTED", "WRONG_ANSWER"}
    dumb = ScriptedChatModel(lambda messages, rng: "I would rather not.", name="dumb")
    none = run("hardtests-code", dumb, options=options, attempts=1, into=tmp_path / "c")
    assert {s.metric: s.value for s in none.scores() if not s.by}["unread_rate"] == 1.0


@pytest.mark.parametrize(
    "method", ["mutation?inputs=12", "random_max?inputs=3&drawn=8", "no_validator?quota=2", "no_agreement?quota=2"]
)
def test_baselines_make_suites(method, tmp_path):
    study = run(
        "hardtests",
        f"method:{method}",
        options={"data": "mini"},
        samples=Selection(ids=("even_split",)),
        into=tmp_path / "r",
    )
    row = study.records.row(0, named=True)
    assert (row["status"], row["suite_status"]) == ("ok", "success")
    assert row["tests"] >= 3
    assert row["tp"] == 2


def test_a_report_says_what_fails():
    level = {"level": "full", "tp": 1, "fp": 1, "fn": 0, "tn": 0, "precision": 0.5, "recall": 1.0}
    result = {
        "data": "x", "levels": [level], "mini_public": level, "mini_full": level,
        "mcnemar": {"programs": 2, "only_weak_right": 0, "only_full_right": 0, "p_one_sided": 1.0},
        "filter": [{"level": "full", "kept": 1, "share": 1.0, "expected": 0.5, "z": 3.0}],
        "policy": {"weak": [0.5], "full": [0.5], "weak_mean": 0.5, "full_mean": 0.5, "p_wilcoxon_one_sided": 1.0},
    }  # fmt: skip
    found = checks(result)
    assert not any(good for what, good in found.items() if "never falls" not in what)
    assert "**fails**: McNemar" in report({**result, "checks": found})


def test_bad_options_are_one_sentence():
    with pytest.raises(UsageError, match="No problem is left"):
        HardTests("mini", difficulty="9").tasks()[0].samples()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hardtests", "hardtests-code"])
def test_it_keeps_every_rule_of_a_benchmark(name):
    from assay.core.testing import check_benchmark

    options = {"data": "mini"} | ({"quota": 3} if name == "hardtests-code" else {})
    assert all(r.outcome != "failed" for r in check_benchmark(name, options=options))


@pytest.mark.slow
def test_the_acceptance_experiment_holds(tmp_path):
    make("hardtests.reproduce", tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    assert all(result["checks"].values()), result["checks"]
    assert len(Run(tmp_path / "runs" / "full").records) == len(load_problems("own"))
