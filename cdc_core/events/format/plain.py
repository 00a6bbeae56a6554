"""Kafka's StringConverter and the converters of bytes."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import SCHEMALESS, TEXT, Data, EventBatch, default_of
from cdc_core.events.envelope.json import quoted
from cdc_core.events.format.format import Placed, in_line
from cdc_core.events.format.json_format import JsonFormat
from cdc_core.events.transform.java_text import CONNECT_TIMES, DECIMAL, connect_time, java_text
from cdc_core.events.transform.settings import Settings
from cdc_core.schema import ConnectSchema


class StringFormat:
    """Writes what Java's ``toString`` returns: texts as they are, structs as ``Struct{id=1,name=x}``."""

    suffix = ""
    shows_headers = True
    registers = False

    def __init__(self, settings: Settings) -> None:
        encoding = settings.text("converter.encoding", "UTF-8")
        if encoding.upper().replace("-", "") != "UTF8":
            raise ConfigError(f"{settings.name('converter.encoding')} is {encoding}: wal2lake writes only UTF-8.")

    def encode(self, data: Data, batch: EventBatch) -> pa.Array:
        """Return texts."""
        schema = data.schema
        if schema is None:
            return pa.nulls(len(data), TEXT)
        if schema.type == "string":
            return data.values.cast(TEXT)
        # row-wise: Java's text of a struct differs by row, and this format is for keys of one field
        return pa.array([None if one is None else _text(one, schema) for one in data.values.to_pylist()], type=TEXT)

    def shown(self, encoded: pa.Array) -> pa.Array:
        """Return JSON strings."""
        return in_line(encoded)

    def last_lines(self) -> list[Placed]:
        """Return nothing."""
        return []


class BytesFormat:
    """Writes bytes as they are, and other types by ``delegate``. Lines contain base64, or the delegate's JSON.

    ``takes_buffers``: bytes without a logical type are written as they are, too. Debezium has them as ByteBuffer, which
    its ByteArrayConverter leaves to the delegate.
    """

    suffix = ""
    shows_headers = True
    registers = False

    def __init__(self, delegate: JsonFormat | None, *, takes_buffers: bool = True) -> None:
        self._delegate = delegate
        self._takes_buffers = takes_buffers

    def encode(self, data: Data, batch: EventBatch) -> pa.Array:
        """Return bytes, or the delegate's texts."""
        schema = data.schema
        if schema is None:
            return pa.nulls(len(data), pa.large_binary())
        is_buffer = schema.name is None and data.valid.any()
        if schema.type == "bytes" and schema.name != DECIMAL and (self._takes_buffers or not is_buffer):
            return data.values.cast(pa.large_binary())
        if self._delegate is None:
            raise RecordError(f"A converter of bytes cannot write {schema.type}.")
        encoded = self._delegate.encode(data, batch)
        if schema.type == "bytes" and data.values.null_count:
            return pc.if_else(pa.array(data.valid), encoded, pa.scalar(None, encoded.type))
        return encoded

    def shown(self, encoded: pa.Array) -> pa.Array:
        """Return base64 in JSON strings, or the delegate's JSON."""
        return in_line(encoded) if pa.types.is_large_binary(encoded.type) else encoded

    def last_lines(self) -> list[Placed]:
        """Return nothing."""
        return []


class NumberFormat:
    """Writes values of one primitive type as their bytes. Lines contain base64."""

    suffix = ""
    shows_headers = True
    registers = False

    def __init__(self, kind: str, octets: str) -> None:
        self._kind = kind
        self._octets = np.dtype(octets)

    def encode(self, data: Data, batch: EventBatch) -> pa.Array:
        """Return bytes; nulls remain null, of any type."""
        if not data.valid.any():
            return pa.nulls(len(data), pa.large_binary())
        if data.schema is None or data.schema.type != self._kind:
            raise RecordError(
                f"A converter of {self._kind} cannot write {data.schema.type if data.schema else 'null'}."
            )
        values = data.values.fill_null(False if self._kind == "boolean" else 0).to_numpy(zero_copy_only=False)
        size = self._octets.itemsize
        raw = pa.py_buffer(np.ascontiguousarray(values.astype(self._octets)))
        made = pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(data), [None, raw])
        return pc.if_else(pa.array(data.valid), made.cast(pa.large_binary()), pa.scalar(None, pa.large_binary()))

    def shown(self, encoded: pa.Array) -> pa.Array:
        """Return base64 in JSON strings."""
        return in_line(encoded)

    def last_lines(self) -> list[Placed]:
        """Return nothing."""
        return []


class TextHeaders(JsonFormat):
    """Headers as texts: by Connect's SimpleHeaderConverter or, with ``java``, as Java's ``toString`` returns them."""

    def __init__(self, settings: Settings, *, java: bool = False) -> None:
        settings.get("converter.encoding")
        super().__init__(settings, schemas=False)
        self._made = _text if java else connect_text

    @property
    def is_default(self) -> bool:
        """Never: the default are headers with schemas."""
        return False

    def _header_value(self, data: Data) -> pa.Array:
        schema = data.schema
        if schema is None or schema.type == "string":
            return super()._header_value(data)
        if schema.type in ("boolean", "int8", "int16", "int32", "int64") and schema.name not in CONNECT_TIMES:
            made = data.values.cast(TEXT)
        else:
            # row-wise: texts of structs, lists and floats are Java's, and headers rarely have them
            rows = data.values.to_pylist()
            made = pa.array([None if item is None else self._made(item, schema) for item in rows], type=TEXT)
        return pc.fill_null(quoted(made), "null")


def connect_text(value: Any, schema: ConnectSchema, *, is_inner: bool = False) -> str:
    """Return what Connect's ``Values.convertToString`` does; texts within lists and structs are quoted."""
    if value is None:
        return "null"
    if schema.type in ("struct", "array", "map"):
        return _nested_text(value, schema)
    if schema.name in CONNECT_TIMES:
        return connect_time(value, schema)
    if schema.type == "bytes" and schema.name != DECIMAL:
        text = base64.b64encode(value).decode()
    elif schema.type == "string":
        text = value.replace("\\", "\\\\").replace('"', '\\"') if is_inner else value
    else:
        return java_text(value, schema)
    return f'"{text}"' if is_inner else text


def _nested_text(value: Any, schema: ConnectSchema) -> str:
    inner = partial(connect_text, is_inner=True)
    if schema.type == "struct":
        # Fields as Struct.get returns them: with the default of their schema.
        values = {name: default_of(field) if value[name] is None else value[name] for name, field in schema.fields}
        return "{" + ",".join(f'"{name}":{inner(values[name], field)}' for name, field in schema.fields) + "}"
    items = schema.element
    if schema.type == "array":
        return "[" + ",".join(inner(item, items) for item in value) + "]"
    keys = schema.map_key
    return "{" + ",".join(f"{inner(item, keys)}:{inner(mapped, items)}" for item, mapped in value) + "}"


def _text(value: Any, schema: ConnectSchema) -> str:
    if schema.name == SCHEMALESS and schema.type == "struct":
        return "{" + ", ".join(f"{name}={_or_null(value[name], field)}" for name, field in schema.fields) + "}"
    if schema.type == "struct":
        # Java leaves fields out that are null.
        shown = (f"{name}={_text(value[name], field)}" for name, field in schema.fields if value[name] is not None)
        return "Struct{" + ",".join(shown) + "}"
    if schema.type == "array":
        items = schema.element
        return "[" + ", ".join(_or_null(item, items) for item in value) + "]"
    if schema.type == "map":
        items, keys = schema.element, schema.map_key
        pairs = (f"{_text(item, keys)}={_or_null(mapped, items)}" for item, mapped in value)
        return "{" + ", ".join(pairs) + "}"
    if schema.type == "bytes" and schema.name != DECIMAL:
        return f"java.nio.HeapByteBuffer[pos=0 lim={len(value)} cap={len(value)}]"
    return java_text(value, schema)


def _or_null(value: Any, schema: ConnectSchema) -> str:
    return "null" if value is None else _text(value, schema)
