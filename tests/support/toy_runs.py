"""Run folders of toy_judged made by hand: as they are right after planning, and records to journal into them."""

from __future__ import annotations

import json

import msgspec
import polars as pl

from assay.core.metering import Call
from assay.core.store import Record, Store

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>"


def bare_run(folder, n, **info):
    """A run folder as it is right after its plan was made."""
    manifest = {
        "benchmark": "toy_judged", "system": "doubler", "status": "running", "trials": n, "named": True,
        "options": {"n": n}, "created": "2026-01-01T00:00:00+00:00", "title": "Checklists",
        "tasks": {"judged": {"samples": n, "attempts": 1, "resample": "samples"}},
    }  # fmt: skip
    store = Store.create(folder, manifest | info)
    ids = [f"q{i}" for i in range(n)]
    columns = {"task": ["judged"] * n, "sample": ids, "index": range(n), "cluster": ids}
    groups = {"target": ['"rubric"'] * n, "n_items": [1 + i % 3 for i in range(n)]}
    store.write_samples(pl.DataFrame(columns | groups))
    return store


def record(i, rng, **more):
    met = float(rng.randrange(2))
    text = f"answer {rng.randrange(1000)} to {i}"
    known = {
        "scores": {"met": met}, "output": msgspec.Raw(json.dumps(text).encode()), "seconds": rng.random(),
        "started": 1.7e9 + i, "groups": {"end": rng.choice(["stop", "length"])},
        "calls": [Call("subject", "toy", calls=1, prompt_tokens=3, cost=0.001)],
    }  # fmt: skip
    return Record("judged", f"q{i}", 0, i, i, **(known | more))
