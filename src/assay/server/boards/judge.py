"""The process that scores one submission: started by the worker, watched by it, and gone afterwards.

Reads one JSON object from standard input and writes ``result.json`` into its scratch folder. It alone opens the file
with the hidden options.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import shutil
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from assay.core.errors import UsageError

RESULT = "result.json"
DISK_FULL = 75
"""Exit code (sysexits' EX_TEMPFAIL) when there was no room to score in."""
LITTLE_BYTES = 64 * 2**20


def main() -> None:
    """Carry out one order."""
    _end_with_parent()
    order = msgspec.json.decode(sys.stdin.buffer.read())
    scratch = Path(order["scratch"])
    try:
        answer = prepare(order) if order["task"] == "prepare" else judge(order, scratch)
    except Exception as error:
        from assay.server.boards.referee import RefereeError

        if disk_is_full(scratch, error):
            # That is nobody's score, and there may be no room to say anything.
            sys.exit(DISK_FULL)

        # Only the referee's own sentences are known to hold nothing of the truth.
        known = isinstance(error, RefereeError)
        what = "score this submission" if order["task"] == "judge" else "load this board"
        reason = str(error) if known else f"The referee could not {what}; the organiser can see why."
        detail = f"{error.detail if known else ''}\n{traceback.format_exc()}".lstrip()
        answer = {"status": "failed", "reason": reason, "detail": detail}
    partial = scratch / (RESULT + ".part")
    try:
        partial.write_bytes(msgspec.json.encode(answer))
    except OSError as error:
        if disk_is_full(scratch, error):
            sys.exit(DISK_FULL)
        raise
    partial.rename(scratch / RESULT)


def disk_is_full(scratch: Path, error: BaseException) -> bool:
    """Whether that is why something failed: the error says so, and so does the disk (the words may be a team's)."""
    from assay.core.files import FULL

    words = [os.strerror(number) for number in FULL]
    return any(w in str(error) for w in words) and shutil.disk_usage(scratch).free < LITTLE_BYTES


def judge(order: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Unpack, read, and where there is no fault score."""
    from assay.core.errors import DataError
    from assay.core.registry import load_benchmark
    from assay.report.formats import one_line
    from assay.server.boards.extraction import Bounds, open_upload, without_paths
    from assay.server.boards.referee import LONGEST_FAULT, RefereeError, check, headline, parts, score

    public = order["options"]
    bounds = Bounds(order["unpacked_bytes"], order["files"])
    try:
        path = open_upload(Path(order["upload"]), order["file_name"], scratch / "opened", bounds)
    except DataError as error:
        return {"status": "refused", "faults": [one_line(str(error), LONGEST_FAULT)], "left": 0}
    checked = check(load_benchmark(order["benchmark"], **public), path)
    faults, left = checked.shown()
    if faults:
        names = {path: path.name, path.parent: ""}
        return {"status": "refused", "faults": [without_paths(f, names).lstrip("/") for f in faults], "left": left}
    run = score(
        order["benchmark"], public, sealed_options(Path(order["sealed"])), checked, order["system"], scratch / "run"
    )
    salt = bytes.fromhex(order["salt"])
    targets = {(task, sample): target for task, sample, target in run.samples.select("task", "sample", "target").rows()}
    if order["truth"] and truth_mark(targets, salt) != order["truth"]:
        raise RefereeError("The hidden truth is no longer the one that this board opened with.")
    shown, final = parts(run, order["share"], salt)
    head = headline(shown, order["metric"] or None)
    headline(final, order["metric"] or None)
    return {
        "status": "scored",
        "headline": head.metric,
        "higher_is_better": head.higher_is_better,
        "shown": [_plain(s) for s in shown],
        "final": [_plain(s) for s in final],
    }


def prepare(order: dict[str, Any]) -> dict[str, Any]:
    """See whether both sides of a board fit: the same samples, a truth for each, and a metric that ranks."""
    from assay.core.execute import tasks_by_name
    from assay.core.registry import load_benchmark
    from assay.server.boards.referee import expected

    public = load_benchmark(order["benchmark"], **order["options"])
    keys = expected(public)
    sealed = load_benchmark(order["benchmark"], **{**order["options"], **sealed_options(Path(order["sealed"]))})
    hidden = expected(sealed)
    if set(keys) != set(hidden):
        odd = sorted(set(keys) ^ set(hidden))[0]
        return _broken(f"The public and the hidden side differ in {odd[0]}/{odd[1]}; both need the same samples.")
    tasks = tasks_by_name(sealed)
    encode = msgspec.json.Encoder(order="deterministic").encode
    targets = {
        (name, s.id): None if s.target is None else encode(s.target).decode()
        for name in {k[0] for k in hidden}
        for s in tasks[name].samples()
    }
    if lacking := sum(t is None for t in targets.values()):
        return _broken(f"The hidden options leave {lacking} samples without a target.")
    metrics = list(sealed.metrics)
    chosen = [m for m in metrics if m.name == order["metric"]] if order["metric"] else [
        *[m for m in metrics if m.headline], *metrics
    ]  # fmt: skip
    if not chosen:
        return _broken(f"There is no metric {order['metric']!r}; there are {', '.join(m.name for m in metrics)}.")
    return {
        "status": "open",
        "truth": truth_mark(targets, bytes.fromhex(order["salt"])),
        "expected": len(keys),
        "headline": chosen[0].name,
        "higher_is_better": chosen[0].higher_is_better,
    }


def truth_mark(targets: Mapping[tuple[str, str], str | None], salt: bytes) -> str:
    """Keyed hash of all targets: tells whether they changed, and to nobody without the key what they are."""
    return hmac.new(salt, msgspec.json.encode(sorted(targets.items())), hashlib.sha256).hexdigest()


def sealed_options(path: Path) -> dict[str, Any]:
    """Hidden options from their file: a JSON object; a value that begins with ``./`` is a path beside the file.

    Raises
    ------
    UsageError
        The file is missing, no object, or it or a file that it names can be read by other users of the machine.
    """
    try:
        mode, text = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        raise UsageError(f"The hidden options {path.name} cannot be read ({error.strerror}).") from None
    if mode & 0o077:
        raise UsageError(f"The hidden options {path.name} can be read by others; run: chmod 600 {path.name}")
    try:
        options = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        raise UsageError(f"The hidden options {path.name} are not a JSON object.") from None
    for name, value in options.items():
        if isinstance(value, str) and value.startswith("./"):
            beside = path.parent / value[2:]
            if beside.exists() and beside.stat().st_mode & 0o077:
                raise UsageError(f"The hidden file {value} can be read by others; run: chmod go= {value}")
            options[name] = str(beside)
    return options


def _broken(reason: str) -> dict[str, Any]:
    return {"status": "failed", "reason": reason, "detail": reason}


def _plain(score: Any) -> dict[str, Any]:
    return {
        "metric": score.metric, "value": score.value, "low": score.low, "high": score.high, "n": score.n,
        "higher_is_better": score.higher_is_better,
    }  # fmt: skip


def _end_with_parent() -> None:
    """A worker that is killed takes its judge along, so that nothing scores behind the back of the next one."""
    with contextlib.suppress(OSError, AttributeError):
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    main()
