"""Quarantine beside Spark's MERGE: the same rows wait and go in, whoever writes the lake table."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from cdc_core.engine.reports import QuarantineReport
from cdc_core.engine.slice.order import Replay
from cdc_core.lake.delete_modes import DeleteMode, DeleteModes
from cdc_core.lake.options import MergeEngine
from cdc_core.quality.options import QualityOptions, UserRule
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.one_table import OneTable, quarantined
from tests.support.spark import change, lake_rows, row_type

pytestmark = pytest.mark.spark

ROW = row_type(k=pa.string(), v=pa.int64(), t=pa.string())
TABLE = TableSchema(TableId("public", "t"), 1, (Column("k", PgType(25, "text")),), primary_key=("k",))


def new(k, v, t="t"):
    return {"k": k, "v": v, "t": t, "__rescued": None}


def test_what_waits_goes_in_by_spark(spark, tmp_path):
    """After a round by Arrow; Spark merges one that supersedes what waits, then what still waits."""
    one = OneTable(tmp_path, TABLE, ROW)
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
    assert quarantined(refused).waiting == 3
    one.engine = MergeEngine.SPARK
    # A round of which nothing goes in still counts.
    assert quarantined(round_(200, ("c", None, new("b", -2)))).waiting == 4
    assert one.lake_position.lsn == 200
    assert quarantined(round_(300, ("u", None, new("d", 4)))).waiting == 3
    assert sorted((row["k"], row["v"], row["t"]) for row in one.rows) == [("a", 1, "t"), ("d", 4, "t")]
    done = one.merge(301, 1, spark=spark, replay=Replay(accept=("positive",)))
    assert done.staged is not None and quarantined(done) == QuarantineReport(replayed=3)
    assert sorted((row["k"], row["v"], row["t"]) for row in one.rows) == [
        ("a", 5, "u"),
        ("b", -2, "t"),
        ("d", 4, "t"),
    ]
    statuses = [row["status"] for row in lake_rows(one.paths.quarantine(TABLE.id))]
    assert sorted(statuses) == ["replayed", "replayed", "replayed", "superseded"]


def test_past_versions_go_in_by_spark(spark, tmp_path):
    """A round and a replay between rounds by Arrow: versions end elsewhere, past and current ones come, once."""
    one = OneTable(tmp_path, TABLE, ROW)
    one.tables = replace(one.tables, modes=DeleteModes(DeleteMode.HISTORY))
    one.quality = QualityOptions(quality_rules=(("positive", UserRule("public.t", "after.v >= 0")),))

    def round_(lsn, *rows, **more):
        one.append([{**change(op, lsn, n, *images), "__lsn": lsn} for n, (op, *images) in enumerate(rows)], lsn)
        return one.merge(lsn, spark=spark, **more)

    round_(100, ("c", None, new("a", 1)), ("c", None, new("b", 1)))
    round_(200, ("u", None, new("a", -2, "u")), ("u", None, new("a", 3, None), ("t",)), ("c", None, new("c", -4)))
    one.engine = MergeEngine.SPARK
    round_(300, ("u", None, new("a", 5)), ("d", new("c", None, None), None), ("u", None, new("b", -6)))
    assert [row["status"] for row in lake_rows(one.paths.quarantine(TABLE.id))].count("superseded") == 3
    done = one.merge(301, spark=spark, replay=Replay(accept_all=True))
    assert done.staged is not None and quarantined(done) == QuarantineReport(replayed=4)
    wanted = [
        ("a", 1, "t", 100, (200, 0)),
        ("a", -2, "u", 200, (200, 1)),
        ("a", 3, "u", 200, (300, 0)),
        ("a", 5, "t", 300, None),
        ("b", 1, "t", 100, (300, 2)),
        ("b", -6, "t", 300, None),
        ("c", -4, "t", 200, (300, 1)),
    ]
    assert versions(one) == wanted
    assert quarantined(one.merge(302, spark=spark, replay=Replay(accept_all=True))).replayed == 0
    one.engine = MergeEngine.AUTO
    assert quarantined(round_(400, ("u", None, new("b", 7)))).waiting == 0
    assert [row for row in versions(one) if row[0] == "b"][1:] == [
        ("b", -6, "t", 300, (400, 0)),
        ("b", 7, "t", 400, None),
    ]


def versions(one):
    found = []
    for row in one.rows:
        ended = None if row["__valid_to_lsn"] is None else (row["__valid_to_lsn"], row["__valid_to_index"])
        assert row["__current"] is (ended is None)
        found.append((row["k"], row["v"], row["t"], row["__valid_from_lsn"], ended))
    return sorted(found, key=lambda row: (row[0], row[3], row[4] or (999, 0)))
