"""Sub-samples: the same for every system, nested, a function of ids alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from assay.core.errors import UsageError

Item = TypeVar("Item")

LIMIT_RULE = (
    "ids are ranked by the BLAKE2b hash of their text, and the first places are taken; the same ids for every system, "
    "and a smaller limit lies in a larger one"
)
_RANGE = re.compile(r"(\d+)\s*-\s*(\d+)")


def _id(item: Any) -> str:
    return item if isinstance(item, str) else str(item.id)


def rank_key(sample_id: str) -> bytes:
    """By what ids are ranked."""
    return hashlib.blake2b(sample_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _places(text: str, n: int) -> tuple[int, int]:
    """First place (from 0) and the place after the last that a limit means."""
    text = text.strip()
    if match := _RANGE.fullmatch(text):
        first, last = int(match[1]), int(match[2])
        if not 1 <= first <= last:
            raise UsageError(f"Limit {text!r}: a range goes from 1 up, its first place first, like 10-20.")
        return first - 1, last
    if text.isascii() and text.isdigit():
        if int(text) == 0:
            raise UsageError(
                "Limit '0' leaves no sample; give a count from 1, a range like 10-20, or a share like 0.1."
            )
        return 0, int(text)
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if share == 1.0:
        raise UsageError(f"Limit {text!r} could mean one sample or all of them; give 1, or leave it out.")
    if not 0 < share < 1:
        raise UsageError(
            f"Limit {text!r} is none: give a count like 100, a range like 10-20, or a share below 1 like 0.1."
        )
    return 0, max(1, round(share * n))


def limit(samples: Sequence[Item], limit: str) -> list[Item]:
    """The samples (or ids) that a limit keeps, in their own order.

    Parameters
    ----------
    samples
        Samples or ids, of one task.
    limit
        ``"100"`` (so many, or all where there are fewer), ``"10-20"`` (places 10 to 20, both in), ``"0.1"`` (a share,
        at least one). ``"1.0"`` is refused: it could mean one sample or all.

    Notes
    -----
    The rule is `LIMIT_RULE`. It takes no seed: which samples are run must not depend on the run.

    Raises
    ------
    UsageError
        The limit is none of the three forms, or the range begins behind the last sample.
    """
    first, after = _places(limit, len(samples))
    if samples and first >= len(samples):
        raise UsageError(f"Limit {limit!r} begins behind the last of {len(samples)} samples.")
    ranked = sorted(range(len(samples)), key=lambda place: rank_key(_id(samples[place])))
    return [samples[place] for place in sorted(ranked[first:after])]


def limit_rule(limit: str, n: int) -> str:
    """The choice that a limit makes of ``n`` samples, in words, for ``run.json``."""
    first, after = _places(limit, n)
    return f"limit {limit}: places {first + 1} to {min(after, n)} of {n}; {LIMIT_RULE}"
