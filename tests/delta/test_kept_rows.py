"""Tables read again whose delete mode keeps rows, at once and in parts: the lake holds what a row-wise model holds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc_core.errors import TableError
from cdc_core.lake.apply.change_feed import change_files
from cdc_core.lake.apply.next_content import KeptRows
from cdc_core.lake.apply.ways import Ways
from cdc_core.lake.delete_columns import COLUMNS
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.row_count import row_count
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.schema.lake_schema import lake_schema
from cdc_core.lake.write.replace import commit_snapshot, write_rows
from cdc_core.lake.write.replace import prepare as prepare_lake
from cdc_core.schema.table import TableSchema
from tests.delta.kept_model import KeptModel
from tests.delta.source_model import ROW, TABLE, SourceTable, plain
from tests.support.spark import POSITION, change_schema, lake_rows, row_type
from tests.support.truncates import applied, prepared
from tests.unit.lake.test_delete_modes_model import MODES, assert_history, assert_soft

SEED = int(os.environ.get("WAL2LAKE_SEED", "20261121"))
KEY = ("h", "k")
NO_TIME = pa.scalar(None, pa.timestamp("us", tz="UTC"))


@dataclass
class Reader:
    """Reads rows into a lake table as a snapshot does."""

    path: str
    mode: DeleteMode
    part_bytes: int = 1 << 20
    token: int = 0
    scope: str = "slot"
    table: TableSchema = TABLE

    def read(
        self, rows: list[dict[str, Any]], lsn: int, row: pa.StructType = ROW, key: tuple[str, ...] | None = None
    ) -> None:
        self.token += 1
        schema = pa.schema([*row, *POSITION, *COLUMNS[self.mode]])
        lake = prepare_lake(self.path, schema, TABLE.id, 1)
        made = [{"__commit_ts": None, **each, "__commit_lsn": lsn, "__tx_index": -1} for each in rows]
        bare = pa.Table.from_pylist(made, schema=pa.schema([*row, *POSITION]))
        files = write_rows(lake, bare.to_batches(max_chunksize=max(1, len(rows) // 2)), schema)
        kept = KeptRows(
            self.table.row_key if key is None else key, Truncation(lsn, -1, NO_TIME), part_bytes=self.part_bytes
        )
        commit_snapshot(
            lake,
            files,
            schema,
            self.scope,
            TABLE.id,
            token=self.token,
            schema_version=self.token,
            kept=kept,
        )

    def change(self, changes: list[dict[str, Any]]) -> None:
        lake = prepare_lake(self.path, lake_schema(ROW, self.mode), TABLE.id, 1)
        changed = pa.Table.from_pylist(changes, schema=change_schema(ROW))
        lake.enable_vectors()
        rewrite = applied(lake, prepared(changed, self.table, lake.schema), changed, Ways(0))
        added = [lake.write(part) for part in rewrite.rows]
        changes_made = change_files(lake, added, rewrite.removed, rewrite.marked, self.table.row_key)
        lake.commit(added, rewrite.removed, marked=rewrite.marked, changes=changes_made)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return lake_rows(self.path)


def read_again(reader: Reader, seed: int, histories: int, truncates: bool, steps: list[tuple[int, int, int]]) -> None:
    """Snapshots after changes that the lake has, others that it has not, and others that come after the snapshot."""
    source = SourceTable(seed, histories, truncates=truncates, truncate_chance=0.05)
    model = KeptModel(KEY, restarts=reader.mode is DeleteMode.SOFT)
    for merged, missed, early in steps:
        changes = source.next_transaction(merged)
        for change in changes:
            model.apply(change)
        if changes and model.versions:
            reader.change(changes)
        elif changes:
            model = KeptModel(KEY, restarts=model.restarts)
        source.next_transaction(missed)
        source.lsn += 1
        rows, lsn = source.snapshot(), source.lsn
        # The lake merges in order: where it missed changes, it has none that come after them.
        later = [] if missed else source.next_transaction(early)
        if later and reader.token:
            reader.change(later)
        model.take(rows, (lsn, -1, None))
        reader.read(rows, lsn)
        assert row_count(reader.path) == len(rows)
        if reader.mode is DeleteMode.HISTORY:
            assert_history(reader.rows, model)
        else:
            # What was deleted before and put again after the snapshot is only there again once that is merged again.
            assert plain([row for row in reader.rows if not row["__deleted"]]) == plain(rows)
        # The stream brings them again.
        for change in later:
            model.apply(change)
        if later:
            reader.change(later)
        (assert_soft if reader.mode is DeleteMode.SOFT else assert_history)(reader.rows, model)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    mode=st.sampled_from(MODES),
    histories=st.integers(1, 6),
    truncates=st.booleans(),
    part_bytes=st.sampled_from((1 << 20, 4_000)),
    steps=st.lists(st.tuples(st.integers(1, 25), st.integers(0, 15), st.integers(0, 10)), min_size=2, max_size=4),
)
def test_tables_read_again(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    mode: DeleteMode,
    histories: int,
    truncates: bool,
    part_bytes: int,
    steps: list[tuple[int, int, int]],
) -> None:
    reader = Reader(str(tmp_path_factory.mktemp("lake")), mode, part_bytes)
    read_again(reader, seed, histories, truncates, steps)


@pytest.mark.parametrize("mode", MODES)
def test_other_columns(tmp_path: Path, mode: DeleteMode) -> None:
    """Rows that a snapshot with other columns does not show keep what they had, as far as the types go."""
    reader = Reader(str(tmp_path / "lake"), mode)
    before = row_type(k=pa.int32(), size=pa.int32(), note=pa.string(), day=pa.date32())
    row = {"k": 1, "size": 7, "note": "a", "day": None, "__rescued": {"day": "infinity"}}
    reader.read([row, {**row, "k": 2, "note": "x"}], 10, before, ("k",))
    after = row_type(k=pa.int64(), size=pa.int64(), note=pa.int32(), fresh=pa.string())
    reader.read([{"k": 2, "size": 7, "note": 5, "fresh": "new", "__rescued": None}], 20, after, ("k",))
    gone = [each for each in reader.rows if each["k"] == 1]
    assert [(each["size"], each["note"], each["fresh"], each["day"]) for each in gone] == [(7, None, None, None)]
    assert gone[0]["__rescued"] == {"day": "infinity", "note": "a"}
    there = [each for each in reader.rows if each["k"] == 2 and each["note"] == 5]
    assert [(each["fresh"], each["__commit_lsn"], each["day"]) for each in there] == [("new", 20, None)]
    assert row_count(reader.path) == 1
    if mode is DeleteMode.HISTORY:
        assert {(each["k"], each["__valid_from_lsn"], each["__valid_to_lsn"]) for each in reader.rows} == {
            (1, 10, 20),
            (2, 10, 20),
            (2, 20, None),
        }


@pytest.mark.parametrize("wanted", MODES)
def test_a_table_becomes_one_that_keeps_rows(tmp_path: Path, wanted: DeleteMode) -> None:
    path, row = str(tmp_path / "lake"), row_type(k=pa.int32(), v=pa.string())
    Reader(path, DeleteMode.HARD).read([{"k": k, "v": "old"} for k in (1, 2)], 10, row, ("k",))
    Reader(path, wanted, token=1).read([{"k": 1, "v": "old"}], 20, row, ("k",))
    if wanted is DeleteMode.SOFT:
        assert sorted((each["k"], each["__deleted"]) for each in lake_rows(path)) == [(1, False), (2, True)]
    else:
        shown = sorted((each["k"], each["__valid_from_lsn"], each["__valid_to_lsn"]) for each in lake_rows(path))
        assert shown == [(1, 10, None), (2, 10, 20)]
    other = next(mode for mode in MODES if mode is not wanted)
    with pytest.raises(TableError, match=f"is in delete mode {wanted.value}"):
        Reader(path, other, token=2).read([{"k": 1, "v": "old"}], 30, row, ("k",))
    Reader(path, DeleteMode.HARD, token=2).read([{"k": 1, "v": "old"}], 30, row, ("k",))
    assert [(each["k"], "__current" in each or "__deleted" in each) for each in lake_rows(path)] == [(1, False)]


@pytest.mark.parametrize("part_bytes", [1 << 20, 4_000])
@pytest.mark.parametrize("mode", MODES)
def test_rows_of_another_server_are_before_the_snapshot(mode: DeleteMode, part_bytes: int, tmp_path: Path) -> None:
    source = SourceTable(7, 10)
    reader = Reader(str(tmp_path / "lake"), mode, part_bytes)
    reader.read(source.snapshot(), 1)
    reader.change(source.next_transaction(60))
    reader.change(source.next_transaction(20))
    before, far = reader.rows, source.lsn
    assert far > 5
    # The other server: its LSN is lower, and it has half of the rows, some of which the lake has not.
    source.next_transaction(10)
    shown = source.snapshot()[::2]
    assert 0 < len([row for row in plain(shown) if row in plain(before)]) < len(shown)
    reader.scope = "slot@1"
    reader.read(shown, 5)
    assert all(row["__commit_lsn"] < 0 or row["__commit_lsn"] == 5 for row in reader.rows)
    old = {row["__commit_lsn"] + 2**56 for row in reader.rows if row["__commit_lsn"] < 0}
    assert old and old <= {row["__commit_lsn"] for row in before}
    live = [row for row in reader.rows if not row.get("__deleted") and row.get("__current", True)]
    assert plain(live) == plain(shown)
    assert all(row.get("__valid_to_lsn") is None or row["__valid_to_lsn"] <= 5 for row in reader.rows)
