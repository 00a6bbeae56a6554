"""Hashes of Connect's values as Debezium's transforms compute them: Java's ``hashCode``, and Murmur's of it."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from cdc_core.errors import RecordError
from cdc_core.events.envelope.batch import Data
from cdc_core.events.transform.java_text import CONNECT_TIMES, DECIMAL, connect_millis
from cdc_core.events.transform.kafka_fields import each

# A hash of a value of a Connect type, as a signed 32-bit number.
Hash = Callable[[str, Any], int]

_MASK, _LONG = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_NESTED = ("array", "map", "struct")


def hashes(data: Data, function: Hash) -> pa.Array:
    """Return the hash of each value as a signed 32-bit number, null for null. Raises RecordError for a struct."""
    schema = data.schema
    if schema is None:
        return pa.nulls(len(data), pa.int64())
    if schema.name == DECIMAL:
        scale = int(dict(schema.parameters).get("scale", "0"))
        return each(
            data.values, lambda value: function("decimal", _signed(31 * _hash_of_integer(value) + scale)), pa.int64()
        )
    if schema.name in CONNECT_TIMES:
        return each(data.values, lambda value: function("int64", connect_millis(value, schema)), pa.int64())
    if schema.type == "array" and schema.element.type not in _NESTED:
        inner = schema.element.type
        # row-wise: lists have no distinct values that Arrow finds
        rows = data.values.to_pylist()
        made = [None if item is None else function("list", _hash_of_list(item, inner)) for item in rows]
        return pa.array(made, type=pa.int64())
    if schema.type in _NESTED:
        raise RecordError(f"PartitionRouting does not hash {schema.type}.")
    return each(data.values, partial(function, schema.type), pa.int64())


def _hash_of_list(values: list[Any], kind: str) -> int:
    out = 1
    for one in values:
        out = (31 * out + (0 if one is None else java_hash(kind, one))) & _MASK
    return _signed(out)


def _hash_of_integer(value: bytes) -> int:
    """Return ``BigInteger.hashCode``: of its magnitude in words of 32 bits."""
    number = int.from_bytes(value, "big", signed=True)
    magnitude, out = abs(number), 0
    words = magnitude.to_bytes((magnitude.bit_length() + 31) // 32 * 4, "big")
    for at in range(0, len(words), 4):
        out = (31 * out + int.from_bytes(words[at : at + 4], "big")) & _MASK
    return _signed(out if number >= 0 else -out)


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 32) if value >> 31 else value


def java_hash(kind: str, value: Any) -> int:
    """Return Java's ``hashCode`` of a value of a Connect type; a list's or decimal's is computed by the caller."""
    if kind == "string":
        out = 0
        raw = str(value).encode("utf-16-be", "surrogatepass")
        for at in range(0, len(raw), 2):
            out = (31 * out + int.from_bytes(raw[at : at + 2], "big")) & _MASK
    elif kind == "boolean":
        out = 1231 if value else 1237
    elif kind in ("int64", "double"):
        bits = int(value) if kind == "int64" else _bits(value, ">d", 0x7FF8000000000000)
        out = ((bits >> 32) ^ bits) & _MASK
    elif kind == "float":
        out = _bits(value, ">f", 0x7FC00000)
    elif kind == "bytes":
        out = 1
        for byte in reversed(bytes(value)):
            out = (31 * out + (byte - 256 if byte > 127 else byte)) & _MASK
    else:
        out = int(value) & _MASK
    return _signed(out)


def _bits(value: float, form: str, nan: int) -> int:
    return nan if math.isnan(value) else int.from_bytes(struct.pack(form, value), "big")


def murmur_hash(kind: str, value: Any) -> int:
    """Return Debezium's ``MurmurHash3.hash``: of a text's UTF-8, and of the four bytes of any other hash code."""
    if kind == "string":
        return _murmur(str(value).encode("utf-8", "replace"))
    return _murmur((java_hash(kind, value) & _MASK).to_bytes(4, "little"))


HASHES: dict[str, Hash] = {"java": java_hash, "murmur": murmur_hash}


class _Murmur:
    """The state of an early MurmurHash3 of 64 bits, whose multipliers change with every block of 16 bytes."""

    def __init__(self, seed: int) -> None:
        self.h1, self.h2 = 0x9368E53C2F6AF274 ^ seed, 0x586DCD208F7CD3FD ^ seed
        self._c1, self._c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F

    def mix(self, k1: int, k2: int) -> None:
        """Process a block, as two numbers of 64 bits."""
        self.h1 = (self.h1 ^ _rotated(k1 * self._c1, 23) * self._c2) + self.h2 & _LONG
        self.h2 = _rotated(self.h2, 41)
        self.h2 = (self.h2 ^ _rotated(k2 * self._c2, 23) * self._c1 & _LONG) + self.h1 & _LONG
        self.h1, self.h2 = self.h1 * 3 + 0x52DCE729 & _LONG, self.h2 * 3 + 0x38495AB5 & _LONG
        self._c1, self._c2 = self._c1 * 5 + 0x7B7D159C & _LONG, self._c2 * 5 + 0x6BCE6396 & _LONG


def _murmur(octets: bytes) -> int:
    state = _Murmur(9001)
    whole = len(octets) & ~15
    for at in range(0, whole, 16):
        state.mix(*(int.from_bytes(octets[start : start + 8], "little") for start in (at, at + 8)))
    rest = octets[whole:]
    if rest:
        state.mix(_sign_extended(rest[:8]), _sign_extended(rest[8:]))
    h2 = state.h2 ^ len(octets)
    h1 = state.h1 + h2 & _LONG
    h2 = h2 + h1 & _LONG
    return _signed((_final(h1) + _final(h2) & _LONG) >> 32)


def _sign_extended(octets: bytes) -> int:
    """Return bytes of the last block as a number: Java's are signed there, so one above 127 inverts those above it."""
    out = 0
    for at, one in enumerate(octets):
        out ^= (one - 256 if one > 127 else one) << 8 * at
    return out & _LONG


def _rotated(number: int, bits: int) -> int:
    number &= _LONG
    return (number << bits | number >> 64 - bits) & _LONG


def _final(number: int) -> int:
    number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD & _LONG
    number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 & _LONG
    return number ^ number >> 33
