"""ASCIITune: fine-tuning data in chat layout, from text, picture, both or a mode drawn for each item; with rationales.

Published settings (`SETTINGS`) stand beside the data, in a layout that other SFT trainers read too; `training` trains
on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import UsageError
from assay.multimodal.asciieval import prompts, scoring
from assay.multimodal.asciieval.data import Item
from assay.multimodal.asciieval.prompts import Mode
from assay.multimodal.asciieval.rendering import DEFAULT, RenderOptions, cached_png

TuneMode = Literal["text", "image", "both", "random"]

SETTINGS: Mapping[str, Any] = {
    "source": "arXiv:2410.01733, released scripts",
    "loss_on": "the assistant's message only",
    "learning_rate": 2e-5,
    "schedule": "cosine",
    "warmup_ratio": 0.03,
    "weight_decay": 0.0,
    "effective_batch": 16,
    "precision": "bf16",
    "optimizer": "adamw",
    "epochs": {"language_model": 1, "language_model_with_rationale": 3, "multimodal_model": 2},
    "parameters": "all, or LoRA on the vision tower's qkv and proj",
    "lora": {"r": 8, "alpha": 32, "dropout": 0.1},
}


def target(item: Item, analysis: str | None = None) -> str:
    """What the model should say: ``B: dog``, behind an analysis where there is one."""
    answer = f"{item.letter}: {item.right}"
    return f"{analysis.strip()}\nSo the answer is {answer}" if analysis and analysis.strip() else answer


def modes_of(items: Sequence[Item], mode: TuneMode, seed: int = 0) -> list[Mode]:
    """A mode for each item: the one asked for, or one of the three drawn evenly (``random``), by item and seed."""
    if mode != "random":
        return [prompts.mode_named(mode)] * len(items)
    import numpy as np

    draws = np.random.default_rng(seed).integers(len(prompts.MODES), size=len(items))
    return [prompts.MODES[int(draw)] for draw in draws]


def export(
    items: Sequence[Item],
    out: Path,
    *,
    mode: TuneMode = "text",
    analyses: Mapping[str, str] | None = None,
    seed: int = 0,
    options: RenderOptions = DEFAULT,
) -> Path:
    """Write ``sft.jsonl`` and, for modes with pictures, ``images/``.

    Parameters
    ----------
    items
        Training items.
    out
        Folder.
    mode
        ``text``, ``image``, ``both`` or ``random``.
    analyses
        Rationale by item id; items without one get the answer alone.
    seed
        Of the drawn modes.

    Returns
    -------
    Path
        The file: a row an item, ``{"id", "mode", "messages": [user, assistant], "images": [path]}``. A picture's place
        in the user message is a part ``{"type": "image"}``, as TRL and others read it.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = out / "sft.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for item, shown in zip(items, modes_of(items, mode, seed)):
            text = prompts.text_part(item.art, item.choices, shown)
            row: dict[str, Any] = {"id": item.id, "mode": shown}
            if shown == "text":
                content: Any = text
            else:
                content = [{"type": "image"}, {"type": "text", "text": text}]
                name = f"images/{_safe(item.id)}.png"
                (out / "images").mkdir(exist_ok=True)
                (out / name).write_bytes(cached_png(item.art, options))
                row["images"] = [name]
            answer = target(item, (analyses or {}).get(item.id))
            row["messages"] = [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    (out / "training.json").write_text(json.dumps(SETTINGS, indent=1) + "\n", encoding="utf-8")
    return path


def _safe(name: str) -> str:
    return "".join(char if char.isalnum() or char in "-_." else "_" for char in name)


def rationale_messages(item: Item, png: bytes) -> list[dict[str, Any]]:
    """Ask which characters draw which part, from picture and text, without speaking of the picture; JSON back."""
    options = "\n".join(f"{letter}: {choice}" for letter, choice in zip(scoring.LETTERS, item.choices))
    text = (
        "Here is a drawing made of characters; the picture shows how it looks in a fixed-width font.\n\n"
        f"[ASCII ART]\n{item.art}\n\n[Options]\n{options}\n\n"
        "Explain, for someone who has the characters only, which parts of the text draw which parts of the object, and "
        "what they add up to. Name the characters and lines. Do not mention that there is a picture. Then choose the "
        'option. Reply with one JSON object: {"analysis": "...", "answer": "A, B, C or D"}.'
    )
    return [{"role": "user", "content": [{"type": "text", "text": text}, prompts.image_part(png)]}]


_PICTURE_WORDS = ("the image", "the picture", "this image", "this picture", "rendered image", "screenshot")


@dataclass(frozen=True, slots=True)
class Rationale:
    """A model's analysis of an item and its answer; ``fault`` says why it is not used."""

    id: str
    analysis: str
    answer: str
    fault: str = ""


def read_rationale(item: Item, reply: str) -> Rationale:
    """Analysis and answer of a reply; unusable if it is no JSON, answers wrong, or speaks of the picture."""
    from assay.core.answers import json_object

    value = json_object(reply).value
    if not isinstance(value, Mapping) or not isinstance(value.get("analysis"), str):
        return Rationale(item.id, "", "", "no JSON object with an analysis")
    analysis, answer = value["analysis"].strip(), str(value.get("answer", "")).strip()
    letter = scoring.letter_robust(answer, item.choices).value or ""
    if letter != item.letter:
        return Rationale(item.id, analysis, letter, "its answer is wrong" if letter else "its answer cannot be read")
    if not analysis:
        return Rationale(item.id, "", letter, "the analysis is empty")
    if any(word in analysis.lower() for word in _PICTURE_WORDS):
        return Rationale(item.id, analysis, letter, "it speaks of the picture")
    return Rationale(item.id, analysis, letter)


async def synthesise(item: Item, writer: Any, solver: Any | None = None) -> Rationale:
    """A rationale of one item.

    Parameters
    ----------
    item
        A training item.
    writer
        ChatModel that writes the analysis.
    solver
        ChatModel that must first get the item right from its picture; None = every item is asked about.
    """
    png = cached_png(item.art, DEFAULT)
    if solver is not None:
        asked = prompts.build(None, item.choices, "image", png)
        reply = await solver.generate(asked, max_tokens=1024, temperature=0.0)
        if scoring.letter_robust(reply.text, item.choices).value != item.letter:
            return Rationale(item.id, "", "", "the solver does not see it in the picture")
    reply = await writer.generate(rationale_messages(item, png), max_tokens=2048, temperature=0.0)
    return read_rationale(item, reply.text)


def published_analyses(items: Sequence[Item]) -> dict[str, str]:
    """Analyses in the published rationale set's fields ``analysis`` and ``gpt5-answer``, right ones only."""
    found = {}
    for item in items:
        analysis, answer = item.fields.get("analysis"), str(item.fields.get("gpt5-answer", ""))
        if isinstance(analysis, str) and analysis.strip() and answer[:1] == item.letter:
            found[item.id] = analysis
    if not found:
        raise UsageError("None of the training rows holds an analysis with a right answer; name a model as rationale=.")
    return found
