"""Keys, identities, filters and masks on a live server."""

from __future__ import annotations

import hashlib

import pytest

from tests.support.cluster import Cluster
from tests.support.event_compare import Record
from tests.support.events import capture, told

pytestmark = pytest.mark.postgres


def short(records: list[Record]) -> list[tuple[object, ...]]:
    return [told(record) for record in records]


def test_a_changed_key_is_a_delete_a_tombstone_and_a_create_which_name_each_other(debian15: Cluster) -> None:
    with capture(debian15, {}, "create table t (id int primary key, v text not null)") as one:
        records = one.run(["insert into t values (1, 'a')", "update t set id = 2"])
    assert short(records)[1:] == [
        ("d", {"id": 1}, {"id": 1, "v": ""}, None),
        ("tombstone", {"id": 1}),
        ("c", {"id": 2}, None, {"id": 2, "v": "a"}),
    ]
    links = [(r["headers"][0]["key"], r["headers"][0]["value"]["payload"]) for r in records[1:]]
    assert links == [("__debezium.newkey", {"id": 2})] * 2 + [("__debezium.oldkey", {"id": 1})]


def test_without_tombstones_and_context_headers_only_the_changes_are_left(debian15: Cluster) -> None:
    quiet = {"tombstones.on.delete": "false", "extended.headers.enabled": "false"}
    with capture(debian15, quiet, "create table t (id int primary key)") as one:
        records = one.run(["insert into t values (1)", "delete from t"])
    assert [told(record)[0] for record in records] == ["c", "d"]
    assert all(record["headers"] == [] for record in records)


def test_the_old_row_is_what_the_replica_identity_sends(debian15: Cluster) -> None:
    tables = (
        "create table by_key (id int primary key, v text)",
        "create table full_row (id int primary key, v text)",
        "alter table full_row replica identity full",
        "create table by_index (id int primary key, u int not null, v text)",
        "create unique index u on by_index (u)",
        "alter table by_index replica identity using index u",
    )
    with capture(debian15, {}, *tables) as one:
        for table, row in (("by_key", "1, 'a'"), ("full_row", "1, 'a'"), ("by_index", "1, 5, 'a'")):
            one.sql(f"insert into {table} values ({row})")
        records = one.run([f"delete from {table}" for table in ("by_key", "full_row", "by_index")])
    assert [told(record)[2] for record in records if told(record)[0] == "d"] == [
        {"id": 1, "v": None},
        {"id": 1, "v": "a"},
        {"id": 0, "u": 5, "v": None},
    ]


def test_replica_identities_are_set_as_configured(debian15: Cluster) -> None:
    rules = {"replica.identity.autoset.values": r"public\.t:FULL"}
    with capture(debian15, rules, "create table t (id int primary key, v text)") as one:
        records = one.run(["insert into t values (1, 'a')", "update t set v = 'b'"])
    assert told(records[1]) == ("u", {"id": 1}, {"id": 1, "v": "a"}, {"id": 1, "v": "b"})


def test_a_table_without_primary_key_has_the_key_of_its_first_unique_index_even_of_a_partial_one(
    debian15: Cluster,
) -> None:
    tables = (
        "create table t (a int, b int not null, c int)",
        "create unique index x1 on t ((a + 1))",
        "create unique index x2 on t (b) include (c) where a > 0",
        "create unique index x3 on t (a)",
        "create table bare (a int)",
    )
    with capture(debian15, {}, *tables) as one:
        records = one.run(["insert into t values (1, 2, 3)", "insert into bare values (1)"])
    assert [record["key"] and record["key"]["payload"] for record in records] == [{"b": 2, "c": 3}, None]


def test_message_key_columns_take_several_rules_of_regexes_whatever_the_case(debian15: Cluster) -> None:
    rules = {"message.key.columns": r"public\.t:B,a;(.*)\.OTHER:v"}
    tables = ("create table t (id int primary key, a int, b int)", "create table other (id int primary key, v text)")
    with capture(debian15, rules, *tables) as one:
        records = one.run(["insert into t values (1, 2, 3)", "insert into other values (1, 'x')"])
    assert [told(record)[1] for record in records] == [{"b": 3, "a": 2}, {"v": "x"}]


def test_lists_match_whole_names_whatever_the_case_and_a_left_out_key_column_stays_in_the_key(
    debian15: Cluster,
) -> None:
    lists = {"table.include.list": r"PUBLIC\.orders", "column.exclude.list": r"public\.orders\.(ID|secret)"}
    tables = (
        "create table orders (id int primary key, v text, secret text)",
        "create table orders2 (id int primary key)",
    )
    with capture(debian15, lists, *tables) as one:
        records = one.run(["insert into orders values (1, 'a', 's')", "insert into orders2 values (1)"])
    assert short(records) == [("c", {"id": 1}, None, {"v": "a"})]
    assert records[0]["key"]["schema"]["fields"][0]["optional"] is True


def test_masks_hashes_and_cuts_act_on_values_and_never_on_keys(debian15: Cluster) -> None:
    mappers = {
        "column.mask.with.4.chars": r".*\.m",
        "column.mask.hash.v2.SHA-256.with.salt.s": r".*\.h",
        "column.truncate.to.2.chars": r".*\.(c|n|j)",
        "decimal.handling.mode": "string",
    }
    table = "create table t (m text, h varchar(9), c text, n numeric, j jsonb, primary key (m))"
    with capture(debian15, mappers, table) as one:
        records = one.run("""insert into t values ('secret', 'hidden', 'long', 123.45, '{"a": 1}')""")
    digest = hashlib.sha256(b"shidden").hexdigest()[:9]
    row = {"m": "****", "h": digest, "c": "lo", "n": "12", "j": '{"'}
    assert short(records) == [("c", {"m": "secret"}, None, row)]


@pytest.mark.parametrize(("skipped", "left"), [("none", "cudt"), ("c,u", "dt"), ("d", "cut"), ("t", "cud")])
def test_skipped_operations_have_no_events(debian15: Cluster, skipped: str, left: str) -> None:
    with capture(debian15, {"skipped.operations": skipped}, "create table t (id int primary key, v text)") as one:
        one_of_each = ["insert into t values (1, 'a')", "update t set v = 'b'", "delete from t", "truncate t"]
        records = one.run(one_of_each)
    assert [told(record)[0] for record in records if record["value"]] == list(left)


def test_an_update_without_change_of_included_columns_is_left_out_where_the_old_row_is_known(
    debian15: Cluster,
) -> None:
    rules = {"skip.messages.without.change": "true", "column.exclude.list": r".*\.noise"}
    tables = ("create table t (id int primary key, v text, noise int)", "alter table t replica identity full")
    with capture(debian15, rules, *tables) as one:
        one.sql("insert into t values (1, 'a', 1)")
        records = one.run(["update t set noise = 2", "update t set v = 'b'"])
    assert [told(record)[3] for record in records] == [{"id": 1, "v": "b"}]


def test_a_publications_row_filter_and_column_list_limit_the_stream(debian15: Cluster) -> None:
    with capture(
        debian15,
        {"publication.autocreate.mode": "disabled"},
        "create table t (id int primary key, v text, w text)",
        'create publication "@DB@" for table t (id, v) where (id > 10)',
    ) as one:
        records = one.run(["insert into t values (1, 'a', 'b')", "insert into t values (20, 'c', 'd')"])
    assert [told(record)[3] for record in records] == [{"id": 20, "v": "c"}]
