"""Stand-in items in the shape of all 26 pairs, with gold known by construction; the real ones lie on a hub.

They are simple: what they are for is to try a study out and to check scoring, never to rank models.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from itertools import product
from typing import TYPE_CHECKING, Any

from assay.representations.hume.items import Item, PairItems, Study, rows_of
from assay.representations.hume.registry import TaskSpec, pairs, tasks

if TYPE_CHECKING:
    import numpy as np

# Gold similarity by what two sentences share.
SAME, SAME_PREDICATE, SAME_SUBJECT, SAME_TOPIC, NOTHING = 5.0, 3.5, 2.5, 1.0, 0.0


@cache
def _words() -> Mapping[str, Any]:
    path = resources.files("assay.representations.hume").joinpath("standin.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def study(seed: int = 0) -> Study:
    """Stand-ins of the 26 pairs; the same for the same seed."""
    from assay.core.datasets.sources import generated, stand_in

    made = {}
    for spec, subset in pairs():
        pair = make(spec, subset, seed)
        made[pair.key] = pair
    rows = ({"pair": name, **row} for name, pair in made.items() for row in rows_of(pair))
    data = stand_in(generated(rows, "sentences made by assay"), "the HUME data sets of the hub")
    return Study(made, data, tasks())


def make(spec: TaskSpec, subset: str, seed: int, items: int | None = None) -> PairItems:
    """Stand-in items of one pair; ``items`` None = as many as the published ones."""
    import zlib

    import numpy as np

    language = spec.subsets[subset][0].partition("-")[0]
    rng = np.random.default_rng([seed, zlib.crc32(f"{spec.name}|{subset}".encode())])
    size = items or spec.items
    if spec.kind == "classification":
        return _classification(spec, subset, language, size, rng)
    spec = replace(spec, labels={}) if spec.kind == "clustering" else spec
    maker = {"clustering": _clustering, "reranking": _reranking, "sts": _sts}[spec.kind]
    return PairItems(spec, subset, tuple(maker(spec, _words()[language], size, rng)))


def _classification(spec: TaskSpec, subset: str, language: str, size: int, rng: np.random.Generator) -> PairItems:
    words = _words()
    by_label: dict[str, list[str]] = {}
    for label in spec.labels.values():
        if "toxic" in label:
            source = words["comments"]["civil" if label.startswith("not") else "toxic"]
            by_label[label] = [o + p for o, p in product(words["comments"]["openers"], source)]
        elif label in words["emotion"]:
            by_label[label] = [o + p for o, p in product(words["emotion"]["openers"], words["emotion"][label])]
        else:
            here = words[language]
            by_label[label] = [_sentence("{s} {p}.", s, p) for s, p in product(here["things"], here[label])]
    test: list[tuple[str, str]] = []
    train: list[tuple[str, str]] = []
    labels = list(by_label)
    for place, label in enumerate(labels):
        texts = [by_label[label][i] for i in rng.permutation(len(by_label[label]))]
        count = size // len(labels) + (place < size % len(labels))
        test += [(text, label) for text in texts[:count]]
        train += [(text, label) for text in texts[count:]]
    order = rng.permutation(len(test))
    items = tuple(Item(f"t-{n:03d}", (test[i][0],), test[i][1]) for n, i in enumerate(order))
    return PairItems(spec, subset, items, tuple(train))


def _clustering(spec: TaskSpec, words: Mapping[str, Any], size: int, rng: np.random.Generator) -> list[Item]:
    topics = list(words["topics"])[: 5 if "Arxiv" in spec.name else 6]
    texts = []
    for topic in topics:
        facts = _facts(words, topic)
        for i in rng.permutation(len(facts))[: size // len(topics)]:
            texts.append((_sentence(_pick(words["frames"], rng), *facts[i]), topic))
    order = rng.permutation(len(texts))
    return [Item("problem-0", tuple(texts[i][0] for i in order), tuple(texts[i][1] for i in order))]


def _reranking(spec: TaskSpec, words: Mapping[str, Any], size: int, rng: np.random.Generator) -> list[Item]:
    """Relevant is what is of the query's field; its own words do not recur."""
    subjects = [(topic, s) for topic, found in words["topics"].items() for s in found["s"]]
    asked = [(frame, topic, s) for frame, (topic, s) in product(words["queries"], subjects)]
    relevant = spec.relevant or 1
    items = []
    for number, i in enumerate(rng.permutation(len(asked))[:size]):
        frame, topic, subject = asked[i]
        same = [(s, p) for s, p in _facts(words, topic) if s != subject]
        others = [fact for other in words["topics"] if other != topic for fact in _facts(words, other)]
        facts = [same[j] for j in rng.permutation(len(same))[:relevant]]
        facts += [others[j] for j in rng.permutation(len(others))[: spec.candidates - relevant]]
        order = rng.permutation(len(facts))
        texts = [_sentence(_pick(words["frames"], rng), *facts[j]) for j in order]
        gold = tuple(int(j < relevant) for j in order)
        ids = tuple(f"q{number:03d}-d{n}" for n in range(len(texts)))
        query = frame.replace("{s}", subject)
        items.append(Item(f"q-{number:03d}", (query[0].upper() + query[1:], *texts), gold, ids))
    return items


def _sts(spec: TaskSpec, words: Mapping[str, Any], size: int, rng: np.random.Generator) -> list[Item]:
    topics = list(words["topics"])
    low, high = spec.gold_scale
    items = []
    levels = (SAME, SAME_PREDICATE, SAME_SUBJECT, SAME_TOPIC, NOTHING)
    seen = set()
    while len(items) < size:
        level = levels[len(items) % len(levels)]
        topic = _pick(topics, rng)
        here = words["topics"][topic]
        s, p = _pick(here["s"], rng), _pick(here["p"], rng)
        other_s, other_p = _pick([x for x in here["s"] if x != s], rng), _pick([x for x in here["p"] if x != p], rng)
        away = words["topics"][_pick([t for t in topics if t != topic], rng)]
        second = {
            SAME: (s, p),
            SAME_PREDICATE: (other_s, p),
            SAME_SUBJECT: (s, other_p),
            SAME_TOPIC: (other_s, other_p),
            NOTHING: (_pick(away["s"], rng), _pick(away["p"], rng)),
        }[level]
        frames = [words["frames"][i] for i in rng.permutation(len(words["frames"]))[:2]]
        texts = (_sentence(frames[0], s, p), _sentence(frames[1], *second))
        if texts not in seen:
            seen.add(texts)
            items.append(Item(f"p-{len(items):03d}", texts, low + (high - low) * level / SAME))
    return items


def _facts(words: Mapping[str, Any], topic: str) -> list[tuple[str, str]]:
    return list(product(words["topics"][topic]["s"], words["topics"][topic]["p"]))


def _sentence(frame: str, s: str, p: str) -> str:
    text = frame.replace("{s}", s).replace("{p}", p)
    return text[0].upper() + text[1:]


def _pick(options: Sequence[Any], rng: np.random.Generator) -> Any:
    return options[int(rng.integers(len(options)))]
