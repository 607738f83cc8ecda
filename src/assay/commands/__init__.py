"""What the verbs of the command line do."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    **dict.fromkeys(("run", "resume", "rescore"), "running"),
    **dict.fromkeys(("list", "info", "doctor", "check"), "rooms"),
    **dict.fromkeys(("compare", "analyze", "report", "runs", "gate"), "reading"),
    "make": "making",
    "serve": "serving",
    **dict.fromkeys(("submit", "audit"), "submitting"),
}


def call(arguments: Any) -> int:
    """Carry out a parsed command line; only the module of its verb is imported."""
    module = import_module(f"assay.commands.{_HOME[arguments.verb]}")
    return getattr(module, f"{arguments.verb}_")(arguments)
