"""Every form of an answer as somebody at a browser fills it in, a study to do it in, and pictures of its pages."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import struct
import wave
from pathlib import Path

from assay.systems import forms

SCREENSHOTS = os.environ.get("ASSAY_SCREENSHOTS")
WRITING = "textarea, select, button, input:not([type=radio], [type=checkbox], [type=range])"
CONTROLS = "#stage :is(button, select, textarea, input, audio, .word[tabindex='0'])"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def tone(hertz: float, seconds: float = 0.4) -> dict:
    """A recording as a message part."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        samples = [int(9000 * math.sin(2 * math.pi * hertz * n / 8000)) for n in range(int(8000 * seconds))]
        sound.writeframes(struct.pack(f"<{len(samples)}h", *samples))
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(file.getvalue()).decode(), "format": "wav"}}


def picture(colour: str, size=(320, 180)) -> dict:
    """A picture as a message part."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def words(text: str) -> dict:
    return {"type": "text", "text": text}


SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "review",
        "schema": {
            "type": "object",
            "properties": {
                "certainty": {"enum": ["high", "moderate", "low"], "title": "Certainty of the evidence"},
                "score": {"type": "integer", "minimum": 1, "maximum": 5},
                "effect": {"type": "number"},
                "randomised": {"type": "boolean"},
                "reason": {"type": "string"},
                "topics": {"type": "array", "items": {"enum": ["heart", "lung", "skin"]}},
                "authors": {"type": "array", "items": {"type": "string", "maxLength": 40}, "minItems": 1},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
            "required": ["certainty", "score", "effect", "randomised", "reason", "topics", "authors", "note"],
            "additionalProperties": False,
        },
    },
}
TEXTS = [
    {"id": f"d{n}", "text": t}
    for n, t in enumerate(["The heart pumps blood.", "Cats sleep a lot.", "A stent opens an artery."])
]


def key(page, name, times=1):
    for _ in range(times):
        page.keyboard.press(name)


def type_text(page):
    page.keyboard.type("It is a house.")


def digit(*digits):
    return lambda page: [key(page, d) for d in digits]


def drag_slider(page):
    page.locator("input[type=range]").focus()
    key(page, "ArrowRight", 3)


def listen(page):
    """Play every recording to its end, as a person must."""
    for n in range(page.locator("#stage audio").count()):
        page.locator("#stage audio").nth(n).evaluate("a => { a.muted = true; return a.play(); }")
        page.locator("#stage .heard").nth(n).get_by_text("heard", exact=True).wait_for()


def listen_then(*digits):
    def act(page):
        listen(page)
        digit(*digits)(page)

    return act


def rank(page):
    page.get_by_role("button", name="Cats sleep a lot.: up").press("Enter")
    page.get_by_role("button", name="A stent opens an artery.: up").press("Enter")


def group(page):
    for n, name in enumerate(["n", "n", "1"]):
        page.locator(".card select").nth(n if n < 2 else 2).focus()
        card = page.locator(".card", has_text=TEXTS[n]["text"])
        card.locator("select").focus()
        key(page, name)
    page.get_by_label("Name of group 1").fill("medicine")


def mark_words(page):
    page.locator(".spans .word").nth(0).focus()
    key(page, "Space")
    page.keyboard.press("Shift+ArrowRight")
    key(page, "1")


def mushra(page):
    listen(page)
    for n, steps in enumerate([2, 1]):
        page.locator("input[type=range]").nth(n).focus()
        key(page, "PageUp", steps)


def fill_schema(page):
    key(page, "1")
    key(page, "4")
    page.get_by_label("effect").fill("-0.25")
    page.locator("fieldset", has_text="randomised").last.get_by_text("yes").click()
    page.get_by_label("reason").fill("Two large trials.")
    page.get_by_label("heart").check()
    page.get_by_label("skin").check()
    page.get_by_label("authors 1").fill("Ann")
    page.get_by_role("button", name="Add").click()
    page.get_by_label("authors 2").fill("Bob")
    page.get_by_label("none").check()


CASES = {
    "text": ([words("What does this picture show?"), picture("navy")], None, type_text, "It is a house."),
    "line": ([words("One word, please.")], forms.text(lines=1), type_text, "It is a house."),
    "choice": (
        [words("Which is the capital of France?")],
        forms.choice([{"id": "a", "label": "London"}, {"id": "b", "label": "Paris"}, {"id": "c", "label": "Rome"}]),
        digit("2"),
        {"choice": "b"},
    ),
    "pictures": (
        [words("Which is green?"), picture("green"), picture("crimson")],
        forms.choice([{"id": "x", "part": 0}, {"id": "y", "part": 1}]),
        digit("1"),
        {"choice": "x"},
    ),
    "letters": ([words("A, B or C?")], forms.choice(["A", "B", "C"], plain=True), digit("3"), "C"),
    "rating": (
        [words("How natural is this sentence? Colourless green ideas sleep furiously.")],
        forms.rating(1, 5, labels={"1": "not at all", "5": "fully"}, unsure=True),
        digit("4"),
        {"rating": 4},
    ),
    "unsure": ([words("How natural is it?")], forms.rating(1, 5, unsure=True), digit("0"), {"rating": None}),
    "slider": (
        [words("How harmful is this?")],
        forms.rating(0, 100, labels={"0": "harmless", "100": "extremely harmful"}, unsure=True),
        drag_slider,
        {"rating": 53},
    ),
    "pair": (
        [words("Which answer is better? Why is the sky blue?")],
        forms.pair(
            {"id": "r1", "text": "Because air scatters blue light more than red light."},
            {"id": "r2", "text": "It is not."},
        ),
        digit("3"),
        {"preferred": "tie"},
    ),
    "ab": (
        [words("Which recording sounds better?"), tone(440), tone(660)],
        forms.pair({"id": "first", "part": 0}, {"id": "second", "part": 1}, tie=False),
        listen_then("2"),
        {"preferred": "second"},
    ),
    "mos": (
        [words("How natural does the voice sound?"), tone(300)],
        forms.rating(1, 5, labels={"1": "bad", "2": "poor", "3": "fair", "4": "good", "5": "excellent"}, part=0),
        listen_then("5"),
        {"rating": 5},
    ),
    "mushra": (
        [words("Rate each recording against the reference."), tone(440), tone(220), tone(880)],
        forms.ratings([{"id": "low", "part": 1}, {"id": "high", "part": 2}], reference=0),
        mushra,
        {"ratings": {"low": 70, "high": 60}},
    ),
    "ranking": (
        [words("Order by relevance to the heart.")],
        forms.ranking(TEXTS),
        rank,
        {"ranking": ["d1", "d2", "d0"]},
    ),
    "relevance": (
        [words("Query: heart disease")],
        forms.relevance(TEXTS),
        digit("1", "2", "1"),
        {"relevant": {"d0": True, "d1": False, "d2": True}},
    ),
    "grouping": (
        [words("Sort these texts into topics.")],
        forms.grouping(TEXTS),
        group,
        {"groups": {"d0": "medicine", "d1": "2", "d2": "medicine"}},
    ),
    "spans": (
        [words("Mark persons and places.")],
        forms.spans("Ada 😀 Lovelace lived in London.", ["person", "place"]),
        mark_words,
        {"spans": [{"start": 0, "end": 5, "label": "person"}]},
    ),
    "schema": (
        [words("Fill in the form about this review.")],
        SCHEMA,
        fill_schema,
        {
            "certainty": "high",
            "score": 4,
            "effect": -0.25,
            "randomised": True,
            "reason": "Two large trials.",
            "topics": ["heart", "skin"],
            "authors": ["Ann", "Bob"],
            "note": None,
        },
    ),
}


class Study:
    """A study on a live server and a page in it."""

    def __init__(self, live, browse, asked, **settings):
        self.live = live
        self.client = live.program("submitter")
        body = {"run": f"run-{os.urandom(4).hex()}", "title": "Example study", "settings": settings}
        made = self.client.post("/api/people/studies", json=body)
        assert made.status_code == 200, made.text
        self.key, self.link = made.json()["study"], made.json()["link"]
        questions = [
            {
                "id": str(n),
                "task": "t",
                "sample": f"s{n}",
                "attempt": 0,
                "index": n,
                "messages": [{"role": "user", "content": content}],
                "response_format": asked_format,
            }
            for n, (content, asked_format) in enumerate(asked)
        ]
        sent = self.client.post(f"/api/people/studies/{self.key}/questions", json={"questions": questions})
        assert sent.status_code == 200, sent.text
        self.browse = browse

    def page(self, **options):
        page = self.browse(**options)
        page.set_default_timeout(15_000)
        page.goto(self.link)
        page.get_by_role("button", name="Begin").click()
        page.wait_for_url(f"**/people/{self.key}")
        page.locator(".answer, .done, #stage .note").first.wait_for()
        return page

    def values(self):
        text = self.client.get(f"/api/people/studies/{self.key}/export").text
        return [json.loads(line) for line in text.splitlines()]


def shot(page, name):
    if SCREENSHOTS:
        Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{SCREENSHOTS}/{name}.png", full_page=True)


def check_layout(page):
    """Nothing sticks out sideways; every control has a name; nothing failed in the page."""
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "the page scrolls sideways"
    nameless = page.evaluate(
        """[...document.querySelectorAll('#stage button, #stage input, #stage select, #stage textarea, #stage audio')]
        .filter(e => e.offsetParent && !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim()))
        .map(e => e.outerHTML)"""
    )
    assert nameless == []
    assert page.faults == []
