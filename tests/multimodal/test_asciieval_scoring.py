"""Letters, bins, accuracies and tests of significance against the oracles and against definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.multimodal.asciieval import scoring
from assay.multimodal.asciieval.words import sentences, words

CHOICES = ["cat", "dog", "bird", "fish"]


def test_letters_are_read_as_the_published_scorer_reads_them(oracle):
    cases = oracle("asciieval", "answer_extraction")["cases"]
    assert len(cases) > 15
    for case in cases:
        reply, choices = case["reply"], case["choices"]
        assert scoring.letter_plain(reply, choices) == case["letter_plain"], reply
        letter = scoring.letter_compatible(reply, choices)
        assert letter == case["letter_with_thinking_removed"], reply
        assert (letter is not None) == case["counts_as_answered"], reply


def test_letter_of_the_largest_probability(oracle):
    for case in oracle("asciieval", "choice_by_probability")["cases"]:
        assert scoring.letter_by_probability(case["probabilities"]) == case["expected"]


@pytest.mark.parametrize(
    "bad", [[0.5, 0.5], [1, 0, 0, -0.1], [float("nan")] * 4, [], [math.inf, 0, 0, 0], [None] * 4, "abcd"]
)
def test_probabilities_must_be_four_numbers_not_negative(bad):
    with pytest.raises(UsageError, match="Four probabilities"):
        scoring.letter_by_probability(bad)


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("A", "A"),
        ("A. dog", "B"),  # an initial before a small word is no sentence end, so the choice's text decides
        ("A.\nThe tail shows it.", "A"),
        ("D.\nThe tail shows it.", None),  # D is an abbreviation to the sentence splitter, A is not
        ("a dog", "B"),
        ("A/B", None),
        ("I would say C!", "C"),
        ("catfish", "A"),  # text inside another word counts, as published
        ("Dog", None),
        ("The answer is B and C", "B"),
        ("None", None),
    ],
)
def test_the_published_rule_with_its_oddities(reply, letter):
    assert scoring.letter_compatible(reply, CHOICES) == letter


@pytest.mark.parametrize(
    ("reply", "letter"),
    [("C.\nBecause of the wings", "C"), ("b", "B"), ("A dog is shown, so B", "B"), ("catfish", None), ("A/B", None)],
)
def test_the_robust_rule_where_the_published_one_errs(reply, letter):
    assert scoring.letter_robust(reply, CHOICES).value == letter


def test_thinking_is_cut_at_the_first_marks_and_minds_case():
    assert scoring.cut_thinking("x</think>y</think>z") == "y"
    assert scoring.cut_thinking("so the answer is B, the answer is C") == " B, "
    assert scoring.cut_thinking("The Answer is B") == "The Answer is B"


def test_length_bins_and_line_counts(oracle):
    for case in oracle("asciieval", "length_bins")["cases"]:
        if "line_bin" in case:
            assert scoring.line_bin(case["lines"]) == case["line_bin"]
        elif "character_bin" in case:
            assert scoring.character_bin(case["characters"]) == case["character_bin"]
        else:
            assert scoring.count_lines(case["ascii_art"]) == case["lines"]
            assert len(case["ascii_art"]) == case["characters"]
    assert len(scoring.LINE_BINS) == 6
    assert len(scoring.CHARACTER_BINS) == 7


def test_micro_and_macro_overall_and_inside_groups_and_classes(oracle):
    for case in oracle("asciieval", "micro_macro")["cases"]:
        report = scoring.accuracy_report(case["records"])
        expected = case["expected"]
        assert report.overall.micro == pytest.approx(expected["micro"], abs=1e-12)
        assert report.overall.macro == pytest.approx(expected["macro"], abs=1e-12)
        for name, found in (("by_group", report.by_group), ("by_class", report.by_class)):
            assert found.keys() == expected[name].keys()
            for key, value in expected[name].items():
                assert found[key].micro == pytest.approx(value["micro"], abs=1e-12)
                assert found[key].macro == pytest.approx(value["macro"], abs=1e-12)


def test_no_records_have_no_accuracy():
    assert math.isnan(scoring.accuracy_report([]).overall.macro)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.integers(0, 1)), min_size=1))
def test_macro_does_not_depend_on_order_and_equals_micro_for_equal_counts(rows):
    records = [{"category-1": "k", "category-2": g, "category-3": c, "score": s} for c, g, s in rows]
    report = scoring.accuracy_report(records)
    again = scoring.accuracy_report(records[::-1])
    assert report.overall.macro == pytest.approx(again.overall.macro)
    doubled = scoring.accuracy_report(records * 2)
    assert doubled.overall.micro == pytest.approx(report.overall.micro)
    sizes = {}
    for c, g, _ in rows:
        sizes[c, g] = sizes.get((c, g), 0) + 1
    if len(set(sizes.values())) == 1:
        assert report.overall.macro == pytest.approx(report.overall.micro)


def test_modes_compared_item_by_item(oracle):
    for case in oracle("asciieval", "modality_comparison")["cases"]:
        found = scoring.compare_modalities(case["text"], case["image"], case["both"])
        expected = case["expected"]
        assert found.text == pytest.approx(expected["accuracy_text"], abs=1e-9)
        assert found.image == pytest.approx(expected["accuracy_image"], abs=1e-9)
        assert found.both == pytest.approx(expected["accuracy_both"], abs=1e-9)
        assert found.either == pytest.approx(expected["either_upper_bound"], abs=1e-9)
        assert found.fusion_gain == pytest.approx(expected["fusion_gain"], abs=1e-9)
        for name in ("both_vs_image", "image_vs_text"):
            test, wanted = getattr(found, name), expected[f"mcnemar_{name}"]
            assert (test.only_first, test.only_second) == (wanted["only_first"], wanted["only_second"])
            assert test.p == pytest.approx(wanted["p_exact_two_sided"], abs=1e-9)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"category-3": None}, "Record 2: field 'category-3' is missing"),
        ({"score": None}, "Record 2: field 'score' is missing"),
        ({"score": math.nan}, "Record 2: field 'score' is nan"),
        ({"score": 2}, "Record 2: field 'score' is 2"),
        ({"score": "1"}, "Record 2: field 'score' is '1'"),
    ],
)
def test_records_that_cannot_be_averaged_are_named(change, match):
    record = {"category-1": "k", "category-2": "g", "category-3": "c", "score": True}
    assert scoring.accuracy_report([record]).overall == scoring.Accuracy(1.0, 1.0, 1)
    with pytest.raises(DataError, match=match):
        scoring.accuracy_report([record, {**record, **change}])


def test_unpaired_answers_are_refused():
    with pytest.raises(UsageError, match="NaN"):
        scoring.mcnemar([1, math.nan], [1, 0])
    with pytest.raises(UsageError, match="Paired"):
        scoring.mcnemar([1, 0], [1])
    with pytest.raises(UsageError, match="same items"):
        scoring.compare_modalities([1], [1, 0], [1])


def test_average_over_modes_is_the_plain_mean(oracle):
    for case in oracle("asciieval", "leaderboard_average")["cases"]:
        average = scoring.modality_average(case["text_only"], case["image_only"], case["text_image"])
        assert average == pytest.approx(case["expected_average"], abs=1e-3)
        assert (abs(average - case["published_average"]) < 0.006) == case["published_agrees"]


# -- the word tokeniser ------------------------------------------------------------------------------------------------

PIECES = [
    'A', 'B', 'C', 'D', 'A.', 'B.', 'C.', 'D.', '(A)', '**B**', "'C'", '"D"', '$C.', '<C.', 'The', 'Because',
    'dog', 'giraffe', 'Dog', 'Giraffe', 'It', 'is', 'etc.', 'e.g.', 'Mr.', 'U.S.', '3.', '10.', '...', '..',
    '. . .', '?', '!', '?!', '--', '-', '\n', '\n\n', '\t', ' ', ':', ',', ';', 'answer', 'Answer:', "can't",
    "it's", 'cannot', 'gonna', "'tis", '``', "''", '»', '“', '’', '`', '```', '{', '}', '[', ']', '=', '/',
    'A/B', '\\boxed{B}', 'A,B', 'B)', 'C:', 'é.', 'No.', 'Stewart', 'option-C.', '&', '#', '%', '3,4', 'A.B.',
    'A.)', '.)', '."', '.”', '\r\n', '\x0b', '\xa0', '—', 'The.', 'Explanation',
]  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(["", " ", " ", "\n"])), max_size=9))
def test_words_equal_nltk_where_it_and_its_data_are_installed(parts):
    tokenize = pytest.importorskip("nltk.tokenize", reason="nltk is not installed")
    text = "".join(piece + space for piece, space in parts)
    try:
        expected = tokenize.word_tokenize(text)
    except LookupError:
        pytest.skip("nltk's punkt_tab data are not installed")
    assert words(text) == expected
    assert sentences(text) == tokenize.sent_tokenize(text)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("Mr. Bean can't see it.", ["Mr.", "Bean", "ca", "n't", "see", "it", "."]),
        ('He said "no". So what?!', ["He", "said", "``", "no", "''", ".", "So", "what", "?", "!"]),
        ("B. Stewart draws", ["B.", "Stewart", "draws"]),
        ("It ends. A cat starts.", ["It", "ends", ".", "A", "cat", "starts", "."]),
        ("10. The end (really.) Yes", ["10", ".", "The", "end", "(", "really", ".", ")", "Yes"]),
    ],
)
def test_words_of_known_sentences(text, tokens):
    # Expected values: nltk 3.10.4 with punkt_tab.
    assert words(text) == tokens


@settings(deadline=None)
@given(st.text(max_size=60))
def test_words_take_any_text_and_lose_no_letter(text):
    joined = "".join(words(text))
    assert all(char in joined for char in text if char.isalnum())
