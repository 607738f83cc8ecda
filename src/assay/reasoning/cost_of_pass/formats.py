"""The published record format: a folder of Parquet files by data set, model and technique, read and written.

Layout: ``{task}/{model}/{technique}/full_records/dataset.parquet``, ``.../{metric}_records/dataset.parquet`` and
``.../metadata.json``. Names of models may hold slashes, so the path may be deeper. The store appends, overwrites, trims
and says what is missing; assay's own runs need none of that, since their journal resumes by itself.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from assay.core.benchmark import Outcome
from assay.core.datasets import read_json
from assay.core.datasets.readers import guarded
from assay.core.errors import DataError, UsageError
from assay.core.files import write_atomically
from assay.reasoning.cost_of_pass import scoring, techniques
from assay.reasoning.cost_of_pass.prices import MILLION, PriceBook

if TYPE_CHECKING:
    from assay.core.results import Runs
    from assay.reasoning.cost_of_pass.benchmark import ProblemTask

BASE: Mapping[str, Any] = {
    "model_name": pl.String,
    "task_name": pl.String,
    "tt_method_name": pl.String,
    "input_idx": pl.Int64,
    "answer": pl.String,
    "num_input_tokens": pl.Int64,
    "num_prompt_tokens": pl.Int64,
    "num_completion_tokens": pl.Int64,
    "num_answer_tokens": pl.Int64,
    "cost_per_prompt_token": pl.Float64,
    "cost_per_completion_token": pl.Float64,
    "completed": pl.Boolean,
    "timestamp": pl.Float64,
    "uid": pl.String,
}
FULL: Mapping[str, Any] = {
    "input": pl.String,
    "target": pl.String,
    "prompts": pl.List(pl.String),
    "responses": pl.List(pl.String),
    "metadata": pl.String,
}
METRIC: Mapping[str, Any] = {"metric_name": pl.String, "metric_score": pl.Float64}
_DATA = "dataset.parquet"
_INCOMPLETE = re.compile(r"<incomplete>.*?</incomplete>", re.DOTALL)


def read_records(root: str | Path, kind: str = "metric") -> pl.DataFrame:
    """All published records below a folder, or of one dataset.parquet.

    Parameters
    ----------
    kind
        ``metric`` (scored, what estimates need), ``full`` (with prompts and replies), or the name of one metric.

    Returns
    -------
    DataFrame
        Published columns; ``completed`` filled from the answer where it was left out.

    Raises
    ------
    DataError
        No such file, or a column is missing.
    """
    root = Path(root)
    if root.is_file():
        paths = [root]
    else:
        paths = [
            path
            for path in sorted(root.rglob(_DATA))
            if (kind == "full" and path.parent.name == "full_records")
            or (kind == "metric" and path.parent.name.endswith("_records") and path.parent.name != "full_records")
            or path.parent.name == f"{kind}_records"
        ]
    if not paths:
        raise DataError(f"{root}: no {kind} records here; expected TASK/MODEL/TECHNIQUE/{kind}_records/{_DATA}.")
    return pl.concat([_read(path) for path in paths], how="diagonal_relaxed")


def _read(path: Path) -> pl.DataFrame:
    with guarded(path, "Parquet"):
        frame = pl.read_parquet(path)
    lacking = [name for name in BASE if name not in frame.columns and name not in ("completed", "timestamp", "uid")]
    if lacking:
        raise DataError(f"{path}: column {lacking[0]!r} is missing; there are {', '.join(frame.columns)}.")
    if "completed" not in frame.columns:
        frame = frame.with_columns(pl.lit(None, pl.Boolean).alias("completed"))
    if frame.schema["answer"] not in (pl.String, pl.Null):
        raise DataError(f"{path}: column 'answer' is of type {frame.schema['answer']}, and must be text.")
    unfinished = pl.col("answer").fill_null("").str.contains(r"(?s)<incomplete>.*?</incomplete>")
    with guarded(path, "records: column 'completed' must be true or false"):
        return frame.with_columns(pl.coalesce(pl.col("completed").cast(pl.Boolean), ~unfinished).alias("completed"))


def incomplete(answer: str) -> str:
    """Answer marked as not come to its end."""
    return answer if _INCOMPLETE.search(answer) else f"<incomplete>{answer}</incomplete>"


@dataclass(frozen=True, slots=True)
class RecordStore:
    """A folder in the published layout.

    Parameters
    ----------
    root
        The folder; made when first written to.
    """

    root: Path

    def folder(self, task: str, model: str, technique: str) -> Path:
        """Folder of one data set, model and technique.

        Raises
        ------
        UsageError
            A name that would lead out of the store.
        """
        parts = [part for name in (task, model, technique) for part in name.split("/")]
        bad = [part for part in parts if part in ("", ".", "..") or "\\" in part or "\0" in part]
        if bad:
            raise UsageError(f"The name part {bad[0]!r} of {task!r}, {model!r}, {technique!r} cannot be a folder.")
        return Path(self.root, *parts)

    def read(self, task: str, model: str, technique: str, kind: str = "full") -> pl.DataFrame:
        """Records of one kind (``full``, or a metric's name); empty where there are none."""
        path = self.folder(task, model, technique) / f"{kind}_records" / _DATA
        if path.is_file():
            return _read(path)
        return pl.DataFrame(schema={**BASE, **(FULL if kind == "full" else METRIC)})

    def write(self, records: pl.DataFrame, kind: str = "full", mode: Literal["append", "overwrite"] = "append") -> None:
        """Write records of any number of data sets, models and techniques.

        Raises
        ------
        DataError
            A column is missing, or a record (uid) is there already.
        """
        wanted = {**BASE, **(FULL if kind == "full" else METRIC)}
        optional = {"completed": None, "timestamp": time.time(), "metadata": None}
        lacking = [name for name in wanted if name not in records.columns and name not in (*optional, "uid")]
        if lacking:
            raise DataError(f"Column {lacking[0]!r} is missing; {kind} records have {', '.join(wanted)}.")
        filled = records.with_columns(
            *(pl.lit(value, wanted[name]).alias(name) for name, value in optional.items()
              if name in wanted and name not in records.columns),
        )  # fmt: skip
        if "uid" not in filled.columns:
            filled = filled.with_columns(pl.Series("uid", [str(uuid.uuid4()) for _ in range(filled.height)]))
        filled = filled.select(pl.col(name).cast(kind_) for name, kind_ in wanted.items())
        key = ["task_name", "model_name", "tt_method_name"]
        for (task, model, technique), part in filled.partition_by(key, as_dict=True, maintain_order=True).items():
            old = self.read(task, model, technique, kind)
            if mode == "append" and old.height:
                part = pl.concat([old.select(list(wanted)), part], how="vertical_relaxed")
            twice = part.filter(pl.col("uid").is_duplicated())
            if twice.height:
                raise DataError(
                    f"Record {twice.get_column('uid')[0]!r} of {task}/{model}/{technique} is there already."
                )
            self._save(task, model, technique, kind, part)

    def trim(self, task: str, model: str, technique: str, n_runs: int, kind: str = "full") -> int:
        """Keep the first ``n_runs`` records of each problem, complete ones first; the number dropped."""
        if n_runs < 1:
            raise UsageError(f"Trimming keeps at least one run; got {n_runs}.")
        have = self.read(task, model, technique, kind)
        kept = (
            have.with_row_index("at")
            .sort("completed", "at", descending=[True, False])
            .filter(pl.int_range(pl.len()).over("input_idx") < n_runs)
            .sort("at")
            .drop("at")
        )
        self._save(task, model, technique, kind, kept)
        return have.height - kept.height

    def drop_failed(self, task: str, model: str, technique: str, kind: str = "full") -> int:
        """Remove incomplete records, so that they count as missing and run again; the number dropped."""
        have = self.read(task, model, technique, kind)
        kept = have.filter(pl.col("completed").fill_null(True))
        self._save(task, model, technique, kind, kept)
        return have.height - kept.height

    def missing(
        self, task: str, model: str, technique: str, problems: Iterable[int], n_runs: int, kind: str = "full"
    ) -> dict[int, int]:
        """Runs that each problem (``input_idx``) still lacks of ``n_runs``; problems with all are left out."""
        have = self.read(task, model, technique, kind).filter(pl.col("completed").fill_null(True))
        done = dict(have.group_by("input_idx").len().iter_rows())
        return {p: n_runs - done.get(p, 0) for p in problems if done.get(p, 0) < n_runs}

    def metadata(self, task: str, model: str, technique: str) -> dict[str, dict[str, int]]:
        """Counts by kind of record: n_runs, n_queries, n_records, n_completed."""
        path = self.folder(task, model, technique) / "metadata.json"
        return read_json(path) if path.is_file() else {}

    def _save(self, task: str, model: str, technique: str, kind: str, records: pl.DataFrame) -> None:
        folder = self.folder(task, model, technique)
        path = folder / f"{kind}_records" / _DATA
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        records.write_parquet(fresh, compression="zstd")
        fresh.replace(path)
        queries = records.get_column("input_idx").n_unique()
        counts = self.metadata(task, model, technique)
        counts[f"{kind}_records"] = {
            # The published package refuses uneven runs; here the smallest number of runs of a problem stands.
            "n_runs": int(records.group_by("input_idx").len().get_column("len").min() or 0) if queries else 0,  # pyright: ignore[reportArgumentType]
            "n_queries": queries,
            "n_records": records.height,
            "n_completed": int(records.get_column("completed").fill_null(True).sum()),
        }
        write_atomically(folder / "metadata.json", json.dumps(counts, indent=1).encode())


def outcomes(path: Path, tasks: Sequence[ProblemTask]) -> Iterator[tuple[str, str, int, Outcome]]:
    """Published records as outcomes of this benchmark: replies where full records hold them, else answers.

    Records of data sets, problems or techniques that are not asked for are passed over; incomplete ones too.
    """
    try:
        frame = read_records(path, "full")
    except DataError:
        frame = read_records(path, "metric")
    by_name = {task.data_set.published: task for task in tasks}
    counts: dict[tuple[str, str], int] = {}
    models = frame.get_column("model_name").unique().to_list()
    if len(models) > 1:
        raise UsageError(
            f"{path} holds {len(models)} models ({', '.join(sorted(models)[:4])}); give the folder of one, or read "
            "them all "
            "with read_records for CostOfPass."
        )
    for row in frame.filter("completed").iter_rows(named=True):
        task = by_name.get(row["task_name"])
        if task is None:
            continue
        problem = next((p for p in task.problems if p.position == row["input_idx"]), None)
        technique = techniques.short_name(row["tt_method_name"])
        if problem is None or technique not in task.benchmark.techniques:
            continue
        sample = problem.id if technique == "vanilla" else f"{problem.id}~{technique}"
        attempt = counts.get((task.name, sample), 0)
        counts[task.name, sample] = attempt + 1
        yield task.name, sample, attempt, Outcome(output=_output(row, technique))


def _output(row: Mapping[str, Any], technique: str) -> Any:
    replies = row.get("responses")
    if not replies:
        return f"<answer>{row['answer']}</answer>"
    prompts = row.get("prompts") or []
    messages = []
    for i, reply in enumerate(replies):
        if i < len(prompts):
            messages.append({"role": "user", "content": str(prompts[i])})
        messages.append({"role": "assistant", "content": str(reply)})
    return {"messages": messages, "voted": technique.startswith("majority_")}


def to_published(runs: Runs, prices: PriceBook | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(full records, metric records) of runs of this benchmark.

    Dollars a token are those of a price book or, without one, recovered from the records: the two prices that explain
    the cost of every record exactly.

    Raises
    ------
    DataError
        Records of another benchmark, or costs that no two prices explain (cached tokens, fees): give a book.
    """
    from assay.core.store import load_output
    from assay.reasoning.cost_of_pass.data import data_set

    rows = []
    for run in runs:
        frame = run.records.filter(pl.col("status").is_in(["ok", "error", "timeout"]))
        if run.benchmark != "cost_of_pass":
            raise DataError(f"{run.id} is a run of {run.benchmark}; the published format is for runs of cost_of_pass.")
        price_in, price_out = _token_prices(frame, run.system, prices)
        samples = {(s["task"], s["sample"]): s for s in run.samples.iter_rows(named=True)}
        for row in frame.iter_rows(named=True):
            output = load_output(run.path, row["output"]) if row["output"] else {}
            messages = output.get("messages", []) if isinstance(output, Mapping) else []
            calls = [call for call in row["calls"] or [] if call["role"] == "subject"]
            said = [m["content"] for m in messages if m["role"] == "assistant"]
            done = row["status"] == "ok"
            answer = row.get("answer") if done else incomplete(said[-1] if said else "")
            one = data_set(row["task"])
            rows.append(
                {
                    "model_name": run.system,
                    "task_name": one.published,
                    "tt_method_name": techniques.published_name(row["technique"]),
                    "input_idx": row["input_idx"],
                    "answer": "" if answer in (None, "none") else answer,
                    # assay meters what is billed; it does not tokenise questions and answers by themselves.
                    "num_input_tokens": 0,
                    "num_prompt_tokens": sum(call["prompt_tokens"] for call in calls),
                    "num_completion_tokens": sum(call["completion_tokens"] for call in calls),
                    "num_answer_tokens": 0,
                    "cost_per_prompt_token": price_in,
                    "cost_per_completion_token": price_out,
                    "completed": done,
                    "timestamp": row["started"].timestamp(),
                    "uid": f"{run.id}/{row['task']}/{row['sample']}/{row['attempt']}",
                    "input": next((m["content"] for m in messages if m["role"] == "user"), ""),
                    "target": json.loads(samples[row["task"], row["sample"]]["target"] or '""'),
                    "prompts": [m["content"] for m in messages if m["role"] == "user"],
                    "responses": said,
                    "metadata": None,
                    "metric_name": scoring.PUBLISHED_NAMES[one.compare],
                    "metric_score": row["correct"] if done else None,
                }
            )
    everything = pl.DataFrame(rows, schema={**BASE, **FULL, **METRIC})
    full = everything.select(*BASE, *FULL)
    return full, everything.filter("completed").select(*BASE, *METRIC)


def _token_prices(frame: pl.DataFrame, system: str, prices: PriceBook | None) -> tuple[float, float]:
    from assay.reasoning.cost_of_pass.records import subject_totals

    if prices is not None:
        rate = prices.tariff(system).rates[0]
        return rate.prompt * MILLION, rate.completion * MILLION
    totals = subject_totals(frame).drop_nulls("cost")
    if totals.is_empty():
        raise DataError(f"Records of {system} tell no cost; give a price book (prices=).")
    tokens = totals.select("prompt_tokens", "completion_tokens").to_numpy().astype(float)
    cost = totals.get_column("cost").to_numpy()
    found, *_ = np.linalg.lstsq(tokens, cost, rcond=None)
    if (found < -1e-15).any() or np.abs(tokens @ found - cost).max() > 1e-9 * max(float(cost.max()), 1e-300):
        raise DataError(f"No two token prices explain the costs of {system} (cached tokens, fees?); give a price book.")
    # Tokens that are always in one proportion leave the split open; the total is exact all the same.
    return float(max(found[0], 0.0)), float(max(found[1], 0.0))
