"""WebShop: the value of a purchase against hand-worked tables, pages, states, the published file form."""

import json
import re

import numpy as np
import pytest

from assay.agents.gem.env import EnvError
from assay.agents.gem.registry import make
from assay.agents.gem.webshop.env import WebShop, _numbers
from assay.agents.gem.webshop.pages import Piece, shown
from assay.agents.gem.webshop.products import (
    Product,
    Wish,
    made_up_products,
    make_wish,
    read_products,
    type_share,
    worth,
)  # fmt: skip
from assay.core.errors import DataError

LAMP = Product(
    "L", "Alder desk lamp, dimmable", "A lamp with warm light.", ("foldable",), "home › lighting › lamps", "lamp", 30.0,
    {"color": ("red", "navy")}, ("dimmable", "energy saving"),
)  # fmt: skip
WISH = Wish("", LAMP, ("dimmable", "warm light"), {"color": "red"}, 40.0)


@pytest.mark.parametrize(
    ("change", "chosen", "reward"),
    [
        ({}, {"color": "red"}, 1.0),
        ({}, {}, 3 / 4),
        ({}, {"color": "navy"}, 3 / 4),
        ({"price": 40.0}, {"color": "red"}, 1.0),
        ({"price": 40.01}, {"color": "red"}, 3 / 4),
        ({"attributes": ("Dimmable!",)}, {"color": "Red"}, 1.0),
        ({"attributes": (), "title": "Alder desk lamp"}, {"color": "red"}, 3 / 4),
        ({"title": "Kettle", "query": "kettle", "category": "kitchen"}, {"color": "red"}, 0.0),
    ],
)
def test_the_value_of_a_purchase(change, chosen, reward):
    assert worth(LAMP._replace(**change), chosen, WISH).reward == pytest.approx(reward)


def test_the_kind_of_thing_by_title_query_and_category():
    wanted = LAMP._replace(title="oak birch elm ash fir yew pine larch cedar maple lime")  # eleven words
    other = LAMP._replace(query="kettle", category="kitchen › kettles")
    for title, query, category, share in [
        ("willow", "lamp", "home › lighting", 0.0),
        ("oak", "lamp", "home › lighting", 0.1),
        ("oak birch", "kettle", "kitchen", 0.5),
        ("oak birch", "lamp", "kitchen", 1.0),
        ("oak birch", "kettle", "Home > Lighting", 1.0),
        ("oak birch elm", "kettle", "kitchen", 1.0),
    ]:
        assert type_share(other._replace(title=title, query=query, category=category), wanted) == share


def buy(env):
    """Search for the product that the wish was made from, choose its options, buy; the last step."""
    wish = env.wish
    env.step(f"search[{wish.product.title}]")
    while f"[{wish.product.id}]" not in env._text():
        env.step("click[Next >]")
    env.step(f"click[{wish.product.id}]")
    for value in wish.options.values():
        env.step(f"I choose it. click[{value.upper()}]")
    return env.step("click[Buy Now]")


def test_every_wish_can_be_fulfilled():
    env = make("webshop:WebShop-v0")
    for seed in range(25):
        env.reset(seed)
        _, reward, terminated, truncated, info = buy(env)
        assert (reward, terminated, truncated) == (1.0, True, False), env.wish
        assert info["solved"]


def test_pages_and_buttons():
    env = WebShop()
    env.reset(3)
    assert env.step("click[Buy Now]")[4]["valid"] is False
    env.step("search[lamp desk tea kettle]")
    assert env.page == "results"
    first = re.findall(r"\[(P\d+)\]", env._text())
    env.step("click[next >]")
    second = re.findall(r"\[(P\d+)\]", env._text())
    assert len(first) == 10
    assert not set(first) & set(second)
    env.step("click[< prev]")
    env.step(f"click[{first[2]}]")
    assert "[Buy Now]" in env._text()
    env.step("click[Description]")
    assert env.products[env.product_number].description in env._text()
    env.step("click[< Prev]")
    assert env.page == "product"
    assert env.step("search[x]")[4]["valid"] is False
    env.step("click[Back to Search]")
    assert env.page == "search"
    assert env.step("search[zzzz]")[0] == "0 products found."


def test_unreadable_text_ends_it_and_the_limit_too():
    env = WebShop(max_turns=2)
    env.reset(0)
    assert env.step("please buy")[1:4] == (-0.1, True, False)
    env.reset()
    env.step("search[tea]")
    assert env.step("click[nothing]")[1:4] == (0.0, True, True)
    with pytest.raises(EnvError, match="products is 0"):
        WebShop(products=0)


def test_states_and_seeds_and_random_actions():
    env = WebShop()
    assert env.reset(5) == WebShop().reset(5)
    assert env.reset(5) != env.reset(6)
    while env._phase == "running":
        other = WebShop()
        other.set_state(json.loads(json.dumps(env.get_state())))
        action = env.sample_random_action()
        step = env.step(action)
        assert not step[4]["format_error"]
        assert other.step(action) == step


def test_the_published_files_are_read(tmp_path):
    (tmp_path / "items_shuffle_1000.json").write_text(
        json.dumps(
            [
                {
                    "asin": "B01", "name": "Red tea, loose leaf", "full_description": "Good.", "query": "tea",
                    "small_description": ["fair trade"], "pricing": "$1,012.50 - $1,100.00",
                    "product_category": "Grocery › Tea",
                    "customization_options": {"Size": [{"value": " 100 g "}, {"value": "1 kg"}], "none": None},
                }
            ]
        )
    )  # fmt: skip
    (tmp_path / "items_ins_v2_1000.json").write_text(json.dumps({"B01": {"attributes": ["loose leaf"]}}))
    rows = [{"instruction": "Find red tea.", "instruction_attributes": ["loose leaf"], "instruction_options": ["1 kg"]}]
    (tmp_path / "items_human_ins.json").write_text(json.dumps({"B01": rows, "B02": rows}))
    (product,), (wish,) = read_products(tmp_path)
    assert product.price == 1012.5
    assert product.options == {"size": ("100 g", "1 kg")}
    assert worth(product, {"size": "1 kg"}, wish).reward == 1
    env = WebShop(data=str(tmp_path))
    text, _ = env.reset(0)
    assert "Find red tea" in text
    (tmp_path / "items_shuffle_1000.json").write_text('[{"asin": "B01"}]')
    with pytest.raises(DataError, match="product 0: field 'name' is missing"):
        read_products(tmp_path)
    with pytest.raises(DataError, match=r"holds no items_shuffle"):
        read_products(tmp_path / "nowhere")


def test_wishes_fit_their_product():
    rng = np.random.default_rng(0)
    products = made_up_products(50, rng)
    for _ in range(50):
        wish = make_wish(products, rng)
        assert worth(wish.product, dict(wish.options), wish).reward == 1
        assert set(wish.attributes) <= set(wish.product.attributes)
        assert wish.price >= wish.product.price


MODES = ("html", "text", "text_rich")


@pytest.mark.parametrize("env_id", [f"webshop:{split}-{mode}" for split in ("train", "test") for mode in MODES])
def test_the_six_published_ids_can_be_played_to_a_purchase(env_id):
    env = make(env_id)
    for seed in range(3):
        env.reset(seed)
        assert env.wish_seed % 2 == env_id.startswith("webshop:train")
        assert buy(WebShop.spawn(env, same_state=True, observation_mode="plain"))[1] == 1.0
    env.reset(0)
    for _ in range(14):
        assert env.step("please buy")[1:4] == (-0.1, False, False)
    assert env.step("please buy")[1:4] == (-0.1, True, True)


def test_modes_mark_what_can_be_pressed():
    page = [
        [Piece("Tea & <milk>")],
        [Piece("size:"), Piece("1 kg", "option", True), Piece("2 kg", "option")],
        [Piece("P7", "product", True), Piece("Buy Now", "button")],
    ]
    assert shown(page, "plain") == "Tea & <milk>\nsize: [1 kg] [2 kg]\n[P7] [Buy Now]"
    assert shown(page, "text") == "Tea & <milk> [SEP] size: [SEP] 1 kg [SEP] 2 kg [SEP] P7 [SEP] Buy Now"
    rich = shown(page, "text_rich").splitlines()
    assert rich[2:5] == [
        "[clicked button] 1 kg [clicked button_]", "[button] 2 kg [button_]", "[clicked button] P7 [clicked button_]",
    ]  # fmt: skip
    html = shown(page, "html")
    assert "Tea &amp; &lt;milk&gt;" in html
    assert '<label><input type="radio" value="1 kg" checked>1 kg</label>' in html
    assert '<button class="btn">Buy Now</button>' in html


def test_splits_share_no_wish_and_miss_none():
    for count in (10, 200, 12_087):
        train, test = _numbers(count, "train"), _numbers(count, "test")
        assert sorted(train + test) == _numbers(count, None) == list(range(count))
        assert len(test) == min(500, count // 10)
    with pytest.raises(EnvError, match="observation_mode"):
        WebShop(observation_mode="url")
    with pytest.raises(EnvError, match="split"):
        WebShop(split="dev")
    with pytest.raises(EnvError, match="error_tolerance is 0"):
        WebShop(error_tolerance=0)


def test_products_that_were_opened_are_marked_and_kept_in_the_state():
    env = WebShop(observation_mode="text_rich")
    env.reset(3)
    env.step("search[lamp desk tea kettle]")
    first, second = re.findall(r"\[button\] (P\d+) ", env._text())[:2]
    env.step(f"click[{first}]")
    env.step("click[< Prev]")
    other = WebShop(observation_mode="text_rich")
    other.set_state(json.loads(json.dumps(env.get_state())))
    assert f"[clicked button] {first} [clicked button_]" in other._text() == env._text()
    assert f"[button] {second} [button_]" in env._text()
