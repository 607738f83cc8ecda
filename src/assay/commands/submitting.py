"""submit, audit: predictions sent to a leaderboard; published files searched for hidden truth."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from assay.cli import COULD_NOT_RUN, DONE, GATE_FAILED, pairs
from assay.commands.output import out, print_json, say, show_rows
from assay.commands.running import read_env_file
from assay.core.errors import AssayError, UsageError


def submit_(arguments: Any) -> int:
    """Look for faults, send, wait for the score. Exit code 1 when there are faults, 3 when it could not be scored."""
    from assay.server.boards.client import Boards, faults_of, packed, split_board

    read_env_file()
    path = Path(arguments.path).expanduser()
    if not path.exists():
        raise UsageError(f"There is nothing at {path}; give a file of predictions, a folder of them or a run folder.")
    token = os.environ.get("ASSAY_SERVER_TOKEN")
    if not token:
        raise UsageError("Set ASSAY_SERVER_TOKEN to a token of yours; the server's page /account makes one.")
    server, key = split_board(arguments.board, os.environ.get("ASSAY_SERVER"))
    boards = Boards(server, token)
    board = boards.board(key)["board"]
    quiet = arguments.json
    own = pairs(arguments.option, "-o")
    try:
        faults, left, read = faults_of(path, board, own)
    except AssayError as error:
        raise UsageError(
            f"The submission cannot be checked here: {error} Options of {board['benchmark']} that differ on this "
            "machine are given with -o, like -o data=PATH."
        ) from None
    if faults:
        if arguments.json:
            print_json({"status": "refused", "faults": faults, "left": left})
        else:
            _show_faults(path, faults, left)
        return GATE_FAILED
    say(f"{path}: {read} predictions for {board['benchmark']}, no fault found", quiet=quiet)
    if arguments.check:
        return DONE
    system = arguments.system or _system_of(path)
    with tempfile.TemporaryDirectory(prefix="assay-submit-") as scratch:
        sent = boards.submit(key, packed(path, Path(scratch)), system, arguments.note or "")
    say(f"submission {sent['number']} to {board['title']}: {server}/boards/{key}/submissions/{sent['id']}", quiet=quiet)
    if arguments.receipt:
        Path(arguments.receipt).write_bytes(msgspec.json.encode(sent["receipt"]))
    if arguments.no_wait:
        if arguments.json:
            print_json(sent)
        return DONE
    before: list[str] = []

    def told(found: dict[str, Any]) -> None:
        waits = f", {found['before_it']} before it" if found.get("before_it") else ""
        if (line := f"{found['status']}{waits}") not in before:
            before.append(line)
            say(line, quiet=quiet)

    entry = boards.wait(key, sent["id"], arguments.timeout, told)
    if arguments.json:
        print_json({**entry, "receipt": sent["receipt"]})
    else:
        _show_entry(path, entry, board)
    return {"scored": DONE, "refused": GATE_FAILED, "failed": COULD_NOT_RUN}.get(entry["status"], DONE)


def _system_of(path: Path) -> str:
    """What a submission is called where no name was given: a run's system, else the file."""
    try:
        return msgspec.json.decode((path / "run.json").read_bytes())["system"]
    except (OSError, KeyError, TypeError, RecursionError, msgspec.MsgspecError):
        return path.resolve().name


def _show_faults(path: Path, faults: list[str], left: int) -> None:
    say(f"{path} is not as the benchmark reads it:")
    for fault in faults:
        say(f"  {fault}")
    if left:
        say(f"  and {left} more")


def _show_entry(path: Path, entry: dict[str, Any], board: dict[str, Any]) -> None:
    if entry["status"] == "refused":
        _show_faults(path, entry["faults"], entry["faults_left"])
    elif entry["status"] == "failed":
        say(entry["reason"])
    elif entry["withheld"]:
        say(f"Scored, and not better than your team's best by more than {board['step']:g}; its score is not shown.")
    elif entry["scores"]:
        rows = [{k: s[k] for k in ("metric", "value", "low", "high", "n")} for s in entry["scores"]]
        show_rows(board["title"], rows)
    else:
        say(f"It is {entry['status']}; look again on the board's page.")


def audit_(arguments: Any) -> int:
    """Search a folder for target values. Exit code 1 when one was found."""
    from assay.server.boards.leaks import find_leaks, read_truth

    truth = read_truth(Path(arguments.truth), arguments.field)
    found = find_leaks(Path(arguments.folder), truth)
    if arguments.json:
        print_json(found)
        return GATE_FAILED if found.leaks else DONE
    if found.leaks:
        rows = [{"file": x.file, "place": x.place, "found": x.what} for x in found.leaks[: arguments.most]]
        show_rows(f"Target values in {arguments.folder}", rows)
        if (left := len(found.leaks) - arguments.most) > 0:
            out().print(f"and {left} more")
    else:
        out().print(f"No target value was found in {found.files} files ({len(truth.values)} targets looked for).")
    for file, why in found.unread:
        say(f"not searched: {file}: {why}")
    return GATE_FAILED if found.leaks else DONE
