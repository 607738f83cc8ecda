"""Data sets as (train, test) with binary classes: readers of published folders, fetching by name, offline stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.datasets import Data, digits, folder, generated, stand_in
from assay.core.errors import DataError, unknown_name
from assay.learning.pu_bench import drawn, fetched, folders

SPLIT_SEED = 0


@dataclass(frozen=True, slots=True)
class Dataset:
    """Rows with true classes, 1 positive and 0 negative; the split is fixed.

    Attributes
    ----------
    x_train, x_test
        float32, (rows, features) or (rows, channels, height, width).
    modality
        ``image``, ``text``, ``table`` or ``synthetic``.
    posterior
        P(y=1 | x) of the test rows, where it is known.
    """

    name: str
    modality: str
    x_train: NDArray[np.float32]
    y_train: NDArray[np.int8]
    x_test: NDArray[np.float32]
    y_test: NDArray[np.int8]
    data: Data
    posterior: NDArray[np.float64] | None = None


def _stratified(x: NDArray, y: NDArray, share: float = 0.2) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(train, test) rows, each class split alike, the same each time."""
    rng = np.random.default_rng(SPLIT_SEED)
    test = [rng.permutation(rows)[: round(share * len(rows))] for rows in (np.flatnonzero(y == k) for k in (0, 1))]
    chosen = np.sort(np.concatenate(test))
    return np.setdiff1d(np.arange(len(y)), chosen), chosen


def _split(name: str, modality: str, x: NDArray, y: NDArray, data: Data, *, standardise: bool = False) -> Dataset:
    train, test = _stratified(x, y)
    x = np.asarray(x, np.float32)
    if standardise:  # by the training rows alone; all rows would tell of the test
        mean, spread = x[train].mean(0), x[train].std(0)
        x = (x - mean) / np.where(spread > 0, spread, 1)
    y = np.asarray(y, np.int8)
    return Dataset(name, modality, x[train], y[train], x[test], y[test], data)


def upsampled(images: NDArray, side: int = 28) -> NDArray[np.float32]:
    """Square pictures (n, k, k) at another size, (n, 1, side, side), between -1 and 1; bilinear, edges kept."""
    k = images.shape[-1]
    at = np.clip((np.arange(side) + 0.5) * k / side - 0.5, 0, k - 1)
    low = np.floor(at).astype(int)
    high, share = np.minimum(low + 1, k - 1), (at - low).astype(np.float32)
    x = images.astype(np.float32) / images.max()
    x = x[:, low] * (1 - share)[None, :, None] + x[:, high] * share[None, :, None]
    x = x[:, :, low] * (1 - share) + x[:, :, high] * share
    return (x * 2 - 1)[:, None]


def _digits28() -> Dataset:
    images, labels, data = digits("MNIST")
    return _split("digits28", "image", upsampled(images), labels % 2 == 0, data)


def _digits() -> Dataset:
    images, labels, data = digits("MNIST")
    return _split("digits", "image", images.reshape(len(images), -1) / 8 - 1.0, labels % 2 == 0, data)


def _breast_cancer() -> Dataset:
    from sklearn.datasets import load_breast_cancer

    bunch: Any = load_breast_cancer()
    rows = generated([{"rows": len(bunch.target), "sum": float(bunch.data.sum())}], "scikit-learn, breast_cancer")
    data = stand_in(Data("real", rows.source, "CC-BY-4.0", rows.fingerprint), "Spambase")
    return _split("breast_cancer", "table", bunch.data, bunch.target == 0, data, standardise=True)


def gaussian_mixture(
    rows: int, rng: np.random.Generator, *, dimensions: int = 10, distance: float = 2.0, prior: float = 0.4
) -> tuple[NDArray[np.float32], NDArray[np.int8], NDArray[np.float64]]:
    """(x, y, P(y=1 | x)) of two normals with unit covariance, their means ``distance`` apart along the diagonal."""
    y = (rng.random(rows) < prior).astype(np.int8)
    direction = np.full(dimensions, 1 / np.sqrt(dimensions))
    x = rng.standard_normal((rows, dimensions)) + np.where(y == 1, 0.5, -0.5)[:, None] * distance * direction
    logit = distance * (x @ direction) + np.log(prior / (1 - prior))
    return x.astype(np.float32), y, 1 / (1 + np.exp(-logit))


def _gaussian() -> Dataset:
    x, y, posterior = gaussian_mixture(2000, np.random.default_rng(SPLIT_SEED))
    data = generated([{"kind": "two normals", "rows": 2000, "seed": SPLIT_SEED}], "two normals with a known posterior")
    return Dataset("gaussian", "synthetic", x[:1000], y[:1000], x[1000:], y[1000:], data, posterior[1000:])


def _written(name: str, instead_of: str) -> Dataset:
    from assay.learning.pu_bench import opinions

    make = opinions.opinions if name == "opinions" else opinions.posts
    texts, classes = make(1200, np.random.default_rng(SPLIT_SEED))
    made = generated(
        [{"text": text, "class": int(k)} for text, k in zip(texts, classes)], "sentences made of a grammar"
    )
    x = folders.embedded(texts, [], []).x
    return _split(name, "text", x, classes, stand_in(made, instead_of))


def _digits32() -> Dataset:
    images, labels, data = digits("CIFAR-10")
    x = folders.by_channel(drawn.coloured(upsampled(images, 32), np.random.default_rng(SPLIT_SEED)))
    return _split("digits32", "image", x, labels % 2 == 0, data)


def _scans() -> Dataset:
    x, y = drawn.scans(600, np.random.default_rng(SPLIT_SEED))
    made = generated([{"kind": "drawn scans", "rows": 600, "seed": SPLIT_SEED}], "ellipses drawn at random")
    return _split("scans", "image", x, y, stand_in(made, "Alzheimer MRI"))


def _boards() -> Dataset:
    x, y = drawn.ended_boards()
    made = generated([{"kind": "ends of noughts and crosses", "rows": len(y)}], "all ends of noughts and crosses")
    return _split("boards", "table", x, y, stand_in(made, "Connect-4"))


def _caps() -> Dataset:
    rows, y = drawn.caps(1500, np.random.default_rng(SPLIT_SEED))
    made = generated([{"traits": row, "poisonous": bool(k)} for row, k in zip(rows, y)], "mushrooms made up by rules")
    return _split("caps", "table", folders.one_hot(rows), y, stand_in(made, "Mushrooms"))


OFFLINE: dict[str, Callable[[], Dataset]] = {
    "digits": _digits,
    "digits28": _digits28,
    "breast_cancer": _breast_cancer,
    "gaussian": _gaussian,
    "opinions": lambda: _written("opinions", "IMDB"),
    "posts": lambda: _written("posts", "20 Newsgroups"),
    "digits32": _digits32,
    "scans": _scans,
    "boards": _boards,
    "caps": _caps,
}
"""Data sets that need neither folder nor network; `Dataset.data` says what each stands in for."""

PUBLISHED: dict[str, tuple[str, Callable[[Path], folders.Rows]]] = {
    "mnist": ("image", folders.mnist),
    "fashion_mnist": ("image", folders.fashion_mnist),
    "cifar10": ("image", folders.cifar10),
    "alzheimer_mri": ("image", folders.alzheimer_mri),
    "imdb": ("text", folders.imdb),
    "newsgroups20": ("text", folders.newsgroups20),
    "connect4": ("table", folders.connect4),
    "spambase": ("table", folders.spambase),
    "mushrooms": ("table", folders.mushrooms),
}
"""Data sets of the paper (Mushrooms: of its code), read from ``FOLDER/NAME`` as their sources publish them."""


@lru_cache(maxsize=4)
def load_dataset(name: str, root: str | None = None) -> Dataset:
    """A data set by name.

    Parameters
    ----------
    name
        In `OFFLINE` or `PUBLISHED`.
    root
        Folder with a folder NAME for each published data set; ``hub`` = fetched by name, see
        `assay.learning.pu_bench.fetched`.

    Raises
    ------
    UsageError
        No such name.
    DataError
        A published set without a folder, or files that are missing or not in their format.
    """
    if name in OFFLINE:
        return OFFLINE[name]()
    if name not in PUBLISHED:
        raise unknown_name("data set", name, [*OFFLINE, *PUBLISHED])
    if root is None:
        raise DataError(
            f"Data set {name!r} is not passed on by assay; give data=FOLDER with {name}/ in it "
            f"({folders.NEEDS[name]}), data=hub to fetch it, or take an offline one: {', '.join(OFFLINE)}."
        )
    path = Path(root).expanduser() / name
    modality, read = PUBLISHED[name]
    if root == "hub":
        rows, found = fetched.fetch(name)
    else:
        found = folder(path, source=name)
        rows = read(path)
    x, y = rows.x, rows.y
    if len(x) != len(y) or not 0 < int(np.sum(y == 1)) < len(y):
        raise DataError(f"{path} holds {len(x)} rows and {int(np.sum(y == 1))} positives; both classes are needed.")
    if rows.test is None:
        return _split(name, modality, x, y, found, standardise=rows.standardise)
    test = rows.test
    as_float, classes = np.asarray(x, np.float32), np.asarray(y, np.int8)
    return Dataset(name, modality, as_float[~test], classes[~test], as_float[test], classes[test], found)
