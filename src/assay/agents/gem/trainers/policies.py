"""Policies that the trainers train: over a list of replies, letter by letter, and any Hugging Face model.

All three offer `act`, `logps`, `values` and `parameters`; a trainer knows nothing else of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from assay.agents.gem.env import EnvError
from assay.agents.gem.rollout import Act


class TrainablePolicy(Protocol):
    """What a trainer needs of a policy."""

    max_tokens: int

    def act(self, prompts: Sequence[str]) -> Sequence[Act]:
        """Sample a reply to each prompt."""
        ...

    def logps(self, prompts: Sequence[str], acts: Sequence[Act]) -> tuple[Tensor, Tensor]:
        """Log-probabilities now of the tokens taken, and their mask; both (turns, tokens)."""
        ...

    def values(self, prompts: Sequence[str]) -> Tensor:
        """The critic's estimate at the end of each prompt, (turns,)."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """Everything that learns."""
        ...


class ActionPolicy(nn.Module):
    """Chooses one of a list of replies by what lines the prompt holds: one token a turn.

    A line is hashed to one of ``features`` inputs (CRC-32: the same in every process); two layers lead from there to
    the replies and to the critic.

    Parameters
    ----------
    replies
        What it can say.
    features, hidden
        Inputs and width.
    seed
        Of weights and of sampling.
    """

    max_tokens = 1

    def __init__(self, replies: Sequence[str], *, features: int = 512, hidden: int = 64, seed: int = 0) -> None:
        super().__init__()
        if len(set(replies)) != len(replies) or not replies:
            raise EnvError("ActionPolicy needs a list of different replies, at least one.")
        self.replies = list(replies)
        self.features = features
        self.generator = torch.Generator().manual_seed(seed)
        self.actor, self.critic = self._layers(hidden, len(self.replies)), self._layers(hidden, 1)
        self._seen: dict[str, list[int]] = {}

    def _layers(self, hidden: int, out: int) -> nn.Sequential:
        layers = nn.Sequential(nn.Linear(self.features, hidden), nn.Tanh(), nn.Linear(hidden, out))
        for layer in (layers[0], layers[2]):
            assert isinstance(layer, nn.Linear)
            # A handful of inputs is on at a time: weights by the number of inputs would leave the layer silent.
            nn.init.normal_(layer.weight, std=0.3 if layer is layers[0] else 0.01, generator=self.generator)
            nn.init.zeros_(layer.bias)
        return layers

    def encode(self, prompts: Sequence[str]) -> Tensor:
        """Which hashed lines each prompt holds, (turns, features), 0 or 1."""
        out = torch.zeros(len(prompts) * self.features)
        on: list[int] = []
        for row, prompt in enumerate(prompts):
            if prompt not in self._seen:
                if len(self._seen) >= 50_000:
                    self._seen.clear()
                lines = {line.strip() for line in prompt.splitlines()} - {""}
                self._seen[prompt] = sorted({zlib.crc32(line.encode()) % self.features for line in lines})
            on += [row * self.features + at for at in self._seen[prompt]]
        out[torch.tensor(on, dtype=torch.long)] = 1.0
        return out.view(len(prompts), self.features)

    def act(self, prompts: Sequence[str]) -> list[Act]:
        with torch.no_grad():
            logp = self.actor(self.encode(prompts)).log_softmax(-1)
            chosen = torch.multinomial(logp.exp(), 1, generator=self.generator)
            taken = logp.gather(1, chosen)
        pairs = zip(chosen[:, 0].tolist(), taken[:, 0].tolist())
        return [Act(self.replies[token], (token,), (value,)) for token, value in pairs]

    def logps(self, prompts: Sequence[str], acts: Sequence[Act]) -> tuple[Tensor, Tensor]:
        logp = self.actor(self.encode(prompts)).log_softmax(-1)
        taken = logp.gather(1, torch.tensor([[act.tokens[0]] for act in acts]))
        return taken, torch.ones_like(taken)

    def values(self, prompts: Sequence[str]) -> Tensor:
        return self.critic(self.encode(prompts))[:, 0]


class CharPolicy(nn.Module):
    """Writes its reply byte by byte: a GRU reads the end of the prompt and goes on.

    Parameters
    ----------
    alphabet
        Characters it can write; one more token ends the reply.
    max_tokens
        Longest reply; one that is longer is cut.
    context
        Characters of the prompt that it reads, from the end.
    hidden, seed
        Width; seed of weights and of sampling.
    """

    def __init__(
        self, alphabet: str, *, max_tokens: int = 8, context: int = 96, hidden: int = 96, seed: int = 0
    ) -> None:
        super().__init__()
        if not alphabet or len(set(alphabet)) != len(alphabet):
            raise EnvError("CharPolicy needs an alphabet of different characters.")
        self.alphabet, self.max_tokens, self.context = alphabet, max_tokens, context
        self.generator = torch.Generator().manual_seed(seed)
        self.end = len(alphabet)
        self.embed = nn.Embedding(257, 32)
        self.reader = nn.GRU(32, hidden, batch_first=True)
        self.writer = nn.GRUCell(32, hidden)
        self.written = nn.Embedding(len(alphabet) + 2, 32)  # and the end, and the beginning
        self.head = nn.Linear(hidden, len(alphabet) + 1)
        self.critic = nn.Linear(hidden, 1)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(std=0.15, generator=self.generator)

    def read(self, prompts: Sequence[str]) -> Tensor:
        """State after each prompt, (turns, hidden)."""
        rows = [list(prompt.encode()[-self.context :]) for prompt in prompts]
        width = max(1, max(map(len, rows)))
        padded = torch.tensor([[256] * (width - len(row)) + row for row in rows])  # to the left: the end lines up
        return self.reader(self.embed(padded))[1][0]

    def act(self, prompts: Sequence[str]) -> list[Act]:
        with torch.no_grad():
            state = self.read(prompts)
            last = torch.full((len(prompts),), self.end + 1)
            tokens: list[list[int]] = [[] for _ in prompts]
            logps: list[list[float]] = [[] for _ in prompts]
            for _ in range(self.max_tokens):
                state = self.writer(self.written(last), state)
                logp = self.head(state).log_softmax(-1)
                last = torch.multinomial(logp.exp(), 1, generator=self.generator)[:, 0]
                taken = logp.gather(1, last[:, None])[:, 0].tolist()
                for i, (token, value) in enumerate(zip(last.tolist(), taken)):
                    if not tokens[i] or tokens[i][-1] != self.end:
                        tokens[i].append(token)
                        logps[i].append(value)
                if all(row[-1] == self.end for row in tokens):
                    break
        return [
            Act(self._text(row), tuple(row), tuple(values), row[-1] != self.end) for row, values in zip(tokens, logps)
        ]

    def _text(self, tokens: Sequence[int]) -> str:
        return f"\\boxed{{{''.join(self.alphabet[token] for token in tokens if token != self.end)}}}"

    def logps(self, prompts: Sequence[str], acts: Sequence[Act]) -> tuple[Tensor, Tensor]:
        width = max(len(act.tokens) for act in acts)
        tokens = torch.tensor([list(act.tokens) + [self.end] * (width - len(act.tokens)) for act in acts])
        mask = torch.tensor([[1.0] * len(act.tokens) + [0.0] * (width - len(act.tokens)) for act in acts])
        state = self.read(prompts)
        last = torch.full((len(acts),), self.end + 1)
        out = []
        for at in range(width):
            state = self.writer(self.written(last), state)
            last = tokens[:, at]
            out.append(self.head(state).log_softmax(-1).gather(1, last[:, None])[:, 0])
        return torch.stack(out, 1), mask

    def values(self, prompts: Sequence[str]) -> Tensor:
        return self.critic(self.read(prompts))[:, 0]


class HFPolicy:
    """A causal language model of transformers, on whatever device it is on.

    Prompts are texts as they stand: a chat template is `ObservationWrapper`'s (``concat_chat``). The critic is a linear
    layer on the last hidden state of the prompt's last token.

    Parameters
    ----------
    model, tokenizer
        As loaded by transformers.
    max_tokens
        Longest reply.
    max_prompt
        Tokens of the prompt that are kept, from the end.
    temperature
        Of sampling; log-probabilities are those of the tempered distribution.
    seed
        Of sampling and of the critic.
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, max_tokens: int = 64, max_prompt: int = 1024, temperature: float = 1.0,
        seed: int = 0,
    ) -> None:  # fmt: skip
        if not temperature > 0:
            raise EnvError(f"temperature is {temperature}; a policy that learns samples, above 0.")
        self.model, self.tokenizer = model, tokenizer
        self.max_tokens, self.max_prompt, self.temperature = max_tokens, max_prompt, temperature
        self.device = next(model.parameters()).device
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.critic = nn.Linear(model.config.hidden_size, 1).to(self.device)
        nn.init.zeros_(self.critic.weight)
        nn.init.zeros_(self.critic.bias)
        self.pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id

    def parameters(self) -> Iterator[nn.Parameter]:
        yield from self.model.parameters()
        yield from self.critic.parameters()

    def _prompts(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        rows = [self.tokenizer(prompt, add_special_tokens=False)["input_ids"][-self.max_prompt :] for prompt in prompts]
        width = max(1, max(map(len, rows)))
        ids = [[self.pad] * (width - len(row)) + row for row in rows]
        mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
        return torch.tensor(ids, device=self.device), torch.tensor(mask, device=self.device)

    def act(self, prompts: Sequence[str]) -> list[Act]:
        ids, mask = self._prompts(prompts)
        tokens: list[list[int]] = [[] for _ in prompts]
        logps: list[list[float]] = [[] for _ in prompts]
        open_ = [True] * len(prompts)
        with torch.no_grad():
            past, step = None, ids
            for _ in range(self.max_tokens):
                positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -step.shape[1] :]
                out = self.model(
                    input_ids=step, attention_mask=mask, position_ids=positions, past_key_values=past, use_cache=True
                )
                past = out.past_key_values
                logp = (out.logits[:, -1].float() / self.temperature).log_softmax(-1)
                step = torch.multinomial(logp.exp(), 1, generator=self.generator)
                taken = logp.gather(1, step)[:, 0].tolist()
                mask = torch.cat([mask, torch.ones_like(step)], 1)
                for i, (token, value) in enumerate(zip(step[:, 0].tolist(), taken)):
                    if open_[i]:
                        tokens[i].append(token)
                        logps[i].append(value)
                        open_[i] = token != self.tokenizer.eos_token_id
                if not any(open_):
                    break
        return [
            Act(self.tokenizer.decode(row, skip_special_tokens=True), tuple(row), tuple(values), cut)
            for row, values, cut in zip(tokens, logps, open_)
        ]

    def logps(self, prompts: Sequence[str], acts: Sequence[Act]) -> tuple[Tensor, Tensor]:
        ids, mask = self._prompts(prompts)
        width = max(len(act.tokens) for act in acts)
        rows = [list(act.tokens) + [self.pad] * (width - len(act.tokens)) for act in acts]
        counts = [[1] * len(act.tokens) + [0] * (width - len(act.tokens)) for act in acts]
        said, kept = torch.tensor(rows, device=self.device), torch.tensor(counts, device=self.device)
        whole = torch.cat([mask, kept], 1)
        out = self.model(
            input_ids=torch.cat([ids, said], 1), attention_mask=whole, position_ids=(whole.cumsum(-1) - 1).clamp(min=0)
        )
        logits = out.logits[:, ids.shape[1] - 1 : -1].float() / self.temperature
        return logits.log_softmax(-1).gather(2, said[..., None])[..., 0], kept.float()

    def values(self, prompts: Sequence[str]) -> Tensor:
        ids, mask = self._prompts(prompts)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        out = self.model(input_ids=ids, attention_mask=mask, position_ids=positions, output_hidden_states=True)
        return self.critic(out.hidden_states[-1][:, -1].float())[:, 0]
