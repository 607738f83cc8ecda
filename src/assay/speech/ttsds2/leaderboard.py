"""Leaderboards: runs as rows in the published columns, as CSV and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.datasets.readers import guarded
from assay.core.errors import DataError
from assay.core.results import Run, Runs, labels

if TYPE_CHECKING:
    import polars as pl

COLUMNS = ("system", "url", "language", "category", "ttsds2")
CATEGORIES = ("Overall", "Generic", "Speaker", "Prosody", "Intelligibility", "Failure Rate")


def rows_of(runs: Runs) -> tuple[str, pl.DataFrame]:
    """Name of the score, and a row a system, language and category.

    Raises
    ------
    UsageError
        The runs hold different scores: TTSDS2-lite and TTSDS2 share no board.
    """
    import polars as pl

    from assay.speech.ttsds2.analyses import _factor_scores, _one_kind, _overall

    score = _one_kind(runs)
    rows = []
    for run, label in zip(runs, labels(runs)):
        language = str((run.info["options"] or {}).get("language", "en"))
        system = str((run.info.get("tags") or {}).get("system", label))
        domains = _overall(run)
        for domain, (value, _) in domains.items():
            where = language if len(domains) == 1 else f"{language}/{domain}"
            values: dict[str, float] = {"Overall": value}
            values |= {factor.capitalize(): v for (d, factor), (v, _) in _factor_scores(run).items() if d == domain}
            failed = _failures(run, domain)
            if failed is not None:
                values["Failure Rate"] = failed
            rows += [dict(zip(COLUMNS, (system, "", where, c, round(values[c], 2)))) for c in CATEGORIES if c in values]
    return score, pl.DataFrame(rows)


def _failures(run: Run, domain: str) -> float | None:
    import polars as pl

    if "failure_rate" not in run.records.columns:
        return None
    found: Any = run.records.filter(pl.col("task") == domain)["failure_rate"].drop_nulls().mean()
    return None if found is None else float(found)


def read_board(path: str | Path) -> pl.DataFrame:
    """A leaderboard CSV.

    Raises
    ------
    DataError
        A column is missing.
    """
    import polars as pl

    with guarded(path, "a leaderboard"):
        frame = pl.read_csv(path, schema_overrides={"ttsds2": pl.Float64})
    absent = [c for c in COLUMNS if c not in frame.columns]
    if absent:
        raise DataError(f"{path}: the column {absent[0]!r} is missing; there must be {', '.join(COLUMNS)}.")
    return frame


def published_rows() -> pl.DataFrame:
    """The published rows that are known here, in the columns of a board."""
    import polars as pl

    from assay.speech.ttsds2.ratings import published_leaderboard

    rows = []
    for row in published_leaderboard().iter_rows(named=True):
        values = {**row, "Failure Rate": row["failure_rate"]}
        rows += [dict(zip(COLUMNS, (row["system"], "", row["language"], c, values[c]))) for c in CATEGORIES]
    return pl.DataFrame(rows)


def write_board(out: Path, found: tuple[str, pl.DataFrame], *, published: bool = True) -> None:
    """Write ``leaderboard.csv`` and ``leaderboard.html``, best first within a language."""
    import polars as pl

    from assay.core.table import Table
    from assay.report.export import to_html

    score, rows = found
    if published and score == "ttsds2":
        rows = pl.concat([rows, published_rows()], how="vertical_relaxed")
    rows.write_csv(out / "leaderboard.csv")
    wide = rows.pivot("category", index=["language", "system"], values="ttsds2", aggregate_function="first")
    wide = wide.sort(["language", "Overall"], descending=[False, True])
    table = Table(
        "leaderboard", f"{score}: mean of four factors, 0 to 100", wide,
        notes=["Failure Rate: share of texts without usable audio, in percent."],
        formats=dict.fromkeys(CATEGORIES, ".2f"),
    )  # fmt: skip
    (out / "leaderboard.html").write_text(to_html(table), encoding="utf-8")
