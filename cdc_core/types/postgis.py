"""PostGIS geometry and geography: EWKB, in the lake as binary, in events with a separate SRID.

The server prints hexadecimal EWKB; both representations contain those octets unchanged, including the SRID. Flag
0x20000000 of the type word means that it is followed by four bytes of SRID. Source: PostGIS manual, «EWKB».
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools, Bytes, Ints
from cdc_core.schema import Column, ConnectSchema
from cdc_core.types._flat import flatten, marked, masked
from cdc_core.types._kernels import hex_bytes
from cdc_core.types.codec import ColumnCodec, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, extension

_EVENT = pa.struct([pa.field("wkb", pa.binary()), pa.field("srid", pa.int32())])
_EMPTY = {"wkb": bytes.fromhex("010700000000000000"), "srid": None}
_HAS_SRID = 0x20000000
_SHORTEST = 9


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
    return ColumnCodec(
        NaturalConverter(pa.binary(), _to_ewkb), EventConverter(schema, _EVENT, _to_event, fallback=_EMPTY)
    )


def _to_ewkb(text: pa.Array) -> Converted:
    octets, bad = _decode(text)
    return Converted(octets, marked(bad))


def _to_event(text: pa.Array) -> Converted:
    octets, bad = _decode(text)
    srid, has_srid = _srids(octets)
    children = [octets, pa.array(srid, mask=~has_srid)]
    return Converted(pa.StructArray.from_arrays(children, fields=list(_EVENT), mask=octets.is_null()), marked(bad))


def _decode(text: pa.Array) -> tuple[pa.BinaryArray, Bools]:
    """Return the octets, null if there are none, and which texts are not EWKB."""
    octets, bad = hex_bytes(text, 0)
    short = pc.fill_null(pc.less(pc.binary_length(octets), _SHORTEST), False)
    bad = bad | short.to_numpy(zero_copy_only=False)
    return masked(octets, bad), bad


def _srids(octets: pa.BinaryArray) -> tuple[npt.NDArray[np.int32], Bools]:
    data, starts, _, present = flatten(octets)
    srid = np.zeros(len(starts), dtype=np.int32)
    has_srid = np.zeros(len(starts), dtype=bool)
    at = starts[present]
    little = data[at] != 0
    has_srid[present] = _words(data, at + 1, little) & _HAS_SRID != 0
    flagged = has_srid[present]
    srid[has_srid] = _words(data, at[flagged] + 5, little[flagged]).view(np.int32)
    return srid, has_srid


def _words(data: Bytes, at: Ints, little: Bools) -> npt.NDArray[np.uint32]:
    """Return the 32-bit words at these offsets, each in its row's byte order."""
    octets = data[at[:, None] + np.arange(4)]
    octets = np.where(little[:, None], octets, octets[:, ::-1])
    words: npt.NDArray[np.uint32] = np.ascontiguousarray(octets).view("<u4").ravel()
    return words


RULES: tuple[TypeRule, ...] = (
    extension("geometry", build_geometry, "geometry"),
    extension("geography", build_geography, "geography"),
)
