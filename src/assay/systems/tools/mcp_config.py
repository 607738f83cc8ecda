"""Configuration of MCP servers, as the clients of the field write it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.core.datasets.readers import read_json
from assay.core.errors import UsageError

_VARIABLE = re.compile(r"\$\{(?:env:)?(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")
_HTTP = ("http", "streamable-http", "streamable_http", "streamableHttp")


@dataclass(frozen=True, slots=True)
class Server:
    """One server: a command that this machine runs, or an address."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    sse: bool = False

    def __repr__(self) -> str:  # env and headers may hold keys
        return f"Server({self.name!r}, {self.url or self.command!r})"


def read_config(config: str | Path | Mapping[str, Any], headers: Mapping[str, str]) -> list[Server]:
    """Servers of a URL, a mapping, or a JSON file; ``headers`` go to every one with a URL.

    Raises
    ------
    UsageError
        Something is missing, of the wrong type, or names a variable that is not set.
    DataError
        The file cannot be read.
    """
    where = "The MCP configuration"
    body: Any = config
    if isinstance(config, str) and config.startswith(("http://", "https://")):
        body = {"server": {"url": config}}
    elif isinstance(config, (str, Path)):
        where = f"The MCP configuration {config}"
        body = read_json(config)
    if not isinstance(body, Mapping):
        raise UsageError(f"{where} is {type(body).__name__}; it must be a URL, a mapping, or a JSON file.")
    for key in ("mcpServers", "servers"):
        if isinstance(body.get(key), Mapping):
            body = body[key]
            break
    if isinstance(body.get("command"), str) or isinstance(body.get("url"), str):
        body = {"server": body}
    found = [_server(str(n), entry, headers, where) for n, entry in body.items() if not _disabled(entry)]
    if not found:
        raise UsageError(f"{where} names no server; give a url or a command.")
    return found


def _disabled(entry: Any) -> bool:
    return isinstance(entry, Mapping) and entry.get("disabled") is True


def _server(name: str, entry: Any, headers: Mapping[str, str], where: str) -> Server:
    place = f"{where}, server {name!r}"
    if not isinstance(entry, Mapping):
        raise UsageError(f"{place} is {entry!r}; it must be a mapping with a url or a command.")
    url, command = entry.get("url"), entry.get("command")
    if isinstance(url, str) == isinstance(command, str):
        raise UsageError(f"{place} needs either a url or a command, and has {', '.join(map(str, entry)) or 'nothing'}.")
    if isinstance(url, str):
        kind = entry.get("type") or entry.get("transport") or "http"
        if kind not in (*_HTTP, "sse"):
            raise UsageError(f"{place} has the type {kind!r}; known are http and sse.")
        own = _texts(entry.get("headers"), f"{place}, headers")
        address = _filled(url, place)
        if not address.startswith(("http://", "https://")):
            raise UsageError(f"{place} has the url {address!r}; it must begin with http:// or https://.")
        return Server(name, url=address, headers={**headers, **own}, sse=kind == "sse")
    args = entry.get("args", [])
    if not isinstance(args, list | tuple) or not all(isinstance(a, str) for a in args):
        raise UsageError(f"{place} has the args {args!r}; they must be a list of texts.")
    cwd = entry.get("cwd")
    return Server(
        name,
        command=_filled(str(command), place),
        args=tuple(_filled(a, place) for a in args),
        env=_texts(entry.get("env"), f"{place}, env"),
        cwd=None if cwd is None else _filled(str(cwd), place),
    )


def _texts(value: Any, place: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(v, str) for v in value.values()):
        raise UsageError(f"{place} must be a mapping of texts.")
    return {str(k): _filled(v, place) for k, v in value.items()}


def _filled(text: str, place: str) -> str:
    def one(match: re.Match[str]) -> str:
        value = os.environ.get(match["name"], match["default"])
        if value is None:
            raise UsageError(f"{place} names the variable {match['name']}, which is not set; export it.")
        return value

    return _VARIABLE.sub(one, text)
