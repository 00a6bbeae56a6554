"""Lake tables with column mapping and type widening: changed and filled by Spark as Arrow would, in one commit each."""

from __future__ import annotations

import logging
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.lake.delta.data_file import MarkedRows
from cdc_core.lake.delta.row_count import row_count
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import compact
from cdc_core.lake.schema.features import EvolutionMethod, FeaturePolicy, announce, features_on
from cdc_core.lake.schema.lake_schema import lake_properties, lake_schema
from cdc_core.lake.schema.project import Step, StepColumn, evolve
from cdc_core.lake.spark.commit import enable, transaction
from cdc_core.lake.spark.evolve import adopt_by_spark, evolve_by_spark
from cdc_core.lake.write.replace import commit_snapshot, write_rows
from cdc_core.schema.changes import DeltaFeature, LakeFeatures
from cdc_core.schema.table import TableId
from tests.support.spark import AT, TEXTS, lake_rows

pytestmark = pytest.mark.spark

APP = "wal2lake:s:public.t:shape"
POINT = pa.struct([("x", pa.float64()), ("y", pa.float64())])
ROW = pa.struct(
    [
        ("id", pa.int32()),
        ("a", pa.string()),
        ("b", pa.string()),
        ("n", pa.decimal128(8, 2)),
        ("many", pa.list_(pa.decimal128(8, 2))),
        ("at", pa.timestamp("us")),
        ("places", pa.list_(POINT)),
        ("__rescued", TEXTS),
    ]
)
SCHEMA = lake_schema(ROW)
BOTH = frozenset([DeltaFeature.COLUMN_MAPPING, DeltaFeature.TYPE_WIDENING])


def column(name: str, source: str | None = "", kind: pa.DataType | None = None, **more: Any) -> StepColumn:
    """A column that stays as it is, where nothing else is said."""
    origin = name if source == "" else source
    return StepColumn(name, origin, kind or ROW.field(origin or name).type, **more)


# a and b change names; many and n grow; at goes and a column of its name comes; two come filled.
SWAPPED = Step(
    2,
    (
        column("id"),
        column("b", "a"),
        column("a", "b"),
        column("n", kind=pa.decimal128(38, 18)),
        column("many", kind=pa.list_(pa.decimal128(12, 2))),
        column("at", None, pa.string()),
        column("places"),
    ),
)
FILLED = Step(
    3,
    (
        column("id"),
        column("second", "b", pa.string()),
        column("a"),
        column("n", kind=pa.decimal128(38, 18)),
        column("many", kind=pa.list_(pa.decimal128(12, 2))),
        column("at", None, pa.timestamp("us"), value=pa.scalar(datetime(1200, 1, 2, 3), pa.timestamp("us"))),
        column("place", None, POINT, value=pa.scalar({"x": 1.0, "y": None}, POINT)),
        column("far", None, pa.date32(), text="infinity"),
        column("places"),
    ),
)


def table(folder: Path, texts: bool = False) -> DeltaTable:
    rows = [
        {
            "id": number,
            "a": f"a{number}",
            "b": None,
            "n": Decimal("123456.78"),
            "many": [Decimal("1.25"), None],
            "at": datetime(2026, 1, number + 1),
            "places": [{"x": float(number), "y": 2.0}, None] if number else None,
            "__rescued": [("a", "text"), ("n", "NaN")] if texts and number == 2 else None,
            "__commit_lsn": number,
            "__tx_index": 0,
            "__commit_ts": AT,
        }
        for number in range(4)
    ]
    made = DeltaTable.create(str(folder), SCHEMA, lake_properties(15))
    for part in (rows[:2], rows[2:]):
        made.commit([made.write(pa.Table.from_pylist(part, schema=SCHEMA))], txns={APP: 1})
    return made


def by_arrow(folder: Path, steps: list[Step], texts: bool = False) -> list[dict[str, Any]]:
    lake = table(folder, texts)
    evolve(lake, steps, APP, {})
    return read(lake.path)


def read(path: str) -> list[dict[str, Any]]:
    """Through our own reader, which asks no feature; rows by their position."""
    opened = DeltaTable.open(path)
    assert opened is not None
    rows = pa.concat_tables([opened.read(file) for file in opened.files]).to_pylist()
    return sorted(rows, key=lambda row: row["__commit_lsn"])


def by_spark(spark: Any, path: str) -> list[dict[str, Any]]:
    rows = spark.read.format("delta").load(path).orderBy("__commit_lsn").toArrow().to_pylist()
    return [row for row in rows if row.pop("__commit_ts") == AT]


def without_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "__commit_ts"} for row in rows]


def evolved(spark: Any, lake: DeltaTable, steps: list[Step], policy: FeaturePolicy, folder: Path) -> frozenset[str]:
    evolution = policy.evolution(lake, steps)
    return evolve_by_spark(spark, lake, steps, evolution, APP, {"schemaVersion": "3"}, folder)


def test_names_and_types_change_without_a_row_written(spark: Any, tmp_path: Path) -> None:
    lake = table(tmp_path / "t")
    files = {file.path for file in lake.files}
    assert evolved(spark, lake, [SWAPPED], FeaturePolicy(LakeFeatures.AUTO, 1), tmp_path) == BOTH
    before = lake.version
    lake.refresh()
    assert {file.path for file in lake.files} == files and lake.txn(APP) == 2
    assert lake.version == before + 2  # the features, then everything else at once
    assert features_on(lake) == BOTH
    wanted = by_arrow(tmp_path / "wanted", [SWAPPED])
    assert read(lake.path) == wanted and without_time(wanted) == by_spark(spark, lake.path)
    assert list(read(lake.path)[0]) == list(wanted[0])
    assert row_count(lake.path) == 4 and compact(lake) == 0
    # Once more, as a killed run's successor does: the number is there, nothing is done.
    assert evolved(spark, lake, [SWAPPED], FeaturePolicy(LakeFeatures.AUTO, 1), tmp_path) == frozenset()
    version = lake.version
    lake.refresh()
    assert lake.version == version


def test_rows_are_filled_and_texts_follow_their_columns(spark: Any, tmp_path: Path) -> None:
    """One row has texts, the others have none."""
    steps = [SWAPPED, FILLED]
    lake = table(tmp_path / "t", texts=True)
    enable(spark, lake.path, BOTH)
    lake.refresh()
    assert FeaturePolicy().evolution(lake, steps).method is EvolutionMethod.SPARK
    evolved(spark, lake, steps, FeaturePolicy(), tmp_path)
    wanted = by_arrow(tmp_path / "wanted", steps, texts=True)
    assert wanted[1]["__rescued"] == [("far", "infinity")] and len(wanted[2]["__rescued"]) == 3
    assert by_spark(spark, lake.path) == without_time(wanted)
    lake.refresh()
    assert lake.txn(APP) == 3 and [str(each) for each in lake.schema] == [
        str(each)
        for each in DeltaTable.open(str(tmp_path / "wanted")).schema  # type: ignore[union-attr]
    ]


def test_a_text_by_a_name_that_goes_has_the_rows_written(spark: Any, tmp_path: Path) -> None:
    lake = table(tmp_path / "t", texts=True)
    assert evolved(spark, lake, [SWAPPED], FeaturePolicy(LakeFeatures.AUTO, 1), tmp_path) == frozenset()
    lake.refresh()
    assert not features_on(lake) and lake.txn(APP) == 2
    assert by_spark(spark, lake.path) == without_time(by_arrow(tmp_path / "wanted", [SWAPPED], texts=True))


def test_a_snapshot_replaces_content_schema_and_positions(spark: Any, tmp_path: Path) -> None:
    lake = table(tmp_path / "t")
    lake.enable_vectors()
    lake.commit(marked=[MarkedRows(lake.files[0], np.array([1]))])
    evolved(spark, lake, [SWAPPED], FeaturePolicy(LakeFeatures.MODERN, 1), tmp_path)
    schema = lake_schema(pa.struct([("id", pa.int64()), ("a", pa.date32()), ("at", pa.timestamp("us"))]))
    row = {"id": 5, "a": datetime(1, 1, 1).date(), "at": datetime(1, 1, 1), "__commit_lsn": 9, "__tx_index": -1}
    batches = pa.Table.from_pylist([{**row, "__commit_ts": AT}], schema=schema).to_batches()
    lake.refresh()
    for token, rows in ((8, batches), (9, [])):
        files = write_rows(lake, rows, schema)
        facts = commit_snapshot(
            lake,
            files,
            schema,
            "s",
            TableId("public", "t"),
            token=token,
            schema_version=token,
            facts={"lsn": "0/1"},
            spark=spark,
        )
        lake.refresh()
        assert (facts.version, facts.rows, lake.txn(APP)) == (lake.version, len(rows), token)
        assert lake.txn("wal2lake:s:public.t:snapshot") == token and lake.schema.equals(schema)
        assert not [file for file in files if (tmp_path / "t" / file.path).exists()]
        held = by_spark(spark, lake.path)
        assert held == ([{**row}] if rows else [])
    assert features_on(lake) == BOTH and not lake.files


def test_another_writer_with_the_same_position_is_in_the_way(spark: Any, tmp_path: Path) -> None:
    lake = table(tmp_path / "t")
    enable(spark, lake.path, BOTH)
    with transaction(spark, lake.path) as late:
        assert late.position(APP) == 1
        with transaction(spark, lake.path) as first:
            first.commit({APP: 2}, {})
        with pytest.raises(Exception, match=r"(?i)concurrent"):
            late.commit({APP: 3}, {})


def test_features_come_on_as_the_policy_says(tmp_path: Path) -> None:
    lake = table(tmp_path / "t")
    size = sum(file.size for file in lake.files)
    auto, widest, modern = LakeFeatures.AUTO, LakeFeatures.WIDEST, LakeFeatures.MODERN
    renamed = Step(2, tuple(column("c", "a") if name == "a" else column(name) for name in ROW.names[:-1]))
    wider = Step(2, tuple(column(n, kind=pa.decimal128(9, 2) if n == "n" else None) for n in ROW.names[:-1]))
    narrower = Step(2, tuple(column(n, kind=pa.decimal128(8, 3) if n == "n" else None) for n in ROW.names[:-1]))
    added = Step(2, (*(column(name) for name in ROW.names[:-1]), column("new", None, pa.int32())))
    told = [
        (policy, most, name, found.method, {each.value for each in found.enables})
        for name, step in (("renamed", renamed), ("wider", wider), ("added", added), ("filled", FILLED))
        for policy, most in ((auto, size - 1), (auto, size), (widest, 1), (modern, size))
        if (found := FeaturePolicy(policy, most).evolution(lake, [step])).method is not EvolutionMethod.ARROW
    ]
    assert told == [
        (auto, size - 1, "renamed", EvolutionMethod.METADATA, {"columnMapping"}),
        (modern, size, "renamed", EvolutionMethod.METADATA, {"columnMapping"}),
        (auto, size - 1, "wider", EvolutionMethod.METADATA, {"typeWidening"}),
        (modern, size, "wider", EvolutionMethod.METADATA, {"typeWidening"}),
    ]
    assert FeaturePolicy(modern, 1).evolution(lake, [narrower]).method is EvolutionMethod.ARROW
    assert FeaturePolicy(modern).missing(lake) == BOTH
    assert FeaturePolicy(auto).missing(lake) == FeaturePolicy(widest).missing(lake) == frozenset()


def test_who_can_read_a_table_is_told_once_a_feature(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        announce("public.t", BOTH)
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "public.t: Delta table feature columnMapping was enabled",
        "public.t: Delta table feature typeWidening was enabled",
    ]


def test_columns_are_added_and_delta_rs_agrees_on_mapped_names(spark: Any, tmp_path: Path) -> None:
    lake = table(tmp_path / "t")
    renamed = Step(2, tuple(column("c", "a") if name == "a" else column(name) for name in ROW.names[:-1]))
    evolved(spark, lake, [renamed], FeaturePolicy(LakeFeatures.AUTO, 1), tmp_path)
    adopt_by_spark(spark, lake, pa.schema([*SCHEMA, ("deep", pa.list_(POINT))]), {"other": 7}, {})
    lake.refresh()
    assert (lake.schema.names[-1], lake.txn("other"), lake.txn(APP)) == ("deep", 7, 2)
    assert {row["deep"] for row in read(lake.path)} == {None}
    spark.sql(f"update delta.`{lake.path}` set deep = array(named_struct('x', 1d, 'y', 2d), null) where id < 3")
    lake.refresh()
    mine = read(lake.path)
    other = sorted(lake_rows(lake.path), key=lambda row: row["__commit_lsn"])
    assert mine == other and mine[0]["deep"] == [{"x": 1.0, "y": 2.0}, None] and mine[3]["c"] == "a3"
