"""A chunk of a table that waits for its position in the stream, and the changes that remove rows from it meanwhile.

The chunk shows the table at one snapshot. Its rows are inserted into the stream at a position after every change that
the snapshot shows. Changes that the snapshot does not show may precede this position too; a row with such a change must
be left out, because the change contains the newer state. Changes between the window's two marks remove rows too,
whether the snapshot shows them or not, as in Debezium: the later state of the same row is in the stream already.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools
from cdc_core.decode import RawColumns, RelationRun, SortedSegment, decode_rows
from cdc_core.schema import Key, TableSchema
from cdc_core.visibility import Visibility


@dataclass(slots=True)
class ChunkWindow:
    """One chunk of N rows in key order, read and not yet in the stream.

    ``rows`` always includes the key's columns, whatever else is captured. ``keep[N]``: rows that no change removed.
    ``is_open``: the first mark has been received in the stream. ``is_stale``: a change was received that was written
    with other columns than those that were read, so the chunk is to be read again. ``last_key`` is its last row's.
    """

    id: str
    table: TableSchema
    key: tuple[str, ...]
    rows: RawColumns
    visible: Visibility
    last_key: Key | None
    is_open: bool = False
    is_stale: bool = False
    keep: Bools = field(init=False)

    def __post_init__(self) -> None:
        self.keep = np.ones(len(self.rows), dtype=np.bool_)

    def pass_over(self, segment: SortedSegment, opened_seq: int | None, end_seq: int) -> None:
        """Remove the rows that changes before ``end_seq`` refer to.

        ``opened_seq`` is the position of the window's first mark in the segment, None if it is not in it.
        """
        since = 0 if self.is_open else (end_seq if opened_seq is None else opened_seq)
        for truncate in segment.truncates:
            if truncate.seq < end_seq and any(t.id == self.table.id for t in truncate.tables):
                xid = np.array([truncate.xid], dtype=np.int64)
                if truncate.seq >= since or not self.visible.shows(xid)[0]:
                    self.keep[:] = False
        for run in segment.runs:
            if run.table.id == self.table.id:
                self._pass_over(run, since, end_seq)

    def _pass_over(self, run: RelationRun, since: int, end_seq: int) -> None:
        seq, xid = (run.raw.column(name).to_numpy() for name in ("seq", "xid"))
        taken = (seq < end_seq) & ((seq >= since) | ~self.visible.shows(xid))
        if not taken.any():
            return
        if _columns(run.table) != _columns(self.table):
            self.is_stale = True
            return
        tuples = decode_rows(run.raw.filter(pa.array(taken)), run.relation)
        old = tuples.old_kind != 0
        new = tuples.op != ord("D")
        changed = [_keys(tuples.new, self.key).filter(pa.array(new)), _keys(tuples.old, self.key).filter(pa.array(old))]
        is_changed = pc.is_in(_keys(self.rows, self.key), value_set=pa.concat_arrays(changed))
        self.keep &= ~is_changed.to_numpy(zero_copy_only=False)


def is_unaltered(before: TableSchema, after: TableSchema) -> bool:
    """Whether no DDL was executed on a table between two descriptions of it, between which a query was run.

    A query uses the catalogue at its own start, so that a renamed column would have another column's values; and its
    snapshot shows no rows that were rewritten or truncated since.
    """
    fingerprint, other = before.fingerprint, after.fingerprint
    if fingerprint is None or other is None:
        return fingerprint is other and _described(before) == _described(after)
    return _described(before) == _described(after) and fingerprint.is_unaltered(other)


def _described(table: TableSchema) -> tuple[object, ...]:
    return (table.oid, table.primary_key, table.unique_key, table.identity_key, _columns(table))


def _columns(table: TableSchema) -> tuple[object, ...]:
    return tuple((column.name, column.type, column.modifier) for column in table.columns)


def _keys(columns: RawColumns, names: tuple[str, ...]) -> pa.Array:
    """Return the key of every row as one text, different for different keys. Shape: columns of N rows → text[N]."""
    position = {name: index for index, name in enumerate(columns.names)}
    parts = [columns.text[position[name]].cast(pa.string()) for name in names]
    if len(parts) == 1:
        return parts[0]
    lengths = [pc.fill_null(pc.binary_length(part).cast(pa.string()), "null") for part in parts]
    pieces = [piece for length, part in zip(lengths, parts, strict=True) for piece in (length, pc.fill_null(part, ""))]
    return pc.binary_join_element_wise(*pieces, ":")
