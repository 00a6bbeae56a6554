"""What events say while somebody changes the tables."""

from __future__ import annotations

import pytest

from tests.support.cluster import Cluster
from tests.support.events import capture, fields, told

pytestmark = pytest.mark.postgres

TABLE = "create table t (id int primary key, v varchar(5), n int)"


def test_columns_that_are_added_renamed_retyped_and_dropped_show_from_the_next_row_on(debian15: Cluster) -> None:
    with capture(debian15, {}, TABLE) as one:
        records = one.run(
            "insert into t values (1, 'a', 1)",
            ["alter table t add w text not null default 'x'", "insert into t values (2, 'b', 2)"],
            [
                "alter table t rename v to vv",
                "alter table t alter n type bigint",
                "insert into t values (3, 'c', 3, 'y')",
            ],
            ["alter table t drop n", "update t set vv = 'd' where id = 1"],
        )
    assert [told(record)[3] for record in records] == [
        {"id": 1, "v": "a", "n": 1},
        {"id": 2, "v": "b", "n": 2, "w": "x"},
        {"id": 3, "vv": "c", "n": 3, "w": "y"},
        {"id": 1, "vv": "d", "w": "x"},
    ]
    assert fields(records[1])["w"] == {"type": "string", "optional": False, "default": "x", "field": "w"}
    assert [fields(record)["n"]["type"] for record in records[:3]] == ["int32", "int32", "int64"]


def test_a_changed_default_and_a_changed_nullability_are_read_when_the_table_is_announced_again(
    debian15: Cluster,
) -> None:
    with capture(debian15, {}, TABLE) as one:
        records = one.run(
            "insert into t values (1, 'a', 1)",
            ["alter table t alter n set default 7", "alter table t alter n set not null"],
            "insert into t (id) values (2)",
        )
    assert fields(records[0])["n"] == {"type": "int32", "optional": True, "field": "n"}
    assert fields(records[1])["n"] == {"type": "int32", "optional": False, "default": 7, "field": "n"}


def test_a_new_primary_key_is_the_key_of_the_next_event(debian15: Cluster) -> None:
    with capture(debian15, {}, TABLE) as one:
        records = one.run(
            "insert into t values (1, 'a', 1)",
            ["alter table t drop constraint t_pkey", "alter table t add primary key (n)"],
            ["insert into t values (2, 'b', 2)", "delete from t where n = 2"],
        )
    assert [told(record)[1] for record in records] == [{"id": 1}, {"n": 2}, {"n": 2}, {"n": 2}]


def test_a_renamed_table_goes_to_the_topic_of_its_new_name_and_a_table_made_again_is_a_new_one(
    debian15: Cluster,
) -> None:
    with capture(debian15, {}, TABLE) as one:
        records = one.run(
            "insert into t values (1, 'a', 1)",
            ["alter table t rename to u", "insert into u values (2, 'b', 2)"],
            ["drop table u", "create table t (id bigint primary key, z uuid)", "insert into t values (3, null)"],
        )
    assert [(record["topic"], told(record)[3]) for record in records] == [
        ("fulfillment.public.t", {"id": 1, "v": "a", "n": 1}),
        ("fulfillment.public.u", {"id": 2, "v": "b", "n": 2}),
        ("fulfillment.public.t", {"id": 3, "z": None}),
    ]


def test_a_table_that_is_created_while_streaming_is_captured(debian15: Cluster) -> None:
    with capture(debian15, {}, TABLE) as one:
        records = one.run("create table fresh (id serial primary key, x text)", "insert into fresh (x) values ('f')")
    assert [told(record) for record in records] == [("c", {"id": 1}, None, {"id": 1, "x": "f"})]


def test_a_label_added_to_an_enum_is_in_the_values_at_once_and_in_the_schema_after_a_restart(debian15: Cluster) -> None:
    with capture(debian15, {}, "create type mood as enum ('a')", "create table m (id int primary key, e mood)") as one:
        one.run("insert into m values (1, 'a')", "alter type mood add value 'b'", "insert into m values (2, 'b')")
        records = one.run("insert into m values (3, 'b')")
    assert [told(record)[3]["e"] for record in records] == ["a", "b", "b"]
    assert [fields(record)["e"]["parameters"]["allowed"] for record in records] == ["a", "a", "a,b"]


PARTED = (
    "create table p (id int primary key, v text) partition by range (id)",
    "create table p1 partition of p for values from (0) to (10)",
    "create table p2 (id int primary key, v text)",
)


@pytest.mark.parametrize(("root", "topics"), [("false", ["p1", "p2", "p1"]), ("true", ["p", "p", "p1"])])
def test_rows_of_partitions_go_to_their_own_topic_or_to_their_roots(
    debian15: Cluster, root: str, topics: list[str]
) -> None:
    with capture(debian15, {"publish.via.partition.root": root}, *PARTED) as one:
        records = one.run(
            "insert into p values (1, 'a')",
            ["alter table p attach partition p2 for values from (10) to (20)", "insert into p values (11, 'b')"],
            ["alter table p detach partition p1", "insert into p1 values (2, 'c')"],
        )
    assert [record["topic"] for record in records] == [f"fulfillment.public.{name}" for name in topics]
