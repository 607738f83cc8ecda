"""Matching: against brute force over all assignments, and by its definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from assay.core.errors import UsageError
from assay.core.matching import Matching, assign, by_embedding, match, pooled, similarities

TABLES = st.tuples(st.integers(0, 4), st.integers(0, 4)).flatmap(
    lambda size: st.lists(
        st.lists(st.sampled_from([0.0, 0.3, 0.5, 0.8, 0.85, 1.0]), min_size=size[1], max_size=size[1]),
        min_size=size[0],
        max_size=size[0],
    ).map(lambda rows: np.array(rows, dtype=float).reshape(size))
)


def best(table: np.ndarray, threshold: float) -> tuple[int, float]:
    """Most pairs, then most similarity, by trying every assignment."""
    n, m = table.shape
    results = [(0, 0.0)]
    turned = table if n <= m else table.T
    for columns in itertools.permutations(range(max(n, m)), min(n, m)):
        values = [turned[i, j] for i, j in enumerate(columns) if turned[i, j] >= threshold]
        results.append((len(values), round(sum(values), 9)))
    return max(results)


@settings(max_examples=100, deadline=None)
@given(TABLES, st.sampled_from([0.3, 0.5, 0.85, 1.0]))
def test_as_many_pairs_as_can_be_then_as_similar(table, threshold):
    found = assign(table, threshold)
    assert (len(found.pairs), round(sum(pair[2] for pair in found.pairs), 9)) == best(table, threshold)
    assert len({pair[0] for pair in found.pairs}) == len({pair[1] for pair in found.pairs}) == len(found.pairs)
    for i, j, similarity in found.pairs:
        assert similarity == table[i, j] >= threshold


@settings(deadline=None)
@given(TABLES)
def test_turning_the_sides_swaps_precision_and_recall(table):
    one, other = assign(table, 0.5), assign(table.T, 0.5)
    assert (one.precision, one.recall, one.f1) == (other.recall, other.precision, other.f1)


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcd"), max_size=6), st.lists(st.sampled_from("abcd"), max_size=6))
def test_exact_matching_is_the_intersection_of_multisets(predicted, gold):
    common = sum(min(predicted.count(x), gold.count(x)) for x in set(predicted))
    found = match(predicted, gold, "exact")
    assert len(found.pairs) == common
    assert len(found.extra) == len(predicted) - common
    assert len(found.missed) == len(gold) - common


def test_empty_sides_are_defined():
    assert (match([], []).precision, match([], []).recall, match([], []).f1) == (1.0, 1.0, 1.0)
    assert (match([], ["a"]).precision, match([], ["a"]).recall, match([], ["a"]).f1) == (0.0, 0.0, 0.0)
    assert (match(["a"], []).precision, match(["a"], []).recall, match(["a"], []).f1) == (0.0, 0.0, 0.0)


def test_ties_go_to_the_nearest_place():
    assert [pair[:2] for pair in match(["a"] * 4, ["a"] * 4, "exact").pairs] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert [pair[:2] for pair in match(["x", "a"], ["a", "a", "a"], "exact").pairs] == [(1, 1)]


def test_kinds_of_similarity():
    assert match(["The Cat."], ["the cat"], "exact").f1 == 0
    assert match(["The Cat."], ["the  cat"]).f1 == 1
    assert match(["kitten"], ["sitting"], "levenshtein", threshold=0.57).pairs[0][2] == pytest.approx(1 - 3 / 7)
    assert match(["kitten"], ["sitting"], "levenshtein", threshold=0.58).pairs == ()
    assert match(["ab"], ["xy"], lambda a, b: np.ones((len(a), len(b)))).f1 == 1


@settings(deadline=None)
@given(
    st.lists(st.text(alphabet="abc", max_size=5), max_size=6), st.lists(st.text(alphabet="abc", max_size=5), max_size=6)
)
def test_levenshtein_table(a, b):
    table = similarities(a, b, "levenshtein")
    assert table.shape == (len(a), len(b))
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            assert table[i, j] == pytest.approx(Levenshtein.normalized_similarity(x, y))


def test_triples_match_part_by_part():
    predicted = [("start", "yes", "end"), ("a", "no", "b")]
    gold = [("a", "no", "b"), ("Start", "yes", "ends")]
    assert match(predicted, gold, "exact").f1 == 0.5
    assert match(predicted, gold, "levenshtein", threshold=0.75).f1 == 1
    assert match(predicted, gold, "levenshtein", threshold=0.85).f1 == 0.5
    assert match(predicted, gold, "levenshtein", threshold=0.85, combine="mean").f1 == 1


def test_embeddings():
    vectors = {"cat": [1, 0], "feline": [0.9, 0.1], "car": [0, 1], "": [0, 0]}
    seen = []

    def encode(texts):
        seen.extend(texts)
        return [vectors[text] for text in texts]

    found = match(["car", "cat", "cat"], ["feline", "car"], by_embedding(encode), threshold=0.9)
    assert [pair[:2] for pair in found.pairs] == [(0, 1), (1, 0)]
    assert sorted(seen) == ["car", "cat", "feline"]
    assert match([""], [""], by_embedding(encode), threshold=0.5).f1 == 0


def test_pooling_is_micro_averaging():
    one, two = match(["a", "b"], ["a"]), match([], ["c", "d"])
    both = pooled([one, two])
    assert (both.n_predicted, both.n_gold, len(both.pairs)) == (2, 3, 1)
    assert both.f1 == pytest.approx(2 / 5)
    assert both.missed == [1, 2]
    assert pooled([]) == Matching((), 0, 0)


def test_bad_input():
    with pytest.raises(UsageError, match="same number of parts"):
        match([("a", "b")], ["a"])
    with pytest.raises(UsageError, match="did you mean 'levenshtein'"):
        match(["a"], ["a"], "levenstein")
    with pytest.raises(UsageError, match="NaN"):
        match(["a"], ["b"], lambda a, b: np.full((1, 1), np.nan))
    with pytest.raises(UsageError, match="shape"):
        match(["a"], ["b"], lambda a, b: np.ones((2, 2)))
    with pytest.raises(UsageError, match=r"must be \(n, d\)"):
        match(["a"], ["b"], by_embedding(lambda texts: np.ones(3)))
