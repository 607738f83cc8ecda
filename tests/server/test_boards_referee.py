"""Extraction, the ladder and attacks on it: what a hundred submissions can learn of hidden labels."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.core.errors import DataError
from assay.core.registry import load_benchmark
from assay.server.boards.extraction import Bounds, open_upload, plain_name
from assay.server.boards.ladder import ranks, released, rounded, rounded_interval
from assay.server.boards.referee import check

# -- extraction --------------------------------------------------------------------------------------------------------


def tar(path, *members, mode="w:gz"):
    with tarfile.open(path, mode) as packed:
        for info, content in members:
            if isinstance(info, str):
                info = tarfile.TarInfo(info)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
    return path


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def hostile(tmp_path):
    """Archives that must be refused, by name, each with a word of the sentence."""
    zero = b"\0" * (5 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("zero", zero)
    with zipfile.ZipFile(tmp_path / "liar.zip", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("zero", zero)
    data = (tmp_path / "liar.zip").read_bytes().replace(len(zero).to_bytes(4, "little"), (7).to_bytes(4, "little"))
    (tmp_path / "liar.zip").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as z:
        for i in range(60):
            z.writestr(f"f{i}", b"x")
    for name, inner in (
        ("up.zip", "../evil"),
        ("root.zip", "/etc/evil"),
        ("back.zip", "..\\evil"),
        ("drive.zip", "C:/evil"),
    ):
        with zipfile.ZipFile(tmp_path / name, "w") as z:
            z.writestr(inner, b"x")
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as z:
        info = zipfile.ZipInfo("link")
        info.external_attr = (0o120777 << 16) | 0
        z.writestr(info, "/etc/passwd")
    tar(tmp_path / "bomb.tar.gz", ("zero", zero))
    tar(tmp_path / "many.tar.gz", *((f"f{i}", b"x") for i in range(60)))
    tar(tmp_path / "folders.tar.gz", *((special(f"d{i}", tarfile.DIRTYPE), b"") for i in range(5000)))
    tar(tmp_path / "up.tar.gz", ("a/../../evil", b"x"))
    tar(tmp_path / "root.tar.gz", ("/tmp/evil", b"x"))
    tar(tmp_path / "link.tar.gz", (special("link", tarfile.SYMTYPE, "/etc"), b""), ("link/evil", b"x"))
    tar(tmp_path / "hard.tar.gz", (special("hard", tarfile.LNKTYPE, "/etc/passwd"), b""))
    tar(tmp_path / "device.tar.gz", (special("zero", tarfile.CHRTYPE), b""))
    tar(tmp_path / "fifo.tar.gz", (special("fifo", tarfile.FIFOTYPE), b""))
    (tmp_path / "torn.tar.gz").write_bytes((tmp_path / "many.tar.gz").read_bytes()[:60])
    (tmp_path / "none.zip").write_bytes(b"not a zip at all")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass


HOSTILE = {
    "bomb.zip": "more than 1048576 bytes", "liar.zip": "liar.zip", "many.zip": "more than 50 files and folders",
    "up.zip": "outside", "root.zip": "outside", "back.zip": "outside", "drive.zip": "outside", "link.zip": "a link",
    "bomb.tar.gz": "more than 1048576 bytes", "many.tar.gz": "more than 50 files",
    "folders.tar.gz": "more than 50 files and folders",
    "up.tar.gz": "outside", "root.tar.gz": "outside", "link.tar.gz": "a link", "hard.tar.gz": "a link or a device",
    "device.tar.gz": "a link or a device", "fifo.tar.gz": "a link or a device", "torn.tar.gz": "cannot be unpacked",
    "none.zip": "cannot be unpacked", "empty.zip": "holds no file",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused_in_one_sentence_and_leave_nothing(tmp_path, name):
    source, target = tmp_path / "sent", tmp_path / "here" / "into"
    source.mkdir()
    hostile(source)
    before = sorted(p for p in tmp_path.rglob("*") if target not in p.parents)
    with pytest.raises(DataError) as refused:
        open_upload(source / name, name, target, Bounds(1 << 20, 50))
    said = str(refused.value)
    assert HOSTILE[name] in said
    assert str(tmp_path) not in said
    assert said.endswith(".")
    assert "\n" not in said
    assert not [p for p in target.rglob("*") if p.is_file()]
    assert (
        sorted(p for p in tmp_path.rglob("*") if target not in p.parents and p not in (target, target.parent)) == before
    )


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.xz"])
def test_a_packed_folder_is_that_folder(tmp_path, kind):
    if kind == "zip":
        with zipfile.ZipFile(tmp_path / "p.zip", "w") as z:
            z.writestr("run/a.jsonl", "1")
            z.writestr("run/deep/b.jsonl", "2")
    else:
        tar(tmp_path / f"p.{kind}", ("run/a.jsonl", b"1"), ("run/deep/b.jsonl", b"2"), mode=f"w:{kind[4:]}")
    folder = open_upload(tmp_path / f"p.{kind}", f"p.{kind}", tmp_path / "into")
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) == ["a.jsonl", "deep/b.jsonl"]
    assert folder.name == "run"


@given(st.text(max_size=60))
def test_names_of_files_are_harmless(name):
    safe = plain_name(name)
    assert safe
    assert not set("/\\\0\n:") & set(safe)
    assert safe not in (".", "..")
    assert os.path.basename(safe) == safe
    assert len(safe) <= 120


# -- reading -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=12), st.booleans())
def test_check_finds_exactly_missing_double_and_unknown_predictions(tmp_path_factory, rows, torn):
    path = tmp_path_factory.mktemp("p") / "p.jsonl"
    path.write_text("\n".join(json.dumps({"id": f"s{i}", "label": v}) for i, v in rows) + ("\n{" if torn else ""))
    checked = check(load_benchmark("toy_labels", n=5), path)
    ids = [i for i, _ in rows]
    right = sorted(ids) == list(range(5)) and not torn
    assert (checked.faults == ()) == right
    if right:
        assert {k[1]: o.output for k, o in checked.outcomes.items()} == {f"s{i}": str(v) for i, v in rows}
    elif not torn and rows:
        said = "\n".join(checked.faults)
        assert said.count("There is no prediction for") == len(set(range(5)) - set(ids))
        assert said.count("there is no sample") == sum(i >= 5 for i in ids)
        assert said.count("was given already") == len([i for i in ids if i < 5]) - len({i for i in ids if i < 5})


# -- rounding, ladder, ranks -------------------------------------------------------------------------------------------


@given(st.floats(-1e3, 1e3), st.floats(0, 10), st.sampled_from([0.0, 0.001, 0.01, 0.05, 0.1, 0.25, 1.0, 5.0]))
def test_rounded_scores_are_multiples_and_intervals_still_hold_them(value, width, step):
    shown = rounded(value, step)
    low, high = rounded_interval(value - width, value + width, step)
    assert low <= value + 1e-8
    assert value - 1e-8 <= high
    assert abs(shown - value) <= step / 2 + 1e-9
    if step:
        for x in (shown, low, high):
            assert x / step == pytest.approx(round(x / step), abs=1e-6)
            assert len(repr(abs(x)).partition(".")[2]) <= 4


@given(st.lists(st.one_of(st.none(), st.sampled_from([0.1, 0.2, 0.3])), max_size=9), st.booleans())
def test_ties_share_a_rank_and_no_score_has_none(scores, higher):
    found = ranks(scores, higher_is_better=higher)
    for s, r in zip(scores, found):
        assert (s is None) == (r is None)
        if s is not None:
            assert r == 1 + sum(x is not None and ((x > s) if higher else (x < s)) for x in scores)


# -- attacks -----------------------------------------------------------------------------------------------------------

LABELS, SUBMISSIONS = 1000, 100


class Oracle:
    """A board with hidden binary labels, as one team sees it: rounded, and behind a ladder where there is a step."""

    def __init__(self, seed, rounding, step):
        self.rng = np.random.default_rng(seed)
        self.labels = self.rng.integers(0, 2, LABELS)
        self.rounding, self.step, self.best = rounding, step, None

    def ask(self, guess):
        """The score a team is told; None = not better by the step."""
        value = float(np.mean(guess == self.labels))
        if not released(value, self.best, self.step):
            return None
        shown = rounded(value, self.rounding)
        self.best = shown if self.best is None else max(self.best, shown)
        return shown

    def truth(self, guess):
        return float(np.mean(guess == self.labels))


def majority_attack(oracle):
    """Blum and Hardt's: random guesses, those that look worse than chance turned round, then a vote."""
    votes = np.zeros(LABELS)
    for _ in range(SUBMISSIONS):
        guess = oracle.rng.integers(0, 2, LABELS)
        score = oracle.ask(guess)
        if score is not None and score != 0.5:
            votes += (2 * guess - 1) * np.sign(score - 0.5)
    ties = oracle.rng.integers(0, 2, LABELS)
    return oracle.truth(np.where(votes == 0, ties, votes > 0).astype(int))


def climbing_attack(oracle, block):
    """Turn a block of the best guess round; keep it where the board says that it is better."""
    best = oracle.rng.integers(0, 2, LABELS)
    known = oracle.ask(best)
    for i in range(SUBMISSIONS - 1):
        trial = best.copy()
        at = oracle.rng.choice(LABELS, block, replace=False) if block < 10 else (i * block + np.arange(block)) % LABELS
        trial[at] ^= 1
        score = oracle.ask(trial)
        if score is not None and score > known:
            best, known = trial, score
    return oracle.truth(best)


ATTACKS = {
    "majority": majority_attack,
    **{f"climbing {b}": (lambda o, b=b: climbing_attack(o, b)) for b in (1, 10, 30, 100, 300)},
}


def gain(attack, rounding, step):
    """How much better than chance an attack ends, over ten boards."""
    return float(np.mean([ATTACKS[attack](Oracle(seed, rounding, step)) for seed in range(10)])) - 0.5


def test_without_defence_a_hundred_submissions_learn_much():
    found = {name: gain(name, 0.0, 0.0) for name in ATTACKS}
    assert found["majority"] > 0.08
    assert max(v for k, v in found.items() if k.startswith("climbing")) > 0.10


@pytest.mark.parametrize("attack", ATTACKS)
def test_behind_rounding_and_ladder_a_hundred_submissions_learn_little(attack):
    assert gain(attack, 0.01, 0.03) < 0.035


def test_the_limit_of_the_day_makes_a_hundred_submissions_take_ten_days():
    from assay.server.settings import Limits

    assert SUBMISSIONS / Limits().submissions_a_day >= 10


def test_single_labels_cannot_be_read_behind_the_ladder():
    """Flipping one label a time tells each one of 100 without defence, and none behind it."""

    def learned(rounding, step):
        oracle = Oracle(1, rounding, step)
        base = oracle.rng.integers(0, 2, LABELS)
        first = oracle.ask(base)
        known = 0
        for i in range(SUBMISSIONS - 1):
            trial = base.copy()
            trial[i] ^= 1
            score = oracle.ask(trial)
            known += score is not None and score != first
        return known

    assert learned(0.0, 0.0) == SUBMISSIONS - 1
    assert learned(0.01, 0.03) == 0
