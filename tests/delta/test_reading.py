"""docs/reading.md's recipes, run as they are printed, against a lake whose newest versions disagree."""

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.stores.rounds import RecordedTable, RoundLog, TableState
from cdc_core.lake.stores.stream_log import StreamLog, StreamRecord
from cdc_core.schema.table import TableId

PAGE = Path(__file__).parents[2] / "docs" / "reading.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
ORDERS, LINES, STOCK = (TableId("public", name) for name in ("orders", "lines", "stock"))


def block(library: str) -> str:
    (found,) = [each for each in BLOCKS if library in each]
    return str(found)


@pytest.fixture
def base(tmp_path):
    """Round 1 shows one order with one line, round 2 two with three; the orders are a version further already."""
    paths = LakePaths(str(tmp_path), "shop")
    orders = DeltaTable.create(paths.lake(ORDERS), pa.schema([("id", pa.int64())]), {})
    lines = DeltaTable.create(paths.lake(LINES), pa.schema([("order_id", pa.int64()), ("amount", pa.int64())]), {})
    log = RoundLog(paths.rounds, 15)

    def add(table, rows):
        return table.commit([table.write(pa.table(rows))])

    def recorded(lsn, *versions):
        tables = [
            RecordedTable(table, TableState.CURRENT, version, identity=lake.identity)
            for table, lake, version in zip((ORDERS, LINES), (orders, lines), versions, strict=True)
        ]
        assert log.append(lsn, None, [*tables, RecordedTable(STOCK, TableState.PAUSED, None)])

    StreamLog(paths.stream, 0).write(StreamRecord("1", 1, "shop", "slot"))
    recorded(100, add(orders, {"id": [1]}), add(lines, {"order_id": [1], "amount": [10]}))
    recorded(200, add(orders, {"id": [2]}), add(lines, {"order_id": [2, 2], "amount": [3, 4]}))
    add(orders, {"id": [3]})
    return paths.base


def run(code: str, lake: str, **names):
    exec(compile(code.replace("/data/lake/shop", lake), str(PAGE), "exec"), names)
    return names


def ids(rows):
    return sorted(pa.table(rows).column("id").to_pylist())


def test_deltalake_and_duckdb(base):
    names = run(block("QueryBuilder"), base)
    assert names["versions"] == {"public.orders": 2, "public.lines": 2}
    assert ids(names["orders"]) == [1, 2]
    names = run(block("duckdb"), base, **names)
    assert sorted(names["totals"].fetchall()) == [(1, 10), (2, 7)]


def test_wal2lake(base):
    lake = run(block("wal2lake.open"), base)["lake"]
    assert (ids(lake["public.orders"].arrow()), lake["public.lines"].arrow().num_rows) == ([1, 2], 3)


def test_a_table_that_was_created_again_has_no_version_of_the_round(base):
    shutil.rmtree(f"{base}/public/orders")
    again = DeltaTable.create(f"{base}/public/orders", pa.schema([("id", pa.int64())]), {})
    for n in range(3):
        again.commit([again.write(pa.table({"id": [n]}))])
    with pytest.raises(KeyError, match=r"public\.orders"):
        run(block("QueryBuilder"), base)


def test_polars(base):
    names = run(block("QueryBuilder"), base)
    assert sorted(run(block("polars"), base, **names)["orders"]["id"].to_list()) == [1, 2]


@pytest.mark.spark
def test_spark(base, spark):
    names = run(block("spark.read"), base, spark=spark, base=base)
    assert sorted(row.id for row in names["orders"].collect()) == [1, 2]
    assert names["lines"].count() == 3
