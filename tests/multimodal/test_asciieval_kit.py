"""The art kit, the review queue, fine-tuning data, optional sources, recipes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from assay import make
from assay.core.errors import DataError, UsageError
from assay.multimodal.asciieval import boards, kit, review, sources, tuning
from assay.multimodal.asciieval.data import load, read_items, write_items
from assay.multimodal.asciieval.describe import against_published, statistics
from assay.multimodal.asciieval.generator import generate
from assay.multimodal.asciieval.prompts import parse
from assay.systems.chat.model import Choice, Reply

HOUSE = "  /\\\n /  \\\n/____\\\n|    |\n|____|"
CUP = " _____\n|     |_\n|     |_)\n|_____|"
FISH = "  /`-.,\n><(((('>\n  \\_.-'"
TREE = "   *\n  ***\n *****\n*******\n   |"
STAIRS = "      __\n    __|\n  __|\n__|"


def test_files_with_several_drawings_are_split():
    text = f"\n\n{HOUSE}\n\n\n{CUP}\r\n\f{FISH}\n"
    assert kit.split_drawings(text) == [HOUSE, CUP, FISH]
    inner = "/\\\n\n\\/"
    assert kit.split_drawings(inner) == [inner]


@pytest.mark.parametrize(
    ("art", "removed"),
    [
        (HOUSE + "   jgs", "jgs"),
        (HOUSE + "\n          hjw", "hjw"),
        (HOUSE + "\n\n  ejm97", "ejm97"),
        (HOUSE + "\nArt by Jane Doe", "Art by Jane Doe"),
        (HOUSE + "\nwww.example.org/cats", "www.example.org/cats"),
        (HOUSE + "\nme@example.org", "me@example.org"),
        (HOUSE + "\n 12/05/99", "12/05/99"),
    ],
)
def test_signatures_are_removed_and_told(art, removed):
    assert kit.remove_signature(art) == (HOUSE, removed)


@pytest.mark.parametrize("art", [HOUSE, CUP, FISH, TREE, "  oo\n (oo)\n  \\/ x", "/ab\\\n\\cd/"])
def test_drawings_without_a_signature_stay_as_they_are(art):
    from assay.multimodal.asciieval.generator import trim

    assert kit.remove_signature(art) == (trim(art), "")


def test_text_that_tells_the_answer_is_found():
    assert kit.text_hints("/\\ CAT /\\", ["cat", "dog"]) == ["cat"]
    assert kit.text_hints("H O U S E", ["house"]) == ["house"]
    assert kit.text_hints("happy birthday", ["birthday cake"]) == ["birthday cake"]
    assert kit.text_hints("concatenate", ["cat"]) == []
    assert kit.text_hints(HOUSE, ["house", "a"]) == []


def test_near_duplicates_by_edit_distance():
    changed = HOUSE.replace("____", "_==_", 1)
    assert kit.deduplicate([HOUSE, CUP, changed, HOUSE], 0.9) == [
        (2, 0, pytest.approx(1 - 2 / len(HOUSE))),
        (3, 0, 1.0),
    ]
    assert kit.deduplicate([HOUSE, changed], 1.0) == []
    assert kit.deduplicate([], 0.9) == []
    with pytest.raises(UsageError, match="threshold"):
        kit.deduplicate([HOUSE], 0)


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab/\\ \n", min_size=1, max_size=12), max_size=8), st.sampled_from([0.5, 0.8, 1.0]))
def test_the_bound_loses_no_pair(arts, threshold):
    from rapidfuzz.distance import Levenshtein

    found = {(i, j) for i, j, _ in kit._near_pairs(arts, arts, threshold, same=True)}
    expected = {
        (i, j)
        for i in range(len(arts))
        for j in range(i + 1, len(arts))
        if Levenshtein.distance(arts[i], arts[j]) <= (1 - threshold) * max(len(arts[i]), len(arts[j])) + 1e-9
    }
    assert found == expected


def test_leaks_between_test_and_training_are_found():
    test, train = (
        generate([1], concepts=["cat", "fish", "bird"]),
        generate([2], concepts=["cat", "fish", "bird"]),
    )
    assert kit.leakage(test, train) == []
    leaks = kit.leakage(test, [*train, test[1]])
    assert [(leak.test, leak.similarity) for leak in leaks] == [(test[1].id, 1.0)]


def test_the_shipped_items_leak_into_no_training_set():
    from assay.multimodal.asciieval.recognisers import training_items

    shipped = load().items
    drawings = {item.fields["drawing"] for item in shipped}
    assert not drawings & {item.fields["drawing"] for item in training_items((100, 101))}
    # Five rows hardly differ between drawings of a simple shape; from ten on they must.
    large = [item for item in shipped if item.fields["height"] >= 10]
    assert kit.leakage(large, training_items((100, 101))) == []


MAPPING = """category,class,group,concept
places/house,travel & places,building,house
things/cup,objects,object,cup
animals/fish,animals & natural,animal,fish
plants,animals & natural,plant,tree
animals/cow,animals & natural,animal,cow
things/stairs,objects,object,stairs
things/lamp,objects,object,lamp
things/key,objects,object,key
animals/dog,animals & natural,animal,dog
places/tower,travel & places,building,tower
places/tent,travel & places,building,tent
places/castle,travel & places,building,castle
"""


@pytest.fixture
def art_folder(tmp_path):
    folder = tmp_path / "art"
    for name, text in {
        "places/house.txt": HOUSE + "   jgs",
        "things/cup.txt": CUP,
        "animals/fish.txt": f"{FISH}\n\n\n\n{FISH.replace('(', 'c')}",
        "plants/trees/oak.txt": TREE,
        "things/stairs.txt": STAIRS,
        "things/lamp.txt": " .-.\n(   )\n `-'\n  |\n _|_",
        "things/key.txt": ' __\n/o \\_____\n\\__/-="="',
        "places/tower.txt": "|^|^|\n|   |\n|   |\n| T |\n|___|\nTOWER",
        "places/tent.txt": HOUSE,
        "places/castle.txt": "[^]_[^]\n|  _  |\n|_|#|_|\n|#####|",
        "animals/cow.txt": "^__^\n(oo)\\____\n(__)\\    )\\/\\\n   ||--w|",
        "animals/dog.txt": "  / \\__\n (    @\\___\n /         O",
        "unknown/thing.txt": "@@@@\n@@@@",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "mapping.csv").write_text(MAPPING, encoding="utf-8")
    return folder


def test_art_becomes_items_with_a_trail(tmp_path, art_folder):
    out = make("asciieval.items", tmp_path / "made", art=str(art_folder), mapping=str(tmp_path / "mapping.csv"))
    items = read_items(out / "candidates.jsonl")
    house = next(item for item in items if item.concept == "house")
    assert house.art == HOUSE
    assert house.fields["info"] == "jgs"
    assert house.fields["original_ascii_art"].endswith("jgs")
    fallen = [json.loads(line) for line in (out / "audit.jsonl").read_text().splitlines()]
    why = {row["id"].partition("#")[0]: row["filter"] for row in fallen}
    assert why["unknown/thing.txt"] == "mapped"
    assert why["places/tower.txt"] == "no text"
    assert "unique" in why.values()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["recipe"] == "asciieval.items"
    assert manifest["audit"][0]["rows_in"] == 14
    homes = {"cup": "objects", "key": "objects", "lamp": "objects", "stairs": "objects"}
    for item in items:
        if item.klass == "objects":
            assert all(homes.get(choice) == "objects" for choice in item.choices)


def test_training_drawings_fall_out(tmp_path, art_folder):
    known = tmp_path / "train.jsonl"
    row = {"ascii_art": CUP, "choices": ["cup", "b", "c", "d"], "labels": [1, 0, 0, 0]}
    known.write_text(json.dumps(row) + "\n", encoding="utf-8")
    out = make(
        "asciieval.items",
        tmp_path / "made",
        art=str(art_folder),
        mapping=str(tmp_path / "mapping.csv"),
        train=str(known),
    )
    assert "cup" not in {item.concept for item in read_items(out / "candidates.jsonl")}
    assert '"not in training"' in (out / "audit.jsonl").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("category,class,group\na,b,c\n", "column 'concept'"),
        ("category,class,group,concept\na,b,c,\n", "'concept' is empty"),
        ("category,class,group,concept\na,b,c,d\na,b,c,e\n", "mapped before"),
        ("category,class,group,concept\na,b,c,d\ne,x,c,e\n", "one class"),
        ("category,class,group,concept\n", "no category"),
    ],
)
def test_bad_mappings_are_named(tmp_path, text, words):
    path = tmp_path / "map.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=words):
        kit.read_mapping(path)


def test_a_mapping_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        kit.read_mapping(tmp_path / "absent.csv")
    (tmp_path / "latin.csv").write_bytes(MAPPING.encode() + b"caf\xe9,a,b,c\n")
    with pytest.raises(DataError, match="UTF-8"):
        kit.read_mapping(tmp_path / "latin.csv")
    (tmp_path / "windows.csv").write_bytes(b"\xef\xbb\xbf" + MAPPING.replace("\n", "\r\n").encode())
    (tmp_path / "map.csv").write_text(MAPPING, encoding="utf-8")
    assert kit.read_mapping(tmp_path / "windows.csv") == kit.read_mapping(tmp_path / "map.csv")


def test_categories_fall_back_on_their_folder(tmp_path):
    path = tmp_path / "map.csv"
    path.write_text(MAPPING, encoding="utf-8")
    mapping = kit.read_mapping(path)
    found = kit.place_of("plants/trees/oak", mapping)
    assert found is not None
    assert found.concept == "tree"
    assert kit.place_of("nothing", mapping) is None


# -- review ------------------------------------------------------------------------------------------------------------


def typed(*lines):
    waiting = iter(lines)
    return lambda: next(waiting, "")


def test_a_review_keeps_fixes_drops_and_goes_on_later(tmp_path):
    items = list(load().items[:4])
    path, out = tmp_path / "decisions.jsonl", io.StringIO()
    changed = "kitten"
    place = items[1].answer + 1
    made = review.ask(
        items, path, "anna", typed("k\n", "s\n", "concept=kitten\n", f"choice{place}=kitten\n", "\n", "q\n"), out
    )
    assert made == 2
    made = review.ask(items, path, "anna", typed("d\n", "too small\n", ""), out)
    assert made == 1
    decisions = review.read_decisions(path)
    assert [decisions[i.id].verdict for i in items[:3]] == ["keep", "fix", "drop"]
    assert decisions[items[2].id].why == "too small"
    kept, counts = review.apply(items, decisions)
    assert counts == {"keep": 1, "fix": 1, "drop": 1, "undecided": 1}
    assert kept[0] == items[0]
    assert (kept[1].concept, kept[1].right) == (changed, changed)
    assert kept[1].id != items[1].id


def test_the_last_decision_counts_and_bad_ones_are_named(tmp_path):
    path = tmp_path / "decisions.jsonl"
    review.add_decision(path, review.Decision("x", "keep", {}))
    review.add_decision(path, review.Decision("x", "drop", {}, why="no"))
    assert review.read_decisions(path)["x"].verdict == "drop"
    for row in ({"id": "x", "verdict": "maybe"}, {"verdict": "keep"}, {"id": "x", "verdict": "fix"}):
        path.write_text(json.dumps(row) + "\n", encoding="utf-8")
        with pytest.raises(DataError, match="line 1"):
            review.read_decisions(path)


def test_a_fix_that_breaks_the_row_is_refused():
    item = load().items[0]
    with pytest.raises(DataError, match="choices"):
        review.fixed(item, {"choices": ["a", "a", "b", "c"]})


def test_reviewers_are_warned():
    item = load().items[0]
    told = review.fixed(item, {"ascii_art": f"{item.art}\n{item.choices[1].upper()}"})
    assert any("text of" in warning for warning in review.warnings_of(told))
    assert review.warnings_of(item) == []


def test_the_review_recipe_applies_decisions(tmp_path):
    write_items(load().items[:3], tmp_path / "candidates.jsonl")
    out = tmp_path / "reviewed"
    out.mkdir()
    review.add_decision(out / "decisions.jsonl", review.Decision(load().items[1].id, "keep", {}))
    make("asciieval.review", out, candidates=str(tmp_path / "candidates.jsonl"), ask=False)
    assert [item.id for item in read_items(out / "test.jsonl")] == [load().items[1].id]
    assert json.loads((out / "manifest.json").read_text())["counts"]["undecided"] == 2


# -- fine-tuning data --------------------------------------------------------------------------------------------------


def test_targets_are_the_published_ones():
    item = load().items[0]
    assert tuning.target(item) == f"{item.letter}: {item.right}"
    assert tuning.target(item, " two ears ") == f"two ears\nSo the answer is {item.letter}: {item.right}"


@pytest.mark.parametrize("mode", ["text", "image", "both", "random"])
def test_fine_tuning_rows_ask_the_benchmarks_question(tmp_path, mode):
    items = list(load().items[:40])
    path = tuning.export(items, tmp_path, mode=mode, seed=3)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in rows] == [item.id for item in items]
    modes = {row["mode"] for row in rows}
    assert modes == ({"text", "image", "both"} if mode == "random" else {mode})
    for row, item in zip(rows, items):
        user, assistant = row["messages"]
        text = user["content"] if row["mode"] == "text" else user["content"][1]["text"]
        asked = parse([{"role": "user", "content": text}])
        assert asked.choices == item.choices
        assert (asked.art == item.art) if row["mode"] != "image" else asked.art is None
        assert assistant["content"] == tuning.target(item)
        for name in row.get("images", []):
            assert Image.open(tmp_path / name).size[0] > 10
    assert json.loads((tmp_path / "training.json").read_text())["learning_rate"] == 2e-5


def test_drawn_modes_are_even_and_repeatable():
    items = list(load().items)
    modes = tuning.modes_of(items, "random", 1)
    assert modes == tuning.modes_of(items, "random", 1)
    assert min(modes.count(mode) for mode in ("text", "image", "both")) > len(items) / 4


@pytest.mark.parametrize(
    ("analysis", "answer", "fault"),
    [
        ("The two slashes are ears.", None, ""),
        ("In the image one sees ears.", None, "speaks of the picture"),
        ("Ears.", "wrong", "answer is wrong"),
        ("", None, "empty"),
    ],
)
def test_rationales_are_filtered(analysis, answer, fault):
    item = load().items[0]
    letter = item.letter if answer is None else "ABCD"["ABCD".index(item.letter) - 1]
    reply = f"```json\n{json.dumps({'analysis': analysis, 'answer': letter})}\n```"
    assert fault in tuning.read_rationale(item, reply).fault
    assert bool(fault) == bool(tuning.read_rationale(item, reply).fault)


def test_a_reply_without_json_is_no_rationale():
    assert "no JSON" in tuning.read_rationale(load().items[0], "I see a cat.").fault


class Writer:
    """Writes a rationale for every item, right for all but those whose answer is A."""

    name = "writer"

    async def generate(self, messages, **_):
        art = messages[0]["content"][0]["text"]
        item = next(item for item in load().items if item.art in art)
        letter = "B" if item.letter == "A" else item.letter
        return Reply((Choice(json.dumps({"analysis": f"lines of a {item.right}", "answer": letter})),))


def make_writer():
    return Writer()


def test_rationale_synthesis_keeps_right_analyses_only(tmp_path, monkeypatch):
    monkeypatch.setattr("assay.systems.loading.load", lambda name, role="subject": Writer())
    write_items(load().items[:12], tmp_path / "train.jsonl")
    out = make(
        "asciieval.tune", tmp_path / "sft", data=str(tmp_path / "train.jsonl"), mode="both", rationale="python:x:y"
    )
    rows = [json.loads(line) for line in (out / "sft.jsonl").read_text(encoding="utf-8").splitlines()]
    kept = [item for item in load().items[:12] if item.letter != "A"]
    assert [row["id"] for row in rows] == [item.id for item in kept]
    assert all("So the answer is" in row["messages"][1]["content"] for row in rows)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["audit"][-1]["rows_out"] == len(kept)


def test_published_rationales_and_leaks(tmp_path):
    items = [item.row() | {"analysis": "lines", "gpt5-answer": item.letter} for item in load().items[:6]]
    items[0]["gpt5-answer"] = "ABCD"["ABCD".index(load().items[0].letter) - 1]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
    out = make("asciieval.tune", tmp_path / "sft", data=str(path), rationale="published")
    assert len((out / "sft.jsonl").read_text().splitlines()) == 5
    write_items(load().items[2:4], tmp_path / "test.jsonl")
    out = make("asciieval.tune", tmp_path / "clean", data=str(path), test=str(tmp_path / "test.jsonl"))
    assert len((out / "sft.jsonl").read_text().splitlines()) == 4
    with pytest.raises(UsageError, match="rationale="):
        make("asciieval.tune", tmp_path / "x", data=str(path), solver="method:random")


# -- other recipes and sources -----------------------------------------------------------------------------------------


def test_pictures_are_written_and_read_back_by_the_benchmark(tmp_path):
    import assay

    write_items(load().items[:5], tmp_path / "items.jsonl")
    out = make("asciieval.images", tmp_path / "made", data=str(tmp_path / "items.jsonl"))
    assert len(list((out / "img").glob("*.png"))) == 5
    run = assay.run(
        "asciieval",
        "method:constant",
        options={"data": str(out), "images": "files", "modes": "image"},
        into=tmp_path / "r",
    )
    assert set(run.records["status"]) == {"ok"}
    (out / "img" / "temp_image_0.png").unlink()
    run = assay.run(
        "asciieval",
        "method:constant",
        options={"data": str(out), "images": "files", "modes": "image"},
        into=tmp_path / "q",
    )
    assert (run.records["status"] == "error").sum() == 1


def test_pictures_never_leave_their_folder(tmp_path):
    row = load().items[0].row() | {"image_path": "../../outside.png"}
    (tmp_path / "test.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match="leaves the folder"):
        make("asciieval.images", tmp_path / "made", data=str(tmp_path))
    assert not (tmp_path.parent / "outside.png").exists()


@pytest.mark.parametrize("name", ["../secret.png", "/etc/hostname", "img/../../secret.png"])
def test_pictures_outside_the_data_folder_are_never_sent(tmp_path, name):
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "secret.png").write_bytes(b"key")
    row = load().items[0].row() | {"image_path": name}
    (folder / "test.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    source = load(folder)
    with pytest.raises(DataError, match="leaves the folder"):
        source.picture(source.items[0])


def test_a_description_compares_to_the_published_set(tmp_path):
    items = load().items
    row = items[0].row()
    odd = [
        row | {"id": "cut", "ascii_art": "#" * 200},
        row | {"id": "named", "ascii_art": f"/\\\n{items[0].right}"},
        row | {"id": "tab", "ascii_art": "/\t\\"},
        row | {"id": "wide", "ascii_art": "猫 /"},
    ]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, [row, *odd])) + "\n", encoding="utf-8")
    out = make("asciieval.describe", tmp_path / "out", data=str(tmp_path), train=str(tmp_path / "test.jsonl"))
    found = json.loads((out / "description.json").read_text(encoding="utf-8"))
    assert found["look_at"] == {"cut": ["cut"], "named": ["named"], "not ASCII": ["wide"], "control": ["tab"]}
    counts = found["statistics"]
    assert (counts["items"], counts["concepts"], counts["widest_line"]) == (5, 1, 200)
    assert counts["letters"] == {items[0].letter: 5}
    assert counts["characters"]["mean"] == pytest.approx(sum(len(r["ascii_art"]) for r in (row, *odd)) / 5)
    assert "items: 5 here, 3526 published." in found["unlike_published"]
    assert {leak["test"] for leak in found["in_training"]} == {row["id"], *(r["id"] for r in odd)}


def test_counts_as_published_leave_nothing_to_say():
    known = boards.published()["data"]
    found = {"items": 3526, "concepts": 359, "groups": 23, "classes": dict(known["classes"])}
    found |= {"characters": {"min": 4, "max": 15282, "mean": 635.5412}, "lines": {"min": 1, "max": 100, "mean": 16.968}}
    assert against_published(found) == []
    found["classes"] = {**known["classes"], "symbols": 37, "other": 1}
    found["lines"] = {"min": 1, "max": 100, "mean": 1696.8}
    assert against_published(found) == [
        "classes symbols: 37 here, 38 published.",
        "classes other: 1 here, 0 published.",
        "lines mean: 1696.8 here, 16.97 published.",
    ]
    with pytest.raises(DataError, match="no items"):
        statistics([])


def test_generated_sets_are_controlled(tmp_path):
    out = make(
        "asciieval.generated",
        tmp_path / "g",
        drawings=1,
        heights="5,20",
        styles="structure",
        crossed=True,
        concepts="cat,fish",
    )
    items = read_items(out / "test.jsonl")
    assert [(i.concept, i.fields["height"]) for i in items] == [("cat", 5), ("cat", 20), ("fish", 5), ("fish", 20)]


COW = r"""## a drawing
$the_cow = <<EOC;
        $thoughts   ^__^
         $thoughts  ($eyes)\\_______
            (__)\\       )\\/\\
             $tongue ||----w |
EOC
"""


def test_cow_files_are_read_never_run(tmp_path):
    art = kit.read_cow(COW)
    assert "(oo)\\_______" in art
    assert "$" not in art
    with pytest.raises(DataError, match="no drawing"):
        kit.read_cow("print `touch /tmp/never`")
    for name in ("cow", "elephant", "sheep", "koala", "moose", "unheard-of"):
        (tmp_path / f"{name}.cow").write_text(COW.replace("w |", f"w {len(name)}|"), encoding="utf-8")
    items = sources.cow_items(tmp_path)
    # Equal drawings count once: sheep and moose are as long as koala here.
    assert {item.concept for item in items} == {"cow", "elephant", "koala"}
    with pytest.raises(UsageError, match="cowsay"):
        sources.cow_items(tmp_path / "nothing")


def test_letters_by_pyfiglet_where_it_is_installed():
    pytest.importorskip("pyfiglet", reason="pyfiglet is not installed")
    items = sources.letter_items(fonts=("standard",))
    assert len(items) == 26
    assert {item.concept for item in items} >= {"letter A", "letter Z"}
    with pytest.raises(UsageError, match="no font"):
        sources.letter_items(fonts=("no-such-font",))


def test_one_line_pieces_or_one_sentence():
    try:
        import art  # noqa: F401
    except ImportError:
        with pytest.raises(UsageError, match="pip install art"):
            sources.one_line_items()
    else:
        assert len(sources.one_line_items()) > 50


def test_collecting_nothing_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="no folder"):
        kit.collect(tmp_path / "none")
    with pytest.raises(UsageError, match="no art files"):
        kit.collect(tmp_path)


def test_styles_are_guessed():
    assert kit.guess_style(HOUSE) == "structure"
    assert kit.guess_style("@@@@@\n#####\n%%%%%") == "tone"


def test_the_room_is_in_the_package():
    room = Path(kit.__file__).parent
    for name in (
        "items.jsonl",
        "shapes.toml",
        "references.json",
        "DejaVuSansMono.ttf.gz",
        "DejaVuSansMono.LICENSE.txt",
    ):
        assert (room / name).is_file(), name
