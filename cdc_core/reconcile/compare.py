"""Compares one table: digests of all rows of both sides, then the rows whose digests differ, by their keys.

    source  ranges     ─▶ digests ─┐                     rows that have
    lake    data files ─▶ digests ─┴▶ equally often? ─▶ one that does not ─▶ judge ─▶ keys

Both sides are read once, at the same time. Only ranges and files that have a row that differs are read again. The
source's digests are computed by the server if its hash functions suffice for the table (``row_hash``), else from its
rows, which are read by COPY and typed as the lake's are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.errors import NotComparableError
from cdc_core.lake.paths import LakePaths
from cdc_core.postgres.rows.copy_out import SnapshotReader
from cdc_core.reconcile.between import Shown, SlotChanges, Waiting, between
from cdc_core.reconcile.judge import (
    Between,
    Judged,
    after_truncate,
    images_of,
    is_complete,
    judge_keyed,
    judge_multiset,
    multiset_left,
)
from cdc_core.reconcile.lake_side import LakeSide
from cdc_core.reconcile.partial import Since, keys_since, sampled_rows
from cdc_core.reconcile.reports import Differences, Key, KeyList, State, TableResult
from cdc_core.reconcile.row_hash import RowHash
from cdc_core.reconcile.rows import is_among, surplus
from cdc_core.reconcile.rows_repair import Surplus, picked
from cdc_core.reconcile.source_side import Pace, Reading, SourceSide
from cdc_core.reconcile.target import Target

# Rows that differ are held in memory to be told apart by their keys.
_MOST_ROWS = 2_000_000
# Rows that the server finds by their hashes: more are read with all others.
_MOST_HASHED = 100_000


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one table, and what a repair needs of it; None if it was not compared."""

    result: TableResult
    judged: Judged | None = None


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both sides of a table with the digests of their rows: ``held`` by the lake, ``expected`` by the source."""

    lake: LakeSide
    source: SourceSide
    held: np.ndarray
    expected: np.ndarray

    @classmethod
    def read(cls, lake: LakeSide, source: SourceSide) -> _Sides:
        """Read both at the same time."""
        with ThreadPoolExecutor(1, thread_name_prefix="lake-side") as pool:
            held = pool.submit(lake.digests)
            expected = source.digests()
            return cls(lake, source, held.result(), expected)

    def after_truncates(self, is_cut: bool, is_emptied: bool) -> _Sides:
        """Return the sides without the rows of a source that is ``is_cut``, and of a lake that is ``is_emptied``."""
        none = self.held[:0]
        return replace(self, held=none if is_emptied else self.held, expected=none if is_cut else self.expected)

    def source_rows(self, digests: np.ndarray) -> pa.Table:
        """Return the source's rows that have one of some sorted digests."""
        is_any = is_among(self.expected, digests).any()
        return self.source.rows(digests) if is_any else self.lake.compared.schema.empty_table()

    def lake_rows(self, digests: np.ndarray) -> pa.Table:
        """Return the lake's rows that have one of some sorted digests."""
        is_any = is_among(self.held, digests).any()
        return self.lake.rows(digests) if is_any else self.lake.compared.schema.empty_table()


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares tables under one snapshot of the source. ``limit``: how many keys of each kind are named.

    ``spark`` starts a session whose tasks read lake tables of at least ``spark_bytes``.
    """

    paths: LakePaths
    scope: str
    shown: Shown
    taken_us: int
    slot: SlotChanges
    pace: Pace
    limit: int
    spark: Callable[[], Any]
    spark_bytes: int

    def compare(self, target: Target, reader: SnapshotReader, reading: Reading) -> Found:
        """Compare all rows of a table. Raises CdcError."""
        began = time.monotonic()
        hashing = RowHash.of(target.typer, target.compared) if reading.can_hash else None
        found = None if hashing is None else self._compared(target, reader, reading, hashing, began)
        found = found or self._compared(target, reader, reading, None, began)
        assert found is not None
        return found

    def _compared(
        self, target: Target, reader: SnapshotReader, reading: Reading, hashing: RowHash | None, began: float
    ) -> Found | None:
        """Compare all rows; None if the hashes of the server are not enough for it (``_judged``)."""
        is_large = sum(file.size for file in target.lake.files) >= self.spark_bytes
        lake = LakeSide(target.lake, target.compared, hashing, self.spark if is_large else None)
        sides = _Sides.read(lake, self._source(target, reader, reading, hashing))
        judged = self._judged(target, sides, _MOST_HASHED if hashing else None)
        return None if judged is None else _found(target, judged, len(sides.expected), sides.source, began)

    def surplus(self, target: Target, reader: SnapshotReader, reading: Reading) -> Surplus:
        """Return the rows that the lake table, which has no key, lacks and has too many of. Raises CdcError."""
        compared = target.compared
        sides = _Sides.read(LakeSide(target.lake, compared), self._source(target, reader, reading))
        changes, is_cut, is_emptied = self._between(target)
        _check_complete(changes)
        sides = sides.after_truncates(is_cut, is_emptied)
        values, left = multiset_left(sides.expected, sides.held, changes, compared)
        lacks, exceeds = left > 0, left < 0
        images = [images_of(changes.ahead, "after", compared), images_of(changes.behind, "before", compared)]
        mine = pa.concat_tables([sides.source_rows(values[lacks]), *images])
        theirs = sides.lake_rows(values[exceeds])
        return Surplus(
            picked(mine, compared, values[lacks], left[lacks]),
            picked(theirs, compared, values[exceeds], -left[exceeds]),
        )

    def compare_keys(self, target: Target, reader: SnapshotReader, reading: Reading, keys: pa.Table) -> Found:
        """Compare the rows with some keys, whose columns are ``KeyColumns.read``. Raises CdcError."""
        began = time.monotonic()
        lake, source = LakeSide(target.lake, target.compared), self._source(target, reader, reading)
        rows = source.of_keys(keys), lake.of_keys(keys)
        if not keys.num_rows:
            return _found(target, Judged(Differences()), 0, source, began)
        return self._found(target, lake, source, rows, began)

    def keys_since(self, target: Target, since: Since) -> pa.Table | None:
        """Return the keys that changed up to the snapshot; None if all rows have to be compared. Raises CdcError."""
        # Awaited first: a change that gets into the changelog later would be after the next comparison's moment.
        waiting = self.slot.upto(self.shown.lsn)
        return keys_since(target, self.paths, self.scope, since, waiting)

    def compare_sample(self, target: Target, reader: SnapshotReader, reading: Reading, count: int, seed: int) -> Found:
        """Compare the rows of ``count`` ranges of each side, chosen by ``seed``. Raises CdcError."""
        if target.compared.key is None:
            raise NotComparableError("rows of a table without a key cannot be compared by a sample")
        began = time.monotonic()
        lake, source = LakeSide(target.lake, target.compared), self._source(target, reader, reading)
        rows = sampled_rows(target, source, lake, reading.ranges, count, seed)
        return self._found(target, lake, source, rows, began)

    def _found(
        self, target: Target, lake: LakeSide, source: SourceSide, rows: tuple[pa.Table, pa.Table], began: float
    ) -> Found:
        changes, is_cut, is_emptied = self._between(target)
        judged = self._judged_keyed(target, lake, source, rows, changes, is_cut, is_emptied)
        return _found(target, judged, rows[0].num_rows, source, began)

    def _source(
        self, target: Target, reader: SnapshotReader, reading: Reading, hashing: RowHash | None = None
    ) -> SourceSide:
        at = int(self.shown.lsn), self.taken_us
        return SourceSide(reader, target.typer, target.compared, reading, *at, self.pace, hashing)

    def _judged(self, target: Target, sides: _Sides, most_hashed: int | None) -> Judged | None:
        """Judge by the digests of both sides.

        ``most_hashed``: the digests are the server's hashes, and not more rows than this may have others; None if they
        are those of ``compared``. Returns None if more have, or the digests of changes are needed as well.
        """
        compared, unlike = target.compared, surplus(sides.held, sides.expected)
        if not len(unlike) and not self.changes(target, Waiting()).ahead.num_rows:
            return Judged(Differences())
        changes, is_cut, is_emptied = self._between(target)
        sides = sides.after_truncates(is_cut, is_emptied)
        if compared.key is None and most_hashed is not None:
            return None
        if compared.key is None:
            _check_complete(changes)
            return Judged(_without_keys(judge_multiset(sides.expected, sides.held, changes, compared), self.limit))
        unlike = surplus(sides.held, sides.expected) if is_cut or is_emptied else unlike
        missing, extra = (int(np.count_nonzero(is_among(each, unlike))) for each in (sides.expected, sides.held))
        if most_hashed is not None and missing + extra > most_hashed:
            return None
        if missing + extra > _MOST_ROWS:
            return _too_many(missing, extra, changes)
        rows = sides.source_rows(unlike), sides.lake_rows(unlike)
        return self._judged_keyed(target, sides.lake, sides.source, rows, changes, is_cut, is_emptied)

    def _judged_keyed(
        self,
        target: Target,
        lake: LakeSide,
        source: SourceSide,
        rows: tuple[pa.Table, pa.Table],
        changes: Between,
        is_cut: bool,
        is_emptied: bool,
    ) -> Judged:
        """Judge rows of both sides. Of one that was truncated, nothing that was read is there any more."""
        empty = target.compared.schema.empty_table()

        def more(keys: pa.Table) -> tuple[pa.Table, pa.Table]:
            return empty if is_cut else source.of_keys(keys), empty if is_emptied else lake.of_keys(keys)

        mine, theirs = empty if is_cut else rows[0], empty if is_emptied else rows[1]
        return judge_keyed(mine, theirs, changes, target.compared, self.limit, more)

    def _between(self, target: Target) -> tuple[Between, bool, bool]:
        """Return the changes after the last truncate on each side, and whether there was one for source and lake."""
        changes = self.changes(target, self.slot.upto(self.shown.lsn))
        (ahead, is_cut), (behind, is_emptied) = after_truncate(changes.ahead), after_truncate(changes.behind)
        return Between(ahead, behind, changes.refused), is_cut, is_emptied

    def changes(self, target: Target, waiting: Waiting) -> Between:
        """Return the changes between the source's snapshot and the lake's version, ``waiting`` those in the slot only.

        Raises NotComparableError.
        """
        return between(target.typer, target.changelog, self.paths, self.scope, self.shown, target.version, waiting)


def _found(target: Target, judged: Judged, rows: int, source: SourceSide, began: float) -> Found:
    """Return the result. Raises NotComparableError if all that remains is undecided."""
    state = State.DIFFERENT if judged.found.count else State.EQUAL
    if state is State.EQUAL and judged.found.undecided.count:
        raise NotComparableError(f"{judged.found.undecided.count} of its rows are changed by a change under way")
    result = TableResult(
        target.table.id,
        state,
        rows,
        found=judged.found,
        columns_left_out=target.left_out,
        bytes_read=source.cost.octets,
        seconds=time.monotonic() - began,
        lake_version=target.lake.version,
    )
    return Found(result, judged)


def _check_complete(changes: Between) -> None:
    if not (is_complete(changes.ahead) and is_complete(changes.behind)):
        raise NotComparableError("changes between the lake and the source do not hold complete rows")


def _too_many(missing: int, extra: int, changes: Between) -> Judged:
    """Return the result of a table of which so many rows differ that they are not held in memory: without keys.

    A row that has other values is counted on both sides. Raises NotComparableError if changes between the sides could
    be the reason.
    """
    if changes.rows:
        raise NotComparableError(
            f"{missing + extra:,} rows differ at first sight while {changes.rows:,} changes are not in both the lake "
            "and the source: compare it again after they are merged"
        )
    return Judged(Differences(KeyList(missing), KeyList(extra)))


def _without_keys(found: Differences, limit: int) -> Differences:
    """Name each row of a table without a key by the texts of no columns."""

    def named(rows: KeyList) -> KeyList:
        keys: tuple[Key, ...] = ((),) * min(rows.count, limit)
        return KeyList(rows.count, keys)

    return Differences(named(found.missing), named(found.extra), quarantined=named(found.quarantined))
