"""Decodes row changes: column by column, for all rows of one table and format at once.

Rows of one format differ in their values only: names and types are repeated in each. The first row of a format is
taken apart into its values and what is between them; all others are walked in step with it, and what is between is
compared at all rows at once. A row that differs elsewhere has another format, and is handled by the next pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.decode.plugin import SeenColumn
from cdc_core.decode.raw_columns import RawColumns
from cdc_core.decode.row_writer import RowGroup
from cdc_core.decode.wal2json.json_bytes import JsonBytes, JsonValues, Path, leaves, plain
from cdc_core.errors import ProtocolError
from cdc_core.schema import TableId

_CHUNK_ROWS = 8192
_BYTEA = 17
# Values that belong to the transaction, and are repeated in each row of format 2.
_OF_TRANSACTION = {("xid",), ("timestamp",), ("lsn",), ("origin",)}
_UPDATE, _DELETE = ord("U"), ord("D")
_OPS = {"I": ord("I"), "U": ord("U"), "D": ord("D"), "insert": ord("I"), "update": ord("U"), "delete": ord("D")}


@dataclass(frozen=True, slots=True)
class JsonRowPlaces:
    """Row changes: ``at[N]`` their frames, from ``starts[N]`` to ``ends[N]``."""

    at: np.ndarray
    lsn: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def some(self, rows: np.ndarray | slice) -> JsonRowPlaces:
        """Return some rows."""
        return JsonRowPlaces(self.at[rows], self.lsn[rows], self.starts[rows], self.ends[rows])


@dataclass(frozen=True, slots=True)
class _JsonFormat:
    """``literals`` are before, between and behind the values; ``new`` and ``old`` map columns to numbers of values.

    ``has_old``: there is an old tuple, perhaps of nulls only, which format 1 leaves out.
    """

    table: TableId
    op: int
    literals: tuple[bytes, ...]
    new: tuple[tuple[SeenColumn, int], ...]
    old: tuple[tuple[SeenColumn, int], ...]
    has_old: bool


def decode(data: JsonBytes, rows: JsonRowPlaces) -> Iterator[RowGroup]:
    """Return the rows in groups of one format each. Raises ProtocolError for what the plug-in does not send."""
    for first in range(0, len(rows.at), _CHUNK_ROWS):
        left = rows.some(slice(first, first + _CHUNK_ROWS))
        while len(left.at):
            of_format = _format(data, left)
            ok, values = _walk(data, left, of_format)
            if not ok[0]:
                raise ProtocolError(str(of_format.table), int(left.lsn[0]), "a row as wal2json writes it", "another")
            chosen = None if ok.all() else np.flatnonzero(ok)
            yield _group(data, left if chosen is None else left.some(chosen), of_format, values, chosen)
            left = left.some(np.flatnonzero(~ok))


def _format(data: JsonBytes, rows: JsonRowPlaces) -> _JsonFormat:
    """Parse the first row."""
    text = data.data[int(rows.starts[0]) : int(rows.ends[0])].tobytes()
    try:
        places = leaves(text)
        values = {path: plain(text[start:end]) for path, start, end in places if not _is_value(path)}
        op = _OPS[values.get(("action",)) or values[("kind",)]]
        table = TableId(values[("schema",)], values[("table",)])
        literals, last = [], 0
        numbers: dict[Path, int] = {}
        for path, start, end in places:
            if _is_value(path) or path in _OF_TRANSACTION:
                literals.append(text[last:start])
                numbers[path] = len(numbers)
                last = end
        new, old = _columns(values, numbers)
    except (ValueError, LookupError):
        raise ProtocolError("", int(rows.lsn[0]), "a row as wal2json writes it", "other text") from None
    has_old = op == _DELETE or bool(old) or (op == _UPDATE and ("kind",) in values)
    return _JsonFormat(table, op, (*literals, text[last:]), tuple(new), tuple(old), has_old)


def _is_value(path: Path) -> bool:
    """Whether a path is that of a column's value, in either format."""
    if len(path) == 3:
        return path[2] == "value" or path[:2] == ("oldkeys", "keyvalues")
    return len(path) == 2 and path[0] == "columnvalues"


def _columns(
    values: dict[Path, str], numbers: dict[Path, int]
) -> tuple[list[tuple[SeenColumn, int]], list[tuple[SeenColumn, int]]]:
    """Return the columns of the new and of the old tuple."""
    new: list[tuple[SeenColumn, int]] = []
    old: list[tuple[SeenColumn, int]] = []
    for path, number in numbers.items():
        if path[0] in ("columns", "identity"):
            name, kind, oid = (values[(*path[:2], key)] for key in ("name", "type", "typeoid"))
        elif path[0] == "columnvalues":
            name, kind, oid = (values[(key, path[1])] for key in ("columnnames", "columntypes", "columntypeoids"))
        elif path[0] == "oldkeys":
            name, kind, oid = (values[("oldkeys", key, path[2])] for key in ("keynames", "keytypes", "keytypeoids"))
        else:
            continue
        target = old if path[0] in ("identity", "oldkeys") else new
        target.append((SeenColumn(name, int(oid), kind), number))
    return new, old


def _walk(data: JsonBytes, rows: JsonRowPlaces, of_format: _JsonFormat) -> tuple[np.ndarray, list[JsonValues]]:
    at, values = rows.starts, []
    ok = np.ones(len(rows.at), dtype=bool)
    for literal in of_format.literals[:-1]:
        ok &= data.matches(at, literal)
        found, at = data.values(data.inside(at + len(literal)))
        values.append(found)
    ok &= data.matches(at, of_format.literals[-1])
    ok &= at + len(of_format.literals[-1]) == rows.ends
    return ok, values


def _group(
    data: JsonBytes, rows: JsonRowPlaces, of_format: _JsonFormat, values: list[JsonValues], chosen: np.ndarray | None
) -> RowGroup:
    columns = of_format.new or of_format.old
    return RowGroup(
        of_format.table,
        of_format.op,
        rows.at,
        rows.lsn,
        tuple(column for column, _ in columns),
        # Updates leave out unchanged large values, deletes all but the key.
        is_complete=of_format.op == ord("I"),
        new=None if of_format.op == _DELETE else _tuple(data, of_format.new, values, chosen, len(rows.at)),
        old=_tuple(data, of_format.old, values, chosen, len(rows.at)) if of_format.has_old else None,
        repeats_key=of_format.op == ord("U"),
    )


def _tuple(
    data: JsonBytes,
    columns: Sequence[tuple[SeenColumn, int]],
    values: list[JsonValues],
    chosen: np.ndarray | None,
    count: int,
) -> RawColumns:
    text = tuple(_text(data, column, values[number], chosen) for column, number in columns)
    return RawColumns(tuple(column.name for column, _ in columns), text, (None,) * len(text), count)


def _text(data: JsonBytes, column: SeenColumn, found: JsonValues, chosen: np.ndarray | None) -> pa.Array:
    text = data.text(found, chosen)
    if column.type_oid != _BYTEA:
        return text
    # The plug-in cuts off the first two characters of bytea's text.
    return pc.binary_join_element_wise(pa.scalar(b"\\x", pa.binary()), text, pa.scalar(b"", pa.binary()))
