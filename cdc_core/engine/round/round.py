"""One round: all tables with changes are merged up to one LSN, and the round is recorded as a consistent cut.

    append   batch ─▶ one order per table ─▶ one job (lake/slice/task) ─▶ durable
             (the position is confirmed)
    merge    outcomes of the job ─▶ merge states ─▶ the round is recorded

The job appends the batch to the changelogs and merges. What follows has this order:

1. *Tables whose changelog cannot take their rows* are stored as tables to be re-read. These rows are stored nowhere
   else: a run that is killed after the confirmation and before this would lose them for ever.
2. *The position is confirmed*, between ``append`` and ``merge``. Every row is in its changelog now, or replaced by a
   re-read. Nothing after this step is needed for that, and it may take minutes or fail for one table, which would hold
   back the server's WAL. The positions of the changelogs that the driver knows are brought forward before it, so that a
   table whose merge fails from here on has a backlog, and later rounds merge it.
3. *The merge states* are updated from the outcomes: failed tables are paused, re-read or tried again.
4. *The round is recorded*, from the merge states: a record names versions of tables that exist.

A kill between two steps after the second loses nothing: positions are in the tables' own commits, and the next round
finds what is not merged. A round that was not recorded is followed by one that is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cdc_core import failpoints
from cdc_core.engine.reading.batch import Batch
from cdc_core.engine.reports import MergeReport, RoundReport
from cdc_core.engine.round.failures import note_failure
from cdc_core.engine.round.lake import SourceWatch
from cdc_core.engine.round.orders import Orders
from cdc_core.engine.round.outcomes import cpu_parts, merge_report, refused
from cdc_core.engine.round.record import Cuts
from cdc_core.engine.round.table_state import MergeStates
from cdc_core.engine.schema.reread_limit import RereadLimit
from cdc_core.engine.schema.trouble import trouble_of
from cdc_core.errors import MissingRowsError
from cdc_core.lake import (
    ChangelogPosition,
    QuarantineReport,
    Replay,
    SliceOrder,
    SliceOutcome,
    Upkeep,
    Work,
)
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId


@dataclass(frozen=True, slots=True)
class _Begun:
    """A round whose job has ended, and which is not taken note of yet."""

    batch: Batch | None
    to_lsn: Lsn
    replays: Mapping[TableId, Replay]
    orders: Sequence[SliceOrder]
    outcomes: Sequence[SliceOutcome]
    started: float


class Rounds:
    """Runs rounds, one after the other. For one thread. ``cuts`` is None if rounds are not recorded.

    ``has_rest``: a slice of the last round was merged in part or not at all, and the next rounds merge the rest.
    ``upkeep`` maintains tables beside the rounds.
    """

    def __init__(
        self,
        work: Work,
        states: MergeStates,
        orders: Orders,
        watch: SourceWatch,
        cuts: Cuts | None,
        upkeep: Upkeep,
    ) -> None:
        self._work = work
        self._upkeep = upkeep
        self._states = states
        self._orders = orders
        self._watch = watch
        self._cuts = cuts
        self._reread_limit = RereadLimit()
        self._begun: _Begun | None = None
        self.has_rest = False

    def append(self, batch: Batch | None, to_lsn: Lsn, replays: Mapping[TableId, Replay]) -> None:
        """Run the job of a round (``LakeSink.append``)."""
        started = time.monotonic()
        orders = self._orders.of_round(batch, to_lsn, replays)
        with self._upkeep.leaving(self._work.long_merges(orders)):
            outcomes = self._work.run(orders)
        self._note_lost(outcomes)
        if batch is not None:
            self._note_appended(batch)
        self._begun = _Begun(batch, to_lsn, replays, orders, outcomes, started)
        failpoints.hit(failpoints.BEFORE_CONFIRM)

    def merge(self) -> RoundReport:
        """Take note of what the job of the round has merged, and record the round (``LakeSink.merge``)."""
        begun, self._begun = self._begun, None
        assert begun is not None, "append comes first"
        batch, to_lsn, replays = begun.batch, begun.to_lsn, begun.replays
        orders, outcomes = begun.orders, begun.outcomes
        self._upkeep.request(order for outcome in outcomes for order in outcome.upkeep)
        merges = self._note_merges(begun)
        failed = self._failed(outcomes)
        self._record(batch, Lsn(max([to_lsn, *(o.to_lsn or 0 for o in orders if o.table in replays)])))
        seconds = time.monotonic() - begun.started
        again = {o.table: o.done.quarantined or QuarantineReport() for o in outcomes if o.table in replays}
        parts = cpu_parts(outcomes)
        return RoundReport(
            to_lsn,
            tuple(merges),
            failed,
            seconds=seconds,
            parts=parts,
            replays=again,
            has_rest=self.has_rest,
            missing={o.table: o.error.count for o in outcomes if isinstance(o.error, MissingRowsError)},
            refused=refused(outcomes, merges),
        )

    def _note_lost(self, outcomes: Sequence[SliceOutcome]) -> None:
        for outcome in outcomes:
            if outcome.lost is not None:
                trouble = trouble_of(outcome.lost, outcome.table, self._work.task.paths)
                self._states.note_trouble(outcome.table, trouble)

    def _note_appended(self, batch: Batch) -> None:
        """Bring the known positions of the changelogs forward to the end of the batch."""
        for table in batch.versions:
            merge_state = self._states.of(table)
            if merge_state.loses_changes:
                continue
            last = batch.last_commit(table)
            end = ChangelogPosition(*(batch.open_at(table) or (last,)))
            merge_state.appended(last, end, batch.complete_to(table))

    def _note_merges(self, begun: _Begun) -> list[MergeReport]:
        pairs = list(zip(begun.orders, begun.outcomes, strict=True))
        self.has_rest = any(outcome.waits or _leaves_rest(order, outcome) for order, outcome in pairs)
        return [merge for pair in pairs if (merge := self._note_merge(*pair, begun.started)) is not None]

    def _note_merge(self, order: SliceOrder, outcome: SliceOutcome, began: float) -> MergeReport | None:
        """Update the table's merge state from the outcome; returns its report, None if nothing was merged."""
        if outcome.error is not None:
            paths, pauses = self._work.task.paths, self._watch.pauses
            note_failure(order.table, outcome.error, self._states, pauses, paths, self._reread_limit)
            return None
        if outcome.lost is not None or order.merge is None:
            return None
        self._states.merge_done(order, outcome, began)
        return merge_report(outcome)

    def _failed(self, outcomes: Sequence[SliceOutcome]) -> dict[TableId, str]:
        """Return why tables are not merged up to the round's LSN; of several reasons, the pause."""
        failed = {outcome.table: str(outcome.error) for outcome in outcomes if outcome.error is not None}
        paused = {table for table, state in self._states.unsettled if state.versions.paused is not None}
        unmerged = self._states.unmerged
        return {**unmerged, **failed, **{table: unmerged[table] for table in paused}}

    def _record(self, batch: Batch | None, to_lsn: Lsn) -> None:
        failpoints.hit(failpoints.BEFORE_ROUND_RECORD)
        if self._cuts is not None:
            if batch is not None and batch.complete_lsn is not None:
                self._cuts.note_commit(batch.complete_lsn, batch.last_commit_ts_us)
            self._cuts.record(to_lsn)


def _leaves_rest(order: SliceOrder, outcome: SliceOutcome) -> bool:
    """Whether a slice was merged in part: a long backlog, or one in which the table's key changes."""
    is_done = outcome.error is None and outcome.lost is None
    return is_done and order.to_lsn is not None and outcome.merged is not None and outcome.merged < order.to_lsn
