"""Whole runs and the tables made of them."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import polars as pl
import pytest

import assay
from assay.core.errors import DataError, UsageError
from assay.core.results import Runs
from assay.multimodal.asciieval import analyses, boards, prompts, scoring
from assay.multimodal.asciieval.benchmark import AsciiEval, read_letter
from assay.multimodal.asciieval.data import load, write_items
from assay.multimodal.asciieval.regression import length_by_mode, logistic
from assay.systems.chat.model import Choice, Reply, TokenLogprob

ITEMS = {item.art: item for item in load().items}
BY_CHOICES = {item.choices: item for item in load().items}


class Knower:
    """Knows an item's right choice with a chance a mode."""

    def __init__(self, name: str, text: float, image: float, both: float, words: str = "{}") -> None:
        self.name = name
        self._chances = {"text": text, "image": image, "both": both}
        self._words = words

    async def generate(self, messages, **_):
        question = prompts.parse(messages)
        # Where no text is shown, two items with the same choices are taken for one another.
        right = ITEMS[question.art] if question.art in ITEMS else BY_CHOICES[question.choices]
        rng = random.Random(f"{self.name}|{right.right}|{question.mode}|{sorted(question.choices)}")
        name = right.right if rng.random() < self._chances[question.mode] else rng.choice(question.choices)
        letter = scoring.LETTERS[question.choices.index(name)]
        return Reply((Choice(self._words.format(letter)),), model=self.name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    strong = assay.run("asciieval", Knower("strong", 0.4, 0.95, 0.9), samples=90, into=folder / "strong")
    weak = assay.run("asciieval", Knower("weak", 0.2, 0.3, 0.25), samples=90, into=folder / "weak")
    return Runs([strong, weak])


def row(table, **where):
    (found,) = table.frame.filter(*(pl.col(k) == v for k, v in where.items())).rows(named=True)
    return found


def test_a_run_scores_three_modes_on_the_same_samples(runs):
    records = runs[0].records
    assert records.height == 270
    assert set(records["status"]) == {"ok"}
    by_task = [set(part["sample"]) for part in records.partition_by("task")]
    assert by_task[0] == by_task[1] == by_task[2]
    assert {"class", "group", "concept", "style", "lines", "characters", "truncated", "letter", "read"} <= set(
        records.columns
    )
    headline = [s for s in runs[0].scores() if s.metric == "macro_accuracy" and not s.by]
    expected = records.group_by("concept").agg(pl.col("correct").mean())["correct"].mean()
    assert headline[0].value == pytest.approx(expected)
    assert {s.by["task"] for s in runs[0].scores() if s.metric == "macro_accuracy" and s.by} == {
        "text",
        "image",
        "both",
    }


def test_the_modes_table_agrees_with_plain_arithmetic(runs):
    found = row(analyses.modalities(runs), system="strong")
    records = runs[0].records
    wide = records.pivot("task", index=["sample", "concept"], values="correct")
    macro = {m: wide.group_by("concept").agg(pl.col(m).mean())[m].mean() for m in ("text", "image", "both")}
    assert found["average"] == pytest.approx(sum(macro.values()) / 3)
    assert found["fusion_gain"] == pytest.approx(macro["both"] - max(macro["text"], macro["image"]))
    either = (
        wide.with_columns(either=pl.max_horizontal("text", "image")).group_by("concept").agg(pl.col("either").mean())
    )
    assert found["either"] == pytest.approx(either["either"].mean())
    assert found["paired_items"] == 90


def test_modes_and_models_are_tested_item_by_item(runs):
    table = analyses.modality_tests(runs)
    wide = runs[0].records.pivot("task", index="sample", values="correct")
    expected = scoring.mcnemar(wide["image"].to_list(), wide["text"].to_list())
    found = row(table, system="strong", first="image", second="text")
    assert (found["only_first"], found["only_second"], found["p"]) == (
        expected.only_first,
        expected.only_second,
        expected.p,
    )
    assert found["p_holm"] >= found["p"]
    models = row(analyses.models(runs), mode="image")
    assert models["accuracy_first"] > models["accuracy_second"]
    assert models["p_holm"] < 0.01


@pytest.mark.parametrize("by", ["class", "group", "concept", "style"])
def test_categories_partition_the_items(runs, by):
    table = analyses.categories(runs, by=by)
    part = table.frame.filter(pl.col("system") == "strong", pl.col("mode") == "text")
    assert part["n"].sum() == 90
    total = (part["micro"] * part["n"]).sum() / 90
    assert total == pytest.approx(runs[0].records.filter(pl.col("task") == "text")["correct"].mean())


@pytest.mark.parametrize("of", ["lines", "characters"])
def test_length_bins_are_in_order(runs, of):
    table = analyses.lengths(runs, of=of).frame.filter(pl.col("system") == "weak", pl.col("mode") == "both")
    names = scoring.LINE_BINS if of == "lines" else scoring.CHARACTER_BINS
    places = [names.index(name) for name in table[of]]
    assert places == sorted(places)
    assert table["n"].sum() == 90


def test_length_regression_has_slopes_and_contrasts(runs):
    table = analyses.length_regression(runs)
    effects = set(table.frame.filter(pl.col("system") == "strong")["effect"])
    assert "log characters, text" in effects
    assert "image minus text" in effects


def test_letters_chosen_and_right_add_up(runs):
    table = analyses.positions(runs).frame.filter(pl.col("system") == "weak", pl.col("mode") == "text")
    assert table["chosen"].sum() == 90
    assert table["right_share"].sum() == pytest.approx(1)


def test_confusions_count_wrong_answers(runs):
    found = analyses.confusions(runs, top=10_000).frame
    wrong = pl.concat([r.records for r in runs], how="diagonal_relaxed").filter(pl.col("correct") == 0).height
    assert found["count"].sum() == wrong


def test_reading_compares_two_rules_on_the_same_replies(tmp_path):
    run = assay.run(
        "asciieval",
        Knower("chatty", 1, 1, 1, "{}.\nThe lines show it."),
        samples=20,
        tasks=["text"],
        into=tmp_path / "r",
    )
    found = row(analyses.reading(Runs([run])), system="chatty")
    assert found["robust"] == 1
    # "B.", "C." and "D." before a new line are no answers to the published rule.
    assert found["compatible"] < 0.6
    assert found["n"] == 20


def test_rotations_need_all_of_an_item(tmp_path):
    run = assay.run(
        "asciieval", Knower("turner", 0.9, 0, 0), samples=[item.id + "*" for item in load().items[:12]],
        options={"rotate": 4, "modes": "text"}, into=tmp_path / "r",
    )  # fmt: skip
    records = run.records
    assert records.height == 48
    assert records["cluster"].n_unique() == 12
    found = row(analyses.rotations(Runs([run])), system="turner")
    every = records.group_by("cluster").agg(pl.col("correct").min())["correct"].mean()
    assert found["right_in_all"] == pytest.approx(every)
    assert found["items"] == 12
    with pytest.raises(UsageError, match="rotate=4"):
        analyses.rotations(
            Runs([assay.run("asciieval", "method:constant", samples=4, tasks=["text"], into=tmp_path / "c")])
        )


def test_resolution_curves_come_from_runs_with_other_scales(tmp_path):
    made = [
        assay.run(
            "asciieval", "method:random", samples=8, options={"modes": "image", "scale": s}, into=tmp_path / str(s)
        )
        for s in (1.0, 0.25)
    ]
    table = analyses.resolution(Runs(made)).frame
    assert table["scale"].to_list() == [0.25, 1.0]
    assert table["n"].sum() == 16


def test_the_leaderboard_ranks_only_what_is_comparable(runs):
    table = boards.leaderboard(runs, mode="text").frame
    published = table.filter(pl.col("origin") == "published")
    assert published.height == 37
    assert published["rank"].to_list() == sorted(published["rank"].to_list())
    assert published["model"][0] == "GPT-5"
    measured = table.filter(pl.col("origin") == "measured on other items")
    assert measured.height == 2
    assert measured["rank"].null_count() == 2
    average = boards.leaderboard(runs, mode="average").frame
    assert average.filter(pl.col("model") == "InternVL3-78B")["macro"][0] == pytest.approx(43.4733, abs=1e-3)


def test_references_are_those_of_the_oracle(oracle):
    found, expected = boards.published(), oracle("asciieval", "published_leaderboard")
    for mode in ("text", "image"):
        board = {r["model"]: r["macro_accuracy"] for r in found["boards"][mode]}
        assert board == {r["model"]: r["macro_accuracy"] for r in expected[f"{mode}_only"]}
    best = max(r["macro_accuracy"] for r in found["boards"]["image"])
    best_open = max(r["macro_accuracy"] for r in found["boards"]["image"] if r["open_source"])
    assert best - best_open == pytest.approx(expected["derived"]["best_open_image_gap_to_best"], abs=0.005)
    assert sum(found["data"]["classes"].values()) == found["data"]["test_items"]


def test_people_and_models_stand_in_one_table(runs):
    table = boards.people(runs).frame
    assert table.height == 6
    assert table["answer_rate"].min() == 1
    assert table["median_seconds"].min() >= 0


def test_errors_count_as_wrong_in_every_table(tmp_path):
    class Failing(Knower):
        async def generate(self, messages, **options):
            reply = await super().generate(messages, **options)
            if len(prompts.parse(messages).choices[0]) % 2:
                raise ValueError("broken")
            return reply

    run = assay.run("asciieval", Failing("failing", 1, 1, 1), samples=30, tasks=["text"], into=tmp_path / "r")
    failed = (run.records["status"] == "error").sum()
    assert 0 < failed < 30
    found = analyses.categories(Runs([run]), by="style").frame
    assert found["errors"].sum() == failed
    assert (found["micro"] * found["n"]).sum() == pytest.approx(30 - failed)


def test_a_run_in_which_everything_failed_still_makes_tables(tmp_path):
    class Broken:
        name = "python:broken"

        async def generate(self, messages, **_):
            raise ValueError("no")

    write_items(load().items[:3], tmp_path / "items.jsonl")
    options = {"rotate": 2, "data": str(tmp_path / "items.jsonl")}
    run = assay.run("asciieval", Broken(), options=options, into=tmp_path / "r")
    assert set(run.records["status"]) == {"error"}
    runs = Runs([run])
    assert analyses.positions(runs).frame["chosen"].sum() == 0
    assert analyses.confusions(runs).frame.height == 0
    assert analyses.rotations(runs).frame["right_in_all"].to_list() == [0, 0, 0]
    assert analyses.modalities(runs).frame["average"].to_list() == [0]


def test_averages_and_gains_are_of_runs_in_all_three_modes(tmp_path):
    whole = assay.run("asciieval", Knower("whole", 0.5, 0.5, 0.5), samples=30, into=tmp_path / "a")
    some = assay.run("asciieval", Knower("some", 1, 1, 1), samples=30, tasks=["image", "both"], into=tmp_path / "b")
    frame = analyses.modalities(Runs([some, whole])).frame
    assert frame["system"].to_list() == ["whole", "some"]
    row = frame.row(1, named=True)
    assert row["text"] is None
    assert row["image"] > 0.8
    assert (row["average"], row["fusion_gain"], row["either"]) == (None, None, None)
    assert frame["fusion_gain"][0] == pytest.approx(frame["both"][0] - max(frame["text"][0], frame["image"][0]))


def test_other_benchmarks_are_refused():
    class One:
        records = pl.DataFrame({"benchmark": ["gem"], "run": ["r"], "system": ["s"]})

    with pytest.raises(UsageError, match="asciieval"):
        analyses.trials(One())


# -- ways of reading, options, published predictions -----------------------------------------------------------------


class Sure:
    """Gives log-probabilities of its first token."""

    name = "sure"

    async def generate(self, messages, *, logprobs=None, max_tokens=None, **_):
        assert logprobs
        assert max_tokens == 1
        top = {" B": np.log(0.5), "B": np.log(0.1), "A": np.log(0.3)}
        return Reply((Choice("", logprobs=(TokenLogprob(" B", top[" B"], top),)),))


def test_answers_by_probability(tmp_path):
    run = assay.run(
        "asciieval", Sure(), samples=6, options={"answer": "probability", "modes": "text"}, into=tmp_path / "r"
    )
    assert set(run.records["letter"]) == {"B"}
    assert set(run.records["read"]) == {"probability"}
    output = json.loads(run.records["output"][0])
    assert output["probabilities"] == pytest.approx([0.3, 0.6, 0, 0])


def test_a_model_without_probabilities_says_so(tmp_path):
    run = assay.run(
        "asciieval", "method:random", samples=2, options={"answer": "probability", "modes": "text"}, into=tmp_path / "r"
    )
    assert set(run.records["status"]) == {"error"}
    assert "no log-probabilities" in run.records["error"][0]


def test_rules_of_reading_stored_outputs():
    choices = ("cat", "dog", "bird", "fish")
    assert read_letter("C.\nx", choices, "compatible") == (None, "unread")
    assert read_letter("C.\nx", choices, "robust")[0] == "C"
    assert read_letter({"probabilities": [0, 0, 0, 0]}, choices, "robust") == (None, "probability")
    with pytest.raises(DataError, match="without probabilities"):
        read_letter("B", choices, "probability")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"modes": "pictures"}, "mode"),
        ({"modes": " , "}, "empty"),
        ({"answer": "loose"}, "answer rule"),
        ({"rotate": 5}, "rotate"),
        ({"images": "paint"}, "images"),
        ({"image_order": "middle"}, "image_order"),
        ({"data": "/nowhere/at/all"}, "no data file"),
        ({"split": "train"}, "needs data="),
        ({"scale": float("nan")}, "scale nan"),
        ({"longest": 0}, "longest side of 0"),
        ({"temperature": -1}, "temperature=-1"),
        ({"max_tokens": 0}, "max_tokens=0"),
    ],
)
def test_bad_options_are_one_sentence(options, words):
    with pytest.raises(UsageError, match=words) as caught:
        AsciiEval(**options).items  # noqa: B018
    assert "\n" not in str(caught.value)


def test_published_predictions_become_outcomes(tmp_path):
    items = load().items
    for mode in ("text-only", "image-only"):
        rows = [json.dumps({"pred": item.right, "label": item.letter}) for item in items]
        (tmp_path / f"{mode}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    run = assay.run("asciieval", f"submission:{tmp_path}", options={"modes": "text,image"}, into=tmp_path / "r")
    assert run.records.height == 2 * len(items)
    assert run.records["correct"].mean() == 1


@pytest.mark.parametrize("fault", ["label", "pred", "short", "long"])
def test_faulty_predictions_are_named(tmp_path, fault):
    rows = [{"pred": item.right, "label": item.letter} for item in load().items]
    if fault == "label":
        rows[2]["label"] = "ABCD"["ABCD".index(rows[2]["label"]) - 1]
    elif fault == "pred":
        rows[2]["pred"] = None
    elif fault == "short":
        rows.pop()
    else:
        rows.append(rows[0])
    path = tmp_path / "text.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(DataError, match=r"text\.jsonl"):
        list(AsciiEval(modes="text").read(path))
    with pytest.raises(UsageError, match="say which"):
        list(AsciiEval().read(path))


def test_blank_art_is_never_sent_as_a_white_canvas(tmp_path):
    row = {"ascii_art": "\u3000\u200b", "choices": ["a", "b", "c", "d"], "labels": [1, 0, 0, 0]}
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps(row | {"ascii_art": "\u200b"}) + "\n", encoding="utf-8")
    run = assay.run("asciieval", "method:constant", options={"data": str(path), "modes": "image"}, into=tmp_path / "r")
    assert run.records["status"].to_list() == ["error"]
    assert "no visible character" in run.records["error"][0]


# -- regression --------------------------------------------------------------------------------------------------------


def test_logistic_regression_equals_statsmodels():
    sm = pytest.importorskip("statsmodels.api", reason="statsmodels is not installed")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = (rng.random(400) < 1 / (1 + np.exp(-(0.3 + x @ [0.8, -0.5])))).astype(float)
    clusters = rng.integers(0, 60, 400)
    found = logistic(y, x, ("a", "b"), clusters.astype(str).tolist())
    fit = sm.Logit(y, sm.add_constant(x)).fit(disp=0, cov_type="cluster", cov_kwds={"groups": clusters})
    assert [c.value for c in found] == pytest.approx(fit.params.tolist(), abs=1e-6)
    assert [c.p for c in found] == pytest.approx(fit.pvalues.tolist(), rel=0.02)
    robust = sm.Logit(y, sm.add_constant(x)).fit(disp=0, cov_type="HC1")
    assert [c.low for c in logistic(y, x, ("a", "b"))] == pytest.approx(robust.conf_int()[:, 0].tolist(), abs=5e-3)


def test_an_interaction_is_found_where_there_is_one():
    rng = np.random.default_rng(1)
    characters = rng.integers(20, 3000, 1500)
    both = np.concatenate([characters, characters])
    mode = np.repeat([0, 1], 1500)
    log = np.log(both) - np.log(both).mean()
    chance = 1 / (1 + np.exp(-(0.2 - 0.4 * log + 0.9 * log * mode)))
    right = rng.random(3000) < chance
    found = {c.name: c for c in length_by_mode(right, both, mode, [str(i % 1500) for i in range(3000)])}
    assert found["interaction"].low < 0.9 < found["interaction"].high
    assert found["log_characters"].low < -0.4 < found["log_characters"].high


@pytest.mark.parametrize("right", [[1] * 20, [0] * 10 + [1] * 10])
def test_regressions_without_an_estimate_say_so(right):
    with pytest.raises(UsageError, match=re.compile("estimate|separate")):
        logistic(right, list(range(20)), ("x",))
