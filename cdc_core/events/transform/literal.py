"""The value that Connect reads from a text (``Values.parseString``): null, booleans, numbers, times and strings."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np

from cdc_core.errors import ConfigError
from cdc_core.schema import ConnectSchema

_DECIMAL = re.compile(r"[+-]?\d+\.?\d*([eE][+-]?\d{1,3})?")
_SIZES = (("int8", 7), ("int16", 15), ("int32", 31), ("int64", 63))
_CONNECT = "org.apache.kafka.connect.data."
_DATE, _CLOCK = r"(\d{4})-(\d{2})-(\d{2})", r"(\d{2}):(\d{2}):(\d{2})\.(\d{3})Z"
_TIMES = (
    (re.compile(_DATE), ConnectSchema("int32", name=f"{_CONNECT}Date", version=1)),
    (re.compile(_CLOCK), ConnectSchema("int32", name=f"{_CONNECT}Time", version=1)),
    (re.compile(f"{_DATE}T{_CLOCK}"), ConnectSchema("int64", name=f"{_CONNECT}Timestamp", version=1)),
)
_DAY = 86_400_000


def parse_literal(text: str, name: str) -> tuple[ConnectSchema | None, Any]:
    """Return the schema and the value, as a Python value of the schema's Arrow type; null has no schema.

    Raises ConfigError with the property's name for a list or a map, which wal2lake does not read.
    """
    bare = text.strip()
    if bare in ("true", "false"):
        return ConnectSchema("boolean"), bare == "true"
    if bare == "null":
        return None, None
    if bare.startswith(("[", "{")):
        raise ConfigError(f"{name} is a list or a map, which wal2lake does not read.")
    return _number(bare) or _time(bare) or (ConnectSchema("string"), text)


def _number(text: str) -> tuple[ConnectSchema, Any] | None:
    """Return the smallest integer that has the value, else a float, a double, or a decimal."""
    if not _DECIMAL.fullmatch(text):
        return None
    exact = Decimal(text)
    _, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    if exact == exact.to_integral_value():
        value = int(exact)
        kind = next((kind for kind, bits in _SIZES if -(1 << bits) <= value < 1 << bits), None)
        if kind is not None:
            return ConnectSchema(kind), value
    if exponent != 0:
        with np.errstate(over="ignore"):
            single = float(np.float32(float(text)))
        if np.isfinite(single):
            return ConnectSchema("float"), single
        if np.isfinite(float(text)):
            return ConnectSchema("double"), float(text)
    unscaled = int("".join(map(str, digits))) * (-1 if exact < 0 else 1)
    parameters = (("scale", str(-exponent)),)
    schema = ConnectSchema("bytes", name=f"{_CONNECT}Decimal", version=1, parameters=parameters)
    return schema, unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


def _time(text: str) -> tuple[ConnectSchema, Any] | None:
    """Return a date, time or timestamp. As Java's, it is lenient: the 45th of a 13th month is a day, too."""
    for pattern, schema in _TIMES:
        match = pattern.fullmatch(text)
        if match is None:
            continue
        parts = [int(part) for part in match.groups()]
        day = _day(*parts[:3]) if len(parts) != 4 else 0
        clock = parts[-4:] if len(parts) > 3 else [0, 0, 0, 0]
        millis = ((clock[0] * 60 + clock[1]) * 60 + clock[2]) * 1000 + clock[3]
        return schema, day if len(parts) == 3 else day * _DAY + millis
    return None


def _day(year: int, month: int, day: int) -> int:
    """Return days since 1970, with any month and day."""
    first = date(max(1, year + (month - 1) // 12), (month - 1) % 12 + 1, 1)
    return (first - date(1970, 1, 1)).days + day - 1
