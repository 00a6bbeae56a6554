"""An offset of Debezium beside the slot that it belongs to: whether the slot goes on from it, and what was sent of it.

The slot is read to find out, and stays where it is.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

from cdc_core.decode import SortedSegment
from cdc_core.engine import DeliveredPlace, TableRegistry, place_of
from cdc_core.errors import SourceError
from cdc_core.events.stream.segments import SlotSegments
from cdc_core.lsn import Lsn
from cdc_core.offsets import Delivered, StoredOffset
from cdc_core.postgres import ReplicationStream, SlotInfo, Source
from cdc_core.schema import TableSchema

_SEGMENT_SECONDS = 0.2


class OffsetInSlot:
    """One offset, and what is ``found`` of it, as sentences. ``accepts_gap``: the slot may be past the offset."""

    def __init__(
        self, source: Source, slot: SlotInfo, tables: list[TableSchema], stored: StoredOffset, *, accepts_gap: bool
    ) -> None:
        self._source = source
        self._slot = slot
        self._tables = tables
        self.stored = stored
        self._offset = stored.offset
        self._accepts_gap = accepts_gap
        self.confirmed = slot.confirmed_lsn or Lsn(0)
        self.found: list[str] = []

    @property
    def is_passed(self) -> bool:
        """Whether the slot is confirmed past the offset."""
        return self.confirmed > (self._offset.boundary or self._offset.lsn)

    @property
    def start(self) -> Lsn:
        """Where the stream begins that has everything after the offset."""
        return max(self.confirmed, self._offset.boundary or Lsn(0))

    def check(self) -> None:
        """Say what the offset and the slot are. Raises SourceError unless the slot exists and is of the same server."""
        self._require_slot()
        self._describe()

    def place(self, *, reads_rows: bool) -> DeliveredPlace:
        """Return what was delivered, from the slot's stream; nothing if Debezium's snapshot had not ended.

        ``reads_rows``: every destination gets all rows by a snapshot of its own, else that of Debezium must have ended.
        Raises SourceError if something was not sent that the slot does not send any more.
        """
        self._check_snapshot(reads_rows)
        if self._offset.in_snapshot:
            return DeliveredPlace(Delivered(Lsn(0)))
        self._check_gap()
        place = self._look_up()
        self._describe_place(place)
        return place

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
        offset, stored = self._offset, self.stored
        if stored.connector:
            self.found.append(f"offset of connector {stored.connector}, topic.prefix {stored.server}")
        else:
            self.found.append("an offset without its key: whose it is cannot be checked")
        commit = f", lsn_commit {offset.lsn_commit}" if offset.lsn_commit is not None else ""
        kind = f", last message {offset.message_type}" if offset.message_type else ""
        xid = f", transaction {offset.xid}" if offset.xid is not None else ""
        self.found.append(f"offset: lsn {offset.lsn}{commit}{xid}{kind}")
        self.found.append(
            f"slot {self._slot.name}: confirmed_flush_lsn {self.confirmed}, plugin {self._slot.plugin}, not in use"
        )
        published = set(self._source.published())
        silent = [str(table.id) for table in self._tables if table.id not in published]
        self.found.append(f"{len(self._tables) - len(silent)} captured tables in the publication")
        if silent:
            self.found.append(f"not in the publication, so Debezium had no changes of them: {', '.join(silent)}")
        if offset.incremental:
            self.found.append(f"an incremental snapshot has not ended: {', '.join(offset.incremental)}")

    def _check_snapshot(self, reads_rows: bool) -> None:
        if not self._offset.in_snapshot:
            return
        self.found.append("Debezium's snapshot had not ended")
        if not reads_rows:
            raise SourceError(
                "Debezium's snapshot had not ended: some rows were not sent, and no event stands for them.",
                "Let Debezium end its snapshot, or adopt into a lake alone, which reads all rows itself.",
            )

    def _check_gap(self) -> None:
        boundary = self._offset.boundary
        if boundary is None or self.confirmed <= boundary:
            return
        gap = f"The slot is at {self.confirmed}, past the offset, which ends at {boundary}"
        if not self._accepts_gap:
            raise SourceError(
                f"{gap}: changes between may have been confirmed that Debezium did not send.",
                "Give the connector's newest offset. With lsn.flush.mode=connector_and_driver Debezium's driver may "
                "have advanced an idle slot: --accept-gap goes on from the slot.",
            )
        self.found.append(f"{gap}; accepted: it goes on from the slot")

    def _look_up(self) -> DeliveredPlace:
        try:
            with closing(self._segments()) as segments:
                return place_of(self._offset, segments)
        except SourceError:
            if not self._accepts_gap:
                raise
            return DeliveredPlace(Delivered(self.confirmed))  # the slot has passed it, which was accepted

    def _segments(self) -> Generator[SortedSegment, None, None]:
        """The slot's stream from the offset on, up to the end of the WAL as it is now; the slot stays where it is."""
        start, end = self.start, self._source.sendable_lsn()
        catalog = self._source.describing()
        registry = TableRegistry(catalog, self._source.includes(), self._tables)
        translator = self._source.translator(catalog, self._tables)
        with closing(translator), ReplicationStream(self._source.options, start_lsn=start) as stream:
            segments = SlotSegments(stream, start, registry.describe, translator)
            while True:
                segment = segments.next(_SEGMENT_SECONDS)
                if segment is not None:
                    yield segment
                elif not segments.is_open and segments.wal_end >= end:
                    return

    def _describe_place(self, place: DeliveredPlace) -> None:
        part = place.delivered.part
        if part is None:
            self.found.append(f"every transaction up to {place.delivered.commit_lsn} was sent, and nothing after it")
            return
        self.found.append(
            f"transaction {self._offset.xid}, which commits at {part.commit_lsn}, was sent in part: "
            f"{place.left} of its captured changes, up to {part.lsn}"
        )
        if place.rest_of_record:
            self.found.append(
                f"{place.rest_of_record} changes have that LSN, and the offset does not say how many events of it were "
                "sent: they are sent again"
            )
