"""make: recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import assay
from assay.cli import DONE, pairs
from assay.commands.output import out
from assay.commands.running import read_env_file


def make_(arguments: Any) -> int:
    """Call a recipe and say where its folder lies."""
    read_env_file()
    folder = Path(arguments.out or Path("data") / arguments.benchmark / arguments.recipe)
    path = assay.make(f"{arguments.benchmark}.{arguments.recipe}", folder, **pairs(arguments.option, "-o"))
    for page in sorted(path.glob("*.md")):
        out().print(page.read_text(encoding="utf-8"), markup=False)
    out().print(f"made: {path}", soft_wrap=True)
    return DONE
