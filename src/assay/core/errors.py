"""Errors: one sentence each, saying what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable


class AssayError(Exception):
    """Base of every error that assay raises on purpose.

    Attributes
    ----------
    retryable : bool
        Whether the same call may succeed later; ``assay resume --retry-errors`` reads it from the record.
    fatal : bool
        Whether every further trial would fail the same way (an invalid key, say): the run stops instead of
        writing the same error thousands of times.
    """

    retryable = False
    fatal = False


class UsageError(AssayError):
    """A name, option or value that the user gave is not one that exists (exit code 2)."""


class DataError(AssayError):
    """A file or row is not in its published format; the message names file, line, field and value."""


class DataFaults(DataError):
    """Several faults of one file, for readers that go on after the first; ``faults`` holds a sentence each."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = list(faults)
        more = f" ({len(self.faults) - 1} more faults)" if len(self.faults) > 1 else ""
        super().__init__(f"{self.faults[0]}{more}")


class StorageError(AssayError):
    """A run's files could not be written (disk full, folder read-only); what was written before is kept."""

    retryable = True
    fatal = True


class MissingExtra(AssayError):
    """A library that an extra brings is not installed; the message holds the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs packages that are not installed here; run: pip install 'assay[{extra}]'")


class ProviderError(AssayError):
    """A model provider did not give a usable reply, after all retries."""

    def __init__(self, message: str, *, retryable: bool = True, fatal: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.fatal = fatal


class TrialPostponed(AssayError):
    """The trial cannot be tried now (the person who answers has left): the run stops, and the trial stays pending."""

    retryable = True
    fatal = True


class BudgetExceeded(TrialPostponed):
    """The next call could pass the run's budget: the run stops and can be resumed with a larger one."""


class TrialTimeout(AssayError):
    """A trial ran past its time limit and was killed."""

    retryable = True


class WorkerLost(AssayError):
    """A worker process died under a trial (crash, kill, memory limit)."""

    retryable = True


_KEY = re.compile(r"(?<![A-Za-z0-9])(sk-|key-|AIza|gsk_|xai-|hf_)[A-Za-z0-9_\-]{12,}")


_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
_LEAST_SECRET = 8


def secrets() -> list[str]:
    """Values of this process's variables that are named like secrets, longest first; short ones are no secrets."""
    values = {value for name, value in os.environ.items() if _SECRET_NAME.search(name) and len(value) >= _LEAST_SECRET}
    return sorted(values, key=len, reverse=True)


def scrub(text: str) -> str:
    """``text`` without this process's secrets (see `secrets`) and without what looks like a provider's key."""
    for value in secrets():
        text = text.replace(value, "[key]")
    return _KEY.sub("[key]", text)


def unknown_name(kind: str, name: str, known: Iterable[str], hint: str = "") -> UsageError:
    """One sentence for a name that does not exist, with the nearest ones that do."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        tail = f"did you mean {' or '.join(map(repr, near))}?"
    elif known:
        shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
        tail = f"there are: {shown}."
    else:
        tail = "there are none."
    return UsageError(f"There is no {kind} {name!r}; {tail}{' ' + hint if hint else ''}")
