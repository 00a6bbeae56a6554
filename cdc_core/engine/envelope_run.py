"""Debezium's records as lines of a file: snapshot as the mode says, then the stream; no Spark, no lake.

The slot is confirmed only after the lines before it are on disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from cdc_core.decode.copy_text import LineCutter, decode_copy
from cdc_core.decode.pgoutput.classify import sort_segment
from cdc_core.decode.pgoutput.stream_state import StreamState
from cdc_core.decode.raw_columns import RawColumns
from cdc_core.engine.reports import Until
from cdc_core.engine.source import OpenSnapshot, Source
from cdc_core.engine.tables import TableBook
from cdc_core.envelope.context import EnvelopeContext
from cdc_core.envelope.snapshot_events import SnapshotEvents
from cdc_core.envelope.stream_events import StreamEvents
from cdc_core.envelope.table_events import SnapshotFacts, TableEvents
from cdc_core.lsn import Lsn
from cdc_core.postgres.connect import connect, connection_string
from cdc_core.postgres.copy_out import copy_chunks, select_from, select_sql
from cdc_core.postgres.stream import ReplicationStream
from cdc_core.schema.table import TableSchema
from cdc_core.selection.columns import plan_columns
from cdc_core.selection.messages import MessageSelection
from cdc_core.selection.options import SelectionOptions
from cdc_core.snapshot.options import SnapshotLockingMode, SnapshotOptions
from cdc_core.types.options import TypeOptions
from cdc_core.types.registry import resolve

_SEGMENT_ROWS = 20_000
_SEGMENT_BYTES = 8 << 20
_SEGMENT_SECONDS = 0.2


class EnvelopeRun:
    """One run of ``wal2lake envelopes``."""

    def __init__(
        self,
        source: Source,
        context: EnvelopeContext,
        types: TypeOptions,
        selection: SelectionOptions,
        snapshot: SnapshotOptions,
    ) -> None:
        self._source = source
        self._context = context
        self._types = types
        self._selection = selection
        self._snapshot = snapshot

    def snapshot(self, tables: list[TableSchema], output: Path) -> int:
        """Write a read event for every row; how many. The slot is made by it where there was none."""
        opened = self._source.open_snapshot()
        try:
            if self._snapshot.snapshot_locking_mode is SnapshotLockingMode.SHARED:
                opened.holder.lock([table.id for table in tables], self._snapshot.snapshot_lock_timeout_ms)
            facts = SnapshotFacts(int(opened.lsn), opened.holder.facts.txid, opened.holder.facts.timestamp_us)
            events = SnapshotEvents()
            written = 0
            with output.open("a", encoding="utf-8") as file:
                for table in tables:
                    for lines in events.table(
                        self._table_events(table, snapshot=True), self._rows(table, opened), facts
                    ):
                        written += _write(file, lines)
                written += _write(file, events.finish())
                _sync(file)
            return written
        finally:
            opened.close()

    def stream(self, tables: list[TableSchema], output: Path, until: Until, should_stop: Callable[[], bool]) -> int:
        """Write the stream's records until a bound is met; how many.

        Raises what the server sends, the decoding finds or ``event.converting.failure.handling.mode`` asks for.
        """
        started = time.monotonic()
        options = self._source.options
        state = StreamState()
        events = StreamEvents(
            self._context,
            self._table_events,
            wants_message=MessageSelection(self._selection).includes,
            heartbeat_ms=options.heartbeat_interval_ms,
        )
        book = TableBook(self._source.describing(), self._source.includes(), tables)
        written, last_data, action_due = 0, started, started
        with ReplicationStream(options) as stream, output.open("a", encoding="utf-8") as file:
            while not should_stop():
                segment = stream.read(_SEGMENT_ROWS, _SEGMENT_BYTES, _SEGMENT_SECONDS)
                if segment is not None:
                    last_data = time.monotonic()
                    found = sort_segment(segment, state, book.describe)
                    written += _write(file, events.segment(found))
                    _sync(file)
                    if found.last_commit_end_lsn is not None:
                        stream.confirm(found.last_commit_end_lsn)
                else:
                    written += _write(file, events.idle())
                    file.flush()
                stream.idle_confirm(state.open is None)
                action_due = self._act(action_due)
                if self._is_over(until, started, last_data, segment is None, stream, state):
                    break
        return written

    def _rows(self, table: TableSchema, opened: OpenSnapshot) -> Iterator[RawColumns]:
        # A column that is left out is not read, not even where it is part of the key.
        names = tuple(plan.name for plan in plan_columns(table, self._selection) if plan.included)
        own = dict(self._snapshot.snapshot_select_statements).get(str(table.id))
        # The user's statement may name columns in any order: they are taken by name.
        select = select_sql(table.id, names) if own is None else select_from(own, names)
        cutter = LineCutter()
        for chunk in copy_chunks(connection_string(self._source.options), opened.holder.name, select):
            lines = cutter.feed(chunk)
            if lines:
                yield decode_copy(lines, names, str(table.id))
        cutter.finish(str(table.id))

    def _table_events(self, table: TableSchema, snapshot: bool = False) -> TableEvents:
        codecs = {column.name: resolve(column, self._types) for column in table.columns}
        plans = plan_columns(table, self._selection, snapshot=snapshot)
        return TableEvents(table, codecs, self._context, plans, snapshot=snapshot)

    def _act(self, due: float) -> float:
        """Run heartbeat.action.query when it is due; when it is due next."""
        options = self._source.options
        if not options.heartbeat_interval_ms or not options.heartbeat_action_query or time.monotonic() < due:
            return due
        with connect(options) as connection:
            connection.execute(options.heartbeat_action_query.encode())
        return time.monotonic() + options.heartbeat_interval_ms / 1000

    def _is_over(
        self,
        until: Until,
        started: float,
        last_data: float,
        is_silent: bool,
        stream: ReplicationStream,
        state: StreamState,
    ) -> bool:
        now = time.monotonic()
        if until.max_seconds is not None and now - started >= until.max_seconds:
            return True
        if state.open is not None or not is_silent:
            return False
        if until.lsn is not None and max(stream.confirmed_lsn, Lsn(stream.wal_end)) >= until.lsn:
            return True
        return until.idle_seconds is not None and now - last_data >= until.idle_seconds


def _write(file: TextIO, lines: list[str]) -> int:
    file.writelines(f"{line}\n" for line in lines)
    return len(lines)


def _sync(file: TextIO) -> None:
    file.flush()
    os.fsync(file.fileno())
