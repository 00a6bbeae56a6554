"""Layout of lake tables: clustering by key, in-commit timestamps, upkeep, merges that open few files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.cleaning import clean
from cdc_core.lake.schema.evolve import evolve
from cdc_core.lake.schema.features import FeaturePolicy, features_on
from cdc_core.lake.schema.lake_schema import lake_properties, lake_schema
from cdc_core.lake.schema.project import SchemaStep, StepColumn
from cdc_core.lake.write.maintain import Retention, maintain
from cdc_core.lake.write.replace import commit_snapshot, write_rows
from cdc_core.schema.changes import DeltaFeature
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.one_table import OneTable
from tests.support.spark import AT, change, row_type

pytestmark = pytest.mark.spark

INT8, TEXT, BOOL = PgType(20, "int8"), PgType(25, "text"), PgType(16, "bool")
TABLE = TableSchema(
    TableId("public", "t"), 1, (Column("id", INT8, optional=False), Column("v", TEXT)), primary_key=("id",)
)
ROW = row_type(id=pa.int64(), v=pa.string())
BOTH = FeaturePolicy(clustered=(r"public\.t",), commit_timestamps=True)


def snapshot(side: OneTable, files: int, rows: int) -> DeltaTable:
    """A lake table of some files, each of which holds a range of keys."""
    lake = DeltaTable.create(side.lake, lake_schema(side.row), lake_properties(15))
    written = []
    for number in range(files):
        made = [
            {"id": number * rows + at, "v": "old", "__commit_lsn": 1, "__tx_index": -1, "__commit_ts": AT}
            for at in range(rows)
        ]
        written += write_rows(lake, pa.Table.from_pylist(made, schema=lake_schema(side.row)).to_batches(), lake.schema)
    commit_snapshot(lake, written, lake.schema, "slot", TABLE.id, token=1, schema_version=1)
    lake.refresh()
    return lake


def update(key: int, lsn: int) -> dict[str, Any]:
    row = {"id": key, "v": "new", "__rescued": None}
    return change("u", lsn, 0, {"id": key, "v": "old", "__rescued": None}, row)


def test_a_merge_writes_only_files_that_hold_a_changed_row(tmp_path: Path) -> None:
    side = OneTable(tmp_path, TABLE, ROW)
    # Fewer than are put together after a round.
    lake = snapshot(side, files=7, rows=50)
    before = {file.path for file in lake.files}
    opened = []
    read = DeltaTable.read

    def told(self: DeltaTable, file: Any, columns: Any = None, **more: Any) -> pa.Table:
        opened.append(file.path)
        return read(self, file, columns, **more)

    side.append([update(120, 10), update(130, 11), update(320, 12)], whole=12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaTable, "read", told)
        done = side.merge(12, token=1)
    assert done.applied is not None and done.applied.updated == 3
    lake.refresh()
    after = {file.path for file in lake.files}
    assert len(before - after) == 2, "the files of keys 100 to 149 and 300 to 349"
    assert len(before & set(opened)) == 2, "by the log's statistics no other file is even opened"
    assert sorted(row["id"] for row in side.rows if row["v"] == "new") == [120, 130, 320]


def log_entries(path: str, kind: str) -> list[dict[str, Any]]:
    """The actions of one kind in the table's log, oldest first."""
    entries = sorted((Path(path) / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for entry in entries for line in entry.read_text(encoding="utf-8").splitlines()]
    return [line[kind] for line in lines if kind in line]


def clustering(path: str) -> list[list[str]]:
    """The columns that each commit of clustering has in the log, oldest first."""
    told = [each for each in log_entries(path, "domainMetadata") if each["domain"] == "delta.clustering"]
    return [[name for (name,) in json.loads(each["configuration"])["clusteringColumns"]] for each in told]


def test_clustering_and_timestamps_from_their_start_to_a_key_column_that_goes(tmp_path: Path, spark: Any) -> None:
    side = OneTable(tmp_path, TABLE, ROW)
    side.tables = replace(side.tables, features=BOTH)
    side.writer = replace(side.writer, features=BOTH)
    lake = snapshot(side, files=4, rows=50)
    wanted = {DeltaFeature.CLUSTERING, DeltaFeature.COMMIT_TIMESTAMPS}
    assert BOTH.missing(lake, TABLE) == wanted
    version = lake.version
    BOTH.enable_missing(lake, TABLE)
    assert lake.version == version + 1 and features_on(lake) == wanted and lake.clustered_by == ("id",)
    BOTH.enable_missing(lake, TABLE)
    assert lake.version == version + 1, "what is on stays as it is"
    side.append([update(7, 10), update(120, 11)], whole=11)
    assert side.merge(11, token=1).applied is not None
    # Another writer, whose clock is ahead: times still grow.
    spark.sql(f"update delta.`{lake.path}` set v = 'new' where id = 8")
    side.append([update(9, 12)], whole=12)
    side.merge(12, token=1)
    assert sorted(row["id"] for row in side.rows if row["v"] == "new") == [7, 8, 9, 120]
    assert len(side.rows) == 200
    # A snapshot anew keeps both.
    lake.refresh()
    rows = pa.Table.from_pylist(
        [{"id": 1, "v": "again", "__commit_lsn": 20, "__tx_index": -1, "__commit_ts": AT}], schema=lake_schema(ROW)
    )
    files = write_rows(lake, rows.to_batches(), lake_schema(ROW))
    commit_snapshot(lake, files, lake_schema(ROW), "slot", TABLE.id, token=20, schema_version=2)
    assert [row["v"] for row in side.rows] == ["again"]
    assert clustered_by(spark, lake.path) == ["id"]
    times = [each.get("inCommitTimestamp") for each in log_entries(lake.path, "commitInfo")][version + 1 :]
    assert len(times) >= 5 and None not in times and times == sorted(set(times))
    begun = ("delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp")
    assert [lake.properties[name] for name in begun] == [str(version + 1), str(times[0])]
    told = spark.sql(f"describe history delta.`{lake.path}`").orderBy("version").collect()[version + 1 :]
    assert [int(each.timestamp.timestamp() * 1000) for each in told] == times, "Spark takes them for the commits' times"
    # The key column's name is another's.
    steps = [SchemaStep(2, (StepColumn("number", "id", pa.int64()), StepColumn("v", "v", pa.string())))]
    evolve(lake, steps, BOTH.evolution(lake, steps), "app", {})
    assert lake.schema.names[:2] == ["number", "v"] and lake.clustered_by == ("number",)
    assert clustered_by(spark, lake.path) == ["number"]
    # One that goes is no longer among them: readers look for each.
    steps = [SchemaStep(3, (StepColumn("v", "v", pa.string()),))]
    evolve(lake, steps, BOTH.evolution(lake, steps), "app", {})
    assert lake.clustered_by == () and clustering(lake.path)[-1] == [] == clustered_by(spark, lake.path)
    assert [row.v for row in spark.read.format("delta").load(lake.path).collect()] == ["again"]


def clustered_by(spark: Any, path: str) -> list[str]:
    """What Spark says."""
    found = spark.sql(f"describe detail delta.`{path}`").select("clusteringColumns").collect()
    return list(found[0][0] or ())


def test_only_key_columns_with_statistics_cluster_and_only_four(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(6)]
    columns = (*(Column(name, INT8, optional=False) for name in names), Column("b", BOOL, optional=False))
    row = row_type(**{name: pa.int64() for name in names}, b=pa.bool_())
    lake = DeltaTable.create(str(tmp_path / "t"), lake_schema(row), {})
    policy = FeaturePolicy(clustered=(".*",))

    def by(*key: str, name: str = "t") -> tuple[str, ...]:
        return policy.cluster_by(lake, TableSchema(TableId("public", name), 1, columns, primary_key=key))

    assert by("b", "c1", "c0") == ("c1", "c0")
    assert by(*names) == ("c0", "c1", "c2", "c3")
    assert by("b") == by() == ()
    assert FeaturePolicy(clustered=("other",)).cluster_by(lake, TABLE) == ()
    wide = DeltaTable.create(str(tmp_path / "w"), lake_schema(row_type(**{f"x{n}": pa.int64() for n in range(40)})), {})
    far = TableSchema(TABLE.id, 1, tuple(Column(f"x{n}", INT8) for n in range(40)), primary_key=("x35", "x3"))
    assert policy.cluster_by(wide, far) == ("x3",)


def test_upkeep_of_a_table_that_spark_marked_keeps_its_rows(tmp_path: Path, spark: Any) -> None:
    side = OneTable(tmp_path, TABLE, ROW)
    lake = snapshot(side, files=6, rows=50)
    lake.enable_vectors()
    spark.sql(f"update delta.`{lake.path}` set v = 'new' where id % 60 = 0")
    lake.refresh()
    assert any(file.vector is not None for file in lake.files)
    expected = sorted((row["id"], row["v"]) for row in side.rows)
    # The rounds' own cleaning: files that are marked, not replaced, must stay.
    clean(lake, 1)
    assert sorted((row["id"], row["v"]) for row in side.rows) == expected
    done = maintain(lake.path, Retention(1, 1))
    assert done is not None
    assert done.files_after < done.files_before and done.rewritten > 1
    assert sorted((row["id"], row["v"]) for row in side.rows) == expected
    assert len(expected) == 300
    by_spark = spark.read.format("delta").load(lake.path).select("id", "v").collect()
    assert sorted((row.id, row.v) for row in by_spark) == expected
