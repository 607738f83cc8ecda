"""The published coding of a suite's tests: base64 of zlib of a pickled JSON text."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Iterable
from typing import Any

from assay.code.hardtests.problem import Case
from assay.core.errors import DataError

LARGEST = 1 << 30
"""Bytes that a field may unpack to: a few kilobytes of zlib can hold more than a machine."""


class _TextOnly(pickle.Unpickler):
    """Unpickles numbers and texts; names no class and calls no function."""

    def find_class(self, module: str, name: str) -> Any:
        raise DataError(f"Field test_cases asks for {module}.{name}; only a pickled text is read, nothing is called.")

    def persistent_load(self, pid: Any) -> Any:
        raise DataError("Field test_cases holds a persistent id; only a pickled text is read.")


def encode_cases(cases: Iterable[Case]) -> str:
    """Tests as one text field."""
    text = json.dumps([{"input": case.input, "output": case.output} for case in cases])
    return base64.b64encode(zlib.compress(pickle.dumps(text))).decode("ascii")


def decode_cases(field: str, where: str = "") -> list[Case]:
    """Tests of a text field.

    Parameters
    ----------
    where
        File and line, for the error.

    Raises
    ------
    DataError
        Not that coding, more than 1 GiB, or a pickle of anything but a text.
    """
    at = f"{where}: " if where else ""
    try:
        unzip = zlib.decompressobj()
        packed = unzip.decompress(base64.b64decode(field, validate=True), LARGEST)
        if unzip.unconsumed_tail:
            raise DataError(f"{at}field test_cases unpacks to more than {LARGEST:,} bytes.")
        text = _TextOnly(io.BytesIO(packed)).load()
    except DataError as error:
        raise DataError(f"{at}{error}" if at and not str(error).startswith(at) else str(error)) from None
    except (binascii.Error, zlib.error, pickle.UnpicklingError, ValueError, EOFError, IndexError, KeyError,
            AttributeError, TypeError, MemoryError, OverflowError) as error:  # fmt: skip
        raise DataError(f"{at}field test_cases is not base64 of zlib of a pickled text ({error}).") from None
    if not isinstance(text, str):
        raise DataError(f"{at}field test_cases holds a pickled {type(text).__name__}; only a text is read.")
    try:
        rows = json.loads(text)
        return [case_of(row) for row in rows]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"{at}field test_cases is not a list of tests with input and output ({error}).") from None


def case_of(row: Any) -> Case:
    """A test from ``{"input": text, "output": text or null}``."""
    given, wanted = row["input"], row["output"]
    if not isinstance(given, str) or not (wanted is None or isinstance(wanted, str)):
        raise TypeError("input and output of a test are texts")
    return Case(given, wanted)
