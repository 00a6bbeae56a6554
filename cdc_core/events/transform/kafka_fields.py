"""Kafka's transforms of fields: InsertField, MaskField, ValueToKey, ExtractField, HoistField."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import SCHEMALESS, Data, EventBatch, constant, no_data, put
from cdc_core.events.transform.field_path import FieldPath
from cdc_core.events.transform.fields import Side, basics, columns_of, schema_of, where_set, with_fields
from cdc_core.events.transform.java_text import CONNECT_TIMES
from cdc_core.events.transform.settings import Settings
from cdc_core.schema import ConnectSchema

TIMESTAMP = ConnectSchema("int64", name="org.apache.kafka.connect.data.Timestamp", version=1)
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_NUMBERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# With a bound: an exponent of millions would be as many digits.
_DECIMAL_TEXT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_BLANK: dict[str, Any] = {**dict.fromkeys(_NUMBERS, 0), "float": 0.0, "double": 0.0, "boolean": False, "string": ""}
_BLANK |= {"array": [], "map": []}


@dataclass(frozen=True, slots=True)
class _Insertion:
    name: str
    optional: bool

    @classmethod
    def parse(cls, text: str | None) -> _Insertion | None:
        """Parse ``name``, ``name?`` (the same: optional) or ``name!`` (required)."""
        if text is None:
            return None
        return cls(text[:-1], text[-1] == "?") if text[-1] in "?!" else cls(text, True)


class InsertField:
    """Adds the topic, the partition, the timestamp or a constant as fields."""

    def __init__(self, settings: Settings, side: Side) -> None:
        self._side = side
        self._defaults = settings.flag("replace.null.with.default", True)
        names = ("topic", "partition", "offset", "timestamp", "static")
        self._fields = {name: _Insertion.parse(settings.get(f"{name}.field")) for name in names}
        self._static = settings.get("static.value")
        if not any(self._fields.values()):
            raise ConfigError(f"{settings.prefix} inserts no field: set topic.field, static.field or another.")
        if self._fields["static"] and self._static is None:
            raise ConfigError(f"{settings.name('static.value')} is missing.")

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Change every key or value that is not null."""
        return where_set(batch, self._side, self._change)

    def _change(self, batch: EventBatch) -> list[EventBatch]:
        data = self._side.get(batch)
        schema = schema_of(data, "field insertion")
        if self._fields["offset"]:
            raise RecordError("Records of a source have no offset, which InsertField is to insert.")
        rows = len(batch)
        inserted: dict[str, tuple[ConnectSchema, pa.Array]] = {
            "topic": (ConnectSchema("string"), batch.topic),
            "partition": (ConnectSchema("int32"), _or_nulls(batch.partition, pa.int32(), rows)),
            "timestamp": (TIMESTAMP, _or_nulls(batch.timestamp, pa.int64(), rows)),
            "static": (ConnectSchema("string"), constant(self._static, ConnectSchema("string"), rows).values),
        }
        fields, columns = list(schema.fields), columns_of(data, defaults=self._defaults)
        for kind, (field, values) in inserted.items():
            where = self._fields[kind]
            if where is None:
                continue
            if values.null_count and not where.optional:
                raise RecordError(f"A record has no {kind} for the required field {where.name}.")
            fields.append((where.name, field.replace(optional=where.optional)))
            columns.append(values)
        return [self._side.put(batch, with_fields(basics(schema, fields), columns, rows))]


def _or_nulls(values: pa.Array | None, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, kind) if values is None else values.cast(kind)


class MaskField:
    """Replaces fields' values by an empty value of their type, or by ``replacement``; nulls remain."""

    def __init__(self, settings: Settings, side: Side) -> None:
        self._side = side
        self._fields = set(settings.items("fields", required=True))
        self._replacement = settings.get("replacement")
        self._defaults = settings.flag("replace.null.with.default", True)

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Change every key or value, which must be a struct."""
        data = self._side.get(batch)
        schema = schema_of(data, "masking fields")
        if not data.valid.all():
            raise RecordError("Only structs are supported for masking fields, found null.")
        columns = columns_of(data, defaults=self._defaults)
        for at, (name, field) in enumerate(schema.fields):
            if name in self._fields and columns[at].null_count < len(columns[at]):
                columns[at] = put(columns[at], columns[at].is_valid(), self._mask(name, field))
        return [self._side.put(batch, with_fields(schema, columns, len(batch)))]

    def _mask(self, name: str, field: ConnectSchema) -> Any:
        if field.name == _DECIMAL:
            return self._decimal(name, field)
        if self._replacement is None and field.type in _BLANK:
            return _BLANK[field.type]
        is_time = field.name in CONNECT_TIMES
        if self._replacement is None or is_time or field.type in ("boolean", "array", "map", "struct", "bytes"):
            raise RecordError(f"MaskField cannot mask {name}, whose type is {field.type}.")
        if field.type == "string":
            return self._replacement
        try:
            return self._number(field.type, self._replacement)
        except ValueError:
            raise RecordError(f"MaskField: the replacement is no {field.type}, which {name} is.") from None

    @staticmethod
    def _number(kind: str, text: str) -> int | float:
        """Convert as Java's BigDecimal: a fraction is cut off, and of a whole number the low bits are kept."""
        if not _DECIMAL_TEXT.fullmatch(text):
            raise ValueError(kind)
        if kind not in _NUMBERS:
            return float(text)
        bits = _NUMBERS[kind]
        value = int(Decimal(text)) & (1 << bits) - 1
        return value - (1 << bits) if value >> bits - 1 else value

    def _decimal(self, name: str, field: ConnectSchema) -> bytes:
        """Connect writes a decimal only if it has the schema's scale; a masked one has that of its text."""
        scale = int(dict(field.parameters).get("scale", "0"))
        digits, _, fraction = (self._replacement or "0").partition(".")
        try:
            unscaled = int(digits + fraction)
        except ValueError:
            raise RecordError(f"MaskField: the replacement is no decimal, which {name} is.") from None
        if len(fraction) != scale:
            raise RecordError(f"MaskField: {name} is a decimal of scale {scale}, the mask one of {len(fraction)}.")
        return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


class ValueToKey:
    """Replaces the key by a struct of fields of the value."""

    def __init__(self, settings: Settings) -> None:
        self._fields = settings.items("fields", required=True)
        self._defaults = settings.flag("replace.null.with.default", True)

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Replace every key; every value must be a struct."""
        schema = schema_of(batch.value, "copying fields from value to key")
        if not batch.value.valid.all():
            raise RecordError("Only structs are supported for copying fields from value to key, found null.")
        columns = columns_of(batch.value, defaults=self._defaults)
        chosen = [batch.value.index(name) for name in self._fields]
        missing = [name for name, at in zip(self._fields, chosen, strict=True) if at is None]
        if missing:
            raise RecordError(f"Field does not exist: {missing[0]}.")
        at = [index for index in chosen if index is not None]
        key = ConnectSchema("struct", fields=tuple(schema.fields[index] for index in at))
        return [replace(batch, key=with_fields(key, [columns[index] for index in at], len(batch)))]


class ExtractField:
    """Replaces the key or value by one of its fields; nulls remain null."""

    def __init__(self, settings: Settings, side: Side) -> None:
        self._side = side
        self._path = FieldPath.of(settings, "field")
        self._defaults = settings.flag("replace.null.with.default", True)

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Change every key or value."""
        data = self._side.get(batch)
        if data.schema is None:
            return [batch]
        schema_of(data, "field extraction")
        field = self._path.find(data)
        if field is None and data.schema is not None and data.schema.name == SCHEMALESS:
            return [self._side.put(batch, no_data(len(batch)))]
        if field is None:
            raise RecordError(f"Unknown field: {self._path.text}.")
        values = field.filled().values if self._defaults else field.values
        if self._defaults and field.values.null_count:
            # A null struct has no field, so no default either.
            values = values.take(pa.array(np.arange(len(values)), mask=~data.valid))
        return [self._side.put(batch, Data(field.schema, values))]


class HoistField:
    """Wraps the key or value into a struct with one field."""

    def __init__(self, settings: Settings, side: Side) -> None:
        self._side = side
        self._field = settings.text("field")

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Change every key or value, null ones included."""
        data = self._side.get(batch)
        if data.schema is None:
            # Connect makes a map without schema; its JSON is that of a struct with an optional field.
            inner = ConnectSchema("string", optional=True)
            outer = ConnectSchema("struct", name=SCHEMALESS, fields=((self._field, inner),))
            return [self._side.put(batch, with_fields(outer, [pa.nulls(len(batch), pa.large_string())], len(batch)))]
        if data.values.null_count and not data.schema.optional and not data.schema.has_default:
            raise RecordError(f"The {self._side.lower()} is null, and its schema is not optional.")
        # Around a value without a schema there is a map without one.
        name = SCHEMALESS if data.schema.name == SCHEMALESS else None
        schema = ConnectSchema("struct", name=name, fields=((self._field, data.schema),))
        return [self._side.put(batch, with_fields(schema, [data.values], len(batch)))]


def each(values: pa.Array, convert: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """Convert every distinct value of a column once; nulls remain null."""
    encoded = values.dictionary_encode()
    # row-wise: once per distinct value, for conversions that Arrow does not do as Java does
    made = [None if one is None else convert(one) for one in encoded.dictionary.to_pylist()]
    return pa.array(made, type=kind).take(encoded.indices)
