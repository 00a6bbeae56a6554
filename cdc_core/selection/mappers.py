"""Transformations of values: truncation, mask, hash.

Each mapper is a picklable function from text column to text column. The input is PostgreSQL's text. Only distinct
values are hashed.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.selection.digests import DIGESTS

# Java's serialization of a String: stream header, then a tag with the length of its modified UTF-8.
_JAVA_HEADER = b"\xac\xed\x00\x05"
_SHORT_STRING, _LONG_STRING = b"\x74", b"\x7c"
_OUTSIDE_BMP = "[\U00010000-\U0010ffff]"


@dataclass(frozen=True, slots=True)
class TruncateMapper:
    """Truncates strings to ``length`` UTF-16 units, never within a surrogate pair."""

    length: int

    def __call__(self, values: pa.Array) -> pa.Array:
        """Text[N] to text[N]; null stays null."""
        cut = pc.utf8_slice_codeunits(values, 0, self.length)
        wide = pc.and_kleene(
            pc.greater(pc.binary_length(values), self.length), pc.match_substring_regex(values, _OUTSIDE_BMP)
        )
        if not pc.any(wide).as_py():  # row-wise: one answer for the whole column
            return cut
        rows = np.flatnonzero(pc.fill_null(wide, False).to_numpy(zero_copy_only=False))
        texts = values.take(pa.array(rows))
        # row-wise: characters outside the basic plane count as two units, which Arrow does not count
        shortened = [
            text.encode("utf-16-le")[: 2 * self.length].decode("utf-16-le", "ignore") for text in texts.to_pylist()
        ]
        return pc.replace_with_mask(cut, pc.fill_null(wide, False), pa.array(shortened, values.type))


@dataclass(frozen=True, slots=True)
class TruncateBytes:
    """Truncates bytea's text ``\\x…`` to ``length`` bytes."""

    length: int

    def __call__(self, values: pa.Array) -> pa.Array:
        """Text[N] to text[N]; null stays null."""
        return pc.utf8_slice_codeunits(values, 0, 2 + 2 * self.length)


@dataclass(frozen=True, slots=True)
class Mask:
    """Replaces every value, null included, by ``length`` asterisks."""

    length: int

    def __call__(self, values: pa.Array) -> pa.Array:
        """Text[N] to text[N] without nulls."""
        return pa.repeat(pa.scalar("*" * self.length, values.type), len(values))


@dataclass(frozen=True, slots=True, repr=False)
class Hash:
    """Replaces values by lower-case hex of digest(salt, value), truncated to ``length`` if greater than zero.

    ``java_serialised`` is version 1, which hashes Java's serialization of the value; version 2 hashes its UTF-8 text.
    """

    algorithm: str
    salt: str
    java_serialised: bool
    length: int

    def __call__(self, values: pa.Array) -> pa.Array:
        """Text[N] to text[N]; null stays null."""
        encoded = values.dictionary_encode()
        salted = hashlib.new(DIGESTS[self.algorithm.upper()], self.salt.encode(), usedforsecurity=False)
        octets = java_serialisation if self.java_serialised else str.encode
        end = self.length if self.length > 0 else None
        hashed = []
        # row-wise: a digest takes one value at a time; each distinct value is hashed once
        for text in encoded.dictionary.to_pylist():
            digest = salted.copy()
            digest.update(octets(text))
            hashed.append(digest.hexdigest()[:end])
        return pa.array(hashed, values.type).take(encoded.indices)


def java_serialisation(text: str) -> bytes:
    """Return the output of Java's ObjectOutputStream for a String: header, tag, length, modified UTF-8."""
    body = modified_utf8(text)
    if len(body) <= 0xFFFF:
        return _JAVA_HEADER + _SHORT_STRING + struct.pack(">H", len(body)) + body
    return _JAVA_HEADER + _LONG_STRING + struct.pack(">Q", len(body)) + body


def modified_utf8(text: str) -> bytes:
    """Return UTF-8 in which NUL is two bytes and a character outside the basic plane is its two surrogates."""
    if text.isascii():
        return text.encode().replace(b"\0", b"\xc0\x80")
    units = struct.unpack(f"<{len(text.encode('utf-16-le')) // 2}H", text.encode("utf-16-le"))
    return "".join(map(chr, units)).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
