"""Where numbers come from: commands, options, fingerprints, seeds, data, versions of a run, from its manifest alone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.report.formats import duration, visible

if TYPE_CHECKING:
    from assay.core.results import Run


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a reader needs to judge a run and to repeat it."""

    id: str
    system: str
    status: str
    command: str | None
    facts: Sequence[tuple[str, str]]
    manifest: str


def provenance(run: Run) -> Provenance:
    """Facts of a run in the order in which a reader asks for them."""
    info = run.info
    data = info.get("data") or {}
    tasks = [
        f"{name}: {task.get('samples')} samples × {task.get('attempts')} attempts, interval over {task.get('resample')}"
        for name, task in (info.get("tasks") or {}).items()
    ]
    rows: list[tuple[str, Any]] = [
        ("benchmark", f"{info.get('benchmark')}, version {info.get('benchmark_version')}"),
        ("system", info.get("system_info") or info.get("system")),
        ("options", info.get("options") or "defaults"),
        ("tasks", tasks),
        ("selection", _selection(info.get("selection") or {})),
        ("seed", info.get("seed")),
        ("data", _data(data)),
        ("licence of the data", data.get("licence")),
        (
            "fingerprints",
            {
                k: v
                for k, v in (("data", info.get("data_fingerprint")), ("options", info.get("options_fingerprint")))
                if v
            },
        ),
        ("skipped tasks", info.get("skipped_tasks")),
        ("tags", info.get("tags")),
        ("parent", info.get("parent")),
        ("begun", _time(info.get("created"))),
        ("finished", _time(info.get("finished"))),
        ("duration", None if info.get("seconds") is None else duration(info["seconds"])),
        ("assay", info.get("assay")),
        ("host", info.get("host")),
        ("git", info.get("git")),
        ("stopped because", info.get("reason")),
    ]
    return Provenance(
        id=run.path.name,
        system=str(info.get("system")),
        status=str(info.get("status")),
        command=command(info),
        facts=[(name, _shown(value)) for name, value in rows if value not in (None, "", [], {})],
        manifest=visible(json.dumps(info, ensure_ascii=False, indent=1, default=str)),
    )


def command(info: Mapping[str, Any]) -> str | None:
    """The line that makes this run again; None for runs of Python objects, which no line can name."""
    if not info.get("rebuildable"):
        return None
    words = ["assay", "run", info["benchmark"], "-s", info["system"]]
    for key, value in (info.get("options") or {}).items():
        listed = ",".join(map(str, value)) if isinstance(value, list) else value
        words += ["-o", f"{key}={listed}"]
    chosen = info.get("selection") or {}
    if chosen.get("limit") is not None:
        words += ["--limit", str(chosen["limit"])]
    if chosen.get("ids"):
        words += ["--samples", ",".join(chosen["ids"])]
    if chosen.get("tasks"):
        words += ["--tasks", ",".join(chosen["tasks"])]
    if info.get("attempts") is not None:
        words += ["--attempts", str(info["attempts"])]
    words += ["--seed", str(info.get("seed", 0))]
    return visible(shlex.join(words))


def data_warning(run: Run) -> str | None:
    """One sentence where the data are not the real ones; None where they are."""
    data = run.info.get("data") or {}
    kind = str(data.get("kind", ""))
    if kind in ("", "real", "generated"):
        return None
    source = f" ({data['source']})" if data.get("source") else ""
    name = run.info["benchmark"]
    if kind == "stand-in":
        return visible(f"{name} ran on stand-in data{source}: scores say nothing about the published benchmark.")
    return visible(f"{name} ran on {kind} data{source}.")


def _data(data: Mapping[str, Any]) -> str:
    return "; ".join(f"{data[key]}" for key in ("kind", "source", "fingerprint", "path") if data.get(key))


def _selection(chosen: Mapping[str, Any]) -> str | None:
    told = [f"limit {chosen['limit']}"] if chosen.get("limit") is not None else []
    told += [f"{len(chosen['ids'])} samples by id"] if chosen.get("ids") else []
    told += [f"tasks {', '.join(chosen['tasks'])}"] if chosen.get("tasks") else []
    return "; ".join(told) or None


def _time(text: str | None) -> str | None:
    return None if text is None else text.replace("T", " ")[:19] + " UTC"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return visible(", ".join(f"{k} = {_shown(v)}" for k, v in value.items() if v is not None))
    if isinstance(value, list):
        return visible("; ".join(_shown(v) for v in value))
    return visible(str(value))
