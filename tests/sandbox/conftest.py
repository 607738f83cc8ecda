"""One sandbox for all tests of a file; a reason where this machine has none."""

from __future__ import annotations

import pytest

from assay.sandbox import Limits, Sandbox
from assay.sandbox.bubblewrap import problem as bubblewrap_problem

SMALL = Limits(cpu_seconds=2, wall_seconds=20, memory_mb=256, output_bytes=1 << 20, file_mb=8, processes=24)


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
    """Compiled programs are shared by the tests of a session, and no user's cache is touched."""
    import os

    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(scope="module")
def box():
    """A sandbox with small limits and two boxes."""
    if problem := bubblewrap_problem():
        pytest.skip(problem)
    with Sandbox("bubblewrap", limits=SMALL, boxes=2) as sandbox:
        yield sandbox
