"""Products and wishes: a made-up catalogue, or files in the published form; and what a purchase is worth.

References
----------
Yao et al. WebShop: Towards Scalable Real-World Web Interaction with Grounded Language Agents. NeurIPS 2022.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from assay.core.datasets.readers import guarded, read_json, require, shown
from assay.core.errors import DataError

FUZZY = 85.0
"""Similarity (token sets, 0 to 100) above which two attributes or options count as the same."""


class Product(NamedTuple):
    """A product: options by kind, attributes that are known of it, price in dollars."""

    id: str
    title: str
    description: str
    features: tuple[str, ...]
    category: str
    query: str
    price: float
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]


class Wish(NamedTuple):
    """What is asked for: the product that it was made from, attributes, options by kind, and the highest price."""

    instruction: str
    product: Product
    attributes: tuple[str, ...]
    options: Mapping[str, str]
    price: float


def _same(a: str, b: str) -> bool:
    from rapidfuzz import fuzz, utils

    return fuzz.token_set_ratio(a, b, processor=utils.default_process) > FUZZY


# fmt: off
_STOP = frozenset({
    "a", "an", "and", "by", "for", "from", "in", "is", "it", "of", "on", "or", "pack", "pcs", "piece", "pieces", "set",
    "size", "the", "this", "to", "with",
})
# fmt: on


def title_words(title: str) -> set[str]:
    """Words of a title that name things: letters only, no stop words. (The published rule tags nouns with spaCy.)"""
    return {word for word in re.findall("[a-z]{2,}", title.lower()) if word not in _STOP}


def type_share(bought: Product, wanted: Product) -> float:
    """How far it is the right kind of thing: 0, 0.1, 0.5 or 1.

    By the share t of the wanted title's words: 0 for t = 0, 0.1 for t < 0.1, 1 where the query is the same, two parts
    of the category are, or t > 0.2, else 0.5.
    """
    wanted_words = title_words(wanted.title)
    share = len(title_words(bought.title) & wanted_words) / max(1, len(wanted_words))
    if share == 0:
        return 0.0
    if share < 0.1:
        return 0.1
    parts = [{part.strip().lower() for part in re.split("[›>]", item.category)} for item in (bought, wanted)]
    alike = bought.query.strip().lower() == wanted.query.strip().lower() or len(parts[0] & parts[1]) >= 2
    return 1.0 if alike or share > 0.2 else 0.5


class Worth(NamedTuple):
    """The reward of a purchase and its parts: shares of attributes and options met, price met, kind."""

    reward: float
    attributes: float
    options: float
    price: float
    kind: float


def worth(bought: Product, chosen: Mapping[str, str], wish: Wish) -> Worth:
    """``kind * (attributes met + options met + price met) / (attributes + options + 1)``."""
    text = " ".join([bought.title, *bought.features, bought.description]).lower()
    attributes = sum(
        any(_same(attribute, own) for own in bought.attributes) or attribute.lower() in text
        for attribute in wish.attributes
    )
    options = sum(any(_same(value, option) for option in chosen.values()) for value in wish.options.values())
    price = float(bought.price <= wish.price)
    kind = type_share(bought, wish.product)
    reward = kind * (attributes + options + price) / (len(wish.attributes) + len(wish.options) + 1)
    return Worth(
        reward,
        attributes / len(wish.attributes) if wish.attributes else 1.0,
        options / len(wish.options) if wish.options else 1.0,
        price,
        kind,
    )


# -- the made-up shop -------------------------------------------------------------------------------------------------

_KINDS = {
    "lamp": ("home › lighting › lamps", "dimmable;energy saving;foldable;touch control;warm light"),
    "backpack": ("bags › travel › backpacks", "water resistant;lightweight;padded straps;anti theft;large"),
    "kettle": ("kitchen › appliances › kettles", "stainless steel;cordless;quiet;fast boiling;auto off"),
    "running shoes": ("shoes › sport › running", "breathable;slip resistant;lightweight;wide fit;vegan"),
    "headphones": ("electronics › audio › headphones", "wireless;noise cancelling;foldable;long battery;hi fi"),
    "shampoo": ("beauty › hair › shampoo", "sulfate free;for dry hair;vegan;unscented;anti dandruff"),
    "tea": ("grocery › drinks › tea", "organic;caffeine free;loose leaf;fair trade;gluten free"),
    "desk": ("home › furniture › desks", "height adjustable;easy assembly;solid wood;foldable;with drawers"),
    "raincoat": ("clothing › outerwear › coats", "water resistant;hooded;machine washable;lightweight;long sleeve"),
    "notebook": ("office › paper › notebooks", "recycled;dotted;hardcover;pocket sized;lay flat"),
}
_BRANDS = ("Alder", "Brook", "Cedar", "Dawn", "Ember", "Fjord", "Grove", "Harbor")
_OPTIONS = {
    "color": ("black", "white", "red", "navy", "forest green", "sand"),
    "size": ("small", "medium", "large", "x-large"),
    "pack": ("1 pack", "2 pack", "4 pack"),
}


def made_up_products(count: int, rng: np.random.Generator) -> list[Product]:
    """Products of invented brands; several share a kind, so that attributes, options and price decide."""
    kinds, products = list(_KINDS), []
    for number in range(count):
        kind = kinds[int(rng.integers(len(kinds)))]
        category, listed = _KINDS[kind]
        known = listed.split(";")
        attributes = tuple(known[int(i)] for i in sorted(rng.permutation(len(known))[: int(rng.integers(2, 4))]))
        names = [name for name in _OPTIONS if rng.random() < 0.6] or ["color"]
        options = {
            name: tuple(_OPTIONS[name][int(i)] for i in sorted(rng.permutation(len(_OPTIONS[name]))[:3]))
            for name in names
        }
        brand = _BRANDS[int(rng.integers(len(_BRANDS)))]
        price = round(float(np.exp(rng.uniform(np.log(8), np.log(150)))), 2)
        title = f"{brand} {kind} {int(rng.integers(100, 999))}, {attributes[0]}"
        text = f"A {kind} by {brand}. It is {' and '.join(attributes)}."
        products.append(
            Product(f"P{number:05d}", title, text, tuple(attributes[1:]), category, kind, price, options, attributes)
        )
    return products


_STEPS = (10, 20, 30, 40, 50, 75, 100, 150, 200, 500, 1000)


def make_wish(products: Sequence[Product], rng: np.random.Generator) -> Wish:
    """A wish that one product at least fulfils: one or two attributes and an option of it, a price above its own."""
    product = products[int(rng.integers(len(products)))]
    count = min(len(product.attributes), int(rng.integers(1, 3)))
    attributes = tuple(product.attributes[int(i)] for i in sorted(rng.permutation(len(product.attributes))[:count]))
    options = {name: values[int(rng.integers(len(values)))] for name, values in product.options.items() if values}
    price = float(next((step for step in _STEPS if step >= product.price), round(product.price * 1.5)))
    wanted = [f"{name} {value}" for name, value in options.items()]
    text = f"I am looking for {product.query or product.title} that is {' and '.join(attributes) or 'good'}"
    text += f", with {', '.join(wanted)}" if wanted else ""
    return Wish(f"{text}, for less than {price:.2f} dollars.", product, attributes, options, price)


# -- the published form -----------------------------------------------------------------------------------------------


def _price(value: Any) -> float:
    numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", str(value or ""))]
    return numbers[0] if numbers else 100.0


def read_products(folder: Path | str) -> tuple[list[Product], list[Wish]]:
    """Products and human wishes of a folder in the published form.

    ``items_shuffle*.json`` (products), ``items_ins*.json`` (attributes by product) and, where it is there,
    ``items_human_ins.json`` (instructions by product).

    Raises
    ------
    DataError
        A file is missing or of another form.
    """
    folder = Path(folder).expanduser()
    items = _one(folder, "items_shuffle*.json")
    known = read_json(_one(folder, "items_ins*.json"))
    rows = read_json(items)
    if not isinstance(rows, list) or not isinstance(known, dict):
        raise DataError(f"{items} must hold an array of products, and items_ins an object by product.")
    products: dict[str, Product] = {}
    for number, row in enumerate(rows):
        where = f"{items}, product {number}"
        key = require(row, "asin", str, where)
        with guarded(where, "a product"):
            options = {
                str(name).lower(): tuple(str(value.get("value", "")).strip().lower() for value in values if value)
                for name, values in (row.get("customization_options") or {}).items()
                if values
            }
            features = row.get("small_description") or ()
            product = Product(
                key, require(row, "name", str, where), str(row.get("full_description") or ""),
                (features,) if isinstance(features, str) else tuple(map(str, features)),
                str(row.get("product_category") or ""), str(row.get("query") or ""), _price(row.get("pricing")),
                options, tuple(map(str, (known.get(key) or {}).get("attributes", ()))),
            )  # fmt: skip
        products.setdefault(key, product)
    if not products:
        raise DataError(f"{items} holds no products.")
    human = folder / "items_human_ins.json"
    wishes = _wishes(human, products) if human.is_file() else []
    return list(products.values()), wishes


def _wishes(file: Path, products: Mapping[str, Product]) -> list[Wish]:
    wishes = []
    found = read_json(file)
    if not isinstance(found, dict):
        raise DataError(f"{file} must hold an object of instructions by product, not {shown(found)}.")
    for key in found:
        for number, row in enumerate(require(found, key, list, str(file))):
            if key not in products:
                continue  # only part of the products may be at hand
            where = f"{file}, product {key}, instruction {number}"
            product = products[key]
            text = require(row, "instruction", str, where)
            with guarded(where, "an instruction"):
                options = {f"option {at}": str(value) for at, value in enumerate(row.get("instruction_options") or ())}
                wanted = tuple(row.get("instruction_attributes") or ())
            price = float(next((step for step in _STEPS if step >= product.price), round(product.price * 1.5)))
            said = f"{text.rstrip('.')}, and price lower than {price:.2f} dollars"
            wishes.append(Wish(said, product, wanted, options, price))
    return wishes


def _one(folder: Path, pattern: str) -> Path:
    files = sorted(folder.glob(pattern))
    if not files:
        raise DataError(f"{folder} holds no {pattern}; put the published WebShop files there.")
    return files[0]
