"""Changes that the stream does not carry, because they were made before their table was published.

    older transaction   ──write a──────────────────────commit──▶     a is not in the stream: the server looks up the
    publication             ──ALTER … ADD TABLE──▶                   publication as of the time of the write
    read of the table                      ──too early──  ──▶ waits until here

A snapshot taken before such a transaction commits does not show its changes either. So the first read of a table, and
each one after the publication of the table was changed, by whomever, waits until every transaction has ended that was
open when the publication was seen. The creation of a slot waits in the same way. An attempt that ended during its read
had waited before it, so the next one waits only if the publication was changed since.

Servers with ``OUTDATED_CATALOGUE`` (``snapshot/sender_renewal``) send the table's later changes wrongly, also after its
types were altered: there the read waits for a walsender that began behind these transactions.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from cdc_core.errors import OlderTransactionsError
from cdc_core.lake import LakePaths, LakeTable, SchemaLog, SnapshotLog, TableHistory, epoch_of
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot.sender_renewal import SenderRenewal

# How long a read waits for older transactions if nothing else could be done meanwhile.
_OLDER_SECONDS = 90.0
_PAUSE_SECONDS = 0.1


Marks = Callable[[TableSchema], object]


class TransactionQueries(Protocol):
    """The queries to the source (``cdc_core.postgres.source.Source``)."""

    def next_transaction(self) -> int:
        """Return an id (64 bits) that no transaction has yet."""

    def oldest_transaction(self) -> int:
        """Return an id (64 bits) below which every transaction has ended."""


class UnsentChanges:
    """Decides which tables cannot be read yet. Remembers the transactions that it waits for, so that it can be asked
    again; for one thread.

    ``renewal``: the read of a table waits for another walsender (None: it does not).
    """

    def __init__(self, paths: LakePaths, scope: str, renewal: SenderRenewal | None = None) -> None:
        self._paths = paths
        self._scope = scope
        self._renewal = renewal
        self._marks = published_as if renewal is None else sent_as
        self._bounds: dict[TableId, tuple[object, int]] = {} if renewal is None else renewal.bounds

    @staticmethod
    def published_digest(tables: Iterable[TableSchema]) -> str:
        """Return a text that is equal as long as the publication of none of these tables was changed."""
        marks = sorted((str(table.id), repr(published_as(table))) for table in tables)
        return hashlib.sha256(repr(marks).encode()).hexdigest()

    def note(self, tables: Iterable[TableSchema], bound: int) -> None:
        """Take tables as published since before ``bound``, an id that no transaction had at that time."""
        for table in tables:
            self._bounds[table.id] = (self._marks(table), bound)

    def left(
        self, server: TransactionQueries, tables: Sequence[TableSchema], seconds: float = _OLDER_SECONDS
    ) -> list[TableSchema]:
        """Return the tables with possible unsent changes, after waiting at most ``seconds`` for older transactions.

        ``tables`` were described before the call. Raises SourceError or TransientError.
        """
        waiting = self._newly(tables, self._marks)
        for table in waiting:
            before = self._bounds.get(table.id)
            if before is None or before[0] != self._marks(table):
                self._bounds[table.id] = (self._marks(table), server.next_transaction())
        # The stream is restarted later than any wait of this method may last.
        early = [] if self._renewal is None else [t for t in waiting if not self._renewal.covers(self._bounds[t.id][1])]
        waiting = [table for table in waiting if table not in early]
        deadline = time.monotonic() + seconds
        while True:
            oldest = server.oldest_transaction() if waiting else 0
            waiting = [table for table in waiting if self._bounds[table.id][1] > oldest]
            if not waiting or time.monotonic() >= deadline:
                return [*early, *waiting]
            time.sleep(_PAUSE_SECONDS)

    def sent_otherwise(self, tables: Sequence[TableSchema]) -> list[TableSchema]:
        """Return the tables that were never read, or of which the server sends otherwise than when they were read."""
        return self._newly(tables, sent_as)

    def require(
        self, server: TransactionQueries, tables: Sequence[TableSchema], seconds: float = _OLDER_SECONDS
    ) -> None:
        """Raise OlderTransactionsError if ``left`` returns a table."""
        left = self.left(server, tables, seconds)
        if left:
            raise self.error(left)

    def error(self, tables: Sequence[TableSchema]) -> OlderTransactionsError:
        """Return the error for tables that cannot be read yet."""
        names = ", ".join(str(table.id) for table in tables)
        remedy = "End them (see pg_stat_activity, oldest xact_start first, and pg_prepared_xacts)."
        if self._renewal is not None:
            return OlderTransactionsError(
                f"What the server sends of {names} was changed. This version of PostgreSQL may send it as before the "
                "change, so the stream is begun anew once the transactions have ended that were open then, and the "
                "table is read after that.",
                f"Upgrade the server (wal2lake check says to which version), or wait. {remedy}",
            )
        return OlderTransactionsError(
            f"Transactions are still open that began before {names} was published as it is now; the stream does not "
            "have their earlier changes, so the table is read after they have ended.",
            remedy,
        )

    def _newly(self, tables: Sequence[TableSchema], marks: Marks) -> list[TableSchema]:
        """Return the tables that were never read, or have other marks than when they were read."""
        histories = SchemaLog(self._paths.schema_versions, {}).read()
        attempts: dict[TableId, set[int]] = {}
        for (table, _), taken in SnapshotLog(self._paths.snapshots, epoch_of(self._scope)).read().items():
            attempts.setdefault(table, set()).add(int(taken.lsn))

        def is_new(table: TableSchema) -> bool:
            history, tried = histories.get(table.id, TableHistory({})), attempts.get(table.id, set())
            return _is_new(self._paths, self._scope, table, history, tried, marks)

        return [table for table in tables if is_new(table)]


def _is_new(
    paths: LakePaths, scope: str, table: TableSchema, history: TableHistory, attempts: set[int], marks: Marks
) -> bool:
    """``attempts`` are the LSNs of the table's snapshots, finished or not."""
    position = LakeTable(paths, scope, table.id).position()
    if position.place.token is None:
        before = [
            schema_version for number, schema_version in history.versions.items() if history.lsns[number] in attempts
        ]
    else:
        before = [
            schema_version
            for schema_version in history.versions.values()
            if schema_version.number == position.schema_version
        ]
    return all(marks(schema_version.table) != marks(table) for schema_version in before)


def published_as(table: TableSchema) -> object:
    """Return a value that is equal as long as a table's publication was not changed."""
    marks = table.fingerprint
    return None if marks is None else (marks.server, marks.oid, marks.publication)


def sent_as(table: TableSchema) -> object:
    """Return a value that is equal as long as neither a table's publication nor a type of its columns was changed."""
    marks = table.fingerprint
    return None if marks is None else (published_as(table), marks.types)
