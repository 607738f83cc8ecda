"""Forward passes of a decoder: prefill with shared prefixes, single steps, scores of continuations, losses.

One thread uses a decoder at a time; `assay.systems.batching` owns that thread. Imported only together with torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache

from assay.core.errors import UsageError
from assay.systems import kv_cache
from assay.systems.kv_cache import Layers, PrefixStore, common_prefix

WORTH_SHARING = 16
"""Tokens from which a common prefix is computed on its own instead of once a row."""

PACKED = 512
"""Most tokens of continuations in one row: attention among them is quadratic, and each needs a row of logits."""


@dataclass(slots=True)
class State:
    """Sequences in decoding, one a row: ``mask`` (rows, length), next ``positions``, ``logits`` (rows, vocabulary)."""

    cache: Cache
    mask: torch.Tensor
    positions: torch.Tensor
    logits: torch.Tensor

    def select(self, rows: torch.Tensor) -> State:
        """The given rows, without the columns on the left that none of them uses."""
        mask = self.mask[rows]
        start = int(mask.any(dim=0).int().argmax())
        return State(kv_cache.select(self.cache, rows, start), mask[:, start:], self.positions[rows], self.logits[rows])

    def repeat(self, times: Sequence[int]) -> State:
        """Each row as often as ``times`` says."""
        counts = torch.tensor(times, device=self.mask.device)
        return State(
            kv_cache.repeat(self.cache, counts),
            self.mask.repeat_interleave(counts, dim=0),
            self.positions.repeat_interleave(counts, dim=0),
            self.logits.repeat_interleave(counts, dim=0),
        )

    def merge(self, other: State) -> State:
        """Rows of both."""
        length = max(self.mask.shape[1], other.mask.shape[1])
        masks = [torch.nn.functional.pad(m, (length - m.shape[1], 0)) for m in (self.mask, other.mask)]
        return State(
            kv_cache.merge(self.cache, other.cache),
            torch.cat(masks),
            torch.cat([self.positions, other.positions]),
            torch.cat([self.logits, other.logits]),
        )


@dataclass(slots=True, frozen=True)
class Part:
    """Continuations of one prefix that one row of a batch scores together."""

    prefix: Sequence[int]
    continuations: Sequence[Sequence[int]]

    @property
    def packed(self) -> int:
        """Tokens that follow the prefix in the row; the last one of a continuation is predicted, not read."""
        return sum(max(0, len(c) - 1) for c in self.continuations)

    @property
    def length(self) -> int:
        return len(self.prefix) + self.packed

    @property
    def branches(self) -> bool:
        """Whether more than one continuation must be read."""
        return sum(len(c) > 1 for c in self.continuations) > 1


class Decoder:
    """Forward passes of a causal language model of transformers.

    Parameters
    ----------
    model
        A causal language model whose layers are attention (windowed or not).
    name
        What errors call it.
    prefix_bytes
        Memory for keys and values of prefixes that come again.
    """

    def __init__(self, model: Any, name: str, *, prefix_bytes: int = 256 << 20) -> None:
        self.model = model
        self.name = name
        self.layers, self.sliding = kv_cache.attention_layers(model.config, name)
        self.prefixes = PrefixStore(prefix_bytes)
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._packs: bool | None = False if self.sliding else None

    @property
    def device(self) -> torch.device:
        return self.model.device

    def _forward(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None, cache: Cache | None, keep: int
    ) -> torch.Tensor:
        """Logits of the last ``keep`` positions, float32, (rows, keep, vocabulary)."""
        if mask is not None and mask.ndim == 2 and bool(mask.all()):
            mask = None
        only = {"logits_to_keep": keep} if self._keeps else {}
        out = self.model(
            input_ids=ids, position_ids=positions, attention_mask=mask, cache=cache, use_cache=cache is not None, **only
        )
        return out.logits[:, -keep:].float()

    def _shared(self, prefixes: Sequence[Sequence[int]]) -> tuple[int, Layers]:
        """Keys and values of what all prefixes begin with, short of their last token: (length, layers)."""
        if self.sliding and len(prefixes) > 1:
            return 0, []  # rows of unequal length leave a gap behind the shared part, which a window would count
        shared = list(prefixes[0][: min(map(len, prefixes)) - 1])
        for prefix in prefixes[1:]:
            shared = shared[: common_prefix(shared, prefix)]
        length, layers = self.prefixes.find(shared)
        if len(prefixes) > 1 and len(shared) - length >= WORTH_SHARING:
            cache = kv_cache.cache_of(layers) if length else kv_cache.new_cache(self.layers)
            ids = torch.tensor([shared[length:]], device=self.device)
            self._forward(ids, torch.arange(length, len(shared), device=self.device)[None], None, cache, 1)
            layers, length = kv_cache.layers_of(cache), len(shared)
            self.prefixes.keep(shared, layers)
        return (length, layers) if length >= WORTH_SHARING else (0, [])

    def _begin(self, prefixes: Sequence[Sequence[int]]) -> tuple[int, Cache]:
        length, layers = self._shared(prefixes)
        if not length:
            return 0, kv_cache.new_cache(self.layers)
        rows = len(prefixes)
        return length, kv_cache.cache_of([(k.expand(rows, -1, -1, -1), v.expand(rows, -1, -1, -1)) for k, v in layers])

    def _aligned(
        self, rests: Sequence[Sequence[int]], places: Sequence[Sequence[int]], before: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rows padded on the left: ids, positions (rows, width), mask (rows, before + width)."""
        width = max(map(len, rests))
        ids = np.zeros((len(rests), width), np.int64)
        positions = np.zeros((len(rests), width), np.int64)
        mask = np.zeros((len(rests), before + width), np.int64)
        mask[:, :before] = 1
        for row, (rest, place) in enumerate(zip(rests, places, strict=True)):
            ids[row, width - len(rest) :] = rest
            positions[row, width - len(rest) :] = place
            mask[row, before + width - len(rest) :] = 1
        return tuple(torch.from_numpy(a).to(self.device) for a in (ids, positions, mask))  # pyright: ignore

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[Sequence[int]]) -> State:
        """Read prompts (each at least one token) in one pass, what they share only once."""
        before, cache = self._begin(prompts)
        rests = [prompt[before:] for prompt in prompts]
        ids, positions, mask = self._aligned(rests, [range(before, len(p)) for p in prompts], before)
        logits = self._forward(ids, positions, mask, cache, 1)[:, 0]
        if len(prompts) == 1:
            self.prefixes.keep(prompts[0], kv_cache.layers_of(cache))
        lengths = torch.tensor([len(p) for p in prompts], device=self.device)
        return State(cache, mask, lengths, logits)

    @torch.inference_mode()
    def step(self, state: State, tokens: torch.Tensor) -> State:
        """Read one more token (rows,) each."""
        mask = torch.nn.functional.pad(state.mask, (0, 1), value=1)
        logits = self._forward(tokens[:, None], state.positions[:, None], mask, state.cache, 1)[:, 0]
        return State(state.cache, mask, state.positions + 1, logits)

    def parts(self, prefix: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[Part]:
        """Continuations in rows: as many in one as the model and `PACKED` allow."""
        if not prefix:
            raise UsageError(
                f"{self.name} needs at least one token before a continuation; give the prefix a begin-of-text token."
            )
        if not continuations:
            return []
        if sum(len(c) > 1 for c in continuations) > 1 and not self._can_pack(prefix, continuations):
            return [Part(prefix, [c]) for c in continuations]
        rows: list[list[Sequence[int]]] = [[]]
        size = 0
        for continuation in continuations:
            more = max(0, len(continuation) - 1)
            if rows[-1] and more and size + more > PACKED:
                rows.append([])
                size = 0
            rows[-1].append(continuation)
            size += more
        return [Part(prefix, row) for row in rows]

    def _can_pack(self, prefix: Sequence[int], continuations: Sequence[Sequence[int]]) -> bool:
        """Whether the model obeys a mask with branches: asked once, of the first two continuations, and compared."""
        if self._packs is None:
            two = [c[:4] for c in continuations if len(c) > 1][:2]
            short = prefix[-32:]
            plain = self.score([Part(short, [c]) for c in two])
            try:
                packed = self.score([Part(short, two)])
            except (RuntimeError, ValueError, TypeError, AttributeError):
                self._packs = False
            else:
                worst = max(float(np.abs(p[0] - q).max()) for p, q in zip(plain, packed[0], strict=True))
                self._packs = worst < (0.01 if self.model.dtype == torch.float32 else 0.5)
        return self._packs

    @torch.inference_mode()
    def score(self, parts: Sequence[Part]) -> list[list[np.ndarray]]:
        """Log-probabilities of every token of every continuation, in one pass: float64 arrays, (tokens,) each."""
        before, cache = self._begin([part.prefix for part in parts])
        rests, places = [], []
        for part in parts:
            end = len(part.prefix)
            rests.append([*part.prefix[before:], *(t for c in part.continuations for t in c[:-1])])
            places.append(
                [*range(before, end), *(end + i for c in part.continuations for i in range(max(0, len(c) - 1)))]
            )
        ids, positions, mask = self._aligned(rests, places, before)
        if any(part.branches for part in parts):
            mask = self._branching_mask(parts, before, ids.shape[1])
        keep = 1 + max(part.packed for part in parts)
        logits = self._forward(ids, positions, mask, cache, keep)
        if len(parts) == 1:
            self.prefixes.keep(parts[0].prefix, kv_cache.layers_of(cache))
        return [self._read(part, logits[row, keep - 1 - part.packed :]) for row, part in enumerate(parts)]

    def _branching_mask(self, parts: Sequence[Part], before: int, width: int) -> torch.Tensor:
        """(rows, 1, width, before + width): a continuation sees the prefix and itself, never its siblings."""
        segment = np.full((len(parts), width), -1, np.int64)
        for row, part in enumerate(parts):
            lengths = [len(part.prefix) - before, *(max(0, len(c) - 1) for c in part.continuations)]
            segment[row, width - sum(lengths) :] = np.repeat(np.arange(len(lengths)), lengths)
        ids = torch.from_numpy(segment).to(self.device)
        query, key = ids[:, :, None], ids[:, None, :]
        sees = (key == query) | ((key == 0) & (query >= 0))
        sees &= torch.ones(width, width, dtype=torch.bool, device=self.device).tril()  # padding sees padding: no NaN
        sees = torch.nn.functional.pad(sees, (before, 0), value=True)[:, None]
        if self.model.config._attn_implementation == "sdpa":
            return sees
        lowest = torch.finfo(self.model.dtype).min
        return torch.zeros(sees.shape, dtype=self.model.dtype, device=self.device).masked_fill_(~sees, lowest)

    def _read(self, part: Part, logits: torch.Tensor) -> list[np.ndarray]:
        """Log-probabilities from the logits after the prefix (row 0) and after each token read (the others)."""
        total = logits.logsumexp(dim=-1)
        rows: list[int] = []
        tokens: list[int] = []
        at = 1
        for continuation in part.continuations:
            if len(continuation):
                rows += [0, *range(at, at + len(continuation) - 1)]
                tokens += continuation
                at += len(continuation) - 1
        index = torch.tensor(rows, dtype=torch.long, device=logits.device)
        values = (logits[index, torch.tensor(tokens, dtype=torch.long, device=logits.device)] - total[index]).double()
        flat = values.cpu().numpy()
        ends = np.cumsum([len(c) for c in part.continuations])
        return np.split(flat, ends[:-1])

    @torch.inference_mode()
    def nll(self, input_ids: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """See `assay.systems.lm.LanguageModel.nll`; both (rows, length)."""
        out = np.zeros(labels.shape)
        rows, length = labels.shape
        if length < 2:
            return out
        vocabulary = int(self.model.get_output_embeddings().weight.shape[0])
        at_once = max(1, 100_000_000 // vocabulary // length)
        for start in range(0, rows, at_once):
            ids = torch.from_numpy(np.ascontiguousarray(input_ids[start : start + at_once], np.int64)).to(self.device)
            target = torch.from_numpy(np.ascontiguousarray(labels[start : start + at_once, 1:], np.int64))
            target = target.to(self.device)
            positions = torch.arange(length, device=self.device).expand(ids.shape[0], -1)
            logits = self._forward(ids, positions, None, None, length)[:, :-1]
            loss = torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]), target.reshape(-1), ignore_index=-100, reduction="none"
            )
            out[start : start + at_once, 1:] = loss.view(target.shape).double().cpu().numpy()
        return out
