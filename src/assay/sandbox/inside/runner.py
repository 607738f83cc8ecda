"""The server inside a box. It starts programs, watches them and tells what became of them.

Three kinds of process, none of which ever holds what another program was given:

- the *server* hears requests from outside and forks the others; of a request it sees limits and open files, never
  content;
- a *source*, one for each Python program, holds its compiled code and forks for every run of it;
- a *keeper* is process 1 of the namespaces of one run. It makes the run's private file system, forks the program, and
  reports how that ended, by a pipe that the program does not have.
"""

from __future__ import annotations

import array
import gc
import json
import os
import resource
import select
import signal
import socket
import time
import warnings
from contextlib import suppress
from typing import Any

from . import child, keeper, kernel, native, unpacked

COMPILING_SECONDS, COMPILING_MEMORY = 10, 2 << 30
"""What compiling one Python program may cost."""
COVERED = ("/sys", "/dev/mqueue", "/dev/pts")
"""What a container brings along and no program needs."""
GRACE = 2.0
"""Seconds after the wall limit at which a keeper that does not answer is ended."""


def receive(channel: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """One message and the files that came with it; None at the end."""
    data, ancillary, _, _ = channel.recvmsg(1 << 16, socket.CMSG_SPACE(16 * 4), socket.MSG_CMSG_CLOEXEC)
    files = array.array("i")
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(payload[: len(payload) - len(payload) % files.itemsize])
    if found := unpacked(data):
        return {"do": "run", "files": found[0], "limits": found[1]}, list(files)
    return (json.loads(data) if data else None), list(files)


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    """One message to the outside."""
    channel.sendall(json.dumps(message).encode())


class Server:
    """How runs are kept: in C where there is a library, else in Python."""

    def __init__(self, isolated: bool, library: str | None) -> None:
        self.isolated = isolated
        self.library = native.Library(library) if library else None


def supervise(
    channel: socket.socket, message: dict[str, Any], files: list[int], isolated: bool, body: child.Body
) -> None:
    """One run in Python, from fork to report."""
    told = in_python(dict(zip(message["files"], files, strict=True)), message["limits"], isolated, body)
    with suppress(OSError):  # nobody is there any more: the next message is the end
        send(channel, told)


def in_python(named: dict[str, int], limits: dict[str, Any], isolated: bool, body: child.Body) -> dict[str, Any]:
    """Fork a keeper and wait for its report, or for word from outside that the run is to stop."""
    hear, tell = os.pipe()
    begun = time.monotonic()
    process = kernel.clone(kernel.NEW_PID | kernel.NEW_NS) if isolated else os.fork()
    if process == 0:
        try:
            keeper.keep(named, limits, tell, isolated, body)
        except BaseException as problem:
            os.write(tell, json.dumps({"broken": f"{type(problem).__name__}: {problem}"}).encode())
        finally:
            os._exit(0)
    os.close(tell)
    control = named.pop("control")
    for file in named.values():
        os.close(file)
    report = b""
    poll = select.poll()
    poll.register(hear, select.POLLIN)
    poll.register(control, select.POLLIN)
    deadline = begun + limits["wall_seconds"] + GRACE
    killed = ""
    while True:
        events = dict(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
        if not events or control in events:
            killed = "stuck" if not events else "stopped" if events[control] & select.POLLIN else "gone"
            os.kill(process, signal.SIGKILL)
            break
        part = os.read(hear, 1 << 16)
        report += part
        if not part:
            break
    os.close(hear)
    os.close(control)
    _, status, used = os.wait4(process, 0)
    told: dict[str, Any] = json.loads(report) if report and not killed else {}
    told.update(killed=killed, keeper=status)
    # What the keeper could not tell itself: its own part counts too then.
    told.setdefault("cpu_seconds", used.ru_utime + used.ru_stime)
    told.setdefault("seconds", time.monotonic() - begun)
    told.setdefault("peak_kb", 0)
    return told


def serve_program(server: Server, channel: socket.socket, source_file: int) -> None:
    """A source: compile once, fork for every run."""
    with os.fdopen(source_file, "rb") as file:
        source = file.read()
    for which, value in ((resource.RLIMIT_CPU, COMPILING_SECONDS), (resource.RLIMIT_AS, COMPILING_MEMORY)):
        _, most = resource.getrlimit(which)
        resource.setrlimit(which, (value if most < 0 else min(value, most), most))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(source, child.MAIN, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as problem:
        import traceback

        send(channel, {"compiled": False, "text": "".join(traceback.format_exception_only(problem))})
        return
    for which in (resource.RLIMIT_CPU, resource.RLIMIT_AS):
        _, most = resource.getrlimit(which)
        resource.setrlimit(which, (most, most))
    body = child.Script(code, source)
    gc.freeze()
    send(channel, {"compiled": True})
    if server.library is not None:
        os.fork()  # both hear at this socket: while one makes the world of a run, another is ready in the other
    while server.library is None or server.library.serve(channel.fileno(), body, forks=True):
        message, files = receive(channel)
        if message is None:
            return
        if message["do"] == "run":
            supervise(channel, message, files, server.isolated, body)


def serve(server: Server, channel: socket.socket) -> None:
    """Hear requests until the outside closes its end."""
    command = child.Command()
    while server.library is None or server.library.serve(channel.fileno(), command, forks=False):
        message, files = receive(channel)
        while _reap():
            pass
        if message is None:
            return
        if message["do"] == "source":
            if os.fork() == 0:
                try:
                    channel.close()
                    serve_program(server, socket.socket(fileno=files[0]), files[1])
                finally:
                    os._exit(0)
            for file in files:
                os.close(file)
        elif message["do"] == "run":
            supervise(channel, message, files, server.isolated, command)


def _reap() -> bool:
    """Collect one source that has ended."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] > 0
    except ChildProcessError:
        return False


def main(argument: str) -> None:
    """Finish the box and serve.

    Parameters
    ----------
    argument
        JSON: ``socket`` (number) or ``path`` of the control socket; ``isolated``; ``become``, a user that root turns
        into; ``namespace``, whether a user namespace is still to be made; ``library``, the keeper in C;
        ``modules`` to import, found on ``paths`` too.
    """
    options = json.loads(argument)
    channel = _connected(options)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    if options["isolated"]:
        if options["become"] is not None:  # this is still root
            kernel.mount(
                "proc", "/proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC
            )  # bubblewrap's is partly covered
            os.setgroups([])
            os.setresgid(*[options["become"]] * 3)
            os.setresuid(*[options["become"]] * 3)
        if options["namespace"]:
            kernel.own_user_namespace(1000)
            for folder in filter(os.path.isdir, COVERED):
                kernel.mount("tmpfs", folder, kernel.READ_ONLY, "size=4k")
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # when the machine runs out of memory, boxes die first
        kernel.set_dumpable(False)
    child.preload(options["paths"], options["modules"])
    gc.collect()
    gc.freeze()  # a collection in a fork would write to every page, and so copy it
    server = Server(options["isolated"], options["library"])
    # Processes of a Python program that is kept ready: itself, or two with a keeper and a process that waits each.
    send(channel, {"ready": True, "kept": 1 if server.library is None else 6})
    serve(server, channel)


def _connected(options: dict[str, Any]) -> socket.socket:
    if "socket" in options:
        return socket.socket(fileno=options["socket"])
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel.connect(options["path"])
    return channel
