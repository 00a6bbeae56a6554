"""The texts of keys, as PostgreSQL prints them: what a comparison names, and what a repair reads rows by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.lake.compare.differences import KeyList
from cdc_core.lake.names import RESCUED
from cdc_core.lake.rows.images import column, texts_of
from cdc_core.lake.rows.row_keys import KeyColumns
from cdc_core.schema import Key, PgType, TypeKind

_WITH_TEXT = {
    *("bool", "int2", "int4", "int8", "oid", "numeric", "float4", "float8", "text", "varchar", "bpchar", "name"),
    *("citext", "uuid", "date", "timestamp", "timestamptz", "bytea", "inet", "cidr", "macaddr", "macaddr8", "ltree"),
}
# The lake's type of numeric without precision and scale (``types/numeric``).
_ANY_NUMERIC = pa.decimal128(38, 18)
_QUOTED = frozenset('",\\{} \t\n\r\v\f')


def key_list(keys: pa.Table, columns: KeyColumns, limit: int) -> KeyList:
    """Return the number of keys and the texts of the first ``limit`` of them, in the order of their texts."""
    texts = sorted(key_texts(keys, columns), key=_order)
    return KeyList(keys.num_rows, tuple(texts[:limit]))


def key_texts(keys: pa.Table, columns: KeyColumns) -> list[Key]:
    """Return the texts of each key. Shape: table[K] with the columns of ``columns.read`` -> K keys"""
    rescued = texts_of(column(keys, RESCUED)) if RESCUED in keys.schema.names else {}
    lists: list[Sequence[str | None]] = []
    for name in columns.names:
        shown, texts = _texts(column(keys, name)), rescued.get(name)
        if texts is not None:
            shown = [other or own for own, other in zip(shown, texts.to_pylist(), strict=True)]
        lists.append(shown)
    return list(zip(*lists, strict=True)) if lists else [()] * keys.num_rows


def has_text(kind: PgType) -> bool:
    """Whether ``key_texts`` of a type's values are texts that PostgreSQL reads as these values."""
    if kind.kind in (TypeKind.DOMAIN, TypeKind.ARRAY):
        return kind.inner is not None and has_text(kind.inner)
    return kind.kind is TypeKind.ENUM or kind.name in _WITH_TEXT


def _order(key: Key) -> tuple[tuple[int, int, str], ...]:
    return tuple((len(text or "") if _is_digits(text) else 1 << 30, 0, text or "") for text in key)


def _is_digits(text: str | None) -> bool:
    return text is not None and text.isdigit()


def _texts(values: pa.Array) -> list[str | None]:
    if pa.types.is_floating(values.type):
        return [None if value is None else _float(value) for value in values.to_numpy(zero_copy_only=False)]
    if pa.types.is_map(values.type):
        return [None if value is None else _pairs(value) for value in values.to_pylist()]
    if values.type == _ANY_NUMERIC:
        # The places of the type are not those of the column, which has none.
        return [None if value is None else _without_zeros(_text(value) or "") for value in values.to_pylist()]
    try:
        return [_text(value) for value in values.to_pylist()]  # row-wise: keys of rows that differ
    except (ValueError, OverflowError):  # a year that Python's types cannot represent
        texts: list[str | None] = values.cast(pa.string()).to_pylist()
        return texts


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _text(value: Any) -> str | None:  # noqa: PLR0911 - one per kind of value
    """Return one value's text under the session settings of every connection (``postgres/connection``)."""
    match value:
        case None:
            return None
        case bool():
            return "t" if value else "f"
        case bytes():
            return "\\x" + value.hex()
        case datetime():
            return _moment(value)
        case time():
            return _fraction(value.strftime("%H:%M:%S"), value.microsecond)
        case date():
            return value.isoformat()
        case float():
            return _float(value)
        case Decimal():
            return format(value, "f")
        case timedelta():
            return str(value)
        case list():
            return "{" + ",".join(_element(element) for element in value) + "}"
        case _:
            return str(value)


def _moment(value: datetime) -> str:
    text = _fraction(value.strftime("%H:%M:%S"), value.microsecond)
    return f"{value.date().isoformat()} {text}" + ("+00" if value.tzinfo is not None else "")


def _fraction(text: str, micros: int) -> str:
    return text if not micros else f"{text}.{micros:06d}".rstrip("0")


def _float(value: np.floating[Any] | float) -> str:
    """Return the shortest text of a float of 64 or 32 bits, with an exponent where PostgreSQL prints one."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = np.format_float_scientific(value, trim="-", exp_digits=2)
    exponent = int(text.partition("e")[2])
    is_plain = -4 <= exponent < (6 if isinstance(value, np.float32) else 15)
    return np.format_float_positional(value, trim="-") if is_plain else text


def _pairs(entries: Sequence[tuple[str, str | None]]) -> str:
    """Return the text of an hstore."""
    return ", ".join(f"{_quoted(key)}=>{'NULL' if text is None else _quoted(text)}" for key, text in entries)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _element(value: Any) -> str:
    text = _text(value)
    if text is None:
        return "NULL"
    if isinstance(value, list):
        return text
    if not text or text.upper() == "NULL" or _QUOTED & set(text):
        return _quoted(text)
    return text
