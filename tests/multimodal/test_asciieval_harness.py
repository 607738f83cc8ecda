"""The harness task: the same questions and the same scores as a run of the benchmark."""

from __future__ import annotations

import math

import pytest

import assay
from assay.core.errors import DataError, UsageError
from assay.multimodal.asciieval import ASCIIEvalTask, prompts, scoring
from assay.multimodal.asciieval.harness import macro_accuracy
from assay.systems.scripted import ScriptedChatModel, text_of

REPLIES = ("{0}", "The answer is {0}.", "**{0}**", "no idea", "It shows a {1}.", "A cat or {0}?")


def scripted(question: str) -> str:
    """A reply that depends on the question alone: some right, some wrong, some unreadable."""
    number = sum(question.encode())
    choices = prompts.parse([{"role": "user", "content": question}]).choices
    place = number % 4
    return REPLIES[number % len(REPLIES)].format(scoring.LETTERS[place], choices[place])


def through_harness(task: ASCIIEvalTask, reply) -> dict[str, float]:
    parts = [task.process_results(doc, [reply(task.doc_to_text(doc))]) for doc in task.test_docs()]
    return {name: join([part[name] for part in parts]) for name, join in task.aggregation().items()}


@pytest.mark.parametrize("answer", ["robust", "compatible"])
def test_scores_agree_with_a_run_on_the_shipped_items(tmp_path, answer):
    model = ScriptedChatModel(lambda messages, rng: scripted(text_of(messages)))
    run = assay.run("asciieval", model, options={"modes": "text", "answer": answer}, into=tmp_path / "run")
    scores = {s.metric: s.value for s in run.scores() if not s.by}
    found = through_harness(ASCIIEvalTask("text", answer=answer), scripted)
    assert 0.05 < found["macro_acc"] < 0.6
    assert 0.2 < found["answer_rate"] < 1
    assert found["macro_acc"] == pytest.approx(scores["macro_accuracy"])
    assert found["micro_acc"] == pytest.approx(scores["micro_accuracy"])
    assert found["answer_rate"] == pytest.approx(scores["answer_rate"])


@pytest.mark.parametrize("mode", ["text", "image", "both"])
def test_questions_are_those_of_a_run(mode):
    task = ASCIIEvalTask(mode)
    doc = next(task.test_docs())
    png = b"picture" if mode != "text" else None
    content = prompts.build(doc["ascii_art"], doc["choices"], mode, png)[0]["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    assert task.doc_to_text(doc) == text
    pictures = task.doc_to_visual(doc)
    assert len(pictures) == (mode != "text")
    if pictures:
        from assay.multimodal.asciieval import render

        assert pictures[0].tobytes() == render(doc["ascii_art"]).tobytes()


def test_a_picture_mark_stands_first_where_a_picture_is_shown():
    doc = next(ASCIIEvalTask("image").test_docs())
    assert ASCIIEvalTask("image-only", image_mark="<image>").doc_to_text(doc).startswith("<image>\n")
    assert "<image>" not in ASCIIEvalTask("text", image_mark="<image>").doc_to_text(doc)


def test_targets_are_letters_of_the_hot_label():
    task = ASCIIEvalTask()
    assert task.has_test_docs()
    assert not task.has_training_docs()
    assert not task.has_validation_docs()
    docs = list(task.test_docs())
    assert len(docs) == 270
    for doc in docs:
        assert task.doc_to_choice(doc)[doc["labels"].index(1)] == task.doc_to_target(doc)
    assert set(task.higher_is_better()) == set(task.aggregation()) == {"macro_acc", "micro_acc", "answer_rate"}


def test_log_likelihoods_choose_the_likeliest_letter():
    task = ASCIIEvalTask()
    doc = next(task.test_docs())
    right = scoring.LETTERS.index(task.doc_to_target(doc))
    bare = [-2000.0 + (place == right) for place in range(4)]  # all would be 0 as probabilities
    assert task.process_results(doc, bare)["micro_acc"] == 1
    assert task.process_results(doc, [(value, False) for value in bare])["macro_acc"][1] == 1
    assert task.process_results(doc, [-v for v in bare])["micro_acc"] == 0
    assert task.process_results(doc, [-math.inf] * 4)["answer_rate"] == 0


def test_macro_weighs_concepts_equally():
    assert macro_accuracy([("a.x", 1), ("a.x", 1), ("a.x", 0), ("b.x", 0)]) == pytest.approx(1 / 3)
    assert math.isnan(macro_accuracy([]))


def test_what_cannot_be_read_is_refused():
    task = ASCIIEvalTask()
    doc = next(task.test_docs())
    with pytest.raises(UsageError, match="there are: compatible, robust"):
        ASCIIEvalTask(answer="zzz")
    with pytest.raises(UsageError, match="mode"):
        ASCIIEvalTask("sound")
    with pytest.raises(UsageError, match="log-likelihoods"):
        task.process_results(doc, ["A", "B"])
    with pytest.raises(UsageError, match="Four"):
        task.process_results(doc, [-1.0, -2.0])
    with pytest.raises(DataError, match="labels"):
        task.doc_to_target({**doc, "labels": [1, 1, 0, 0]})
