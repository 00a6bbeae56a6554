"""A source table at one version: its columns, its keys, and a JSON form that travels with its data."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cdc_core.schema.fingerprint import Fingerprint
from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.relation import ReplicaIdentity


class TableId(NamedTuple):
    """A table's name in its database. Prints as ``schema.table``, the form that Debezium's regexes match."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the catalogue described it when its version was read.

    ``modifier`` is atttypmod (-1: none). ``optional`` is False for NOT NULL. ``default_expression`` is
    pg_get_expr's text or None. ``is_generated`` covers stored generated columns, ``is_serial`` a default taken from a
    sequence (identity columns have none). ``comment`` is None where there is none.

    ``attnum`` is the column's number in its table, which it keeps through every ALTER and no other column ever gets; 0
    where it is not known. ``generated`` is pg_attribute.attgenerated: '' for none, 's' stored, 'v' virtual.
    ``has_missing`` says that rows written before the column was added read as ``missing``, PostgreSQL's text of the
    constant default of that moment (None with has_missing: the partitions do not agree on one). These facts, of the
    moment of reading, take no part in comparisons of versions.
    """

    name: str
    type: PgType
    modifier: int = -1
    optional: bool = True
    default_expression: str | None = None
    is_generated: bool = False
    is_serial: bool = False
    comment: str | None = None
    attnum: int = field(default=0, compare=False)
    generated: str = field(default="", compare=False)
    has_missing: bool = field(default=False, compare=False)
    missing: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a captured table.

    ``columns`` stand in the order of the Relation (or of the table, before any Relation came). ``primary_key`` and
    ``unique_key`` (the first unique index of all rows over plain columns) hold column names in key order, empty where
    there is none. ``index_key`` is the first unique index as JDBC lists it: a partial one counts there, and columns
    that are only INCLUDEd are part of it. ``identity_key`` holds the columns flagged as replica identity. ``version``
    counts from 1 within one process. ``fingerprint`` holds the catalogue's marks of the moment of reading, None where
    they were not read. ``deferrable_key``: the constraint behind ``lake_key`` is DEFERRABLE, so that within a
    transaction two rows may have one key. Two versions that differ in these two alone are equal.
    """

    id: TableId
    oid: int
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique_key: tuple[str, ...] = ()
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT
    identity_key: tuple[str, ...] = ()
    version: int = 1
    comment: str | None = None
    index_key: tuple[str, ...] = ()
    fingerprint: Fingerprint | None = field(default=None, compare=False)
    deferrable_key: bool = field(default=False, compare=False)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of an event's key: the primary key, else a unique index, else nothing.

        They need not identify rows, because the index may be partial: ``lake_key`` does.
        """
        return self.primary_key or self.index_key or self.unique_key

    @property
    def lake_key(self) -> tuple[str, ...]:
        """The key of the lake table: the primary key, else a unique index whose columns are all NOT NULL, else nothing.

        A unique index over nullable columns does not identify rows (NULLs repeat), so such a table is keyless.
        """
        if self.primary_key:
            return self.primary_key
        by_name = {column.name: column for column in self.columns}
        if self.unique_key and all(name in by_name and not by_name[name].optional for name in self.unique_key):
            return self.unique_key
        return ()

    def column(self, name: str) -> Column:
        """The column of that name; KeyError where there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def to_json(self) -> str:
        """A text that ``from_json`` turns back into an equal value."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TableSchema:
        """The inverse of ``to_json``."""
        raw = json.loads(text)
        raw["id"] = TableId(*raw["id"])
        raw["identity"] = ReplicaIdentity(raw["identity"])
        raw["columns"] = tuple(column_from_plain(column) for column in raw["columns"])
        for name in ("primary_key", "unique_key", "identity_key", "index_key"):
            raw[name] = tuple(raw.get(name, ()))
        marks = raw.get("fingerprint")
        raw["fingerprint"] = None if marks is None else Fingerprint.from_plain(marks)
        return cls(**raw)


def column_from_plain(raw: dict[str, Any]) -> Column:
    """A column from the dictionaries that ``dataclasses.asdict`` and JSON make of one."""
    return Column(**{**raw, "type": _pg_type(raw["type"])})


def _pg_type(raw: dict[str, Any]) -> PgType:
    inner = _pg_type(raw["inner"]) if raw["inner"] else None
    return PgType(**{**raw, "kind": TypeKind(raw["kind"]), "inner": inner, "labels": tuple(raw["labels"])})
