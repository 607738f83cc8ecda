"""Makers: data sets from one format to another, and a report on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import UsageError, unknown_name

_FORMATS = ("h5", "csv", "parquet", "ts")


def convert(
    out: Path,
    *,
    dataset: str | None = None,
    source: str | None = None,
    csv: str | None = None,
    columns: tuple[str, ...] = ("ts_id", "signal_id", "time_id", "value_id"),
    static: tuple[str, ...] = (),
    dates: bool = False,
    format: Literal["h5", "csv", "parquet", "ts"] = "h5",
) -> None:
    """A data set, or a long CSV file of the user's, in another format.

    Parameters
    ----------
    dataset, source
        As of `load_dataset`: a folder of original files becomes a published file.
    csv
        A long CSV file instead.
    columns
        Its series, signal, time and value columns.
    static
        Its columns with one value a series.
    dates
        Times are dates or epoch seconds.
    format
        ``h5`` (published layout), ``csv``, ``parquet`` or ``ts``.
    """
    from assay.learning.irregular import data, files, readers, tsfile

    if (dataset is None) == (csv is None):
        raise UsageError("Give either dataset= (a name) or csv= (a file).")
    if format not in _FORMATS:
        raise unknown_name("format", format, _FORMATS)
    if csv is not None:
        if len(columns) != 4:
            raise UsageError(f"columns names four columns (series, signal, time, value), not {len(columns)}.")
        array = readers.read_csv(csv, *columns, dims={"ts_id": static}, time_index_as_datetime=dates)
        name = Path(csv).stem
    else:
        name = str(dataset)
        array = data.load_dataset(name, source)
    target = out / f"{name}.{format}"
    writers: dict[str, Any] = {
        "h5": files.write_hdf5, "csv": readers.write_csv, "parquet": readers.write_parquet, "ts": tsfile.write_ts,
    }  # fmt: skip
    writers[format](array, target)


def describe(out: Path, *, datasets: str = "offline", source: str | None = None) -> None:
    """Statistics, regularity and faults of data sets: ``datasets.csv`` and ``report.md``."""
    import polars as pl

    from assay.learning.irregular.benchmark import Irregular
    from assay.learning.irregular.data import load_dataset
    from assay.learning.irregular.describing import report, statistics

    rows, parts = [], ["# Data sets", ""]
    for name in Irregular(datasets, source).datasets:
        array = load_dataset(name, source)
        row = statistics(array, name)
        rows.append({k: json.dumps(v) if isinstance(v, (dict, list)) else v for k, v in row.items()})
        parts += [report(array, name), ""]
    pl.DataFrame(rows, infer_schema_length=None).write_csv(out / "datasets.csv")
    (out / "report.md").write_text("\n".join(parts), encoding="utf-8")


def template(out: Path, *, dataset: str = "mine") -> None:
    """A data set of your own to begin with: ``NAME.csv`` with example rows, ``NAME.yaml`` with every field.

    Then: ``assay make irregular check -o datasets=NAME -o source=FOLDER`` and
    ``assay run irregular -s method:knn -o datasets=NAME -o source=FOLDER``.

    Parameters
    ----------
    dataset
        Its name.
    """
    from assay.learning.irregular.own import write_template

    if not dataset.replace("_", "").replace("-", "").isalnum():
        raise UsageError(f"dataset={dataset!r} must be letters, digits, - and _.")
    write_template(out, dataset)


def check(out: Path, *, datasets: str = "offline", source: str | None = None) -> None:
    """Whether data sets keep the rules of the repository; ends in an error where one does not.

    Writes ``faults.csv``, a line a fault: what keeps a set from being used, and series on both sides of a split.

    Parameters
    ----------
    datasets, source
        As of the benchmark.
    """
    import polars as pl

    from assay.core.errors import DataError
    from assay.learning.irregular.benchmark import Irregular
    from assay.learning.irregular.checks import problems
    from assay.learning.irregular.data import load_dataset
    from assay.learning.irregular.describing import leaks

    names = Irregular(datasets, source).datasets
    rows = []
    for name in names:
        array = load_dataset(name, source)
        faults = problems(array)
        rows += [{"dataset": name, "fault": fault} for fault in [*faults, *([] if faults else leaks(array))]]
    pl.DataFrame(rows, schema={"dataset": pl.String, "fault": pl.String}).write_csv(out / "faults.csv")
    if rows:
        raise DataError(
            f"{len(rows)} faults in {len({r['dataset'] for r in rows})} of {len(names)} data sets, first: "
            f"{rows[0]['dataset']}: {rows[0]['fault']} All are in {out / 'faults.csv'}."
        )
