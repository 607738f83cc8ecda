"""What a program may use, and what became of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.core.errors import UsageError

Status = Literal[
    "ok", "runtime error", "time limit", "memory limit", "output limit", "compile error", "sandbox lost"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use. Past a limit it is ended, with everything it started.

    Attributes
    ----------
    cpu_seconds : float
        Processor time of all its processes together: what a verdict should hang on, since load does not change it.
    wall_seconds : float, optional
        Time on the clock, a guard against sleeping. None: three times ``cpu_seconds`` and five more.
    memory_mb : int
        Address space of each process, held by the kernel; and the memory of all together with their files, where
        there is more than one, by looking every 20 ms.
    output_bytes : int
        Of standard output and of standard error, each; what lies past it is cut off.
    file_mb : int
        The private file system (/tmp, /dev/shm, the working folder) and each file in it.
    processes : int
        Processes and threads at once.
    stack_mb : int, optional
        Of a program's main thread; None: as this machine has it, mostly 8.
    """

    cpu_seconds: float = 10.0
    wall_seconds: float | None = None
    memory_mb: int = 1024
    output_bytes: int = 16 << 20
    file_mb: int = 64
    processes: int = 64
    stack_mb: int | None = None

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if value is None and item.name in ("wall_seconds", "stack_mb"):
                continue
            whole = not item.name.endswith("seconds")
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not value > 0:
                kind = "a whole number" if whole else "a number"
                raise UsageError(f"The sandbox limit {item.name} is {value!r}, but must be {kind} above 0.")

    @property
    def wall(self) -> float:
        """Seconds on the clock, filled in."""
        return 3 * self.cpu_seconds + 5 if self.wall_seconds is None else float(self.wall_seconds)


@dataclass(frozen=True, slots=True)
class Result:
    """How one run ended.

    Attributes
    ----------
    status
        ``ok`` only if the program ended by itself with exit code 0 (and, for a call, gave its value) within all
        limits. ``sandbox lost``: the box broke, nothing is known of the program.
    reason
        One line on what is not ok; "" otherwise.
    exit_code, signal
        How the process ended: one of the two, neither when it was ended for passing a limit of the sandbox's own.
    stdout, stderr
        What it wrote, up to ``Limits.output_bytes`` each. Bytes of the program: show them escaped.
    value
        What a called function returned, through JSON; the program's own claim, like its output.
    files
        Contents of the files that were asked for and are there.
    cpu_seconds, wall_seconds
        Of all processes of the run; on the clock, from its fork to its end.
    peak_memory_mb
        Largest resident memory of its largest process. It has a floor of about 12 MB, the process that was forked.
    """

    status: Status
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    value: Any = None
    files: dict[str, bytes] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory_mb: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the status is ``ok``."""
        return self.status == "ok"
