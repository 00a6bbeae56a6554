"""Writes records to Kafka in the background, in the order of the calls, and reports which are durable.

    put(records) … mark(position) … put ──queue──▶ one thread: one record a call ──▶ librdkafka ──▶ brokers
                                                      mark: all acknowledged, then the position's record

One idempotent producer writes all records of a run, so their order in a partition is that of the source whatever is
retried. A position becomes durable when every record before it is acknowledged by all replicas (acks=all) and its own
record is, too; only then may the slot be confirmed up to it.

* At least once: the position is written after the records. A run that is killed in between writes them again.
* Exactly once: records and position are in one Kafka transaction, which ends at a mark. A run that is killed leaves a
  transaction that the next one aborts before it reads the position (``init_transactions``).

Waiting is bounded (``delivery``). Errors of the thread are raised in the caller's next call.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

import pyarrow as pa

from cdc_core.connector_threads import ConnectorThread
from cdc_core.events.kafka.delivery import Delivery

_QUEUED_BYTES = 64 << 20
_POLL_SECONDS = 0.1
_JOIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """Records that are not acknowledged, and their limit; bytes of those not yet passed to librdkafka."""

    records: int
    most_records: int
    bytes: int
    most_bytes: int


class Publisher:
    """The way to Kafka of one run. The public methods are for one thread, the caller's; ``close`` at the end."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._changed = threading.Condition()
        self._queue: deque[pa.Table | str] = deque()
        self._queued_bytes = self._queued_records = 0
        self._pending = 0
        self._unmarked = 0
        self._durable = ""
        self._error: BaseException | None = None
        self._thread = ConnectorThread(target=self._guard, name="kafka-publisher", daemon=True)
        self._thread.start()

    @property
    def has_room(self) -> bool:
        """Whether more records may be put; raises the thread's error."""
        with self._changed:
            self._raise()
            return self._queued_bytes < _QUEUED_BYTES

    @property
    def is_settled(self) -> bool:
        """Whether all that was put is durable, and a position after it."""
        with self._changed:
            self._raise()
            return not self._pending and not self._unmarked

    @property
    def is_marked(self) -> bool:
        """Whether no record was put since the last mark."""
        with self._changed:
            return not self._unmarked

    @property
    def unacknowledged(self) -> Unacknowledged:
        """The waiting records; any thread may read it."""
        with self._changed:
            records, octets = self._queued_records, self._queued_bytes
        return Unacknowledged(records + self._delivery.kept, self._delivery.most_kept, octets, _QUEUED_BYTES)

    @property
    def durable(self) -> str:
        """The last position that is durable, empty before the first."""
        with self._changed:
            self._raise()
            return self._durable

    def put(self, records: pa.Table) -> None:
        """Add records (RECORDS); they are sent soon."""
        with self._changed:
            self._raise()
            self._unmarked += records.num_rows
            self._queued_records += records.num_rows
            self._add(records, records.nbytes)

    def mark(self, position: str) -> None:
        """Add a position: all that was put before belongs to it. It is durable later."""
        with self._changed:
            self._raise()
            self._unmarked = 0
            self._add(position, 0)

    def settle(self, seconds: float | None = None) -> bool:
        """Wait until every mark is durable; returns whether it is, after at most ``seconds``. Raises CdcError."""
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            while self._pending and (deadline is None or time.monotonic() < deadline):
                self._raise()
                self._changed.wait(_POLL_SECONDS)
            self._raise()
            return not self._pending

    def close(self) -> None:
        """End the thread; the next run sends unacknowledged records again. Never raises."""
        with self._changed:
            self._delivery.is_stopped = True
            self._changed.notify_all()
        self._thread.join(_JOIN_SECONDS)

    def _add(self, item: pa.Table | str, size: int) -> None:
        self._queue.append(item)
        self._queued_bytes += size
        self._pending += 1
        self._changed.notify_all()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _guard(self) -> None:
        try:
            self._run()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
        finally:
            self._delivery.close()

    def _run(self) -> None:
        while True:
            item = self._next()
            if item is None:
                return
            if isinstance(item, str):
                if not self._has_mark():
                    self._delivery.store(item)
                    with self._changed:
                        self._durable = item
            else:
                self._delivery.send(item)
            with self._changed:
                self._pending -= 1
                if not isinstance(item, str):
                    self._queued_bytes -= item.nbytes
                    self._queued_records -= item.num_rows
                self._changed.notify_all()

    def _next(self) -> pa.Table | str | None:
        """Wait for the next item; None at the end. Callbacks are served meanwhile."""
        while True:
            with self._changed:
                if self._delivery.is_stopped:
                    return None
                if self._queue:
                    return self._queue.popleft()
                self._changed.wait(_POLL_SECONDS)
            self._delivery.serve()

    def _has_mark(self) -> bool:
        """Whether a later mark waits, with which this one becomes durable at the cost of one."""
        with self._changed:
            return any(isinstance(item, str) for item in self._queue)
