"""The shop as an environment: a search page, pages of results, a page a product."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.agents.gem.env import Env, EnvError, Turn, below
from assay.agents.gem.webshop.products import Product, Wish, made_up_products, make_wish, read_products, worth

if TYPE_CHECKING:
    from assay.systems.tools.retrieval import BM25

FORMAT_ERROR_REWARD = -0.1
PER_PAGE = 10
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


class WebShop(Env):
    """Search, look, choose options, buy: the reward of the purchase is the only one; see `webshop.products.worth`.

    Actions are ``search[words]`` and ``click[button]``, the last one in the text counts. A text with none of them is a
    format error (-0.1 and the end); a button that is not on the page changes nothing. ``solved`` = reward 1.

    Parameters
    ----------
    data
        Folder in the published form; None = a made-up catalogue.
    products
        Products of the made-up catalogue.
    max_turns
        Turns an episode may have.
    """

    max_turns = 15
    saved = ("wish_seed", "wish_number", "page", "results", "page_number", "product_number", "chosen")

    def __init__(
        self,
        data: str | None = None,
        products: int = 300,
        *,
        max_turns: int | None = None,
        strict_gymnasium: bool = False,
        seed_global: bool = False,
    ) -> None:
        super().__init__(strict_gymnasium=strict_gymnasium, seed_global=seed_global, max_turns=max_turns)
        if isinstance(products, bool) or not isinstance(products, int) or products < 1:
            raise EnvError(f"products is {products!r}; it must be an integer from 1.")
        self.products, self.wishes, self._index = _shop(None if data is None else str(data), products)
        self._place = {product.id: at for at, product in enumerate(self.products)}
        self.wish: Wish | None = None

    def begin(self) -> tuple[str, dict[str, Any]]:
        self.wish_seed = int(self.rng.integers(2**31))
        self.wish_number = below(self.rng, len(self.wishes)) if self.wishes else -1
        self.page = "search"
        self.results: list[int] = []
        self.page_number = 0
        self.product_number = -1
        self.chosen: dict[str, str] = {}
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
        if self.page == "search":
            return "Search page. Write search[words]."
        buttons = " ".join(f"[{button}]" for button in self.buttons() if button not in self._place)
        if self.page == "results":
            lines = [f"[{p.id}] {p.title}, ${p.price:.2f}" for p in (self.products[at] for at in self._shown())]
            return "\n".join([f"Page {self.page_number + 1}, {len(self.results)} results", *lines, buttons])
        product = self.products[self.product_number]
        if self.page == "product":
            lines = [
                f"{name}: {' '.join(f'[{value}]' for value in values)}" for name, values in product.options.items()
            ]
            chosen = ", ".join(f"{name} {value}" for name, value in self.chosen.items()) or "none"
            head = " ".join(
                f"[{button}]" for button in ("Back to Search", "< Prev", "Description", "Features", "Buy Now")
            )
            return "\n".join([f"{product.title}, ${product.price:.2f}", *lines, f"Chosen: {chosen}", head])
        body = product.description if self.page == "description" else "; ".join(product.features)
        return f"{product.title}\n{body or 'Nothing is said.'}\n{buttons}"

    def act(self, action: str) -> Turn:
        found = _ACTION.findall(action)
        if not found:
            text = "No action could be read. Write search[words] or click[button]."
            info = self._info(valid=False, format_error=True)
            return Turn(text, FORMAT_ERROR_REWARD, True, info, also_truncated=True)
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
