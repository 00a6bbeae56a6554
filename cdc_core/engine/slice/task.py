"""One table's slice, in a Spark task: spool files ─▶ decode ─▶ type ─▶ changelog ─▶ check ─▶ reduce ─▶ lake table.

The slice is one Arrow table that is created once. Every durable step reads the current position from the table's own
commits and commits the position that it reaches, so a task may be executed again, and may continue after its run has
ended, without harm:

    append       drops rows that the changelog has; commits rows and position together
    quarantine   adds a row once, by its position; before the lake changes
    apply        leaves out changes that the lake has; commits rows and LSN together

An error before the append is durable ends the run, because the slot must not be confirmed past rows that are not
stored; unless only this table's changelog cannot be used, or its rows are not UTF-8: then it is stored, before the slot
is confirmed, that the table must be re-read. An error after it affects only this table: the round continues without the
table, whose changes stay in the changelog.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from cdc_core import failpoints
from cdc_core.engine.reading.shown import Shown
from cdc_core.engine.reading.spool import ReadSpoolFiles
from cdc_core.engine.slice.checks import TableChecks, report_of
from cdc_core.engine.slice.large import LargeSlice, NotDivisibleError
from cdc_core.engine.slice.order import Applied, SliceOrder, SliceOutcome
from cdc_core.engine.slice.past_versions import with_replay
from cdc_core.engine.slice.quarantine import Sifted, sift
from cdc_core.engine.slice.schema_versions import Decoded, by_shape, keyed_slices
from cdc_core.engine.slice.timing import timed
from cdc_core.engine.slice.write import ForDriverError, LakeWriter, TooLargeError, unseen
from cdc_core.errors import CdcError, LakeError, NotUtf8Error, TransientError, UnreadableError
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.opened import keep, opened
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows, epoch_of
from cdc_core.lake.maintenance.compaction import tidy
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import LakePosition, changelog_position, lake_position
from cdc_core.lake.reduce.repeated_inserts import has_repeated_keys
from cdc_core.lake.reduce.surplus_rows import LastStates, changes_between
from cdc_core.lake.rows.row_keys import KeyColumns, merge_key
from cdc_core.lake.rows.run_files import Owner
from cdc_core.lake.rows.survey import check_inserts, in_order
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.change_columns import stored, stored_schema
from cdc_core.lake.schema.shape import changelog_properties, ensure_table
from cdc_core.lake.stores.changelog import append_changes, between, commit_append, cut_within, read_changes
from cdc_core.schema.table import TableId

_log = logging.getLogger(__name__)

# Size of compressed backlog files; their rows require about ten times as much memory.
_SLICE_BYTES = 64 << 20
# Less than every change's commit LSN: surplus rows of a snapshot are deleted before anything is merged.
_SETTLED = 1


@dataclass(frozen=True, slots=True)
class SliceTask:
    """Processes one table in a round; picklable. ``run`` distinguishes this run's open tables from another run's."""

    run: str
    scope: str
    paths: LakePaths
    plan: TypingPlan
    checks: TableChecks
    writer: LakeWriter
    armed: failpoints.Armed | None = field(default_factory=failpoints.armed)

    def __call__(self, order: SliceOrder) -> SliceOutcome:
        """Append, check and apply the slice of ``order``.

        Raises the error that prevented the rows from being committed to the changelog, unless the changelog itself
        cannot be used or hold the rows (the outcome's ``lost``); errors after that are in the outcome's ``error``.
        """
        failpoints.adopt(self.armed)
        outcome = SliceOutcome(order.table.id, merged=order.merged)
        failpoints.hit(failpoints.BETWEEN_APPENDS)
        try:
            rows = self._append(order, outcome) if order.files or order.written else None
        except (UnreadableError, NotUtf8Error) as error:
            outcome.lost = error
            return outcome
        failpoints.hit(failpoints.AFTER_APPEND)
        if order.to_lsn is not None:
            try:
                self._apply(order, rows, outcome)
            except ForDriverError:
                outcome.evolves = True
            except CdcError as error:
                outcome.error = error
            except Exception as error:
                # An internal error in one table's slice affects only that table; the others continue.
                _log.exception("Merging changes of %s into its lake table failed unexpectedly.", order.table.id)
                outcome.error = LakeError(
                    f"Changes of {order.table.id} could not be merged into its lake table ({type(error).__name__}).",
                    "The changes are kept in the changelog; please report this.",
                )
        return outcome

    def _append(self, order: SliceOrder, outcome: SliceOutcome) -> list[Decoded] | None:
        """Commit the batch's rows to the changelog; returns the rows, or None if other tasks wrote them to files."""
        table, path = order.table.id, self.paths.changelog(order.table.id)
        assert order.reached is not None
        if order.written:
            with timed(outcome, "append"):
                changelog = self._open(path)
                on_conflict(lambda: self._commit_written(order, changelog), changelog)
                outcome.appended = sum(file.rows for file in order.written)
                outcome.changelog_files = len(changelog.files)
            return None
        with timed(outcome, "decode"):
            versions = decoded(self.plan, order.files, self.writer.owner, table, order.shown)
        with timed(outcome, "append"):
            changelog = changelog_of(self, table, versions)
            since = changelog.version
            epoch = epoch_of(self.scope)
            rows = pa.concat_tables([stored(each, shape, changelog.schema, epoch) for shape, each in versions])
            outcome.appended = append_changes(changelog, rows, self.scope, table, order.reached)
            if not rows.num_rows:  # all of them were left out: the position that they reach is stored nevertheless
                on_conflict(lambda: self._commit_written(order, changelog), changelog)
        with timed(outcome, "compact"):
            tidy(changelog, since, self.writer.history_minutes)
            outcome.changelog_files = len(changelog.files)
        return versions

    def _commit_written(self, order: SliceOrder, changelog: DeltaTable) -> None:
        """Commit files that other tasks wrote; raises TransientError unless they start at the end of the changelog."""
        assert order.reached is not None
        held = changelog_position(changelog, self.scope, order.table.id)
        if (None if held is None else tuple(held)) != order.position:
            raise TransientError(
                f"Another writer appended to the changelog of {order.table.id} concurrently.",
                "No position of this batch was confirmed; run again.",
            )
        commit_append(changelog, order.written, self.scope, order.table.id, order.reached)

    def _apply(self, order: SliceOrder, rows: list[Decoded] | None, outcome: SliceOutcome) -> None:
        assert order.to_lsn is not None
        failpoints.hit(failpoints.BETWEEN_MERGES)
        lake = self.writer.prepare(self.run, self.paths.lake(order.table.id), order, self.plan, self.scope)
        stands = self._stands(lake, order)
        outcome.merged = stands.lsn
        outcome.lacks_features = bool(self.writer.features.missing(lake, order.table))
        outcome.lake_version, outcome.lake_id, outcome.lake_lsn = lake.version, lake.identity, stands.lsn
        if stands.lsn is not None and stands.lsn >= order.to_lsn:
            return
        since = lake.version
        if order.arrived and self._repeats_keys(order, lake):
            order = replace(order, arrived=())  # the rows are in the changelog, too
        if order.arrived:
            with timed(outcome, "apply"):
                outcome.applied = self.writer.add_files(lake, order, self.scope)
        else:
            if order.resumed is not None and stands.lsn is None:
                self._settle(order, lake, outcome)
                if outcome.staged is not None:
                    return
                stands = lake_position(lake, self.scope, order.table.id)
            order = self._within_bounds(order, rows, stands.merged)
            held, is_done = self._read(order, lake, rows, stands.merged, outcome)
            slices = iter(()) if is_done else self._slices(order, rows, stands.merged, held)
            if order.replay is not None:
                slices = with_replay(order, order.replay, lake.schema, stands.lsn, slices)
            for part, changes in slices:
                check_inserts(changes, order.table.id)
                mine = replace(part, waiting=True) if outcome.waiting else part
                self._check_and_write(mine, lake, changes, outcome)
                if outcome.staged is not None:
                    break
        with timed(outcome, "compact"):
            tidy(lake, since, self.writer.history_minutes)
        outcome.merged = order.to_lsn if outcome.staged is None else stands.lsn
        outcome.lake_files, outcome.lake_version = len(lake.files), lake.version
        outcome.lake_lsn = lake_position(lake, self.scope, order.table.id).lsn
        failpoints.hit(failpoints.AFTER_APPLY)

    def _repeats_keys(self, order: SliceOrder, lake: DeltaTable) -> bool:
        """Whether two files that tasks wrote of a slice's inserts contain one key; each task checked only its own."""
        if len(order.arrived) < 2 or not self.checks.has_unique_key(order.table):
            return False
        key = merge_key(order.table)
        wanted = pa.schema([lake.schema.field(name) for name in KeyColumns.of(key, lake.schema).read])
        return has_repeated_keys([lake.read_as(file, wanted) for file in order.arrived], key)

    def _settle(self, order: SliceOrder, lake: DeltaTable, outcome: SliceOutcome) -> None:
        """Delete surplus rows of the snapshot in force, in a separate commit before that of every change (LSN 1)."""
        assert order.resumed is not None and order.visible is not None
        changelog = self._changes(order.table.id)
        states: LastStates | None = None
        first = order
        for found in changes_between(changelog, order.resumed, order.visible):
            for part, changes in keyed_slices(order, by_shape(in_order(found))):
                # No DDL was executed between the two snapshots, so there is one key.
                first = replace(part, to_lsn=_SETTLED)
                states = states or LastStates(part.table, lake.schema)
                states.add(changes)
        gone = None if states is None else states.deletes()
        if gone is None or not gone.num_rows:
            return
        failpoints.hit(failpoints.BEFORE_SETTLING)

        def attempt() -> Applied | None:
            stands = self._stands(lake, order)
            return None if stands.lsn is not None else self.writer.write(lake, first, gone, self.scope)

        try:
            with timed(outcome, "apply"):
                outcome.applied = on_conflict(attempt, lake)
        except TooLargeError as large:
            outcome.staged = self.writer.stage(order.table.id, large.changes, _SETTLED)

    def _within_bounds(self, order: SliceOrder, rows: list[Decoded] | None, merged: int) -> SliceOrder:
        """Return the order, with an earlier cut if a long backlog would exceed the memory; the next round continues."""
        if order.to_lsn is None or not (order.has_backlog or (rows is None and order.written)):
            return order
        changelog = self._changes(order.table.id)
        return replace(order, to_lsn=cut_within(changelog, max(merged, order.floor), order.to_lsn, _SLICE_BYTES))

    def _read(
        self, order: SliceOrder, lake: DeltaTable, rows: list[Decoded] | None, merged: int, outcome: SliceOutcome
    ) -> tuple[pa.Table | None, bool]:
        """Return the backlog; if it is too large for one part, merge it in parts and return True instead."""
        if not (order.has_backlog or (rows is None and order.written)):
            return None, False
        changelog = self._changes(order.table.id)
        large = LargeSlice(self, order, lake, changelog, max(merged, order.floor), self.writer.part_max_bytes)
        with timed(outcome, "reduce"):
            held = large.read_small()
        if held is not None:
            return in_order(held), False
        try:
            large.merge(outcome)
        except NotDivisibleError:
            _log.warning("Changes of %s are merged in one part, which may need much memory.", order.table.id)
            return None, False
        return None, True

    def _slices(
        self, order: SliceOrder, rows: list[Decoded] | None, merged: int, held: pa.Table | None
    ) -> Iterator[tuple[SliceOrder, pa.Table]]:
        """Yield the unmerged changes up to the round's cut in the lake's columns, without those the snapshot shows.

        One slice, unless the table's key changed in between: changes identify their rows by the key in force at their
        time.
        """
        assert order.to_lsn is not None
        if rows is None and not order.has_backlog and not order.written:
            found: list[Decoded] = []
        elif rows is None or order.has_backlog:
            if held is None:
                changelog = self._changes(order.table.id)
                held = read_changes(changelog, max(merged, order.floor), order.to_lsn)
            found = by_shape(unseen(held, order.visible))
        else:
            found = [(shape, unseen(between(each, merged, order.to_lsn), order.visible)) for shape, each in rows]
        yield from keyed_slices(order, [(shape, each) for shape, each in found if each.num_rows])

    def _check_and_write(self, order: SliceOrder, lake: DeltaTable, changes: pa.Table, outcome: SliceOutcome) -> None:
        with timed(outcome, "check"):
            sifted = self.sifted(order, lake, changes, outcome)
            if sifted.changed:
                failpoints.hit(failpoints.AFTER_QUARANTINE)
        try:
            with timed(outcome, "apply"):
                outcome.applied = on_conflict(lambda: self._write(lake, order, sifted), lake) or outcome.applied
        except TooLargeError as large:
            assert order.to_lsn is not None
            outcome.staged = self.writer.stage(order.table.id, large.changes, order.to_lsn)
            return
        if outcome.applied is not None:
            outcome.applied = replace(outcome.applied, events=changes.num_rows)

    def sifted(
        self, order: SliceOrder, lake: DeltaTable, changes: pa.Table, outcome: SliceOutcome, follows: bool = False
    ) -> Sifted:
        """Return the slice's rows for the lake; the others are in the quarantine table when this returns.

        ``follows``: ``changes`` are a part of a slice, and rows of other parts have been quarantined.
        """
        found = self.checks.judged(order.table, changes, order.since)
        stands = lake_position(lake, self.scope, order.table.id)
        sifted = sift(
            self.run,
            self.scope,
            self.paths,
            order,
            stands,
            lake.schema,
            changes,
            found,
            lambda rows: self.checks.judged(order.table, rows, order.since, limited=False),
            self.checks.max_waiting(order.table.id),
            follows,
        )
        outcome.check = None if found is None else report_of(found, self.checks.suites(order.table.id))
        outcome.waiting = sifted.waiting
        outcome.replayed += sifted.replayed
        outcome.dropped += sifted.dropped
        return sifted

    def is_open(self, lake: DeltaTable, order: SliceOrder) -> bool:
        """Whether the order's changes are not in the lake. Raises TransientError if another run read the table anew."""
        assert order.to_lsn is not None
        stands = self._stands(lake, order)
        return stands.lsn is None or stands.lsn < order.to_lsn

    def _write(self, lake: DeltaTable, order: SliceOrder, sifted: Sifted) -> Applied | None:
        """Make one attempt: a commit made first may be this slice, written by a task that outlasted its run."""
        assert order.to_lsn is not None
        stands = self._stands(lake, order)
        if sifted.placed is not None:
            is_open = stands.lsn is not None and stands.lsn < order.to_lsn and sifted.changed
            return self.writer.write_placed(lake, order, sifted.placed, self.scope) if is_open else None
        rest = sifted.rows if stands.lsn is None else between(sifted.rows, stands.lsn, order.to_lsn)
        if stands.lsn is None or stands.lsn < order.to_lsn:
            rest = pa.concat_tables([sifted.earlier, rest]) if sifted.earlier.num_rows else rest
            return self.writer.write(lake, order, rest, self.scope) if rest.num_rows or sifted.changed else None
        return None

    def _stands(self, lake: DeltaTable, order: SliceOrder) -> LakePosition:
        """Return the lake table's position. Raises TransientError if another run read the table anew."""
        stands = lake_position(lake, self.scope, order.table.id)
        if stands.merge_token != order.token:
            raise TransientError(
                f"The lake table of {order.table.id} was re-read by another run.",
                "The next round uses the new table version.",
            )
        return stands

    def _changes(self, table: TableId) -> EpochRows:
        return EpochRows.of(self._open(self.paths.changelog(table)), self.scope)

    def _open(self, path: str) -> DeltaTable:
        found = opened(self.run, path)
        if found is None:
            raise LakeError(f"The Delta table {path} no longer exists.", "Take a new snapshot of the table.")
        return found


def decoded(
    plan: TypingPlan, files: Sequence[tuple[int, str]], owner: Owner, table: TableId, shown: Shown
) -> list[Decoded]:
    """Return the change rows of spool files in stream order, one table per run of files of the same shape."""
    found, read = [], ReadSpoolFiles(plan, owner, str(table), shown)
    for shape, run in itertools.groupby(files, key=lambda file: file[0]):
        batches = list(read(tuple(path for _, path in run)))
        found.append((shape, pa.Table.from_batches(batches)))
    return found


def changelog_of(task: SliceTask, table: TableId, versions: Sequence[Decoded]) -> DeltaTable:
    """Create or widen the changelog of a table so that it has every column of the versions (at least one)."""
    path, properties = task.paths.changelog(table), changelog_properties(task.writer.history_minutes)
    found = opened(task.run, path)
    for shape, rows in versions:
        wanted = stored_schema(rows.schema, shape, None if found is None else found.schema, epoch_of(task.scope))
        found = ensure_table(path, wanted, table, properties, found)
    assert found is not None
    return keep(task.run, found)
