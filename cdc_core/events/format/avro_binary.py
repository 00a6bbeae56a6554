"""Avro's binary encoding of typed columns. No Python per row.

Every column becomes a column of bytes, and a record's bytes are those of its fields one after the other. Only rows that
have a value are encoded: an optional column is encoded without its nulls, which are put back as the union's null.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import RecordError
from cdc_core.events.envelope.batch import SCHEMALESS, STRING, Data
from cdc_core.events.envelope.uniform import is_uniform
from cdc_core.events.format.avro_schema import AvroRules
from cdc_core.schema import ConnectSchema

BYTES = pa.large_binary()
# What the bytes of each row are joined from; bytes are the same in every row.
Parts = list[bytes | pa.Array]
_CONTINUES = np.uint64(0x80)
_LOW = np.uint64(0x7F)


def encoded(data: Data, rules: AvroRules) -> pa.Array:
    """Return the encoding of every value: large_binary[N], never null.

    Nulls:  a null whose schema has a default is the default. Raises RecordError for one in a required field.
    """
    return joined(encoded_parts(data, rules), len(data))


def encoded_parts(data: Data, rules: AvroRules) -> Parts:
    """As ``encoded``, before the parts are joined: those of a record's fields are joined once, with all around them."""
    schema = data.connect_schema
    data = data.filled()
    absent = data.values.null_count
    if not schema.optional:
        if absent:
            raise RecordError(f"A value is null whose Avro schema {schema.name or schema.type} is required.")
        return _value_parts(data.values, schema, rules)
    # The union's index: the value is first if there is a default, except for structs.
    first = schema.has_default and schema.default is not None and schema.type != "struct"
    value, null = (b"\x00", b"\x02") if first else (b"\x02", b"\x00")
    if not absent:
        return [value, *_value_parts(data.values, schema, rules)]
    if absent == len(data):
        return [null]
    valid = data.valid
    rows = np.flatnonzero(valid)
    written = joined([value, *_value_parts(data.values.take(pa.array(rows)), schema, rules)], len(rows))
    place = np.full(len(data), len(rows), dtype=np.int64)
    place[rows] = np.arange(len(rows))
    return [pa.concat_arrays([written, pa.array([null], type=BYTES)]).take(pa.array(place))]


def anything_parts(data: Data) -> Parts:
    """Return the encoding by ``avro_schema.ANYTHING`` of values that have no schema in Connect, none of them null.

    These are texts, and maps whose values are null, texts or such maps. Raises RecordError for others.
    """
    schema = data.connect_schema
    if schema.type == "string":
        return [b"\x00" * 6 + b"\x02", *_value_parts(data.values, STRING, AvroRules()), b"\x00" * 2]
    parts: Parts = [b"\x00" * 8 + b"\x02", varints(np.array([len(schema.fields)]))[0].as_py()]
    for (name, field), column in zip(schema.fields, data.columns(), strict=True):
        parts += anything_parts(Data(STRING, pa.array([name], pa.large_string()).take(pa.array([0] * len(data)))))
        if column.null_count == len(data):
            parts.append(b"\x00" * 9)
        elif (field.type == "string" or field.name == SCHEMALESS) and not column.null_count:
            parts += anything_parts(Data(field, column))
        else:
            raise RecordError(f"Avro has no schema for the map of a value without one, which has {field.type}.")
    return [*parts, b"\x00"]


def joined(parts: Parts, rows: int) -> pa.Array:
    """Concatenate the parts of each row. Bytes are the same in every row."""
    merged: Parts = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, bytes) and isinstance(last, bytes):
            merged[-1] = last + part
        else:
            merged.append(part)
    if all(isinstance(part, bytes) for part in merged):
        return pa.repeat(pa.scalar(merged[0] if merged else b"", BYTES), rows)
    arguments = [pa.scalar(part, BYTES) if isinstance(part, bytes) else part for part in merged]
    return pc.binary_join_element_wise(*arguments, pa.scalar(b"", BYTES))


def varints(numbers: np.ndarray) -> pa.Array:
    """Encode int64 numbers as Avro's int and long: zigzag, seven bits a byte, the lowest first."""
    signed = numbers.astype(np.int64)
    left = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    width = max(1, -(-int(left.max(initial=0)).bit_length() // 7))
    out = np.empty((len(left), width), dtype=np.uint8)
    lengths = np.ones(len(left), dtype=np.int64)
    for at in range(width):
        more = left >= _CONTINUES
        out[:, at] = (left & _LOW) | np.where(more, _CONTINUES, np.uint64(0))
        left = left >> np.uint64(7)
        lengths += more
    if (lengths == width).all():
        return _sliced(out.reshape(-1), lengths)
    return _sliced(out[np.arange(width) < lengths[:, None]], lengths)


def _varint_parts(numbers: np.ndarray) -> Parts:
    """As ``varints``; numbers that are all the same are encoded once."""
    if len(numbers) > 1 and (numbers == numbers[0]).all():
        return [varints(numbers[:1])[0].as_py()]
    return [varints(numbers)]


def _sliced(content: np.ndarray, lengths: np.ndarray) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pa.LargeBinaryArray.from_buffers(
        BYTES, len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content))]
    )


def _fixed(values: np.ndarray) -> pa.Array:
    """Return the little-endian bytes of numbers."""
    size = values.dtype.itemsize
    content = np.frombuffer(values.astype(values.dtype.newbyteorder("<")).tobytes(), dtype=np.uint8)
    return _sliced(content, np.full(len(values), size, dtype=np.int64))


def _value_parts(values: pa.Array, schema: ConnectSchema, rules: AvroRules) -> Parts:
    """Encode values that are not null. A column whose values are all the same is encoded once."""
    if schema.type == "struct":
        columns = Data(schema, values).columns()
        fields = zip(schema.fields, columns, strict=True)
        return [part for (_, field), column in fields for part in encoded_parts(Data(field, column), rules)]
    if is_uniform(values):
        return [joined(_column_parts(values.slice(0, 1), schema, rules), 1)[0].as_py()]
    return _column_parts(values, schema, rules)


def _column_parts(values: pa.Array, schema: ConnectSchema, rules: AvroRules) -> Parts:
    if schema.type == "array":
        lengths = pc.list_value_length(values).to_numpy()
        return [_blocks(encoded(Data(schema.element, values.flatten()), rules), lengths)]
    if schema.type == "map":
        return [_map(values, schema, rules)]
    if schema.type not in ("string", "bytes"):
        return [_plain(values, schema.type)]
    content = values.cast(pa.large_string() if schema.type == "string" else BYTES).cast(BYTES)
    return [*_varint_parts(pc.binary_length(content).to_numpy()), content]


def _plain(values: pa.Array, kind: str) -> pa.Array:
    numbers = values.to_numpy(zero_copy_only=False)
    if kind == "boolean":
        return _fixed(numbers.astype(np.uint8))
    if kind in ("float", "double"):
        return _fixed(numbers.astype(np.float32 if kind == "float" else np.float64))
    return varints(numbers)


def _map(values: pa.Array, schema: ConnectSchema, rules: AvroRules) -> pa.Array:
    kind = pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)]))
    entries = values.cast(kind)
    keys, items = entries.flatten().flatten()
    # The keys of an Avro map are texts, not unions.
    key = schema.map_key.replace(optional=False) if rules.is_map(schema) else schema.map_key
    parts = [*encoded_parts(Data(key, keys), rules), *encoded_parts(Data(schema.element, items), rules)]
    pairs = joined(parts, len(keys))
    return _blocks(pairs, pc.list_value_length(entries).to_numpy())


def _blocks(items: pa.Array, lengths: np.ndarray) -> pa.Array:
    """Return one block of items for each row, ``lengths[i]`` of them, and the end; only the end if there are none."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), items)
    content = pc.binary_join(lists, pa.scalar(b"", BYTES))
    counts = varints(lengths)
    empty = pa.array(lengths == 0)
    return pc.if_else(empty, pa.scalar(b"\x00", BYTES), joined([counts, content, b"\x00"], len(lengths)))
