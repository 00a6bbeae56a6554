"""Kafka's JsonConverter: JSON with schemas or without."""

from __future__ import annotations

import base64
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import RecordError
from cdc_core.events.envelope.batch import MISFITS, SCHEMALESS, TEXT, Data, EventBatch, Header, struct
from cdc_core.events.envelope.json import Parts, dumps, join, json_parts, texts
from cdc_core.events.envelope.record import schema_text
from cdc_core.events.envelope.uniform import is_uniform
from cdc_core.events.format.format import Placed
from cdc_core.events.transform.java_text import DECIMAL, decimal_of
from cdc_core.events.transform.kafka_fields import each
from cdc_core.events.transform.settings import Settings
from cdc_core.schema import ConnectSchema


class JsonFormat:
    """``schemas``: each value is an object of its schema and the payload."""

    suffix = ""
    shows_headers = True
    registers = False

    def __init__(self, settings: Settings, *, schemas: bool = True) -> None:
        self.schemas = settings.flag("schemas.enable", schemas)
        self._defaults = settings.flag("replace.null.with.default", True)
        self._numeric = settings.choice("decimal.format", ("BASE64", "NUMERIC"), "BASE64") == "NUMERIC"
        settings.get("schemas.cache.size")

    @property
    def is_default(self) -> bool:
        """Whether it writes what envelopes without an outlet contain."""
        return self.schemas and self._defaults and not self._numeric

    def encode(self, data: Data, batch: EventBatch) -> pa.Array:
        """Return JSON texts; null without schema and value."""
        if data.schema is None:
            return pa.nulls(len(data), TEXT)
        payload = self._payload_parts(data)
        if not self.schemas:
            return join(payload, len(data))
        return join([f'{{"schema":{self._schema_text(data.schema)},"payload":', *payload, "}"], len(data))

    def _schema_text(self, schema: ConnectSchema) -> str:
        if schema.name == SCHEMALESS:
            return "null"
        if not self._numeric:
            return schema_text(schema)
        # A decimal default is a number, too, with all its digits: it is inserted after the JSON was written.
        return _NUMBER.sub(r"\1", schema_text(_with_numbers(schema)))

    def payload(self, data: Data) -> pa.Array:
        """Return JSON texts without schemas. Raises RecordError for null where the schema does not permit it."""
        return join(self._payload_parts(data), len(data))

    def _payload_parts(self, data: Data) -> Parts:
        schema = data.connect_schema
        if schema.name in MISFITS:
            raise RecordError(_MISFIT)
        if data.values.null_count and not schema.optional and (schema.default is None or not self._defaults):
            raise RecordError(f"A value is null whose schema {schema.name or schema.type} is required.")
        if self._numeric:
            data = _numeric(data)
            schema = data.connect_schema
        return json_parts(data.values, schema if self._defaults else _without_defaults(schema))

    def shown(self, encoded: pa.Array) -> pa.Array:
        """Return the JSON itself."""
        return encoded

    def last_lines(self) -> list[Placed]:
        """Return nothing."""
        return []

    def header_list(self, headers: tuple[Header, ...], rows: int) -> pa.Array:
        """Return every record's headers as the text of a JSON list."""
        if not headers:
            return pa.repeat(pa.scalar("[]", TEXT), rows)
        if all(header.present is None for header in headers):
            return join(["[", *self._header_parts(headers), "]"], rows)
        parts = []
        for header in headers:
            text = join([f',{{"key":{dumps(header.key)},"value":', self._header_value(header.data), "}"], rows)
            absent = None if header.present is None else ~header.present
            parts.append(text if absent is None else pc.if_else(pa.array(absent), pa.scalar("", TEXT), text))
        return join(["[", pc.replace_substring_regex(join(parts, rows), "^,", ""), "]"], rows)

    def _header_parts(self, headers: tuple[Header, ...]) -> Parts:
        parts: Parts = []
        for index, header in enumerate(headers):
            values = header.data.values
            # Most headers are the same in all records.
            one = Data(header.data.schema, values.slice(0, 1)) if is_uniform(values) else header.data
            text = self._header_value(one)
            start = f'{"," if index else ""}{{"key":{dumps(header.key)},"value":'
            parts += [start, text if one is header.data else str(text[0].as_py()), "}"]
        return parts

    def _header_value(self, data: Data) -> pa.Array:
        if data.schema is None:
            return pa.repeat(pa.scalar("null", TEXT), len(data))
        payload = pc.fill_null(texts(data.values, data.schema), "null")
        if not self.schemas:
            return payload
        return join([f'{{"schema":{schema_text(data.schema)},"payload":', payload, "}"], len(data))


_MISFIT = "A JSON text was to be expanded, but its value has no single type."

# Marks a number that is inserted into JSON unquoted, by a text that no default contains.
_NUMBER = re.compile(r'"\\u0000([-0-9.E+]+)\\u0000"')


def _with_numbers(schema: ConnectSchema) -> ConnectSchema:
    default = schema.default
    if schema.name == DECIMAL and default is not None:
        default = f"\0{decimal_of(base64.b64decode(default), schema)}\0"
    return schema.replace(
        default=default,
        fields=tuple((name, _with_numbers(field)) for name, field in schema.fields),
        items=None if schema.items is None else _with_numbers(schema.items),
    )


def _without_defaults(schema: ConnectSchema) -> ConnectSchema:
    return schema.replace(
        default=None,
        has_default=False,
        fields=tuple((name, _without_defaults(field)) for name, field in schema.fields),
        items=None if schema.items is None else _without_defaults(schema.items),
    )


def _numeric(data: Data) -> Data:
    """Replace decimals by their digits, under a schema whose values are written as they are."""
    schema = data.connect_schema
    if schema.name == DECIMAL:
        numbers = each(data.values, lambda value: str(decimal_of(value, schema)), TEXT)
        if schema.default is not None:
            numbers = pc.fill_null(numbers, str(decimal_of(base64.b64decode(schema.default), schema)))
        return Data(ConnectSchema("number", optional=schema.optional), numbers)
    if schema.type == "struct":
        parts = [
            _numeric(Data(field, column)) for (_, field), column in zip(schema.fields, data.columns(), strict=True)
        ]
        fields = tuple((name, part.schema or schema) for (name, _), part in zip(schema.fields, parts, strict=True))
        return struct(schema.replace(fields=fields), [part.values for part in parts], data.valid)
    if schema.type == "array" and _has_decimals(schema.element):
        offsets = np.zeros(len(data) + 1, dtype=np.int64)
        np.cumsum(pc.fill_null(pc.list_value_length(data.values), 0).to_numpy(), out=offsets[1:])
        items = _numeric(Data(schema.element, data.values.flatten()))
        mask = None if data.valid.all() else pa.array(~data.valid)
        lists = pa.LargeListArray.from_arrays(pa.array(offsets), items.values, mask=mask)
        return Data(schema.replace(items=items.schema), lists)
    return data


def _has_decimals(schema: ConnectSchema) -> bool:
    inner = [field for _, field in schema.fields] + ([] if schema.items is None else [schema.items])
    return schema.name == DECIMAL or any(_has_decimals(one) for one in inner)
