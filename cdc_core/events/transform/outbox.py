"""EventRouter: rows inserted into an outbox table become messages to topics that the rows name."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import MISFITS, SCHEMALESS, TEXT, Data, EventBatch, arrow_type, no_data
from cdc_core.events.transform.fields import is_envelope, schema_of, text_field, with_fields
from cdc_core.events.transform.json_payload import JsonPayload, NotExpandedError, UnusableError
from cdc_core.events.transform.settings import Settings
from cdc_core.schema import ConnectSchema, NameAdjustmentMode

_log = logging.getLogger(__name__)

_PLACES = ("header", "envelope", "partition")
_MILLIS = {
    "io.debezium.time.Timestamp": 1,
    "io.debezium.time.MicroTimestamp": 1_000,
    "io.debezium.time.NanoTimestamp": 1_000_000,
}


@dataclass(frozen=True, slots=True)
class _Additional:
    """A column that is copied to a header, to the value, or that is the partition."""

    column: str
    place: str
    name: str


class EventRouter:
    """Drops updates, deletes and tombstones; records that are not events remain."""

    def __init__(self, settings: Settings) -> None:
        self._id = settings.text("table.field.event.id", "id")
        self._key = settings.text("table.field.event.key", "aggregateid")
        self._payload = settings.text("table.field.event.payload", "payload")
        settings.text("table.field.event.type", "type")
        self._timestamp = settings.get("table.field.event.timestamp")
        self._version = settings.get("table.field.event.schema.version")
        self._route = settings.text("route.by.field", "aggregatetype")
        self._regex = settings.regex("route.topic.regex", "(?<routedByValue>.*)")
        self._topic = settings.replacement("route.topic.replacement", self._regex, "outbox.event.${routedByValue}")
        self._buries = settings.flag("route.tombstone.on.empty.payload", False)
        self._invalid = settings.choice("table.op.invalid.behavior", ("warn", "error", "fatal"), "warn")
        self._additional = _additional(settings)
        missing = settings.choice("table.field.additional.missing", ("error", "ignore"), "error")
        self._skips_missing = missing == "ignore"
        expands = settings.flag("table.expand.json.payload", False)
        nulls = settings.choice("table.json.payload.null.behavior", ("ignore", "optional_bytes"), "ignore")
        modes = [mode.value for mode in NameAdjustmentMode]
        names = NameAdjustmentMode(settings.choice("field.name.adjustment.mode", modes, "none"))
        self._json = JsonPayload(keeps_null=nulls == "optional_bytes", names=names) if expands else None
        for tracing in ("tracing.span.context.field", "tracing.operation.name", "tracing.with.context.field.only"):
            settings.get(tracing)
        self._wraps = any(placement.place == "envelope" for placement in self._additional)
        # As in Debezium the first topic decides the name of all values with the same payload schema, or version.
        self._schemas: dict[ConnectSchema | int | None, ConnectSchema] = {}

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Route inserted rows, and rows that a snapshot reads."""
        events, _ = batch.split(batch.value.valid)
        if not len(events) or not is_envelope(events.value):
            return [events] if len(events) else []
        op = text_field(events.value, "op")
        if pc.any(pc.equal(op, "u")).as_py():
            self._report_updates()
        inserted = ~pc.is_in(op, pa.array(["d", "u"], op.type)).to_numpy(zero_copy_only=False)
        events, _ = events.split(inserted)
        if not len(events):
            return []
        row = events.value.field("after")
        if row is None or not row.valid.all():
            raise RecordError("EventRouter needs an inserted row, found an event without one, such as a truncate.")
        return self._routed(events, row)

    def _report_updates(self) -> None:
        if self._invalid == "fatal":
            raise RecordError("An update of the outbox table was received, and table.op.invalid.behavior is fatal.")
        level = logging.WARNING if self._invalid == "warn" else logging.ERROR
        _log.log(level, "An update of the outbox table was received and is ignored.")

    def _routed(self, events: EventBatch, row: Data) -> list[EventBatch]:
        schema_of(row, "reading an outbox event")
        batch = replace(events, timestamp=self._times(events.value, row))
        identity = _column(row, self._id)
        batch = batch.with_header("id", identity.filled())
        for placement in self._additional:
            if placement.place == "envelope" or (self._skips_missing and row.field(placement.column) is None):
                continue
            data = _column(row, placement.column).filled()
            if placement.place == "header":
                batch = batch.with_header(placement.name, data)
            else:
                batch = replace(batch, partition=_int32(data, placement.column))
        batch = replace(batch, key=_column(row, self._key).filled())
        routes = text_field(row, self._route)
        if routes.null_count:
            raise RecordError(f"The field {self._route} is null, by which EventRouter routes.")
        batch = replace(batch, topic=routes.cast(TEXT))
        made = []
        for payload, rows in self._payloads(_column(row, self._payload).filled()):
            made += self._valued(batch.take(rows), row.take(rows), payload)
        renamed = lambda topic: self._topic(topic) if self._regex.fullmatch(topic) else topic  # noqa: E731
        return [placement.with_topics(renamed) for placement in made]

    def _payloads(self, payload: Data) -> list[tuple[Data, np.ndarray]]:
        """Return (payloads of one schema, their rows) by first row: expanded JSON has a separate schema."""
        rows = np.arange(len(payload))
        if self._json is None or payload.schema is None or payload.schema.type != "string":
            return [(payload, rows)]
        plain: list[int] = []
        by_schema: dict[ConnectSchema, tuple[list[int], list[object]]] = {}
        # row-wise: the schema depends on the text
        for at, text in enumerate(payload.values.to_pylist()):
            try:
                if text is None:
                    plain.append(at)
                    continue
                schema, value = self._json.expand(self._payload, text)
            except NotExpandedError:
                _log.warning("The payload of an outbox event cannot be expanded as JSON; it remains text.")
                plain.append(at)
                continue
            except UnusableError as error:
                schema = ConnectSchema("string", optional=True, name=error.name)
                value = text
            which, values = by_schema.setdefault(schema, ([], []))
            which.append(at)
            values.append(value)
        out = [
            (Data(schema, pa.array(values, type=arrow_type(schema))), np.array(which))
            for schema, (which, values) in by_schema.items()
        ]
        out += [(payload.take(np.array(plain)), np.array(plain))] if plain else []
        return sorted(out, key=lambda payload_and_rows: int(payload_and_rows[1][0]))

    def _valued(self, batch: EventBatch, row: Data, payload: Data) -> list[EventBatch]:
        if self._wraps:
            parts = self._wrapped(batch, row, payload)
        else:
            parts = [(replace(batch, value=payload), np.arange(len(batch)))]
        if not self._buries:
            return [part for part, _ in parts]
        made = []
        for part, rows in parts:
            empty = _is_empty(payload.take(rows))
            buried, kept = part.split(empty)
            made += [kept] if len(kept) else []
            made += [replace(buried, value=no_data(len(buried)))] if len(buried) else []
        return made

    def _wrapped(self, batch: EventBatch, row: Data, payload: Data) -> list[tuple[EventBatch, np.ndarray]]:
        """Return the values as structs of the payload and the additional columns, by version of their schema."""
        if payload.schema is None or payload.schema.name in {SCHEMALESS, *MISFITS}:
            raise RecordError("The payload of an outbox event has no schema that fits its value.")
        fields, columns = [("payload", payload.schema)], [payload.values]
        for placement in self._additional:
            if placement.place != "envelope" or (self._skips_missing and row.field(placement.column) is None):
                continue
            data = _column(row, placement.column).filled()
            fields.append((placement.name, data.connect_schema))
            columns.append(data.values)
        versions = self._versions(row)
        out = []
        for version in dict.fromkeys(versions):
            rows = np.array([at for at, placement in enumerate(versions) if placement == version])
            part = batch.take(rows)
            key = payload.schema if self._version is None else version
            if key not in self._schemas:
                name = self._schema_name(row, part.topic[0].as_py())
                self._schemas[key] = ConnectSchema("struct", name=name, version=version, fields=tuple(fields))
            taken = [column.take(pa.array(rows)) for column in columns]
            out.append((replace(part, value=with_fields(self._schemas[key], taken, len(rows))), rows))
        return out

    def _versions(self, row: Data) -> list[int | None]:
        if self._version is None:
            return [None] * len(row)
        return list(_int32(_column(row, self._version).filled(), self._version).to_pylist())

    @staticmethod
    def _schema_name(row: Data, topic: str) -> str:
        name = row.schema.name if row.schema is not None else None
        if not name:
            return topic
        head, dot, last = name.rpartition(".")
        return f"{head}{dot}{topic}.{last}"

    def _times(self, event: Data, row: Data) -> pa.Array:
        """Return the messages' times in milliseconds: the configured column's, or the event's."""
        own = _column(event, "ts_ms").values.cast(pa.int64())
        if self._timestamp is None:
            return own
        data = _column(row, self._timestamp).filled()
        schema = data.connect_schema
        if schema.type != "int64":
            raise RecordError(f"The field {self._timestamp} is no time, but {schema.type}.")
        if data.values.null_count == len(data):
            return own
        unit = _MILLIS.get(schema.name or "")
        if unit is None:
            raise RecordError(f"The field {self._timestamp} has the type {schema.name}, which is no time.")
        # Java's division, towards zero
        times = pc.divide(data.values.cast(pa.int64()), unit)
        return pc.if_else(times.is_valid(), times, own)


def _additional(settings: Settings) -> tuple[_Additional, ...]:
    name = "table.fields.additional.placement"
    found = []
    for item in settings.items(name):
        parts = [part.strip() for part in item.split(":")]
        if len(parts) not in (2, 3) or parts[1].lower() not in _PLACES:
            raise ConfigError(f"{settings.name(name)}: {item!r} is not COLUMN:PLACE or COLUMN:PLACE:NAME.")
        found.append(_Additional(parts[0], parts[1].lower(), parts[-1] if len(parts) == 3 else parts[0]))
    return tuple(found)


def _column(row: Data, name: str) -> Data:
    found = row.field(name)
    if found is None:
        raise RecordError(f"The event has no field {name}, which EventRouter needs.")
    return found


def _int32(data: Data, name: str) -> pa.Array:
    if data.schema is None or data.schema.type != "int32":
        raise RecordError(f"The field {name} is not of type int32.")
    return data.values


def _is_empty(payload: Data) -> np.ndarray:
    empty = ~payload.valid
    if payload.schema is not None and payload.schema.type == "string":
        blank = pc.equal(pc.binary_length(pc.utf8_trim(payload.values, "".join(map(chr, range(33))))), 0)
        empty |= pc.fill_null(blank, False).to_numpy(zero_copy_only=False)
    return empty
