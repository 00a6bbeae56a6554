"""Completes from the catalogue what a plug-in's rows show of a table: its oid, replica identity and modifiers.

pgoutput announces a table with all of this; other plug-ins show names and types of columns with each row. The catalogue
is read when a format of rows is seen first, and may be ahead of the rows, so it is used for what they do not show only.
A table that was renamed since is known by the oid that it had when its former name was seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from cdc_core.decode import SeenColumn
from cdc_core.schema import Column, Relation, RelationColumn, ReplicaIdentity, TableId, TableSchema, is_streamed

_HEADER_BYTES = 4
_FORMAT = re.compile(r"(?P<name>[a-z ]+)\((?P<first>\d+)(?:,(?P<second>-?\d+))?\)(?P<rest>[a-z ]*)(?:\[\])*")
_NUMERIC = "numeric"
_LENGTHS = {"character varying": _HEADER_BYTES, "character": _HEADER_BYTES, "bit": 0, "bit varying": 0}
_PRECISIONS = ("timestamp", "time")
_SCALE_MASK = 0x7FF


class RelationCatalog(Protocol):
    """The part of the catalogue that is used (``cdc_core.postgres.catalog.tables.Catalog``)."""

    def current(self, name: TableId) -> TableSchema | None:
        """Return the table as it is now; None if it does not exist."""


class SeenRelations:
    """As ``cdc_core.decode.plugin.Relations``. ``tables``: those that are captured at the start."""

    def __init__(
        self, catalog: RelationCatalog, includes: Callable[[TableId], bool], tables: Iterable[TableSchema]
    ) -> None:
        self._catalog = catalog
        self.is_captured = includes
        self._oids = {table.id: table.oid for table in tables}

    def oid(self, table: TableId) -> int:
        """Return the oid of the table that has, or last had, the name; 0 if it was never seen."""
        self._current(table)
        return self._oids.get(table, 0)

    def named(self, name: str) -> list[TableId]:
        """Return the captured tables of this name in any schema, of those that were seen."""
        return [table for table in self._oids if table.table == name and self.is_captured(table)]

    def complete(self, table: TableId, columns: Sequence[SeenColumn]) -> Relation:
        """Return the relation of rows that show exactly these columns, in their order."""
        return self._relation(table, columns, self._current(table))

    def extended(self, table: TableId, columns: Sequence[SeenColumn]) -> Relation:
        """Return the relation of rows that show these columns and perhaps not all.

        Columns of the catalogue are added in its order; one that was dropped since is not among them, so that it is not
        taken for an unchanged value.
        """
        now, seen = self._current(table), {column.name: column for column in columns}
        if now is None:
            return self._relation(table, columns, None)
        listed = [seen.pop(column.name, _as_seen(column)) for column in now.columns]
        return self._relation(table, [*listed, *seen.values()], now)

    def _current(self, table: TableId) -> TableSchema | None:
        now = self._catalog.current(table)
        if now is not None:
            self._oids[table] = now.oid
        return now

    def _relation(self, table: TableId, columns: Sequence[SeenColumn], now: TableSchema | None) -> Relation:
        known = {} if now is None else {column.name: column for column in now.columns}
        marks = None if now is None else now.fingerprint
        key = () if now is None else now.identity_key
        members = []
        for column in columns:
            described = known.get(column.name)
            if described is not None and not is_streamed(described, marks):
                # A virtual generated column: its value is computed when it is read, so no plug-in has it.
                continue
            modifier = modifier_of(column, described)
            members.append(RelationColumn(column.name, column.type_oid, modifier, column.name in key))
        identity = ReplicaIdentity.DEFAULT if now is None else now.identity
        return Relation(self._oids.get(table, 0), table.schema, table.table, identity, tuple(members))


def modifier_of(column: SeenColumn, described: Column | None) -> int:
    """Return the type modifier that the server formats like this; the catalogue's where the text is not enough.

    -1 for none. Source: the functions of PostgreSQL that read and write type modifiers (numerictypmodin and others).
    """
    if column.format and "(" not in column.format and not column.format.startswith("interval"):
        return -1
    match = _FORMAT.fullmatch(column.format)
    if match is not None:
        name, first = match["name"].strip(), int(match["first"])
        if name == _NUMERIC:
            return ((first << 16) | (int(match["second"] or 0) & _SCALE_MASK)) + _HEADER_BYTES
        if name in _LENGTHS:
            return first + _LENGTHS[name]
        if name in _PRECISIONS:
            return first
    return described.modifier if described is not None and described.type.oid == column.type_oid else -1


def _as_seen(column: Column) -> SeenColumn:
    return SeenColumn(column.name, column.type.oid)
