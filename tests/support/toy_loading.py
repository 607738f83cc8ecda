"""Names to toy systems, for tests of the ground floor alone."""

from __future__ import annotations

from typing import Any

from assay.core.registry import typed_options


def load(name: str, *, benchmark: Any = None, role: str = "subject") -> Any:
    """``method:NAME`` of the benchmark at hand, ``NAME?key=value`` for its options."""
    plain, _, query = name.removeprefix("method:").partition("?")
    options = dict(pair.split("=", 1) for pair in query.split("&") if pair)
    factory = benchmark.methods()[plain]
    return factory(**typed_options(factory, options, f"method {plain!r}"))


def describe(system: Any) -> dict[str, Any]:
    """Name of a system."""
    return {"name": system if isinstance(system, str) else getattr(system, "name", type(system).__name__)}
