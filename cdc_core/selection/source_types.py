"""A column's type as described by JDBC: used and propagated by Debezium's column mappers.

The numbers are those of PostgreSQL's JDBC driver (TypeInfoCache.getPrecision, getScale, getDisplaySize), which
Debezium's ColumnMetaData uses.
"""

from __future__ import annotations

from typing import NamedTuple

from cdc_core.schema import Column, PgType, TypeKind

UNBOUNDED = 2**31 - 1
_NUMERIC_DISPLAY_SIZE = 131_089

_INT2, _INT4, _INT8, _OID, _FLOAT4, _FLOAT8, _NUMERIC = 21, 23, 20, 26, 700, 701, 1700
_BOOL, _CHAR, _BPCHAR, _VARCHAR, _TEXT, _NAME, _BIT, _VARBIT = 16, 18, 1042, 1043, 25, 19, 1560, 1562
_DATE, _TIME, _TIMETZ, _TIMESTAMP, _TIMESTAMPTZ, _INTERVAL = 1082, 1083, 1266, 1114, 1184, 1186
_JSON, _JSONB, _XML, _UUID, _BYTEA = 114, 3802, 142, 2950, 17
_INET, _CIDR, _MACADDR, _MACADDR8, _TSVECTOR = 869, 650, 829, 774, 3614

_FIXED_PRECISION = {_INT2: 5, _INT4: 10, _OID: 10, _INT8: 19, _FLOAT4: 8, _FLOAT8: 17, _BOOL: 1, _CHAR: 1, _DATE: 13}
# Width before and after the fraction of a second.
_TIME_WIDTH = {_TIME: (8, 0), _TIMETZ: (8, 6), _TIMESTAMP: (22, 0), _TIMESTAMPTZ: (22, 6)}
_CHARACTER = frozenset({_CHAR, _BPCHAR, _VARCHAR, _TEXT, _NAME})
# Types whose value in an event is PostgreSQL's own text, so that truncating one truncates the other.
_TEXTUAL = _CHARACTER | {_JSON, _JSONB, _XML, _UUID, _INET, _CIDR, _MACADDR, _MACADDR8, _TSVECTOR}
_TEXTUAL_NAMES = frozenset({"citext", "ltree"})
_SERIALS = {_INT2: "smallserial", _INT4: "serial", _INT8: "bigserial"}


class SourceType(NamedTuple):
    """``name`` is the type's name (``varchar``, ``mood``), ``length`` and ``scale`` are the driver's.

    For a numeric without precision that it reads from the catalogue the driver has no scale.
    """

    name: str
    length: int
    scale: int | None


def root_type(type_: PgType) -> PgType:
    """Return the type under any number of domains."""
    while type_.kind is TypeKind.DOMAIN and type_.inner is not None:
        type_ = type_.inner
    return type_


def is_character(type_: PgType) -> bool:
    """Whether the type is CHAR or VARCHAR in JDBC: char, bpchar, varchar, text, name, enums, and domains over these."""
    root = root_type(type_)
    return root.oid in _CHARACTER or root.kind is TypeKind.ENUM


def is_textual(type_: PgType) -> bool:
    """Whether its value in an event is PostgreSQL's text."""
    root = root_type(type_)
    if root.oid in _TEXTUAL or root.kind in (TypeKind.ENUM, TypeKind.RANGE, TypeKind.MULTIRANGE):
        return True
    return root.kind is TypeKind.BASE and root.name in _TEXTUAL_NAMES


def is_bytes(type_: PgType) -> bool:
    """Whether it is bytea, or a domain over it."""
    return root_type(type_).oid == _BYTEA


def source_type(column: Column, snapshot: bool = False) -> SourceType:
    """Return the name and length of a column's type.

    In a snapshot a column with a default from a sequence is a serial, and a numeric without precision has length 0 and
    no scale; the stream's Relation contains only the underlying type.
    """
    type_, modifier = column.type, column.modifier
    name = type_.name
    if snapshot and column.is_serial:
        name = _SERIALS.get(type_.oid, name)
    if snapshot and type_.oid == _NUMERIC and modifier == -1:
        return SourceType(name, 0, None)
    while type_.kind is TypeKind.DOMAIN and type_.inner is not None:
        modifier = type_.inner_modifier
        type_ = type_.inner
    # For an array, the element's length is used.
    oid = type_.inner.oid if type_.kind is TypeKind.ARRAY and type_.inner is not None else type_.oid
    return SourceType(name, _length(oid, modifier), _scale(oid, modifier))


def _length(oid: int, modifier: int) -> int:
    if oid in _FIXED_PRECISION:
        return _FIXED_PRECISION[oid]
    if oid == _NUMERIC:
        return _NUMERIC_DISPLAY_SIZE if modifier == -1 else ((modifier - 4) >> 16) & 0xFFFF
    if oid in (_BPCHAR, _VARCHAR):
        return UNBOUNDED if modifier == -1 else modifier - 4
    if oid in (_BIT, _VARBIT):
        return UNBOUNDED if modifier == -1 else modifier
    if oid in _TIME_WIDTH:
        before, after = _TIME_WIDTH[oid]
        return before + _fraction_width(modifier) + after
    return 49 if oid == _INTERVAL else UNBOUNDED


def _fraction_width(modifier: int) -> int:
    # The driver uses two characters for one digit, in addition to the point.
    return {-1: 7, 0: 0, 1: 3}.get(modifier, modifier + 1)


def _scale(oid: int, modifier: int) -> int:
    if oid in (_FLOAT4, _FLOAT8):
        return _FIXED_PRECISION[oid]
    if oid == _NUMERIC:
        return 0 if modifier == -1 else (modifier - 4) & 0xFFFF
    if oid in _TIME_WIDTH:
        return 6 if modifier == -1 else modifier
    if oid == _INTERVAL:
        return 6 if modifier == -1 else modifier & 0xFFFF
    return 0
