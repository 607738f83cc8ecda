"""Where pages and links come from: a graph in a file or generated, kiwix-serve, a MediaWiki."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote, urlencode, urlsplit

import numpy as np

from assay.core.datasets.readers import read_jsonl, require
from assay.core.errors import DataError, UsageError

SHIPPED = Path(__file__).with_name("pages.jsonl")
_TIMEOUT = 20.0


class Page(NamedTuple):
    """A page: title, summary, and the titles it links to, in order, each once."""

    title: str
    summary: str
    links: tuple[str, ...]


class Wiki(Protocol):
    """Pages by title."""

    def page(self, title: str) -> Page | None:
        """The page; None where there is none."""
        ...

    def random_titles(self, count: int, rng: np.random.Generator) -> list[str]:
        """Titles to begin and end a walk with."""
        ...


class LocalWiki:
    """A link graph in memory.

    Parameters
    ----------
    pages
        All pages. Links to pages that are not among them are left out.
    """

    def __init__(self, pages: Sequence[Page]) -> None:
        titles = {page.title for page in pages}
        if len(titles) < len(pages):
            raise DataError("Two pages of the link graph have the same title.")
        self.pages = {
            page.title: page._replace(
                links=tuple(dict.fromkeys(t for t in page.links if t in titles and t != page.title))
            )
            for page in pages
        }
        self.titles = sorted(self.pages)

    def page(self, title: str) -> Page | None:
        """The page of a title."""
        return self.pages.get(title)

    def random_titles(self, count: int, rng: np.random.Generator) -> list[str]:
        """Titles, none twice."""
        return [self.titles[int(i)] for i in rng.permutation(len(self.titles))[:count]]

    def distances(self, start: str) -> dict[str, int]:
        """Fewest clicks from a page to every page that can be reached."""
        found, queue = {start: 0}, deque([start])
        while queue:
            title = queue.popleft()
            for link in self.pages[title].links:
                if link not in found:
                    found[link] = found[title] + 1
                    queue.append(link)
        return found

    def path(self, start: str, end: str) -> list[str] | None:
        """Titles to click, one after the other, on a shortest way; None where there is no way."""
        came: dict[str, str] = {start: ""}
        queue = deque([start])
        while queue and end not in came:
            title = queue.popleft()
            for link in self.pages[title].links:
                if link not in came:
                    came[link] = title
                    queue.append(link)
        if end not in came:
            return None
        path = []
        while end != start:
            path.append(end)
            end = came[end]
        return path[::-1]


@lru_cache(maxsize=4)
def _read(file: Path, _: int) -> LocalWiki:
    pages = []
    for number, row in read_jsonl(file):
        where = f"{file}, line {number}"
        links = require(row, "links", list, where)
        pages.append(
            Page(require(row, "title", str, where), require(row, "summary", str, where), tuple(map(str, links)))
        )
    if len(pages) < 2:
        raise DataError(f"{file} holds {len(pages)} pages; a walk needs two at least.")
    return LocalWiki(pages)


def read_wiki(path: Path | str | None = None) -> LocalWiki:
    """A link graph from JSON lines ``{title, summary, links: [title, ...]}``; None = the shipped one (own work).

    Raises
    ------
    DataError
        A line is of another form, a title is there twice, or there are fewer than two pages.
    """
    file = SHIPPED if path is None else Path(path).expanduser()
    return _read(file, file.stat().st_mtime_ns if file.is_file() else 0)


_BEGIN = ("Ar", "Bel", "Cor", "Dun", "El", "Far", "Gal", "Hol", "Is", "Jor", "Kel", "Lor", "Mar", "Nor", "Or", "Pel")
_MIDDLE = ("a", "an", "e", "en", "i", "in", "o", "or", "u", "un")
_END = ("burg", "dale", "field", "ford", "gate", "ham", "mere", "mont", "stead", "ton", "vale", "wick")


def generate_wiki(pages: int, links: int, rng: np.random.Generator) -> LocalWiki:
    """A random link graph of invented places in which every page leads to every other.

    Parameters
    ----------
    pages
        Number of pages, 2 to 1,500.
    links
        Links a page at least; popular pages get more, as in real wikis.
    """
    names = [a + b + c for a in _BEGIN for b in _MIDDLE for c in _END]
    if not 2 <= pages <= 1500:
        raise UsageError(f"pages is {pages}; a generated link graph has 2 to 1500.")
    titles = [names[int(i)] for i in rng.permutation(len(names))[:pages]]
    popularity = 1 / np.arange(1, pages + 1)
    popularity /= popularity.sum()
    made = []
    for at, title in enumerate(titles):
        drawn = rng.choice(pages, size=min(links, pages), replace=False, p=popularity)
        # The circle makes sure that there is always a way.
        chosen = dict.fromkeys([titles[(at + 1) % pages], *(titles[int(i)] for i in drawn)])
        chosen.pop(title, None)
        made.append(Page(title, f"{title} is an invented place.", tuple(sorted(chosen))))
    return LocalWiki(made)


class _Links(HTMLParser):
    """Titles of the pages of its own wiki that an HTML page links to, its title and its first paragraph."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix
        self.links: dict[str, None] = {}
        self.summary = ""
        self.title = ""
        self._inside = ""
        self._text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            address = unquote(urlsplit(dict(attrs).get("href") or "").path)
            name = address.removeprefix(self.prefix).removeprefix("./")
            if name and not name.startswith(("/", "http", "#", "..")) and ":" not in name and "." not in name[-5:]:
                self.links[name.replace("_", " ")] = None
        elif tag in ("p", "title") and not self._inside:
            self._inside, self._text = tag, []

    def handle_data(self, data: str) -> None:
        if self._inside:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            text = " ".join("".join(self._text).split())
            if tag == "title":
                self.title = text
            elif not self.summary:
                self.summary = text
            self._inside = ""


def _get(address: str) -> bytes | None:
    """Content of an address; None for 404."""
    import urllib.error
    import urllib.request

    if urlsplit(address).scheme not in ("http", "https"):
        raise UsageError(f"{address} is no http address of a wiki.")
    request = urllib.request.Request(address, headers={"User-Agent": "assay (WikiGame)"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as reply:
            return reply.read(16 << 20)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise DataError(f"{address} answers {error.code} {error.reason}.") from error
    except OSError as error:
        raise DataError(
            f"{address} cannot be reached ({getattr(error, 'reason', error)}); start the server, or leave the "
            "address out to walk on the shipped pages."
        ) from error


class KiwixWiki:
    """Pages of a ZIM file served by ``kiwix-serve``.

    Parameters
    ----------
    url
        Of the server, ``http://localhost:8080``.
    book
        Name of the ZIM file at the server.
    """

    def __init__(self, url: str, book: str) -> None:
        self.base = f"{url.rstrip('/')}/content/{book}/"
        self.random = f"{url.rstrip('/')}/random?{urlencode({'content': book})}"
        self._seen: dict[str, Page | None] = {}

    def page(self, title: str) -> Page | None:
        """The page of a title."""
        if title not in self._seen:
            self._seen[title] = self._fetch(title)
        return self._seen[title]

    def _fetch(self, title: str) -> Page | None:
        content = _get(self.base + quote(title.replace(" ", "_")))
        if content is None:
            return None
        parser = _Links(unquote(urlsplit(self.base).path))
        parser.feed(content.decode("utf-8", "replace"))
        return Page(title, parser.summary, tuple(link for link in parser.links if link != title))

    def random_titles(self, count: int, rng: np.random.Generator) -> list[str]:
        """Titles that the server draws: ``rng`` has no say, so give start and target for walks that can be repeated."""
        titles: list[str] = []
        for _ in range(20 * count):
            parser = _Links("")
            parser.feed((_get(self.random) or b"").decode("utf-8", "replace"))
            if parser.title and parser.title not in titles:
                titles.append(parser.title)
            if len(titles) == count:
                return titles
        raise DataError(f"{self.random} gives no {count} different pages.")


class MediaWiki:
    """Pages of a MediaWiki through its ``api.php``.

    Parameters
    ----------
    url
        Of ``api.php``, ``https://en.wikipedia.org/w/api.php``.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._seen: dict[str, Page | None] = {}

    def _ask(self, **query: str) -> Mapping[str, Any]:
        address = f"{self.url}?{urlencode({'action': 'query', 'format': 'json', 'formatversion': '2', **query})}"
        content = _get(address)
        try:
            answer = json.loads(content or b"")
        except ValueError as error:
            raise DataError(f"{self.url} is no MediaWiki api.php: it does not answer JSON.") from error
        if "error" in answer:
            raise DataError(f"{self.url} answers: {answer['error'].get('info', answer['error'])}.")
        return answer

    def page(self, title: str) -> Page | None:
        """The page of a title, redirects followed."""
        if title not in self._seen:
            self._seen[title] = self._fetch(title)
        return self._seen[title]

    def _fetch(self, title: str) -> Page | None:
        links: dict[str, None] = {}
        summary, more = "", {}
        while True:
            answer = self._ask(
                titles=title, redirects="1", prop="links|extracts", plnamespace="0", pllimit="max", exintro="1",
                explaintext="1", **more,
            )  # fmt: skip
            (page,) = answer["query"]["pages"]
            if page.get("missing") or page.get("invalid"):
                return None
            summary = summary or page.get("extract", "")
            links.update((link["title"], None) for link in page.get("links", ()))
            more = {name: str(value) for name, value in answer.get("continue", {}).items()}
            if not more:
                return Page(page["title"], summary, tuple(link for link in links if link != page["title"]))

    def random_titles(self, count: int, rng: np.random.Generator) -> list[str]:
        """Titles that the server draws: ``rng`` has no say, so give start and target for walks that can be repeated."""
        answer = self._ask(list="random", rnnamespace="0", rnlimit=str(count))
        return [item["title"] for item in answer["query"]["random"]]
