"""The Python tool: runs a model's code in the sandbox, warm, with a time limit that holds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Literal

from assay.core.errors import UsageError
from assay.sandbox import Limits, Program, Result, Sandbox, SandboxError
from assay.systems.dialects import first_pair
from assay.systems.tools import Found, ToolResult, cut

_FENCE = re.compile(r"```\s*python")
_IMPORTS = (
    "import bisect, collections, copy, datetime, decimal, fractions, functools, heapq, itertools, json, math\n"
    "import operator, os, random, re, statistics, string, sys, time\n"
    "from collections import *\nfrom datetime import date, timedelta\nfrom fractions import Fraction\n"
    "from functools import *\nfrom itertools import *\nfrom math import *\nfrom typing import *\n"
)
_OF_PACKAGES = {
    "numpy": "import numpy as np",
    "pandas": "import pandas as pd",
    "sympy": "import sympy",
    "scipy": "import scipy",
}


class PythonTool:
    """Runs Python in the sandbox and gives back what it printed.

    The interpreter is this one, without installed packages but those that are named; every call has a process, a file
    system and limits of its own. The process is forked from a warm one, so that a call costs milliseconds. A traceback
    goes to the model and makes the result an error.

    Parameters
    ----------
    sandbox
        Boxes to run in, shared and not closed; None = the tool opens its own (`close`, or ``with``).
    packages
        Installed distributions that the code may import (``numpy``), where the tool opens its own sandbox; a shared one
        has been given its own.
    seconds
        Time limit of a call, processor and wall.
    memory_mb
        Memory limit of a call.
    session
        Names live on from call to call: imports, functions and classes by their source, everything else by pickle,
        which is read inside the sandbox alone. A name that does not pickle is lost, and the result says so.
    echo
        Show the value of a last line that is an expression, as a notebook does.
    retry_imports
        Run code that fails with "is not defined" once more with common imports in front.
    errors
        What of a traceback is shown: ``all``, or its ``last`` line.
    longest
        Characters of output that are shown; the middle of a longer one is cut out.
    """

    name = "python"
    tag = "python"
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python source; print what you want to see."}},
        "required": ["code"],
        "additionalProperties": False,
    }

    def __init__(
        self,
        sandbox: Sandbox | None = None,
        *,
        packages: Sequence[str] = (),
        seconds: float = 5.0,
        memory_mb: int = 512,
        session: bool = False,
        echo: bool = False,
        retry_imports: bool = True,
        errors: Literal["all", "last"] = "all",
        longest: int = 20_000,
    ) -> None:
        if errors not in ("all", "last"):
            raise UsageError(f"errors is {errors!r}; a traceback is shown 'all' or by its 'last' line.")
        if longest < 100:
            raise UsageError(f"longest is {longest}; at least 100 characters are needed.")
        if packages and sandbox is not None:
            raise UsageError("A shared sandbox shows the packages that it was opened with: Sandbox(packages=...).")
        self.packages = tuple(packages)
        self._imports = _IMPORTS + "".join(f"{_OF_PACKAGES[p]}\n" for p in packages if p in _OF_PACKAGES)
        self.limits = Limits(cpu_seconds=seconds, wall_seconds=seconds, memory_mb=memory_mb)
        self.seconds = seconds
        self.session = session
        self.echo = echo
        self.retry_imports = retry_imports
        self.errors = errors
        self.longest = longest
        lasting = "Names live on from call to call. " if session else "Every call starts afresh. "
        beside = f"Beside the standard library it has {', '.join(packages)}. " if packages else ""
        self.description = (
            f"Runs Python code and returns what it prints, within {seconds:g} seconds. {lasting}{beside}"
            "There is no network."
        )
        self._given = sandbox
        self._own: Sandbox | None = None
        self._driver: Program | None = None
        self._state: str | None = None
        self._turn = asyncio.Lock()

    def __enter__(self) -> PythonTool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the tool's own sandbox."""
        if self._own is not None:
            self._own.close()
            self._own = self._driver = None

    def reset(self) -> None:
        """Forget the session."""
        self._state = None

    def find(self, text: str) -> Found | None:
        """The first ``<python>`` or fenced Python block of a text."""
        found = []
        if pair := first_pair(text, self.tag):
            found.append((pair.start, pair.end, pair.content))
        if (fence := _FENCE.search(text)) and (close := text.find("```", fence.end())) >= 0:
            found.append((fence.start(), close + 3, text[fence.end() : close]))
        if not found:
            return None
        start, end, code = min(found)
        return Found(self.name, {"code": code.strip()}, start, end)

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Run ``arguments["code"]``.

        Raises
        ------
        SandboxError
            The sandbox broke; nothing is known of the code.
        """
        code = str(arguments["code"])
        if not self.session:
            return await self._run(code)
        async with self._turn:  # calls of a session see each other's names, one after the other
            return await self._run(code)

    async def _run(self, code: str) -> ToolResult:
        result = await self._once(code)
        if self.retry_imports and _value(result).get("undefined"):
            again = await self._once(code, self._imports)
            if not _value(again).get("undefined"):
                result = again
        if self.session and result.status == "ok":
            self._state = _value(result).get("state", self._state)
        return self._shown(result)

    async def _once(self, code: str, imports: str = "") -> Result:
        if self._driver is None:
            box = self._given
            if box is None:
                box = self._own = Sandbox(limits=self.limits, packages=self.packages)
            source = files("assay.systems.tools").joinpath("python_driver.py").read_text(encoding="utf-8")
            self._driver = await asyncio.to_thread(box.python, source)
        result = await self._driver.acall(
            "run", code, limits=self.limits, state=self._state, keep=self.session, echo=self.echo, imports=imports
        )
        if result.status == "sandbox lost":
            raise SandboxError(f"The Python tool lost its sandbox ({result.reason}); nothing is known of the code.")
        return result

    def _shown(self, result: Result) -> ToolResult:
        value = _value(result)
        text = _readable(result.stdout, self.longest)
        if value.get("lost"):
            text += f"\n[not kept for the next call: {', '.join(map(str, value['lost']))}]"
        if result.status == "ok" and not value.get("error"):
            return ToolResult(text + _readable(result.stderr, self.longest // 4))
        if result.status == "time limit":
            error = problem = f"time limit of {self.seconds:g} s"
        elif result.status == "ok":
            problem = str(value["error"]).strip()
            error = problem.rpartition("\n")[2][:300]
            problem = error if self.errors == "last" else problem
        else:  # the process died under the code
            error = problem = f"{result.status}: {result.reason}"
            text += _readable(result.stderr, self.longest // 4)
        joined = f"{text.rstrip()}\n{problem}" if text.strip() else problem
        return ToolResult(cut(joined, self.longest), error)


def _value(result: Result) -> Mapping[str, Any]:
    """What the driver reported: data from inside the sandbox, of any shape."""
    return result.value if result.status == "ok" and isinstance(result.value, dict) else {}


def _readable(output: bytes, longest: int) -> str:
    text = output.decode("utf-8", "replace")
    # Escape sequences would reach a terminal that shows the trace.
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", lambda m: "" if m[0] == "\r" else f"\\x{ord(m[0]):02x}", text)
    return cut(text, longest)
