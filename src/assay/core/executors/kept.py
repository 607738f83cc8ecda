"""Objects kept on a machine for its other processes: unpickled by each, their arrays in memory once.

Arrays go out of band into one file that every process maps privately: pages are shared until somebody writes to them,
and then copied, so that what a process sees is what it would have loaded by itself.
"""

from __future__ import annotations

import mmap
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

_ALIGN = 64


def save(value: Any, folder: Path) -> bool:
    """Keep ``value`` in ``folder``, in one step; False when it does not survive pickling or stands there already."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        data = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    except Exception:
        return False
    temporary = Path(tempfile.mkdtemp(prefix=".kept-", dir=folder.parent))
    places: list[tuple[int, int]] = []
    with (temporary / "arrays").open("wb") as file:
        for buffer in buffers:
            file.write(bytes(-file.tell() % _ALIGN))
            with buffer.raw() as view:
                places.append((file.tell(), view.nbytes))
                file.write(view)
            buffer.release()
    (temporary / "objects").write_bytes(pickle.dumps((places, data)))
    try:
        load(temporary)
        temporary.rename(folder)
    except Exception:
        shutil.rmtree(temporary, ignore_errors=True)
        return False
    return True


def load(folder: Path) -> Any:
    """What `save` kept. Only for folders that this run made: it unpickles."""
    places, data = pickle.loads((folder / "objects").read_bytes())  # noqa: S301
    if not places:
        return pickle.loads(data)  # noqa: S301
    descriptor = os.open(folder / "arrays", os.O_RDONLY)
    try:
        end = places[-1][0] + places[-1][1]
        mapped = memoryview(mmap.mmap(descriptor, end, access=mmap.ACCESS_COPY) if end else bytearray())
    finally:
        os.close(descriptor)
    return pickle.loads(data, buffers=[mapped[start : start + size] for start, size in places])  # noqa: S301
