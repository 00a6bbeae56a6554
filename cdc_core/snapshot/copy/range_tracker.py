"""Records finished ranges of a snapshot run and reuses those of interrupted attempts."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence

from cdc_core.lake import FinishedRange, LakePaths, RangeFiles, RangeLog, TakenSnapshot, TypingPlan, lake_properties
from cdc_core.postgres import OpenSnapshot, Source
from cdc_core.schema import TableId
from cdc_core.snapshot.copy.description import TableDescription
from cdc_core.snapshot.copy.reading import TableRead
from cdc_core.snapshot.copy.resume import EarlierAttempts, can_resume, marks_of, resumption
from cdc_core.snapshot.copy.table_plan import TablePlan
from cdc_core.snapshot.copy.task import RangeResult
from cdc_core.spark import Session


class RangeTracker:
    """The ranges of one run's tables. ``note`` is for one thread, ``files`` and ``done`` are for any thread."""

    def __init__(
        self, source: Source, spark: Session, paths: LakePaths, plan: TypingPlan, history_minutes: int, epoch: int
    ) -> None:
        self._source = source
        self._spark = spark
        self._plan = plan
        self._log = RangeLog(paths.ranges, lake_properties(history_minutes), epoch)
        self._lock = threading.Lock()
        self._recorded: dict[TableId, list[FinishedRange]] = defaultdict(list)

    def earlier(
        self, described: Sequence[TableDescription], taken: Mapping[TableId, TakenSnapshot], opened: OpenSnapshot
    ) -> dict[TableId, EarlierAttempts]:
        """Find the ranges of earlier attempts, and determine for which tables ranges are recorded."""
        recorded = self._log.read()
        confirmed = None if opened.made_slot else self._source.slot().confirmed_lsn
        attempts: dict[TableId, EarlierAttempts] = {}
        for description in described:
            name = description.table.id
            # Entries up to the token in force were committed, whether or not they were removed after that.
            left = tuple(entry for entry in recorded.get(name, ()) if entry.token > (description.target.token or 0))
            marks = (
                marks_of(description.table, self._plan, description.statements.query(""))
                if self._may_resume(description)
                else None
            )
            kept = (
                None if marks is None else resumption(left, marks, taken[name].visible, confirmed, description.target)
            )
            attempts[name] = EarlierAttempts(left, marks, kept)
        return attempts

    def _may_resume(self, description: TableDescription) -> bool:
        """Whether ranges of the table are recorded (``resume`` says which tables are read from the beginning)."""
        is_whole = description.statements.own_statement is not None or description.target.keeps_gone_rows
        return not is_whole and description.size.has_ctid and can_resume(description.table, self._plan)

    def note(self, plan: TablePlan, result: RangeResult) -> None:
        """Record that a range was read, if it is to be recorded."""
        earlier, chunk = plan.earlier, plan.ranges[result.number].chunk
        if chunk is None or earlier.marks is None:
            return
        taken = plan.taken
        lsn, since = (int(taken.lsn), taken.visible) if earlier.kept is None else (earlier.kept.lsn, earlier.kept.since)
        entry = FinishedRange(
            taken.token, lsn, since, earlier.marks, chunk.first_block, chunk.end_block, result.written.files
        )
        with self._lock:
            self._log.add(result.table, [entry])
            self._recorded[result.table].append(entry)

    def parts(self, read: TableRead) -> list[RangeFiles]:
        """Return the files for the table's commit. Raises TransientError if another run has committed some of them."""
        plan = read.plan
        kept = plan.earlier.kept
        if kept is None:
            return read.parts
        fresh = [read.results[number].written for number, planned in enumerate(plan.ranges) if planned.is_fresh]
        return [plan.description.target.continued(self._spark, kept.ranges, fresh), *read.parts]

    def done(self, plan: TablePlan) -> None:
        """Remove the entries of a committed table, and the files that no commit referenced.

        Not earlier: an outlasting run may commit them until a newer snapshot is in force.
        """
        name = plan.table.id
        with self._lock:
            now = tuple(self._recorded.pop(name, ()))
        recorded = [*plan.earlier.recorded, *now, *self._log.former.get(name, ())]
        if not recorded:
            return
        with self._lock:
            self._log.clear([name])
        plan.description.target.discard_unnamed(recorded)
