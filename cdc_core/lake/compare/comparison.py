"""Compares one table: digests of all rows of both sides, then the rows whose digests differ, by their keys.

    source  ranges     ─▶ digests ─┐                     rows that have
    lake    data files ─▶ digests ─┴▶ equally often? ─▶ one that does not ─▶ judge ─▶ keys

Both sides are read once, at the same time. Only ranges and files that have a row that differs are read again. The
source's digests are computed by the server if its hash functions suffice for the table (``row_hash``), else from its
rows, which are read by COPY and typed as the lake's are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from cdc_core.errors import NotComparableError
from cdc_core.lake.compare.between import ChangesInSlot, between
from cdc_core.lake.compare.changed_keys import keys_since
from cdc_core.lake.compare.differences import Differences, KeyList
from cdc_core.lake.compare.judge import (
    Between,
    DifferentRows,
    after_truncate,
    images_of,
    is_complete,
    judge_keyed,
    judge_multiset,
    multiset_left,
)
from cdc_core.lake.compare.lake_side import LakeSide
from cdc_core.lake.compare.row_hash import RowHash
from cdc_core.lake.compare.rows import KeyedColumns, is_among, surplus
from cdc_core.lake.compare.rows_repair import Surplus, picked, write_surplus
from cdc_core.lake.compare.sides import Sides, sampled_rows
from cdc_core.lake.compare.source_side import SourceRead, SourceSide
from cdc_core.lake.compare.target import Records, Target
from cdc_core.lake.slice.task import SliceTask
from cdc_core.lsn import Lsn
from cdc_core.schema import Key
from cdc_core.spark import StartSession

# Differing rows are in memory, to be distinguished by their keys.
_MOST_ROWS = 2_000_000
# Rows that the server finds by their hashes: more are read with all others.
_MOST_HASHED = 100_000


class _HashesNotEnoughError(Exception):
    """The hashes of the server do not tell which rows differ: the rows have to be read."""


@dataclass(frozen=True, slots=True)
class TableComparison:
    """Compares one table, the version of ``target`` with the rows of ``read``. The methods raise CdcError.

    ``waiting`` returns the changes that the slot has and the changelog lacks. ``limit``: how many keys of each kind are
    named. ``spark`` starts a session whose tasks read lake tables of at least ``spark_bytes``.
    """

    records: Records
    target: Target
    read: SourceRead
    waiting: Callable[[], ChangesInSlot]
    limit: int
    spark: StartSession
    spark_bytes: int

    def compare(self) -> DifferentRows:
        """Compare all rows."""
        hashing = RowHash.of(self.target.typer, self.target.compared) if self.read.statements.can_hash else None
        if hashing is not None:
            with suppress(_HashesNotEnoughError):
                return self._compared(hashing)
        return self._compared(None)

    def compare_keys(self, keys: pa.Table) -> DifferentRows:
        """Compare the rows with some keys, of ``keys_since`` or of ``DifferentRows``."""
        compared, lake, source = self._keyed("by its keys"), self._lake(), self._source()
        if not keys.num_rows:
            return DifferentRows(Differences())
        return self._of_rows(lake, source, (source.of_keys(keys, compared), lake.of_keys(keys, compared)), compared)

    def compare_sample(self, count: int, rows: int, seed: int) -> DifferentRows:
        """Compare the rows of ``count`` ranges of each side, of about ``rows`` rows, chosen by ``seed``."""
        compared, selects = self._keyed("by a sample"), self.read.statements.ranges
        lake, source = self._lake(), self._source()
        sample = sampled_rows(compared, source, lake, selects, count, rows, seed)
        return self._of_rows(lake, source, sample, compared)

    def keys_since(self, since: Lsn | datetime) -> pa.Table | None:
        """Return the keys that changed up to the snapshot; None if all rows have to be compared."""
        # Awaited first: a change that gets into the changelog later would be after the next comparison's moment.
        waiting = self.waiting()
        return keys_since(self.target, self.records.paths, self.records.scope, since, waiting)

    def write_surplus(self, slices: SliceTask) -> None:
        """Compare all rows of a table without a key, and write those that the lake lacks or has too many of.

        Raises CommitConflictError if another commit was made since the table was opened.
        """
        rows = self._surplus()
        if rows.count:
            write_surplus(slices, self.target, rows)

    def _surplus(self) -> Surplus:
        compared = self.target.compared
        sides = Sides.read(self._lake(), self._source())
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

    def _lake(self, hashing: RowHash | None = None, spark: StartSession | None = None) -> LakeSide:
        return LakeSide(self.target.lake, self.target.compared, hashing, spark)

    def _source(self, hashing: RowHash | None = None) -> SourceSide:
        return SourceSide(self.target, self.read, hashing)

    def _keyed(self, how: str) -> KeyedColumns:
        compared = self.target.compared
        if not isinstance(compared, KeyedColumns):
            raise NotComparableError(f"rows of a table without a key cannot be compared {how}")
        return compared

    def _compared(self, hashing: RowHash | None) -> DifferentRows:
        """Compare all rows. Raises _HashesNotEnoughError (``_judged``)."""
        is_large = sum(file.size for file in self.target.lake.files) >= self.spark_bytes
        lake = self._lake(hashing, self.spark if is_large else None)
        sides = Sides.read(lake, self._source(hashing))
        judged = self._judged(sides, _MOST_HASHED if hashing else None)
        return _decided(judged, len(sides.expected), sides.source)

    def _of_rows(
        self, lake: LakeSide, source: SourceSide, rows: tuple[pa.Table, pa.Table], compared: KeyedColumns
    ) -> DifferentRows:
        judged = self._judged_keyed(lake, source, compared, rows, *self._between())
        return _decided(judged, rows[0].num_rows, source)

    def _judged(self, sides: Sides, most_hashed: int | None) -> DifferentRows:
        """Judge by the digests of both sides.

        ``most_hashed``: the digests are the server's hashes, and not more rows than this may have others; None if they
        are those of ``compared``. Raises _HashesNotEnoughError if more have, or those of changes are needed as well.
        """
        compared, unlike = self.target.compared, surplus(sides.held, sides.expected)
        if not len(unlike) and not self._changes(ChangesInSlot()).ahead.num_rows:
            return DifferentRows(Differences())
        changes, is_cut, is_emptied = self._between()
        sides = sides.after_truncates(is_cut, is_emptied)
        if not isinstance(compared, KeyedColumns):
            if most_hashed is not None:
                raise _HashesNotEnoughError
            _check_complete(changes)
            unmatched = judge_multiset(sides.expected, sides.held, changes, compared)
            return DifferentRows(_without_keys(unmatched, self.limit))
        unlike = surplus(sides.held, sides.expected) if is_cut or is_emptied else unlike
        missing, extra = (int(np.count_nonzero(is_among(side, unlike))) for side in (sides.expected, sides.held))
        if most_hashed is not None and missing + extra > most_hashed:
            raise _HashesNotEnoughError
        if missing + extra > _MOST_ROWS:
            return _too_many(missing, extra, changes)
        rows = sides.source_rows(unlike), sides.lake_rows(unlike)
        return self._judged_keyed(sides.lake, sides.source, compared, rows, changes, is_cut, is_emptied)

    def _judged_keyed(
        self,
        lake: LakeSide,
        source: SourceSide,
        compared: KeyedColumns,
        rows: tuple[pa.Table, pa.Table],
        changes: Between,
        is_cut: bool,
        is_emptied: bool,
    ) -> DifferentRows:
        """Judge rows of both sides. A table that was truncated meanwhile has none of the rows that were read."""
        empty = compared.schema.empty_table()

        def more(keys: pa.Table) -> tuple[pa.Table, pa.Table]:
            mine = empty if is_cut else source.of_keys(keys, compared)
            return mine, empty if is_emptied else lake.of_keys(keys, compared)

        mine, theirs = empty if is_cut else rows[0], empty if is_emptied else rows[1]
        return judge_keyed(mine, theirs, changes, compared, self.limit, more)

    def _between(self) -> tuple[Between, bool, bool]:
        """Return the changes after the last truncate on each side, and whether there was one for source and lake."""
        changes = self._changes(self.waiting())
        (ahead, is_cut), (behind, is_emptied) = after_truncate(changes.ahead), after_truncate(changes.behind)
        return Between(ahead, behind, changes.refused), is_cut, is_emptied

    def _changes(self, waiting: ChangesInSlot) -> Between:
        """Return the changes between the snapshot and the lake's version; ``waiting`` are those in the slot only."""
        target, records = self.target, self.records
        at = target.typer, target.changelog, records.paths, records.scope
        return between(*at, self.read.shown, target.version, waiting)


def _decided(judged: DifferentRows, rows: int, source: SourceSide) -> DifferentRows:
    """Return the result with its cost. Raises NotComparableError if all that remains is undecided."""
    if not judged.found.count and judged.found.undecided.count:
        raise NotComparableError(f"{judged.found.undecided.count} of its rows are changed by a change under way")
    return replace(judged, rows=rows, octets=source.octets)


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
