"""Fine-tuning on the data that the recipe `tune` writes: one plain loop over torch and transformers.

What step s sees and drops is a function of (seed, s) alone, so a resumed training draws what an unbroken one would.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import DataError, UsageError
from assay.multimodal.asciieval.sft import IGNORED, collate, encode

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from assay.systems.hf_model import HFModel

log = logging.getLogger("assay.asciieval")

CHECKPOINT, DONE = ".checkpoint.pt", "trained.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """How to train; the defaults are the published ones (`tuning.SETTINGS`).

    Parameters
    ----------
    epochs
        Passes over the rows.
    learning_rate, warmup, weight_decay
        Of AdamW: peak rate, share of the steps until it is reached (a cosine to 0 follows), decay.
    clip
        Largest norm of a step's gradient.
    batch, micro_batch
        Rows a step, and rows a forward pass; the gradient is the same for every ``micro_batch``.
    lora
        Names of linear layers, or their patterns (``q_proj``, ``visual.*.qkv``): only low-rank additions to these are
        trained, and merged at the end. () = all parameters.
    rank, alpha, dropout
        Of the additions: dropout(x) A^T B^T alpha / rank.
    bf16
        Products in bfloat16; weights, gradients and AdamW's state stay float32.
    max_tokens
        Longer rows are left out and counted; None = what the model reads.
    save_every
        Steps between checkpoints.
    seed
        Of order, dropout and additions.
    """

    epochs: int = 1
    learning_rate: float = 2e-5
    warmup: float = 0.03
    weight_decay: float = 0.0
    clip: float = 1.0
    batch: int = 16
    micro_batch: int = 1
    lora: tuple[str, ...] = ()
    rank: int = 8
    alpha: float = 32.0
    dropout: float = 0.1
    bf16: bool = False
    max_tokens: int | None = None
    save_every: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "micro_batch", "rank", "save_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"Option {name}={getattr(self, name)} must be 1 or more.")
        for name, low, high in (("warmup", 0, 1), ("dropout", 0, 0.999), ("weight_decay", 0, math.inf)):
            if not low <= getattr(self, name) <= high:
                raise UsageError(f"Option {name}={getattr(self, name)} is not in {low} to {high}.")
        for name in ("learning_rate", "clip", "alpha"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"Option {name}={getattr(self, name)} must be above 0.")


def target_loss(network: Any, inputs: Mapping[str, Tensor]) -> Tensor:
    """Negative log-likelihood in nats, summed over the tokens whose label is not -100, each given those before."""
    from torch.nn.functional import cross_entropy

    given = {name: value for name, value in inputs.items() if name != "labels"}
    logits, wanted = network(**given, use_cache=False).logits[:, :-1], inputs["labels"][:, 1:]
    counted = wanted != IGNORED
    return cross_entropy(logits[counted].float(), wanted[counted], reduction="sum")


def rate(step: int, steps: int, settings: Settings) -> float:
    """Learning rate of a step from 0: linear over the first ``warmup`` share, then half a cosine.

    The usual schedule read at step + 1 of steps + 1, so that no step has a rate of 0 (a training of one step would
    otherwise change nothing).
    """
    rising, at = math.ceil(settings.warmup * steps), step + 1
    if at < rising:
        return settings.learning_rate * at / rising
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * (at - rising) / (steps + 1 - rising)))


def add_lora(network: nn.Module, settings: Settings, generator: torch.Generator) -> list[nn.Module]:
    """Freeze a network and add trainable low-rank products to the linear layers named; they begin at zero."""
    import torch
    from torch import nn
    from torch.nn.functional import dropout

    def matches(name: str) -> bool:
        return any(fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}") for pattern in settings.lora)

    linear = {name: layer for name, layer in network.named_modules() if isinstance(layer, nn.Linear)}
    chosen = [layer for name, layer in linear.items() if matches(name)]
    if not chosen:
        known = sorted({name.rpartition(".")[2] for name in linear})
        raise UsageError(f"Option lora={','.join(settings.lora)} names no linear layer; there are: {', '.join(known)}.")
    embedding = network.get_input_embeddings().weight  # pyright: ignore[reportCallIssue]
    if any(layer.weight is embedding for layer in chosen):
        raise UsageError(f"Option lora={','.join(settings.lora)} names the head, which shares the embedding's weights.")
    network.requires_grad_(False)
    scale = settings.alpha / settings.rank

    def added(layer: Any, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
        kept = dropout(given[0], settings.dropout, layer.training)
        return out + scale * (kept @ layer.lora_a.T) @ layer.lora_b.T

    for layer in chosen:
        bound = layer.in_features**-0.5
        down = torch.empty(settings.rank, layer.in_features).uniform_(-bound, bound, generator=generator)
        place = layer.weight.device
        layer.register_parameter("lora_a", nn.Parameter(down.to(place)))
        layer.register_parameter("lora_b", nn.Parameter(torch.zeros(layer.out_features, settings.rank, device=place)))
        layer.lora_hook = layer.register_forward_hook(added)  # pyright: ignore[reportArgumentType]
    return list(chosen)


def merge_lora(layers: Sequence[Any], settings: Settings) -> None:
    """Add the low-rank products to the weights of their layers and remove what `add_lora` put there."""
    for layer in layers:
        layer.weight.data += settings.alpha / settings.rank * (layer.lora_b @ layer.lora_a).detach()
        layer.lora_hook.remove()
        del layer.lora_a, layer.lora_b, layer.lora_hook


def finished(out: Path, identity: str) -> bool:
    """Whether ``out`` holds the result of this very training; DataError if it is another's."""
    if not (out / DONE).is_file():
        return False
    if json.loads((out / DONE).read_text(encoding="utf-8")).get("identity") != identity:
        raise DataError(f"{out} holds a model trained on other data or options; write into another folder.")
    return True


class _Weights:
    """The trained parameters alone, for a checkpoint: a frozen base is not written again and again."""

    def __init__(self, network: nn.Module) -> None:
        self.parts = {name: p for name, p in network.named_parameters() if p.requires_grad}

    def state_dict(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.parts.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, p in self.parts.items():
            p.data.copy_(state[name])


def fine_tune(
    system: HFModel, rows: Sequence[Mapping[str, Any]], out: Path, settings: Settings, *, identity: str = ""
) -> dict[str, int]:
    """Train the network of ``system`` on rows of `read_rows`, resuming from a checkpoint in ``out``, and save it there.

    Parameters
    ----------
    system
        An ``hf:`` or ``local:`` model in float32; its network is changed.
    out
        Folder: becomes a checkpoint that ``hf:FOLDER`` loads, with ``history.jsonl`` (a row a step: step, epoch, loss
        in nats a target token, rate, norm of the gradient before clipping, target tokens, seconds).
    identity
        What was trained on what; a checkpoint of another one is refused.

    Returns
    -------
    dict
        Rows, rows left out as too long, steps.

    Raises
    ------
    UsageError
        Pictures for a model without a processor, nothing short enough, unknown layers.
    DataError
        A loss that is not finite, or a checkpoint of another training.
    """
    import numpy as np
    import torch
    from torch.nn.utils import clip_grad_norm_

    from assay.nn.trainer import Checkpoint, batches, seeded
    from assay.systems.packaged import quiet

    seen = any(row["images"] for row in rows)
    if seen and system.processor is None:
        raise UsageError(f"The data holds pictures, and {system.name} reads text only; make it with -o mode=text.")
    if seen and settings.micro_batch > 1:
        raise UsageError(f"Option micro_batch={settings.micro_batch} is for text; with pictures it must be 1.")
    most = min(settings.max_tokens or 10**9, system.context or 10**9)
    kept = [row for row in rows if encode(system, row)["input_ids"].shape[1] <= most]
    if not kept:
        raise UsageError(f"All {len(rows)} rows are longer than {most} tokens; raise max_tokens or take another base.")
    if len(kept) < len(rows):
        log.warning("%d of %d rows are longer than %d tokens and left out.", len(rows) - len(kept), len(rows), most)
    per_epoch = -(-len(kept) // settings.batch)
    steps = settings.epochs * per_epoch

    def derived(*path: int) -> int:
        return int(np.random.SeedSequence((settings.seed, *path)).generate_state(1, np.uint64)[0] >> 1)

    network: Any = system.module()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network.to(device)
    network.requires_grad_(True)
    layers = add_lora(network, settings, torch.Generator().manual_seed(derived(0))) if settings.lora else []
    weights = _Weights(network)
    parameters = list(weights.parts.values())
    optimiser = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)
    saved = Checkpoint(out / CHECKPOINT, {"weights": weights, "optimiser": optimiser})
    history: list[dict[str, Any]] = []
    with seeded(derived(1), device):  # a checkpoint sets torch's own generator too
        if (plain := saved.load()) is not None:
            if plain["identity"] != identity:
                raise DataError(f"{out / CHECKPOINT} belongs to other data or options; remove it to start anew.")
            history = plain["history"]
        with (out / "history.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in history)
            network.train()
            for step in range(len(history), steps):
                begun = time.perf_counter()
                epoch, place = divmod(step, per_epoch)
                order = torch.Generator().manual_seed(derived(2, epoch))
                chosen = list(batches(len(kept), settings.batch, order))[place]
                encoded = [encode(system, kept[at]) for at in chosen.tolist()]
                tokens = sum(int((row["labels"] != IGNORED).sum()) for row in encoded)
                for group in optimiser.param_groups:
                    group["lr"] = rate(step, steps, settings)
                optimiser.zero_grad(set_to_none=True)
                total = 0.0
                with seeded(derived(3, step), device):
                    for at in range(0, len(encoded), settings.micro_batch):
                        inputs = {k: v.to(device) for k, v in collate(encoded[at : at + settings.micro_batch]).items()}
                        with torch.autocast(device.type, torch.bfloat16, enabled=settings.bf16):
                            loss = target_loss(network, inputs) / tokens
                        loss.backward()
                        total += loss.item()
                norm = float(clip_grad_norm_(parameters, settings.clip))
                if not math.isfinite(total + norm):
                    raise DataError(f"Loss {total} and gradient {norm} at step {step + 1}; lower the learning rate.")
                optimiser.step()
                row = {"step": step + 1, "epoch": epoch + 1, "loss": total, "rate": optimiser.param_groups[0]["lr"]}
                row |= {"gradient_norm": norm, "target_tokens": tokens, "seconds": time.perf_counter() - begun}
                history.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
                log.info("step %d of %d, loss %.4f", step + 1, steps, total)
                if (step + 1) % settings.save_every == 0 or step + 1 == steps:
                    saved.save(history=history, identity=identity)
    network.eval()
    merge_lora(layers, settings)
    with quiet():
        network.save_pretrained(out)
    (system.processor or system.tokenizer).save_pretrained(out)
    (out / DONE).write_text(json.dumps({"identity": identity, **asdict(settings)}, indent=1) + "\n", encoding="utf-8")
    (out / CHECKPOINT).unlink()
    return {"rows": len(kept), "too_long": len(rows) - len(kept), "steps": steps}
