"""serve: the server, until it is stopped."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from assay.cli import DONE
from assay.core.errors import MissingExtra, UsageError
from assay.core.results import runs_folder


def serve_(arguments: Any) -> int:
    """Start the server and say how to reach it."""
    try:
        import uvicorn

        from assay.server.app import create_app
        from assay.server.database import open_database
    except ModuleNotFoundError as error:
        if str(error.name).startswith("assay"):
            raise
        raise MissingExtra("The server", "server") from error
    from assay.server.settings import MEGABYTE, Limits, Settings

    if arguments.upload_mb < 1:
        raise UsageError(f"--upload-mb takes a whole number of megabytes, not {arguments.upload_mb}.")
    limits = Limits(upload_bytes=arguments.upload_mb * MEGABYTE)
    settings = Settings(
        root=Path(arguments.root),
        runs=Path(arguments.runs) if arguments.runs else runs_folder(),
        database_url=arguments.database,
        host=arguments.host,
        port=arguments.port,
        tls_certificate=Path(arguments.tls_cert) if arguments.tls_cert else None,
        tls_key=Path(arguments.tls_key) if arguments.tls_key else None,
        public_url=arguments.public_url,
        insecure_bind=arguments.insecure_bind,
        limits=limits,
    )
    listener = listen(settings.host, settings.port)
    settings.prepare()
    database = open_database(settings.database)
    link = first_link(database, settings, arguments.admin)
    invitation = f"\nSet a password with this link; it works once:\n{link}" if link else ""
    print(f"Serving {settings.runs} at {settings.url}{invitation}", file=sys.stderr, flush=True)
    config = uvicorn.Config(
        create_app(settings, database),
        host=settings.host,
        port=settings.port,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        log_config=log_config(),
        access_log=arguments.access_log,
        server_header=False,
        # Whose address a request has is taken from a proxy's word only where there is one.
        proxy_headers=settings.public_url is not None,
        h11_max_incomplete_event_size=64 * 1024,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=10,
    )
    server = uvicorn.Server(config)
    from assay.server.boards import worker

    scoring = contextlib.nullcontext() if arguments.no_worker else worker.started(settings)
    # Having stopped, the server sends itself the signal that stopped it: what follows is to run all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(DONE))
    try:
        with scoring, contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    finally:
        database.close()
    return DONE


def listen(host: str, port: int) -> socket.socket:
    """A socket to serve from."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition(" (")[0].lower()
        raise UsageError(f"{host}:{port} cannot be listened on ({reason}); --port names another port.") from None


def first_link(database: Any, settings: Any, admin: str | None) -> str | None:
    """A one-time link for the named admin, or for the first one where there is none who could sign in."""
    import sqlalchemy as sa

    from assay.server import accounts

    with database.session() as session:
        if admin is None:
            usable = sa.select(sa.func.count()).where(
                accounts.Account.role == "admin", accounts.Account.active, accounts.Account.password_hash.is_not(None)
            )
            if session.scalar(usable):
                return None
            admin = "admin"
        account = accounts.find_account(session, admin)
        if account is None:
            account = accounts.create_account(session, admin, "admin")
            accounts.audit(session, "account made", account.name, actor="command line", role="admin")
        elif account.role != "admin" or not account.active:
            raise UsageError(f"The account {account.name!r} is no open admin account; name another with --admin.")
        accounts.audit(session, "account: link", account.name, actor="command line")
        return f"{settings.url}/join/{accounts.issue_invitation(session, account)}"


def log_config() -> dict[str, Any]:
    """Logs on standard error, without secrets."""
    handler = {"class": "logging.StreamHandler", "formatter": "plain", "filters": ["secrets"]}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"secrets": {"()": "assay.server.security.SecretFilter"}},
        "formatters": {
            "plain": {"format": "%(asctime)s %(levelname)s %(message)s"},
            "access": {
                "()": "uvicorn.logging.AccessFormatter",
                "fmt": '%(asctime)s %(client_addr)s "%(request_line)s" %(status_code)s',
                "use_colors": False,
            },
        },
        "handlers": {"plain": handler, "access": {**handler, "formatter": "access"}},
        "loggers": {
            "uvicorn": {"handlers": ["plain"], "level": "WARNING", "propagate": False},
            "uvicorn.access": {"handlers": ["access"], "level": "INFO", "propagate": False},
            "assay.server": {"handlers": ["plain"], "level": "INFO", "propagate": False},
        },
    }
