"""Tiny random language models with a byte-level tokenizer: exact checks in milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from assay.systems.hf_model import HFModel

CHATML = (
    "{% for m in messages %}{{ '<|start|>' + m['role'] + '\n' + m['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
MERGES = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("a", "n"), ("an", "d")]
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,  # far from uniform, so that a wrong mask shows
}


def tiny_tokenizer(template: str | None = CHATML) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {c: i for i, c in enumerate([*alphabet, *("".join(pair) for pair in MERGES)])}
    tokenizer = Tokenizer(models.BPE(vocabulary, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|start|>", eos_token="<|end|>")
    wrapped.chat_template = template
    return wrapped


def tiny_network(kind: str = "llama", seed: int = 0, vocabulary: int = 264) -> Any:
    shared = {**SIZES, "vocab_size": vocabulary, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    config = {
        "llama": lambda: LlamaConfig(**shared),
        "qwen3": lambda: Qwen3Config(**shared, head_dim=8),
        "mistral": lambda: MistralConfig(**shared, sliding_window=12),
        "gemma3": lambda: Gemma3TextConfig(
            **shared,
            head_dim=8,
            sliding_window=12,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
        "gpt2": lambda: GPT2Config(
            vocab_size=vocabulary,
            n_embd=32,
            n_layer=3,
            n_head=4,
            n_positions=512,
            initializer_range=0.2,
            bos_token_id=None,
            eos_token_id=None,
        ),
    }[kind]()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def tiny_model(kind: str = "llama", template: str | None = CHATML, **options: Any) -> HFModel:
    tokenizer = tiny_tokenizer(template)
    return HFModel(f"tiny:{kind}", tiny_network(kind, vocabulary=len(tokenizer)), tokenizer, **options)


def plain_logprobs(network: Any, tokens: list[int]) -> np.ndarray:
    """Log-probabilities after each token, (length, vocabulary), from one plain forward pass."""
    with torch.inference_mode():
        logits = network(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].double()
        return logits.log_softmax(dim=-1).numpy()


def plain_greedy(network: Any, tokens: list[int], steps: int, ends: frozenset[int]) -> list[int]:
    """Greedy continuation without any cache."""
    out: list[int] = []
    for _ in range(steps):
        token = int(plain_logprobs(network, [*tokens, *out])[-1].argmax())
        if token in ends:
            break
        out.append(token)
    return out
