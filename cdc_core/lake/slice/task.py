"""One table's slice, in a Spark task: spool files ─▶ decode ─▶ type ─▶ changelog ─▶ check ─▶ reduce ─▶ lake table.

The slice is one Arrow table that is created once. Every durable step reads the current position from the table's own
commits and commits the position that it reaches, so a task may be executed again, and may continue after its run has
ended, without harm:

    append       drops rows that the changelog has; commits rows and position together      (``append``)
    quarantine   adds a row once, by its position; before the lake changes                  (``quarantine``)
    apply        leaves out changes that the lake has; commits rows and LSN together        (``lake_merge``)

An error before the append is durable ends the run, because the slot must not be confirmed past rows that are not
stored; unless only this table's changelog cannot be used, or its rows are not UTF-8: then it is stored, before the slot
is confirmed, that the table must be re-read. An error after it affects only this table: the round continues without the
table, whose changes stay in the changelog.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

from cdc_core import failpoints
from cdc_core.errors import CdcError, LakeError, NotUtf8Error, UnreadableError
from cdc_core.lake.checks.table_checks import TableChecks
from cdc_core.lake.index.key_positions import IndexesMissingError
from cdc_core.lake.maintenance.compaction import maintain_briefly
from cdc_core.lake.options import LakeOptions
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import lake_position
from cdc_core.lake.rows.run_files import Owner
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.slice.absent_rows import Expectation
from cdc_core.lake.slice.append import Appended, ChangelogWriter
from cdc_core.lake.slice.lake_merge import LakeMerge
from cdc_core.lake.slice.lake_tables import LakeTables
from cdc_core.lake.slice.order import SliceOrder
from cdc_core.lake.slice.outcome import Merged, SliceOutcome, Stopwatch, WrittenTable
from cdc_core.lake.slice.shares import JoinedShares
from cdc_core.lake.slice.upkeep import UpkeepOrder
from cdc_core.lake.slice.write import LakeWriter
from cdc_core.schema import TableId
from cdc_core.storage_faults import storage_fault

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SliceTask:
    """Processes one table in a round; picklable. ``run`` distinguishes this run's open tables from another run's.

    ``partly_read`` are the tables of which snapshots read only what a statement of the user's selects.
    """

    run: str
    scope: str
    paths: LakePaths
    plan: TypingPlan
    checks: TableChecks
    tables: LakeTables
    writer: LakeWriter
    partly_read: frozenset[TableId] = frozenset()
    armed: failpoints.Armed | None = field(default_factory=failpoints.armed)

    @classmethod
    def of(
        cls,
        options: LakeOptions,
        paths: LakePaths,
        scope: str,
        plan: TypingPlan,
        checks: TableChecks,
        folder: Path,
        owner: Owner,
        index: Path,
        partly_read: frozenset[TableId] = frozenset(),
    ) -> SliceTask:
        """Create it from the options.

        ``folder`` is for the temporary files of the run ``owner``, ``index`` that of key indexes on this machine.
        """
        writer = LakeWriter.of(options, folder, owner, index)
        return cls(owner.run, scope, paths, plan, checks, LakeTables.of(options), writer, partly_read)

    @property
    def changelogs(self) -> ChangelogWriter:
        """Writes the changelogs of tables."""
        writer = self.writer
        return ChangelogWriter(self.run, self.scope, self.paths, self.plan, writer.owner, writer.history_minutes)

    @property
    def expected(self) -> Expectation:
        """What the changes of a slice must find in the lake."""
        skipped = self.plan.selection.skipped_operations
        return Expectation(self.run, self.scope, self.paths, skipped, self.partly_read)

    def __call__(self, item: SliceOrder | JoinedShares) -> SliceOutcome:
        """Append, check and apply the slice of an order; or commit what several tasks did with a divided slice.

        Raises the error that prevented the rows from being committed to the changelog, unless the changelog itself
        cannot be used or hold the rows (the outcome's ``lost``); errors after that are in the outcome's ``error``.
        """
        failpoints.adopt(self.armed)
        order, joined = (item.order, item) if isinstance(item, JoinedShares) else (item, None)
        watch, outcome = Stopwatch(), SliceOutcome(order.table, merged=order.snapshot.merged)
        new: Appended | None = None
        failpoints.hit(failpoints.BETWEEN_APPENDS)
        try:
            if order.append is not None:
                new = self.changelogs.append(order.table, order.append, order.snapshot.shown, watch)
        except (UnreadableError, NotUtf8Error) as error:
            return replace(outcome, lost=error, timings=watch.timings)
        failpoints.hit(failpoints.AFTER_APPEND)
        if new is not None:
            upkeep = (UpkeepOrder(self.paths.changelog(order.table)),) if new.wears else ()
            outcome = replace(outcome, appended=new.count, upkeep=upkeep)
        if order.merge is not None:
            outcome = self._merge(order, new, outcome, watch, joined)
        return replace(outcome, timings=watch.timings)

    def _merge(
        self,
        order: SliceOrder,
        new: Appended | None,
        outcome: SliceOutcome,
        watch: Stopwatch,
        joined: JoinedShares | None,
    ) -> SliceOutcome:
        """Return the outcome after the merge. After an error it contains what was done before."""
        failpoints.hit(failpoints.BETWEEN_MERGES)
        done = Merged()
        merge = LakeMerge(self.run, self.scope, self.paths, self.checks, self.writer, watch, self.expected)
        try:
            path = self.paths.lake(order.table)
            prepared = self.tables.prepare(self.run, path, order.schema, self.plan, self.scope)
            lake, outcome = prepared.lake, replace(outcome, enabled=prepared.enabled)
            begun, marked = lake.version, lake.marks_rows
            stood = merge.position(lake, order.table, order.snapshot.token).lsn
            for step in merge.merge(order, lake, new, joined):
                done = done.then(step)
            if done.divided is None and done != Merged():
                with watch("compact"):
                    key = order.schema.table.row_key
                    if maintain_briefly(lake, begun, self.writer.history_minutes, key):
                        outcome = replace(outcome, upkeep=(*outcome.upkeep, UpkeepOrder(path, tuple(key))))
                failpoints.hit(failpoints.AFTER_APPLY)
        except IndexesMissingError:
            # What was quarantined so far is added once; the changes are merged from the changelog by a later round.
            upkeep = UpkeepOrder(path, tuple(order.schema.table.row_key), indexes=True)
            stands = lake_position(lake, self.scope, order.table).lsn
            return replace(outcome, merged=stands, done=done, waits=True, upkeep=(*outcome.upkeep, upkeep))
        except Exception as error:
            return replace(outcome, done=done, error=failure_of(order.table, error))
        stands = lake_position(lake, self.scope, order.table).lsn
        merged = stood if done.reached is None else done.reached
        written = WrittenTable(lake.version, lake.identity, stands)
        return replace(outcome, merged=merged, done=done, lake=written, marks=lake.marks_rows and not marked)


def failure_of(table: TableId, error: Exception) -> CdcError:
    """Return the error of a table's merge: an internal one affects only that table, and the others continue."""
    if isinstance(error, CdcError):
        return error
    fault = storage_fault(error)
    if fault is not None:
        return fault
    _log.error("Merging changes of %s into its lake table failed unexpectedly.", table, exc_info=error)
    return LakeError(
        f"Changes of {table} could not be merged into its lake table ({type(error).__name__}).",
        "The changes are kept in the changelog; please report this.",
    )
