"""Printing: data on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from rich.console import Console


def out() -> Console:
    """Console for results."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def err() -> Console:
    """Console for progress and remarks."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say(text: str, *, quiet: bool = False) -> None:
    """One line on standard error; nobody may read it."""
    if not quiet:
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr)


def show_rows(title: str, rows: Sequence[Mapping[str, Any]], notes: Sequence[str] = ()) -> None:
    """Rows as a table that fits the terminal."""
    import polars as pl

    from assay.core.table import Table
    from assay.report.terminal import print_table

    print_table(Table("rows", title, pl.DataFrame(rows, infer_schema_length=None), notes), out())


def print_json(value: Any) -> None:
    """JSON on standard output; NaN and infinities, which JSON does not have, become null and text."""
    print(msgspec.json.format(msgspec.json.encode(plain(value)), indent=2).decode())


def plain(value: Any) -> Any:
    """A value of JSON's kinds."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    if isinstance(value, float):
        if value != value:
            return None
        return ("inf" if value > 0 else "-inf") if value in (float("inf"), float("-inf")) else value
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return str(value)
