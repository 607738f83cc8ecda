"""gem-llm's tools: reads a job as JSON from standard input, prints seconds and results of each call as JSON."""

# pyright: reportMissingImports=false

from __future__ import annotations

import json
import logging
import sys
import time
import warnings


def main() -> None:
    """One job: Python actions in one of the tool's sandbox types, or calls of an MCP tool."""
    job = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    if job["tool"] == "python":
        from gem.tools.python_code_tool import PythonCodeTool

        sys.prefix = job.get("prefix", sys.prefix)  # what the bwrap mode shows inside
        tool = PythonCodeTool(sandbox_type=job["sandbox"])
    else:
        from gem.tools.mcp_tool import MCPTool

        tool = MCPTool.from_local_command({"command": job["command"][0], "args": job["command"][1:]})
    logging.disable(logging.CRITICAL)
    seconds, said = [], []
    for action in job["actions"]:
        begun = time.perf_counter()
        _, error, text, _ = tool.execute_action(action)
        seconds.append(time.perf_counter() - begun)
        said.append([bool(error), text])
    print(json.dumps({"seconds": seconds, "said": said}))


main()
