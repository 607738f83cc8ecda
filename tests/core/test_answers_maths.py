"""Equality of mathematical answers: the battery, symmetry, and what must not happen."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.answers import math_compare, math_equal
from assay.core.errors import MissingExtra

BATTERY = json.loads(
    (Path(__file__).parent.parent / "oracles" / "answers" / "math_equal.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", BATTERY, ids=lambda case: f"{case['a']} ~ {case['b']}"[:70])
def test_battery_both_ways(case):
    pytest.importorskip("math_verify")
    for a, b in ((case["a"], case["b"]), (case["b"], case["a"])):
        verdict = math_compare(a, b)
        assert verdict.equal == case["equal"], verdict


@pytest.mark.parametrize("case", BATTERY, ids=lambda case: f"{case['a']}"[:70])
def test_every_answer_equals_itself(case):
    pytest.importorskip("math_verify")
    for text in (case["a"], case["b"]):
        if text and text != "1/0":
            assert math_equal(text, text)


def test_the_verdict_keeps_both_forms():
    verdict = math_compare(r"\boxed{\frac{1}{2}}", "The answer is 0.5.")
    assert verdict == (True, "1/2", "0.5", "form")
    assert math_compare("x < 3", r"(-\infty, 3)").a_form == "x < 3"
    assert math_compare("", "3") == (False, "", "3", "nothing to compare")


@settings(deadline=None)
@given(st.fractions(max_denominator=999), st.fractions(max_denominator=999))
def test_fractions_are_compared_exactly(a: Fraction, b: Fraction):
    latex = rf"\frac{{{b.numerator}}}{{{b.denominator}}}"
    assert math_equal(str(a), latex) == (a == b)


@settings(deadline=None)
@given(st.integers(-(10**15), 10**15), st.integers(-5, 5))
def test_whole_numbers_are_compared_exactly(a: int, step: int):
    assert math_equal(f"{a:,}", str(a + step)) == (step == 0)


@settings(deadline=None)
@given(st.lists(st.integers(-99, 99), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_order_matters_in_tuples_only(items, random):
    shuffled = items[:]
    random.shuffle(shuffled)
    inside, mixed = ", ".join(map(str, items)), ", ".join(map(str, shuffled))
    assert math_equal(rf"\{{{inside}\}}", rf"\{{{mixed}\}}")
    assert math_equal(inside, mixed)
    assert math_equal(f"({inside})", f"({mixed})") == (items == shuffled)


@settings(max_examples=30, deadline=None)
@given(st.text(alphabet=r"0123456789xy+-*/^(){}[]\,.= sqrtfacpi%$<>", max_size=25))
def test_any_text_gets_a_verdict(text):
    pytest.importorskip("math_verify")
    if text.count("^") < 2:
        assert math_compare(text, "5").equal in (True, False)


def test_tolerance_is_for_decimals_only():
    assert math_equal("1.41421356", r"\sqrt{2}")
    assert not math_equal("1.414", r"\sqrt{2}")
    assert math_equal("1.414", r"\sqrt{2}", tolerance=1e-3)
    assert not math_equal("1000000", "1000001", tolerance=1e-3)


def test_towers_of_powers_are_not_evaluated():
    assert math_compare("10^{10^{10}}", "10^{10^{11}}").how == "too large to evaluate"
    assert math_equal("9^{9^{9^9}}", "9^{9^{9^9}}")


def test_works_in_a_thread_without_signals():
    pytest.importorskip("math_verify")
    results = []
    thread = threading.Thread(target=lambda: results.append(math_equal("(x+1)^2", "x^2+2x+1")))
    thread.start()
    thread.join(60)
    assert results == [True]


def test_numbers_need_no_algebra_system():
    code = "import sys\nfrom assay.core.answers import math_equal"
    code += "\nassert math_equal('1/2', '0.5')\nprint('sympy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "False"
    )


def test_model_text_is_never_run_as_python(tmp_path):
    pytest.importorskip("math_verify")
    target = tmp_path / "owned"
    for text in (
        f"__import__('pathlib').Path('{target}').touch()",
        f"$open('{target}','w')$",
        f"eval(\"open('{target}','w')\")",
    ):
        math_compare(text, "5")
        math_compare("x+1", text)
    assert not target.exists()


def test_missing_library_is_one_sentence(monkeypatch):
    from assay.core.answers import maths

    maths._library.cache_clear()
    maths._parsed.cache_clear()
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(MissingExtra, match=r"pip install 'assay\[cost_of_pass\]'"):
        math_equal("(x+1)^2", "x^2+2x+1")
    maths._library.cache_clear()
