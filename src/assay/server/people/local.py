"""A server for one run on this machine: ``python -m assay.server.people.local ROOT RUNS PORT``.

Listens on 127.0.0.1 (port 0 = any that is free), writes one line of JSON with address and token to standard output, and
ends when its standard input does. `assay.systems.human` starts it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import sys
import threading
import time
from pathlib import Path

from assay.server import accounts
from assay.server.database import Database, now

ACCOUNT = "this machine"
TOKEN_DAYS = 90.0


def main() -> None:
    """Serve until standard input ends."""
    import uvicorn

    from assay.server.app import create_app
    from assay.server.database import open_database
    from assay.server.security import SecretFilter
    from assay.server.settings import Limits, Settings

    root, runs, port = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    listener = listen(port, root / "people-port")
    # One machine, one person at it: the limit against floods would only slow scripts down.
    limits = Limits(requests_a_minute=100_000)
    settings = Settings(root=root, runs=runs, port=listener.getsockname()[1], limits=limits)
    settings.prepare()
    database = open_database(settings.database)
    token = issue(database)
    handler = logging.StreamHandler()
    handler.addFilter(SecretFilter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], format="%(asctime)s %(levelname)s %(message)s")
    config = uvicorn.Config(create_app(settings, database), log_config=None, access_log=False, server_header=False)
    server = uvicorn.Server(config)

    def watch() -> None:
        while not server.started and not server.should_exit:
            time.sleep(0.02)
        print(json.dumps({"url": settings.url, "port": settings.port, "token": token}), flush=True)
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=watch, daemon=True).start()
    server.run(sockets=[listener])
    withdraw(database, token)
    database.close()


def listen(port: int, kept: Path) -> socket.socket:
    """Listen on a port; where any will do, on that of the last time if it is free: links stay what they were."""
    with contextlib.suppress(OSError, ValueError):
        return socket.create_server(("127.0.0.1", port or int(kept.read_text())))
    listener = socket.create_server(("127.0.0.1", port))
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept.write_text(str(listener.getsockname()[1]))
    return listener


def issue(database: Database) -> str:
    """A token of the account that stands for this machine."""
    with database.session() as session:
        account = accounts.find_account(session, ACCOUNT) or accounts.create_account(session, ACCOUNT, "submitter")
        return accounts.issue_token(session, account, "run on this machine", TOKEN_DAYS)


def withdraw(database: Database, token: str) -> None:
    """Make the token worthless."""
    with database.session() as session:
        found = accounts.token_account(session, token)
        if found is not None:
            found[1].revoked = now()


if __name__ == "__main__":
    main()
