"""Quarantine beside Spark's MERGE: the same rows wait and go in, whoever writes the lake table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cdc_core.engine.slice_order import Replay
from cdc_core.quality.options import QualityOptions, UserRule
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from cdc_core.sink.options import MergeEngine
from tests.support.one_table import OneTable
from tests.support.spark import change, lake_rows, row_type

pytestmark = pytest.mark.spark

ROW = row_type(k=pa.string(), v=pa.int64(), t=pa.string())
TABLE = TableSchema(TableId("public", "t"), 1, (Column("k", PgType(25, "text")),), primary_key=("k",))


def new(k, v, t="t"):
    return {"k": k, "v": v, "t": t, "__rescued": None}


def test_what_waits_goes_in_by_spark(spark, tmp_path):
    one = OneTable(tmp_path, TABLE, ROW, MergeEngine.SPARK)
    one.quality = QualityOptions(quality_rules=(("positive", UserRule("public.t", "after.v >= 0")),))
    one.snapshot(1, [new("a", 1), new("b", 2), new("c", 3)])

    def round_(lsn, *rows, **more):
        one.append([{**change(op, lsn, n, *images), "__lsn": lsn} for n, (op, *images) in enumerate(rows)], lsn)
        return one.merge(lsn, 1, spark=spark, **more)

    refused = round_(
        100,
        ("u", None, new("a", -1, "u")),
        ("u", None, new("a", 5, None), ("t",)),
        ("d", new("b", None, None), None),
        ("u", new("c", None, None), new("d", -4)),
    )
    assert refused.waiting == 3
    # A round of which nothing goes in still counts.
    assert round_(200, ("c", None, new("b", -2))).waiting == 4
    assert one.lake_position.lsn == 200
    assert round_(300, ("u", None, new("d", 4))).waiting == 3
    assert sorted((row["k"], row["v"], row["t"]) for row in one.rows) == [("a", 1, "t"), ("d", 4, "t")]
    done = one.merge(301, 1, spark=spark, replay=Replay(accept=("positive",)))
    assert (done.waiting, done.replayed) == (0, 3)
    assert sorted((row["k"], row["v"], row["t"]) for row in one.rows) == [
        ("a", 5, "u"),
        ("b", -2, "t"),
        ("d", 4, "t"),
    ]
    statuses = [row["status"] for row in lake_rows(one.paths.quarantine(TABLE.id))]
    assert sorted(statuses) == ["replayed", "replayed", "replayed", "superseded"]
