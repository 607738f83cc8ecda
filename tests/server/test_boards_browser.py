"""Boards in a browser: a submission by the form, at the width of a phone, by keyboard, in other scripts."""

from __future__ import annotations

import json
import threading

import pytest

from assay.server.boards.worker import Worker, sealed_folder

pytestmark = pytest.mark.browser
N = 20
TRUTH = {f"s{i}": str(i * 5 % 7 % 2) for i in range(N)}
PHONE = {"viewport": {"width": 390, "height": 844}}


@pytest.fixture
def scoring(live):
    """An open board with a worker; (house, key)."""
    folder = sealed_folder(live.settings)
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, value in (("truth.json", {"truth": "./labels.json"}), ("labels.json", TRUTH)):
        (folder / name).write_text(json.dumps(value))
        (folder / name).chmod(0o600)
    made = live.program("admin").post(
        "/api/boards",
        json={"name": "toy", "title": "Hidden labels", "benchmark": "toy_labels", "sealed": "truth.json", "step": 0.01},
    )
    worker = Worker(live.database, live.settings)
    worker.step()
    stop = threading.Event()
    thread = threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    yield live, made.json()["id"]
    stop.set()
    thread.join()


def predictions(path, right):
    rows = [{"id": f"s{i}", "label": TRUTH[f"s{i}"] if i < right else "x"} for i in range(N)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def send(house, key, name, system, right):
    rows = [{"id": f"s{i}", "label": TRUTH[f"s{i}"] if i < right else "x"} for i in range(N)]
    content = "\n".join(map(json.dumps, rows)).encode()
    where = f"/api/boards/{key}/submissions"
    sent = house.program("submitter", name).post(where, params={"system": system, "file": "p.jsonl"}, content=content)
    return sent.json()["id"]


def shot(page, tmp_path, name):
    """A picture of the whole page, to look at (``--basetemp`` says where)."""
    page.screenshot(path=tmp_path / f"{name}.png", full_page=True)


def fits(page):
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.faults == []


def test_submitting_by_form_and_watching_until_it_is_scored(scoring, browse, tmp_path):
    _, key = scoring
    page = browse("submitter", "anna")
    page.goto(f"/boards/{key}")
    page.get_by_label("System").fill("a system")
    page.get_by_label("File").set_input_files(predictions(tmp_path / "p.jsonl", 15))
    page.get_by_role("button", name="Submit").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/submissions/*")
    page.get_by_role("heading", name="Scores").wait_for(timeout=30_000)
    assert page.get_by_role("cell", name="0.75", exact=True).count() == 1
    fits(page)
    shot(page, tmp_path, "entry")
    page.goto(f"/boards/{key}")
    assert page.locator("table.standings tbody tr").count() == 1
    fits(page)


def test_faults_are_listed(scoring, browse, tmp_path):
    _, key = scoring
    page = browse("submitter", "anna")
    page.goto(f"/boards/{key}")
    (tmp_path / "bad.jsonl").write_text("{}\n" * 24)
    page.get_by_label("System").fill("a system")
    page.get_by_label("File").set_input_files(tmp_path / "bad.jsonl")
    page.get_by_role("button", name="Submit").click()
    page.get_by_role("heading", name="Faults").wait_for(timeout=30_000)
    assert page.locator("ol.faults li").count() == 20
    assert page.get_by_text("4 more faults").count() == 1
    fits(page)
    shot(page, tmp_path, "faults")


@pytest.mark.parametrize("options", [{}, PHONE, {"color_scheme": "dark"}], ids=["desk", "phone", "dark"])
def test_board_with_ties_failures_and_other_scripts(scoring, browse, tmp_path, request, options):
    house, key = scoring
    with house.database.session() as session:
        from assay.server.accounts import create_account

        create_account(session, "فريق القاهرة", "submitter")
    made = [
        ("anna", "linear baseline", 12), ("ben", "a forest with a rather long name, tuned on nothing", 16),
        ("فريق القاهرة", "نموذج اللغة", 16), ("cai", "<b onmouseover=alert(1)>bold</b>", 5),
    ]  # fmt: skip
    ids = [(name, send(house, key, name, system, right)) for name, system, right in made]
    send(house, key, "anna", "linear, again", 12.5)
    page = browse("admin", **options)
    for name, entry in ids:
        reader = house.program("submitter", name)
        for _ in range(200):
            if reader.get(f"/api/boards/{key}/submissions/{entry}").json()["status"] == "scored":
                break
            page.wait_for_timeout(100)
    page.goto(f"/boards/{key}")
    ranks = page.locator("table.standings td.rank").all_inner_texts()
    assert ranks[:4] == ["1", "1", "3", "4"]
    assert page.locator("b").count() == 0
    fits(page)
    shot(page, tmp_path, f"board-{request.node.callspec.id}")
    for path in ("/boards", f"/boards/{key}/history", f"/boards/{key}/submissions"):
        page.goto(path)
        fits(page)
        shot(page, tmp_path, f"{path.strip('/').replace('/', '-').replace(key, 'key')}-{request.node.callspec.id}")


def test_deleting_asks_first_and_leaves_a_mark(scoring, browse):
    house, key = scoring
    entry = send(house, key, "anna", "gone", 10)
    page = browse("submitter", "anna")
    page.goto(f"/boards/{key}/submissions/{entry}")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Take it off the board").click()
    page.wait_for_url("**/submissions")
    assert page.get_by_text("deleted").count() == 1
    fits(page)
