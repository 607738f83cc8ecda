"""A Ray cluster of several raylets on one machine, in a network namespace that has nothing but loopback.

Needs root (`unshare`, `nsenter`). Token authentication is on, with a token made for the cluster. Everything is ended by
process id; `ray stop` would end other people's clusters too.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

SUPPORT = Path(__file__).parent
PORT = 6379
ADDRESS = f"127.0.0.1:{PORT}"
STORE_BYTES = 100_000_000
RAY = Path(sys.executable).with_name("ray")


def possible() -> bool:
    """Whether this machine lets us make a network namespace."""
    return os.geteuid() == 0 and shutil.which("nsenter") is not None and (
        subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0
    )  # fmt: skip


class Cluster:
    """A head without cores and any number of nodes.

    Parameters
    ----------
    hidden
        A folder that the nodes do not see (they get an empty one in its place).
    """

    def __init__(self, hidden: Path | None = None) -> None:
        self.hidden = hidden
        # Short: the paths of Unix sockets lie below.
        self.folder = Path(tempfile.mkdtemp(prefix="rc-", dir="/tmp"))
        self.nodes: list[subprocess.Popen[bytes]] = []
        token = self.folder / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        self.environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DISABLE_IMPORT_WARNING": "1",
            # Lost nodes are noticed within seconds; the defaults suit a data centre.
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "2000",
            "RAY_health_check_failure_threshold": "3",
            "PYTHONPATH": os.pathsep.join([str(SUPPORT), *filter(None, sys.path)]),
        }
        self._log = (self.folder / "log").open("ab")

    def __enter__(self) -> Cluster:
        self._room = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        end = time.monotonic() + 10
        while os.readlink(f"/proc/{self._room.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            assert time.monotonic() < end, "no network namespace"
            time.sleep(0.02)
        subprocess.run([*self._inside(), "ip", "link", "set", "lo", "up"], check=True)
        self.head = self._start("--head", f"--port={PORT}", "--include-dashboard=false", cpus=0)
        self.started = 1
        self._await("head", self._ready)
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.nodes, self.head):
            end_tree(process)
        self._room.kill()
        self._room.wait()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def add_node(self, cpus: int = 2, *, gpus: int = 0, memory: int = 0, wait: bool = True) -> subprocess.Popen[bytes]:
        """Start a raylet, and wait until it has joined."""
        extra = [f"--num-gpus={gpus}"] if gpus else []
        extra += [f"--memory={memory}"] if memory else []
        node = self._start(f"--address={ADDRESS}", *extra, cpus=cpus, hide=True)
        self.nodes.append(node)
        self.started += 1
        if wait:
            self._await("node", self._ready)
        return node

    def drive(self, folder: Path, spec: dict, **popen: object) -> subprocess.Popen[bytes]:
        """Run or resume a benchmark in a process of its own, inside."""
        command = [*self._inside(), sys.executable, "-m", "ray_drive", str(folder), json.dumps(spec)]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            **popen,  # type: ignore[call-overload]
        )  # fmt: skip

    def run(self, folder: Path, spec: dict, seconds: float = 300) -> dict:
        """`drive` to its end: what it told."""
        process = self.drive(folder, spec)
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            end_tree(process)
            out, _ = process.communicate()
            raise AssertionError(f"no end after {seconds} s:\n{out.decode()}") from None
        return told(out)

    def python(self, code: str) -> subprocess.CompletedProcess[str]:
        """Run some Python inside."""
        command = [*self._inside(), sys.executable, "-c", code]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120)

    def agents(self) -> list[psutil.Process]:
        """Processes of agents, of all nodes."""
        return [p for node in self.nodes for p in descendants(node) if "ray::Agent" in title(p)]

    def workers(self) -> list[psutil.Process]:
        """Worker processes of agents."""
        return [p for p in self.agents() for p in descendants(p) if "assay.core.executors.worker" in title(p)]

    def raylet(self, node: subprocess.Popen[bytes]) -> psutil.Process | None:
        """The raylet of a node."""
        return next((p for p in descendants(node) if title(p).partition(" ")[0].endswith("raylet")), None)

    def kill_node(self, node: subprocess.Popen[bytes]) -> None:
        """Kill a raylet; what belonged to it ends by itself, or is ended."""
        raylet = self.raylet(node)
        if raylet is not None:
            raylet.send_signal(signal.SIGKILL)
        self.nodes.remove(node)
        try:
            node.wait(20)
        except subprocess.TimeoutExpired:
            end_tree(node)

    def kill_head(self) -> None:
        """Kill everything of the head at once: a machine that is gone."""
        below = descendants(self.head)
        self.head.kill()
        self.head.wait()
        for process in below:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def log(self) -> str:
        """What `ray start` printed."""
        return (self.folder / "log").read_text(errors="replace")

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _inside(self) -> list[str]:
        return ["nsenter", "--target", str(self._room.pid), "--net"]

    def _start(self, *arguments: str, cpus: int, hide: bool = False) -> subprocess.Popen[bytes]:
        command = [
            str(RAY), "start", "--block", "--disable-usage-stats", f"--num-cpus={cpus}",
            f"--object-store-memory={STORE_BYTES}", *arguments,
        ]  # fmt: skip
        if "--head" in arguments:
            command.append(f"--temp-dir={self.folder / 'ray'}")
        if hide and self.hidden is not None:
            words = " ".join(command)
            command = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none {self.hidden} && exec {words}"]
        return subprocess.Popen(
            [*self._inside(), *command], env=self.environment, stdout=self._log, stderr=self._log,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def _ready(self) -> bool:
        return self.log().count("Ray runtime started.") >= self.started

    def _await(self, what: str, check) -> None:
        end = time.monotonic() + 60
        while not check():
            assert time.monotonic() < end, f"no {what}:\n{self.log()}"
            assert self.head.poll() is None, self.log()
            time.sleep(0.2)


def told(out: bytes) -> dict:
    """The last line of a driver, which is JSON."""
    lines = out.decode(errors="replace").strip().splitlines()
    assert lines, "the driver said nothing"
    try:
        return json.loads(lines[-1])
    except ValueError:
        raise AssertionError(out.decode(errors="replace")[-4000:]) from None


def title(process: psutil.Process) -> str:
    """Command line of a process; "" when it has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def descendants(process: subprocess.Popen[bytes] | psutil.Process) -> list[psutil.Process]:
    """All processes below one."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        return []


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """End a process that we started and everything below it, by id."""
    below = descendants(process)
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in below:
        try:
            child.kill()
        except psutil.Error:
            continue
