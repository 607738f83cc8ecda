"""Facts of models: family, release date, parameters and limits, from ``models.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def models_file() -> Mapping[str, Any]:
    """``models.toml`` as it is: a list ``model`` of facts and a list ``price`` of additions to the price list."""
    return tomllib.loads(resources.files("assay.systems").joinpath("models.toml").read_text(encoding="utf-8"))


def bare_name(name: str) -> str:
    """Name of a model without provider prefix, organisation, options, revision and case.

    ``openrouter:openai/gpt-4o?temperature=0`` and ``gpt-4o`` are one model.
    """
    name = name.partition("?")[0]
    head, colon, rest = name.partition(":")
    if colon and "/" not in head and rest and not rest[0].isdigit():
        name = rest
    name = name.partition("@")[0]
    return name.rsplit("/", 1)[-1].removesuffix(":free").lower()


@cache
def _index() -> Mapping[str, Mapping[str, Any]]:
    index = {}
    for row in models_file()["model"]:
        facts = {k: v.isoformat() if hasattr(v, "isoformat") else v for k, v in row.items() if k != "names"}
        for name in row["names"]:
            index[bare_name(name)] = facts
    return index


def facts(name: str) -> dict[str, Any]:
    """What is known of the model called ``name``, with or without provider, organisation and options.

    Returns
    -------
    dict
        Any of ``family``, ``vendor``, ``release_date`` (ISO), ``parameters`` (count), ``context`` and
        ``max_output`` (tokens), ``image_tokens`` (most that one image counts), ``reasoning`` (bool), ``open_weights``
        (bool); empty for an unknown model. Names match exactly: a dated snapshot is not its undated sibling.
    """
    return dict(_index().get(bare_name(name), {}))
