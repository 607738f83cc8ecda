"""Fine-tuning rows as `tuning.export` writes them, read back and turned into tokens with labels on the target alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.datasets.readers import guarded
from assay.core.errors import DataError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from assay.systems.hf_model import HFModel

IGNORED = -100
"""Label of a token that is no part of the loss."""


def read_rows(data: Path) -> list[dict[str, Any]]:
    """Rows of ``sft.jsonl`` (the file or its folder), pictures as checked paths.

    Raises
    ------
    DataError
        A row without a user's and an assistant's message, or a picture that is not there.
    """
    from assay.core.datasets import read_jsonl

    file = data / "sft.jsonl" if data.is_dir() else data
    rows = []
    for line, row in read_jsonl(file):
        messages = row.get("messages")
        messages = messages if isinstance(messages, list) else []
        roles = [m.get("role") if isinstance(m, Mapping) else None for m in messages]
        if roles != ["user", "assistant"] or not isinstance(messages[1].get("content"), str):
            raise DataError(
                f"{file}, line {line}: field 'messages' must hold a user's message and an assistant's text, not roles "
                f"{roles}; make such data with: assay make asciieval tune."
            )
        names = row.get("images") or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError(f"{file}, line {line}: field 'images' must be a list of file names, not {names!r:.80}.")
        with guarded(f"{file}, line {line}", "a row: field 'images' must name files"):
            pictures = [(file.parent / name).resolve() for name in names]
            for picture in pictures:
                if not picture.is_relative_to(file.parent.resolve()) or not picture.is_file():
                    raise DataError(
                        f"{file}, line {line}: field 'images' names {picture.name}, which is not in its folder."
                    )
        content = messages[0].get("content")
        places = (
            sum(isinstance(p, Mapping) and p.get("type") == "image" for p in content)
            if isinstance(content, list)
            else 0
        )
        if places != len(pictures):
            raise DataError(
                f"{file}, line {line}: {places} places for pictures, but field 'images' has {len(pictures)}."
            )
        rows.append({"messages": messages, "images": pictures})
    if not rows:
        raise DataError(f"{file} holds no rows to train on.")
    return rows


def encode(system: HFModel, row: Mapping[str, Any]) -> dict[str, Tensor]:
    """Model inputs and ``labels`` of one row, each of shape (1, length); the labels of the prompt are -100.

    The prompt is, token for token, what the model is asked at a run; the target ends with the model's end of a turn.
    """
    import torch

    from assay.systems.lm_text import render

    (user, answer), tokenizer = row["messages"], system.tokenizer
    if row["images"]:
        prompt, whole, inputs = _with_pictures(system, user, answer["content"], row["images"])
    else:
        prompt = render(system.name, tokenizer, [user], None, completion=system.completion, thinking=None, images=False)
        whole = prompt + answer["content"]
        if not system.completion:
            whole = str(tokenizer.apply_chat_template([user, answer], tokenize=False))
        inputs = dict(tokenizer(prompt, add_special_tokens=system.completion, return_tensors="pt"))
    if not whole.startswith(prompt):
        raise UsageError(
            f"The chat template of {system.name} writes the prompt differently once an answer follows it (it opens the "
            "reasoning itself); train a model whose template does not."
        )
    # What templates put behind the end of a turn is never generated.
    target = whole[len(prompt) :].rstrip()
    alone, joint = (
        list(tokenizer(text, add_special_tokens=system.completion)["input_ids"]) for text in (prompt, prompt + target)
    )
    if joint[: len(alone)] == alone:
        tail = joint[len(alone) :]
    else:
        tail = list(tokenizer(target, add_special_tokens=False)["input_ids"])
    if tail[-1] not in system.ends:
        tail.append(tokenizer.eos_token_id)
    behind, length = torch.tensor([tail]), inputs["input_ids"].shape
    for name, value in inputs.items():
        if value.shape == length and name != "input_ids":
            more = torch.ones_like(behind) if name == "attention_mask" else torch.zeros_like(behind)
            inputs[name] = torch.cat([value, more.to(value.dtype)], 1)
    labels = torch.cat([torch.full_like(inputs["input_ids"], IGNORED), behind], 1)
    return {**inputs, "input_ids": torch.cat([inputs["input_ids"], behind], 1), "labels": labels}


def _with_pictures(
    system: HFModel, user: Mapping[str, Any], answer: str, paths: Sequence[Path]
) -> tuple[str, str, dict[str, Any]]:
    from PIL import Image

    waiting = iter(paths)
    parts = [
        {"type": "image", "image": Image.open(next(waiting)).convert("RGB")} if part["type"] == "image" else part
        for part in user["content"]
    ]
    asked: list[dict[str, Any]] = [{"role": "user", "content": parts}]
    answered = [*asked, {"role": "assistant", "content": [{"type": "text", "text": answer}]}]
    template = system.processor.apply_chat_template
    inputs = template(asked, tokenize=True, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    prompt = template(asked, tokenize=False, add_generation_prompt=True)
    return prompt, template(answered, tokenize=False), dict(inputs)


def collate(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Encoded rows of text padded on the right to one length; a single row, with pictures or not, as it is."""
    from torch.nn.utils.rnn import pad_sequence

    if len(rows) == 1:
        return dict(rows[0])
    fill = {"input_ids": 0, "attention_mask": 0, "labels": IGNORED}
    return {k: pad_sequence([row[k][0] for row in rows], batch_first=True, padding_value=v) for k, v in fill.items()}


def published_epochs(rows: Sequence[Mapping[str, Any]]) -> int:
    """Passes that the paper makes over such rows: pictures, rationales and plain answers differ."""
    from assay.multimodal.asciieval.tuning import SETTINGS

    kind = "language_model"
    if any(row["images"] for row in rows):
        kind = "multimodal_model"
    elif any("\nSo the answer is " in row["messages"][1]["content"] for row in rows):  # see `tuning.target`
        kind = "language_model_with_rationale"
    return SETTINGS["epochs"][kind]
