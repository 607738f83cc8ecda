"""Short texts made of small grammars, for text without a network: opinions for reviews, posts for newsgroups."""

from __future__ import annotations

import numpy as np

_THINGS = ("film", "story", "ending", "cast", "soundtrack", "script", "camera work", "pacing", "dialogue", "lead role")
_GOOD = ("moving", "clever", "a joy", "well made", "gripping", "funny", "honest", "beautiful", "worth every minute")
_BAD = ("dull", "clumsy", "a chore", "badly made", "tedious", "flat", "dishonest", "ugly", "a waste of an evening")
_PLACES = (
    "on a rainy evening",
    "with my family",
    "at the cinema",
    "on a long flight",
    "twice",
    "with low expectations",
)
_PLAIN = (
    "I saw it {place}.", "The {thing} was {word}.", "Others may disagree, but the {thing} is {word}.",
    "What stays in mind is the {thing}: {word}.", "Seen {place}, the {thing} felt {word}.",
)  # fmt: skip
_TURNED = ("Nobody could call the {thing} {word}.", "The {thing} was never {word}.")


def opinions(count: int, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """``count`` texts of two to four sentences and whether each is favourable (1 or 0).

    One sentence in five speaks for the other side and one in eight says its opinion by denying the opposite, so that no
    single word decides.
    """
    classes = (rng.random(count) < 0.5).astype(np.int8)
    texts = []
    for favourable in classes:
        sentences = []
        for _ in range(int(rng.integers(2, 5))):
            good = bool(favourable) ^ bool(rng.random() < 0.2)
            turned = rng.random() < 0.125
            words = _GOOD if good ^ turned else _BAD
            frame = str(rng.choice(_TURNED if turned else _PLAIN))
            sentences.append(
                frame.format(
                    place=rng.choice(_PLACES), thing=rng.choice(_THINGS), word=words[int(rng.integers(len(words)))]
                )
            )
        texts.append(" ".join(sentences))
    return texts, classes


_TOPICS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # Those of the positive groups (comp, rec, misc, alt) first.
    "comp": (
        ("printer driver", "graphics card", "window manager", "backup script"),
        ("crashes", "installs", "compiles"),
    ),
    "rec": (("gearbox", "motorcycle", "goalkeeper", "batting average"), ("overheats", "wins", "breaks down")),
    "misc": (("used desk", "spare ticket", "second-hand radio", "bicycle rack"), ("is for sale", "costs little")),
    "sci": (("telescope", "orbit", "cipher", "vaccine"), ("was measured", "was tested", "decays")),
    "soc": (("parish", "sermon", "prayer", "monastery"), ("comforts many", "was founded", "divides readers")),
    "talk": (("senate", "treaty", "border", "tax law"), ("was voted down", "was signed", "is disputed")),
}
_POSITIVE = ("comp", "rec", "misc")
_FRAMES = (
    "Does anybody know whether the {thing} {verb}?", "The {thing} {verb}, or so I read.",
    "In reply to your letter: the {thing} {verb}.", "I wonder why the {thing} {verb}.",
)  # fmt: skip


def posts(count: int, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """``count`` posts of two to four sentences and whether their group is positive; one sentence in four strays."""
    names = list(_TOPICS)
    chosen = rng.integers(len(names), size=count)
    texts = []
    for at in chosen:
        sentences = []
        for _ in range(int(rng.integers(2, 5))):
            topic = names[int(rng.integers(len(names))) if rng.random() < 0.25 else int(at)]
            things, verbs = _TOPICS[topic]
            sentences.append(str(rng.choice(_FRAMES)).format(thing=rng.choice(things), verb=rng.choice(verbs)))
        texts.append(" ".join(sentences))
    return texts, np.array([names[at] in _POSITIVE for at in chosen], np.int8)
