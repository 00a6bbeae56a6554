"""The lake sink of the engine: rounds over Delta tables, and what is done between them.

A round is in ``round``, rows that snapshots write between rounds in ``backfill_target``. If a table's source changed,
the lake table is altered, is re-read concurrently with rounds, or is paused (``engine/schema``); the other tables are
not delayed. All parts use the merge states of the tables (``table_state``), in one thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from cdc_core.engine.reading.batch import Batch
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.engine.reports import RoundReport
from cdc_core.engine.round.backfill_target import BackfillTarget
from cdc_core.engine.round.expiry import Expiry
from cdc_core.engine.round.judgements import Judgements
from cdc_core.engine.round.lake import Lake, SourceWatch
from cdc_core.engine.round.orders import Orders
from cdc_core.engine.round.record import Cuts
from cdc_core.engine.round.round import Rounds
from cdc_core.engine.round.table_state import MergeStates
from cdc_core.engine.schema.renames import note_names
from cdc_core.engine.schema.reread_limit import is_counted, remedy_then_replay
from cdc_core.errors import TableError, TransientError
from cdc_core.lake import ChangelogPosition, Replay, RoundLog, StreamTables, Upkeep, Work, epoch_of
from cdc_core.lsn import Lsn
from cdc_core.quality import ConstraintsSeen
from cdc_core.schema import PauseCause, TableId
from cdc_core.snapshot import Reread, SnapshotReport

_log = logging.getLogger(__name__)

_POLL_SECONDS = 5.0
# A table that changes repeatedly while it is read can be read once the changes stop.
_REREAD_TRIES = 20


class LakeSink:
    """A ``stream.Sink`` over Delta tables. Only one process may use it at a time.

    ``records_rounds``: each round that it applies ends at a consistent cut of all tables, which is recorded.
    ``docs_path`` as for ``Judgements``. ``backfill``: the lake tables for snapshots.
    """

    def __init__(
        self,
        lake: Lake,
        work: Work,
        registry: TableRegistry,
        watch: SourceWatch,
        *,
        records_rounds: bool = True,
        docs_path: str = "",
    ) -> None:
        paths, options = lake.paths, lake.options
        self._paths = paths
        self._registry = registry
        self._watch = watch
        self._merge_states = MergeStates(lake, watch)
        self._expiry = Expiry(paths, lake.scope, self._merge_states, options.retention_days)
        self._stream_tables = StreamTables(paths, lake.scope, options.lake_history_minutes)
        log = RoundLog(paths.rounds, options.lake_history_minutes, epoch_of(lake.scope))
        self._cuts = (
            Cuts(log, self._merge_states, lambda: watch.catalogue.poll_if_altered(watch.wal_lsn))
            if records_rounds
            else None
        )
        self._judgements = Judgements(docs_path)
        orders = Orders(self._merge_states, watch.schema_versions, registry, ConstraintsSeen(watch.wal_lsn))
        self._upkeep = Upkeep(work.upkeep)
        self._rounds = Rounds(work, self._merge_states, orders, watch, self._cuts, self._upkeep)
        self.backfill = BackfillTarget(work, self._merge_states, orders, watch)
        self._reread_tries: dict[TableId, int] = {}
        self._last_reads: dict[TableId, SnapshotReport | None] = {}

    def positions(self, tables: Iterable[TableId]) -> dict[TableId, ChangelogPosition]:
        """Return the position of each table's changelog; the reader skips rows up to it that the slot sends again."""
        self._merge_states.open(tables)
        if self._cuts is not None:
            self._cuts.compare_with_last()
        return {table: s.changelog for table, s in self._merge_states if s.changelog is not None}

    def leave_out(self, is_captured: Callable[[TableId], bool]) -> None:
        """Record which tables of the lake are not captured by this run: they are re-read once they are again."""
        self._watch.pauses.leave_out(is_captured)

    def append(self, batch: Batch | None, to_lsn: Lsn, replays: Mapping[TableId, Replay] | None = None) -> None:
        """Append the batch, and merge every table's complete transactions up to ``to_lsn`` in the same job.

        Every row of the batch is in its changelog when this returns; an append that fails raises. ``replays`` are
        tables whose quarantined changes are to be replayed.
        """
        self.note_renamed()
        if batch is not None:
            self._stream_tables.append(batch.own_rows, batch.open_lsn)
        self._rounds.append(batch, to_lsn, replays or {})

    def merge(self) -> RoundReport:
        """Take note of what was merged; a table that could not be is in the report, its changes in its changelog."""
        report = self._rounds.merge()
        self._judgements.add(report)
        return report

    def has_backlog(self, to_lsn: Lsn) -> bool:
        """Whether some changelog contains transactions, complete at ``to_lsn``, that are not in its lake table.

        A table whose merge failed is included again after some seconds, one that rests once it is due; one that is
        paused or being re-read is not.
        """
        return any(self._merge_states.is_due(table, to_lsn) for table, _ in self._merge_states.unsettled)

    def call_all(self) -> None:
        """Let the next round merge every table, also those that rest."""
        self._merge_states.call_all()

    @property
    def is_busy(self) -> bool:
        """Whether a table is being re-read or cannot be merged before the stream reaches an LSN, or a slice was partly
        merged.
        """
        states = self._merge_states
        return (
            self._rounds.has_rest
            or self._watch.catalogue.is_poll_due
            or self._watch.rereads.are_under_way
            or any(s.versions.is_on_its_way or s.is_waiting(states.passed) for _, s in states.unsettled)
        )

    @property
    def unmerged(self) -> dict[TableId, str]:
        """The tables that are paused, or whose last merge or re-read failed, with the reason."""
        return self._merge_states.unmerged

    def between_rounds(self, passed: int, needed: Callable[[], Mapping[TableId, int]]) -> None:
        """Do maintenance outside rounds: tables changed in the source, tables re-read, changes past their retention.

        ``passed`` is the LSN up to which everything received from the server is processed, ``needed`` returns that of
        ``Expiry``. Called often.
        """
        self._merge_states.passed = passed
        for ended in self._watch.rereads.finished():
            self._note_reread(ended, passed)
        self.note_renamed()
        catalogue = self._watch.catalogue
        if catalogue.is_poll_due or time.monotonic() - catalogue.polled_at >= _POLL_SECONDS:
            catalogue.poll(self._watch.wal_lsn)
        self._watch.schema_versions.follow_passed(passed)
        self._start_rereads()
        if self._expiry.is_due:
            self._expiry.between_rounds(needed())
        if self._cuts is not None:
            self._cuts.between_rounds(passed)

    def resume(self, table: TableId, lsn: int) -> bool:
        """Resume a paused table with the next round; False if it must be re-read first.

        Raises TableError if the cause of the pause still exists.
        """
        if not self._watch.catalogue.can_go_on(table):
            return False
        self._watch.pauses.resume(table, lsn)
        return True

    def begin_again(self, table: TableId, *, reads: bool) -> bool:
        """Resume a table, which is merged with the next round; returns whether it is read before.

        It is if ``reads``, or if it must be. Raises TableError if the cause of its pause still exists, or if the run
        has no such table.
        """
        if not self._merge_states.knows(table):
            raise TableError(
                f"Not a captured table: {table}.",
                "Check the name and the include and exclude lists in the connector file.",
                str(table),
            )
        watch, merge_state = self._watch, self._merge_states.of(table)
        reads = reads or not watch.catalogue.can_go_on(table)
        if reads:
            watch.pauses.require_reread(table, "this was requested")
            self._last_reads.pop(table, None)
        if merge_state.versions.paused is not None:
            watch.pauses.resume(table, self._merge_states.passed)
        merge_state.begin_again()
        return reads

    def can_merge(self, table: TableId) -> bool:
        """Whether the next round merges the table: it is not paused, to be read, or to be tried again later."""
        return not self._merge_states.holds_back(table, 0)

    def is_to_be_read(self, table: TableId) -> bool:
        """Whether a re-read of the table is under way, or is recorded and no pause keeps it from being begun."""
        versions = self._merge_states.of(table).versions
        return table in self._watch.rereads or (versions.reread is not None and versions.paused is None)

    def last_read(self, table: TableId) -> SnapshotReport | None:
        """Return the report of the table's last re-read since ``begin_again``."""
        return self._last_reads.get(table)

    def note_renamed(self) -> None:
        """Record re-reads of renamed tables before the slot is confirmed: changes under the new name are not stored."""
        note_names(self._watch.tables, self._watch.pauses, self._registry.take_names())

    def close(self) -> None:
        """Wait, for a bounded time, until background work ends: maintenance, re-reads and data docs."""
        self._upkeep.close()
        self._watch.rereads.close()
        self._judgements.close({str(table): self._paths.quarantine(table) for table, _ in self._merge_states})

    def _start_rereads(self) -> None:
        watch, rereads = self._watch, self._watch.rereads
        for table, merge_state in self._merge_states.unsettled:
            versions = merge_state.versions
            is_wanted = versions.reread is not None and versions.paused is None and not merge_state.has_failed
            if is_wanted and table not in rereads and watch.pauses.can_be_read(table):
                rereads.request(table, watch.schema_versions.reserve(table))

    def _note_reread(self, ended: Reread, passed: int) -> None:
        """Update a table whose re-read ended. Transient errors are retried; after other errors the table is paused."""
        table, error = ended.table, ended.error
        if error is None:
            self._reread_tries.pop(table, None)
            self._last_reads[table] = ended.report
            self._merge_states.reload(table)
            return
        self._reread_tries[table] = self._reread_tries.get(table, 0) + is_counted(error)
        if isinstance(error, TransientError) and self._reread_tries[table] < _REREAD_TRIES:
            _log.warning("%s could not be re-read; retrying later: %s", table, error.message)
            self._merge_states.of(table).failed(str(error))
            return
        remedy = remedy_then_replay(error, table)
        self._watch.pauses.pause(table, PauseCause.REREAD_FAILED, error.message, remedy, passed)
