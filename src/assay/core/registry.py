"""Benchmarks by name. Built-in and third-party ones alike are entry points of the group ``assay.benchmarks``."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.util
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import PurePath
from typing import Any, get_args, get_origin

from assay.core.benchmark import Benchmark
from assay.core.errors import MissingExtra, UsageError, unknown_name

GROUP = "assay.benchmarks"


def benchmark_entries() -> dict[str, EntryPoint]:
    """Entry points of all installed benchmarks by name, nothing imported."""
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name)}


def benchmark_class(name: str, entries: Mapping[str, EntryPoint] | None = None) -> type[Benchmark]:
    """Class of the benchmark called ``name``; only its module is imported. ``entries`` spares a look at packages."""
    if entries is None:
        entries = benchmark_entries()
    if name not in entries:
        raise unknown_name("benchmark", name, entries)
    try:
        found = entries[name].load()
    except ModuleNotFoundError as error:
        if error.name and not error.name.startswith("assay"):
            raise MissingExtra(f"Benchmark {name!r} ({error.name} is missing)", name) from error
        raise
    if not (isinstance(found, type) and issubclass(found, Benchmark)):
        raise UsageError(f"Entry point {name!r} ({entries[name].value}) is not a Benchmark class; mend that package.")
    return found


def benchmark_facts(name: str, entries: Mapping[str, EntryPoint]) -> tuple[str, tuple[str, ...]]:
    """(title, extras) of a benchmark, read from its source where they are literals; its module is imported only if not.

    A list of all benchmarks so costs a few milliseconds each, whatever their modules import.
    """
    entry = entries[name]
    with contextlib.suppress(ImportError, AttributeError, OSError, SyntaxError, ValueError):
        spec = importlib.util.find_spec(entry.module)
        source = spec.loader.get_source(entry.module)  # pyright: ignore[reportOptionalMemberAccess,reportAttributeAccessIssue]
        (found,) = (n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == entry.attr)
        facts = {}
        for node in found.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                if isinstance(target, ast.Name) and target.id in ("title", "extras"):
                    facts[target.id] = ast.literal_eval(node.value)  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(facts.get("title"), str) and isinstance(facts.get("extras"), tuple):
            return facts["title"], facts["extras"]
    cls = benchmark_class(name, entries)
    return cls.title, tuple(cls.extras)


def load_benchmark(name: str, **options: Any) -> Benchmark:
    """The benchmark called ``name`` with its options, checked before any work.

    Raises
    ------
    UsageError
        Unknown benchmark or option, or a value of the wrong type; with the nearest right name.
    MissingExtra
        A package that the benchmark needs is not installed.
    """
    cls = benchmark_class(name)
    typed = typed_options(cls, options, f"benchmark {name!r}")
    benchmark = cls(**typed)
    benchmark.options = typed
    return benchmark


def resolve(reference: Callable[..., Any] | str) -> Callable[..., Any]:
    """A function, or the function behind ``"module:function"``."""
    if callable(reference):
        return reference
    module, _, attribute = reference.partition(":")
    return getattr(importlib.import_module(module), attribute)


def signature_options(fn: Callable[..., Any], skip: int = 0) -> dict[str, inspect.Parameter]:
    """Keyword options of a function or class, without its first ``skip`` parameters and self."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return {}
    usable = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return {p.name: p for p in usable[skip:]}


def typed_options(fn: Callable[..., Any], options: Mapping[str, Any], what: str, skip: int = 0) -> dict[str, Any]:
    """Options checked against a signature; text (from the command line) becomes the annotated type.

    Raises
    ------
    UsageError
        One sentence with the option, the value and what it should be.
    """
    known = signature_options(fn, skip)
    hints = type_hints(fn)
    typed = {}
    for name, value in options.items():
        if name not in known:
            raise unknown_name(f"option of {what}", name, known)
        typed[name] = convert(value, hints.get(name, Any), f"option {name!r} of {what}")
    return typed


def type_hints(fn: Callable[..., Any]) -> dict[str, Any]:
    """Annotations of a function or of a class's ``__init__``; those of a TYPE_CHECKING block are left out."""
    target = fn.func if isinstance(fn, functools.partial) else fn
    target = inspect.unwrap(target.__init__ if isinstance(target, type) else target)
    found = {}
    for name, annotation in getattr(target, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        with contextlib.suppress(NameError, TypeError, AttributeError):
            found |= typing.get_type_hints(holder, globalns=getattr(target, "__globals__", {}))
    return found


def convert(value: Any, hint: Any, where: str) -> Any:
    """``value`` as the annotated type; text is read, other values are checked."""
    origin = get_origin(hint)
    if hint is Any or hint is inspect.Parameter.empty:
        return value
    if origin in (typing.Union, types.UnionType):
        choices = [h for h in get_args(hint) if h is not type(None)]
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null") and str not in choices):
            return None
        # Text last: "5" for `int | str` is a number.
        for choice in sorted(choices, key=lambda h: h is str):
            try:
                return convert(value, choice, where)
            except UsageError:
                continue
        raise UsageError(f"{where} must be {' or '.join(_shown(h) for h in choices)}, not {value!r}.")
    if origin is typing.Literal:
        allowed = get_args(hint)
        for choice in allowed:
            if value == choice or str(value) == str(choice):
                return choice
        raise UsageError(f"{where} must be one of {', '.join(map(str, allowed))}, not {value!r}.")
    if origin in (list, tuple, set, frozenset) or (
        isinstance(origin, type) and issubclass(origin, typing.Collection) and origin is not dict
    ):
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        inner = (get_args(hint) or (Any,))[0]
        items = [convert(v, inner, where) for v in value]
        return tuple(items) if origin is not list else items
    if hint is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "yes", "on", "1", "false", "no", "off", "0"):
            return value.lower() in ("true", "yes", "on", "1")
        raise UsageError(f"{where} must be true or false, not {value!r}.")
    if hint in (int, float):
        try:
            if isinstance(value, bool):
                raise ValueError
            number = hint(value)
            if hint is int and not isinstance(value, str) and number != value:
                raise ValueError
            return number
        except (TypeError, ValueError):
            raise UsageError(f"{where} must be {_shown(hint)}, not {value!r}.") from None
    if hint is str:
        if isinstance(value, str):
            return value
        raise UsageError(f"{where} must be text, not {value!r}.")
    if isinstance(hint, type) and issubclass(hint, PurePath):
        return hint(value)
    return value


def _shown(hint: Any) -> str:
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(
        hint, getattr(hint, "__name__", str(hint))
    )
