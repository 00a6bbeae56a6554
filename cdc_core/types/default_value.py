"""A column's default expression as Debezium reads it into the event schema.

``pg_get_expr`` prints a default as SQL. Debezium evaluates nothing: a call (``now()``, ``nextval('s'::regclass)``, a
``CURRENT_TIMESTAMP``) becomes a fixed placeholder of the type, anything with a quote becomes the first literal in it,
anything else is read unchanged; if that cannot be read there is no default. So a generated column ``lower(name)`` has
the default ``""`` and ``(a || ' '::text)`` the default ``" "``: these are reproduced in the schema. Only the types in
``_READERS`` and enums have defaults. Domains, arrays, citext, bytea, money and the rest have none, and neither has a
value that is a struct (numeric without a scale in precise mode).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from cdc_core.schema import Column, PgType, TypeKind
from cdc_core.types import semantic
from cdc_core.types.codec import EventConverter
from cdc_core.types.typmod import event_scale, numeric_precision_scale

DefaultValue = Callable[[str], Any]
# Converts the plain literal to the text that the server would send for it, or None if it cannot be read.
_Reader = Callable[[str, Column], str | None]

_CALL = re.compile(r"\(?[A-Za-z0-9_.]+\([^\n\r]*\)")
_LITERAL = re.compile(r"'((?:[^']|'')*)'")
_CLOCKS = frozenset({"current_timestamp", "current_time", "current_date", "localtime", "localtimestamp"})
_MOMENT = re.compile(
    r"(?P<day>\d{4,}-\d\d-\d\d)(?: (?P<time>\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?"
    r"(?P<zone>[+-]\d\d(?::\d\d){0,2})?(?P<era> BC)?"
)
_INTEGER_BITS = {"int2": 16, "int4": 32, "int8": 64}


def with_default(column: Column, event: EventConverter) -> DefaultValue:
    """Return ``default_value`` of an event representation: expression → Python value of its Arrow type, or None."""
    if column.type.kind is TypeKind.ENUM:
        return lambda expression: _enum_label(expression, column.type)
    reader = _READERS.get(column.type.name)
    known = column.type.kind is TypeKind.BASE and column.type.namespace == "pg_catalog"
    if reader is None or not known or pa.types.is_struct(event.arrow_type):
        return lambda expression: None
    placeholder, read = reader

    def default_value(expression: str) -> Any:
        literal = _literal(expression if column.type.name in _KEEPS_BLANKS else expression.strip(), placeholder)
        if literal is None:
            return None
        if column.type.name in ("bit", "varbit"):
            return _bits(literal, column, event)
        if literal in _BEYOND and column.type.name in _CLOCK_TYPES:
            return _beyond(literal, event)
        text = read(literal, column)
        if text is None:
            return None
        converted = event.convert(pa.array([text], pa.string()))
        return converted.values[0].as_py()  # a bad value is null, and null is no default

    return default_value


def _literal(expression: str, placeholder: str) -> str | None:
    if _CALL.match(expression) or expression.lower() in _CLOCKS:
        return placeholder
    if "'" not in expression:
        return None if expression.startswith("NULL::") else expression
    found = _LITERAL.search(expression)
    return found.group(1).replace("''", "'") if found else None


def _enum_label(expression: str, pg_type: PgType) -> str | None:
    """Return the label in ``'ok'::inventory.mood``; None unless it is a plain literal cast to this type."""
    literal, cast, name = expression.rpartition("::")
    parts = [part.strip('"').replace('""', '"') for part in re.findall(r'"(?:[^"]|"")*"|[^.]+', name)]
    if not cast or not parts or parts[-1] != pg_type.name:
        return None
    if len(parts) > 1 and parts[0] != pg_type.namespace:
        return None
    if len(literal) < 2 or not (literal.startswith("'") and literal.endswith("'")):
        return None
    return literal[1:-1]


def _bits(literal: str, column: Column, event: EventConverter) -> Any:
    """Return a bit default: Debezium reads a single digit as a boolean, which becomes one byte in a longer column."""
    if not literal or literal.strip("01"):
        return None
    number = int(literal, 2)
    if pa.types.is_boolean(event.arrow_type):
        return number != 0
    if len(literal) == 1 and column.type.name == "bit":
        return bytes([number])
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def _beyond(literal: str, event: EventConverter) -> Any:
    """Return the value of the driver's largest and smallest dates and timestamps, and of its last moment of a day.

    Days are truncated to 32 bits; microseconds are limited to the largest 64-bit number, to which the fraction is then
    added.
    """
    return _BEYOND[literal].get(event.schema.name or "")


def _same(literal: str, column: Column) -> str | None:
    return literal


def _boolean(literal: str, column: Column) -> str | None:
    return "t" if literal.lower() == "true" else "f"


def _integer(literal: str, column: Column) -> str | None:
    if not re.fullmatch(r"[+-]?[0-9]+", literal):
        return None
    number, bits = int(literal), _INTEGER_BITS[column.type.name]
    return str(number) if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _float(literal: str, column: Column) -> str | None:
    try:
        float(literal)
    except ValueError:
        return None
    return None if "_" in literal else literal


def _numeric(literal: str, column: Column) -> str | None:
    """Return plain digits at the column's scale. A literal with more decimals than the column has is no default."""
    try:
        number = Decimal(literal)
    except InvalidOperation:
        return None
    if not number.is_finite():
        return None
    declared = numeric_precision_scale(column.modifier)
    if declared is None:
        return f"{number:f}"
    scale = event_scale(declared[1])
    _, digits, exponent = number.as_tuple()
    significant = "".join(map(str, digits)).rstrip("0")
    if significant and isinstance(exponent, int) and len(digits) - len(significant) + exponent + scale < 0:
        return None
    return f"{number:.{scale}f}"


def _date(literal: str, column: Column) -> str | None:
    found = _MOMENT.fullmatch(literal)
    return f"{found['day']}{found['era'] or ''}" if found else None


def _time(literal: str, column: Column) -> str | None:
    if not re.fullmatch(r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?", literal):
        return None
    return _seconds(literal)


def _timestamp(literal: str, column: Column) -> str | None:
    found = _MOMENT.fullmatch(literal)
    if not found:
        return None
    zone = (found["zone"] or "+00") if column.type.name == "timestamptz" else ""
    return f"{found['day']} {_seconds(found['time'] or '00:00')}{zone}{found['era'] or ''}"


def _interval(literal: str, column: Column) -> str | None:
    return "00:00:00" if literal == "epoch" else literal


def _seconds(time: str) -> str:
    return time if len(time) > 5 else time + ":00"


# Type name → (value for a call, how the literal is read).
_READERS: dict[str, tuple[str, _Reader]] = {
    "bit": ("00", _same),
    "varbit": ("0", _same),
    "bool": ("false", _boolean),
    "bpchar": ("", _same),
    "varchar": ("", _same),
    "text": ("", _same),
    "numeric": ("0.0", _numeric),
    "float4": ("0.0", _float),
    "float8": ("0.0", _float),
    "int2": ("0", _integer),
    "int4": ("0", _integer),
    "int8": ("0", _integer),
    "json": ("{}", _same),
    "jsonb": ("{}", _same),
    "xml": ("", _same),
    "uuid": ("00000000-0000-0000-0000-000000000000", _same),
    "date": ("1970-01-01", _date),
    "time": ("00:00", _time),
    "timestamp": ("1970-01-01", _timestamp),
    "timestamptz": ("1970-01-01", _timestamp),
    "interval": ("epoch", _interval),
}
# Literal → the default with each schema. Any other schema has none.
_BEYOND: dict[str, dict[str, int | str]] = {
    "infinity": {
        semantic.DATE: 169560311,
        semantic.CONNECT_DATE: 169560311,
        semantic.ISO_DATE: "+999999999-12-31Z",
        semantic.MICRO_TIMESTAMP: -9223372036853775810,
        semantic.ISO_TIMESTAMP: "+999999999-12-31T23:59:59.999999999Z",
    },
    "-infinity": {
        semantic.DATE: -170999002,
        semantic.CONNECT_DATE: -170999002,
        semantic.ISO_DATE: "-999999999-01-01Z",
        semantic.MICRO_TIMESTAMP: -9223372036854775808,
        semantic.ISO_TIMESTAMP: "-999999999-01-01T00:00:00Z",
    },
    "24:00:00": {
        semantic.TIME: 86399999,
        semantic.CONNECT_TIME: 86399999,
        semantic.MICRO_TIME: 86399999999,
        semantic.NANO_TIME: 86399999999999,
        semantic.ISO_TIME: "23:59:59.999999999Z",
    },
}
_CLOCK_TYPES = frozenset({"date", "time", "timestamp", "timestamptz"})
_KEEPS_BLANKS = frozenset({"bpchar", "varchar", "text", "json", "jsonb", "xml"})
