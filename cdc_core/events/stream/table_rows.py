"""The rows of tables as of one snapshot of the server, written to an output as read events."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from cdc_core.decode import LineCutter, RawColumns, decode_copy
from cdc_core.events.envelope.context import EnvelopeContext
from cdc_core.events.envelope.snapshot_events import SnapshotRecords
from cdc_core.events.envelope.table_events import EventSnapshot, TableEvents
from cdc_core.events.stream.output import ROOM_SECONDS, Output
from cdc_core.postgres import OpenSnapshot, PostgresOptions, connection_string, copy_chunks, select_from, select_sql
from cdc_core.schema import TableId, TableSchema
from cdc_core.selection import SelectionOptions, plan_columns
from cdc_core.snapshot import OnProgress, SnapshotOptions, SnapshotProgress, lock_tables
from cdc_core.types import TypeOptions, resolve

# As in Debezium, the filter of a blocking snapshot may be a complete statement.
_STATEMENT = re.compile(r"\s*(select|with|values|table)\b", re.IGNORECASE)


class TableRows:
    """Reads tables by COPY and writes their rows. ``on_progress`` is called after each block of rows, if it is set."""

    def __init__(
        self,
        server: PostgresOptions,
        context: EnvelopeContext,
        types: TypeOptions,
        selection: SelectionOptions,
        snapshot: SnapshotOptions,
    ) -> None:
        self._server = server
        self._context = context
        self._types = types
        self._selection = selection
        self._snapshot = snapshot
        self.on_progress: OnProgress | None = None

    def write(
        self,
        tables: Sequence[TableSchema],
        opened: OpenSnapshot,
        output: Output,
        conditions: Mapping[TableId, str],
        meanwhile: Callable[[], None],
    ) -> int:
        """Write the tables' rows as of one snapshot, and close it; returns their number.

        ``conditions``: SQL of a signal by table. ``meanwhile`` is called after each block of rows, and while the output
        has no room. Raises CdcError.
        """
        try:
            lock_tables(opened.holder, [table.id for table in tables], self._snapshot)
            facts = EventSnapshot(int(opened.lsn), opened.holder.facts.txid, opened.holder.facts.timestamp_us)
            events = SnapshotRecords()
            written = 0
            for table in tables:
                rows = self._counted(table.id, self._rows(table, opened, conditions.get(table.id, "")))
                for block in events.table(self.read_events(table), rows, facts):
                    written += output.write(block)
                    output.show_rows()
                    meanwhile()
                    while not output.has_room:
                        time.sleep(ROOM_SECONDS)
                        meanwhile()
            return written + output.write(events.finish())
        finally:
            opened.close()

    def included(self, table: TableSchema) -> tuple[str, ...]:
        """Return the columns that rows contain. An excluded one is not read, even if it is part of the key."""
        return tuple(plan.name for plan in plan_columns(table, self._selection) if plan.included)

    def read_events(self, table: TableSchema) -> TableEvents:
        """Return the source of events from rows that a query reads."""
        return self._events(table, snapshot=True)

    def change_events(self, table: TableSchema) -> TableEvents:
        """Return the source of events from changes in the stream."""
        return self._events(table, snapshot=False)

    def _events(self, table: TableSchema, *, snapshot: bool) -> TableEvents:
        codecs = {column.name: resolve(column, self._types) for column in table.columns}
        plans = plan_columns(table, self._selection, snapshot=snapshot)
        return TableEvents(table, codecs, self._context, plans, snapshot=snapshot)

    def _rows(self, table: TableSchema, opened: OpenSnapshot, condition: str) -> Iterator[RawColumns]:
        """Read the rows of a snapshot. ``condition``: SQL of a signal, either a condition or a complete statement."""
        names = self.included(table)
        own = condition if _STATEMENT.match(condition) else self._snapshot.statement_of(table.id)
        if own is None:
            select = select_sql(table.id, names, f"({condition})" if condition else "")
        else:
            # The user's statement may return columns in any order: they are selected by name.
            select = select_from(own, names)
        cutter = LineCutter()
        is_users = own is not None or bool(condition)
        for chunk in copy_chunks(connection_string(self._server), opened.holder.name, select, is_users=is_users):
            whole = cutter.feed(chunk)
            if whole:
                yield decode_copy(whole, names, str(table.id))
        cutter.finish(str(table.id))

    def _counted(self, table: TableId, blocks: Iterator[RawColumns]) -> Iterator[RawColumns]:
        """Report the rows of a table as they are read."""
        rows = 0
        for block in blocks:
            rows += len(block)
            self._report(SnapshotProgress(table, rows, None, done=False))
            yield block
        self._report(SnapshotProgress(table, rows, None, done=True))

    def _report(self, progress: SnapshotProgress) -> None:
        if self.on_progress is not None:
            self.on_progress(progress)
