"""The price book: dates, kinds of tokens, machines, currencies, re-pricing."""

from __future__ import annotations

import json
from datetime import date

import polars as pl
import pytest

from assay.core.errors import DataError, UsageError
from assay.reasoning.cost_of_pass.estimator import CostOfPass
from assay.reasoning.cost_of_pass.prices import PriceBook, Tariff, machine_hour, token_price
from assay.systems.chat.prices import Rate


def book() -> PriceBook:
    return PriceBook(
        [
            Tariff.of("acme:big", 2.0, 8.0, cached=0.5, day=date(2024, 1, 1), batch=0.5, tools={"search": 0.01}),
            Tariff.of("acme:big", 1.0, 4.0, day=date(2024, 7, 1)),
            Tariff.of("small", 0.1, 0.2, request=0.001),
        ],
        lists=False,
    )


def test_each_kind_of_token_is_billed_once():
    on = date(2024, 3, 1)
    cost = book().cost("acme:big", 1000, 500, cached_tokens=400, reasoning_tokens=300, on=on)
    assert cost == pytest.approx((600 * 2 + 400 * 0.5 + 500 * 8) / 1e6)


def test_prices_are_those_of_the_day():
    assert book().tariff("acme:big", date(2024, 6, 30)).rates[0].prompt == 2.0
    assert book().tariff("acme:big", date(2024, 7, 1)).rates[0].prompt == 1.0
    assert book().tariff("acme:big").rates[0].prompt == 1.0
    with pytest.raises(
        DataError, match="first price of model 'acme:big' is of 2024-01-01; none is known for 2023-05-01"
    ):
        book().tariff("acme:big", date(2023, 5, 1))


def test_names_are_found_with_and_without_provider_and_options():
    assert book().tariff("other:small?temperature=0").request == 0.001
    assert book().tariff("big").rates[0].prompt == 1.0


def test_requests_batches_and_tools_are_billed():
    assert book().cost("small", 0, 0, calls=3) == pytest.approx(0.003)
    on = date(2024, 3, 1)
    assert book().cost("acme:big", 1000, 0, batch=True, on=on) == pytest.approx(0.001)
    assert book().cost("acme:big", tools={"search": 4}, on=on) == pytest.approx(0.04)
    with pytest.raises(UsageError, match="tool price of model 'acme:big' 'serch'"):
        book().cost("acme:big", tools={"serch": 1}, on=on)
    with pytest.raises(DataError, match="no batch price"):
        book().cost("small", 1, 1, batch=True)


def test_long_prompts_may_cost_more():
    tariff = Tariff("m", (Rate(0, 1.0, 1.0, 2.0, 2.0), Rate(1000, 3.0, 3.0, 6.0, 6.0)))
    found = PriceBook([tariff], lists=False)
    assert found.cost("m", 1000, 0) == pytest.approx(0.001)
    assert found.cost("m", 1001, 0) == pytest.approx(0.003003)
    assert found.cost("m", 2000, 0, calls=2) == pytest.approx(0.002)  # two prompts of 1000


def test_an_unknown_price_is_an_error_and_never_a_number():
    with pytest.raises(DataError, match="price of model 'nosuch' is unknown; the book has acme:big, small"):
        book().cost("nosuch", 1, 1)
    with pytest.raises(DataError, match="price of model 'nosuch' is unknown"):
        PriceBook().tariff("nosuch")
    for value in (-1.0, float("inf"), float("nan")):
        with pytest.raises(DataError, match="is not a price"):
            Tariff.of("m", value, 1.0)


def test_a_part_cannot_pass_its_whole():
    with pytest.raises(DataError, match="a part cannot pass its whole"):
        book().cost("small", 10, 5, reasoning_tokens=6)


def test_known_lists_are_asked_for_other_models_and_keep_their_day():
    tariff = PriceBook().tariff("openai:gpt-4o-mini", date(2025, 1, 1))
    assert (tariff.rates[0].prompt, tariff.rates[0].completion) == pytest.approx((0.15, 0.6))
    assert tariff.day == date(2025, 1, 1)
    assert "genai-prices" in tariff.source
    assert PriceBook().tariff("gpt-4o-mini").rates == tariff.rates


def test_the_list_of_litellm_is_read_without_importing_it():
    import importlib.util
    import sys

    if importlib.util.find_spec("litellm") is None:
        pytest.skip("litellm is not installed")
    before = "litellm" in sys.modules
    found = PriceBook.litellm(day=date(2025, 6, 1))
    assert ("litellm" in sys.modules) is before
    rate = found.tariff("gpt-4o").rates[0]
    assert (rate.prompt, rate.cached, rate.completion) == pytest.approx((2.5, 1.25, 10.0))
    assert found.tariff("gpt-4o").batch == pytest.approx(0.5)
    assert found.tariff("gpt-4o").source.startswith("litellm ")
    assert len(found.tariff("gemini-2.5-pro").rates) == 2


def test_own_machines_cost_by_the_hour_or_by_the_token():
    hour = machine_hour(gpu_hour=2.0, watts=700, kwh_price=0.3)
    assert hour == pytest.approx(2.21)
    assert PriceBook([Tariff("local", hour=hour)], lists=False).cost("local", seconds=36.0) == pytest.approx(0.0221)
    assert token_price(3.6, 1000.0) == pytest.approx(1.0)
    with pytest.raises(UsageError):
        machine_hour(-1.0)
    with pytest.raises(UsageError):
        token_price(1.0, 0.0)


def test_books_are_read_from_csv_json_and_toml(tmp_path):
    (tmp_path / "p.csv").write_text("model,input,output,cached,day\nm,1,2,,2024-05-01\nn,3,4,0.3,\n")
    (tmp_path / "p.json").write_text(json.dumps([{"model": "m", "input": 1, "output": 2, "currency": "EUR"}]))
    (tmp_path / "p.toml").write_text('[[price]]\nmodel = "m"\nhour = 2.5\n[price.tools]\nsearch = 0.01\n')
    csv = PriceBook.read(tmp_path / "p.csv")
    assert csv.tariff("m").day == date(2024, 5, 1)
    assert csv.tariff("n").rates[0].cached == 0.3
    assert csv.tariff("m").source == "p.csv"
    assert PriceBook.read(tmp_path / "p.json", currencies={"EUR": 1.1}).tariff("m").rates[0].prompt == pytest.approx(
        1.1
    )
    toml = PriceBook.read(tmp_path / "p.toml").tariff("m")
    assert (toml.hour, toml.tools) == (2.5, {"search": 0.01})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"model": "m", "input": 1}, "row 1: field 'output' is missing"),
        ({"model": "m", "input": "x", "output": 1}, "row 1: input 'x' is not a number"),
        ({"model": "m", "input": 1, "output": 1, "outptu": 1}, "row 1: unknown field 'outptu'"),
        ({"model": "m", "input": 1, "output": 1, "currency": "EUR"}, "currency 'EUR' has no rate"),
        ({"model": "m", "input": 1, "output": 1, "day": "May"}, "day 'May' is not YYYY-MM-DD"),
        ({"model": "m", "input": -1, "output": 1}, "is not a price"),
        ({"model": "m", "input": 1, "output": 1, "batch": -1}, "is not a price"),
        ({"model": "m", "input": 1, "output": 1, "day": 5}, "day 5 is not a day"),
        ({"model": "m", "input": 1, "output": 1, "tools": "search"}, "tools 'search' must map names to prices"),
        ({"model": "m", "input": 1, "output": 1, "tools": {"search": "x"}}, "must map names to prices"),
    ],
)
def test_bad_rows_of_a_book_are_named(row, message):
    with pytest.raises(DataError, match=message):
        PriceBook.from_rows([row])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b"{", "a.json cannot be read as a price book: "),
        ("a.json", b"[1]", "a.json: no prices; expected a list of rows"),
        ("a.json", b'"abc"', "a.json: no prices"),
        ("a.toml", b"==", "a.toml cannot be read as a price book: "),
        ("a.csv", b"", "a.csv: no prices"),
        ("a.csv", b"model,input,output\nm\xe9,1,2\n", "a.csv cannot be read as a price book: 'utf-8'"),
        ("a.csv", b"model,input,output\nm,1,2,3\n", "row 1: more values than the header has names"),
    ],
)
def test_files_that_are_no_price_book_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        PriceBook.read(tmp_path / name)


def test_price_files_of_other_systems_and_absent_ones(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfmodel,input,output\r\nm,1,2\r\n")
    assert PriceBook.read(tmp_path / "a.csv").cost("m", 1_000_000, 1_000_000) == pytest.approx(3)
    with pytest.raises(DataError, match=r"absent\.csv cannot be read"):
        PriceBook.read(tmp_path / "absent.csv")
    with pytest.raises(UsageError, match=r"\.csv, \.json or \.toml"):
        PriceBook.read(tmp_path / "a.xlsx")


def test_two_prices_of_one_day_are_refused():
    with pytest.raises(DataError, match="two prices from 2024-01-01 on"):
        book().add(Tariff.of("acme:big", 1, 1, day=date(2024, 1, 1)))


def calls(model: str, prompt: int, completion: int, cost: float | None, role: str = "subject", n: int = 1) -> dict:
    return {
        "role": role, "model": model, "calls": n, "prompt_tokens": prompt, "cached_tokens": 0,
        "completion_tokens": completion, "reasoning_tokens": 0, "seconds": 0.0, "cost": cost,
    }  # fmt: skip


def records(*rows: list[dict]) -> pl.DataFrame:
    n = len(rows)
    return pl.DataFrame(
        {
            "system": ["s"] * n, "task": ["t"] * n, "sample": [str(i) for i in range(n)], "attempt": [0] * n,
            "status": ["ok"] * n, "correct": [1.0] * n, "calls": list(rows),
        }
    )  # fmt: skip


def test_the_judge_is_never_billed_to_the_system():
    frame = records([calls("acme:big", 10, 10, 0.5), calls("judge", 9, 9, 99.0, role="judge")])
    assert CostOfPass(frame).values.tolist() == [[0.5]]


def test_every_model_that_a_system_asks_is_billed():
    frame = records([calls("a", 10, 10, 0.5), calls("b", 10, 10, 0.25)])
    assert CostOfPass(frame).values.tolist() == [[0.75]]


def test_calls_without_price_name_the_model_and_the_way_out():
    frame = records([calls("acme:big", 10, 10, None)])
    with pytest.raises(
        DataError, match="price of model 'acme:big' is unknown \\(1 records\\); give it with \\?price_in="
    ):
        CostOfPass(frame)
    assert CostOfPass(frame, prices=book()).values[0, 0] == pytest.approx(50e-6)


def test_answers_that_nobody_metered_are_not_free():
    frame = records([calls("judge", 9, 9, 99.0, role="judge")])
    with pytest.raises(DataError, match="made no metered call in 1 records"):
        CostOfPass(frame)
    with pytest.raises(DataError, match="made no metered call"):
        CostOfPass(frame, prices=book())


def test_the_same_records_at_the_prices_of_several_days():
    frame = records([calls("acme:big", 1_000_000, 0, 7.0)])
    cop = CostOfPass(frame)
    assert cop.values[0, 0] == 7.0
    assert cop.reprice(book(), date(2024, 2, 1)).values[0, 0] == pytest.approx(2.0)
    assert cop.reprice(book(), date(2024, 8, 1)).values[0, 0] == pytest.approx(1.0)
    wide = book().snapshots(frame, {"spring": date(2024, 2, 1), "autumn": date(2024, 8, 1)})
    assert wide.select("cost_spring", "cost_autumn").row(0) == pytest.approx((2.0, 1.0))


def test_published_records_are_repriced_from_their_tokens():
    frame = pl.DataFrame(
        {
            "model_name": ["big", "small"], "input_idx": [0, 0], "num_prompt_tokens": [1000, 1000],
            "num_completion_tokens": [0, 0], "cost_per_prompt_token": [9.0, 9.0],
            "cost_per_completion_token": [9.0, 9.0],
            "metric_score": [1.0, 1.0],
        }
    )  # fmt: skip
    found = CostOfPass(frame, prices=book())
    assert found.values.ravel().tolist() == pytest.approx([0.001, 0.0011])


def test_records_without_tokens_cannot_be_repriced():
    frame = pl.DataFrame({"model": ["m"], "problem": [0], "cost": [1.0], "correct": [1]})
    with pytest.raises(DataError, match="hold no tokens"):
        CostOfPass(frame).reprice(book())
