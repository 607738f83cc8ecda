"""What a model does on the items: the MTEB protocol for encoders, and ranking by anything that scores documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from assay.core.errors import DataError
from assay.representations.hume.items import Item, PairItems
from assay.systems.embedding import CachedEncoder

if TYPE_CHECKING:
    from assay.core.cache import ContentCache

SEED = 42
"""Seed of every MTEB task: experiments draw the same training items for every model."""

EXPERIMENTS = 10


@runtime_checkable
class PromptedEncoder(Protocol):
    """An encoder that wants to know the task: instruction models, and MTEB models with a prompt a task."""

    name: str

    def encode_for(self, texts: Sequence[str], task: str, subset: str, side: str) -> np.ndarray:
        """Vectors (texts, dimensions); ``side`` is query, document or empty."""
        ...


class _ForTask:
    """A prompted encoder on one side of one task, as a plain encoder."""

    def __init__(self, model: PromptedEncoder, pair: PairItems, side: str) -> None:
        self.name = f"{model.name}|{pair.key}|{side}"
        self._model, self._pair, self._side = model, pair, side

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return self._model.encode_for(texts, self._pair.spec.name, self._pair.subset, self._side)


def encode(
    system: Any, pair: PairItems, texts: Sequence[str], cache: ContentCache | None, side: str = ""
) -> np.ndarray:
    """Vectors of texts, each computed once a model and kept.

    Raises
    ------
    DataError
        The encoder returns another number of vectors than texts, or numbers that are not finite.
    """
    model = _ForTask(system, pair, side) if isinstance(system, PromptedEncoder) else system
    vectors = np.asarray((model if cache is None else CachedEncoder(model, cache)).encode(list(texts)), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise DataError(f"{system.name} returned vectors of shape {vectors.shape} for {len(texts)} texts.")
    if not np.isfinite(vectors).all():
        raise DataError(f"{system.name} returned vectors that are not finite, for {pair.key}.")
    return vectors


def classify(
    system: Any, pair: PairItems, texts: Sequence[str], experiment: int, cache: ContentCache | None
) -> list[str]:
    """Labels of ``texts`` by logistic regression on an under-sampled training set; experiments are 0 to 9."""
    from sklearn.linear_model import LogisticRegression

    if not pair.train:
        raise DataError(f"{pair.key} has no training items, which a model needs for classification.")
    chosen = undersampled([label for _, label in pair.train], pair.spec.samples_per_label, experiment)
    x = encode(system, pair, [pair.train[i][0] for i in chosen], cache)
    model = LogisticRegression(max_iter=100, random_state=SEED).fit(x, [pair.train[i][1] for i in chosen])
    return [str(label) for label in model.predict(encode(system, pair, texts, cache))]


def undersampled(labels: Sequence[str], per_label: int, experiment: int) -> list[int]:
    """Places of at most ``per_label`` items a label, drawn as MTEB draws them for that experiment."""
    order = list(range(len(labels)))
    for _ in range(experiment + 1):
        np.random.RandomState(SEED).shuffle(order)
    counts: dict[str, int] = {}
    chosen = []
    for i in order:
        if counts.get(labels[i], 0) < per_label:
            counts[labels[i]] = counts.get(labels[i], 0) + 1
            chosen.append(i)
    return chosen


def cluster(system: Any, pair: PairItems, item: Item, cache: ContentCache | None) -> list[str]:
    """Cluster of each text by mini-batch k-means, with k the number of gold labels."""
    from sklearn.cluster import MiniBatchKMeans

    k = len(set(item.gold))
    model = MiniBatchKMeans(n_clusters=k, batch_size=500, n_init="auto", compute_labels=True, random_state=SEED)
    model.fit(encode(system, pair, item.texts, cache))
    return [str(label) for label in np.asarray(model.labels_)]


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine of each row of ``a`` with the same row of ``b``; 0 beside a zero vector."""
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.einsum("ij,ij->i", a, b) / np.where(norms == 0, 1, norms)


def similarities(system: Any, pair: PairItems, items: Sequence[Item], cache: ContentCache | None) -> list[float]:
    """Cosine of the two texts of each item."""
    both = encode(system, pair, [t for item in items for t in item.texts], cache)
    return [float(v) for v in cosines(both[::2], both[1::2])]


def rank(system: Any, pair: PairItems, items: Sequence[Item], cache: ContentCache | None) -> list[list[float]]:
    """Cosine of the query with each document."""
    queries = encode(system, pair, [item.texts[0] for item in items], cache, "query")
    documents = encode(system, pair, [t for item in items for t in item.texts[1:]], cache, "document")
    found, start = [], 0
    for query, item in zip(queries, items):
        size = len(item.texts) - 1
        part = documents[start : start + size]
        found.append([float(v) for v in cosines(np.tile(query, (size, 1)), part)])
        start += size
    return found


def trec_ap(item: Item, scores: Sequence[float]) -> float:
    """trec_eval's average precision of strictly ordered scores (ties by document id, last first)."""
    import pytrec_eval

    judge = pytrec_eval.RelevanceEvaluator({"q": dict(zip(item.ids, item.gold))}, {"map_cut.1000"})
    return float(judge.evaluate({"q": dict(zip(item.ids, map(float, scores)))})["q"]["map_cut_1000"])
