"""One sandbox for all tests of the code wing."""

from __future__ import annotations

import pytest

from assay.core.errors import UsageError


@pytest.fixture(scope="session")
def box():
    from assay.sandbox import Sandbox

    try:
        sandbox = Sandbox()
    except UsageError as reason:
        pytest.skip(str(reason))
    with sandbox:
        yield sandbox
