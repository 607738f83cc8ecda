"""Where a run comes from: version, command line, commit."""

from __future__ import annotations

import contextlib
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from assay.core.errors import scrub


def version() -> str:
    """Version of the installed package."""
    return metadata.version("assay")


def command() -> list[str]:
    """How this process was called, without what might be a secret."""
    return [Path(sys.argv[0]).name, *map(scrub, sys.argv[1:])] if sys.argv else []


def git_state() -> dict[str, Any] | None:
    """Commit of the working folder, read from .git itself; None outside a checkout."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        head = folder / ".git" / "HEAD"
        if head.is_file():
            with contextlib.suppress(OSError):
                text = head.read_text().strip()
                if text.startswith("ref: "):
                    reference = folder / ".git" / text[5:]
                    return {
                        "branch": text[5:].removeprefix("refs/heads/"),
                        "commit": reference.read_text().strip() if reference.is_file() else None,
                    }
                return {"commit": text}
            return None
    return None
