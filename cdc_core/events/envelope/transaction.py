"""Transaction metadata: BEGIN and END records, and each event's index in its transaction.

Events are counted after everything that drops them (filters, skipped operations), so the numbers are those of existing
records; the delete and the create of a key change count as two, a tombstone is not counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.decode import TransactionCounts, TransactionMark
from cdc_core.events.envelope.batch import one_batch
from cdc_core.events.envelope.context import EnvelopeContext
from cdc_core.events.envelope.json import dumps, join
from cdc_core.events.envelope.record import one_record, schema_text, with_schema
from cdc_core.events.envelope.source_block import INT64, OPTIONAL_INT64, STRING
from cdc_core.schema import ConnectSchema, Names

# A BEGIN is before the events that share its message's ordinal, an END after them; no two do in practice.
_SUB = 0
_BEGIN = ord("B")


def block_schema(names: Names) -> ConnectSchema:
    """The envelope's ``transaction`` field."""
    return ConnectSchema(
        "struct",
        optional=True,
        name=names.schema_name("event.block"),
        version=1,
        fields=(("id", STRING), ("total_order", INT64), ("data_collection_order", INT64)),
    )


@dataclass(frozen=True, slots=True)
class EventNumbers:
    """The indexes of N events in their transactions, from 1; 0 for an event outside of one."""

    total: np.ndarray
    collection: np.ndarray

    def take(self, rows: np.ndarray) -> EventNumbers:
        """Return the indexes of some of the events."""
        return EventNumbers(self.total[rows], self.collection[rows])


def block_texts(xid: pa.Array, lsn: pa.Array, orders: EventNumbers | None) -> pa.Array | str:
    """Return the ``transaction`` struct of every event as JSON text; ``null`` without transaction metadata.

    The id is ``<xid>:<LSN of this record>``, so the ids of one transaction differ after the colon.
    """
    if orders is None:
        return "null"
    return join(
        [
            *('{"id":"', xid, ":", lsn, '","total_order":', pa.array(orders.total)),
            *(',"data_collection_order":', pa.array(orders.collection), "}"),
        ],
        len(xid),
    )


@dataclass(frozen=True, slots=True)
class CountedEvents:
    """Events of one collection, to be counted. ``seq``/``sub``: their order; ``commit_lsn``: their transaction."""

    collection: str
    seq: np.ndarray
    sub: np.ndarray
    commit_lsn: np.ndarray


class TransactionCounter:
    """Numbers events within their transactions, across tables and segments.

    Transactions do not interleave, so only one can be open between two calls; its counts are the entire state.
    """

    def __init__(self) -> None:
        self._open_lsn: int | None = None
        self._total = 0
        self._collections: dict[str, int] = {}
        self._capacity = 16
        self._ended: dict[int, TransactionCounts] = {}

    def count(self, groups: list[CountedEvents]) -> list[EventNumbers]:
        """Return the index of every event of a segment, by group. Call once per segment, with all of it."""
        sizes = [len(group.seq) for group in groups]
        seq, sub, lsn = (
            np.concatenate([np.asarray(getattr(g, name), dtype=np.int64) for g in groups] or [np.zeros(0, np.int64)])
            for name in ("seq", "sub", "commit_lsn")
        )
        # Several groups may belong to one collection: its runs, and its part of a TRUNCATE.
        names = list(dict.fromkeys(group.collection for group in groups))
        number = {name: at for at, name in enumerate(names)}
        which = np.repeat(np.array([number[group.collection] for group in groups], dtype=np.int64), sizes)
        order = np.lexsort((sub, seq))
        lsn, which = lsn[order], which[order]
        total = np.empty(len(order), dtype=np.int64)
        by_collection = np.empty(len(order), dtype=np.int64)
        bounds = np.flatnonzero(np.diff(lsn, prepend=-1, append=-1))
        for first, last in itertools.pairwise(bounds):  # once per transaction
            self._number(int(lsn[first]), which[first:last], names, total[first:last], by_collection[first:last])
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        numbers = EventNumbers(total[back], by_collection[back])
        ends = np.cumsum(sizes)
        return [numbers.take(np.arange(end - size, end)) for size, end in zip(sizes, ends, strict=True)]

    def _number(
        self, lsn: int, which: np.ndarray, names: list[str], total: np.ndarray, by_collection: np.ndarray
    ) -> None:
        self._enter(lsn)
        total[:] = np.arange(self._total + 1, self._total + 1 + len(which))
        self._total += len(which)
        present, first_at = np.unique(which, return_index=True)
        for table in present[np.argsort(first_at)]:  # once per table in a transaction
            mine = which == table
            before = self._collections.get(names[table], 0)
            count = int(np.count_nonzero(mine))
            by_collection[mine] = np.arange(before + 1, before + 1 + count)
            self._collections[names[table]] = before + count

    def _enter(self, lsn: int) -> None:
        if lsn == self._open_lsn:
            return
        if self._open_lsn is not None:
            self._ended[self._open_lsn] = self._counts()
        self._open_lsn, self._total, self._collections = lsn, 0, {}

    def go_on(self, commit_lsn: int, counts: Mapping[str, int]) -> None:
        """Continue the counts of a transaction whose first events were counted elsewhere."""
        self._open_lsn, self._total, self._collections = commit_lsn, sum(counts.values()), dict(counts)

    def restart(self, marks: pa.RecordBatch) -> None:
        """Restart the counts of a transaction that is sent again, according to marks (MARK_SCHEMA)."""
        for mark in marks.select(["kind", "commit_lsn"]).to_pylist():  # once a transaction
            if mark["kind"] == _BEGIN:
                self.begin(mark["commit_lsn"])

    def marked(self, marks: pa.RecordBatch) -> list[TransactionMark]:
        """Return the marks of a segment (MARK_SCHEMA), whose events are counted, with the counts of what ended."""
        transactions = []
        for mark in marks.to_pylist():  # once a transaction
            is_begin = mark["kind"] == _BEGIN
            lsn = mark["lsn"] if is_begin else mark["end_lsn"]
            counts = None if is_begin else self.end(mark["commit_lsn"])
            transactions.append(
                TransactionMark(mark["seq"], mark["xid"], lsn, mark["commit_lsn"], mark["commit_ts_us"], counts)
            )
        return transactions

    def begin(self, commit_lsn: int) -> None:
        """Record a Begin message. A transaction that was open already is sent again: its counts restart."""
        if commit_lsn == self._open_lsn:
            self._open_lsn, self._total, self._collections = None, 0, {}

    def end(self, commit_lsn: int) -> TransactionCounts:
        """Return the counts of a transaction whose Commit was received; call once for each, in stream order."""
        ended = self._ended.pop(commit_lsn, None)
        if ended is not None:
            return ended
        counts = self._counts() if commit_lsn == self._open_lsn else TransactionCounts(0, ())
        if commit_lsn == self._open_lsn:
            self._open_lsn, self._total, self._collections = None, 0, {}
        return counts

    def _counts(self) -> TransactionCounts:
        # Debezium lists the collections in the order of a Java HashMap that is cleared, never shrunk.
        while len(self._collections) > self._capacity * 3 // 4:
            self._capacity *= 2
        listed = sorted(self._collections.items(), key=lambda item: _bucket(item[0], self._capacity))
        return TransactionCounts(self._total, tuple(listed))


def _bucket(text: str, capacity: int) -> int:
    """Return java.util.HashMap's bucket of a string: the low bits of its hash, with the high half folded in."""
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        value = (31 * value + int.from_bytes(raw[at : at + 2], "big")) & 0xFFFFFFFF
    return (value ^ value >> 16) & (capacity - 1)


class TransactionEvents:
    """Creates BEGIN and END records; created once per run."""

    def __init__(self, context: EnvelopeContext) -> None:
        names = context.names
        key = ConnectSchema(
            "struct",
            name=names.schema_name("io.debezium.connector.common.TransactionMetadataKey"),
            version=1,
            fields=(("id", STRING),),
        )
        collection = ConnectSchema(
            "struct",
            optional=True,
            name=names.schema_name("event.collection"),
            version=1,
            fields=(("data_collection", STRING), ("event_count", INT64)),
        )
        value = ConnectSchema(
            "struct",
            name=names.schema_name("io.debezium.connector.common.TransactionMetadataValue"),
            version=1,
            fields=(
                ("status", STRING),
                ("id", STRING),
                ("event_count", OPTIONAL_INT64),
                ("data_collections", ConnectSchema("array", optional=True, items=collection)),
                ("ts_ms", INT64),
            ),
        )
        self._topic = names.transaction_topic
        self._outlet, self._schemas = context.outlet, (key, value)
        self._key, self._value = schema_text(key), schema_text(value)

    def make(self, mark: TransactionMark) -> pa.Table:
        """Return the BEGIN or END record."""
        seq, identity = mark.seq, mark.id
        value = {
            "status": mark.status,
            "id": identity,
            "event_count": mark.counts and mark.counts.total,
            "data_collections": mark.collections,
            "ts_ms": mark.commit_ts_us // 1000,
        }
        if self._outlet is not None:
            key_schema, value_schema = self._schemas
            typed = one_batch(seq, _SUB, self._topic, (key_schema, {"id": identity}), (value_schema, value))
            return self._outlet.records(typed)
        key = with_schema(self._key, dumps({"id": identity}))
        return one_record(seq, _SUB, self._topic, key, with_schema(self._value, dumps(value)))
