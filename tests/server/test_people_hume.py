"""HUME through the server: a person and a model that say the same have the same scores in all four forms."""

from __future__ import annotations

import threading
import time

import httpx
import pytest
from people_visit import Visitor

import assay
from assay.systems import forms
from assay.systems.chat.model import Choice, Reply
from assay.systems.loading import load

pytest.importorskip("sklearn")
TASKS = "HUMEEmotionClassification,HUMEArxivClusteringP2P,HUMENews21InstructionReranking,HUMESTS12"


def answer_to(form):
    """One rule for person and model, by the form alone."""
    items = form.get("items") or form.get("options") or []
    match form["kind"]:
        case "choice":
            return {"choice": items[0]["id"]}
        case "rating":
            return {"rating": 3}
        case "relevance":
            return {"relevant": {item["id"]: n < 3 for n, item in enumerate(items)}}
        case "grouping":
            return {"groups": {item["id"]: "odd" if n % 2 else "even" for n, item in enumerate(items)}}
    raise AssertionError(form["kind"])


class Twin:
    """A model that answers by `answer_to`."""

    name = "twin"

    async def generate(self, messages, *, response_format=None, **options):
        form = forms.read(response_format)
        return Reply((Choice(form.reply(answer_to(form.json()))),))


def test_a_person_and_a_model_that_say_the_same_score_the_same(live, tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_SERVER_TOKEN", live.token("submitter"))
    kinds, faults = set(), []

    def answer(found):
        kinds.add(found["form"]["kind"])
        return answer_to(found["form"])

    def visit():
        try:
            admin = live.program("admin")
            while not (listed := admin.get("/api/people/studies").json()):
                time.sleep(0.02)
            with httpx.Client(base_url=live.settings.url, trust_env=False, timeout=30) as client:
                Visitor(client, listed[0]["link"]).answer_all(answer)
        except Exception as error:
            faults.append(error)

    thread = threading.Thread(target=visit, daemon=True)
    thread.start()
    options = {"tasks": TASKS}
    person = load(f"human:anna@{live.settings.url}", benchmark=None)
    run = assay.run("hume", person, options=options, samples=3, into=tmp_path / "person")
    thread.join(60)
    assert not faults, faults
    twin = assay.run("hume", Twin(), options=options, samples=3, into=tmp_path / "twin")
    columns = ["task", "sample", "status", "answered", "value", "right", "read", "answer", "output"]
    assert run.records.select(columns).equals(twin.records.select(columns))
    assert run.records["answered"].to_list() == [1.0] * run.records.height
    assert kinds == {"choice", "grouping", "relevance", "rating"}
