"""Table versions by hand: columns with attnums, and marks as a catalogue would give them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa

from cdc_core.schema.fingerprint import (
    ColumnMark,
    Fingerprint,
    KeyMark,
    PublicationEntry,
    PublicationMark,
    StorageMark,
)
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema

INT = PgType(23, "int4")
BIGINT = PgType(20, "int8")
TEXT = PgType(25, "text")
VARCHAR = PgType(1043, "varchar")
NUMERIC = PgType(1700, "numeric")
PRIMARY_KEY = KeyMark(401, 400, (1,), 402, "90", "p")
ORDERS = TableId("public", "orders")
LISTED = PublicationMark(7, "90", "cudt", False, "n", (PublicationEntry("t", 8),))
FOR_ALL = PublicationMark(7, "90", "cudt", False, "n", (PublicationEntry("a", 7),))


def lake_type(column: Column) -> pa.DataType:
    """A few types' natural ones."""
    if column.type.name == "numeric":
        packed = column.modifier - 4
        return pa.decimal128(packed >> 16, packed & 0x7FF) if column.modifier > 0 else pa.decimal128(38, 18)
    return {"int4": pa.int32(), "int8": pa.int64()}.get(column.type.name, pa.string())


def column(attnum: int, name: str, kind: PgType = TEXT, **facts: Any) -> Column:
    return Column(name, kind, attnum=attnum, **facts)


def marks(columns: tuple[Column, ...], **changes: Any) -> Fingerprint:
    found = Fingerprint(
        server="1",
        oid=100,
        namespace=ORDERS.schema,
        name=ORDERS.table,
        attributes=max((c.attnum for c in columns), default=0),
        identity="d",
        is_partitioned=False,
        columns=tuple(ColumnMark(c.attnum, "90", 0, c.has_missing, c.generated) for c in columns),
        storage=(StorageMark(100, 200, 300, False),),
        keys=(PRIMARY_KEY,),
        publication=LISTED,
    )
    return dataclasses.replace(found, **changes)


def table(
    *columns: Column, changes: dict[str, Any] | None = None, touched: tuple[int, ...] = (), **facts: Any
) -> TableSchema:
    """A version; ``changes`` are changes of its marks, ``touched`` the attnums of columns that DDL named since.

    The key is the column ``id``, where there is one.
    """
    key = tuple(c.name for c in columns if c.name == "id")
    given: dict[str, Any] = {"primary_key": key, "identity": ReplicaIdentity.DEFAULT, "identity_key": key, **facts}
    found = marks(columns, **(changes or {}))
    rows = tuple(dataclasses.replace(m, row="95") if m.attnum in touched else m for m in found.columns)
    return TableSchema(ORDERS, 100, columns, fingerprint=dataclasses.replace(found, columns=rows), **given)


def announced(version: TableSchema, *names: str) -> TableSchema:
    """What a Relation message tells of the version: no attnums, no marks; ``names`` in place of the columns' own."""
    told = names or tuple(c.name for c in version.columns)
    columns = tuple(Column(name, c.type, c.modifier, c.optional) for name, c in zip(told, version.columns, strict=True))
    return dataclasses.replace(version, columns=columns, fingerprint=None)


ID = column(1, "id", INT, optional=False)
