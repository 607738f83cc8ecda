"""What a server is told when it starts: where its files are, what it listens on, what it allows."""

from __future__ import annotations

import ipaddress
import os
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from assay.core.errors import UsageError

MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """Bounds on what anyone may ask of the server.

    Parameters
    ----------
    body_bytes, upload_bytes
        Largest body of a request, and of one that uploads a submission.
    requests_a_minute
        Requests a session or token may make; whoever is not signed in shares this number with their address.
    sign_in_failures
        Wrong passwords for one name from one address in a quarter of an hour; a whole address gets four times as many,
        a name from all addresses together ten times.
    session_hours
        How long a session lasts without use; a session ends after seven times that in any case.
    submissions_a_day
        Submissions a team may make to one board in a day, where the board does not say.
    """

    body_bytes: int = MEGABYTE
    upload_bytes: int = 256 * MEGABYTE
    requests_a_minute: int = 600
    sign_in_failures: int = 5
    session_hours: float = 24.0
    submissions_a_day: int = 10


@dataclass(frozen=True)
class Settings:
    """One server.

    Parameters
    ----------
    root
        Its own folder: database, uploads, key. Made with mode 0700.
    runs
        The folder whose runs it shows.
    database_url
        SQLAlchemy URL (``postgresql+psycopg://...``); None = a SQLite file in ``root``.
    host, port
        What to listen on.
    tls_certificate, tls_key
        PEM files; both or none.
    public_url
        How people reach the server where that differs from host and port (a proxy in front of it).
    insecure_bind
        Listen beyond this machine without TLS.
    """

    root: Path
    runs: Path
    database_url: str | None = None
    host: str = "127.0.0.1"
    port: int = 8765
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    public_url: str | None = None
    insecure_bind: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise UsageError("TLS needs both files: --tls-cert FILE and --tls-key FILE.")
        for path in (self.tls_certificate, self.tls_key):
            if path is not None and not path.is_file():
                raise UsageError(f"The TLS file {path} does not exist.")
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
                raise UsageError(
                    f"--public-url takes a scheme and a host (https://eval.example.org), not {self.public_url!r}."
                )
        if not is_loopback(self.host) and self.tls_certificate is None and not self.insecure_bind:
            raise UsageError(
                f"{self.host} can be reached from other machines, and without TLS passwords would cross the network as "
                "text; give --tls-cert and --tls-key, or --insecure-bind when something in front of it does TLS."
            )

    @property
    def database(self) -> str:
        """URL of the database."""
        return self.database_url or f"sqlite:///{(self.root / 'server.sqlite').resolve()}"

    @property
    def url(self) -> str:
        """Where people reach the server, without a slash at the end."""
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        scheme = "https" if self.tls_certificate else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"

    @property
    def secure(self) -> bool:
        """Whether people reach it over TLS."""
        return self.url.startswith("https:")

    @property
    def hosts(self) -> frozenset[str] | None:
        """Names a request may call the server by; None = any, where it listens on every address under no known name."""
        known = {self.host, urlsplit(self.url).hostname or self.host}
        if self.host in ("0.0.0.0", "::") and self.public_url is None:
            return None
        if is_loopback(self.host):
            known |= {"localhost", "127.0.0.1", "::1"}
        return frozenset(known)

    @cached_property
    def key(self) -> bytes:
        """The server's secret, 32 bytes: signs CSRF tokens and receipts. Written once, readable by its owner alone."""
        self.prepare()
        path = self.root / "key"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            key = path.read_bytes()
            if len(key) != 32:
                raise UsageError(
                    f"{path} does not hold 32 bytes; restore it, or delete it to end all sessions."
                ) from None
            return key
        key = secrets.token_bytes(32)
        with os.fdopen(handle, "wb") as file:
            file.write(key)
        return key

    def prepare(self) -> None:
        """Make the server's folder."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
