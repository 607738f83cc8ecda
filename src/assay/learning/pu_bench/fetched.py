"""Published data sets fetched by name: pictures and texts from the Hugging Face hub, tables from OpenML."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.datasets import Data, hub
from assay.core.datasets.readers import guarded, read_jsonl, reason
from assay.core.errors import DataError, MissingExtra, unknown_name
from assay.learning.pu_bench import folders
from assay.learning.pu_bench.folders import Rows

HUB = {
    "mnist": "hf:ylecun/mnist",
    "fashion_mnist": "hf:zalando-datasets/fashion_mnist",
    "cifar10": "hf:uoft-cs/cifar10",
    "alzheimer_mri": "hf:Falah/Alzheimer_MRI",
    "imdb": "hf:stanfordnlp/imdb",
    "newsgroups20": "hf:SetFit/20_newsgroups",
}
"""Repositories on the hub, each with parquet or JSON Lines files named after their split."""
OPENML = {"connect4": 40668, "spambase": 44, "mushrooms": 24}
"""Numbers at OpenML of connect-4, spambase and mushroom."""
_EVEN, _TOPS, _VEHICLES = (0, 2, 4, 6, 8), (0, 2, 3, 4, 6), (0, 1, 8, 9)


def fetch(name: str) -> tuple[Rows, Data]:
    """Rows and provenance of a published data set.

    Raises
    ------
    DataError
        It cannot be fetched and is not in the cache, or is not in the format known here.
    MissingExtra
        huggingface_hub (or scikit-learn) is not installed.
    """
    if name in OPENML:
        return _openml(name)
    if name not in HUB:
        raise unknown_name("data set", name, [*HUB, *OPENML])
    data = hub(HUB[name], files=("*.parquet", "*.jsonl"))
    assert data.path is not None
    return _READERS[name](data.path), data


def _splits(root: Path) -> Iterator[tuple[bool, list[dict[str, Any]], dict[str, Any]]]:
    """(is the test, rows, features as the hub describes them) of each split of a repository."""
    import polars as pl

    for part in ("train", "test"):
        paths = sorted(p for p in root.rglob("*") if p.suffix in (".parquet", ".jsonl") and _split_of(p) == part)
        if not paths:
            raise DataError(f"{root} holds no {part} split (a .parquet or .jsonl file named after it).")
        for path in paths:
            with guarded(path, "rows of a data set"):
                if path.suffix == ".parquet":
                    described = json.loads(pl.read_parquet_metadata(path).get("huggingface", "{}"))
                    features = described.get("info", {}).get("features", {})
                    yield part == "test", pl.read_parquet(path).to_dicts(), features
                else:
                    yield part == "test", [row for _, row in read_jsonl(path)], {}


def _split_of(path: Path) -> str:
    """train of train-00000-of-00001.parquet, plain_text/train/0000.parquet, cifar10-train.parquet."""
    words = {word for part in path.parts[-2:] for word in part.lower().replace(".", "-").replace("_", "-").split("-")}
    return "train" if "train" in words else "test" if "test" in words else ""


def _column(row: Mapping[str, Any], names: tuple[str, ...], root: Path) -> Any:
    for name in names:
        if name in row:
            return row[name]
    raise DataError(f"{root}: rows have no field {' or '.join(names)}; they have {', '.join(row)}.")


def _pixels(cell: Any, mode: str, side: int) -> NDArray[np.uint8]:
    """A picture of the hub, {bytes, path}, as (channels, side, side)."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Reading pictures", "pu_bench") from None
    raw = cell.get("bytes") if isinstance(cell, Mapping) else cell
    try:
        with Image.open(io.BytesIO(raw)) as picture:  # type: ignore[arg-type]
            found = picture.convert(mode)
            if found.size != (side, side):
                found = found.resize((side, side), Image.Resampling.LANCZOS)
    except Exception as error:  # Pillow documents no closed set of what a damaged picture raises
        raise DataError(f"A picture of the data set cannot be read ({reason(error)}).") from error
    array = np.asarray(found)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _pictures(root: Path, mode: str, side: int, positive: Callable[[int, Mapping[str, Any]], bool]) -> Rows:
    x, y, test = [], [], []
    for held_out, rows, features in _splits(root):
        for number, row in enumerate(rows, 1):
            where = f"{root}, {'test' if held_out else 'train'} row {number}"
            with guarded(where, "a picture with the number of its label"):
                x.append(_pixels(_column(row, ("image", "img"), root), mode, side))
                y.append(positive(int(_column(row, ("label", "labels"), root)), features))
            test.append(held_out)
    return Rows(np.stack(x), np.array(y), np.array(test))


def _grey(root: Path, positive: tuple[int, ...]) -> Rows:
    found = _pictures(root, "L", 28, lambda label, _: label in positive)
    return Rows(found.x.astype(np.float32) / 127.5 - 1, found.y, found.test)


def _cifar10(root: Path) -> Rows:
    found = _pictures(root, "RGB", 32, lambda label, _: label in _VEHICLES)
    return Rows(folders.by_channel(found.x), found.y, found.test)


def _alzheimer_mri(root: Path) -> Rows:
    def healthy(label: int, features: Mapping[str, Any]) -> bool:
        names = features.get("label", {}).get("names")
        if not names:
            raise DataError(f"{root}: the files do not say what their labels mean.")
        return "".join(c for c in names[label].lower() if c.isalpha()) == "nondemented"

    found = _pictures(root, "L", 128, healthy)
    # Published: a random fifth is the test, whatever the repository's own split.
    return Rows(found.x.astype(np.float32) / 127.5 - 1, found.y)


def _texts(root: Path, positive: Callable[[Mapping[str, Any]], bool]) -> Rows:
    texts: list[str] = []
    y: list[bool] = []
    test: list[bool] = []
    for held_out, rows, _ in _splits(root):
        for row in rows:
            texts.append(str(_column(row, ("text",), root)))
            y.append(positive(row))
            test.append(held_out)
    return folders.embedded(texts, y, test)


def _group(row: Mapping[str, Any]) -> bool:
    name = str(row.get("label_text", ""))
    if "." not in name:
        raise DataError(f"A post lacks label_text, its newsgroup; its fields are {', '.join(row)}.")
    return name.partition(".")[0] in folders.GROUPS


_READERS: dict[str, Callable[[Path], Rows]] = {
    "mnist": lambda root: _grey(root, _EVEN),
    "fashion_mnist": lambda root: _grey(root, _TOPS),
    "cifar10": _cifar10,
    "alzheimer_mri": _alzheimer_mri,
    "imdb": lambda root: _texts(root, lambda row: int(_column(row, ("label",), root)) == 1),
    "newsgroups20": lambda root: _texts(root, _group),
}


def _openml(name: str) -> tuple[Rows, Data]:
    import http.client
    import os
    from urllib.error import URLError

    try:
        from sklearn.datasets import fetch_openml
    except ImportError:
        raise MissingExtra(f"Data set {name!r}", "pu_bench") from None
    from assay.core.cache import cache_folder

    number = OPENML[name]
    fetch_any: Any = fetch_openml
    try:
        # What comes is checked against the checksum that OpenML states, and kept.
        bunch = fetch_any(
            data_id=number, as_frame=False, parser="liac-arff", data_home=os.fspath(cache_folder() / "openml"),
            n_retries=1, delay=0.5,
        )  # fmt: skip
    except (URLError, OSError, ValueError, http.client.HTTPException) as error:
        raise DataError(
            f"Data set {name!r} (openml.org/d/{number}) cannot be fetched ({str(error).splitlines()[0]}); put it into "
            f"data=FOLDER as {name}/: {folders.NEEDS[name]}."
        ) from error
    x, y = np.asarray(bunch.data), np.asarray(bunch.target).astype(str)
    rows = _READ_TABLES[name](x, y)
    content = hashlib.blake2b(rows.x.tobytes() + rows.y.tobytes(), digest_size=16).hexdigest()
    return rows, Data("real", f"openml.org/d/{number}", "as OpenML states", content)


def _levels(x: NDArray, levels: Sequence[int] | None = None) -> NDArray[np.float32]:
    """One-hot columns of category numbers, in an order or as they come; NaN is a category of its own."""
    known = None if levels is None else [[str(float(k)) for k in levels]] * x.shape[1]
    return folders.one_hot([[str(float(v)) for v in row] for row in x], known)


_READ_TABLES: dict[str, Callable[[NDArray, NDArray], Rows]] = {
    # Blank, second player, first: the order of the letters in the file.
    "connect4": lambda x, y: Rows(_levels(x, (0, 2, 1)), np.isin(y, ("win", "2"))),
    "spambase": lambda x, y: Rows(x.astype(float), y == "1", standardise=True),
    "mushrooms": lambda x, y: Rows(_levels(x), y == "p"),
}
