"""bit and bit varying.

In events a single bit is a boolean; several are ``io.debezium.data.Bits``: the rightmost digit is bit 0 of the first
byte, and the last byte is the last one with a set bit.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.schema import Column
from cdc_core.types import semantic
from cdc_core.types._flat import flatten
from cdc_core.types._kernels import binary_rows_left, validity
from cdc_core.types._slow_path import scatter
from cdc_core.types._strings import NATURAL_TEXT
from cdc_core.types.codec import ColumnCodec, Converted, EventConverter
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, builtin
from cdc_core.types.typmod import bit_length

_MATRIX_BITS = 512  # longer values would make a mostly empty matrix
_ZERO, _ONE = ord("0"), ord("1")


def to_boolean(text: pa.Array) -> Converted:
    """Convert a single binary digit to boolean[N]."""
    true = pc.equal(text, "1")
    unread = pc.fill_null(pc.invert(pc.or_(true, pc.is_in(text, pa.array(["0", ""])))), False)
    if not pc.any(unread).as_py():
        return Converted(true)
    return Converted(pc.if_else(unread, pa.scalar(None, pa.bool_()), true), unread)


def to_bytes(text: pa.Array) -> Converted:
    """Convert binary digits to little-endian binary[N], without trailing zero bytes."""
    data, starts, ends, _ = flatten(text)
    lengths = ends - starts
    long = lengths > _MATRIX_BITS
    if long.any():
        ends = np.where(long, starts, ends)
        lengths = ends - starts
    width = max(8, int(-(-lengths.max() // 8) * 8)) if len(lengths) else 8
    columns = np.arange(width)
    places = np.maximum(ends[:, None] - 1 - columns, 0)
    inside = columns < lengths[:, None]
    characters = data[places] if len(data) else np.zeros(places.shape, np.uint8)
    strange = (inside & (characters != _ZERO) & (characters != _ONE)).any(axis=1)
    octets = np.packbits(inside & (characters == _ONE), axis=1, bitorder="little")
    used = np.where(octets != 0, np.arange(1, octets.shape[1] + 1), 0).max(axis=1, initial=0).astype(np.int64)
    return scatter("bits", text, binary_rows_left(octets, used, validity(text)), long | strange, _one)


def _one(text: str) -> bytes:
    if text.strip("01"):
        raise ValueError("not binary digits")
    number = int(text or "0", 2)
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The digits as text in the lake."""
    length = bit_length(column.modifier)
    if length == 1:
        event = EventConverter(semantic.plain("boolean"), pa.bool_(), to_boolean, fallback=False)
    else:
        schema = semantic.logical("bytes", semantic.BITS, (("length", str(length)),))
        event = EventConverter(schema, pa.binary(), to_bytes, fallback=b"")
    return ColumnCodec(NATURAL_TEXT, event)


RULES: tuple[TypeRule, ...] = (builtin("bits", build, "bit", "varbit"),)
