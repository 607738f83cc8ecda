"""Claims of a paper, measured anew: what recipes called ``reproduce`` judge and keep."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim, what was found, and whether it holds; None = it could not be tested here."""

    claim: str
    found: str
    holds: bool | None


def save_claims(folder: Path, claims: Iterable[Claim] | Mapping[str, Iterable[Claim]]) -> None:
    """Write ``claims.json``: a list, or a list a data set."""
    if isinstance(claims, Mapping):
        plain = {name: [asdict(c) for c in each] for name, each in claims.items()}
    else:
        plain = [asdict(c) for c in claims]
    (folder / "claims.json").write_text(json.dumps(plain, indent=1), encoding="utf-8")
