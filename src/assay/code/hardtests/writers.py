"""Stand-ins for models that write programs: they answer with programs that the problems bring along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assay.systems.scripted import ScriptedChatModel, text_of

if TYPE_CHECKING:
    from assay.code.hardtests.problem import Problem


def trusted(problems: Mapping[str, Problem], language: str) -> ScriptedChatModel:
    """Answers with the most trusted program of the language; where there is none, without a program."""
    from assay.code.hardtests.problem import rank_oracles

    def answer(messages: Sequence[Mapping[str, Any]], rng: Any) -> str:
        problem = _asked(problems, messages)
        found = rank_oracles(problem.pid, problem.solutions, languages=[language])
        return _reply([found[0].solution.code] if found else [], language, rng)

    return ScriptedChatModel(answer, name="trusted")


def labelled(problems: Mapping[str, Problem], language: str) -> ScriptedChatModel:
    """Answers with one of the labelled programs of the language, drawn at random: correct, wrong or slow."""

    def answer(messages: Sequence[Mapping[str, Any]], rng: Any) -> str:
        codes = [p.code for p in _asked(problems, messages).programs if p.language == language]
        return _reply(codes, language, rng)

    return ScriptedChatModel(answer, name="labelled")


def _asked(problems: Mapping[str, Problem], messages: Sequence[Mapping[str, Any]]) -> Problem:
    text = text_of(messages)
    return max((p for p in problems.values() if p.statement in text), key=lambda p: len(p.statement))


def _reply(codes: Sequence[str], language: str, rng: Any) -> str:
    if not codes:
        return "I know no program in that language."
    return f"```{'cpp' if language == 'cpp' else 'python'}\n{codes[int(rng.integers(len(codes)))]}\n```"
