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

    def of(self, found: SortedSegment) -> dict[StreamTable, pa.Table]:
        """Return the rows of a segment, in stream order; tables without any are left out."""
        rows = {}
        messages = [each for each in found.messages if self.wants_message(each.prefix)]
        if messages:
            rows[StreamTable.MESSAGES] = _messages(messages, now_us())
        marks = [] if self._marks is None else self._marks(found)
        if marks:
            rows[StreamTable.TRANSACTIONS] = _transactions(marks)
        return rows


def _messages(messages: Sequence[LogicalMessage], received_us: int) -> pa.Table:
    lsns = [each.lsn for each in messages]
    times = [each.commit_ts_us if each.transactional else received_us for each in messages]
    return _table(
        StreamTable.MESSAGES,
        [each.prefix for each in messages],
        [each.content for each in messages],
        [each.transactional for each in messages],
        lsns,
        [each.xid for each in messages],
        [each.lsn if each.commit_lsn is None else each.commit_lsn for each in messages],
        lsns,
        times,
    )


def _transactions(marks: Sequence[TransactionMark]) -> pa.Table:
    return _table(
        StreamTable.TRANSACTIONS,
        [each.id for each in marks],
        [each.status for each in marks],
        [None if each.counts is None else each.counts.total for each in marks],
        [each.collections for each in marks],
        [each.xid for each in marks],
        [each.commit_lsn for each in marks],
        [int(each.counts is not None) for each in marks],
        [each.commit_ts_us for each in marks],
    )


def _table(table: StreamTable, *columns: Sequence[object]) -> pa.Table:
    schema = table.schema
    return pa.Table.from_arrays(
        [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)], schema=schema
    )
