"""The value that Connect reads from a text (``Values.parseString``): null, booleans, numbers, times and strings."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from cdc_core.errors import ConfigError
from cdc_core.schema.connect import ConnectSchema

_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_SIZES = (("int8", 7), ("int16", 15), ("int32", 31), ("int64", 63))
_TIMES = {
    re.compile(r"\d{4}-\d{2}-\d{2}"): ("org.apache.kafka.connect.data.Date", "int32", "%Y-%m-%d", 86_400_000),
    re.compile(r"\d{2}:\d{2}:\d{2}\.\d{3}Z"): ("org.apache.kafka.connect.data.Time", "int32", "%H:%M:%S.%fZ", 1),
    re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z"): (
        "org.apache.kafka.connect.data.Timestamp",
        "int64",
        "%Y-%m-%dT%H:%M:%S.%fZ",
        1,
    ),
}


def parse_literal(text: str, name: str) -> tuple[ConnectSchema, Any]:
    """Return the schema and the value, as a Python value of the schema's Arrow type.

    Raises ConfigError with the property's name for a list or a map, which wal2lake does not read.
    """
    bare = text.strip()
    if bare in ("true", "false"):
        return ConnectSchema("boolean"), bare == "true"
    if bare == "null":
        return ConnectSchema("string", optional=True), None
    if bare.startswith(("[", "{")):
        raise ConfigError(f"{name} is a list or a map, which wal2lake does not read.", "Write it in double quotes.")
    if len(bare) >= 2 and bare.startswith('"') and bare.endswith('"'):
        quoted = re.sub(r"\\(.)", r"\1", bare[1:-1])
        return _time(quoted) or (ConnectSchema("string"), quoted)
    return _number(bare) or _time(bare) or (ConnectSchema("string"), text)


def _number(text: str) -> tuple[ConnectSchema, Any] | None:
    if not _DECIMAL.fullmatch(text):
        return None
    exact = Decimal(text)
    if exact == exact.to_integral_value():
        value = int(exact)
        fits = (kind for kind, bits in _SIZES if -(1 << bits) <= value < 1 << bits)
        kind = next(fits, None)
        return (ConnectSchema(kind), value) if kind else _decimal(value)
    single = float(np.float32(float(text)))
    return (ConnectSchema("float"), single) if np.isfinite(single) else (ConnectSchema("double"), float(text))


def _decimal(value: int) -> tuple[ConnectSchema, Any]:
    name = "org.apache.kafka.connect.data.Decimal"
    schema = ConnectSchema("bytes", name=name, version=1, parameters=(("scale", "0"),))
    return schema, value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)


def _time(text: str) -> tuple[ConnectSchema, Any] | None:
    for pattern, (name, kind, form, unit) in _TIMES.items():
        if pattern.fullmatch(text):
            try:
                at = datetime.strptime(text, form).replace(tzinfo=UTC)
            except ValueError:
                return None
            epoch = datetime(1900 if kind == "int32" and unit == 1 else 1970, 1, 1, tzinfo=UTC)
            millis = round((at - epoch).total_seconds() * 1000)
            return ConnectSchema(kind, name=name, version=1), millis // unit
    return None
