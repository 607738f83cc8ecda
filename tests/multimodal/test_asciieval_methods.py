"""Methods: guessing, people at the terminal, recognisers; and the conformance suite."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import numpy as np
import pytest

import assay
from assay.core.errors import ProviderError, UsageError
from assay.core.results import Run
from assay.core.run import RunInterrupted
from assay.multimodal.asciieval import prompts, recognisers
from assay.multimodal.asciieval.data import load
from assay.multimodal.asciieval.generator import generate, shapes
from assay.multimodal.asciieval.human import TerminalPerson
from assay.multimodal.asciieval.rendering import RenderOptions, png

# A whole group, so that every distractor is a name that was learnt.
CONCEPTS = [shape.key for shape in shapes() if shape.group == "sign"]


@pytest.fixture(scope="module")
def sets():
    train = generate(range(300, 312), concepts=CONCEPTS, seed=1)
    test = generate(range(400, 408), concepts=CONCEPTS, seed=2)
    return train, test


def asked(item, mode="text"):
    return prompts.build(item.art, item.choices, mode, None if mode == "text" else png(item.art))


def test_guessing_is_at_chance_and_repeatable(tmp_path):
    first = assay.run("asciieval", "method:random", seed=1, options={"modes": "text"}, into=tmp_path / "a").records
    again = assay.run("asciieval", "method:random", seed=1, options={"modes": "text"}, into=tmp_path / "b").records
    other = assay.run("asciieval", "method:random", seed=2, options={"modes": "text"}, into=tmp_path / "c").records
    assert first["letter"].to_list() == again["letter"].to_list()
    assert first["letter"].to_list() != other["letter"].to_list()
    n = first.height
    assert abs(first["correct"].mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / n)


def test_a_constant_letter_is_right_a_quarter_of_the_time(tmp_path):
    records = assay.run("asciieval", "method:constant?letter=C", options={"modes": "text"}, into=tmp_path / "a").records
    assert set(records["letter"]) == {"C"}
    assert records["correct"].mean() == pytest.approx(0.25, abs=0.01)
    with pytest.raises(UsageError, match="letter"):
        assay.run("asciieval", "method:constant?letter=E", into=tmp_path / "b")


# -- recognisers -------------------------------------------------------------------------------------------------------


def accuracy(recogniser, items, mode):
    letters = recognisers.predict(recogniser, items, mode)
    return np.mean([letter == item.letter for letter, item in zip(letters, items)])


def test_recognisers_learn_drawings_they_have_not_seen(sets):
    train, test = sets
    text = accuracy(recognisers.make_recogniser("ngram").fit(train), test, "text")
    image = accuracy(recognisers.make_recogniser("hog").fit(train), test, "image")
    assert image > 0.7
    assert text > 0.3


def test_joined_recognisers_use_both(sets):
    train, test = sets
    assert accuracy(recognisers.make_recogniser("concat").fit(train), test, "both") > 0.6
    gated = recognisers.make_recogniser("gated").fit(train)
    assert accuracy(gated, test, "both") > 0.6
    scores = recognisers.probabilities(gated, [recognisers.question_of(item, "both") for item in test[:5]])
    assert np.exp(scores).sum(axis=1) == pytest.approx(np.ones(5))


def test_a_recogniser_reads_only_its_modes(sets):
    train, test = sets
    recogniser = recognisers.make_recogniser("ngram").fit(train)
    with pytest.raises(UsageError, match="modes=both,text"):
        recognisers.predict(recogniser, test, "image")
    with pytest.raises(UsageError, match="recogniser"):
        recognisers.make_recogniser("eye")


def test_names_not_learnt_never_win_over_learnt_ones(sets):
    train, _ = sets
    recogniser = recognisers.make_recogniser("ngram").fit(train)
    question = prompts.Question("/\\", None, ("cat", "unheard of", "never seen", "nothing"))
    assert recognisers.choice_scores(recogniser, [question]).argmax() == 0


def test_the_gate_needs_several_drawings():
    with pytest.raises(UsageError, match="hold back"):
        recognisers.make_recogniser("gated").fit(generate([1], concepts=["cat"]))


def test_pictures_are_read_whatever_their_size(sets):
    _, test = sets
    whole = recognisers.read_picture(png(test[0].art))
    half = recognisers.read_picture(png(test[0].art, RenderOptions(scale=0.5)))
    assert whole.shape == half.shape == (48, 48)
    assert np.corrcoef(whole.ravel(), half.ravel())[0, 1] > 0.5
    assert recognisers.read_picture(png(" ")).sum() == 0


def test_a_recogniser_runs_as_a_system(tmp_path, sets):
    train, test = sets
    from assay.multimodal.asciieval.data import write_items

    write_items(train, tmp_path / "train.jsonl")
    write_items(test, tmp_path / "test.jsonl")
    run = assay.run(
        "asciieval",
        f"method:hog?train={tmp_path / 'train.jsonl'}",
        options={"data": str(tmp_path / "test.jsonl"), "modes": "image,both"},
        into=tmp_path / "run",
    )
    assert set(run.records["status"]) == {"ok"}
    assert run.records["correct"].mean() > 0.7
    # The picture alone decides, so both modes agree.
    wide = run.records.pivot("task", index="sample", values="letter")
    assert (wide["image"] == wide["both"]).all()


def test_a_small_network_learns_pictures(sets):
    pytest.importorskip("torch", reason="torch is not installed")
    from assay.multimodal.asciieval.network import PictureNetwork

    train, test = sets
    network = PictureNetwork(side=16, epochs=40, seed=1).fit(train)
    assert accuracy(network, test, "image") > 0.5
    question = [recognisers.question_of(test[0], "image")]
    first, again, other = (PictureNetwork(side=16, epochs=2, seed=seed).fit(train[:40]) for seed in (1, 1, 2))
    assert again.log_probabilities(question) == pytest.approx(first.log_probabilities(question), abs=1e-4)
    assert other.log_probabilities(question) != pytest.approx(first.log_probabilities(question), abs=1e-4)


# -- people ------------------------------------------------------------------------------------------------------------


def person(*lines, **options):
    waiting = iter(lines)
    out = io.StringIO()
    ticks = iter(range(1000))
    made = TerminalPerson(read=lambda: next(waiting, ""), write=out, clock=lambda: float(next(ticks)), **options)
    return made, out


def test_a_person_is_shown_the_drawing_and_types_a_letter():
    item = load().items[0]
    human, out = person("x\n", " b \n")
    reply = asyncio.run(human.generate(asked(item)))
    assert (reply.text, reply.seconds) == ("B", 1.0)
    assert item.art in out.getvalue()
    assert f"A: {item.choices[0]}" in out.getvalue()
    assert "Type one of A, B, C, D" in out.getvalue()


def test_no_idea_is_unread_and_stopping_ends_the_run(tmp_path):
    human, _ = person("?\n", "a\n", "q\n")
    with pytest.raises(RunInterrupted, match="resume"):
        assay.run("asciieval", human, samples=5, options={"modes": "text"}, into=tmp_path / "r")
    run = Run(tmp_path / "r")
    read = [r for r in run.records.iter_rows(named=True) if r["status"] == "ok"]
    assert sorted(r["letter"] for r in read) == ["A", "none"]
    assert all("stopped" in r["error"] for r in run.records.iter_rows(named=True) if r["status"] == "error")
    more, _ = person("b\n", "c\n", "d\n")
    finished = assay.resume(run, system=more, retry_errors=True)
    assert sorted(finished.records["letter"]) == ["A", "B", "C", "D", "none"]


def test_practice_does_not_count():
    item = load().items[0]
    human, out = person("a\n", "b\n", "c\n", practice=2)
    assert asyncio.run(human.generate(asked(item))).text == "C"
    assert out.getvalue().count("practice") == 2


def test_pictures_are_put_into_a_file():
    item = load().items[0]
    human, out = person("d\n")
    asyncio.run(human.generate(asked(item, "both")))
    path = Path(out.getvalue().split("Picture: ")[1].split("\n")[0])
    assert path.read_bytes() == png(item.art)
    path.unlink()


def test_a_drawing_cannot_rewrite_the_screen():
    human, out = person("a\n")
    asyncio.run(human.generate(prompts.build("\x1b[2J/\\", ("a\x1b[1m", "b", "c", "d"), "text")))
    assert "\x1b" not in out.getvalue()


def test_the_end_of_input_is_the_end():
    human, _ = person()
    with pytest.raises(ProviderError) as caught:
        asyncio.run(human.generate(asked(load().items[0])))
    assert caught.value.fatal


# -- what models make of the drawing --------------------------------------------------------------------------------


def test_drawings_survive_a_chat_template_and_tokenizer():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    raw = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=None, byte_fallback=False))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    items = load().items[:20]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, show_progress=False, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    raw.train_from_iterator([item.art for item in items], trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw)
    plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    for item in items:
        messages = asked(item)
        prompt = tokenizer.apply_chat_template(messages, chat_template=plain, tokenize=False)
        text = tokenizer.decode(tokenizer.encode(prompt), clean_up_tokenization_spaces=False)
        assert f"[ASCII ART]\n{item.art}\n\n[Question]" in text
        # A template that strips messages leaves the drawing alone too: it never stands at a message's edge.
        stripping = plain.replace("m.content", "m.content.strip()")
        assert item.art in tokenizer.apply_chat_template(messages, chat_template=stripping, tokenize=False)


@pytest.mark.slow
def test_the_reproduction_reports_every_claim(tmp_path):
    from assay import make

    out = make("asciieval.reproduce", tmp_path / "r", items=180, model="none")
    report = (out / "report.md").read_text()
    for letter in "abcde":
        assert f"| ({letter}) " in report
    assert "not tested: model=none" in report
    assert json.loads((out / "manifest.json").read_text())["recipe"] == "asciieval.reproduce"
