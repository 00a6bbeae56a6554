"""A slice that is too large for a task's memory, of one transaction or of many: in parts, and still in one commit.

    changelog ─▶ a few megabytes at a time ─▶ buckets by key, on disk (lake/rows/buckets)
                                               │ one bucket at a time: check ─▶ reduce
                                               ├─▶ data files ─▶ one commit         only inserts, or after a truncate
                                               ├─▶ rewritten files ─▶ one commit    rows of megabytes, or without Spark
                                               └─▶ staged files ─▶ Spark's MERGE    everything else

No part is visible by itself. The rows of a bucket are complete for their keys, so what is decided about them is what
would be decided in the whole slice. Slices of inserts are not divided by key but read in stream order, so that the data
files keep the order of the source.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from cdc_core import failpoints
from cdc_core.engine.reports import CheckReport
from cdc_core.engine.slice.checks import TableChecks
from cdc_core.engine.slice.order import Applied, SliceOrder, SliceOutcome, Staged
from cdc_core.engine.slice.quarantine import Sifted, too_many
from cdc_core.engine.slice.schema_versions import by_shape, key_of, keyed_slices
from cdc_core.engine.slice.timing import timed
from cdc_core.engine.slice.write import LakeWriter, unseen
from cdc_core.errors import CommitConflictError, TransientError
from cdc_core.lake.apply.added import Inserts, Replacement
from cdc_core.lake.apply.changes import prepare
from cdc_core.lake.apply.staging import StagedFacts, numbered_from, staged
from cdc_core.lake.delete_columns import mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.row_groups import release
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.delta.working_copy import WorkingCopy
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.reduce.latest import image_schema, images_of_keys
from cdc_core.lake.reduce.multiset import arrivals
from cdc_core.lake.reduce.repeated_inserts import has_repeated_keys
from cdc_core.lake.rows.buckets import Buckets
from cdc_core.lake.rows.images import chosen, column
from cdc_core.lake.rows.key_hash import row_hashes
from cdc_core.lake.rows.row_keys import KeyColumns, merge_key
from cdc_core.lake.rows.run_files import Owner, write_parquet
from cdc_core.lake.rows.survey import Survey, check_inserts, in_order, is_op, survey
from cdc_core.lake.stores.changelog import files_between, stream_changes

_FILE_ROWS = 1_000_000
_WIDE_ROW_BYTES = 1 << 20
_NONE = Survey({}, None, 0, 0)


class SliceWork(Protocol):
    """What merging in parts needs of the task that merges the table (``engine/slice/task.SliceTask``)."""

    @property
    def scope(self) -> str:
        """The scope of the table's positions."""

    @property
    def writer(self) -> LakeWriter:
        """Writes the lake table."""

    @property
    def checks(self) -> TableChecks:
        """The quality checks of all tables."""

    def sifted(
        self, order: SliceOrder, lake: DeltaTable, changes: pa.Table, outcome: SliceOutcome, follows: bool = False
    ) -> Sifted:
        """Return the rows for the lake; the others are in the quarantine table when this returns."""

    def is_open(self, lake: DeltaTable, order: SliceOrder) -> bool:
        """Whether the order's changes are not in the lake."""


class NotDivisibleError(Exception):
    """The slice cannot be merged in parts; it is merged as a whole."""


@dataclass(slots=True)
class LargeSlice:
    """The unmerged changes of a changelog after ``merged`` up to the order's LSN, as a slice in parts.

    ``most_bytes`` bounds the rows of a part in memory; a row that is larger is a part of its own.
    """

    task: SliceWork
    order: SliceOrder
    lake: DeltaTable
    changelog: EpochRows
    merged: int
    most_bytes: int
    _whole: Survey = field(default=_NONE)
    _truncates: list[pa.Table] = field(default_factory=list)
    _quarantined: bool = False

    def read_small(self) -> pa.Table | None:
        """Return the changes in stream order if they fit; None if they are to be merged in parts."""
        assert self.order.to_lsn is not None
        held: list[pa.Table] = []
        octets = 0
        for rows in stream_changes(self.changelog, self.merged, self.order.to_lsn):
            held.append(rows)
            octets += rows.nbytes
            if octets > self.most_bytes:
                return None
        return pa.concat_tables(held) if held else self.changelog.schema.empty_table()

    def merge(self, outcome: SliceOutcome) -> None:
        """Merge the slice: commit it, or stage it for Spark. Raises NotDivisibleError before anything is written."""
        if self.order.waiting or self.order.replay is not None:
            raise NotDivisibleError
        if self._only_inserts() and self._append(outcome):
            return
        self._quarantined = False  # the parts are others than those of ``_append``
        folder = Path(self.task.writer.staging) / f"{uuid.uuid4()}.buckets"
        buckets = Buckets(folder, self.most_bytes)
        try:
            found = SliceOutcome(outcome.table)
            with timed(found, "reduce"):
                self._divide(buckets, found)
            self._merge_parts(buckets, found)
            _take_over(outcome, found)
        finally:
            buckets.close()

    def _only_inserts(self) -> bool:
        """Whether rows of the slice can simply be added, by the changelog's statistics."""
        assert self.order.to_lsn is not None
        if self.order.visible is not None or not self.task.writer.takes_files(self.lake):
            return False
        files = files_between(self.changelog, self.merged, self.order.to_lsn)
        return all(file.minimum.get("__op") == "c" == file.maximum.get("__op") for file in files)

    def _append(self, outcome: SliceOutcome) -> bool:
        """Add the rows of a slice of inserts in one commit; False, and nothing was committed, if a key is repeated."""
        found = SliceOutcome(outcome.table)
        counted = 0

        def made() -> Iterator[pa.RecordBatch]:
            nonlocal counted
            for rows in self._combined():
                counted += rows.num_rows
                good = self._passing(rows, found)
                yield from arrivals(good, self.lake.schema).to_batches()

        files = self.lake.write_stream(made(), self.lake.schema, _FILE_ROWS)
        if self._repeats_keys(files):
            return False
        with timed(found, "apply"):
            self._commit(files, False, counted, found)
        _take_over(outcome, found)
        return True

    def _repeats_keys(self, files: list[DataFile]) -> bool:
        if not self.task.checks.has_unique_key(self.order.table):
            return False
        key = merge_key(self.order.table)
        wanted = pa.schema([self.lake.schema.field(name) for name in KeyColumns.of(key, self.lake.schema).read])
        return has_repeated_keys([self.lake.read_as(file, wanted) for file in files], key)

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
        """Yield the slice's rows in stream order in the columns of the shape in force, a few megabytes at a time."""
        order, keys = self.order, set()
        assert order.to_lsn is not None
        schema: pa.Schema | None = None
        for found in stream_changes(self.changelog, self.merged, order.to_lsn):
            shapes = by_shape(unseen(found, order.visible))
            keys |= {key_of(order, shape) for shape, _ in shapes} if order.views else {0}
            if len(keys) > 1:
                raise NotDivisibleError
            for _, rows in keyed_slices(order, shapes):
                schema = schema or rows.schema
                if not rows.schema.equals(schema):
                    raise NotDivisibleError
                check_inserts(rows, order.table.id)
                yield rows
                del rows  # a row may be large, and would stay in memory while the next one is read
            octets = found.nbytes
            del found, shapes
            release(octets)

    def _divide(self, buckets: Buckets, found: SliceOutcome) -> None:
        """Distribute the rows, and survey them."""
        key, schema = merge_key(self.order.table), self.lake.schema
        names = KeyColumns.of(key, schema) if key else None
        for every in self._rows():
            self._distribute(every, names, buckets, found)
            del every

    def _distribute(self, every: pa.Table, names: KeyColumns | None, buckets: Buckets, found: SliceOutcome) -> None:
        self._whole = self._whole.plus(survey(every))
        truncates = is_op(every, "t")
        rows = every.filter(pa.array(~truncates)) if truncates.any() else every
        if truncates.any():
            self._truncates.append(every.filter(pa.array(truncates)))
        if self._splits:
            rows = self._passing(rows, found)
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
        return not merge_key(self.order.table) and not self.task.checks.may_refuse(self.order.table)

    @property
    def _writes_files(self) -> bool:
        """Whether the rows after the slice only have to be written; ``prepare`` decides by the same facts."""
        is_added = self._whole.only_inserts and (not merge_key(self.order.table) or self.order.visible is None)
        is_replaced = self._whole.truncated_at is not None and mode_of(self.lake.schema.names) is DeleteMode.HARD
        return self.task.writer.takes_files(self.lake) and (is_added or is_replaced)

    def _merge_parts(self, buckets: Buckets, found: SliceOutcome) -> None:
        assert self.order.to_lsn is not None
        rewrites = not self._writes_files and not self._is_for_spark(buckets)
        if self._truncates and (rewrites or not (self._writes_files or buckets.octets)):
            raise NotDivisibleError
        copy = WorkingCopy(self.lake)
        files, parts = (
            list[DataFile](),
            _Parts(self.task.writer.staging, self.task.writer.owner, str(self.order.table.id)),
        )
        replaces = self._writes_files and self._whole.truncated_at is not None
        for part in buckets.parts():
            octets = part.nbytes
            # Every part needs the truncates, at their places: they end the rows of all keys, and what waits for them.
            rows = in_order(pa.concat_tables([part, *self._truncates]))
            good = rows if self._splits else self._passing(rows, found)
            with timed(found, "reduce"):
                changes = prepare(good, self.order.table, self.lake.schema, self.order.visible, self._whole)
            del part, rows, good
            release(octets)
            with timed(found, "apply"):
                if isinstance(changes, Inserts | Replacement) and self._writes_files:
                    files += self.lake.write_stream(changes.plus.to_batches(), self.lake.schema, _FILE_ROWS)
                elif rewrites:
                    self.task.writer.rewrite(self.lake, self.order, copy, changes)
                else:
                    parts.add(*staged(changes))
            del changes
            release(octets)
        if parts.facts is not None:
            found.staged = parts.staged(self.order.to_lsn, self._whole.rows)
        elif rewrites:
            found.applied = self._commit_copy(copy)
        else:
            self._commit(files, replaces, self._whole.rows, found)

    def _passing(self, rows: pa.Table, found: SliceOutcome) -> pa.Table:
        """Return the rows of a part that may be merged; the others are in the quarantine table when this returns."""
        mine = SliceOutcome(found.table)
        sifted = self.task.sifted(self.order, self.lake, rows, mine, self._quarantined)
        self._quarantined |= sifted.changed
        if sifted.changed:
            failpoints.hit(failpoints.AFTER_QUARANTINE)
        found.check = _both(found.check, mine.check)
        found.waiting = (found.waiting or 0) + (mine.waiting or 0)
        limit = self.task.checks.max_waiting(self.order.table.id)
        if limit and found.waiting > limit:
            raise too_many(self.order, found.waiting, limit)
        return sifted.rows

    def _commit(self, files: list[DataFile], replaces: bool, events: int, found: SliceOutcome) -> None:
        def attempt() -> Applied | None:
            if not self.task.is_open(self.lake, self.order):
                return None
            failpoints.hit(failpoints.DURING_MERGE)
            return self.task.writer.commit_files(self.lake, self.order, self.task.scope, files, replaces)

        applied = on_conflict(attempt, self.lake)
        found.applied = None if applied is None else replace(applied, events=events)

    def _is_for_spark(self, buckets: Buckets) -> bool:
        """Whether Spark merges the parts: not rows of many megabytes, of which Java needs several copies in memory."""
        row_bytes = buckets.octets // max(1, self._whole.rows)
        writer = self.task.writer
        return writer.must_stage(self.lake) or (row_bytes < _WIDE_ROW_BYTES and writer.may_stage(self.lake, self.order))

    def _commit_copy(self, copy: WorkingCopy) -> Applied | None:
        if not self.task.is_open(self.lake, self.order):
            return None
        failpoints.hit(failpoints.DURING_MERGE)
        try:
            return self.task.writer.commit_copy(self.lake, self.order, self.task.scope, copy, self._whole.rows)
        except CommitConflictError:
            raise TransientError(
                f"Another writer changed the lake table of {self.order.table.id}.", "The next round merges it again."
            ) from None


class _Parts:
    """The staged files of a slice in parts: a folder that Spark reads as one table."""

    def __init__(self, staging: str, owner: Owner, table: str) -> None:
        self._owner, self._table = owner, table
        self._folder = Path(staging) / f"{uuid.uuid4()}.staged"
        self.facts: StagedFacts | None = None
        self._octets = self._count = self._first = 0

    def add(self, rows: pa.Table, facts: StagedFacts) -> None:
        """Write the rows of one part."""
        rows, self._first = numbered_from(rows, self._first)
        self.facts = facts if self.facts is None else self.facts.plus(facts)
        self._octets += rows.nbytes
        self._folder.mkdir(parents=True, exist_ok=True)
        self._count += 1
        write_parquet(rows, str(self._folder / f"{self._count:06}.parquet"), self._owner, self._table)

    def staged(self, to_lsn: int, events: int) -> Staged:
        """Return what Spark needs; there is at least one part."""
        assert self.facts is not None
        return Staged(str(self._folder), to_lsn, events, replace(self.facts, large=self._octets, files=self._count))


def _take_over(outcome: SliceOutcome, found: SliceOutcome) -> None:
    outcome.check, outcome.waiting = found.check, found.waiting
    outcome.applied, outcome.staged = found.applied or outcome.applied, found.staged
    for mine, theirs in ((outcome.seconds, found.seconds), (outcome.cpu_seconds, found.cpu_seconds)):
        for part, seconds in theirs.items():
            mine[part] = mine.get(part, 0.0) + seconds


def _without(rows: pa.Table, name: str, where: np.ndarray | None) -> pa.Table:
    """Return change rows without an image, of all rows (None) or of some."""
    at = rows.schema.get_field_index(name)
    none = pa.nulls(rows.num_rows, rows.schema.field(at).type)
    return rows.set_column(
        at, rows.schema.field(at), none if where is None else chosen(where, none, column(rows, name))
    )


def _both(one: CheckReport | None, other: CheckReport | None) -> CheckReport | None:
    """Return the report of a check of the rows of both."""
    if one is None or other is None:
        return one or other
    rules = tuple(
        replace(mine, checked=mine.checked + theirs.checked, failed=mine.failed + theirs.failed)
        for mine, theirs in zip(one.rules, other.rules, strict=True)
    )
    summary = one.summary if one.summary is None or other.summary is None else one.summary.plus(other.summary)
    return replace(
        one,
        rows=one.rows + other.rows,
        quarantined=one.quarantined + other.quarantined,
        suite_success=one.suite_success and other.suite_success,
        rules=rules,
        summary=summary,
        sample=one.sample or other.sample,
    )
