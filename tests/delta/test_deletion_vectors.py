"""Deletion vectors as other readers see them, and those of another writer as we do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable as RawTable
from deltalake import QueryBuilder
from pyspark.sql import functions as F  # noqa: N812

from cdc_core.lake.delta.data_file import MarkedRows
from cdc_core.lake.delta.pages import Pages
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.cleaning import clean

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
COUNT = 70_000  # more than one container of a Roaring bitmap


def rows(ids: range | list[int]) -> pa.Table:
    return pa.table({"id": list(ids), "v": [f"v{each}" for each in ids]}, SCHEMA)


def ids(table: DeltaTable) -> list[int]:
    found = [table.read(file, ["id"]).column("id").to_pylist() for file in table.files]
    return sorted(each for part in found for each in part)


def by_others(table: DeltaTable) -> list[list[int]]:
    """The ids in order, as each reader but Spark finds them; we in a table that we have just opened."""
    stream = QueryBuilder().register("t", RawTable(table.path)).execute("select id from t")
    arrow = pa.table(stream.read_all())
    by_delta_rs = sorted(arrow.column("id").to_pylist())
    by_duckdb = [each for (each,) in duckdb.sql("select id from arrow order by id").fetchall()]
    again = DeltaTable.open(table.path)
    assert again is not None
    return [by_delta_rs, by_duckdb, ids(again)]


def everywhere(table: DeltaTable, spark: Any) -> list[list[int]]:
    """The ids in order, as each reader finds them."""
    by_spark = sorted(spark.read.format("delta").load(table.path).select("id").toArrow().column("id").to_pylist())
    return [by_spark, *by_others(table)]


def mark_some(table: DeltaTable, chosen: np.random.Generator, number: int) -> None:
    """Add a file of one row, and mark up to five rows of each other file as deleted."""
    table.commit(
        [table.write(rows([10**6 + number]))],
        marked=[
            MarkedRows(file, np.sort(chosen.choice(np.flatnonzero(live), min(5, live.sum() - 1), replace=False)))
            for file in table.files
            for live in [np.ones(file.rows, bool) if table.live(file) is None else table.live(file)]
            if file.live > 1
        ],
        txns={"app": number},
    )


def test_rows_of_files_of_spark_are_read_by_their_positions(tmp_path: Path, spark: Any) -> None:
    """Spark's files have other pages, encodings and nested columns than ours."""
    path = str(tmp_path / "t")
    columns = ("id", "cast(id % 9 as int) as few", "concat('text ', id) as v")
    made = spark.range(30_000).selectExpr(*columns, "array(id, null) as list", "map('k', id) as map")
    made.withColumn("s", F.struct("v", "list")).coalesce(1).write.format("delta").save(path)
    table = DeltaTable.open(path)
    assert table is not None
    (file,) = table.files
    places = np.array([0, 3, 9_999, 20_000, 20_001, 29_999])
    pages = Pages(memoryview((tmp_path / "t" / file.path).read_bytes()))
    names = ["id", "few", "v"]
    assert pages.read(names, places).to_pylist() == table.read(file, names).take(pa.array(places)).to_pylist()
    assert table.read_at(file, places).equals(table.read(file).take(pa.array(places)))


def test_every_reader_leaves_marked_rows_out(tmp_path: Path, spark: Any) -> None:
    table = DeltaTable.create(str(tmp_path / "t"), SCHEMA, {"delta.checkpointInterval": "6"})
    table.commit([table.write(rows(range(COUNT))), table.write(rows(range(COUNT, COUNT + 50)))])
    table.enable_vectors()
    chosen = np.random.default_rng(7)
    # By the log's entries alone, then by the second checkpoint alone.
    for numbers, checkpoints in ((range(2), 0), (range(2, 9), 2)):
        for number in numbers:
            mark_some(table, chosen, number)
        left = set(ids(table))
        assert len(left) == COUNT + 50 + numbers.stop - 10 * numbers.stop
        assert len(list((tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet"))) == checkpoints
        assert everywhere(table, spark) == [sorted(left)] * 4
    # Spark goes on where we stopped, and we where it did.
    path = f"delta.`{table.path}`"
    spark.sql(f"delete from {path} where id % 1000 = 7")
    spark.sql(f"update {path} set v = 'new' where id % 1000 = 8")
    table.refresh()
    assert any(file.vector is not None and file.rows == COUNT for file in table.files)
    left = {each for each in left if each % 1000 != 7}
    assert by_others(table) == [sorted(left)] * 3 and ids(table) == sorted(left)
    (large,) = (file for file in table.files if file.rows == COUNT)
    live = table.live(large)
    assert live is not None
    gone = int(table.read(large, ["id"]).column("id")[0].as_py())
    table.commit(marked=[MarkedRows(large, np.flatnonzero(live)[:1])])
    # What Spark and we remove as no longer needed is needed by none.
    clean(table, 1)
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"vacuum {path} retain 0 hours")
    assert everywhere(table, spark) == [sorted(left - {gone})] * 4
    assert ids(table) == sorted(left - {gone})
