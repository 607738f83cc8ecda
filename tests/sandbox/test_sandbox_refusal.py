"""Where nothing isolates, nothing runs; what is missing is said with the command that brings it."""

from __future__ import annotations

import subprocess

import pytest

from assay.core.errors import UsageError
from assay.sandbox import Limits, Sandbox, bubblewrap, describe, docker


@pytest.fixture(autouse=True)
def _ask_again():
    """What was found out about this machine is kept for the process: not between these tests."""
    for backend in (bubblewrap, docker):
        backend.problem.cache_clear()
    yield
    for backend in (bubblewrap, docker):
        backend.problem.cache_clear()


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    """A machine with an empty search path."""
    monkeypatch.setenv("PATH", str(tmp_path))


def test_without_bubblewrap_nothing_runs_and_the_package_is_named(nothing_installed):
    for backend in ("auto", "bubblewrap"):
        with pytest.raises(UsageError, match="apt-get install bubblewrap"):
            Sandbox(backend)


def test_unsafe_is_never_chosen_but_named(nothing_installed):
    with pytest.raises(UsageError, match="backend='unsafe'"):
        Sandbox()
    with Sandbox("unsafe") as box:
        assert box.run(["/bin/echo", "1"]).stdout == b"1\n"


def test_bubblewrap_that_the_kernel_refuses_is_said(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"No permissions to create new namespace.*max_user_namespaces"):
        Sandbox("bubblewrap")
    name, state, fix = describe()[0]
    assert (name, state) == ("bubblewrap", "not usable")
    assert "user namespaces" in fix


def test_another_system_or_machine_is_refused(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    for backend in ("auto", "unsafe"):
        with pytest.raises(UsageError, match="Linux"):
            Sandbox(backend)
    monkeypatch.undo()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    for backend in ("auto", "bubblewrap", "unsafe"):
        with pytest.raises(UsageError, match="riscv64"):
            Sandbox(backend)


def test_an_unknown_backend_is_named_with_those_that_exist():
    with pytest.raises(UsageError, match=r"'bubblewrp'.*bubblewrap"):
        Sandbox("bubblewrp")


def test_cpp_without_a_compiler_says_what_to_install(monkeypatch):
    from assay.sandbox import programs

    programs.compiler.cache_clear()
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with Sandbox("unsafe") as box, pytest.raises(UsageError, match=r"apt-get install g\+\+"):
        box.cpp("int main(){}")
    programs.compiler.cache_clear()


def test_what_is_there_is_described_with_what_is_missing(nothing_installed, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    rows = {name: (state, fix) for name, state, fix in describe()}
    assert rows["bubblewrap"][0] == rows["docker"][0] == "not usable"
    assert "apt-get install bubblewrap" in rows["bubblewrap"][1]
    assert rows["g++ (C++ programs)"] == ("missing", "apt-get install g++")


def test_a_docker_without_a_daemon_is_said(monkeypatch, tmp_path):
    fake = tmp_path / "docker"
    fake.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"no daemon to talk to \(Cannot connect.*group docker"):
        Sandbox("docker")


def test_unsafe_still_holds_limits_and_ends_what_it_started():
    with Sandbox("unsafe", limits=Limits(cpu_seconds=0.5, wall_seconds=3, memory_mb=512, processes=10)) as box:
        assert box.python("print(int(input()) + 1)").run(b"4").stdout == b"5\n"
        assert box.python("while True: pass").run().status == "time limit"
        assert box.python("x = bytearray(1 << 30)").run().status == "memory limit"
        daemon = (
            "import os, time\nif os.fork() == 0:\n    os.setsid()\n    os.execv('/bin/sleep', ['sleep', '987'])\n"
            "time.sleep(0.2)"
        )
        assert box.python(daemon).run().ok
        assert (
            box.python("import os\nwhile True:\n    if os.fork() == 0:\n        import time; time.sleep(9)")
            .run()
            .status
            != "ok"
        )
        assert box.python("import socket; socket.socket()").run().status == "runtime error"
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert "sleep 987" not in left
