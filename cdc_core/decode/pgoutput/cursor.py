"""Checked reads of a single message: for the rare kinds (Relation, Type, Truncate, Message), never for rows."""

from __future__ import annotations

import struct

from cdc_core.errors import ProtocolError


class Cursor:
    """Reads forward through one payload; raises ProtocolError for malformed data.

    ``relation`` is used in errors, empty until it is known; ``what`` is the message being read.
    """

    __slots__ = ("_at", "_data", "_lsn", "relation", "what")

    def __init__(self, payload: bytes | memoryview, lsn: int | None, what: str, relation: str = "") -> None:
        self._data = bytes(payload)
        self._at = 0
        self._lsn = lsn
        self.what = what
        self.relation = relation

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        part = self._data[self._at : self._at + count]
        if len(part) < count:
            raise self._error(f"{count} more bytes at offset {self._at} of {self.what}", f"{len(part)}")
        self._at += count
        return part

    def byte(self) -> int:
        """One unsigned byte."""
        return self.take(1)[0]

    def u16(self) -> int:
        """An unsigned 16-bit number."""
        return int(struct.unpack("!H", self.take(2))[0])

    def u32(self) -> int:
        """An unsigned 32-bit number."""
        return int(struct.unpack("!I", self.take(4))[0])

    def i32(self) -> int:
        """A signed 32-bit number."""
        return int(struct.unpack("!i", self.take(4))[0])

    def i64(self) -> int:
        """A signed 64-bit number."""
        return int(struct.unpack("!q", self.take(8))[0])

    def text(self) -> str:
        """Return a string terminated by a NUL byte."""
        stop = self._data.find(b"\0", self._at)
        if stop < 0:
            raise self._error(f"a NUL-terminated string at offset {self._at} of {self.what}", "the message's end")
        raw = self._data[self._at : stop]
        self._at = stop + 1
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self._error(f"a string in UTF-8 in {self.what}", "bytes that are not UTF-8") from None

    def end(self) -> None:
        """Check that no bytes remain."""
        if self._at != len(self._data):
            raise self._error(
                f"the end of {self.what} at offset {self._at}", f"{len(self._data) - self._at} more bytes"
            )

    def _error(self, expected: str, found: str) -> ProtocolError:
        return ProtocolError(self.relation, self._lsn, expected, found)
