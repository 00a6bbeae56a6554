"""How the lake takes over a stream of another connector, and where its own ends."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.engine.reading.continuity import Break
from cdc_core.engine.start.continuity import Continuity
from cdc_core.engine.start.recorded_stream import RecordedStream
from cdc_core.errors import ConfigError, SourceError
from cdc_core.lsn import Lsn
from cdc_core.offsets import FINISH, Adoption, Delivered, SlotOffer, StreamEnd
from cdc_core.postgres import Source
from cdc_core.schema import TableSchema
from cdc_core.snapshot import mode_actions


class LakeTakeover:
    """A ``Takeover`` by the lake: the next run fills its tables, or begins after what was delivered."""

    def __init__(self, lake: ConnectorLake, source: Source, tables: Sequence[TableSchema], offer: SlotOffer) -> None:
        self._lake = lake
        self._source = source
        self._tables = tables
        self._offer = offer
        self._proof = Continuity.of(lake, tables)
        self._adoption = lake.adoption
        self._delivered: Delivered | None = None
        self._gap = ""

    @property
    def reads_rows(self) -> bool:
        """Whether the offer fills the lake."""
        return self._offer.fills

    @property
    def is_repeated(self) -> bool:
        """Whether the lake's record has this decision already, and the stream continues it."""
        adoption = self._adoption
        if adoption is None or self._proof.mismatch is not None:
            return False
        return adoption.offset_lsn == self._offer.offset_lsn and adoption.fills == self._offer.fills

    @property
    def has_moved_on(self) -> bool:
        """Whether the stream continues what the lake has confirmed."""
        record = self._proof.record
        return record is not None and bool(record.confirmed) and self._proof.mismatch is None

    def decide(self, delivered: Delivered) -> str:
        """Decide whether the lake continues, is filled, or begins after what was delivered."""
        record, proof = self._proof.record, self._proof
        has_all = record is not None and not proof.is_empty and _has_all(record.confirmed, delivered)
        if self.is_repeated or (self.has_moved_on and has_all):
            return "lake: it continues the slot already"
        if not self._offer.fills:
            self._require_events_only()
            if record is not None and not proof.is_empty:
                self._gap = f"changes between {record.confirmed} and {delivered.last_lsn} were sent by Debezium"
        self._delivered = delivered
        if not self._offer.fills:
            return "lake: the next run reads no rows, and begins after the last event that was sent"
        again = "" if proof.is_empty else " again, because the lake has rows of before"
        read = f"the next run reads {len(self._tables)} tables{again}"
        return f"lake: {read}, and goes on from the slot, so that both join exactly"

    @property
    def is_new(self) -> bool:
        """Whether the record is to be written."""
        return self._delivered is not None

    def write(self) -> None:
        """Write the decision to the record of the stream, in one commit."""
        if self._delivered is not None:
            adopted = Adoption(self._offer.fills, self._offer.offset_lsn, self._delivered).to_json()
            RecordedStream(self._lake, self._source, self._proof).adopt(adopted, self._gap)

    def _require_events_only(self) -> None:
        if mode_actions(self._lake.snapshot).later:
            raise ConfigError(
                "snapshot.mode reads all rows at each start, and --events-only reads none.",
                "Set snapshot.mode=no_data, or adopt with a snapshot.",
            )
        if self._lake.known(self._tables):
            raise SourceError(
                "The lake's tables have rows of a snapshot, which would lack the changes that Debezium has sent since.",
                "Adopt with a snapshot, or into another wal2lake.lake.path.",
            )
        mismatch = self._proof.mismatch
        if mismatch is not None and mismatch.kind is not Break.SLOT_AHEAD and not self._proof.is_empty:
            raise mismatch.error()


def _has_all(confirmed: Lsn, delivered: Delivered) -> bool:
    """Whether a lake that has everything up to ``confirmed`` has what was delivered, and more where it ends inside."""
    part = delivered.part
    return delivered.commit_lsn <= confirmed and (part is None or part.commit_lsn < confirmed)


def end_of_lake(lake: ConnectorLake, tables: Sequence[TableSchema], confirmed: Lsn) -> StreamEnd:
    """Return where the stream ends that the lake has. Raises SourceError if a run did not confirm what it wrote."""
    proof = Continuity.of(lake, tables)
    proof.require()
    record = proof.record
    if record is None or not record.confirmed:
        raise SourceError("The lake has no stream yet: there is nothing that Debezium could continue.")
    if proof.held.changelog_lsn >= record.confirmed:
        raise SourceError(
            f"A run was stopped before it confirmed what it had written: the lake has changes up to "
            f"{proof.held.changelog_lsn}, and has confirmed {record.confirmed}.",
            FINISH,
        )
    last, end = record.last, max(record.confirmed, confirmed)
    return StreamEnd("lake", end) if last is None else StreamEnd("lake", end, last.xid, last.ts_us)
