"""A connection that reads chunks of tables and writes the rows of the signal table that mark them in the stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import sql

from cdc_core.lsn import Lsn
from cdc_core.postgres.connect import Connection, connect
from cdc_core.postgres.copy_out import copied
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.server import wal_end
from cdc_core.postgres.sqlstate import translated
from cdc_core.schema.table import TableId


@dataclass(frozen=True, slots=True)
class ReadTogether:
    """What queries gave that were run under one snapshot. ``visible`` is the text of its pg_current_snapshot()."""

    visible: str
    rows: tuple[bytes, ...]


class ChunkConnection:
    """One connection, made when it is first needed and again after an error. Raises SourceError or TransientError."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._connection: Connection | None = None

    def read(self, *selects: str) -> ReadTogether:
        """Every query's rows as lines of COPY text, all under one snapshot, which is taken now."""
        with self._at("reading a chunk of a table") as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            modern = connection.info.server_version >= 130000
            row = connection.execute(
                f"SELECT {'pg_current_snapshot' if modern else 'txid_current_snapshot'}()::text"
            ).fetchone()
            assert row is not None
            rows = tuple(b"".join(copied(connection, select)) for select in selects)
            connection.execute("COMMIT")
            return ReadTogether(str(row[0]), rows)

    def insert(self, table: TableId, signal_id: str, kind: str, data: str) -> None:
        """Add a row to the signal table, by the order of its three columns."""
        statement = sql.SQL("INSERT INTO {} VALUES (%s, %s, %s)").format(sql.Identifier(*table))
        with self._at("writing to the signal table") as connection:
            connection.execute(statement, (signal_id, kind, data))

    def delete(self, table: TableId, id_column: str, signal_id: str) -> None:
        """Take a row out of the signal table."""
        statement = sql.SQL("DELETE FROM {} WHERE {} = %s").format(sql.Identifier(*table), sql.Identifier(id_column))
        with self._at("writing to the signal table") as connection:
            connection.execute(statement, (signal_id,))

    def wal_end(self) -> Lsn:
        """The end of the server's WAL: whatever a chunk shows has committed before it."""
        with self._at("telling where its WAL ends") as connection:
            return wal_end(connection)

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _at(self, doing: str) -> Iterator[Connection]:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._options)
        try:
            with translated(doing):
                yield self._connection
        except BaseException:
            # Nobody knows in what state it is.
            self.close()
            raise
