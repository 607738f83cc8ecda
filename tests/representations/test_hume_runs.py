"""Runs of people, chat models, encoders and rankers on the same items, and what is made of them."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

import assay
from assay.core.errors import UsageError
from assay.core.results import Run, Runs
from assay.core.stats.intervals import wilson
from assay.representations.hume import analyses, boards, measures, people, quality, recipes, reproduce, results, scoring
from assay.representations.hume.benchmark import Hume
from assay.representations.hume.methods import Bm25, Guess, MtebEncoder, RandomEncoder
from assay.systems.embedding import HashedNgrams
from assay.systems.scripted import ScriptedChatModel

TASKS = "HUMEToxic*,HUMESTS12,HUMENews21*,HUMERedditClusteringP2P"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hume")


def spelling():
    """An encoder that knows spelling alone."""
    encoder = HashedNgrams()
    encoder.name = "spelling"
    return encoder


@pytest.fixture(scope="module")
def runs(folder):
    """Two simulated people, an encoder by chance, one that knows spelling, a chat model that guesses."""
    bench = Hume(tasks=TASKS)
    made = bench.methods()
    systems = {
        "one": made["simulated"](noise=0.1, seed=1),
        "two": made["simulated"](noise=0.4, seed=2),
        "random": RandomEncoder(),
        "hashed": spelling(),
        "guess": Guess(),
    }
    return Runs([assay.run(bench, system, into=folder / name) for name, system in systems.items()])


def test_one_benchmark_takes_people_encoders_and_rankers(runs, folder):
    bench = Hume(tasks=TASKS)
    one, hashed = runs[0], runs[3]
    assert set(one.records["status"]) == set(hashed.records["status"]) == {"ok"}
    assert set(one.records["cluster"]) == set(hashed.records["cluster"])
    ranked = assay.run(bench, Bm25(), into=folder / "bm25")
    assert set(ranked.records["task"]) == {"HUMENews21InstructionReranking-ranker"}
    assert 0.3 < ranked.records["value"].mean() < 0.9  # words of the query do not recur


def test_main_scores_are_the_scorers_on_the_same_answers(runs):
    study = Hume(tasks=TASKS).study.pairs
    from assay.representations.hume import exchange
    from assay.representations.hume.panels import panels

    given = [a for run in runs[:2] for a in exchange.of_run(run, study)]
    main = {"classification": "accuracy", "clustering": "v_measure", "sts": "spearman", "reranking": "map"}
    found = measures.main_scores(panels(runs)[0].records)
    assert len(found) == 4
    for name, value in found.items():
        pair = study[name]
        scored = scoring.score(pair.spec.kind, exchange.gold(pair), exchange.table(given, pair))
        assert value == pytest.approx(scored["aggregated"][main[pair.spec.kind]], abs=1e-12)


def test_ten_experiments_are_ten_attempts_of_classification(runs):
    labels = runs[3].records.filter(pl.col("kind") == "classification")
    assert sorted(labels["attempt"].unique()) == list(range(10))
    assert runs[3].records.filter(pl.col("kind") != "classification")["attempt"].max() == 0


def test_the_mean_over_pairs_is_void_where_a_pair_is_missing(folder):
    run = assay.run(Hume(tasks="HUMESTS12,HUMESICK-R"), RandomEncoder(), tasks=["HUMESTS12*"], into=folder / "part")
    bench = Hume(tasks="HUMESTS12,HUMESICK-R")
    values = {s.metric: s.value for s in run.scores(metrics=bench.metrics) if not s.by}
    assert np.isnan(values["mean_subset"])
    assert -1 <= values["spearman"] <= 1


def test_unread_answers_and_refusals_are_counted_and_left_out(folder):
    replies = ["I'm sorry, but I can't help with that.", "hm", '{"choice": "toxic"}']
    model = ScriptedChatModel(lambda messages, rng: replies[len(messages[0]["content"]) % 3])
    run = assay.run(Hume(tasks="HUMEToxic*"), model, into=folder / "bad")
    counts = dict(run.records["read"].value_counts().iter_rows())
    assert set(counts) == {"refused", "unread", "form"}
    answered = run.records.filter(pl.col("answered") == 1)
    assert answered.height == counts["form"] == run.records["value"].count()
    values = {s.metric: s.value for s in run.scores(metrics=Hume(tasks="HUMEToxic*").metrics) if not s.by}
    assert values["accuracy"] == pytest.approx(answered["value"].mean())
    assert values["accuracy_missing_wrong"] == pytest.approx(answered["value"].sum() / 45)
    row = analyses.reading(Runs([run])).rows()[0]
    assert row["refused"] == counts["refused"]
    assert row["answer_rate"] == pytest.approx(counts["form"] / 45)


def test_constant_ratings_score_zero_and_are_told(folder):
    from assay.representations.hume.panels import estimates, panels

    model = ScriptedChatModel(lambda messages, rng: '{"rating": 3}', name="constant")
    run = assay.run(Hume(tasks="HUMESTS12"), model, into=folder / "constant")
    (found,) = estimates(panels(Runs([run]))[0], resamples=10).values()
    assert found.value == 0
    assert found.interval == "none: constant ratings"
    assert np.isnan([found.low, found.high]).all()


def test_the_leaderboard_ranks_people_among_models(runs):
    board = analyses.leaderboard(runs, resamples=200)
    rows = {row["system"]: row for row in board.rows()}
    assert rows["people"]["rank"] == 1
    assert rows["people"]["mean_subset"] > rows["spelling"]["mean_subset"]
    for row in rows.values():
        assert row["low"] <= row["mean_subset"] <= row["high"]
    assert any("simulated" in note for note in board.notes)
    assert any("stand-in" in note for note in board.notes)
    with pytest.raises(UsageError, match="real items"):
        analyses.leaderboard(runs, reference=True)


def test_gaps_have_the_intervals_of_their_kind(runs):
    table = analyses.gaps(runs)
    rows = table.rows()
    rules = {row["kind"]: row["interval"] for row in rows}
    assert rules == {
        "classification": "Wilson",
        "sts": "Fisher z",
        "reranking": "bootstrap over queries",
        "clustering": "bootstrap over texts",
    }
    label = next(row for row in rows if row["kind"] == "classification")
    low, high = wilson(label["people"] * 45, 45)
    assert [label["low"], label["high"]] == pytest.approx([float(low), float(high)])
    for row in rows:
        assert row["gap"] == pytest.approx(row["score"] - row["people"])
        assert row["differs"] == (not row["low"] <= row["score"] <= row["high"])
        assert row["agreement"] is not None
    assert any("one threshold" in note for note in table.notes)


def test_tables_by_type_and_language_and_difficulty(runs):
    kinds = {(r["system"], r["kind"]) for r in analyses.by_type(runs).rows()}
    assert ("people", "sts") in kinds
    assert {r["language"] for r in analyses.by_language(runs).rows()} == {"eng"}
    rows = analyses.difficulty(runs).rows()
    assert all(row["pairs"] == 4 for row in rows)


def test_agreement_stands_beside_score_and_alpha(runs):
    rows = analyses.agreement(runs).rows()
    assert {row["kind"] for row in rows} == {"classification", "clustering", "sts", "reranking"}
    for row in rows:
        assert row["annotators"] == 2
        assert row["agreement"] <= 1
        assert row["alpha"] <= 1


def test_alpha_of_labels_is_krippendorffs():
    import krippendorff

    answers = [["a", "b", "a", None, "b"], ["a", "b", "b", "a", "b"]]
    codes = [[np.nan if x is None else float(x == "a") for x in side] for side in answers]
    expected = krippendorff.alpha(reliability_data=codes, level_of_measurement="nominal")
    assert analyses.alpha("classification", answers) == pytest.approx(expected)


def test_a_better_annotator_has_more_skill(runs):
    found, hard = people.skills(runs)
    rows = found.rows()
    assert len(rows) == 2
    assert "noise=0.1" in rows[0]["annotator"]
    assert hard.frame.height == 45
    assert {"pair", "sample", "answers", "gain"} <= set(people.ask_next(runs, items=5).frame.columns)


def test_rasch_recovers_what_it_was_drawn_from():
    rng = np.random.default_rng(0)
    skill, hard = rng.normal(0, 1.5, 40), rng.normal(0, 1, 60)
    person, item = (a.ravel() for a in np.meshgrid(np.arange(40), np.arange(60), indexing="ij"))
    right = (rng.random(2400) < 1 / (1 + np.exp(hard[item] - skill[person]))).astype(float)
    found, errors = people.rasch(person, item, right)
    assert np.corrcoef(found[:40], skill)[0, 1] > 0.9
    assert np.corrcoef(found[40:], hard)[0, 1] > 0.9
    assert (np.abs(found - np.concatenate([skill, hard])) < 2 * errors).mean() > 0.9


def test_people_against_gold_are_found_and_written_as_a_patch(folder, tmp_path):
    bench = Hume(tasks="HUMEToxic*")
    pair = bench.study.pairs["HUMEToxicConversationsClassification|default"]
    wrong = pair.items[4]
    rows = []
    for who in "AB":
        for item in pair.items:
            answer = item.gold if item is not wrong else next(x for x in pair.labels if x != item.gold)
            rows.append(
                {"task": pair.spec.name, "subset": "default", "item": item.id, "annotator": who, "answer": answer}
            )
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    run = assay.run(bench, f"submission:{path}", into=folder / "imported", attempts=2)
    assert set(run.records["respondent"]) == {"A", "B"}
    (row,) = quality.quality(Runs([run]))[1].rows()
    assert (row["item"], row["gold"], row["annotators"]) == (wrong.id, wrong.gold, 2)
    assert [r["item"] for r in quality.quality(Runs([run]))[2].rows()] == [wrong.id]
    (tmp_path / "patch").mkdir()
    recipes.patch(tmp_path / "patch", runs=(str(run.path),))
    (line,) = (tmp_path / "patch" / "patch.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["people"] != json.loads(line)["gold"]


def test_texts_are_checked_for_empty_double_and_leaked_ones():
    from dataclasses import replace

    pair = Hume(tasks="HUMEToxic*").study.pairs["HUMEToxicConversationsClassification|default"]
    first, second, third, *rest = pair.items
    bad = replace(
        pair,
        items=(
            replace(first, texts=("  ",)),
            replace(second, texts=(rest[0].texts[0].upper(),)),
            replace(third, texts=(pair.train[0][0],)),
            *rest,
        ),
    )
    faults = {(row["item"], row["fault"]) for row in quality.text_faults(bad)}
    assert {(first.id, "empty"), (second.id, "double"), (third.id, "in training data")} <= faults
    assert not [row for row in quality.text_faults(pair) if row["fault"] in ("empty", "double", "in training data")]


def test_answers_and_results_are_exported_under_pseudonyms(runs, tmp_path):
    paths = tuple(str(run.path) for run in runs[:4])
    for name in ("annotations", "argilla", "results"):
        (tmp_path / name).mkdir()
        recipe = recipes.lines if name == "annotations" else getattr(recipes, name)
        recipe(tmp_path / name, runs=paths if name == "results" else paths[:2])
    text = (tmp_path / "annotations" / "annotations.jsonl").read_text(encoding="utf-8")
    assert {json.loads(line)["annotator"] for line in text.splitlines()} == {"annotator_1", "annotator_2"}
    assert (tmp_path / "argilla" / "HUMESTS12" / "default.json").is_file()
    found = results.read_scores(tmp_path / "results")
    expected = measures.main_scores(runs[3].records)
    hashed = next(v for k, v in found.items() if k == "spelling")
    assert hashed == pytest.approx(expected)
    board = {row["system"]: row for row in analyses.leaderboard(runs[:4], resamples=50).rows()}
    assert np.mean(list(found["baseline__Human"].values())) == pytest.approx(board["people"]["mean_subset"])


def test_a_study_is_sampled_from_a_folder_with_a_plan(tmp_path, monkeypatch):
    from assay.representations.hume.items import read_study, write_study

    write_study(tmp_path / "all", list(Hume(tasks=TASKS).study.pairs.values())[:5])
    (tmp_path / "few").mkdir()
    recipes.sample(tmp_path / "few", data=str(tmp_path / "all"), items=20)
    back = read_study(tmp_path / "few")
    assert all(len(p.items) == 20 for p in back.pairs.values() if p.spec.kind == "classification")
    assert "items needed" in (tmp_path / "few" / "power.md").read_text(encoding="utf-8")
    ids = json.loads((tmp_path / "few" / "sampled_ids.json").read_text(encoding="utf-8"))["ids"]
    assert ids == {p.key: [i.id for i in p.items] for p in back.pairs.values()}
    run = assay.run(Hume(str(tmp_path / "few")), Guess(), samples=5, into=tmp_path / "run")
    assert set(run.records["status"]) == {"ok"}


def test_published_tables_and_every_exact_claim_hold():
    from assay.representations.hume.aggregate import published

    claims = reproduce.exact(published()["scores"])
    assert [c.claim for c in claims if not c.holds] == []
    assert len(claims) == 18
    board, table = boards.published(Runs([]))
    assert board.rows()[3]["model"] == "baseline__Human"
    assert table.frame.height == 26
    emotion = next(r for r in table.rows() if r["pair"] == "HUMEEmotionClassification|default")
    assert [emotion["low"], emotion["high"]] == pytest.approx([32.575242292867446, 59.70892545435019])


def test_noise_lowers_score_and_agreement_and_wilson_covers():
    assert reproduce.noise(0).holds
    assert reproduce.coverage(0).holds


@pytest.mark.parametrize(
    "options", [{"temperature": -1.0}, {"max_tokens": 0}, {"seed": -1}, {"tasks": "nope"}, {"languages": "zz"}]
)
def test_bad_options_are_refused(options):
    with pytest.raises(UsageError):
        Hume(**options)


def test_runs_of_other_benchmarks_and_lonely_runs_are_refused(runs, folder):
    with pytest.raises(UsageError, match="run of people"):
        analyses.gaps(Runs([runs[3]]))
    with pytest.raises(UsageError, match="two annotators"):
        analyses.agreement(Runs([runs[0]]))
    assert isinstance(Run(folder / "one"), Run)


@pytest.mark.slow
def test_an_encoder_of_mteb_runs_by_name(folder):
    run = assay.run(Hume(tasks="HUMESTS12"), MtebEncoder("mteb/baseline-random-encoder"), into=folder / "mteb")
    assert set(run.records["status"]) == {"ok"}
    assert -0.6 < measures.main_scores(run.records)["HUMESTS12|default"] < 0.6
