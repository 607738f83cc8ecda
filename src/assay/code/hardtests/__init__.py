"""HardTests: test suites for programming problems, and what they are worth as verifiers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.code.hardtests.benchmark import HardTests, HardTestsCode
    from assay.code.hardtests.codec import decode_cases, encode_cases
    from assay.code.hardtests.data import load_problems, read_suites
    from assay.code.hardtests.generator import HardTestGenerator
    from assay.code.hardtests.kills import KillMatrix, minimal_suite
    from assay.code.hardtests.kit import Generator, Kit, lint
    from assay.code.hardtests.mutation import mutants, mutation_score
    from assay.code.hardtests.probing import probe, separates
    from assay.code.hardtests.problem import Case, Labelled, Problem, Solution
    from assay.code.hardtests.rewards import CodeReward, rejection_sample
    from assay.code.hardtests.scoring import Confusion, posterior_correct
    from assay.code.hardtests.shrinking import counterexample, shrink
    from assay.code.hardtests.suite import TestSuite
    from assay.code.hardtests.verifying import Verdicts, run_and_judge, verify
    from assay.code.hardtests.writing import write_kit

_HOMES = {
    "HardTests": "benchmark", "HardTestsCode": "benchmark", "decode_cases": "codec", "encode_cases": "codec",
    "load_problems": "data", "read_suites": "data", "HardTestGenerator": "generator", "KillMatrix": "kills",
    "minimal_suite": "kills", "Generator": "kit", "Kit": "kit", "lint": "kit", "mutants": "mutation",
    "mutation_score": "mutation", "Case": "problem", "Labelled": "problem", "Problem": "problem",
    "Solution": "problem", "probe": "probing", "separates": "probing", "CodeReward": "rewards",
    "rejection_sample": "rewards", "Confusion": "scoring", "posterior_correct": "scoring",
    "counterexample": "shrinking", "shrink": "shrinking", "TestSuite": "suite", "Verdicts": "verifying",
    "run_and_judge": "verifying", "verify": "verifying", "write_kit": "writing",
}  # fmt: skip
__all__ = [
    "Case", "CodeReward", "Confusion", "Generator", "HardTestGenerator", "HardTests", "HardTestsCode", "KillMatrix",
    "Kit", "Labelled", "Problem", "Solution", "TestSuite", "Verdicts", "counterexample", "decode_cases",
    "encode_cases", "lint", "load_problems", "minimal_suite", "mutants", "mutation_score", "posterior_correct",
    "probe", "read_suites", "rejection_sample", "run_and_judge", "separates", "shrink", "verify", "write_kit",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
