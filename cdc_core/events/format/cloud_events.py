"""Debezium's CloudEventsConverter: events as CloudEvents 1.0, structured JSON or Avro, with JSON or Avro data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import MISFIT_LIST, STRING, TEXT, Data, EventBatch, struct
from cdc_core.events.envelope.json import dumps, join, to_json
from cdc_core.events.format.avro_format import AvroFormat
from cdc_core.events.format.format import Placed, in_line
from cdc_core.events.format.json_format import JsonFormat
from cdc_core.events.transform.fields import is_envelope
from cdc_core.events.transform.kafka_fields import each
from cdc_core.events.transform.settings import Settings
from cdc_core.schema import ConnectSchema, NameAdjustmentMode, adjust_schema_name

_TRANSACTION = (
    ("id", STRING),
    ("total_order", ConnectSchema("int64")),
    ("data_collection_order", ConnectSchema("int64")),
)
_CUSTOM = ("id", "type", "traceparent", "dataSchemaName")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where metadata come from: the value (or made of it), or headers of that name."""

    headers: bool
    custom: dict[str, str]

    @classmethod
    def parse(cls, settings: Settings) -> _Origin:
        """Parse ``metadata.source``: ``value`` or ``header``, then ``FIELD:header`` or ``FIELD:generate``."""
        default = "value,id:generate,type:generate,traceparent:header,dataSchemaName:generate"
        name = settings.name("metadata.source")
        first, *others = settings.items("metadata.source") or tuple(default.split(","))
        if first.lower() not in ("value", "header"):
            raise ConfigError(f"{name} starts with {first!r}: expected value or header.")
        custom = dict.fromkeys(_CUSTOM, first.lower())
        for item in others:
            field, _, where = (part.strip() for part in item.partition(":"))
            if field not in _CUSTOM or where.lower() not in ("header", "generate"):
                raise ConfigError(f"{name}: {item!r} is not one of {', '.join(_CUSTOM)} with :header or :generate.")
            custom[field] = where.lower()
        return cls(first.lower() == "header", custom)


class CloudEventsFormat:
    """Only change events become CloudEvents; other records get the value null, as in Debezium."""

    shows_headers = False

    def __init__(self, settings: Settings) -> None:
        self._event_avro = settings.choice("serializer.type", ("json", "avro"), "json") == "avro"
        self._data_avro = settings.choice("data.serializer.type", ("json", "avro"), "json") == "avro"
        if self._event_avro and not self._data_avro:
            raise ConfigError(f"{settings.name('data.serializer.type')} must be avro, because serializer.type is.")
        self._origin = _Origin.parse(settings)
        self._extensions = settings.flag("extension.attributes.enable", True)
        self._tracing = settings.flag("opentelemetry.tracing.attributes.enable", False)
        self._named_data = settings.flag("schema.data.name.source.header.enable", False)
        self._schema_name = settings.get("schema.cloudevents.name")
        modes = [mode.value for mode in NameAdjustmentMode]
        self._mode = NameAdjustmentMode(settings.choice("schema.name.adjustment.mode", modes, "avro"))
        self._json = JsonFormat(settings.below("json"))
        self._avro: AvroFormat | None = None
        self._url = ""
        if self._data_avro:
            avro = settings.below("avro")
            if avro.get("apicurio.registry.url"):
                raise ConfigError(f"{avro.name('apicurio.registry.url')}: set schema.registry.url instead.")
            self._avro = AvroFormat(avro, is_key=False)
            self._url = avro.text("schema.registry.url").strip()
        self.suffix = "_avro" if self._event_avro else ""
        self.registers = self._data_avro

    def encode(self, data: Data, batch: EventBatch) -> pa.Array:
        """Return CloudEvents as JSON texts or Avro messages; null for records that are none."""
        kind = pa.large_binary() if self._event_avro else TEXT
        rows = self._rows(data, batch)
        if not len(rows):
            return pa.nulls(len(data), kind)
        if len(rows) == len(data):
            return self._events(data, batch)
        events = self._events(data.take(rows), batch.take(rows))
        place = np.full(len(data), -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        return events.take(pa.array(place, mask=place < 0))

    def shown(self, encoded: pa.Array) -> pa.Array:
        """Return the JSON itself, or base64 in JSON strings."""
        return in_line(encoded) if self._event_avro else encoded

    def last_lines(self) -> list[Placed]:
        """Return the Avro schemas that events have."""
        return [] if self._avro is None else self._avro.last_lines()

    def _rows(self, data: Data, batch: EventBatch) -> np.ndarray:
        """Return the indexes of change events."""
        emitted = data.valid
        if self._origin.headers:
            for name in ("source", "op"):
                present = [header.has() for header in batch.headers if header.key == name]
                emitted &= np.logical_or.reduce(present) if present else False
        elif data.schema is not None and data.schema.name in (None, MISFIT_LIST) and emitted.any():
            raise RecordError("A CloudEvent cannot be made of a value whose schema has no name.")
        elif not is_envelope(data):
            emitted &= False
        if emitted.any() and not data.is_struct:
            raise RecordError("A CloudEvent can only be made of a struct.")
        if emitted.any() and not self._origin.headers and not {"before", "after"} <= set(_names(data)):
            raise RecordError("A CloudEvent cannot be made of an event without the fields before and after.")
        return np.flatnonzero(emitted)

    def _events(self, data: Data, batch: EventBatch) -> pa.Array:
        rows = len(data)
        source = self._meta(data, batch, "source")
        fields = dict(zip(_names(source), source.columns(), strict=True))
        content = self._content(data, batch, source)
        names: list[tuple[str, ConnectSchema]] = []
        columns: list[pa.Array] = []

        def add(name: str, schema: ConnectSchema, values: pa.Array) -> None:
            names.append((name, schema))
            columns.append(values)

        # The data's schema is registered first, even if the event then fails.
        message: pa.Array | None = None
        if self._avro is not None:
            placed = batch.with_topics(lambda topic: f"{topic}-data") if self._event_avro else batch
            message = self._avro.encode(content, placed)
        connector, prefix = (fields[name].cast(TEXT) for name in ("connector", "name"))
        add("id", STRING, self._custom(batch, "id", lambda: _identity(fields, rows)))
        add("source", STRING, join(["/debezium/", connector, "/", prefix], rows))
        add("specversion", STRING, _repeated("1.0", rows))
        made = join(["io.debezium.connector.", connector, ".DataChangeEvent"], rows)
        add("type", STRING, self._custom(batch, "type", lambda: made))
        add("time", STRING, each(fields["ts_ms"], _time, TEXT))
        add("datacontenttype", STRING, _repeated("application/avro" if self._data_avro else "application/json", rows))
        if message is not None:
            numbers = [int.from_bytes(head[1:5], "big") for head in pc.binary_slice(message, 0, 5).to_pylist()]
            add("dataschema", STRING, join([f"{self._url}/schemas/ids/", pa.array(numbers, type=pa.int64())], rows))
        if self._tracing:
            add("traceparent", STRING, self._custom(batch, "traceparent", _refuse_trace))
        if self._extensions:
            self._extend(data, batch, source, add)
        if self._event_avro and self._avro is not None:
            add("data", ConnectSchema("bytes"), message)
            schema = ConnectSchema("struct", name=self._name(fields), fields=tuple(names))
            event = struct(schema, columns, np.ones(rows, dtype=bool))
            return self._avro.encode(event, batch)
        body = in_line(message) if message is not None else self._json.encode(content, batch)
        parts: list[str | pa.Array] = ["{"]
        for (name, schema), column in zip(names, columns, strict=True):
            parts += [f"{dumps(name)}:", to_json(column, schema), ","]
        return join([*parts, '"data":', body, "}"], rows)

    def _extend(self, data: Data, batch: EventBatch, source: Data, add) -> None:  # type: ignore[no-untyped-def]
        """Add op, the fields of source, and those of transaction, null without one."""
        rows = len(data)
        add(_extension("op"), STRING, self._meta(data, batch, "op").values.cast(TEXT))
        for (name, field), column in zip(source.connect_schema.fields, source.columns(), strict=True):
            values = Data(field, column).filled().values
            add(_extension(name), *_attribute(field, values, field.optional))
        block = self._meta(data, batch, "transaction", optional=True)
        for name, field in _TRANSACTION:
            member = block.field(name) if block.is_struct else None
            values = pa.nulls(rows, TEXT) if member is None else member.values
            add(_extension(f"tx{name}"), *_attribute(field, values, True))

    def _content(self, data: Data, batch: EventBatch, source: Data) -> Data:
        """Return ``before`` and ``after``; with metadata from headers, all fields of the value."""
        kept = data.connect_schema.fields
        if not self._origin.headers:
            kept = tuple((name, field) for name, field in kept if name in ("before", "after"))
        columns = [part.filled().values for name, _ in kept if (part := data.field(name)) is not None]
        connector = source.field("connector")
        name = f"io.debezium.connector.{connector.values[0].as_py()}.Data" if connector is not None else None
        if self._named_data and self._origin.custom["dataSchemaName"] == "header":
            schema_names = set(_header(batch, "dataSchemaName").values.to_pylist())
            if len(schema_names) != 1:
                raise RecordError("Events of one batch have several dataSchemaName headers.")
            name = schema_names.pop()
        schema = ConnectSchema("struct", name=name, fields=kept)
        return struct(schema, columns, np.ones(len(data), dtype=bool))

    def _meta(self, data: Data, batch: EventBatch, name: str, *, optional: bool = False) -> Data:
        """Return a struct or field of the envelope, from a header of that name if metadata come from there."""
        if self._origin.headers:
            return _header(batch, name, optional=optional)
        found = data.field(name)
        if found is None and not optional:
            raise RecordError(f"The event has no field {name}.")
        return Data(None, pa.nulls(len(data))) if found is None else found

    def _custom(self, batch: EventBatch, name: str, make) -> pa.Array:  # type: ignore[no-untyped-def]
        if self._origin.custom[name] == "header":
            return _header(batch, name).values.cast(TEXT)
        if self._origin.custom[name] == "value" and name in ("id", "type"):
            raise RecordError(f"The value has no {name} for a CloudEvent: add {name}:generate to metadata.source.")
        return make()

    def _name(self, fields: dict[str, pa.Array]) -> str:
        prefix, database = (fields[name][0].as_py() for name in ("name", "db"))
        return adjust_schema_name(self._schema_name or f"{prefix}.{database}.CloudEvents.Envelope", self._mode)


def _names(data: Data) -> list[str]:
    return [] if data.schema is None else [name for name, _ in data.schema.fields]


def _repeated(text: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, TEXT), rows)


def _identity(fields: dict[str, pa.Array], rows: int) -> pa.Array:
    parts = zip(("name:", ";lsn:", ";txId:", ";sequence:"), ("name", "lsn", "txId", "sequence"), strict=True)
    return join([part for label, name in parts for part in (label, fields[name])], rows)


def _time(millis: int) -> str:
    at = _EPOCH + timedelta(milliseconds=millis)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def _refuse_trace() -> pa.Array:
    raise RecordError("traceparent can only be taken from a header: add traceparent:header to metadata.source.")


def _extension(name: str) -> str:
    """Return the name of an extension attribute, which has only ASCII letters and digits."""
    return "iodebezium" + "".join(one for one in name if one.isascii() and one.isalnum())


def _attribute(field: ConnectSchema, values: pa.Array, optional: bool) -> tuple[ConnectSchema, pa.Array]:
    """Return an attribute's schema and values: numbers of 64 bits are texts."""
    if field.type in ("string", "int64"):
        return ConnectSchema("string", optional=optional), values.cast(TEXT)
    if field.type == "boolean":
        return ConnectSchema("boolean", optional=optional), values
    if field.type in ("int8", "int16", "int32"):
        return ConnectSchema("int32", optional=optional), values.cast(pa.int32())
    raise RecordError(f"A field of the type {field.type} cannot be an attribute of a CloudEvent.")


def _header(batch: EventBatch, name: str, *, optional: bool = False) -> Data:
    """Return the last header of that name of every record. Raises RecordError if one has none."""
    for header in reversed(batch.headers):
        if header.key == name:
            has = header.has()
            if has.all():
                return header.data
            if optional:
                rows = np.arange(len(has))
                return Data(header.data.schema, header.data.values.take(pa.array(rows, mask=~has)))
    if optional:
        return Data(None, pa.nulls(len(batch)))
    raise RecordError(f"A record has no header {name}, from which CloudEvents take their metadata.")
