"""Heartbeats: records that show that the connector is running and advance its position while nothing is captured."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from cdc_core.events.envelope.batch import one_batch
from cdc_core.events.envelope.context import EnvelopeContext
from cdc_core.events.envelope.json import dumps
from cdc_core.events.envelope.record import one_record, schema_text, with_schema
from cdc_core.events.envelope.source_block import INT64, STRING
from cdc_core.schema import ConnectSchema


class HeartbeatEvents:
    """Creates heartbeats when they are due; created once per run.

    ``interval_ms`` 0 means none. As in Debezium the interval starts with the run, and is checked after every event and
    every empty poll.
    """

    def __init__(self, context: EnvelopeContext, interval_ms: int, now_ns: int) -> None:
        names = context.names
        key = ConnectSchema(
            "struct",
            name=names.schema_name("io.debezium.connector.common.ServerNameKey"),
            version=1,
            fields=(("serverName", STRING),),
        )
        value = ConnectSchema(
            "struct",
            name=names.schema_name("io.debezium.connector.common.Heartbeat"),
            version=1,
            fields=(("ts_ms", INT64),),
        )
        self._topic = names.heartbeat_topic
        self._outlet = context.outlet
        self._typed_key, self._typed_value = (key, {"serverName": names.prefix}), value
        self._key = with_schema(schema_text(key), dumps({"serverName": names.prefix}))
        self._value = schema_text(value)
        self._interval_ns = interval_ms * 1_000_000
        self._last_ns = now_ns

    def due(self, now_ns: int) -> bool:
        """Whether the interval has passed since the last heartbeat."""
        return self._interval_ns > 0 and now_ns - self._last_ns >= self._interval_ns

    def make(self, seq: int, now_ns: int) -> pa.Table:
        """Return a heartbeat after the record with that ordinal; the interval starts again."""
        self._last_ns = now_ns
        facts, sub = {"ts_ms": now_ns // 1_000_000}, (1 << 31) - 1
        if self._outlet is not None:
            batch = one_batch(seq, sub, self._topic, self._typed_key, (self._typed_value, facts))
            # Debezium sends heartbeats to the first partition.
            return self._outlet.records(replace(batch, partition=pa.array([0], type=pa.int32())))
        payload = dumps(facts)
        return one_record(seq, sub, self._topic, self._key, with_schema(self._value, payload), partition=0)
