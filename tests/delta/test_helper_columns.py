"""Source columns that are named like the columns which Spark's merges add to rows for a while."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.lake.apply.changes import prepare
from cdc_core.lake.delete_columns import as_live
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.names import helper
from cdc_core.lake.schema.lake_schema import lake_schema
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.spark import AT, change, change_schema, row_type
from tests.support.spark import lake_schema as bare_schema
from tests.support.two_engines import ARROW, SPARK, TwoEngineLake

pytestmark = pytest.mark.spark

NAMES = [
    *("__gone", "__keep", "__key", "__seek", "__sign", "__number", "__touch", "__put"),
    *("__lake", "__own", "__ends", "__place", "__taken", "__shown", "__row"),
]
ROW = row_type(k=pa.string(), **dict.fromkeys(NAMES, pa.int32()))
COLUMNS = (Column("k", PgType(25, "text"), optional=False), *(Column(name, PgType(23, "int4")) for name in NAMES))
KEYED = TableSchema(TableId("public", "t"), 1, COLUMNS, primary_key=("k",), identity_key=("k",))
KEYLESS = TableSchema(TableId("public", "t"), 1, COLUMNS, identity=ReplicaIdentity.FULL)


def image(key: str, value: int) -> dict[str, Any]:
    return {"k": key, **{name: value + number for number, name in enumerate(NAMES)}}


@pytest.mark.parametrize(
    ("mode", "table"),
    [*((mode, KEYED) for mode in DeleteMode), (DeleteMode.HARD, KEYLESS)],
    ids=[*map(str, DeleteMode), "keyless"],
)
def test_source_columns_may_have_the_names_of_helper_columns(
    spark: Any, tmp_path: Path, mode: DeleteMode, table: TableSchema
) -> None:
    changes = [
        change("u", 10, 0, image("a", 100), image("a", 200)),
        change("u", 10, 1, image("b", 100), image("z", 300)),
        change("d", 10, 2, image("c", 100)),
        change("c", 10, 3, None, image("n", 400)),
    ]
    if table is KEYED:
        changes += [change("u", 11, 0, image("d", 100), image("y", 100) | {"__key": None}, ["__key"])]
    held = pa.Table.from_pylist(
        [{**image(key, 100), "__commit_lsn": 1, "__tx_index": -1, "__commit_ts": AT} for key in "abcde"],
        schema=bare_schema(ROW),
    )
    found = []
    for engine in (ARROW, SPARK):
        folder = tmp_path / engine
        folder.mkdir()
        lake = TwoEngineLake(folder, lake_schema(ROW, mode), spark)
        lake.add(as_live(held, mode))
        rows = pa.Table.from_pylist(changes, schema=change_schema(ROW))
        lake.apply(prepare(rows, table, lake.table.schema), engine)
        found.append(sorted(map(str, lake.rows)))
    assert found[0] == found[1]
    assert any("'__key': 102" in row and "'k': 'y'" in row for row in found[0]) is (table is KEYED)


def test_no_source_column_has_the_name_of_a_helper_column() -> None:
    """PostgreSQL cuts identifiers at 63 bytes (NAMEDATALEN - 1)."""
    assert all(len(helper(name)) > 63 for name in NAMES)
