"""Rows, their checks, the tree, the shipped set, prompts and the generator."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import DataError, UsageError
from assay.multimodal.asciieval import data, generator, prompts
from assay.multimodal.asciieval.data import CategoryTree, Item, item_from_row, load, read_items, write_items

ROW = {
    "category-1": "objects",
    "category-2": "object",
    "category-3": "cup",
    "style": "structure",
    "ascii_art": "|_|",
    "choices": ["cup", "key", "lamp", "book"],
    "labels": [1, 0, 0, 0],
    "image_path": "a.png",
}


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_rows_are_checked_as_the_oracle_says(oracle):
    for case in oracle("asciieval", "row_validation")["cases"]:
        if case["expected_error_about"] is None:
            assert item_from_row(case["row"]).letter == case["expected_answer_letter"]
        else:
            with pytest.raises(DataError, match=case["expected_error_about"]):
                item_from_row(case["row"])


@pytest.mark.parametrize(
    ("change", "about"),
    [
        ({"ascii_art": "  \n\t "}, "ascii_art"),
        ({"ascii_art": None}, "ascii_art"),
        ({"choices": ["cup", "cup", "lamp", "book"]}, "choices"),
        ({"choices": ["cup", "", "lamp", "book"]}, "choices"),
        ({"choices": "['cup', 'key', 'lamp', 'book']"}, "choices"),
        ({"choices": "__import__('os').system('true')"}, "choices"),
        ({"labels": [True, True, False, False]}, "labels"),
        ({"labels": [0.5, 0.5, 0, 0]}, "labels"),
        ({"labels": [1, 0, 0]}, "labels"),
        ({"labels": "1000"}, "labels"),
        ({"category-1": 7}, "category-1"),
    ],
)
def test_bad_rows_name_file_line_and_field(tmp_path, change, about):
    path = lines(tmp_path / "test.jsonl", ROW, {**ROW, **change})
    with pytest.raises(DataError) as caught:
        read_items(path)
    message = str(caught.value)
    assert "test.jsonl, line 2" in message
    assert repr(about) in message
    assert "\n" not in message


def test_labels_may_be_booleans_and_the_right_choice_may_differ_in_case():
    item = item_from_row({**ROW, "labels": [False, False, True, False], "category-3": "LAMP"})
    assert (item.letter, item.right, item.key) == ("C", "lamp", "object.LAMP")


def test_a_group_belongs_to_one_class(tmp_path):
    path = lines(tmp_path / "test.jsonl", ROW, {**ROW, "ascii_art": "x", "category-1": "symbols"})
    with pytest.raises(DataError, match="category-2"):
        read_items(path)


def test_ids_follow_content_not_order(tmp_path):
    other = {**ROW, "ascii_art": "[_]"}
    forward = read_items(lines(tmp_path / "a.jsonl", ROW, other))
    backward = read_items(lines(tmp_path / "b.jsonl", other, ROW))
    assert {i.art: i.id for i in forward} == {i.art: i.id for i in backward}
    twice = read_items(lines(tmp_path / "c.jsonl", ROW, ROW))
    assert twice[1].id == f"{twice[0].id}-2"
    with pytest.raises(DataError, match="used before"):
        read_items(lines(tmp_path / "d.jsonl", {**ROW, "id": "x"}, {**other, "id": "x"}))


def test_rows_survive_writing_and_reading(tmp_path):
    row = {**ROW, "info": "jgs", "original_ascii_art": "|_| jgs", "reserve": False, "toxicity": {"INSULT": 0.1}}
    item = item_from_row(row)
    write_items([item], tmp_path / "test.jsonl")
    (again,) = read_items(tmp_path / "test.jsonl")
    assert again == item
    assert again.fields == item.fields
    assert again.fields["original_ascii_art"] == "|_| jgs"


def test_training_rows_have_no_categories(tmp_path):
    row = {key: ROW[key] for key in ("ascii_art", "choices", "labels", "image_path")}
    found = load(lines(tmp_path / "train.jsonl", {**row, "analysis": "a", "gpt5-answer": "A"}), "train")
    (item,) = found.items
    assert (item.klass, item.group, item.concept) == ("", "", "cup")
    assert item.fields["gpt5-answer"] == "A"
    assert "category-1" not in item.row()
    assert found.tree.size() == (0, 0, 0)


def test_missing_and_empty_sources_are_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="no data file"):
        load(tmp_path / "nothing.jsonl")
    with pytest.raises(UsageError, match=r"test\.jsonl"):
        load(tmp_path)
    with pytest.raises(DataError, match="no rows"):
        load(lines(tmp_path / "empty.jsonl"))


def test_published_pictures_are_found_and_missed(tmp_path):
    lines(tmp_path / "test.jsonl", ROW)
    found = load(tmp_path)
    with pytest.raises(DataError, match=r"a\.png"):
        found.picture(found.items[0])
    (tmp_path / "img").mkdir()
    (tmp_path / "img" / "a.png").write_bytes(b"picture")
    assert found.picture(found.items[0]) == b"picture"


def test_tree_counts_and_looks_up():
    tree = load().tree
    classes, groups, concepts = tree.size()
    assert classes == 7
    assert groups >= 15
    assert concepts >= 40
    assert tree.class_of("animal") == "animals & natural"
    assert "cat" in tree.concepts("animals & natural", "animal")
    assert tree.class_of("nothing") is None


def test_the_shipped_set_is_what_its_recipe_makes(tmp_path):
    from assay import make

    folder = make("asciieval.shipped", tmp_path / "made")
    shipped = Path(data.__file__).with_name("items.jsonl")
    assert (folder / "items.jsonl").read_bytes() == shipped.read_bytes()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["licence"] == "Apache-2.0"


def test_the_shipped_set_is_balanced_and_large_enough():
    items = load().items
    assert len(items) >= 200
    letters = Counter(item.letter for item in items)
    assert max(letters.values()) - min(letters.values()) <= 1
    assert {item.style for item in items} == {"structure", "tone"}
    for item in items:
        assert item.concept == item.right
        assert item.concept not in item.art
    by_group = {item.group: item.klass for item in items}
    homes = {s.concept: set() for s in generator.shapes()}
    for shape in generator.shapes():
        homes[shape.concept].add(shape.klass)
    for item in items:
        assert all(by_group[item.group] in homes[choice] for choice in item.choices)


def test_heights_and_styles_stand_for_no_concept():
    concepts = [shape.key for shape in generator.shapes()][::6]
    items = generator.generate(range(12), seed=3, concepts=concepts)
    pairs = Counter((item.style, item.fields["height"]) for item in items)
    assert len(pairs) == 12
    heights = {}
    for item in items:
        heights.setdefault(item.key, set()).add(item.fields["height"])
    assert min(map(len, heights.values())) >= 5


def test_the_same_content_in_every_size_and_style():
    items = generator.generate([7], heights=(5, 10, 20), crossed=True, concepts=["cat"])
    assert len(items) == 6
    assert len({item.fields["drawing"] for item in items}) == 1
    lengths = [item.lines for item in items if item.style == "structure"]
    assert lengths == sorted(lengths)
    assert lengths[0] <= 5
    assert 15 <= lengths[-1] <= 20


def test_a_drawing_is_a_function_of_its_name():
    shape = generator.shapes()[0]
    first, again, other = (generator.to_ascii(generator.Drawing(shape, n), 15, "structure") for n in (4, 4, 5))
    assert first == again
    assert first != other


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 89), st.integers(2, 40), st.sampled_from(generator.STYLES), st.integers(0, 999))
def test_drawings_keep_to_their_size_and_characters(which, height, style, number):
    art = generator.to_ascii(generator.Drawing(generator.shapes()[which], number), height, style)
    rows = art.split("\n")
    assert art.strip()
    assert len(rows) <= height
    assert max(map(len, rows)) <= 2 * height
    allowed = set("/\\|-_().'`o \n") if style == "structure" else set(generator.RAMP + "\n")
    assert set(art) <= allowed
    assert generator.trim(art) == art


def test_noise_changes_the_share_it_was_told():
    import numpy as np

    art = "\n".join("/\\|_-" * 20 for _ in range(20))
    noisy = generator.add_noise(art, np.random.default_rng(0), substitutions=0.05)
    changed = sum(a != b for a, b in zip(art, noisy)) / 2000
    assert 0.02 < changed < 0.06  # a fifth of the exchanges draw the same character again
    framed = generator.add_noise("##", np.random.default_rng(0), border=1.0, shift=3)
    assert len(framed.split("\n")) == 3
    assert all(line.startswith("   ") for line in framed.split("\n"))


@pytest.mark.parametrize("text", ["p 1,2", "x 1,2 3,4", "o 1", "l a,b c,d", "p 1,2,3 4,5,6"])
def test_bad_strokes_are_named(text):
    with pytest.raises(DataError, match="cannot be read"):
        generator.parse_strokes(text)


def test_too_few_names_for_four_choices():
    import numpy as np

    with pytest.raises(DataError, match="three are needed"):
        generator.pick_choices("cat", ["cat", "dog"], ["cat", "dog", "cow"], np.random.default_rng(0), 0)
    with pytest.raises(UsageError, match="Nothing to draw"):
        generator.generate([], concepts=["cat"])
    with pytest.raises(UsageError, match="no concept 'pitza'; did you mean 'pizza'"):
        generator.generate([0], concepts=["pitza"])
    with pytest.raises(UsageError, match="lies in 0 to 1"):
        generator.generate([0], concepts=["cat"], substitutions=2.0)


def test_rotations_keep_the_right_choice_right():
    item = load().items[0]
    for by in range(5):
        turned = item.rotated(by)
        assert turned.right == item.right
        assert sorted(turned.choices) == sorted(item.choices)
    assert {item.rotated(by).letter for by in range(4)} == set("ABCD")
    assert item.rotated(4) == item


# -- prompts -----------------------------------------------------------------------------------------------------------

ARTS = st.text(alphabet=st.sampled_from("/\\|_ \n#A:[]"), min_size=1).filter(str.strip)


@given(ARTS, st.sampled_from(prompts.MODES), st.sampled_from(["first", "last"]))
def test_questions_are_read_back_exactly(art, mode, order):
    choices = ("a cat", "B: dog", "c", "[Question]")
    png = None if mode == "text" else b"\x89PNG picture"
    asked = prompts.build(None if mode == "image" else art, choices, mode, png, image=order)
    question = prompts.parse(asked)
    assert question.choices == choices
    assert question.png == png
    assert question.art == (None if mode == "image" else art)
    assert question.mode == mode


def test_the_drawing_stands_in_the_message_to_the_space():
    art = "  /\\  \n\n   x\n"
    (message,) = prompts.build(art, ("a", "b", "c", "d"), "text")
    assert f"[ASCII ART]\n{art}\n\n[Question]\n" in message["content"]
    assert "A: a\nB: b\nC: c\nD: d" in message["content"]
    # Models copy placeholders: none may stand in a prompt.
    assert "$" not in message["content"]
    assert "<" not in message["content"]


def test_the_picture_mode_does_not_show_the_text():
    (message,) = prompts.build("SECRET", ("a", "b", "c", "d"), "image", b"png", system="be brief")
    text, picture = message["content"]
    assert "SECRET" not in text["text"]
    assert picture["image_url"]["url"].startswith("data:image/png;base64,")
    first = prompts.build("x", ("a", "b", "c", "d"), "both", b"png", image="first")[0]["content"]
    assert [part["type"] for part in first] == ["image_url", "text"]


def test_a_system_prompt_goes_with_text_only():
    asked = prompts.build("x", ("a", "b", "c", "d"), "text", system="be brief")
    assert [m["role"] for m in asked] == ["system", "user"]
    assert prompts.parse(asked).art == "x"


def test_modes_by_published_names_and_unknown_ones():
    assert prompts.mode_named("image-only") == "image"
    with pytest.raises(UsageError, match="no mode"):
        prompts.mode_named("images")
    with pytest.raises(UsageError, match="picture"):
        prompts.build("x", "abcd", "both")
    with pytest.raises(UsageError, match="own questions"):
        prompts.parse([{"role": "user", "content": "What is 1 + 1?"}])


def test_items_are_values():
    item = Item("i", "x", ("a", "b", "c", "d"), 2)
    assert item.letter == "C"
    assert CategoryTree.of([item]).size() == (0, 0, 0)
