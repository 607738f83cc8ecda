"""A real benchmark behind a referee: asciieval in its published prediction format, answers with the scorer alone."""

from __future__ import annotations

import json

import pytest

from assay.cli import main
from assay.server.boards.worker import Worker, sealed_folder

pytest.importorskip("sklearn")
N = 24


@pytest.fixture
def contest(live, tmp_path):
    """(house, board, worker, right letters): drawings are public, which choice is right is not."""
    from importlib import resources

    text = resources.files("assay.multimodal.asciieval").joinpath("items.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()[: 7 * N : 7]]
    public = [
        {"id": r["id"], "ascii_art": r["ascii_art"], "choices": r["choices"], "labels": [1, 0, 0, 0]} for r in rows
    ]
    folder = sealed_folder(live.settings)
    folder.mkdir(mode=0o700, exist_ok=True)
    for path, lines in ((tmp_path / "public.jsonl", public), (folder / "items.jsonl", rows)):
        path.write_text("\n".join(map(json.dumps, lines)))
        path.chmod(0o600)
    (folder / "ascii.json").write_text(json.dumps({"data": "./items.jsonl"}))
    (folder / "ascii.json").chmod(0o600)
    options = {"data": str(tmp_path / "public.jsonl"), "modes": "text"}
    made = live.program("admin").post(
        "/api/boards",
        json={
            "name": "ascii",
            "benchmark": "asciieval",
            "sealed": "ascii.json",
            "options": options,
            "metric": "micro_accuracy",
        },
    )
    worker = Worker(live.database, live.settings)
    worker.step()
    return live, made.json()["id"], worker, ["ABCD"[r["labels"].index(1)] for r in rows]


def test_published_predictions_are_scored_and_labels_in_them_tell_nothing(contest, tmp_path, monkeypatch, capsys):
    house, key, worker, right = contest
    monkeypatch.setenv("ASSAY_SERVER_TOKEN", house.token("submitter", "anna"))
    monkeypatch.setenv("ASSAY_SERVER", house.settings.url)
    anna = house.program("submitter", "anna")
    path = tmp_path / "text.jsonl"
    wrong = {"A": "B", "B": "C", "C": "D", "D": "A"}
    rows = [{"pred": f"The answer is {r if i < 18 else wrong[r]}."} for i, r in enumerate(right)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert main(["submit", str(path), "--board", "ascii", "--no-wait", "--json"]) == 0
    sent = json.loads(capsys.readouterr().out)
    worker.step()
    found = anna.get(f"/api/boards/{key}/submissions/{sent['id']}").json()
    scores = {s["metric"]: (s["value"], s["n"]) for s in found["scores"]}
    assert scores["micro_accuracy"] == (0.75, N)
    assert scores["answer_rate"] == (1.0, N)

    # The reader compares labels that a file brings along: it knows the public ones, so what it says is no oracle.
    probes = []
    for letter in "ABCD":
        probe = "\n".join(
            json.dumps({"pred": "A", "label": letter}) if i == 5 else json.dumps(r) for i, r in enumerate(rows)
        )
        where = f"/api/boards/{key}/submissions"
        probes.append(anna.post(where, params={"system": "probe", "file": "t.jsonl"}, content=probe).json()["id"])
        worker.step()
    answers = [anna.get(f"/api/boards/{key}/submissions/{p}").json() for p in probes]
    assert [a["status"] for a in answers] == ["scored", "refused", "refused", "refused"]
    assert all("has 'A'" in a["reason"] for a in answers[1:])

    torn = [{"reply": 1} if i in (2, 7) else row for i, row in enumerate(rows)]
    path.write_text("\n".join(map(json.dumps, torn)))
    assert main(["submit", str(path), "--board", "ascii"]) == 1
    said = capsys.readouterr().err
    assert all(f"text.jsonl, line {n}: field 'pred' must be the reply" in said for n in (3, 8))

    path.write_text("\n".join(map(json.dumps, rows[:-1])))
    assert main(["submit", str(path), "--board", "ascii"]) == 1
    assert f"{N - 1} predictions for {N} items" in capsys.readouterr().err


def test_audit_finds_the_letters_in_the_items_and_not_in_the_public_ones(contest, tmp_path, capsys):
    house, *_ = contest
    truth = sealed_folder(house.settings) / "items.jsonl"
    assert main(["audit", str(tmp_path / "public.jsonl"), "--truth", str(truth), "--field", "labels"]) == 0
    leaked = tmp_path / "leaked"
    leaked.mkdir()
    rows = [json.loads(line) for line in truth.read_text().splitlines()]
    (leaked / "x.json").write_text(json.dumps({r["id"]: r["labels"] for r in rows}))
    assert main(["audit", str(leaked), "--truth", str(truth), "--field", "labels"]) == 1
    assert "x.json" in capsys.readouterr().out
