"""Price book: what tokens, requests, tools and machines cost, on which day, in dollars.

Records keep tokens; a price book turns them into dollars of any day without asking a model again. A price that is not
known is an error, never a number.
"""

from __future__ import annotations

import csv
import importlib.metadata
import importlib.util
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, Self

import polars as pl

from assay.core.datasets.readers import require
from assay.core.errors import DataError, UsageError, unknown_name
from assay.systems.chat.facts import bare_name
from assay.systems.chat.prices import Rate

MILLION = 1e-6
MAKERS = ("openai", "anthropic", "gemini", "deepseek", "mistral", "xai")
"""Providers whose list is asked for a name without provider: they sell their own models."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """Price of one model from one day on.

    Parameters
    ----------
    model
        Name, with or without provider prefix.
    rates
        USD per million tokens by rising length of the prompt (`assay.systems.chat.prices.Rate`); reasoning tokens are
        part of the completion's, cached tokens part of the prompt's, and each kind is billed once.
    request
        USD a request.
    hour
        USD an hour that a call takes: own machines (see `machine_hour`).
    batch
        Factor on tokens sent through a batch interface; None = not offered.
    tools
        USD a use, by tool.
    day
        First day on which it counts; None = undated.
    source
        Where it comes from.
    """

    model: str
    rates: tuple[Rate, ...] = (Rate(0, 0.0, 0.0, 0.0, 0.0),)
    request: float = 0.0
    hour: float = 0.0
    batch: float | None = None
    tools: Mapping[str, float] = field(default_factory=dict)
    day: date | None = None
    source: str = ""

    def __post_init__(self) -> None:
        numbers = [self.request, self.hour, *self.tools.values(), *(() if self.batch is None else (self.batch,))]
        numbers += [x for rate in self.rates for x in (rate.prompt, rate.cached, rate.completion, rate.reasoning)]
        bad = [x for x in numbers if not 0 <= x < float("inf")]
        if bad:
            raise DataError(
                f"The price {bad[0]} of model {self.model!r} ({self.source or 'given'}) is not a price: prices are "
                "finite and "
                ">= 0, and an unknown price is left out, not written as -1."
            )
        if not self.rates or self.rates[0].start != 0:
            raise DataError(f"The rates of model {self.model!r} must start at a prompt of 0 tokens.")

    def token_cost(self, tokens: pl.DataFrame, *, batch: bool = False) -> pl.Series:
        """USD of each row of a frame with prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, calls,
        seconds.

        Rows may be sums over several calls; the rate is then that of the mean prompt.
        """
        if batch and self.batch is None:
            raise DataError(
                f"Model {self.model!r} has no batch price ({self.source or 'given'}); add one, or bill it plainly."
            )
        length = pl.col("prompt_tokens") / pl.max_horizontal(pl.col("calls"), 1)
        total = self._at(self.rates[0])
        for rate in self.rates[1:]:
            total = pl.when(length > rate.start).then(self._at(rate)).otherwise(total)
        factor = self.batch if batch and self.batch is not None else 1.0
        cost = total * (factor * MILLION) + pl.col("calls") * self.request + pl.col("seconds") * (self.hour / 3600)
        return tokens.select(cost.cast(pl.Float64).alias("cost")).to_series()

    @staticmethod
    def _at(rate: Rate) -> pl.Expr:
        return (
            (pl.col("prompt_tokens") - pl.col("cached_tokens")) * rate.prompt
            + pl.col("cached_tokens") * rate.cached
            + (pl.col("completion_tokens") - pl.col("reasoning_tokens")) * rate.completion
            + pl.col("reasoning_tokens") * rate.reasoning
        )

    @classmethod
    def of(
        cls,
        model: str,
        input: float,
        output: float,
        *,
        cached: float | None = None,
        reasoning: float | None = None,
        **rest: Any,
    ) -> Self:
        """Tariff from USD per million tokens; cached input costs as input, and reasoning as output, unless given."""
        rate = Rate(0, input, input if cached is None else cached, output, output if reasoning is None else reasoning)
        return cls(model, (rate,), **rest)


def machine_hour(gpu_hour: float = 0.0, watts: float = 0.0, kwh_price: float = 0.0, machines: int = 1) -> float:
    """USD an hour of an own machine: rent (or depreciation) of its GPU plus electricity."""
    if min(gpu_hour, watts, kwh_price) < 0 or machines < 1:
        raise UsageError(
            f"A machine has gpu_hour, watts, kwh_price >= 0 and a count >= 1; got {gpu_hour}, {watts}, {kwh_price}, "
            f"{machines}."
        )
    return machines * (gpu_hour + watts / 1000 * kwh_price)


def token_price(hour: float, tokens_per_second: float) -> float:
    """USD per million tokens of a machine that costs ``hour`` USD an hour and makes so many tokens a second."""
    if tokens_per_second <= 0:
        raise UsageError(f"Tokens a second must be above 0; got {tokens_per_second}.")
    return hour / 3600 / tokens_per_second / MILLION


class PriceBook:
    """Dated tariffs by model.

    Parameters
    ----------
    tariffs
        Own ones; they stand above the lists.
    lists
        Ask what assay knows (its own additions and genai-prices) for models without a tariff of one's own.
    """

    def __init__(self, tariffs: Iterable[Tariff] = (), *, lists: bool = True) -> None:
        self.lists = lists
        self._tariffs: dict[str, list[Tariff]] = {}
        for tariff in tariffs:
            self.add(tariff)

    def add(self, tariff: Tariff) -> None:
        """Add a tariff; a model may have one a day."""
        have = self._tariffs.setdefault(tariff.model, [])
        if any(other.day == tariff.day for other in have):
            raise DataError(f"Model {tariff.model!r} has two prices from {tariff.day or 'no day'} on; keep one.")
        have.append(tariff)
        have.sort(key=lambda entry: entry.day or date.min)

    @property
    def models(self) -> tuple[str, ...]:
        """Names with a tariff of one's own."""
        return tuple(sorted(self._tariffs))

    def tariff(self, model: str, on: date | None = None) -> Tariff:
        """Tariff in force.

        Parameters
        ----------
        model
            Name; ``provider:`` prefix, organisation and options are ignored where no tariff has the full name.
        on
            Day; None = the newest own tariff, or today's list.

        Raises
        ------
        DataError
            No price is known, or none that early.
        """
        bare = bare_name(model)
        have = self._tariffs.get(model) or self._tariffs.get(bare)
        if have is None:
            have = next((entries for name, entries in self._tariffs.items() if bare_name(name) == bare), None)
        if have is not None:
            valid = [entry for entry in have if on is None or entry.day is None or entry.day <= on]
            if valid:
                return valid[-1]
            raise DataError(f"The first price of model {model!r} is of {have[0].day}; none is known for {on}.")
        listed = self._listed(model, on) if self.lists else None
        if listed is None:
            known = f"; the book has {', '.join(self.models[:8])}" if self._tariffs else ""
            raise DataError(
                f"The price of model {model!r} is unknown{known}; add a tariff (USD per million tokens), or name the "
                "provider "
                "as in together:MODEL."
            )
        return listed

    @staticmethod
    def _listed(model: str, on: date | None) -> Tariff | None:
        from assay.systems.chat.prices import price_of

        provider, colon, rest = model.partition(":")
        name = (rest if colon else model).partition("?")[0].partition("@")[0]
        for source in (provider,) if colon else MAKERS:
            found = price_of(source, name, on.isoformat() if on else None)
            if found is not None:
                day = date.fromisoformat(found.date) if found.date else None
                return Tariff(model, tuple(found.rates), found.request, day=day, source=found.source)
        return None

    def cost(
        self,
        model: str,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        *,
        cached_tokens: int = 0,
        reasoning_tokens: int = 0,
        calls: int = 1,
        seconds: float = 0.0,
        batch: bool = False,
        tools: Mapping[str, int] | None = None,
        on: date | None = None,
    ) -> float:
        """USD of some calls to a model.

        Parameters
        ----------
        cached_tokens, reasoning_tokens
            Part of the prompt's, of the completion's: never added to them.
        tools
            Uses by tool.
        """
        tariff = self.tariff(model, on)
        if cached_tokens > prompt_tokens or reasoning_tokens > completion_tokens:
            raise DataError(
                f"Model {model!r}: {cached_tokens} cached of {prompt_tokens} prompt tokens and {reasoning_tokens} "
                "reasoning of "
                f"{completion_tokens} completion tokens; a part cannot pass its whole."
            )
        row = pl.DataFrame(
            {
                "prompt_tokens": [prompt_tokens],
                "cached_tokens": [cached_tokens],
                "completion_tokens": [completion_tokens],
                "reasoning_tokens": [reasoning_tokens],
                "calls": [calls],
                "seconds": [float(seconds)],
            }
        )
        total = tariff.token_cost(row, batch=batch)[0]
        for tool, uses in (tools or {}).items():
            if tool not in tariff.tools:
                raise unknown_name(f"tool price of model {model!r}", tool, tariff.tools)
            total += uses * tariff.tools[tool]
        return float(total)

    def apply(self, records: pl.DataFrame, on: date | None = None, *, batch: bool = False) -> pl.DataFrame:
        """Records with ``cost`` computed anew from their tokens.

        Parameters
        ----------
        records
            With assay's ``calls``, or with token columns under assay's or the published names.
        on
            Day whose prices count.

        Raises
        ------
        DataError
            A model without price, or records without tokens.
        """
        from assay.reasoning.cost_of_pass.records import ALIASES

        calls = records.schema.get("calls")
        if isinstance(calls, pl.List) and isinstance(calls.inner, pl.Struct):
            return records.with_columns(self._of_calls(records, on, batch).alias("cost"))
        names = {what: next((c for c in ALIASES[what] if c in records.columns), None) for what in ALIASES}
        if not (names["prompt_tokens"] and names["completion_tokens"] and names["model"]):
            raise DataError(
                "These records hold no tokens (calls, or prompt_tokens and completion_tokens), so they cannot be "
                "re-priced."
            )
        zero = pl.lit(0, pl.Int64)
        tokens = records.select(
            pl.col(names["model"]).cast(pl.String).alias("model"),
            pl.col(names["prompt_tokens"]).alias("prompt_tokens"),
            pl.col(names["completion_tokens"]).alias("completion_tokens"),
            *((pl.col(c) if c in records.columns else zero.alias(c)) for c in ("cached_tokens", "reasoning_tokens")),
            (pl.col("calls") if "calls" in records.columns else pl.lit(1, pl.Int64).alias("calls")),
            (pl.col("seconds") if "seconds" in records.columns else pl.lit(0.0).alias("seconds")),
        )
        stale = [c for c in (names["input_price"], names["output_price"], "extra_fees") if c in records.columns]
        return records.drop(stale).with_columns(self._costs(tokens, on, batch).alias("cost"))

    def snapshots(self, records: pl.DataFrame, days: Mapping[str, date | None]) -> pl.DataFrame:
        """Records with a column ``cost_LABEL`` a label: the same tokens in dollars of several days."""
        columns = [self.apply(records, day).get_column("cost").alias(f"cost_{label}") for label, day in days.items()]
        return records.with_columns(columns)

    def _of_calls(self, records: pl.DataFrame, on: date | None, batch: bool) -> pl.Series:
        rows = pl.int_range(pl.len(), dtype=pl.UInt32).alias("row")
        calls = records.select(rows, "calls").explode("calls").drop_nulls("calls").unnest("calls")
        subject = calls.filter(pl.col("role") == "subject")
        costs = subject.select("row", self._costs(subject, on, batch).alias("cost"))
        sums = costs.group_by("row").agg(pl.col("cost").sum())
        return records.select(rows).join(sums, on="row", how="left", maintain_order="left")["cost"]

    def _costs(self, tokens: pl.DataFrame, on: date | None, batch: bool) -> pl.Series:
        """USD of each row, priced a model at a time."""
        indexed = tokens.with_row_index("at")
        parts = [
            group.select("at").with_columns(self.tariff(str(model), on).token_cost(group, batch=batch).alias("cost"))
            for (model,), group in indexed.group_by("model")
        ]
        if not parts:
            return pl.Series("cost", [], dtype=pl.Float64)
        return pl.concat(parts).sort("at").get_column("cost")

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, Any]],
        *,
        currencies: Mapping[str, float] | None = None,
        source: str = "",
        lists: bool = True,
    ) -> Self:
        """Book from dictionaries with model, input, output and optionally cached, reasoning, request, hour, batch,
        tools, day, currency, source.

        Parameters
        ----------
        currencies
            USD of one unit, for rows in another currency.
        """
        return cls((_tariff(row, i, currencies or {}, source) for i, row in enumerate(rows, 1)), lists=lists)

    @classmethod
    def read(cls, path: str | Path, **options: Any) -> Self:
        """Book from a file: CSV with a header, JSON (a list of rows) or TOML (``[[price]]``).

        Raises
        ------
        UsageError
            Another ending.
        DataError
            A file that cannot be read, or a row that is no price: with its number.
        """
        path = Path(path)
        if path.suffix not in (".csv", ".json", ".toml"):
            raise UsageError(f"A price book is a .csv, .json or .toml file; got {path.name!r}.")
        try:
            rows = _rows(path.suffix, path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError, RecursionError, csv.Error) as error:
            raise DataError(f"{path} cannot be read as a price book: {error}.") from None
        if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
            raise DataError(f"{path}: no prices; expected a list of rows with model, input and output.")
        return cls.from_rows(rows, source=path.name, **options)

    @classmethod
    def litellm(cls, *, day: date | None = None) -> Self:
        """Book from the list that an installed litellm carries; the package is read as a file, not imported.

        Parameters
        ----------
        day
            Day that the list stands for; the list itself says none.
        """
        spec = importlib.util.find_spec("litellm")
        if spec is None or not spec.submodule_search_locations:
            raise UsageError("litellm is not installed; run: pip install litellm, or use the lists that assay knows.")
        path = Path(spec.submodule_search_locations[0]) / "model_prices_and_context_window_backup.json"
        source = f"litellm {importlib.metadata.version('litellm')}"
        book = cls(lists=False)
        for model, row in json.loads(path.read_text(encoding="utf-8")).items():
            if model == "sample_spec" or "input_cost_per_token" not in row or "output_cost_per_token" not in row:
                continue
            book.add(_litellm_tariff(model, row, day, source))
        return book


def _rows(suffix: str, text: str) -> Any:
    if suffix == ".csv":
        table = csv.DictReader(io.StringIO(text, newline=""))
        return [{k: v for k, v in row.items() if v not in ("", None)} for row in table]
    if suffix == ".json":
        return json.loads(text)
    import tomllib

    return tomllib.loads(text).get("price", [])


def _litellm_tariff(model: str, row: Mapping[str, Any], day: date | None, source: str) -> Tariff:
    suffixes = {0: ""}
    for key in row:
        head, mark, tail = key.partition("input_cost_per_token_above_")
        if mark and not head and tail.endswith("k_tokens"):
            suffixes[int(tail.removesuffix("k_tokens")) * 1000] = f"_above_{tail}"
    rates = []
    for start, suffix in sorted(suffixes.items()):
        prompt, completion = (row.get(f"{side}_cost_per_token{suffix}") for side in ("input", "output"))
        prompt = row["input_cost_per_token"] if prompt is None else prompt
        completion = row["output_cost_per_token"] if completion is None else completion
        cached = row.get(f"cache_read_input_token_cost{suffix}", row.get("cache_read_input_token_cost"))
        reasoning = row.get("output_cost_per_reasoning_token")
        cached = prompt if cached is None else cached
        reasoning = completion if reasoning is None else reasoning
        rates.append(Rate(start, *(float(x) / MILLION for x in (prompt, cached, completion, reasoning))))
    batch = None
    if row.get("input_cost_per_token_batches") and row["input_cost_per_token"]:
        batch = row["input_cost_per_token_batches"] / row["input_cost_per_token"]
    return Tariff(model, tuple(rates), batch=batch, day=day, source=source)


_ROW = {
    "model",
    "input",
    "output",
    "cached",
    "reasoning",
    "request",
    "hour",
    "batch",
    "tools",
    "day",
    "currency",
    "source",
}


def _tariff(row: Mapping[str, Any], line: int, currencies: Mapping[str, float], source: str) -> Tariff:
    where = f"{source or 'prices'}, row {line}"
    unknown = [name for name in row if name not in _ROW]
    if unknown == [None]:
        raise DataError(f"{where}: more values than the header has names.")
    if unknown:
        raise DataError(f"{where}: unknown field {unknown[0]!r}; fields are {', '.join(sorted(_ROW))}.")
    lacking = [name for name in ("model", "input", "output") if row.get(name) is None]
    if lacking and not (lacking != ["model"] and "model" not in lacking and row.get("hour") is not None):
        raise DataError(
            f"{where}: field {lacking[0]!r} is missing; a price needs model, input and output, or model and hour."
        )
    currency = require(row, "currency", str, where) if "currency" in row else "USD"
    if currency != "USD" and currency not in currencies:
        raise DataError(
            f"{where}: currency {currency!r} has no rate; give currencies={{{currency!r}: USD of one unit}}."
        )
    unit = 1.0 if currency == "USD" else float(currencies[currency])

    def number(name: str, default: float | None = None, scale: float = unit) -> float | None:
        value = row.get(name)
        if value is None:
            return default
        try:
            return float(value) * scale
        except (TypeError, ValueError):
            raise DataError(f"{where}: {name} {value!r} is not a number.") from None

    day = row.get("day")
    if isinstance(day, str):
        try:
            day = date.fromisoformat(day)
        except ValueError:
            raise DataError(f"{where}: day {day!r} is not YYYY-MM-DD.") from None
    if isinstance(day, datetime) or not isinstance(day, date | None):
        raise DataError(f"{where}: day {day!r} is not a day; write YYYY-MM-DD.")
    tools = row.get("tools") or {}
    if not isinstance(tools, Mapping) or not all(isinstance(cost, (int, float)) for cost in tools.values()):
        raise DataError(f"{where}: tools {tools!r:.80} must map names to prices a use; write them in JSON or TOML.")
    tariff = Tariff.of(
        str(row["model"]),
        number("input", 0.0) or 0.0,
        number("output", 0.0) or 0.0,
        cached=number("cached"),
        reasoning=number("reasoning"),
        request=number("request", 0.0),
        hour=number("hour", 0.0),
        batch=number("batch", scale=1.0),
        day=day,
        source=str(row.get("source", source)),
    )
    return replace(tariff, tools={str(name): float(cost) * unit for name, cost in tools.items()})
