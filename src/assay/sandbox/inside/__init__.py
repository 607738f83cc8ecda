"""What runs inside a box, on the standard library alone: it is shown to the box as the package ``inside``."""

import struct
from collections.abc import Collection, Mapping
from typing import Any

WORK = "/tmp/work"
"""The folder in which every run begins."""
MAIN = "main.py"
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": WORK, "TMPDIR": "/tmp", "LANG": "C.UTF-8", "USER": "box",
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip

KINDS = ("request", "stdin", "stdout", "stderr", "value", "collect", "program", "control")
"""What open files a request comes with, in this order; ``keeper.c`` has the same."""
_MARK = b"R"
_REQUEST = struct.Struct("=sB6xdd5q")


def packed(files: Collection[str], limits: Mapping[str, Any]) -> bytes:
    """A request for a run with files of these kinds."""
    mask = sum(1 << bit for bit, kind in enumerate(KINDS) if kind in files)
    return _REQUEST.pack(
        _MARK, mask, limits["cpu_seconds"], limits["wall_seconds"], limits["memory_mb"] << 20, limits["file_mb"] << 20,
        limits["processes"], limits["neighbours"], (limits["stack_mb"] or 0) << 20,
    )  # fmt: skip


def unpacked(data: bytes) -> tuple[list[str], dict[str, Any]] | None:
    """The kinds of files and the limits of a request; None if it is something else."""
    if data[:1] != _MARK:
        return None
    _, mask, cpu, wall, memory, file, processes, neighbours, stack = _REQUEST.unpack(data)
    limits = {
        "cpu_seconds": cpu, "wall_seconds": wall, "memory_mb": memory >> 20, "file_mb": file >> 20,
        "processes": processes, "neighbours": neighbours, "stack_mb": stack >> 20,
    }  # fmt: skip
    return [kind for bit, kind in enumerate(KINDS) if mask >> bit & 1], limits
