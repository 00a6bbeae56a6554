"""Merges a slice into its lake table: first a plan is chosen, then it is executed.

    position of the lake table ─▶ choose ─▶ ``plan`` ─▶ execute: check ─▶ quarantine ─▶ commit

Every commit reads the table's position first, and contains the LSN that it reaches: changes that the table has are left
out, also if another attempt made its commit in between.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from cdc_core import failpoints
from cdc_core.errors import CommitConflictError, TransientError
from cdc_core.lake.checks.table_checks import TableChecks, report_of
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.opened import opened
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import LakePosition, lake_position
from cdc_core.lake.reduce.surplus_rows import LastStates, changes_between
from cdc_core.lake.rows.survey import check_inserts, in_order, is_op
from cdc_core.lake.schema.change_columns import empty_changes
from cdc_core.lake.slice.absent_rows import Expectation
from cdc_core.lake.slice.added import adds_files, keeps_rows, repeats_keys, takes_files
from cdc_core.lake.slice.append import Appended
from cdc_core.lake.slice.divided import DividedSlice
from cdc_core.lake.slice.kept_values import kept_bytes, leaving_out
from cdc_core.lake.slice.lake_tables import opened_existing
from cdc_core.lake.slice.order import Merge, Replay, SliceOrder, WrittenFiles
from cdc_core.lake.slice.outcome import Applied, Merged, Stopwatch, overtaken
from cdc_core.lake.slice.plan import AddFiles, CommitShares, Divide, Nothing, Plan, SurplusFirst, Whole
from cdc_core.lake.slice.quarantine import Filtered, TableQuarantine, accepted
from cdc_core.lake.slice.schema_versions import Decoded, by_schema_version, in_force, of_one_key, unseen
from cdc_core.lake.slice.shares import JoinedShares
from cdc_core.lake.slice.slice_rows import SliceRows
from cdc_core.lake.slice.write import LakeWriter
from cdc_core.lake.stores.changelog import between, cut_within, in_stream_order
from cdc_core.lake.stores.quarantine import add_kept
from cdc_core.lsn import just_after
from cdc_core.quality import Limits, both
from cdc_core.schema import TableId

if TYPE_CHECKING:
    from cdc_core.quality import Checked

_log = logging.getLogger(__name__)

# Size of compressed backlog files; their rows require about ten times as much memory.
_SLICE_BYTES = 64 << 20
# Less than every change's commit LSN: surplus rows of a snapshot are deleted before anything is merged.
_SURPLUS_LSN = 1
# A divided slice may take minutes. What is overtaken as often has to share its lake table with another writer.
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class LakeMerge:
    """Merges slices; ``run`` and ``scope`` as in ``SliceTask``, ``watch`` measures the parts of this one.

    ``expected`` is what a slice's changes must find in the lake.
    """

    run: str
    scope: str
    paths: LakePaths
    checks: TableChecks
    writer: LakeWriter
    watch: Stopwatch
    expected: Expectation

    def merge(
        self, order: SliceOrder, lake: DeltaTable, new: Appended | None, joined: JoinedShares | None = None
    ) -> Iterator[Merged]:
        """Merge the order's changes into its lake table; yields the result of each step when it is durable.

        ``new`` is what this task appended, ``joined`` what others did with the slice. Raises TransientError if another
        run read the table anew.
        """
        plan = self.choose(order, lake, new) if joined is None else self._choose_for_shares(joined, lake)
        yield from self.execute(plan, order, lake, new)

    def choose(self, order: SliceOrder, lake: DeltaTable, new: Appended | None, *, is_settled: bool = False) -> Plan:
        """Choose the plan from the position of the lake table and the size of the changes; writes nothing.

        ``is_settled``: the surplus rows of the snapshot in force have been deleted.
        """
        merge, at = Merge.of(order), self.position(lake, order.table, order.snapshot.token)
        snapshot = order.snapshot
        if at.lsn is not None and at.lsn >= merge.to_lsn:
            return Nothing()
        append = order.append if isinstance(order.append, WrittenFiles) else None
        arrived = () if append is None else append.arrived
        # If a key is repeated, the slice is checked as a whole: its rows are in the changelog, too.
        if (
            append is not None
            and arrived
            and not (len(arrived) > 1 and repeats_keys(self.checks, merge.table, lake, arrived))
        ):
            return AddFiles(merge, arrived, append.check)
        if snapshot.resumed is not None and at.lsn is None and not is_settled:
            assert snapshot.visible is not None
            return SurplusFirst(merge, snapshot.resumed, snapshot.visible)
        merged = self._start(merge, at)
        if merge.replay is not None and merge.replay.drop:
            if at.lsn is not None:
                return Whole(merge.up_to(just_after(at.lsn)), (), merged)
            merge = merge.without_replay()  # before the first merge nothing is in quarantine
        if not order.has_backlog and (new is None or new.rows is not None):
            rows = [] if new is None or new.rows is None else new.rows
            return self._choose_for_rows(merge, _unmerged(rows, at, merge), lake, merged)
        return self._choose_for_changelog(merge, lake, merged)

    def execute(self, plan: Plan, order: SliceOrder, lake: DeltaTable, new: Appended | None) -> Iterator[Merged]:
        """Do what the plan says; yields the result of each durable step."""
        match plan:
            case Nothing():
                return
            case AddFiles(merge, files, check):
                with self.watch("apply"):
                    applied = self.writer.commit_files(lake, merge, self.scope, files)
                yield Merged(applied, check=check, reached=merge.to_lsn)
            case SurplusFirst():
                yield self._delete_surplus(plan, lake)
                yield from self.execute(self.choose(order, lake, new, is_settled=True), order, lake, new)
            case Whole():
                yield from self._merge_whole(plan, order, lake)
            case Divide(divided):
                yield Merged(divided=divided)
            case CommitShares(joined):
                yield from self._commit_shares(joined, order, lake)

    def _choose_for_changelog(self, merge: Merge, lake: DeltaTable, merged: int, attempt: int = 1) -> Plan:
        """Choose how changes of the changelog after ``merged`` are merged: in one part if they fit the memory."""
        changelog = self._changelog(merge.table.id)
        # A long backlog is merged in several rounds.
        merge = merge.up_to(cut_within(changelog, merged, merge.to_lsn, _SLICE_BYTES))
        slice_rows, most = SliceRows(merge, changelog, merged), self.writer.part_max_bytes
        with self.watch("reduce"):
            rows = None if slice_rows.bytes_at_least > most else slice_rows.small(most)
        if rows is None:
            return self._divided(slice_rows.of_one_key, lake, attempt)
        return self._choose_for_rows(merge, _not_shown(in_order(rows), merge), lake, merged, attempt)

    def _choose_for_rows(
        self, merge: Merge, rows: tuple[Decoded, ...], lake: DeltaTable, merged: int, attempt: int = 1
    ) -> Plan:
        """Choose how changes in memory are merged: in one part, unless a truncate ends rows (``apply/truncated``).

        Or unless values that they leave out would need more memory than a part may.
        """
        merge, rows = of_one_key(merge, rows)
        ends = keeps_rows(lake) and any(is_op(changes, "t").any() for _, changes in rows)
        octets = kept_bytes(lake, sum(leaving_out(changes) for _, changes in rows))
        if ends or octets > self.writer.part_max_bytes:
            return self._divided(SliceRows(merge, self._changelog(merge.table.id), merged), lake, attempt)
        return Whole(merge, rows, merged)

    def _divided(self, slice_rows: SliceRows, lake: DeltaTable, attempt: int = 1) -> Divide:
        """Divide changes of the changelog, and those in quarantine."""
        merge, changelog, files = slice_rows.merge, slice_rows.changelog, in_stream_order(slice_rows.files)
        waits = merge.waiting or merge.replay is not None
        octets = slice_rows.bytes_at_most + (self.quarantine(lake, merge).bytes_at_most if waits else 0)
        only_adds = not waits and merge.snapshot.visible is None and takes_files(lake) and _only_inserts(files)
        return Divide(
            DividedSlice(
                merge,
                slice_rows.merged,
                changelog.changelog.version,
                lake.version,
                -(-octets // self.writer.part_max_bytes),
                tuple((file.path, file.size) for file in files) if only_adds else (),
                self.writer.mark_above(lake),
                attempt,
            )
        )

    def _choose_for_shares(self, joined: JoinedShares, lake: DeltaTable) -> Plan:
        """Choose what follows from what the tasks of a divided slice did."""
        divided, merge = joined.slice, joined.slice.merge
        at = self._position(lake, merge)
        if at.lsn is not None and at.lsn >= merge.to_lsn:
            return Nothing()
        # Files may be added whatever others have changed in the table, if they merged none of these changes.
        is_same = divided.lake_version == lake.version or self._adds(joined, lake)
        if joined.is_overtaken or self._start(merge, at) != divided.merged or not is_same:
            return self._again(joined, lake)
        files = [file for share in joined.results for file in share.files]
        if divided.files and joined.error is None and repeats_keys(self.checks, merge.table, lake, files):
            return Divide(replace(divided, files=(), lake_version=lake.version))
        return CommitShares(joined)

    def _commit_shares(self, joined: JoinedShares, order: SliceOrder, lake: DeltaTable) -> Iterator[Merged]:
        """Commit what several tasks did: first rows in quarantine, then the lake table."""
        divided, merge = joined.slice, joined.slice.merge
        yield Merged(check=reduce(both, (share.check for share in joined.results)))
        if joined.error is not None:
            raise joined.error
        absences = [share.absence for share in joined.results]
        if any(absence.count for absence in absences):
            lake.refresh()  # it was only expected to be the newest version
            if lake.version != divided.lake_version:
                yield from self.execute(self._again(joined, lake), order, lake, None)
                return
        self.expected.require(merge, absences)
        report = joined.quarantined
        self.limits(merge).require_room(str(merge.table.id), report.waiting, joined.waited)
        refused = [file for share in joined.results for file in share.refused]
        settled = [some for share in joined.results for some in share.settled]
        if refused or settled:
            with self.watch("check"):
                place = lake_position(lake, self.scope, merge.table.id)
                add_kept(self.paths.quarantine(merge.table.id), refused, settled, place, merge.to_lsn)
            failpoints.hit(failpoints.AFTER_QUARANTINE)
        yield Merged(quarantined=report)
        if not (joined.events or refused or settled):
            yield Merged(reached=merge.to_lsn)
            return

        def attempt() -> Applied | None:
            if self._start(merge, self._position(lake, merge)) != divided.merged:
                return None
            if not self._adds(joined, lake):
                return self.writer.commit_shares(lake, merge, self.scope, joined)
            files = [file for share in joined.results for file in share.files]
            return self.writer.commit_files(lake, merge, self.scope, files, joined.whole.truncated_at is not None)

        with self.watch("apply"):
            try:
                done = on_conflict(attempt, lake) if self._adds(joined, lake) else attempt()
            except CommitConflictError:
                lake.refresh()
                done = None
        if done is not None:
            yield Merged(replace(done, events=joined.events), reached=merge.to_lsn)
        elif self._position(lake, merge).merged >= merge.to_lsn:
            yield Merged(reached=merge.to_lsn)  # the other's commit is of the same slice
        else:
            yield from self.execute(self._again(joined, lake), order, lake, None)

    def _again(self, joined: JoinedShares, lake: DeltaTable) -> Plan:
        """Choose again, from where another writer left the lake table: what was decided may not hold any more.

        Raises TransientError if that happens again and again, or changes wait in quarantine, because its rules may have
        been others: the next round looks for them.
        """
        table, attempt = joined.slice.table, joined.slice.attempt
        if self.has_quarantine(table) or attempt >= _ATTEMPTS:
            raise overtaken(table)
        _log.warning("Another writer changed the lake table of %s: its changes are merged again.", table)
        merge = Merge.of(joined.order)
        return self._choose_for_changelog(merge, lake, self._start(merge, self._position(lake, merge)), attempt + 1)

    def _adds(self, joined: JoinedShares, lake: DeltaTable) -> bool:
        """Whether the tasks only wrote files with new rows, or with the entire content."""
        merge = joined.slice.merge
        overlaps = merge.snapshot.visible is not None
        return adds_files(lake, joined.whole, has_key=bool(merge.table.row_key), overlaps=overlaps)

    def _delete_surplus(self, plan: SurplusFirst, lake: DeltaTable) -> Merged:
        """Delete surplus rows of the snapshot in force, in a separate commit before that of every change (LSN 1)."""
        merge, states = plan.merge.up_to(_SURPLUS_LSN), None
        for batch in changes_between(self._changelog(merge.table.id), plan.first, plan.last):
            # No DDL was executed between the two snapshots, so there is one key.
            keyed, versions = of_one_key(plan.merge, by_schema_version(in_order(batch)))
            merge = keyed.up_to(_SURPLUS_LSN)
            states = states or LastStates(merge.table, lake.schema)
            states.add(in_force(merge.schema, versions))
        gone = None if states is None else states.deletes()
        if gone is None or not gone.num_rows:
            return Merged()
        rows = gone
        failpoints.hit(failpoints.BEFORE_SURPLUS)

        def attempt() -> Applied | None:
            stands = self._position(lake, merge)
            return None if stands.lsn is not None else self.writer.write(lake, merge, rows, self.scope, None)

        with self.watch("apply"):
            return Merged(on_conflict(attempt, lake))

    def _merge_whole(self, plan: Whole, order: SliceOrder, lake: DeltaTable) -> Iterator[Merged]:
        """Check and write the changes; several tasks do, if what waits in quarantine exceeds the size of a part."""
        merge = plan.merge
        if not plan.rows and merge.replay is None:
            yield Merged(reached=merge.to_lsn)
            return
        changes = in_force(merge.schema, plan.rows) if plan.rows else empty_changes(lake.schema)
        check_inserts(changes, merge.table.id)
        with self.watch("check"):
            judged = self.judged(merge, changes)
        yield Merged(check=None if judged is None else report_of(judged))
        if judged is not None and judged.failure is not None:
            raise judged.failure
        with self.watch("check"):
            filtered = self.filtered(lake, merge, changes, judged)
            if filtered is not None and filtered.changed:
                failpoints.hit(failpoints.AFTER_QUARANTINE)
        if filtered is None:
            rest = self._divided(SliceRows(merge, self._changelog(merge.table.id), plan.merged), lake)
            yield from self.execute(rest, order, lake, None)
            return
        yield Merged(quarantined=filtered.quarantined)
        yield self._write(lake, merge, filtered, changes.num_rows)
        yield Merged(reached=merge.to_lsn)

    def judged(self, merge: Merge, changes: pa.Table, removals: pa.Table | None = None) -> Checked | None:
        """Judge the slice's rows; nothing is written. None if checks are disabled.

        A replay accepts what fails the rules that it names, and failures of expectations on a slice as a whole.
        ``removals``: see ``TableChecks.judged``.
        """
        replay = merge.replay or Replay()
        verdict = self.checks.judged(
            merge.table,
            changes,
            merge.schema.since,
            recent=None if replay.is_decision else merge.recent,
            accept=replay.accept,
            accept_all=replay.accept_all,
            removals=removals,
        )
        return verdict if verdict is None or merge.replay is None else accepted(verdict, replay)

    def filtered(self, lake: DeltaTable, merge: Merge, changes: pa.Table, judged: Checked | None) -> Filtered | None:
        """Return the slice's rows for the lake; the others are in the quarantine table when this returns.

        None if what waits there exceeds the size of a part; nothing was written then.
        """
        if not merge.waiting and (judged is None or judged.refused is None):
            return Filtered(changes, changes.slice(0, 0))
        self._prove(lake, merge)
        quarantine = self.quarantine(lake, merge)
        places, waited = quarantine.places, None
        if merge.replay is not None and merge.replay.drop:
            filtered = quarantine.dropped(places)
        else:
            if places is not None:
                waited = quarantine.within(places, changes.schema, self.writer.part_max_bytes)
                if waited is None:
                    return None
            filtered = quarantine.filtered(changes, judged, self.limits(merge), waited)
        quarantine.write(filtered)
        return filtered

    def quarantine(self, lake: DeltaTable, merge: Merge) -> TableQuarantine:
        """Return the table's quarantine, with the lake table at its present position."""
        table, since = merge.table, merge.schema.since
        return TableQuarantine(
            self.run,
            self.scope,
            self.paths,
            merge,
            lake_position(lake, self.scope, table.id),
            lake.schema,
            lambda rows: self.checks.judged(table, rows, since, is_batch=False),
        )

    def _prove(self, lake: DeltaTable, merge: Merge) -> None:
        """Ask the log whether the lake table's position, which decides what goes to quarantine, is the newest one.

        Raises TransientError if it is not: it was only expected to be (``opened_to_commit``).
        """
        expected = self._position(lake, merge)
        lake.refresh()
        if self._position(lake, merge) != expected:
            raise overtaken(merge.table.id)

    def limits(self, merge: Merge) -> Limits:
        """The table's limits of refused changes; none for changes that an operator has decided to accept or drop."""
        is_decided = merge.replay is not None and merge.replay.is_decision
        return Limits() if is_decided else self.checks.limits(merge.table.id)

    def has_quarantine(self, table: TableId) -> bool:
        """Whether changes of the table have been quarantined."""
        return opened(self.run, self.paths.quarantine(table)) is not None

    def position(self, lake: DeltaTable, table: TableId, token: int) -> LakePosition:
        """Return the lake table's position. Raises TransientError if another run read the table anew."""
        stands = lake_position(lake, self.scope, table)
        if stands.merge_token != token:
            lake.refresh()  # it was only expected to be the newest version
            stands = lake_position(lake, self.scope, table)
        if stands.merge_token != token:
            raise TransientError(
                f"The lake table of {table} was re-read by another run.",
                "The next round uses the new table version.",
            )
        return stands

    def _write(self, lake: DeltaTable, merge: Merge, filtered: Filtered, events: int) -> Merged:
        with self.watch("apply"):
            checked_at = self._position(lake, merge)
            done = on_conflict(lambda: self._attempt(lake, merge, filtered, checked_at.merged), lake)
        return Merged(None if done is None else replace(done, events=events))

    def _attempt(self, lake: DeltaTable, merge: Merge, filtered: Filtered, checked_at: int) -> Applied | None:
        """Make one attempt: a commit made first may be this slice, written by a task that outlasted its run.

        Raises TransientError if that had a part of the slice, and changes are in quarantine: its rules may have been
        others, and what it refused holds back later changes of the same rows.
        """
        stands = self._position(lake, merge)
        if checked_at < stands.merged < merge.to_lsn and self.has_quarantine(merge.table.id):
            raise overtaken(merge.table.id)
        if stands.lsn is not None and stands.lsn >= merge.to_lsn:
            return None
        rest = filtered.rows if stands.lsn is None else between(filtered.rows, stands.lsn, merge.to_lsn)
        rest = pa.concat_tables([filtered.earlier, rest]) if filtered.earlier.num_rows else rest
        if not rest.num_rows and not filtered.changed:
            return None
        return self.writer.write(lake, merge, rest, self.scope, self.expected, filtered.left_out)

    def _position(self, lake: DeltaTable, merge: Merge) -> LakePosition:
        return self.position(lake, merge.table.id, merge.snapshot.token)

    def _start(self, merge: Merge, at: LakePosition) -> int:
        """Return the LSN after which changes are to be merged."""
        return max(at.merged, merge.snapshot.floor)

    def _changelog(self, table: TableId) -> EpochRows:
        return EpochRows.of(opened_existing(self.run, self.paths.changelog(table)), self.scope)


def _only_inserts(files: Sequence[DataFile]) -> bool:
    """Whether files of a changelog have nothing but inserts, by their statistics."""
    return all(file.minimum.get("__op") == "c" == file.maximum.get("__op") for file in files)


def _unmerged(rows: list[Decoded], at: LakePosition, merge: Merge) -> tuple[Decoded, ...]:
    """Return the rows of a batch that are not in the lake table, up to the merge's LSN."""
    visible = merge.snapshot.visible
    left = ((version, unseen(between(changes, at.merged, merge.to_lsn), visible)) for version, changes in rows)
    return tuple((version, changes) for version, changes in left if changes.num_rows)


def _not_shown(rows: pa.Table, merge: Merge) -> tuple[Decoded, ...]:
    """Return changelog rows by schema version without those that the snapshot in force shows."""
    return tuple(by_schema_version(unseen(rows, merge.snapshot.visible)))
