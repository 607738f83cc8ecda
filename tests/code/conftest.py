"""One sandbox and one cache of compiled programs for all tests of the code wing."""

from __future__ import annotations

import pytest

from assay.core.errors import UsageError


@pytest.fixture(scope="session")
def _compiled(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _shared_cache(_quiet_environment, _compiled, monkeypatch):
    """Compiling a C++ program takes longer than running it: once a session is enough. No user's cache is touched."""
    monkeypatch.setenv("ASSAY_CACHE", str(_compiled))


@pytest.fixture(scope="session")
def box():
    from assay.sandbox import Sandbox

    try:
        sandbox = Sandbox()
    except UsageError as reason:
        pytest.skip(str(reason))
    with sandbox:
        yield sandbox
