"""WikiGame: rewards, variants, link graphs, and the two kinds of server against local ones."""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import pytest

from assay.agents.gem.env import EnvError
from assay.agents.gem.registry import make
from assay.agents.gem.solvers.policy import SolverPolicy, optimal_turns
from assay.agents.gem.wiki.graph import KiwixWiki, LocalWiki, MediaWiki, Page, generate_wiki, read_wiki
from assay.core.errors import DataError, UsageError

SMALL = LocalWiki(
    [
        Page("A", "the first", ("B", "C", "Nowhere")),
        Page("B", "the second", ("A", "D")),
        Page("C", "the third", ("A",)),
        Page("D", "the last", ("A",)),
    ]
)


def walk(clicks, **settings):
    """(reward, terminated, truncated) of clicks from A to D."""
    env = make("game:WikiGame-v0-easy", **{"wiki": SMALL, "start": "A", "target": "D", **settings})
    env.reset(0)
    return [env.step(f"\\boxed{{{click}}}" if click else "no box")[1:4] for click in clicks]


def test_steps_cost_mistakes_cost_more_and_the_target_pays():
    assert walk(["B", "Z", "", "a", "B", "d"]) == [
        (-0.05, False, False),
        (-0.2, False, False),
        (-0.2, False, False),
        (-0.05, False, False),
        (-0.05, False, False),
        (1.0, True, False),
    ]


def test_the_limit_ends_a_walk_with_nothing_more():
    assert walk(["B", "A"], max_turns=2) == [(-0.05, False, False), (-0.05, True, True)]
    assert walk([""], max_turns=1) == [(-0.2, True, True)]


def test_variants_differ_in_the_way_back():
    back = {
        variant: [reward for reward, *_ in walk(["B", "D"], variant=variant, target="C")]
        + [reward for reward, *_ in walk(["C", "<BACK>"], variant=variant)]
        for variant in ("freenav", "noregrets", "oneback", "eidetic")
    }
    assert back["oneback"][2:] == [-0.05, -0.05]
    assert {tuple(back[variant][2:]) for variant in ("freenav", "noregrets", "eidetic")} == {(-0.05, -0.2)}
    # From D only A is linked; B was seen before.
    far = ["B", "D", "B"]
    assert [walk(far, variant=v, target="C")[2][0] for v in ("freenav", "noregrets", "eidetic")] == [-0.05, -0.2, -0.2]
    assert [r for r, *_ in walk(["B", "<BACK>", "<BACK>", "B", "<back>"], variant="oneback")] == [
        -0.05, -0.05, -0.2, -0.05, -0.05,
    ]  # fmt: skip


def test_eidetic_shows_the_links_of_pages_seen():
    env = make("game:WikiGame-v0-easy", wiki=SMALL, start="A", target="D", variant="eidetic")
    env.reset(0)
    info = env.step("\\boxed{C}")[4]
    assert "Links of A: B | C" in info["suffix"]
    env = make("game:WikiGame-v0-easy", wiki=SMALL, start="A", target="D", variant="noregrets")
    env.reset(0)
    assert "Links of A" not in env.step("\\boxed{C}")[4]["suffix"]


def test_distances_and_paths_beside_matrix_powers():
    wiki = generate_wiki(40, 3, np.random.default_rng(0))
    at = {title: i for i, title in enumerate(wiki.titles)}
    links = np.zeros((40, 40), dtype=int)
    for title, page in wiki.pages.items():
        links[at[title], [at[link] for link in page.links]] = 1
    reach, power, steps = {}, np.eye(40, dtype=int), 0
    while len(reach) < 1600:
        for pair in zip(*np.nonzero(power)):
            reach.setdefault(pair, steps)
        power, steps = (power @ links > 0).astype(int), steps + 1
    for start in wiki.titles[:6]:
        found = wiki.distances(start)
        assert {end: reach[at[start], at[end]] for end in wiki.titles} == found
        for end in wiki.titles:
            assert len(wiki.path(start, end)) == found[end]


def test_the_shipped_pages_are_all_connected():
    wiki = read_wiki()
    assert len(wiki.titles) >= 100
    for title in wiki.titles:
        assert len(wiki.distances(title)) == len(wiki.titles), title


@pytest.mark.parametrize("level", ["easy", "hard"])
@pytest.mark.parametrize("wiki", [None, "generated"])
def test_walks_are_drawn_far_enough_and_solved(level, wiki):
    env = make(f"game:WikiGame-v0-{level}", wiki=wiki)
    seen = Counter()
    for seed in range(15):
        env.reset(seed)
        fewest = len(env.pages.path(env.at, env.goal_title))
        assert fewest >= env.least
        seen[env.at] += 1
        policy, total = SolverPolicy(seed), 0.0
        optimum = optimal_turns(env)
        while True:
            _, reward, terminated, _, info = env.step(policy.act(env))
            total += reward
            if terminated:
                break
        if wiki is None:
            assert optimum == fewest == env.turn
            assert total == pytest.approx(1 - 0.05 * (fewest - 1))
            assert info["solved"]
    assert len(seen) > 5


@pytest.mark.parametrize("variant", ["freenav", "noregrets", "oneback", "eidetic"])
@pytest.mark.parametrize("wiki", [None, "generated"])
def test_states_go_on_alike(variant, wiki):
    env = make("game:WikiGame-v0-easy", variant=variant, wiki=wiki)
    env.reset(3)
    for _ in range(6):
        env.step(env.sample_random_action())
        if env._phase == "over":
            break
    other = make("game:WikiGame-v0-easy", variant=variant, wiki=wiki)
    other.set_state(json.loads(json.dumps(env.get_state())))
    assert other.view() == env.view()
    assert other.board() == env.board()
    assert other.reset() == env.reset()


def test_faults_are_named(tmp_path):
    with pytest.raises(EnvError, match="variant must be one of"):
        make("game:WikiGame-v0-easy", variant="backwards")
    with pytest.raises(EnvError, match="no page 'Z'"):
        make("game:WikiGame-v0-easy", wiki=SMALL, start="A", target="Z").reset(0)
    with pytest.raises(EnvError, match="set least lower"):
        make("game:WikiGame-v0-easy", wiki=SMALL, least=9).reset(0)
    file = tmp_path / "pages.jsonl"
    file.write_text('{"title": "A", "summary": ""}\n')
    with pytest.raises(DataError, match="line 1: field 'links' is missing"):
        read_wiki(file)
    file.write_text('{"title": "A", "summary": "", "links": []}\n')
    with pytest.raises(DataError, match="1 pages"):
        make("game:WikiGame-v0-easy", wiki=str(file)).reset(0)
    with pytest.raises(DataError, match="same title"):
        LocalWiki([Page("A", "", ()), Page("A", "", ())])
    with pytest.raises(UsageError, match="2 to 1500"):
        generate_wiki(1, 1, np.random.default_rng(0))
    with pytest.raises(EnvError, match="names no book"):
        make("game:WikiGame-v0-easy", wiki="kiwix:http://localhost:1").reset(0)


class Server(BaseHTTPRequestHandler):
    """A kiwix-serve and a MediaWiki in one, on the small graph."""

    def do_GET(self):
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/w/api.php":
            self.answer(json.dumps(self.api(query)))
        elif parts.path == "/random":
            Server.drawn += 1
            self.answer(f"<title>{'ABCD'[Server.drawn % 4]}</title>")
        else:
            page = SMALL.page(unquote(parts.path).removeprefix("/content/book/"))
            if page is None:
                self.send_error(404)
                return
            links = "".join(f'<a href="/content/book/{link}">x</a><a href="{link}#s">y</a>' for link in page.links)
            self.answer(
                f"<title>{page.title}</title><p>{page.summary}</p><p>more</p>{links}"
                '<a href="http://elsewhere/X">z</a><a href="style.css">c</a>'
            )

    drawn = 0

    def api(self, query):
        if query.get("list") == "random":
            return {"query": {"random": [{"title": "A"}, {"title": "D"}][: int(query["rnlimit"])]}}
        page = SMALL.page(query["titles"])
        if page is None:
            return {"query": {"pages": [{"title": query["titles"], "missing": True}]}}
        # One link a reply, to be continued.
        at = int(query.get("plcontinue", 0))
        reply = {"query": {"pages": [{"title": page.title, "extract": page.summary}]}}
        if page.links:
            reply["query"]["pages"][0]["links"] = [{"title": page.links[at]}]
        if at + 1 < len(page.links):
            reply["continue"] = {"plcontinue": at + 1, "continue": "||"}
        return reply

    def answer(self, text):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def address():
    server = HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_both_servers_give_the_pages_of_the_graph(address):
    for wiki in (KiwixWiki(address, "book"), MediaWiki(f"{address}/w/api.php")):
        for title in "ABCD":
            assert wiki.page(title) == SMALL.page(title)
        assert wiki.page("Nowhere") is None
        titles = wiki.random_titles(2, np.random.default_rng(0))
        assert len(set(titles)) == 2
        assert set(titles) <= set("ABCD")


@pytest.mark.parametrize("where", ["kiwix:{}#book", "mediawiki:{}/w/api.php"])
def test_a_walk_on_a_server(address, where):
    env = make("game:WikiGame-v0-easy", wiki=where.format(address), start="A", target="D")
    env.reset(0)
    assert env.step("\\boxed{B}")[1] == -0.05
    assert env.step("\\boxed{D}")[1:3] == (1.0, True)


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(DataError, match=r"cannot be reached .*; start the server"):
        make("game:WikiGame-v0-easy", wiki="kiwix:http://127.0.0.1:9#book").reset(0)
