"""Systems that the benchmark brings along: encoders, a lexical ranker, guessing and simulated annotators."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assay.core.errors import MissingExtra, UsageError
from assay.representations.hume import questions
from assay.systems import forms
from assay.systems.chat.model import Choice, Message, Reply
from assay.systems.embedding import load_encoder
from assay.systems.scripted import ScriptedChatModel, text_of

if TYPE_CHECKING:
    import numpy as np

    from assay.representations.hume.benchmark import Hume
    from assay.representations.hume.items import Item, PairItems


class RandomEncoder:
    """A vector by chance, a function of the text alone: what a score is worth without any meaning."""

    def __init__(self, dimensions: int = 32, seed: int = 0) -> None:
        self.dimensions, self.seed = dimensions, seed
        self.name = f"method:random?dimensions={dimensions}&seed={seed}"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Normal numbers (texts, dimensions)."""
        import numpy as np

        rows = np.empty((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(texts):
            digest = hashlib.blake2b(f"{self.seed}\x1f{text}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
            rows[row] = np.random.default_rng(int.from_bytes(digest, "big")).standard_normal(self.dimensions)
        return rows


class MtebEncoder:
    """Any encoder that mteb can load, with the prompts it has for each task.

    Parameters
    ----------
    model, revision
        As for ``mteb.get_model``: ``sentence-transformers/all-MiniLM-L6-v2``, ``mteb/baseline-random-encoder`` ...
    """

    def __init__(self, model: str, revision: str | None = None) -> None:
        mteb = _mteb()
        try:
            self._model = mteb.get_model(model, revision=revision)
        except KeyError as error:
            raise UsageError(f"mteb knows no model {model!r}: {error}") from None
        if not hasattr(self._model, "encode"):
            raise UsageError(f"{model} is no encoder for mteb; it has no encode.")
        self.name = f"method:mteb?model={model}" + (f"&revision={revision}" if revision else "")

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors with the prompt that the model has for sentence pairs."""
        return self.encode_for(texts, "STSBenchmark", "default", "")

    def encode_for(self, texts: Sequence[str], task: str, subset: str, side: str) -> np.ndarray:
        """Vectors with the prompt for that task; one that mteb does not know gets that of sentence pairs."""
        import numpy as np
        from datasets import Dataset
        from torch.utils.data import DataLoader

        mteb = _mteb()
        from mteb.types import PromptType

        try:
            metadata = mteb.get_task(task).metadata
        except KeyError:
            metadata = mteb.get_task("STSBenchmark").metadata
        rows: Any = Dataset.from_dict({"text": list(texts)})
        batches = DataLoader(rows, batch_size=32)
        kind = {"query": PromptType.query, "document": PromptType.document}.get(side)
        found: Any = self._model.encode(
            batches, task_metadata=metadata, hf_split="test", hf_subset=subset, prompt_type=kind
        )
        return np.asarray(found.cpu() if hasattr(found, "cpu") else found, np.float32)


class SentenceTransformerEncoder:
    """A model of sentence-transformers, from a folder or by name."""

    def __init__(self, path: str, device: str = "cpu") -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise MissingExtra("A sentence-transformers model", "hume") from error
        self._model = SentenceTransformer(path, device=device)
        self.name = f"method:sentence_transformer?path={path}"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """As the model encodes."""
        import numpy as np

        return np.asarray(self._model.encode(list(texts), show_progress_bar=False), np.float32)


class Bm25:
    """Lexical ranking: BM25 of the query over its own candidates (Lù 2024, bm25s)."""

    name = "method:bm25"

    def rank(self, query: str, documents: Sequence[str]) -> list[float]:
        """A score a document."""
        import bm25s

        from assay.core.text import tokens

        words = [tokens(text) or ["\x00"] for text in documents]
        asked = [word for word in tokens(query) if any(word in known for known in words)]
        if not asked:
            return [0.0] * len(documents)
        index = bm25s.BM25()
        index.index(words, show_progress=False)
        return [float(v) for v in index.get_scores(asked)]


class Guess:
    """Fills every form at random: chance level for annotators."""

    name = "method:guess"

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        response_format: Mapping[str, Any] | None = None,
        seed: int | None = None,
        **_: Any,
    ) -> Reply:
        """An answer in the form asked for."""
        import numpy as np

        text = f"{seed}\x1f{text_of(messages)}".encode("utf-8", "surrogatepass")
        rng = np.random.default_rng(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big"))
        asked = forms.read(response_format)
        ids = [item["id"] for item in asked.items]
        if asked.kind == "choice":
            value: Any = {"choice": ids[int(rng.integers(len(ids)))]}
        elif asked.kind == "rating":
            value = {"rating": int(rng.integers(asked.arguments["low"], asked.arguments["high"] + 1))}
        elif asked.kind == "relevance":
            value = {"relevant": {i: bool(rng.integers(2)) for i in ids}}
        elif asked.kind == "grouping":
            value = {"groups": {i: f"g{rng.integers(5)}" for i in ids}}
        else:
            raise UsageError(f"method:guess fills choice, rating, relevance and grouping, not {asked.kind}.")
        return Reply((Choice(asked.reply(value)),), model=self.name)


def simulated(benchmark: Hume, noise: float = 0.1, seed: int = 0) -> ScriptedChatModel:
    """An annotator of known noise: knows the gold, and errs.

    Parameters
    ----------
    noise
        0 = never errs, 1 = chance. Another label or group with that probability (drawn among all); a judgement by a
        coin; a rating mixed with one by chance, in that share.
    seed
        Who it is: other seeds err elsewhere.
    """
    if not 0 <= noise <= 1:
        raise UsageError(f"noise is {noise}; it lies in [0, 1].")
    known: dict[str, tuple[PairItems, Item]] = {}

    def answer(messages: Sequence[Message], rng: np.random.Generator) -> str:
        if not known:
            for pair in benchmark.study.pairs.values():
                known.update({text_of(questions.messages(pair, item)): (pair, item) for item in pair.items})
        pair, item = known[text_of(messages)]
        return json.dumps(wrapped(pair, noisy(pair, item, noise, rng)), ensure_ascii=False)

    return ScriptedChatModel(answer, name=f"method:simulated?noise={noise:g}&seed={seed}", seed=seed)


def noisy(pair: PairItems, item: Item, noise: float, rng: np.random.Generator) -> Any:
    """The gold answer of an item with noise, in the shape of an annotation."""
    kind = pair.spec.kind
    if kind == "classification":
        return pair.labels[int(rng.integers(len(pair.labels)))] if rng.random() < noise else item.gold
    if kind == "sts":
        (low, high), (first, last) = pair.spec.scale, pair.spec.gold_scale
        right = low + (high - low) * (item.gold - first) / (last - first)
        value = (1 - noise) * right + noise * (low + (high - low) * rng.random())
        return round(min(max(value, low), high))
    if kind == "reranking":
        return [int(rng.integers(2)) if rng.random() < noise else g for g in item.gold]
    names = sorted(set(item.gold))
    return [names[int(rng.integers(len(names)))] if rng.random() < noise else g for g in item.gold]


def wrapped(pair: PairItems, answer: Any) -> dict[str, Any]:
    """An annotation as the object that the form asks for."""
    kind = pair.spec.kind
    if kind == "classification":
        return {"choice": answer}
    if kind == "sts":
        return {"rating": answer}
    if kind == "reranking":
        return {"relevant": {f"d{n}": bool(v) for n, v in enumerate(answer, 1)}}
    return {"groups": {f"t{n}": v for n, v in enumerate(answer, 1)}}


def methods(benchmark: Hume) -> dict[str, Callable[..., Any]]:
    """Factories by name."""

    def of_benchmark(noise: float = 0.1, seed: int = 0) -> ScriptedChatModel:
        return simulated(benchmark, noise, seed)

    return {
        "guess": Guess,
        "random": RandomEncoder,
        "minilm": lambda: load_encoder("minilm"),
        "wordllama": lambda: load_encoder("wordllama"),
        "hashed": lambda: load_encoder("hashed"),
        "bm25": Bm25,
        "mteb": MtebEncoder,
        "sentence_transformer": SentenceTransformerEncoder,
        "simulated": of_benchmark,
    }


def _mteb() -> Any:
    try:
        import mteb
    except ImportError as error:
        raise MissingExtra("Models through mteb", "hume") from error
    return mteb
