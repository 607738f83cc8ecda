"""The game on the pages, and its variants."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.agents.gem.env import EnvError, below
from assay.agents.gem.games.base import Game, Move, boxed
from assay.agents.gem.wiki.graph import KiwixWiki, LocalWiki, MediaWiki, Page, Wiki, generate_wiki, read_wiki

if TYPE_CHECKING:
    import numpy as np

Variant = Literal["freenav", "noregrets", "oneback", "eidetic"]
VARIANTS = ("freenav", "noregrets", "oneback", "eidetic")
SUCCESS, STEP, INVALID, FORMAT = 1.0, -0.05, -0.2, -0.2
BACK = "<BACK>"
_TRIES = 1000


class WikiGame(Game):
    """Walk from a start page to a target page by links. Each step costs 0.05, each wrong or unreadable one 0.2.

    An unreadable action does not end the game here. Variants say what the player may do and sees:
    ``freenav`` any page seen before may be gone back to by name; ``noregrets`` there is no way back but links;
    ``oneback`` ``<BACK>`` leads to the page before, once in a row; ``eidetic`` as noregrets, and the links of all pages
    seen so far stay on show.

    Parameters
    ----------
    wiki
        Where pages come from: None = the shipped pages; ``generated`` = a random link graph, a new one at each reset; a
        path of JSON lines; ``mediawiki:URL`` of an api.php; ``kiwix:URL#BOOK`` of a kiwix-serve; or a `Wiki`.
    start, target
        Titles; None = drawn at each reset. In a local graph the target is at least ``least`` clicks away.
    variant
        One of ``VARIANTS``.
    """

    levels = {
        "easy": {"max_turns": 30, "variant": "freenav", "wiki": None, "start": None, "target": None, "least": 2},
        "hard": {"max_turns": 15, "variant": "noregrets", "wiki": None, "start": None, "target": None, "least": 3},
    }
    pattern = boxed(r"([^{}\n]+)")
    answer_hint = "Give the title of a link as \\boxed{title}."
    saved = ("at", "begin_title", "goal_title", "trail", "back_used", "graph_seed")
    wiki: Any
    start: str | None
    target: str | None
    variant: Variant
    least: int

    def check(self) -> None:
        self.require(self.variant in VARIANTS, f"variant must be one of {', '.join(VARIANTS)}, not {self.variant!r}")
        self.require(self.least >= 1, "least must be from 1")
        self._pages: Wiki | None = None
        self._seen: dict[str, Page] = {}

    @property
    def pages(self) -> Wiki:
        """Where pages come from, opened when first asked for."""
        if self._pages is None:
            self._pages = self._open()
        return self._pages

    def _open(self) -> Wiki:
        source = self.wiki
        if source is None or isinstance(source, Path):
            return read_wiki(source)
        if not isinstance(source, str):
            return source
        kind, _, rest = source.partition(":")
        if source == "generated":
            import numpy as np

            return generate_wiki(120, 5, np.random.default_rng(self.graph_seed))
        if kind == "mediawiki":
            return MediaWiki(rest)
        if kind == "kiwix":
            url, _, book = rest.partition("#")
            self.require(bool(book), f"wiki {source!r} names no book; write kiwix:URL#BOOK")
            return KiwixWiki(url, book)
        return read_wiki(source)

    def deal(self) -> None:
        self.graph_seed = int(self.rng.integers(2**31))
        if self.wiki == "generated":
            self._pages = None
        self._seen = {}
        self.begin_title, self.goal_title = self._ends()
        self.at = self.begin_title
        self.trail = [self.at]
        self.back_used = False
        if self._page(self.goal_title) is None or self._page(self.at) is None:
            raise EnvError(f"{self.name}: there is no page {self.goal_title!r} or no page {self.at!r}.")

    def _ends(self) -> tuple[str, str]:
        if self.start is not None and self.target is not None:
            return self.start, self.target
        for _ in range(_TRIES):
            first, last = self.pages.random_titles(2, self.rng)
            first, last = self.start or first, self.target or last
            if first == last:
                continue
            if not isinstance(self.pages, LocalWiki):
                return first, last
            if first in self.pages.pages and self.pages.distances(first).get(last, 0) >= self.least:
                return first, last
        raise EnvError(f"{self.name}: no two pages are {self.least} clicks or more apart; set least lower.")

    def _page(self, title: str) -> Page | None:
        if title not in self._seen:
            page = self.pages.page(title)
            if page is None:
                return None
            self._seen[title] = page
        return self._seen[title]

    def get_state(self) -> dict[str, Any]:
        state = super().get_state()
        if not isinstance(self.wiki, str):
            # A Wiki object is no JSON value: the environment that the state is set on has its own.
            del state["settings"]["wiki"]
        return state

    def restored(self) -> None:
        self._pages, self._seen = None, {}

    def rules(self) -> str:
        goal = self._page(self.goal_title)
        way = {
            "freenav": "You may also name any page that you have been to.",
            "noregrets": "There is no way back but by links.",
            "oneback": f"\\boxed{{{BACK}}} takes you to the page before, though not twice in a row.",
            "eidetic": "There is no way back but by links; links that you have seen stay on show.",
        }[self.variant]
        about = f" ({goal.summary[:200]})" if goal and goal.summary else ""
        return (
            f"You are on the page {self.begin_title!r} of an encyclopedia and want to reach the page "
            f"{self.goal_title!r}{about}, from page to page by links, in at most {self.max_turns} clicks. {way}"
        )

    def board(self) -> str:
        page = self._page(self.at)
        assert page is not None
        lines = [f"Page: {page.title}", page.summary[:400], f"Links: {' | '.join(page.links) or '-'}"]
        if self.variant == "eidetic":
            for title in dict.fromkeys(self.trail[:-1]):
                seen = self._page(title)
                if seen is not None and title != self.at:
                    lines.append(f"Links of {title}: {' | '.join(seen.links)}")
        elif self.variant == "freenav" and len(self.trail) > 1:
            lines.append(f"Been to: {' | '.join(dict.fromkeys(self.trail[:-1]))}")
        return "\n".join([*lines, f"Target: {self.goal_title}"])

    def unreadable(self) -> Move:
        return Move(f"No action could be read. {self.answer_hint}", FORMAT, valid=False)

    def play(self, box: re.Match[str]) -> Move:
        wanted = box[1].strip()
        page = self._page(self.at)
        assert page is not None
        if wanted.upper() == BACK:
            return self._back()
        names = {link.casefold(): link for link in page.links}
        if self.variant == "freenav":
            names = {title.casefold(): title for title in self.trail} | names
        title = names.get(wanted.replace("_", " ").casefold())
        if title is None:
            return Move(f"The page {self.at!r} has no link {wanted[:80]!r}.", INVALID, valid=False)
        there = self._page(title)
        if there is None:
            return Move(f"There is no page behind the link {title!r}.", INVALID, valid=False)
        return self._go(there.title)

    def _back(self) -> Move:
        if self.variant != "oneback":
            return Move("There is no way back.", INVALID, valid=False)
        if self.back_used or len(self.trail) < 2:
            return Move("You cannot go back now.", INVALID, valid=False)
        move = self._go(self.trail[-2])
        self.back_used = True
        return move

    def _go(self, title: str) -> Move:
        self.at = title
        self.trail.append(title)
        self.back_used = False
        if title == self.goal_title:
            return Move(f"You have reached {title!r}.", SUCCESS, solved=True)
        return Move(f"You are on {title!r} now.", STEP)

    def view(self) -> dict[str, Any]:
        page = self._page(self.at)
        assert page is not None
        seen = {title: self._page(title) for title in self.trail}
        known = {title: list(own.links) for title, own in seen.items() if own is not None}
        return {"at": self.at, "links": list(page.links), "target": self.goal_title, "known": known, "wiki": self.wiki}

    def random_action(self, rng: np.random.Generator) -> str:
        page = self._page(self.at)
        links = page.links if page is not None else ()
        return f"\\boxed{{{links[below(rng, len(links))] if links else BACK}}}"
