"""Deletion vectors: marks of deleted rows in data files, in the form of Delta's protocol ("Deletion Vectors").

A vector is a set of row positions in its Parquet file, counted from 0. It is stored as a *RoaringBitmapArray* in the
portable form, in a file that contains the vectors of one commit, or in the log itself if it is small:

    file     version (one byte, 1), then for each vector: size, vector, CRC-32 of it; size and CRC big-endian int32
    vector   1681511377 (int32), number of bitmaps (int64), and for each the upper 32 bits of its positions (uint32)
             and a 32-bit Roaring bitmap; little-endian

In the log a file with a vector is another file than the same one without it or with another: an action that removes it
names the vector.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID, uuid4

import numpy as np
from pyroaring import BitMap64

from cdc_core.arrays import Ints

_MAGIC = struct.pack("<I", 1681511377)
_VERSION = b"\x01"
_ENCODED_UUID = 20
# Delta writes ZeroMQ's Base85 (Z85); Python's has the same values with other characters.
_PYTHONS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _FROM_Z85 = bytes.maketrans(_PYTHONS, _Z85), bytes.maketrans(_Z85, _PYTHONS)


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """A vector as the log describes it. ``size``: its bytes; ``cardinality``: the number of its positions.

    ``storage``: ``u`` for a file of the table's folder, whose name follows from ``place``; ``p`` for an absolute path,
    ``i`` if ``place`` is the vector itself. ``offset``: where the vector begins in its file, None for the beginning.
    """

    storage: str
    place: str
    size: int
    cardinality: int
    offset: int | None = None

    @classmethod
    def of_log(cls, told: dict[str, Any]) -> DeletionVector:
        """Create the description from the log's ``deletionVector``."""
        offset = told.get("offset")
        return cls(
            told["storageType"],
            told["pathOrInlineDv"],
            int(told["sizeInBytes"]),
            int(told["cardinality"]),
            None if offset is None else int(offset),
        )

    @property
    def for_log(self) -> dict[str, Any]:
        """The log's ``deletionVector``."""
        description: dict[str, Any] = {
            "storageType": self.storage,
            "pathOrInlineDv": self.place,
            "sizeInBytes": self.size,
            "cardinality": self.cardinality,
        }
        return description if self.offset is None else {**description, "offset": self.offset}

    @property
    def unique_id(self) -> str:
        """The identity of the vector within its table, as Delta defines it."""
        return f"{self.storage}{self.place}" + ("" if self.offset is None else f"@{self.offset}")

    @property
    def path(self) -> str | None:
        """The vector's file: relative to the table's folder, or absolute for ``p``; None if it is in the log."""
        if self.storage == "p":
            return self.place
        if self.storage != "u":
            return None
        return _file_of(self.place)

    @property
    def inline(self) -> bytes:
        """The vector that is in the log."""
        return _decoded(self.place)[: self.size]


def encoded(places: BitMap64) -> bytes:
    """Return positions as a vector."""
    return _MAGIC + bytes(places.serialize())


def decoded(vector: bytes) -> BitMap64:
    """Return the positions of a vector. Raises ValueError if it is in another form."""
    if vector[:4] != _MAGIC:
        raise ValueError("The deletion vector is not a RoaringBitmapArray in the portable form.")
    return BitMap64.deserialize(vector[4:])


def inline_vectors(vectors: Sequence[BitMap64], most_bytes: int) -> list[DeletionVector] | None:
    """Return the descriptions of vectors that are in the log themselves; None if one of them has more bytes."""
    entries = [(encoded(bitmap), len(bitmap)) for bitmap in vectors]
    if any(len(content) > most_bytes for content, _ in entries):
        return None
    # Z85 encodes four bytes at a time; the size says how many of the last ones count.
    padded = [(content + bytes(-len(content) % 4), len(content), count) for content, count in entries]
    return [
        DeletionVector("i", base64.b85encode(content).translate(_TO_Z85).decode(), size, count)
        for content, size, count in padded
    ]


def vector_file(vectors: Sequence[BitMap64]) -> tuple[str, bytes, list[DeletionVector]]:
    """Return the name and the content of a new file of vectors, and their descriptions."""
    name = uuid4()
    place = base64.b85encode(name.bytes).translate(_TO_Z85).decode()
    content, told = bytearray(_VERSION), []
    for bitmap in vectors:
        vector = encoded(bitmap)
        told.append(DeletionVector("u", place, len(vector), len(bitmap), len(content)))
        content += struct.pack(">i", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
    return f"deletion_vector_{name}.bin", bytes(content), told


def vector_in(content: bytes, vector: DeletionVector) -> BitMap64:
    """Return the positions of a vector from its entry in a file: size, vector, and CRC-32.

    Raises ValueError if they contradict each other or the description.
    """
    data = content[4 : 4 + vector.size]
    size, crc = content[:4], content[4 + vector.size : 8 + vector.size]
    if size != struct.pack(">i", vector.size) or crc != struct.pack(">I", zlib.crc32(data)):
        raise ValueError("The deletion vector is damaged.")
    bitmap = decoded(data)
    if len(bitmap) != vector.cardinality:
        raise ValueError("The deletion vector has another number of rows than the log says.")
    return bitmap


def as_places(bitmap: BitMap64) -> Ints:
    """Return the positions in ascending order. Shape: int64[C]"""
    return np.frombuffer(bitmap.to_array(), dtype=np.uint64).astype(np.int64)


def packed(places: np.ndarray) -> bytes:
    """Return positions as bytes, at most two a position. Shape: integers[N], any order"""
    return bytes(as_bitmap(places).serialize())


def united(bitmaps: Iterable[bytes]) -> Ints:
    """Return the positions of several sets (``packed``) in ascending order. Shape: int64[C]"""
    return as_places(BitMap64.union(*(BitMap64.deserialize(bitmap) for bitmap in bitmaps)))


def as_bitmap(places: np.ndarray) -> BitMap64:
    """Return positions as a set. Shape: integers[N], any order"""
    return BitMap64(np.ascontiguousarray(places, dtype=np.uint64))


# All vectors of a commit are in one file, and each commit that follows names many of them.
@lru_cache(maxsize=1_024)
def _file_of(place: str) -> str:
    prefix, encoded = place[:-_ENCODED_UUID], place[-_ENCODED_UUID:]
    name = f"deletion_vector_{UUID(bytes=_decoded(encoded))}.bin"
    return f"{prefix}/{name}" if prefix else name


def _decoded(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(_FROM_Z85))
