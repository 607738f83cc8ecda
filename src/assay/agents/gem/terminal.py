"""A terminal: commands in a sandbox until the task is done, then tests. Own tasks and tasks of users; no Docker images.

The working folder is kept as an archive between commands, so a state can be saved, restored and branched; processes do
not live on from one command to the next.
"""

from __future__ import annotations

import base64
import io
import re
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.agents.gem.data import load_rows
from assay.agents.gem.env import Env, EnvError, Turn
from assay.agents.gem.sandboxes import shared_sandbox
from assay.core.datasets.readers import require
from assay.core.errors import DataError

SHIPPED = Path(__file__).with_name("terminal_tasks.jsonl")
FORMAT_ERROR_REWARD = -0.1
_BLOCK = re.compile(r"<(bash|finish)>(.*?)</\1>", re.DOTALL)
_COMMAND = re.compile(r"^cmd:[ \t]*(?:\|-?[ \t]*\n(?P<lines>(?:[ \t]+.*\n?|\n)+)|(?P<line>.*)$)", re.MULTILINE)
_SHOWN = 4000
_TEST = "mkdir -p work && tar xf state.tar -C work && cd work && sh ../step.sh"
_STEP = f"{_TEST}; code=$?; cd .. && tar cf state.tar -C work . ; exit $code"


def read_command(text: str) -> str:
    """The command of a ``<bash>`` block: plain, or the ``cmd`` field of the published YAML form."""
    found = _COMMAND.search(text)
    if found is None:
        return text.strip()
    if found["lines"] is not None:
        lines = found["lines"].splitlines()
        margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        return "\n".join(line[margin:] for line in lines).strip()
    line = found["line"].strip()
    if len(line) > 1 and line[0] == line[-1] and line[0] in "'\"":
        inside = line[1:-1]
        return inside.replace("''", "'") if line[0] == "'" else inside.replace('\\"', '"').replace("\\\\", "\\")
    return line


def _packed(files: Mapping[str, str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, text in files.items():
            if name.startswith("/") or ".." in Path(name).parts:
                raise DataError(f"File name {name!r} of a terminal task leads out of the working folder.")
            entry, content = tarfile.TarInfo(name), text.encode()
            entry.size, entry.mode = len(content), 0o755 if name.endswith(".sh") else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


class TerminalEnv(Env):
    """Commands between ``<bash>`` and ``</bash>``, ``<finish></finish>`` when done; the last block of a text counts.

    Finishing, or the turn limit, runs the tests: the reward is the weight of those that pass over the weight of all. A
    text without a block is a format error (-0.1 and the end, without tests).

    Parameters
    ----------
    data
        Rows ``{id, instruction, files: {name: text}, tests: [{command, weight}]}``, or a file of them; None = the
        shipped tasks. A test passes when its command ends with exit code 0 in the working folder.
    task
        Id of the task; None = drawn at each reset.
    seconds
        Processor time of a command.
    sandbox
        Backend of `assay.sandbox.Sandbox`.
    max_turns
        Commands an episode may have.
    """

    max_turns = 20
    saved = ("row", "archive")

    def __init__(
        self,
        data: str | Path | Sequence[Mapping[str, Any]] | None = None,
        task: str | None = None,
        *,
        seconds: float = 10.0,
        sandbox: str = "auto",
        max_turns: int | None = None,
        strict_gymnasium: bool = False,
        seed_global: bool = False,
    ) -> None:
        super().__init__(strict_gymnasium=strict_gymnasium, seed_global=seed_global, max_turns=max_turns)
        self.rows = load_rows(SHIPPED if data is None else data)
        names = [str(row.get("id", at)) for at, row in enumerate(self.rows)]
        if task is not None and task not in names:
            raise EnvError(f"There is no terminal task {task!r}; there are {', '.join(names[:20])}.")
        self._only = None if task is None else names.index(task)
        self.seconds, self.sandbox = seconds, sandbox
        self.row = -1
        self.archive = ""

    def begin(self) -> tuple[str, dict[str, Any]]:
        self.row = self.draw(len(self.rows)) if self._only is None else self._only
        row, where = self.rows[self.row], f"{self.name}, task {self.row}"
        text = require(row, "instruction", str, where)
        files = {name: text for name, text in require(row, "files", dict, where).items() if text is not None}
        for number, test in enumerate(require(row, "tests", list, where)):
            require(test, "command", str, f"{where}, test {number}")
        if not row["tests"]:
            raise DataError(f"{where}: field 'tests' holds no test.")
        self.archive = base64.b64encode(_packed(files)).decode()
        hint = "Write one command between <bash> and </bash>, or <finish></finish> when the task is done."
        return f"{text}\n{hint} Nothing is kept running between commands.", self._info()

    def _info(self, **more: Any) -> dict[str, Any]:
        return {"suffix": "", "solved": False, "valid": True, "format_error": False, **more}

    def _run(self, program: str, step: str, collect: Sequence[str] = ()) -> Any:
        from assay.sandbox import Limits, SandboxError

        files = {"state.tar": base64.b64decode(self.archive), "step.sh": step.encode()}
        limits = Limits(cpu_seconds=self.seconds)
        result = shared_sandbox(self.sandbox).run(["sh", "-c", program], files=files, limits=limits, collect=collect)
        if result.status == "sandbox lost":
            raise SandboxError(f"{self.name}: the sandbox was lost during a command ({result.reason}).")
        return result

    def act(self, action: str) -> Turn:
        blocks = _BLOCK.findall(action)
        if not blocks:
            text = "No action could be read. Write <bash>command</bash> or <finish></finish>."
            info = self._info(valid=False, format_error=True)
            return Turn(text, FORMAT_ERROR_REWARD, True, info, also_truncated=True)
        kind, content = blocks[-1]
        if kind == "finish":
            reward, passed = self.test()
            return Turn("Finished.", reward, True, self._info(solved=all(passed), passed=passed))
        result = self._run(_STEP, read_command(content), ["state.tar"])
        if result.status in ("ok", "runtime error") and "state.tar" in result.files:
            self.archive = base64.b64encode(result.files["state.tar"]).decode()
            said = f"exit code {result.exit_code}"
        else:
            said = f"{result.reason or result.status}; the working folder is as before"
        shown = (result.stdout + result.stderr).decode("utf-8", "replace")
        if len(shown) > _SHOWN:
            shown = (
                f"{shown[: _SHOWN // 2]}\n... {len(shown) - _SHOWN} characters left out ...\n{shown[-_SHOWN // 2 :]}"
            )
        return Turn(f"{shown.rstrip()}\n({said})".lstrip(), info=self._info(valid=result.status == "ok"))

    def at_limit(self, turn: Turn) -> Turn:
        reward, passed = self.test()
        return turn._replace(reward=reward, info={**turn.info, "passed": passed, "solved": all(passed)})

    def test(self) -> tuple[float, list[bool]]:
        """Share of the weight of tests that pass on the working folder as it is, and which."""
        tests = self.rows[self.row]["tests"]
        passed = [self._run(_TEST, test["command"]).status == "ok" for test in tests]
        weights = [float(test.get("weight") or 1.0) for test in tests]
        return sum(weight for weight, fine in zip(weights, passed) if fine) / sum(weights), passed

    def random_action(self, rng: np.random.Generator) -> str:
        commands = ("ls", "ls -l", "pwd", "cat *", "wc -c *")
        draw = rng.random()
        return "<finish></finish>" if draw < 0.1 else f"<bash>{commands[int(draw * len(commands))]}</bash>"
