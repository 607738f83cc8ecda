"""The shop as an environment: a search page, pages of results, a page a product."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay.agents.gem.env import Env, EnvError, Turn, below
from assay.agents.gem.webshop.pages import MODES, Line, Mode, Piece, shown
from assay.agents.gem.webshop.products import Product, Wish, made_up_products, make_wish, read_products, worth
from assay.core.errors import unknown_name

if TYPE_CHECKING:
    from assay.systems.tools.retrieval import BM25

FORMAT_ERROR_REWARD = -0.1
PER_PAGE = 10
TEST_WISHES = 500
_SPLIT_SEED = 233
_ACTION = re.compile(r"\b(search|click)\[([^\[\]\n]{1,200})\]", re.IGNORECASE)


@lru_cache(maxsize=4)
def _shop(data: str | None, count: int) -> tuple[list[Product], list[Wish], BM25]:
    from assay.systems.tools.retrieval import BM25, Passage

    if data is None:
        products, wishes = made_up_products(count, np.random.default_rng(2022)), []
    else:
        products, wishes = read_products(data)
    passages = [
        Passage(product.id, product.title, " ".join([product.query, *product.features, product.description]))
        for product in products
    ]
    return products, wishes, BM25(passages)


def _numbers(count: int, split: str | None) -> list[int]:
    """Numbers of the wishes of a split."""
    if split is None:
        return list(range(count))
    order = np.random.default_rng(_SPLIT_SEED).permutation(count).tolist()
    most = min(TEST_WISHES, count // 10)
    return order[:most] if split == "test" else order[most:]


class WebShop(Env):
    """Search, look, choose options, buy: the reward of the purchase is the only one; see `webshop.products.worth`.

    Actions are ``search[words]`` and ``click[button]``, the last one in the text counts. A text with none of them is a
    format error (-0.1, and the end once there were ``error_tolerance``); a button that is not on the page changes
    nothing. ``solved`` = reward 1.

    Parameters
    ----------
    data
        Folder in the published form; None = a made-up catalogue.
    products
        Products of the made-up catalogue.
    observation_mode
        How pages are shown: ``plain``, ``text``, ``text_rich`` or ``html``; see `webshop.pages.shown`.
    split
        Wishes of ``train`` or ``test`` alone: of files, ``test`` are the first 500 of a fixed shuffle (a tenth, where
        there are fewer than 5,000); of the made-up catalogue, those of even seeds. None = all.
    error_tolerance
        Format errors that end an episode.
    max_turns
        Turns an episode may have.
    """

    max_turns = 15
    saved = (
        "wish_seed", "wish_number", "page", "results", "page_number", "product_number", "chosen", "seen", "errors",
    )  # fmt: skip

    def __init__(
        self,
        data: str | None = None,
        products: int = 300,
        *,
        observation_mode: Mode = "plain",
        split: Literal["train", "test"] | None = None,
        error_tolerance: int = 1,
        max_turns: int | None = None,
        strict_gymnasium: bool = False,
        seed_global: bool = False,
    ) -> None:
        super().__init__(strict_gymnasium=strict_gymnasium, seed_global=seed_global, max_turns=max_turns)
        if isinstance(products, bool) or not isinstance(products, int) or products < 1:
            raise EnvError(f"products is {products!r}; it must be an integer from 1.")
        if observation_mode not in MODES:
            raise EnvError(str(unknown_name("observation_mode", str(observation_mode), MODES)))
        if split not in (None, "train", "test"):
            raise EnvError(str(unknown_name("split", str(split), ("train", "test"))))
        if error_tolerance < 1:
            raise EnvError(f"error_tolerance is {error_tolerance}; the first error ends an episode with 1.")
        self.observation_mode: Mode = observation_mode
        self.split, self.error_tolerance = split, error_tolerance
        self.products, self.wishes, self._index = _shop(None if data is None else str(data), products)
        self._place = {product.id: at for at, product in enumerate(self.products)}
        self._numbers = _numbers(len(self.wishes), split)
        if self.wishes and not self._numbers:
            raise EnvError(f"{data} holds {len(self.wishes)} wishes, too few for a split {split!r}; leave split out.")
        self.wish: Wish | None = None

    def begin(self) -> tuple[str, dict[str, Any]]:
        self.wish_seed = int(self.rng.integers(2**31))
        if self.split is not None:  # even seeds are the test's
            self.wish_seed = self.wish_seed // 2 * 2 + (self.split == "train")
        self.wish_number = self._numbers[below(self.rng, len(self._numbers))] if self.wishes else -1
        self.page = "search"
        self.results: list[int] = []
        self.page_number = 0
        self.product_number = -1
        self.chosen: dict[str, str] = {}
        self.seen: list[str] = []
        self.errors = 0
        self.restored()
        assert self.wish is not None
        text = (
            f"You are in a shop. {self.wish.instruction}\nWrite search[words] to search and click[button] to press a "
            f"button; buttons are shown in brackets. The first purchase ends it; you have {self.max_turns} turns."
        )
        return text, self._info()

    def restored(self) -> None:
        if self.wish_number >= 0:
            self.wish = self.wishes[self.wish_number]
        else:
            self.wish = make_wish(self.products, np.random.default_rng(self.wish_seed))

    def _info(self, **more: Any) -> dict[str, Any]:
        return {"suffix": self._text(), "solved": False, "valid": True, "format_error": False, **more}

    def _shown(self) -> list[int]:
        return self.results[self.page_number * PER_PAGE : (self.page_number + 1) * PER_PAGE]

    def buttons(self) -> list[str]:
        """What can be pressed on this page; on the search page, nothing."""
        if self.page == "search":
            return []
        if self.page == "results":
            more = ["Next >"] if (self.page_number + 1) * PER_PAGE < len(self.results) else []
            before = ["< Prev"] if self.page_number else []
            return ["Back to Search", *before, *more, *(self.products[at].id for at in self._shown())]
        if self.page == "product":
            product = self.products[self.product_number]
            values = [value for choices in product.options.values() for value in choices]
            return ["Back to Search", "< Prev", "Description", "Features", "Buy Now", *values]
        return ["Back to Search", "< Prev"]

    def _text(self) -> str:
        return shown(self._lines(), self.observation_mode)

    def _lines(self) -> list[Line]:
        if self.page == "search":
            return [[Piece("Search page. Write search[words].")]]
        buttons = [Piece(name, "button") for name in self.buttons() if name not in self._place]
        if self.page == "results":
            head = [Piece(f"Page {self.page_number + 1}, {len(self.results)} results")]
            found = [self.products[at] for at in self._shown()]
            listed = [
                [Piece(product.id, "product", product.id in self.seen), Piece(f"{product.title}, ${product.price:.2f}")]
                for product in found
            ]
            return [head, *listed, buttons]
        product = self.products[self.product_number]
        if self.page == "product":
            options = [
                [Piece(f"{name}:"), *(Piece(value, "option", self.chosen.get(name) == value) for value in values)]
                for name, values in product.options.items()
            ]
            chosen = ", ".join(f"{name} {value}" for name, value in self.chosen.items()) or "none"
            head = [
                Piece(name, "button") for name in ("Back to Search", "< Prev", "Description", "Features", "Buy Now")
            ]
            return [[Piece(f"{product.title}, ${product.price:.2f}")], *options, [Piece(f"Chosen: {chosen}")], head]
        body = product.description if self.page == "description" else "; ".join(product.features)
        return [[Piece(product.title)], [Piece(body or "Nothing is said.")], buttons]

    def act(self, action: str) -> Turn:
        found = _ACTION.findall(action)
        if not found:
            text = "No action could be read. Write search[words] or click[button]."
            info = self._info(valid=False, format_error=True)
            self.errors += 1
            return Turn(text, FORMAT_ERROR_REWARD, self.errors >= self.error_tolerance, info, also_truncated=True)
        verb, content = found[-1][0].lower(), found[-1][1].strip()
        if verb == "search":
            if self.page != "search":
                return Turn("Go back to the search page first.", info=self._info(valid=False))
            hits = self._index.search([content], 5 * PER_PAGE)[0]
            self.results = [self._place[hit.passage.id] for hit in hits]
            self.page, self.page_number = "results", 0
            return Turn(f"{len(self.results)} products found.", info=self._info())
        names = {button.lower(): button for button in self.buttons()}
        if content.lower() not in names:
            return Turn(f"There is no button {content!r} here.", info=self._info(valid=False))
        return self._click(names[content.lower()])

    def _click(self, button: str) -> Turn:
        if button == "Back to Search":
            self.page, self.chosen = "search", {}
        elif button == "Next >":
            self.page_number += 1
        elif button == "< Prev":
            if self.page == "results":
                self.page_number -= 1
            else:
                self.page = "results" if self.page == "product" else "product"
        elif button in self._place:
            self.page, self.product_number, self.chosen = "product", self._place[button], {}
            self.seen = [*self.seen, button] if button not in self.seen else self.seen
        elif button in ("Description", "Features"):
            self.page = button.lower()
        elif button == "Buy Now":
            assert self.wish is not None
            value = worth(self.products[self.product_number], self.chosen, self.wish)
            info = self._info(solved=value.reward == 1.0, worth=value._asdict())
            return Turn("The purchase is made.", value.reward, True, info)
        else:
            options = self.products[self.product_number].options
            self.chosen[next(name for name, values in options.items() if button in values)] = button
        return Turn(f"You have pressed {button!r}.", info=self._info())

    def random_action(self, rng: np.random.Generator) -> str:
        buttons = self.buttons()
        if buttons:
            return f"click[{buttons[below(rng, len(buttons))]}]"
        product = self.products[below(rng, len(self.products))]
        return f"search[{product.query or product.title}]"
