"""Readers of data files: JSON lines, JSON, CSV, Parquet, Arrow; every fault names file, line, field and value."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from assay.core.errors import AssayError, DataError, MissingExtra, UsageError

if TYPE_CHECKING:
    import polars as pl

TABLE_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".feather", ".ipc")

MAX_BYTES = 8 << 30
"""Bytes that a file read as a whole may unpack to: a few kilobytes of gzip can hold more than a machine."""
MAX_LINE = 256 << 20
"""Bytes of one JSON line."""
_CHUNK = 1 << 20


class guarded:
    """Turn what a library or a conversion raises at malformed content into ``DataError``: where, what, why.

    For formats whose readers document no closed set of errors (HDF5, MATLAB, pictures, Arrow), and as the last net
    below checks of single fields. Errors of assay pass; one about data that does not name the place gets it in front.

    >>> with guarded(path, "an IDX file"):
    ...     shape = struct.unpack(">3I", head)

    Parameters
    ----------
    where
        Begins the message: a path, or ``"items.jsonl, line 7"``.
    what
        What it should be.
    """

    def __init__(self, where: Path | str, what: str) -> None:
        self.where, self.what = where, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, DataError | UsageError) and str(self.where) not in str(error):
            raise DataError(f"{self.where}: {error}") from error
        if error is None or isinstance(error, AssayError):
            return
        # Polars' panics are no Exceptions.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise DataError(f"{self.where} cannot be read as {self.what} ({reason(error)}).") from error


def reason(error: BaseException) -> str:
    """Kind and first line of an error, for a message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200].rstrip('.')}" if lines else type(error).__name__


def _suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def _open(path: Path) -> IO[bytes]:
    try:
        return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error


def shown(value: Any, width: int = 80) -> str:
    """A value for a message: JSON, cut at ``width``."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= width else text[: width - 3] + "..."


def listed(names: Iterable[Any], most: int = 12) -> str:
    """Names for a message: at most ``most``, each cut at 40 characters."""
    names = [str(name) for name in names]
    cut = [repr(name if len(name) <= 40 else name[:37] + "...") for name in names[:most]]
    return ", ".join(cut + ["..."] * (len(names) > most)) or "none"


def read_bytes(path: Path | str) -> bytes:
    """Content of a file, unpacked where it ends in ``.gz``.

    Raises
    ------
    DataError
        The file cannot be read, is damaged, or unpacks to more than `MAX_BYTES`.
    """
    path = Path(path)
    with _open(path) as stream:
        parts, size = [], 0
        try:
            while chunk := stream.read(_CHUNK):
                size += len(chunk)
                if size > MAX_BYTES:
                    raise DataError(f"{path} unpacks to more than {MAX_BYTES:,} bytes; nothing of it is used.")
                parts.append(chunk)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path}, after {size} bytes: the file is damaged ({reason(error)}).") from error
    return b"".join(parts)


def read_text(path: Path | str) -> str:
    """The text of a UTF-8 file (``.gz`` too), without a byte order mark.

    Raises
    ------
    DataError
        The file cannot be read, or is not UTF-8; the message names the line.
    """
    content = read_bytes(path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not UTF-8 ({error.reason} at byte {error.start}).") from None


def parse_json(text: str, where: Path | str) -> Any:
    """The value of a JSON text; numbers of thousands of digits and nesting without end are faults too.

    Raises
    ------
    DataError
        Not JSON; the message begins with ``where`` and names line and column.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = "" if ", line " in str(where) else f", line {error.lineno}"
        raise DataError(f"{where}{line}, column {error.colno}: not JSON ({error.msg}).") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON that can be read ({reason(error)}).") from None


def parse_yaml(text: str | bytes, where: Path | str, *, extra: str = "") -> list[Any]:
    """The documents of a YAML text: plain values only, and no aliases, which grow without end when they are printed.

    Parameters
    ----------
    extra
        Extra of assay that brings the parser.

    Raises
    ------
    DataError
        Not YAML, or it holds an alias or a tag of an object; the message names the line where the parser does.
    MissingExtra
        The parser is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise MissingExtra("Reading YAML", extra) from None

    class Plain(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.MarkedYAMLError(problem="aliases are not read", problem_mark=self.peek_event().start_mark)
            return super().compose_node(parent, index)

    try:
        return list(yaml.load_all(text, Plain))
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise DataError(f"{where}{line} cannot be read as YAML ({(error.problem or reason(error))[:200]}).") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DataError(f"{where} cannot be read as YAML ({reason(error)}).") from None


def read_yaml(path: Path | str, *, extra: str = "") -> Any:
    """The value of a YAML file of one document; see `parse_yaml`."""
    documents = parse_yaml(read_text(path), path, extra=extra)
    if len(documents) != 1:
        raise DataError(f"{path} holds {len(documents)} YAML documents; there must be one.")
    return documents[0]


def read_jsonl(path: Path | str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects of a JSON lines file (``.gz`` too) with their line numbers, from 1; blank lines are passed over.

    Raises
    ------
    DataError
        The file cannot be read, or a line is not UTF-8, not JSON, or not an object.
    """
    import msgspec

    path = Path(path)
    decode = msgspec.json.Decoder().decode
    with _open(path) as stream:
        number = 0
        try:
            while line := stream.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE:
                    raise DataError(f"{path}, line {number}: longer than {MAX_LINE:,} bytes.")
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if not line.strip():
                    continue
                try:
                    row = decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    text = line[:80].decode("utf-8", "replace").rstrip()
                    raise DataError(f"{path}, line {number}: not JSON ({error}): {text!r}.") from None
                if not isinstance(row, dict):
                    raise DataError(f"{path}, line {number}: a row must be a JSON object, not {shown(row)}.")
                yield number, row
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path}, after line {number}: the file is damaged ({reason(error)}).") from error


def read_json(path: Path | str) -> Any:
    """The value of a JSON file (``.gz`` too).

    Raises
    ------
    DataError
        The file cannot be read or is not JSON; the message names line and column.
    """
    return parse_json(read_text(path), path)


def read_rows(path: Path | str, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a CSV file with a header (``.gz`` too), as text, with their line numbers.

    Parameters
    ----------
    columns
        Names that the header must have.

    Raises
    ------
    DataError
        A column is missing or there twice, or a row is not as wide as the header; the message names the line.
    """
    reader = csv.reader(io.StringIO(read_text(path), newline=""))
    try:
        head = [name.strip() for name in next(reader, [])]
        for name in columns:
            if head.count(name) != 1:
                there = "missing" if name not in head else "there twice"
                raise DataError(f"{path}, line 1: column {name!r} is {there}; the header is {shown(head)}.")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(head):
                raise DataError(f"{path}, line {reader.line_num}: {len(cells)} cells under a header of {len(head)}.")
            yield reader.line_num, dict(zip(head, cells))
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not CSV ({error}).") from None


def require(row: Any, field: str, kind: type | tuple[type, ...], where: str) -> Any:
    """``row[field]``, of the wanted kind.

    Parameters
    ----------
    kind
        Type or types; True and False are no integers here.
    where
        Begins the message: ``"items.jsonl, line 7"``.

    Raises
    ------
    DataError
        The row is no object, the field is missing or of another kind; the message names where, field and value.
    """
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: there must be an object with the field {field!r}, not {shown(row)}.")
    if field not in row:
        raise DataError(f"{where}: field {field!r} is missing; there are {listed(row)}.")
    value = row[field]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = " or ".join("null" if k is type(None) else k.__name__ for k in kinds)
        raise DataError(f"{where}: field {field!r} is {shown(value)}, and must be {names}.")
    return value


def read_table(path: Path | str, split: str | None = None) -> pl.DataFrame:
    """A table from a file, or from a folder of one table.

    Parameters
    ----------
    path
        ``.jsonl``, ``.json`` (an array of objects, or an object of columns), ``.csv``, ``.tsv``, ``.parquet``,
        ``.arrow`` (stream or file), ``.gz`` of the text formats; or a folder: one that ``datasets.save_to_disk`` wrote,
        or files of one format that are read in the order of their names.
    split
        Which split of a folder; needed where there are several.

    Raises
    ------
    DataError
        Unreadable, of no known format, or several splits and none chosen.
    """
    path = Path(path)
    if path.is_dir():
        return _read_folder(path, split)
    if split is not None:
        raise UsageError(f"{path} is one file and has no split {split!r}.")
    return _read_file(path)


def _read_file(path: Path) -> pl.DataFrame:
    import polars as pl

    suffix = _suffix(path)
    if suffix not in TABLE_SUFFIXES:
        raise DataError(f"{path} is of no known format; there are {', '.join(TABLE_SUFFIXES)}.")
    if not path.is_file():
        raise DataError(f"{path} does not exist.")
    if suffix in (".jsonl", ".ndjson"):
        return _from_rows([row for _, row in read_jsonl(path)], path)
    if suffix == ".json":
        return _from_json(read_json(path), path)
    with guarded(path, suffix[1:]):
        if suffix == ".parquet":
            return pl.read_parquet(path)
        if suffix in (".csv", ".tsv"):
            separator = "," if suffix == ".csv" else "\t"
            return pl.read_csv(read_bytes(path), separator=separator, infer_schema_length=None)
        with path.open("rb") as stream:
            is_file = stream.read(6) == b"ARROW1"
        return pl.read_ipc(path) if is_file else pl.read_ipc_stream(path)


def _from_rows(rows: list[dict[str, Any]], path: Path) -> pl.DataFrame:
    import polars as pl

    kinds: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        for field, value in row.items():
            if value is not None and kinds.setdefault(field, kind := _kind(value)) != kind:
                raise DataError(
                    f"{path}, row {number}: field {field!r} is {shown(value)}, and was {kinds[field]} in the rows "
                    "before; a column must be of one type."
                )
    with guarded(path, "a table of rows"):
        return pl.from_dicts(rows, infer_schema_length=None) if rows else pl.DataFrame()


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    return {str: "text", list: "an array", dict: "an object"}.get(type(value), type(value).__name__)


def _from_json(value: Any, path: Path) -> pl.DataFrame:
    import polars as pl

    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return _from_rows(value, path)
    if isinstance(value, dict) and value and all(isinstance(column, list) for column in value.values()):
        lengths = {name: len(column) for name, column in value.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"{path}: the columns differ in length: {shown(lengths)}.")
        with guarded(path, "a table of columns"):
            return pl.DataFrame(value, strict=False)
    raise DataError(f"{path} is no table: it must be an array of objects or an object of arrays.")


def _read_folder(folder: Path, split: str | None) -> pl.DataFrame:
    import polars as pl

    if (folder / "dataset_dict.json").is_file():
        inside = folder / _one_split(saved_splits(folder), split, folder)
        if not inside.is_dir():
            raise DataError(f"{folder / 'dataset_dict.json'} names the split {inside.name!r}, which has no folder.")
        return _read_folder(inside, None)
    if (folder / "state.json").is_file():
        files = saved_files(folder)
    else:
        files = sorted(
            f for f in folder.iterdir() if f.is_file() and _suffix(f) in TABLE_SUFFIXES and f.name[0] not in "._"
        )
        files = [file for file in files if file.name not in ("manifest.json", "dataset_info.json")]
        splits = sorted({_split_of(file) for file in files})
        if files and (split is not None or len(splits) > 1):
            chosen = _one_split(splits, split, folder)
            files = [file for file in files if _split_of(file) == chosen]
    if not files:
        raise DataError(f"{folder} holds no data file; there should be one of {', '.join(TABLE_SUFFIXES)}.")
    if len({_suffix(file) for file in files}) > 1:
        raise DataError(
            f"{folder} holds files of several formats ({', '.join(f.name for f in files[:6])}); name one file."
        )
    frames = [_read_file(file) for file in files]
    with guarded(folder, "one table: its files differ in their columns"):
        return pl.concat(frames, how="vertical_relaxed")


def saved_splits(folder: Path) -> list[str]:
    """Splits of a folder that ``DatasetDict.save_to_disk`` wrote: names of folders inside it.

    Raises
    ------
    DataError
        ``dataset_dict.json`` is malformed, or a name would lead elsewhere.
    """
    where = str(folder / "dataset_dict.json")
    return [_plain_name(name, where, "splits") for name in require(read_json(where), "splits", list, where)]


def saved_files(folder: Path) -> list[Path]:
    """Data files of a folder that ``Dataset.save_to_disk`` wrote, in order.

    Raises
    ------
    DataError
        ``state.json`` is malformed, or a file's name would lead elsewhere.
    """
    where = str(folder / "state.json")
    listed = require(read_json(where), "_data_files", list, where)
    return [folder / _plain_name(require(entry, "filename", str, where), where, "filename") for entry in listed]


def _plain_name(name: Any, where: str, field: str) -> str:
    """A name inside a folder, as it is: no path, nothing hidden."""
    if not isinstance(name, str) or not 0 < len(name) <= 200 or name.startswith(".") or set(name) & set("/\\\0"):
        raise DataError(f"{where}: field {field!r} names {shown(name)}, which is not the plain name of a file inside.")
    return name


def _split_of(file: Path) -> str:
    """train-00000-of-00002.parquet and train.parquet belong to train."""
    return file.name.split(".")[0].split("-0")[0]


def _one_split(names: list[str], split: str | None, folder: Path) -> str:
    if split is None and len(names) == 1:
        return names[0]
    if split is None:
        raise DataError(f"{folder} holds several splits ({', '.join(names)}); choose one.")
    if split not in names:
        raise DataError(f"{folder} has no split {split!r}; there are {', '.join(names)}.")
    return split
