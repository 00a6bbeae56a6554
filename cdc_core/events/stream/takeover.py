"""The connector's position in Kafka between two runs: another connector's stream is taken over by it."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.errors import SourceError, TransientError
from cdc_core.events.kafka.check import stored_position
from cdc_core.events.kafka.client import REACH_SECONDS
from cdc_core.events.kafka.opening import RecordsOwner, open_publisher
from cdc_core.events.kafka.options import KafkaOptions
from cdc_core.events.stream.kafka_output import KafkaOutput, read_position
from cdc_core.events.stream.output import Position
from cdc_core.lsn import Lsn
from cdc_core.offsets import FINISH, Delivered, SlotOffer, StreamEnd, Takeover


@dataclass(frozen=True, slots=True)
class KafkaPosition:
    """The connector's position in Kafka. ``prefix`` and ``slot`` name it; ``system_id`` is the source's."""

    options: KafkaOptions
    prefix: str
    slot: str
    system_id: str

    def read(self) -> Position:
        """Return it, the initial one if there is none. Raises CdcError, also if it is another server's."""
        _, stored = stored_position(self.options, self.prefix, self.slot)
        return read_position(stored, self.system_id)

    def write(self, position: Position) -> None:
        """Replace it. Raises CdcError."""
        with open_publisher(self.options, RecordsOwner(self.prefix, self.slot)) as (publisher, stored):
            output = KafkaOutput(publisher, stored, self.slot, self.system_id)
            output.open()
            output.mark(position)
            if not output.settle(REACH_SECONDS):
                raise TransientError(
                    f"Kafka did not acknowledge the position within {REACH_SECONDS:g} s.", "Run again."
                )

    def end(self, confirmed: Lsn) -> StreamEnd:
        """Return where the stream ends that Kafka has. Raises SourceError inside a transaction or snapshot."""
        position = self.read()
        if position.in_snapshot or position.delivered or not position.lsn:
            raise SourceError("The events in Kafka do not end at a transaction's end yet.", FINISH)
        note = ""
        if position.lsn < confirmed:
            note = f"Kafka has everything up to {position.lsn}; the slot is at {confirmed}, with no change between."
        return StreamEnd("Kafka", max(position.lsn, confirmed), note=note)

    def takeover(self, offer: SlotOffer) -> Takeover:
        """Return how Kafka goes on after the last event that was sent."""
        return _KafkaTakeover(self, offer)


class _KafkaTakeover:
    """A ``Takeover`` by Kafka: the next run begins after the last event that was sent."""

    is_repeated = False
    reads_rows = False

    def __init__(self, place: KafkaPosition, offer: SlotOffer) -> None:
        self._place = place
        self._offer = offer
        self._now = place.read()
        self._wanted: Position | None = None

    @property
    def has_moved_on(self) -> bool:
        """Whether Kafka has everything up to the slot's position."""
        return self._now.lsn >= self._offer.confirmed

    def decide(self, delivered: Delivered) -> str:
        """Decide whether the position continues the slot, or is replaced."""
        now, is_whole = self._now, delivered.part is None
        has_all = now.lsn > delivered.last_lsn or (is_whole and now.lsn == delivered.commit_lsn)
        # Before the transaction that was sent in part.
        start = delivered.commit_lsn if is_whole else self._offer.start
        text = "" if is_whole and not delivered.message_at_commit else delivered.to_json()
        position = Position(start, delivered=text)
        if now.lsn and not now.in_snapshot and (has_all or now == position):
            return "Kafka: its position continues the slot already"
        self._wanted = position
        return "Kafka: the next run begins after the last event that was sent; no rows are read"

    @property
    def is_new(self) -> bool:
        """Whether the position is to be replaced."""
        return self._wanted is not None

    def write(self) -> None:
        """Replace the position."""
        if self._wanted is not None:
            self._place.write(self._wanted)
