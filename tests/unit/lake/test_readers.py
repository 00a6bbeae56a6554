"""Lake tables read at one round, by each library, from Delta tables on disk."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars
import pyarrow as pa
import pytest

import wal2lake
from cdc_core.errors import LakeError
from cdc_core.lake.delete_columns import COLUMNS
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.data_file import MarkedRows
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import merge_app, snapshot_app
from cdc_core.lake.stores.rounds import RecordedTable, RoundLog, TableState
from cdc_core.lake.stores.stream_log import StreamLog, StreamRecord
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId

ORDERS, LINES, LATE = TableId("shop", "orders"), TableId("Odd Schema", 'a"b'), TableId("shop", "late")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PLAIN = pa.schema([("id", pa.int64()), ("v", pa.string())])


def with_mode(mode, **flags):
    """A schema of the delete mode, and three rows of it: all columns of the mode that ``flags`` lacks are null."""
    schema = pa.schema([*PLAIN, *COLUMNS[mode]])
    given = {"id": [1, 2, 3], "v": ["a", "b", None], **flags}
    columns = [pa.array(given.get(field.name, [None] * 3), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


class Lake:
    """A lake of two tables and a round after each step."""

    def __init__(self, folder: Path, mode=DeleteMode.HARD, slot="slot", **flags):
        self.paths = LakePaths(str(folder), "shop")
        self.slot = slot
        StreamLog(self.paths.stream, 0).write(StreamRecord("1", 1, "db", slot))
        self.log = RoundLog(self.paths.rounds, 0)
        self.log.refresh()
        rows = with_mode(mode, **flags)
        self.tables = {table: DeltaTable.create(self.paths.lake(table), rows.schema, {}) for table in (ORDERS, LINES)}
        for table, lake in self.tables.items():
            lake.commit([lake.write(rows)], txns={snapshot_app(slot, table): 7})
        self.round(100)

    def round(self, lsn, *more):
        """Record that the tables are at an LSN."""
        for table, lake in self.tables.items():
            lake.commit(txns={merge_app(self.slot, table, 7): lsn})
        current = [
            RecordedTable(table, TableState.CURRENT, lake.version, 7, lsn, lake.identity)
            for table, lake in self.tables.items()
        ]
        assert self.log.append(lsn, NOON + timedelta(seconds=lsn), [*current, *more])

    def insert(self, *ids):
        for lake in self.tables.values():
            lake.commit([lake.write(pa.table({"id": list(ids), "v": [None] * len(ids)}, PLAIN))])


def by_every_library(tables, name):
    """The ids of a table as each library has them."""
    table = tables[name]
    schema, dot, own = str(table.table.schema), ".", table.table.table.replace('"', '""')
    of_duckdb = tables.duckdb().execute(f'select id from "{schema}"{dot}"{own}"').fetchall()
    return [
        sorted(table.arrow(["id"]).column("id").to_pylist()),
        sorted(table.pandas()["id"]),
        sorted(table.polars()["id"]),
        sorted(tables.arrow()[name].column("id").to_pylist()),
        sorted(tables.pandas()[name]["id"]),
        sorted(tables.polars()[name]["id"]),
        sorted(id for (id,) in of_duckdb),
    ]


@pytest.mark.parametrize("slot", ["slot", "other_slot"])
def test_all_tables_are_read_at_one_round_by_each_library(tmp_path, slot):
    lake = Lake(tmp_path, slot=slot)
    lake.insert(10, 11)
    lake.round(200)
    lake.insert(12)  # merged, and not recorded
    opened = wal2lake.open(tmp_path / "shop")
    newest = opened.read()
    assert (newest.lsn, newest.committed_at) == (200, NOON + timedelta(seconds=200))
    assert set(newest) == {str(ORDERS), str(LINES)} and not newest.missing
    for name in newest:
        assert by_every_library(newest, name) == [[1, 2, 3, 10, 11]] * 7
    for at in (Lsn(100), "0/64", "0/C7", NOON + timedelta(seconds=150), "2026-01-01T12:02:30"):
        former = opened.read('"Odd Schema"."a""b"', at=at)
        assert (former.lsn, list(former)) == (100, [str(LINES)])
        assert by_every_library(former, str(LINES)) == [[1, 2, 3]] * 7


def test_columns_are_chosen_and_rows_come_in_parts(tmp_path):
    Lake(tmp_path)
    orders = wal2lake.open(tmp_path / "shop").read("shop.orders")["shop.orders"]
    assert orders.schema == PLAIN
    assert orders.arrow(["v"]) == pa.table({"v": pa.array(["a", "b", None])})
    reader = orders.batches()
    assert reader.schema == PLAIN
    assert sum(batch.num_rows for batch in reader) == 3
    assert isinstance(orders.polars(), polars.DataFrame)
    with pytest.raises(LakeError, match=r"shop\.orders has no column total at version 2\. Its columns are id, v"):
        orders.arrow(["total"])


@pytest.mark.parametrize(
    ("mode", "flags"),
    [
        (DeleteMode.SOFT, {"__deleted": [False, None, True]}),
        (DeleteMode.HISTORY, {"__current": [True, True, False]}),
    ],
)
def test_rows_that_the_source_has_not_are_left_out_unless_asked_for(tmp_path, mode, flags):
    Lake(tmp_path, mode, **flags)
    opened = wal2lake.open(str(tmp_path / "shop") + "/")
    assert by_every_library(opened.read("shop.orders"), "shop.orders") == [[1, 2]] * 7
    assert by_every_library(opened.read("shop.orders", all_rows=True), "shop.orders") == [[1, 2, 3]] * 7


def test_marked_rows_are_left_out(tmp_path):
    lake = Lake(tmp_path)
    orders = lake.tables[ORDERS]
    orders.enable_vectors()
    orders.commit(marked=[MarkedRows(orders.files[0], np.array([1]))])
    lake.round(200)
    opened = wal2lake.open(tmp_path / "shop")
    assert by_every_library(opened.read("shop.orders"), "shop.orders") == [[1, 3]] * 7
    assert by_every_library(opened.read("shop.orders", at=Lsn(100)), "shop.orders") == [[1, 2, 3]] * 7


def test_a_table_without_a_version_is_missing_or_an_error_if_it_is_named(tmp_path):
    lake = Lake(tmp_path)
    lake.round(200, RecordedTable(LATE, TableState.PAUSED, None))
    opened = wal2lake.open(tmp_path / "shop")
    found = opened.read()
    assert LATE not in found and found.missing == {"shop.late": "paused"}
    with pytest.raises(LakeError, match=r"shop\.late has no version at 0/C8: its state in that round is paused"):
        opened.read("shop.orders", "shop.late")
    with pytest.raises(LakeError, match=r"shop\.order is not in the round at 0/C8\. Did you mean shop\.orders\?"):
        opened.read("shop.order")
    with pytest.raises(LakeError, match=r"'orders' does not name a table: expected schema\.table"):
        opened.read("orders")
    with pytest.raises(ValueError, match="expected an LSN such as"):
        opened.read("shop.orders", at="yesterday")


def test_files_that_were_removed_are_an_error(tmp_path):
    lake = Lake(tmp_path)
    tables = wal2lake.open(tmp_path / "shop").read("shop.orders")
    for file in lake.tables[ORDERS].files:
        (Path(lake.paths.lake(ORDERS)) / file.path).unlink()
    with pytest.raises(LakeError):
        tables.arrow()


@pytest.mark.parametrize("path", ["shop", "other", "shop/shop/orders", "."])
def test_a_folder_that_is_no_lake_is_named(tmp_path, path):
    if path != "shop":
        Lake(tmp_path)
    with pytest.raises(LakeError, match="is not the lake of a connector: it has no table __stream"):
        wal2lake.open(tmp_path / path)
