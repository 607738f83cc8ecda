"""Short opinions made of a small grammar, for text without a network: a stand-in for reviews."""

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
