"""The output that is Kafka: records through a publisher, positions as records of the connector's own topic."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import pyarrow as pa

from cdc_core.engine import WaitingChanges
from cdc_core.errors import SourceError
from cdc_core.events.kafka.publisher import Publisher
from cdc_core.events.stream.output import Position
from cdc_core.lsn import Lsn

_SHOW_SECONDS = 10.0


class KafkaOutput:
    """One connector's output (``Output``). ``stored``: the position's record that the last run left, empty for none.

    ``system_id`` is the server's: an LSN means something on one server only. ``slot``: the connector's.
    """

    def __init__(self, publisher: Publisher, stored: str, slot: str, system_id: str) -> None:
        self._publisher = publisher
        self._stored = stored
        self._slot = slot
        self._system_id = system_id
        self._last = stored
        self._marked_at = time.monotonic()

    @property
    def has_room(self) -> bool:
        """Whether the publisher's queue is not full."""
        return self._publisher.has_room

    @property
    def waiting(self) -> WaitingChanges:
        """Records that Kafka has not acknowledged."""
        found = self._publisher.unacknowledged
        return WaitingChanges(found.records, found.most_records, found.bytes, found.most_bytes)

    @property
    def is_marked(self) -> bool:
        """Whether no record was put since the last mark."""
        return self._publisher.is_marked

    @property
    def is_settled(self) -> bool:
        """Whether all records are acknowledged."""
        return self._publisher.is_settled

    @property
    def durable_lsn(self) -> Lsn:
        """The LSN of the last position that Kafka has acknowledged in this run."""
        durable = self._publisher.durable
        return Position.of(json.loads(durable)).lsn if durable else Lsn(0)

    def open(self) -> Position:
        """Return the stored position, the initial one without any. Raises SourceError if it is another server's."""
        return read_position(self._stored, self._system_id)

    def add(self, records: pa.Table) -> None:
        """Hand over RECORDS that are not of the source, such as notifications: they change no position."""
        was_marked = self.is_marked
        self._publisher.put(records)
        if was_marked and self._last:
            self._publisher.mark(self._last)

    def write(self, records: pa.Table) -> int:
        """Hand over RECORDS."""
        if records.num_rows:
            self._publisher.put(records)
        return int(records.num_rows)

    def flush(self) -> None:
        """Do nothing: the publisher sends records at once."""

    def show_rows(self) -> None:
        """Mark the last position again after some seconds: a Kafka transaction must not last as long as a snapshot."""
        if self._last and time.monotonic() - self._marked_at >= _SHOW_SECONDS:
            self._put_mark()

    def mark(self, position: Position) -> None:
        """Hand over a position."""
        self._last = json.dumps({"slot": self._slot, "system_id": self._system_id, **position.to_dict()})
        self._put_mark()

    def _put_mark(self) -> None:
        self._marked_at = time.monotonic()
        self._publisher.mark(self._last)

    def settle(self, seconds: float | None = None) -> bool:
        """Wait until the last mark is durable."""
        return self._publisher.settle(seconds)

    def finish(self, lines: Sequence[str]) -> None:
        """Do nothing: schemas are in the registry."""


def read_position(stored: str, system_id: str) -> Position:
    """Return a stored position, the initial one for none. Raises SourceError if it is another server's."""
    if not stored:
        return Position()
    try:
        raw = json.loads(stored)
        position, written_by = Position.of(raw), str(raw.get("system_id", ""))
    except (ValueError, KeyError, TypeError):
        raise SourceError(
            "The connector's position in Kafka cannot be read: something else has written to its topic.",
            "Set offsets.storage.topic to another topic, or delete the topic to begin again.",
        ) from None
    if system_id and written_by and system_id != written_by:
        raise SourceError(
            f"The server has the system identifier {system_id}, but the connector's position in Kafka is of "
            f"a server with {written_by}: positions of one mean nothing on the other.",
            "Correct database.hostname, or give the connector another topic.prefix or offsets.storage.topic.",
        )
    return position
