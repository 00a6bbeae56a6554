"""Rows told by the log alone, beside Spark's own count."""

import pytest

from cdc_core.lake.delta.row_count import row_count

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_rows_are_counted_with_and_without_deletion_vectors(spark, tmp_path, vectors):
    path = str(tmp_path / "t")
    spark.sql(
        f"create table delta.`{path}` (id bigint, at timestamp_ntz) using delta"
        f" tblproperties ('delta.enableDeletionVectors' = '{vectors}')"
    )
    assert row_count(path) == 0
    for start in (0, 1000):
        rows = spark.range(start, start + 1000, 1, 2).selectExpr("id", "timestamp_ntz'2026-01-01 00:00:00' as at")
        rows.write.format("delta").mode("append").save(path)
    for where in ("id < 100", "id between 300 and 305", "id >= 1999"):
        spark.sql(f"delete from delta.`{path}` where {where}")
    counted = spark.read.format("delta").load(path).count()
    assert row_count(path) == counted == 1893
    assert row_count(f"file://{path}") == counted


def test_what_cannot_be_told_is_none(tmp_path):
    assert row_count(str(tmp_path / "nothing")) is None
    assert row_count("hdfs://nowhere/table") is None
    (tmp_path / "broken" / "_delta_log").mkdir(parents=True)
    (tmp_path / "broken" / "_delta_log" / f"{0:020}.json").write_text("nonsense")
    assert row_count(str(tmp_path / "broken")) is None
