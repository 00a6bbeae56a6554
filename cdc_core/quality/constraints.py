"""The LSN from which the source's constraints are known to be in force, for each column of each table.

The stream does not contain the LSN of a change to a NOT NULL constraint, a length or an enum's labels. The constraints
that the catalogue shows at some moment hold for rows committed after that moment, because adding a constraint locks the
table and checks its rows; they may not hold for rows committed earlier. So a rule derived from a constraint applies
from the end of the WAL at the time when the column's fingerprint in the catalogue was first observed (``Fingerprint``:
it changes with every ALTER of the column). A later change of the constraint changes the fingerprint again, which is
checked when a rule fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cdc_core.schema import Column, PgType, TableId, TableSchema

Mark = tuple[object, ...]
KEY = ""
"""The entry for the table's key in mappings by column name."""


class ConstraintsSeen:
    """The constraints observed by this run. For one thread. ``wal_lsn`` returns the server's current end of WAL."""

    def __init__(self, wal_lsn: Callable[[], int]) -> None:
        self._wal_lsn = wal_lsn
        self._seen: dict[TableId, dict[tuple[int, str], tuple[Mark, int]]] = {}
        self._told: dict[TableId, tuple[TableSchema, Mapping[str, int]]] = {}

    def since(self, table: TableSchema) -> Mapping[str, int]:
        """Return column → commit LSN after which its constraints are those of ``table``.

        ``table`` was read before this call. The entry KEY is for the table's key.
        """
        told = self._told.get(table.id)
        if told is not None and told[0] is table:
            return told[1]
        marks, known = constraint_marks(table), self._seen.get(table.id, {})
        place = {KEY: (0, KEY), **{column.name: (column.attnum, column.name) for column in table.columns}}
        now: int | None = None
        seen: dict[tuple[int, str], tuple[Mark, int]] = {}
        for name, mark in marks.items():
            entry = known.get(place[name])
            if entry is None or entry[0] != mark:
                now = self._wal_lsn() if now is None else now
                entry = (mark, now)
            seen[place[name]] = entry
        lsns = {name: seen[place[name]][1] for name in marks}
        self._seen[table.id] = seen
        self._told[table.id] = (table, lsns)
        return lsns


def constraint_marks(table: TableSchema) -> dict[str, Mark]:
    """Return, by column, values that are equal as long as the column's constraints are unchanged.

    The entry KEY is for the table's key.
    """
    marks: dict[str, Mark] = {column.name: (*_declared(column), *_marked(table, column)) for column in table.columns}
    key, fingerprint = table.row_key, table.fingerprint
    made: Mark = ()
    if fingerprint is not None:
        # A rewrite by ALTER TABLE may change keys, and the slot receives no changes of an unlogged table.
        heaps = tuple((heap.oid, heap.toast, heap.is_unlogged) for heap in fingerprint.storage)
        made = (fingerprint.oid, fingerprint.keys, heaps)
    return {**marks, KEY: (key, *made, *(marks.get(name) for name in key))}


def _declared(column: Column) -> Mark:
    return (column.optional, column.modifier, *((kind.oid, kind.labels) for kind in _types(column)))


def _marked(table: TableSchema, column: Column) -> Mark:
    if table.fingerprint is None:
        return ()
    mark = table.fingerprint.column(column.attnum)
    oids = {kind.oid for kind in _types(column)}
    parts = tuple((kind.oid, kind.parts) for kind in table.fingerprint.types if kind.oid in oids)
    return (None if mark is None else mark.row, parts)


def _types(column: Column) -> list[PgType]:
    kinds, kind = [column.type], column.type.inner
    while kind is not None:
        kinds.append(kind)
        kind = kind.inner
    return kinds
