"""The server's database: SQLite in a file, or PostgreSQL by URL; one session a request."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from assay.core.errors import MissingExtra, UsageError

SCHEMA = 1
"""Version of the tables; a database that a newer assay wrote is refused."""
CONNECTIONS = 40
"""As many as there are threads that answer requests."""
# Tables know their base, so they are imported when a database is opened.
_TABLES = ("assay.server.accounts", "assay.server.boards.tables", "assay.server.people.tables")


def now() -> dt.datetime:
    """The time, in UTC."""
    return dt.datetime.now(dt.UTC)


class Instant(sa.types.TypeDecorator[dt.datetime]):
    """A point in time: aware and in UTC on both sides, whatever the database keeps."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: dt.datetime | None, dialect: sa.Dialect) -> dt.datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a zone")
        return value.astimezone(dt.UTC)

    def process_result_value(self, value: dt.datetime | None, dialect: sa.Dialect) -> dt.datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)


class Base(DeclarativeBase):
    """All tables of the server. A ``datetime`` is kept as `Instant`, a ``dict`` or ``list`` as JSON."""

    type_annotation_map = {dt.datetime: Instant, dict[str, Any]: sa.JSON, list[Any]: sa.JSON}


class SchemaVersion(Base):
    """One row: the version of the tables."""

    __tablename__ = "schema_version"
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Database:
    """An open database.

    Use ``with database.session() as session:`` to write (committed at the end, rolled back on an exception) and
    ``with database.reading() as session:`` to read. SQLite has one writer at a time: a writing session takes the lock
    when it begins, so that what it reads stays true until it commits; on PostgreSQL use ``with_for_update`` for that.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self._writing = engine.execution_options(immediate=True)

    @property
    def is_sqlite(self) -> bool:
        """Whether it is SQLite."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A transaction that may write."""
        with Session(self._writing, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that only reads."""
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def open_database(url: str) -> Database:
    """Open a database and make what tables it lacks.

    Raises
    ------
    UsageError
        The URL is of no database that assay knows, it cannot be reached, or a newer assay wrote it.
    """
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        raise UsageError(
            "The database URL cannot be read; write sqlite:///FILE or postgresql://USER@HOST/NAME."
        ) from None
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        if find_spec("psycopg") is None:
            raise MissingExtra("A PostgreSQL database", "server")
        engine = sa.create_engine(
            parsed.set(drivername="postgresql+psycopg"), pool_size=CONNECTIONS, max_overflow=0, pool_pre_ping=True
        )
    elif backend == "sqlite" and parsed.database:
        Path(parsed.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Before SQLite makes it: its log beside it, which holds the same data, gets the mode that the file has.
        with suppress(OSError):
            Path(parsed.database).touch(mode=0o600)
        engine = sa.create_engine(parsed, pool_size=CONNECTIONS, max_overflow=0, connect_args={"timeout": 30})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        raise UsageError(f"assay keeps its data in SQLite (a file) or PostgreSQL, not in {backend!r}.")
    for module in _TABLES:
        import_module(module)
    database = Database(engine)
    try:
        _create(database)
    except OperationalError as error:
        engine.dispose()
        reason = str(error.orig).strip().splitlines()[0] if error.orig else "no answer"
        raise UsageError(
            f"The database {parsed.render_as_string(hide_password=True)} cannot be used: {reason}"
        ) from None
    if database.is_sqlite:
        Path(str(parsed.database)).chmod(0o600)
    return database


def _create(database: Database) -> None:
    with database.session() as session:
        if not database.is_sqlite:
            # Two servers that start at once would both make the tables.
            session.execute(sa.text("SELECT pg_advisory_xact_lock(4711)"))
        connection = session.connection()
        if sa.inspect(connection).has_table("schema_version"):
            found = session.scalar(sa.select(SchemaVersion.version)) or 0
            if found > SCHEMA:
                raise UsageError(
                    f"The database was written by a newer assay (version {found} of the tables, this one knows "
                    f"{SCHEMA}); update assay, or restore a backup."
                )
        Base.metadata.create_all(connection)
        if session.scalar(sa.select(SchemaVersion.version)) is None:
            session.add(SchemaVersion(version=SCHEMA))


def _prepare_sqlite(connection: Any, record: Any) -> None:
    # Transactions are begun by `_begin_sqlite`, not by the driver, which would begin them late.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "foreign_keys=ON", "busy_timeout=30000", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    immediate = connection.get_execution_options().get("immediate")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
