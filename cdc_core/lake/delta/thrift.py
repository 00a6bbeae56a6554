"""Thrift's compact protocol, as far as Parquet's footers and page headers need it.

A structure is a dictionary from field numbers to (type, value) in the order in which it is stored, so what is not known
here is written as it was read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
Fields = dict[int, tuple[int, Any]]


@dataclass(slots=True)
class ThriftReader:
    """Reads values from ``data``, beginning at ``at``. Raises ValueError or IndexError if they are not Thrift's."""

    data: bytes | memoryview
    at: int = 0

    def fields(self) -> Fields:
        """Read a structure."""
        fields: Fields = {}
        last = 0
        while True:
            head = self.data[self.at]
            self.at += 1
            if head == 0:
                return fields
            kind = head & 15
            last = last + (head >> 4) if head >> 4 else self._zigzag()
            fields[last] = (kind, kind == TRUE if kind in (TRUE, FALSE) else self._value(kind))

    def _value(self, kind: int) -> Any:
        if kind in (I16, I32, I64):
            return self._zigzag()
        if kind == BINARY:
            size = self.varint()
            self.at += size
            return bytes(self.data[self.at - size : self.at])
        if kind == STRUCT:
            return self.fields()
        if kind in (LIST, SET):
            return self._list()
        if kind in (BYTE, TRUE, FALSE):
            self.at += 1
            return self.data[self.at - 1]
        if kind == DOUBLE:
            self.at += 8
            return bytes(self.data[self.at - 8 : self.at])
        raise ValueError("Not a structure of Thrift's compact protocol, or one with a map.")

    def _list(self) -> tuple[int, list[Any]]:
        head = self.data[self.at]
        self.at += 1
        size = head >> 4
        size = self.varint() if size == 15 else size
        return head & 15, [self._value(head & 15) for _ in range(size)]

    def varint(self) -> int:
        """Read a number without sign."""
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7

    def _zigzag(self) -> int:
        number = self.varint()
        return (number >> 1) ^ -(number & 1)


def written(fields: Fields) -> bytes:
    """Return a structure as it is stored."""
    return b"".join(_fields(fields))


def _fields(fields: Fields) -> Iterator[bytes]:
    last = 0
    for number, (kind, value) in fields.items():
        step = number - last
        own = (TRUE if value else FALSE) if kind in (TRUE, FALSE) else kind
        yield bytes([(step << 4 if 0 < step < 16 else 0) | own])
        if not 0 < step < 16:
            yield _varint(_zigzag(number))
        last = number
        if kind not in (TRUE, FALSE):
            yield _value(kind, value)
    yield b"\0"


def _value(kind: int, value: Any) -> bytes:
    if kind in (I16, I32, I64):
        return _varint(_zigzag(value))
    if kind == BINARY:
        return _varint(len(value)) + bytes(value)
    if kind == STRUCT:
        return written(value)
    if kind in (LIST, SET):
        inner, items = value
        head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + _varint(len(items))
        return head + b"".join(_value(inner, item) for item in items)
    return struct.pack("B", value) if kind in (BYTE, TRUE, FALSE) else bytes(value)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
