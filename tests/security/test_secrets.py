"""Keys stay in their variables: runs with a false key, whose every trace on disk and screen is searched for it."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from assay.core.errors import scrub
from assay.systems.chat.loopback import Fault, LoopbackServer

KEYS = ("sk-proj-abcDEF0123456789abcDEF0123456789", "q7Zp2Lw9Xc4Vb6Nm8Kj1Hg3Fd5Sa0QwE")
"""One in a known form, one that only its variable tells for a key."""


@contextmanager
def served(faults: list[Fault]) -> Iterator[LoopbackServer]:
    """A provider on this machine, in a thread; ``faults`` answer the first requests."""
    loop = asyncio.new_event_loop()
    server = LoopbackServer("A", faults=faults)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(20)
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)


def assay(folder: Path, *arguments: str, **variables: str) -> str:
    """What the command says on both streams."""
    environment = {
        k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_BASE_URL")) and not k.startswith("ASSAY_")
    }
    places = {"ASSAY_CACHE": str(folder / "cache"), "ASSAY_RUNS": str(folder / "runs"), "HOME": str(folder / "home")}
    done = subprocess.run(
        [sys.executable, "-m", "assay.cli", *arguments], cwd=folder, env=environment | places | variables,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return f"{arguments}\n{done.stdout}\n{done.stderr}"


def written(folder: Path) -> dict[str, str]:
    """All files below a folder as text; of Parquet also what is packed in it."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name != ".env":
            found[str(path)] = path.read_bytes().decode("utf-8", "replace")
            if path.suffix == ".parquet":
                found[str(path)] += str(pl.read_parquet(path).to_dicts())
    return found


def forms(key: str) -> set[str]:
    """A key as it is, its long part, and as headers, addresses and dumps write it."""
    plain = {key, key[8:], key[::-1]}
    basic = {base64.b64encode(text.encode()).decode().rstrip("=") for text in (key, f"user:{key}", f":{key}")}
    return plain | basic | {urllib.parse.quote(key)}


def leaks(said: list[str], folder: Path, key: str) -> list[str]:
    """Where a form of the key stands."""
    places = {f"output {k}": text for k, text in enumerate(said)} | written(folder)
    return [f"{form} in {place}" for place, text in places.items() for form in forms(key) if form in text]


def echoes(key: str) -> list[Fault]:
    """Refusals whose bodies hold the key, in the first requests of a run."""
    said = {"message": f"Incorrect API key provided: {key}. Header was 'Authorization: Bearer {key}'", "code": "x"}
    nested = {"message": "bad", "param": {"headers": {"authorization": f"Bearer {key}"}}, "code": key}
    return [Fault("status", status, "0", error=error) for status in (500, 400) for error in (said, nested)]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_in_the_environment_stands_nowhere_after_a_run(key: str, tmp_path: Path) -> None:
    with served(echoes(key)) as server:
        places = {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": server.url}
        run = ("run", "asciieval", "-s", "openai:gpt-4o-mini", "--tasks", "text", "--limit", "6", "--profile")
        said = [assay(tmp_path, *run, "--report", str(tmp_path / "report.html"), **places)]
        assert any(header["Authorization"] == f"Bearer {key}" for header in server.headers)
        (folder,) = [path for path in (tmp_path / "runs").iterdir() if (path / "run.json").is_file()]
        said.append(assay(tmp_path, "resume", str(folder), **places))
        for verb in (("runs",), ("info", "asciieval"), ("doctor",), ("report", str(folder)), ("runs", "--json")):
            said.append(assay(tmp_path, *verb, **places))
    records = pl.read_parquet(folder / "records.parquet")
    assert records.height == 6
    assert (tmp_path / "report.html").is_file()
    assert not leaks(said, tmp_path, key)


def test_a_refused_key_stops_the_run_and_is_not_said(tmp_path: Path) -> None:
    key = KEYS[1]
    faults = [Fault("status", 401, None, error={"message": f"Key {key} is revoked", "code": "invalid_api_key"})] * 9
    with served(faults) as server:
        places = {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": server.url}
        said = assay(
            tmp_path, "run", "asciieval", "-s", "openai:gpt-4o-mini", "--tasks", "text", "--limit", "3", **places
        )
    assert "401" in said or "key" in said.lower()
    assert not leaks([said], tmp_path, key)


def test_a_key_in_an_env_file_stands_nowhere_else(tmp_path: Path) -> None:
    key = KEYS[1]
    with served([]) as server:
        (tmp_path / ".env").write_text(f"OPENAI_API_KEY={key}\nOPENAI_BASE_URL={server.url}\n", encoding="utf-8")
        said = assay(tmp_path, "run", "asciieval", "-s", "openai:gpt-4o-mini", "--tasks", "text", "--limit", "3")
        assert server.headers
        assert server.headers[0]["Authorization"] == f"Bearer {key}"
    assert not leaks([said], tmp_path, key)
    (tmp_path / ".env").write_bytes(b"OPENAI_API_KEY=" + key.encode() + b"\xff\n")
    said = assay(tmp_path, "run", "asciieval", "-s", "openai:gpt-4o-mini", "--limit", "3")
    assert "UTF-8" in said
    assert not leaks([said], tmp_path, key)


@pytest.mark.parametrize(
    "system",
    [
        "openai:gpt-4o-mini?api_key={key}",
        "openai:gpt-4o-mini?base_url=http://user:{key}@127.0.0.1:9/v1",
        "openai:gpt-4o-mini?base_url=http://127.0.0.1:9/v1",
        "vllm:m?base_url=http://127.0.0.1:9/v1?token={key}",
        "{key}",
        "openai:{key}",
    ],
)
def test_a_key_typed_into_a_name_is_not_kept(system: str, tmp_path: Path) -> None:
    key = KEYS[0]
    typed = system.format(key=key)
    said = assay(
        tmp_path, "run", "asciieval", "-s", typed, "--tasks", "text", "--limit", "1", "--max-errors", "1",
        OPENAI_API_KEY=key, VLLM_API_KEY=key,
    )  # fmt: skip
    # What was typed stands in the first line, which this test wrote itself.
    assert not leaks([said.partition("\n")[2]], tmp_path, key)


CRASHING = '''
"""A system that fails with the key in its mouth."""
import os


class Loud:
    name = "loud"

    async def generate(self, messages, **options):
        raise ValueError(f"request to https://u:{os.environ['OTHER_TOKEN']}@host failed; headers: "
                         f"{{'Authorization': 'Bearer {os.environ['OTHER_TOKEN']}'}}")


def make():
    return Loud()


def broken():
    raise RuntimeError(f"no {os.environ['OTHER_TOKEN']}")
'''


def test_a_crash_with_the_key_in_its_text_leaves_no_key(tmp_path: Path) -> None:
    key = KEYS[1]
    (tmp_path / "loud.py").write_text(CRASHING, encoding="utf-8")
    places = {"OTHER_TOKEN": key, "PYTHONPATH": str(tmp_path)}
    run = ("run", "asciieval", "--tasks", "text", "--limit", "2")
    said = [assay(tmp_path, *run, "-s", "python:loud:make", **places)]
    said.append(assay(tmp_path, *run, "-s", "python:loud:broken", **places))
    folders = [path for path in (tmp_path / "runs").iterdir() if (path / "records.parquet").is_file()]
    assert len(folders) == 1
    errors = pl.read_parquet(folders[0] / "records.parquet")["error"].to_list()
    assert all("[key]" in error for error in errors), errors
    (tmp_path / "loud.py").unlink()
    assert not leaks(said, tmp_path, key)


def test_scrub_takes_values_of_secret_variables_and_known_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "correct horse battery")
    monkeypatch.setenv("MY_PASSWORD", "correct horse battery staple")
    monkeypatch.setenv("SHORT_KEY", "abc")
    text = "said 'correct horse battery staple', then 'correct horse battery', abc and sk-abcdef0123456789"
    assert scrub(text) == "said '[key]', then '[key]', abc and [key]"
