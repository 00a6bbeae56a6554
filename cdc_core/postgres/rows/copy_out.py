"""Reads entire tables: one snapshot shared by many connections, and COPY … TO STDOUT as chunks of bytes.

    holder (driver)            pg_export_snapshot ─▶ name
    copy_chunks (each worker)  SET TRANSACTION SNAPSHOT name; COPY (SELECT …) TO STDOUT ─▶ bytes, complete lines

The holder's transaction stays open as long as there are readers; the name is valid until it ends.

A snapshot does not protect against one case: a table that is truncated, or rewritten by ALTER TABLE, after it was taken
and before it is read appears empty. A truncate is also in the stream, after the snapshot, so applying it corrects the
result; against a rewrite only ``SnapshotHolder.lock`` helps.
"""

from __future__ import annotations

import re
import select
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn

from cdc_core.errors import LockedError, SourceError, TransientError, UnsendableRowError
from cdc_core.lsn import Lsn
from cdc_core.postgres.connection import Connection, ConnectionString, connect_with, has_raw_text
from cdc_core.postgres.rows.reading import BEGIN, begin_reading, current_snapshot
from cdc_core.postgres.server import wal_end
from cdc_core.postgres.settings import CATALOGUE_PATH, ROLES_PATH, require_own
from cdc_core.postgres.sqlstate import one_row, row_fault, server_error, translated
from cdc_core.schema import TableId, TableSchema

_WAIT_MS = 1000
_SILENT_WAITS = 3600
_HAS_JIT = 110_000


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """Facts of a snapshot.

    ``name`` is imported by workers. ``visible`` is the text of pg_current_snapshot(): the transactions that it shows.
    ``lsn`` is the end of WAL just after it was taken: transactions committed later end after it. ``txid`` is a
    transaction id assigned just before it, None on a standby. ``timestamp_us`` is its CURRENT_TIMESTAMP, microseconds
    since 1970-01-01T00:00:00Z.
    """

    name: str
    visible: str
    lsn: Lsn
    txid: int | None
    timestamp_us: int


class SnapshotHolder:
    """A transaction, REPEATABLE READ and READ ONLY, that keeps a snapshot alive until ``close``.

    ``imported`` is a name exported elsewhere (by the creation of a slot); it need not remain valid after that, because
    workers import the name that this transaction exports. Owns the connection. Raises SourceError or TransientError.
    """

    def __init__(self, connection: Connection, imported: str | None = None) -> None:
        self._connection = connection
        with translated("taking a snapshot"):
            # Assigned outside: a transaction with an id would delay the creation of any slot in the meantime.
            txid = _draw_txid(connection)
            visible = begin_reading(connection) if imported is None else _imported(connection, imported)
            row = one_row(
                connection,
                "SELECT pg_export_snapshot(), "
                "(extract(epoch FROM current_timestamp) * 1000000)::numeric(20, 0)::bigint",
            )
        self.facts = SnapshotFacts(row[0], visible, wal_end(connection), txid, row[1])

    def __enter__(self) -> SnapshotHolder:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The name that workers import."""
        return self.facts.name

    @property
    def connection(self) -> Connection:
        """The connection, for reading the catalogue as of the snapshot."""
        return self._connection

    def lock(self, tables: Sequence[TableId], timeout_ms: int) -> None:
        """Prevent the tables from being truncated, rewritten or dropped until ``close``; rows may change.

        Raises TransientError if a lock is not granted within ``timeout_ms`` (0: no limit).
        """
        if not tables:
            return
        names = sql.SQL(", ").join(sql.Identifier(table.schema, table.table) for table in tables)
        with translated("locking the tables to be read"):
            self._connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(timeout_ms)))
            self._connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(names))

    def run(self, statements: str) -> None:
        """Execute SQL of the user's that locks tables, in the transaction. Raises SourceError or TransientError."""
        with translated("locking the tables to be read"):
            self._connection.execute(ROLES_PATH)
            self._connection.execute(statements.encode())
            self._connection.execute(CATALOGUE_PATH)

    def check(self) -> None:
        """Raise TransientError if the transaction, and thereby the snapshot, has ended."""
        with translated("keeping the snapshot open"):
            self._connection.execute("SELECT 1")

    def close(self) -> None:
        """End the transaction and the connection."""
        with suppress(psycopg.Error):
            self._connection.rollback()
        self._connection.close()


def select_sql(
    table: TableId, columns: Sequence[str], condition: str = "", *, only: bool = False, alias: str | None = None
) -> str:
    """Return ``SELECT "a", "b" FROM "s"."t"`` with an optional condition (a range of ctid).

    ``only`` excludes the tables that inherit from it. For a table without columns, rows without columns are selected.
    The condition may contain the table's ``alias``.
    """
    query = sql.SQL("SELECT {} FROM {}{}{}").format(
        sql.SQL(", ").join(sql.Identifier(column) for column in columns),
        sql.SQL("ONLY " if only else ""),
        sql.Identifier(table.schema, table.table),
        sql.SQL("") if alias is None else sql.SQL(" AS {}").format(sql.Identifier(alias)),
    )
    return query.as_string() + (f" WHERE {condition}" if condition else "")


def own_rows_sql(table: TableSchema, columns: Sequence[str], condition: str = "") -> str:
    """Return ``select_sql`` for the rows whose changes are sent under the table's name.

    Changes of tables that inherit from it are sent under their own names. A partitioned table has its partitions' rows.
    """
    is_ordinary = table.fingerprint is not None and not table.is_partitioned
    return select_sql(table.id, columns, condition, only=is_ordinary)


def select_from(statement: str, columns: Sequence[str]) -> str:
    """Return a query for the columns of a user's own SELECT, by their names; its order of rows is preserved."""
    names = sql.SQL(", ").join(sql.Identifier(column) for column in columns)
    return f"SELECT {names.as_string()} FROM ({_unended(statement)}\n) AS own"


def copy_sql(select: str) -> str:
    """Return the COPY command that returns a query's rows as text, one line each."""
    return f"COPY ({_unended(select)}\n) TO STDOUT"


def _unended(statement: str) -> str:
    """Return a statement without the semicolon at its end. What follows it begins a line: it may end in a comment."""
    return re.sub(r"\s*;[;\s]*(--[^\n'\"]*)?$", "", statement.strip())


def copy_chunks(
    target: ConnectionString,
    snapshot_name: str | None,
    select: str,
    chunk_bytes: int = 4 << 20,
    *,
    is_users: bool = False,
) -> Iterator[bytes]:
    """Yield the rows of ``select`` as lines of COPY text, in chunks of complete lines of about ``chunk_bytes``.

    Reads in a separate transaction that imports ``snapshot_name`` (None: with a new snapshot). ``is_users``: the
    statement has SQL of the user's. For Spark workers: needs only its arguments. Raises SourceError or TransientError,
    immediately or between chunks.
    """
    connection = connect_with(target)
    try:
        with translated("importing the snapshot"):
            connection.execute(BEGIN)
            if snapshot_name is not None:
                connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot_name)))
            require_own(connection)
            if is_users:
                connection.execute(ROLES_PATH)
        yield from _copied(connection, copy_sql(select), chunk_bytes)
    except psycopg.Error as error:
        raise server_error(error, "reading a table's rows") from None
    finally:
        connection.close()


class SnapshotReader:
    """Reads several queries' rows in one transaction that imports ``snapshot_name``. For Spark workers.

    ``lock_timeout_ms`` is the longest wait for a table that another session has locked (0: no limit). Raises
    SourceError or TransientError (LockedError for such a table); after an error it must be closed.
    """

    def __init__(self, target: ConnectionString, snapshot_name: str, lock_timeout_ms: int = 0) -> None:
        self._connection = connect_with(target)
        self._lock_timeout_ms = lock_timeout_ms
        try:
            with translated("importing the snapshot"):
                self._connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(lock_timeout_ms)))
                if self._connection.info.server_version >= _HAS_JIT:
                    # Each range is a separate statement, and compiling it takes longer than it saves.
                    self._connection.execute("SET jit = off")
                self._connection.execute(BEGIN)
                self._connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot_name)))
                require_own(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def copy(
        self, select: str, chunk_bytes: int = 4 << 20, table: TableId | None = None, *, is_users: bool = False
    ) -> Iterator[bytes]:
        """Yield the rows of ``select`` as lines of COPY text, in chunks of complete lines of about ``chunk_bytes``.

        ``table`` is named in errors. ``is_users``: the statement has SQL of the user's.
        """
        try:
            if is_users:
                self._connection.execute(ROLES_PATH)
            yield from copied(self._connection, select, chunk_bytes)
            if is_users:
                self._connection.execute(CATALOGUE_PATH)
        except psycopg.errors.LockNotAvailable:
            raise LockedError(str(table or "A table"), self._lock_timeout_ms) from None
        except psycopg.Error as error:
            fault = row_fault(error)
            if fault is not None:
                raise UnsendableRowError(str(table or "a table"), fault) from None
            raise server_error(error, f"reading the rows of {table}" if table else "reading a table's rows") from None

    def close(self) -> None:
        """End the transaction and the connection."""
        self._connection.close()


def copied(connection: Connection, select: str, chunk_bytes: int = 4 << 20) -> Iterator[bytes]:
    """Yield the rows of ``select`` as lines of COPY text, read in the connection's own transaction.

    After the last chunk the connection is ready for the next command; after an error it must be closed. Raises
    psycopg.Error.
    """
    yield from _copied(connection, copy_sql(select), chunk_bytes)
    while connection.pgconn.get_result() is not None:
        pass
    if has_raw_text(connection):
        connection.execute("SET client_encoding = UTF8")


def _copied(connection: Connection, command: str, chunk_bytes: int) -> Iterator[bytes]:
    if has_raw_text(connection):
        # One value that is not UTF-8 would end the command, without the name of its column.
        connection.execute("SET client_encoding = SQL_ASCII")
    # The cursor's own copy() processes each row in several layers; this only appends it, which is sufficient.
    pg = connection.pgconn
    pg.send_query(command.encode())
    poll = select.poll()
    poll.register(pg.socket, select.POLLIN)
    _begin_copy(pg, poll)
    buffer = bytearray()
    get = pg.get_copy_data
    while True:
        length, data = get(1)
        if length > 0:
            if length >= chunk_bytes:  # a line may have hundreds of megabytes: it is not copied
                if buffer:
                    yield bytes(buffer)
                    buffer.clear()
                line, data = _whole(data), memoryview(b"")
                yield line
                del line
                continue
            buffer += data
            if len(buffer) >= chunk_bytes:
                yield bytes(buffer)
                buffer.clear()
        elif length == 0:
            _await_input(pg, poll)
        else:
            break
    result = pg.get_result()
    if result is not None and result.status == ExecStatus.FATAL_ERROR:
        raise psycopg.errors.error_from_result(result, encoding="utf-8")
    if buffer:
        yield bytes(buffer)


def _whole(data: memoryview | bytes) -> bytes:
    """Return the bytes without a copy, if they are those of a bytes object."""
    behind = data.obj if isinstance(data, memoryview) else data
    return behind if isinstance(behind, bytes) and len(behind) == len(data) else bytes(data)


def _begin_copy(pg: PGconn, poll: select.poll) -> None:
    while pg.flush():
        poll.poll(_WAIT_MS)
    while pg.is_busy():
        _await_input(pg, poll)
    result = pg.get_result()
    if result is None or result.status != ExecStatus.COPY_OUT:
        if result is not None and result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result, encoding="utf-8")
        raise SourceError(
            "The statement that reads a table returns no result set.", "Check snapshot.select.statement.overrides."
        )


def _await_input(pg: PGconn, poll: select.poll) -> None:
    for _ in range(_SILENT_WAITS):
        readable = poll.poll(_WAIT_MS)
        if readable or pg.ssl_in_use:
            pg.consume_input()
            return
    raise TransientError(
        f"The server has sent no row for {_SILENT_WAITS * _WAIT_MS // 1000} s.", "Check what blocks the query."
    )


def _imported(connection: Connection, name: str) -> str:
    """Begin a transaction with the snapshot that a slot's creation exported; return the text of it."""
    connection.execute(BEGIN)
    connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(name)))
    require_own(connection)
    return current_snapshot(connection)


def _draw_txid(connection: Connection) -> int | None:
    call = "pg_current_xact_id()" if connection.info.server_version >= 130000 else "txid_current()"
    if one_row(connection, "SELECT pg_is_in_recovery()")[0]:
        return None
    return int(one_row(connection, f"SELECT {call}::text::bigint".encode())[0])
