"""Merges a share of a divided slice into files, in a Spark task; another task commits them (``shares``).

    changelog, and what waits in quarantine, a few megabytes at a time
        ─▶ the share's rows, in buckets by key on local disk (lake/rows/buckets)
        ─▶ one part at a time: check ─▶ reduce ─▶ data files
        ─▶ files, marks, refused rows

A slice of inserts is not divided by key: its rows go into data files as they come.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np
import pyarrow as pa

from cdc_core import failpoints
from cdc_core.lake.apply.added import Inserts, Replacement
from cdc_core.lake.apply.changes import Changes, prepare
from cdc_core.lake.checks.table_checks import report_of
from cdc_core.lake.delete_columns import mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.deletion_vectors import packed, united
from cdc_core.lake.delta.opened import opened
from cdc_core.lake.delta.row_groups import release
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.names import helper
from cdc_core.lake.reduce.key_changes import Apart, complete_updates, removals_of
from cdc_core.lake.reduce.last_changes import last_changes
from cdc_core.lake.reduce.latest import image_schema, images_of_keys
from cdc_core.lake.reduce.multiset import arrivals
from cdc_core.lake.reduce.row_states import truncation_of
from cdc_core.lake.rows.buckets import Buckets, Part
from cdc_core.lake.rows.images import column, validity
from cdc_core.lake.rows.key_hash import Hashes, row_hashes
from cdc_core.lake.rows.row_keys import KeyColumns
from cdc_core.lake.rows.survey import NO_ROWS, in_order, is_op, order_of, survey
from cdc_core.lake.schema.change_columns import empty_changes
from cdc_core.lake.slice.added import adds_files
from cdc_core.lake.slice.divided import Share
from cdc_core.lake.slice.kept_values import kept_bytes, leaving_out
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

if TYPE_CHECKING:
    from cdc_core.quality import Checked

_FILE_ROWS = 1_000_000
# A column of the rows in buckets: what of a change is merged in its part (``Apart``).
_PIECE = helper("__piece")
_ALL, _INSERT, _REMOVAL = range(3)

Add = Callable[[pa.Table, Hashes], None]
Link = Callable[[Hashes, Hashes], None]


@dataclass(frozen=True, slots=True)
class ShareTask:
    """Works on shares, and on lake files where a truncate ends rows or rows may not be marked; picklable."""

    task: SliceTask

    @overload
    def __call__(self, item: Share | EndOrder) -> ShareResult: ...
    @overload
    def __call__(self, item: RewriteOrder) -> RewrittenFile: ...
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
        """Return the rows of a part that may be merged, and those that are left out (``Filtered``); None for none.

        ``rows`` have the column WAITS if any change of the table is in quarantine, and _PIECE if they are of a bucket.
        """
        work, merge, waited = self._work, self._merge, None
        with work.watch("check"):
            if self.places is not None:
                waits = validity(column(rows, WAITS))
                waited = self.quarantine.judged(_without(rows.filter(pa.array(waits)), _PIECE))
                rows = _without(rows.filter(pa.array(~waits)), WAITS)
            rows, apart, judged = self._judged(rows)
            limits = work.limits(merge)
            filtered = self.quarantine.filtered(rows, judged, limits, waited, apart)
            self.waiting += filtered.quarantined.waiting
            self.replayed += filtered.quarantined.replayed
            limits.require_room(str(merge.table.id), self.waiting, self.waited)
            if filtered.refused is not None and filtered.refused.num_rows:
                self.refused.append(kept_apart(filtered.refused, work.paths.quarantine(merge.table.id)))
            self.settled += [] if filtered.settled is None else [filtered.settled]
        earlier = [filtered.earlier] if filtered.earlier.num_rows else []
        return pa.concat_tables([*earlier, filtered.rows]), filtered.left_out

    def passing_all(self, rows: pa.Table) -> pa.Table | None:
        """Return rows as ``passing`` does if all of them may be merged, and none has waited; else None."""
        with self._work.watch("check"):
            if self.places is not None:
                if column(rows, WAITS).null_count < rows.num_rows:
                    return None
                rows = _without(rows, WAITS)
            rows, apart, judged = self._judged(rows)
            if judged is not None and judged.refused is not None:
                return None
            return rows if apart is None else apart.joined(rows)

    def _judged(self, rows: pa.Table) -> tuple[pa.Table, Apart | None, Checked | None]:
        """Judge rows; returns them as they were sent, and how they are divided."""
        apart = None
        if _PIECE in rows.schema.names:
            piece, rows = column(rows, _PIECE).to_numpy(), _without(rows, _PIECE)
            removals, rows = (rows.filter(pa.array(mask)) for mask in (piece == _REMOVAL, piece != _REMOVAL))
            apart = Apart(piece[piece != _REMOVAL] == _INSERT, removals)
        judged = self._work.judged(self._merge, rows, None if apart is None else apart.removals)
        self.report = both(self.report, None if judged is None else report_of(judged))
        if judged is not None and judged.failure is not None:
            raise judged.failure
        return rows, apart, judged


class _Making:
    """A share in the making; a row that is larger than a part is a part of its own."""

    def __init__(self, work: LakeMerge, lake: DeltaTable, share: Share, rows: SliceRows) -> None:
        self._work, self._lake, self._share, self._rows = work, lake, share, rows
        self._merge = rows.merge
        self._most_bytes = work.writer.part_max_bytes
        self.checks = _ShareChecks(work, lake, self._merge)
        self._done = ShareResult(share.table)
        self._truncates: list[pa.Table] = []
        self._whole, self._events, self._octets, self._left_out = NO_ROWS, 0, 0, 0

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
        self._octets, self._left_out = self._octets + rows.nbytes, self._left_out + leaving_out(rows)
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
                cut = every.filter(pa.array(truncates))
                self._truncates.append(_pieces(cut, np.full(cut.num_rows, _ALL)))
            self._distribute(_besides(every, truncates), buckets.add, buckets.link)
            del every
        if buckets.connect():
            for every in self._every():
                self._distribute(_besides(every, is_op(every, "t")), buckets.add_connected)
                del every

    def _distribute(self, rows: pa.Table, add: Add, link: Link | None = None) -> None:
        """Add rows to parts by their keys. An update that can be divided is two rows, another one links its keys."""
        touched = _Touched.of(rows, self._merge, self._lake)
        linked = touched.moved & ~touched.apart
        if link is not None:
            link(touched.puts[linked], touched.takes[linked])
        # The old row of what waits was removed when the change came to quarantine.
        gone = touched.apart & ~validity(column(rows, WAITS)) if WAITS in rows.schema.names else touched.apart
        every, hashes = _pieces(rows, np.where(touched.apart, _INSERT, _ALL)), touched.own
        if gone.any():
            removals = _pieces(removals_of(rows, gone), np.full(np.count_nonzero(gone), _REMOVAL))
            every = pa.concat_tables([removals, every])
            order = order_of(every)
            every, hashes = every.take(pa.array(order)), np.concatenate([touched.takes[gone], hashes])[order]
        add(every, hashes)

    def _merge_parts(self, buckets: Buckets) -> None:
        merge, overlaps = self._merge, self._merge.snapshot.visible is not None
        is_added = adds_files(self._lake, self._whole, has_key=bool(merge.table.row_key), overlaps=overlaps)
        if self._truncates and not is_added:
            self._done = replace(self._done, ending=self._ending)
        # What rows leave out is read from the lake, and is in memory with them.
        kept = kept_bytes(self._lake, self._left_out)
        most_rows = max(1, self._most_bytes * self._left_out // kept) if kept else None
        for part in buckets.parts(self._most_bytes * self._octets // max(1, self._octets + kept)):
            good = self._folded(part, buckets) if part.is_large else None
            if good is None:
                # Every part needs the truncates, at their places: they end the rows of all keys, and what waits.
                good, left_out = self.checks.passing(in_order(pa.concat_tables([part.rows, *self._truncates])))
            else:
                left_out = None
            with self._work.watch("reduce"):
                changes = prepare(good, merge.table, self._lake.schema, merge.snapshot.visible, self._whole)
            del good  # of connected keys there may be many, which would stay in memory while their rows are written
            self._merge_part(changes, left_out, is_added=is_added, most_rows=most_rows)
            octets = part.octets
            del part, changes, left_out
            release(octets)

    def _folded(self, part: Part, buckets: Buckets) -> pa.Table | None:
        """Return the rows of a part that decide, while all others are read and checked; None if it must be whole.

        These are needed where rows wait, and all versions of a row by a history table.
        """
        key, lake = self._merge.table.row_key, self._lake
        if not key or self._truncates or mode_of(lake.schema.names) is DeleteMode.HISTORY:
            return None
        report = self.checks.report
        kept, connected = None, list[pa.Table]()
        for rows in part.read():
            good = self.checks.passing_all(in_order(rows))
            if good is None:
                self.checks.report = report
                return None
            # Of connected keys a row may be needed at another one.
            stays = buckets.are_connected(_Touched.of(good, self._merge, lake).own)
            connected.append(good.filter(pa.array(stays)))
            every = _besides(good, stays)
            every = every if kept is None else in_order(pa.concat_tables([kept, every]))
            kept = every.filter(pa.array(last_changes(every, key, lake.schema))).combine_chunks()
            octets = rows.nbytes
            del rows, good, every
            release(octets)
        return kept if kept is None else pa.concat_tables([kept, *connected])

    @property
    def _ending(self) -> TruncateEnd | None:
        """The slice's first truncate, and the lake files with rows that may be of other keys than the slice's."""
        at = truncation_of(in_order(pa.concat_tables(self._truncates)))
        files = (file.path for file in self._lake.files if not file.is_history)
        return None if at is None else TruncateEnd(at, tuple(files))

    def _merge_part(
        self, changes: Changes, left_out: pa.Table | None, *, is_added: bool, most_rows: int | None
    ) -> None:
        merge, lake, watch = self._merge, self._lake, self._work.watch
        with watch("apply"):
            if is_added:
                assert isinstance(changes, Inserts | Replacement)
                self._add(lake.write_stream(changes.plus.to_batches(), lake.schema, _FILE_ROWS))
                absent = changes.expected
            else:
                written = self._work.writer.write_part(lake, merge, changes, most_rows)
                self._done, absent = _with(self._done, written), written.effect.absent
        absence = self._work.expected.absence(merge, lake.schema, absent, left_out)
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

    ``own`` are those by which rows are divided. ``apart``: see ``key_changes``.
    """

    puts: Hashes
    takes: Hashes
    moved: np.ndarray
    own: Hashes
    apart: np.ndarray

    @classmethod
    def of(cls, rows: pa.Table, merge: Merge, lake: DeltaTable) -> _Touched:
        key = merge.table.row_key
        names = KeyColumns.of(key, lake.schema) if key else None
        new, old, has_old = images_of_keys(rows, names, image_schema(lake.schema))
        puts, takes, deletes = row_hashes(new), row_hashes(old), is_op(rows, "d")
        moved = has_old & ~deletes & (puts != takes)
        apart = complete_updates(rows) & (moved | (not key))
        return cls(puts, takes, moved, np.where(deletes, takes, puts), apart)


def _besides(rows: pa.Table, left_out: np.ndarray) -> pa.Table:
    return rows.filter(pa.array(~left_out)) if left_out.any() else rows


def _pieces(rows: pa.Table, pieces: np.ndarray) -> pa.Table:
    return rows.append_column(_PIECE, pa.array(pieces, pa.int8()))


def _without(rows: pa.Table, name: str) -> pa.Table:
    return rows.drop_columns([name]) if name in rows.schema.names else rows
