"""A lake table from which rows were removed behind wal2lake's back, and changes of each kind of its rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from cdc_core.errors import MissingRowsError
from cdc_core.lake.delete_columns import as_live
from cdc_core.lake.delete_modes import DeleteMode, DeleteModes
from cdc_core.lake.write.replace import commit_snapshot, prepare, write_rows
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.one_table import SLOT, OneTable
from tests.support.spark import AT, change, lake_schema, row_type

ROW = row_type(id=pa.int64(), v=pa.string(), t=pa.string())
COLUMNS = (
    Column("id", PgType(20, "int8"), optional=False),
    Column("v", PgType(25, "text")),
    Column("t", PgType(25, "text")),
)
KEYED = TableSchema(TableId("public", "t"), 1, COLUMNS, primary_key=("id",))
KEYLESS = TableSchema(TableId("public", "t"), 1, COLUMNS)


def row(number: int, v: str | None = "v", t: str | None = "long") -> dict[str, Any]:
    return {"id": number, "v": v, "t": t}


def filled(folder: Path, mode: DeleteMode, table: TableSchema, numbers: Iterable[int]) -> OneTable:
    """A lake table in a delete mode, filled by a snapshot (token 1)."""
    one = OneTable(folder, table, ROW)
    one.tables = replace(one.tables, modes=DeleteModes(mode, ()))
    at = {"__commit_lsn": 1, "__tx_index": -1, "__commit_ts": AT}
    rows = pa.Table.from_pylist([{**at, **row(number)} for number in numbers], schema=lake_schema(ROW))
    rows = rows if mode is DeleteMode.HARD else as_live(rows, mode)
    lake = prepare(one.lake, rows.schema, table.id, 1)
    commit_snapshot(lake, write_rows(lake, rows.to_batches(), rows.schema), rows.schema, SLOT, table.id, token=1)
    return one


def refused(one: OneTable, to: int, **more: Any) -> MissingRowsError:
    """The error of a merge, which has changed nothing."""
    before = deltalake.DeltaTable(one.lake).version(), one.contents()
    with pytest.raises(MissingRowsError) as raised:
        one.merge(to, token=1, **more)
    assert (deltalake.DeltaTable(one.lake).version(), one.contents()) == before
    return raised.value


def append(one: OneTable, rows: list[dict[str, Any]], to: int) -> None:
    """Append changes that pass the rules about positions."""
    one.append([{**each, "__lsn": each["__commit_lsn"]} for each in rows], to)


def every_change(lsn: int, first: int) -> list[dict[str, Any]]:
    """One change of each kind, at five rows."""
    return [
        change("u", lsn, 0, None, row(first, "new")),
        change("u", lsn, 1, {"id": first + 1}, row(first + 51, "moved")),
        change("d", lsn, 2, {"id": first + 2}),
        change("u", lsn, 3, None, row(first + 3, "new", None), ["t"]),
        change("u", lsn, 4, {"id": first + 4}, row(first + 54, "moved", None), ["t"]),
    ]
