"""Reading the options that say which data sets and training sizes are tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay.core.errors import UsageError, unknown_name

NAMES = ("gauss", "separable", "xor", "breast_cancer", "digits", "custom")


def chosen(data: str, sizes: str | None, usual: Mapping[str, Sequence[int]], file: str | None) -> list[tuple[str, int]]:
    """(data set, training size) of every sample.

    Raises
    ------
    UsageError
        An unknown data set, a size that is no whole number of at least 10, custom without file or sizes.
    """
    names = list(dict.fromkeys(part.strip() for part in data.split(",") if part.strip()))
    if not names:
        raise UsageError("Option data is empty; gauss is the simplest data set.")
    for name in names:
        if name not in NAMES:
            raise unknown_name("data set", name, NAMES)
    if "custom" in names and (file is None or sizes is None):
        raise UsageError("Data set custom needs -o file=FILE (numeric columns and label) and -o sizes=N,N.")
    given: list[int] | None = None
    if sizes is not None:
        given = []
        for part in sizes.split(","):
            if not part.strip().isdigit() or int(part) < 10:
                raise UsageError(
                    f"Option sizes holds {part.strip()!r}; give whole numbers of at least 10, like 200,500."
                )
            given.append(int(part))
    return [(name, n) for name in names for n in dict.fromkeys(given or usual[name])]
