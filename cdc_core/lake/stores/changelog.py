"""The changelog: every change of a table is appended once, and changes between two LSNs can be read.

An append drops the rows that the table's own position covers and commits the position that it reaches in the same
commit. So it may be repeated at any time: by a task that Spark runs again, by the next run, by a writer that outlasts
its run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import failpoints
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import ChangeRows, EpochRows
from cdc_core.lake.positions import (
    COMPLETE,
    ChangelogPosition,
    changelog_app,
    changelog_position,
    open_app,
    open_index_app,
)
from cdc_core.lake.rows.images import column
from cdc_core.lake.rows.shown import Reached
from cdc_core.lake.rows.survey import in_order
from cdc_core.lake.schema.change_columns import SCHEMA_VERSION, schema_versions_of
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId

_STREAMED_BYTES = 4 << 20
_POSITION = ["__commit_lsn", "__tx_index"]


def append_changes(changelog: DeltaTable, rows: pa.Table, scope: str, table: TableId, reached: Reached) -> int:
    """Append the change rows after the table's position, in stream order; returns their number.

    ``rows`` has the changelog's schema or a part of it. Nothing is committed if the changelog has all of them already.
    Raises TransientError after eight conflicts with other writers.
    """

    def attempt() -> int:
        position = changelog_position(changelog, scope, table)
        fresh = beyond(rows, position)
        if fresh.num_rows:
            commit_append(changelog, [changelog.write(fresh)], scope, table, reached)
        return int(fresh.num_rows)

    return on_conflict(attempt, changelog)


def commit_append(
    changelog: DeltaTable, files: Sequence[DataFile], scope: str, table: TableId, reached: Reached
) -> int:
    """Commit files of change rows with the position they reach; returns the new version. Raises CommitConflictError."""
    failpoints.hit(failpoints.DURING_APPEND)
    position = changelog_position(changelog, scope, table)
    before = position.commit_lsn if position is not None and position.tx_index == COMPLETE else None
    whole = max((lsn for lsn in (reached.whole, before) if lsn), default=None)
    txns = {} if whole is None else {changelog_app(scope, table): whole}
    at, index = reached.cut or (whole or 0, COMPLETE)
    txns |= {open_app(scope, table): at, open_index_app(scope, table): index}
    meta = {"slot": scope, "complete_to": None if reached.whole is None else str(Lsn(reached.whole))}
    return changelog.commit(files, txns=txns, metadata=meta)


def beyond(rows: pa.Table, position: ChangelogPosition | None) -> pa.Table:
    """Return the rows after a position."""
    if position is None or not rows.num_rows:
        return rows
    lsn, index = rows.column("__commit_lsn").to_numpy(), rows.column("__tx_index").to_numpy()
    known = position.covers(lsn, index)
    return rows.filter(pa.array(~known)) if known.any() else rows


def read_changes(
    changelog: ChangeRows,
    from_lsn: int,
    to_lsn: int,
    needed: Callable[[pa.Table], pa.Table] | None = None,
    may_have: Callable[[DataFile], bool] = lambda file: True,
) -> pa.Table:
    """Return change rows with ``from_lsn < __commit_lsn <= to_lsn`` in stream order, without rows read (op r).

    Files whose statistics exclude such rows are not opened, nor those that ``may_have`` excludes. ``needed`` filters
    the rows of each file.
    """
    parts = []
    for file in filter(may_have, files_between(changelog, from_lsn, to_lsn)):
        rows = between(changelog.read(file), from_lsn, to_lsn)
        parts.append(rows if needed is None else needed(rows))
    rows = pa.concat_tables(parts) if parts else changelog.schema.empty_table()
    return in_order(rows)


def files_between(changelog: ChangeRows, from_lsn: int, to_lsn: int) -> list[DataFile]:
    """Return the files that may have changes with ``from_lsn < __commit_lsn <= to_lsn``, by their statistics."""
    files = []
    for file in changelog.files:
        low, high = file.minimum.get("__commit_lsn"), file.maximum.get("__commit_lsn")
        if (low is not None and low > to_lsn) or (high is not None and high <= from_lsn):
            continue
        if file.maximum.get("__tx_index", 0) >= 0:
            files.append(file)
    return files


def in_stream_order(files: Iterable[DataFile]) -> list[DataFile]:
    """Return files of a changelog by their first position."""
    return sorted(files, key=lambda file: (file.minimum.get("__commit_lsn", 0), file.minimum.get("__tx_index", 0)))


def stream_changes(
    changelog: ChangeRows, from_lsn: int, to_lsn: int, paths: Collection[str] = ()
) -> Iterator[pa.Table]:
    """As ``read_changes``, a few megabytes at a time; files follow each other by their first position.

    ``paths`` are those of the files to be read; all if it is empty.
    """
    buffered: list[pa.Table] = []
    octets = 0
    for file in in_stream_order(files_between(changelog, from_lsn, to_lsn)):
        if paths and file.path not in paths:
            continue
        for rows in changelog.batches(file):
            changes = between(rows, from_lsn, to_lsn)
            if changes.num_rows:
                buffered.append(changes)
                octets += changes.nbytes
            del rows, changes  # a row may be large, and would stay in memory while the next one is read
            if octets >= _STREAMED_BYTES:
                yield _together(buffered)
                octets = 0
    if buffered:
        yield _together(buffered)


def _together(buffered: list[pa.Table]) -> pa.Table:
    """Return all rows of a list, which is empty then."""
    # A file is read a few thousand rows at a time. Each step on them has a fixed cost.
    rows = buffered[0] if len(buffered) == 1 else pa.concat_tables(buffered).combine_chunks()
    buffered.clear()
    return rows


def last_schema_version(changelog: ChangeRows) -> int:
    """Return the number of the schema version of the last change; 0 without a change, or where none was recorded."""
    every = files_between(changelog, -1, 2**63 - 1)
    last = max((file.maximum.get("__commit_lsn", 0) for file in every), default=0)
    names = sorted({"__commit_lsn", "__tx_index", SCHEMA_VERSION} & {*changelog.schema.names})
    parts = [changelog.read(file, names) for file in files_between(changelog, last - 1, last)]
    if not parts:
        return 0
    numbers = schema_versions_of(in_order(pa.concat_tables(parts)))
    return int(numbers[-1]) if len(numbers) else 0


def read_positions(changelog: ChangeRows, places: pa.Table) -> pa.Table:
    """Return change rows at positions (``__commit_lsn``, ``__tx_index``), in stream order; missing ones are left out.

    Files whose statistics exclude the positions are not opened, and only files with a match are read completely.
    """
    parts = [rows for rows, _ in stream_positions(changelog, places)]
    return in_order(pa.concat_tables(parts)) if parts else changelog.schema.empty_table()


def stream_positions(changelog: ChangeRows, places: pa.Table) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """As ``read_positions``, a few megabytes at a time, by file; with the numbers of the rows' positions in ``places``.

    Shape: places[P] -> rows[N], int64[N] each time
    """
    sought = places.select(_POSITION).append_column("number", pa.array(np.arange(places.num_rows)))
    for file in files_at(changelog, places):
        at = changelog.read(file, _POSITION)
        at = at.append_column("at", pa.array(np.arange(at.num_rows)))
        matches = at.join(sought, keys=_POSITION, join_type="inner").sort_by("at")
        if not matches.num_rows:
            continue
        indexes, numbers = (column(matches, name).to_numpy() for name in ("at", "number"))
        start = 0
        for rows in changelog.batches(file):
            low, high = np.searchsorted(indexes, [start, start + rows.num_rows]).tolist()
            some = rows.take(pa.array(indexes[low:high] - start))
            start += rows.num_rows
            del rows  # a row may be large, and would stay in memory while the next one is read
            if high > low:
                yield some, numbers[low:high]


def files_at(changelog: ChangeRows, places: pa.Table) -> list[DataFile]:
    """Return the files that may have changes at positions, by their statistics."""
    lsns = np.unique(places.column(_POSITION[0]).to_numpy())
    files = []
    for file in changelog.files if len(lsns) else ():
        low, high = file.minimum.get(_POSITION[0], lsns[0]), file.maximum.get(_POSITION[0], lsns[-1])
        if np.searchsorted(lsns, low) != np.searchsorted(lsns, high, side="right"):
            files.append(file)
    return files


def cut_within(changelog: ChangeRows, from_lsn: int, to_lsn: int, most_bytes: int) -> int:
    """Return the commit LSN, at most ``to_lsn``, up to which changes occupy about ``most_bytes`` of files.

    Only files with changes after ``from_lsn`` are counted.
    """
    ends: list[tuple[int, int]] = []
    for file in changelog.files:
        low, high = file.minimum.get("__commit_lsn", from_lsn), file.maximum.get("__commit_lsn", to_lsn)
        if high > from_lsn and low <= to_lsn:
            ends.append((high, file.size))
    octets = 0
    for high, size in sorted(ends):
        octets += size
        if octets >= most_bytes:
            return min(high, to_lsn)
    return to_lsn


def count_after(changelog: EpochRows, lsn: int) -> int:
    """Count the changes committed after ``lsn``; for files with later changes only, the log's row count is used."""
    count = 0
    for file in changelog.files:
        low, high = file.minimum.get("__commit_lsn"), file.maximum.get("__commit_lsn")
        if high is not None and high <= lsn:
            continue
        is_past = low is not None and low > lsn and file.minimum.get("__tx_index", -1) >= 0 and changelog.is_only(file)
        rows = None if is_past else changelog.read(file, ["__commit_lsn", "__tx_index"])
        count += file.rows if rows is None else between(rows, lsn, 2**63 - 1).num_rows
    return count


def commit_time(changelog: EpochRows, lsn: int) -> datetime | None:
    """Return the commit time (UTC) of the last change up to an LSN; None without one. Usually one file is opened."""
    upto = [file for file in files_between(changelog, 0, lsn) if file.minimum.get("__commit_lsn", 0) <= lsn]
    for file in sorted(upto, key=lambda file: file.maximum.get("__commit_lsn", 0), reverse=True):
        rows = between(changelog.read(file, ["__commit_lsn", "__tx_index", "__commit_ts"]), 0, lsn)
        if rows.num_rows:
            return cast("datetime | None", pc.max(rows.column("__commit_ts")).as_py())
    return None


def between(rows: pa.Table, from_lsn: int, to_lsn: int) -> pa.Table:
    """Return the changes among ``rows`` whose transaction committed after ``from_lsn`` and up to ``to_lsn``."""
    lsn, index = rows.column("__commit_lsn").to_numpy(), rows.column("__tx_index").to_numpy()
    inside = (lsn > from_lsn) & (lsn <= to_lsn) & (index >= 0)
    return rows if inside.all() else rows.filter(pa.array(inside))
