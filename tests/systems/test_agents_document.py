"""The examples of docs/agents.md run, in order, as one program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.core.errors import UsageError
from assay.sandbox import Sandbox

DOCUMENT = Path(__file__).parents[2] / "docs" / "agents.md"


def test_the_examples_run():
    pytest.importorskip("bm25s")
    try:
        Sandbox().close()
    except UsageError as error:
        pytest.skip(str(error))
    blocks = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(DOCUMENT), "exec"), names)
