"""Building blocks for input generators and validators; kits import them as ``testlib``, in the sandbox too.

Standard library only, no state: all randomness is that of a ``random.Random`` handed in, or of the module ``random``,
which the pipeline seeds for every attempt.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

_NAME = "testlib"


def with_testlib(source: str) -> str:
    """``source``, with this module importable as ``testlib`` if it asks for it."""
    if _NAME not in source:
        return source
    from pathlib import Path

    own = Path(__file__).read_text(encoding="utf-8")
    head = (
        "import sys as _sys, types as _types\n"
        f"_sys.modules[{_NAME!r}] = _types.ModuleType({_NAME!r})\n"
        f"exec(compile({own!r}, {_NAME + '.py'!r}, 'exec'), _sys.modules[{_NAME!r}].__dict__)\n"
    )
    # A future import must come first; kits do not need it where annotations are never evaluated anyway.
    return head + source.replace("from __future__ import annotations", "")


# -- making ----------------------------------------------------------------------------------------------------------


def text(*lines: Any) -> str:
    """Lines of an input: a sequence is joined by blanks, anything else written as it is."""
    return "".join(
        (" ".join(map(str, line)) if isinstance(line, (list, tuple, range)) else str(line)) + "\n" for line in lines
    )


def integers(n: int, low: int, high: int, rng: Any = random) -> list[int]:
    """n integers between low and high, both included."""
    return [rng.randint(low, high) for _ in range(n)]


def distinct_integers(n: int, low: int, high: int, rng: Any = random) -> list[int]:
    """n different integers between low and high, in random order."""
    return rng.sample(range(low, high + 1), n)


def log_uniform(low: int, high: int, rng: Any = random) -> int:
    """An integer in [low, high], each order of magnitude about as likely as another (low >= 1)."""
    size = rng.uniform(len(bin(low)) - 3, len(bin(high)) - 2)
    return min(high, max(low, int(2**size)))


def partition(total: int, parts: int, low: int = 1, rng: Any = random) -> list[int]:
    """``parts`` integers of at least ``low`` that sum to ``total``, uniform over all such lists."""
    free = total - parts * low
    if parts < 1 or free < 0:
        raise ValueError(f"{total} cannot be split into {parts} parts of at least {low}")
    cuts = sorted(rng.sample(range(free + parts - 1), parts - 1))
    edges = [-1, *cuts, free + parts - 1]
    return [b - a - 1 + low for a, b in pairwise(edges)]


def permutation(n: int, start: int = 1, rng: Any = random) -> list[int]:
    """A random order of start, start + 1, ..., start + n - 1."""
    order = list(range(start, start + n))
    rng.shuffle(order)
    return order


def string(n: int, letters: str = "abcdefghijklmnopqrstuvwxyz", rng: Any = random) -> str:
    """n letters."""
    return "".join(rng.choice(letters) for _ in range(n))


def palindrome(n: int, letters: str = "abcdefghijklmnopqrstuvwxyz", rng: Any = random) -> str:
    """A palindrome of length n."""
    half = string((n + 1) // 2, letters, rng)
    return half + half[::-1][n % 2 :]


def brackets(pairs: int, kinds: str = "()", rng: Any = random) -> str:
    """A balanced sequence of ``pairs`` pairs; ``kinds`` lists opening and closing ones by turns."""
    openers, closers = kinds[::2], kinds[1::2]
    out, stack, left = [], [], pairs
    while left or stack:
        if left and (not stack or rng.random() < left / (left + len(stack))):
            kind = rng.randrange(len(openers))
            out.append(openers[kind])
            stack.append(kind)
            left -= 1
        else:
            out.append(closers[stack.pop()])
    return "".join(out)


def tree(n: int, shape: str = "random", rng: Any = random) -> list[tuple[int, int]]:
    """Edges of a tree on vertices 1..n, relabelled and shuffled.

    ``shape``: ``random`` (uniform parent), ``path``, ``star``, ``binary``, ``caterpillar``, ``broom``.
    """
    parents: dict[str, Callable[[int], int]] = {
        "random": lambda v: rng.randrange(v),
        "path": lambda v: v - 1,
        "star": lambda v: 0,
        "binary": lambda v: (v - 1) // 2,
        "caterpillar": lambda v: v - 1 if v <= n // 2 else rng.randrange(max(1, n // 2)),
        "broom": lambda v: v - 1 if v <= n // 2 else n // 2,
    }
    if shape not in parents:
        raise ValueError(f"a tree's shape is one of {', '.join(parents)}, not {shape!r}")
    names = permutation(n, 1, rng)
    edges = []
    for vertex in range(1, n):
        a, b = names[vertex], names[parents[shape](vertex)]
        edges.append((a, b) if rng.random() < 0.5 else (b, a))
    rng.shuffle(edges)
    return edges


def graph(
    n: int, m: int, *, connected: bool = False, directed: bool = False, acyclic: bool = False, rng: Any = random
) -> list[tuple[int, int]]:
    """m different edges on vertices 1..n, without loops.

    ``acyclic`` (of a directed graph): every edge follows a hidden order of the vertices.
    """
    most = n * (n - 1) // (1 if directed and not acyclic else 2)
    if m > most or (connected and m < n - 1):
        raise ValueError(f"a graph of {n} vertices with these properties has no {m} edges")
    order = permutation(n, 1, rng)
    place = {vertex: i for i, vertex in enumerate(order)}

    def edge(a: int, b: int) -> tuple[int, int]:
        if acyclic:
            return (a, b) if place[a] < place[b] else (b, a)
        return (a, b) if directed else (min(a, b), max(a, b))

    chosen = {edge(a, b) for a, b in tree(n, rng=rng)} if connected else set()
    if m > most // 2:  # dense: choosing among all is quicker than drawing until it fits
        rest = [
            edge(a, b)
            for a in range(1, n + 1)
            for b in range(1, n + 1)
            if (a < b or (directed and not acyclic and a != b)) and edge(a, b) not in chosen
        ]
        chosen |= set(rng.sample(rest, m - len(chosen)))
    while len(chosen) < m:
        a, b = rng.randrange(1, n + 1), rng.randrange(1, n + 1)
        if a != b:
            chosen.add(edge(a, b))
    edges = sorted(chosen)
    rng.shuffle(edges)
    return edges if directed else [(a, b) if rng.random() < 0.5 else (b, a) for a, b in edges]


def sorted_with_noise(n: int, low: int, high: int, swaps: int, rng: Any = random) -> list[int]:
    """Ascending integers with ``swaps`` random exchanges: the worst case of many a naive sort."""
    values = sorted(integers(n, low, high, rng))
    for _ in range(swaps):
        i, j = rng.randrange(n), rng.randrange(n)
        values[i], values[j] = values[j], values[i]
    return values


# -- checking --------------------------------------------------------------------------------------------------------


class Invalid(Exception):
    """An input breaks the rules; a validator lets it pass up: it counts as invalid."""


class Reader:
    """Reads an input strictly: exact blanks, exact line ends, no leading zeros, nothing left over.

    >>> read = Reader("3\\n1 2 3\\n"); n = read.line(1, 9)[0]; values = read.line(-9, 9, count=n); read.end()
    """

    def __init__(self, given: str) -> None:
        self._lines = given.split("\n")
        if self._lines and self._lines[-1] == "":
            self._lines.pop()
        self._at = 0

    def string(self, letters: str | None = None, low: int = 0, high: int = 10**9) -> str:
        """The next line: its length in [low, high], its characters among ``letters``."""
        if self._at >= len(self._lines):
            raise Invalid(f"line {self._at + 1} is missing")
        line = self._lines[self._at]
        self._at += 1
        if not low <= len(line) <= high:
            raise Invalid(f"line {self._at} has {len(line)} characters")
        if letters is not None and not set(line) <= set(letters):
            raise Invalid(f"line {self._at} has characters that are not allowed")
        return line

    def line(self, low: int, high: int, count: int | None = None) -> list[int]:
        """The next line: integers in [low, high], ``count`` of them if given."""
        words = self.string().split(" ")
        if count is not None and len(words) != count:
            raise Invalid(f"line {self._at} has {len(words)} numbers, not {count}")
        return [self._integer(word, low, high) for word in words]

    def _integer(self, word: str, low: int, high: int) -> int:
        digits = word[1:] if word.startswith("-") else word
        if not (digits.isascii() and digits.isdigit()) or (len(digits) > 1 and digits[0] == "0") or word == "-0":
            raise Invalid(f"line {self._at}: {word[:20]!r} is not an integer")
        if not low <= int(word) <= high:
            raise Invalid(f"line {self._at}: {word[:20]} is not in [{low}, {high}]")
        return int(word)

    def end(self) -> bool:
        """True where nothing is left; to be a validator's last word."""
        if self._at != len(self._lines):
            raise Invalid(f"line {self._at + 1} is one too many")
        return True


def is_tree(n: int, edges: Iterable[Sequence[int]]) -> bool:
    """Whether edges on 1..n make a tree."""
    listed = list(edges)
    return len(listed) == n - 1 and is_connected(n, listed)


def is_connected(n: int, edges: Iterable[Sequence[int]]) -> bool:
    """Whether every vertex of 1..n is reached from vertex 1."""
    near: list[list[int]] = [[] for _ in range(n + 1)]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    seen, todo = {1}, [1]
    while todo:
        for vertex in near[todo.pop()]:
            if vertex not in seen:
                seen.add(vertex)
                todo.append(vertex)
    return len(seen) == n


def is_simple(edges: Iterable[Sequence[int]], *, directed: bool = False) -> bool:
    """Whether no edge is a loop and none stands twice."""
    seen = set()
    for a, b in edges:
        key = (a, b) if directed or a < b else (b, a)
        if a == b or key in seen:
            return False
        seen.add(key)
    return True
