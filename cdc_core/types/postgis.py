"""PostGIS geometry and geography: EWKB, in the lake as binary, in events with the SRID beside it.

The server prints hexadecimal EWKB; both faces hold those octets unchanged, SRID included. Flag 0x20000000 of the type
word says that four bytes of SRID follow it. Source: PostGIS manual, «EWKB».
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_core.schema.connect import ConnectSchema
from cdc_core.schema.table import Column
from cdc_core.types._flat import Bools, Bytes, Ints, flatten, gather, marked, masked, per_row
from cdc_core.types.codec import ColumnCodec, Converted, EventFace, NaturalFace
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, extension

_EVENT = pa.struct([pa.field("wkb", pa.binary()), pa.field("srid", pa.int32())])
_EMPTY = {"wkb": bytes.fromhex("010700000000000000"), "srid": None}
_HAS_SRID = 0x20000000
_SHORTEST = 9
_NO_DIGIT = 0xFF
_DIGITS = np.full(256, _NO_DIGIT, dtype=np.uint8)
for _value, _letters in enumerate([*"0123456789", "aA", "bB", "cC", "dD", "eE", "fF"]):
    _DIGITS[[ord(letter) for letter in _letters]] = _value


def build_geometry(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a geometry column."""
    return _codec("Geometry")


def build_geography(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a geography column."""
    return _codec("Geography")


def _codec(name: str) -> ColumnCodec:
    schema = ConnectSchema(
        "struct",
        optional=True,
        name=f"io.debezium.data.geometry.{name}",
        version=1,
        doc=name,
        fields=(("wkb", ConnectSchema("bytes")), ("srid", ConnectSchema("int32", optional=True))),
    )
    return ColumnCodec(NaturalFace(pa.binary(), _to_ewkb), EventFace(schema, _EVENT, _to_event, fallback=_EMPTY))


def _to_ewkb(text: pa.Array) -> Converted:
    octets, _, _, missing, bad = _decode(text)
    return Converted(masked(octets, missing), marked(bad))


def _to_event(text: pa.Array) -> Converted:
    octets, data, starts, missing, bad = _decode(text)
    srid, has_srid = _srids(data, starts, missing)
    children = [octets, pa.array(srid, mask=~has_srid)]
    return Converted(pa.StructArray.from_arrays(children, fields=list(_EVENT), mask=pa.array(missing)), marked(bad))


def _decode(text: pa.Array) -> tuple[pa.BinaryArray, Bytes, Ints, Bools, Bools]:
    """The octets as an array without nulls and as flat bytes with each row's start; rows without, and bad ones."""
    digits, starts, ends, valid = flatten(text)
    digits, starts, ends = gather(digits, starts, ends)
    values = _DIGITS[digits]
    odd = (ends - starts) % 2 != 0
    bad = valid & (odd | (ends - starts < 2 * _SHORTEST) | (per_row(values == _NO_DIGIT, starts) > 0))
    if bad.any():
        values, starts, ends = gather(values, starts, np.where(bad, starts, ends))
    data: Bytes = (values[0::2] << 4 | values[1::2]).astype(np.uint8)
    offsets = np.zeros(len(text) + 1, dtype=np.int32)
    offsets[1:] = ends // 2
    octets = pa.BinaryArray.from_buffers(pa.binary(), len(text), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return octets, data, starts // 2, bad | ~valid, bad


def _srids(data: Bytes, starts: Ints, missing: Bools) -> tuple[npt.NDArray[np.int32], Bools]:
    srid = np.zeros(len(starts), dtype=np.int32)
    has_srid = np.zeros(len(starts), dtype=bool)
    present = np.flatnonzero(~missing)
    at = starts[present]
    little = data[at] != 0 if len(at) else np.empty(0, bool)
    has_srid[present] = _words(data, at + 1, little) & _HAS_SRID != 0
    if has_srid.any():
        marked_rows = has_srid[present]
        srid[has_srid] = _words(data, at[marked_rows] + 5, little[marked_rows]).view(np.int32)
    return srid, has_srid


def _words(data: Bytes, at: Ints, little: Bools) -> npt.NDArray[np.uint32]:
    """The 32-bit words at these places, each in its row's byte order."""
    octets = data[at[:, None] + np.arange(4)]
    octets = np.where(little[:, None], octets, octets[:, ::-1])
    words: npt.NDArray[np.uint32] = np.ascontiguousarray(octets).view("<u4").ravel()
    return words


RULES: tuple[TypeRule, ...] = (
    extension("geometry", build_geometry, "geometry"),
    extension("geography", build_geography, "geography"),
)
