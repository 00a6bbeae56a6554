"""A slice that is too large for a task's memory, of one transaction or of many: in parts, and still in one commit.

    changelog ─▶ a few megabytes at a time ─▶ buckets by key, on disk (lake/rows/buckets)
                                               │ one bucket at a time: check ─▶ reduce
                                               ├─▶ data files ─▶ one commit      only inserts, or after a truncate
                                               └─▶ working copy ─▶ one commit    everything else

No part is visible by itself. The rows of a bucket are complete for their keys, so what is decided about them is what
would be decided in the whole slice. Slices of inserts are not divided by key but read in stream order, so that the data
files keep the order of the source.

What a slice in parts does is decided from one position of the lake table. Another writer may move it before the commit:
a task that outlasted its run, whose slice ended elsewhere. All is decided again then, from the new position. If the
commit were made nevertheless, what both slices have would be merged twice.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from cdc_core import failpoints
from cdc_core.errors import CommitConflictError, SliceFailedError
from cdc_core.lake.apply.absent import AbsentRows
from cdc_core.lake.apply.added import Inserts, Replacement
from cdc_core.lake.apply.changes import Changes, prepare
from cdc_core.lake.checks.table_checks import TableChecks, report_of
from cdc_core.lake.delete_columns import mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.row_groups import release
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.delta.working_copy import WorkingCopy
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.positions import LakePosition
from cdc_core.lake.reduce.latest import image_schema, images_of_keys
from cdc_core.lake.reduce.multiset import arrivals
from cdc_core.lake.reduce.repeated_inserts import has_repeated_keys
from cdc_core.lake.rows.buckets import Buckets
from cdc_core.lake.rows.images import chosen, column
from cdc_core.lake.rows.key_hash import row_hashes
from cdc_core.lake.rows.row_keys import KeyColumns, merge_key
from cdc_core.lake.rows.survey import Survey, check_inserts, in_order, is_op, survey
from cdc_core.lake.slice.absent_rows import Expectation
from cdc_core.lake.slice.order import Merge
from cdc_core.lake.slice.outcome import Applied, Merged, Stopwatch, overtaken
from cdc_core.lake.slice.quarantine import Filtered
from cdc_core.lake.slice.reports import QuarantineReport
from cdc_core.lake.slice.schema_versions import by_schema_version, key_of, keyed_slices, unseen
from cdc_core.lake.slice.write import LakeWriter
from cdc_core.lake.stores.changelog import files_between, stream_changes
from cdc_core.quality import CheckReport, Limits, both
from cdc_core.schema.table import TableId, TableSchema

if TYPE_CHECKING:
    from cdc_core.quality import Checked

_log = logging.getLogger(__name__)

_FILE_ROWS = 1_000_000
_NONE = Survey({}, None, 0, 0)
# A slice in parts may take minutes. What is overtaken as often has to share its lake table with another writer.
_ATTEMPTS = 3


class SliceWork(Protocol):
    """What merging in parts needs of the merge that it belongs to (``lake/slice/lake_merge.LakeMerge``)."""

    @property
    def scope(self) -> str:
        """The scope of the table's positions."""

    @property
    def writer(self) -> LakeWriter:
        """Writes the lake table."""

    @property
    def checks(self) -> TableChecks:
        """The quality checks of all tables."""

    @property
    def expected(self) -> Expectation:
        """What changes must find in the lake."""

    def judged(self, merge: Merge, changes: pa.Table) -> Checked | None:
        """Judge rows of the slice; nothing is written."""

    def filtered(
        self, lake: DeltaTable, merge: Merge, changes: pa.Table, judged: Checked | None, follows: bool = False
    ) -> Filtered:
        """Return the rows for the lake; the others are in the quarantine table when this returns."""

    def position(self, lake: DeltaTable, table: TableId, token: int) -> LakePosition:
        """Return the lake table's position. Raises TransientError if another run read the table anew."""

    def limits(self, merge: Merge) -> Limits:
        """The table's limits of refused changes."""

    def has_quarantine(self, table: TableId) -> bool:
        """Whether changes of the table have been quarantined."""


class _NotDivisibleError(Exception):
    """The slice cannot be merged in parts."""


class _OvertakenError(Exception):
    """Another writer's commit was made first; what was decided about the slice may not hold any more."""


class StoppedError(Exception):
    """A part failed an expectation on a slice as a whole, ``failure``; nothing of the slice is committed."""

    def __init__(self, failure: SliceFailedError, report: CheckReport | None) -> None:
        super().__init__(failure)
        self.failure, self.report = failure, report


class _PartChecks:
    """Checks the parts of one slice, one after another: what is quarantined of one is kept when the next is checked."""

    def __init__(self, work: SliceWork, lake: DeltaTable, merge: Merge) -> None:
        self._work, self._lake, self._merge = work, lake, merge
        self._has_quarantined = False
        self._waiting = 0
        self._report: CheckReport | None = None

    def passing(self, rows: pa.Table) -> pa.Table:
        """Return the rows of a part that may be merged; the others are in the quarantine table when this returns."""
        judged = self._work.judged(self._merge, rows)
        self._report = both(self._report, None if judged is None else report_of(judged))
        if judged is not None and judged.failure is not None:
            raise StoppedError(judged.failure, self._report)
        filtered = self._work.filtered(self._lake, self._merge, rows, judged, self._has_quarantined)
        if filtered.changed:
            self._has_quarantined = True
            failpoints.hit(failpoints.AFTER_QUARANTINE)
        self._waiting += filtered.quarantined.waiting
        self._work.limits(self._merge).require_room(str(self._merge.table.id), self._waiting)
        return filtered.rows

    @property
    def result(self) -> Merged:
        """The result of the checks so far."""
        return Merged(check=self._report, quarantined=QuarantineReport(self._waiting))


@dataclass(slots=True)
class LargeSlice:
    """The unmerged changes of a changelog after ``merged`` up to the merge's LSN, as a slice in parts.

    ``most_bytes`` bounds the rows of a part in memory; a row that is larger is a part of its own.
    """

    work: SliceWork
    merge: Merge
    lake: DeltaTable
    changelog: EpochRows
    merged: int
    most_bytes: int
    watch: Stopwatch
    _whole: Survey = field(default=_NONE)
    _truncates: list[pa.Table] = field(default_factory=list)

    def read_small(self) -> pa.Table | None:
        """Return the changes in stream order if they fit; None if they are to be merged in parts."""
        held: list[pa.Table] = []
        octets = 0
        for rows in stream_changes(self.changelog, self.merged, self.merge.to_lsn):
            held.append(rows)
            octets += rows.nbytes
            if octets > self.most_bytes:
                return None
        return pa.concat_tables(held) if held else self.changelog.schema.empty_table()

    def merge_parts(self) -> Merged | None:
        """Merge the slice in one commit; None, and nothing was done, if it cannot be divided.

        Raises TransientError if other writers change the lake table again and again.
        """
        for _ in range(_ATTEMPTS):
            try:
                done = self._append() if self._only_inserts() else None
                return self._merge_buckets() if done is None else done
            except _NotDivisibleError:
                return None
            except _OvertakenError:
                self._begin_again()
                if not any(rows.num_rows for rows in stream_changes(self.changelog, self.merged, self.merge.to_lsn)):
                    return Merged()  # the other's slice had the same changes, and ended before the round's LSN
        raise overtaken(self.merge.table.id)

    def _begin_again(self) -> None:
        """Go on from where another writer left the lake table, which is loaded as it is since.

        Raises TransientError if changes wait in quarantine, because its rules may have been others: the next round
        looks for them.
        """
        table = self.merge.table.id
        if self.work.has_quarantine(table):
            raise overtaken(table)
        _log.warning("Another writer changed the lake table of %s: its changes are merged again.", table)
        self.merged = max(self.merged, self._position().merged)
        self._whole, self._truncates = _NONE, []

    def _position(self) -> LakePosition:
        return self.work.position(self.lake, self.merge.table.id, self.merge.snapshot.token)

    def _is_open(self) -> bool:
        """Whether the slice is not in the lake. Raises _OvertakenError if a part of it is."""
        at = self._position().merged
        if self.merged < at < self.merge.to_lsn:
            raise _OvertakenError
        return at < self.merge.to_lsn

    def _only_inserts(self) -> bool:
        """Whether rows of the slice can simply be added, by the changelog's statistics."""
        if self.merge.snapshot.visible is not None or not takes_files(self.lake):
            return False
        files = files_between(self.changelog, self.merged, self.merge.to_lsn)
        return all(file.minimum.get("__op") == "c" == file.maximum.get("__op") for file in files)

    def _append(self) -> Merged | None:
        """Add the rows of a slice of inserts in one commit; None, and nothing was committed, if a key is repeated."""
        checks = _PartChecks(self.work, self.lake, self.merge)
        counted = 0

        def made() -> Iterator[pa.RecordBatch]:
            nonlocal counted
            for rows in self._combined():
                counted += rows.num_rows
                yield from arrivals(checks.passing(rows), self.lake.schema).to_batches()

        files = self.lake.write_stream(made(), self.lake.schema, _FILE_ROWS)
        if repeats_keys(self.work.checks, self.merge.table, self.lake, files):
            return None
        with self.watch("apply"):
            applied = self._commit_files(files, False, counted)
        return checks.result.then(Merged(applied))

    def _combined(self) -> Iterator[pa.Table]:
        """Yield the slice's rows in stream order, about ``most_bytes`` at a time."""
        held: list[pa.Table] = []
        octets = 0
        for rows in self._rows():
            held.append(rows)
            octets += rows.nbytes
            if octets >= self.most_bytes:
                yield pa.concat_tables(held)
                held, octets = [], 0
        if held:
            yield pa.concat_tables(held)

    def _rows(self) -> Iterator[pa.Table]:
        """Yield the slice's rows in stream order in the columns of the version in force, a few megabytes at a time."""
        merge, keys = self.merge, set()
        schema: pa.Schema | None = None
        for found in stream_changes(self.changelog, self.merged, merge.to_lsn):
            schema_versions = by_schema_version(unseen(found, merge.snapshot.visible))
            keys |= (
                {key_of(merge.schema, schema_version) for schema_version, _ in schema_versions}
                if merge.schema.views
                else {0}
            )
            if len(keys) > 1:
                raise _NotDivisibleError
            for _, rows in keyed_slices(merge, schema_versions):
                schema = schema or rows.schema
                if not rows.schema.equals(schema):
                    raise _NotDivisibleError
                check_inserts(rows, merge.table.id)
                yield rows
                del rows  # a row may be large, and would stay in memory while the next one is read
            octets = found.nbytes
            del found, schema_versions
            release(octets)

    def _merge_buckets(self) -> Merged:
        """Divide the rows by key, and merge one part after another."""
        folder = Path(self.work.writer.scratch) / f"{uuid.uuid4()}.buckets"
        buckets = Buckets(folder, self.most_bytes)
        checks = _PartChecks(self.work, self.lake, self.merge)
        try:
            with self.watch("reduce"):
                self._divide(buckets, checks)
            merged = self._merge_parts(buckets, checks)
            return checks.result.then(merged)
        finally:
            buckets.close()

    def _divide(self, buckets: Buckets, checks: _PartChecks) -> None:
        """Distribute the rows, and survey them."""
        key, schema = merge_key(self.merge.table), self.lake.schema
        names = KeyColumns.of(key, schema) if key else None
        for every in self._rows():
            self._distribute(every, names, buckets, checks)
            del every

    def _distribute(self, every: pa.Table, names: KeyColumns | None, buckets: Buckets, checks: _PartChecks) -> None:
        self._whole = self._whole.plus(survey(every))
        truncates = is_op(every, "t")
        rows = every.filter(pa.array(~truncates)) if truncates.any() else every
        if truncates.any():
            self._truncates.append(every.filter(pa.array(truncates)))
        if self._splits:
            rows = checks.passing(rows)
        new, old, has_old = images_of_keys(rows, names, image_schema(self.lake.schema))
        puts, takes = row_hashes(new), row_hashes(old)
        del new, old
        deletes = is_op(rows, "d")
        moved = has_old & ~deletes & (puts != takes)
        if self._splits:
            # In a multiset a removed row and an added one have nothing to do with each other.
            buckets.add(_without(rows.filter(pa.array(moved)), "after", None), takes[moved])
            stays = _without(rows, "before", moved)
        else:
            buckets.link(puts[moved], takes[moved])
            stays = rows
        buckets.add(stays, np.where(deletes, takes, puts))

    @property
    def _splits(self) -> bool:
        """Whether an update is divided into its two effects; in quarantine it would have to be one change."""
        return not merge_key(self.merge.table) and not self.work.checks.may_refuse(self.merge.table)

    def _merge_parts(self, buckets: Buckets, checks: _PartChecks) -> Merged:
        has_key, overlaps = bool(merge_key(self.merge.table)), self.merge.snapshot.visible is not None
        is_added = adds_files(self.lake, self._whole, has_key=has_key, overlaps=overlaps)
        if self._truncates and not is_added:
            raise _NotDivisibleError
        copy, files, absent = WorkingCopy(self.lake), list[DataFile](), list[AbsentRows | None]()
        for part in buckets.parts():
            octets = part.nbytes
            changes = self._prepared(part, checks)
            del part
            release(octets)
            with self.watch("apply"):
                if is_added:
                    assert isinstance(changes, Inserts | Replacement)
                    files += self.lake.write_stream(changes.plus.to_batches(), self.lake.schema, _FILE_ROWS)
                    absent.append(changes.expected)
                else:
                    absent.append(self.work.writer.write_to_copy(self.lake, self.merge, copy, changes))
            del changes
        self.work.expected.check(self.merge, self.lake.schema, absent)
        if not is_added:
            return Merged(self._commit_copy(copy))
        return Merged(self._commit_files(files, self._whole.truncated_at is not None, self._whole.rows))

    def _prepared(self, part: pa.Table, checks: _PartChecks) -> Changes:
        # Every part needs the truncates, at their places: they end the rows of all keys, and what waits for them.
        rows = in_order(pa.concat_tables([part, *self._truncates]))
        good = rows if self._splits else checks.passing(rows)
        with self.watch("reduce"):
            visible = self.merge.snapshot.visible
            return prepare(good, self.merge.table, self.lake.schema, visible, self._whole)

    def _commit_files(self, files: list[DataFile], replaces: bool, events: int) -> Applied | None:
        def attempt() -> Applied | None:
            if not self._is_open():
                return None
            return self.work.writer.commit_files(self.lake, self.merge, self.work.scope, files, replaces)

        applied = on_conflict(attempt, self.lake)
        return None if applied is None else replace(applied, events=events)

    def _commit_copy(self, copy: WorkingCopy) -> Applied | None:
        if not self._is_open():
            return None
        try:
            return self.work.writer.commit_copy(self.lake, self.merge, self.work.scope, copy, self._whole.rows)
        except CommitConflictError:
            self.lake.refresh()
            if not self._is_open():
                return None  # the commit is of this slice
            raise _OvertakenError from None


def takes_files(lake: DeltaTable) -> bool:
    """Whether files with the rows resulting from inserts can simply be added to the table."""
    return mode_of(lake.schema.names) is not DeleteMode.SOFT


def adds_files(lake: DeltaTable, whole: Survey, *, has_key: bool, overlaps: bool) -> bool:
    """Whether a slice in parts only adds files: inserts, or the entire content after a truncate.

    ``whole`` summarizes its parts; ``overlaps``: it may contain rows of the snapshot in force.
    """
    is_added = whole.only_inserts and not (has_key and overlaps)
    is_replaced = whole.truncated_at is not None and mode_of(lake.schema.names) is DeleteMode.HARD
    return takes_files(lake) and (is_added or is_replaced)


def repeats_keys(checks: TableChecks, table: TableSchema, lake: DeltaTable, files: Sequence[DataFile]) -> bool:
    """Whether files of new rows contain one key twice, which a check of each part by itself does not find."""
    if not checks.has_unique_key(table):
        return False
    key = merge_key(table)
    wanted = pa.schema([lake.schema.field(name) for name in KeyColumns.of(key, lake.schema).read])
    return has_repeated_keys([lake.read_as(file, wanted) for file in files], key)


def _without(rows: pa.Table, name: str, where: np.ndarray | None) -> pa.Table:
    """Return change rows without an image, of all rows (None) or of some."""
    at = rows.schema.get_field_index(name)
    none = pa.nulls(rows.num_rows, rows.schema.field(at).type)
    return rows.set_column(
        at, rows.schema.field(at), none if where is None else chosen(where, none, column(rows, name))
    )
