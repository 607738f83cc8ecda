"""Search: collections, indexes against plain formulas, the HTTP contract from both ends."""

from __future__ import annotations

import asyncio
import json
import math
import re

import aiohttp
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import DataError, ProviderError, UsageError
from assay.systems.embedding import HashedNgrams
from assay.systems.tools import TextTool, Tool
from assay.systems.tools.retrieval import BM25, Dense, Hybrid, Passage, make_index, read_passages, serve
from assay.systems.tools.search import SearchClient, SearchTool, passages

pytest.importorskip("bm25s")

CITIES = [
    Passage("paris", "Paris", "Paris is the capital of France, on the river Seine."),
    Passage("rome", "Rome", "Rome is the capital of Italy; the river Tiber crosses it."),
    Passage("lyon", "Lyon", "Lyon lies where two rivers of France meet."),
]


def test_queries_are_found_as_the_reference_parser_finds_them(oracle):
    tool = SearchTool("http://127.0.0.1:1/retrieve")
    assert isinstance(tool, Tool)
    assert isinstance(tool, TextTool)
    for case in oracle("gem", "parsers")["search_tool"]:
        found = tool.find(case["action"])
        assert (found is not None) == case["valid"]
        if found is not None:
            assert found.arguments == {"query": case["query"]}
            assert case["action"][: found.end] == case["parsed_action"]
    empty = tool.find("<search> </search>")
    assert empty is not None
    assert empty.problem == "the query is empty"


def test_passages_are_shown_as_the_reference_shows_them(oracle):
    case = oracle("gem", "parsers")["passages_to_string"]
    assert passages(case["input"]) == case["output"]


# -- indexes -----------------------------------------------------------------------------------------------------------


def bm25_by_hand(texts, query, k1=1.5, b=0.75):
    documents = [re.findall(r"\b\w\w+\b", t.lower()) for t in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for words in documents:
        total = 0.0
        for term in query.lower().split():
            n = sum(term in d for d in documents)
            idf = math.log(1 + (len(documents) - n + 0.5) / (n + 0.5))
            tf = words.count(term)
            total += idf * tf / (tf + k1 * (1 - b + b * len(words) / mean))
        scores.append(total)
    return scores


WORDS = ["alpha", "beta", "gamma", "delta", "omega"]


@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), min_size=2, max_size=8), st.sampled_from(WORDS)
)
def test_bm25_ranks_as_the_formula_does(documents, query):
    texts = [" ".join(words) for words in documents]
    found = BM25([Passage(str(i), "", t) for i, t in enumerate(texts)]).search([query], 10)[0]
    wanted = bm25_by_hand(texts, query)
    order = sorted((i for i, s in enumerate(wanted) if s > 0), key=lambda i: -wanted[i])
    assert {h.passage.id for h in found} == {str(i) for i in order}
    np.testing.assert_allclose([h.score for h in found], [wanted[i] for i in order], rtol=1e-4)


def test_what_shares_no_word_is_not_found():
    index = BM25(CITIES)
    assert index.search(["zebra"], 3) == [[]]
    assert [h.passage.id for h in index.search(["Tiber", "France capital"], 1)[0]] == ["rome"]
    assert index.search(["France capital"], 1)[0][0].passage.id == "paris"
    assert index.search([], 3) == []


def test_dense_is_the_inner_product_and_ties_keep_the_order():
    model = HashedNgrams()
    index = Dense([*CITIES, CITIES[0]._replace(id="again")], model)
    found = index.search(["Paris\nParis is the capital of France, on the river Seine."], 2)[0]
    assert [h.passage.id for h in found] == ["paris", "again"]
    assert found[0].score == pytest.approx(1, abs=1e-5)
    assert len(index.search(["x"], 99)[0]) == 4


def test_hybrid_fuses_ranks():
    class Fixed:
        def __init__(self, *order):
            self.order = order

        def search(self, queries, topk):
            from assay.systems.tools.retrieval import Hit

            return [[Hit(CITIES[i], 1.0) for i in self.order[:topk]] for _ in queries]

    found = Hybrid([Fixed(0, 1, 2), Fixed(2, 0)]).search(["q"], 3)[0]
    assert [h.passage.id for h in found] == ["paris", "lyon", "rome"]
    assert found[0].score == pytest.approx(1 / 61 + 1 / 62)
    with pytest.raises(UsageError, match="no index"):
        Hybrid([])


def test_indexes_by_name():
    assert isinstance(make_index(CITIES), BM25)
    assert isinstance(make_index(CITIES, "bm25+hashed"), Hybrid)
    with pytest.raises(UsageError, match="index"):
        make_index(CITIES, "bm25+")
    with pytest.raises(UsageError, match="encoder"):
        make_index(CITIES, "minlm")


# -- collections -------------------------------------------------------------------------------------------------------


def test_both_forms_of_json_lines_are_read(tmp_path):
    path = tmp_path / "wiki.jsonl"
    rows = [{"id": "a", "contents": '"Title A"\nline one\nline two'}, {"title": "B", "text": "body"}, {"text": "only"}]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert read_passages(path) == [
        Passage("a", "Title A", "line one\nline two"),
        Passage("1", "B", "body"),
        Passage("2", "", "only"),
    ]


def test_a_folder_is_cut_between_paragraphs(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.md").write_text("# The title\n\n" + "\n\n".join("word " * 60 for _ in range(5)))
    (tmp_path / "b.txt").write_text("long " * 450)
    (tmp_path / "c.txt").write_text("  \n\n ")
    (tmp_path / "picture.png").write_bytes(b"\x89")
    found = read_passages(tmp_path)
    assert [p.id for p in found] == ["b.txt#0", "b.txt#1", "b.txt#2", "sub/a.md#0", "sub/a.md#1"]
    assert {p.title for p in found if p.id.startswith("sub")} == {"The title"}
    assert sum(len(p.text.split()) for p in found) == 450 + 300 + 3
    assert max(len(p.text.split()) for p in found) <= 200
    assert len(read_passages(tmp_path, words=None)) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "line 1: not JSON"),
        ("[1]", "line 1: a row must be a JSON object"),
        ('{"title": "x"}', "line 1 has the fields title"),
        ('{"id": 1, "text": "a"}\n{"id": 1, "text": "b"}', "the id '1' stands twice"),
        ("", "there is nothing to search"),
    ],
)
def test_a_bad_collection_is_named(tmp_path, content, words):
    path = tmp_path / "docs.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=words):
        read_passages(path)
    with pytest.raises(DataError, match="neither"):
        read_passages(tmp_path / "docs.csv")


def test_passages_without_words_cannot_be_indexed():
    with pytest.raises(DataError, match="no word"):
        BM25([Passage("a", "", "the of"), Passage("b", "", "!")])


# -- tool, server, client ----------------------------------------------------------------------------------------------


def test_the_tool_over_an_index():
    tool = SearchTool(BM25(CITIES), topk=2)
    result = asyncio.run(tool.call({"query": "capital Italy"}))
    assert result.text.startswith("Doc 1(Title: Rome) Rome is the capital of Italy")
    assert [d["document"]["id"] for d in result.data] == ["rome", "paris"]
    assert asyncio.run(tool.call({"query": "zebra"})).text == "Nothing was found."
    assert asyncio.run(tool.call({"query": " "})).error == "the query is empty"


def test_the_tool_over_the_server_finds_the_same():
    async def both():
        index = BM25(CITIES)
        async with serve(index) as url:
            far = SearchTool(url, topk=2)
            packed = SearchTool(url, topk=2, form="msgpack")
            results = [await tool.call({"query": "France"}) for tool in (SearchTool(index, topk=2), far, packed)]
            await far.aclose()
            await packed.aclose()
            return results

    near, far, packed = asyncio.run(both())
    assert near == far == packed
    assert len(near.data) == 2


def test_the_server_keeps_the_contract():
    async def ask():
        async with serve(BM25(CITIES)) as url, aiohttp.ClientSession() as session:
            answers = {}
            for name, body in {
                "many": {"queries": ["Rome", "Lyon"], "topk": 1, "return_scores": True},
                "one": {"query": "Rome", "topk": 1},
                "defaults": {"queries": ["France"], "topk": None},
            }.items():
                async with session.post(url, json=body) as response:
                    answers[name] = await response.json()
            packed = msgspec.msgpack.encode({"query": "Rome", "topk": 1, "return_scores": True})
            async with session.post(url, data=packed) as response:
                answers["packed"] = msgspec.msgpack.decode(await response.read())
            for name, raw in {
                "json": b"{",
                "list": b"[]",
                "queries": b'{"queries": [1]}',
                "topk": b'{"query": "x", "topk": 0}',
            }.items():
                async with session.post(url, data=raw, headers={"Content-Type": "application/json"}) as response:
                    answers[name] = (response.status, await response.text())
            async with session.get(url.replace("retrieve", "health")) as response:
                answers["health"] = await response.text()
            return answers

    answers = asyncio.run(ask())
    many = answers["many"]["result"]
    assert [found[0]["document"]["id"] for found in many] == ["rome", "lyon"]
    assert many[0][0]["score"] > 0
    assert many[0][0]["document"]["contents"].startswith("Rome\nRome is")
    assert answers["one"]["result"] == [many[0][0]["document"]]
    assert len(answers["defaults"]["result"][0]) == 2
    assert answers["packed"]["result"] == many[0]
    for name, words in {
        "json": "cannot be read",
        "list": "no object",
        "queries": "queries is",
        "topk": "topk is 0",
    }.items():
        assert answers[name][0] == 400
        assert words in answers[name][1]
    assert answers["health"] == "ok"


def faulty(*answers):
    """A server that gives these (status, text) in order."""
    from contextlib import asynccontextmanager

    from aiohttp import web

    @asynccontextmanager
    async def running():
        left = list(answers)

        async def handle(request):
            status, text = left.pop(0)
            return web.Response(status=status, text=text)

        app = web.Application()
        app.router.add_post("/retrieve", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/retrieve"
        finally:
            await runner.cleanup()

    return running()


def client(*answers, queries=("q",), tries=3, monkeypatch=None):
    async def ask():
        async with faulty(*answers) as url, SearchClient(url, tries=tries) as made:
            return await made.search(queries)

    return asyncio.run(ask())


GOOD = '{"result": [[{"contents": "T\\nx"}]]}'


def test_a_server_that_stumbles_is_asked_again(monkeypatch):
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: sleep(0))
    assert client((503, ""), (429, ""), (200, GOOD)) == [[{"document": {"contents": "T\nx"}, "score": None}]]
    with pytest.raises(ProviderError, match="does not answer") as caught:
        client((500, ""), (500, ""), tries=2)
    assert caught.value.retryable


@pytest.mark.parametrize("text", ["", "{}", '{"result": 3}', '{"result": []}', '{"result": [[{"text": 1}]]}', "[[]]"])
def test_an_answer_of_another_form_is_no_evidence(text):
    with pytest.raises(ProviderError, match="another form") as caught:
        client((200, text))
    assert not caught.value.retryable


def test_a_refusal_is_not_repeated():
    with pytest.raises(ProviderError, match="refuses") as caught:
        client((404, "no such path"))
    assert not caught.value.retryable


def test_an_absent_server_is_named():
    async def ask():
        async with SearchClient("http://127.0.0.1:1/retrieve", tries=1) as made:
            await made.search(["q"])

    with pytest.raises(ProviderError, match=r"127\.0\.0\.1:1"):
        asyncio.run(ask())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: SearchTool("localhost:8000"), "index or a server's address"),
        (lambda: SearchTool(BM25(CITIES), topk=0), "topk is 0"),
        (lambda: SearchTool("http://x", form="xml"), "form is 'xml'"),
    ],
)
def test_bad_settings_are_named(call, words):
    with pytest.raises(UsageError, match=words):
        call()
