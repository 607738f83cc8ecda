"""Run or resume a toy in a process of its own, so that a test can kill it: ``python -m drive FOLDER [SPEC]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import assay
from assay.core import run as core
from assay.core.results import Run


def main() -> None:
    """With a specification: begin; without: go on."""
    folder = Path(sys.argv[1])
    if (folder / "run.json").is_file() and "loopback" in sys.argv:
        assay.resume(folder, connections=8)
        return
    if (folder / "run.json").is_file():
        core.resume(Run(folder), loading="toy_loading")
        return
    spec = json.loads(sys.argv[2])
    if "loopback" in sys.argv:
        assay.run(spec["benchmark"], spec["system"], options=spec["options"], into=folder, connections=8)
        return
    core.run(spec["benchmark"], spec["system"], loading="toy_loading", options=spec["options"], into=folder)


if __name__ == "__main__":
    main()
