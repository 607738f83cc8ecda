"""Definition of a data set: its nine pairs, shapes, places in time, parameters of the scores. As YAML and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from assay.core.datasets.readers import read_yaml
from assay.core.errors import DataError, UsageError, unknown_name

PARAMETERS = {8: ((1.0, 2.0, 4.0), 3.0), 9: ((1.0, 2.0, 3.0), 4.0)}
"""Tags of the parametric pairs: those of the training matrices, that of the test."""


@dataclass(frozen=True, slots=True)
class PairSpec:
    """Names of the files of a pair, and what it is scored by."""

    id: int
    train: tuple[str, ...]
    test: str
    metrics: tuple[str, ...]
    init: str | None = None


def standard_pairs(suffix: str) -> tuple[PairSpec, ...]:
    """The nine pairs, files ending in ``suffix``."""

    def x(number: int, kind: str) -> str:
        return f"X{number}{kind}.{suffix}"

    both, few = ("short_time", "long_time"), tuple(x(n, "train") for n in (6, 7, 8))
    return (
        PairSpec(1, (x(1, "train"),), x(1, "test"), both),
        PairSpec(2, (x(2, "train"),), x(2, "test"), ("reconstruction",)),
        PairSpec(3, (x(2, "train"),), x(3, "test"), ("long_time",)),
        PairSpec(4, (x(3, "train"),), x(4, "test"), ("reconstruction",)),
        PairSpec(5, (x(3, "train"),), x(5, "test"), ("long_time",)),
        PairSpec(6, (x(4, "train"),), x(6, "test"), both),
        PairSpec(7, (x(5, "train"),), x(7, "test"), both),
        PairSpec(8, few, x(8, "test"), ("short_time",), x(9, "train")),
        PairSpec(9, few, x(9, "test"), ("short_time",), x(10, "train")),
    )


@dataclass(frozen=True, slots=True)
class Definition:
    """All that is known of a data set without its matrices.

    Attributes
    ----------
    kind
        ``spatio-temporal`` or ``dynamical``.
    shapes, starts
        (rows, sensors) and index of the first row by file; a file without a start begins at 0.
    long_time
        ``spectral_L2_error`` or ``histogram_L2_error``.
    """

    name: str
    kind: str
    pairs: tuple[PairSpec, ...]
    shapes: Mapping[str, tuple[int, int]]
    starts: Mapping[str, int]
    delta_t: float
    long_time: str = "spectral_L2_error"
    k_short: int = 20
    k_long: int = 20
    modes: int = 100
    bins: int = 41
    visualizations: tuple[str, ...] = ("psd", "2d_comparison")
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def pair(self, number: int) -> PairSpec:
        """The pair of this number."""
        for pair in self.pairs:
            if pair.id == number:
                return pair
        raise UsageError(f"Data set {self.name!r} has no pair {number}; there are {[p.id for p in self.pairs]}.")

    def times(self, file: str) -> Any:
        """Time of each row of a file: (start + row) x delta_t, shape (rows,)."""
        import numpy as np

        if file not in self.shapes:
            raise DataError(f"{self.name}: the definition gives no shape for {file}.")
        start = self.starts.get(file, 0)
        return (start + np.arange(self.shapes[file][0])) * self.delta_t

    def config(self) -> dict[str, Any]:
        """As the official YAML holds it (with both keys of k)."""
        params: dict[str, Any] = {"k": self.k_short, "k_short": self.k_short, "k_long": self.k_long}
        params["modes"] = self.modes
        if self.long_time == "histogram_L2_error":
            params["bins"] = self.bins
        widths = list(dict.fromkeys(shape[1] for shape in self.shapes.values()))
        return {
            "type": self.kind,
            "evaluation_params": params,
            "pairs": [
                {"id": p.id, "train": list(p.train), "test": p.test}
                | ({"initialization": p.init} if p.init else {})
                | {"metrics": list(p.metrics)}
                for p in self.pairs
            ],
            "metadata": {
                "delta_t": self.delta_t,
                "spatial_dimension": widths[0] if len(widths) == 1 else widths,
                "matrix_shapes": {name: list(shape) for name, shape in self.shapes.items()},
                "matrix_start_index": {name: self.starts.get(name, 0) for name in self.shapes},
                **self.metadata,
            },
            "evaluations": {"long_time": self.long_time},
            "visualizations": list(self.visualizations),
        }


def define(
    name: str,
    *,
    widths: Sequence[int],
    rows: Sequence[int],
    starts: Sequence[int],
    delta_t: float,
    suffix: str = "npz",
    long_time: str = "spectral_L2_error",
    metadata: Mapping[str, Any] | None = None,
    **scores: int,
) -> Definition:
    """A definition from a few numbers; see ``datasets.toml`` for their order."""
    long, few, ahead = rows
    near, wide = widths
    shapes = {f"X{n}train": (long if n in (1, 2, 3, 6, 7, 8) else few, near if n < 6 else wide) for n in range(1, 11)}
    shapes |= {f"X{n}test": (long if n in (2, 4) else ahead, near if n < 8 else wide) for n in range(1, 10)}
    begin = dict.fromkeys(("X4train", "X5train"), starts[0]) | dict.fromkeys(("X9train", "X10train"), starts[1])
    begin |= dict.fromkeys(("X6test", "X7test"), starts[2])
    begin |= dict.fromkeys(("X1test", "X3test", "X5test", "X8test", "X9test"), starts[3])
    dynamical = long_time == "histogram_L2_error"
    return Definition(
        name,
        "dynamical" if dynamical else "spatio-temporal",
        standard_pairs(suffix),
        {f"{key}.{suffix}": shape for key, shape in shapes.items()},
        {f"{key}.{suffix}": start for key, start in begin.items()},
        delta_t,
        long_time,
        visualizations=("trajectories", "histograms") if dynamical else ("psd", "2d_comparison"),
        metadata=metadata or {},
        **scores,
    )


@cache
def _registry() -> dict[str, dict[str, Any]]:
    import tomllib

    return tomllib.loads(Path(__file__).with_name("datasets.toml").read_text(encoding="utf-8"))


def known_datasets() -> dict[str, str]:
    """Titles of the data sets that are defined here, by name."""
    return {name: entry["title"] for name, entry in _registry().items()}


def known_definition(name: str) -> Definition:
    """The definition of a known data set."""
    if name not in _registry():
        raise unknown_name("data set", name, _registry())
    return define(name, **{key: value for key, value in _registry()[name].items() if key != "title"})


def read_definition(path: Path | str) -> Definition:
    """A definition from the official YAML (keys ``k`` or ``k_short`` and ``k_long``).

    Raises
    ------
    DataError
        A field is missing or of another kind; file and field are named.
    """
    path = Path(path)
    return from_config(path.stem, read_yaml(path, extra="seismic_ctf"), str(path))


def from_config(name: str, content: Any, where: str) -> Definition:
    """A definition from the content of the official YAML."""

    def need(holder: Any, key: str, kind: type | tuple[type, ...], place: str) -> Any:
        if not isinstance(holder, dict) or key not in holder:
            raise DataError(f"{where}: field {place}{key} is missing.")
        value = holder[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise DataError(f"{where}: field {place}{key} has the value {value!r:.80}, which is of another kind.")
        return value

    params = need(content, "evaluation_params", dict, "")
    k = params.get("k")
    k_short, k_long = params.get("k_short", k), params.get("k_long", k)
    numbers = {"k_short": k_short, "k_long": k_long, "modes": params.get("modes", 100), "bins": params.get("bins", 41)}
    for key, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise DataError(
                f"{where}: field evaluation_params.{key} must be a whole number of at least 1, not {value!r}."
            )
    pairs = []
    for number, entry in enumerate(need(content, "pairs", list, "")):
        place = f"pairs[{number}]."
        train = need(entry, "train", (list, str), place)
        if isinstance(train, list) and not all(isinstance(file, str) for file in train):
            raise DataError(f"{where}: field {place}train must name files, not {train!r:.80}.")
        pairs.append(
            PairSpec(
                need(entry, "id", int, place),
                tuple(train if isinstance(train, list) else [train]),
                need(entry, "test", str, place),
                tuple(need(entry, "metrics", list, place)),
                entry.get("initialization"),
            )
        )
    metadata = need(content, "metadata", dict, "")
    shapes = {}
    for file, shape in need(metadata, "matrix_shapes", dict, "metadata.").items():
        sizes = isinstance(shape, list) and all(isinstance(n, int) and 0 < n < 2**31 for n in shape)
        if not sizes or len(shape) != 2:
            raise DataError(f"{where}: metadata.matrix_shapes.{file} must be [rows, sensors], not {shape!r}.")
        shapes[file] = (shape[0], shape[1])
    starts = need(metadata, "matrix_start_index", dict, "metadata.")
    for file, start in starts.items():
        if not isinstance(start, int) or isinstance(start, bool) or abs(start) > 2**53:
            raise DataError(f"{where}: metadata.matrix_start_index.{file} must be a whole number, not {start!r:.80}.")
    shown = content.get("visualizations") or []
    if not isinstance(shown, list):
        raise DataError(f"{where}: field visualizations must be a list, not {shown!r:.80}.")
    known = ("delta_t", "spatial_dimension", "matrix_shapes", "matrix_start_index")
    return Definition(
        name,
        need(content, "type", str, ""),
        tuple(pairs),
        shapes,
        dict(starts),
        float(need(metadata, "delta_t", (int, float), "metadata.")),
        need(need(content, "evaluations", dict, ""), "long_time", str, "evaluations."),
        visualizations=tuple(shown),
        metadata={key: value for key, value in metadata.items() if key not in known},
        **numbers,
    )


def parse_pairs(text: Any, available: Sequence[int]) -> list[int]:
    """Pair numbers from ``all`` or None, a number (also as text), ``1-3``, ``1,4-6`` or a list, in the order given.

    Raises
    ------
    UsageError
        Not in one of these forms, a reversed range, or a pair that the data set does not have.
    """
    if text is None or text == "all":
        return list(available)
    parts = text if isinstance(text, (list, tuple)) else str(text).split(",")
    found: list[int] = []
    for part in parts:
        low, dash, high = str(part).strip().partition("-")
        if isinstance(part, bool) or not low.isdigit() or (dash and not high.isdigit()):
            raise UsageError(f"Pairs are given as all, 3, 1-3 or a list of these; got {text!r}.")
        numbers = range(int(low), int(high if dash else low) + 1)
        if not numbers:
            raise UsageError(f"The range of pairs {part!r} runs backwards; write {high}-{low}.")
        found += numbers
    if missing := [n for n in found if n not in available]:
        raise UsageError(f"Pair {missing[0]} is not in this data set; there are {list(available)}.")
    return list(dict.fromkeys(found))
