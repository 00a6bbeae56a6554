"""A version of a source table: its columns, its keys, and a JSON form that is stored with its data."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cdc_core.schema.fingerprint import Fingerprint
from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.relation import ReplicaIdentity

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_MARKS = frozenset('.|"')
_PARTS = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")

Key = tuple[str | None, ...]
"""The values of a key's columns as PostgreSQL's texts, in the key's order; None for NULL. Without a key: ()."""


class TableId(NamedTuple):
    """A table's name in its database. Prints as ``schema.table``, the form that Debezium's regexes match."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def quoted(self) -> str:
        """The name in a statement that is printed: PostgreSQL's, each part in double quotes."""
        return ".".join('"{}"'.format(part.replace('"', '""')) for part in self)

    @property
    def exact(self) -> str:
        """The name as a text that ``of_name`` reads: a part with dots, bars or quotes in it is in double quotes."""
        return ".".join(
            '"{}"'.format(part.replace('"', '""')) if _MARKS & set(part) or part != part.strip() else part
            for part in self
        )

    @property
    def argument(self) -> str:
        """The name as an argument of wal2lake in a shell."""
        return shlex.quote(self.exact)

    @classmethod
    def of_name(cls, text: str) -> TableId:
        """Return the table that an argument or a partition key names: as ``of_text``, or divided at the first dot.

        Raises ValueError if it is no such name.
        """
        if '"' in text:
            return cls.of_text(text)
        schema, dot, table = text.partition(".")
        if not (schema and dot and table):
            raise ValueError("schema.table")
        return cls(schema, table)

    @classmethod
    def of_text(cls, text: str, database: str = "") -> TableId:
        """Return the table that ``schema.table`` names: each part may be in double quotes, ``""`` is a quote in them.

        A leading name of ``database`` is left out; with an empty one, any. Raises ValueError if it is no such name.
        """
        parts = [
            (quoted.replace('""', '"') if quoted else plain.strip()) for quoted, plain in _PART.findall(text.strip())
        ]
        if _PARTS.fullmatch(text.strip()) is None or len(parts) not in (2, 3):
            raise ValueError('schema.table; a part that has dots or quotes is written in double quotes, as "a.b"')
        if len(parts) == 3 and database and parts[0] != database:
            raise ValueError(f"a table of database {database}")
        return cls(*parts[-2:])


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the catalogue described it when its version was read.

    ``modifier`` is atttypmod (-1: none). ``optional`` is False for NOT NULL. ``default_expression`` is pg_get_expr's
    text or None. ``is_generated``: a stored generated column, ``is_serial``: the default is taken from a sequence
    (identity columns have none). ``comment`` is None if there is none.

    ``attnum`` is the column's number in its table, which it keeps through every ALTER and which is never reused; 0 if
    unknown. ``generated`` is pg_attribute.attgenerated: '' for none, 's' stored, 'v' virtual. ``has_missing``: rows
    written before the column was added have the value ``missing``, PostgreSQL's text of the constant default at that
    time (None with has_missing: it differs between partitions). These fields describe the moment of reading and are not
    compared between versions.
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

    ``columns`` are in the order of the Relation (or of the table, before any Relation was received). ``primary_key``
    and ``unique_key`` (the first unique index of all rows over plain columns) contain column names in key order, empty
    if there is none. ``index_key`` is the first unique index as listed by JDBC, which includes partial ones and columns
    that are only INCLUDEd. ``identity_key`` contains the columns of the replica identity. Keys also name columns that
    are not streamed and therefore not in ``columns``: such a key does not identify rows. ``is_key_deferrable``
    refers to the primary key; a deferrable unique index is never the ``unique_key``. ``version`` counts from 1 within
    one process. ``fingerprint`` is the catalogue's fingerprint when it was read, None if it was not read; two versions
    that differ only in it are equal.
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
    is_key_deferrable: bool = False

    @property
    def marks(self) -> Fingerprint:
        """``fingerprint`` of a table that was read from the catalogue."""
        assert self.fingerprint is not None, f"{self.id} was not read from the catalogue"
        return self.fingerprint

    @property
    def is_partitioned(self) -> bool:
        """Whether the catalogue had it as a partitioned table."""
        return self.fingerprint is not None and self.fingerprint.is_partitioned

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of an event's key: the primary key, else a unique index, else nothing; streamed columns only.

        They need not identify rows, because the index may be partial; ``lake_key`` does identify them.
        """
        names = {column.name for column in self.columns}
        return tuple(name for name in self.primary_key or self.index_key or self.unique_key if name in names)

    @property
    def lake_key(self) -> tuple[str, ...]:
        """The key of the lake table: the primary key, else a unique index whose columns are all NOT NULL, else nothing.

        A unique index over nullable columns does not identify rows (NULLs repeat), so such a table is keyless. Nor does
        a deferrable key: between two statements of a transaction two rows may have the same one, and an event that
        deletes the first of them, found by its key, would delete the second. Nor does a key with a column that is not
        streamed, or one whose text is a name (``named_identity``); a unique index replaces it only if old rows contain
        that index's columns.
        """
        by_name = {column.name: column for column in self.columns}
        if self.primary_key and not self.is_key_deferrable:
            if self._identifies(self.primary_key):
                return self.primary_key
            if self.identity is not ReplicaIdentity.FULL:
                return ()
        if self._identifies(self.unique_key) and not any(by_name[name].optional for name in self.unique_key):
            return self.unique_key
        return ()

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns by which changes identify rows; empty for a table that is stored as a multiset.

        Under REPLICA IDENTITY USING INDEX old rows contain that index's columns alone, so these are the key then.
        """
        if self.identity is ReplicaIdentity.INDEX and self.identity_key:
            return self.identity_key if self._identifies(self.identity_key) else ()
        return self.lake_key

    @property
    def unsent_identity(self) -> tuple[str, ...]:
        """The columns of the replica identity that are not streamed, so that an old row does not identify a row.

        These are generated columns that are not published, and columns that a column list leaves out. PostgreSQL before
        18 sends an update or delete without them. Under FULL the other columns identify a row: a generated column's
        value is computed from them.
        """
        if self.identity is ReplicaIdentity.INDEX:
            flagged = self.identity_key
        else:
            flagged = self.primary_key if self.identity is ReplicaIdentity.DEFAULT else ()
        names = {column.name for column in self.columns}
        return tuple(name for name in flagged if name not in names)

    @property
    def named_identity(self) -> tuple[str, ...]:
        """The columns of the replica identity whose text contains names of objects (regclass), which may change.

        The stream sends the text, so an old row may differ from the same row as it was sent before. Under FULL, where
        no key identifies rows, these are all such columns.
        """
        flagged: tuple[str, ...] = ()
        if self.identity is ReplicaIdentity.INDEX:
            flagged = self.identity_key
        elif self.identity is ReplicaIdentity.DEFAULT:
            flagged = self.primary_key
        elif not self.row_key:
            flagged = tuple(column.name for column in self.columns)
        named = {column.name for column in self.columns if column.type.shows_names}
        return tuple(name for name in flagged if name in named)

    def _identifies(self, names: tuple[str, ...]) -> bool:
        return {column.name for column in self.columns if not column.type.shows_names}.issuperset(names)

    def column(self, name: str) -> Column:
        """Return the column of that name; raises KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def to_json(self) -> str:
        """Return a text that ``from_json`` converts to an equal value."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TableSchema:
        """The inverse of ``to_json``."""
        return cls.from_plain(json.loads(text))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> TableSchema:
        """The value of a parsed ``to_json``."""
        raw = dict(plain)
        raw["id"] = TableId(*raw["id"])
        raw["identity"] = ReplicaIdentity(raw["identity"])
        raw["columns"] = tuple(column_from_plain(column) for column in raw["columns"])
        for name in ("primary_key", "unique_key", "identity_key", "index_key"):
            raw[name] = tuple(raw.get(name, ()))
        marks = raw.get("fingerprint")
        raw["fingerprint"] = None if marks is None else Fingerprint.from_plain(marks)
        return cls(**raw)


def identity_remedy(table: TableSchema) -> str:
    """Return what lets changes identify the rows of a table with an ``unsent_identity``."""
    return (
        f"Run ALTER TABLE {table.id.quoted} REPLICA IDENTITY FULL, or USING INDEX with a unique index over NOT NULL "
        "columns that are published."
    )


def named_remedy(table: TableSchema) -> str:
    """Return what lets changes identify the rows of a table with a ``named_identity``."""
    index = (
        f"ALTER TABLE {table.id.quoted} REPLICA IDENTITY USING INDEX with a unique index over NOT NULL columns of "
        "other types"
    )
    if table.identity is ReplicaIdentity.FULL:
        return f"Add a primary key of other types, run {index}, or list the columns in column.exclude.list."
    return f"Run {index}, or store the oid as type oid."


def column_from_plain(raw: dict[str, Any]) -> Column:
    """Create a column from the dictionaries of ``dataclasses.asdict`` and JSON."""
    return Column(**{**raw, "type": _pg_type(raw["type"])})


def _pg_type(raw: dict[str, Any]) -> PgType:
    inner = _pg_type(raw["inner"]) if raw["inner"] else None
    return PgType(**{**raw, "kind": TypeKind(raw["kind"]), "inner": inner, "labels": tuple(raw["labels"])})
