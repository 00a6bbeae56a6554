"""Proves at each start, and on each replication connection, that the stream continues what the lake holds.

The rules, and the order of steps that a kill cannot break, are in ``engine/reading/continuity``. Here they are
applied: the record is read from the lake, the facts from the server, and the operation goes on, begins an epoch, or
ends.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from cdc_core import failpoints
from cdc_core.assemble.context import RunContext
from cdc_core.engine.reading.continuity import Break, CommitWatch, Mismatch, judge, record_lost
from cdc_core.engine.reports import StreamStatus
from cdc_core.errors import CdcError, SourceError, TransientError, UnreadableError
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows, scope_of
from cdc_core.lake.positions import changelog_position, content_epoch, lake_position
from cdc_core.lake.stores.changelog import read_changes
from cdc_core.lake.stores.stream_log import LastCommit, StreamLog, StreamRecord, begin, read_stream
from cdc_core.lsn import Lsn
from cdc_core.postgres.connect import Connection, connect
from cdc_core.postgres.options import OffsetStrategy
from cdc_core.postgres.preflight.finding import Finding, bad, doubtful, good
from cdc_core.postgres.replication import slot as slots
from cdc_core.postgres.replication.stream_identity import StreamFacts, stream_facts
from cdc_core.postgres.source import Source
from cdc_core.schema.table import TableId, TableSchema

_log = logging.getLogger(__name__)

_THREADS = 8
_STARTS_AT_SLOT = (OffsetStrategy.NO_VALIDATION, OffsetStrategy.TRUST_SLOT, OffsetStrategy.TRUST_GREATER_LSN)
_ADVANCES_SLOT = (OffsetStrategy.TRUST_OFFSET, OffsetStrategy.TRUST_GREATER_LSN)


@dataclass(frozen=True, slots=True)
class Held:
    """What the tables of a lake hold, and which of them have any position.

    ``lsn``: the lowest LSN at which a history has all of it. ``changelog_lsn``: the newest commit in a changelog, that
    of the table ``at``. ``epoch``: the latest of any lake table's content.
    """

    lsn: Lsn = field(default_factory=Lsn)
    changelog_lsn: Lsn = field(default_factory=Lsn)
    at: TableId | None = None
    tables: frozenset[TableId] = frozenset()
    epoch: int = 0


class Continuity:
    """The proof of one operation on a lake. ``mismatch`` is None if the stream continues what the lake holds.

    ``is_new``: nothing is recorded and held yet, or an epoch began whose slot was not seen: the stream begins here.
    """

    def __init__(
        self,
        context: RunContext,
        log: StreamLog,
        record: StreamRecord | None,
        facts: StreamFacts,
        held: Held,
    ) -> None:
        self._context = context
        self._log = log
        self._record = record
        self._facts = facts
        self.held = held
        self.is_adopted = record is None and bool(held.tables)
        self.is_new = not self.is_adopted and (record is None or not record.confirmed)
        lost = record_lost(0 if record is None else record.epoch, held.epoch, context.paths.stream)
        self.is_new &= lost is None
        self.mismatch = lost if lost is not None or self.is_new else self._judged(facts)

    @classmethod
    def of(cls, context: RunContext, tables: Sequence[TableSchema]) -> Continuity:
        """Read the record, the tables' positions and the server. Changes nothing. Raises CdcError."""
        log = StreamLog(context.paths.stream, context.config.lake.lake_history_minutes)
        record = log.read()
        held = held_by(context, record, [table.id for table in tables])
        with connect(context.config.postgres, replication=True) as replication:
            facts = stream_facts(replication, context.slot)
        return cls(context, log, record, facts, held)

    @property
    def log(self) -> StreamLog:
        """The record's log, for the run's confirmations."""
        return self._log

    @property
    def record(self) -> StreamRecord | None:
        """The record as it is now."""
        return self._log.known

    @property
    def is_empty(self) -> bool:
        """Whether no table of the lake has a position."""
        return not self.held.tables

    def require(self) -> None:
        """Raise the mismatch, if there is one."""
        if self.mismatch is not None:
            raise self.mismatch.error()

    def begin(self, source: Source) -> None:
        """Begin an epoch: the server and the slot as they are now, and no table of it read yet.

        Raises SourceError if another connector streams into the lake.
        """
        if not self._has_begun():
            self._require_unused(source)
            begin(self._log, self._present(self._facts), is_first=self.is_empty, after=self.held.epoch)
            failpoints.hit(failpoints.AFTER_EPOCH_BEGUN)
        self.mismatch = None
        self._follow(source)
        found = source.slot()
        if found.exists and found.confirmed_lsn is not None:
            self._log.confirm(found.confirmed_lsn, None)
            failpoints.hit(failpoints.AFTER_SLOT_RECORDED)

    def adopt(self, source: Source, adopted: str, gap: str) -> None:
        """Record that the stream is taken over from another connector at the slot's position, in one commit.

        It begins an epoch; with a ``gap`` the present one goes on, which lacks what the other connector delivered.
        """
        self._require_unused(source)
        record, present = self._log.known, self._present(self._facts)
        confirmed = self._facts.slot.confirmed_lsn or Lsn(0)
        if record is None or not gap:
            begin(self._log, replace(present, confirmed=confirmed, adopted=adopted), is_first=self.is_empty)
            return
        gaps = f"{record.gap}; {gap}" if record.gap else gap
        reached = max(record.confirmed, confirmed)
        self._log.write(replace(present, confirmed=reached, epoch=record.epoch, adopted=adopted, gap=gaps))

    def join(self, source: Source) -> None:
        """Go on with the stream, or begin the first epoch; the record is brought up to date first.

        Raises the mismatch, unless ``offset.mismatch.strategy`` accepts it: it is then recorded as a gap, with a
        warning.
        """
        if self.is_new:
            self.begin(source)
            return
        if self.mismatch is not None:
            self._accept(self.mismatch)
        present = self._present(self._facts)
        if self._record is None:
            found = self._facts.slot.confirmed_lsn or Lsn(0)
            self._log.write(replace(present, confirmed=found))
            # A warning, so that the command line prints it.
            _log.warning(
                "The lake had no record of its stream. It is recorded now: slot %s at %s, server %s, timeline %d.",
                present.slot,
                found,
                present.system_id,
                present.timeline,
            )
        else:
            self._bring_up_to_date(present)
        self._follow(source)
        self._advance(source)

    def check_connection(self, replication: Connection) -> None:
        """Compare on the connection that is about to stream. Raises SourceError or TransientError."""
        facts = stream_facts(replication, self._context.slot)
        self._record = self._log.known
        mismatch = self._judged(facts)
        if mismatch is not None:
            raise mismatch.error()
        self._facts = facts

    def follow_promotion(self, source: Source) -> None:
        """Record the timeline of a standby that was promoted while it streams, before anything of it is durable.

        A connection that goes on through the promotion is proof enough that the history is the same; the next start
        has the record alone. Raises SourceError or TransientError.
        """
        if not self._facts.is_standby or source.is_standby():
            return
        with connect(self._context.config.postgres, replication=True) as replication:
            self.check_connection(replication)
        self._bring_up_to_date(self._present(self._facts))
        source.expect(self._facts.system_id, self._facts.timeline)

    def watch(self) -> CommitWatch:
        """What the stream must send again, for a slot that starts before it."""
        record, start = self._log.known, self._facts.slot.confirmed_lsn or Lsn(0)
        last = None if record is None else record.last
        if self.held.at is not None and self.held.changelog_lsn > max(start - 1, 0 if last is None else last.lsn):
            changelog = DeltaTable.open(self._context.paths.changelog(self.held.at))
            last = _captured(changelog, 0 if record is None else record.epoch, self.held.changelog_lsn) or last
        return CommitWatch(last if last is not None and start <= last.lsn else None, self._context.slot)

    def note_broken(self, why: str) -> None:
        """Record that the stream was found not to continue the lake, so that the next start knows."""
        if self._log.known is not None:
            self._log.write(replace(self._log.known, broken=why))

    def note_all_read(self) -> None:
        """Forget accepted gaps, once every table was read again."""
        if self._log.known is not None and self._log.known.gap:
            self._log.write(replace(self._log.known, gap=""))

    def _has_begun(self) -> bool:
        """Whether a start that was killed has begun the epoch on the same server: nothing of it was read."""
        record = self._log.known
        if record is None or record.confirmed:
            return False
        return record == replace(self._present(self._facts), epoch=record.epoch)

    def _judged(self, facts: StreamFacts) -> Mismatch | None:
        record = self._record
        if record is None:
            # Before there was a record, the slot's own position was all that is known.
            record = replace(self._present(facts), confirmed=facts.slot.confirmed_lsn or Lsn(1))
        mismatch = judge(record, facts, self.held.lsn, self._context.slot)
        reach = max(record.confirmed, self.held.lsn)
        if mismatch is None and facts.is_standby and facts.flushed < reach:
            raise TransientError(
                f"The standby has received WAL up to {facts.flushed}, but the lake holds changes up to {reach}.",
                "Run again when the standby has caught up.",
            )
        return mismatch

    def _present(self, facts: StreamFacts) -> StreamRecord:
        options = self._context.config.postgres
        return StreamRecord(
            facts.system_id,
            facts.timeline,
            facts.database,
            self._context.slot,
            history=facts.history or (),
            database_oid=facts.database_oid,
            asked=repr((options.publication_name, sorted(options.slot_stream_params))),
        )

    def _bring_up_to_date(self, present: StreamRecord) -> None:
        record = self._log.known
        assert record is not None
        # With another publication or other parameters the last transaction need not be sent again.
        last = record.last if present.asked == record.asked else None
        now = replace(
            present,
            confirmed=record.confirmed,
            epoch=record.epoch,
            last=last,
            broken=record.broken,
            gap=record.gap,
            adopted=record.adopted,
        )
        if now.timeline != record.timeline:
            _log.info("The server is now on timeline %d; the lake holds nothing that it lacks.", now.timeline)
        if now != record:
            self._log.write(now)

    def _accept(self, mismatch: Mismatch) -> None:
        strategy = self._context.config.postgres.offset_mismatch_strategy
        mode = self._context.lake_mode
        accepts = mismatch.kind is Break.SLOT_AHEAD or (mismatch.kind is Break.SLOT_MISSING and not mode.first)
        record = self._log.known
        if not accepts or strategy not in _STARTS_AT_SLOT or record is None or mode.position_lost or mode.later:
            raise mismatch.error()
        found = self._facts.slot.confirmed_lsn
        until = "the new slot" if found is None else str(found)
        gap = f"changes between {record.confirmed} and {until} are missing (offset.mismatch.strategy={strategy.value})"
        _log.warning("%s They are left out, as offset.mismatch.strategy=%s says.", mismatch.message, strategy.value)
        gaps = f"{record.gap}; {gap}" if record.gap else gap
        self._log.write(replace(record, confirmed=max(record.confirmed, found or Lsn(0)), gap=gaps))
        self.mismatch = None

    def _advance(self, source: Source) -> None:
        """Advance a slot that is behind, if the strategy says so."""
        strategy, record = self._context.config.postgres.offset_mismatch_strategy, self._log.known
        found = source.slot()
        if strategy not in _ADVANCES_SLOT or record is None or found.confirmed_lsn is None:
            return
        if found.confirmed_lsn < record.confirmed <= self._facts.flushed:
            with connect(self._context.config.postgres) as connection:
                slots.advance(connection, self._context.slot, record.confirmed)

    def _require_unused(self, source: Source) -> None:
        record, slot = self._log.known, self._context.slot
        is_other = record is not None and record.slot != slot and record.system_id == self._facts.system_id
        if record is not None and is_other and source.is_in_use(record.slot):
            raise SourceError(
                f"slot.name is {slot}, but the tables in {self._context.paths.base} are written by a connector that "
                f"uses slot {record.slot} now.",
                "Give each connector its own topic.prefix or wal2lake.lake.path. If slot.name was changed, stop the "
                "run that uses the former slot.",
            )

    def _follow(self, source: Source) -> None:
        source.expect(self._facts.system_id, self._facts.timeline)

        def created(lsn: Lsn) -> None:
            known = self._log.known
            self._log.confirm(max(lsn, Lsn(0) if known is None else known.confirmed), None)
            failpoints.hit(failpoints.AFTER_SLOT_RECORDED)

        source.on_slot = created


def held_by(context: RunContext, record: StreamRecord | None, tables: Iterable[TableId]) -> Held:
    """Return what the tables of the lake hold in the epoch of the record."""
    paths = context.paths
    scope = context.slot if record is None else scope_of(record.slot, record.epoch)

    def look(table: TableId) -> tuple[TableId, int, int, bool, int]:
        try:
            opened = DeltaTable.open(paths.lake(table))
            lake = lake_position(opened, scope, table)
            changes = changelog_position(DeltaTable.open(paths.changelog(table)), scope, table)
        except UnreadableError:
            return table, 0, 0, False, 0  # it is paused; the record and the other tables tell what the lake holds
        at = 0 if changes is None else changes.commit_lsn
        # A changelog's position is where the record of a commit begins; a lake table may be merged up to the WAL's end.
        is_held = changes is not None or lake != (None, None)
        epoch = 0 if opened is None else content_epoch(opened, table)
        return table, at, max(at + bool(at), lake.lsn or 0), is_held, epoch

    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(look, tables))
    at = max(found, key=lambda one: one[1], default=None)
    return Held(
        Lsn(max((one[2] for one in found), default=0)),
        Lsn(0 if at is None else at[1]),
        None if at is None or not at[1] else at[0],
        frozenset(one[0] for one in found if one[3]),
        max((one[4] for one in found), default=0),
    )


def stream_status(context: RunContext, tables: Sequence[TableSchema]) -> StreamStatus | None:
    """Return the recorded stream and whether the server's slot continues it; None for a lake without a record."""
    record = read_stream(context.paths.stream)
    if record is None:
        return None
    mismatch: str | None
    try:
        found = Continuity.of(context, tables).mismatch
        mismatch, remedy = ("", "") if found is None else (found.message, found.remedy)
    except CdcError as error:
        mismatch, remedy = None, error.message
    return StreamStatus(
        record.system_id,
        record.timeline,
        record.database,
        record.slot,
        record.confirmed,
        record.epoch,
        record.gap,
        mismatch,
        remedy,
    )


def continuity_finding(context: RunContext) -> Finding | None:
    """Return whether the slot continues what the lake holds, for ``check``; None if nothing is recorded yet."""
    with context.source() as source:
        found = stream_status(context, source.tables())
    if found is None:
        return None
    if found.mismatch is None:
        return doubtful("continuity", f"not compared: {found.remedy}", "Correct this and check again.")
    said = f"slot {found.slot} continues the lake, which has confirmed up to {found.confirmed}"
    return bad("continuity", found.mismatch, found.remedy) if found.mismatch else good("continuity", said)


def expect_server(context: RunContext, source: Source) -> None:
    """Require that a source opened during a run is the server of the stream. Raises TransientError."""
    log = StreamLog(context.paths.stream, 0)
    record = log.read()
    if record is not None:
        source.expect(record.system_id, record.timeline)


def require_read(context: RunContext, proof: Continuity, source: Source, tables: Iterable[TableSchema]) -> None:
    """Raise SourceError if a table has rows from before the present epoch, which new changes do not continue.

    A table that the stream reads by itself, because it has no snapshot, is left to it.
    """
    record, first = proof.record, context.lake_mode.first
    if record is None or not record.epoch:
        return
    names = [table.id for table in tables if source.selection.is_table(table.id)]
    unread = [each for each in names if each not in proof.held.tables]
    left = [
        each
        for each in unread
        if not (first and source.selection.includes_in_snapshot(each)) and _has_rows(context, each)
    ]
    if left:
        raise SourceError(
            f"The lake's rows of {', '.join(map(str, left))} are from another server or from before changes that are "
            "missing: they were not read again yet.",
            f"Run wal2lake snapshot with {' '.join(map(str, left))}.",
        )


def _has_rows(context: RunContext, table: TableId) -> bool:
    try:
        lake = DeltaTable.open(context.paths.lake(table))
    except UnreadableError:
        return False  # the stream pauses it
    return lake is not None and bool(lake.files)


def _captured(changelog: DeltaTable | None, epoch: int, lsn: Lsn) -> LastCommit | None:
    """Return the transaction that committed at ``lsn``, from a changelog; None if its rows have expired."""
    rows = None if changelog is None else read_changes(EpochRows(changelog, epoch), lsn - 1, lsn)
    if rows is None or not rows.num_rows:
        return None
    xid, at = rows.column("__xid")[-1].as_py(), rows.column("__commit_ts")[-1].cast("int64").as_py()
    return None if xid is None else LastCommit(lsn, int(xid), int(at))
