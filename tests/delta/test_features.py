"""Lake tables with column mapping and type widening: changed in one commit each, written on, and read by Spark."""

from __future__ import annotations

import logging
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.errors import CommitConflictError, TableError
from cdc_core.lake.delta.data_file import MarkedRows
from cdc_core.lake.delta.row_count import row_count
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import compact
from cdc_core.lake.schema.evolve import evolve
from cdc_core.lake.schema.features import (
    Evolution,
    FeaturePolicy,
    announce,
    enabled,
    features_on,
    is_writable,
    require_writable,
)
from cdc_core.lake.schema.lake_schema import lake_properties, lake_schema
from cdc_core.lake.schema.project import SchemaStep, StepColumn
from cdc_core.lake.write.replace import commit_snapshot, write_rows
from cdc_core.schema.changes import DeltaFeature, LakeFeatures
from cdc_core.schema.table import TableId
from tests.support.spark import AT, TEXTS, lake_rows

pytestmark = pytest.mark.spark

APP = "wal2lake:s:public.t:schema-version"
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
OWN = ("__rescued", "__commit_lsn", "__tx_index", "__commit_ts")
BOTH = frozenset([DeltaFeature.COLUMN_MAPPING, DeltaFeature.TYPE_WIDENING])


def column(name: str, source: str | None = "", kind: pa.DataType | None = None, **more: Any) -> StepColumn:
    """A column that stays as it is, where nothing else is said."""
    origin = name if source == "" else source
    return StepColumn(name, origin, kind or ROW.field(origin or name).type, **more)


# a and b change names; many and n grow; at goes and a column of its name comes; two come filled.
SWAPPED = SchemaStep(
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
FILLED = SchemaStep(
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


def by_arrow(folder: Path, steps: list[SchemaStep], texts: bool = False) -> list[dict[str, Any]]:
    lake = table(folder, texts)
    evolve(lake, steps, Evolution(None), APP, {})
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


def evolved(lake: DeltaTable, steps: list[SchemaStep], policy: FeaturePolicy) -> frozenset[DeltaFeature]:
    """The features that the table has got."""
    before = features_on(lake)
    evolve(lake, steps, policy.evolution(lake, steps), APP, {"schemaVersion": "3"})
    return features_on(lake) - before


def test_rows_that_are_written_again_are_in_the_feed_where_they_got_a_value(spark: Any, tmp_path: Path) -> None:
    lake = table(tmp_path / "t")
    lake.commit(definition=lake.definition.with_change_feed())

    def feed() -> list[dict[str, Any]]:
        reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", lake.version)
        return reader.load(lake.path).orderBy("id", "_change_type").toArrow().to_pylist()

    evolve(lake, [SWAPPED], Evolution(None), APP, {})
    assert feed() == []
    evolve(lake, [FILLED], Evolution(None), APP, {})
    told, after = feed(), by_spark(spark, lake.path)
    assert [row["_change_type"] for row in told] == ["update_postimage", "update_preimage"] * 4
    new = [{name: row[name] for name in after[0]} for row in told if row["_change_type"] == "update_postimage"]
    assert new == after and all(row["place"] for row in new)
    filled = dict.fromkeys(("at", "place", "__rescued"))
    assert [{name: row[name] for name in after[0]} for row in told if row["_change_type"] == "update_preimage"] == [
        {**row, **filled} for row in after
    ]


def test_names_and_types_change_without_a_row_written(spark: Any, tmp_path: Path) -> None:
    lake = table(tmp_path / "t")
    files, before = {file.path for file in lake.files}, lake.version
    assert evolved(lake, [SWAPPED], FeaturePolicy(LakeFeatures.AUTO, 1)) == BOTH
    assert {file.path for file in lake.files} == files and lake.txn(APP) == 2
    assert lake.version == before + 1, "features, names, types and position at once"
    wanted = by_arrow(tmp_path / "wanted", [SWAPPED])
    assert read(lake.path) == wanted and without_time(wanted) == by_spark(spark, lake.path)
    assert list(read(lake.path)[0]) == list(wanted[0])
    assert row_count(lake.path) == 4
    # Rows are added, marked and put together under the new names, by this program and by Spark in turn.
    late = {**wanted[3], "id": 9, "__commit_lsn": 9, "a": "late", "__commit_ts": AT}
    lake.commit([lake.write(pa.Table.from_pylist([late], schema=lake.schema))])
    spark.sql(f"update delta.`{lake.path}` set b = 'by Spark' where id = 1")
    lake.refresh()
    lake.enable_vectors()
    gone = next(file for file in lake.files if lake.read(file, ["id"])["id"].to_pylist()[:1] == [0])
    lake.commit(marked=[MarkedRows(gone, np.array([0]))])
    rows = [{**row, "b": "by Spark"} if row["id"] == 1 else row for row in wanted if row["id"] != 0]
    wanted = [*rows, late]
    assert read(lake.path) == wanted and by_spark(spark, lake.path) == without_time(wanted)
    assert compact(lake, 2) > 1
    assert read(lake.path) == wanted and by_spark(spark, lake.path) == without_time(wanted)
    lows = [file.minimum.get("a") for file in lake.files]
    assert lows and "a" in lake.schema.names and any(low is not None for low in lows), "statistics by names of columns"
    found = spark.read.format("delta").load(lake.path).where("a = 'late'")
    assert [row.id for row in found.collect()] == [9]


def test_rows_are_filled_and_texts_follow_their_columns(spark: Any, tmp_path: Path) -> None:
    """One row has texts, the others have none."""
    steps = [SWAPPED, FILLED]
    lake = table(tmp_path / "t", texts=True)
    lake.commit(definition=enabled(lake, BOTH))
    assert FeaturePolicy().evolution(lake, steps).enables is None
    evolved(lake, steps, FeaturePolicy())
    wanted = by_arrow(tmp_path / "wanted", steps, texts=True)
    assert wanted[1]["__rescued"] == [("far", "infinity")] and len(wanted[2]["__rescued"]) == 3
    assert by_spark(spark, lake.path) == without_time(wanted)
    assert lake.txn(APP) == 3 and [str(each) for each in lake.schema] == [
        str(each)
        for each in DeltaTable.open(str(tmp_path / "wanted")).schema  # type: ignore[union-attr]
    ]


def test_a_text_by_a_name_that_goes_has_the_rows_written(spark: Any, tmp_path: Path) -> None:
    lake = table(tmp_path / "t", texts=True)
    assert evolved(lake, [SWAPPED], FeaturePolicy(LakeFeatures.AUTO, 1)) == frozenset()
    assert lake.txn(APP) == 2
    assert by_spark(spark, lake.path) == without_time(by_arrow(tmp_path / "wanted", [SWAPPED], texts=True))


def test_a_snapshot_replaces_content_schema_and_positions(spark: Any, tmp_path: Path) -> None:
    lake = table(tmp_path / "t")
    lake.enable_vectors()
    lake.commit(marked=[MarkedRows(lake.files[0], np.array([1]))])
    evolved(lake, [SWAPPED], FeaturePolicy(LakeFeatures.MODERN, 1))
    schema = lake_schema(pa.struct([("id", pa.int64()), ("a", pa.date32()), ("at", pa.timestamp("us"))]))
    row = {"id": 5, "a": datetime(1, 1, 1).date(), "at": datetime(1, 1, 1), "__commit_lsn": 9, "__tx_index": -1}
    batches = pa.Table.from_pylist([{**row, "__commit_ts": AT}], schema=schema).to_batches()
    for token, rows in ((8, batches), (9, [])):
        files = write_rows(DeltaTable.open(lake.path), rows, schema)  # type: ignore[arg-type]
        name = TableId("public", "t")
        told = {"lsn": "0/1"}
        facts = commit_snapshot(lake, files, schema, "s", name, token=token, schema_version=token, facts=told)
        assert (facts.version, facts.rows, lake.txn(APP)) == (lake.version, len(rows), token)
        assert lake.txn("wal2lake:s:public.t:snapshot") == token and lake.schema.equals(schema)
        assert by_spark(spark, lake.path) == ([{**row}] if rows else [])
    assert features_on(lake) == BOTH and not lake.files


def test_another_writer_with_the_same_position_is_in_the_way(tmp_path: Path) -> None:
    late = table(tmp_path / "t")
    first = DeltaTable.open(late.path)
    assert first is not None
    first.commit(txns={APP: 2})
    with pytest.raises(CommitConflictError):
        evolved(late, [SWAPPED], FeaturePolicy(LakeFeatures.MODERN, 1))
    late.refresh()
    assert not features_on(late) and late.txn(APP) == 2


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("alter table {t} add constraint few check (id < 100)", "CHECK constraint few"),
        (
            "alter table {t} set tblproperties ('delta.feature.allowColumnDefaults' = 'supported')",
            "allowColumnDefaults",
        ),
    ],
)
def test_what_another_program_demands_of_writers_stops_the_table_by_its_name(
    spark: Any, tmp_path: Path, statement: str, name: str
) -> None:
    lake = table(tmp_path / "t")
    require_writable(lake, TableId("public", "t"))
    spark.sql(statement.format(t=f"delta.`{lake.path}`"))
    lake.refresh()
    with pytest.raises(TableError, match=name) as refused:
        require_writable(lake, TableId("public", "t"))
    assert "wal2lake snapshot with public.t" in refused.value.remedy and not is_writable(lake)


def test_features_come_on_as_the_policy_says(tmp_path: Path) -> None:
    lake = table(tmp_path / "t")
    size = sum(file.size for file in lake.files)
    auto, widest, modern = LakeFeatures.AUTO, LakeFeatures.WIDEST, LakeFeatures.MODERN
    renamed = SchemaStep(2, tuple(column("c", "a") if name == "a" else column(name) for name in ROW.names[:-1]))
    wider = SchemaStep(2, tuple(column(n, kind=pa.decimal128(9, 2) if n == "n" else None) for n in ROW.names[:-1]))
    narrower = SchemaStep(2, tuple(column(n, kind=pa.decimal128(8, 3) if n == "n" else None) for n in ROW.names[:-1]))
    added = SchemaStep(2, (*(column(name) for name in ROW.names[:-1]), column("new", None, pa.int32())))
    pairs = ((auto, size - 1), (auto, size), (widest, 1), (modern, size))
    told = [
        (policy, most, name, {each.value for each in found.enables})
        for name, step in (("renamed", renamed), ("wider", wider), ("added", added), ("filled", FILLED))
        for policy, most in pairs
        if (found := FeaturePolicy(policy, most).evolution(lake, [step])).enables is not None
    ]
    assert told == [
        (auto, size - 1, "renamed", {"columnMapping"}),
        (modern, size, "renamed", {"columnMapping"}),
        (auto, size - 1, "wider", {"typeWidening"}),
        (modern, size, "wider", {"typeWidening"}),
        *((policy, most, "added", set()) for policy, most in pairs),
    ]
    assert FeaturePolicy(modern, 1).evolution(lake, [narrower]).enables is None
    assert FeaturePolicy(modern).missing(lake) == BOTH
    assert FeaturePolicy(auto).missing(lake) == FeaturePolicy(widest).missing(lake) == frozenset()


def test_readers_of_a_table_are_logged_once_a_feature(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        announce("public.t", BOTH)
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "public.t: Delta table feature columnMapping was enabled",
        "public.t: Delta table feature typeWidening was enabled",
    ]


def test_columns_are_added_and_delta_rs_agrees_on_mapped_names(spark: Any, tmp_path: Path) -> None:
    lake = table(tmp_path / "t")
    renamed = SchemaStep(2, tuple(column("c", "a") if name == "a" else column(name) for name in ROW.names[:-1]))
    evolved(lake, [renamed], FeaturePolicy(LakeFeatures.AUTO, 1))
    lake.commit(schema=pa.schema([*lake.schema, ("deep", pa.list_(POINT))]), txns={"other": 7})
    assert (lake.schema.names[-1], lake.txn("other"), lake.txn(APP)) == ("deep", 7, 2)
    assert {row["deep"] for row in read(lake.path)} == {None}
    spark.sql(f"update delta.`{lake.path}` set deep = array(named_struct('x', 1d, 'y', 2d), null) where id < 3")
    lake.refresh()
    mine = read(lake.path)
    other = sorted(lake_rows(lake.path), key=lambda row: row["__commit_lsn"])
    assert mine == other and mine[0]["deep"] == [{"x": 1.0, "y": 2.0}, None] and mine[3]["c"] == "a3"
    # A field inside of the structs, too, and a column that goes and comes back without its former values.
    point = pa.struct([*POINT, ("z w", pa.int32())])
    lake.commit(schema=pa.schema([f if f.name != "deep" else pa.field("deep", pa.list_(point)) for f in lake.schema]))
    left = [StepColumn(n, n, lake.schema.field(n).type) for n in lake.schema.names if n not in ("c", *OWN)]
    evolved(lake, [SchemaStep(4, tuple(left))], FeaturePolicy(LakeFeatures.AUTO, 1))
    evolved(lake, [SchemaStep(5, (*left, StepColumn("c", None, pa.string())))], FeaturePolicy(LakeFeatures.AUTO, 1))
    late = {**read(lake.path)[0], "id": 7, "deep": [{"x": 1.0, "y": None, "z w": 3}], "c": "again", "__commit_lsn": 8}
    lake.commit([lake.write(pa.Table.from_pylist([late], schema=lake.schema))])
    mine = read(lake.path)
    assert [row["c"] for row in mine] == [None] * 4 + ["again"] and mine[4]["deep"] == late["deep"]
    assert by_spark(spark, lake.path) == without_time(mine)
