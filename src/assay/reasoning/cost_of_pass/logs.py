"""Logs of other harnesses as records for CostOfPass: inspect-ai (.json, .eval) and lm-evaluation-harness (samples)."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from assay.core.datasets.readers import guarded, read_json, read_jsonl, require, shown
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
    if not isinstance(about, Mapping) or not all(isinstance(about.get(name), str) for name in ("model", "task")):
        raise DataError(f"{path}: not a log of inspect-ai (no eval.task and eval.model).")
    for number, sample in enumerate(samples, 1):
        if not isinstance(sample, Mapping):
            raise DataError(f"{path}, sample {number}: not a sample of inspect-ai but {shown(sample)}.")
        where = f"{path}, sample {shown(sample.get('id'))}, epoch {shown(sample.get('epoch'))}"
        if "id" not in sample or "epoch" not in sample:
            raise DataError(f"{where}: a sample needs id and epoch.")
        usage = _object(_object(sample, "model_usage", where), about["model"], where)
        cached = _tokens(usage, "input_tokens_cache_read", where)
        failed = sample.get("error") is not None
        yield {
            "task": about["task"],
            "model": about["model"],
            "sample": str(sample["id"]),
            "attempt": require(sample, "epoch", int, where) - 1,
            "correct": None if failed else _inspect_score(_object(sample, "scores", where), scorer, where),
            "status": "error" if failed else "ok",
            "seconds": float(_number(sample, "total_time", where) or 0.0),
            "prompt_tokens": sum(_tokens(usage, f"input_tokens{kind}", where) for kind in ("", "_cache_write"))
            + cached,
            "cached_tokens": cached,
            "completion_tokens": _tokens(usage, "output_tokens", where),
            "reasoning_tokens": _tokens(usage, "reasoning_tokens", where),
            "cost": _number(usage, "total_cost", where),
        }


def _object(holder: Log, field: str, where: str) -> Log:
    """An object that may be left out or null."""
    return {} if holder.get(field) is None else require(holder, field, dict, where)


def _number(holder: Log, field: str, where: str) -> float | None:
    return None if holder.get(field) is None else require(holder, field, (int, float), where)


def _tokens(usage: Log, field: str, where: str) -> int:
    """A count; one beyond what a table holds is damage."""
    count = 0 if usage.get(field) is None else require(usage, field, int, where)
    if not 0 <= count < 2**53:
        raise DataError(f"{where}: field {field!r} is {shown(count)}, and must be a number of tokens.")
    return count


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
    return log, [] if log.get("samples") is None else require(log, "samples", list, str(path))


def _zipped(path: Path) -> tuple[Log, Iterable[Log]]:
    import msgspec

    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise DataError(f"{path}: not a log of inspect-ai ({error}).") from None
    names = archive.namelist()
    if "header.json" not in names:
        raise DataError(f"{path}: no header.json inside; the evaluation did not finish.")

    def member(name: str) -> Log:
        if archive.getinfo(name).file_size > _LARGEST:
            raise DataError(f"{path}: {name} unpacks to more than {_LARGEST // 2**20} MB.")
        # Damaged members raise what zipfile and its decompressors like: no closed set.
        with guarded(f"{path}: {name}", "JSON"):
            found = msgspec.json.decode(archive.read(name))
        if not isinstance(found, dict):
            raise DataError(f"{path}: {name} must hold an object, not {shown(found)}.")
        return found

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
            with guarded(where, "a sample of lm-eval"):
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
    listed = row.get("metrics")
    if listed is not None and not (isinstance(listed, list) and all(isinstance(name, str) for name in listed)):
        raise DataError(f"{where}: field 'metrics' is {shown(listed)}, and must be a list of names.")
    names = listed or [
        name
        for name, value in row.items()
        if isinstance(value, (int, float)) and not isinstance(value, str) and name not in ("doc_id",)
    ]
    name = metric or (names[0] if names else None)
    if name is None or name not in row:
        raise DataError(f"{where}: no metric {metric or ''!r}; there are {', '.join(names) or 'none'}.")
    return float(require(row, name, (int, float, bool), where))


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
