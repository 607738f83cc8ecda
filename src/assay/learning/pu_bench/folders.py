"""Readers of the published data sets from a folder, in the format in which their sources give them out; no pickles."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from assay.core.datasets.archives import check_zip
from assay.core.datasets.readers import guarded, read_bytes, read_text, reason, shown
from assay.core.errors import DataError, MissingExtra


@dataclass(frozen=True, slots=True)
class Rows:
    """Features, classes (1 positive, 0 negative), which rows are the test (None = still to be split)."""

    x: NDArray
    y: NDArray
    test: NDArray[np.bool_] | None = None
    standardise: bool = False


NEEDS = {
    "mnist": "train- and t10k- images-idx3-ubyte and labels-idx1-ubyte, .gz or not",
    "fashion_mnist": "train- and t10k- images-idx3-ubyte and labels-idx1-ubyte, .gz or not",
    "cifar10": "the binary version: data_batch_1.bin ... data_batch_5.bin, test_batch.bin",
    "alzheimer_mri": "folders NonDemented, VeryMildDemented, MildDemented, ModerateDemented with pictures",
    "imdb": "train/pos, train/neg, test/pos, test/neg with .txt files, or embeddings.npz",
    "newsgroups20": "folders *train*/GROUP and *test*/GROUP with posts, or embeddings.npz",
    "connect4": "connect-4.data, 42 board fields and win, loss or draw",
    "spambase": "spambase.data, 57 numbers and the class",
    "mushrooms": "agaricus-lepiota.data, the class and 22 letters",
}


GROUPS = ("alt", "comp", "misc", "rec")
"""First words of the newsgroups that are positive."""


def _file(folder: Path, *names: str) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} lacks {names[0]}; it should hold {NEEDS.get(folder.name, names[0])}.")


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An IDX file of bytes, compressed or not.

    Raises
    ------
    DataError
        Another type, or another length than the header says.
    """
    raw = read_bytes(path)
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise DataError(f"{path} is not an IDX file of bytes: it begins with {raw[:4].hex()}.")
    axes = raw[3]
    if len(raw) < 4 + 4 * axes:
        raise DataError(f"{path} ends inside its header of {axes} axes.")
    shape = struct.unpack(f">{axes}I", raw[4 : 4 + 4 * axes])
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * axes)
    if len(values) != math.prod(shape):
        raise DataError(f"{path} holds {len(values)} values; its header says {' x '.join(map(str, shape))}.")
    return values.reshape(shape)


def _idx_set(folder: Path, positive: Iterable[int]) -> Rows:
    x, y, test = [], [], []
    for part in ("train", "t10k"):
        names = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
        images, labels = (read_idx(_file(folder, name, f"{name}.gz")) for name in names)
        if len(images) != len(labels):
            raise DataError(f"{folder}: {len(images)} pictures and {len(labels)} labels of {part}.")
        x.append(images[:, None].astype(np.float32) / 127.5 - 1)
        y.append(np.isin(labels, list(positive)))
        test.append(np.full(len(labels), part == "t10k"))
    return Rows(np.concatenate(x), np.concatenate(y), np.concatenate(test))


def mnist(folder: Path) -> Rows:
    """Even against odd digits."""
    return _idx_set(folder, (0, 2, 4, 6, 8))


def fashion_mnist(folder: Path) -> Rows:
    """Tops (0, 2, 3, 4, 6) against the rest."""
    return _idx_set(folder, (0, 2, 3, 4, 6))


def by_channel(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Colour pictures (n, 3, height, width) of 0 to 255, each channel normalised as published for CIFAR-10."""
    mean = np.array([0.4914, 0.4822, 0.4465], np.float32)[:, None, None]
    spread = np.array([0.2023, 0.1994, 0.2010], np.float32)[:, None, None]
    return ((pixels / np.float32(255) - mean) / spread).astype(np.float32)


def cifar10(folder: Path) -> Rows:
    """Vehicles (0, 1, 8, 9) against animals, normalised by channel."""
    x, y, test = [], [], []
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        raw = np.fromfile(_file(folder, name), np.uint8)
        if len(raw) == 0 or len(raw) % 3073:
            raise DataError(f"{folder / name} has {len(raw)} bytes, no multiple of 3073: not the binary version.")
        raw = raw.reshape(-1, 3073)
        x.append(by_channel(raw[:, 1:].reshape(-1, 3, 32, 32)))
        y.append(np.isin(raw[:, 0], (0, 1, 8, 9)))
        test.append(np.full(len(raw), name == "test_batch.bin"))
    return Rows(np.concatenate(x), np.concatenate(y), np.concatenate(test))


def alzheimer_mri(folder: Path) -> Rows:
    """NonDemented against the three demented folders; grey, 128 x 128."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Reading pictures", "pu_bench") from None
    x, y = [], []
    for name in ("NonDemented", "VeryMildDemented", "MildDemented", "ModerateDemented"):
        if not (folder / name).is_dir():
            raise DataError(f"{folder} lacks the folder {name}; it should hold {NEEDS['alzheimer_mri']}.")
        for path in sorted((folder / name).iterdir()):
            with guarded(path, "a picture"), Image.open(path) as picture:
                grey = picture.convert("L").resize((128, 128), Image.Resampling.LANCZOS)
            x.append(np.asarray(grey, np.float32)[None] / 127.5 - 1)
            y.append(name == "NonDemented")
    return Rows(np.stack(x), np.array(y))


def _published_embeddings(path: Path) -> Rows:
    """The published cache: train_embeddings, test_embeddings (n, 384), train_labels, test_labels."""
    check_zip(path)
    with guarded(path, "a cache of embeddings"):
        with np.load(path, allow_pickle=False) as kept:
            parts = [np.asarray(kept[f"{part}_embeddings"], np.float32) for part in ("train", "test")]
            labels = [np.asarray(kept[f"{part}_labels"]) for part in ("train", "test")]
        x, y = np.concatenate(parts), np.concatenate(labels) == 1
    if x.ndim != 2 or y.shape != (len(x),) or [len(part) for part in labels] != [len(part) for part in parts]:
        raise DataError(f"{path}: embeddings must be (n, features) and labels (n,); they are {x.shape} and {y.shape}.")
    return Rows(x, y, np.repeat([False, True], [len(part) for part in parts]))


def embedded(texts: list[str], y: list[bool], test: list[bool]) -> Rows:
    """Texts as embeddings of the packaged MiniLM, (n, 384), of length one."""
    from assay.core.cache import ContentCache, cache_folder
    from assay.systems.embedding import CachedEncoder, load_encoder

    encoder = CachedEncoder(load_encoder("minilm"), ContentCache(cache_folder() / "embeddings"))
    return Rows(encoder.encode(texts), np.array(y), np.array(test))


def imdb(folder: Path) -> Rows:
    """Positive against negative reviews, as MiniLM embeddings."""
    if (folder / "embeddings.npz").is_file():
        return _published_embeddings(folder / "embeddings.npz")
    texts: list[str] = []
    y: list[bool] = []
    test: list[bool] = []
    for part in ("train", "test"):
        for kind in ("pos", "neg"):
            if not (folder / part / kind).is_dir():
                raise DataError(f"{folder} lacks the folder {part}/{kind}; it should hold {NEEDS['imdb']}.")
            for path in sorted((folder / part / kind).glob("*.txt")):
                texts.append(path.read_text(encoding="utf-8", errors="replace"))
                y.append(kind == "pos")
                test.append(part == "test")
    return embedded(texts, y, test)


def newsgroups20(folder: Path) -> Rows:
    """alt, comp, misc and rec against sci, soc and talk, as MiniLM embeddings."""
    if (folder / "embeddings.npz").is_file():
        return _published_embeddings(folder / "embeddings.npz")
    texts: list[str] = []
    y: list[bool] = []
    test: list[bool] = []
    for part in ("train", "test"):
        groups = sorted(path for path in folder.glob(f"*{part}*/*") if path.is_dir())
        if not groups:
            raise DataError(f"{folder} lacks folders *{part}*/GROUP; it should hold {NEEDS['newsgroups20']}.")
        for group in groups:
            for path in sorted(p for p in group.iterdir() if p.is_file()):
                texts.append(path.read_text(encoding="latin-1"))
                y.append(group.name.partition(".")[0] in GROUPS)
                test.append(part == "test")
    return embedded(texts, y, test)


def _table(path: Path, columns: int) -> list[list[str]]:
    rows = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.startswith(("%", "@")):
            continue
        fields = [field.strip().strip("'\"") for field in line.split(",")]
        if len(fields) != columns:
            raise DataError(f"{path}, line {number}: {len(fields)} fields where there should be {columns}.")
        rows.append(fields)
    if not rows:
        raise DataError(f"{path} holds no rows.")
    return rows


def one_hot(rows: list[list[str]], categories: list[list[str]] | None = None) -> NDArray[np.float32]:
    """A 0 or 1 for each category of each column, in the order given or of the alphabet."""
    columns = list(zip(*rows))
    kinds = categories or [sorted(set(column)) for column in columns]
    blocks = [np.array(column)[:, None] == np.array(kind)[None] for column, kind in zip(columns, kinds)]
    return np.concatenate(blocks, axis=1).astype(np.float32)


def connect4(folder: Path) -> Rows:
    """Win against loss and draw; 42 fields of b, o, x one-hot (126)."""
    path = _file(folder, "connect-4.data", "connect-4.csv", "connect-4.arff")
    rows = _table(path, 43)
    known = {"win": True, "loss": False, "draw": False}
    for number, row in enumerate(rows, 1):
        if row[-1] not in known:
            raise DataError(f"{path}, row {number}: the class is {shown(row[-1])}, not win, loss or draw.")
    return Rows(one_hot([row[:-1] for row in rows], [["b", "o", "x"]] * 42), np.array([known[r[-1]] for r in rows]))


def spambase(folder: Path) -> Rows:
    """Spam against ham, 57 numbers, standardised by the training rows."""
    path = _file(folder, "spambase.data", "spambase.csv", "spambase.arff")
    rows = _table(path, 58)
    try:
        values = np.array(rows, float)
    except ValueError as error:
        raise DataError(f"{path}: a field is not a number ({reason(error)}).") from error
    return Rows(values[:, :-1], values[:, -1] == 1, standardise=True)


def mushrooms(folder: Path) -> Rows:
    """Poisonous against edible, 22 letters one-hot."""
    rows = _table(_file(folder, "agaricus-lepiota.data", "mushrooms.csv"), 23)
    return Rows(one_hot([row[1:] for row in rows]), np.array([row[0] == "p" for row in rows]))
