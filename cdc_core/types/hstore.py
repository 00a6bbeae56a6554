"""hstore: a map of strings in the lake; in events JSON text or a map, both in the order of Java's HashMap.

``hstore_out`` writes ``"key"=>"value", "k2"=>NULL`` with every key and value in quotes, so the quotes are sufficient to
find the strings: a string after ``>`` is a value, every other one a key, and a key followed by ``=>N`` has no value.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools, Bytes, Ints
from cdc_core.schema import Column, ConnectSchema
from cdc_core.types._flat import escaped_bytes, flatten, gather, marked, masked, per_row, running_count, strings_from
from cdc_core.types._java_map import capacities, iteration_order, string_hashes
from cdc_core.types._json_text import quoted
from cdc_core.types._placeholder import placeholder_text
from cdc_core.types.codec import ColumnCodec, Converted, EventConverter, NaturalConverter
from cdc_core.types.options import HstoreHandlingMode, TypeOptions
from cdc_core.types.rule import Resolve, TypeRule, extension

MAP = pa.map_(pa.string(), pa.string())
_JSON = ConnectSchema("string", optional=True, name="io.debezium.data.Json", version=1)
_CONNECT_MAP = ConnectSchema("map", optional=True, keys=ConnectSchema("string"), items=ConnectSchema("string", True))


@dataclass(frozen=True, slots=True)
class _Pairs:
    """N split hstores: ``keys`` and ``values`` (null for NULL) in order, ``offsets[N + 1]`` are each row's bounds."""

    keys: pa.StringArray
    values: pa.StringArray
    offsets: npt.NDArray[np.int32]
    bad: Bools

    def row_of(self) -> Ints:
        return np.repeat(np.arange(len(self.bad)), np.diff(self.offsets))


def build(column: Column, options: TypeOptions, resolve: Resolve) -> ColumnCodec:
    """The codec of an hstore column."""
    placeholder = placeholder_text(options)
    if options.hstore_handling_mode is HstoreHandlingMode.MAP:
        event = EventConverter(_CONNECT_MAP, MAP, _to_java_map, fallback=[], unavailable=[(placeholder, placeholder)])
    else:
        unavailable = json.dumps({placeholder: placeholder}, ensure_ascii=False, separators=(",", ":"))
        event = EventConverter(_JSON, pa.string(), _to_json, fallback="{}", unavailable=unavailable)
    return ColumnCodec(NaturalConverter(MAP, _to_map), event)


def _to_map(text: pa.Array) -> Converted:
    pairs = _split(text)
    return _as_map(text, pairs)


def _to_java_map(text: pa.Array) -> Converted:
    return _as_map(text, _as_java_iterates(_split(text)))


def _to_json(text: pa.Array) -> Converted:
    pairs = _as_java_iterates(_split(text))
    values = pc.fill_null(quoted(pairs.values), "null")
    members = pc.binary_join_element_wise(quoted(pairs.keys), values, ":")
    inside = pc.binary_join(pa.ListArray.from_arrays(pa.array(pairs.offsets), members), ",")
    objects = pc.binary_join_element_wise("{", inside, "}", "")
    return Converted(masked(objects, _missing(text, pairs.bad)), marked(pairs.bad))


def _as_map(text: pa.Array, pairs: _Pairs) -> Converted:
    missing = _missing(text, pairs.bad)
    offsets = pa.array(pairs.offsets, mask=np.append(missing, False)) if missing.any() else pa.array(pairs.offsets)
    values = pa.MapArray.from_arrays(offsets, pairs.keys, pairs.values)
    return Converted(values, marked(pairs.bad))


def _missing(text: pa.Array, bad: Bools) -> Bools:
    missing: Bools = bad | text.is_null().to_numpy(zero_copy_only=False)
    return missing


def _as_java_iterates(pairs: _Pairs) -> _Pairs:
    sizes = np.diff(pairs.offsets).astype(np.int64)
    if not len(sizes) or int(sizes.max()) < 2:
        return pairs
    buckets = np.repeat(capacities(sizes), sizes)
    order = pa.array(iteration_order(string_hashes(pairs.keys), pairs.row_of(), buckets))
    return _Pairs(pairs.keys.take(order), pairs.values.take(order), pairs.offsets, pairs.bad)


def _split(text: pa.Array) -> _Pairs:
    """Return keys and values of N hstore texts. Null rows have none; a row with unbalanced quotes is bad.

    So is one that ends with a backslash, which would escape the first byte of the next row: it is left out before any
    row is read.
    """
    data, starts, ends, valid = flatten(text)
    bad, there = np.zeros(len(valid), dtype=bool), ends > starts
    bad[there] = data[ends[there] - 1] == ord("\\")
    index = np.flatnonzero(there & ~bad)
    data, starts, ends = gather(data, starts[index], ends[index])
    escapes, toggles = _quotes(data)
    quotes = per_row(toggles, starts)
    unsound = (quotes % 2 != 0) | (quotes == 0)
    if unsound.any():
        bad[index[unsound]] = True
        index = index[~unsound]
        data, starts, ends = gather(data, starts[~unsound], ends[~unsound])
        escapes, toggles = _quotes(data)
    borders = np.flatnonzero(toggles)
    opens, closes = borders[::2], borders[1::2]
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    is_value = (opens > 0) & (padded[opens - 1] == ord(">"))
    keep = ~(toggles | escapes)
    content = running_count(keep)
    strings = strings_from(data, keep, opens + 1, closes, content[closes] - content[opens])
    row_of = index[np.searchsorted(starts, opens, side="right") - 1] if len(opens) else opens
    without = (padded[closes + 1] == ord("=")) & (padded[closes + 3] == ord("N"))
    bad |= _malformed(len(valid), row_of, is_value, without)
    return _pair(strings, is_value, without, row_of, bad)


def _quotes(data: Bytes) -> tuple[Bools, Bools]:
    """Return backslashes that escape, and quotes that are not escaped."""
    escapes, escaped = escaped_bytes(data)
    return escapes, (data == ord('"')) & ~escaped


def _malformed(count: int, row_of: Ints, is_value: Bools, without: Bools) -> Bools:
    """Return rows in which some key has neither a value nor NULL, or a value has no key before it."""
    bad = np.zeros(count, dtype=bool)
    if len(row_of):
        needs = ~is_value & ~without
        followed = np.append(is_value[1:] & (row_of[1:] == row_of[:-1]), False)
        bad[row_of[needs != followed]] = True
    return bad


def _pair(strings: pa.StringArray, is_value: Bools, without: Bools, row_of: Ints, bad: Bools) -> _Pairs:
    key_at = np.flatnonzero(~is_value & ~bad[row_of])
    keys = strings.take(pa.array(key_at))
    null = without[key_at]
    values = strings.take(pa.array(np.where(null, 0, key_at + 1), mask=null))
    offsets = np.zeros(len(bad) + 1, dtype=np.int32)
    np.cumsum(np.bincount(row_of[key_at], minlength=len(bad)), out=offsets[1:])
    return _Pairs(keys, values, offsets, bad)


RULES: tuple[TypeRule, ...] = (extension("hstore", build, "hstore"),)
