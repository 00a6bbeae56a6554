"""point: two doubles. The other geometric types (box, lseg, path, polygon, line, circle) are text.

Debezium 3.6 supports only point. The others are unknown types, whose text is the parsed object as printed by its
driver: every number as Java prints a double (``(1.0,2.0)`` where the server prints ``(1,2)``).
"""

from __future__ import annotations

import math
import re
import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools
from cdc_core.schema import Column, ConnectSchema
from cdc_core.types._flat import marked
from cdc_core.types._floats import floats
from cdc_core.types._opaque import opaque_codec
from cdc_core.types._slow_path import scatter
from cdc_core.types.codec import ColumnCodec, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin

POINT = pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.float64())])
_EVENT = pa.struct([*POINT, pa.field("wkb", pa.binary()), pa.field("srid", pa.int32())])
_SCHEMA = ConnectSchema(
    "struct",
    optional=True,
    name="io.debezium.data.geometry.Point",
    version=1,
    doc="Geometry (POINT)",
    fields=(
        ("x", ConnectSchema("double")),
        ("y", ConnectSchema("double")),
        ("wkb", ConnectSchema("bytes", optional=True)),
        ("srid", ConnectSchema("int32", optional=True)),
    ),
)
# Byte order mark 1 (little endian), geometry type 1 (point), x, y.
_WKB = np.dtype([("order", "u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])
_ZERO = {"x": 0.0, "y": 0.0, "wkb": struct.pack("<BIdd", 1, 1, 0.0, 0.0), "srid": None}
_NUMBER = re.compile(r"[+-]?(?:Infinity|NaN|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")


def build_point(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a point column. It has no placeholder: a point is never TOASTed."""
    return ColumnCodec(NaturalConverter(POINT, _to_point), EventConverter(_SCHEMA, _EVENT, _to_event, fallback=_ZERO))


def build_other(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a geometric type other than point."""
    return opaque_codec(options, _as_java_prints)


def _to_point(text: pa.Array) -> Converted:
    x, y, missing, bad = _coordinates(text)
    return Converted(pa.StructArray.from_arrays([x, y], fields=list(POINT), mask=pa.array(missing)), marked(bad))


def _to_event(text: pa.Array) -> Converted:
    x, y, missing, bad = _coordinates(text)
    wkb = np.empty(len(text), dtype=_WKB)
    wkb["order"], wkb["type"] = 1, 1
    wkb["x"], wkb["y"] = (
        x.fill_null(0.0).to_numpy(zero_copy_only=False),
        y.fill_null(0.0).to_numpy(zero_copy_only=False),
    )
    octets = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_WKB.itemsize), len(text), [None, pa.py_buffer(wkb)])
    children = [x, y, pc.cast(octets, pa.binary()), pa.nulls(len(text), pa.int32())]
    return Converted(pa.StructArray.from_arrays(children, fields=list(_EVENT), mask=pa.array(missing)), marked(bad))


def _coordinates(text: pa.Array) -> tuple[pa.Array, pa.Array, Bools, Bools]:
    """Return x, y, which rows have none, and which of these are invalid. point_out writes ``(1.5,-2)``."""
    parts = pc.extract_regex(text, r"^\((?P<x>[^,()]+),(?P<y>[^,()]+)\)$")
    null = text.is_null().to_numpy(zero_copy_only=False)
    x, bad_x = floats(pc.struct_field(parts, "x"), pa.float64())
    y, bad_y = floats(pc.struct_field(parts, "y"), pa.float64())
    bad = (parts.is_null().to_numpy(zero_copy_only=False) & ~null) | bad_x | bad_y
    return x, y, bad | null, bad


def _as_java_prints(text: pa.Array) -> Converted:
    # Row by row: such values are in events only if unknown types are included.
    return scatter("geometric", text, text, text.is_valid().to_numpy(zero_copy_only=False), _rewritten)


def _rewritten(text: str) -> str:
    return _NUMBER.sub(_java_double, text)


def _java_double(match: re.Match[str]) -> str:
    """``Double.toString`` of a number's text: plain from 0.001 to ten million, else with an exponent."""
    number = float(match.group())
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        shown = np.format_float_positional(number, unique=True, trim="0")
        return str(shown)
    mantissa, exponent = np.format_float_scientific(number, unique=True, trim="0").split("e")
    return f"{mantissa}E{int(exponent)}"


RULES: tuple[TypeRule, ...] = (
    builtin("point", build_point, "point"),
    builtin("geometric", build_other, "box", "lseg", "path", "polygon", "line", "circle"),
)
