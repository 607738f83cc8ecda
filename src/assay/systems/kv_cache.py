"""Keys and values of attention: buffers that grow in place, batches that shrink and merge, prefixes that are kept.

Imported only together with torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from assay.core.errors import UsageError

Layers = list[tuple[torch.Tensor, torch.Tensor]]
"""(keys, values) a layer, each of shape (batch, heads, length, head size)."""

ROOM = 64
"""Positions a buffer is allocated ahead of need: transformers' own layer copies everything for every new token."""


class GrowingLayer(DynamicLayer):
    """A cache layer that writes new positions into spare room instead of concatenating."""

    _buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if self._buffers is None or self._buffers[0].shape[-2] < end:
            self._buffers = (
                _grown(self.keys if start else None, key_states, end),
                _grown(self.values if start else None, value_states, end),
            )
        keys, values = self._buffers
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values


def _grown(old: torch.Tensor | None, new: torch.Tensor, length: int) -> torch.Tensor:
    batch, heads, _, size = new.shape
    buffer = new.new_empty((batch, heads, length + ROOM, size))
    if old is not None:
        buffer[:, :, : old.shape[-2]] = old
    return buffer


def attention_layers(config: object, name: str) -> tuple[int, bool]:
    """(number of layers, whether some attend through a sliding window) of a decoder made of attention alone.

    Raises
    ------
    UsageError
        If a layer keeps other state than keys and values (recurrent and hybrid architectures).
    """
    layers = DynamicCache(config=config).layers  # pyright: ignore[reportArgumentType]
    odd = {type(layer).__name__ for layer in layers if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer)}
    if odd or not layers:
        kinds = ", ".join(sorted(odd)) or "no attention cache"
        raise UsageError(
            f"{name} is not a decoder made of attention layers alone ({kinds}), and only those run inside assay; "
            "serve it with vLLM and name it vllm:MODEL@URL."
        )
    return len(layers), any(isinstance(layer, DynamicSlidingWindowLayer) for layer in layers)


def new_cache(layers: int) -> Cache:
    """An empty cache. Windowed layers keep every position too: the mask alone makes the window, and rows can move."""
    return Cache(layers=[GrowingLayer() for _ in range(layers)])


def cache_of(layers: Layers) -> Cache:
    """A cache that continues after ``layers``, which it never writes to."""
    cache = new_cache(len(layers))
    for layer, (keys, values) in zip(cache.layers, layers, strict=True):
        assert isinstance(layer, GrowingLayer)
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
    return cache


def layers_of(cache: Cache) -> Layers:
    """Views of what a cache holds."""
    pairs: Layers = []
    for layer in cache.layers:
        assert isinstance(layer, GrowingLayer)
        assert layer.keys is not None
        assert layer.values is not None
        pairs.append((layer.keys, layer.values))
    return pairs


def select(cache: Cache, rows: torch.Tensor, start: int) -> Cache:
    """The given rows, from position ``start`` on."""
    return cache_of([(k[rows, :, start:], v[rows, :, start:]) for k, v in layers_of(cache)])


def repeat(cache: Cache, times: torch.Tensor) -> Cache:
    """Every row as often as ``times`` says."""
    return cache_of(
        [(k.repeat_interleave(times, dim=0), v.repeat_interleave(times, dim=0)) for k, v in layers_of(cache)]
    )


def merge(first: Cache, second: Cache) -> Cache:
    """Rows of both, aligned at their last position; the shorter one gets zeros on the left (mask them)."""

    def joined(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        length = max(a.shape[2], b.shape[2])
        out = a.new_zeros((a.shape[0] + b.shape[0], a.shape[1], length, a.shape[3]))
        out[: a.shape[0], :, length - a.shape[2] :] = a
        out[a.shape[0] :, :, length - b.shape[2] :] = b
        return out

    pairs = zip(layers_of(first), layers_of(second), strict=True)
    return cache_of([(joined(ka, kb), joined(va, vb)) for (ka, va), (kb, vb) in pairs])


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    if list(first[: len(second)]) == list(second[: len(first)]):
        return min(len(first), len(second))
    return next(i for i, (a, b) in enumerate(zip(first, second)) if a != b)


@dataclass(slots=True, eq=False)
class _Prefix:
    tokens: tuple[int, ...]
    layers: Layers

    @property
    def size(self) -> int:
        return sum(k.untyped_storage().nbytes() + v.untyped_storage().nbytes() for k, v in self.layers)


class PrefixStore:
    """The least recently used prefixes' keys and values, up to ``limit`` bytes. One thread uses it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: list[_Prefix] = []

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, tokens: Sequence[int]) -> tuple[int, Layers]:
        """The longest kept prefix of ``tokens``: (its length, its layers); (0, []) without one."""
        best, length = None, 0
        for kept in self._kept:
            common = common_prefix(kept.tokens, tokens)
            if common > length:
                best, length = kept, common
        if best is None:
            return 0, []
        self._kept.remove(best)
        self._kept.append(best)
        return length, [(k[:, :, :length], v[:, :, :length]) for k, v in best.layers]

    def keep(self, tokens: Sequence[int], layers: Layers) -> None:
        """Keep one row's layers; a kept prefix of it is dropped, since it answers for that too."""
        entry = _Prefix(tuple(tokens), [(k[:, :, : len(tokens)], v[:, :, : len(tokens)]) for k, v in layers])
        if entry.size > self.limit:
            return
        self._kept = [old for old in self._kept if entry.tokens[: len(old.tokens)] != old.tokens]
        self._kept.append(entry)
        while sum(kept.size for kept in self._kept) > self.limit:
            self._kept.pop(0)

    def clear(self) -> None:
        """Forget everything: after out-of-memory, or when the weights changed."""
        self._kept.clear()
