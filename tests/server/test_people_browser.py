"""Every form in a real browser: by mouse, by keyboard alone, on a phone, in right-to-left text; clocks, drafts, breaks.

With ``ASSAY_SCREENSHOTS=FOLDER`` each page is also saved there as a picture.
"""

from __future__ import annotations

import base64
import threading
import time

import polars as pl
import pytest
import sqlalchemy as sa
from people_browser import (
    CASES,
    CONTROLS,
    PHONE,
    TEXTS,
    WRITING,
    Study,
    check_layout,
    key,
    listen,
    picture,
    shot,
    tone,
    words,
)
from people_visit import csrf

import assay
from assay.core.results import Runs
from assay.systems import forms
from assay.systems.loading import load

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", CASES)
def test_every_form_is_answered_by_keys_and_sent_with_enter(live, browse, name):
    content, asked, act, value = CASES[name]
    study = Study(live, browse, [(content, asked)])
    page = study.page()
    page.locator(".answer").wait_for()
    shot(page, f"{name}-asked")
    act(page)
    check_layout(page)
    shot(page, f"{name}-answered")
    if name == "text":
        page.keyboard.press("Control+Enter")
    elif name != "line" and page.evaluate(f"document.activeElement.matches('{WRITING}')"):
        page.locator(".send button").focus()
        key(page, "Enter")
    else:
        key(page, "Enter")
    page.locator("#stage").get_by_text("Nothing to answer just now").wait_for()
    (row,) = study.values()
    assert row["value"] == value
    assert 0 < row["seconds"] < 60
    assert page.faults == []


@pytest.mark.parametrize("name", CASES)
def test_every_form_fits_a_phone_and_is_answered_by_touch_where_keys_were_not_needed(live, browse, name):
    content, asked, _, _ = CASES[name]
    page = Study(live, browse, [(content, asked)]).page(**PHONE)
    page.locator(".answer").wait_for()
    check_layout(page)
    shot(page, f"{name}-phone")


def test_every_control_is_reached_by_tab(live, browse):
    for name in ("choice", "ranking", "relevance", "grouping", "spans", "schema", "ab"):
        content, asked, _, _ = CASES[name]
        page = Study(live, browse, [(content, asked)]).page()
        page.locator(".answer").wait_for()
        page.locator("#heading").focus()
        # A radio group is one stop; every other control is one each.
        wanted = page.evaluate(
            """selector => {
                const all = [...document.querySelectorAll(selector)].filter(e => e.offsetParent);
                const radios = new Set(all.filter(e => e.type === 'radio').map(e => e.name));
                return all.filter(e => e.type !== 'radio').length + radios.size;
            }""",
            CONTROLS,
        )
        seen = set()
        for _ in range(3 * wanted + 20):
            key(page, "Tab")
            inside = page.evaluate(
                """(() => { const e = document.activeElement; if (!e.closest('#stage')) return null;
                window.marks = window.marks || new Map(); const id = e.type === 'radio' ? e.name : e;
                if (!window.marks.has(id)) window.marks.set(id, window.marks.size); return window.marks.get(id); })()"""
            )
            if inside is not None:
                seen.add(inside)
        assert len(seen) >= wanted, f"{name}: Tab reaches {len(seen)} of {wanted} controls"


ARABIC = "ما هي عاصمة مصر؟\nSecond paragraph, left to right."
HEBREW = [{"id": "a", "label": "תל אביב"}, {"id": "b", "label": "القاهرة"}, {"id": "c", "label": "Paris"}]


@pytest.mark.parametrize("width", ["desktop", "phone"])
def test_right_to_left_text_runs_right_to_left(live, browse, width):
    asked = [([words(ARABIC)], forms.choice(HEBREW)), ([words("اكتب جملة")], forms.text(lines=2))]
    study = Study(live, browse, asked)
    page = study.page(**(PHONE if width == "phone" else {}))
    page.locator(".answer").wait_for()
    directions = page.evaluate(
        "[...document.querySelectorAll('.option .words')].map(e => getComputedStyle(e).direction)"
    )
    assert directions == ["rtl", "rtl", "ltr"]
    check_layout(page)
    shot(page, f"rtl-{width}")
    key(page, "2")
    key(page, "Enter")
    page.locator("textarea").fill("هذه جملة")
    assert page.locator("textarea").evaluate("e => getComputedStyle(e).direction") == "rtl"
    shot(page, f"rtl-text-{width}")


NASTY = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"


def test_script_in_a_sample_or_label_is_shown_and_never_run(live, browse):
    nasty = [{"id": NASTY + str(n), "label": NASTY, "text": NASTY} for n in range(2)]
    inner = {"enum": [NASTY], "title": NASTY}
    nasty_schema = {"type": "object", "title": NASTY, "properties": {NASTY: inner}}
    asked = [
        ([words(NASTY)], form)
        for form in (
            forms.choice(nasty),
            forms.pair(*nasty),
            forms.ranking(nasty),
            forms.relevance(nasty, yes=NASTY),
            forms.grouping(nasty),
            forms.ratings(nasty),
            forms.rating(1, 5, labels={"1": NASTY}),
            forms.spans(NASTY, [NASTY]),
            {"type": "json_schema", "json_schema": {"name": "n", "schema": nasty_schema}},
        )
    ]
    for one in asked:
        study = Study(live, browse, [one], instructions=NASTY)
        page = study.page()
        page.locator(".answer").wait_for()
        assert page.locator("#stage").get_by_text("<script>window.hacked").count() > 0
        page.wait_for_timeout(50)
        assert page.evaluate("window.hacked") is None
        assert page.locator("#stage script, #stage img").count() == 0
        assert page.faults == []


def test_what_is_typed_is_there_after_a_reload_with_its_seconds(live, browse):
    study = Study(live, browse, [([words("Tell me.")], None)])
    page = study.page()
    page.locator("textarea").fill("half a sen")
    with page.expect_response("**/draft"):
        pass
    page.reload()
    page.locator("textarea").wait_for()
    assert page.locator("textarea").input_value() == "half a sen"
    page.locator("textarea").press_sequentially("tence")
    page.get_by_role("button", name="Send").click()
    page.locator("#stage").get_by_text("Nothing to answer just now").wait_for()
    assert study.values()[0]["value"] == "half a sentence"


def test_every_forms_draft_comes_back(live, browse):
    for name in ("choice", "rating", "slider", "pair", "ranking", "relevance", "grouping", "spans", "schema", "mushra"):
        content, asked, act, value = CASES[name]
        study = Study(live, browse, [(content, asked)])
        page = study.page()
        page.locator(".answer").wait_for()
        with page.expect_response("**/draft", timeout=20_000):
            act(page)
        page.wait_for_timeout(600)
        page.reload()
        page.locator(".answer").wait_for()
        if name == "mushra":
            listen(page)
        page.get_by_role("button", name="Send").click()
        page.locator("#stage").get_by_text("Nothing to answer just now").wait_for()
        assert study.values()[0]["value"] == value, name


def test_a_break_hides_the_question_and_stops_the_clock(live, browse):
    study = Study(live, browse, [([words("Well?")], forms.text(lines=1))])
    page = study.page()
    page.locator("input.line").fill("yes")
    page.get_by_role("button", name="Take a break").click()
    assert not page.locator("#stage").is_visible()
    shot(page, "break")
    page.wait_for_timeout(2500)
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Send").click()
    page.locator("#stage").get_by_text("Nothing to answer just now").wait_for()
    assert study.values()[0]["seconds"] < 2.0
    who = study.client.get(f"/api/people/studies/{study.key}").json()["respondents"][0]
    assert who["breaks"] == 1
    assert 2.4 < who["break_seconds"] < 10


def test_the_clock_starts_when_everything_is_loaded(live, browse):
    study = Study(live, browse, [([words("Which?"), picture("teal", (40, 30))], forms.choice(["a", "b"]))])
    page = study.browse()
    page.route("**/media/**", lambda route: (page.wait_for_timeout(2500), route.continue_())[1])
    page.goto(study.link)
    page.get_by_role("button", name="Begin").click()
    page.locator(".answer").wait_for()
    assert page.locator("#stage img").evaluate("e => e.complete && e.naturalWidth") == 40
    key(page, "1")
    key(page, "Enter")
    page.locator("#stage").get_by_text("Nothing to answer just now").wait_for()
    assert study.values()[0]["seconds"] < 2.0


def test_recordings_must_be_heard_before_the_answer_is_sent(live, browse):
    content, asked, _, _ = CASES["ab"]
    study = Study(live, browse, [(content, asked)])
    page = study.page()
    page.locator(".answer").wait_for()
    key(page, "1")
    key(page, "Enter")
    page.get_by_text("Listen to every recording").wait_for()
    assert study.values() == []


def test_an_answer_that_is_not_whole_is_not_sent(live, browse):
    study = Study(live, browse, [([words("?")], forms.relevance(TEXTS))])
    page = study.page()
    page.locator(".answer").wait_for()
    key(page, "1")
    page.locator("#heading").focus()
    key(page, "Enter")
    page.get_by_text("Something is still missing").wait_for()
    assert study.values() == []


def test_an_answer_given_while_the_server_is_away_is_sent_when_it_is_back(live, browse):
    study = Study(live, browse, [([words("Well?")], forms.text(lines=1))])
    page = study.page()
    page.locator("input.line").wait_for()
    page.route("**/answer", lambda route: route.abort())
    page.locator("input.line").fill("kept")
    key(page, "Enter")
    page.get_by_text("your answer is kept here and sent again").wait_for()
    page.unroute("**/answer")
    page.locator("#stage").get_by_text("Nothing to answer just now").wait_for()
    assert [r["value"] for r in study.values()] == ["kept"]


def test_shuffled_items_stand_in_an_order_of_each_persons_own_that_stays(live, browse):
    items = [{"id": str(n), "label": f"Item {n}"} for n in range(6)]
    study = Study(live, browse, [([words("Order these.")], forms.ranking(items, shuffle=True))])
    orders = []
    for _ in range(2):
        page = study.page()
        page.locator(".answer").wait_for()
        order = page.locator(".order .what").all_inner_texts()
        page.reload()
        page.locator(".answer").wait_for()
        assert page.locator(".order .what").all_inner_texts() == order
        orders.append(order)
        with live.database.session() as session:
            # The next one may have the question.
            session.execute(sa.text("UPDATE people_slot SET respondent_id = NULL, lease_until = NULL"))
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


def test_groups_are_made_by_dragging_and_by_touch(live, browse):
    content, asked, _, _ = CASES["grouping"]
    study = Study(live, browse, [(content, asked)])
    page = study.page()
    card = page.locator(".card")
    card.filter(has_text="heart").drag_to(page.get_by_role("button", name="New group"))
    card.filter(has_text="stent").drag_to(page.locator(".group header"))
    # By touch: the card first, then where it goes.
    card.filter(has_text="Cats").get_by_role("button").click()
    page.get_by_role("button", name="New group").click()
    shot(page, "grouping-dragged")
    page.get_by_role("button", name="Send").click()
    page.locator("#stage").get_by_text("Nothing to answer just now").wait_for()
    assert study.values()[0]["value"] == {"groups": {"d0": "1", "d1": "2", "d2": "1"}}


def test_a_ranking_is_made_by_dragging(live, browse):
    content, asked, _, _ = CASES["ranking"]
    study = Study(live, browse, [(content, asked)])
    page = study.page()
    rows = page.locator(".order li")
    rows.nth(2).drag_to(rows.nth(0))
    page.get_by_role("button", name="Send").click()
    page.locator("#stage").get_by_text("Nothing to answer just now").wait_for()
    assert study.values()[0]["value"] == {"ranking": ["d2", "d0", "d1"]}


def test_words_are_marked_with_the_mouse(live, browse):
    content, asked, _, _ = CASES["spans"]
    study = Study(live, browse, [(content, asked)])
    page = study.page()
    page.locator(".spans .word").filter(has_text="London").dblclick()
    page.get_by_role("button", name="place").click()
    page.get_by_role("button", name="Send").click()
    page.locator("#stage").get_by_text("Nothing to answer just now").wait_for()
    (span,) = study.values()[0]["value"]["spans"]
    assert "Ada 😀 Lovelace lived in London."[span["start"] : span["end"]].rstrip(".") == "London"


def test_practice_shows_what_was_expected_and_the_study_ends_with_thanks(live, browse):
    item = {
        "messages": [{"role": "user", "content": "Say b."}],
        "response_format": forms.choice(["a", "b"]),
        "expected": {"choice": "b"},
        "feedback": "It said b.",
    }
    study = Study(
        live,
        browse,
        [([words("One?")], forms.choice(["a", "b"]))],
        practice=[item],
        instructions="Read first.\nThen choose.",
    )
    page = study.browse()
    page.goto(study.link)
    shot(page, "welcome")
    page.get_by_role("button", name="Begin").click()
    page.locator(".answer").wait_for()
    key(page, "1")
    key(page, "Enter")
    page.get_by_text("Not quite.").wait_for()
    shot(page, "practice")
    key(page, "Enter")
    page.get_by_text("One?").wait_for()
    study.client.post(f"/api/people/studies/{study.key}/close")
    page.reload()
    page.locator("#stage").get_by_text("All done. Thank you!").wait_for()
    shot(page, "done")


def test_a_run_of_asciieval_is_answered_with_the_keyboard_alone(live, browse, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_SERVER_TOKEN", live.token("submitter"))
    ended: list = []

    def work():
        person = load(f"human:anna@{live.settings.url}?choices=A,B,C,D")
        ended.append(assay.run("asciieval", person, options={"modes": "both"}, samples=2, into=tmp_path / "run"))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    client, found = live.program("submitter"), []
    while not found:
        found = client.get("/api/people/studies").json()
        time.sleep(0.05)
    for n, options in enumerate((PHONE, {})):
        page = browse(**options)
        page.goto(found[0]["link"])
        key(page, "Enter")
        page.locator(".answer").wait_for()
        page.locator("#count").get_by_text(f"{n} of 2 answered").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        drawing = page.locator(".words.drawn").first
        assert "mono" in drawing.evaluate("e => getComputedStyle(e).fontFamily")
        assert drawing.evaluate("e => e.scrollWidth <= e.clientWidth")
        shown = page.locator(".words").all_inner_texts()
        # Sentences are wrapped like any other text, and nothing of the drawing is lost.
        assert any(text.startswith("Below is a drawing") for text in shown)
        assert page.locator(".words:not(.drawn)").get_by_text("What does the ASCII art show?").is_visible()
        shot(page, f"asciieval-{n}")
        key(page, "2")
        key(page, "Enter")
        if not n:
            page.locator("#count").get_by_text("1 of 2 answered").wait_for()
        assert page.faults == []
    thread.join(30)
    assert ended[0].records["output"].to_list() == ['"B"', '"B"']
    page.locator("#stage").get_by_text("All done. Thank you!").wait_for()


def test_a_listening_run_is_heard_and_rated_in_the_browser_and_becomes_opinion_scores(
    live, browse, tmp_path, monkeypatch
):
    listening = pytest.importorskip("assay.speech.ttsds2.listening")
    for k, system in enumerate(("alpha", "beta", "reference")):
        (tmp_path / "sound" / system).mkdir(parents=True)
        for name, hertz in (("u0", 300 + 100 * k), ("u1", 350 + 100 * k)):
            sound = base64.b64decode(tone(hertz)["input_audio"]["data"])
            (tmp_path / "sound" / system / f"{name}.wav").write_bytes(sound)
    monkeypatch.setenv("ASSAY_SERVER_TOKEN", live.token("submitter"))
    ended: list = []

    def work():
        test = listening.ListeningTest(str(tmp_path / "sound"), tests="mos,cmos,mushra")
        ended.append(assay.run(test, load(f"human:anna@{live.settings.url}"), into=tmp_path / "run"))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    client, found = live.program("submitter"), []
    while not found:
        found = client.get("/api/people/studies").json()
        time.sleep(0.05)
    page = browse()
    page.goto(found[0]["link"])
    key(page, "Enter")
    for n in range(12):
        page.locator("#count").get_by_text(f"{n} of 12 answered").wait_for()
        page.locator(".answer").wait_for()
        listen(page)
        sliders = page.locator("input[type=range]")
        kind = "mushra" if sliders.count() == 3 else "mos" if page.locator("#stage audio").count() == 1 else "cmos"
        shot(page, f"listening-{kind}")
        assert "JSON" not in page.locator("#stage").inner_text()
        for k in range(sliders.count()):
            sliders.nth(k).focus()
            key(page, "PageUp", k + 1)
        if not sliders.count():
            key(page, "4")
        key(page, "Enter")
    thread.join(30)
    assert page.faults == []
    table = listening.opinions(Runs(ended)).frame
    assert set(table["scale"]) == {"MOS", "CMOS", "MUSHRA"}
    assert set(table.filter(pl.col("scale") == "MOS")["mean"]) == {4.0}


def test_pages_of_studies_and_their_overview(live, browse):
    study = Study(live, browse, [([words("One?")], forms.choice(["a", "b"]))] * 3)
    for n, name in enumerate(("ann", "bob")):
        client = live.client("annotator", name)
        client.post(f"/people/{study.key}/join")
        found = client.get(f"/people/{study.key}/next").json()
        body = {"question": found["question"], "value": {"choice": "ab"[n]}, "seconds": 3}
        client.post(f"/people/{study.key}/answer", json=body)
    for role, path, name in (
        ("submitter", "/people", "list-owner"),
        ("annotator", "/people", "list-annotator"),
        ("submitter", f"/people/{study.key}/overview", "overview"),
    ):
        for width, options in (("desktop", {}), ("phone", PHONE)):
            page = browse(role, **options)
            page.goto(path)
            page.locator("h1").wait_for()
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            shot(page, f"{name}-{width}")
            assert page.faults == []
    assert csrf(live.client("submitter").get("/people").text)
