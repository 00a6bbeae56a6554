"""A table as it is shown outside: columns with names of types, comments, and where the lake's values come from.

For programs that list tables: Dagster's pages, lineage, catalogs. Names of types are those that the readers of each
side use: psql's for the source, Delta's for the lake.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cdc_core.schema import Column, ConnectSchema, PgType, TableId, TableSchema, TypeKind

_LENGTH_HEADER = 4
_NAMES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "halffloat": "float",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date32[day]": "date",
}
_OWN = {
    "__rescued": "Values that do not fit into the column's type, as text, by the column's name.",
    "__commit_lsn": "LSN of the commit that wrote the row: its position in the source's WAL.",
    "__tx_index": "Number of the change within its transaction.",
    "__commit_ts": "Time of that commit.",
    "__deleted": "Whether the row was deleted in the source.",
    "__current": "Whether this version of the row is the one that the source has.",
    "__valid_from_lsn": "LSN from which on the version was valid.",
    "__valid_to_lsn": "LSN at which the version ended; null for the current one.",
    "__valid_to_index": "Number of the change, within its transaction, that ended the version.",
    "__valid_from": "Time from which on the version was valid.",
    "__valid_to": "Time at which the version ended; null for the current one.",
}


@dataclass(frozen=True, slots=True)
class DescribedColumn:
    """One column. ``source`` is the column of the source that a lake column has its values from, empty for none.

    ``treatment`` is what becomes of these values, empty if they are unchanged.
    """

    name: str
    type: str
    comment: str = ""
    source: str = ""
    treatment: str = ""


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """The topic of a table's events: ``brokers`` (host:port of the cluster), ``value`` is the schema of its records."""

    brokers: str
    name: str
    value: ConnectSchema


@dataclass(frozen=True, slots=True)
class DescribedTable:
    """A version of a captured table and of its lake table.

    Types of ``source`` are names without length or precision, as Debezium's events of lineage have them. ``location``
    is the path or URI of the lake table, empty without a lake; ``topic`` is None if its events are not in a topic that
    is known.
    """

    id: TableId
    comment: str
    source: tuple[DescribedColumn, ...]
    lake: tuple[DescribedColumn, ...]
    location: str
    topic: DescribedTopic | None = None


def described(table: TableSchema, lake: Iterable[Any], treatments: Mapping[str, str], location: str) -> DescribedTable:
    """Describe a table. ``lake`` are the fields (Arrow) of its lake table, ``treatments`` as in ``ColumnPlan``."""
    return DescribedTable(
        table.id,
        table.comment or "",
        tuple(DescribedColumn(c.name, c.type.name, c.comment or "") for c in table.columns),
        tuple(lake_column(table, each, treatments) for each in lake),
        location,
    )


def lake_column(table: TableSchema, field: Any, treatments: Mapping[str, str]) -> DescribedColumn:
    """Describe a column (Arrow field) of a lake table. Names differ from the source's only in case."""
    kind = lake_type_text(field.type)
    source = next((column for column in table.columns if column.name.lower() == field.name.lower()), None)
    if source is None:
        own = _OWN.get(field.name, "No longer a column of the source: null in rows that were written since.")
        return DescribedColumn(field.name, kind, own)
    return DescribedColumn(field.name, kind, source.comment or "", source.name, treatments.get(source.name, ""))


def type_text(column: Column) -> str:
    """The column's type in PostgreSQL, similar to psql: ``varchar(20)``, ``numeric(12,2)``, ``int4[]``."""
    return _type_text(column.type, column.modifier)


def lake_type_text(kind: Any) -> str:
    """An Arrow type as Delta's readers name it: ``bigint``, ``decimal(12,2)``, ``array<string>``."""
    text = str(kind)
    if text.startswith("decimal"):
        text = f"decimal({kind.precision},{kind.scale})"
    elif text.startswith("timestamp"):
        text = "timestamp" if kind.tz else "timestamp_ntz"
    elif text.startswith("map<"):
        text = f"map<{lake_type_text(kind.key_type)},{lake_type_text(kind.item_type)}>"
    elif text.startswith("list<"):
        text = f"array<{lake_type_text(kind.value_type)}>"
    elif text.startswith("struct<"):
        text = f"struct<{','.join(f'{field.name}:{lake_type_text(field.type)}' for field in kind)}>"
    return _NAMES.get(text, text)


def _type_text(kind: PgType, modifier: int) -> str:
    if kind.kind is TypeKind.ARRAY and kind.inner is not None:
        return f"{_type_text(kind.inner, modifier)}[]"
    if modifier >= _LENGTH_HEADER and kind.name in ("varchar", "bpchar"):
        return f"{kind.name}({modifier - _LENGTH_HEADER})"
    if modifier >= _LENGTH_HEADER and kind.name == "numeric":
        packed = modifier - _LENGTH_HEADER
        # The scale is an eleven-bit signed number since PostgreSQL 15.
        return f"numeric({packed >> 16},{((packed & 0x7FF) ^ 1024) - 1024})"
    return kind.name


def names_in_spark(tables: Collection[TableId]) -> dict[TableId, str]:
    """Return the name of each table of a lake in Spark's catalogue: ``<schema>_<table>``, or ``own_name_in_spark``.

    The latter if another table has the former: ``a_b.c`` and ``a.b_c`` have one, and so have two that differ only in
    case, which Spark ignores. Neither of them keeps it, so that the names do not depend on which was registered first.
    """
    count = Counter(_in_spark(table).lower() for table in tables)
    return {
        table: _in_spark(table) if count[_in_spark(table).lower()] == 1 else own_name_in_spark(table)
        for table in tables
    }


def own_name_in_spark(table: TableId) -> str:
    """Return ``<schema>_<table>_<checksum>``, which no other table of a lake has."""
    return f"{_in_spark(table)}_{zlib.crc32(f'{table.schema}/{table.table}'.encode()):08x}"


def _in_spark(table: TableId) -> str:
    return f"{table.schema}_{table.table}"
