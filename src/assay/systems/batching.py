"""Dynamic batches: concurrent requests to one model run together, in one thread, and finished ones make room.

Sequences join and leave between steps. A result depends on its request alone, beyond rounding: padding is masked,
positions are a row's own, and every sampled sequence has its own generator. Imported only together with torch.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from assay.core.errors import ProviderError
from assay.systems.decoder import Decoder, State

log = logging.getLogger("assay.lm")

PASS_TOKENS = 16_384
"""Most tokens (rows times length) in one pass; it bounds the memory of activations."""

CACHE_TOKENS = 65_536
"""Most tokens (rows times longest possible length) in decoding; it bounds the memory of keys and values."""

IDLE = 5.0
"""Seconds after which a thread without work ends; the next request starts another."""


@dataclass(slots=True, frozen=True)
class Sampling:
    """How one request draws tokens. ``temperature`` 0 is greedy; ``top_p`` 1 and ``top_k`` 0 leave nothing out."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0


@dataclass(slots=True, eq=False)
class Generation:
    """A request for ``n`` continuations; ``prompt`` is called in the model's thread and gives the token ids.

    ``first`` is the number of the first one among those of a larger request: their generators differ by number.
    """

    prompt: Callable[[], Sequence[int]]
    max_tokens: int
    sampling: Sampling
    stop: tuple[str, ...]
    n: int
    logprobs: int | None
    seed: int
    first: int = 0
    future: Future[tuple[int, list[Row]]] = field(default_factory=Future)
    tokens: Sequence[int] = ()
    rows: list[Row] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Scoring:
    """A request for log-probabilities: ``tokens`` gives prefix and continuations, in the model's thread."""

    tokens: Callable[[], tuple[Sequence[int], Sequence[Sequence[int]]]]
    future: Future[tuple[int, list[np.ndarray]]] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class Work:
    """Anything else that must run in the model's thread."""

    function: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class Row:
    """One continuation in the making. ``logprobs``: (log-probability, alternatives as ids) a token, if asked for."""

    job: Generation
    generator: torch.Generator | None
    ids: list[int] = field(default_factory=list)
    logprobs: list[tuple[float, list[tuple[int, float]]]] = field(default_factory=list)
    stop_reason: str | None = None
    stopped_at: str | None = None

    @property
    def completion_tokens(self) -> int:
        return len(self.ids) + (self.stop_reason == "stop" and self.stopped_at is None)


Job = Generation | Scoring | Work


class Batcher:
    """Runs requests to a decoder in one thread of its own.

    Parameters
    ----------
    decoder
        The model.
    tokenizer
        Reads stop strings out of tokens.
    ends
        Token ids that end a continuation.
    context
        Most tokens of prompt and continuation together; None = no limit.
    threads
        Threads of torch inside that thread. On a busy machine two can be ten times slower than one.
    max_batch
        Most sequences at once. Halved, and said once, when memory does not suffice.
    window
        Seconds that a request waits for company while the model is idle.
    """

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: Any,
        *,
        ends: frozenset[int],
        context: int | None,
        threads: int = 1,
        max_batch: int = 16,
        window: float = 0.003,
    ) -> None:
        self.decoder = decoder
        self.tokenizer = tokenizer
        self.ends = ends
        self.context = context
        self.threads = threads
        self.max_batch = max_batch
        self.window = window
        # What a pass costs besides its tokens, in tokens: weights are read once more; a GPU is rarely full.
        self._pass_cost = 48 if decoder.device.type == "cpu" else 2048
        self._jobs: list[Job] = []
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._state: State | None = None
        self._rows: list[Row] = []
        self._said = False
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        # A daemon thread that is inside torch while the interpreter goes away aborts the process: wait for its step.
        weakref.finalize(self, _end, self._closing, self._wake, self._threads)

    def submit(self, job: Job) -> Future[Any]:
        """Queue a job. Cancelling its future drops it, also when it is being worked on."""
        with self._wake:
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="assay-lm", daemon=True)
                self._threads[:] = [self._thread]
                self._thread.start()
            self._wake.notify()
        return job.future

    def _serve(self) -> None:
        torch.set_num_threads(self.threads)
        while not self._closing.is_set():
            with self._wake:
                if not self._jobs and not self._rows and not self._wake.wait(timeout=IDLE) and not self._jobs:
                    self._thread = None
                    return
            if not self._rows and self.window:
                time.sleep(self.window)
            with self._wake:
                jobs, self._jobs = [job for job in self._jobs if not job.future.done()], []
            try:
                self._round(jobs)
            except BaseException as error:  # a request must never wait forever, whatever went wrong
                self._fail(error)
                for job in jobs:
                    _refuse(job.future, error)

    def _round(self, jobs: Sequence[Job]) -> None:
        """Everything that waits and fits, then one step of all sequences."""
        generations = [job for job in jobs if isinstance(job, Generation)]
        scorings = [job for job in jobs if isinstance(job, Scoring)]
        for job in jobs:
            if isinstance(job, Work):
                _settle(job.future, job.function)
        if scorings:
            self._score(scorings)
        if generations:
            self._admit(generations)
        if self._rows:
            self._guarded(self._step, self._restart, self._fail)

    def _requeue(self, jobs: Sequence[Job]) -> None:
        with self._wake:
            self._jobs[:0] = jobs

    def _fail(self, error: BaseException) -> None:
        """Give an error to all that are being worked on."""
        rows, self._rows, self._state = self._rows, [], None
        for job in dict.fromkeys(row.job for row in rows):
            _refuse(job.future, error)

    # Memory

    def _guarded(
        self, attempt: Callable[[], None], again: Callable[[], None], fail: Callable[[Exception], None]
    ) -> None:
        """Try; when memory does not suffice, halve the batch and do it ``again``; else ``fail`` with the error."""
        try:
            attempt()
            return
        except Exception as error:
            if not _is_out_of_memory(error):
                fail(error)
                return
            said = str(error).split("\n", 1)[0]
        self.decoder.prefixes.clear()
        if self.decoder.device.type == "cuda":
            torch.cuda.empty_cache()
        if self.max_batch == 1:
            fail(ProviderError(f"One prompt of {self.decoder.name} does not fit into memory ({said}); shorten it."))
            return
        self.max_batch //= 2
        if not self._said:
            self._said = True
            log.warning("%s ran out of memory; batches are now at most %d.", self.decoder.name, self.max_batch)
        if len(self._rows) > self.max_batch:
            self._restart()
        again()

    def _restart(self) -> None:
        """Start the sequences in decoding anew in smaller batches; their seeds make the same tokens again."""
        rows, self._rows, self._state = self._rows, [], None
        self._requeue(list(dict.fromkeys(row.job for row in rows)))

    # Scores

    def _score(self, jobs: Sequence[Scoring]) -> None:
        parts, owners = [], []
        values: dict[Scoring, list[np.ndarray]] = {}
        used: dict[Scoring, int] = {}
        for job in jobs:
            try:
                prefix, continuations = job.tokens()
                self._check_context(len(prefix) + max(map(len, continuations), default=0))
                own = self.decoder.parts(prefix, continuations)
            except Exception as error:
                _refuse(job.future, error)
                continue
            values[job] = []
            used[job] = len(prefix) + sum(map(len, continuations))
            parts += own
            owners += [job] * len(own)
        order = sorted(range(len(parts)), key=lambda i: parts[i].length)
        done: dict[int, list[np.ndarray]] = {}

        def run(indices: list[int]) -> None:
            for index, value in zip(indices, self.decoder.score([parts[i] for i in indices]), strict=True):
                done[index] = value

        waiting = [order]
        while waiting:
            rest = waiting.pop(0)
            for batch in _batches(rest, [parts[i].length for i in rest], self.max_batch, self._pass_cost):
                live = [i for i in batch if not owners[i].future.done()]
                if not live:
                    continue
                if len(live) > self.max_batch:  # halved since this split was made
                    waiting.append(live)
                    continue

                def fail(error: Exception, live: list[int] = live) -> None:
                    for i in live:
                        _refuse(owners[i].future, error)

                self._guarded(lambda live=live: run(live), lambda live=live: waiting.append(live), fail)
        for index, owner in enumerate(owners):
            values[owner] += done.get(index, [])
        for job, value in values.items():
            _resolve(job.future, (used[job], value))

    # Sequences

    def _check_context(self, tokens: int) -> None:
        if self.context is not None and tokens > self.context:
            raise ProviderError(
                f"The prompt of {tokens} tokens is longer than the {self.context} that {self.decoder.name} reads; "
                "shorten it.",
                retryable=False,
            )

    def _admit(self, jobs: Sequence[Generation]) -> None:
        """Prefill what fits, in the order of asking, and put the rest back."""
        admitted: list[Generation] = []
        count = len(self._rows)
        longest = self._state.mask.shape[1] if self._state is not None else 0
        for place, job in enumerate(jobs):
            if not job.tokens:
                try:
                    job.tokens = job.prompt()
                    self._check_context(len(job.tokens) + 1)
                except Exception as error:
                    _refuse(job.future, error)
                    continue
            longest = max(longest, len(job.tokens) + job.max_tokens)
            full = count + job.n > self.max_batch or (count + job.n) * longest > CACHE_TOKENS
            if full and (admitted or self._rows):
                self._requeue(jobs[place:])
                break
            admitted.append(job)
            count += job.n
        admitted.sort(key=lambda job: len(job.tokens))
        for batch in _batches(admitted, [len(job.tokens) for job in admitted], self.max_batch, self._pass_cost):
            rows = len(self._rows) + sum(job.n for job in batch)
            if len(batch) > self.max_batch or (self._rows and rows > self.max_batch):  # halved since the split
                self._requeue(batch)
                continue

            def fail(error: Exception, batch: list[Generation] = batch) -> None:
                for job in batch:
                    _refuse(job.future, error)

            self._guarded(lambda batch=batch: self._begin(batch), lambda batch=batch: self._requeue(batch), fail)

    def _begin(self, jobs: Sequence[Generation]) -> None:
        state = self.decoder.prefill([job.tokens for job in jobs])
        if any(job.n > 1 for job in jobs):
            state = state.repeat([job.n for job in jobs])
        self._state = state if self._state is None else self._state.merge(state)
        for job in jobs:
            job.rows = [
                Row(job, _generator(job.seed, job.first + i) if job.sampling.temperature else None)
                for i in range(job.n)
            ]
            self._rows += job.rows

    def _step(self) -> None:
        """Draw a token a row, let finished rows go, read the tokens of the others."""
        assert self._state is not None
        chosen = draw(self._state.logits, self._rows)
        for row, token in zip(self._rows, chosen, strict=True):
            self._accept(row, token)
        for job in dict.fromkeys(row.job for row in self._rows if row.stop_reason):
            if all(row.stop_reason for row in job.rows):
                _resolve(job.future, (len(job.tokens), job.rows))
        keep = [i for i, row in enumerate(self._rows) if not (row.stop_reason or row.job.future.cancelled())]
        if len(keep) < len(self._rows):
            self._rows = [self._rows[i] for i in keep]
            if not keep:
                self._state = None
                return
            self._state = self._state.select(torch.tensor(keep, device=self._state.mask.device))
        last = torch.tensor([row.ids[-1] for row in self._rows], device=self._state.mask.device)
        self._state = self.decoder.step(self._state, last)

    def _accept(self, row: Row, token: int) -> None:
        if token in self.ends:
            row.stop_reason = "stop"
            row.logprobs = row.logprobs[: len(row.ids)]
            return
        row.ids.append(token)
        if row.job.stop:
            longest = max(len(s.encode()) for s in row.job.stop)
            tail = self.tokenizer.decode(row.ids[-(longest + 8) :], skip_special_tokens=True)
            row.stopped_at = next((s for s in row.job.stop if s in tail), None)
        length = len(row.ids)
        if row.stopped_at is not None:
            row.stop_reason = "stop"
        elif length >= row.job.max_tokens or (
            self.context is not None and len(row.job.tokens) + length >= self.context
        ):
            row.stop_reason = "length"


def draw(logits: torch.Tensor, rows: Sequence[Row]) -> list[int]:
    """One token a row of ``logits`` (rows, vocabulary); log-probabilities are noted where a row wants them.

    A sampled row takes one uniform number of its own generator through the inverse distribution function in the
    order of the vocabulary, so that rounding in the logits moves a token only at a boundary.

    Raises
    ------
    ProviderError
        If logits are not finite.
    """
    if not bool(torch.isfinite(logits.amax(dim=-1)).all()):
        raise ProviderError(
            "The model computed numbers that are not finite; load it with ?dtype=float32.", retryable=False
        )
    tokens = logits.argmax(dim=-1)
    sampled = [i for i, row in enumerate(rows) if row.generator is not None]
    if sampled:
        index = torch.tensor(sampled, device=logits.device)
        tokens[index] = _sampled(logits[index], [rows[i] for i in sampled])
    wanted = [i for i, row in enumerate(rows) if row.job.logprobs is not None]
    if wanted:
        most = max(rows[i].job.logprobs or 0 for i in wanted)
        values = logits[torch.tensor(wanted, device=logits.device)].log_softmax(dim=-1)
        top = values.topk(min(max(most, 1), values.shape[-1]), dim=-1)
        for place, i in enumerate(wanted):
            pairs = list(zip(top.indices[place].tolist(), top.values[place].tolist()))
            rows[i].logprobs.append((float(values[place, tokens[i]]), pairs[: rows[i].job.logprobs]))
    return tokens.tolist()


def _sampled(logits: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
    settings = [row.job.sampling for row in rows]
    heat = torch.tensor([s.temperature for s in settings], device=logits.device)
    weights = (logits / heat[:, None]).softmax(dim=-1)
    for place, s in enumerate(settings):
        if s.top_k or s.top_p < 1:
            weights[place] = _cut(weights[place], s)
    total = weights.double().cumsum(dim=-1)
    uniform = torch.stack([torch.rand(1, generator=row.generator, dtype=torch.float64) for row in rows])
    tokens = torch.searchsorted(total, uniform.to(logits.device) * total[:, -1:], right=True)[:, 0]
    # At 1 - epsilon the product can round up to the sum, past the last token that has any weight.
    last = weights.shape[-1] - 1 - (weights > 0).flip(-1).int().argmax(dim=-1)
    return torch.minimum(tokens, last)


def _cut(weights: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Zero outside the ``top_k`` likeliest tokens and, of what they weigh, the smallest set of at least ``top_p``."""
    size = weights.shape[-1]
    if sampling.top_k:
        values, indices = weights.topk(min(sampling.top_k, size))
        mass = float(values.sum())
    else:
        # The likeliest few hundred nearly always hold top_p, and sorting a vocabulary costs more than a small model.
        values, indices = weights.topk(min(512, size))
        mass = 1.0
        if float(values.sum()) < sampling.top_p:
            values, indices = weights.sort(descending=True)
    if sampling.top_p < 1:
        inside = values.cumsum(dim=-1) - values < sampling.top_p * mass
        values, indices = values[inside], indices[inside]
    return torch.zeros_like(weights).scatter_(0, indices, values)


def _generator(seed: int, index: int) -> torch.Generator:
    """The generator of one of n sequences: a function of the request alone."""
    digest = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def _batches(items: Sequence[Any], lengths: Sequence[int], most: int, pass_cost: int) -> Iterator[list[Any]]:
    """Split items sorted by length: a batch ends when padding it further would cost more than another pass."""
    start = padding = 0
    for end in range(1, len(items) + 1):
        if end < len(items):
            padding += (end - start) * (lengths[end] - lengths[end - 1])
        if (
            end == len(items)
            or end - start >= most
            or padding > pass_cost
            or (end - start + 1) * lengths[end] > PASS_TOKENS
        ):
            yield list(items[start:end])
            start, padding = end, 0


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)


def _settle(future: Future[Any], function: Callable[[], Any]) -> None:
    try:
        value = function()
    except Exception as error:
        _refuse(future, error)
    else:
        _resolve(future, value)


def _resolve(future: Future[Any], value: Any) -> None:
    with suppress(InvalidStateError):  # cancelled, maybe in this very moment
        future.set_result(value)


def _refuse(future: Future[Any], error: BaseException) -> None:
    with suppress(InvalidStateError):  # cancelled, maybe in this very moment
        future.set_exception(error)


def _end(closing: threading.Event, wake: threading.Condition, threads: Sequence[threading.Thread]) -> None:
    closing.set()
    with wake:
        wake.notify_all()
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(timeout=10)
