"""The search tool: over an index in this process, or a server that speaks Search-R1's HTTP contract."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from assay.core.errors import ProviderError, UsageError
from assay.systems.dialects import first_pair
from assay.systems.tools import Found, ToolResult

if TYPE_CHECKING:
    import aiohttp

    from assay.systems.tools.retrieval import Hit, Index


Form = Literal["json", "msgpack"]


class SearchTool:
    """Looks something up and gives back passages: ``Doc 1(Title: ...) text``.

    Parameters
    ----------
    source
        An `Index`, or the address of a server (``http://host:8000/retrieve``).
    topk
        Passages a query.
    seconds
        Time limit of a request to a server.
    tries
        Requests in all, when a server fails to answer.
    form
        Of a server: ``json`` (Search-R1) or ``msgpack`` (GEM's servers, a query a request).

    Raises
    ------
    UsageError
        No address and no index; topk below 1.
    """

    name = "search"
    tag = "search"
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "What to look for."}},
        "required": ["query"],
        "additionalProperties": False,
    }

    def __init__(
        self, source: Index | str, *, topk: int = 3, seconds: float = 30.0, tries: int = 3, form: Form = "json"
    ) -> None:
        if topk < 1 or tries < 1:
            raise UsageError(f"topk is {topk} and tries is {tries}; both must be at least 1.")
        if isinstance(source, str) and not source.startswith(("http://", "https://")):
            raise UsageError(f"The search tool needs an index or a server's address, not {source!r}.")
        self.source = source
        self.topk = topk
        self.description = f"Searches a collection of documents and returns the {topk} passages that fit best."
        self._client = (
            SearchClient(source, seconds=seconds, tries=tries, form=form) if isinstance(source, str) else None
        )

    def find(self, text: str) -> Found | None:
        """The first ``<search>`` of a text; an empty one has a ``problem``."""
        pair = first_pair(text, self.tag)
        if pair is None:
            return None
        query = pair.content.strip()
        return Found(self.name, {"query": query}, pair.start, pair.end, None if query else "the query is empty")

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Search for ``arguments["query"]``; ``data`` holds the documents with their scores.

        Raises
        ------
        ProviderError
            The server does not answer, or not in its form.
        """
        query = str(arguments["query"]).strip()
        if not query:
            return ToolResult("Error: the query is empty.", "the query is empty")
        if self._client is not None:
            (found,) = await self._client.search([query], self.topk)
        else:
            (hits,) = await asyncio.to_thread(self.source.search, [query], self.topk)  # type: ignore[union-attr]
            found = [as_document(hit) for hit in hits]
        return ToolResult(passages(found) if found else "Nothing was found.", data=found)

    async def aclose(self) -> None:
        """Close the connection to a server."""
        if self._client is not None:
            await self._client.aclose()


class SearchClient:
    """Client of Search-R1's contract: POST ``{"queries", "topk", "return_scores"}`` gives ``{"result": [[...]]}``.

    Parameters
    ----------
    url
        The whole address, path included.
    seconds
        Time limit of a request.
    tries
        Requests in all; between them 0.5, 1, 2 ... seconds.
    form
        ``json``, or ``msgpack``: GEM's form, where a request holds one query and ``result`` is its list.
    """

    def __init__(self, url: str, *, seconds: float = 30.0, tries: int = 3, form: Form = "json") -> None:
        if form not in ("json", "msgpack"):
            raise UsageError(f"form is {form!r}; a search server speaks 'json' or 'msgpack'.")
        self.form = form
        self.url = url
        self.seconds = seconds
        self.tries = tries
        self._session: aiohttp.ClientSession | None = None
        self._home: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> SearchClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def search(self, queries: Sequence[str], topk: int = 3) -> list[list[dict[str, Any]]]:
        """Documents of each query: ``{"document": {"contents": ..., ...}, "score": float | None}``.

        Raises
        ------
        ProviderError
            No answer after all tries (retryable), a refused request, or an answer of another form.
        """
        import msgspec

        if self.form == "json":
            body = {"queries": list(queries), "topk": topk, "return_scores": True}
            return self._read(await self._post(msgspec.json.encode(body), "application/json"), len(queries))
        found = []
        for query in queries:
            body = {"query": query, "topk": topk, "return_scores": True}
            found += self._read(await self._post(msgspec.msgpack.encode(body), "application/msgpack"), 1)
        return found

    async def _post(self, body: bytes, kind: str) -> bytes:
        import aiohttp

        problem = ""
        for attempt in range(self.tries):
            if attempt:
                await asyncio.sleep(0.25 * 2**attempt)
            try:
                async with self._open().post(self.url, data=body, headers={"Content-Type": kind}) as response:
                    answer = await response.read()
                    if response.status < 400:
                        return answer
                    problem = f"status {response.status}: {answer[:200].decode('utf-8', 'replace')}"
                    if response.status < 500 and response.status not in (408, 429):
                        raise ProviderError(f"The search server {self.url} refuses ({problem}).", retryable=False)
            except (aiohttp.ClientError, TimeoutError) as error:
                problem = f"{type(error).__name__}: {error}"
        raise ProviderError(f"The search server {self.url} does not answer ({problem}; {self.tries} tries).")

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        home = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._home is not home:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self.seconds))
            self._home = home
        return self._session

    def _read(self, answer: bytes, queries: int) -> list[list[dict[str, Any]]]:
        import msgspec

        try:
            packed = self.form == "msgpack"
            result = (msgspec.msgpack if packed else msgspec.json).decode(answer)["result"]
            lists = [result] if packed else result
            if isinstance(lists, list) and len(lists) == queries:
                return [[_document(item) for item in found] for found in lists]
        except (msgspec.DecodeError, ValueError, KeyError, TypeError):
            pass
        raise ProviderError(
            f"The search server {self.url} answers in another form ({answer[:120]!r}); "
            'it should be {"result": [[{"document": {"contents": ...}, "score": ...}, ...], ...]}.',
            retryable=False,
        )


def as_document(hit: Hit) -> dict[str, Any]:
    """A hit in the form of the HTTP contract."""
    contents = f"{hit.passage.title}\n{hit.passage.text}"
    return {"document": {"id": hit.passage.id, "contents": contents}, "score": hit.score}


def passages(found: Sequence[Mapping[str, Any]]) -> str:
    """Documents for a reader: ``Doc 1(Title: first line) the other lines``, a line each."""
    lines = []
    for number, item in enumerate(found, 1):
        title, _, text = item["document"]["contents"].partition("\n")
        lines.append(f"Doc {number}(Title: {title}) {text}\n")
    return "".join(lines)


def _document(item: Any) -> dict[str, Any]:
    """With scores an item holds document and score, without them it is the document."""
    document = item.get("document", item)
    if not isinstance(document["contents"], str):
        raise TypeError("contents is no text")
    score = item.get("score") if "document" in item else None
    return {"document": document, "score": None if score is None else float(score)}
