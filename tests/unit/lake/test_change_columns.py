"""Under which names a changelog keeps columns that meet wal2lake's own."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.lake.delta.conform import conform
from cdc_core.lake.schema.change_columns import stored, stored_schema, viewed
from cdc_core.lake.schema.lake_schema import merge_schemas
from cdc_core.schema.table import TableId
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


NAMES = ["x", "x@1", "x@2", "x@1@2", "@1", "x@", "x@02", "__rescued", "a b", "a.b", "`q`", 'say "k=v", é']


@given(
    st.lists(
        st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["int", "text"]), min_size=1, max_size=6),
        min_size=1,
        max_size=5,
    )
)
def test_every_column_of_every_schema_version_is_read_back_from_the_changelog(
    schema_versions: list[dict[str, str]],
) -> None:
    """Each schema version is written twice: what it stored first may not change where it stores the next rows."""
    changelog: pa.Schema | None = None
    written: list[pa.Table] = []
    order = [*range(1, len(schema_versions) + 1), *range(1, len(schema_versions) + 1)]
    for number in sorted(order):
        rows = changes(schema_versions[number - 1], number)
        wanted = stored_schema(rows.schema, number, changelog)
        changelog = wanted if changelog is None else merge_schemas(changelog, wanted, TableId("s", "t"))
        written.append(stored(rows, number, changelog))
        for each, schema_version in zip(written, sorted(order), strict=False):
            columns = list(schema_versions[schema_version - 1])
            found = viewed(conform(each, changelog), schema_version, columns).column("after").combine_chunks()
            expected = changes(schema_versions[schema_version - 1], schema_version).column("after").combine_chunks()
            kept = {name: found.field(place).to_pylist() for place, name in enumerate(columns)}
            assert kept == {name: expected.field(place).to_pylist() for place, name in enumerate(columns)}


def changes(columns: dict[str, str], schema_version: int) -> pa.Table:
    """One change row whose every value names its column and schema version."""
    kinds = {"int": pa.int32(), "text": pa.string()}
    values = [
        schema_version * 100 + NAMES.index(n) if kind == "int" else f"{n} of {schema_version}"
        for n, kind in columns.items()
    ]
    fields = [pa.field(name, kinds[kind]) for name, kind in columns.items()]
    image = pa.struct([*fields, pa.field("__rescued", TEXTS)])
    arrays = [pa.array([value], each.type) for value, each in zip(values, fields, strict=True)]
    after = pa.StructArray.from_arrays([*arrays, pa.nulls(1, TEXTS)], fields=list(image))
    schema = change_schema(image)
    return pa.table([after if each.name == "after" else pa.nulls(1, each.type) for each in schema], schema=schema)
