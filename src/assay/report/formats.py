"""How a value is written: one rule for terminals, pages, files and the text beside a mark."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from assay.core.errors import DataError
from assay.core.table import Table

MISSING = "–"

# Bidirectional controls can make a line of text read as another one, so they count as control characters here.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Replace control characters by visible ones (escape becomes ``␛``); newlines and tabs stay."""
    return _CONTROL.sub(_picture, text.replace("\r\n", "\n"))


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "�"


def one_line(text: str, limit: int | None = None) -> str:
    """Text on one line without control characters, cut with an ellipsis at ``limit`` characters."""
    flat = " ".join(visible(text).split())
    return flat if limit is None or len(flat) <= limit else flat[: limit - 1] + "…"


def format_value(value: Any, spec: str | None = None) -> str:
    """Write one value.

    Parameters
    ----------
    value
        Anything a cell can hold.
    spec
        Python format specification for numbers; None = whole numbers in full, others ``.4g``.

    Raises
    ------
    ValueError
        The specification does not fit the value.
    """
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return format(value, spec) if spec else str(value)
    if isinstance(value, float):
        return _number(value, spec)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}" + (" UTC" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return duration(value.total_seconds())
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list | tuple):
        return ", ".join(format_value(item, spec) for item in value)
    if isinstance(value, Mapping):
        return visible(json.dumps(value, ensure_ascii=False, default=str))
    return visible(str(value))


def _number(value: float, spec: str | None) -> str:
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = format(value, spec or ".4g")
    if "e-0" in text:
        # 0.00002 is read at a glance, 2e-05 is not.
        text = format(Decimal(text), "f")
    # A typographic minus is as wide as a digit, and "-0.000" says nothing.
    if text.startswith("-"):
        return text[1:] if not re.search("[1-9]", text) else "−" + text[1:]
    return text


def format_cell(table: Table, column: str, value: Any) -> str:
    """Write one cell of a table by the table's own format for that column."""
    spec = table.formats.get(column)
    try:
        return format_value(value, spec)
    except ValueError:
        raise DataError(
            f"Table {table.name!r} formats column {column!r} as {spec!r}, which does not fit the value {value!r}; "
            "give a Python format specification for that type."
        ) from None


def duration(seconds: float | None) -> str:
    """A duration to read: ``850 ms``, ``12.3 s``, ``4 min 05 s``, ``2 h 03 min``."""
    if seconds is None or math.isnan(seconds):
        return MISSING
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"


def dollars(usd: float | None) -> str:
    """An amount of money with the digits that matter: ``$0.00042``, ``$1.35``, ``$1,204``."""
    if usd is None or math.isnan(usd):
        return MISSING
    if usd == 0:
        return "$0"
    if usd >= 100:
        return f"${usd:,.0f}"
    if usd >= 0.1:
        return f"${usd:.2f}"
    return f"${usd:.2g}" if usd >= 1e-4 else f"${usd:.1e}"
