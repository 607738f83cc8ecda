"""What models write: kits of problems, programs, outputs. The prompts are the files in ``prompts/``."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.code.hardtests.kit import Kit, kit_from_replies, parse_reply

if TYPE_CHECKING:
    from assay.code.hardtests.problem import Problem, Solution
    from assay.systems.chat.model import ChatModel

TEMPERATURE, MAX_TOKENS = 0.1, 5120
"""Of the published kits."""


@cache
def _templates() -> Any:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "prompts"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )


def prompt(name: str, **values: Any) -> list[dict[str, Any]]:
    """Messages of a prompt: ``checks``, ``inputs``, ``solve``, ``output``."""
    text = _templates().get_template(f"{name}.md.j2").render(**values)
    return [{"role": "user", "content": text}]


async def kit_replies(
    model: ChatModel, problem: Problem, oracle: Solution, *, seed: int = 0, max_tokens: int = MAX_TOKENS
) -> tuple[str, str]:
    """The two replies a kit is read from; the second is "" where the first holds no validator.

    Retrying what a provider fails to answer, and keeping what it answered, is the client's part.
    """
    shared = {
        "statement": problem.statement, "program": oracle.code.strip(), "language": oracle.language,
        "python": platform.python_version(),
    }  # fmt: skip
    options: dict[str, Any] = {"temperature": TEMPERATURE, "max_tokens": max_tokens, "seed": seed % 2**31}
    checks = (await model.generate(prompt("checks", **shared), **options)).text or ""
    found = parse_reply(checks)
    if "input_validator" not in found:
        return checks, ""
    messages = prompt("inputs", **shared, validator=found["input_validator"] or "")
    return checks, (await model.generate(messages, **options)).text or ""


async def write_kit(
    model: ChatModel, problem: Problem, oracle: Solution, *, seed: int = 0, max_tokens: int = MAX_TOKENS
) -> Kit | None:
    """A kit by two prompts; None where the first reply cannot be read."""
    replies = await kit_replies(model, problem, oracle, seed=seed, max_tokens=max_tokens)
    return kit_from_replies(problem.pid, *replies)


def program_in(reply: str, language: str) -> tuple[str | None, str]:
    """(program, how it was read) of a reply: the last fenced block; None = unread."""
    from assay.core.answers import fenced

    reading = fenced(reply, "cpp" if language == "cpp" else "python")
    return reading.value, reading.how
