"""Downloads and the hub: resumed, verified, refused in one sentence; no test leaves this machine."""

from __future__ import annotations

import hashlib
import http.server
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from assay.core import datasets
from assay.core.errors import DataError, MissingExtra, UsageError

BODY = bytes(range(256)) * 4000
HASH = hashlib.sha256(BODY).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        state = self.server.state
        state.requests.append(self.headers.get("Range"))
        if self.path == "/missing":
            self.send_error(404)
            return
        begin = 0
        asked = self.headers.get("Range")
        if asked and state.ranges:
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            if begin >= len(BODY):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(BODY) - 1}/{len(BODY)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(BODY) - begin))
        self.end_headers()
        body = BODY[begin:]
        if state.cut:
            self.wfile.write(body[: state.cut])
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            state.cut = 0
            return
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http_server:
        http_server.state = SimpleNamespace(requests=[], cut=0, ranges=True)  # type: ignore[attr-defined]
        http_server.url = f"http://127.0.0.1:{http_server.server_port}"  # type: ignore[attr-defined]
        thread = threading.Thread(target=http_server.serve_forever, daemon=True)
        thread.start()
        yield http_server
        http_server.shutdown()


def test_fetched_once(server, tmp_path):
    for _ in range(3):
        data = datasets.download(f"{server.url}/set.bin?x=1", HASH, cache=tmp_path, licence="MIT")
    assert data.path is not None
    assert data.path.name == "set.bin"
    assert data.path.read_bytes() == BODY
    assert (data.licence, data.source, data.kind) == ("MIT", f"{server.url}/set.bin?x=1", "real")
    assert server.state.requests == [None]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_goes_on(server, tmp_path, ranges):
    server.state.cut, server.state.ranges = 100_000, ranges
    with pytest.raises(DataError, match="broke off"):
        datasets.download(f"{server.url}/set.bin", HASH, cache=tmp_path)
    data = datasets.download(f"{server.url}/set.bin", HASH, cache=tmp_path)
    assert data.path is not None
    assert data.path.read_bytes() == BODY
    first, second = server.state.requests
    assert first is None
    assert second.startswith("bytes=")
    assert 0 < int(second[6:-1]) <= 100_000


def test_another_hash_is_refused_and_nothing_is_kept(server, tmp_path):
    with pytest.raises(DataError, match="has the SHA-256"):
        datasets.download(f"{server.url}/set.bin", "0" * 64, cache=tmp_path)
    assert not [f for f in tmp_path.rglob("*") if f.is_file()]


def test_a_changed_file_in_the_cache_is_fetched_again(server, tmp_path):
    path = datasets.download(f"{server.url}/set.bin", HASH, cache=tmp_path).path
    assert path is not None
    path.write_bytes(b"rotten")
    assert datasets.download(f"{server.url}/set.bin", HASH, cache=tmp_path).path.read_bytes() == BODY  # type: ignore[union-attr]


def test_refusals_are_one_sentence(server, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(DataError, match=r"cannot be reached .* put the file at"):
        datasets.download(f"http://127.0.0.1:{port}/set.bin", HASH, cache=tmp_path)
    with pytest.raises(DataError, match="answers 404"):
        datasets.download(f"{server.url}/missing", HASH, cache=tmp_path)
    with pytest.raises(UsageError, match="SHA-256"):
        datasets.download(f"{server.url}/set.bin", "abc", cache=tmp_path)
    with pytest.raises(UsageError, match="only https and http"):
        datasets.download("file:///etc/passwd", HASH, cache=tmp_path)


def test_two_processes_fetch_one_file(server, tmp_path):
    code = (
        "import sys; from pathlib import Path; from assay.core.datasets import download; "
        "print(len(download(sys.argv[1], sys.argv[2], cache=Path(sys.argv[3])).path.read_bytes()))"
    )
    command = [sys.executable, "-c", code, f"{server.url}/set.bin", HASH, str(tmp_path)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [worker.communicate(timeout=60)[0].strip() for worker in workers] == [str(len(BODY))] * 3
    assert len(server.state.requests) == 1


class FakeHub:
    """snapshot_download, as the hub's client would answer."""

    def __init__(self, root, error=None):
        self.root, self.error, self.calls = root, error, []

    def snapshot_download(self, repo, **options):
        self.calls.append((repo, options))
        if self.error is not None:
            raise self.error
        return str(self.root)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    import huggingface_hub

    root = tmp_path / "snapshots" / ("c0ffee" * 6 + "abcd")
    root.mkdir(parents=True)
    (root / "test.jsonl").write_text('{"a": 1}\n')
    fake = FakeHub(root)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    return fake


def test_hub_revisions_become_commits(hub):
    data = datasets.hub("hf:org/name@main", licence="CC-BY-4.0")
    assert data.revision == "c0ffee" * 6 + "abcd"
    assert data.source == f"hf:org/name@{data.revision}"
    assert data.info()["revision"] == data.revision
    repo, options = hub.calls[0]
    assert repo == "org/name"
    assert options["revision"] == "main"
    assert options["repo_type"] == "dataset"
    assert options["local_files_only"] is False
    assert "*.py" in options["ignore_patterns"]
    assert not [pattern for pattern in options["allow_patterns"] if pattern.endswith(".py")]


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"])
def test_offline_variables_are_obeyed(hub, monkeypatch, variable):
    from huggingface_hub.errors import LocalEntryNotFoundError

    monkeypatch.setenv(variable, "1")
    datasets.hub("org/name")
    assert hub.calls[0][1]["local_files_only"] is True
    hub.error = LocalEntryNotFoundError("not there")
    with pytest.raises(DataError, match="is not in the local hub cache and HF_HUB_OFFLINE"):
        datasets.hub("org/name")


def test_hub_refusals(hub, monkeypatch):
    with pytest.raises(UsageError, match="form hf:ORG/NAME"):
        datasets.hub("hf:name")
    with pytest.raises(UsageError, match="may hold code"):
        datasets.hub("hf:org/name", files=["loader.py"])
    (hub.root / "test.jsonl").unlink()
    with pytest.raises(DataError, match="code is never run"):
        datasets.hub("hf:org/name")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match="pip install"):
        datasets.hub("hf:org/name")


def test_digits_are_those_of_scikit_learn():
    sklearn = pytest.importorskip("sklearn.datasets")
    bunch = sklearn.load_digits()
    images, labels, data = datasets.digits("MNIST")
    assert (images == bunch.images).all()
    assert (labels == bunch.target).all()
    assert data.kind == "stand-in"
    assert data.source.endswith("instead of MNIST")
    assert datasets.digits()[2].kind == "real"
