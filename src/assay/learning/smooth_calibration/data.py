"""Data sets: breast cancer and digits of scikit-learn's package, two toy laws of known probabilities, your own file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from assay.core.datasets import Data, digits, fingerprint, folder, package_file
from assay.core.datasets.readers import guarded, listed
from assay.core.errors import DataError, UsageError, unknown_name

Matrix = NDArray[np.float64]
TOY_TEST = 2000
SEPARATION = 2.0
WIDE = 6.0
XOR_SPREAD = 0.8


@dataclass(frozen=True, slots=True)
class Split:
    """Training and test part: features standardised by the training part, labels 0 and 1."""

    x_train: Matrix
    y_train: Matrix
    x_test: Matrix
    y_test: Matrix


def split(name: str, n: int, rng: np.random.Generator, file: str | None = None) -> Split:
    """``n`` training samples of a data set and the rest (toys: 2,000 new ones) to test on.

    Parameters
    ----------
    name
        gauss, separable, xor, breast_cancer, digits, or custom with ``file``.
    n
        Training samples; at least 10 must be left to test on.
    rng
        Draws the split, or the samples of a toy.

    Raises
    ------
    UsageError
        No such data set, or too few samples in it.
    DataError
        A training part of one class.
    """
    if name in TOYS:
        x, y = TOYS[name](n + TOY_TEST, rng)
        order = np.arange(n + TOY_TEST)
    else:
        x, y = _table(name, file)
        if n > len(y) - 10:
            raise UsageError(f"Data set {name} has {len(y)} samples: {n} to train on leave too few to test on.")
        order = rng.permutation(len(y))
    train, test = order[:n], order[n:]
    if len(np.unique(y[train])) < 2:
        raise DataError(f"The {n} training samples of {name} are of one class; take more.")
    centre, spread = x[train].mean(axis=0), x[train].std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    return Split((x[train] - centre) / spread, y[train], (x[test] - centre) / spread, y[test])


def gauss(n: int, rng: np.random.Generator, separation: float = SEPARATION) -> tuple[Matrix, Matrix]:
    """Two normal classes in the plane, means ``separation`` apart: P(y = 1 | x) = sigma(separation x_1)."""
    y = rng.integers(0, 2, n).astype(float)
    x = rng.standard_normal((n, 2))
    x[:, 0] += separation * (y - 0.5)
    return x, y


def gauss_truth(x: Matrix, separation: float = SEPARATION) -> Matrix:
    """P(y = 1 | x) of `gauss`."""
    return expit(separation * x[:, 0])


def separable(n: int, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """`gauss` with means 6 apart: the best rule errs on 0.13 %."""
    return gauss(n, rng, WIDE)


def separable_truth(x: Matrix) -> Matrix:
    """P(y = 1 | x) of `separable`."""
    return gauss_truth(x, WIDE)


def xor(n: int, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Four normal clouds at (+-1, +-1), the label by the sign of the product: no linear rule helps."""
    centre = rng.integers(0, 2, (n, 2)) * 2.0 - 1.0
    y = (centre[:, 0] * centre[:, 1] > 0).astype(float)
    return centre + XOR_SPREAD * rng.standard_normal((n, 2)), y


def xor_truth(x: Matrix) -> Matrix:
    """P(y = 1 | x) of `xor`."""
    a, b = x[:, 0] / XOR_SPREAD**2, x[:, 1] / XOR_SPREAD**2
    return expit(np.logaddexp(a + b, -a - b) - np.logaddexp(a - b, b - a))


TOYS = {"gauss": gauss, "separable": separable, "xor": xor}
FIXED = ("breast_cancer", "digits")


def provenance(names: list[str], file: str | None) -> dict[str, Any]:
    """Kind, source, licence and fingerprint of the data sets in use."""
    found: list[Data] = []
    for name in names:
        if name == "breast_cancer":
            found.append(
                package_file(
                    "sklearn", "datasets/data/breast_cancer.csv", licence="CC-BY-4.0", extra="smooth_calibration"
                )
            )
        elif name == "digits":
            found.append(digits()[2])
        elif name == "custom":
            found.append(folder(Path(str(file))))
    if not found:
        return {
            "kind": "generated", "source": "laws with known probabilities", "licence": "Apache-2.0",
            "fingerprint": fingerprint([{"toys": sorted(names), "version": 1}]),
        }  # fmt: skip
    return {
        "kind": "real",
        "source": "; ".join(one.source for one in found),
        "licence": "; ".join(sorted({one.licence for one in found})),
        "fingerprint": {str(i): one.fingerprint for i, one in enumerate(found)},
    }


def read_predictions(path: Path) -> tuple[Matrix, Matrix]:
    """(labels, probabilities) of a table with columns ``prob`` (or ``logit``) and ``label``, one row a sample.

    Raises
    ------
    DataError
        A column is missing, or holds what it should not; the message names the row.
    """
    from assay.core.datasets import read_table
    from assay.learning.smooth_calibration.inputs import labels, logits, probabilities

    frame = read_table(path)
    values = "logit" if "logit" in frame.columns and "prob" not in frame.columns else "prob"
    for column in (values, "label"):
        if column not in frame.columns:
            raise DataError(f"{path} has no column {column!r}; it has {listed(frame.columns)}.")
    y = labels(_plain(frame["label"], path), f"{path}, label")
    if values == "logit":
        return y, expit(logits(_plain(frame["logit"], path), f"{path}, logit"))
    return y, probabilities(_plain(frame["prob"], path), f"{path}, prob")


def _plain(column: Any, path: Path | str) -> NDArray[Any]:
    """A column as NumPy has it; integers beyond 64 bits have no place there."""
    with guarded(f"{path}, column {column.name!r}", "numbers"):
        return column.to_numpy()


def read_column(path: Path, name: str) -> NDArray[Any]:
    """One column of a table as text, shape (n,), a missing value as ``missing``."""
    import polars as pl

    from assay.core.datasets import read_table

    frame = read_table(path)
    if name not in frame.columns:
        raise DataError(f"{path} has no column {name!r}; it has {listed(frame.columns)}.")
    return frame[name].cast(pl.String).fill_null("missing").to_numpy()


def _table(name: str, file: str | None) -> tuple[Matrix, Matrix]:
    if name == "breast_cancer":
        from sklearn.datasets import load_breast_cancer

        x, y = load_breast_cancer(return_X_y=True)
        return np.asarray(x, float), np.asarray(y, float)
    if name == "digits":
        images, of, _ = digits()
        held = of <= 1
        return images[held].reshape(int(held.sum()), -1).astype(float), of[held].astype(float)
    if name != "custom" or file is None:
        raise unknown_name("data set", name, [*TOYS, *FIXED], "Data set custom needs file=.")
    from assay.core.datasets import read_table
    from assay.learning.smooth_calibration.inputs import labels

    frame = read_table(Path(str(file)))
    if "label" not in frame.columns:
        raise DataError(f"{file} has no column 'label'; it has {listed(frame.columns)}.")
    features = frame.drop("label")
    wrong = [c for c, kind in features.schema.items() if not kind.is_numeric()]
    if wrong or features.is_empty():
        raise DataError(f"{file}: columns {listed(wrong)} are not numeric; encode or drop them.")
    with guarded(file, "a table of numbers"):
        x = features.to_numpy().astype(float)
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        raise DataError(
            f"{file}, row {row + 1}, column {features.columns[column]!r}: no finite number; repair or drop it."
        )
    return x, labels(_plain(frame["label"], file), f"{file}, label")
