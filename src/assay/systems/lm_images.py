"""Local models that read images: one request at a time through transformers' own generation. Needs torch and Pillow."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image

from assay.core.errors import ProviderError, UsageError
from assay.systems.batching import Generation, Row, Sampling, Work
from assay.systems.lm_text import plain_messages

if TYPE_CHECKING:
    from assay.systems.chat.model import Message
    from assay.systems.lm import HFModel


def image_of(url: str) -> Image.Image:
    """The picture in a data URL. Addresses are refused: what a model saw must lie in the request.

    Raises
    ------
    UsageError
        Not a data URL, or not a picture.
    """
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise UsageError(f"An image must be a data:...;base64 URL, and this one begins {url[:40]!r}.")
    try:
        picture = Image.open(io.BytesIO(base64.b64decode(data, validate=True)))
        return picture.convert("RGB")
    except Exception as error:  # Pillow documents no closed set of what a damaged picture raises, bombs among it
        raise UsageError(f"An image part holds no picture that Pillow reads ({error}).") from error


def generate_with_images(
    model: HFModel,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None,
    max_tokens: int,
    sampling: Sampling,
    stop: tuple[str, ...],
    n: int,
    logprobs: int | None,
    seed: int,
) -> Work:
    """Work that reads pictures and messages and gives the same as a finished Generation.

    Position rules of such models differ by family, so that rows of several requests cannot be mixed here.
    """
    request = Generation(list, max_tokens, sampling, stop, n, logprobs, seed)

    def work() -> tuple[int, list[Row]]:
        plain = plain_messages(model.name, messages, images=True)
        for message in plain:
            if isinstance(message["content"], list):
                message["content"] = [
                    {"type": "image", "image": image_of(p["url"])} if p["type"] == "image" else p
                    for p in message["content"]
                ]
        extra: dict[str, Any] = {"tools": list(tools)} if tools else {}
        inputs = model.processor.apply_chat_template(
            plain, tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt", **extra
        ).to(model.module().device)
        ids = inputs["input_ids"]
        length = int(ids.shape[1])
        if model.context is not None and length >= model.context:
            raise ProviderError(
                f"The prompt of {length} tokens with its images is longer than the {model.context} that {model.name} "
                "reads; make the images smaller.",
                retryable=False,
            )
        request.tokens = ids[0].tolist()
        with torch.random.fork_rng(devices=[ids.device] if ids.device.type == "cuda" else []):
            torch.manual_seed(seed)
            return length, _rows(model, request, inputs, length)

    return Work(work)


@torch.inference_mode()
def _rows(model: HFModel, request: Generation, inputs: Any, length: int) -> list[Row]:
    heat = request.sampling.temperature
    drawn: dict[str, Any] = {"do_sample": False}
    if heat:
        drawn = {
            "do_sample": True,
            "temperature": heat,
            "top_p": request.sampling.top_p,
            "top_k": request.sampling.top_k,
        }
    if request.stop:
        drawn |= {"stop_strings": list(request.stop), "tokenizer": model.tokenizer}
    out: Any = model.module().generate(  # pyright: ignore[reportCallIssue]
        **inputs,
        **drawn,
        max_new_tokens=request.max_tokens,
        num_return_sequences=request.n,
        return_dict_in_generate=True,
        output_logits=request.logprobs is not None,
    )
    rows = []
    for place, tokens in enumerate(out.sequences[:, length:].tolist()):
        row = Row(request, None)
        end = next((i for i, token in enumerate(tokens) if token in model.ends), None)
        row.ids = tokens if end is None else tokens[:end]
        text = model.tokenizer.decode(row.ids, skip_special_tokens=True)
        row.stopped_at = next((s for s in request.stop if s in text), None)
        row.stop_reason = "length" if end is None and row.stopped_at is None else "stop"
        if request.logprobs is not None:
            for step, token in enumerate(row.ids):
                values = out.logits[step][place].float().log_softmax(dim=-1)
                top = values.topk(max(request.logprobs, 1))
                pairs = list(zip(top.indices.tolist(), top.values.tolist()))[: request.logprobs]
                row.logprobs.append((float(values[token]), pairs))
        rows.append(row)
    return rows
