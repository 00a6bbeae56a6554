"""Delete modes: which table has which, what is refused, what their columns say, which files a merge looks into."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.config.connector import from_entries
from cdc_core.errors import ConfigError, TableError
from cdc_core.lake.apply.changes import apply, prepare
from cdc_core.lake.delete_columns import COLUMNS, as_live, live_column, mode_of
from cdc_core.lake.delete_modes import DeleteMode, DeleteModes, check_key
from cdc_core.lake.delta.row_count import row_count
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import compact
from cdc_core.lake.schema.evolve import evolve
from cdc_core.lake.schema.features import Evolution
from cdc_core.lake.schema.lake_schema import lake_schema
from cdc_core.lake.schema.project import SchemaStep, StepColumn
from cdc_core.schema.plan import name_clash
from cdc_core.schema.table import TableId
from tests.delta.source_model import KEYLESS, ROW, TABLE
from tests.support.content import MemoryContent
from tests.support.one_table import FixedPlan, OneTable
from tests.support.spark import change, change_schema, lake_rows
from tests.support.spark import lake_schema as bare_schema

KEPT = [DeleteMode.SOFT, DeleteMode.HISTORY]
LEAST = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
NAME = "wal2lake.lake.delete.mode"


def options(**lists: str) -> DeleteModes:
    named = {NAME if name == "default" else f"{NAME}.{name}": text for name, text in lists.items()}
    return from_entries((LEAST | named).items()).lake.delete_modes


def table_of(mode: DeleteMode, values: str = "abc") -> pa.Table:
    rows = [{"h": 0, "k": key, "v": 1, "big": "x", "__commit_lsn": 5, "__tx_index": -1} for key in values]
    return as_live(pa.Table.from_pylist(rows, schema=bare_schema(ROW)), mode)


def slice_of(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=change_schema(ROW))


def test_the_mode_of_each_table() -> None:
    modes = options(default="soft", history=r"shop\.prices.*", hard="shop.log,shop.clicks")
    wanted = {"prices": "history", "PRICES_eu": "history", "log": "hard", "orders": "soft", "prices.x": "history"}
    assert {name: modes.of(TableId("shop", name)).value for name in wanted} == wanted
    assert options().of(TableId("a", "b")) is DeleteMode.HARD


def test_what_a_file_cannot_say() -> None:
    with pytest.raises(ConfigError, match=r"wal2lake.lake.delete.mode is .*hard, soft, history"):
        options(default="soften")
    with pytest.raises(ConfigError, match=r"wal2lake.lake.delete.mode.soft: .*not a regular expression"):
        options(soft="shop.(")


def test_tables_that_a_mode_does_not_fit() -> None:
    options(default="history").check(TABLE)
    options().check(KEYLESS)
    check_key(TABLE, DeleteMode.HISTORY)
    check_key(KEYLESS, options().of(KEYLESS.id))
    with pytest.raises(TableError, match="no key, and delete mode soft") as error:
        check_key(KEYLESS, options(default="soft").of(KEYLESS.id))
    assert "wal2lake.lake.delete.mode.hard" in error.value.remedy
    check_key(KEYLESS, options(default="soft", hard="public.keyless").of(KEYLESS.id))
    with pytest.raises(TableError, match=r"public.items matches .*mode.soft and .*mode.history"):
        options(soft="public.*", history="public.items").check(TABLE)
    for name in ("__deleted", "__CURRENT", "__valid_from", "__commit_lsn"):
        clash = name_clash(TABLE.id, ["h", "k", name])
        assert clash is not None and clash.column == name and "reserved" in clash.reason
    assert name_clash(TABLE.id, ["h", "k", "__op", "__key"]) is None


@pytest.mark.parametrize("mode", KEPT)
def test_changes_of_a_table_that_lost_its_key_are_refused(mode: DeleteMode) -> None:
    with pytest.raises(TableError, match=f"no key, and delete mode {mode.value}"):
        prepare(slice_of(change("c", 9, 0, None, {"h": 1})), KEYLESS, lake_schema(ROW, mode))


def test_a_lake_table_of_another_mode_is_left_alone(tmp_path: Path) -> None:
    one = OneTable(tmp_path, TABLE, ROW)
    one.snapshot(1, [])
    one.append([change("c", 9, 0, None, {"h": 1, "k": "a"})], 9)
    tables = replace(one.tables, modes=DeleteModes(DeleteMode.SOFT))
    plan: Any = FixedPlan(ROW)
    with pytest.raises(TableError, match="is in delete mode hard, but the configuration sets soft") as error:
        tables.prepare("run", one.lake, one.order(9, token=1).schema, plan, "slot")
    assert "wal2lake snapshot" in error.value.remedy
    assert "__deleted" not in DeltaTable.open(one.lake).schema.names  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", KEPT)
def test_positions_and_times_of_a_delete(mode: DeleteMode) -> None:
    content = MemoryContent(lake_schema(ROW, mode))
    content.add(table_of(mode, "ab"))
    at = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    content.commit(
        apply(
            content,
            prepare(slice_of({**change("d", 9, 3, {"h": 0, "k": "a"}), "__commit_ts": at}), TABLE, content.schema),
        )
    )
    gone, there = sorted(content.rows, key=lambda row: row["k"])
    assert (gone["v"], gone["big"]) == (1, "x")
    if mode is DeleteMode.SOFT:
        assert (gone["__deleted"], gone["__commit_lsn"], gone["__tx_index"], gone["__commit_ts"]) == (True, 9, 3, at)
        assert (there["__deleted"], there["__commit_lsn"]) == (False, 5)
    else:
        assert (gone["__valid_from_lsn"], gone["__valid_to_lsn"], gone["__valid_to_index"]) == (5, 9, 3)
        assert (gone["__valid_to"], gone["__current"], gone["__valid_from"]) == (at, False, None)
        assert (there["__valid_to_lsn"], there["__valid_to"], there["__current"]) == (None, None, True)


def test_a_delete_of_a_row_that_is_marked_keeps_its_first_mark() -> None:
    content = MemoryContent(lake_schema(ROW, DeleteMode.SOFT))
    content.add(table_of(DeleteMode.SOFT, "a"))
    for lsn in (9, 10):
        rewrite = apply(content, prepare(slice_of(change("d", lsn, 0, {"h": 0, "k": "a"})), TABLE, content.schema))
        assert rewrite.deleted == (1 if lsn == 9 else 0) and rewrite.changes_nothing is (lsn == 10)
        content.commit(rewrite)
    assert content.rows[0]["__commit_lsn"] == 9


def test_merges_do_not_look_into_ended_versions() -> None:
    content = MemoryContent(lake_schema(ROW, DeleteMode.HISTORY), scale=2**20)
    content.add(table_of(DeleteMode.HISTORY))
    for lsn in range(10, 15):
        update = slice_of(change("u", lsn, 0, None, {"h": 0, "k": "b", "v": lsn}))
        content.commit(apply(content, prepare(update, TABLE, content.schema)))
    past = {file.path for file in content.files if file.is_history}
    assert past and sum(file.rows for file in content.files if file.is_history) == 5
    content.reads.clear()
    apply(content, prepare(slice_of(change("d", 20, 0, {"h": 0, "k": "b"})), TABLE, content.schema))
    assert {path for path, _ in content.reads} == {file.path for file in content.files} - past


def test_compaction_keeps_ended_versions_apart(tmp_path: Path) -> None:
    schema = lake_schema(ROW, DeleteMode.HISTORY)
    lake = DeltaTable.create(str(tmp_path / "lake"), schema, {})
    lake.commit([lake.write(table_of(DeleteMode.HISTORY))])
    for lsn in range(10, 16):
        update = slice_of(change("u", lsn, 0, None, {"h": 0, "k": "b", "v": lsn}))
        rewrite = apply(lake, prepare(update, TABLE, schema))
        lake.commit([lake.write(rows) for rows in rewrite.rows], rewrite.removed)
    before = sorted(map(repr, lake_rows(lake.path)))
    again = DeltaTable.open(lake.path)
    assert again is not None and sum(file.is_history for file in again.files) == 6, "the log's own statistics tell them"
    assert compact(again, 2) == 6
    assert sorted(file.is_history for file in again.files) == [False, True]
    assert sorted(map(repr, lake_rows(lake.path))) == before
    assert row_count(lake.path) == 3


@pytest.mark.parametrize("mode", KEPT)
def test_a_column_that_is_added_has_its_default_in_every_row(tmp_path: Path, mode: DeleteMode) -> None:
    lake = DeltaTable.create(str(tmp_path / "lake"), lake_schema(ROW, mode), {})
    lake.commit([lake.write(table_of(mode))])
    gone = apply(lake, prepare(slice_of(change("d", 9, 0, {"h": 0, "k": "b"})), TABLE, lake.schema))
    lake.commit([lake.write(rows) for rows in gone.rows], gone.removed)
    before = {row["k"]: row for row in lake_rows(lake.path)}
    kept = [StepColumn(name, name, ROW.field(name).type) for name in ("h", "k", "v", "num")]
    renamed = StepColumn("large", "big", pa.string())
    evolve(
        lake,
        [SchemaStep(1, (*kept, renamed, StepColumn("fresh", None, pa.int32(), pa.scalar(7))))],
        Evolution(None),
        "app",
        {},
    )
    for key, row in {row["k"]: row for row in lake_rows(lake.path)}.items():
        assert (row.pop("fresh"), row.pop("large")) == (7, before[key].pop("big"))
        assert row == before[key]


@pytest.mark.parametrize("mode", DeleteMode)
def test_each_mode_has_columns_a_property_and_a_mark_of_its_rows(mode: DeleteMode) -> None:
    columns = [field.name for field in COLUMNS[mode]]
    assert mode_of(columns) is mode
    assert live_column(mode) in {None, *columns}
    assert options(**{mode.value: "public.t"}).of(TableId("public", "t")) is mode
