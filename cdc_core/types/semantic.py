"""Logical names of Connect schemas, as in Debezium 3.6.3 and Kafka Connect, and schemas with them."""

from __future__ import annotations

from cdc_core.schema import ConnectSchema

DATE = "io.debezium.time.Date"
TIME = "io.debezium.time.Time"
MICRO_TIME = "io.debezium.time.MicroTime"
NANO_TIME = "io.debezium.time.NanoTime"
TIMESTAMP = "io.debezium.time.Timestamp"
MICRO_TIMESTAMP = "io.debezium.time.MicroTimestamp"
NANO_TIMESTAMP = "io.debezium.time.NanoTimestamp"
ZONED_TIME = "io.debezium.time.ZonedTime"
ZONED_TIMESTAMP = "io.debezium.time.ZonedTimestamp"
ISO_DATE = "io.debezium.time.IsoDate"
ISO_TIME = "io.debezium.time.IsoTime"
ISO_TIMESTAMP = "io.debezium.time.IsoTimestamp"
MICRO_DURATION = "io.debezium.time.MicroDuration"
INTERVAL = "io.debezium.time.Interval"
BITS = "io.debezium.data.Bits"
JSON = "io.debezium.data.Json"
XML = "io.debezium.data.Xml"
UUID = "io.debezium.data.Uuid"
VARIABLE_SCALE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
CONNECT_DATE = "org.apache.kafka.connect.data.Date"
CONNECT_TIME = "org.apache.kafka.connect.data.Time"
CONNECT_TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def plain(kind: str) -> ConnectSchema:
    """Return an optional schema of a Connect type, without a name."""
    return ConnectSchema(kind, optional=True)


def logical(kind: str, name: str, parameters: tuple[tuple[str, str], ...] = ()) -> ConnectSchema:
    """Return an optional schema with a logical name; every name here has version 1."""
    return ConnectSchema(kind, optional=True, name=name, version=1, parameters=parameters)
