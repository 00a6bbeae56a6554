"""Compares one table: digests of all rows of both sides, then the rows whose digests differ, by their keys.

    source  ranges     ─▶ digests ─┐                     rows that have
    lake    data files ─▶ digests ─┴▶ equally often? ─▶ one that does not ─▶ judge ─▶ keys

Both sides are read once, at the same time. Only ranges and files that have a row that differs are read again. The
source's digests are computed by the server if its hash functions suffice for the table (``row_hash``), else from its
rows, which are read by COPY and typed as the lake's are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.errors import NotComparableError
from cdc_core.lake import (
    ChangesInSlot,
    Differences,
    DifferentRows,
    KeyList,
    LakeSide,
    Records,
    RowHash,
    Since,
    Surplus,
    Target,
    between,
    judge_keyed,
    judge_multiset,
    keys_since,
)
from cdc_core.lake.compare.judge import Between, after_truncate, images_of, is_complete, multiset_left
from cdc_core.lake.compare.rows import is_among, surplus
from cdc_core.lake.compare.rows_repair import picked
from cdc_core.postgres import SnapshotReader, TableSize
from cdc_core.reconcile.partial import sampled_rows
from cdc_core.reconcile.read_plan import Reading, StatementPlan
from cdc_core.reconcile.reports import TableResult
from cdc_core.reconcile.slot_changes import SlotChanges
from cdc_core.reconcile.source_side import ReadPace, SourceSide
from cdc_core.reconcile.view import SourceView
from cdc_core.schema import Key, TableSchema

# Differing rows are in memory, to be distinguished by their keys.
_MOST_ROWS = 2_000_000
# Rows that the server finds by their hashes: more are read with all others.
_MOST_HASHED = 100_000


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """The result of one table, and what a repair needs of it; None if it was not compared."""

    result: TableResult
    judged: DifferentRows | None = None


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both sides of a table with the digests of their rows: ``held`` of the lake, ``expected`` of the source."""

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
class Comparisons:
    """Opens comparisons, each of one table under one snapshot of the source. The fields are common to all of them.

    ``limit``: how many keys of each kind are named. ``spark`` starts a session whose tasks read lake tables of at least
    ``spark_bytes``.
    """

    records: Records
    slot: SlotChanges
    plan: StatementPlan
    pace: ReadPace
    limit: int
    spark: Callable[[], Any]
    spark_bytes: int

    @contextmanager
    def open(self, table: TableSchema, view: SourceView, size: TableSize | None = None) -> Iterator[TableComparison]:
        """Open the comparison with the present version of the lake table. ``size``: see ``StatementPlan.of``.

        Raises NotComparableError with the reason why the table is left out, or another CdcError.
        """
        target = self.records.target(table)
        reading = self.plan.of(target, size)
        with view.reader() as reader:
            yield TableComparison(self, view, target, reading, reader)


@dataclass(frozen=True, slots=True)
class TableComparison:
    """Compares one table under the snapshot ``view``; ``reader`` reads its rows. The methods raise CdcError."""

    common: Comparisons
    view: SourceView
    target: Target
    reading: Reading
    reader: SnapshotReader

    def compare(self) -> ComparedSides:
        """Compare all rows."""
        began = time.monotonic()
        hashing = RowHash.of(self.target.typer, self.target.compared) if self.reading.can_hash else None
        found = None if hashing is None else self._compared(hashing, began)
        found = found or self._compared(None, began)
        assert found is not None
        return found

    def compare_keys(self, keys: pa.Table) -> ComparedSides:
        """Compare the rows with some keys, whose columns are ``KeyColumns.read``."""
        began, lake, source = time.monotonic(), self._lake(), self._source()
        rows = source.of_keys(keys), lake.of_keys(keys)
        if not keys.num_rows:
            return _found(self.target, DifferentRows(Differences()), 0, source, began)
        return self._found(lake, source, rows, began)

    def compare_sample(self, count: int, seed: int) -> ComparedSides:
        """Compare the rows of ``count`` ranges of each side, chosen by ``seed``."""
        if self.target.compared.key is None:
            raise NotComparableError("rows of a table without a key cannot be compared by a sample")
        began, lake, source = time.monotonic(), self._lake(), self._source()
        rows = sampled_rows(self.target, source, lake, self.reading.ranges, count, seed)
        return self._found(lake, source, rows, began)

    def keys_since(self, since: Since) -> pa.Table | None:
        """Return the keys that changed up to the snapshot; None if all rows have to be compared."""
        records = self.common.records
        # Awaited first: a change that gets into the changelog later would be after the next comparison's moment.
        waiting = self.common.slot.upto(self.view.shown.lsn)
        return keys_since(self.target, records.paths, records.scope, since, waiting)

    def surplus(self) -> Surplus:
        """Return the rows that the lake table, which has no key, lacks and has too many of."""
        compared = self.target.compared
        sides = _Sides.read(self._lake(), self._source())
        changes, is_cut, is_emptied = self._between()
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

    def _lake(self, hashing: RowHash | None = None, spark: Callable[[], Any] | None = None) -> LakeSide:
        return LakeSide(self.target.lake, self.target.compared, hashing, spark)

    def _source(self, hashing: RowHash | None = None) -> SourceSide:
        target, at = self.target, (int(self.view.shown.lsn), self.view.taken_us)
        return SourceSide(self.reader, target.typer, target.compared, self.reading, *at, self.common.pace, hashing)

    def _compared(self, hashing: RowHash | None, began: float) -> ComparedSides | None:
        """Compare all rows; None if the hashes of the server are not enough for it (``_judged``)."""
        is_large = sum(file.size for file in self.target.lake.files) >= self.common.spark_bytes
        lake = self._lake(hashing, self.common.spark if is_large else None)
        sides = _Sides.read(lake, self._source(hashing))
        judged = self._judged(sides, _MOST_HASHED if hashing else None)
        return None if judged is None else _found(self.target, judged, len(sides.expected), sides.source, began)

    def _found(
        self, lake: LakeSide, source: SourceSide, rows: tuple[pa.Table, pa.Table], began: float
    ) -> ComparedSides:
        judged = self._judged_keyed(lake, source, rows, *self._between())
        return _found(self.target, judged, rows[0].num_rows, source, began)

    def _judged(self, sides: _Sides, most_hashed: int | None) -> DifferentRows | None:
        """Judge by the digests of both sides.

        ``most_hashed``: the digests are the server's hashes, and not more rows than this may have others; None if they
        are those of ``compared``. Returns None if more have, or the digests of changes are needed as well.
        """
        compared, unlike = self.target.compared, surplus(sides.held, sides.expected)
        if not len(unlike) and not self._changes(ChangesInSlot()).ahead.num_rows:
            return DifferentRows(Differences())
        changes, is_cut, is_emptied = self._between()
        sides = sides.after_truncates(is_cut, is_emptied)
        if compared.key is None and most_hashed is not None:
            return None
        if compared.key is None:
            _check_complete(changes)
            unmatched = judge_multiset(sides.expected, sides.held, changes, compared)
            return DifferentRows(_without_keys(unmatched, self.common.limit))
        unlike = surplus(sides.held, sides.expected) if is_cut or is_emptied else unlike
        missing, extra = (int(np.count_nonzero(is_among(side, unlike))) for side in (sides.expected, sides.held))
        if most_hashed is not None and missing + extra > most_hashed:
            return None
        if missing + extra > _MOST_ROWS:
            return _too_many(missing, extra, changes)
        rows = sides.source_rows(unlike), sides.lake_rows(unlike)
        return self._judged_keyed(sides.lake, sides.source, rows, changes, is_cut, is_emptied)

    def _judged_keyed(
        self,
        lake: LakeSide,
        source: SourceSide,
        rows: tuple[pa.Table, pa.Table],
        changes: Between,
        is_cut: bool,
        is_emptied: bool,
    ) -> DifferentRows:
        """Judge rows of both sides. A table that was truncated meanwhile has none of the rows that were read."""
        compared = self.target.compared
        empty = compared.schema.empty_table()

        def more(keys: pa.Table) -> tuple[pa.Table, pa.Table]:
            return empty if is_cut else source.of_keys(keys), empty if is_emptied else lake.of_keys(keys)

        mine, theirs = empty if is_cut else rows[0], empty if is_emptied else rows[1]
        return judge_keyed(mine, theirs, changes, compared, self.common.limit, more)

    def _between(self) -> tuple[Between, bool, bool]:
        """Return the changes after the last truncate on each side, and whether there was one for source and lake."""
        changes = self._changes(self.common.slot.upto(self.view.shown.lsn))
        (ahead, is_cut), (behind, is_emptied) = after_truncate(changes.ahead), after_truncate(changes.behind)
        return Between(ahead, behind, changes.refused), is_cut, is_emptied

    def _changes(self, waiting: ChangesInSlot) -> Between:
        """Return the changes between the snapshot and the lake's version; ``waiting`` are those in the slot only."""
        target, records = self.target, self.common.records
        at = target.typer, target.changelog, records.paths, records.scope
        return between(*at, self.view.shown, target.version, waiting)


def _found(target: Target, judged: DifferentRows, rows: int, source: SourceSide, began: float) -> ComparedSides:
    """Return the result. Raises NotComparableError if all that remains is undecided."""
    if not judged.found.count and judged.found.undecided.count:
        raise NotComparableError(f"{judged.found.undecided.count} of its rows are changed by a change under way")
    result = TableResult(
        target.table.id,
        judged.found.state,
        rows,
        found=judged.found,
        columns_left_out=target.left_out,
        bytes_read=source.cost.octets,
        seconds=time.monotonic() - began,
        lake_version=target.lake.version,
    )
    return ComparedSides(result, judged)


def _check_complete(changes: Between) -> None:
    if not (is_complete(changes.ahead) and is_complete(changes.behind)):
        raise NotComparableError("changes between the lake and the source do not hold complete rows")


def _too_many(missing: int, extra: int, changes: Between) -> DifferentRows:
    """Return the result of a table with more differing rows than fit in memory: without keys.

    A row that has other values is counted on both sides. Raises NotComparableError if changes between the sides could
    be the reason.
    """
    if changes.rows:
        raise NotComparableError(
            f"{missing + extra:,} rows differ at first sight while {changes.rows:,} changes are not in both the lake "
            "and the source: compare it again after they are merged"
        )
    return DifferentRows(Differences(KeyList(missing), KeyList(extra)))


def _without_keys(found: Differences, limit: int) -> Differences:
    """Name each row of a table without a key by the texts of no columns."""

    def named(rows: KeyList) -> KeyList:
        keys: tuple[Key, ...] = ((),) * min(rows.count, limit)
        return KeyList(rows.count, keys)

    return Differences(named(found.missing), named(found.extra), quarantined=named(found.quarantined))
