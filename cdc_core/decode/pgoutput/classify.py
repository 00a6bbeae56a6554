"""Sorts the messages of a segment: rows by relation version, truncates, logical messages, transaction marks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from cdc_core.decode.gather import INT32_MAX, gather_binary
from cdc_core.decode.pgoutput.cursor import Cursor
from cdc_core.decode.pgoutput.frames import (
    DELETE,
    INSERT,
    RELATION,
    TRUNCATE,
    TYPE,
    UPDATE,
    Frames,
)
from cdc_core.decode.pgoutput.relation import parse_relation
from cdc_core.decode.pgoutput.stream_state import (
    Announced,
    LogicalMessage,
    RelationRun,
    SortedSegment,
    StreamState,
    Truncate,
)
from cdc_core.decode.pgoutput.transactions import (
    Transactions,
    find_transactions,
    marks,
    open_transaction,
    origin_of,
)
from cdc_core.decode.raw_batch import RAW_SCHEMA
from cdc_core.decode.segment import Segment
from cdc_core.errors import ProtocolError
from cdc_core.schema import Relation, TableSchema

Describe = Callable[[Relation, int], TableSchema | None]

_OID_SHIFT = np.uint64(32)
_IS_TUPLE = np.zeros(256, dtype=bool)
_IS_TUPLE[[INSERT, UPDATE, DELETE]] = True


def sort_segment(segment: Segment, state: StreamState, describe: Describe, max_bytes: int = INT32_MAX) -> SortedSegment:
    """Sort the messages of a segment; ``state`` is updated to its end.

    ``describe`` is called once for every Relation message, in stream order, with the id of its transaction (32 bits, 0
    if unknown); it returns the table's version, or None if the table is not captured: its rows are dropped but keep
    their index in the transaction.
    An unchanged relation that is announced again starts no new run. A run spans at most ``max_bytes`` of the segment (a
    binary array is limited to 2 GiB); a larger one is split.

    Raises: ProtocolError for malformed bytes, unknown kinds, invalid nesting, and rows of relations that were not
    announced. The state is then unchanged.

    Source: PostgreSQL manual §55.9, protocol version 1.
    """
    frames = Frames(segment)
    transactions = find_transactions(frames, state)
    versions = _RelationVersions(frames, transactions, state, describe)
    _check_types(frames)
    # row-wise: truncates and logical messages are rare, and each becomes one object
    truncates = [
        _truncate(frames, transactions, versions, state, int(at)) for at in np.flatnonzero(frames.kinds == TRUNCATE)
    ]
    messages = [
        _message(frames, transactions, state, int(at), bool(inside))
        for at, inside in zip(transactions.messages, transactions.transactional, strict=True)
    ]
    runs = list(_runs(frames, transactions, versions, state.next_seq, max_bytes))
    sorted_segment = SortedSegment(
        runs=runs,
        truncates=[truncate for truncate in truncates if truncate.tables],
        messages=messages,
        transactions=marks(frames, transactions, state.next_seq),
        last_commit_lsn=int(transactions.commit_lsn[transactions.ordinal[transactions.commits[-1]]])
        if len(transactions.commits)
        else None,
        last_commit_end_lsn=int(transactions.commit_end_lsn[-1]) if len(transactions.commits) else None,
        open_transaction=transactions.open_at_end,
        frames=len(frames),
        row_messages=int(np.count_nonzero(transactions.is_row)),
        captured_rows=sum(run.raw.num_rows for run in runs),
    )
    if len(frames):
        state.last_origin = _origin_shown(transactions, state, len(frames) - 1)
        state.open = open_transaction(transactions, len(frames))
        state.prior_end_lsn = int(transactions.prior_end_lsn[-1])
        state.last_commit_ts_us = int(transactions.commit_ts_us[-1])
        state.next_seq += len(frames)
        state.relations = versions.newest()
    return sorted_segment


class _RelationVersions:
    """Every relation version in force somewhere in the segment.

    A version is looked up by (OID, frame): its key is OID · 2³² + the frame that announced it + 1 (0 for those of
    earlier segments), so that the newest version at a frame is the last key not greater than OID · 2³² + frame + 1.
    """

    def __init__(self, frames: Frames, transactions: Transactions, state: StreamState, describe: Describe) -> None:
        self.announced: list[Announced] = []
        keys: list[int] = []
        of_key: list[int] = []
        self._latest: dict[int, int] = {}
        self._frames = frames
        for oid, known in state.relations.items():
            self._add(oid, known)
            keys.append(oid << 32)
            of_key.append(self._latest[oid])
        for at in np.flatnonzero(frames.kinds == RELATION):  # row-wise: once per relation and connection
            relation = parse_relation(frames.payload(int(at)), int(frames.lsn[at]))
            xid = int(transactions.xid[transactions.ordinal[at]])
            self._add(relation.oid, Announced(relation, describe(relation, xid)))
            keys.append((relation.oid << 32) + int(at) + 1)
            of_key.append(self._latest[relation.oid])
        order = np.argsort(np.array(keys, dtype=np.uint64))
        self._keys = np.array(keys, dtype=np.uint64)[order]
        self._of_key = np.array(of_key, dtype=np.int64)[order]

    def of(self, oids: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Return the index in ``announced`` for each (OID, frame); raises ProtocolError if there is none."""
        oid = oids.astype(np.uint64)
        if len(self._keys) == 0:
            self._frames.require(np.zeros(len(at), dtype=bool), "a Relation message before its rows", "none", at)
            return np.zeros(0, dtype=np.int64)
        key = (oid << _OID_SHIFT) + at.astype(np.uint64) + np.uint64(1)
        slot = np.searchsorted(self._keys, key, side="right") - 1
        known = (slot >= 0) & (self._keys[slot] >> _OID_SHIFT == oid)
        self._frames.require(known, "a Relation message before its rows", "none", at)
        return np.asarray(self._of_key[slot])

    def newest(self) -> dict[int, Announced]:
        """Return the versions in force after the segment, by OID."""
        return {oid: self.announced[index] for oid, index in self._latest.items()}

    def _add(self, oid: int, announced: Announced) -> None:
        before = self._latest.get(oid)
        if before is None or self.announced[before] != announced:
            self._latest[oid] = len(self.announced)
            self.announced.append(announced)


def _runs(
    frames: Frames, transactions: Transactions, versions: _RelationVersions, first_seq: int, max_bytes: int
) -> Iterator[RelationRun]:
    rows = np.flatnonzero(_IS_TUPLE[frames.kinds])
    if not len(rows):
        return
    version = versions.of(frames.reader.u32(frames.starts[rows] + 1), rows)
    for index, announced in enumerate(versions.announced):
        if announced.table is None:
            continue
        mine = rows[version == index]
        for first, last in _pieces(frames, mine, max_bytes):
            raw = _raw_batch(frames, transactions, mine[first:last], first_seq)
            yield RelationRun(announced.relation, announced.table, raw)


def _pieces(frames: Frames, rows: np.ndarray, max_bytes: int) -> Iterator[tuple[int, int]]:
    starts, ends = frames.starts[rows], frames.ends[rows]
    first = 0
    while first < len(rows):
        last = max(int(np.searchsorted(ends, starts[first] + max_bytes, side="right")), first + 1)
        yield first, last
        first = last


def _raw_batch(frames: Frames, transactions: Transactions, rows: np.ndarray, first_seq: int) -> pa.RecordBatch:
    of = transactions.ordinal[rows]
    origin, origin_lsn = _origin_columns(transactions, rows)
    columns = [
        pa.array(rows + first_seq),
        pa.array(frames.lsn[rows]),
        pa.array(transactions.commit_lsn[of]),
        pa.array(transactions.tx_index[rows]),
        pa.array(transactions.prior_end_lsn[rows]),
        pa.array(transactions.xid[of]),
        pa.array(transactions.commit_ts_us[of]),
        origin,
        origin_lsn,
        gather_binary(frames.data, frames.starts[rows], frames.ends[rows]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)


def _origin_columns(found: Transactions, rows: np.ndarray) -> tuple[pa.Array, pa.Array]:
    if found.origins is None:
        return pa.nulls(len(rows), pa.string()), pa.nulls(len(rows), pa.int64())
    index = found.origins.of_frame[rows]
    none = index < 0
    return (
        found.origins.name.take(pa.array(index, mask=none)),
        pa.array(found.origins.lsn[np.where(none, 0, index)], mask=none),
    )


def _check_types(frames: Frames) -> None:
    for at in np.flatnonzero(frames.kinds == TYPE):  # row-wise: sent with Relation messages
        cursor = Cursor(frames.payload(int(at)), int(frames.lsn[at]), "a Type message")
        cursor.take(5)
        cursor.text()
        cursor.text()
        cursor.end()


def _truncate(
    frames: Frames, transactions: Transactions, versions: _RelationVersions, state: StreamState, at: int
) -> Truncate:
    lsn = int(frames.lsn[at])
    cursor = Cursor(frames.payload(at), lsn, "a Truncate message")
    cursor.take(1)
    count, options = cursor.u32(), cursor.byte()
    if len(frames.payload(at)) != 6 + 4 * count:
        raise ProtocolError("", lsn, f"{count} relations in a Truncate message", "another length")
    oids = np.frombuffer(cursor.take(4 * count), dtype=">u4").astype(np.int64)
    index = versions.of(oids, np.full(count, at, dtype=np.int64))
    tables = (versions.announced[number].table for number in index)
    of = int(transactions.ordinal[at])
    origin, origin_lsn = origin_of(transactions.origins, at)
    return Truncate(
        seq=state.next_seq + at,
        lsn=lsn,
        commit_lsn=int(transactions.commit_lsn[of]),
        tx_index=int(transactions.tx_index[at]),
        prior_end_lsn=int(transactions.prior_end_lsn[at]),
        xid=int(transactions.xid[of]),
        commit_ts_us=int(transactions.commit_ts_us[of]),
        origin=origin,
        origin_lsn=origin_lsn,
        tables=tuple(table for table in tables if table is not None),
        options=options,
    )


def _origin_shown(found: Transactions, state: StreamState, at: int) -> tuple[str | None, int | None]:
    """Return the origin of the last transaction that began before a frame."""
    if state.open is None and found.ordinal[at] == 0:
        return state.last_origin
    return origin_of(found.origins, at)


def _message(frames: Frames, transactions: Transactions, state: StreamState, at: int, inside: bool) -> LogicalMessage:
    lsn = int(frames.lsn[at])
    cursor = Cursor(frames.payload(at), lsn, "a logical message")
    cursor.take(10)  # kind, flags, and the LSN, which is also in the frame's header
    prefix = cursor.text()
    content = cursor.take(cursor.u32())
    cursor.end()
    of = int(transactions.ordinal[at])
    origin, origin_lsn = _origin_shown(transactions, state, at)
    return LogicalMessage(
        seq=state.next_seq + at,
        lsn=lsn,
        transactional=inside,
        prefix=prefix,
        content=content,
        commit_lsn=int(transactions.commit_lsn[of]) if inside else None,
        tx_index=int(transactions.tx_index[at]) if inside else None,
        prior_end_lsn=int(transactions.prior_end_lsn[at]),
        xid=int(transactions.xid[of]) if inside else None,
        commit_ts_us=int(transactions.commit_ts_us[of]),
        origin=origin,
        origin_lsn=origin_lsn,
    )
