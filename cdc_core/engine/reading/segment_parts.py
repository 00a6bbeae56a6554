"""A sorted segment in two parts: what is before the transaction that it ends in, and that transaction's beginning.

A segment ends wherever reading paused, under load nearly always inside of a transaction. A batch should not: rows of a
transaction that two batches divide are read from the changelog again before they are merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from cdc_core.decode import OpenTransaction, RelationRun, SortedSegment, Truncate
from cdc_core.lake import StreamTable


@dataclass(frozen=True, slots=True)
class LastTransaction:
    """The last transaction that ends in a segment; ``ts_us`` in microseconds since 1970-01-01T00:00:00Z."""

    lsn: int
    end_lsn: int
    xid: int
    ts_us: int


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """Rows and truncates of a segment, or of a part of it, in stream order, and the rows of the stream's own tables.

    ``last_commit``: None if no transaction ends in it. ``open_lsn``: the commit LSN of the transaction that continues
    in the next segment; None if it ends with a transaction.
    """

    runs: Sequence[RelationRun]
    truncates: Sequence[Truncate]
    last_commit: LastTransaction | None
    open_lsn: int | None
    own_rows: Mapping[StreamTable, pa.Table] = field(default_factory=dict)


def parts_of(
    segment: SortedSegment, still_open: OpenTransaction | None, own_rows: Mapping[StreamTable, pa.Table]
) -> list[SegmentPart]:
    """Divide a segment at its last commit, if it ends inside of a transaction (``still_open``) that begins after it."""
    last, lsn = _last_commit(segment), None if still_open is None else still_open.commit_lsn
    if lsn is None or last is None:
        return [SegmentPart(segment.runs, segment.truncates, last, lsn, own_rows)]
    ended = SegmentPart(
        [run for run in (_rows_of(run, lsn, False) for run in segment.runs) if run.raw.num_rows],
        [truncate for truncate in segment.truncates if truncate.commit_lsn != lsn],
        last,
        None,
        _own_rows_of(own_rows, lsn, False),
    )
    begun = SegmentPart(
        [run for run in (_rows_of(run, lsn, True) for run in segment.runs) if run.raw.num_rows],
        [truncate for truncate in segment.truncates if truncate.commit_lsn == lsn],
        None,
        lsn,
        _own_rows_of(own_rows, lsn, True),
    )
    return [ended, begun]


def _rows_of(run: RelationRun, lsn: int, inside: bool) -> RelationRun:
    """Return a run's rows of the transaction ``lsn``, which is the last one in it, or those before (no copy)."""
    before = int(np.count_nonzero(run.raw.column("commit_lsn").to_numpy() != lsn))
    return replace(run, raw=run.raw.slice(before) if inside else run.raw.slice(0, before))


def _own_rows_of(own_rows: Mapping[StreamTable, pa.Table], lsn: int, inside: bool) -> dict[StreamTable, pa.Table]:
    """Return the rows of the transaction ``lsn``, or the others; a message outside of transactions has its own LSN."""
    parts = {}
    for table, rows in own_rows.items():
        part = rows.filter(pa.array((rows.column("__commit_lsn").to_numpy() == lsn) == inside))
        if part.num_rows:
            parts[table] = part
    return parts


def _last_commit(segment: SortedSegment) -> LastTransaction | None:
    if segment.last_commit_lsn is None or segment.last_commit_end_lsn is None:
        return None
    marks = segment.transactions
    ended = int(np.flatnonzero(marks.column("kind").to_numpy() == ord("C"))[-1])
    xid, ts_us = marks.column("xid")[ended].as_py(), marks.column("commit_ts_us")[ended].as_py()
    return LastTransaction(segment.last_commit_lsn, segment.last_commit_end_lsn, xid, ts_us)
