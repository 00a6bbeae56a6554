"""A segment's logical messages and transaction metadata as rows of the stream's own tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from cdc_core.clock import now_us
from cdc_core.decode import LogicalMessage, SortedSegment, TransactionMark
from cdc_core.lake import StreamTable


class OwnRows:
    """Makes the rows of one connection's segments.

    ``wants_message`` returns whether a prefix of logical messages is captured, ``marks`` the transactions that begin
    and end in a segment; it is called once for each, and is None without transaction metadata.
    """

    def __init__(
        self,
        wants_message: Callable[[str], bool],
        marks: Callable[[SortedSegment], Sequence[TransactionMark]] | None,
    ) -> None:
        self.wants_message, self._marks = wants_message, marks

    def of(self, segment: SortedSegment) -> dict[StreamTable, pa.Table]:
        """Return the rows of a segment, in stream order; tables without any are left out."""
        rows = {}
        messages = [message for message in segment.messages if self.wants_message(message.prefix)]
        if messages:
            rows[StreamTable.MESSAGES] = _messages(messages, now_us())
        marks = [] if self._marks is None else self._marks(segment)
        if marks:
            rows[StreamTable.TRANSACTIONS] = _transactions(marks)
        return rows


def _messages(messages: Sequence[LogicalMessage], received_us: int) -> pa.Table:
    lsns = [message.lsn for message in messages]
    times = [message.commit_ts_us if message.transactional else received_us for message in messages]
    return _table(
        StreamTable.MESSAGES,
        [message.prefix for message in messages],
        [message.content for message in messages],
        [message.transactional for message in messages],
        lsns,
        [message.xid for message in messages],
        [message.lsn if message.commit_lsn is None else message.commit_lsn for message in messages],
        lsns,
        times,
    )


def _transactions(marks: Sequence[TransactionMark]) -> pa.Table:
    return _table(
        StreamTable.TRANSACTIONS,
        [mark.id for mark in marks],
        [mark.status for mark in marks],
        [None if mark.counts is None else mark.counts.total for mark in marks],
        [mark.collections for mark in marks],
        [mark.xid for mark in marks],
        [mark.commit_lsn for mark in marks],
        [int(mark.counts is not None) for mark in marks],
        [mark.commit_ts_us for mark in marks],
    )


def _table(table: StreamTable, *columns: Sequence[object]) -> pa.Table:
    schema = table.schema
    return pa.Table.from_arrays(
        [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)], schema=schema
    )
