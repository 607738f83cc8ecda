"""`assay serve` as people start it: its own process, TLS, one-time links, logs, kills, PostgreSQL."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

PASSWORD = "horses like green apples"


class Serve:
    """A running `assay serve`; ``log`` is what it has said so far."""

    def __init__(self, folder: Path, *arguments: str, scheme: str = "http") -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.file = folder / f"log-{time.monotonic_ns()}"
        command = [sys.executable, "-m", "assay.cli", "serve", "--root", str(folder / "server"), "--no-worker"]
        command += ["--runs", str(folder / "runs"), "--port", str(self.port), *arguments]
        with self.file.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        for _ in range(600):
            if "Serving" in self.log:
                break
            assert self.process.poll() is None, self.log
            time.sleep(0.05)

    @property
    def log(self) -> str:
        return self.file.read_text()

    def stop(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(30)


def join(client: httpx.Client, link: str) -> httpx.Response:
    """Follow a one-time link and choose a password."""
    page = client.get(link)
    token = re.search(r'name="csrf" value="([0-9a-f]+)"', page.text)[1]
    return client.post(link, data={"csrf": token, "password": PASSWORD, "again": PASSWORD})


@pytest.fixture
def certificate(tmp_path):
    """A certificate for 127.0.0.1 that signs itself."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-out", str(files[0]), "-keyout"]
    subprocess.run([*command, str(files[1])], check=True, capture_output=True)
    return files


def test_from_the_printed_link_to_a_kill_and_back(tmp_path, certificate):
    """Over TLS: the link works once, cookies are Secure, logs hold no secret, a kill loses nothing."""
    flags = ("--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1]), "--access-log")
    trust = ssl.create_default_context(cafile=str(certificate[0]))
    first = Serve(tmp_path, *flags, scheme="https")
    printed = first.log
    link = re.search(r"(/join/invite_[\w-]+)", printed)[1]
    with httpx.Client(base_url=first.url, verify=trust) as client:
        answer = join(client, link)
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-assay=")
        assert "Secure" in cookie
        assert client.get("/admin/accounts").status_code == 200
        assert client.get(link).status_code == 404
        assert "max-age" in client.get("/account").headers["strict-transport-security"]
        page = client.get("/account").text
        token = re.search(r'name="csrf" value="([0-9a-f]+)"', page)[1]
        made = client.post("/account/tokens", data={"csrf": token, "label": "x"}).text
        bearer = re.search(r'id="token">([^<]+)<', made)[1]
        assert client.get("/api/account", headers={"Authorization": f"Bearer {bearer}"}).json()["name"] == "admin"
        session = client.cookies["__Host-assay"]
        first.stop(signal.SIGKILL)
    said = first.log.removeprefix(printed)
    assert "POST /join/invite_[secret] HTTP/1.1" in said
    for secret in (link, bearer, session, token, PASSWORD):
        assert secret not in said
    second = Serve(tmp_path, *flags, "--port", str(first.port), scheme="https")
    with httpx.Client(base_url=first.url, verify=trust, cookies={"__Host-assay": session}) as client:
        assert client.get("/account").status_code == 200
    assert "/join/" not in second.log
    assert second.stop() == 0


@pytest.mark.slow
def test_serving_from_postgresql(tmp_path, postgres):
    subprocess.run(["createdb", "-h", str(postgres), "-U", "assay", "served"], check=True)
    served = Serve(tmp_path, "--database", f"postgresql://assay@/served?host={postgres}", "--admin", "root")
    link = re.search(r"(/join/invite_[\w-]+)", served.log)[1]
    with httpx.Client(base_url=served.url) as client:
        assert join(client, link).status_code == 303
        assert "root" in client.get("/admin/accounts").text
    assert served.stop() == 0
    assert not (tmp_path / "server" / "server.sqlite").exists()


def test_a_database_in_an_open_folder_is_its_owner_s_alone(tmp_path):
    from assay.server.database import SchemaVersion, open_database

    folder = tmp_path / "server"
    folder.mkdir(mode=0o755)
    database = open_database(f"sqlite:///{folder / 'server.sqlite'}")
    with database.session() as session:
        session.get_one(SchemaVersion, 1)
        modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    database.close()
    assert "server.sqlite-wal" in modes
    assert set(modes.values()) == {0o600}


def test_a_port_that_is_taken_is_one_sentence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "assay.cli", "serve", "--root", str(tmp_path / "s"), "--no-worker"]
        done = subprocess.run([*command, "--port", str(port)], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 2
    assert "cannot be listened on (address already in use); --port names another port" in done.stderr
    assert "Traceback" not in done.stderr
