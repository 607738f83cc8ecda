"""The claims under "What we measured" in the README, measured anew on generated items, with pass or fail for each.

Six hundred items of ninety concepts; recognisers learn from six other drawings of each concept. Nothing was tuned on
these drawings: their numbers begin where no other part of the package draws.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.claims import Claim
from assay.core.errors import AssayError
from assay.multimodal.asciieval import prompts, recognisers, scoring
from assay.multimodal.asciieval.data import Item, write_items
from assay.multimodal.asciieval.generator import Drawing, Style, generate, raster, shapes
from assay.multimodal.asciieval.regression import length_by_mode
from assay.multimodal.asciieval.rendering import RenderOptions

FIRST_DRAWING = 9000
TRAINING_DRAWINGS = 6
BUDGETS = (6, 8, 10, 12, 16, 24, 32, 48, 64, 96, 192, 384)
_NETWORK_SIDE = 48


def reproduce(out: Path, *, items: int = 600, model: str = "local:smollm2", asked: int = 100, seed: int = 0) -> None:
    """Measure the claims of the paper's kind on offline items; writes ``report.md`` and the items.

    Parameters
    ----------
    items
        How many items, at least 100.
    model
        A text model that is expected at chance; ``none`` leaves the claim untested and says so.
    asked
        How many items it is asked about.
    seed
        Of items and training drawings.
    """
    start = time.monotonic()
    chosen = test_items(items, seed)
    write_items(chosen, out / "test.jsonl")
    right = answers(chosen, seed)
    claims = [
        image_beats_text(chosen, right),
        length_matters_differently(chosen, right),
        joining_gains_nothing(chosen, right),
        _attempt("(d) a low resolution in between serves best a network trained on shape pictures", resolution, chosen),
        _attempt("(e) a small language model is at chance", lambda some: at_chance(some, model, asked), chosen),
    ]
    (out / "report.md").write_text(_report(claims, chosen, time.monotonic() - start), encoding="utf-8")


def test_items(count: int, seed: int) -> list[Item]:
    """Items of drawings that nothing else in the package uses, evenly over concepts, of any height and style."""
    drawings = range(FIRST_DRAWING, FIRST_DRAWING + -(-count // len(shapes())))
    made = generate(drawings, seed=seed, substitutions=0.03)
    kept = np.sort(np.random.default_rng(seed).permutation(len(made))[:count])
    return [made[int(place)] for place in kept]


def answers(items: Sequence[Item], seed: int) -> dict[str, list[float]]:
    """Right (1) or wrong (0) of each recogniser on each item, after training on other drawings of the same concepts."""
    first = FIRST_DRAWING + 300
    train = generate(range(first, first + TRAINING_DRAWINGS), seed=seed + 1, substitutions=0.03)
    kinds: dict[str, prompts.Mode] = {"ngram": "text", "hog": "image", "concat": "both", "gated": "both"}
    right = {}
    for kind, mode in kinds.items():
        letters = recognisers.predict(recognisers.make_recogniser(kind).fit(train), items, mode)
        right[kind] = [float(letter == item.letter) for item, letter in zip(items, letters)]
    return right


def macro_percent(items: Sequence[Item], right: Sequence[float]) -> float:
    """Macro accuracy over concepts, percent."""
    return 100 * scoring.accuracy_report({**item.row(), "score": r} for item, r in zip(items, right)).overall.macro


def image_beats_text(items: Sequence[Item], right: dict[str, list[float]]) -> Claim:
    """(a) The picture recogniser beats the text n-grams by ten points and more, McNemar p < 0.01."""
    image, text = macro_percent(items, right["hog"]), macro_percent(items, right["ngram"])
    test = scoring.mcnemar(right["hog"], right["ngram"])
    return Claim(
        "(a) a recogniser of pictures beats n-grams of the text by at least 10 points macro (McNemar p < 0.01)",
        f"picture {image:.1f}, text {text:.1f}, difference {image - text:.1f} points, p = {test.p:.2g}",
        image - text >= 10 and test.p < 0.01,
    )


def length_matters_differently(items: Sequence[Item], right: dict[str, list[float]]) -> Claim:
    """(b) The slope of correctness on log characters differs between text and picture, p < 0.05."""
    outcomes = [*right["ngram"], *right["hog"]]
    characters = [item.characters for item in items] * 2
    mode = np.repeat([0.0, 1.0], len(items))
    found = {c.name: c for c in length_by_mode(outcomes, characters, mode, [item.id for item in items] * 2)}
    text, change = found["log_characters"], found["interaction"]
    return Claim(
        "(b) length acts differently in the two modes (interaction of log characters and mode, p < 0.05)",
        f"slope in text {text.value:+.3f}, in pictures {text.value + change.value:+.3f}, "
        f"interaction {change.value:+.3f} [{change.low:+.3f}, {change.high:+.3f}], p = {change.p:.2g}",
        change.p < 0.05,
    )


def joining_gains_nothing(items: Sequence[Item], right: dict[str, list[float]]) -> Claim:
    """(c) Naive joining gains at most two points over the picture; gated fusion is no worse than the better one."""
    image, text = macro_percent(items, right["hog"]), macro_percent(items, right["ngram"])
    naive, gated = macro_percent(items, right["concat"]), macro_percent(items, right["gated"])
    test = scoring.mcnemar(right["gated"], right["concat"])
    return Claim(
        "(c) joining both naively gains at most 2 points over the picture alone; a gated fusion does at least as well "
        "as the better one",
        f"picture {image:.1f}, text {text:.1f}, naive {naive:.1f}, gated {gated:.1f} (gated against naive "
        f"p = {test.p:.2g})",
        naive - image <= 2 and gated >= max(image, text) - 1e-9,
    )


def resolution(items: Sequence[Item]) -> Claim:
    """(d) Sweep of the pixel budget for a network that was trained on the plain shapes, never on characters."""
    from assay.multimodal.asciieval.network import PictureNetwork

    pictures, names = shape_pictures(range(FIRST_DRAWING + 500, FIRST_DRAWING + 510), _NETWORK_SIDE)
    network = PictureNetwork(side=_NETWORK_SIDE, epochs=8).fit_pictures(pictures, names)
    right = {}
    for budget in BUDGETS:
        letters = recognisers.predict(network, items, "image", RenderOptions(longest=budget))
        right[budget] = [float(letter == item.letter) for letter, item in zip(letters, items)]
    found = {budget: macro_percent(items, scores) for budget, scores in right.items()}
    best = max(found, key=lambda budget: found[budget])
    ends = [scoring.mcnemar(right[best], right[end]) for end in (BUDGETS[0], BUDGETS[-1])]
    shown = ", ".join(f"{budget} px {value:.1f}" for budget, value in found.items())
    return Claim(
        "(d) for a network trained on shape pictures, a pixel budget between the extremes is best (p < 0.05 to both)",
        f"{shown}; best {best} px, p = {ends[0].p:.2g} to the lowest, {ends[1].p:.2g} to the highest",
        best not in (BUDGETS[0], BUDGETS[-1]) and max(test.p for test in ends) < 0.05,
    )


def shape_pictures(drawings: Sequence[int], side: int) -> tuple[np.ndarray, list[str]]:
    """Ink pictures of the plain shapes, outlined and filled, fitted like a rendered drawing, and their names."""
    import io

    styles: tuple[Style, ...] = ("structure", "tone")
    pictures, names = [], []
    for shape in shapes():
        for number in drawings:
            for style in styles:
                stream = io.BytesIO()
                raster(Drawing(shape, number), 4 * side, style, line=8).save(stream, "PNG", compress_level=1)
                pictures.append(recognisers.read_picture(stream.getvalue(), side))
                names.append(shape.concept)
    return np.stack(pictures), names


def at_chance(items: Sequence[Item], model: str, asked: int) -> Claim:
    """(e) A small language model, asked by first-token probabilities, is within two standard errors of 25 %."""
    from assay.systems.loading import load

    claim = f"(e) {model} is within 25 % ± 2 standard errors in text mode"
    if model == "none":
        return Claim(claim, "not tested: model=none", None)
    # Shorter drawings, evenly over the set: each takes a forward pass over its whole text.
    short = [item for item in items if item.characters <= 400]
    some = short[:: max(1, len(short) // asked)][:asked]
    system = load(model)

    async def ask() -> list[float]:
        from assay.multimodal.asciieval.benchmark import letter_probabilities, read_letter

        async def one(item: Item) -> float:
            found = await letter_probabilities(system, prompts.build(item.art, item.choices, "text"))
            return float(read_letter(found.output, item.choices, "probability")[0] == item.letter)

        return list(await asyncio.gather(*(one(item) for item in some)))

    right = asyncio.run(ask())
    share, error = float(np.mean(right)), float(np.sqrt(0.25 * 0.75 / len(right)))
    return Claim(
        claim,
        f"{100 * share:.1f} % of {len(right)} drawings of up to 400 characters; 25 ± {200 * error:.1f}",
        abs(share - 0.25) <= 2 * error,
    )


def _attempt(name: str, measure: Callable[[Sequence[Item]], Claim], items: Sequence[Item]) -> Claim:
    try:
        return measure(items)
    except AssayError as error:
        return Claim(name, f"not tested: {error}", None)


def _report(claims: Sequence[Claim], items: Sequence[Item], seconds: float) -> str:
    words: dict[Any, str] = {True: "pass", False: "FAIL", None: "not tested"}
    rows = [f"| {c.claim} | {c.found} | {words[c.holds]} |" for c in claims]
    concepts = len({item.key for item in items})
    return "\n".join(
        [
            "# asciieval: reproduction on offline items",
            "",
            f"{len(items)} generated items (a stand-in for the published test set), {concepts} concepts; recognisers "
            f"learnt from {TRAINING_DRAWINGS} other drawings of each concept; {seconds:.0f} s.",
            "",
            "| claim | found | verdict |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )
