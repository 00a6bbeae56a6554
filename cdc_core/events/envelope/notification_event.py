"""Notifications as records: what Debezium's notification channel ``sink`` writes to its topic."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from cdc_core.events.envelope.batch import STRING, one_batch
from cdc_core.events.envelope.context import EnvelopeContext
from cdc_core.events.envelope.json import dumps
from cdc_core.events.envelope.record import one_record, schema_text, with_schema
from cdc_core.events.envelope.source_block import INT64
from cdc_core.schema import ConnectSchema


class NotificationRecords:
    """Creates the records of one topic."""

    def __init__(self, context: EnvelopeContext, topic: str) -> None:
        named = context.names.schema_name
        self._context = context
        self._topic = topic
        self._key = ConnectSchema(
            "struct",
            name=named("io.debezium.connector.common.NotificationKey"),
            version=1,
            fields=(("id", STRING),),
        )
        self._value = ConnectSchema(
            "struct",
            name=named("io.debezium.connector.common.Notification"),
            version=1,
            fields=(
                ("id", STRING),
                ("aggregate_type", STRING),
                ("type", STRING),
                ("additional_data", ConnectSchema("map", keys=STRING, items=STRING)),
                ("timestamp", INT64),
            ),
        )

    def make(self, identity: str, aggregate: str, kind: str, data: Mapping[str, str], timestamp_ms: int) -> pa.Table:
        """Return the record, as RECORDS of one row."""
        key = {"id": identity}
        facts = {"id": identity, "aggregate_type": aggregate, "type": kind, "timestamp": timestamp_ms}
        if self._context.outlet is not None:
            value = {**facts, "additional_data": list(data.items())}
            return self._context.outlet.records(one_batch(0, 0, self._topic, (self._key, key), (self._value, value)))
        ordered = {name: dict(data) if name == "additional_data" else facts[name] for name, _ in self._value.fields}
        written = [with_schema(schema_text(s), dumps(one)) for s, one in ((self._key, key), (self._value, ordered))]
        return one_record(0, 0, self._topic, written[0], written[1])
