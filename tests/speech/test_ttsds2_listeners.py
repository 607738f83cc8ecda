"""Ratings, correlations, learnt weights, listening tests, published tables."""

import asyncio
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile

import assay
from assay.core.errors import DataError, UsageError
from assay.core.results import Runs
from assay.speech.ttsds2 import listening
from assay.speech.ttsds2.listening import ListeningTest, opinions, ratings_of
from assay.speech.ttsds2.ratings import (
    attentive,
    correlations,
    leave_one_domain_out,
    published_correlations,
    published_leaderboard,
    read_ratings,
    system_means,
)

ORACLES = Path(__file__).parents[1] / "oracles" / "ttsds2"
HEAD = "domain,system,utterance,listener,scale,value\n"


def test_the_published_table_has_the_published_means_spreads_and_minima():
    found = json.loads((ORACLES / "correlation_table.json").read_text())
    table = published_correlations()
    assert table.height == 17 * 12
    for metric, derived in found["derived"].items():
        values = table.filter(pl.col("metric") == metric)["spearman"].to_numpy()
        assert values.mean() == pytest.approx(derived["mean"], abs=found["tolerance_abs"])
        assert values.std() == pytest.approx(derived["sd_population"], abs=found["tolerance_abs"])
        assert values.min() == derived["min"]
    least = table.group_by("metric").agg(pl.col("spearman").min())
    assert least.filter(pl.col("spearman") >= 0.5)["metric"].to_list() == ["TTSDSv2"]
    assert published_leaderboard().height == 32


def test_ratings_are_read_from_both_formats(tmp_path):
    (tmp_path / "r.csv").write_text(HEAD + "clean,A,u1,l1,MOS,4\nclean,A,u2,l2,cmos,-1\n")
    line = json.dumps(
        {"domain": "clean", "system": "A", "utterance": "u1", "listener": "l1", "scale": "MOS", "value": 4}
    )
    (tmp_path / "r.jsonl").write_text(line + "\n")
    assert read_ratings(tmp_path / "r.csv")["value"].to_list() == [4.0, -1.0]
    assert read_ratings(tmp_path / "r.jsonl")["scale"].to_list() == ["MOS"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD, "no ratings"),
        ("domain,system\nx,y\n", "utterance"),
        (HEAD + "d,A,u,l,MOS,6\n", 'line 2.*"6"'),
        (HEAD + "d,A,u,l,MOS,good\n", 'line 2.*"good"'),
        (HEAD + "d,A,u,l,XYZ,3\n", "XYZ"),
    ],
)
def test_bad_ratings_are_named_with_line_and_value(tmp_path, text, said):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(DataError, match=said):
        read_ratings(tmp_path / "r.csv")


def simulated(rng, systems=8, listeners=30, spread=0.7):
    quality = np.linspace(2, 4.5, systems)
    rows = []
    for listener in range(listeners):
        bias = rng.normal(0, 0.5)
        for s in range(systems):
            for u in range(2):
                value = float(np.clip(np.round(quality[s] + bias + rng.normal(0, spread)), 1, 5))
                rows.append(("clean", f"s{s}", f"u{u}", f"l{listener}", "MOS", value))
    return quality, pl.DataFrame(
        rows, schema=["domain", "system", "utterance", "listener", "scale", "value"], orient="row"
    )


def test_listeners_who_fail_checks_are_dropped_with_all_they_said():
    _, ratings = simulated(np.random.default_rng(0), listeners=4)
    checks = pl.DataFrame(
        [("clean", "check", "c1", f"l{k}", "MOS", 1.0 if k != 2 else 5.0) for k in range(4)],
        schema=ratings.schema, orient="row",
    )  # fmt: skip
    kept, dropped = attentive(pl.concat([ratings, checks]), {"c1": 1.0})
    assert dropped == ["l2"]
    assert set(kept["listener"]) == {"l0", "l1", "l3"}
    assert "c1" not in set(kept["utterance"])


def test_intervals_of_opinion_scores_cover_when_listeners_are_biased():
    covered = 0
    for seed in range(60):
        quality, ratings = simulated(np.random.default_rng(seed), systems=3, spread=0.4)
        wide = system_means(ratings).filter(pl.col("system") == "s1").to_dicts()[0]
        covered += wide["low"] <= quality[1] <= wide["high"]
        assert wide["listeners"] == 30
        assert wide["ratings"] == 60
    assert covered >= 50


def test_a_metric_that_follows_listeners_correlates_and_its_negative_does_not():
    quality, ratings = simulated(np.random.default_rng(1))
    metrics = pl.DataFrame(
        [
            {"metric": m, "domain": "clean", "system": f"s{k}", "value": sign * q}
            for m, sign in (("good", 1), ("bad", -1))
            for k, q in enumerate(quality)
        ]
    )
    found = {row["metric"]: row for row in correlations(system_means(ratings), metrics).to_dicts()}
    assert found["good"]["spearman"] > 0.9
    assert found["bad"]["spearman"] == pytest.approx(-found["good"]["spearman"])
    assert found["good"]["pearson"] > 0.9
    with pytest.raises(DataError, match="three"):
        correlations(system_means(ratings), metrics.filter(pl.col("system").is_in(["s1", "s2"])))


def test_learnt_weights_find_the_factor_that_counts_when_it_is_the_same_everywhere():
    rng = np.random.default_rng(0)
    scores = {d: rng.normal(size=(40, 4)) for d in "abcd"}
    listeners = {d: s[:, 2] + rng.normal(0, 0.1, 40) for d, s in scores.items()}
    for held in leave_one_domain_out(scores, listeners):
        assert held.weights[2] > 0.8
        assert held.learnt > held.plain
    with pytest.raises(UsageError, match="two domains"):
        leave_one_domain_out({"a": scores["a"]}, {"a": listeners["a"]})


@pytest.fixture
def folder(tmp_path):
    for k, system in enumerate(("alpha", "beta", "reference", "voices")):
        (tmp_path / system).mkdir()
        for u in range(3):
            tone = 0.3 * np.sin(2 * np.pi * (200 + 50 * k + u) * np.arange(8000) / 16000)
            soundfile.write(tmp_path / system / f"u{u}.wav", tone, 16000)
    return tmp_path


def tasks_of(bench):
    return {task.name: task for task in bench.tasks()}


def test_each_test_shows_the_recordings_it_is_about(folder):
    bench = ListeningTest(str(folder))
    found = tasks_of(bench)
    assert {name: len(task.samples()) for name, task in found.items()} == {"mos": 9, "cmos": 6, "mushra": 3, "smos": 9}
    for task in found.values():
        for sample in task.samples():
            messages, form, _ = task.asked(sample)
            kinds = [part["type"] for part in messages[0]["content"]]
            assert kinds == ["text"] + ["input_audio"] * {"mos": 1, "cmos": 2, "smos": 2, "mushra": 4}[task.name]
            from assay.systems import forms

            assert forms.read(form).parts() <= set(range(4))
            # Nothing that a listener reads says which system it is.
            text = messages[0]["content"][0]["text"] + json.dumps(form)
            assert not any(name in text for name in ("alpha", "beta", "u0", "u1"))


def test_the_sign_of_a_flipped_pair_is_turned_round(folder):
    task = tasks_of(ListeningTest(str(folder), tests="cmos"))["cmos"]
    samples = task.samples()
    assert {s.groups["flipped"] for s in samples} == {0, 1}
    for sample in samples:
        found = asyncio.run(task.score(sample, '{"ratings": {"second": 2}}', None))
        assert found.scores["rating"] == (-2 if sample.groups["flipped"] else 2)
        messages, _, _ = task.asked(sample)
        second = messages[0]["content"][2]["input_audio"]["data"]
        is_system = second == task.asked(sample)[0][0]["content"][2]["input_audio"]["data"]
        assert is_system
    unread = asyncio.run(task.score(samples[0], "no idea", None))
    assert unread.scores["rating"] is None
    assert unread.groups["read"] == "unread"


def test_answers_become_ratings_and_opinion_scores(folder, tmp_path):
    from assay.systems.scripted import ScriptedChatModel, text_of

    def hears(messages, rng):
        """Tells systems apart by the frequency of their tones: a listener without noise."""
        import base64
        import io

        pitch = []
        for part in messages[0]["content"][1:]:
            samples, rate = soundfile.read(io.BytesIO(base64.b64decode(part["input_audio"]["data"])))
            pitch.append(np.abs(np.fft.rfft(samples)).argmax() * rate / len(samples))
        if '"rating"' in text_of(messages):
            return json.dumps({"rating": {200: 5, 250: 2, 300: 5}[int(round(pitch[0] / 50) * 50)]})
        order = {200: 90, 250: 20, 300: 100}
        return json.dumps({"ratings": {f"r{k}": order[int(round(p / 50) * 50)] for k, p in enumerate(pitch[1:], 1)}})

    run = assay.run(
        ListeningTest(str(folder), tests="mos,mushra", domain="clean"), ScriptedChatModel(hears, name="ear"),
        into=tmp_path / "run",
    )  # fmt: skip
    assert run.status == "finished"
    table = opinions(Runs([run])).frame
    mos = dict(table.filter(pl.col("scale") == "MOS").select("system", "mean").iter_rows())
    assert mos == {"alpha": 5.0, "beta": 2.0, "reference": 5.0}
    mushra = dict(table.filter(pl.col("scale") == "MUSHRA").select("system", "mean").iter_rows())
    assert mushra == {"alpha": 90.0, "beta": 20.0, "reference": 100.0}
    assert set(ratings_of(Runs([run]))["listener"]) == {"ear"}
    (tmp_path / "out").mkdir()
    listening.export_ratings(tmp_path / "out", runs=str(run.path))
    exported = pl.read_csv(tmp_path / "out" / "ratings.csv").filter(pl.col("scale") == "MOS")
    exported.write_csv(tmp_path / "mos.csv")
    assert read_ratings(tmp_path / "mos.csv").height == 9


def test_a_guesser_stays_on_every_scale(tmp_path):
    run = assay.run(ListeningTest(), listening.guess(), into=tmp_path / "run")
    assert set(run.records["status"]) == {"ok"}
    assert run.records["read"].n_unique() == 1


def test_tests_without_their_recordings_are_refused(folder):
    import shutil

    shutil.rmtree(folder / "voices")
    assert "smos" not in tasks_of(ListeningTest(str(folder)))
    with pytest.raises(UsageError, match="voices"):
        ListeningTest(str(folder), tests="smos").tasks()
    with pytest.raises(UsageError, match="mushra"):
        ListeningTest(tests="mushr")
    with pytest.raises(UsageError, match="no folder"):
        ListeningTest(str(folder / "nowhere")).tasks()
