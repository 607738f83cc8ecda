"""Run or resume a benchmark on Ray in a process of its own, which tells one JSON line: ``ray_drive FOLDER SPEC``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from assay.core import run as core
from assay.core.errors import AssayError
from assay.core.results import Run


def main() -> None:
    """Begin or, where the folder is a run already, go on."""
    folder, spec = Path(sys.argv[1]), json.loads(sys.argv[2])
    engine = core.Engine(**{"executor": "ray", "address": "127.0.0.1:6379", **spec.get("engine", {})})
    try:
        if (folder / "run.json").is_file():
            retry = spec.get("retry_errors", False)
            run = core.resume(Run(folder), loading="toy_loading", engine=engine, retry_errors=retry)
        else:
            run = core.run(
                spec["benchmark"], spec["system"], loading="toy_loading", options=spec.get("options", {}), into=folder,
                engine=engine, attempts=spec.get("attempts"),
            )  # fmt: skip
        told = {"status": run.status, "done": run.info["done"], "statuses": run.info["statuses"]}
    except (AssayError, KeyboardInterrupt) as error:
        told = {"error": type(error).__name__, "text": str(error)}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
