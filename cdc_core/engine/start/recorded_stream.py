"""The stream that an operation begins or goes on with: keeps the lake's record of it, and proves its connections.

What the order of the steps guarantees is in ``engine/reading/continuity``.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from cdc_core import failpoints
from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.engine.reading.continuity import Break, CommitWatch, Mismatch
from cdc_core.engine.start.continuity import Continuity, compare, present_stream
from cdc_core.engine.start.held import last_commit
from cdc_core.errors import SourceError
from cdc_core.lake import StreamLog, StreamRecord
from cdc_core.lsn import Lsn
from cdc_core.postgres import Connection, OffsetStrategy, Source, connect, stream_facts
from cdc_core.postgres import slot as slots

_log = logging.getLogger(__name__)

_STARTS_AT_SLOT = (OffsetStrategy.NO_VALIDATION, OffsetStrategy.TRUST_SLOT, OffsetStrategy.TRUST_GREATER_LSN)
_ADVANCES_SLOT = (OffsetStrategy.TRUST_OFFSET, OffsetStrategy.TRUST_GREATER_LSN)


class RecordedStream:
    """The stream of ``source``, compared with the lake by ``proof``. For one operation, which alone writes the record.

    ``log``: the log of the record, also for the confirmations of a run.
    """

    def __init__(self, lake: ConnectorLake, source: Source, proof: Continuity) -> None:
        self._lake = lake
        self._source = source
        self._proof = proof
        self._facts = proof.facts
        self.log = proof.log

    @property
    def record(self) -> StreamRecord | None:
        """The record as it is now."""
        return self.log.known

    def begin(self) -> None:
        """Begin an epoch: the server and the slot as they are now, and no table of it read yet.

        Raises SourceError if another connector streams into the lake.
        """
        if not self._has_begun():
            self._require_unused()
            self.log.begin(self._present(), is_first=self._proof.is_empty, after=self._proof.held.epoch)
            failpoints.hit(failpoints.AFTER_EPOCH_BEGUN)
        self._expect_server()
        slot = self._source.slot()
        if slot.exists and slot.confirmed_lsn is not None:
            self.log.confirm(slot.confirmed_lsn, None)
            failpoints.hit(failpoints.AFTER_SLOT_RECORDED)

    def adopt(self, adopted: str, gap: str) -> None:
        """Record that the stream is taken over from another connector at the slot's position, in one commit.

        It begins an epoch; with a ``gap`` the present one goes on, which lacks what the other connector delivered.
        """
        self._require_unused()
        record, present = self.record, self._present()
        confirmed = self._facts.slot.confirmed_lsn or Lsn(0)
        if record is None or not gap:
            is_first = self._proof.is_empty
            self.log.begin(replace(present, confirmed=confirmed, adopted=adopted), is_first=is_first)
            return
        reached = max(record.confirmed, confirmed)
        gaps = _with_gap(record, gap)
        self.log.write(replace(present, confirmed=reached, epoch=record.epoch, adopted=adopted, gap=gaps))

    def join(self) -> None:
        """Go on with the stream, or begin the first epoch; the record is brought up to date first.

        Raises the mismatch, unless ``offset.mismatch.strategy`` accepts it: it is then recorded as a gap, with a
        warning.
        """
        if self._proof.is_new:
            self.begin()
            return
        if self._proof.mismatch is not None:
            self._accept(self._proof.mismatch)
        record = self.record
        if record is None:
            self._record_first()
        else:
            self._bring_up_to_date(record)
        self._expect_server()
        self._advance()

    def check_connection(self, replication: Connection) -> None:
        """Compare on the connection that is about to stream. Raises SourceError or TransientError."""
        facts = stream_facts(replication, self._lake.slot)
        mismatch = compare(self._lake, self.record, facts, self._proof.held)
        if mismatch is not None:
            raise mismatch.error()
        self._facts = facts

    def follow_promotion(self) -> None:
        """Record the timeline of a standby that was promoted while it streams, before anything of it is durable.

        A connection that goes on through the promotion is proof enough that the history is the same; the next start
        has the record alone. Raises SourceError or TransientError.
        """
        if not self._facts.is_standby or self._source.is_standby():
            return
        with connect(self._lake.postgres, replication=True) as replication:
            self.check_connection(replication)
        record = self.record
        if record is not None:
            self._bring_up_to_date(record)
        self._source.expect(self._facts.system_id, self._facts.timeline)

    def watch(self) -> CommitWatch:
        """What the stream must send again, for a slot that starts before it."""
        record, content, start = self.record, self._proof.held, self._facts.slot.confirmed_lsn or Lsn(0)
        last = None if record is None else record.last
        if content.at is not None and content.changelog_lsn > max(start - 1, 0 if last is None else last.lsn):
            last = last_commit(self._lake, record, content) or last
        return CommitWatch(last if last is not None and start <= last.lsn else None, self._lake.slot)

    def note_broken(self, why: str) -> None:
        """Record that the stream was found not to continue the lake, so that the next start knows."""
        if self.record is not None:
            self.log.write(replace(self.record, broken=why))

    def note_all_read(self) -> None:
        """Forget accepted gaps, once every table was read again."""
        if self.record is not None and self.record.gap:
            self.log.write(replace(self.record, gap=""))

    def _present(self) -> StreamRecord:
        return present_stream(self._lake, self._facts)

    def _has_begun(self) -> bool:
        """Whether a start that was killed has begun the epoch on the same server: nothing of it was read."""
        record = self.record
        if record is None or record.confirmed:
            return False
        return record == replace(self._present(), epoch=record.epoch)

    def _record_first(self) -> None:
        """Record the stream of a lake that was filled without a record, at the slot's position."""
        present, confirmed = self._present(), self._facts.slot.confirmed_lsn or Lsn(0)
        self.log.write(replace(present, confirmed=confirmed))
        # A warning, so that the command line prints it.
        _log.warning(
            "The lake had no record of its stream. It is recorded now: slot %s at %s, server %s, timeline %d.",
            present.slot,
            confirmed,
            present.system_id,
            present.timeline,
        )

    def _bring_up_to_date(self, record: StreamRecord) -> None:
        present = self._present()
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
            self.log.write(now)

    def _accept(self, mismatch: Mismatch) -> None:
        """Record the gap that a mismatch means, if the strategy says so; else raise the mismatch."""
        strategy = self._lake.postgres.offset_mismatch_strategy
        mode = self._lake.mode
        accepts = mismatch.kind is Break.SLOT_AHEAD or (mismatch.kind is Break.SLOT_MISSING and not mode.first)
        record = self.record
        if not accepts or strategy not in _STARTS_AT_SLOT or record is None or mode.position_lost or mode.later:
            raise mismatch.error()
        confirmed = self._facts.slot.confirmed_lsn
        until = "the new slot" if confirmed is None else str(confirmed)
        gap = f"changes between {record.confirmed} and {until} are missing (offset.mismatch.strategy={strategy.value})"
        _log.warning("%s They are left out, as offset.mismatch.strategy=%s says.", mismatch.message, strategy.value)
        reached = max(record.confirmed, confirmed or Lsn(0))
        self.log.write(replace(record, confirmed=reached, gap=_with_gap(record, gap)))

    def _advance(self) -> None:
        """Advance a slot that is behind, if the strategy says so."""
        strategy, record = self._lake.postgres.offset_mismatch_strategy, self.record
        slot = self._source.slot()
        if strategy not in _ADVANCES_SLOT or record is None or slot.confirmed_lsn is None:
            return
        if slot.confirmed_lsn < record.confirmed <= self._facts.flushed:
            with connect(self._lake.postgres) as connection:
                slots.advance(connection, self._lake.slot, record.confirmed)

    def _require_unused(self) -> None:
        record, slot = self.record, self._lake.slot
        is_other = record is not None and record.slot != slot and record.system_id == self._facts.system_id
        if record is not None and is_other and self._source.is_in_use(record.slot):
            raise SourceError(
                f"slot.name is {slot}, but the tables in {self._lake.paths.base} are written by a connector that "
                f"uses slot {record.slot} now.",
                "Give each connector its own topic.prefix or wal2lake.lake.path. If slot.name was changed, stop the "
                "run that uses the former slot.",
            )

    def _expect_server(self) -> None:
        """Have the source require this server from now on, and record the position of a slot that it creates."""
        self._source.expect(self._facts.system_id, self._facts.timeline)

        def created(lsn: Lsn) -> None:
            known = self.record
            self.log.confirm(max(lsn, Lsn(0) if known is None else known.confirmed), None)
            failpoints.hit(failpoints.AFTER_SLOT_RECORDED)

        self._source.on_slot = created


class UnrecordedStream:
    """The stream of a destination that keeps no record: each method does nothing."""

    log: StreamLog | None = None

    def watch(self) -> CommitWatch | None:
        """Return None: nothing has to be sent again."""
        return None

    def check_connection(self, replication: Connection) -> None:
        """Do nothing: there is nothing to compare."""

    def follow_promotion(self) -> None:
        """Do nothing: no timeline is recorded."""

    def note_broken(self, why: str) -> None:
        """Do nothing: the error is all there is."""


def expect_server(lake: ConnectorLake, source: Source) -> None:
    """Require that a source opened during a run is the server of the stream. Raises TransientError."""
    record = lake.record
    if record is not None:
        source.expect(record.system_id, record.timeline)


def _with_gap(record: StreamRecord, gap: str) -> str:
    return f"{record.gap}; {gap}" if record.gap else gap
