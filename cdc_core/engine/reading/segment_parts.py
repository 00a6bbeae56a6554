"""A sorted segment in two parts: what is before the transaction that it ends in, and that transaction's beginning.

A segment ends wherever reading paused, under load nearly always inside of a transaction. A batch should not: rows of a
transaction that two batches divide are read from the changelog again before they are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cdc_core.decode.pgoutput.stream_state import OpenTransaction, RelationRun, SortedSegment, Truncate


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The last transaction that ends in a segment; ``ts_us`` in microseconds since 1970-01-01T00:00:00Z."""

    lsn: int
    end_lsn: int
    xid: int
    ts_us: int


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """Rows and truncates of a segment, or of a part of it, in stream order.

    ``last_commit``: None if no transaction ends in it. ``open_lsn``: the commit LSN of the transaction that continues
    in the next segment; None if it ends with a transaction.
    """

    runs: Sequence[RelationRun]
    truncates: Sequence[Truncate]
    last_commit: LastCommit | None
    open_lsn: int | None


def parts_of(found: SortedSegment, still_open: OpenTransaction | None) -> list[SegmentPart]:
    """Divide a segment at its last commit, if it ends inside of a transaction (``still_open``) that begins after it."""
    last, lsn = _last_commit(found), None if still_open is None else still_open.commit_lsn
    if lsn is None or last is None:
        return [SegmentPart(found.runs, found.truncates, last, lsn)]
    ended = SegmentPart(
        [run for run in (_rows_of(each, lsn, False) for each in found.runs) if run.raw.num_rows],
        [each for each in found.truncates if each.commit_lsn != lsn],
        last,
        None,
    )
    begun = SegmentPart(
        [run for run in (_rows_of(each, lsn, True) for each in found.runs) if run.raw.num_rows],
        [each for each in found.truncates if each.commit_lsn == lsn],
        None,
        lsn,
    )
    return [ended, begun]


def _rows_of(run: RelationRun, lsn: int, inside: bool) -> RelationRun:
    """Return a run's rows of the transaction ``lsn``, which is the last one in it, or those before (no copy)."""
    before = int(np.count_nonzero(run.raw.column("commit_lsn").to_numpy() != lsn))
    return replace(run, raw=run.raw.slice(before) if inside else run.raw.slice(0, before))


def _last_commit(found: SortedSegment) -> LastCommit | None:
    if found.last_commit_lsn is None or found.last_commit_end_lsn is None:
        return None
    marks = found.transactions
    ended = int(np.flatnonzero(marks.column("kind").to_numpy() == ord("C"))[-1])
    xid, ts_us = marks.column("xid")[ended].as_py(), marks.column("commit_ts_us")[ended].as_py()
    return LastCommit(found.last_commit_lsn, found.last_commit_end_lsn, xid, ts_us)
