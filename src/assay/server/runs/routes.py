"""Pages of runs and their JSON twins under /api. For readers and admins: records hold answers and targets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from assay.core.errors import DataError
from assay.report.exchange import image_kind
from assay.server.runs import records, watching
from assay.server.runs.folders import RunFolder, RunFolders
from assay.server.runs.queries import PAGE, View, Views, disagreements
from assay.server.runs.queries import Query as RecordQuery
from assay.server.runs.scores import PENDING, Scores, names_of
from assay.server.settings import Settings
from assay.server.web import answer, render, require, url_with

router = APIRouter(dependencies=[Depends(require("reader"))])
LIST_PAGE = 50
MOST_COMPARED = 12
PAGE_WAIT, API_WAIT = 0.2, 20.0
"""Seconds that a page and a program wait for scores; the page asks again by itself."""
_SORTS = {"created": "created", "benchmark": "benchmark", "system": "system", "trials": "trials", "paid": "paid"}

Name = Annotated[str, Query(max_length=300)]
Place = Annotated[int, Query(ge=0, le=10**9)]
Size = Annotated[int, Query(ge=1, le=500)]
Sample = Annotated[str, Query(max_length=2000)]


class Library:
    """What the pages of one server share: the runs there are, their views and scores."""

    def __init__(self, settings: Settings) -> None:
        self.folders = RunFolders(settings.runs)
        self.views = Views(settings.root / "cache" / "runs")
        self.scores = Scores()


def library(request: Request) -> Library:
    """The library of this server. A dependency."""
    return request.app.state.library


def run_of(request: Request, run: str) -> RunFolder:
    """The run that an address names. A dependency."""
    found = library(request).folders.find(run)
    if found is None:
        raise HTTPException(404, "There is no such run here.")
    return found


def records_query(
    task: Name = "",
    status: Name = "",
    text: Name = "",
    answers: bool = False,
    where: Annotated[list[Annotated[str, Query(max_length=500)]] | None, Query(max_length=12)] = None,
    sort: Name = "",
) -> RecordQuery:
    """Which records an address asks for. A dependency."""
    return RecordQuery(task, status, text, answers, tuple(where or ()), sort)


Books = Annotated[Library, Depends(library)]
Chosen = Annotated[RunFolder, Depends(run_of)]
Asked = Annotated[RecordQuery, Depends(records_query)]


# -- all runs ----------------------------------------------------------------------------------------------------------


def _selected(books: Library, benchmark: str, system: str, status: str, text: str, sort: str) -> list[RunFolder]:
    found = [
        run
        for run in books.folders.all()
        if (not benchmark or run.info["benchmark"] == benchmark)
        and (not system or run.info.get("system") == system)
        and (not status or run.status == status)
        and (not text or text.casefold() in f"{run.id} {run.info.get('system')} {run.info.get('tags')}".casefold())
    ]
    key = _SORTS.get(sort.removeprefix("-"))
    if key is not None:
        numbers = key in ("trials", "paid")
        found.sort(
            key=lambda run: (run.info.get(key) or 0) if numbers else str(run.info.get(key, "")).casefold(),
            reverse=sort.startswith("-"),
        )
    return found


@router.get("/runs")
def runs_page(
    request: Request, books: Books, benchmark: Name = "", system: Name = "", status: Name = "", text: Name = "",
    sort: Name = "-created", start: Place = 0,
) -> Response:  # fmt: skip
    """All runs."""
    every = books.folders.all()
    found = _selected(books, benchmark, system, status, text, sort)
    return render(
        request, "runs/list.html.j2",
        runs=[(run, _summary(run)) for run in found[start : start + LIST_PAGE]],
        found=len(found), start=start, page=LIST_PAGE, every=len(every), sort=sort, text=text,
        chosen={"benchmark": benchmark, "system": system, "status": status},
        choices={
            "benchmark": sorted({str(run.info["benchmark"]) for run in every}),
            "system": sorted({str(run.info.get("system", "")) for run in every}),
            "status": ["finished", "interrupted", "running"],
        },
    )  # fmt: skip


@router.get("/api/runs")
def runs_json(
    books: Books, benchmark: Name = "", system: Name = "", status: Name = "", text: Name = "", sort: Name = "-created",
    start: Place = 0, limit: Size = LIST_PAGE,
) -> Response:  # fmt: skip
    """All runs, one page of them."""
    found = _selected(books, benchmark, system, status, text, sort)
    return answer({"found": len(found), "runs": [_summary(run) for run in found[start : start + limit]]})


def _summary(run: RunFolder) -> dict[str, Any]:
    info = run.info
    statuses: Mapping[str, int] = info.get("statuses") or {}
    return {
        "id": run.id,
        "benchmark": info["benchmark"],
        "title": info.get("title", ""),
        "system": info.get("system", ""),
        "status": run.status,
        "created": info.get("created", ""),
        "trials": info.get("trials", 0),
        "done": info.get("done"),
        "errors": statuses.get("error", 0) + statuses.get("timeout", 0),
        "paid": info.get("paid", 0.0),
        "seconds": info.get("seconds"),
        "tags": info.get("tags") or {},
    }


# -- one run -----------------------------------------------------------------------------------------------------------


@router.get("/runs/{run}")
def run_page(request: Request, books: Books, found: Chosen, by: Name = "") -> Response:
    """One run: progress, scores with intervals, where it comes from."""
    view = books.views.view(found)
    groups = _groups(found, view)
    scores, why = books.scores.of(view, wait=PAGE_WAIT)
    parts, part_why = books.scores.of(view, by, wait=PAGE_WAIT) if by in groups else ([], "")
    return render(
        request, "runs/run.html.j2", run=found, summary=_summary(found), progress=watching.progress(found, view),
        scores=scores, why=why or part_why, by=by if by in groups else "", groups=groups, parts=parts,
        scales=_scales(parts), facts=_facts(found), pending=PENDING in (why, part_why),
    )  # fmt: skip


@router.get("/api/runs/{run}")
def run_json(found: Chosen) -> Response:
    """The manifest of a run, and how it stands."""
    return answer({**_summary(found), "manifest": found.info})


@router.get("/api/runs/{run}/scores")
def scores_json(books: Books, found: Chosen, by: Name = "") -> Response:
    """Scores with intervals."""
    view = books.views.view(found)
    if by and by not in _groups(found, view):
        raise HTTPException(400, f"There is no group {by!r} in this run.")
    scores, why = books.scores.of(view, by, wait=API_WAIT)
    return answer({"scores": scores, "why_none": why}, 202 if why == PENDING else 200)


@router.get("/api/runs/{run}/progress")
def progress_json(books: Books, found: Chosen) -> Response:
    """How far a run is, and what ended last."""
    return answer(watching.progress(found, books.views.view(found)))


def _groups(run: RunFolder, view: View) -> list[str]:
    info = run.info
    names = [*info.get("groups", []), *info.get("outcome_groups", [])]
    known = ["task", *names] if len(info["tasks"]) > 1 else names
    return [name for name in dict.fromkeys(known) if name in view.schema]


def _scales(scores: Sequence[Any]) -> dict[str, tuple[float, float]]:
    """Per metric the range that its intervals span, for drawing them one above the other."""
    found: dict[str, tuple[float, float]] = {}
    for score in scores:
        ends = [v for v in (score.low, score.high, score.value) if v == v and abs(v) != float("inf")]
        if ends:
            low, high = found.get(score.metric, (ends[0], ends[0]))
            found[score.metric] = (min(low, *ends), max(high, *ends))
    return found


def _facts(run: RunFolder) -> list[tuple[str, Any]]:
    info = run.info
    host: Mapping[str, Any] = info.get("host") or {}
    data: Mapping[str, Any] = info.get("data") or {}
    facts = [
        ("command", " ".join(map(str, info.get("command") or ()))),
        ("options", ", ".join(f"{k}={v}" for k, v in (info.get("options") or {}).items())),
        ("tags", ", ".join(f"{k}={v}" for k, v in (info.get("tags") or {}).items())),
        ("seed", info.get("seed")),
        ("data", ", ".join(str(data[k]) for k in ("kind", "source", "licence") if data.get(k))),
        ("assay", info.get("assay")),
        ("host", ", ".join(f"{k} {v}" for k, v in host.items())),
        ("git", (info.get("git") or {}).get("commit")),
        ("started", info.get("started")),
        ("finished", info.get("finished")),
        ("reason", info.get("reason")),
        ("parent", (info.get("parent") or {}).get("id")),
    ]
    return [(name, value) for name, value in facts if value not in (None, "")]


# -- records -----------------------------------------------------------------------------------------------------------


@router.get("/runs/{run}/records")
def records_page(
    request: Request, books: Books, found: Chosen, query: Asked, start: Place = 0, column: Name = "", test: Name = "",
    value: Name = "", show: bool = False,
) -> Response:  # fmt: skip
    """The records of a run, fifty at a time."""
    if column and test:
        # The form's one free condition joins those that the address holds already.
        where = [*query.where, f"{column}{test}{value}"]
        return RedirectResponse(url_with(request, column=None, test=None, value=None, start=None, where=where), 303)
    view = books.views.view(found)
    order = books.views.order(view, query)
    columns = records.list_columns(found, view)
    rows = view.page(order[start : start + PAGE].to_list(), [*columns, *(["output"] if show else [])])
    return render(
        request, "runs/records.html.j2", run=found, query=query, columns=columns, rows=records.cells(found, rows),
        found=order.len(), start=start, page=PAGE, show=show, every=view.columns, tasks=list(found.info["tasks"]),
        numeric=records.numeric(view), statuses=["ok", "error", "timeout", "skipped", "unscored"],
    )  # fmt: skip


@router.get("/api/runs/{run}/records")
def records_json(
    books: Books, found: Chosen, query: Asked, start: Place = 0, limit: Size = PAGE, output: bool = False
) -> Response:
    """Records of a run; ``output`` adds what the system put out, as JSON text."""
    view = books.views.view(found)
    order = books.views.order(view, query)
    rows = view.page(order[start : start + limit].to_list(), [*view.columns, *(["output"] if output else [])])
    return answer({"found": order.len(), "start": start, "records": rows})


@router.get("/runs/{run}/record")
def record_page(
    request: Request, books: Books, found: Chosen, query: Asked, at: Name, sample: Sample, attempt: Place = 0
) -> Response:
    """One record: everything that was said, put out, scored and left. ``at`` is its task."""
    view = books.views.view(found)
    row = view.row_of(at, sample, attempt)
    if row is None:
        raise HTTPException(404, "There is no record of this trial.")
    order = books.views.order(view, query)
    position = order.index_of(row)
    neighbours = {}
    if position is not None:
        first = max(0, position - 1)
        keys = view.page(order[first : position + 2].to_list(), ["task", "sample", "attempt"])
        for label, place in (("previous", position - 1), ("next", position + 1)):
            if 0 <= place - first < len(keys) and place >= 0:
                key = keys[place - first]
                neighbours[label] = url_with(request, at=key["task"], sample=key["sample"], attempt=key["attempt"])
    (record,) = view.page([row], list(view.schema))
    back = url_with(request, at=None, sample=None, attempt=None).replace("/record", "/records", 1)
    return render(
        request, "runs/record.html.j2", run=found, record=records.shown(found, record), neighbours=neighbours,
        position=position, found=order.len(), start=(position or 0) // PAGE * PAGE, back=back,
    )  # fmt: skip


@router.get("/api/runs/{run}/record")
def record_json(books: Books, found: Chosen, at: Name, sample: Sample, attempt: Place = 0) -> Response:
    """One record, with its output, exchanges and target as they are stored (JSON text)."""
    view = books.views.view(found)
    row = view.row_of(at, sample, attempt)
    if row is None:
        raise HTTPException(404, "There is no record of this trial.")
    return answer(view.page([row], list(view.schema))[0])


@router.get("/runs/{run}/files/{name:path}")
def artifact(found: Chosen, name: str) -> Response:
    """A file that a trial left. Pictures are shown, everything else is downloaded."""
    path = found.file(f"artifacts/{name}") if ".." not in name.split("/") else None
    if path is None or not path.resolve().is_relative_to((found.path / "artifacts").resolve()):
        raise HTTPException(404, "There is no such file in this run.")
    with path.open("rb") as file:
        kind = image_kind(file.read(16))
    return FileResponse(
        path,
        media_type=f"image/{kind}" if kind else "application/octet-stream",
        filename=re.sub(r"[^A-Za-z0-9._-]", "_", path.name),
        content_disposition_type="inline" if kind else "attachment",
        headers={"content-security-policy": "default-src 'none'; sandbox"},
    )


@router.get("/runs/{run}/trace/{name:path}")
def trace(found: Chosen, name: str) -> Response:
    """The trace of an agent that a trial left, step by step."""
    from assay.report.trace import read_trace, render_traces

    path = found.file(f"artifacts/{name}") if ".." not in name.split("/") else None
    if path is None or path.suffix != ".json" or path.stat().st_size > 50_000_000:
        raise HTTPException(404, "There is no such trace in this run.")
    page = render_traces([read_trace(path)], f"{found.id}: {name}")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    if policy is None:
        raise DataError("The trace page came without a policy.")
    # The page brings its own style, and the policy that allows it by hash.
    said = policy[1].replace("&#39;", "'")
    return HTMLResponse(page, headers={"content-security-policy": f"{said}; frame-ancestors 'none'"})


# -- comparisons -------------------------------------------------------------------------------------------------------


def _compared(
    books: Library, run: Sequence[str], metric: Sequence[str], by: str, wait: float
) -> tuple[list[RunFolder], Any, str]:
    if len(run) > MOST_COMPARED:
        raise HTTPException(400, f"At most {MOST_COMPARED} runs are compared at once; choose fewer.")
    found = [books.folders.find(name) for name in dict.fromkeys(run)]
    if None in found:
        raise HTTPException(404, "There is no such run here.")
    chosen = [r for r in found if r is not None]
    if not chosen or (len(chosen) < 2 and not by):
        return chosen, [], "Choose at least two runs of one benchmark."
    comparisons, why = books.scores.compare([books.views.view(r) for r in chosen], metric, by, wait=wait)
    return chosen, comparisons, why


Many = Annotated[list[Annotated[str, Query(max_length=300)]] | None, Query(max_length=50)]


@router.get("/compare")
def compare_page(
    request: Request, books: Books, run: Many = None, metric: Many = None, by: Name = "", score: Name = ""
) -> Response:
    """Paired comparisons of runs: difference, interval, corrected p; of two runs also where they differ."""
    chosen, comparisons, why = _compared(books, run or (), metric or (), by, PAGE_WAIT)
    same = [r for r in books.folders.all() if not chosen or r.info["benchmark"] == chosen[0].info["benchmark"]]
    views = [books.views.view(r) for r in chosen]
    scores = [(view.run, label, *books.scores.of(view, wait=PAGE_WAIT)) for view, label in zip(views, names_of(views))]
    groups = _groups(chosen[0], views[0]) if chosen else []
    shared = _shared_scores(views)
    score = score if score in shared else next(iter(shared), "")
    differ = disagreements(views[0], views[1], score, PAGE) if score else (0, [])
    return render(
        request, "runs/compare.html.j2", shared=shared, score=score, differ=differ,
        chosen=chosen, others=[r for r in same if r.id not in {c.id for c in chosen}],
        comparisons=comparisons, why=why, scores=scores, by=by, groups=groups,
        scales=_differences(comparisons), pending=PENDING in (why, *(reason for *_, reason in scores)),
    )  # fmt: skip


@router.get("/api/compare")
def compare_json(books: Books, run: Many = None, metric: Many = None, by: Name = "") -> Response:
    """Paired comparisons of runs."""
    chosen, comparisons, why = _compared(books, run or (), metric or (), by, API_WAIT)
    found = {"runs": [r.id for r in chosen], "comparisons": comparisons, "why_none": why}
    return answer(found, 202 if why == PENDING else 200)


def _shared_scores(views: Sequence[View]) -> list[str]:
    """Scores that both of two runs have."""
    if len(views) != 2:
        return []
    mine, other = (records.score_columns(view.run, view) for view in views)
    return [name for name in mine if name in other]


def _differences(comparisons: Sequence[Any]) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    for one in comparisons:
        ends = [v for v in (one.low, one.high, one.difference, 0.0) if v == v and abs(v) != float("inf")]
        low, high = found.get(one.metric, (0.0, 0.0))
        found[one.metric] = (min(low, *ends), max(high, *ends))
    return found
