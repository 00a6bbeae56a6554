"""pgvector: vector, halfvec and sparsevec.

``vector`` contains 32-bit floats: the lake stores them as such, events contain the doubles of the printed digits. A
sparsevec ``{1:0.5,3:2}/5`` is text in the lake; in events a struct of its dimensions and a map from index (from one) to
value, whose indices and dimensions are 16 bit: larger ones cannot be represented.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools
from cdc_core.schema import Column, ConnectSchema
from cdc_core.types._flat import marked
from cdc_core.types._floats import any_per_row, floats
from cdc_core.types._java_map import capacities, iteration_order
from cdc_core.types._strings import NATURAL_TEXT
from cdc_core.types.codec import ColumnCodec, Convert, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, extension

_MAP = pa.map_(pa.int16(), pa.float64())
_SPARSE = pa.struct([pa.field("dimensions", pa.int16()), pa.field("vector", _MAP)])
_SPARSE_SCHEMA = ConnectSchema(
    "struct",
    optional=True,
    name="io.debezium.data.SparseDoubleVector",
    version=1,
    doc="Sparse double vector",
    fields=(
        ("dimensions", ConnectSchema("int16")),
        ("vector", ConnectSchema("map", keys=ConnectSchema("int16"), items=ConnectSchema("double"))),
    ),
)
_INT16_MAX = 32767


def build_vector(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a vector column."""
    return _dense("io.debezium.data.DoubleVector", "double", pa.float64())


def build_halfvec(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a halfvec column. Half precision is stored in 32 bits, without loss."""
    return _dense("io.debezium.data.FloatVector", "float", pa.float32())


def build_sparsevec(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of a sparsevec column."""
    return ColumnCodec(NATURAL_TEXT, EventConverter(_SPARSE_SCHEMA, _SPARSE, _to_sparse))


def _dense(name: str, connect_type: str, arrow_type: pa.DataType) -> ColumnCodec:
    schema = ConnectSchema("array", optional=True, name=name, version=1, items=ConnectSchema(connect_type))
    natural = NaturalConverter(pa.list_(pa.float32()), _to_list(pa.float32()))
    return ColumnCodec(natural, EventConverter(schema, pa.list_(arrow_type), _to_list(arrow_type), fallback=[]))


def _to_list(arrow_type: pa.DataType) -> Convert:
    def convert(text: pa.Array) -> Converted:
        null = text.is_null().to_numpy(zero_copy_only=False)
        shaped = pc.fill_null(pc.match_substring_regex(text, r"^\[[^\[\]]+\]$"), False)
        split = pc.split_pattern(pc.utf8_trim(pc.if_else(shaped, text, "[]"), "[]"), ",")
        bad = ~shaped.to_numpy(zero_copy_only=False)
        offsets = split.offsets.to_numpy()
        values, wrong = floats(split.flatten(), arrow_type)
        offsets = offsets - offsets[0] if len(offsets) else offsets
        bad |= any_per_row(wrong | values.is_null().to_numpy(zero_copy_only=False), offsets)
        lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=pa.array(bad))
        return Converted(lists, marked(bad & ~null))

    return convert


def _to_sparse(text: pa.Array) -> Converted:
    null = text.is_null().to_numpy(zero_copy_only=False)
    parts = pc.extract_regex(
        text, r"^\{(?P<entries>[0-9]+:[^:,{}/]+(?:,[0-9]+:[^:,{}/]+)*)?\}/(?P<dimensions>[0-9]{1,10})$"
    )
    bad = parts.is_null().to_numpy(zero_copy_only=False)
    dimensions = pc.cast(pc.fill_null(pc.struct_field(parts, "dimensions"), "0"), pa.int64())
    entries = pc.split_pattern(pc.fill_null(pc.struct_field(parts, "entries"), ""), ",")
    sizes = np.where(
        pc.equal(pc.fill_null(pc.struct_field(parts, "entries"), ""), ""), 0, pc.list_value_length(entries)
    )
    flat = entries.flatten()
    flat = flat.filter(pc.not_equal(flat, ""))
    pairs = pc.extract_regex(flat, r"^(?P<index>[0-9]{1,10}):(?P<value>.+)$")
    index = pc.fill_null(pc.cast(pc.struct_field(pairs, "index"), pa.int64()), _INT16_MAX + 1).to_numpy()
    values, wrong = floats(pc.struct_field(pairs, "value"), pa.float64())
    offsets = np.zeros(len(text) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    bad |= any_per_row(wrong | (index > _INT16_MAX), offsets) | (dimensions.to_numpy() > _INT16_MAX)
    return Converted(_sparse(dimensions, index, values, offsets, bad), marked(bad & ~null))


def _sparse(
    dimensions: pa.Array, index: np.ndarray, values: pa.Array, offsets: np.ndarray, missing: Bools
) -> pa.StructArray:
    """Return entries in the order of a Java HashMap created for their number."""
    sizes = np.diff(offsets).astype(np.int64)
    first = 1 << np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    row_of = np.repeat(np.arange(len(sizes)), sizes)
    buckets = np.repeat(capacities(sizes, first), sizes)
    order = iteration_order(index.astype(np.uint32), row_of, buckets)
    index = np.where(index > _INT16_MAX, 0, index)[order].astype(np.int16)
    filled = values.fill_null(0.0).take(pa.array(order))
    maps = pa.MapArray.from_arrays(pa.array(offsets), pa.array(index), filled)
    dimensions = pc.cast(pc.if_else(pc.greater(dimensions, _INT16_MAX), 0, dimensions), pa.int16())
    return pa.StructArray.from_arrays([dimensions, maps], fields=list(_SPARSE), mask=pa.array(missing))


RULES: tuple[TypeRule, ...] = (
    extension("vector", build_vector, "vector"),
    extension("halfvec", build_halfvec, "halfvec"),
    extension("sparsevec", build_sparsevec, "sparsevec"),
)
