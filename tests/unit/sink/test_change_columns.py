"""Under which names a changelog keeps columns that meet wal2lake's own."""

from __future__ import annotations

import pyarrow as pa

from cdc_core.sink.delta.change_columns import stored, stored_schema, viewed
from tests.support.spark import TEXTS, change_schema, row_type


def test_a_source_column_named_like_the_changelogs_own_is_kept_beside_it() -> None:
    image = pa.struct([("id", pa.int32()), ("__rescued", pa.string()), ("__rescued", TEXTS)])
    texts = pa.array([[("id", "infinity")]], TEXTS)
    after = pa.StructArray.from_arrays([pa.array([1], pa.int32()), pa.array(["mine"]), texts], fields=list(image))
    schema = change_schema(image)
    rows = pa.table([after if each.name == "after" else pa.nulls(1, each.type) for each in schema], schema=schema)
    changelog = stored_schema(change_schema(row_type(id=pa.int32())), 1, None)
    kept = stored_schema(schema, 2, changelog)
    assert kept.field("after").type.names == ["id", "__rescued@2", "__rescued"]
    found = viewed(stored(rows, 2, kept), 2, ["id", "__rescued"]).column("after").combine_chunks()
    assert [found.field(place).to_pylist() for place in range(3)] == [[1], ["mine"], [[("id", "infinity")]]]
