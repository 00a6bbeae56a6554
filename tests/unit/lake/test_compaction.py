"""A bounded number of files, exact and bounded in bytes; what was replaced stays readable as long as asked for."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance import compaction
from cdc_core.lake.maintenance.cleaning import clean
from cdc_core.lake.maintenance.compaction import (
    choose,
    compact,
    maintain_after,
    maintain_behind,
    maintain_briefly,
)
from cdc_core.lake.schema.lake_schema import lake_properties, spread
from tests.support.spark import lake_rows

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
KIB, MIB = 1 << 10, 1 << 20


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "text": [f"text {number}" for number in ids]}, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    return DeltaTable.create(str(tmp_path / "t"), SCHEMA, lake_properties(1))


def grow(table: DeltaTable, *numbers: int) -> None:
    for number in numbers:
        table.commit([table.write(rows(number))], txns={"a": number})


def ids(table: DeltaTable, version: int | None = None) -> list[int]:
    return sorted(row["id"] for row in lake_rows(table.path, version=version))


def sized(*sizes: int) -> list[DataFile]:
    return [DataFile(f"f{number}", size, 1) for number, size in enumerate(sizes)]


def test_sixteen_files_of_a_class_are_chosen() -> None:
    assert choose(sized(*[KIB] * 15)) == []
    assert choose(sized(*[KIB] * 16)) == sized(*[KIB] * 16)
    assert len(choose(sized(*[KIB] * 15, 64 * KIB))) == 0, "the larger one is of the next class"
    mixed = sized(*[100 * KIB] * 16, *[KIB] * 16)
    assert [file.size for file in choose(mixed)] == [KIB] * 16, "the lowest class goes first"


def test_a_pass_that_a_round_left_is_made(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the table's turn few files are enough, and whoever makes the pass later must not want more."""
    monkeypatch.setattr(compaction, "_AT_ONCE_BYTES", 0)
    monkeypatch.setattr(compaction, "is_its_turn", lambda table, since, period: period == 16)
    grow(table, *range(10))
    assert maintain_briefly(table, table.version - 1, 0) and len(table.files) == 10
    maintain_behind(table)
    assert len(table.files) == 1 and ids(table) == list(range(10))


def test_each_class_is_eight_times_the_one_below_and_large_files_stay() -> None:
    for size, count in ((64 * KIB - 1, 16), (64 * KIB, 16), (512 * KIB - 1, 16), (512 * KIB, 16), (4 * MIB, 0)):
        assert len(choose(sized(*[size] * 16))) == count, size
    assert choose(sized(*[100 * MIB] * 40)) == []


def test_a_pass_is_bounded_in_bytes() -> None:
    assert len(choose(sized(*[4 * MIB - 1] * 16))) == 2
    assert len(choose(sized(*[4 * MIB - 1] * 16), pass_bytes=32 * MIB)) == 8
    assert len(choose(sized(*[KIB] * 100))) == 100


def test_rows_are_rewritten_a_bounded_number_of_times() -> None:
    """A thousand appends of a small file each: files stay few, and no byte is written more often than classes exist."""
    files, written = [], 0
    for number in range(4000):
        files.append(DataFile(f"n{number}", 8 * KIB, 1))
        while chosen := choose(files):
            size = sum(file.size for file in chosen)
            files = [file for file in files if file not in chosen] + [DataFile(f"c{number}-{size}", size, 1)]
            written += size
    assert len(files) <= 3 * 16 + 4000 * 8 * KIB // (4 * MIB) + 1
    assert written <= 3 * 4000 * 8 * KIB


def test_compaction_is_exact_and_says_that_no_data_changed(table: DeltaTable) -> None:
    grow(table, *range(15))
    assert compact(table) == 0
    grow(table, 15)
    before = table.version
    assert compact(table) == 16
    assert (len(table.files), table.version, ids(table)) == (1, before + 1, list(range(16)))
    assert table.txn("a") == 15 and table.raw().history(1)[0]["upkeep"] == "compaction"
    log = Path(table.path, "_delta_log", f"{table.version:020}.json").read_text()
    assert '"dataChange":false' in log and '"dataChange":true' not in log
    assert ids(table, before) == list(range(16)), "the version before is still there"
    assert compact(table) == 0


def test_compaction_gives_way(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(table, *range(16))
    write, other = table.write_stream, DeltaTable.open(table.path)
    assert other is not None

    def slowly(*given: Any) -> list[DataFile]:
        [gone] = [file for file in other.files if file.minimum["id"] == 7]
        other.commit([], [gone])
        return write(*given)

    monkeypatch.setattr(table, "write_stream", slowly)
    assert compact(table) == 0
    assert ids(table) == [number for number in range(16) if number != 7]
    assert len(table.files) == 15


def test_a_file_of_few_rows_omits_columns_without_values(table: DeltaTable) -> None:
    some = table.write(pa.table({"id": [1, 2], "text": pa.nulls(2, pa.string())}))
    none = table.write(pa.table({"id": pa.nulls(3, pa.int64()), "text": pa.nulls(3, pa.string())}))
    assert pq.read_schema(Path(table.path, some.path)).names == ["id"]
    table.commit([some, none])
    assert table.read(none).to_pydict() == {"id": [None] * 3, "text": [None] * 3}
    assert table.read(some, ["text"]).to_pydict() == {"text": [None] * 2}
    others = deltalake.DeltaTable(table.path).to_pyarrow_table()
    assert others.sort_by("id").to_pydict() == {"id": [1, 2, None, None, None], "text": [None] * 5}


def test_what_was_replaced_goes_when_it_is_old_enough(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(table, *range(16))
    compact(table)
    unnamed = table.write(rows(99))
    names = {file.name for file in Path(table.path).glob("*.parquet")}
    clean(table, 15)
    assert {file.name for file in Path(table.path).glob("*.parquet")} == names, "nothing is old"
    monkeypatch.setattr("cdc_core.lake.maintenance.cleaning.file_minutes", lambda minutes: 0)
    clean(table, 15)
    left = {file.name for file in Path(table.path).glob("*.parquet")}
    assert left == {table.files[0].path, unnamed.path}, "what no commit named yet is left alone"
    assert ids(table) == list(range(16))


def test_many_replaced_files_go_after_the_history_and_few_after_half_an_hour(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last replaced ones stay, as many bytes as are allowed."""
    begun, cleaning = time.time(), "cdc_core.lake.maintenance.cleaning"
    for number in range(8):
        table.commit([table.write(rows(number))], table.files)
    octets = 3.5 * table.files[0].size

    def left_after(minutes: float, most: float = octets) -> int:
        monkeypatch.setattr(f"{cleaning}.time.time", lambda: begun + 60 * minutes)
        monkeypatch.setattr(f"{cleaning}._TIMES", 0)
        monkeypatch.setattr(f"{cleaning}._MORE_BYTES", most)
        clean(table, 20)
        return len(list(Path(table.path).glob("*.parquet")))

    assert left_after(19) == 8, "a version within the history can be opened"
    assert left_after(21, 1 << 20) == 8
    assert left_after(21) == 1 + 3
    assert left_after(31, 1 << 20) == 1
    assert ids(table) == [7]


def test_log_entries_go_with_their_age(table: DeltaTable) -> None:
    grow(table, *range(120))
    log = Path(table.path, "_delta_log")
    assert list(log.glob("*.checkpoint*.parquet"))
    old = time.time() - 2 * 3600
    for entry in log.glob("*.json"):
        if int(entry.name[:20]) < 100:
            os.utime(entry, (old, old))
    clean(table, 1)
    left = sorted(int(entry.name[:20]) for entry in log.glob("*.json"))
    assert left[0] >= 40 and left[-1] == table.version
    again = DeltaTable.open(table.path)
    assert again is not None and again.txn("a") == 119 and ids(table) == list(range(120))


def test_few_checkpoints_stay_and_every_version_can_be_read(table: DeltaTable) -> None:
    """Ten checkpoints a minute apart, of a history of fifteen: one for five minutes, and the newest two."""
    log, now = Path(table.path, "_delta_log"), time.time()
    for number in range(30):
        grow(table, number)
        if number % 3 == 0:
            table.raw().create_checkpoint()
            os.utime(log / f"{table.version:020}.checkpoint.parquet", (now - 60 * (10 - number / 3),) * 2)
    before = len(list(log.glob("*.checkpoint.parquet")))
    clean(table, 15)
    left = sorted(int(each.name[:20]) for each in log.glob("*.checkpoint.parquet"))
    assert before == 10 and left == [1, 16, 25, 28]
    for number in range(30):
        assert sorted(
            deltalake.DeltaTable(table.path, version=number + 1).to_pyarrow_table()["id"].to_pylist()
        ) == list(range(number + 1))


def test_each_table_is_tidied_in_versions_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [DeltaTable.create(str(tmp_path / f"t{number}"), SCHEMA, {}) for number in range(40)]
    cleaned: dict[str, list[int]] = {table.path: [] for table in tables}
    compacted: dict[str, list[int]] = {table.path: [] for table in tables}
    at = 0
    monkeypatch.setattr(
        "cdc_core.lake.maintenance.compaction.clean", lambda table, minutes: cleaned[table.path].append(at)
    )
    monkeypatch.setattr(
        "cdc_core.lake.maintenance.compaction.compact",
        lambda table, enough, key: compacted[table.path].append(at) if enough == 8 else None,
    )
    monkeypatch.setattr(DeltaTable, "version", property(lambda self: at))
    for at in range(1, 201):
        for table in tables:
            maintain_after(table, at - 1, 1)
    for table in tables:
        first, second = cleaned[table.path]
        assert second == first + 100
        assert len(compacted[table.path]) in (12, 13)
        assert set(np.diff(compacted[table.path])) == {16}
    at_once = Counter(moment for moments in compacted.values() for moment in moments)
    assert max(at_once.values()) <= 10


def test_no_cleaning_without_a_history(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned: list[int] = []
    monkeypatch.setattr(
        "cdc_core.lake.maintenance.compaction.clean", lambda table, minutes: cleaned.append(table.version)
    )
    monkeypatch.setattr(DeltaTable, "version", property(lambda self: 301))
    maintain_after(table, 101, 0)
    assert cleaned == []
    maintain_after(table, 101, 1)
    assert cleaned == [301]


def test_files_stay_few_whatever_the_table_s_own_version(tmp_path: Path) -> None:
    for number in range(3):
        table = DeltaTable.create(str(tmp_path / f"t{number}"), SCHEMA, {})
        most = 0
        for key in range(60):
            since = table.version
            grow(table, key)
            maintain_after(table, since, 0)
            most = max(most, len(table.files))
        assert most <= 20 and ids(table) == list(range(60))


def test_tables_write_their_checkpoints_in_versions_of_their_own() -> None:
    kept = [spread(lake_properties(15), f"/lake/t{number}") for number in range(100)]
    intervals = Counter(int(each["delta.checkpointInterval"]) for each in kept)
    assert min(intervals) >= 42 and max(intervals) <= 57 and len(intervals) == 16
    assert all(each["delta.logRetentionDuration"] == "interval 15 minutes" for each in kept)
    assert spread({}, "/lake/t") == {}


def test_files_that_are_large_in_memory_are_left_alone(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(table, *range(16))
    sizes = {file.path: 200 << 20 if file.minimum["id"] < 10 else 1 << 10 for file in table.files}
    monkeypatch.setattr(table, "bytes_in_memory", lambda file: sizes[file.path])
    assert compact(table) == 0, "six small files are few"
    sizes |= {file.path: 50 << 20 for file in table.files if file.minimum["id"] < 9}
    assert compact(table) == 11, "those that fit in memory together"
    assert ids(table) == list(range(16))
