"""Recognisers trained on drawings: n-grams of the text, gradients of the picture, and two ways to join them.

Each scores all concept names and answers with the best of the four offered. `predict` works on items; as a chat model
(`RecogniserModel`) it reads the benchmark's own messages, so it sees exactly what any other system sees.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from assay.core.datasets.readers import guarded
from assay.core.errors import MissingExtra, UsageError, unknown_name
from assay.multimodal.asciieval import prompts
from assay.multimodal.asciieval.data import Item, load
from assay.multimodal.asciieval.generator import TRAINING_DRAWINGS, generate
from assay.multimodal.asciieval.prompts import Mode, Question
from assay.multimodal.asciieval.rendering import DEFAULT, RenderOptions, cached_png
from assay.multimodal.asciieval.scoring import LETTERS
from assay.systems.chat.model import Choice, Message, Reply

Array = NDArray[np.float64]
_SIDE = 48


class Recogniser(Protocol):
    """Learns from items, then scores concept names of questions."""

    modes: tuple[Mode, ...]

    def fit(self, items: Sequence[Item]) -> Recogniser:
        """Learn; returns itself."""
        ...

    def names(self) -> Sequence[str]:
        """Concept names it knows."""
        ...

    def log_probabilities(self, questions: Sequence[Question]) -> Array:
        """Log-probabilities, (questions, names)."""
        ...


def _sklearn() -> tuple[Any, Any, Any]:
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.preprocessing import StandardScaler
    except ImportError:
        raise MissingExtra("Training a recogniser", "asciieval") from None
    return TfidfVectorizer, LogisticRegression, StandardScaler


def question_of(item: Item, mode: Mode, options: RenderOptions = DEFAULT) -> Question:
    """What a system is shown of an item in a mode."""
    return Question(
        None if mode == "image" else item.art, None if mode == "text" else cached_png(item.art, options), item.choices
    )


def read_picture(png: bytes, side: int = _SIDE) -> NDArray[np.float32]:
    """Ink of a picture in [0, 1], its darkest pixel 1, fitted into a square of ``side`` pixels, (side, side)."""
    from PIL import Image

    with guarded("The picture", "an image"):
        ink = 255 - np.asarray(Image.open(io.BytesIO(png)).convert("L"))
    seen = ink > max(8, int(ink.max()) // 8)
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    if not rows.size:
        return np.zeros((side, side), np.float32)
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    factor = side / max(ink.shape)
    width, height = (max(1, round(length * factor)) for length in ink.shape[::-1])
    smooth = Image.Resampling.BOX if factor < 1 else Image.Resampling.BILINEAR
    small = Image.fromarray(ink).resize((width, height), smooth)
    square = Image.new("L", (side, side), 0)
    square.paste(small, ((side - width) // 2, (side - height) // 2))
    return np.asarray(square, np.float32) / np.float32(max(1, int(ink.max())))


def gradients(pictures: NDArray[np.float32], cell: int = 8, directions: int = 8) -> NDArray[np.float32]:
    """Histograms of gradient directions of cells, with a coarse copy of the picture (Dalal and Triggs 2005).

    Parameters
    ----------
    pictures
        (n, side, side).

    Returns
    -------
    array
        (n, features), each part of unit length.
    """
    n, side, _ = pictures.shape
    padded = np.pad(pictures, ((0, 0), (1, 1), (1, 1)), mode="edge")
    # A 3 x 3 mean first: single characters should not speak louder than the line they form.
    soft: Any = sum(
        np.roll(np.roll(padded, dy, 1), dx, 2)[:, 1:-1, 1:-1] for dy in (-1, 0, 1) for dx in (-1, 0, 1)
    ) / np.float32(9)
    dy, dx = np.gradient(soft, axis=(1, 2))
    strength = np.hypot(dx, dy)
    direction = ((np.arctan2(dy, dx) % np.pi) / np.pi * directions).astype(int) % directions
    across = side // cell
    hog = np.zeros((n, across, across, directions), np.float32)
    for d in range(directions):
        part = np.where(direction == d, strength, 0)[:, : across * cell, : across * cell]
        hog[..., d] = part.reshape(n, across, cell, across, cell).sum(axis=(2, 4))
    coarse = soft.reshape(n, side // 4, 4, side // 4, 4).mean(axis=(2, 4)).reshape(n, -1)
    parts = [np.sqrt(hog).reshape(n, -1), np.sqrt(coarse)]
    unit = [part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-6) for part in parts]
    return np.hstack(unit).astype(np.float32)


class _Linear:
    """Logistic regression over features of questions: what the single recognisers share."""

    modes: tuple[Mode, ...]
    strength = 10.0

    def __init__(self) -> None:
        self._model: Any = None

    def _learn(self, questions: Sequence[Question]) -> None: ...

    def _features(self, questions: Sequence[Question]) -> Any:
        raise NotImplementedError

    def fit(self, items: Sequence[Item]) -> Any:
        _, logistic, _ = _sklearn()
        questions = [question_of(item, self.modes[-1]) for item in items]
        self._learn(questions)
        self._model = logistic(C=self.strength, max_iter=300, tol=1e-3)
        self._model.fit(self._features(questions), [item.right for item in items])
        return self

    def names(self) -> Sequence[str]:
        return [str(name) for name in self._model.classes_]

    def log_probabilities(self, questions: Sequence[Question]) -> Array:
        return np.asarray(self._model.predict_log_proba(self._features(questions)))


class NgramRecogniser(_Linear):
    """Character 1- to 3-grams of the text: sees which characters stand side by side, not what lies above what."""

    modes: tuple[Mode, ...] = ("both", "text")

    def _learn(self, questions: Sequence[Question]) -> None:
        tfidf, _, _ = _sklearn()
        self._vectors = tfidf(
            analyzer="char", ngram_range=(1, 3), lowercase=False, sublinear_tf=True, min_df=3, max_features=3000
        )
        self._vectors.fit(_texts(questions))

    def _features(self, questions: Sequence[Question]) -> Any:
        return self._vectors.transform(_texts(questions))


def _texts(questions: Sequence[Question]) -> list[str]:
    return [question.art or "" for question in questions]


class GradientRecogniser(_Linear):
    """Histograms of gradients of the picture."""

    modes: tuple[Mode, ...] = ("both", "image")
    strength = 30.0

    def _features(self, questions: Sequence[Question]) -> Any:
        return gradients(_pictures(questions, _SIDE))


def _pictures(questions: Sequence[Question], side: int) -> NDArray[np.float32]:
    return np.stack([read_picture(question.png or b"", side) for question in questions])


class ConcatRecogniser(_Linear):
    """Both sets of features side by side in one model: the naive way to join text and picture."""

    modes: tuple[Mode, ...] = ("both",)

    def __init__(self) -> None:
        super().__init__()
        self._text, self._image = NgramRecogniser(), GradientRecogniser()

    def _learn(self, questions: Sequence[Question]) -> None:
        self._text._learn(questions)

    def _features(self, questions: Sequence[Question]) -> Any:
        from scipy.sparse import csr_matrix, hstack

        return hstack([self._text._features(questions), csr_matrix(self._image._features(questions))]).tocsr()


_FOLDS = 3
# Weights of the gate's constant, length and both certainties, then of the picture and the text behind it.
_IMAGE_ALONE = np.array([6.0, 0, 0, 0, 1.0, 0.0])
_TEXT_ALONE = np.array([-6.0, 0, 0, 0, 0.0, 1.0])


class GatedRecogniser:
    """Late fusion: a gate weighs the two single recognisers by how sure each is and how long the drawing is.

    The gate is learnt from scores of drawings that the recognisers it weighs had not seen (three folds by drawing), to
    maximise the log-likelihood of the right one among the four choices; then both are trained on everything. Where it
    gains less than two standard errors over the better single recogniser, that one answers alone.
    """

    modes: tuple[Mode, ...] = ("both",)

    def __init__(self) -> None:
        self._text, self._image = NgramRecogniser(), GradientRecogniser()
        self._gate: Array = np.zeros(6)

    def fit(self, items: Sequence[Item]) -> GatedRecogniser:
        from scipy.optimize import minimize

        parts: list[tuple[Array, Array, Array]] = []
        answers: list[int] = []
        folds = _folds(items)
        for fold in range(_FOLDS):
            held = [item for item, place in zip(items, folds) if place == fold]
            kept = [item for item, place in zip(items, folds) if place != fold]
            if not held or not kept:
                raise UsageError("The gate needs drawings to hold back: give several drawings of every concept.")
            self._text.fit(kept)
            self._image.fit(kept)
            parts.append(self._scores([question_of(item, "both") for item in held]))
            answers += [item.answer for item in held]
        text, image = (np.vstack([part[at] for part in parts]) for at in (0, 1))
        length = np.concatenate([part[2] for part in parts])
        rows = np.arange(len(answers))

        def scores(weights: Array) -> Array:
            return _gate(text, image, length, weights)[rows, answers]

        def fitted(start: Array, free: Sequence[int]) -> Array:
            def loss(values: Array) -> float:
                weights = start.copy()
                weights[free] = values
                return float(-scores(weights).mean() + 1e-3 * np.square(weights - start).sum())

            found = start.copy()
            found[free] = minimize(loss, start[free], method="L-BFGS-B").x
            return found

        # The single recognisers' certainty is fitted too: else the gate would win by calibration and not by the text.
        single = [fitted(_IMAGE_ALONE, [4]), fitted(_TEXT_ALONE, [5])]
        alone = max(single, key=lambda weights: scores(weights).mean())
        joined = fitted(np.append([1.0, 0, 0, 0], [single[0][4], single[1][5]]), list(range(6)))
        # Two standard errors of proof: without them, joining is worse than the better one alone about as often as not.
        gain = scores(joined) - scores(alone)
        self._gate = joined if gain.mean() > 2 * gain.std() / np.sqrt(len(gain)) else alone
        self._text.fit(items)
        self._image.fit(items)
        return self

    def names(self) -> Sequence[str]:
        return self._image.names()

    def _scores(self, questions: Sequence[Question]) -> tuple[Array, Array, Array]:
        text = choice_scores(self._text, questions)
        image = choice_scores(self._image, questions)
        length = np.array([np.log(len(question.art or " ")) for question in questions])
        return text, image, length

    def choices(self, questions: Sequence[Question]) -> Array:
        """Log-probabilities of the four choices, (questions, 4)."""
        return _gate(*self._scores(questions), self._gate)

    def log_probabilities(self, questions: Sequence[Question]) -> Array:
        """Of all names, from the picture alone: the gate only weighs offered choices (see `choices`)."""
        return self._image.log_probabilities(questions)


def _folds(items: Sequence[Item]) -> list[int]:
    """A fold for each item, by drawing and evenly inside each name.

    Were names held back unevenly, a held-back drawing's name would be rarer in training than those of its distractors,
    and the gate would learn to distrust whoever has learnt how frequent names are.
    """
    drawings: dict[str, set[str]] = {}
    for item in items:
        drawings.setdefault(item.right, set()).add(_drawing(item))

    def scattered(drawing: str) -> bytes:
        return hashlib.blake2b(drawing.encode(), digest_size=8).digest()

    place = {
        (name, drawing): at % _FOLDS
        for name, found in drawings.items()
        for at, drawing in enumerate(sorted(found, key=scattered))
    }
    return [place[item.right, _drawing(item)] for item in items]


def _drawing(item: Item) -> str:
    return str(item.fields.get("drawing", item.id))


def _gate(text: Array, image: Array, length: Array, weights: Array) -> Array:
    sure = [np.exp(part).max(axis=1) for part in (text, image)]
    inputs = np.column_stack((np.ones(len(length)), (length - 6) / 2, sure[0], sure[1]))
    share = 1 / (1 + np.exp(-(inputs @ weights[:4])))[:, None]
    joined = share * weights[4] * image + (1 - share) * weights[5] * text
    return joined - np.logaddexp.reduce(joined, axis=1, keepdims=True)


def choice_scores(recogniser: Recogniser, questions: Sequence[Question]) -> Array:
    """Log-probabilities of the four choices of each question, (questions, 4); a name not learnt gets the floor."""
    places = {name: at for at, name in enumerate(recogniser.names())}
    every = recogniser.log_probabilities(questions)
    scores = np.full((len(questions), len(LETTERS)), -30.0)
    for row, question in enumerate(questions):
        for column, choice in enumerate(question.choices):
            if choice in places:
                scores[row, column] = max(-30.0, every[row, places[choice]])
    return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)


KINDS = ("ngram", "hog", "cnn", "concat", "gated")


def make_recogniser(kind: str, seed: int = 0) -> Recogniser:
    """A recogniser that has learnt nothing yet: ``ngram`` (text), ``hog``, ``cnn`` (image), ``concat``, ``gated``.

    ``seed`` matters to the network alone.
    """
    if kind == "cnn":
        from assay.multimodal.asciieval.network import PictureNetwork

        return PictureNetwork(seed=seed)
    kinds = {
        "ngram": NgramRecogniser,
        "hog": GradientRecogniser,
        "concat": ConcatRecogniser,
        "gated": GatedRecogniser,
    }
    if kind not in kinds:
        raise unknown_name("recogniser", kind, KINDS)
    return kinds[kind]()


def probabilities(recogniser: Recogniser, questions: Sequence[Question]) -> Array:
    """Log-probabilities of the four choices of each question, by whatever way the recogniser has."""
    if isinstance(recogniser, GatedRecogniser):
        return recogniser.choices(questions)
    return choice_scores(recogniser, questions)


def predict(recogniser: Recogniser, items: Sequence[Item], mode: Mode, options: RenderOptions = DEFAULT) -> list[str]:
    """Letters of items in a mode.

    Raises
    ------
    UsageError
        If the recogniser does not read that mode.
    """
    _check_mode(recogniser, mode)
    scores = probabilities(recogniser, [question_of(item, mode, options) for item in items])
    return [LETTERS[int(best)] for best in scores.argmax(axis=1)]


def _check_mode(recogniser: Recogniser, mode: Mode) -> None:
    if mode not in recogniser.modes:
        raise UsageError(
            f"This recogniser reads modes {', '.join(sorted(recogniser.modes))}, not {mode}; "
            f"run it with -o modes={','.join(sorted(recogniser.modes))}."
        )


def training_items(drawings: Sequence[int] = TRAINING_DRAWINGS) -> list[Item]:
    """Generated items to learn from; they share no drawing with the shipped ones."""
    return generate(drawings, seed=1, substitutions=0.01)


@lru_cache(maxsize=8)
def trained(kind: str, train: str | Path | None = None, seed: int = 0) -> Recogniser:
    """A recogniser trained on a file of items, or on generated drawings; kept, since training takes seconds."""
    items = list(load(train, "train").items) if train else training_items()
    return make_recogniser(kind, seed).fit(items)


class RecogniserModel:
    """A trained recogniser as a chat model. It trains on the first question, beside the event loop."""

    def __init__(self, kind: str, train: str | None = None, seed: int = 0) -> None:
        if kind not in KINDS:
            raise unknown_name("recogniser", kind, KINDS)
        self.name = f"method:{kind}"
        self._arguments = (kind, train, seed)
        self._modes = make_recogniser(kind).modes
        self._lock = asyncio.Lock()

    def refuses(self, task: Any) -> str | None:
        """Why a task is not for this recogniser."""
        if task.name in self._modes:
            return None
        return f"is a mode that {self.name} does not read (it reads {', '.join(sorted(self._modes))})"

    async def generate(self, messages: Sequence[Message], *, logprobs: int | None = None, **_: Any) -> Reply:
        """A letter; the probabilities of all four when log-probabilities are asked for."""
        question = prompts.parse(messages)
        async with self._lock:
            letter, scores = await asyncio.to_thread(self._answer, question)
        top = {name: float(score) for name, score in zip(LETTERS, scores)}
        choice = Choice(letter)
        if logprobs:
            from assay.systems.chat.model import TokenLogprob

            choice = replace(choice, logprobs=(TokenLogprob(letter, top[letter], top),))
        return Reply((choice,), model=self.name)

    def _answer(self, question: Question) -> tuple[str, Array]:
        recogniser = trained(*self._arguments)
        _check_mode(recogniser, question.mode)
        scores = probabilities(recogniser, [question])[0]
        return LETTERS[int(scores.argmax())], scores
