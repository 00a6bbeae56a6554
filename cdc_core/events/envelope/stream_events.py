"""Converts a sorted segment of the stream to its records in the order of the log.

The input is sorted by table, the output is in the order of the messages: every table's records have (seq, sub), and one
sort at the end orders rows, truncates, logical messages, BEGIN and END. Indexes in transactions are counted between
planning and rendering, when the resulting records are known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core import clock
from cdc_core.decode import RelationRun, SortedSegment, decode_rows
from cdc_core.errors import ConversionError
from cdc_core.events.envelope.context import EnvelopeContext
from cdc_core.events.envelope.heartbeat_event import HeartbeatEvents
from cdc_core.events.envelope.message_event import MessageEvents, place_of
from cdc_core.events.envelope.record import RECORDS, in_order
from cdc_core.events.envelope.table_events import PlannedChanges, TableEvents
from cdc_core.events.envelope.transaction import CountedEvents, EventNumbers, TransactionCounter, TransactionEvents
from cdc_core.lsn import Lsn
from cdc_core.schema import Relation, TableSchema
from cdc_core.types import FailureHandlingMode

_log = logging.getLogger(__name__)

# Rows planned at once: a row's JSON has about a hundred bytes, its schema about a thousand.
CHUNK_ROWS = 8192
_DELETE = ord("D")


@dataclass(slots=True)
class _Change:
    events: TableEvents
    planned: PlannedChanges
    orders: EventNumbers | None = None


class StreamRecords:
    """Creates the records of a stream, segment by segment; created once per run.

    ``table_events`` creates a TableEvents for a table version (called once for each). ``wants_message`` returns whether
    a prefix of logical messages is captured. ``heartbeat_ms`` is heartbeat.interval.ms.
    """

    def __init__(
        self,
        context: EnvelopeContext,
        table_events: Callable[[TableSchema], TableEvents],
        *,
        wants_message: Callable[[str], bool] = lambda prefix: True,
        heartbeat_ms: int = 0,
        now_ns: Callable[[], int] = clock.now_ns,
    ) -> None:
        self._context = context
        self._build = table_events
        self._wants_message = wants_message
        self._now_ns = now_ns
        self._tables: dict[TableSchema, TableEvents] = {}
        self._messages = MessageEvents(context)
        self._transactions = TransactionEvents(context)
        self._heartbeats = HeartbeatEvents(context, heartbeat_ms, now_ns())
        self._counter = TransactionCounter() if context.options.provide_transaction_metadata else None
        self._last_seq = 0

    def segment(self, segment: SortedSegment, xmin: int | None = None) -> list[str]:
        """Return the JSON lines of one segment, in order. ``xmin`` is the slot's, None if it is not fetched."""
        return self._context.lines(self.records(segment, xmin))

    def idle(self) -> pa.Table:
        """Return what to write if nothing was received for a while, as RECORDS: a heartbeat if one is due."""
        now = self._now_ns()
        return self._heartbeats.make(self._last_seq, now) if self._heartbeats.due(now) else RECORDS.empty_table()

    def records(self, segment: SortedSegment, xmin: int | None = None) -> pa.Table:
        """As ``segment``, as a table of RECORDS."""
        now = self._now_ns()
        changes = [change for run in segment.runs for change in self._planned(run)]
        messages = [message for message in segment.messages if self._wants_message(message.prefix)]
        truncates = [
            (truncate, index, self._events(table))
            for truncate in ([] if "t" in self._context.skipped else segment.truncates)
            for index, table in enumerate(truncate.tables)
        ]
        inside = [message for message in messages if message.transactional]
        places: dict[int, EventNumbers] = {}
        truncated: Sequence[EventNumbers | None] = [None] * len(truncates)
        if self._counter is not None:
            self._counter.restart(segment.transactions)
            groups = [change.planned.counted(str(change.events.table.id)) for change in changes]
            groups += [
                CountedEvents(str(events.table.id), np.array([t.seq]), np.array([index]), np.array([t.commit_lsn]))
                for t, index, events in truncates
            ]
            groups += [CountedEvents(*place_of(message)) for message in inside]
            orders = self._counter.count(groups)
            for change, its in zip(changes, orders, strict=False):
                change.orders = its
            truncated = orders[len(changes) : len(changes) + len(truncates)]
            places = {m.seq: order for m, order in zip(inside, orders[len(changes) + len(truncates) :], strict=True)}
        # By their first rows: a schema registry numbers schemas as it gets them.
        changes.sort(key=lambda change: int(change.planned.raw.column("seq")[0].as_py()))
        tables = [change.events.render(change.planned, change.orders, now, xmin) for change in changes]
        for (truncate, index, events), order in zip(truncates, truncated, strict=True):
            tables.append(events.truncates(truncate, index, order, now, xmin))
        tables += [self._messages.make(message, places.get(message.seq), now, xmin) for message in messages]
        tables += self._marks(segment.transactions)
        ordered = in_order(tables)
        return self._beating(ordered, segment, now)

    def go_on(self, commit_lsn: int, counts: Mapping[str, int]) -> None:
        """Continue inside a transaction of which another connector has sent BEGIN and ``counts`` events by table."""
        if self._counter is not None:
            self._counter.go_on(commit_lsn, counts)

    def _planned(self, run: RelationRun) -> list[_Change]:
        events = self._events(run.table)
        changes = []
        for first in range(0, run.raw.num_rows, CHUNK_ROWS):
            changes += self._plan(events, run.relation, run.raw.slice(first, CHUNK_ROWS))
        return changes

    def _plan(self, events: TableEvents, relation: Relation, raw: pa.RecordBatch) -> list[_Change]:
        """Plan rows; if one cannot be processed and may be left out, bisect until it is isolated."""
        mode = self._context.options.event_processing_failure_handling_mode
        try:
            tuples = decode_rows(raw, relation)
            unknown = (tuples.op == _DELETE) & (tuples.old_kind == 0)
            if unknown.any():
                # Only output plug-ins other than pgoutput send such changes; Debezium leaves them out, too.
                count = int(np.count_nonzero(unknown))
                _log.warning("%d updates or deletes of %s have no values and are left out.", count, events.table.id)
                return self._plan(events, relation, raw.filter(pa.array(~unknown)))
            return [_Change(events, events.plan(raw, tuples))] if raw.num_rows else []
        except ConversionError as error:
            if mode is FailureHandlingMode.FAIL:
                raise
            if raw.num_rows > 1:
                half = raw.num_rows // 2
                return self._plan(events, relation, raw.slice(0, half)) + self._plan(events, relation, raw.slice(half))
            level = logging.WARNING if mode is FailureHandlingMode.WARN else logging.DEBUG
            lsn = Lsn(int(raw.column("lsn")[0].as_py()))
            _log.log(level, "The event of %s at LSN %s is skipped: %s", events.table.id, lsn, error.message)
            return []

    def _events(self, table: TableSchema) -> TableEvents:
        found = self._tables.get(table)
        if found is None:
            found = self._tables[table] = self._build(table)
        return found

    def _marks(self, marks: pa.RecordBatch) -> list[pa.Table]:
        return [] if self._counter is None else [self._transactions.make(each) for each in self._counter.marked(marks)]

    def _beating(self, ordered: pa.Table, segment: SortedSegment, now: int) -> pa.Table:
        if ordered.num_rows:
            self._last_seq = int(ordered.column("seq")[-1].as_py())
        if segment.frames == 0 or not self._heartbeats.due(now):
            return ordered
        return pa.concat_tables([ordered, self._heartbeats.make(self._last_seq, now)])
