"""The parts of the lake that need no session: names, keys, shapes, lineages."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812

from cdc_core.errors import LakeError, TableError
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema
from cdc_core.sink.delta.change_slice import snapshot_filter
from cdc_core.sink.delta.commit_log import changelog_app, merge_app, snapshot_app
from cdc_core.sink.delta.keys import merge_key
from cdc_core.sink.delta.lineage import _roots
from cdc_core.sink.delta.paths import LakePaths
from cdc_core.sink.delta.target import holds, merge_schemas, quoted

ID = TableId("public", "t")
TABLE = TableSchema(
    ID,
    1,
    (Column("id", PgType(20, "int8"), optional=False), Column("code", PgType(25, "text"), optional=False)),
    primary_key=("id",),
)


def test_paths_lie_under_the_prefix() -> None:
    paths = LakePaths("s3a://bucket/lake/", "shop")
    assert paths.lake(ID) == "s3a://bucket/lake/shop/public/t"
    assert paths.changelog(ID) == "s3a://bucket/lake/shop/__changelog/public/t"
    assert paths.quarantine(ID) == "s3a://bucket/lake/shop/__quarantine/public/t"
    assert paths.rounds == "s3a://bucket/lake/shop/__rounds"


def test_each_position_has_an_id_of_its_own() -> None:
    ids = {changelog_app("s", ID), snapshot_app("s", ID), merge_app("s", ID, 1), merge_app("s", ID, 2)}
    assert len(ids) == 4 and merge_app("s", ID, 1) == "wal2lake:s:public.t:1"


def test_the_key_is_what_old_tuples_hold() -> None:
    assert merge_key(TABLE) == ("id",)
    assert merge_key(replace(TABLE, identity=ReplicaIdentity.INDEX, identity_key=("code",))) == ("code",)
    assert merge_key(replace(TABLE, identity=ReplicaIdentity.FULL, identity_key=("id", "code"))) == ("id",)
    assert merge_key(replace(TABLE, primary_key=())) == ()


@pytest.mark.parametrize(
    ("existing", "new", "held"),
    [
        (T.LongType(), T.IntegerType(), True),
        (T.IntegerType(), T.LongType(), False),
        (T.DecimalType(12, 2), T.DecimalType(10, 2), True),
        (T.DecimalType(12, 2), T.DecimalType(12, 3), False),
        (T.DecimalType(12, 4), T.DecimalType(11, 2), False),
        (T.DecimalType(20, 0), T.LongType(), True),
        (T.DecimalType(20, 2), T.LongType(), False),
        (T.DoubleType(), T.FloatType(), True),
        (T.FloatType(), T.DoubleType(), False),
        (T.DoubleType(), T.LongType(), False),
        (T.TimestampNTZType(), T.DateType(), True),
        (T.TimestampType(), T.TimestampNTZType(), False),
        (T.ArrayType(T.LongType()), T.ArrayType(T.ShortType()), True),
        (T.ArrayType(T.ShortType()), T.ArrayType(T.LongType()), False),
        (T.StringType(), T.IntegerType(), False),
    ],
)
def test_what_a_column_can_hold(existing: T.DataType, new: T.DataType, held: bool) -> None:
    assert holds(existing, new) is held


def test_schemas_merge_inside_structs() -> None:
    def shape(*fields: tuple[str, T.DataType]) -> T.StructType:
        return T.StructType([T.StructField(name, kind) for name, kind in fields])

    had = shape(("op", T.StringType()), ("after", shape(("a", T.LongType()), ("b", T.StringType()))))
    came = shape(("op", T.StringType()), ("after", shape(("A", T.IntegerType()), ("c", T.DateType()))))
    both = shape(("a", T.LongType()), ("b", T.StringType()), ("c", T.DateType()))
    assert merge_schemas(had, came, ID) == shape(("op", T.StringType()), ("after", both))
    with pytest.raises(TableError, match=r"after\.a of public\.t is int in the lake and became string"):
        merge_schemas(
            shape(("after", shape(("a", T.IntegerType())))), shape(("after", shape(("a", T.StringType())))), ID
        )


def test_names_are_quoted() -> None:
    assert quoted("a`b c") == "`a``b c`"


def test_a_text_that_is_no_snapshot() -> None:
    with pytest.raises(LakeError, match="pg_snapshot"):
        snapshot_filter("12:now")


def test_roots_of_random_chains() -> None:
    """Key changes in any order lead back to the stay in which their row began."""
    chance = random.Random(7)
    expected, moves = {}, []
    places = iter(chance.sample(range(10_000), 600))
    for _ in range(60):
        inserted = chance.random() < 0.5
        began = next(places) if inserted else None
        root = None
        for _ in range(chance.randrange(1, 9)):
            here = next(places)
            root = root if root is not None else (began if began is not None else here)
            moves.append((here, began))
            expected[here] = root
            began = here
    chance.shuffle(moves)
    lsn = [None if parent is None else parent // 10 for _, parent in moves]
    index = [None if parent is None else parent % 10 for _, parent in moves]
    columns = [pa.array([move // 10 for move, _ in moves]), pa.array([move % 10 for move, _ in moves])]
    found = _roots(pa.table([*columns, pa.array(lsn, pa.int64()), pa.array(index, pa.int64())], ["l", "i", "pl", "pi"]))
    rows = found.to_pylist()
    assert {row["__root_l"] * 10 + row["__root_i"]: row["__to_l"] * 10 + row["__to_i"] for row in rows} == expected
