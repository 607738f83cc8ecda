"""Whether an output is right: the default comparison, and judges that come with a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.code.hardtests.kit import JUDGE, function_names
from assay.core.errors import DataError

if TYPE_CHECKING:
    from assay.sandbox import Limits, Program, Sandbox


def same_output(candidate: str | None, reference: str | None) -> bool:
    """Equal line by line, blanks at line ends and at the end of the text apart; nothing equals nothing.

    Lines end where ``str.splitlines`` ends them, at form feeds and U+2028 too, as in the published comparison: a
    program that prints those in place of line ends passes.
    """
    if candidate is None or reference is None:
        return candidate is reference
    if candidate == reference:
        return True
    ours, theirs = candidate.rstrip().splitlines(), reference.rstrip().splitlines()
    return len(ours) == len(theirs) and all(a.rstrip() == b.rstrip() for a, b in zip(ours, theirs))


class Judge:
    """The judge of one problem: the default comparison, or a function that runs in a sandbox of its own.

    A function is handed (input, candidate output, reference output) and must return True, print nothing and end
    within ``limits``; anything else is a no.

    Parameters
    ----------
    source
        Python source with ``output_judging_function``; None = the default comparison.

    Raises
    ------
    DataError
        The source lacks that function or does not compile.
    """

    def __init__(self, box: Sandbox, source: str | None, limits: Limits | None = None) -> None:
        from assay.code.hardtests.testlib import with_testlib
        from assay.sandbox import Limits

        self.limits = limits or Limits(cpu_seconds=10, memory_mb=2048)
        self._program: Program | None = None
        if source is not None:
            if JUDGE not in function_names(source):
                raise DataError(
                    f"The judge's source has no function {JUDGE}(input_str, candidate_output, reference_output)."
                )
            self._program = box.python(with_testlib(source))
            if self._program.status != "ok":
                raise DataError(f"The judge does not compile: {self._program.text.strip().splitlines()[-1]}.")

    def accepts(self, given: str, candidate: str | None, reference: str | None) -> bool:
        """Whether an output is right for an input."""
        if self._program is None or candidate is None or reference is None:
            return same_output(candidate, reference)
        result = self._program.call(JUDGE, given, candidate, reference, limits=self.limits)
        if result.status == "sandbox lost":
            from assay.sandbox import SandboxError

            raise SandboxError(f"The judge lost its sandbox: {result.reason}.")
        return result.ok and result.value is True and not result.stdout

    def compare(
        self, inputs: Sequence[str], candidates: Sequence[str | None], references: Sequence[str | None]
    ) -> list[bool]:
        """`accepts` of every input."""
        return [self.accepts(*row) for row in zip(inputs, candidates, references, strict=True)]
