"""Values as Java's ``toString`` writes them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

from cdc_core.events.transform.date_format import DateFormat
from cdc_core.schema import ConnectSchema

DECIMAL = "org.apache.kafka.connect.data.Decimal"


CONNECT_TIMES = frozenset(f"org.apache.kafka.connect.data.{name}" for name in ("Date", "Time", "Timestamp"))
_DAY = 86_400_000
_DATE_TO_STRING = DateFormat("EEE MMM dd HH:mm:ss z yyyy", "")
_TIME = DateFormat("HH:mm:ss.SSS'Z'", "")
_DATE = DateFormat("yyyy-MM-dd", "")
_TIMESTAMP = DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "")


def connect_millis(value: int, schema: ConnectSchema) -> int:
    """Return the milliseconds of a date, time or timestamp of Connect's, which is a ``java.util.Date`` there."""
    return value * _DAY if (schema.name or "").endswith("Date") else value


def connect_time(value: int, schema: ConnectSchema) -> str:
    """Return a date, time or timestamp of Connect's as ISO text; its milliseconds decide which, as in Connect."""
    millis = connect_millis(value, schema)
    if millis < _DAY:
        return _TIME.text(millis)
    return (_DATE if millis % _DAY == 0 else _TIMESTAMP).text(millis)


def java_double(value: float, *, single: bool = False) -> str:
    """Return ``Double.toString`` or, if ``single``, ``Float.toString``: 1.0, 1.0E10, NaN."""
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    shortest = str(np.float32(value)) if single else repr(float(value))
    sign, digits, exponent = Decimal(shortest).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)  # the number is 0.DIGITS x 10^point
    minus = "-" if sign else ""
    if text == "0":
        return f"{minus}0.0"
    if -3 < point <= 7:
        whole = text[:point].ljust(point, "0") if point > 0 else "0"
        fraction = text[point:] if point > 0 else "0" * -point + text
        return f"{minus}{whole}.{fraction or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def decimal_of(value: bytes, schema: ConnectSchema) -> Decimal:
    """Return the decimal that Connect stores as bytes, with all its digits."""
    scale = int(dict(schema.parameters).get("scale", "0"))
    number = int.from_bytes(value, "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def java_text(value: Any, schema: ConnectSchema) -> str:
    """Return ``toString`` of a number, boolean, decimal, time of Connect's or text."""
    if schema.name in CONNECT_TIMES:
        return _DATE_TO_STRING.text(connect_millis(value, schema))
    if schema.type in ("float", "double"):
        return java_double(value, single=schema.type == "float")
    if schema.type == "boolean":
        return "true" if value else "false"
    if schema.name == DECIMAL:
        return str(decimal_of(value, schema))
    return str(value)
