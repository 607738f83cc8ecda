"""Data sets on disk: loading matrices, pairs with their times, hidden truth, the split for tuning, fetching."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.datasets.archives import check_zip
from assay.core.errors import DataError, UsageError
from assay.science.seismic_ctf import scoring
from assay.science.seismic_ctf.definition import PARAMETERS, Definition, PairSpec, known_definition, read_definition

Matrix = NDArray[Any]
SUFFIXES = (".npz", ".npy", ".mat")


@dataclass(frozen=True, slots=True)
class Times:
    """When rows were taken: of each training matrix, of the burn-in, of the rows to predict; tags of parametric pairs.

    ``parameters`` are the tags of the training matrices, ``parameter`` that of the test; None where nothing varies.
    """

    train: tuple[Matrix, ...]
    test: Matrix
    init: Matrix | None = None
    dt: float = 1.0
    parameters: tuple[float, ...] | None = None
    parameter: float | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """What a participant is given for one pair. Matrices are (rows of time, sensors)."""

    spec: PairSpec
    train: tuple[Matrix, ...]
    init: Matrix | None
    times: Times
    definition: Definition = field(repr=False)

    @property
    def id(self) -> int:
        """Number of the pair."""
        return self.spec.id

    @property
    def shape(self) -> tuple[int, int]:
        """Shape that a prediction has."""
        return self.definition.shapes[self.spec.test]

    @property
    def train_times(self) -> tuple[Matrix, ...]:
        """Times of each training matrix."""
        return self.times.train

    @property
    def test_times(self) -> Matrix:
        """Times of the rows to predict."""
        return self.times.test


class CTFDataset:
    """A data set: definition, training matrices, and the truth where it is known here.

    Parameters
    ----------
    definition
        Shapes, pairs, parameters.
    folder
        Folder of the data set, with ``train`` and perhaps ``test``.
    truth
        Folder with the test matrices; None = ``folder/test``.
    """

    def __init__(self, definition: Definition, folder: Path | str, truth: Path | str | None = None) -> None:
        self.definition, self.folder = definition, Path(folder).expanduser()
        self.truth_folder = Path(truth).expanduser() if truth is not None else self.folder / "test"

    @classmethod
    def load(cls, name: str, root: Path | str, *, truth: Path | str | None = None) -> CTFDataset:
        """Data set ``name`` under ``root``, in the published layout ``NAME/NAME.yaml``, ``NAME/train``, ``NAME/test``.

        A folder without a YAML takes the definition that assay knows by this name. ``truth`` is a folder with
        ``NAME/test``, ``test`` or the test matrices themselves.
        """
        folder = Path(root).expanduser()
        folder = folder / name if (folder / name).is_dir() else folder
        if not folder.is_dir():
            raise DataError(f"There is no folder {folder} with the data set {name!r}.")
        config = folder / f"{name}.yaml"
        found = read_definition(config) if config.is_file() else known_definition(name)
        return cls(found, folder, _truth_folder(name, truth))

    @property
    def name(self) -> str:
        """Name of the data set."""
        return self.definition.name

    @property
    def pair_ids(self) -> list[int]:
        """Numbers of its pairs."""
        return [p.id for p in self.definition.pairs]

    def has_truth(self, number: int) -> bool:
        """Whether the test matrix of a pair is here."""
        return self._find(self.truth_folder, self.definition.pair(number).test) is not None

    def missing(self, number: int) -> list[str]:
        """Training files of a pair that are not here."""
        spec = self.definition.pair(number)
        wanted = (*spec.train, *((spec.init,) if spec.init else ()))
        return [name for name in wanted if self._find(self.folder / "train", name) is None]

    def pair(self, number: int) -> Pair:
        """Training matrices, burn-in and times of a pair.

        Raises
        ------
        DataError
            A file is missing, or its shape is not the defined one.
        """
        spec, d = self.definition.pair(number), self.definition
        if missing := self.missing(number):
            raise DataError(f"{self.name}, pair {number}: {', '.join(missing)} not found in {self.folder / 'train'}.")
        tags, tag = PARAMETERS.get(number, (None, None)) if spec.init else (None, None)
        return Pair(
            spec,
            tuple(self._read(self.folder / "train", name) for name in spec.train),
            self._read(self.folder / "train", spec.init) if spec.init else None,
            Times(
                tuple(d.times(name) for name in spec.train),
                d.times(spec.test),
                d.times(spec.init) if spec.init else None,
                d.delta_t,
                tags if tags is not None and len(tags) == len(spec.train) else None,
                tag,
            ),
            d,
        )

    def truth(self, number: int) -> Matrix:
        """Test matrix of a pair.

        Raises
        ------
        DataError
            It is hidden: there is no such file here.
        """
        name = self.definition.pair(number).test
        if not self.has_truth(number):
            raise DataError(f"The truth of {self.name}, pair {number} ({name}) is not in {self.truth_folder}.")
        return self._read(self.truth_folder, name)

    def score(self, number: int, prediction: Any, *, spectrum: scoring.Spectrum = "psd") -> dict[str, float]:
        """Scores E1 .. E12 of a pair, as far as it has them, not clipped.

        Raises
        ------
        DataError
            Another shape, type or numbers that are not finite; or the truth is hidden.
        """
        spec = self.definition.pair(number)
        what = f"{self.name}, pair {number}: the prediction"
        given = scoring.checked(prediction, self.definition.shapes[spec.test], what)
        truth = self.truth(number)
        return {
            score_name(number, metric): scoring.metric_score(metric, self.definition, truth, given, spectrum)
            for metric in spec.metrics
        }

    def _find(self, folder: Path, name: str) -> Path | None:
        if not isinstance(name, str) or Path(name).name != name or len(name) > 200 or "\0" in name:
            raise DataError(f"{self.name}: the definition names the file {name!r}, which is not a plain file name.")
        stem = Path(name).stem
        for candidate in (name, *(stem + suffix for suffix in SUFFIXES)):
            if (folder / candidate).is_file():
                return folder / candidate
        return None

    def _read(self, folder: Path, name: str) -> Matrix:
        path = self._find(folder, name)
        assert path is not None
        return _cached_matrix(path, self.definition.shapes.get(name), path.stat().st_mtime_ns)


def score_name(number: int, metric: str) -> str:
    """``E1`` .. ``E12``; for pairs beyond the nine ``pair-metric``."""
    known = scoring.E_OF.get((number, metric))
    return f"E{known}" if known else f"pair{number}_{metric}"


def score(pair: Pair, prediction: Any, truth: Any, *, spectrum: scoring.Spectrum = "psd") -> dict[str, float]:
    """Scores of a pair against a truth that one holds oneself."""
    given = scoring.checked(prediction, pair.shape)
    return {
        score_name(pair.id, metric): scoring.metric_score(metric, pair.definition, truth, given, spectrum)
        for metric in pair.spec.metrics
    }


def _truth_folder(name: str, truth: Path | str | None) -> Path | None:
    if truth is None:
        return None
    base = Path(truth).expanduser()
    for folder in (base / name / "test", base / "test", base / name, base):
        if folder.is_dir() and any(file.suffix in SUFFIXES for file in folder.iterdir()):
            return folder
    raise DataError(
        f"There are no test matrices of {name!r} in {base} (looked in {name}/test, test, {name} and itself)."
    )


@lru_cache(maxsize=8)
def _cached_matrix(path: Path, shape: tuple[int, int] | None, changed: int) -> Matrix:
    matrix = read_matrix(path)
    if shape is not None and matrix.shape != tuple(shape):
        turned = " (transposed: rows must be time)" if matrix.shape == tuple(shape)[::-1] else ""
        raise DataError(f"{path} has shape {matrix.shape}; its definition says {tuple(shape)}{turned}.")
    matrix.flags.writeable = False
    return matrix


def read_matrix(path: Path | str) -> Matrix:
    """The one matrix of a ``.npy``, ``.npz`` or ``.mat`` file, of real numbers.

    Raises
    ------
    DataError
        Several variables or none, objects, complex numbers, another number of dimensions, or not such a file.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    try:
        if suffix == ".npy":
            found = np.load(path, allow_pickle=False)
        elif suffix == ".npz":
            check_zip(path)
            with np.load(path, allow_pickle=False) as archive:
                names = archive.files
                found = archive[names[0]] if len(names) == 1 else None
        elif suffix == ".mat":
            from scipy.io import loadmat

            content = {key: value for key, value in loadmat(path).items() if not key.startswith("__")}
            names, found = list(content), next(iter(content.values())) if len(content) == 1 else None
        else:
            raise DataError(f"{path}: matrices are read from .npy, .npz and .mat files.")
    except (OSError, ValueError, EOFError, NotImplementedError, KeyError, TypeError) as error:
        if not path.is_file():
            raise DataError(f"There is no file {path}.") from None
        objects = " It holds Python objects, which are never loaded." if "pickle" in str(error).lower() else ""
        raise DataError(f"{path} cannot be read as a matrix ({type(error).__name__}).{objects}") from None
    except DataError:
        raise
    except Exception as error:
        # Damaged archives and headers raise what zipfile, zlib, tokenize and scipy like.
        raise DataError(f"{path} is damaged ({type(error).__name__}).") from None
    if found is None:
        raise DataError(f"{path} holds {len(names)} variables ({', '.join(names[:4])}); it must hold exactly one.")
    if not isinstance(found, np.ndarray):
        raise DataError(f"{path} holds no array.")
    if found.dtype == object or found.dtype.kind not in "fiub":
        raise DataError(f"{path} holds values of type {found.dtype}; it must be a matrix of real numbers.")
    if found.ndim != 2:
        raise DataError(f"{path} has {found.ndim} dimensions; it must be a matrix of rows (time) by sensors.")
    return found if found.dtype.kind == "f" else found.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Split:
    """What tuning trains on and is judged by: rows of the training data; never those of the test."""

    train: tuple[Matrix, ...]
    init: Matrix | None
    times: Times
    validation: Matrix


def validation_split(pair: Pair, train_split: float = 0.8) -> Split:
    """Split the training data of a pair as the framework does for tuning.

    Forecasts: the first ``int(train_split * rows)`` rows train, the rest validates. Reconstruction: validation is a
    copy of the training rows. Parametric pairs: the second (pair 8) or third (pair 9) matrix is held out whole, its
    first rows, as many as the burn-in has, serve as burn-in.
    """
    if not 0.0 < train_split < 1.0:
        raise UsageError(f"train_split must lie between 0 and 1 (both excluded); got {train_split}.")
    times = pair.times
    if pair.init is not None:
        held = {8: 1, 9: 2}.get(pair.id, len(pair.train) - 1)
        keep = [i for i in range(len(pair.train)) if i != held]
        burn = len(pair.init)
        tags = times.parameters
        return Split(
            tuple(pair.train[i] for i in keep),
            pair.train[held][:burn],
            Times(
                tuple(times.train[i] for i in keep),
                times.train[held],
                times.train[held][:burn],
                times.dt,
                tuple(tags[i] for i in keep) if tags else None,
                tags[held] if tags else None,
            ),
            pair.train[held],
        )
    (whole,), (when,) = pair.train, times.train
    if "reconstruction" in pair.spec.metrics:
        return Split((whole,), None, Times((when,), when, None, times.dt), whole.copy())
    rows = int(train_split * len(whole))
    if not 0 < rows < len(whole):
        raise UsageError(f"train_split={train_split} leaves no rows to train on or to validate with.")
    return Split((whole[:rows],), None, Times((when[:rows],), when[rows:], None, times.dt), whole[rows:])


def validation_scores(
    pair: Pair, split: Split, prediction: Any, *, spectrum: scoring.Spectrum = "psd", flexible_k: bool = True
) -> dict[str, float]:
    """Scores of a prediction of the held-out rows; ``flexible_k`` shortens k, with a warning, where they are few."""
    from dataclasses import replace

    rows, sensors = split.validation.shape
    d = pair.definition
    if flexible_k and (rows < max(d.k_short, d.k_long)):
        warnings.warn(f"Only {rows} rows to validate with: k is shortened to them.", stacklevel=2)
        d = replace(d, k_short=min(d.k_short, rows), k_long=min(d.k_long, rows))
    given = scoring.checked(prediction, (rows, sensors), "The prediction of the validation rows")
    return {m: scoring.metric_score(m, d, split.validation, given, spectrum) for m in pair.spec.metrics}


def fetch(name: str, into: Path | str, *, url: str, sha256: str) -> Path:
    """Fetch the published archive of a data set from the Open Science Framework and unpack it under ``into``.

    Parameters
    ----------
    url
        Download address of the archive's file in the project osf.io/6rzhm.
    sha256
        Of the archive, as its page states it.
    """
    from assay.core.datasets import download, unpack

    got = download(url, sha256=sha256)
    assert got.path is not None
    unpack(got.path, into)
    folder = Path(into) / name
    if not folder.is_dir():
        raise DataError(f"The archive at {url} holds no folder {name!r}.")
    return folder


def provenance(sets: Mapping[str, CTFDataset], made: Sequence[str]) -> dict[str, Any]:
    """Kinds, sources and fingerprints of data sets; those in ``made`` were generated here."""
    from assay.core.datasets import folder

    parts = {}
    for name, one in sets.items():
        got = folder(one.folder / "train", kind="generated" if name in made else "real", source=name)
        parts[name] = {**got.info(), "source": f"assay's generator {name!r}" if name in made else name}
    if len(parts) == 1:
        return next(iter(parts.values()))
    from assay.core.datasets import fingerprint

    kinds = {part["kind"] for part in parts.values()}
    return {
        "kind": kinds.pop() if len(kinds) == 1 else "real",
        "source": ", ".join(parts),
        "licence": "",
        "fingerprint": fingerprint([{"name": n, "fingerprint": p["fingerprint"]} for n, p in parts.items()]),
        "sets": parts,
    }
