"""Ways through the pages: a shortest one where the graph is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.agents.gem.wiki.graph import LocalWiki, read_wiki


def _graph(view: Mapping[str, Any]) -> LocalWiki | None:
    wiki = view["wiki"]
    if isinstance(wiki, LocalWiki):
        return wiki
    if wiki is None or (
        isinstance(wiki, str) and wiki != "generated" and not wiki.startswith(("mediawiki:", "kiwix:"))
    ):
        return read_wiki(wiki)
    return None


def wiki_game(view: Mapping[str, Any], rng: np.random.Generator) -> list[str]:
    """A shortest way on a graph that is open to all; elsewhere the target when it is linked, else a new link."""
    graph = _graph(view)
    path = graph.path(view["at"], view["target"]) if graph is not None else None
    if path:
        return path
    if view["target"] in view["links"]:
        return [view["target"]]
    fresh = [link for link in view["links"] if link not in view["known"]] or view["links"] or ["<BACK>"]
    return [fresh[int(rng.integers(len(fresh)))]]


def wiki_optimum(view: Mapping[str, Any]) -> int | None:
    """Clicks of a shortest way; None where the graph is not known."""
    graph = _graph(view)
    path = graph.path(view["at"], view["target"]) if graph is not None else None
    return None if path is None else len(path)
