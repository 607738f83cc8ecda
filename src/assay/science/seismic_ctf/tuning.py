"""Search of hyper-parameters on held-out training rows; never on the test."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.datasets.readers import read_text
from assay.core.errors import DataError, UsageError
from assay.science.seismic_ctf.data import Pair, validation_scores, validation_split
from assay.science.seismic_ctf.protocol import seeded_copy

Space = Mapping[str, Mapping[str, Any]]
TYPES = ("uniform", "quniform", "loguniform", "qloguniform", "randn", "randint", "lograndint", "choice")


@dataclass(frozen=True, slots=True)
class Found:
    """Best settings, their objective (sum of the pair's scores), trials that failed, and all trials."""

    settings: dict[str, Any]
    value: float
    failed: int
    trials: list[dict[str, Any]]


def parse_space(text: str) -> Space:
    """A search space from JSON; every field is checked."""
    try:
        space = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The search space is not JSON ({error}).") from None
    if not isinstance(space, dict) or not space:
        raise UsageError("The search space must be an object of parameters by name.")
    for name, entry in space.items():
        kind = entry.get("type") if isinstance(entry, dict) else None
        if kind not in TYPES:
            raise UsageError(f"Parameter {name!r}: type must be one of {', '.join(TYPES)}; got {kind!r}.")
        needs = {"choice": ("choices",), "randn": ("mean", "sd")}.get(kind, ("lower_bound", "upper_bound"))
        if missing := [key for key in needs if key not in entry]:
            raise UsageError(f"Parameter {name!r} of type {kind} lacks {missing[0]}.")
        if "lower_bound" in needs and not entry["lower_bound"] < entry["upper_bound"]:
            raise UsageError(f"Parameter {name!r}: lower_bound must be below upper_bound.")
        if "log" in kind and entry["lower_bound"] <= 0:
            raise UsageError(f"Parameter {name!r}: a logarithmic range begins above zero.")
    return space


def draw(entry: Mapping[str, Any], rng: np.random.Generator) -> Any:
    """One value of a parameter. Upper bounds of whole numbers are excluded, as in Ray Tune."""
    kind = entry["type"]
    if kind == "choice":
        return entry["choices"][int(rng.integers(len(entry["choices"])))]
    if kind == "randn":
        return float(rng.normal(entry["mean"], entry["sd"]))
    low, high = entry["lower_bound"], entry["upper_bound"]
    if kind == "randint":
        return int(rng.integers(low, high))
    if kind == "lograndint":
        return int(min(high - 1, max(low, math.floor(math.exp(rng.uniform(math.log(low), math.log(high)))))))
    value = math.exp(rng.uniform(math.log(low), math.log(high))) if "log" in kind else float(rng.uniform(low, high))
    if kind.startswith("q"):
        step = float(entry.get("q", 1.0))
        value = min(high, max(low, round(value / step) * step))
    return value


def search(
    method: str | Callable[..., Any],
    pair: Pair,
    space: Space,
    *,
    trials: int = 20,
    train_split: float = 0.8,
    seed: int = 0,
    log: Path | None = None,
) -> Found:
    """Random search: the settings with the largest sum of the pair's scores on the held-out rows.

    Parameters
    ----------
    method
        Name of a method, or a factory.
    log
        File of finished trials, one JSON line each; those in it are not tried again.

    Raises
    ------
    UsageError
        Fewer than one trial; every trial failed.
    """
    from assay.science.seismic_ctf.methods import Factory

    if trials < 1:
        raise UsageError(f"trials must be at least 1; got {trials}.")
    make = Factory(method) if isinstance(method, str) else method
    split = validation_split(pair, train_split)
    done = _read_log(log, space) if log is not None else []
    for number in range(trials):
        rng = np.random.default_rng([seed, number])
        settings = {name: draw(space[name], rng) for name in sorted(space)}
        if number < len(done):
            if done[number]["settings"] != json.loads(json.dumps(settings)):
                raise DataError(f"{log}, line {number + 1} is of another search; give another folder.")
            continue
        row: dict[str, Any] = {"trial": number, "settings": settings, "value": None, "error": None}
        try:
            model = seeded_copy(make(**settings), int(rng.integers(2**31)))
            with np.errstate(all="ignore"):
                model.fit(split.train, split.init, split.times)
                found = model.predict(split.times.test)
            value = sum(validation_scores(pair, split, found).values())
            row["value"] = value if math.isfinite(value) else None
        except UsageError:
            raise
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:200]
        done.append(row)
        if log is not None:
            with log.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
    good = [row for row in done[:trials] if row["value"] is not None]
    if not good:
        reason = next((row["error"] for row in done if row["error"]), "no finite score")
        raise UsageError(f"All {trials} trials failed; the first: {reason}")
    best = max(good, key=lambda row: row["value"])
    return Found(best["settings"], best["value"], trials - len(good), done[:trials])


def _read_log(log: Path, space: Space) -> list[dict[str, Any]]:
    if not log.is_file():
        return []
    rows = []
    lines = read_text(log).splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except (ValueError, RecursionError):
            if number == len(lines):
                # A torn last line: that trial is done again.
                log.write_text("".join(one + "\n" for one in lines[:-1]), encoding="utf-8")
                break
            raise DataError(f"{log}, line {number} is not JSON.") from None
    return rows
