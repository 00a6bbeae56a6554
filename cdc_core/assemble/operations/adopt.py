"""Operation ``adopt``: takes a slot over from Debezium's connector, at the offset that Connect has stored for it.

Nothing is changed at the source. What was decided is written to the record of the stream in the lake, and to the
connector's position in Kafka, each in one commit: the next ``run`` does it. So a kill between the two, or before them,
leaves what the same command completes. What the slot says of the offset is found in ``assemble/start/offset_in_slot``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.kafka import StoredPosition, stored_position
from cdc_core.assemble.start.continuity import Continuity
from cdc_core.assemble.start.offset_in_slot import OffsetInSlot
from cdc_core.assemble.start.offset_source import OffsetPlace, stored_offset
from cdc_core.assemble.start.recorded_stream import RecordedStream
from cdc_core.engine.reading.continuity import Break
from cdc_core.errors import ConfigError, SourceError
from cdc_core.events import Position
from cdc_core.lsn import Lsn
from cdc_core.offsets import Adoption, AdoptReport, Delivered
from cdc_core.postgres.replication import slot as slots
from cdc_core.postgres.source import Source
from cdc_core.schema.table import TableSchema
from cdc_core.snapshot.modes import mode_actions


@dataclass(frozen=True, slots=True)
class AdoptRequest:
    """``fills``: the lake is filled by a snapshot, else it gets events only. ``accepts_gap``: the slot may be past the
    offset. ``writes``: what was decided is written.
    """

    place: OffsetPlace
    fills: bool = True
    accepts_gap: bool = False
    writes: bool = True


def adopt(context: RunContext, asked: AdoptRequest) -> AdoptReport:
    """Take the slot over; the next run goes on from there. Raises CdcError if it cannot be done without a gap."""
    context.config.require_carried()
    if not (context.has_lake or context.has_kafka):
        raise ConfigError("wal2lake.sinks has neither lake nor kafka: nothing would go on from the offset.")
    stored = stored_offset(context, asked.place)
    with context.claimed() as source:
        found = source.slot()
        slots.check_usable(found, context.config.postgres)
        tables, found = context.checked(source)
        offset = OffsetInSlot(source, found, tables, stored, accepts_gap=asked.accepts_gap)
        return _Takeover(context, asked, offset, source, tables).run()


class _Takeover:
    """One adoption: what is decided for the lake and for Kafka, and written."""

    def __init__(
        self,
        context: RunContext,
        asked: AdoptRequest,
        offset: OffsetInSlot,
        source: Source,
        tables: list[TableSchema],
    ) -> None:
        self._context = context
        self._asked = asked
        self._in_slot = offset
        self._offset = offset.stored.offset
        self._source = source
        self._tables = tables
        self._fills = asked.fills and context.has_lake
        self._decided: list[str] = []

    def run(self) -> AdoptReport:
        """Check, decide and write."""
        self._in_slot.check()
        proof = Continuity.of(self._context, self._tables) if self._context.has_lake else None
        position = stored_position(self._context, self._source) if self._context.has_kafka else None
        if position is None and self._is_repeated(proof):
            self._decided.append("This offset was adopted before, and the lake continues the slot: nothing to do.")
            return self._report(is_new=False)
        if self._has_moved_on(proof, position):
            self._decided.append("The slot is continued by what wal2lake has written since: nothing to do.")
            return self._report(is_new=False)
        delivered = self._in_slot.place(reads_rows=self._fills and not self._context.has_kafka).delivered
        gap = None if proof is None else self._lake_gap(proof, delivered)
        wanted = None if position is None else self._kafka_position(position, delivered)
        self._say_incremental()
        if self._asked.writes:
            # Kafka first: a lake that was not adopted yet is at worst filled by a snapshot.
            if position is not None and wanted is not None:
                position.write(wanted)
            if proof is not None and gap is not None:
                adopted = Adoption(self._fills, self._offset.lsn, delivered).to_json()
                RecordedStream(self._context, self._source, proof).adopt(adopted, gap)
        return self._report(is_new=gap is not None or wanted is not None)

    def _report(self, *, is_new: bool) -> AdoptReport:
        return AdoptReport(tuple(self._in_slot.found), tuple(self._decided), is_new)

    def _is_repeated(self, proof: Continuity | None) -> bool:
        """Whether the lake's record has this decision already."""
        adoption = self._context.adoption
        if proof is None or adoption is None or proof.mismatch is not None:
            return False
        return adoption.offset_lsn == self._offset.lsn and adoption.fills == self._fills

    def _has_moved_on(self, proof: Continuity | None, position: StoredPosition | None) -> bool:
        """Whether the slot is past the offset because wal2lake itself has gone on from it."""
        if not self._in_slot.is_passed:
            return False
        if proof is not None and (proof.record is None or not proof.record.confirmed or proof.mismatch is not None):
            return False
        return position is None or position.now.lsn >= self._in_slot.confirmed

    def _say_incremental(self) -> None:
        """Say how an incremental snapshot goes on: rows that were sent as changes or by its chunks are sent again."""
        if not self._offset.incremental or (self._fills and not self._context.has_kafka):
            return
        data = json.dumps({"data-collections": list(self._offset.incremental)})
        self._decided.append(
            "the incremental snapshot is not continued; request it again while a run is active: wal2lake signal "
            f"{self._context.config.source} execute-snapshot --data '{data}'"
        )

    def _lake_gap(self, proof: Continuity, delivered: Delivered) -> str | None:
        """Decide for the lake; returns the gap to record, empty for none, and None if nothing is to be recorded."""
        record = proof.record
        continues = record is not None and record.confirmed and proof.mismatch is None
        has_all = record is not None and not proof.is_empty and _has_all(record.confirmed, delivered)
        if self._is_repeated(proof) or (continues and has_all):
            self._decided.append("lake: it continues the slot already")
            return None
        if self._fills:
            again = " again, because the lake has rows of before" if not proof.is_empty else ""
            read = f"the next run reads {len(self._tables)} tables{again}"
            self._decided.append(f"lake: {read}, and goes on from the slot, so that both join exactly")
            return ""
        self._require_events_only(proof, bool(self._context.known_tables(self._tables)))
        self._decided.append("lake: the next run reads no rows, and begins after the last event that was sent")
        if proof.is_empty or record is None:
            return ""
        return f"changes between {record.confirmed} and {delivered.last_lsn} were sent by Debezium"

    def _require_events_only(self, proof: Continuity, is_filled: bool) -> None:
        if mode_actions(self._context.config.snapshot).later:
            raise ConfigError(
                "snapshot.mode reads all rows at each start, and --events-only reads none.",
                "Set snapshot.mode=no_data, or adopt with a snapshot.",
            )
        if is_filled:
            raise SourceError(
                "The lake's tables have rows of a snapshot, which would lack the changes that Debezium has sent since.",
                "Adopt with a snapshot, or into another wal2lake.lake.path.",
            )
        mismatch = proof.mismatch
        if mismatch is not None and mismatch.kind is not Break.SLOT_AHEAD and not proof.is_empty:
            raise mismatch.error()

    def _kafka_position(self, position: StoredPosition, delivered: Delivered) -> Position | None:
        """Decide for Kafka; returns the position to write, None if nothing is to be written."""
        is_whole = delivered.part is None
        has_all = position.now.lsn > delivered.last_lsn or (is_whole and position.now.lsn == delivered.commit_lsn)
        text = "" if is_whole and not delivered.message_at_commit else delivered.to_json()
        wanted = Position(self._start(delivered), delivered=text)
        if position.now.lsn and not position.now.in_snapshot and (has_all or position.now == wanted):
            self._decided.append("Kafka: its position continues the slot already")
            return None
        self._decided.append("Kafka: the next run begins after the last event that was sent; no rows are read")
        return wanted

    def _start(self, delivered: Delivered) -> Lsn:
        """Where the stream is asked to begin: before the transaction that was sent in part."""
        return delivered.commit_lsn if delivered.part is None else self._in_slot.start


def _has_all(confirmed: Lsn, delivered: Delivered) -> bool:
    """Whether a lake that has everything up to ``confirmed`` has what was delivered, and more where it ends inside."""
    part = delivered.part
    return delivered.commit_lsn <= confirmed and (part is None or part.commit_lsn < confirmed)
