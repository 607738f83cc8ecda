"""Logs of other harnesses as records for CostOfPass: inspect-ai (.json, .eval) and lm-evaluation-harness (samples)."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from assay.core.datasets import read_json, read_jsonl
from assay.core.errors import DataError, UsageError, unknown_name

Log = Mapping[str, Any]
_LARGEST = 512 * 2**20
"""Bytes of one unpacked member of an .eval file; more is damage or worse."""
_WORDS = {"c": 1.0, "i": 0.0, "p": 0.5, "n": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def read_inspect(paths: str | Path | Iterable[str | Path], *, scorer: str | None = None) -> pl.DataFrame:
    """Records of inspect-ai logs.

    Tokens are those of the evaluated model alone; graders of other models do not count. Input tokens that inspect keeps
    apart from cached ones are put together again, and reasoning tokens stay part of the output's.

    Parameters
    ----------
    paths
        Logs, or folders of logs.
    scorer
        Whose value is the score; None = the first of each sample.

    Returns
    -------
    DataFrame
        task, model, sample, attempt, correct, status, seconds, prompt_tokens, cached_tokens, completion_tokens,
        reasoning_tokens, and cost (USD) where the log says so.

    Raises
    ------
    DataError
        Not a log of inspect-ai, or a value that is no score.
    """
    rows = [row for path in _expanded(paths, (".json", ".eval")) for row in _inspect_rows(path, scorer)]
    if not rows:
        raise DataError("These logs hold no samples.")
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return frame.drop("cost") if frame.get_column("cost").null_count() == frame.height else frame


def _inspect_rows(path: Path, scorer: str | None) -> Iterator[dict[str, Any]]:
    header, samples = _zipped(path) if path.suffix == ".eval" else _plain(path)
    about = header.get("eval")
    if not isinstance(about, Mapping) or "model" not in about or "task" not in about:
        raise DataError(f"{path}: not a log of inspect-ai (no eval.task and eval.model).")
    for sample in samples:
        where = f"{path}, sample {sample.get('id')!r}, epoch {sample.get('epoch')!r}"
        if "id" not in sample or "epoch" not in sample:
            raise DataError(f"{where}: a sample needs id and epoch.")
        usage = (sample.get("model_usage") or {}).get(about["model"]) or {}
        cached = usage.get("input_tokens_cache_read") or 0
        failed = sample.get("error") is not None
        yield {
            "task": about["task"],
            "model": about["model"],
            "sample": str(sample["id"]),
            "attempt": int(sample["epoch"]) - 1,
            "correct": None if failed else _inspect_score(sample.get("scores") or {}, scorer, where),
            "status": "error" if failed else "ok",
            "seconds": float(sample.get("total_time") or 0.0),
            "prompt_tokens": (usage.get("input_tokens") or 0) + cached + (usage.get("input_tokens_cache_write") or 0),
            "cached_tokens": cached,
            "completion_tokens": usage.get("output_tokens") or 0,
            "reasoning_tokens": usage.get("reasoning_tokens") or 0,
            "cost": usage.get("total_cost"),
        }


def _inspect_score(scores: Mapping[str, Any], scorer: str | None, where: str) -> float:
    if not scores:
        raise DataError(f"{where}: not scored; run inspect score on the log first.")
    name = scorer or next(iter(scores))
    if name not in scores:
        raise unknown_name("scorer", name, scores)
    value = scores[name].get("value") if isinstance(scores[name], Mapping) else scores[name]
    if isinstance(value, str):
        found = _WORDS.get(value.lower())
        if found is not None:
            return found
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"{where}: value {value!r} of scorer {name!r} is no number; choose another with scorer=."
        ) from None
    if math.isnan(number):
        raise DataError(f"{where}: value of scorer {name!r} is NaN.")
    return number


def _plain(path: Path) -> tuple[Log, Iterable[Log]]:
    log = read_json(path)
    if not isinstance(log, Mapping):
        raise DataError(f"{path}: not a log of inspect-ai (an object is needed).")
    return log, log.get("samples") or []


def _zipped(path: Path) -> tuple[Log, Iterable[Log]]:
    import msgspec

    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{path}: not a log of inspect-ai ({error}).") from None
    names = archive.namelist()
    if "header.json" not in names:
        raise DataError(f"{path}: no header.json inside; the evaluation did not finish.")

    def member(name: str) -> Log:
        if archive.getinfo(name).file_size > _LARGEST:
            raise DataError(f"{path}: {name} unpacks to more than {_LARGEST // 2**20} MB.")
        try:
            return msgspec.json.decode(archive.read(name))
        except (msgspec.DecodeError, zipfile.BadZipFile, NotImplementedError) as error:
            raise DataError(f"{path}: {name} is not readable ({error}).") from None

    # Read one by one: a log of many samples does not fit into memory with all its events.
    return member("header.json"), (
        member(name) for name in sorted(names) if name.startswith("samples/") and name.endswith(".json")
    )


def read_lm_eval(
    paths: str | Path | Iterable[str | Path],
    *,
    count: Callable[[str], int],
    model: str | None = None,
    metric: str | None = None,
    filter: str | None = None,
) -> pl.DataFrame:
    """Records of samples_TASK_DATE.jsonl files of lm-evaluation-harness (``--log_samples``).

    They hold texts but no token counts, so a tokeniser must be named.

    Parameters
    ----------
    paths
        Files, or folders searched for samples_*.jsonl.
    count
        Tokens of a text, such as ``lambda text: len(tokenizer.encode(text))``.
    model
        Name of the model; None = the folder of the file, as the harness names it.
    metric, filter
        Which metric is the score, and of which answer filter; None = the first of the file.

    Returns
    -------
    DataFrame
        task, model, sample, attempt, correct, prompt_tokens, completion_tokens.

    Raises
    ------
    DataError
        Not such a file; a metric that it lacks.
    """
    rows: list[dict[str, Any]] = []
    for path in _expanded(paths, (".jsonl",), "samples_*.jsonl"):
        wanted = filter
        for line, row in read_jsonl(path):
            where = f"{path}, line {line}"
            for name in ("doc_id", "arguments", "resps"):
                if name not in row:
                    raise DataError(f"{where}: field {name!r} is missing; is this a samples file of lm-eval?")
            wanted = row.get("filter") if wanted is None else wanted
            if row.get("filter") != wanted:
                continue
            prompts, replies = _exchange(row, where)
            rows += [
                {
                    "task": _task_of(path),
                    "model": model or path.parent.name,
                    "sample": str(row["doc_id"]),
                    "attempt": attempt,
                    "correct": _lm_eval_score(row, metric, where),
                    "prompt_tokens": count(prompts),
                    "completion_tokens": count(reply),
                }
                for attempt, reply in enumerate(replies[:1])
            ]
    if not rows:
        raise DataError("These files hold no samples" + (f" of filter {filter!r}." if filter else "."))
    return pl.DataFrame(rows, infer_schema_length=None)


def _exchange(row: Log, where: str) -> tuple[str, list[str]]:
    arguments = row["arguments"]
    first = arguments[0] if isinstance(arguments, Sequence) and arguments else None
    if isinstance(arguments, Mapping):
        first = arguments.get("gen_args_0")
    prompt = first.get("arg_0") if isinstance(first, Mapping) else first[0] if isinstance(first, Sequence) else None
    replies = row["resps"][0] if row["resps"] else None
    if not isinstance(prompt, str) or not isinstance(replies, list) or not all(isinstance(r, str) for r in replies):
        raise DataError(f"{where}: not a sample of generated text (log-likelihood tasks have no answer to price).")
    return prompt, replies


def _lm_eval_score(row: Log, metric: str | None, where: str) -> float:
    names = row.get("metrics") or [
        name
        for name, value in row.items()
        if isinstance(value, (int, float)) and not isinstance(value, str) and name not in ("doc_id",)
    ]
    name = metric or (names[0] if names else None)
    if name is None or name not in row:
        raise DataError(f"{where}: no metric {metric or ''!r}; there are {', '.join(names) or 'none'}.")
    return float(row[name])


def _task_of(path: Path) -> str:
    name = path.stem.removeprefix("samples_")
    head, mark, tail = name.rpartition("_")
    return head if mark and tail[:2] == "20" else name


def _expanded(
    paths: str | Path | Iterable[str | Path], suffixes: tuple[str, ...], pattern: str | None = None
) -> Iterator[Path]:
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        path = Path(path)
        if path.is_dir():
            found = sorted(p for p in path.rglob(pattern or "*") if p.suffix in suffixes)
            if not found:
                raise UsageError(f"Folder {path} holds no log ({' or '.join(suffixes)}).")
            yield from found
        elif path.is_file():
            yield path
        else:
            raise UsageError(f"Log {path} does not exist.")
