"""Classification data: small sets that installed packages carry, generated ones, and published folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.datasets import Data, digits, folder, generated, package_file
from assay.core.datasets.readers import guarded, read_text
from assay.core.errors import DataError, UsageError, unknown_name

OFFLINE = ("digits", "breast_cancer", "clusters", "moons", "shapes")
PUBLISHED = ("cifar10", "cifar100", "tiny_imagenet")
SIZES = {"digits": (500, 300), "breast_cancer": (200, 100), "clusters": (500, 300), "moons": (300, 200),
         "shapes": (500, 300)}  # fmt: skip
"""Training and validation rows of the offline sets, unless told otherwise."""
CLUSTERS, CLUSTER_DIMENSIONS, GENERATED_ROWS, SIDE = 6, 20, 3000, 32


@dataclass(frozen=True, slots=True)
class Split:
    """Inputs in float32, classes in int64. Training and validation classes carry the noise, test classes do not."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_valid: np.ndarray
    y_valid: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int
    noisy: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one input."""
        return self.x_train.shape[1:]


def make_split(
    name: str,
    rng: np.random.Generator,
    *,
    train: int | None = None,
    noise: float = 0.0,
    data: str | None = None,
) -> Split:
    """Draw training and validation rows; the rest is tested on (published sets: their own test part).

    Parameters
    ----------
    train
        Training rows; None = `SIZES`, for published sets 90 % of their training part. Validation rows are a share of
        0.6 where it is given.
    noise
        Share of training and validation rows whose class is drawn anew, uniformly over all classes.
    data
        Folder of a published set.
    """
    if not 0 <= noise < 1:
        raise UsageError(f"noise must lie in [0, 1); got {noise}.")
    if name in PUBLISHED:
        x, y, x_test, y_test = _published(name, data)
        order = rng.permutation(len(y))
        n = len(y) * 9 // 10 if train is None else train
        valid = order[n:] if train is None else order[n : n + max(1, n * 6 // 10)]
    else:
        x, y = _offline(name, rng)
        order = rng.permutation(len(y))
        n, m = SIZES[name] if train is None else (train, max(1, train * 6 // 10))
        valid, test = order[n : n + m], order[n + m :]
        x_test, y_test = x[test], y[test]
    if n < 2 or len(valid) == 0 or len(y_test) == 0:
        raise UsageError(f"{name} has {len(y)} rows; {n} for training leave none for validation and test.")
    classes = int(max(y.max(), y_test.max())) + 1
    parts = [y[order[:n]].astype(np.int64), y[valid].astype(np.int64)]
    noisy = 0
    for i, part in enumerate(parts):
        chosen = rng.permutation(len(part))[: round(noise * len(part))]
        drawn = rng.integers(0, classes, len(chosen))
        if i == 0:
            noisy = int((drawn != part[chosen]).sum())
        part[chosen] = drawn
    x_train, x_valid = x[order[:n]], x[valid]
    mean, scale = _scale(x_train)
    made = [((v - mean) / scale).astype(np.float32) for v in (x_train, x_valid, x_test)]
    return Split(made[0], parts[0], made[1], parts[1], made[2], y_test.astype(np.int64), classes, noisy)


def provenance(names: list[str], data: str | None) -> Mapping[str, Any]:
    """Where each data set is from."""
    return {name: _source(name, data).info() for name in names}


def moons(n: int, rng: np.random.Generator, noise: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Two interleaved half circles with Gaussian noise, (n, 2) and (n,)."""
    y = rng.integers(0, 2, n)
    t = rng.random(n) * np.pi
    x = np.where(y[:, None] == 0, np.stack([np.cos(t), np.sin(t)], 1), np.stack([1 - np.cos(t), 0.5 - np.sin(t)], 1))
    return x + rng.normal(0, noise, x.shape), y


def clusters(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Six overlapping Gaussian classes in 20 dimensions, whose centres do not depend on ``rng``."""
    centres = np.random.default_rng(1).normal(0, 0.9, (CLUSTERS, CLUSTER_DIMENSIONS))
    y = rng.integers(0, CLUSTERS, n)
    return centres[y] + rng.normal(0, 1, (n, CLUSTER_DIMENSIONS)), y


def shapes(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Discs, rings, squares, crosses and triangles of random place, size and contrast on noise, (n, 1, 32, 32)."""
    y = rng.integers(0, 5, n)
    row, column = np.mgrid[:SIDE, :SIDE].astype(float)
    cx, cy = (rng.uniform(11, 21, (n, 1, 1)) for _ in range(2))
    r = rng.uniform(5, 9, (n, 1, 1))
    dx, dy = column - cx, row - cy
    radius, square = np.hypot(dx, dy), np.maximum(np.abs(dx), np.abs(dy))
    thin = np.minimum(np.abs(dx), np.abs(dy)) <= r / 4
    drawn = np.stack(
        [
            radius <= r,
            (radius <= r) & (radius >= 0.6 * r),
            square <= 0.85 * r,
            thin & (square <= r),
            (dy <= 0.8 * r) & (dy >= -r + 1.8 * np.abs(dx)),
        ]
    )
    picture = drawn[y, np.arange(n)] * rng.uniform(0.5, 1.0, (n, 1, 1)) + rng.normal(0, 0.35, (n, SIDE, SIDE))
    return picture[:, None], y


def _offline(name: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    made: dict[str, Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]] = {
        "moons": moons,
        "clusters": clusters,
        "shapes": shapes,
    }
    if name in made:
        return made[name](GENERATED_ROWS, rng)
    if name == "digits":
        images, labels, _ = digits()
        return images[:, None].astype(float), labels
    if name == "breast_cancer":
        path = _source(name, None).path
        table = np.loadtxt(str(path), delimiter=",", skiprows=1)
        return table[:, :-1], table[:, -1].astype(int)
    raise unknown_name("data set", name, (*OFFLINE, *PUBLISHED))


def _source(name: str, data: str | None) -> Data:
    if name == "digits":
        return digits()[2]
    if name == "breast_cancer":
        return package_file("sklearn", "datasets/data/breast_cancer.csv", licence="CC-BY-4.0", extra="xsam")
    if name in PUBLISHED:
        return folder(_folder(name, data), source=name)
    if name not in OFFLINE:
        raise unknown_name("data set", name, (*OFFLINE, *PUBLISHED))
    return generated([{"name": name, "rows": GENERATED_ROWS}], f"{name}, drawn by assay")


def _folder(name: str, data: str | None) -> Path:
    if data is None:
        raise UsageError(f"Data set {name} is not passed on by assay; give data=FOLDER with its files.")
    return Path(data).expanduser()


def _published(name: str, data: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    root = _folder(name, data)
    if name == "tiny_imagenet":
        return _tiny_imagenet(root)
    if name == "cifar10":
        inside = next((p for p in (root, root / "cifar-10-batches-bin") if (p / "test_batch.bin").is_file()), None)
        files = [f"data_batch_{i}.bin" for i in range(1, 6)], "test_batch.bin"
    else:
        inside = next((p for p in (root, root / "cifar-100-binary") if (p / "test.bin").is_file()), None)
        files = ["train.bin"], "test.bin"
    if inside is None:
        raise DataError(
            f"{root} does not hold the binary version of {name} ({files[1]}); the Python version is pickles, which "
            "assay does not run."
        )
    # CIFAR-100 writes the coarse class before the fine one.
    labels = 1 if name == "cifar10" else 2
    parts = [_cifar(inside / f, labels) for f in files[0]]
    test = _cifar(inside / files[1], labels)
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), *test


def _cifar(path: Path, labels: int) -> tuple[np.ndarray, np.ndarray]:
    if not path.is_file():
        raise DataError(f"{path} does not exist.")
    raw = np.fromfile(path, np.uint8)
    width = labels + 3072
    if len(raw) == 0 or len(raw) % width:
        raise DataError(f"{path} has {len(raw)} bytes, which is no multiple of {width} (a picture with its class).")
    rows = raw.reshape(-1, width)
    return rows[:, labels:].reshape(-1, 3, 32, 32), rows[:, labels - 1].astype(int)


def _tiny_imagenet(root: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    annotations = root / "val" / "val_annotations.txt"
    if not annotations.is_file():
        raise DataError(f"{annotations} does not exist; give the folder tiny-imagenet-200.")
    names = sorted(p.name for p in (root / "train").iterdir() if p.is_dir())
    place = {name: i for i, name in enumerate(names)}
    train = [(p, place[n]) for n in names for p in sorted((root / "train" / n / "images").glob("*.JPEG"))]
    test = []
    for number, line in enumerate(read_text(annotations).splitlines(), 1):
        fields = line.split("\t")
        if len(fields) < 2 or fields[1] not in place:
            raise DataError(f"{annotations}, line {number}: expected file, class, box by tabs; got {line[:80]!r}.")
        test.append((root / "val" / "images" / fields[0], place[fields[1]]))
    return *_pictures(train), *_pictures(test)


def _pictures(listed: list[tuple[Path, int]]) -> tuple[np.ndarray, np.ndarray]:
    from PIL import Image

    out = np.empty((len(listed), 3, 64, 64), np.uint8)
    for i, (path, _) in enumerate(listed):
        with guarded(path, "a picture"), Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
        if pixels.shape != (64, 64, 3):
            raise DataError(f"{path} has {pixels.shape[1]} x {pixels.shape[0]} pixels; expected 64 x 64.")
        out[i] = pixels.transpose(2, 0, 1)
    return out, np.array([y for _, y in listed])


def _scale(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation: of a column in tables, of a channel in pictures."""
    axes = 0 if x.ndim == 2 else (0, *range(2, x.ndim))
    mean, scale = x.mean(axes, keepdims=True), x.std(axes, keepdims=True)
    return mean[0], np.where(scale[0] > 0, scale[0], 1.0)
