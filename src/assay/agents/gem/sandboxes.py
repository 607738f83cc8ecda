"""One sandbox a process for all environments: its boxes start as they are needed, as many as there are cores."""

from __future__ import annotations

import atexit
import os
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.sandbox import Sandbox


def shared_sandbox(backend: str) -> Sandbox:
    """The sandbox of this process; another one after a fork, closed when the process ends."""
    return _sandbox(backend, os.getpid())


@lru_cache(maxsize=4)
def _sandbox(backend: str, _: int) -> Sandbox:
    from assay.sandbox import Sandbox

    sandbox = Sandbox(backend=backend)
    atexit.register(sandbox.close)
    return sandbox
