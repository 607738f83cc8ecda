"""Records as columns: what stands in the journal about trials, joined with what is known of their samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from assay.core.store import Record

KEY = ("task", "sample", "attempt")


def frame_of(records: Sequence[Record]) -> pl.DataFrame:
    """What stands in the journal about some trials, as columns: key, scores, outcome groups, measurements, calls."""
    import polars as pl

    core = pl.DataFrame(
        {
            **{
                name: [getattr(r, name) for r in records]
                for name in CORE
                if name not in ("started", "output", "exchanges")
            },
            "started": [int(r.started * 1e6) for r in records],
            "output": [bytes(r.output).decode() or None for r in records],
            "exchanges": [bytes(r.exchanges).decode() or None for r in records],
        },
        schema={name: getattr(pl, kind) for name, kind in CORE.items()},
    )
    return core.with_columns(
        pl.col("started").cast(pl.Datetime("us", "UTC")),
        _lists("calls", [r.calls for r in records], CALL),
        _lists("artifacts", [r.artifacts for r in records], ARTIFACT),
        *_columns("s:", [r.scores for r in records], numeric=True),
        *_columns("g:", [r.groups for r in records], numeric=False),
    )


CORE = {
    "task": "String", "sample": "String", "attempt": "Int64", "index": "Int64", "seed": "UInt64", "status": "String",
    "error_type": "String", "error": "String", "retryable": "Boolean", "tries": "Int64", "started": "Int64",
    "seconds": "Float64", "cpu_seconds": "Float64", "peak_memory_mb": "Float64", "exclusive": "Boolean",
    "output": "String", "exchanges": "String",
}  # fmt: skip
CALL = {
    "role": "String", "model": "String", "calls": "Int64", "cached": "Int64", "prompt_tokens": "Int64",
    "cached_tokens": "Int64", "completion_tokens": "Int64", "reasoning_tokens": "Int64", "seconds": "Float64",
    "cost": "Float64", "paid": "Float64", "price_date": "String", "resolved": "String",
}  # fmt: skip
ARTIFACT = {"path": "String", "bytes": "Int64", "sha256": "String"}


def _lists(name: str, lists: Sequence[Sequence[Any]], fields: Mapping[str, str]) -> pl.Series:
    """A List(Struct) column. Built flat and grouped: a list of structs a row costs polars a hundred times as much."""
    import polars as pl

    schema = {field: getattr(pl, kind) for field, kind in fields.items()}
    flat = pl.DataFrame({f: [getattr(x, f) for items in lists for x in items] for f in fields}, schema=schema)
    owner = pl.Series("_row", [row for row, items in enumerate(lists) for _ in items], dtype=pl.UInt32)
    grouped = (
        flat.select(pl.struct(pl.all()).alias(name)).with_columns(owner).group_by("_row", maintain_order=True).agg(name)
    )
    rows = pl.DataFrame({"_row": pl.int_range(len(lists), dtype=pl.UInt32, eager=True)})
    empty = pl.lit([], dtype=pl.List(pl.Struct(schema)))
    return (
        rows.join(grouped, on="_row", how="left", maintain_order="left")[name]
        .to_frame()
        .select(pl.col(name).fill_null(empty))
        .to_series()
    )


def with_samples(frame: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Journal columns joined with cluster, sample groups and target, in the order people read them."""
    import polars as pl

    scores = [c[2:] for c in frame.columns if c.startswith("s:")]
    after = [c[2:] for c in frame.columns if c.startswith("g:")]
    before = [c for c in samples.columns if c not in ("task", "sample", "index", "cluster", "target")]
    frame = frame.join(samples.drop("index"), on=["task", "sample"], how="left", maintain_order="left")
    both = [c for c in after if c in before]
    frame = frame.with_columns(
        # What the outcome says of a group comes later and knows better.
        *[pl.coalesce(pl.col(f"g:{c}").cast(frame.schema[c], strict=False), pl.col(c)).alias(c) for c in both],
        *[pl.col(f"g:{c}").alias(c) for c in after if c not in both],
        *[pl.col(f"s:{c}").alias(c) for c in scores],
    ).select(pl.exclude("^[sg]:.*$"))
    first = [*KEY, "index", "cluster", *before, *[c for c in after if c not in before], *scores, "status"]
    return frame.select([*first, *[c for c in frame.columns if c not in first]])


def _columns(prefix: str, dicts: Sequence[Mapping[str, Any]], *, numeric: bool) -> list[pl.Series]:
    """Dictionaries as one series a key. Groups of mixed kinds become text."""
    names: dict[str, None] = {}
    for entry in dicts:
        names.update(dict.fromkeys(entry))
    return [group_series(prefix + name, [d.get(name) for d in dicts], numeric=numeric) for name in names]


def group_series(name: str, values: list[Any], *, numeric: bool = False) -> pl.Series:
    """One column from group or score values: Int64, Float64 or String, whichever holds them all."""
    import polars as pl

    if numeric:
        return pl.Series(name, values, dtype=pl.Float64, strict=False)
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, bool}:
        return pl.Series(name, [None if v is None else int(v) for v in values], dtype=pl.Int64)
    if kinds <= {int, bool, float}:
        return pl.Series(name, values, dtype=pl.Float64, strict=False)
    return pl.Series(name, [None if v is None else str(v) for v in values], dtype=pl.String)


def superseded(base: pl.DataFrame | None, fresh: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """``fresh`` supersedes rows of ``base`` with the same key; order is task, index, attempt."""
    import polars as pl

    if base is not None:
        kept = base.join(fresh.select(key), on=list(key), how="anti")
        fresh = pl.concat(one_type_a_column([kept, fresh]), how="diagonal_relaxed")
    order = fresh.select("task").unique(maintain_order=True).with_row_index("_task")
    return fresh.join(order, on="task", how="left").sort("_task", "index", "attempt").drop("_task")


def one_type_a_column(frames: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """A group that is text in one frame and a number in another becomes text in all."""
    import polars as pl

    kinds: dict[str, set[Any]] = {}
    for frame in frames:
        for name, kind in frame.schema.items():
            kinds.setdefault(name, set()).add(kind)
    text = [n for n, k in kinds.items() if len(k) > 1 and pl.String in k]
    return [f.with_columns(pl.col([t for t in text if t in f.columns]).cast(pl.String)) for f in frames]
