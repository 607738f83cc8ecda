"""Each hook of the core interface in a small benchmark: run, killed half-way, resumed, equal to the unbroken run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from assay.core import run as core
from assay.core.analyze import analyze
from assay.core.errors import UsageError
from assay.core.journal import read_arrays
from assay.core.map import make
from assay.core.rescore import rescore
from assay.core.results import Run

SUPPORT = os.path.join(os.path.dirname(__file__), "..", "support")


def toy_run(benchmark, system, **keywords):
    return core.run(benchmark, system, loading="toy_loading", **keywords)


def spawn(folder, spec=None):
    """The driver in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SUPPORT, *filter(None, sys.path)])}
    command = [sys.executable, "-m", "drive", str(folder), *([json.dumps(spec)] if spec else [])]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)


def lines_written(folder):
    return sum(1 for _ in read_arrays(folder / "journal")) if (folder / "journal").is_dir() else 0


def killed_halfway(folder, spec, lines):
    """Begin a run, kill it (and so its workers) once ``lines`` journal lines stand, return how many stood."""
    process = spawn(folder, spec)
    end = time.monotonic() + 30
    while lines_written(folder) < lines:
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < end, "the run made no progress"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    return lines_written(folder)


def comparable(run):
    """What must not depend on how often a run was broken off."""
    timing = {"started", "seconds", "cpu_seconds", "peak_memory_mb", "artifacts", "calls"}
    return run.records.select([c for c in run.records.columns if c not in timing])


HOOKS = {
    "plain worker trials": ("toy", "method:doubler?pause=0.05", {}, 6),
    "judge with a micro ratio": ("toy_judged", "method:doubler", {"pause": 0.3, "n": 90}, 20),
    "two protocols on the same items, batches with curves": ("toy_items", "method:modulo", {}, 1),
    "live shared state with four attempts": ("toy_live", "method:doubler", {"pause": 0.15}, 4),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_a_run_killed_halfway_resumes_to_the_records_of_an_unbroken_run(hook, tmp_path):
    benchmark, system, options, lines = HOOKS[hook]
    whole = toy_run(
        benchmark,
        system.replace("pause=0.05", "pause=0.0"),
        options={k: v for k, v in options.items() if k != "pause"},
    )
    folder = tmp_path / "broken"
    stood = killed_halfway(folder, {"benchmark": benchmark, "system": system, "options": options}, lines)
    total = whole.info["trials"]
    assert lines <= stood
    if "batches" not in hook:
        assert stood < total, "the run was over before it was killed; the test shows nothing"
    resumed = core.resume(Run(folder), loading="toy_loading")
    assert resumed.status == "finished"
    assert resumed.records.select("task", "sample", "attempt").is_unique().all()
    assert_frame_equal(comparable(resumed), comparable(whole))
    for task in whole.info["tasks"]:
        assert_frame_equal(resumed.rows(task), whole.rows(task))


def test_finished_trials_are_not_tried_again_on_resume(tmp_path):
    log = tmp_path / "log"
    folder = tmp_path / "run"
    system = f"method:doubler?log={log}&pause=0.02"
    killed_halfway(folder, {"benchmark": "toy", "system": system, "options": {"n": 40}}, 8)
    stood = {r["sample"] for array in read_arrays(folder / "journal") for r in json.loads(array)}
    before = len(log.read_text().split())
    core.resume(Run(folder), loading="toy_loading")
    again = log.read_text().split()[before:]
    assert not {f"s{n}" for n in again} & stood
    assert {f"s{n}" for n in again} | stood == {f"s{i}" for i in range(40)}


def test_a_crashed_trial_keeps_its_denominator_in_a_ratio_of_sums():
    clean = toy_run("toy_judged", "method:doubler", options={"n": 12})
    crashed = toy_run("toy_judged", "method:doubler", options={"n": 12, "crash": (4,)})
    (a,), (b,) = clean.scores(), crashed.scores()
    items = clean.records["n_items"].sum()
    lost = clean.records.filter(pl.col("sample") == "q4")["met"].item()
    assert a.value == pytest.approx(clean.records["met"].sum() / items)
    assert b.value == pytest.approx((clean.records["met"].sum() - lost) / items)
    assert b.n_error == 1


def test_calls_of_subject_and_judge_are_counted_apart():
    run = toy_run("toy_judged", "method:doubler", options={"n": 5})
    calls = run.records.select(pl.col("calls").explode()).unnest("calls")
    by_role = dict(calls.group_by("role").agg(pl.col("prompt_tokens").sum()).iter_rows())
    assert by_role == {"subject": 15, "judge": 35}
    assert run.info["paid"] == pytest.approx(5 * 0.011)


def test_one_failing_batch_is_an_error_of_all_its_trials_and_resume_retries_it_whole(monkeypatch):
    import toys

    def broken(self, system, batch, ctx):
        raise RuntimeError("no memory left")

    original = toys.ItemsEncoded.trials
    monkeypatch.setattr(toys.ItemsEncoded, "trials", broken)
    run = core.run("toy_items", "method:modulo", loading="toy_loading", engine=core.Engine(workers=0))
    assert run.records["status"].to_list() == ["error"] * 72
    assert run.records["tries"].unique().to_list() == [2]
    monkeypatch.setattr(toys.ItemsEncoded, "trials", original)
    again = core.resume(run, loading="toy_loading", retry_errors=True, engine=core.Engine(workers=0))
    assert again.records["status"].unique().to_list() == ["ok"]
    assert again.scores()[0].value == 1.0


def test_systems_take_the_tasks_whose_protocol_they_satisfy():
    encoder, person = toy_run("toy_items", "method:modulo"), toy_run("toy_items", "method:doubler")
    assert list(encoder.info["tasks"]) == ["items_encoded"]
    assert list(person.info["tasks"]) == ["items"]
    assert "answer" in encoder.info["skipped_tasks"]["items"]
    pairs = encoder.samples.join(person.samples, on="sample")
    assert pairs.height == 24


def test_a_system_that_fits_no_task_is_refused_with_the_protocol_named():
    with pytest.raises(UsageError, match=r"fits no task of 'toy'.*Answerer.*answer"):
        toy_run("toy", object())


@pytest.mark.parametrize(
    ("trouble", "status", "sentence"),
    [
        ("crash", "error", "exited with code 3"),
        ("hang", "timeout", "limit of 1 s"),
        ("memory", "error", "more than its 0.6 GB"),
    ],
)
def test_a_worker_that_crashes_hangs_or_hoards_costs_one_record_and_is_replaced(trouble, status, sentence, monkeypatch):
    import toys

    from assay.core.benchmark import Needs

    if trouble == "memory":
        monkeypatch.setattr(toys.Hidden, "needs", Needs(seconds=60, memory_gb=0.6))
    run = toy_run("toy_hidden", "method:doubler", options={"trouble": trouble})
    bad = run.records.filter(pl.col("status") != "unscored")
    assert bad["sample"].to_list() == ["h5"]
    assert bad["status"].item() == status
    assert sentence in bad["error"].item()
    assert run.records.height == 12


def test_hidden_truth_ends_unscored_and_the_referee_scores_it_with_crashes_at_the_floor(tmp_path):
    folder = tmp_path / "participant"
    killed_halfway(
        folder, {"benchmark": "toy_hidden", "system": "method:doubler?pause=0.05", "options": {"trouble": "crash"}}, 3
    )
    run = core.resume(Run(folder), loading="toy_loading")
    assert set(run.records["status"]) == {"unscored", "error"}
    truth = tmp_path / "truth.json"
    truth.write_text(json.dumps({f"h{i}": 2.0 * i for i in range(12)}))
    scored = rescore(run, loading="toy_loading", options={"truth": str(truth)})
    values = {s.metric: s.value for s in scored.scores()}
    # Pair 2 holds samples 2, 5, 8, 11; sample 5 crashed and counts -100.
    assert values == {"E0": 100.0, "E1": 100.0, "E2": 50.0}
    assert scored.info["parent"]["run"] == run.id
    assert scored.records.filter(pl.col("sample") == "h5")["status"].item() == "error"


def test_live_state_is_entered_once_and_closed_for_certain_even_when_trials_fail(tmp_path):
    import toys

    log = tmp_path / "log"
    toy_run("toy_live", "method:doubler", options={"log": str(log)})
    assert log.read_text().split() == ["open", "close"]

    class Failing(toys.LiveState):
        async def trial(self, system, sample, ctx):
            raise RuntimeError("broken world")

    class FailingLive(toys.Live):
        def tasks(self):
            return [Failing(self.log)]

    log.unlink()
    run = toy_run(FailingLive(str(log)), toys.Doubler())
    assert set(run.records["status"]) == {"error"}
    assert log.read_text().split() == ["open", "close"]


def test_an_analysis_takes_several_runs():
    import toys

    right, person = toy_run("toy", "method:doubler"), toy_run(toys.Toy(), toys.ToyPerson())
    (table,) = analyze("toy.spread", [right, person])
    assert table.frame["mean"].to_list() == [0.8, 1.0]
    assert table.frame["system"].to_list() == ["person", "method:doubler"]


def test_a_recipe_on_resumable_map_writes_a_manifest_and_does_nothing_twice(tmp_path):
    out = make("toy.squares", tmp_path / "squares", n="6")
    assert [r["square"] for r in json.loads((out / "squares.json").read_text())] == [0, 1, 4, 9, 16, 25]
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["recipe"] == "toy.squares"
    before = {p.name for p in (out / ".journal").iterdir()}
    make("toy.squares", out, n=6)
    assert {p.name for p in (out / ".journal").iterdir()} == before


def test_a_run_scored_again_keeps_what_its_answers_cost_and_pays_for_the_judge_alone():
    first = toy_run("toy_judged", "method:doubler", options={"n": 6})
    again = rescore(first, loading="toy_loading")
    old, new = (r.records.select(pl.col("calls").explode()).unnest("calls").sort("role") for r in (first, again))
    assert new["prompt_tokens"].sum() == old["prompt_tokens"].sum()
    assert new.filter(pl.col("role") == "subject")["cost"].sum() == pytest.approx(0.006)
    assert again.info["paid"] == pytest.approx(6 * 0.01)


def test_a_rescoring_that_was_broken_off_is_resumed_from_the_parents_outputs():
    from assay.core.store import Store

    first = toy_run("toy_judged", "method:doubler", options={"n": 6})
    again = rescore(first, loading="toy_loading")
    again.records[::2].write_parquet(again.path / "records.parquet")
    Store(again.path).write_info({**again.info, "status": "interrupted"})
    resumed = core.resume(Run(again.path), loading="toy_loading")
    assert_frame_equal(comparable(resumed), comparable(again))


def test_values_of_a_group_that_share_no_samples_are_not_compared():
    from assay.core.compare import compare_runs

    run = toy_run("toy", "method:doubler")
    with pytest.raises(UsageError, match="share no samples"):
        compare_runs([run], by="parity")


def test_a_system_may_refuse_a_task_and_the_reason_is_kept():
    import toys

    class TextOnly(toys.Doubler):
        def refuses(self, task):
            return "shows pictures" if "image" in task.modalities else None

    class Pictures(toys.Plain):
        modalities = ("image",)

    class Both(toys.Toy):
        def tasks(self):
            pictures = Pictures(3)
            pictures.name = "pictures"
            return [toys.Plain(3), pictures]

    run = toy_run(Both(), TextOnly())
    assert list(run.info["tasks"]) == ["plain"]
    assert run.info["skipped_tasks"] == {"pictures": "shows pictures"}
    assert list(toy_run(Both(), toys.Doubler()).info["tasks"]) == ["plain", "pictures"]
