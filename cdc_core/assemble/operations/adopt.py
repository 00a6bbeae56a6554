"""Operation ``adopt``: takes a slot over from Debezium's connector, at the offset that Connect has stored for it.

Nothing is changed at the source. What was decided is written to the record of the stream in the lake, and to the
connector's position in Kafka, each in one commit: the next ``run`` does it. So a kill between the two, or before them,
leaves what the same command completes.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.kafka import StoredPosition, stored_position
from cdc_core.assemble.start.continuity import Continuity
from cdc_core.assemble.start.offset_source import OffsetPlace, stored_offset
from cdc_core.decode.pgoutput.stream_state import SortedSegment
from cdc_core.engine.envelopes.output import Position
from cdc_core.engine.envelopes.segments import SlotSegments
from cdc_core.engine.reading.continuity import Break
from cdc_core.engine.reading.delivered import Place, place_of
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.errors import ConfigError, SourceError
from cdc_core.lsn import Lsn
from cdc_core.offsets.delivered import Adoption, Delivered
from cdc_core.offsets.entries import StoredOffset
from cdc_core.offsets.reports import AdoptReport
from cdc_core.postgres.replication import slot as slots
from cdc_core.postgres.replication.slot import SlotInfo
from cdc_core.postgres.replication.stream import ReplicationStream
from cdc_core.postgres.source import Source
from cdc_core.schema.table import TableSchema
from cdc_core.snapshot.modes import mode_actions

_SEGMENT_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Asked:
    """``fills``: the lake is filled by a snapshot, else it gets events only. ``accepts_gap``: the slot may be past the
    offset. ``writes``: what was decided is written.
    """

    place: OffsetPlace
    fills: bool = True
    accepts_gap: bool = False
    writes: bool = True


def adopt(context: RunContext, asked: Asked) -> AdoptReport:
    """Take the slot over; the next run goes on from there. Raises CdcError if it cannot be done without a gap."""
    context.config.require_carried()
    if not (context.has_lake or context.has_kafka):
        raise ConfigError("wal2lake.sinks has neither lake nor kafka: nothing would go on from the offset.")
    stored = stored_offset(context, asked.place)
    with context.claimed() as source:
        found = source.slot()
        slots.check_usable(found, context.config.postgres)
        tables, found = context.checked(source)
        return _Takeover(context, asked, stored, source, tables, found).run()


class _Takeover:
    """One adoption, with what it needs to know of the source."""

    def __init__(
        self,
        context: RunContext,
        asked: Asked,
        stored: StoredOffset,
        source: Source,
        tables: list[TableSchema],
        slot: SlotInfo,
    ) -> None:
        self._context = context
        self._asked = asked
        self._stored = stored
        self._offset = stored.offset
        self._source = source
        self._tables = tables
        self._slot = slot
        self._confirmed = slot.confirmed_lsn or Lsn(0)
        self._fills = asked.fills and context.has_lake
        self._found: list[str] = []
        self._decided: list[str] = []

    def run(self) -> AdoptReport:
        """Check, decide and write."""
        offset = self._offset
        self._require_slot()
        self._describe()
        proof = Continuity.of(self._context, self._tables) if self._context.has_lake else None
        position = stored_position(self._context, self._source) if self._context.has_kafka else None
        if position is None and self._is_repeated(proof):
            self._decided.append("This offset was adopted before, and the lake continues the slot: nothing to do.")
            return self._report(is_new=False)
        if self._has_moved_on(proof, position):
            self._decided.append("The slot is continued by what wal2lake has written since: nothing to do.")
            return self._report(is_new=False)
        self._check_snapshot()
        self._check_gap()
        place = Place(Delivered(Lsn(0))) if offset.in_snapshot else self._place()
        self._say_place(place)
        gap = None if proof is None else self._lake_gap(proof, place.delivered)
        wanted = None if position is None else self._kafka_position(position, place.delivered)
        self._say_incremental()
        if self._asked.writes:
            # Kafka first: a lake that was not adopted yet is at worst filled by a snapshot.
            if position is not None and wanted is not None:
                position.write(wanted)
            if proof is not None and gap is not None:
                proof.adopt(self._source, Adoption(self._fills, self._offset.lsn, place.delivered).to_json(), gap)
        return self._report(is_new=gap is not None or wanted is not None)

    def _report(self, *, is_new: bool) -> AdoptReport:
        return AdoptReport(tuple(self._found), tuple(self._decided), is_new)

    def _require_slot(self) -> None:
        if not self._slot.exists or self._slot.confirmed_lsn is None:
            raise SourceError(
                f"Replication slot {self._slot.name} does not exist: without Debezium's slot the changes since its "
                "offset are lost.",
                "Set slot.name and database.dbname as Debezium had them; or begin anew with wal2lake run.",
            )
        self._source.require_publication()
        end = self._source.wal_lsn()
        if max(self._offset.lsn, self._offset.boundary or Lsn(0)) > end:
            raise SourceError(
                f"The offset is at {self._offset.lsn}, but the server's WAL ends at {end}: it is of another server, or "
                "of one that was restored since.",
                "Give the offset of the connector that reads this server.",
            )

    def _describe(self) -> None:
        offset, stored = self._offset, self._stored
        if stored.connector:
            self._found.append(f"offset of connector {stored.connector}, topic.prefix {stored.server}")
        else:
            self._found.append("an offset without its key: whose it is cannot be checked")
        commit = f", lsn_commit {offset.lsn_commit}" if offset.lsn_commit is not None else ""
        kind = f", last message {offset.message_type}" if offset.message_type else ""
        xid = f", transaction {offset.xid}" if offset.xid is not None else ""
        self._found.append(f"offset: lsn {offset.lsn}{commit}{xid}{kind}")
        self._found.append(
            f"slot {self._slot.name}: confirmed_flush_lsn {self._confirmed}, plugin {self._slot.plugin}, not in use"
        )
        published = set(self._source.published())
        silent = [str(table.id) for table in self._tables if table.id not in published]
        self._found.append(f"{len(self._tables) - len(silent)} captured tables in the publication")
        if silent:
            self._found.append(f"not in the publication, so Debezium had no changes of them: {', '.join(silent)}")
        if offset.incremental:
            self._found.append(f"an incremental snapshot has not ended: {', '.join(offset.incremental)}")

    def _is_repeated(self, proof: Continuity | None) -> bool:
        """Whether the lake's record has this decision already."""
        adoption = self._context.adoption
        if proof is None or adoption is None or proof.mismatch is not None:
            return False
        return adoption.offset_lsn == self._offset.lsn and adoption.fills == self._fills

    def _has_moved_on(self, proof: Continuity | None, position: StoredPosition | None) -> bool:
        """Whether the slot is past the offset because wal2lake itself has gone on from it."""
        if self._confirmed <= (self._offset.boundary or self._offset.lsn):
            return False
        if proof is not None and (proof.record is None or not proof.record.confirmed or proof.mismatch is not None):
            return False
        return position is None or position.now.lsn >= self._confirmed

    def _check_snapshot(self) -> None:
        if not self._offset.in_snapshot:
            return
        self._found.append("Debezium's snapshot had not ended")
        if not self._fills or self._context.has_kafka:
            raise SourceError(
                "Debezium's snapshot had not ended: some rows were not sent, and no event stands for them.",
                "Let Debezium end its snapshot, or adopt into a lake alone, which reads all rows itself.",
            )

    def _check_gap(self) -> None:
        boundary = self._offset.boundary
        if self._offset.in_snapshot or boundary is None or self._confirmed <= boundary:
            return
        gap = f"The slot is at {self._confirmed}, past the offset, which ends at {boundary}"
        if not self._asked.accepts_gap:
            raise SourceError(
                f"{gap}: changes between may have been confirmed that Debezium did not send.",
                "Give the connector's newest offset. With lsn.flush.mode=connector_and_driver Debezium's driver may "
                "have advanced an idle slot: --accept-gap goes on from the slot.",
            )
        self._found.append(f"{gap}; accepted: it goes on from the slot")

    def _place(self) -> Place:
        """Look the offset up in the slot's stream."""
        try:
            with closing(self._segments()) as segments:
                return place_of(self._offset, segments)
        except SourceError:
            if not self._asked.accepts_gap:
                raise
            return Place(Delivered(self._confirmed))  # the slot has passed it, which was accepted

    def _segments(self) -> Generator[SortedSegment, None, None]:
        """The slot's stream from the offset on, up to the end of the WAL as it is now; the slot stays where it is."""
        start = max(self._confirmed, self._offset.boundary or Lsn(0))
        end = self._source.sendable_lsn()
        catalog = self._source.describing()
        registry = TableRegistry(catalog, self._source.includes(), self._tables)
        translator = self._source.translator(catalog, self._tables)
        with closing(translator), ReplicationStream(self._source.options, start_lsn=start) as stream:
            segments = SlotSegments(stream, start, registry.describe, translator)
            while True:
                found = segments.next(_SEGMENT_SECONDS)
                if found is not None:
                    yield found
                elif not segments.is_open and segments.wal_end >= end:
                    return

    def _say_place(self, place: Place) -> None:
        part = place.delivered.part
        if self._offset.in_snapshot:
            return
        if part is None:
            self._found.append(f"every transaction up to {place.delivered.commit_lsn} was sent, and nothing after it")
            return
        self._found.append(
            f"transaction {self._offset.xid}, which commits at {part.commit_lsn}, was sent in part: "
            f"{place.left} of its captured changes, up to {part.lsn}"
        )
        if place.rest_of_record:
            self._found.append(
                f"{place.rest_of_record} changes have that LSN, and the offset does not say how many events of it were "
                "sent: they are sent again"
            )

    def _say_incremental(self) -> None:
        """Say how an incremental snapshot goes on: rows that were sent as changes or by its chunks are sent again."""
        if not self._offset.incremental or (self._fills and not self._context.has_kafka):
            return
        data = json.dumps({"data-collections": list(self._offset.incremental)})
        self._decided.append(
            "the incremental snapshot is not continued; request it again while a run is active: wal2lake signal CONFIG "
            f"execute-snapshot --data '{data}'"
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
        return delivered.commit_lsn if delivered.part is None else max(self._confirmed, self._offset.boundary or Lsn(0))


def _has_all(confirmed: Lsn, delivered: Delivered) -> bool:
    """Whether a lake that has everything up to ``confirmed`` has what was delivered, and more where it ends inside."""
    part = delivered.part
    return delivered.commit_lsn <= confirmed and (part is None or part.commit_lsn < confirmed)
