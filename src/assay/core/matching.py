"""One-to-one matching of phrases or triples: which predicted item stands for which gold item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from assay.core.errors import UsageError, unknown_name
from assay.core.text import normalise

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Item = str | Sequence[str]
Similarity = Callable[[Sequence[str], Sequence[str]], "NDArray[np.floating[Any]]"]
"""Texts a (n) and b (m) to similarities of shape (n, m), 1 = the same."""


@dataclass(frozen=True, slots=True)
class Matching:
    """Pairs of matched items and what follows from them.

    Attributes
    ----------
    pairs
        (index of predicted, index of gold, similarity), sorted by the first.
    n_predicted, n_gold
        Numbers of items.
    """

    pairs: tuple[tuple[int, int, float], ...]
    n_predicted: int
    n_gold: int

    @property
    def precision(self) -> float:
        """Matched over predicted; 1 when both sides are empty, 0 when only this one is."""
        return _share(len(self.pairs), self.n_predicted, self.n_gold)

    @property
    def recall(self) -> float:
        """Matched over gold; 1 when both sides are empty, 0 when only this one is."""
        return _share(len(self.pairs), self.n_gold, self.n_predicted)

    @property
    def f1(self) -> float:
        """2 matched / (predicted + gold); 1 when both sides are empty."""
        both = self.n_predicted + self.n_gold
        return 2 * len(self.pairs) / both if both else 1.0

    @property
    def extra(self) -> list[int]:
        """Predicted items without a gold one."""
        return sorted(set(range(self.n_predicted)) - {pair[0] for pair in self.pairs})

    @property
    def missed(self) -> list[int]:
        """Gold items without a predicted one."""
        return sorted(set(range(self.n_gold)) - {pair[1] for pair in self.pairs})


def _share(matched: int, n: int, other: int) -> float:
    if n:
        return matched / n
    return 0.0 if other else 1.0


def pooled(matchings: Iterable[Matching]) -> Matching:
    """One matching of all: its precision, recall and F1 are the micro averages. Indices run on."""
    pairs: list[tuple[int, int, float]] = []
    n_predicted = n_gold = 0
    for matching in matchings:
        pairs += [(i + n_predicted, j + n_gold, similarity) for i, j, similarity in matching.pairs]
        n_predicted += matching.n_predicted
        n_gold += matching.n_gold
    return Matching(tuple(pairs), n_predicted, n_gold)


def _exact(a: Sequence[str], b: Sequence[str]) -> NDArray[np.floating[Any]]:
    import numpy as np

    codes = {text: n for n, text in enumerate(dict.fromkeys([*a, *b]))}
    left, right = (np.array([codes[text] for text in side], dtype=np.int64) for side in (a, b))
    return (left[:, None] == right[None, :]).astype(np.float64)


def _normalised(a: Sequence[str], b: Sequence[str]) -> NDArray[np.floating[Any]]:
    return _exact([normalise(text) for text in a], [normalise(text) for text in b])


def _levenshtein(a: Sequence[str], b: Sequence[str]) -> NDArray[np.floating[Any]]:
    """1 - edit distance / length of the longer text, of the normalised texts."""
    import numpy as np
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    left, right = [normalise(text) for text in a], [normalise(text) for text in b]
    return process.cdist(left, right, scorer=Levenshtein.normalized_similarity, dtype=np.float64)


_SIMILARITIES: dict[str, Similarity] = {"exact": _exact, "normalised": _normalised, "levenshtein": _levenshtein}


def by_embedding(encode: Callable[[Sequence[str]], Any]) -> Similarity:
    """Similarity by the cosine of embeddings.

    Parameters
    ----------
    encode
        Texts (n) to vectors (n, d), as `assay.systems.embedding.EmbeddingModel.encode`. A vector of zeros is similar to
        nothing.
    """
    return partial(_cosine, encode)


def _cosine(encode: Callable[[Sequence[str]], Any], a: Sequence[str], b: Sequence[str]) -> NDArray[np.floating[Any]]:
    import numpy as np

    texts = list(dict.fromkeys([*a, *b]))
    vectors = np.asarray(encode(texts), dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise UsageError(f"encode gave an array of shape {vectors.shape} for {len(texts)} texts; it must be (n, d).")
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(norms > 0, norms, 1.0)
    place = {text: n for n, text in enumerate(texts)}
    return vectors[[place[text] for text in a]] @ vectors[[place[text] for text in b]].T


def similarities(
    predicted: Sequence[Item],
    gold: Sequence[Item],
    similarity: str | Similarity = "normalised",
    *,
    combine: Literal["min", "mean"] = "min",
) -> NDArray[np.floating[Any]]:
    """Similarity of every predicted item (n) to every gold item (m), shape (n, m).

    Items are texts, or tuples of texts of one length (triples): then part is compared with part, each different text
    once, and the smallest similarity counts, or the mean.

    Raises
    ------
    UsageError
        Items of different lengths, an unknown similarity, a similarity of the wrong shape, or one that gives NaN.
    """
    import numpy as np

    if isinstance(similarity, str):
        if similarity not in _SIMILARITIES:
            raise unknown_name("similarity", similarity, _SIMILARITIES)
        similarity = _SIMILARITIES[similarity]
    left, right = ([(item,) if isinstance(item, str) else tuple(item) for item in side] for side in (predicted, gold))
    sizes = {len(item) for item in (*left, *right)}
    if len(sizes) > 1 or 0 in sizes:
        raise UsageError(f"Items to match must have the same number of parts, at least one; found {sorted(sizes)}.")
    result = np.ones((len(left), len(right))) if combine == "min" else np.zeros((len(left), len(right)))
    for part in range(max(sizes, default=1)):
        rows, at_row = _distinct([item[part] for item in left])
        columns, at_column = _distinct([item[part] for item in right])
        if rows and columns:
            table = np.asarray(similarity(rows, columns), dtype=np.float64)
        else:
            table = np.zeros((len(rows), len(columns)))
        if table.shape != (len(rows), len(columns)):
            raise UsageError(f"The similarity gave shape {table.shape} for {len(rows)} x {len(columns)} texts.")
        if np.isnan(table).any():
            raise UsageError("The similarity gave NaN; it must be a number for every pair of texts.")
        values = table[np.ix_(at_row, at_column)]
        result = np.minimum(result, values) if combine == "min" else result + values
    return result / max(sizes, default=1) if combine == "mean" else result


def _distinct(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    places = {text: n for n, text in enumerate(dict.fromkeys(texts))}
    return list(places), [places[text] for text in texts]


def match(
    predicted: Sequence[Item],
    gold: Sequence[Item],
    similarity: str | Similarity = "normalised",
    *,
    threshold: float = 1.0,
    combine: Literal["min", "mean"] = "min",
) -> Matching:
    """Match predicted and gold items one to one.

    As many pairs as can be have at least the threshold; of such matchings the one of the highest total similarity; of
    equal ones the one whose pairs lie nearest in place. An item stated twice can match only once.

    Parameters
    ----------
    predicted, gold
        Texts, or tuples of texts of one length.
    similarity
        ``exact`` (equal text), ``normalised`` (equal but for case, punctuation and blanks), ``levenshtein`` (edit
        distance over the longer length, of normalised texts), `by_embedding`, or a function (see `Similarity`).
    threshold
        Least similarity of a pair.
    combine
        How the parts of a triple count: the smallest, or the mean.
    """
    table = similarities(predicted, gold, similarity, combine=combine)
    return assign(table, threshold)


def assign(table: NDArray[np.floating[Any]], threshold: float = 1.0) -> Matching:
    """`match` for similarities that are there already, shape (predicted, gold)."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    n, m = table.shape
    allowed = table >= threshold - 1e-12
    if not allowed.any():
        return Matching((), n, m)
    # Rows and columns that can match nothing only cost time: assignment is cubic.
    rows, columns = np.flatnonzero(allowed.any(axis=1)), np.flatnonzero(allowed.any(axis=0))
    part, open_ = table[np.ix_(rows, columns)], allowed[np.ix_(rows, columns)]
    low, high = float(part[open_].min()), float(part[open_].max())
    scaled = (part - low) / (high - low) if high > low else np.zeros_like(part)
    size = min(part.shape)
    far = ((rows[:, None] - columns[None, :]) / max(n, m)) ** 2
    # Three aims in order, each smaller than the least step of the one before: number, total similarity, nearness.
    weight = np.where(open_, 1.0 + (scaled - 1e-7 * far) / (2 * size + 2), 0.0)
    chosen_rows, chosen_columns = linear_sum_assignment(weight, maximize=True)
    pairs = [
        (int(rows[i]), int(columns[j]), float(part[i, j])) for i, j in zip(chosen_rows, chosen_columns) if open_[i, j]
    ]
    return Matching(tuple(sorted(pairs)), n, m)
