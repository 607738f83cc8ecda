"""Comparators, answer blocks, votes and the published sample against the oracles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.reasoning.cost_of_pass.sampling import published_sample
from assay.reasoning.cost_of_pass.scoring import (
    answer_block,
    choice_letter,
    comparator,
    exact_match,
    judge,
    letter_match,
    majority_vote,
    math_match,
    read_answer,
    robust_math_match,
    soft_match,
)


def test_answer_blocks_are_read_as_published(oracle):
    for case in oracle("cost_of_pass", "answer_tag")["cases"]:
        assert answer_block(case["output"]) == case["expected"], case


def test_the_last_of_several_answer_blocks_counts_and_may_span_lines():
    assert answer_block("<answer>1</answer> no: <answer>\n2\nand 3 </answer> done") == "2\nand 3"


def test_choice_letters_are_read_as_published(oracle):
    for case in oracle("cost_of_pass", "multiple_choice_letter")["cases"]:
        assert choice_letter(case["text"]) == case["expected_letter"], case


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("(AB)", "A"),  # no bracketed letter, no lone letter: the first letter anywhere
        ("the (AB) or [C]", "C"),
        ('pick "d" or c)', "D"),
        ("xb) or -  e", "E"),  # b stands inside a word, so 'b)' does not count
        ("A: =b", "B"),
        ("1A2", "A"),
        ("GH", ""),
        ("zzb", "B"),
        ("- \n f", "F"),
    ],
)
def test_priorities_of_letters(text, letter):
    assert choice_letter(text) == letter


def test_strings_match_as_published(oracle):
    for case in oracle("cost_of_pass", "string_match")["cases"]:
        assert exact_match(case["output"], case["target"], empty_matches=True) is case["exact"], case
        assert soft_match(case["output"], case["target"], empty_matches=True) is case["soft"], case


@pytest.mark.parametrize("match", [exact_match, soft_match, letter_match, math_match])
def test_empty_never_matches_empty_unless_asked(match):
    assert not match("", "")
    assert not match("  ", " ")
    assert match("", "", empty_matches=True)


def test_an_empty_target_does_not_lie_in_every_answer():
    assert not soft_match("x", "")


def test_letters_without_any_letter_match_only_when_asked():
    assert not letter_match("none", "99") or choice_letter("none")
    assert not letter_match("??", "99")
    assert letter_match("??", "99", empty_matches=True)


def test_mathematics_matches_as_published(oracle):
    for case in oracle("cost_of_pass", "math_match")["cases"]:
        assert math_match(case["output"], case["target"]) is case["expected"], case


def test_what_cannot_be_parsed_is_wrong_and_raises_nothing():
    assert not math_match("\\frac{{{", "5")
    assert not math_match("$$$", "$")


def test_the_robust_comparator_reads_what_the_published_one_cannot():
    assert not math_match("about 7", "7")
    assert robust_math_match("100 cm", "1 m")
    assert not robust_math_match("", "")


def test_votes_are_counted_as_published(oracle):
    for case in oracle("cost_of_pass", "majority_vote")["cases"]:
        assert majority_vote(case["votes"], case["comparator"], empty_votes=True) == case["expected"], case


def test_unread_votes_do_not_win_unless_asked():
    assert majority_vote(["", "", "3"], "exact") == "3"
    assert majority_vote(["", ""], "exact") == ""


def test_a_comparator_that_is_not_transitive_makes_the_order_of_votes_matter():
    def near(a: str, b: str) -> bool:
        return abs(float(a) - float(b)) <= 1

    assert majority_vote(["1", "2", "3"], near) == "1"
    assert majority_vote(["2", "1", "3"], near) == "2"
    assert majority_vote(["1", "3", "2"], near) == "1"


def test_no_votes_and_unknown_comparators_are_refused():
    with pytest.raises(DataError, match="at least one answer"):
        majority_vote([])
    with pytest.raises(UsageError, match="did you mean 'math'"):
        comparator("mth")
    assert comparator("MultipleChoiceMatch") is letter_match


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9))
def test_the_vote_is_an_answer_with_most_votes_and_the_first_such(votes):
    winner = majority_vote(votes, lambda a, b: a == b)
    most = max(map(votes.count, votes))
    assert winner == next(v for v in votes if votes.count(v) == most)


@given(st.text(max_size=60))
def test_readers_take_any_text(text):
    assert choice_letter(text) in ("", *"ABCDEF")
    assert isinstance(answer_block(text), str)
    assert isinstance(exact_match(text, text, empty_matches=True), bool)


@pytest.mark.parametrize(
    ("text", "form", "published", "robust"),
    [
        ("<ANSWER>3</ANSWER>", "number", "", "3"),
        ("so \\boxed{12}", "expression", "", "12"),
        ("I choose (C).", "letter", "", "C"),
        ("The answer is 42.", "number", "", "42"),
        ("<answer>7</answer>", "number", "7", "7"),
        ("no idea", "expression", "", ""),
    ],
)
def test_robust_reading_finds_more_than_the_published_rule(text, form, published, robust):
    assert read_answer(text, form, "published")[0] == published
    answer, how = read_answer(text, form, "robust")
    assert answer == robust
    assert (how == "unread") is (not robust)


def test_judging_reads_votes_and_compares():
    texts = [f"<answer>{a}</answer>" for a in ("1", "2", "2.0")]
    assert judge(texts, True, "2", "math", "number", "published") == ("2", "vote", True)
    assert judge(texts, False, "2", "math", "number", "published") == ("2.0", "tag", True)
    assert judge(["nothing"], False, "2", "math", "number", "published") == ("", "unread", False)


def test_problems_are_sampled_as_published(oracle):
    for case in oracle("cost_of_pass", "sample_indices")["cases"]:
        assert published_sample(case["k"], case["n"]) == case["expected"], case


@given(st.integers(0, 80), st.integers(0, 80))
def test_samples_are_nested_and_never_repeat(k, n):
    chosen = published_sample(k, n)
    assert len(chosen) == min(k, n)
    assert len(set(chosen)) == len(chosen)
    assert chosen == published_sample(n, n)[:k]
