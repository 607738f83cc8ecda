"""Texts in bulk: normal form, diversity (distinct-n, Self-BLEU), near-duplicates (MinHash), nearest by n-grams."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

_TOKEN = re.compile(r"\w+(?:['’]\w+)?|[^\w\s]")
_SPACES = re.compile(r"\s+")


def normalise(text: str) -> str:
    """One form of a text: compatibility characters resolved, case folded, punctuation out, single blanks.

    Marks and punctuation become blanks, so that "state-of-the-art" is four words; signs such as + and $ stay.
    """
    if text.isascii():
        return " ".join(_ASCII_PUNCTUATION.sub(" ", text.lower()).split())
    text = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(c if unicodedata.category(c)[0] not in "PC" else "" if c in _JOINERS else " " for c in text)
    return " ".join(kept.split())


_ASCII_PUNCTUATION = re.compile(r"[!\"#%&'()*,\-./:;?@\[\\\]_{}\x00-\x08\x0e-\x1b\x7f]")
_JOINERS = "\u200b\u200c\u200d\ufeff\u00ad"


def tokens(text: str) -> list[str]:
    """Lower-case words and punctuation marks."""
    return _TOKEN.findall(text.lower())


def _ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[start:] for start in range(n))))


def distinct_n(texts: Sequence[str] | Sequence[Sequence[str]], n: int = 2) -> float:
    """Distinct n-grams over all n-grams of a set of texts; NaN when there is none.

    Parameters
    ----------
    texts
        Texts (see `tokens`) or token lists.

    References
    ----------
    Li et al. 2016, A diversity-promoting objective function for neural conversation models.
    """
    grams = [gram for text in texts for gram in _ngrams(_words(text), n)]
    return len(set(grams)) / len(grams) if grams else math.nan


def _words(text: str | Sequence[str]) -> list[str]:
    return tokens(text) if isinstance(text, str) else list(text)


def self_bleu(texts: Sequence[str] | Sequence[Sequence[str]], max_n: int = 4) -> float:
    """Mean BLEU of each text with all others as references, in [0, 1]; high = alike. NaN for fewer than two texts.

    Uniform weights, closest reference length, an order without match counted as 0.1 matches (Chen and Cherry's first
    method). Linear in the number of n-grams: each n-gram keeps its two highest counts.

    References
    ----------
    Zhu et al. 2018, Texygen. Papineni et al. 2002, BLEU.
    """
    documents = [_words(text) for text in texts]
    if len(documents) < 2:
        return math.nan
    lengths = sorted(len(words) for words in documents)
    counts = [[Counter(_ngrams(words, n)) for words in documents] for n in range(1, max_n + 1)]
    highest = [_two_highest(order) for order in counts]
    total = 0.0
    for place, words in enumerate(documents):
        logarithms = 0.0
        for order in range(max_n):
            mine = counts[order][place]
            matched = sum(
                min(count, second if owner == place else first)
                for gram, count in mine.items()
                for first, owner, second in (highest[order][gram],)
            )
            if order == 0 and matched == 0:
                break
            logarithms += math.log((matched or 0.1) / max(1, sum(mine.values())))
        else:
            closest = _closest_other(lengths, len(words))
            penalty = min(1.0, math.exp(1 - closest / len(words)))
            total += penalty * math.exp(logarithms / max_n)
    return total / len(documents)


def _two_highest(order: Sequence[Counter[tuple[str, ...]]]) -> dict[tuple[str, ...], tuple[int, int, int]]:
    """For each n-gram its highest count, the document that has it, and the highest count elsewhere."""
    highest: dict[tuple[str, ...], tuple[int, int, int]] = {}
    for place, grams in enumerate(order):
        for gram, count in grams.items():
            first, owner, second = highest.get(gram, (0, -1, 0))
            if count > first:
                highest[gram] = (count, place, first)
            elif count > second:
                highest[gram] = (first, owner, count)
    return highest


def _closest_other(lengths: Sequence[int], length: int) -> int:
    """Length nearest to ``length`` among the other texts; the shorter one of two that are as near."""
    from bisect import bisect_left, bisect_right

    left, right = bisect_left(lengths, length), bisect_right(lengths, length)
    if right - left > 1:
        return length
    around = [lengths[place] for place in (left - 1, right) if 0 <= place < len(lengths)]
    return min(around, key=lambda other: (abs(other - length), other))


class Pair(NamedTuple):
    """Two near-duplicates by index, ``first < second``, and the Jaccard similarity of their shingles."""

    first: int
    second: int
    similarity: float


_PERMUTATIONS = 96
_CHUNK_SHINGLES = 1 << 20
_SMALL_BUCKET = 48
_REPRESENTATIVES = 4


def near_duplicates(texts: Sequence[str], threshold: float = 0.8, *, shingle: int = 5) -> list[Pair]:
    """Pairs of texts whose sets of character shingles have a Jaccard similarity of at least ``threshold``.

    Found by MinHash with banding, then checked exactly: no pair below the threshold is returned; one at the threshold
    is missed about once in a hundred times, one well above it hardly ever. A text is compared in its `normalise` form.
    Where many texts are alike, each is paired with a few of them rather than with all, so that the pairs still
    join the group (see `groups_of`) and their number stays linear.

    Parameters
    ----------
    shingle
        Characters in a shingle; a shorter text is one shingle.

    Returns
    -------
    list of Pair
        Sorted. The result is a function of the texts alone.

    References
    ----------
    Broder 1997, On the resemblance and containment of documents.
    """
    import numpy as np

    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], got {threshold}")
    first_of: dict[str, int] = {}
    twins: list[Pair] = []
    kept: list[int] = []
    plain: list[str] = []
    for place, text in enumerate(texts):
        form = normalise(text)
        first = first_of.setdefault(form, place)
        if first == place:
            kept.append(place)
            plain.append(form)
        else:
            twins.append(Pair(first, place, 1.0))
    hashes, starts = _shingles(plain, shingle)
    candidates = _candidates(_signatures(hashes, starts), threshold)
    sets: dict[int, Any] = {}
    pairs = twins
    for left, right in candidates:
        for n in (left, right):
            if n not in sets:
                sets[n] = np.unique(hashes[starts[n] : starts[n + 1]])
        a, b = sets[left], sets[right]
        if min(len(a), len(b)) < threshold * max(len(a), len(b)):
            continue
        common = len(a) + len(b) - len(np.unique(np.concatenate((a, b))))
        similarity = common / (len(a) + len(b) - common)
        if similarity >= threshold:
            pairs.append(Pair(min(kept[left], kept[right]), max(kept[left], kept[right]), similarity))
    return sorted(pairs)


def groups_of(pairs: Sequence[Pair], n: int) -> list[list[int]]:
    """Groups of two or more that pairs among ``n`` texts join, each sorted, in the order of their first members."""
    parent = list(range(n))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for pair in pairs:
        a, b = root(pair.first), root(pair.second)
        parent[max(a, b)] = min(a, b)
    groups: dict[int, list[int]] = {}
    for place in range(n):
        groups.setdefault(root(place), []).append(place)
    return [group for group in groups.values() if len(group) > 1]


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: every bit of the result depends on every bit of the value."""
    import numpy as np

    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _constants(n: int, stream: int) -> NDArray[np.uint64]:
    """Fixed odd multipliers: the same on every machine and in every release."""
    import numpy as np

    steps = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(stream << 32)
    return _mixed(steps) | np.uint64(1)


def _shingles(texts: Sequence[str], size: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hashes of all shingles, text after text, and where each text's begin (one more entry than texts)."""
    import numpy as np

    padded = [text.ljust(size) for text in texts]
    characters = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    lengths = np.fromiter(map(len, padded), dtype=np.int64, count=len(padded))
    counts = lengths - size + 1
    starts = np.concatenate(([0], np.cumsum(counts)))
    if not len(texts):
        return np.empty(0, dtype=np.uint64), starts
    rolled = np.zeros(len(characters) - size + 1, dtype=np.uint64)
    for offset, factor in enumerate(_constants(size, 1)):
        rolled += characters[offset : offset + len(rolled)] * factor
    # A shingle begins in its text at most size - 1 characters before the text ends.
    begins = np.repeat(np.concatenate(([0], np.cumsum(lengths)[:-1])) - starts[:-1], counts)
    return _mixed(rolled[begins + np.arange(starts[-1])]), starts


def _signatures(hashes: NDArray[np.uint64], starts: NDArray[np.int64]) -> NDArray[np.uint32]:
    """MinHash signatures, one row a permutation, one column a text."""
    import numpy as np

    n = len(starts) - 1
    signatures = np.empty((_PERMUTATIONS, n), dtype=np.uint32)
    factors, offsets = _constants(_PERMUTATIONS, 2), _constants(_PERMUTATIONS, 3)
    begin = 0
    while begin < n:
        end = max(begin + 1, int(np.searchsorted(starts, starts[begin] + _CHUNK_SHINGLES, side="right")) - 1)
        part = hashes[starts[begin] : starts[end]]
        edges = starts[begin:end] - starts[begin]
        for row in range(_PERMUTATIONS):
            permuted = ((part * factors[row] + offsets[row]) >> np.uint64(32)).astype(np.uint32)
            signatures[row, begin:end] = np.minimum.reduceat(permuted, edges)
        begin = end
    return signatures


def _bands(threshold: float) -> tuple[int, int]:
    """Most rows a band (fewest false candidates) that still find a pair at the threshold 99 times in a hundred."""
    for rows in range(_PERMUTATIONS, 0, -1):
        bands = _PERMUTATIONS // rows
        if 1 - (1 - threshold**rows) ** bands >= 0.99:
            return bands, rows
    return _PERMUTATIONS, 1


def _candidates(signatures: NDArray[np.uint32], threshold: float) -> list[tuple[int, int]]:
    import numpy as np

    bands, rows = _bands(threshold)
    found: set[tuple[int, int]] = set()
    for band in range(bands):
        keys = np.zeros(signatures.shape[1], dtype=np.uint64)
        for row in signatures[band * rows : (band + 1) * rows]:
            keys = _mixed(keys + row.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
        order = np.argsort(keys, kind="stable")
        edges = np.flatnonzero(np.diff(keys[order])) + 1
        bounds = np.concatenate(([0], edges, [len(order)]))
        for place in np.flatnonzero(np.diff(bounds) > 1):
            bucket = order[bounds[place] : bounds[place + 1]].tolist()
            heads = bucket if len(bucket) <= _SMALL_BUCKET else bucket[:_REPRESENTATIVES]
            for at, left in enumerate(heads):
                found.update((left, right) for right in bucket[at + 1 :])
            if len(heads) < len(bucket):
                found.update(pairwise(bucket))
    return sorted(found)


def hashed_ngrams(texts: Sequence[str], *, size: int = 3, bits: int = 18) -> csr_array:
    """Counts of hashed character n-grams, one row a text, each of length 1 (rows of empty texts too).

    Shape (len(texts), 2**bits). A text is taken in its `normalise` form with a blank at either end.
    """
    import numpy as np
    from scipy.sparse import csr_array

    hashes, starts = _shingles([f" {normalise(text)} " for text in texts], size)
    columns = (hashes >> np.uint64(64 - bits)).astype(np.int64)
    matrix = csr_array((np.ones(len(columns), dtype=np.float32), columns, starts), shape=(len(texts), 1 << bits))
    matrix.sum_duplicates()
    norms = np.sqrt(matrix.multiply(matrix).sum(axis=1))
    matrix.data /= np.repeat(np.asarray(norms, dtype=np.float32).ravel(), np.diff(matrix.indptr))
    return matrix


def top_k(
    queries: Sequence[str], corpus: Sequence[str] | None = None, k: int = 3, *, chunk: int = 256
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The k texts most similar to each query, by the cosine of their character trigrams.

    Parameters
    ----------
    corpus
        Texts to look among; None = the other queries.

    Returns
    -------
    (indices, similarities)
        Both of shape (len(queries), min(k, texts to look among)); most similar first, of equals the earlier.
    """
    import numpy as np

    left = hashed_ngrams(queries)
    right = left if corpus is None else hashed_ngrams(corpus)
    among = len(queries) - 1 if corpus is None else len(corpus)
    k = max(0, min(k, among))
    indices = np.empty((len(queries), k), dtype=np.int64)
    similarities = np.empty((len(queries), k), dtype=np.float32)
    turned = right.T.tocsr()
    for begin in range(0, len(queries) if k else 0, chunk):
        scores = np.asarray((left[begin : begin + chunk] @ turned).todense())
        if corpus is None:
            scores[np.arange(len(scores)), np.arange(begin, begin + len(scores))] = -1.0
        best = _best(scores, k)
        indices[begin : begin + chunk] = best
        similarities[begin : begin + chunk] = np.take_along_axis(scores, best, axis=1)
    return indices, np.minimum(similarities, 1.0)


def _best(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Columns of the k highest scores of each row; of equals the earlier."""
    import numpy as np

    if k < scores.shape[1]:
        floor = np.partition(scores, scores.shape[1] - k, axis=1)[:, scores.shape[1] - k, None]
        rows = []
        for line, least in zip(scores, floor):
            places = np.flatnonzero(line >= least)
            rows.append(places[np.argsort(-line[places], kind="stable")[:k]])
        return np.array(rows)
    return np.argsort(-scores, axis=1, kind="stable")
