"""Converts typed Arrow arrays to the text of Kafka Connect's JSON converter. No Python per row.

Numbers are written as numbers, NaN and the infinities as the strings "NaN", "Infinity" and "-Infinity" (as in Jackson),
bytes as base64 text, a map as an object if its keys are strings and as a list of pairs otherwise. All texts are
``large_string``: a record includes its schema, so a few thousand rows exceed a 32-bit offset.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.events.envelope.uniform import is_uniform
from cdc_core.schema import ConnectSchema

TEXT = pa.large_string()
# What the text of each row is joined from; a str is the same in every row.
Parts = list[str | pa.Array]

# Jackson's short escapes; every other character below 0x20 becomes \u00XX in capitals.
_SHORT = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}
_CONTROL = r"[\x00-\x1f]"
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8)


def dumps(value: Any) -> str:
    """Return the JSON text of a Python value, without blanks, non-ASCII characters unchanged."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def to_json(array: pa.Array, schema: ConnectSchema) -> pa.LargeStringArray:
    """Return the JSON text of every value.

    Shape:  array[N] of the type that corresponds to ``schema`` → text[N].

    Nulls:  the schema's default if it has one (the converter replaces nulls by defaults), else ``null``.
    """
    return join(json_parts(array, schema), len(array))


def json_parts(array: pa.Array, schema: ConnectSchema) -> Parts:
    """As ``to_json``, before the parts are joined: those of a struct's fields are joined once, with all around them."""
    filler = dumps(schema.default) if schema.has_default and schema.default is not None else "null"
    if array.null_count == len(array):
        return [filler]
    if is_uniform(array):
        return [str(texts(array.slice(0, 1), schema)[0].as_py())]
    if array.null_count:
        return [pc.fill_null(texts(array, schema), pa.scalar(filler, TEXT))]
    if schema.type == "struct":
        return _struct_parts(array, schema)
    if schema.type == "string":
        return ['"', escaped(array), '"']
    return [texts(array, schema)]


def json_of(value: Any, arrow_type: pa.DataType, schema: ConnectSchema) -> str:
    """Return the JSON text of one Python value of ``arrow_type``: for constants (defaults, fallbacks, placeholders)."""
    text = to_json(pa.array([value], type=arrow_type), schema.replace(default=None, has_default=False))
    return str(text[0].as_py())


def join(parts: Sequence[str | pa.Array], rows: int) -> pa.LargeStringArray:
    """Concatenate the parts of each row. A str is the same in every row; a null in an array becomes ``null``."""
    merged: list[Any] = []
    for part in map(_constant, parts):
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    if all(isinstance(part, str) for part in merged):
        return pa.repeat(pa.scalar("".join(merged), TEXT), rows)
    arguments = [pa.scalar(p, TEXT) if isinstance(p, str) else p.cast(TEXT) for p in merged]
    return pc.binary_join_element_wise(
        *arguments, pa.scalar("", TEXT), null_handling="replace", null_replacement="null"
    )


def _constant(part: str | pa.Array) -> str | pa.Array:
    """Return the text of a column of integers or texts that are all the same, and any other part as it is."""
    if isinstance(part, str) or not is_uniform(part):
        return part
    value = part[0].as_py()
    if value is None:
        return "null"
    return str(value) if isinstance(value, int | str) and not isinstance(value, bool) else part


def texts(array: pa.Array, schema: ConnectSchema) -> pa.LargeStringArray:
    """Return the JSON text of every value; nulls of ``array`` itself stay null, nulls inside it are written."""
    nested = {"struct": _struct, "array": _list, "map": _map}.get(schema.type)
    if nested is not None:
        return nested(array, schema)
    if schema.type == "string":
        return quoted(array)
    if schema.type == "bytes":
        return base64_texts(array)
    if schema.type in ("float", "double"):
        return _floats(array)
    return array.cast(TEXT)


def quoted(array: pa.Array) -> pa.LargeStringArray:
    """Convert strings to JSON strings."""
    return _keeping_nulls(array, join(['"', escaped(array), '"'], len(array)))


def escaped(array: pa.Array) -> pa.LargeStringArray:
    """Return strings as they are between the quotes of JSON. The common case without escapes requires one scan."""
    array = array.cast(TEXT)
    if _has_escapes(array):
        array = pc.replace_substring(array, "\\", "\\\\")
        array = pc.replace_substring(array, '"', '\\"')
        if _any(pc.match_substring_regex(array, _CONTROL)):
            for code in range(32):
                array = pc.replace_substring(array, chr(code), _SHORT.get(code, f"\\u{code:04X}"))
    return array


def _has_escapes(array: pa.LargeStringArray) -> bool:
    """Whether a character of any text must be escaped; bytes behind nulls, which Arrow permits, are seen, too."""
    content, offsets = _bytes_of(array)
    octets = content[offsets[0] : offsets[-1]]
    return bool(((octets < 0x20) | (octets == 0x22) | (octets == 0x5C)).any())


def base64_texts(array: pa.Array) -> pa.LargeStringArray:
    """Convert bytes to base64 text with padding, in quotes.

    All values are divided into groups of three bytes at once; missing bytes of the last group are read as zero, and
    their characters are overwritten by the padding.
    """
    data, offsets = _bytes_of(array)
    lengths = np.diff(offsets)
    groups = (lengths + 2) // 3
    first_group = np.zeros(len(groups) + 1, dtype=np.int64)
    np.cumsum(groups, out=first_group[1:])
    total = int(first_group[-1])
    row = np.repeat(np.arange(len(groups)), groups)
    start = offsets[:-1][row] + 3 * (np.arange(total) - first_group[:-1][row])
    left = offsets[1:][row] - start
    padded = np.concatenate([data, np.zeros(3, dtype=np.uint8)])
    first, second, third = (padded[np.minimum(start + i, len(data))] for i in range(3))
    second, third = np.where(left > 1, second, 0), np.where(left > 2, third, 0)
    out = np.empty((total, 4), dtype=np.uint8)
    out[:, 0] = _ALPHABET[first >> 2]
    out[:, 1] = _ALPHABET[((first & 3) << 4) | (second >> 4)]
    out[:, 2] = np.where(left > 1, _ALPHABET[((second & 15) << 2) | (third >> 6)], ord("="))
    out[:, 3] = np.where(left > 2, _ALPHABET[third & 63], ord("="))
    text = pa.LargeStringArray.from_buffers(len(array), pa.py_buffer(first_group * 4), pa.py_buffer(out))
    return _keeping_nulls(array, join(['"', text, '"'], len(array)))


def _bytes_of(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of a binary column and their N + 1 offsets (int64)."""
    array = array.cast(pa.large_binary())
    if len(array) == 0:
        return np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64)
    _, ends, content = array.buffers()
    offsets = np.frombuffer(ends, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.zeros(0, dtype=np.uint8) if content is None else np.frombuffer(content, dtype=np.uint8)
    return data, offsets


def _floats(array: pa.Array) -> pa.LargeStringArray:
    """Return the shortest decimal with the same value, always with a fraction or an exponent."""
    text = array.cast(TEXT)
    values = array.to_numpy(zero_copy_only=False)
    if (np.trunc(values) == values).any():
        whole = pc.invert(pc.match_substring_regex(text, "[.en]"))
        text = pc.if_else(whole, join([text, ".0"], len(text)), text)
    if np.isfinite(values).all():
        return text
    names = pc.if_else(pc.is_nan(array), '"NaN"', pc.if_else(pc.greater(array, 0), '"Infinity"', '"-Infinity"'))
    return pc.if_else(pc.is_finite(array), text, names.cast(TEXT))


def _struct(array: pa.StructArray, schema: ConnectSchema) -> pa.LargeStringArray:
    return _keeping_nulls(array, join(_struct_parts(array, schema), len(array)))


def _struct_parts(array: pa.StructArray, schema: ConnectSchema) -> Parts:
    """Return the parts of every struct, those that are null included."""
    parts: Parts = ["{"]
    for index, ((name, field), child) in enumerate(zip(schema.fields, array.flatten(), strict=True)):
        parts += [("," if index else "") + dumps(name) + ":", *json_parts(child, field)]
    return [*parts, "}"]


def _list(array: pa.Array, schema: ConnectSchema) -> pa.LargeStringArray:
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    items = to_json(array.flatten(), schema.element)
    return _keeping_nulls(array, _bracketed(items, lengths, "[", "]"))


def _map(array: pa.MapArray, schema: ConnectSchema) -> pa.LargeStringArray:
    entries = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    lengths = pc.fill_null(pc.list_value_length(entries), 0)
    keys, values = entries.flatten().flatten()
    named = schema.map_key.type == "string"
    parts: list[str | pa.Array] = [
        to_json(keys, schema.map_key),
        ":" if named else ",",
        to_json(values, schema.element),
    ]
    pairs = join(parts if named else ["[", *parts, "]"], len(keys))
    return _keeping_nulls(array, _bracketed(pairs, lengths, *("{}" if named else "[]")))


def _bracketed(items: pa.Array, lengths: pa.Array, left: str, right: str) -> pa.LargeStringArray:
    """Join consecutive runs of ``items``, ``lengths[i]`` of them for row i, by commas within brackets."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=offsets[1:])
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), items)
    return join([left, pc.binary_join(lists, pa.scalar(",", TEXT)), right], len(lengths))


def _keeping_nulls(array: pa.Array, text: pa.Array) -> pa.LargeStringArray:
    if not array.null_count:
        return text
    return pc.if_else(pc.is_valid(array), text, pa.scalar(None, TEXT))


def _any(mask: pa.Array) -> bool:
    return bool(pc.any(mask).as_py())
