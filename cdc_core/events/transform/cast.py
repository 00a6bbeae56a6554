"""Cast: fields, or the whole key or value, as another primitive type."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import Data, EventBatch, arrow_type, default_of
from cdc_core.events.transform.fields import Side, basics, columns_of, schema_of, where_set, with_fields
from cdc_core.events.transform.java_text import CONNECT_TIMES, DECIMAL, connect_time, decimal_of, java_text
from cdc_core.events.transform.kafka_fields import each
from cdc_core.events.transform.settings import Settings
from cdc_core.schema import ConnectSchema

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_NAMES = {**{name: name for name in _BITS}, "float32": "float", "float64": "double", "boolean": "boolean"}
_NAMES["string"] = "string"
_FROM = (*_BITS, "float", "double", "boolean", "string", "bytes")
_FLOAT = re.compile(r"[+-]?(NaN|Infinity|((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)[fFdD]?)")


class Cast:
    """``spec``: ``field:type`` for fields of structs, or one type for the whole key or value."""

    def __init__(self, settings: Settings, side: Side) -> None:
        self._side = side
        self._fields: dict[str, str] = {}
        self._whole = ""
        for item in settings.items("spec", required=True):
            name, colon, kind = (part.strip() for part in item.rpartition(":"))
            if kind.lower() not in _NAMES or (colon and not name):
                raise ConfigError(
                    f"{settings.name('spec')}: {item!r} is not FIELD:TYPE with one of {', '.join(_NAMES)}."
                )
            if colon:
                self._fields[name] = _NAMES[kind.lower()]
            else:
                self._whole = _NAMES[kind.lower()]
        if self._whole and self._fields:
            raise ConfigError(f"{settings.name('spec')} casts fields and the whole {side.lower()}: keep one of them.")
        self._defaults = settings.flag("replace.null.with.default", True)

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Change every key or value that is not null."""
        return where_set(batch, self._side, self._change)

    def _change(self, batch: EventBatch) -> list[EventBatch]:
        data = self._side.get(batch)
        if self._whole:
            if data.schema is None:
                raise RecordError("Cast needs values with a schema.")
            return [self._side.put(batch, _cast(data, self._whole, whole=True))]
        schema = schema_of(data, "casting types")
        fields, columns = list(schema.fields), columns_of(data, defaults=self._defaults)
        for at, (name, field) in enumerate(schema.fields):
            if name in self._fields:
                made = _cast(Data(field, columns[at]), self._fields[name])
                fields[at], columns[at] = (name, made.connect_schema), made.values
        changed = basics(schema, fields).replace(optional=schema.optional)
        return [self._side.put(batch, with_fields(changed, columns, len(batch)))]


def _cast(data: Data, kind: str, *, whole: bool = False) -> Data:
    source = data.connect_schema
    if source.type not in _FROM:
        if data.valid.any():
            raise RecordError(f"Cast does not convert {source.type}.")
        return Data(ConnectSchema(kind, optional=source.optional), pa.nulls(len(data), arrow_type(ConnectSchema(kind))))
    convert = _converter(source, kind)
    target = ConnectSchema(kind, optional=source.optional)
    if whole:
        # Name and version of the whole key or value remain.
        target = target.replace(name=source.name, version=source.version, doc=source.doc, parameters=source.parameters)
    if source.has_default and source.default is not None:
        target = target.replace(default=_json(convert(default_of(source))), has_default=True)
    try:
        return Data(target, each(data.values, convert, arrow_type(target)))
    except (ValueError, OverflowError):
        raise RecordError(f"Cast: a value of type {source.type} is no {kind}.") from None


def _json(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def _converter(source: ConnectSchema, kind: str) -> Callable[[Any], Any]:
    if kind == "string":
        return lambda value: _text(value, source)
    if source.type == "bytes" and source.name != DECIMAL:
        return _refuse_bytes
    if kind == "boolean":
        return lambda value: value.lower() == "true" if isinstance(value, str) else _whole_of(value, source, 64) != 0
    if kind in _BITS:
        return lambda value: _whole_of(value, source, _BITS[kind])
    return lambda value: _float_of(value, source)


def _refuse_bytes(value: Any) -> Any:
    raise RecordError("Cast converts bytes to string only.")


def _text(value: Any, schema: ConnectSchema) -> str:
    if schema.name in CONNECT_TIMES:
        return connect_time(value, schema)
    if schema.type == "bytes" and schema.name != DECIMAL:
        return base64.b64encode(value).decode()
    return java_text(value, schema)


def _whole_of(value: Any, schema: ConnectSchema, bits: int) -> int:
    """Convert as Java's narrowing conversions: floats are cut to their range, integers to their low bits."""
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?\d+", value):
            raise ValueError(value)
        number = int(value)
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ValueError(value)
        return number
    if isinstance(value, bool):
        return int(value)
    if schema.name == DECIMAL:
        number = int(decimal_of(value, schema))
    elif isinstance(value, float):
        # By way of int for the smaller types, as in Java.
        size = 64 if bits == 64 else 32
        low, high = -(1 << size - 1), (1 << size - 1) - 1
        number = 0 if np.isnan(value) else high if value >= high else low if value <= low else int(value)
    else:
        number = value
    number &= (1 << bits) - 1
    return int(number - (1 << bits) if number >> (bits - 1) else number)


def _float_of(value: Any, schema: ConnectSchema) -> float:
    if isinstance(value, str):
        if not _FLOAT.fullmatch(value.strip()):
            raise ValueError(value)
        return float(value.strip().rstrip("fFdD") if value.strip()[-1:] in "fFdD" else value.strip())
    return float(decimal_of(value, schema) if schema.name == DECIMAL else value)
