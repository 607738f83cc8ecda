"""A board of ``toy_labels`` with a truth, made and sent to over the API."""

from __future__ import annotations

import json

from assay.server.boards.submissions import sealed_folder
from assay.server.boards.worker import Worker

N = 20
TRUTH = {f"s{i}": str(i * 5 % 7 % 2) for i in range(N)}


def seal(house):
    folder = sealed_folder(house.settings)
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, value in (("truth.json", {"truth": "./labels.json"}), ("labels.json", TRUTH)):
        (folder / name).write_text(json.dumps(value))
        (folder / name).chmod(0o600)


def make(house, name="toy", **rules):
    """A board that is open; (key, worker)."""
    seal(house)
    made = house.program("admin").post(
        "/api/boards", json={"name": name, "benchmark": "toy_labels", "sealed": "truth.json", **rules}
    )
    assert made.status_code == 201, made.text
    worker = Worker(house.database, house.settings)
    worker.step()
    return made.json()["id"], worker


def predictions(right=N):
    rows = [{"id": f"s{i}", "label": TRUTH[f"s{i}"] if i < right else "x"} for i in range(N)]
    return "\n".join(map(json.dumps, rows)).encode()


def send(client, key, content=None, system="guess", file="p.jsonl"):
    return client.post(
        f"/api/boards/{key}/submissions", params={"system": system, "file": file}, content=content or predictions()
    )
