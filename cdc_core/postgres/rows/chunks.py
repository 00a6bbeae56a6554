"""A connection that reads chunks of tables and writes the rows of the signal table that mark them in the stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
from psycopg import sql

from cdc_core.errors import LockedError, ProtocolError
from cdc_core.lsn import Lsn
from cdc_core.postgres.connection import Connection, ConnectionString, connect, connect_with
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.rows.copy_out import copied
from cdc_core.postgres.rows.reading import begin_reading
from cdc_core.postgres.server import next_transaction, oldest_transaction, request_flush, shown_end, wal_end
from cdc_core.postgres.settings import ROLES_PATH
from cdc_core.postgres.sqlstate import one_row, translated
from cdc_core.schema import TableId
from cdc_core.visibility import Visibility

_CANCEL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ReadTogether:
    """Results of queries that were run in one snapshot. ``visible`` is the text of its pg_current_snapshot().

    ``is_cut``: there are more rows.
    """

    visible: str
    rows: tuple[bytes, ...]
    is_cut: bool = False

    @property
    def visibility(self) -> Visibility:
        """The snapshot. Raises ProtocolError for another text."""
        return received_visibility(self.visible)


def received_visibility(text: str) -> Visibility:
    """Parse a ``pg_snapshot`` that the server sent. Raises ProtocolError for another text."""
    try:
        return Visibility.parse(text)
    except ValueError:
        raise ProtocolError("", None, "a pg_snapshot such as 10:20:10,14", "another text") from None


class ChunkConnection:
    """One connection, opened on first use and again after an error. Raises SourceError or TransientError.

    ``target``: the options, or in a task the string that was made of them. ``lock_timeout_ms``: the longest wait for a
    table that another session has locked (0: no limit).
    """

    def __init__(self, target: PostgresOptions | ConnectionString, lock_timeout_ms: int = 0) -> None:
        self._target = target
        self._lock_timeout_ms = lock_timeout_ms
        self._connection: Connection | None = None

    def read(
        self, *selects: str, is_users: bool = False, table: TableId | None = None, most_bytes: int = 0
    ) -> ReadTogether:
        """Return every query's rows as lines of COPY text, all in one snapshot, which is taken now.

        ``is_users``: they have SQL of the user's. ``table`` is named if it is locked, in LockedError. ``most_bytes``:
        rows of a query from so many bytes on, and some megabytes, are not read, nor further queries (0: no limit).
        """
        with self._at("reading a chunk of a table") as connection:
            visible = begin_reading(connection)
            if is_users:
                connection.execute(ROLES_PATH)
            rows, is_cut = list[bytes](), False
            try:
                for select in selects:
                    lines, is_cut = _first_rows(connection, select, most_bytes)
                    rows.append(lines)
                    if is_cut:
                        break
            except psycopg.errors.LockNotAvailable:
                raise LockedError(str(table or "A table"), self._lock_timeout_ms) from None
            if is_cut:
                self.close()  # which ends the query
            else:
                connection.execute("COMMIT")
            return ReadTogether(visible, tuple(rows), is_cut)

    def insert(self, table: TableId, signal_id: str, kind: str, data: str) -> None:
        """Insert a row into the signal table, by the order of its three columns."""
        values = sql.SQL(", ").join(map(sql.Literal, (signal_id, kind, data)))
        self._write(sql.SQL("INSERT INTO {} VALUES ({})").format(sql.Identifier(*table), values))

    def delete(self, table: TableId, id_column: str, signal_id: str) -> None:
        """Delete a row of the signal table."""
        self._write(
            sql.SQL("DELETE FROM {} WHERE {} = {}").format(
                sql.Identifier(*table), sql.Identifier(id_column), sql.Literal(signal_id)
            )
        )

    def wal_end(self) -> Lsn:
        """Return the end of the server's WAL: everything that a chunk read before shows was committed before it.

        The stream reaches it, also while nothing else is committed.
        """
        with self._at("reading the end of the WAL") as connection:
            end = wal_end(connection)
            request_flush(connection, end)
            return end

    def bound(self) -> tuple[Lsn, int]:
        """Return an LSN R, and an id X of 32 bits: transactions committed up to R have an id before X.

        This holds because the end of WAL is queried first, and the next free id after it; a standby knows ids only of
        what it has replayed. A later snapshot whose xmin is at least X shows everything that was committed up to R.
        """
        with self._at("reading the end of the WAL") as connection:
            end = shown_end(connection)
            row = one_row(connection, "SELECT age('3'::xid)")
            return end, (3 + int(row[0])) % (1 << 32)

    def next_transaction(self) -> int:
        """Return an id (64 bits) that no transaction has yet."""
        with self._at("reading transaction ids") as connection:
            return next_transaction(connection)

    def oldest_transaction(self) -> int:
        """Return an id (64 bits) below which every transaction has ended."""
        with self._at("reading transaction ids") as connection:
            return oldest_transaction(connection)

    def cancel(self) -> None:
        """Cancel the running statement, which then raises; may be called from another thread."""
        connection = self._connection
        if connection is not None and not connection.closed:
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=_CANCEL_SECONDS)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self, statement: sql.Composed) -> None:
        # One message of two statements is one transaction. The table's triggers are the user's SQL.
        with self._at("writing to the signal table") as connection:
            connection.execute(sql.SQL("{}; {}").format(sql.SQL(ROLES_PATH), statement))

    def _opened(self) -> Connection:
        target = self._target
        made = connect_with(target) if isinstance(target, ConnectionString) else connect(target)
        if self._lock_timeout_ms:
            with translated("setting the time to wait for locks"):
                made.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(self._lock_timeout_ms)))
        return made

    @contextmanager
    def _at(self, doing: str) -> Iterator[Connection]:
        if self._connection is None or self._connection.closed:
            self._connection = self._opened()
        try:
            with translated(doing):
                yield self._connection
        except BaseException:
            # The state of the connection is unknown.
            self.close()
            raise


def _first_rows(connection: Connection, select: str, most_bytes: int) -> tuple[bytes, bool]:
    """Return a query's rows, and whether there may be more: after ``most_bytes``, unless that is 0."""
    parts, octets = list[bytes](), 0
    for lines in copied(connection, select):
        parts.append(lines)
        octets += len(lines)
        if most_bytes and octets >= most_bytes:
            return b"".join(parts), True
    return b"".join(parts), False
