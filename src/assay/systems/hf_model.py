"""HFModel: a transformers model that answers messages and shows its probabilities.

Nothing here imports torch before a model is made.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.core.errors import UsageError
from assay.core.metering import Call, Meter, RunScope, current_scope, report_call, report_exchange
from assay.systems import lm_text
from assay.systems.chat.model import Message, Reply, Usage

if TYPE_CHECKING:
    import numpy as np
    import torch
    from transformers import PreTrainedTokenizerBase

    from assay.systems.chat.prices import Price

MAX_TOKENS = 512
"""Tokens of a reply where neither the request nor the name of the system sets a limit."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the name of a system sets; it stands above what `generate` is asked for."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    thinking: bool | None = None
    completion: bool | None = None

    def check(self) -> None:
        """Refuse values outside their range."""
        for name, value, good, range_ in (
            ("temperature", self.temperature, lambda v: 0 <= v < float("inf"), "0 or more"),
            ("top_p", self.top_p, lambda v: 0 < v <= 1, "above 0 and at most 1"),
            ("top_k", self.top_k, lambda v: v >= 0, "0 (all) or more"),
            ("max_tokens", self.max_tokens, lambda v: v >= 1, "1 or more"),
        ):
            if value is not None and not good(value):
                raise UsageError(f"{name}={value} is out of range; give {range_}.")


class HFModel:
    """A transformers model that answers messages and shows its probabilities: ChatModel and LanguageModel.

    Concurrent requests run in shared batches in one thread of the model's own; the event loop stays free. Greedy
    unless a temperature is given. With a ``seed`` a sampled reply is a function of the request alone; without one it
    differs every time. Float32 keeps results independent of the batch to about 1e-5; 16-bit types do not.

    Parameters
    ----------
    name
        Name in records.
    model, tokenizer, processor
        As transformers loads them; ``processor`` for models that read images.
    role
        What its calls are metered as.
    threads
        Threads of torch.
    max_batch
        Most sequences at once; halved when memory does not suffice.
    defaults
        Sampling options of the system's name.
    price
        Price of its tokens; None = calls have no cost.
    info
        More facts for ``describe``.
    """

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        *,
        processor: Any = None,
        role: str = "subject",
        threads: int = 1,
        max_batch: int = 16,
        defaults: Defaults | None = None,
        price: Price | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        from assay.systems.batching import Batcher
        from assay.systems.decoder import Decoder

        if threads < 1 or max_batch < 1:
            raise UsageError(f"threads={threads} and max_batch={max_batch} must be 1 or more.")
        self.name = name
        self.tokenizer = tokenizer
        self.role = role
        self.processor = processor
        self.defaults = defaults or Defaults()
        self.defaults.check()
        self.price = price
        self._info = dict(info or {})
        self._origin: tuple[Callable[..., HFModel], tuple[Any, ...], dict[str, Any]] | None = None
        self._model = model.eval()
        self._meter: Meter | None = None
        self._scope: RunScope | None = None
        bare = self.defaults.completion
        self.completion: bool = tokenizer.chat_template is None if bare is None else bare
        if not self.completion and tokenizer.chat_template is None:
            raise UsageError(f"{name} has no chat template; leave ?completion=false out to give it the bare text.")
        config = model.config.get_text_config()
        self.context: int | None = getattr(config, "max_position_embeddings", None) or getattr(
            config, "n_positions", None
        )
        self.vocabulary = int(model.get_output_embeddings().weight.shape[0])
        self.ends = _end_tokens(model, tokenizer)
        self._decoder = Decoder(model, name)
        self._batcher = Batcher(
            self._decoder,
            tokenizer,
            ends=self.ends,
            context=self.context,
            threads=threads,
            max_batch=max_batch,
        )

    def refuses(self, task: Any) -> str | None:
        """Why a task is not for this model: it reads pictures only where it has a processor for them."""
        if "image" in task.modalities and self.processor is None:
            return "shows pictures, and this model reads text only"
        return None

    def __repr__(self) -> str:
        return f"HFModel({self.name!r}, role={self.role!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._origin is None:
            raise TypeError(f"{self.name} was built from objects; give its name to send it to another process.")
        return _rebuild, self._origin

    def describe(self) -> dict[str, Any]:
        """Facts for ``run.json``: back end, number type, device, size, revision, options."""
        import torch
        import transformers

        options = {k: getattr(self.defaults, k) for k in Defaults.__slots__ if getattr(self.defaults, k) is not None}
        return {
            "name": self.name,
            "kind": "local",
            "role": self.role,
            "backend": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "device": str(self._model.device),
            "threads": self._batcher.threads,
            "max_batch": self._batcher.max_batch,
            "parameters": sum(p.numel() for p in self._model.parameters()),
            "context": self.context,
            "completion": self.completion,
            "options": options,
            **self._info,
        }

    def bind(self, meter: Meter) -> HFModel:
        """A copy that shares the model, reports to ``meter`` and remembers the run, whatever thread uses it."""
        bound = object.__new__(HFModel)
        bound.__dict__.update(self.__dict__)
        bound._meter, bound._scope = meter, current_scope.get()
        return bound

    # ChatModel

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        response_format: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        stop: Sequence[str] | None = None,
        n: int = 1,
        logprobs: int | None = None,
        seed: int | None = None,
    ) -> Reply:
        """Answer messages; see `ChatModel`. ``response_format`` binds nothing here: the reply is free text.

        Raises
        ------
        UsageError
            Messages, tools or images that the model cannot be given; a parameter out of range.
        ProviderError
            A prompt beyond the context, too little memory, numbers that are not finite.
        """
        from assay.systems.batching import Generation, Sampling

        own = self.defaults
        asked = Defaults(temperature=temperature, max_tokens=max_tokens)
        asked.check()
        if n < 1 or (logprobs is not None and logprobs < 0):
            raise UsageError(f"n={n} must be 1 or more and logprobs={logprobs} 0 or more.")
        heat = own.temperature if own.temperature is not None else temperature or 0.0
        sampling = Sampling(heat, own.top_p or 1.0, own.top_k or 0)
        limit = own.max_tokens or max_tokens or MAX_TOKENS
        stops = (stop,) if isinstance(stop, str) else tuple(s for s in stop or () if s)
        prompt = self._render(messages, tools)
        seed = secrets.randbits(63) if seed is None else seed
        if lm_text.images_in(messages):
            from assay.systems.lm_images import generate_with_images

            jobs = [generate_with_images(self, messages, tools, limit, sampling, stops, n, logprobs, seed)]
        else:
            most = self._batcher.max_batch
            jobs = [
                Generation(lambda: self._encode(prompt), limit, sampling, stops, min(most, n - k), logprobs, seed, k)
                for k in range(0, n, most)
            ]
        worst = self._reserve(prompt, n * limit)
        started = time.perf_counter()
        usage = Usage()
        try:
            done = await asyncio.gather(*map(self._run, jobs))
            rows = [row for _, part in done for row in part]
            usage = Usage(done[0][0], sum(row.completion_tokens for row in rows))
        finally:
            cost = self._settle(worst, usage)
        choices = tuple(lm_text.choice(self.tokenizer, row, prompt, self.completion) for row in rows)
        report_exchange(self.role, self.name, messages, choices, self._meter)
        return self._reply(choices, usage, cost, time.perf_counter() - started)

    async def choice_logprobs(self, messages: Sequence[Message], choices: Sequence[str]) -> list[float]:
        """Log-likelihood (nats) of each text as the beginning of the reply, in one forward pass.

        The pass is shared with concurrent calls. Texts are read as the model would write them after the prompt: joined
        to it where tokens do not cross the boundary, else tokenised on their own.

        Raises
        ------
        UsageError
            If a choice is empty, two are the same tokens, or a message holds an image.
        """
        from assay.systems.batching import Scoring

        if lm_text.images_in(messages):
            raise UsageError(f"{self.name} scores choices behind text only; use generate for messages with images.")
        prompt = self._render(messages, None)
        worst = self._reserve("".join([prompt, *choices]), 0)
        started = time.perf_counter()
        usage = Usage()
        try:
            tokens, values = await self._run(Scoring(lambda: self._split(prompt, choices)))
            usage = Usage(tokens)
        finally:
            cost = self._settle(worst, usage)
        self._reply((), usage, cost, time.perf_counter() - started)
        return [float(value.sum()) for value in values]

    def round_trip(self, text: str) -> bool:
        """Whether a message survives chat template and tokenizer to the character, spaces and newlines included."""
        prompt = self._render([{"role": "user", "content": text}], None)
        decoded = self.tokenizer.decode(self._encode(prompt), clean_up_tokenization_spaces=False)
        return text in prompt and text in decoded

    # LanguageModel

    def logprobs(self, prefix: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """See `LanguageModel.logprobs`. Safe to call from any thread but an event loop's, which it would block."""
        from assay.systems.batching import Scoring

        for tokens in (prefix, *continuations):
            bad = next((t for t in tokens if not 0 <= t < self.vocabulary), None)
            if bad is not None:
                raise UsageError(
                    f"Token id {bad} is not in the vocabulary of {self.name} (0 to {self.vocabulary - 1})."
                )
        ids, rest = [int(t) for t in prefix], [[int(t) for t in c] for c in continuations]
        return self._batcher.submit(Scoring(lambda: (ids, rest))).result()[1]

    def nll(self, input_ids: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """See `LanguageModel.nll`."""
        import numpy as np

        from assay.systems.batching import Work

        ids, targets = np.asarray(input_ids), np.asarray(labels)
        if ids.shape != targets.shape or ids.ndim not in (1, 2):
            raise UsageError(
                f"input_ids {ids.shape} and labels {targets.shape} must have one shape, (length,) or (rows, length)."
            )
        for what, values in (("input_ids", ids), ("labels", targets[targets != -100])):
            if values.size and (values.min() < 0 or values.max() >= self.vocabulary):
                raise UsageError(f"{what} hold ids outside the vocabulary of {self.name} (0 to {self.vocabulary - 1}).")
        if self.context is not None and ids.shape[-1] > self.context:
            raise UsageError(f"A row of {ids.shape[-1]} tokens is longer than the {self.context} {self.name} reads.")
        two = ids.reshape(-1, ids.shape[-1]), targets.reshape(-1, ids.shape[-1])
        return self._batcher.submit(Work(lambda: self._decoder.nll(*two))).result().reshape(ids.shape)

    def module(self) -> torch.nn.Module:
        """See `LanguageModel.module`. Kept prefixes are forgotten, since hooks and training change what they hold."""
        self._decoder.prefixes.clear()
        return self._model

    # Parts

    def _render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None) -> str:
        return lm_text.render(
            self.name,
            self.processor if self.processor is not None and lm_text.images_in(messages) else self.tokenizer,
            messages,
            tools,
            completion=self.completion,
            thinking=self.defaults.thinking,
            images=self.processor is not None,
        )

    def _encode(self, prompt: str) -> list[int]:
        # A chat template writes its own special tokens; bare text gets the tokenizer's.
        ids = self.tokenizer(prompt, add_special_tokens=self.completion)["input_ids"]
        return list(ids) or [self._blank()]

    def _blank(self) -> int:
        """What stands before an empty prompt, since nothing predicts the first token."""
        for token in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id):
            if token is not None:
                return int(token)  # pyright: ignore[reportArgumentType]
        raise UsageError(f"{self.name} has no begin-of-text token, so its prompt cannot be empty.")

    def _split(self, prompt: str, choices: Sequence[str]) -> tuple[list[int], list[list[int]]]:
        prefix = self._encode(prompt)
        rest = []
        for choice in choices:
            joint = self._encode(prompt + choice)
            if joint[: len(prefix)] == prefix:
                rest.append(joint[len(prefix) :])
            else:
                rest.append(list(self.tokenizer(choice, add_special_tokens=False)["input_ids"]))
        if not all(rest) or len({tuple(r) for r in rest}) < len(rest):
            raise UsageError(f"Choices {list(choices)!r} must be different texts of at least one token of {self.name}.")
        return prefix, rest

    async def _run(self, job: Any) -> Any:
        future: Future[Any] = self._batcher.submit(job)
        return await asyncio.wrap_future(future)

    def _reserve(self, prompt: str, completion_tokens: int) -> float | None:
        """Set the worst cost aside where a price and a budget are given: no more tokens than bytes in a prompt."""
        scope = self._scope or current_scope.get()
        if self.price is None or scope is None or scope.budget is None:
            return None
        worst = self.price.worst(len(prompt.encode()) + 8, completion_tokens)
        scope.budget.reserve(worst)
        return worst

    def _settle(self, worst: float | None, usage: Usage) -> float | None:
        cost = None if self.price is None else self.price.cost(usage)
        scope = self._scope or current_scope.get()
        if worst is not None and scope is not None and scope.budget is not None:
            scope.budget.settle(worst, cost or 0.0)
        return cost

    def _reply(self, choices: tuple[Any, ...], usage: Usage, cost: float | None, seconds: float) -> Reply:
        call = Call(
            self.role,
            self.name,
            calls=1,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            seconds=seconds,
            cost=cost,
            paid=cost or 0.0,
            resolved=self._info.get("revision"),
        )
        report_call(call, self._meter)
        return Reply(choices, usage, self.name, seconds, cost)


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    found = [tokenizer.eos_token_id]
    for config in (getattr(model, "generation_config", None), model.config):
        ids = getattr(config, "eos_token_id", None)
        found += ids if isinstance(ids, (list, tuple)) else [ids]
    return frozenset(int(i) for i in found if i is not None)


def _rebuild(factory: Callable[..., HFModel], args: tuple[Any, ...], options: dict[str, Any]) -> HFModel:
    return factory(*args, **options)
