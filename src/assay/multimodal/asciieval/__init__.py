"""ASCIIEval: recognising ASCII art in text, image and both. As a library: rendering, generation, reading, scoring."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.multimodal.asciieval.benchmark import AsciiEval
    from assay.multimodal.asciieval.data import CategoryTree, Item, ItemSet, load, read_items, write_items
    from assay.multimodal.asciieval.generator import Drawing, Shape, generate, shapes, to_ascii
    from assay.multimodal.asciieval.harness import ASCIIEvalTask
    from assay.multimodal.asciieval.kit import collect, deduplicate, leakage, remove_signature
    from assay.multimodal.asciieval.prompts import build, parse
    from assay.multimodal.asciieval.recognisers import make_recogniser
    from assay.multimodal.asciieval.rendering import RenderOptions, png, render
    from assay.multimodal.asciieval.scoring import (
        accuracy_report,
        compare_modalities,
        letter_by_probability,
        letter_compatible,
        letter_robust,
        mcnemar,
    )
    from assay.multimodal.asciieval.sft import read_rows
    from assay.multimodal.asciieval.training import Settings, fine_tune
    from assay.multimodal.asciieval.words import words

_HOMES = {
    "ASCIIEvalTask": "harness",
    "AsciiEval": "benchmark",
    "CategoryTree": "data",
    "Drawing": "generator",
    "Item": "data",
    "ItemSet": "data",
    "RenderOptions": "rendering",
    "Settings": "training",
    "Shape": "generator",
    "accuracy_report": "scoring",
    "build": "prompts",
    "collect": "kit",
    "compare_modalities": "scoring",
    "deduplicate": "kit",
    "fine_tune": "training",
    "generate": "generator",
    "leakage": "kit",
    "letter_by_probability": "scoring",
    "letter_compatible": "scoring",
    "letter_robust": "scoring",
    "load": "data",
    "make_recogniser": "recognisers",
    "mcnemar": "scoring",
    "parse": "prompts",
    "png": "rendering",
    "read_items": "data",
    "read_rows": "sft",
    "remove_signature": "kit",
    "render": "rendering",
    "shapes": "generator",
    "to_ascii": "generator",
    "words": "words",
    "write_items": "data",
}

__all__ = [
    "ASCIIEvalTask",
    "AsciiEval",
    "CategoryTree",
    "Drawing",
    "Item",
    "ItemSet",
    "RenderOptions",
    "Settings",
    "Shape",
    "accuracy_report",
    "build",
    "collect",
    "compare_modalities",
    "deduplicate",
    "fine_tune",
    "generate",
    "leakage",
    "letter_by_probability",
    "letter_compatible",
    "letter_robust",
    "load",
    "make_recogniser",
    "mcnemar",
    "parse",
    "png",
    "read_items",
    "read_rows",
    "remove_signature",
    "render",
    "shapes",
    "to_ascii",
    "words",
    "write_items",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
