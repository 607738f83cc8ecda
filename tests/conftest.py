"""Shared fixtures: oracle files, a quiet environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no failure: examples have no time limit of their own.
settings.register_profile("assay", deadline=None)
settings.load_profile("assay")

ORACLES = Path(__file__).parent / "oracles"


@pytest.fixture
def oracle():
    """Read ``tests/oracles/<room>/<name>.json``."""

    def read(room: str, name: str):
        return json.loads((ORACLES / room / f"{name}.json").read_text(encoding="utf-8"))

    return read


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch, tmp_path):
    """No user's keys, run folder or cache leak into a test."""
    import os

    for name in list(os.environ):
        if name.endswith("_API_KEY") or name.startswith("ASSAY_"):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ASSAY_RUNS", str(tmp_path / "runs"))
