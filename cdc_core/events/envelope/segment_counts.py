"""Transaction metadata without events: each transaction's begin and end, with the number of events that it would have.

For a destination that stores no events. Rows are decoded; keys are compared only where an update may change them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from cdc_core.decode import RelationRun, SortedSegment, TransactionMark, decode_rows, separated
from cdc_core.errors import NotUtf8Error
from cdc_core.events.envelope.message_event import place_of
from cdc_core.events.envelope.table_events import TableEvents
from cdc_core.events.envelope.transaction import CountedEvents, TransactionCounter
from cdc_core.schema import TableSchema


class SegmentCounter:
    """Counts a stream's events, segment by segment; created once per connection.

    ``table_events`` creates a TableEvents for a table version (called once for each). ``wants_message`` returns whether
    a prefix of logical messages is captured. ``counts_truncates``: a truncate is an event of each of its tables.
    """

    def __init__(
        self,
        table_events: Callable[[TableSchema], TableEvents],
        wants_message: Callable[[str], bool],
        *,
        counts_truncates: bool,
    ) -> None:
        self._build = table_events
        self._wants_message = wants_message
        self._counts_truncates = counts_truncates
        self._tables: dict[TableSchema, TableEvents] = {}
        self._counter = TransactionCounter()

    def go_on(self, commit_lsn: int, counts: Mapping[str, int]) -> None:
        """Continue inside a transaction of which another connector has sent BEGIN and ``counts`` events by table."""
        self._counter.go_on(commit_lsn, counts)

    def marks(self, segment: SortedSegment) -> list[TransactionMark]:
        """Return the begins and ends of a segment, in stream order. Raises ProtocolError."""
        self._counter.restart(segment.transactions)
        groups = [group for run in segment.runs for group in self._counted(run)]
        for cut in segment.truncates if self._counts_truncates else ():
            groups += [
                CountedEvents(str(table.id), np.array([cut.seq]), np.array([index]), np.array([cut.commit_lsn]))
                for index, table in enumerate(cut.tables)
            ]
        inside = (
            logical for logical in segment.messages if logical.transactional and self._wants_message(logical.prefix)
        )
        groups += [CountedEvents(*place_of(message)) for message in inside]
        self._counter.count(groups)
        return self._counter.marked(segment.transactions)

    def _counted(self, run: RelationRun) -> list[CountedEvents]:
        events = self._events(run.table)
        try:
            return [events.counted(run.raw, decode_rows(run.raw, run.relation))]
        except NotUtf8Error:
            # It concerns its lake table. Each such row counts as one event, whether it changes its key or not.
            good, bad, _ = separated(run.raw, run.relation)
            seq, lsn = (bad.column(name).to_numpy() for name in ("seq", "commit_lsn"))
            uncounted = CountedEvents(str(run.table.id), seq, np.zeros(len(seq), dtype=np.int64), lsn)
            return [events.counted(good, decode_rows(good, run.relation)), uncounted]

    def _events(self, table: TableSchema) -> TableEvents:
        found = self._tables.get(table)
        if found is None:
            found = self._tables[table] = self._build(table)
        return found
