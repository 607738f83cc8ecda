"""Somebody at a study's page, without a browser: the link, the cookie, the CSRF token, questions and answers."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import urlsplit


class Visitor:
    """Joins by the link with any client that has ``get`` and ``post`` (requests of httpx, or a TestClient)."""

    def __init__(self, client: Any, link: str) -> None:
        self.client = client
        path = urlsplit(link).path
        token = csrf(client.get(path).text)
        self.joined = client.post(path, data={"csrf": token})
        assert self.joined.status_code == 303, self.joined.text
        self.base = self.joined.headers["location"]
        self.headers = {"X-CSRF-Token": csrf(client.get(self.base).text), "Accept": "application/json"}

    def next(self) -> dict[str, Any]:
        """The question at hand, or wait or done."""
        return self._said(self.client.get(f"{self.base}/next", headers=self.headers))

    def send(self, question: str, value: Any, seconds: float = 0.5, to: str = "answer") -> dict[str, Any]:
        """An answer or a draft."""
        body = {"question": question, "value": value, "seconds": seconds}
        return self._said(self.client.post(f"{self.base}/{to}", json=body, headers=self.headers))

    def answer_all(self, answer: Any, *, patience: float = 60.0) -> int:
        """Answer by ``answer(question)`` until the study is done; how many it were."""
        count, end, found = 0, time.monotonic() + patience, self.next()
        while found["state"] != "done":
            if found["state"] == "wait":
                assert time.monotonic() < end, "nothing came and the study was not closed"
                time.sleep(0.02)
                found = self.next()
                continue
            found = self.send(found["question"], answer(found))["next"]
            count += 1
        return count

    @staticmethod
    def _said(response: Any) -> dict[str, Any]:
        assert response.status_code == 200, f"{response.status_code}: {response.text}"
        return response.json()


def csrf(page: str) -> str:
    """The token in a page."""
    found = re.search(r'data-csrf="([0-9a-f]+)"', page)
    assert found, page
    return found[1]


def text_of(question: dict[str, Any]) -> str:
    """Text of a question's messages."""
    return "\n".join(p["text"] for m in question["messages"] for p in m["parts"] if p["type"] == "text")
