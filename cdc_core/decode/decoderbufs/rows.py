"""Decodes row messages: column by column, for all rows of one table and format at once.

The plug-in repeats names and types in each row, so rows of one format differ in their values only. The first row of a
format is parsed by the Protobuf library; all others are walked in step with it, each constant part compared at all rows
at once. A row that differs elsewhere has another format, and is handled by the next pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError, EncodeError

from cdc_core.decode.decoderbufs import texts
from cdc_core.decode.decoderbufs.message import DELETE, INSERT, UPDATE, RowMessage
from cdc_core.decode.gather import gather_binary
from cdc_core.decode.plugin import SeenColumn
from cdc_core.decode.raw_columns import RawColumns
from cdc_core.decode.row_writer import RowGroup
from cdc_core.decode.wire import Wire
from cdc_core.errors import ProtocolError
from cdc_core.schema import TableId

_NEW_TAG, _OLD_TAG, _INFO_TAG = 0x2A, 0x32, 0x3A
_NAME_TAG, _TYPE_TAG = 0x0A, 0x10
_INT32, _INT64, _FLOAT, _DOUBLE, _BOOL, _STRING, _BYTES, _POINT, _MISSING = (
    0x18, 0x20, 0x2D, 0x31, 0x38, 0x42, 0x4A, 0x52, 0x58,
)  # fmt: skip
_OPS = {INSERT: ord("I"), UPDATE: ord("U"), DELETE: ord("D")}
# Rows walked at once: their bytes remain in the CPU cache.
_CHUNK_ROWS = 8192
_BYTEA, _POINT_OID = 17, 600
# Types that are sent as numbers, with the field that has them; all others are text, in the field for strings or bytes.
_NUMBERS: dict[int, tuple[int, texts.TextOf]] = {
    16: (_BOOL, texts.booleans),
    20: (_INT64, texts.integers),
    21: (_INT32, texts.integers),
    23: (_INT32, texts.integers),
    26: (_INT64, texts.integers),
    700: (_FLOAT, texts.floats),
    701: (_DOUBLE, texts.floats),
    790: (_INT64, texts.money),
    1082: (_INT32, texts.dates),
    1083: (_INT64, texts.times),
    1114: (_INT64, texts.timestamps),
    1184: (_INT64, texts.zoned_timestamps),
    1266: (_DOUBLE, texts.zoned_times),
}


@dataclass(frozen=True, slots=True)
class ProtobufRowPlaces:
    """Row messages of one table and one kind: ``at[N]`` their frames, from ``starts[N]`` (their fifth field) to
    ``ends[N]``; ``heads[N]`` where the whole messages start.
    """

    table: TableId
    op: int
    at: np.ndarray
    lsn: np.ndarray
    heads: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def some(self, rows: np.ndarray) -> ProtobufRowPlaces:
        """Return some rows, by their indices."""
        return ProtobufRowPlaces(
            self.table, self.op, self.at[rows], self.lsn[rows], self.heads[rows], self.starts[rows], self.ends[rows]
        )


@dataclass(frozen=True, slots=True)
class _Format:
    """What is constant in the rows of one format: for each column its name, type and the bytes before its value."""

    columns: tuple[SeenColumn, ...]
    literals: tuple[bytes, ...]
    has_new: bool
    has_old: bool
    tail: bytes


def decode(wire: Wire, places: ProtobufRowPlaces) -> Iterator[RowGroup]:
    """Return the rows in groups of one format each. Raises ProtocolError for what the plug-in does not send."""
    for first in range(0, len(places.at), _CHUNK_ROWS):
        left = places.some(np.arange(first, min(first + _CHUNK_ROWS, len(places.at))))
        while len(left.at):
            of_format = _format(wire, left)
            ok, new, old = _walk(wire, left, of_format)
            if not ok[0]:
                raise ProtocolError(
                    str(left.table), int(left.lsn[0]), "a row message as decoderbufs writes it", "another"
                )
            mine = left if ok.all() else left.some(np.flatnonzero(ok))
            yield RowGroup(
                left.table,
                _OPS[left.op],
                mine.at,
                mine.lsn,
                of_format.columns,
                bool(of_format.tail),
                new.columns(of_format, ok) if new else None,
                old.columns(of_format, ok) if old else None,
            )
            left = left.some(np.flatnonzero(~ok))


def unquoted(name: str) -> str:
    """Return an identifier without the quotes that SQL needs."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def table_of(quoted: str) -> TableId:
    """Return the table of a qualified name as the plug-in writes it. Raises ValueError."""
    names, at = [], 0
    while at < len(quoted):
        if quoted[at] == '"':
            stop = at + 1
            while True:
                stop = quoted.index('"', stop)
                if quoted[stop + 1 : stop + 2] != '"':
                    break
                stop += 2
            stop += 1
        else:
            stop = quoted.find(".", at)
            stop = len(quoted) if stop < 0 else stop
        names.append(unquoted(quoted[at:stop]))
        at = stop + 1
    schema, table = names
    return TableId(schema, table)


def _format(wire: Wire, places: ProtobufRowPlaces) -> _Format:
    """Parse the first row."""
    text = wire.data[int(places.heads[0]) : int(places.ends[0])].tobytes()
    try:
        return _format_of(RowMessage.FromString(text))
    except (DecodeError, EncodeError, ValueError):
        raise ProtocolError(str(places.table), int(places.lsn[0]), "a row of decoderbufs", "other bytes") from None


def _format_of(message: Any) -> _Format:
    shown = message.new_tuple or message.old_tuple
    infos = [info.modifier for info in message.new_typeinfo] or [""] * len(shown)
    tails = [info.SerializeToString() for info in message.new_typeinfo]
    tail = b"".join(bytes([_INFO_TAG]) + _number(len(field)) + field for field in tails)
    columns, literals = [], []
    for datum, info in zip(shown, infos, strict=True):
        name = datum.column_name.encode()
        columns.append(SeenColumn(unquoted(datum.column_name), datum.column_type, info))
        start = bytes([_NAME_TAG]) + _number(len(name)) + name
        literals.append(start + bytes([_TYPE_TAG]) + _number(datum.column_type))
    return _Format(tuple(columns), tuple(literals), bool(message.new_tuple), bool(message.old_tuple), tail)


def _walk(wire: Wire, places: ProtobufRowPlaces, of_format: _Format) -> tuple[np.ndarray, _Tuple | None, _Tuple | None]:
    """Return which rows are of the format, and the values of their tuples."""
    ok, at = np.ones(len(places.at), dtype=bool), places.starts
    new = old = None
    if of_format.has_new:
        new = _Tuple()
        at = new.walk(wire, at, _NEW_TAG, of_format, ok)
    if of_format.has_old:
        old = _Tuple()
        at = old.walk(wire, at, _OLD_TAG, of_format, ok)
    if of_format.tail:
        ok &= wire.matches(at, of_format.tail)
        at = at + len(of_format.tail)
    ok &= at == places.ends
    return ok, new, old


class _Tuple:
    """The values of one tuple of N rows: for each column a function from the rows of the format to their text."""

    def __init__(self) -> None:
        self._values: list[_Value] = []

    def walk(self, wire: Wire, at: np.ndarray, tag: int, of_format: _Format, ok: np.ndarray) -> np.ndarray:
        """Find the values from ``at``; clears ``ok`` for rows of another format. Returns the positions behind them."""
        for column, literal in zip(of_format.columns, of_format.literals, strict=True):
            ok &= wire.u8(at) == tag
            size, start = wire.numbers(wire.inside(at + 1))
            end = wire.inside(start + size)
            ok &= wire.matches(start, literal)
            at = wire.inside(start + len(literal))
            self._values.append(_Value.read(wire, column.type_oid, at, end, ok))
            at = end
        return at

    def columns(self, of_format: _Format, ok: np.ndarray) -> RawColumns:
        """Return the rows of the format as text."""
        rows = None if ok.all() else np.flatnonzero(ok)
        names = tuple(column.name for column in of_format.columns)
        text = tuple(value.text(rows) for value in self._values)
        unchanged = tuple(value.missing(rows) for value in self._values)
        return RawColumns(names, text, unchanged, int(np.count_nonzero(ok)))


@dataclass(frozen=True, slots=True)
class _Value:
    """One column of a tuple: where its values are, which have none, and which are unchanged TOAST values."""

    wire: Wire
    type_oid: int
    at: np.ndarray
    end: np.ndarray
    has_value: np.ndarray
    is_missing: np.ndarray

    @classmethod
    def read(cls, wire: Wire, type_oid: int, at: np.ndarray, end: np.ndarray, ok: np.ndarray) -> _Value:
        kind = wire.u8(at)
        null = at == end
        is_missing = (kind == _MISSING) & ~null
        tag = _POINT if type_oid == _POINT_OID else _NUMBERS.get(type_oid, (0, None))[0]
        has_value = (kind == tag) if tag else (kind == _STRING) | (kind == _BYTES)
        has_value &= ~null
        ok &= null | is_missing | has_value
        return cls(wire, type_oid, at + 1, end, has_value, is_missing)

    def missing(self, rows: np.ndarray | None) -> np.ndarray | None:
        found = self.is_missing if rows is None else self.is_missing[rows]
        return found if found.any() else None

    def text(self, rows: np.ndarray | None) -> pa.Array:
        """Return the text of all rows, or of some; null where there is none."""
        at, end, has = (
            (self.at, self.end, self.has_value)
            if rows is None
            else (self.at[rows], self.end[rows], self.has_value[rows])
        )
        made = self._made(at, end, has)
        if has.all():
            return made
        _, *buffers = made.cast(pa.binary()).buffers()
        valid = pa.py_buffer(np.packbits(has, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), len(made), [valid, *buffers])

    def _made(self, at: np.ndarray, end: np.ndarray, has: np.ndarray) -> pa.Array:
        wire = self.wire
        if self.type_oid == _POINT_OID:
            at = wire.inside(np.where(has, at, 0))
            x, y = (wire.u64(wire.inside(at + place)).view(np.float64) for place in (2, 11))
            return texts.points(np.where(has, x, 0.0), np.where(has, y, 0.0))
        number = _NUMBERS.get(self.type_oid)
        if number is None:
            # Without a value: an empty range that keeps the order.
            _, start = wire.numbers(wire.inside(at))
            values = gather_binary(wire.data, np.where(has, start, end), end)
            return texts.hexadecimal(values) if self.type_oid == _BYTEA else values
        tag, text_of = number
        return text_of(np.where(has, self._number(wire, tag, wire.inside(at)), 0))

    @staticmethod
    def _number(wire: Wire, tag: int, at: np.ndarray) -> Any:
        if tag == _FLOAT:
            return wire.u32(at).view(np.float32)
        if tag == _DOUBLE:
            return wire.u64(at).view(np.float64)
        return wire.numbers(at)[0]


def _number(value: int) -> bytes:
    out = bytearray()
    value &= 2**64 - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
