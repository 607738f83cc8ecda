"""Run folders: what lies outside them, damaged ones, a second server; none of it disturbs the pages of the others."""

from __future__ import annotations

import json
import os
import random
import shutil

import msgspec
import pytest
from toy_runs import bare_run, record

import assay
from assay.server.runs.folders import RunFolders
from assay.server.runs.queries import Views


@pytest.fixture
def toy(house):
    """A finished run with one error: toy_judged on the doubler."""
    return assay.run("toy_judged", "method:doubler", options={"n": 30, "crash": (3,)}, into=house.settings.runs / "toy")


def test_links_and_paths_lead_nowhere(house, toy, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret of the house")
    outside = tmp_path / "outside"
    bare_run(outside, 3)
    (house.settings.runs / "linked").symlink_to(outside)
    (house.settings.runs / "half").mkdir()
    (house.settings.runs / "half" / "run.json").symlink_to(outside / "run.json")
    artifacts = house.settings.runs / "toy" / "artifacts" / "judged"
    artifacts.mkdir(parents=True)
    (artifacts / "link.txt").symlink_to(secret)
    (artifacts / "fine.txt").write_text("<script>alert(1)</script>")
    reader = house.client("reader")
    assert [run.id for run in RunFolders(house.settings.runs).all()] == ["toy"]
    for name in ("..", ".", "", "toy/../../outside", "/etc", "toy\0", "linked", "half", "x" * 300, ".hidden"):
        assert RunFolders(house.settings.runs).find(name) is None, name
    for run in ("linked", "half", "%2e%2e", "..%2Foutside", "%2Fetc", "toy%00", "toy%2F..%2F..%2Foutside"):
        assert reader.get(f"/runs/{run}").status_code in (303, 400, 404), run
        assert reader.get(f"/api/runs/{run}/records").status_code in (400, 404), run
    for name in (
        "judged/link.txt", "../run.json", "..%2Frun.json", "%2e%2e/run.json", "/etc/passwd", "%2Fetc%2Fpasswd",
        "judged/../../run.json", "judged/%2e%2e/%2e%2e/run.json", "..%5Crun.json", "judged", "", "%00",
        "judged//etc/passwd",
    ):  # fmt: skip
        answer = reader.get(f"/runs/toy/files/{name}")
        assert answer.status_code in (400, 404), name
        assert "secret" not in answer.text
        assert reader.get(f"/runs/toy/trace/{name}").status_code in (400, 404), name
    answer = reader.get("/runs/toy/files/judged/fine.txt")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]


def test_an_output_that_points_outside_its_run_is_not_read(house, tmp_path):
    (tmp_path / "secret.json").write_text('"the secret of the house"')
    store = bare_run(house.settings.runs / "evil", 2, status="finished")
    pointer = json.dumps({"$file": "../../secret.json"}).encode()
    with store.journal() as journal:
        journal.write([record(0, random.Random(0), output=msgspec.Raw(pointer))])
    store.compact()
    reader = house.client("reader")
    for path in ("/runs/evil/records?show=true", "/runs/evil/record?at=judged&sample=q0"):
        answer = reader.get(path)
        assert answer.status_code == 200
        assert "the secret" not in answer.text


def test_a_damaged_manifest_hides_one_run_only(house, toy):
    (house.settings.runs / "torn").mkdir()
    (house.settings.runs / "torn" / "run.json").write_text("{")
    reader = house.client("reader")
    assert "toy_judged" in reader.get("/runs").text
    answer = reader.get("/runs/torn")
    assert answer.status_code == 422
    assert "no manifest" in answer.text


@pytest.mark.parametrize(
    "odd", [{"trials": "many"}, {"created": 5}, {"statuses": {"error": "x"}}, {"tags": 3}, {"tasks": {"t": 1}}], ids=str
)
def test_a_manifest_with_odd_values_hides_one_run_only(house, toy, odd):
    good = next(path for path in house.settings.runs.iterdir() if (path / "run.json").is_file())
    (house.settings.runs / "odd").mkdir()
    manifest = json.loads((good / "run.json").read_text()) | odd
    (house.settings.runs / "odd" / "run.json").write_text(json.dumps(manifest))
    reader = house.client("reader")
    assert "toy_judged" in reader.get("/runs").text
    assert reader.get("/runs/odd").status_code == 422


@pytest.mark.parametrize("left", [0, 3000, -8], ids=["empty", "half", "without its end"])
def test_a_truncated_table_hides_its_own_records_only_and_says_so(house, toy, left):
    good = next(path for path in house.settings.runs.iterdir() if (path / "run.json").is_file())
    torn = shutil.copytree(good, house.settings.runs / "torn") / "records.parquet"
    torn.write_bytes(torn.read_bytes()[:left])
    reader = house.client("reader")
    assert reader.get("/runs").status_code == 200
    assert reader.get(f"/runs/{good.name}/records").status_code == 200
    answer = reader.get("/runs/torn/records")
    assert answer.status_code == 422
    assert "A table of this run is damaged" in answer.text


def test_a_second_server_in_the_folder_leaves_what_the_first_has_read(tmp_path):

    ours, theirs, gone = (tmp_path / name for name in (str(os.getpid()), str(os.getppid()), "999999999"))
    for folder in (ours, theirs, gone):
        folder.mkdir()
    Views(tmp_path)
    assert [folder.exists() for folder in (ours, theirs, gone)] == [False, True, False]
