"""Reads and writes the file of Connect's FileOffsetBackingStore: a Java-serialised HashMap of byte arrays.

Of Java's serialisation protocol only what such a map consists of is understood; anything else is refused, so no class
of the file is ever looked up, let alone made.

    AC ED 00 05                                     magic, version
    73 72 "java.util.HashMap" serial 03 2 fields    object, class: loadFactor (float), threshold (int)
    78 70                                           end of annotations, no superclass
    loadFactor threshold  77 08 buckets size        the fields; a block of 8 bytes
    size × (key, value)                             each 75 (array) class length bytes, 70 (null) or 71 (reference)
    78                                              end

The class of the first array is described in full (72 "[B"), later ones refer to it (71).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from cdc_core.errors import ConfigError

MOST_BYTES = 64 << 20
_MOST_ENTRIES = 1_000_000

_MAP_CLASS = (
    b"\x72\x00\x11java.util.HashMap\x05\x07\xda\xc1\xc3\x16\x60\xd1\x03\x00\x02"
    b"F\x00\x0aloadFactorI\x00\x09threshold\x78\x70"
)
_BYTES_CLASS = b"\x72\x00\x02[B\xac\xf3\x17\xf8\x06\x08\x54\xe0\x02\x00\x00\x78\x70"
_HEAD = b"\xac\xed\x00\x05\x73" + _MAP_CLASS
_FIRST_HANDLE = 0x7E0000
_NULL, _REFERENCE, _CLASS, _ARRAY, _BLOCK, _END = 0x70, 0x71, 0x72, 0x75, 0x77, 0x78
# The map's class, the map, the class of byte arrays: the handles before that of the first array.
_BYTES_CLASS_HANDLE = _FIRST_HANDLE + 2
_LOAD_FACTOR = 0.75

Entries = list[tuple[bytes, bytes | None]]


class _Reader:
    """Reads one file. Every array has a handle, in the order of the file."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._at = len(_HEAD)
        self._name = name
        self._arrays: dict[int, bytes] = {}
        self._next_handle = _BYTES_CLASS_HANDLE

    def entries(self) -> Entries:
        """Return the map's entries in the order of the file."""
        self._take(8)  # load factor and threshold: how Java grows the map
        if self._take(2) != bytes((_BLOCK, 8)):
            raise self._bad("the number of entries is missing")
        _, size = struct.unpack(">ii", self._take(8))
        if not 0 <= size <= _MOST_ENTRIES:
            raise self._bad(f"it has {size} entries")
        pairs: Entries = []
        for _ in range(size):
            key = self._array()
            if key is None:
                raise self._bad("a key is null")
            pairs.append((key, self._array()))
        if self._take(1) != bytes((_END,)) or self._at != len(self._data):
            raise self._bad("more follows after the last entry")
        return pairs

    def _array(self) -> bytes | None:
        kind = self._take(1)[0]
        if kind == _NULL:
            return None
        if kind == _REFERENCE:
            (handle,) = struct.unpack(">I", self._take(4))
            if handle not in self._arrays:
                raise self._bad("a value refers to something else than a byte array")
            return self._arrays[handle]
        if kind != _ARRAY:
            raise self._bad("a key or value is not a byte array")
        self._array_class()
        (length,) = struct.unpack(">i", self._take(4))
        if length < 0:
            raise self._bad("a byte array has a negative length")
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._arrays[handle] = self._take(length)
        return self._arrays[handle]

    def _array_class(self) -> None:
        kind = self._take(1)[0]
        if kind == _CLASS and self._next_handle == _BYTES_CLASS_HANDLE:
            self._at -= 1
            if self._take(len(_BYTES_CLASS)) == _BYTES_CLASS:
                self._next_handle += 1
                return
        elif kind == _REFERENCE and struct.unpack(">I", self._take(4))[0] == _BYTES_CLASS_HANDLE:
            return
        raise self._bad("an array is not of bytes")

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise self._bad("it ends too early")
        self._at += count
        return taken

    def _bad(self, why: str) -> ConfigError:
        return _not_offsets(self._name, why)


def read_map(data: bytes, name: str) -> Entries:
    """Return the entries of a file of FileOffsetBackingStore; ``name`` is for errors. Raises ConfigError."""
    if len(data) > MOST_BYTES:
        raise _not_offsets(name, f"it is larger than {MOST_BYTES:,} bytes")
    if not data.startswith(_HEAD):
        raise _not_offsets(name, "it is not a serialised java.util.HashMap")
    return _Reader(data, name).entries()


def is_map(data: bytes) -> bool:
    """Whether a file begins as a Java-serialised object does."""
    return data.startswith(b"\xac\xed\x00\x05")


def write_map(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the file that Connect's FileOffsetBackingStore loads."""
    buckets = 16
    while buckets * _LOAD_FACTOR < len(entries):
        buckets *= 2
    parts = [_HEAD, struct.pack(">fi", _LOAD_FACTOR, int(buckets * _LOAD_FACTOR))]
    parts.append(struct.pack(">BBii", _BLOCK, 8, buckets, len(entries)))
    later = struct.pack(">BI", _REFERENCE, _BYTES_CLASS_HANDLE)
    for number, octets in enumerate(part for entry in entries for part in entry):
        parts += [bytes((_ARRAY,)), later if number else _BYTES_CLASS, struct.pack(">i", len(octets)), octets]
    return b"".join([*parts, bytes((_END,))])


def _not_offsets(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"{name} is not a file of Connect's offsets: {why}.",
        "Give the file of offset.storage.file.filename, topic:NAME, or the offset as JSON.",
    )
