"""The same changes through pgoutput, decoderbufs and wal2json: the same rows, as far as each plug-in sends them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.plugin_streams import UNCHANGED, Change, PluginStream, streams

pytestmark = pytest.mark.postgres

TABLES = r"""
create extension if not exists hstore;
create schema shop;
create type shop.mood as enum ('fine', 'so so');
create domain shop.amount as numeric(10, 2);
create domain shop.at as timestamptz;
create table shop.types (
    id int primary key, b boolean, i2 smallint, i8 bigint, o oid, f4 real, f8 double precision, n numeric, n2
    numeric(12, 3), m money, t text, v varchar(20), c char(5), c1 "char", by bytea, d date, ti time, ti3
    time(3), tz timetz, ts timestamp, ts3 timestamp(3), tstz timestamptz, iv interval, u uuid, j json, jb
    jsonb, x xml, bi bit(3), vb varbit, p point, na name, inet inet, list int[], texts text[], h hstore, mood
    shop.mood, amount shop.amount, at shop.at, r int4range, box box, doubled int generated always as (id * 2)
    stored
);
create table shop.big (id int primary key, small int, big text);
alter table shop.big alter column big set storage external;
create table shop.whole (id int primary key, small int, big text, list text[]);
alter table shop.whole replica identity full;
alter table shop.whole alter column big set storage external;
create table shop.keyless (a int, b text);
create table shop.keyless_full (a int, b text);
alter table shop.keyless_full replica identity full;
create table shop.two (a int, b text, v text, primary key (b, a));
create table shop.by_index (a int not null, b text, v text);
create unique index by_index_key on shop.by_index (a);
alter table shop.by_index replica identity using index by_index_key;
create table shop."Odd ""näme" (" c.1" text primary key, "Ä""x" int, "sel\ect" text);
create table shop.parts (id int, v text, primary key (id)) partition by range (id);
create table shop.parts_1 partition of shop.parts for values from (0) to (100);
create table shop.parts_2 partition of shop.parts for values from (100) to (200);
"""
VALUES = r"""
insert into shop.types (id) values (0);
insert into shop.types values (1, true, -5, 9223372036854775807, 4294967295, 1.5, 0.1, 1.10, 12345.678, -12.34,
    E'tab\t"quoted" \\ é 😀 \x01 end', 'v', 'c', 'x', '\x00ff5c22', '2026-11-23', '12:34:56.789', '12:34:56.789',
    '12:34:56.789+02', '2026-11-23 01:02:03.000004', '2026-11-23 01:02:03.004', '2026-11-23 01:02:03.000004+05:30',
    '1 year 2 mons 3 days 04:05:06.78', '123e4567-e89b-12d3-a456-426614174000', '{"a": "b\\n", "c": [1, null]}',
    '{"a": "\"b\"", "n": 1.10}', '<a>"x"</a>', '101', '10101', '(1.5,-2.25)', 'na', '10.0.0.0/8', '{1,null,3}',
    E'{"a\\"b",null,"c\\\\d"}', 'a=>1,"b c"=>null', 'so so', 12.5, '2026-01-01 00:00:00+00', '[1,10)', '(1,2),(3,4)');
insert into shop.types (id, f4, f8, n, d, ts, tstz, ti, tz, m) values
    (2, '1e30', '1e-300', 1e40, '0044-03-15 BC', '0044-03-15 01:02:03.5 BC', '0044-03-15 01:02:03 BC', '24:00',
        '00:00+14', 0),
    (3, 3.4028235e38, 1.7976931348623157e308, -0.000000000000000000001, 'infinity', 'infinity', 'infinity', '00:00',
        '23:59:59.999999-12', -0.01),
    (4, -1e-30, 0.30000000000000004, 0, '-infinity', '-infinity', '-infinity', '23:59:59.999999', '24:00+00',
        92233720368547758.07),
    (5, 16777216, 123456789.123, 100, '5874897-12-31', '12026-11-23 01:02:03', '12026-11-23 01:02:03.25', null, null,
        null),
    (6, '-0', '-0', 1.000, '0001-01-01', '0001-12-31 00:00:00', '9999-12-31 23:59:59.999999', null, null, null);
"""
CHANGES = r"""
insert into shop.big select n, n, repeat('long ' || n, 2000) from generate_series(1, 3) n;
insert into shop.whole select n, n, repeat('long ' || n, 2000), array['a', null, 'é"'] from generate_series(1, 3) n;
update shop.big set small = small + 1;
update shop.big set big = 'short' where id = 2;
update shop.big set id = 12 where id = 1;
update shop.whole set small = small + 1;
update shop.whole set id = 12 where id = 1;
delete from shop.whole where id = 2;
insert into shop.two values (1, 'x', 'y'), (2, E'qu"o\\te', null);
update shop.two set v = 'z';
update shop.two set b = 'moved' where a = 1;
delete from shop.two;
insert into shop.by_index values (1, 'x', 'y'), (2, null, null);
update shop.by_index set v = 'w';
update shop.by_index set a = 3 where a = 1;
delete from shop.by_index where a = 2;
insert into shop.keyless values (1, 'x'), (1, 'x'), (null, null);
insert into shop.keyless_full values (1, 'x'), (1, 'x'), (null, null);
update shop.keyless_full set b = 'y' where a = 1;
delete from shop.keyless_full where a is null;
insert into shop."Odd ""näme" values ('ä', 1, 'b\'), ('', 2, null);
update shop."Odd ""näme" set "Ä""x" = 3;
insert into shop.parts values (1, 'a'), (150, 'b');
update shop.parts set id = 120 where id = 1;
begin; insert into shop.keyless select n, 'n' || n from generate_series(1, 3000) n; savepoint s;
    insert into shop.keyless values (0, 'gone'); rollback to s; update shop.big set small = 0 where id = 2; commit;
alter table shop.two add column extra text;
insert into shop.two (a, b, extra) values (7, 'x', 'more');
alter table shop.two drop column v;
update shop.two set extra = 'changed' where a = 7;
insert into shop.two (a, b, extra) values (8, 'x', 'more');
alter table shop.two alter column extra type varchar(30);
alter table shop.two rename column extra to other;
update shop.two set other = 'again' where a = 7;
delete from shop.two where a = 8;
"""


@pytest.fixture(scope="module")
def streamed(debian15: Cluster) -> Iterator[dict[str, PluginStream]]:
    """Every plug-in's stream, read to the end of each statement, so that none is behind the catalogue."""
    database = debian15.database("plugins")
    debian15.psql(database, "-qc", TABLES)
    with streams(debian15, database) as opened:
        found: dict[str, list[Change]] = {name: [] for name in opened}
        # Read before each DDL, so that no plug-in's rows are behind the catalogue.
        for part in re.split(r"^(?=alter)", VALUES + CHANGES, flags=re.MULTILINE):
            debian15.psql(database, "-qc", part)
            for name, stream in opened.items():
                found[name] += stream.read(500)
        for name, stream in opened.items():
            stream.changes = found[name]
        yield opened
    debian15.drop_database(database)


@pytest.mark.parametrize("name", ["decoderbufs", "wal2json-2", "wal2json-1"])
def test_rows_are_those_of_pgoutput(streamed: dict[str, PluginStream], name: str) -> None:
    expected, found = streamed["pgoutput"].changes, streamed[name].changes
    assert len(found) == len(expected)
    left_out = {"doubled", "tz"} if name == "decoderbufs" else {"doubled"}  # generated; in UTC
    different = [
        (number, one.table, one.op, *pair)
        for number, (one, other) in enumerate(zip(expected, found, strict=True))
        for pair in differing(one, other)
        if pair[1] not in left_out
    ]
    assert not different, "\n".join(map(str, different[:20]))


def differing(one: Change, other: Change) -> Iterator[tuple[str, str, object, object]]:
    """Side, column and both values wherever two changes differ."""
    if (one.table, one.op, one.new is None, one.old is None) != (
        other.table, other.op, other.new is None, other.old is None,
    ):  # fmt: skip
        yield "", "", one, other
        return
    for side in ("new", "old"):
        mine, theirs = dict(getattr(one, side) or ()), dict(getattr(other, side) or ())
        for column in {**mine, **theirs}:
            if mine.get(column, "-") != theirs.get(column, "-"):
                yield side, column, mine.get(column, "-"), theirs.get(column, "-")


def test_generated_columns_are_sent(streamed: dict[str, PluginStream]) -> None:
    for name, stream in streamed.items():
        first = next(change for change in stream.changes if change.table == "shop.types")
        assert first.new is not None
        assert ("doubled" in dict(first.new)) == (name != "pgoutput")


def test_an_unchanged_large_value_is_marked(streamed: dict[str, PluginStream]) -> None:
    for stream in streamed.values():
        changed = [c for c in stream.changes if c.table == "shop.big" and c.op == "U" and c.new is not None]
        assert [dict(c.new or ())["big"] == UNCHANGED for c in changed[:4]] == [True, True, True, False]


@pytest.mark.parametrize("name", ["decoderbufs", "wal2json-2", "wal2json-1"])
def test_a_change_of_an_unknown_row_is_not_lost(debian15: Cluster, name: str) -> None:
    database = debian15.database("unknown")
    debian15.psql(database, "-qc", "create table bare (a int, b text); create table other (id int primary key)")
    with streams(debian15, database, name, published=False) as opened:
        debian15.psql(database, "-qc", "insert into bare values (1, 'x'), (2, 'y')")
        change = (
            "begin; insert into other values (1); update bare set b = 'z' where a = 1; insert into other values (2);"
        )
        debian15.psql(database, "-qc", f"{change}; delete from bare where a = 2; insert into other values (3); commit")
        found = [(c.table[7:], c.op, c.new is None, c.old is None) for c in opened[name].read()]
    debian15.drop_database(database)
    of_bare, of_other = ("bare", "D", True, True), ("other", "I", False, True)
    assert found == [("bare", "I", False, True)] * 2 + [of_other, of_bare, of_other, of_bare, of_other]


def test_truncates_and_messages_are_those_of_pgoutput(debian15: Cluster) -> None:
    database = debian15.database("rare")
    debian15.psql(database, "-qc", "create table a (id int primary key); create table b (id int primary key)")
    with streams(debian15, database) as opened:
        for sql in (
            "insert into a values (1)",
            "truncate a, b",
            "select pg_logical_emit_message(true, 'pré', 'in \"side\"')",
            "select pg_logical_emit_message(false, 'p', E'out\\nside')",
            "insert into b values (2)",
        ):
            debian15.psql(database, "-qc", sql)
        for stream in opened.values():
            stream.read()
        found = {name: (stream.truncated, stream.messages) for name, stream in opened.items()}
    debian15.drop_database(database)
    cut, told = ["public.a", "public.b"], [("pré", b'in "side"'), ("p", b"out\nside")]
    assert found == {
        "pgoutput": (cut, told),
        "decoderbufs": ([], []),
        "wal2json-2": (cut, told),
        "wal2json-1": ([], told),
    }


@pytest.mark.parametrize("name", ["decoderbufs", "wal2json-2", "wal2json-1"])
def test_segments_may_end_anywhere(debian15: Cluster, name: str) -> None:
    database = debian15.database("pieces")
    debian15.psql(database, "-qc", "create table a (id int primary key, v text)")
    changes = (
        "insert into a select g, 'v' || g from generate_series(1, 7) g",
        "update a set v = v || '!' where id < 4",
        "delete from a where id = 5",
    )
    read: list[list[Change]] = []
    for most_rows in (1, 2, 3, 1000):
        with streams(debian15, database, name, published=False) as opened:
            debian15.psql(database, "-qc", "truncate a")
            for sql in changes:
                debian15.psql(database, "-qc", sql)
            opened[name].truncated.clear()
            read.append(opened[name].read(most_rows))
    debian15.drop_database(database)
    assert [len(each) for each in read] == [11] * 4
    assert all(each == read[0] for each in read)
