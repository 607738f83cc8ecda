"""Pages of accounts and runs in a real browser: desktop, phone, right-to-left text, keyboard alone, live runs."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest
import toys
from playwright.sync_api import expect
from toy_runs import HOSTILE, bare_run, record

import assay
from assay.server import accounts

pytestmark = pytest.mark.browser
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
HEBREW = "מה גובהו של ההר הגבוה בעולם?"


def shot(page, name):
    """A picture to look at, where a folder for them is named."""
    if os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(os.environ["SCREENSHOTS"]) / f"{name}.png", full_page=True)


def fits(page):
    """Nothing sticks out sideways."""
    return page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.fixture
def shelf(live):
    """Two toy runs, and one whose samples, groups and answers are hostile or Hebrew."""

    class Text(toys.Plain):
        def samples(self):
            texts = [HOSTILE, HEBREW, "plain"]
            return [toys.Sample(f"{t} {i}", i, t, {"kind": t}) for i, t in enumerate(texts)]

        def trial(self, system, sample, ctx):
            talk = [{"role": "user", "content": sample.target}, {"role": "assistant", "content": f"{sample.target}!"}]
            return toys.Outcome({"correct": 1.0}, output={"messages": talk, "text": sample.target})

    class Texts(toys.Toy):
        name, title = "texts", "Texts of all kinds"

        def tasks(self):
            return [Text()]

    runs = live.settings.runs
    for name, crash in (("toy-a", (3,)), ("toy-b", (3, 4, 5, 6))):
        assay.run("toy_judged", "method:doubler", options={"n": 60, "crash": crash}, into=runs / name)
    assay.run(Texts(), toys.Doubler(), into=runs / "texts")
    return live


@pytest.mark.parametrize("options", [{}, PHONE, {"color_scheme": "dark"}], ids=["desktop", "phone", "dark"])
def test_pages_of_runs(shelf, browse, options, request):
    page = browse("reader", **options)
    kind = request.node.callspec.id
    page.goto("/runs")
    shot(page, f"runs-{kind}")
    assert fits(page)
    page.get_by_role("checkbox", name="Compare").first.check()
    page.get_by_role("checkbox", name="Compare").nth(1).check()
    page.goto("/compare?run=toy-a&run=toy-b")
    # The page comes at once and fetches its scores when they are there.
    expect(page.get_by_role("heading", name="Paired differences")).to_be_visible(timeout=30_000)
    expect(page.get_by_role("region", name="Scores")).to_have_count(2, timeout=30_000)
    shot(page, f"compare-{kind}")
    assert fits(page)
    page.goto("/runs/toy-a?by=n_items")
    expect(page.get_by_role("region", name="Scores by n_items")).to_be_visible(timeout=30_000)
    shot(page, f"run-{kind}")
    assert fits(page)
    page.get_by_role("link", name="All 60 records").click()
    page.get_by_label("Column").select_option("met")
    page.get_by_label("Test").select_option(">=")
    page.get_by_label("Value").fill("1")
    page.get_by_label("show answers").check()
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("link", name="Without met>=1")).to_be_visible()
    shot(page, f"records-{kind}")
    assert fits(page)
    page.get_by_role("columnheader", name="seconds").get_by_role("link").click()
    page.locator("td.id a").nth(1).click()
    expect(page.get_by_role("heading", name="Model calls")).to_be_visible()
    first = page.url
    page.keyboard.press("ArrowRight")
    page.wait_for_url(lambda url: url != first)
    shot(page, f"record-{kind}")
    assert fits(page)
    page.get_by_role("link", name="Records", exact=True).click()
    expect(page.get_by_role("link", name="Without met>=1")).to_be_visible()
    assert page.faults == []


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_hostile_and_hebrew_text_is_shown_as_it_is(shelf, browse, options, request):
    page = browse("reader", **options)
    page.on("dialog", lambda dialog: page.faults.append(dialog.message))
    page.goto("/runs/texts/records?show=true")
    assert page.get_by_text("<script>alert").first.is_visible()
    shot(page, f"texts-{request.node.callspec.id}")
    for start in (HOSTILE, HEBREW):
        page.goto("/runs/texts/records")
        page.locator("td.id a").filter(has_text=start).click()
        assert page.locator(".turn.user pre").inner_text() == start
        shot(page, f"text-{'hebrew' if start == HEBREW else 'hostile'}-{request.node.callspec.id}")
        assert fits(page)
    assert page.evaluate("getComputedStyle(document.querySelector('.turn.user pre')).direction") == "rtl"
    assert page.faults == []


def test_a_run_that_goes_on_is_followed_without_reloading(live, browse):
    store = bare_run(live.settings.runs / "going", 400)
    rng = random.Random(0)
    with store.lock(), store.journal() as journal:
        for i in range(20):
            journal.write([record(i, rng)])
        page = browse("reader")
        page.goto("/runs/going")
        page.evaluate("window.mine = 1")
        assert page.locator("#done").inner_text() == "20"
        shot(page, "going-desktop")
        for i in range(20, 60):
            journal.write([record(i, rng)])
        expect(page.locator("#done")).to_have_text("60", timeout=10_000)
        expect(page.locator(".latest li").first).to_contain_text("q59")
        assert page.evaluate("document.getElementById('bar').value") == 60
    store.compact()
    store.write_info(store.read_info() | {"status": "finished", "trials": 60})
    expect(page.locator("#status")).to_have_text("finished", timeout=10_000)
    assert page.locator("#latest").is_hidden()
    assert page.evaluate("window.mine") == 1
    assert page.faults == []


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_from_the_first_link_to_a_token(live, browse, options, request):
    """An admin joins, invites a reader, who makes a token; everything by forms."""
    kind = request.node.callspec.id
    with live.database.session() as session:
        link = accounts.issue_invitation(session, accounts.create_account(session, "root", "admin"))
    page = browse(**options)
    page.goto(f"/join/{link}")
    shot(page, f"join-{kind}")
    page.get_by_label("Password").fill("horses like green apples")
    page.get_by_label("Again").fill("horses like green apples")
    page.get_by_role("button", name="Save and sign in").click()
    page.get_by_role("link", name="Accounts").click()
    page.get_by_label("Name").fill("דנה כהן")
    page.get_by_label("Role").first.select_option("reader")
    page.get_by_role("button", name="Add account").click()
    invited = page.locator("#link").inner_text()
    shot(page, f"accounts-{kind}")
    assert fits(page)
    page.get_by_role("link", name="Audit log").click()
    expect(page.get_by_role("cell", name="account made")).to_be_visible()
    shot(page, f"audit-{kind}")
    assert fits(page)
    reader = browse(**options)
    reader.goto(invited)
    reader.get_by_label("Password").fill("apples like green horses")
    reader.get_by_label("Again").fill("apples like green horses")
    reader.get_by_role("button", name="Save and sign in").click()
    reader.goto("/account")
    reader.get_by_label("Label").fill("laptop")
    reader.get_by_role("button", name="Make a token").click()
    assert re.fullmatch(r"assay_[\w-]{40,}", reader.locator("#token").inner_text())
    shot(reader, f"account-{kind}")
    assert fits(reader)
    assert page.faults == reader.faults == []


def test_signing_in_by_keyboard_alone(live, browse):
    with live.database.session() as session:
        accounts.create_account(session, "ann", "reader", "horses like green apples")
    page = browse()
    page.goto("/runs")
    assert "/sign-in?next=%2Fruns" in page.url
    page.keyboard.type("ann")
    page.keyboard.press("Tab")
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    page.get_by_role("alert").wait_for()
    shot(page, "sign-in")
    page.keyboard.type("horses like green apples")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.get_by_role("button", name="Sign out").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/sign-in")
    page.goto("/runs")
    assert "/sign-in" in page.url
