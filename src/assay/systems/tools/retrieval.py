"""Indexes over a collection of passages: BM25, dense, both; and a server for them."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from assay.core.datasets.readers import read_jsonl, read_text
from assay.core.errors import DataError, MissingExtra, UsageError, unknown_name

if TYPE_CHECKING:
    import numpy as np
    from aiohttp import web

    from assay.core.cache import ContentCache
    from assay.systems.embedding import EmbeddingModel

TEXT_FILES = (".txt", ".md", ".rst")


class Passage(NamedTuple):
    """What can be found."""

    id: str
    title: str
    text: str


class Hit(NamedTuple):
    """What was found, and how well it fits (a score of the index's own scale)."""

    passage: Passage
    score: float


class Index(Protocol):
    """Finds passages."""

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """The best passages of each query, best first, at most ``topk``; equal scores in the collection's order."""
        ...


def read_passages(path: Path, *, words: int | None = 200) -> list[Passage]:
    """Passages of a JSON-lines file or a folder of texts.

    Parameters
    ----------
    path
        ``.jsonl``: one object a line with ``contents`` (title line, then text: Search-R1's form) or with ``title`` and
        ``text``, and an ``id``. A folder: every .txt, .md and .rst file in it, titled by its first line with text.
    words
        Longest passage of a folder's files, cut between paragraphs where possible; None = whole files.

    Raises
    ------
    DataError
        Nothing there, a line that is of neither form, or an id twice.
    """
    if path.is_dir():
        found = [p for file in _texts(path) for p in _cut(file.relative_to(path), read_text(file), words)]
    elif path.suffix == ".jsonl":
        found = [_parsed(row, number, path) for number, row in read_jsonl(path)]
    else:
        raise DataError(f"{path} is neither a folder nor a .jsonl file; give one of them.")
    if not found:
        what = f"no {', '.join(TEXT_FILES)} file with text" if path.is_dir() else "no line"
        raise DataError(f"{path} holds {what}: there is nothing to search.")
    seen: set[str] = set()
    for passage in found:
        if passage.id in seen:
            raise DataError(f"{path}: the id {passage.id!r} stands twice; ids must differ.")
        seen.add(passage.id)
    return found


class BM25:
    """BM25 over words, stop words left out (Lucene's variant, k1 = 1.5, b = 0.75), by bm25s.

    Passages that share no word with the query are not found.

    Raises
    ------
    MissingExtra
        bm25s is not installed.
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        try:
            import bm25s
        except ImportError as error:
            raise MissingExtra("BM25 search", "gem") from error
        self.passages = list(passages)
        self._tokens = bm25s.tokenize
        self._index = bm25s.BM25()
        texts = [f"{p.title} {p.text}" for p in self.passages]
        tokens = self._tokens(texts, show_progress=False, return_ids=False)
        if not any(tokens):
            raise DataError("The passages hold no word to search for.")
        self._index.index(tokens, show_progress=False)

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """See `Index.search`."""
        tokens = self._tokens(list(queries), show_progress=False, return_ids=False)
        return [self._best(words, topk) for words in tokens]

    def _best(self, words: Any, topk: int) -> list[Hit]:
        import numpy as np

        known = [word for word in words if word in self._index.vocab_dict]
        if not known:
            return []
        scores = self._index.get_scores(known)
        return [h for h in _top(self.passages, np.asarray(scores, float), topk) if h.score > 0]


class Dense:
    """Inner product of unit vectors, exact.

    Parameters
    ----------
    model
        Encodes queries and passages.
    cache
        Vectors are kept there; None = encoded anew each time.
    query_prefix, passage_prefix
        What the model wants in front (E5: ``query: `` and ``passage: ``).
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        model: EmbeddingModel,
        *,
        cache: ContentCache | None = None,
        query_prefix: str = "",
        passage_prefix: str = "",
    ) -> None:
        from assay.systems.embedding import CachedEncoder

        self.passages = list(passages)
        self.model = model
        self.query_prefix = query_prefix
        encoder = model if cache is None else CachedEncoder(model, cache)
        self._vectors = _unit(encoder.encode([f"{passage_prefix}{p.title}\n{p.text}" for p in self.passages]))

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """See `Index.search`."""
        if not queries:
            return []
        vectors = _unit(self.model.encode([self.query_prefix + q for q in queries]))
        return [_top(self.passages, row, topk) for row in vectors @ self._vectors.T]


class Hybrid:
    """Several indexes of the same passages, fused by reciprocal rank (Cormack et al. 2009, k = 60).

    Parameters
    ----------
    depth
        Hits of each index that are fused.
    """

    def __init__(self, indexes: Sequence[Index], *, depth: int = 50) -> None:
        if not indexes:
            raise UsageError("A hybrid index was given no index; it needs at least one.")
        self.indexes = list(indexes)
        self.depth = depth

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        """See `Index.search`."""
        lists = [index.search(queries, max(self.depth, topk)) for index in self.indexes]
        fused = []
        for number in range(len(queries)):
            scores: dict[Passage, float] = {}
            for found in lists:
                for rank, hit in enumerate(found[number], 1):
                    scores[hit.passage] = scores.get(hit.passage, 0.0) + 1 / (60 + rank)
            best = sorted(scores.items(), key=lambda item: -item[1])[:topk]
            fused.append([Hit(passage, score) for passage, score in best])
        return fused


def make_index(passages: Sequence[Passage], kind: str = "bm25", *, cache: ContentCache | None = None) -> Index:
    """``bm25``; an encoder of `load_encoder` (``minilm``, ``wordllama``, a folder); or ``bm25+minilm`` for both.

    Raises
    ------
    UsageError
        Unknown index or encoder.
    """
    from assay.systems.embedding import load_encoder

    parts = kind.split("+")
    if any(not part for part in parts):
        raise unknown_name("index", kind, ("bm25", "minilm", "wordllama", "bm25+minilm"))
    made: list[Index] = [
        BM25(passages) if part == "bm25" else Dense(passages, load_encoder(part), cache=cache) for part in parts
    ]
    return made[0] if len(made) == 1 else Hybrid(made)


# -- server ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serve(index: Index, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """A server with Search-R1's contract; yields its address.

    POST /retrieve takes ``topk`` (3), ``return_scores`` (false) and ``{"queries": [...]}``, which it answers by
    ``{"result": [[...], ...]}``, or ``{"query": ...}``, which it answers by one flat list, as GEM's search tool
    expects. Items are documents, or with scores ``{"document": ..., "score": ...}``. Requests in msgpack are answered
    in msgpack. GET /health answers ``ok``.
    """
    from aiohttp import web

    app = web.Application(client_max_size=16 * 2**20)
    app.router.add_post("/retrieve", _handler(index))
    app.router.add_get("/health", _health)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield f"http://{host}:{runner.addresses[0][1]}/retrieve"
    finally:
        await runner.cleanup()


async def _health(request: web.Request) -> web.Response:
    from aiohttp import web

    return web.Response(text="ok")


def _handler(index: Index) -> Any:
    import asyncio

    import msgspec
    from aiohttp import web

    from assay.systems.tools.search import as_document

    async def handle(request: web.Request) -> web.Response:
        raw = await request.read()
        packed = raw[:1] >= b"\x80"  # a map of msgpack; GEM's client names no content type
        codec = msgspec.msgpack if packed else msgspec.json
        try:
            body = codec.decode(raw)
            queries, topk, scores = _asked(body)
        except msgspec.DecodeError as error:
            return web.Response(status=400, text=f"The request's body cannot be read ({error}).")
        except UsageError as error:
            return web.Response(status=400, text=str(error))
        found = await asyncio.to_thread(index.search, queries, topk)
        rows = [[as_document(hit) if scores else as_document(hit)["document"] for hit in hits] for hits in found]
        kind = "application/msgpack" if packed else "application/json"
        result = rows if "queries" in body else rows[0]
        return web.Response(body=codec.encode({"result": result}), content_type=kind)

    return handle


def _asked(body: Any) -> tuple[list[str], int, bool]:
    if not isinstance(body, dict):
        raise UsageError("The request is no object; send queries, topk and return_scores.")
    queries = body.get("queries", body.get("query"))
    queries = [queries] if isinstance(queries, str) else queries
    if not isinstance(queries, list) or not queries or not all(isinstance(q, str) for q in queries):
        raise UsageError(f"queries is {str(queries)[:80]!r}; it must be a text or a list of texts.")
    topk = 3 if body.get("topk") is None else body["topk"]
    if isinstance(topk, bool) or not isinstance(topk, int) or not 1 <= topk <= 1000:
        raise UsageError(f"topk is {topk!r}; it must be an integer from 1 to 1000.")
    return queries, topk, bool(body.get("return_scores", False))


def main() -> None:
    """``python -m assay.systems.tools.retrieval DATA [--index bm25] [--host H] [--port 8000]``."""
    import asyncio

    parser = argparse.ArgumentParser(description="Search server with Search-R1's HTTP contract.")
    parser.add_argument("data", type=Path, help="a .jsonl file or a folder of texts")
    parser.add_argument("--index", default="bm25", help="bm25, minilm, wordllama, bm25+minilm, or an encoder's folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()

    async def forever() -> None:
        passages = read_passages(args.data)
        async with serve(make_index(passages, args.index), host=args.host, port=args.port) as address:
            print(f"{len(passages)} passages at {address}", flush=True)
            await asyncio.Event().wait()

    try:
        asyncio.run(forever())
    except KeyboardInterrupt:
        return
    except (DataError, UsageError, MissingExtra) as error:
        raise SystemExit(str(error)) from None


# -- reading -----------------------------------------------------------------------------------------------------------


def _texts(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in TEXT_FILES and file.is_file())


def _cut(name: Path, text: str, words: int | None) -> Iterable[Passage]:
    paragraphs = [part.strip() for part in text.split("\n\n") if part.strip()]
    if not paragraphs:
        return
    title = paragraphs[0].splitlines()[0].strip("#= \t") or name.stem
    if words is None:
        yield Passage(str(name), title, text.strip())
        return
    # A paragraph longer than a passage is cut between words.
    pieces = [
        piece
        for paragraph in paragraphs
        for split in [paragraph.split()]
        for piece in ([paragraph] if len(split) <= words else _windows(split, words))
    ]
    held: list[str] = []
    size = number = 0
    for piece in [*pieces, None]:
        length = len(piece.split()) if piece is not None else 0
        if held and (piece is None or size + length > words):
            yield Passage(f"{name}#{number}", title, "\n\n".join(held))
            held, size, number = [], 0, number + 1
        if piece is not None:
            held.append(piece)
            size += length


def _windows(words: list[str], size: int) -> list[str]:
    return [" ".join(words[start : start + size]) for start in range(0, len(words), size)]


def _parsed(row: Mapping[str, Any], number: int, path: Path) -> Passage:
    where = f"{path}, line {number}"
    identifier = str(row.get("id", number - 1))
    if isinstance(row.get("contents"), str):
        title, _, text = row["contents"].partition("\n")
        return Passage(identifier, title.strip().strip('"'), text)
    text = row.get("text")
    if not isinstance(text, str):
        raise DataError(f"{where} has the fields {', '.join(row) or 'none'}; contents, or title and text, are needed.")
    return Passage(identifier, str(row.get("title") or ""), text)


def _unit(vectors: np.ndarray) -> np.ndarray:
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths == 0, 1, lengths), np.float32)


def _top(passages: Sequence[Passage], scores: np.ndarray, topk: int) -> list[Hit]:
    import numpy as np

    k = min(topk, len(scores))
    # Equal scores at the edge: a stable order needs all that reach the k-th score, not the partition's choice of them.
    edge = np.partition(scores, len(scores) - k)[len(scores) - k]
    candidates = np.flatnonzero(scores >= edge)
    order = candidates[np.argsort(-scores[candidates], kind="stable")][:k]
    return [Hit(passages[int(i)], float(scores[i])) for i in order]


if __name__ == "__main__":
    main()
