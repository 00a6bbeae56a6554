"""Merges a share of a divided slice into files, in a Spark task; another task commits them (``shares``).

    changelog, and what waits in quarantine, a few megabytes at a time
        ─▶ the share's rows, in buckets by key on local disk (lake/rows/buckets)
        ─▶ one part at a time: check ─▶ reduce ─▶ data files
        ─▶ files, marks, refused rows

A slice of inserts is not divided by key: its rows go into data files as they come.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from cdc_core import failpoints
from cdc_core.lake.apply.added import Inserts, Replacement
from cdc_core.lake.apply.changes import prepare
from cdc_core.lake.checks.table_checks import report_of
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.deletion_vectors import packed, united
from cdc_core.lake.delta.opened import opened
from cdc_core.lake.delta.row_groups import release
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.reduce.latest import image_schema, images_of_keys
from cdc_core.lake.reduce.multiset import arrivals
from cdc_core.lake.reduce.row_states import truncation_of
from cdc_core.lake.rows.buckets import Buckets
from cdc_core.lake.rows.images import chosen, column, validity
from cdc_core.lake.rows.key_hash import Hashes, row_hashes
from cdc_core.lake.rows.row_keys import KeyColumns
from cdc_core.lake.rows.survey import NO_ROWS, in_order, is_op, survey
from cdc_core.lake.schema.change_columns import empty_changes
from cdc_core.lake.slice.added import adds_files
from cdc_core.lake.slice.divided import Share
from cdc_core.lake.slice.lake_merge import LakeMerge
from cdc_core.lake.slice.order import Merge
from cdc_core.lake.slice.outcome import Stopwatch
from cdc_core.lake.slice.quarantine import WAITS, without_state
from cdc_core.lake.slice.reports import QuarantineReport
from cdc_core.lake.slice.shares import EndOrder, Marks, RewriteOrder, RewrittenFile, ShareResult, TruncateEnd
from cdc_core.lake.slice.slice_rows import SliceRows
from cdc_core.lake.slice.task import SliceTask, failure_of
from cdc_core.lake.slice.write import WrittenPart
from cdc_core.lake.stores.quarantine import Settled, kept_apart
from cdc_core.quality import CheckReport, both

_FILE_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class ShareTask:
    """Works on shares, and on lake files where a truncate ends rows or rows may not be marked; picklable."""

    task: SliceTask

    def __call__(self, item: Share | EndOrder | RewriteOrder) -> ShareResult | RewrittenFile:
        """Write files, and commit nothing. Errors are in the result: they concern one table."""
        failpoints.adopt(self.task.armed)
        watch = Stopwatch()
        match item:
            case Share():
                done: ShareResult | RewrittenFile = self._merged(item, watch)
            case EndOrder():
                done = self._ended(item, watch)
            case RewriteOrder():
                done = self._rewritten(item)
        failpoints.hit(failpoints.AFTER_SHARE)
        return replace(done, timings=watch.timings)

    def _merged(self, share: Share, watch: Stopwatch) -> ShareResult:
        task, of, none = self.task, share.slice, ShareResult(share.table)
        lake = self._table(task.paths.lake(share.table), of.lake_version)
        changelog = self._table(task.paths.changelog(share.table), of.changelog_version)
        if lake is None or changelog is None:
            return replace(none, is_overtaken=True)
        merge = LakeMerge(task.run, task.scope, task.paths, task.checks, task.writer, watch, task.expected)
        making = _Making(merge, lake, share, SliceRows(of.merge, EpochRows.of(changelog, task.scope), of.merged))
        try:
            making.merge()
        except Exception as error:
            return replace(none, check=making.checks.report, error=failure_of(share.table, error))
        return making.result

    def _ended(self, order: EndOrder, watch: Stopwatch) -> ShareResult:
        lake, none = self._table(self.task.paths.lake(order.table), order.slice.lake_version), ShareResult(order.table)
        if lake is None:
            return replace(none, is_overtaken=True)
        try:
            (file,) = (candidate for candidate in lake.files if candidate.path == order.path)
            with watch("apply"):
                changed = united(order.changed) if order.changed else np.zeros(0, dtype=np.int64)
                written = self.task.writer.end_rows(lake, order.slice.merge, file, order.at, changed)
            failpoints.hit(failpoints.AFTER_TRUNCATE)
        except Exception as error:
            return replace(none, error=failure_of(order.table, error))
        return _with(none, written)

    def _rewritten(self, order: RewriteOrder) -> RewrittenFile:
        lake = self._table(self.task.paths.lake(order.table), order.slice.lake_version)
        if lake is None:
            return RewrittenFile(order.table, order.path, is_overtaken=True)
        try:
            (file,) = (candidate for candidate in lake.files if candidate.path == order.path)
            files = self.task.writer.rewrite(lake, file, united(order.places))
        except Exception as error:
            return RewrittenFile(order.table, order.path, error=failure_of(order.table, error))
        return RewrittenFile(order.table, order.path, tuple(files))

    def _table(self, path: str, version: int) -> DeltaTable | None:
        table = opened(self.task.run, path)
        return table if table is None or table.version == version else DeltaTable.open_version(path, version)


class _ShareChecks:
    """Checks the rows of a share, a part at a time. ``refused`` are files with the rows that are kept apart."""

    def __init__(self, work: LakeMerge, lake: DeltaTable, merge: Merge) -> None:
        self._work, self._merge = work, merge
        self.quarantine = work.quarantine(lake, merge)
        self.places = self.quarantine.places
        self.refused: list[DataFile] = []
        self.settled: list[Settled] = []
        self.waiting = self.replayed = 0
        self.report: CheckReport | None = None

    @property
    def waited(self) -> int:
        """The number of changes in quarantine before the slice."""
        return 0 if self.places is None else self.places.num_rows

    def passing(self, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Return the rows of a part that may be merged, and those that will wait in quarantine; None for none.

        ``rows`` have the column WAITS if any change of the table is in quarantine.
        """
        work, merge, waited = self._work, self._merge, None
        with work.watch("check"):
            if self.places is not None:
                waits = validity(column(rows, WAITS))
                waited = self.quarantine.judged(rows.filter(pa.array(waits)))
                rows = rows.filter(pa.array(~waits)).drop_columns([WAITS])
            judged = work.judged(merge, rows)
            self.report = both(self.report, None if judged is None else report_of(judged))
            if judged is not None and judged.failure is not None:
                raise judged.failure
            limits = work.limits(merge)
            filtered = self.quarantine.filtered(rows, judged, limits, waited)
            self.waiting += filtered.quarantined.waiting
            self.replayed += filtered.quarantined.replayed
            limits.require_room(str(merge.table.id), self.waiting, self.waited)
            if filtered.refused is not None and filtered.refused.num_rows:
                self.refused.append(kept_apart(filtered.refused, work.paths.quarantine(merge.table.id)))
            self.settled += [] if filtered.settled is None else [filtered.settled]
        earlier = [filtered.earlier] if filtered.earlier.num_rows else []
        return pa.concat_tables([*earlier, filtered.rows]), filtered.waiting


class _Making:
    """A share in the making; a row that is larger than a part is a part of its own."""

    def __init__(self, work: LakeMerge, lake: DeltaTable, share: Share, rows: SliceRows) -> None:
        self._work, self._lake, self._share, self._rows = work, lake, share, rows
        self._merge = rows.merge
        self._most_bytes = work.writer.part_max_bytes
        self.checks = _ShareChecks(work, lake, self._merge)
        self._done = ShareResult(share.table)
        self._truncates: list[pa.Table] = []
        self._whole, self._events = NO_ROWS, 0

    @property
    def result(self) -> ShareResult:
        """The result, once the share is merged."""
        checks = self.checks
        return replace(
            self._done,
            check=checks.report,
            refused=tuple(checks.refused),
            settled=tuple(checks.settled),
            quarantined=QuarantineReport(checks.waiting, checks.replayed),
            waited=checks.waited,
            whole=self._whole,
            events=self._events,
        )

    def merge(self) -> None:
        """Write the share's files."""
        if self._share.files:
            self._add(self._lake.write_stream(self._arrivals(), self._lake.schema, _FILE_ROWS))
            return
        folder = Path(self._work.writer.scratch) / f"{uuid.uuid4()}.buckets"
        buckets = Buckets(folder, self._most_bytes, self._share.keys)
        try:
            with self._work.watch("reduce"):
                self._divide(buckets)
            self._merge_parts(buckets)
        finally:
            buckets.close()

    def _arrivals(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of inserts in stream order."""
        for rows in self._combined():
            self._note(rows)
            good, _ = self.checks.passing(rows)
            yield from arrivals(good, self._lake.schema).to_batches()

    def _combined(self) -> Iterator[pa.Table]:
        buffered: list[pa.Table] = []
        octets = 0
        for rows in self._rows.current(self._share.files):
            buffered.append(rows)
            octets += rows.nbytes
            if octets >= self._most_bytes:
                yield pa.concat_tables(buffered)
                buffered, octets = [], 0
        if buffered:
            yield pa.concat_tables(buffered)

    def _note(self, rows: pa.Table) -> None:
        self._whole = self._whole.plus(survey(rows))
        waits = validity(column(rows, WAITS)) if WAITS in rows.schema.names else np.zeros(rows.num_rows, dtype=bool)
        self._events += int(np.count_nonzero(~waits))

    def _every(self) -> Iterator[pa.Table]:
        """Yield the slice's rows, and then those in quarantine; if there are any of these, with the column WAITS."""
        checks, schema = self.checks, empty_changes(self._lake.schema).schema
        for rows in self._rows.current():
            schema = rows.schema
            yield rows if checks.places is None else without_state(rows)
            del rows  # a row may be large, and would stay in memory while the next one is read
        if checks.places is not None:
            yield from checks.quarantine.stream(checks.places, schema)

    def _divide(self, buckets: Buckets) -> None:
        """Distribute the rows of the share, and survey those of the slice."""
        for every in self._every():
            self._note(every)
            truncates = is_op(every, "t")
            if truncates.any():
                self._truncates.append(every.filter(pa.array(truncates)))
            self._distribute(_besides(every, truncates), buckets)
            del every
        if buckets.connect():
            for every in self._every():
                rows = _besides(every, is_op(every, "t"))
                buckets.add_connected(rows, _Touched.of(rows, self._merge, self._lake).own)
                del every, rows

    def _distribute(self, rows: pa.Table, buckets: Buckets) -> None:
        touched = _Touched.of(rows, self._merge, self._lake)
        if not self._splits:
            buckets.link(touched.puts[touched.moved], touched.takes[touched.moved])
            buckets.add(rows, touched.own)
            return
        self.checks.passing(rows.filter(pa.array(self._share.keys.has(touched.own))))
        # In a multiset a removed row and an added one have nothing to do with each other.
        moved = rows.filter(pa.array(touched.moved))
        buckets.add(_without(moved, "after", None), touched.takes[touched.moved])
        buckets.add(_without(rows, "before", touched.moved), touched.own)

    @property
    def _splits(self) -> bool:
        """Whether an update is divided into its two effects; in quarantine it would have to be one change."""
        is_apart = self.checks.places is None and not self._work.checks.may_refuse(self._merge.table)
        return is_apart and not self._merge.table.row_key

    def _merge_parts(self, buckets: Buckets) -> None:
        has_key, overlaps = bool(self._merge.table.row_key), self._merge.snapshot.visible is not None
        is_added = adds_files(self._lake, self._whole, has_key=has_key, overlaps=overlaps)
        if self._truncates and not is_added:
            self._done = replace(self._done, ending=self._ending)
        for part in buckets.parts():
            octets = part.nbytes
            # Every part needs the truncates, at their places: they end the rows of all keys, and what waits for them.
            rows = in_order(pa.concat_tables([part, *self._truncates]))
            del part
            self._merge_part(rows, is_added=is_added)
            del rows
            release(octets)

    @property
    def _ending(self) -> TruncateEnd | None:
        """The slice's first truncate, and the lake files with rows that may be of other keys than the slice's."""
        at = truncation_of(in_order(pa.concat_tables(self._truncates)))
        files = (file.path for file in self._lake.files if not file.is_history)
        return None if at is None else TruncateEnd(at, tuple(files))

    def _merge_part(self, rows: pa.Table, *, is_added: bool) -> None:
        merge, lake, watch = self._merge, self._lake, self._work.watch
        good, waiting = (rows, None) if self._splits else self.checks.passing(rows)
        with watch("reduce"):
            changes = prepare(good, merge.table, lake.schema, merge.snapshot.visible, self._whole)
        with watch("apply"):
            if is_added:
                assert isinstance(changes, Inserts | Replacement)
                self._add(lake.write_stream(changes.plus.to_batches(), lake.schema, _FILE_ROWS))
                absent = changes.expected
            else:
                written = self._work.writer.write_part(lake, merge, changes)
                self._done, absent = _with(self._done, written), written.effect.absent
        absence = self._work.expected.absence(merge, lake.schema, absent, waiting)
        self._done = replace(self._done, absence=self._done.absence.plus(absence))

    def _add(self, files: Sequence[DataFile]) -> None:
        self._done = replace(self._done, files=(*self._done.files, *files))


def _with(done: ShareResult, written: WrittenPart) -> ShareResult:
    """Return what a task did, with a further part."""
    effect = written.effect
    marks = [Marks(marked.file.path, marked.file.size, packed(marked.places)) for marked in effect.marked]
    return replace(
        done,
        files=(*done.files, *written.files),
        marks=(*done.marks, *marks),
        changes=(*done.changes, *written.changes),
        inserted=done.inserted + effect.inserted,
        updated=done.updated + effect.updated,
        deleted=done.deleted + effect.deleted,
    )


@dataclass(frozen=True, slots=True)
class _Touched:
    """The hashes of what change rows write and remove, and which of them are ``moved`` to another key. Shape: [N] each.

    ``own`` are those by which rows are divided.
    """

    puts: Hashes
    takes: Hashes
    moved: np.ndarray
    own: Hashes

    @classmethod
    def of(cls, rows: pa.Table, merge: Merge, lake: DeltaTable) -> _Touched:
        key = merge.table.row_key
        names = KeyColumns.of(key, lake.schema) if key else None
        new, old, has_old = images_of_keys(rows, names, image_schema(lake.schema))
        puts, takes, deletes = row_hashes(new), row_hashes(old), is_op(rows, "d")
        return cls(puts, takes, has_old & ~deletes & (puts != takes), np.where(deletes, takes, puts))


def _besides(rows: pa.Table, left_out: np.ndarray) -> pa.Table:
    return rows.filter(pa.array(~left_out)) if left_out.any() else rows


def _without(rows: pa.Table, name: str, where: np.ndarray | None) -> pa.Table:
    """Return change rows without an image, of all rows (None) or of some."""
    at = rows.schema.get_field_index(name)
    none = pa.nulls(rows.num_rows, rows.schema.field(at).type)
    return rows.set_column(
        at, rows.schema.field(at), none if where is None else chosen(where, none, column(rows, name))
    )
