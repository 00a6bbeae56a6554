"""Arrays of one dimension: their elements are converted by the element type's codec, for all rows as one flat array.

In the lake an array of more dimensions, one whose lower bound is not one (``[0:1]={1,2}``, which PostgreSQL does not
consider equal to ``{1,2}``), or one with an element that its type cannot represent, is rescued as text. In events
Debezium's own limitations apply:

* arrays of money, name, interval, varbit, xml, point and refcursor are left out;
* the schema allows null elements for the types it lists; for others (enums, tsvector, vectors, opaque elements) an
  array with a null element cannot be written;
* Debezium gets an array from its driver, which reads times to the millisecond (with a zone to the second), dates as in
  a query, timestamps before 1582-10-15 in the Julian calendar, zoned ones without their era and ten days later
  where that calendar has no such day, and no NaN numeric;
* for an array of more dimensions it writes a null for each entry of the first one, or, if the element is a string, a
  value that is not repeatable, which stays unset here;
* a bit array has the schema of a bit column, which no array can be written with.
"""

from __future__ import annotations

import dataclasses
import hashlib
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools
from cdc_core.errors import InvariantError
from cdc_core.schema import Column, ConnectSchema, PgType, TypeKind
from cdc_core.types._array_text import Split, split_arrays
from cdc_core.types._flat import marked, masked
from cdc_core.types._floats import any_per_row
from cdc_core.types._julian import from_julian
from cdc_core.types._opaque import opaque_codec
from cdc_core.types._placeholder import placeholder_bytes, placeholder_text
from cdc_core.types._slow_path import scatter
from cdc_core.types._strings import NATURAL_TEXT
from cdc_core.types.codec import ColumnCodec, Convert, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import CATALOG, Resolve, TypeRule, of_kind

_LEFT_OUT = frozenset({"money", "name", "interval", "varbit", "xml", "point", "refcursor"})
# Element types whose array schema allows null elements.
_NULLABLE = frozenset(
    {"bool", "bytea", "date", "float4", "float8", "int2", "int4", "int8", "numeric", "oid"}
    | {"time", "timestamp", "timestamptz", "timetz", "citext", "geography", "geometry", "hstore"}
    | {"char", "varchar", "text", "bpchar", "inet", "cidr", "macaddr", "macaddr8", "json", "jsonb", "uuid", "ltree"}
    | {"int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"}
)
# For these Debezium's driver converts even an inner array: to the name of an object in memory.
_UNREPEATABLE = frozenset(
    {"char", "varchar", "text", "bpchar", "inet", "cidr", "macaddr", "macaddr8", "json", "jsonb", "uuid", "ltree"}
    | {"int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange"}
)
_TEMPORAL = frozenset({"date", "time", "timetz", "timestamp", "timestamptz"})
_BEFORE_GREGORIAN = r" BC$|^(0\d|1[0-4])\d\d-|^15([0-7]\d|8[01])-|^1582-(0\d-|10-(0\d|1[0-4]))"
# Of this era only: the year 1582 BC has those days.
_IN_GAP = r"^1582-10-(0[5-9]|1[0-4]) .*[^C]$"
_TEXT_PLACEHOLDERS = frozenset({"text", "varchar", "bpchar", "json", "jsonb"})
_Prepare = Callable[[pa.Array], tuple[pa.Array, Bools | None]]


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of an array column. Elements take the column's modifier."""
    inner = column.type.inner
    if inner is None:
        raise InvariantError(f"Array {column.type.name} of column {column.name} has no element type.")
    element = resolve(dataclasses.replace(column, type=inner, optional=True), options)
    of_element = element.natural
    arrow_type = pa.list_(of_element.arrow_type)
    converters = _natural(of_element, inner.delimiter), _is_misfit(of_element, inner.delimiter)
    natural = NaturalConverter(arrow_type, *converters)
    return ColumnCodec(natural, _event(inner, element.event, options))


def _natural(element: NaturalConverter, delimiter: str) -> Convert:
    def convert(text: pa.Array) -> Converted:
        split = split_arrays(text, delimiter)
        converted = element.convert(split.elements)
        bad = split.bad | split.nested | split.bounded | any_per_row(_flags(converted), split.offsets)
        return Converted(_lists(text, split, converted.values, bad), marked(bad))

    return convert


def _is_misfit(element: NaturalConverter, delimiter: str) -> Callable[[pa.Array], pa.BooleanArray]:
    """Whether a bad array is a misfit: more dimensions, other bounds, or each of its bad elements is one itself."""

    def is_misfit(text: pa.Array) -> pa.BooleanArray:
        split = split_arrays(text, delimiter)
        unreadable = _flags(element.convert(split.elements))
        if element.is_misfit is not None and unreadable.any():
            unreadable = unreadable & ~element.is_misfit(split.elements).to_numpy(zero_copy_only=False)
        return pa.array(~split.bad & (split.nested | split.bounded | ~any_per_row(unreadable, split.offsets)))

    return is_misfit


def _event(inner: PgType, element: EventConverter | None, options: TypeOptions) -> EventConverter | None:
    known = inner.namespace == "pg_catalog" and inner.kind is TypeKind.BASE
    if inner.kind is TypeKind.DOMAIN:
        element = opaque_codec(options).event  # an array of a domain is not resolved to its base
    if element is None or (known and inner.name in _LEFT_OUT):
        return None
    if known and inner.name == "bit":
        return EventConverter(element.schema, element.arrow_type, _never(element.arrow_type))
    nullable = inner.kind in (TypeKind.BASE, TypeKind.RANGE) and inner.name in _NULLABLE
    schema = ConnectSchema("array", optional=True, items=element.schema.replace(optional=nullable))
    convert = _to_event(inner, element, nullable and inner.name != "ltree")
    unavailable = _placeholder(inner, element, options) if known else None
    return EventConverter(schema, pa.list_(element.arrow_type), convert, fallback=[], unavailable=unavailable)


def _to_event(inner: PgType, element: EventConverter, nullable: bool) -> Convert:
    """``nullable``: whether an array may contain nulls. (Those of ltree may by their schema, but conversion fails.)"""
    prepare = _PREPARE.get(inner.name, _as_it_is)
    # Debezium gets elements as the driver reads them in a query, also when streaming.
    of_elements = element.snapshot_convert or element.convert
    repeatable = nullable and inner.name not in _UNREPEATABLE

    def convert(text: pa.Array) -> Converted:
        split = split_arrays(text, inner.delimiter)
        elements, unreadable = prepare(split.elements)
        converted = of_elements(elements)
        if inner.name == "timestamptz":
            converted = Converted(_without_negative_infinity(converted.values), converted.bad)
        # A timestamp that its unit cannot represent is a null element; any other bad element makes the array bad.
        flags = np.zeros(len(elements), dtype=bool) if inner.name in _TEMPORAL else _flags(converted)
        if unreadable is not None:
            flags = flags | unreadable
        if not nullable and split.elements.null_count:
            flags = flags | split.elements.is_null().to_numpy(zero_copy_only=False)
        bad = split.bad | any_per_row(flags, split.offsets)
        if not split.nested.any():
            return Converted(_lists(text, split, converted.values, bad), marked(bad))
        if not repeatable:
            bad = bad | split.nested
        return Converted(_with_nested(text, split, converted.values, bad), marked(bad))

    return convert


def _lists(text: pa.Array, split: Split, values: pa.Array, bad: Bools) -> pa.Array:
    missing = bad | text.is_null().to_numpy(zero_copy_only=False)
    return pa.ListArray.from_arrays(pa.array(split.offsets), values, mask=pa.array(missing))


def _with_nested(text: pa.Array, split: Split, values: pa.Array, bad: Bools) -> pa.Array:
    """Return lists in which a row of more dimensions has one null per entry of its first dimension."""
    sizes = np.diff(split.offsets).astype(np.int64)
    lengths = np.where(split.nested & ~bad, split.outer, sizes)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    filled = np.repeat(~split.nested, lengths)
    index = np.zeros(len(filled), dtype=np.int64)
    index[filled] = np.arange(int(filled.sum()))
    spread = values.take(pa.array(index, mask=~filled))
    return _lists(text, dataclasses.replace(split, offsets=offsets), spread, bad)


def _flags(converted: Converted) -> Bools:
    if converted.bad is None:
        return np.zeros(len(converted.values), dtype=bool)
    flags: Bools = converted.bad.to_numpy(zero_copy_only=False)
    return flags


def _never(arrow_type: pa.DataType) -> Convert:
    return lambda text: Converted(pa.nulls(len(text), arrow_type), text.is_valid())


def _placeholder(inner: PgType, element: EventConverter, options: TypeOptions) -> Any:
    """Return the placeholder list for an unchanged TOAST array, or None if Debezium's does not match the schema."""
    octets = placeholder_bytes(options)
    if inner.name in _TEXT_PLACEHOLDERS:
        return [placeholder_text(options)]
    if inner.name == "bytea" and pa.types.is_binary(element.arrow_type):
        return [octets]
    connects_own = (element.schema.name or "").startswith("org.apache.kafka.connect.")
    if inner.name in ("int4", "int8", "date") and pa.types.is_integer(element.arrow_type) and not connects_own:
        return [byte - 256 if byte > 127 else byte for byte in octets]  # Java's bytes are signed
    if inner.name == "uuid":
        return [str(_name_based(octets))]
    return None


def _name_based(octets: bytes) -> uuid.UUID:
    """Java's ``UUID.nameUUIDFromBytes``: version 3 of the bytes only, without a namespace."""
    return uuid.UUID(bytes=hashlib.md5(octets, usedforsecurity=False).digest(), version=3)


def _as_it_is(elements: pa.Array) -> tuple[pa.Array, Bools | None]:
    return elements, None


def _milliseconds(elements: pa.Array) -> tuple[pa.Array, Bools | None]:
    cut = pc.replace_substring_regex(elements, r"(\.\d{3})\d+", r"\1")
    return pc.replace_substring_regex(cut, "^24:", "00:"), None


def _seconds(elements: pa.Array) -> tuple[pa.Array, Bools | None]:
    cut = pc.replace_substring_regex(elements, r"\.\d+", "")
    return pc.replace_substring_regex(cut, "^24:", "00:"), None


def _finite(elements: pa.Array) -> tuple[pa.Array, Bools | None]:
    special = pc.fill_null(pc.is_in(elements, pa.array(["NaN", "Infinity", "-Infinity"])), False)
    flags = special.to_numpy(zero_copy_only=False)
    return masked(elements, flags), flags


def _julian(elements: pa.Array) -> tuple[pa.Array, Bools | None]:
    """Interpret days before the Gregorian calendar's start as Julian, which changes the timestamp."""
    rare = pc.fill_null(pc.match_substring_regex(elements, _BEFORE_GREGORIAN), False)
    if not pc.any(rare).as_py():
        return elements, None
    return scatter("timestamp[]", elements, elements, rare.to_numpy(zero_copy_only=False), from_julian).values, None


def _without_negative_infinity(moments: pa.Array) -> pa.Array:
    """Replace -infinity: in an array Debezium does not recognize the driver's smallest timestamp as an infinity."""
    smallest = pc.equal(moments, "-infinity")
    if not pc.any(smallest).as_py():
        return moments
    return pc.if_else(smallest, "+292269055-12-02T23:00:00.000000Z", moments)


def _zoned(elements: pa.Array) -> tuple[pa.Array, Bools | None]:
    """Lose the era, and move days that the driver's calendar does not have, 1582-10-05 to 14, by ten days.

    The driver reads an element into that calendar and Debezium takes the fields out of it again: other days come back
    as they were, in Julian years, too.
    """
    gap = pc.fill_null(pc.match_substring_regex(elements, _IN_GAP), False)
    if pc.any(gap).as_py():
        later = pc.replace_substring_regex(elements, "^1582-10-1", "1582-10-2")
        elements = pc.if_else(gap, pc.replace_substring_regex(later, "^1582-10-0", "1582-10-1"), elements)
    return pc.replace_substring(elements, " BC", ""), None


_PREPARE: dict[str, _Prepare] = {
    "time": _milliseconds,
    "timetz": _seconds,
    "timestamp": _julian,
    "timestamptz": _zoned,
    "numeric": _finite,
}


def build_catalogue_vector(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """int2vector, oidvector: arrays of the catalogue, printed as ``1 2``. Text; in events always an empty array."""
    connect_type, arrow_type = ("int16", pa.int16()) if column.type.name == "int2vector" else ("int64", pa.int64())
    schema = ConnectSchema("array", optional=True, items=ConnectSchema(connect_type))

    def convert(text: pa.Array) -> Converted:
        offsets = pa.array(np.zeros(len(text) + 1, dtype=np.int32))
        return Converted(pa.ListArray.from_arrays(offsets, pa.array([], arrow_type), mask=text.is_null()))

    return ColumnCodec(NATURAL_TEXT, EventConverter(schema, pa.list_(arrow_type), convert, fallback=[]))


RULES: tuple[TypeRule, ...] = (
    TypeRule("catalogue vector", build_catalogue_vector, ("int2vector", "oidvector"), None, CATALOG),
    of_kind("array", build, TypeKind.ARRAY),
)
