"""Texts in bulk: against nltk, exact Jaccard by brute force, dense cosine."""

from __future__ import annotations

import itertools
import math
import random
import time
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.text import (
    Pair,
    distinct_n,
    groups_of,
    hashed_ngrams,
    near_duplicates,
    normalise,
    self_bleu,
    tokens,
    top_k,
)

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f"]), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("  The  CAT. ", "the cat"), ("state-of-the-art", "state of the art"), ("ＡＢＣ", "abc"), ("naïve", "naïve"),
        ("Straße", "strasse"),
        ("a\u200bb", "ab"), ("5 + 3 = $8", "5 + 3 = $8"), ("“quoted”", "quoted"), ("a_b", "a b"),
        ("", ""), ("...", ""), ("ﬁne", "fine"),
        ("a\u00a0b", "a b"), ("don't", "don t"), ("don’t", "don t"),
    ],
)  # fmt: skip
def test_normal_form(text, want):
    assert normalise(text) == want


@settings(deadline=None)
@given(st.text())
def test_normal_form_is_stable(text):
    assert normalise(normalise(text)) == normalise(text)
    assert normalise(f" {text}\n") == normalise(text)


@settings(deadline=None)
@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_ascii_takes_the_same_path(text):
    assert normalise(text + " é") == (normalise(text) + " é").strip()


def test_distinct_n():
    assert distinct_n(["a b a b"], 1) == 2 / 4
    assert distinct_n(["a b a b"], 2) == 2 / 3
    assert distinct_n(["a b", "a b"], 2) == 1 / 2
    assert math.isnan(distinct_n(["a"], 2))
    assert distinct_n([["x", "y"], ["x", "z"]], 1) == 3 / 4


@settings(deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=5), st.integers(1, 3))
def test_distinct_n_lies_in_range(documents, n):
    value = distinct_n(documents, n)
    assert math.isnan(value) or 0 < value <= 1


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, min_size=2, max_size=6), st.integers(1, 4))
def test_self_bleu_is_that_of_nltk(documents, n):
    bleu = pytest.importorskip("nltk.translate.bleu_score")
    smooth = bleu.SmoothingFunction().method1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = [
            bleu.sentence_bleu(
                documents[:i] + documents[i + 1 :], words, weights=(1 / n,) * n, smoothing_function=smooth
            )
            for i, words in enumerate(documents)
        ]
    assert self_bleu(documents, n) == pytest.approx(float(np.mean(scores)), abs=1e-12)


def test_self_bleu_ends():
    assert self_bleu(["the cat sat on a mat"] * 3) == pytest.approx(1.0)
    assert self_bleu(["a b c", "d e f"]) == 0.0
    assert math.isnan(self_bleu(["alone"]))


def shingles(text: str, size: int) -> set[str]:
    text = normalise(text).ljust(size)
    return {text[i : i + size] for i in range(len(text) - size + 1)}


def jaccard(a: str, b: str, size: int = 5) -> float:
    x, y = shingles(a, size), shingles(b, size)
    return len(x & y) / len(x | y)


def corpus(n: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    vocabulary = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(3, 8))) for _ in range(300)]
    texts = [" ".join(rng.choices(vocabulary, k=rng.randint(6, 16))) for _ in range(n)]
    for _ in range(n // 2):
        words = rng.choice(texts).split()
        words[rng.randrange(len(words))] = rng.choice(vocabulary)
        texts.append(" ".join(words))
    rng.shuffle(texts)
    return texts


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.9])
def test_near_duplicates_are_those_of_brute_force(threshold):
    texts = corpus(120, seed=3)
    truth = {
        (i, j): s
        for i, j in itertools.combinations(range(len(texts)), 2)
        if (s := jaccard(texts[i], texts[j])) >= threshold
    }
    found = {(pair.first, pair.second): pair.similarity for pair in near_duplicates(texts, threshold)}
    assert set(found) <= set(truth)  # none that is not one
    assert len(found) >= 0.97 * len(truth) > 0
    for key, similarity in found.items():
        assert similarity == pytest.approx(truth[key])


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab c", max_size=12), max_size=12))
def test_equal_texts_are_always_found(texts):
    groups = groups_of(near_duplicates(texts, 0.9), len(texts))
    for i, j in itertools.combinations(range(len(texts)), 2):
        if normalise(texts[i]) == normalise(texts[j]):
            assert any(i in group and j in group for group in groups)


def test_many_alike_make_one_group_and_few_pairs():
    texts = [f"the same long sentence about nothing in particular, number {n}" for n in range(3000)]
    pairs = near_duplicates(texts, 0.6)
    assert len(pairs) < 40 * len(texts)
    assert max(len(group) for group in groups_of(pairs, len(texts))) > 2900


def test_near_duplicates_of_little():
    assert near_duplicates([]) == []
    assert near_duplicates(["", "", "a"]) == [Pair(0, 1, 1.0)]
    assert near_duplicates(["The cat.", "the CAT"]) == [Pair(0, 1, 1.0)]
    with pytest.raises(ValueError, match="threshold"):
        near_duplicates(["a"], 0.0)


def test_groups():
    assert groups_of([Pair(0, 3, 1.0), Pair(3, 5, 0.9), Pair(1, 2, 0.9)], 6) == [[0, 3, 5], [1, 2]]
    assert groups_of([], 3) == []


def test_ten_thousand_short_texts_in_seconds():
    texts = corpus(6_700, seed=5)
    started = time.perf_counter()
    assert near_duplicates(texts, 0.8)
    assert time.perf_counter() - started < 20  # about a second on a quiet machine


def test_rows_have_length_one():
    matrix = hashed_ngrams(["a", "", "some words", "b" * 500])
    np.testing.assert_allclose(np.sqrt(matrix.multiply(matrix).sum(axis=1)), 1, rtol=1e-5)


def test_top_k_is_that_of_dense_cosine():
    texts = corpus(60, seed=7)
    dense = hashed_ngrams(texts).toarray()
    scores = dense @ dense.T
    np.fill_diagonal(scores, -1)
    indices, similarities = top_k(texts, k=3, chunk=7)
    assert indices.shape == similarities.shape == (len(texts), 3)
    np.testing.assert_allclose(similarities, -np.sort(-scores, axis=1)[:, :3], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(scores, indices, axis=1), similarities, atol=1e-5)


def test_top_k_finds_what_is_alike():
    indices, similarities = top_k(["the black cat", "zzz"], ["a dog", "The black cat!", "one black cat"], k=2)
    assert indices[0].tolist() == [1, 2]
    assert similarities[0, 0] == pytest.approx(1.0, abs=1e-6)
    assert similarities[1, 0] == pytest.approx(0.0, abs=1e-6)
    assert indices[1].tolist() == [0, 1]  # of equals the earlier
    assert top_k(["a"], k=3)[0].shape == (1, 0)
    assert top_k(["a", "b"], [], k=3)[0].shape == (2, 0)
    assert top_k([], ["a"])[0].shape == (0, 1)


def test_tokens():
    assert tokens("Don't stop, it's 3.5!") == ["don't", "stop", ",", "it's", "3", ".", "5", "!"]
