"""Passes records and positions to librdkafka, and receives its reports. For one thread.

librdkafka keeps records in its own queue, sends them in batches, and reports each that was not delivered when it
is polled. Waiting is bounded: an error is raised if nothing is acknowledged for the stall time-out, or the run ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cdc_core.errors import CdcError, TransientError
from cdc_core.events.kafka.client import BrokerError, Reported, error_of
from cdc_core.events.kafka.messages import NO_PARTITION, NOW, Messages, RefusedRecord, Sent, TopicRecords, key_columns
from cdc_core.events.kafka.positions import PositionTopic
from cdc_core.events.kafka.topic_maker import TopicMaker

if TYPE_CHECKING:
    from confluent_kafka import Producer

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_WARN_SECONDS = 10.0
_CALLBACK_EVERY = 1_000
_CALL_SECONDS = 1.0
_ABORT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """``leaves_out``: records that Kafka refuses are skipped with a warning (errors.tolerance=all).

    ``most_records``: how many librdkafka keeps.
    """

    servers: str
    stall_seconds: float
    is_transactional: bool = False
    leaves_out: bool = False
    most_records: int = 1_000_000


class Delivery:
    """The deliveries of one run. ``is_stopped``, which another thread may set, ends all waits."""

    def __init__(
        self,
        producer: Producer,
        settings: DeliverySettings,
        positions: PositionTopic,
        topics: TopicMaker,
        messages: Messages,
        reported: Reported,
    ) -> None:
        self.is_stopped = False
        self._producer = producer
        self._settings = settings
        self._positions = positions
        self._topics = topics
        self._messages = messages
        self._reported = reported
        self._in_transaction = False
        self._failed: list[tuple[Any, RefusedRecord | None]] = []

    @property
    def kept(self) -> int:
        """The number of records in librdkafka that are not acknowledged; any thread may read it."""
        return len(self._producer)

    @property
    def most_kept(self) -> int:
        """How many it may have."""
        return self._settings.most_records

    def send(self, records: pa.Table) -> None:
        """Give records (RECORDS) to librdkafka, which sends them. Raises CdcError."""
        self._topics.make(records.column("topic").unique().to_pylist())
        if records.num_rows:
            self._begin()
        for entry in self._messages.of(records):
            if isinstance(entry, TopicRecords):
                self._produce_together(entry)
            else:
                self._produce(entry)
        self.serve()

    def store(self, position: str) -> None:
        """Make everything before the position durable, and the position. Raises CdcError."""
        self._begin()
        if not self._in_transaction:
            self._await_all()
        self._produce([self._positions.record(position)])
        self._await_all()
        if self._in_transaction:
            self._call("committing a transaction", lambda: self._producer.commit_transaction(_CALL_SECONDS))
            self._in_transaction = False

    def serve(self) -> None:
        """Process librdkafka's reports. Raises CdcError."""
        self._producer.poll(0)
        self._check_failed()

    def close(self) -> None:
        """Discard unsent records; an open transaction is aborted, so that readers need not wait for its time-out.

        Never raises.
        """
        from confluent_kafka import KafkaException

        if self._in_transaction:
            with suppress(KafkaException):
                self._producer.abort_transaction(_ABORT_SECONDS)
        self._producer.purge()
        self._producer.poll(0)

    def _begin(self) -> None:
        """Begin a transaction, if records are written in transactions and none is open."""
        if self._settings.is_transactional and not self._in_transaction:
            self._call("beginning a transaction", self._producer.begin_transaction)
            self._in_transaction = True

    def _produce(self, messages: Iterable[Sent]) -> None:
        # row-wise: librdkafka takes one record per call; its bytes were made in columns
        produce, failed = self._producer.produce, self._failed_delivery
        for sent, (topic, key, value, headers, partition, timestamp) in enumerate(messages, 1):
            try:
                produce(topic, value, key, partition, on_delivery=failed, timestamp=timestamp, headers=headers)
            except Exception as error:
                self._again((topic, key, value, headers, partition, timestamp), error)
            if sent % _CALLBACK_EVERY == 0:
                self._producer.poll(0)

    def _produce_together(self, batch: TopicRecords) -> None:
        """Produce records in one call. Once the queue is full, librdkafka refuses all later ones."""
        from confluent_kafka import KafkaException

        taken = self._producer.produce_batch(batch.topic, batch.messages, on_delivery=self._failed_delivery)
        self._producer.poll(0)
        if taken == len(batch.messages):
            return
        # row-wise: only refused records
        for message in batch.messages:
            error = message.get("_error")
            if error is not None:
                is_full = error.name() == "_QUEUE_FULL"
                raised = BufferError(error.str()) if is_full else KafkaException(error)
                self._again((batch.topic, message["key"], message["value"], [], NO_PARTITION, NOW), raised)

    def _again(self, sent: Sent, error: Exception) -> None:
        """Wait for room in librdkafka's queue, and produce; a record that is too large is refused here, too."""
        topic, key, value, headers, partition, timestamp = sent
        from confluent_kafka import KafkaException

        patience = _Patience(self)
        while isinstance(error, BufferError):
            self._producer.poll(_POLL_SECONDS)
            self._check_failed()
            patience.check()
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=self._failed_delivery,
                    timestamp=timestamp,
                    headers=headers,
                )
                return
            except (BufferError, KafkaException) as again:
                error = again
        if not isinstance(error, KafkaException):
            raise error
        self._refuse(error.args[0], RefusedRecord.of(topic, key, value, headers))

    def _await_all(self) -> None:
        """Wait until every record is acknowledged. Raises an error if nothing is for the stall time-out."""
        patience = _Patience(self)
        while self._producer.flush(_POLL_SECONDS):
            self._check_failed()
            patience.check()
        self._check_failed()

    def _call(self, doing: str, method: Any) -> None:
        """Call a method of transactions, again while it fails for a reason that passes."""
        from confluent_kafka import KafkaException

        patience = _Patience(self)
        while True:
            try:
                method()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise self._error_of(error.args[0], doing) from None
                patience.check()

    def _failed_delivery(self, error: Any, message: Any) -> None:
        """Record an undelivered message; called by ``poll`` and ``flush``, where no error may be raised."""
        if error is not None:
            found = None
            if message is not None and message.topic() is not None:
                found = RefusedRecord.of(message.topic(), message.key(), message.value(), message.headers() or [])
            self._failed.append((error, found))

    def _check_failed(self) -> None:
        failed, self._failed = self._failed, []
        for error, message in failed:
            if message is None:
                raise self._error_of(error, "writing records")
            self._refuse(error, message)

    def _refuse(self, error: Any, message: RefusedRecord) -> None:
        """Raise the error of a record that Kafka refuses, or skip the record."""
        if error.name() != "MSG_SIZE_TOO_LARGE":
            raise self._error_of(error, f"writing to topic {message.topic}")
        if self._is_for_broker(message):
            self._check_batch(message)
        found = self._too_large(message)
        if not self._settings.leaves_out or (self._in_transaction and self._is_for_broker(message)):
            raise found
        _log.warning("An event is left out: %s", found.message)

    def _error_of(self, error: Any, doing: str) -> CdcError:
        """Return the CdcError for an error; the producer's fatal one, if there is one."""
        self._producer.poll(0)
        is_fatal = error.name() == "_FATAL" and self._reported.fatal is not None
        return error_of(self._reported.fatal if is_fatal else error, self._settings.servers, doing)

    def _is_for_broker(self, message: RefusedRecord) -> bool:
        return message.size <= self._positions.most_bytes

    def _check_batch(self, message: RefusedRecord) -> None:
        """Raise an error if the broker has refused a batch, of which not this record is too large."""
        limit = self._topics.limits([message.topic]).get(message.topic)
        if limit is None or message.whole <= limit:
            most = "" if limit is None else f" of {limit:,} bytes"
            raise TransientError(
                f"A batch of records of topic {message.topic} is larger than the topic's max.message.bytes{most}.",
                "Run again: batches are made for the topics that exist. If transforms rename topics, set "
                f"producer.batch.size to at most {'this limit' if limit is None else limit}.",
            )

    def _too_large(self, message: RefusedRecord) -> CdcError:
        columns = ", ".join(key_columns(message.key))
        limit = (
            "the topic's max.message.bytes or the broker's message.max.bytes"
            if self._is_for_broker(message)
            else f"the producer's max.request.size of {self._positions.most_bytes:,} bytes"
        )
        return BrokerError(
            f"A record of topic {message.topic} has {message.size:,} bytes"
            f"{f' (its key: {columns})' if columns else ''}, more than {limit}.",
            "Raise both limits (producer.max.request.size, max.message.bytes), exclude the column, or set "
            "errors.tolerance=all to leave such records out.",
        )


class _Patience:
    """How long is waited while nothing is acknowledged."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._waiting = len(delivery._producer)
        self._since = self._warned = time.monotonic()

    def check(self) -> None:
        """Raise an error if it is over, or the run ends."""
        delivery, now = self._delivery, time.monotonic()
        waiting = len(delivery._producer)
        if waiting != self._waiting:
            self._waiting, self._since = waiting, now
        silent = now - self._since
        if delivery._reported.refused or silent > delivery._settings.stall_seconds:
            raise delivery._reported.unreachable(silent)
        if delivery.is_stopped:
            raise TransientError("The run ended before Kafka had acknowledged its records.")
        if now - max(self._warned, self._since) > _WARN_SECONDS:
            self._warned = now
            _log.warning(
                "Kafka at %s has acknowledged nothing for %d s; %d records wait.%s",
                delivery._settings.servers,
                silent,
                waiting,
                f" Its last error: {delivery._reported.last}." if delivery._reported.last else "",
            )
