"""The parts of the lake that need no table: paths, ids of positions, schema versions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cdc_core.errors import TableError
from cdc_core.lake.delta.folder import delta_uri
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import (
    changelog_app,
    expired_app,
    merge_app,
    open_app,
    open_index_app,
    reads_app,
    snapshot_app,
)
from cdc_core.lake.schema.casts import holds
from cdc_core.lake.schema.lake_schema import check_names, lake_properties, merge_schemas
from cdc_core.schema.table import TableId

ID = TableId("public", "t")


def test_paths_lie_under_the_prefix() -> None:
    paths = LakePaths("s3a://bucket/lake/", "shop")
    assert paths.lake(ID) == "s3a://bucket/lake/shop/public/t"
    assert paths.changelog(ID) == "s3a://bucket/lake/shop/__changelog/public/t"
    assert paths.quarantine(ID) == "s3a://bucket/lake/shop/__quarantine/public/t"
    assert paths.rounds == "s3a://bucket/lake/shop/__rounds"


@pytest.mark.parametrize(
    ("path", "uri"),
    [("/lake/t", "/lake/t"), ("file:///lake/t", "/lake/t"), ("file:/lake/t", "/lake/t"), ("s3a://b/t", "s3://b/t")],
)
def test_paths_as_delta_rs_takes_them(path: str, uri: str) -> None:
    assert delta_uri(path) == uri


def test_each_position_has_an_id_of_its_own() -> None:
    apps = (changelog_app, open_app, open_index_app, reads_app, expired_app, snapshot_app)
    ids = {*[app("s", ID) for app in apps], merge_app("s", ID, 1), merge_app("s", ID, 2)}
    assert len(ids) == 8 and merge_app("s", ID, 1) == "wal2lake:s:public.t:1"


@pytest.mark.parametrize(
    ("existing", "new", "held"),
    [
        (pa.int64(), pa.int32(), True),
        (pa.int32(), pa.int64(), False),
        (pa.decimal128(12, 2), pa.decimal128(10, 2), True),
        (pa.decimal128(12, 2), pa.decimal128(12, 3), False),
        (pa.decimal128(12, 4), pa.decimal128(11, 2), False),
        (pa.decimal128(20, 0), pa.int64(), True),
        (pa.decimal128(20, 2), pa.int64(), False),
        (pa.float64(), pa.float32(), True),
        (pa.float64(), pa.int32(), True),
        (pa.float32(), pa.float64(), False),
        (pa.float64(), pa.int64(), False),
        (pa.timestamp("us"), pa.date32(), True),
        (pa.timestamp("us", tz="UTC"), pa.timestamp("us"), False),
        (pa.timestamp("us", tz="UTC"), pa.date32(), False),
        (pa.list_(pa.int64()), pa.list_(pa.int16()), True),
        (pa.list_(pa.int16()), pa.list_(pa.int64()), False),
        (pa.string(), pa.int32(), False),
    ],
)
def test_what_a_column_can_hold(existing: pa.DataType, new: pa.DataType, held: bool) -> None:
    assert holds(existing, new) is held


def test_schemas_merge_inside_structs() -> None:
    had = pa.schema([("op", pa.string()), ("after", pa.struct([("a", pa.int64()), ("b", pa.string())]))])
    came = pa.schema([("op", pa.string()), ("after", pa.struct([("A", pa.int32()), ("c", pa.date32())]))])
    both = pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.date32())])
    assert merge_schemas(had, came, ID).equals(pa.schema([("op", pa.string()), ("after", both)]))
    with pytest.raises(TableError, match=r"after\.a of public\.t is int32 in the lake and changed to string"):
        merge_schemas(
            pa.schema([("after", pa.struct([("a", pa.int32())]))]),
            pa.schema([("after", pa.struct([("a", pa.string())]))]),
            ID,
        )


def test_names_that_differ_by_case_alone_are_refused_at_any_depth() -> None:
    check_names(pa.schema([("a", pa.int32()), ("after", pa.struct([("a", pa.int32())]))]), ID)
    with pytest.raises(TableError, match=r"Column after\.A of public\.t"):
        check_names(pa.schema([("after", pa.struct([("a", pa.int32()), ("A", pa.int32())]))]), ID)


def test_history_is_a_property_of_the_table() -> None:
    assert lake_properties(0).keys() == {"delta.checkpointInterval"}
    assert lake_properties(15)["delta.logRetentionDuration"] == "interval 15 minutes"
    assert lake_properties(15)["delta.deletedFileRetentionDuration"] == "interval 30 minutes"
    assert lake_properties(90)["delta.deletedFileRetentionDuration"] == "interval 90 minutes"
