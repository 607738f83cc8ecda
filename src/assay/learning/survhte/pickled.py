"""Published pickles, read without running them: plain values and NumPy arrays come out, anything else is refused.

A pickle is a small program, and Python's own reader calls whatever the program names. This one walks the instructions
and knows only containers, numbers, text and the three ways in which NumPy writes arrays; names are compared, never
imported.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.errors import DataError

_MARK = object()


@dataclass(frozen=True, slots=True)
class _Name:
    """Something the program names; never imported."""

    module: str
    name: str

    @property
    def text(self) -> str:
        """In NumPy's present spelling."""
        return f"{self.module.replace('numpy._core', 'numpy.core')}.{self.name}"


@dataclass(slots=True)
class _Dtype:
    """A data type under construction: its state (byte order) comes later."""

    code: str
    order: str = "|"

    def made(self) -> np.dtype:
        dtype = np.dtype(self.code)
        if dtype.hasobject:
            raise _Refused("an array of Python objects")
        return dtype.newbyteorder(self.order) if self.order in "<>" else dtype  # type: ignore[arg-type]


@dataclass(slots=True)
class _Array:
    """An array under construction: shape and bytes come later."""

    value: np.ndarray | None = None


class _Refused(Exception):
    pass


@dataclass(slots=True)
class _Reader:
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def since_mark(self) -> list[Any]:
        at = len(self.stack) - 1 - next(i for i, one in enumerate(reversed(self.stack)) if one is _MARK)
        found = self.stack[at + 1 :]
        del self.stack[at:]
        return found

    def read(self, content: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(content):
            name = opcode.name
            if name in _VALUES:
                self.stack.append(argument)
            elif name in _STEPS:
                _STEPS[name](self, argument)
            elif name == "STOP":
                return finished(self.stack.pop(), {})
            elif name not in ("PROTO", "FRAME"):
                raise _Refused(f"the instruction {name}")
        raise _Refused("no end")


def _put(reader: _Reader, argument: Any) -> None:
    reader.memo[len(reader.memo) if argument is None else int(argument)] = reader.stack[-1]


def _append(reader: _Reader, argument: Any) -> None:
    value = reader.stack.pop()
    reader.stack[-1].append(value)


def _appends(reader: _Reader, argument: Any) -> None:
    values = reader.since_mark()
    reader.stack[-1].extend(values)


def _set_item(reader: _Reader, argument: Any) -> None:
    value, key = reader.stack.pop(), reader.stack.pop()
    reader.stack[-1][finished(key, {})] = value


def _set_items(reader: _Reader, argument: Any) -> None:
    values = reader.since_mark()
    reader.stack[-1].update({finished(key, {}): value for key, value in zip(values[::2], values[1::2], strict=True)})


def _dict(reader: _Reader, argument: Any) -> None:
    values = reader.since_mark()
    reader.stack.append({finished(key, {}): value for key, value in zip(values[::2], values[1::2], strict=True)})


def _last(count: int) -> Callable[[_Reader, Any], None]:
    def step(reader: _Reader, argument: Any) -> None:
        values = tuple(reader.stack[len(reader.stack) - count :])
        del reader.stack[len(reader.stack) - count :]
        reader.stack.append(values)

    return step


def _global(reader: _Reader, argument: str) -> None:
    module, _, name = argument.partition(" ")
    reader.stack.append(_Name(module, name))


def _stack_global(reader: _Reader, argument: Any) -> None:
    name, module = reader.stack.pop(), reader.stack.pop()
    reader.stack.append(_Name(str(module), str(name)))


def _reduce(reader: _Reader, argument: Any) -> None:
    values, what = reader.stack.pop(), reader.stack.pop()
    if not isinstance(what, _Name):
        raise _Refused("a call of something that is no name")
    reader.stack.append(_made(what.text, values))


def _made(name: str, values: tuple[Any, ...]) -> Any:
    """What NumPy's own functions would give; the list is closed."""
    if name == "_codecs.encode" and values[1:] in ((), ("latin1",)):
        return values[0].encode("latin1")
    if name == "__builtin__.bytes" and not values:
        return b""
    if name == "numpy.dtype":
        return _Dtype(str(values[0]))
    if name == "numpy.core.multiarray.scalar":
        return np.frombuffer(values[1], values[0].made())[0].item()
    if name == "numpy.core.multiarray._reconstruct":
        return _Array()
    if name == "numpy.core.numeric._frombuffer":
        buffer, dtype, shape, order = values
        return _Array(np.frombuffer(bytes(buffer), dtype.made()).reshape(shape, order=order).copy())
    if name in ("collections.OrderedDict", "collections.defaultdict", "builtins.dict") and len(values) < 2:
        return {}
    raise _Refused(name)


def _build(reader: _Reader, argument: Any) -> None:
    state = reader.stack.pop()
    what = reader.stack[-1]
    if isinstance(what, _Dtype):
        what.order = str(state[1])
    elif isinstance(what, _Array) and len(state) == 5:
        _, shape, dtype, fortran, content = state
        if not isinstance(content, bytes):
            raise _Refused("an array of Python objects")
        what.value = np.frombuffer(content, dtype.made()).reshape(shape, order="F" if fortran else "C").copy()
    else:
        raise _Refused(f"the state of {type(what).__name__}")


_VALUES = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "BINBYTES", "BINBYTES8", "SHORT_BINBYTES", "BYTEARRAY8", "UNICODE", "BINUNICODE", "BINUNICODE8",
    "SHORT_BINUNICODE",
}  # fmt: skip
_STEPS: dict[str, Callable[[_Reader, Any], Any]] = {
    "MARK": lambda r, a: r.stack.append(_MARK),
    "POP": lambda r, a: r.stack.pop() and None,
    "POP_MARK": lambda r, a: r.since_mark() and None,
    "NONE": lambda r, a: r.stack.append(None),
    "NEWTRUE": lambda r, a: r.stack.append(True),
    "NEWFALSE": lambda r, a: r.stack.append(False),
    "EMPTY_LIST": lambda r, a: r.stack.append([]),
    "EMPTY_DICT": lambda r, a: r.stack.append({}),
    "EMPTY_TUPLE": lambda r, a: r.stack.append(()),
    "LIST": lambda r, a: r.stack.append(r.since_mark()),
    "TUPLE": lambda r, a: r.stack.append(tuple(r.since_mark())),
    "DICT": _dict,
    "TUPLE1": _last(1),
    "TUPLE2": _last(2),
    "TUPLE3": _last(3),
    "APPEND": _append,
    "APPENDS": _appends,
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "MEMOIZE": _put,
    "PUT": _put,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "GET": lambda r, a: r.stack.append(r.memo[int(a)]),
    "BINGET": lambda r, a: r.stack.append(r.memo[int(a)]),
    "LONG_BINGET": lambda r, a: r.stack.append(r.memo[int(a)]),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "BUILD": _build,
}


def finished(value: Any, done: dict[int, Any]) -> Any:
    """With arrays in place of what they were built from; what is shared stays shared, so that it costs once."""
    if isinstance(value, _Array):
        if value.value is None:
            raise _Refused("an array without content")
        return value.value
    if isinstance(value, _Dtype | _Name) or value is _MARK:
        raise _Refused(value.text if isinstance(value, _Name) else "a loose part")
    if not isinstance(value, tuple | list | dict):
        return value
    if id(value) in done:
        if done[id(value)] is _MARK:
            raise _Refused("a container that holds itself")
        return done[id(value)]
    done[id(value)] = _MARK
    if isinstance(value, dict):
        result: Any = {key: finished(one, done) for key, one in value.items()}
    else:
        result = type(value)(finished(one, done) for one in value)
    done[id(value)] = result
    return result


def read_pickled(content: bytes, where: Path | str) -> Any:
    """Containers, numbers, text and arrays of a pickle.

    Parameters
    ----------
    where
        What messages name.

    Raises
    ------
    DataError
        It is cut off, or holds something else than plain values and arrays of numbers.
    """
    try:
        return _Reader().read(content)
    except _Refused as refused:
        raise DataError(
            f"{where} holds {refused}; of pickles only plain values and arrays of numbers are read, and nothing in "
            "them is run."
        ) from None
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, StopIteration, RecursionError) as error:
        raise DataError(f"{where} is no whole pickle ({type(error).__name__}).") from None
