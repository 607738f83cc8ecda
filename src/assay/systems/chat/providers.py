"""Providers: base URLs, key variables and peculiarities of OpenAI-compatible services."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

import msgspec

from assay.core.errors import UsageError, unknown_name


@dataclass(frozen=True, slots=True)
class Provider:
    """One row of ``providers.toml``; the file explains the fields."""

    name: str
    base_url: str
    key: tuple[str, ...] = ()
    url_variable: tuple[str, ...] = ()
    key_optional: str | None = None
    max_tokens: str = "max_tokens"
    seed: str = "seed"
    single: bool = False
    prices: str | None = None
    reports_cost: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    fixed: str | None = None
    refused: tuple[str, ...] = ()

    def refuses(self, model: str) -> frozenset[str]:
        """Sampling fields that ``model`` does not take."""
        return frozenset(self.refused) if self.fixed and re.search(self.fixed, model) else frozenset()


@cache
def providers() -> Mapping[str, Provider]:
    """All providers by name."""
    text = resources.files("assay.systems").joinpath("providers.toml").read_text(encoding="utf-8")
    return {name: msgspec.convert({"name": name, **row}, Provider) for name, row in tomllib.loads(text).items()}


def provider(name: str) -> Provider:
    """The provider called ``name``; UsageError with the nearest names otherwise."""
    try:
        return providers()[name]
    except KeyError:
        raise unknown_name("provider", name, providers()) from None


def base_url_of(provider: Provider, given: str | None = None) -> str:
    """Base URL in force: the one given, else the vendor's own variable, else the table's. Without a trailing slash.

    Raises
    ------
    UsageError
        The URL is not http(s), or holds credentials: names of systems are written to run folders, keys never are.
    """
    source, url = "the system name", given
    if url is None:
        source, url = "providers.toml", provider.base_url
        for variable in provider.url_variable:
            if os.environ.get(variable):
                source, url = variable, os.environ[variable]
                break
        if provider.name == "ollama" and source == "OLLAMA_HOST":
            url = _ollama_url(url)
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise UsageError(
            f"The base URL of {provider.name} (from {source}) holds a user name or password; "
            f"put the key into {_key_names(provider) or 'an environment variable'} instead."
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"The base URL {url!r} of {provider.name} (from {source}) is not an address; "
            "give one such as http://localhost:8000/v1."
        )
    return url.rstrip("/")


def _ollama_url(host: str) -> str:
    # Ollama's own variable is HOST, HOST:PORT or a URL without /v1; 0.0.0.0 is what a server listens on.
    url = host if "//" in host else f"http://{host}"
    parts = urlsplit(url)
    name = "localhost" if parts.hostname == "0.0.0.0" else parts.hostname
    if parts.path.rstrip("/"):
        return url
    return f"{parts.scheme}://{name}:{parts.port or 11434}/v1"


def _key_names(provider: Provider) -> str:
    names = provider.key or ((provider.key_optional,) if provider.key_optional else ())
    return " or ".join(names)


def is_own_host(provider: Provider, base_url: str) -> bool:
    """Whether ``base_url`` is the vendor's own service rather than a compatible server elsewhere."""
    return urlsplit(base_url).hostname == urlsplit(provider.base_url).hostname


def is_loopback(base_url: str) -> bool:
    """Whether ``base_url`` lies on this machine."""
    host = urlsplit(base_url).hostname or ""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def key_of(provider: Provider, base_url: str) -> str | None:
    """Key from the environment, None where the service wants none.

    Raises
    ------
    UsageError
        No variable that may hold the key is set.
    """
    for variable in provider.key or ((provider.key_optional,) if provider.key_optional else ()):
        value = os.environ.get(variable, "").strip()
        if value:
            if not value.isascii() or not value.isprintable():
                raise UsageError(
                    f"The key in {variable} holds characters that cannot be sent in a header; set it anew."
                )
            return value
    if provider.key and not is_loopback(base_url):
        raise UsageError(f"No key for {provider.name}: set the environment variable {_key_names(provider)}.")
    return None
