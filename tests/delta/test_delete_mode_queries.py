"""The queries of docs/delete-modes.md run as they stand: in deltalake, and in Spark SQL."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.lake_schema import lake_schema
from tests.support.spark import row_type

PAGE = Path(__file__).parents[2] / "docs" / "delete-modes.md"
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
EARLY, LATE = datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)
# By the words that tell the queries apart.
WANTED: dict[str, list[tuple[Any, ...]]] = {
    "NOT __deleted": [(1, "open")],
    "deleted_at": [(2, "sold", LATE)],
    "WHERE __current": [(7, 12)],
    "__valid_from <=": [(7, 11)],
    "ORDER BY": [(10, EARLY, EARLY), (11, EARLY, LATE), (12, LATE, None)],
}


def orders() -> pa.Table:
    rows = [
        {"id": 1, "status": "open", "__commit_ts": LATE, "__deleted": False},
        {"id": 2, "status": "sold", "__commit_ts": LATE, "__deleted": True},
        {"id": 3, "status": "lost", "__commit_ts": EARLY, "__deleted": True},
    ]
    return pa.Table.from_pylist(rows, lake_schema(row_type(id=pa.int32(), status=pa.string()), DeleteMode.SOFT))


def prices() -> pa.Table:
    versions = [(10, 5, 0, EARLY, 5, EARLY), (11, 5, 1, EARLY, 9, LATE), (12, 9, 0, LATE, None, None)]
    rows = [
        {"id": 7, "price": price, "__valid_from_lsn": lsn, "__commit_lsn": lsn, "__tx_index": index}
        | {"__valid_from": begun, "__valid_to_lsn": to, "__valid_to": ended, "__current": to is None}
        for price, lsn, index, begun, to, ended in versions
    ]
    return pa.Table.from_pylist(rows, lake_schema(row_type(id=pa.int32(), price=pa.int32()), DeleteMode.HISTORY))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> dict[str, DeltaTable]:
    made, tmp_path = {}, tmp_path_factory.mktemp("lake")
    for name, rows in (("orders", orders()), ("prices", prices())):
        made[name] = DeltaTable.create(str(tmp_path / name), rows.schema, {})
        made[name].commit([made[name].write(rows)])
    return made


def wanted(query: str) -> list[tuple[Any, ...]]:
    (found,) = [rows for word, rows in WANTED.items() if word in query]
    return found


def test_every_query_is_known() -> None:
    assert len(QUERIES) == len(WANTED)


@pytest.mark.parametrize("query", QUERIES)
def test_in_deltalake(lake: dict[str, DeltaTable], query: str) -> None:
    from deltalake import QueryBuilder

    builder = QueryBuilder()
    for name, table in lake.items():
        builder.register(name, table.raw())
    found = pa.table(builder.execute(query).read_all())
    assert [tuple(row.values()) for row in found.to_pylist()] == wanted(query)


@pytest.mark.spark
@pytest.mark.parametrize("query", QUERIES)
def test_in_spark(spark: Any, lake: dict[str, DeltaTable], query: str) -> None:
    for name, table in lake.items():
        query = re.sub(rf"\b{name}\b", f"delta.`{table.path}`", query)
    found = [tuple(_zoned(value) for value in row) for row in spark.sql(query).collect()]
    assert found == wanted(query)


def _zoned(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value
