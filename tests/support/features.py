"""Features of a file, as long as the file."""

from __future__ import annotations

from pathlib import Path


def spectrum(path: Path) -> dict:
    """All bytes of a file, and their sum."""
    data = Path(path).read_bytes()
    return {"sum": sum(data), "values": list(data)}
