"""Rows told by the log alone, beside Spark's own count."""

import pyarrow as pa
import pytest

from cdc_core.lake.delta.row_count import row_count
from cdc_core.lake.delta.table import DeltaTable

pytestmark = pytest.mark.spark


def test_rows_are_counted_with_and_without_deletion_vectors(spark, tmp_path):
    path = str(tmp_path / "t")
    made = spark.range(0, 2000, 1, 2).selectExpr("id", "timestamp_ntz'2026-01-01 00:00:00' as at")
    made.write.format("delta").option("delta.enableDeletionVectors", "false").save(path)
    spark.sql(f"delete from delta.`{path}` where id < 100")
    assert row_count(path) == 1900, "in files that were written anew"
    spark.sql(f"alter table delta.`{path}` set tblproperties ('delta.enableDeletionVectors' = 'true')")
    # The second one concerns a file that has marked rows already, and another.
    for where in ("id between 300 and 305", "id between 400 and 409 or id = 1999"):
        spark.sql(f"delete from delta.`{path}` where {where}")
    counted = spark.read.format("delta").load(path).count()
    assert row_count(path) == counted == 1883
    assert row_count(f"file://{path}") == counted
    empty = DeltaTable.create(str(tmp_path / "empty"), pa.schema([("id", pa.int64())]), {})
    assert row_count(empty.path) == 0


def test_an_unknown_count_is_none(tmp_path):
    assert row_count(str(tmp_path / "nothing")) is None
    assert row_count("hdfs://nowhere/table") is None
    (tmp_path / "broken" / "_delta_log").mkdir(parents=True)
    (tmp_path / "broken" / "_delta_log" / f"{0:020}.json").write_text("nonsense")
    assert row_count(str(tmp_path / "broken")) is None
