"""Decodes row messages to columns: column by column, for all rows of one relation at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from cdc_core.decode.byte_reader import ByteReader
from cdc_core.decode.gather import as_text, concat, gather_binary, null_text
from cdc_core.decode.raw_columns import RawColumns, TupleBatch
from cdc_core.errors import ProtocolError
from cdc_core.schema import Relation

# Rows decoded at once: enough to amortise numpy's call overhead, few enough for their bytes to remain in the CPU cache.
CHUNK_ROWS = 10_000
# A chunk of wide rows is limited in bytes as well.
CHUNK_BYTES = 16 << 20

_INSERT, _UPDATE, _DELETE = ord("I"), ord("U"), ord("D")
_KEY, _OLD, _NEW = ord("K"), ord("O"), ord("N")
# A delete whose row is not known: only in messages that another plug-in's were translated to (``write``).
_UNKNOWN = ord("-")
_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")
_MARKER_AT = 5  # after the kind byte and the relation's oid
_TUPLE_AT = 6


def decode_rows(raw: pa.RecordBatch, relation: Relation) -> TupleBatch:
    """Decode row messages of one relation to text.

    Shape:  raw[N] of RAW_SCHEMA → TupleBatch of N rows, in the same order.

    Nulls:  SQL NULL, a value not sent (unchanged TOAST) and a tuple not sent are null; ``unchanged`` marks the second.
    A column unchanged in ``new`` is marked even if the old tuple contains its value.

    Raises: ProtocolError(relation, LSN of the first bad row, expected, found), or NotUtf8Error — no partial result.

    Source: PostgreSQL manual §55.9 (TupleData), protocol version 1, text format.
    """
    count = raw.num_rows
    lsn = raw.column("lsn").to_numpy()
    data, offsets = _payload(raw)
    op = np.empty(count, dtype=np.uint8)
    old_kind = np.zeros(count, dtype=np.uint8)
    new, old = _Gathered(relation, count), _Gathered(relation, count)
    for first, last in chunk_bounds(offsets, CHUNK_ROWS, CHUNK_BYTES):
        chunk = _Chunk(data, offsets[first : last + 1], lsn[first:last], relation)
        chunk.walk()
        op[first:last] = chunk.kind
        old_kind[first:last] = chunk.old_kind
        new.add(first, last, chunk, chunk.new)
        old.add(first, last, chunk, chunk.old)
    return TupleBatch(op, old_kind, new.columns(), old.columns())


def chunk_bounds(offsets: np.ndarray, rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Split rows with bytes at ``offsets`` (int[N + 1]) into ranges of at most ``rows`` rows and ``size`` bytes.

    A single row may exceed ``size``.
    """
    first, count = 0, len(offsets) - 1
    while first < count:
        last = min(first + rows, count)
        if offsets[last] - offsets[first] > size:
            fitting = int(np.searchsorted(offsets[first : last + 1], offsets[first] + size, side="right")) - 1
            last = first + max(fitting, 1)
        yield first, last
        first = last


def _payload(raw: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of the payload column and their N + 1 offsets (int64), without copying the bytes."""
    column = raw.column("payload")
    _, offsets, content = column.buffers()
    if len(column) == 0 or content is None:
        return np.zeros(0, dtype=np.uint8), np.zeros(len(column) + 1, dtype=np.int64)
    ends = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(content, dtype=np.uint8), ends.astype(np.int64)


class _Walk:
    """The positions of the values of one kind of tuple: ``rows`` (indices in the chunk, or None for all of them).

    For each column starts, ends, and the masks of null and unchanged values (None if there are none).
    """

    __slots__ = ("ends", "null", "rows", "starts", "unchanged")

    def __init__(self, rows: np.ndarray | None) -> None:
        self.rows = rows
        self.starts: list[np.ndarray] = []
        self.ends: list[np.ndarray] = []
        self.null: list[np.ndarray | None] = []
        self.unchanged: list[np.ndarray | None] = []


class _Chunk:
    """A few thousand messages, decoded column by column.

    The reads are unchecked: positions only increase, so a row that leaves its message at any point ends after the
    message's end, and a single comparison at the end detects every truncated or overlong row. Values are gathered only
    after that.
    """

    def __init__(self, data: np.ndarray, offsets: np.ndarray, lsn: np.ndarray, relation: Relation) -> None:
        self.data = data[offsets[0] : offsets[-1]]
        self._reader = ByteReader(self.data)
        self._starts = offsets[:-1] - offsets[0]
        self._ends = offsets[1:] - offsets[0]
        self.lsn = lsn
        self.relation = relation
        self.old: _Walk | None = None
        self.new: _Walk | None = None

    def __len__(self) -> int:
        return len(self._starts)

    def walk(self) -> None:
        """Find every value of every row; raises ProtocolError if a message is not exactly one row change."""
        starts, ends = self._starts, self._ends
        self._require(ends - starts >= _TUPLE_AT, "a row message of at least 6 bytes", "a shorter one")
        kind, marker = self._reader.u8(starts), self._reader.u8(starts + _MARKER_AT)
        self.kind = kind
        has_old = (marker == _KEY) | (marker == _OLD)
        inserted, updated, deleted = kind == _INSERT, kind == _UPDATE, kind == _DELETE
        self._require(inserted | updated | deleted, "a message of kind I, U or D", "another kind")
        unknown = deleted & (marker == _UNKNOWN)
        fits = ((inserted | updated) & (marker == _NEW)) | ((updated | deleted) & has_old) | unknown
        self._require(fits, "a tuple marked N, or K or O where the message has an old row", "another mark")
        oid_ok = self._reader.u32(starts + 1) == self.relation.oid
        self._require(oid_ok, f"rows of the relation with OID {self.relation.oid}", "a row of another relation")
        self.old_kind = np.where(has_old, marker, 0).astype(np.uint8)
        at = starts + _TUPLE_AT + 2 * unknown
        if has_old.any():
            at = self._walk_old(at, has_old, updated)
        if not deleted.any():
            self.new, at = self._tuple(at, None)
        elif not deleted.all():
            rows = np.flatnonzero(~deleted)
            self.new, at[rows] = self._tuple(at[rows], rows)
        self._require(at == ends, "a message that ends with its last value", "more bytes or fewer")

    def _walk_old(self, at: np.ndarray, has_old: np.ndarray, updated: np.ndarray) -> np.ndarray:
        """Find the values of the old tuples; returns where each row continues: at its new tuple, or its end."""
        rows = None if has_old.all() else np.flatnonzero(has_old)
        self.old, after = self._tuple(at if rows is None else at[rows], rows)
        at = at.copy()
        at[slice(None) if rows is None else rows] = after
        both = np.flatnonzero(has_old & updated)
        if len(both):
            marked = (at[both] < self._ends[both]) & (self._reader.u8(at[both]) == _NEW)
            self._require(marked, "a new tuple behind the old one", "something else", both)
            at[both] += 1
        return at

    def _tuple(self, at: np.ndarray, rows: np.ndarray | None) -> tuple[_Walk, np.ndarray]:
        """Find the values of one tuple of each of ``rows`` from position ``at``; returns them and the end positions."""
        walk = _Walk(rows)
        width = self._reader.u16(at)
        expected = len(self.relation.columns)
        self._require(
            (width == expected) & (at + 2 <= self._row_ends(rows)), f"{expected} columns", "another number", rows
        )
        at = at + 2
        for column in self.relation.columns:
            at = self._column(column.name, at, walk)
        return walk, at

    def _column(self, name: str, at: np.ndarray, walk: _Walk) -> np.ndarray:
        kind = self._reader.u8(at)
        text = kind == _TEXT
        if text.all():
            start = at + 5
            end = start + self._reader.u32(at + 1)
            walk.null.append(None)
            walk.unchanged.append(None)
        else:
            unchanged = kind == _UNCHANGED
            known = text | unchanged | (kind == _NULL)
            inside = at < self._row_ends(walk.rows)
            self._require(inside, f"a value of column {name}", "the message's end", walk.rows)
            self._require(known, f"a value of kind n, u or t in column {name}", _kind_found(kind, known), walk.rows)
            start = np.where(text, at + 5, at + 1)
            end = np.where(text, start + self._reader.u32(at + 1), start)
            walk.null.append(~text)
            walk.unchanged.append(unchanged if unchanged.any() else None)
        walk.starts.append(start)
        walk.ends.append(end)
        return np.asarray(end)

    def _row_ends(self, rows: np.ndarray | None) -> np.ndarray:
        return self._ends if rows is None else np.asarray(self._ends[rows])

    def _require(self, good: np.ndarray, expected: str, found: str, rows: np.ndarray | None = None) -> None:
        if good.all():
            return
        bad = int(np.argmin(good))
        row = bad if rows is None else int(rows[bad])
        raise ProtocolError(str(self.relation), int(self.lsn[row]), expected, found)


def _kind_found(kind: np.ndarray, known: np.ndarray) -> str:
    """Return the kind found instead of a value's kind; binary is named, because it may be requested by mistake."""
    if known.all():
        return ""
    return "a binary value (kind b)" if int(kind[np.argmin(known)]) == ord("b") else "another kind"


class _Gathered:
    """Collects one tuple's columns over the chunks of a batch."""

    def __init__(self, relation: Relation, count: int) -> None:
        self._relation = relation
        self._count = count
        self._parts: list[list[pa.Array]] = [[] for _ in relation.columns]
        self._unchanged: list[np.ndarray | None] = [None for _ in relation.columns]
        self._pending = 0  # rows at the end that have no such tuple: represented by one array of nulls

    def add(self, first: int, last: int, chunk: _Chunk, walk: _Walk | None) -> None:
        """Append the rows of a chunk; ``walk`` is None if none of them has such a tuple."""
        if walk is None:
            self._pending += last - first
            return
        self._flush()
        for index in range(len(self._parts)):
            self._parts[index].append(self._text(chunk, walk, index))
            mask = walk.unchanged[index]
            if mask is not None:
                self._mark(index, first, last, mask, walk.rows)

    def columns(self) -> RawColumns:
        """Return the collected columns, as arrays of the batch's length."""
        names = tuple(column.name for column in self._relation.columns)
        if self._pending == self._count:
            return RawColumns(names, (null_text(self._count),) * len(names), (None,) * len(names), self._count)
        self._flush()
        return RawColumns(names, tuple(concat(parts) for parts in self._parts), tuple(self._unchanged), self._count)

    def _flush(self) -> None:
        if self._pending:
            nulls = null_text(self._pending)
            for parts in self._parts:
                parts.append(nulls)
            self._pending = 0

    def _text(self, chunk: _Chunk, walk: _Walk, index: int) -> pa.Array:
        starts, ends, null = walk.starts[index], walk.ends[index], walk.null[index]
        if walk.rows is not None:
            starts, ends, null = _spread(len(chunk), walk.rows, starts, ends, null)
        column = chunk.relation.columns[index].name
        return as_text(gather_binary(chunk.data, starts, ends), null, str(chunk.relation), column, chunk.lsn)

    def _mark(self, index: int, first: int, last: int, mask: np.ndarray, rows: np.ndarray | None) -> None:
        whole = self._unchanged[index]
        if whole is None:
            whole = self._unchanged[index] = np.zeros(self._count, dtype=bool)
        whole[first:last][slice(None) if rows is None else rows] = mask


def _spread(
    count: int, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray, null: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Convert ranges of some rows to ranges of all ``count`` rows.

    Rows without a tuple are null and get an empty range at the end of the previous row (ranges must not decrease).
    """
    absent = np.ones(count, dtype=bool)
    absent[rows] = False if null is None else null
    all_ends = np.zeros(count, dtype=np.int64)
    all_ends[rows] = ends
    np.maximum.accumulate(all_ends, out=all_ends)
    all_starts = all_ends.copy()
    all_starts[rows] = starts
    return all_starts, all_ends, absent
