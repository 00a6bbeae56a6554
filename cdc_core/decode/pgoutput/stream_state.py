"""The state kept between two segments of the stream, and the content of a sorted segment."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from cdc_core.decode.raw_batch import RAW_SCHEMA
from cdc_core.schema import Relation, TableSchema


@dataclass(frozen=True, slots=True)
class Announced:
    """A relation that the server announced; ``table`` is None if it is not captured."""

    relation: Relation
    table: TableSchema | None


@dataclass(slots=True)
class OpenTransaction:
    """A transaction whose Commit has not been received. Times in microseconds since 1970-01-01T00:00:00Z.

    ``next_tx_index`` is the index of its next row message; ``origin`` and ``origin_lsn`` are None without an Origin.
    """

    commit_lsn: int
    commit_ts_us: int
    xid: int
    next_tx_index: int = 0
    origin: str | None = None
    origin_lsn: int | None = None


@dataclass(slots=True)
class StreamState:
    """The state after a segment, for the next one. A new stream starts with the defaults.

    ``prior_end_lsn`` is the end LSN of the last Commit, or the LSN of the last non-transactional message, 0 for none.
    ``last_commit_ts_us`` is the commit time of the last transaction begun, 0 for none. ``next_seq`` numbers the frames.
    ``last_origin`` is the origin, with its LSN, of the last transaction begun, None for none: messages outside of
    transactions have it, too. ``relations`` maps the OIDs announced so far; a server announces a relation once per
    connection, before its rows, so the map is valid only for one connection: after a reconnect start with
    ``after_reconnect()``.
    """

    open: OpenTransaction | None = None
    prior_end_lsn: int = 0
    last_commit_ts_us: int = 0
    next_seq: int = 0
    relations: dict[int, Announced] = field(default_factory=dict)
    last_origin: tuple[str | None, int | None] = (None, None)

    def after_reconnect(self) -> StreamState:
        """Return the state for a new connection: an incomplete transaction is sent again from its start."""
        return StreamState(None, self.prior_end_lsn, self.last_commit_ts_us, self.next_seq, {}, self.last_origin)


@dataclass(frozen=True, slots=True)
class RelationRun:
    """Row messages of one version of one captured relation, in stream order, as a batch of RAW_SCHEMA."""

    relation: Relation
    table: TableSchema
    raw: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Truncate:
    """A TRUNCATE of at least one captured table. ``tables`` are the captured ones in the message's order.

    ``options`` is the message's bit set: 1 CASCADE, 2 RESTART IDENTITY. The other fields are those of RAW_SCHEMA.
    """

    seq: int
    lsn: int
    commit_lsn: int
    tx_index: int
    prior_end_lsn: int
    xid: int
    commit_ts_us: int
    origin: str | None
    origin_lsn: int | None
    tables: tuple[TableSchema, ...]
    options: int

    def row(self) -> pa.RecordBatch:
        """Return the truncate as the one row of its tables. Shape: RAW_SCHEMA[1]"""
        values = {field.name: getattr(self, field.name, b"") for field in RAW_SCHEMA}
        return pa.RecordBatch.from_pylist([values], schema=RAW_SCHEMA)


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message of pg_logical_emit_message.

    A non-transactional one belongs to no transaction: ``xid``, ``commit_lsn`` and ``tx_index`` are None,
    ``prior_end_lsn`` is its own LSN, and ``commit_ts_us`` is that of the last transaction before it (0 for none), which
    Debezium uses as its time. For a transactional one ``tx_index`` is the index of the next row message of its
    transaction: messages themselves are not counted.
    """

    seq: int
    lsn: int
    transactional: bool
    prefix: str
    content: bytes
    commit_lsn: int | None
    tx_index: int | None
    prior_end_lsn: int
    xid: int | None
    commit_ts_us: int
    origin: str | None
    origin_lsn: int | None


# One row a Begin or Commit.
#   kind        ASCII code of B or C
#   lsn         WAL start of its frame
#   end_lsn     end of the transaction's WAL; null for a Begin
MARK_SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("xid", pa.int64(), nullable=False),
        pa.field("commit_lsn", pa.int64(), nullable=False),
        pa.field("end_lsn", pa.int64()),
        pa.field("commit_ts_us", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class SortedSegment:
    """A segment's messages, sorted by kind. ``seq`` orders all of them.

    ``runs``: row changes, one or more runs per relation version, in the order of announcement. ``truncates`` and
    ``messages``: in stream order. ``transactions``: Begin and Commit marks, of MARK_SCHEMA. ``last_commit_lsn`` and
    ``last_commit_end_lsn`` are those of the last transaction that ends in the segment, None if there is none.
    ``open_transaction``: the segment ends inside a transaction. ``frames`` counts all messages, ``row_messages`` the
    inserts, updates, deletes and truncates, ``captured_rows`` the rows in ``runs``.
    """

    runs: list[RelationRun]
    truncates: list[Truncate]
    messages: list[LogicalMessage]
    transactions: pa.RecordBatch
    last_commit_lsn: int | None
    last_commit_end_lsn: int | None
    open_transaction: bool
    frames: int
    row_messages: int
    captured_rows: int
