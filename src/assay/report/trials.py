"""Which trials a report shows in full: a bounded, even choice of errors, unread answers, low and full scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.report.exchange import Exchange, ImageBudget, read_exchange
from assay.report.formats import duration, format_value, one_line, visible

if TYPE_CHECKING:
    import polars as pl

    from assay.report.summary import Board

KINDS = {
    "error": "errors", "unread": "unread answers", "low": "low scores", "full": "full scores", "some": "other trials",
}  # fmt: skip
_SHARE = {"error": 24, "unread": 12, "low": 24, "full": 8, "some": 12}
_KIND = "_kind"


@dataclass(frozen=True, slots=True)
class ShownTrial:
    """One trial of a report: why it is shown, which it is, and its exchange."""

    kind: str
    system: str
    task: str
    sample: str
    attempt: int
    score: str
    error: str
    facts: Sequence[tuple[str, str]]
    exchange: Exchange

    @property
    def preview(self) -> str:
        """The error or the answer on one line."""
        last = self.exchange.turns[-1].parts if self.exchange.turns else self.exchange.output
        texts = [part.text for part in last if part.kind == "text"] or [p.text for p in self.exchange.output]
        return one_line(self.error or (texts[0] if texts else ""), 140)


@dataclass(frozen=True, slots=True)
class Choice:
    """Trials shown, and how many there are of each kind a system."""

    trials: Sequence[ShownTrial]
    counts: Mapping[str, Mapping[str, int]]

    def total(self, kind: str) -> int:
        return sum(counts.get(kind, 0) for counts in self.counts.values())

    def shown(self, kind: str) -> int:
        return sum(trial.kind == kind for trial in self.trials)


def choose(board: Board, images: ImageBudget) -> Choice:
    """Choose trials evenly along the order of the records, the share of a kind split among systems and error types.

    At most 80 trials a benchmark are read, whatever the number of records.
    """
    import polars as pl

    column, higher_is_better = board.trial_score() or (None, True)
    shown: list[ShownTrial] = []
    counts: dict[str, dict[str, int]] = {}
    each = {kind: max(2, share // len(board.runs)) for kind, share in _SHARE.items()}
    for label, run in zip(board.labels, board.runs):
        frame = board.frames[label]
        frame = frame.with_columns(_kind_of(column, higher_is_better, board.is_unread(label)).alias(_KIND))
        counts[label] = dict(frame[_KIND].drop_nulls().value_counts().iter_rows())
        some = [_evenly(frame.filter(pl.col(_KIND) == kind), share, kind) for kind, share in each.items()]
        groups = board.group_columns(label)
        for row in run.with_texts(pl.concat(some)).iter_rows(named=True):
            shown.append(_show(run.path, row, row[_KIND], label, column, groups, images))
    order = list(KINDS)
    shown.sort(key=lambda trial: order.index(trial.kind))
    return Choice(shown, counts)


def _kind_of(column: str | None, higher_is_better: bool, unread: pl.Expr | None) -> pl.Expr:
    """Why a trial would be shown. A score is low in the worst twentieth or at the worst value, full at the best."""
    import polars as pl

    errored = pl.col("status").is_in(["error", "timeout"])
    found = pl.when(errored).then(pl.lit("error"))
    if unread is not None:
        found = found.when(unread).then(pl.lit("unread"))
    if column is not None:
        score = pl.col(column) if higher_is_better else -pl.col(column)
        usable = score.filter(~errored)
        low = pl.max_horizontal(usable.min(), usable.quantile(0.05, "lower"))
        split = usable.max() > usable.min()
        found = found.when(split & (score <= low)).then(pl.lit("low"))
        found = found.when(score == usable.max()).then(pl.lit("full"))
    return found.otherwise(pl.lit("some"))


def _evenly(frame: pl.DataFrame, share: int, kind: str) -> pl.DataFrame:
    """``share`` rows spread over the frame; errors take turns by type, so that a rare one is not drowned."""
    import polars as pl

    if frame.height <= share:
        return frame
    if kind == "error":
        turns = pl.int_range(pl.len()).over("error_type")
        return frame.sort(turns, maintain_order=True).head(share)
    places = [round(i * (frame.height - 1) / (share - 1)) for i in range(share)]
    return frame[places]


def _show(
    folder: Any,
    row: Mapping[str, Any],
    kind: str,
    label: str,
    column: str | None,
    groups: Sequence[str],
    images: ImageBudget,
) -> ShownTrial:
    facts = [("status", str(row["status"])), ("seconds", duration(row["seconds"]))]
    if (row.get("tries") or 1) > 1:
        facts.append(("tries", str(row["tries"])))
    facts += [(name, format_value(row[name])) for name in groups if row.get(name) is not None]
    for call in row.get("calls") or ():
        tokens = f"{call['prompt_tokens']} + {call['completion_tokens']} tokens"
        facts.append((f"{call['role']} {call['model']}", f"{call['calls']} calls, {tokens}"))
    error = ""
    if row["status"] in ("error", "timeout"):
        error = visible(": ".join(str(row[c]) for c in ("error_type", "error") if row.get(c)) or str(row["status"]))[
            :4000
        ]
    score = "" if column is None or row.get(column) is None else format_value(row[column])
    return ShownTrial(
        kind=kind,
        system=label,
        task=str(row["task"]),
        sample=str(row["sample"]),
        attempt=int(row["attempt"]),
        score=score,
        error=error,
        facts=[(visible(name), value) for name, value in facts],
        exchange=read_exchange(folder, row, images),
    )
