"""The marks of tables on live servers: what changes them, what does not, and the facts that columns carry."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import psycopg
import pytest

from cdc_core.postgres.catalog import tables
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import Connection, connect
from cdc_core.schema.changes import ChangeKind
from cdc_core.schema.fingerprint import Fingerprint
from cdc_core.schema.relation import Relation, ReplicaIdentity
from cdc_core.schema.table import TableSchema
from cdc_core.schema.unseen import unseen_changes
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for
from tests.support.waits import patient

pytestmark = pytest.mark.postgres

WIDE = "create table t (id int primary key, n int not null default 5, v text default 'x')"
NARROW = "create table t (id int primary key, n int not null default 5)"


@pytest.fixture(scope="module")
def database(each_pg: Cluster) -> Iterator[str]:
    name = each_pg.database("marks")
    yield name
    each_pg.drop_database(name)


@pytest.fixture
def session(each_pg: Cluster, database: str) -> Iterator[Connection]:
    with connect(options_for(each_pg, database)) as opened:
        opened.execute("set search_path = public")
        for text in ("drop publication if exists p", "drop table if exists t, t2, parted cascade"):
            opened.execute(text.encode())
        yield opened


def run(session: Connection, *texts: str) -> None:
    for text in texts:
        session.execute(text.encode())


def table_of(session: Connection, name: str = "t", publication: str = "") -> TableSchema:
    [found] = Catalog(session, publication).tables(lambda table: table.table == name)
    return found


def marks_of(session: Connection) -> Fingerprint:
    found = table_of(session, publication="p").fingerprint
    assert found is not None
    return found


def around(session: Connection, create: str, *texts: str) -> tuple[Fingerprint, Fingerprint]:
    """The marks before and after the statements, of a table with rows and a missing value in column ``m``."""
    run(session, create, "insert into t select generate_series(1, 50)", "alter table t add m int default 7")
    run(session, "create publication p for table t")
    before = marks_of(session)
    run(session, *texts)
    return before, marks_of(session)


@pytest.mark.parametrize("texts", [["vacuum full t"], ["cluster t using t_pkey"], ["truncate t"]], ids=lambda t: t[0])
def test_rewriting_unchanged_rows_keeps_the_toast_table(session: Connection, texts: list[str]) -> None:
    before, after = around(session, WIDE, *texts)
    assert after.storage[0].filenode != before.storage[0].filenode
    assert after.storage[0].toast == before.storage[0].toast != 0
    cleared = before.columns[3] if texts == ["truncate t"] else None
    assert [m.row for m in after.columns[:3]] == [m.row for m in before.columns[:3]]
    assert (after.columns[3] == cleared) is (cleared is not None), "all but TRUNCATE clear the missing value"
    assert after.columns[3].default == before.columns[3].default


@pytest.mark.parametrize(
    "text",
    [
        "alter table t alter n type bigint",
        "alter table t alter n type int using n + 1",
        "alter table t alter v type text using upper(v)",
        "alter table t add c float8 default random()",
        "alter table t add c int generated always as (n * 2) stored",
        "alter table t add c int generated always as identity",
    ],
)
def test_a_rewrite_by_alter_table_makes_a_new_toast_table(session: Connection, text: str) -> None:
    before, after = around(session, WIDE, text)
    assert after.storage[0].filenode != before.storage[0].filenode
    assert after.storage[0].toast != before.storage[0].toast
    touched = {a.attnum for a, b in zip(after.columns, before.columns, strict=False) if a.row != b.row}
    named = {2} if " n " in text and "add" not in text else {3} if " v " in text else set()
    # The servers of November 2026 give the columns behind the altered one a new row, too.
    behind = {3} if named == {2} else set()
    assert touched - behind == named | {4}, "the columns that were named, and the one whose missing value was cleared"
    assert after.columns[2].default == before.columns[2].default or 3 in named
    assert not after.columns[3].has_missing and after.columns[3].default == before.columns[3].default


@pytest.mark.parametrize(
    ("lists", "text", "names"),
    [
        ([], "alter table t alter n type bigint", "n"),
        ([], "alter table t alter n type int using n + 1", "n"),
        ([], "alter table t alter n type bigint, alter w type text", "n, w"),
        ([], "alter table t alter v type text using upper(v)", "v"),
        (["alter publication p set table t (id, w)"], "alter table t alter n type bigint", ""),
    ],
    ids=["type", "values", "two", "last", "not published"],
)
def test_a_rewrite_names_the_columns_that_were_altered_whichever_rows_of_the_catalogue_it_touched(
    session: Connection, lists: list[str], text: str, names: str
) -> None:
    run(session, WIDE, "alter table t add w varchar(9)", "insert into t select generate_series(1, 50)")
    run(session, "create publication p for table t", *lists)
    before = table_of(session, publication="p")
    run(session, text)
    found = unseen_changes(before, table_of(session, publication="p"))
    assert [(one.change.kind, one.change.column) for one in found] == [(ChangeKind.REWRITTEN, names)][: bool(names)]
    if lists:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="publication"):
            run(session, "alter table t alter w type varchar(9) using upper(w)")


def test_behind_an_altered_column_that_is_not_published_only_a_default_proves_a_column_unaltered(
    session: Connection,
) -> None:
    """Servers since November 2026 do not tell whether column w was altered in the same statement; v has a default."""
    run(
        session,
        "create table t (id int primary key, g int generated always as (id * 2) stored, v text default 'x', w text)",
        "insert into t select generate_series(1, 50)",
        "create publication p for table t",
    )
    versions = [table_of(session, publication="p")]
    for text in ("alter g type bigint", "alter g type int, alter w type text using upper(w)"):
        run(session, f"alter table t {text}")
        versions.append(table_of(session, publication="p"))
    rows = [[mark.row for mark in version.fingerprint.columns] for version in versions if version.fingerprint]
    tells_all = rows[0][3] == rows[1][3]
    found = [[one.change.column for one in unseen_changes(*versions[at : at + 2])] for at in (0, 1)]
    assert found == [[] if tells_all else ["w"], ["w"]]


def test_a_type_change_creates_the_columns_default_again(session: Connection) -> None:
    before, after = around(session, WIDE, "alter table t alter m type int using m + 1")
    assert after.columns[3].default not in (0, before.columns[3].default)


@pytest.mark.parametrize(
    "text",
    [
        "alter table t alter n set statistics 50",
        "alter table t alter v set storage external",
        "alter table t alter n drop not null",
        "alter table t alter n type oid",
        "alter table t rename n to k",
    ],
)
def test_what_rewrites_nothing_leaves_the_heap(session: Connection, text: str) -> None:
    before, after = around(session, WIDE, text)
    assert after.storage == before.storage
    assert after.columns != before.columns


def test_a_table_without_toast_shows_a_rewrite_in_its_columns_alone(session: Connection) -> None:
    before, after = around(session, NARROW, "alter table t alter n type int using n + 1")
    assert (before.storage[0].toast, after.storage[0].toast) == (0, 0)
    assert after.storage[0].filenode != before.storage[0].filenode
    assert after.columns[1].row != before.columns[1].row


@pytest.mark.parametrize(
    "texts",
    [
        ["insert into t values (90)", "update t set n = 6", "delete from t where id = 90"],
        ["vacuum t"],
        ["analyze t"],
        ["reindex table t"],
        ["alter publication p add table t2", "alter publication p drop table t2"],
        ["grant select on t to public"],
    ],
    ids=lambda texts: texts[0],
)
def test_what_is_no_schema_change_leaves_all_marks(session: Connection, texts: list[str]) -> None:
    run(session, "create table t2 (id int primary key)")
    before, after = around(session, WIDE, *texts)
    assert after == before


@pytest.mark.parametrize(
    "texts",
    [
        [
            "alter publication p set (publish = 'insert')",
            "alter publication p set (publish = 'insert, update, delete')",
        ],
        ["alter publication p drop table t", "alter publication p add table t"],
        ["alter publication p set table t (id, n)"],
        ["alter publication p set table t where (id > 5)"],
    ],
    ids=lambda texts: texts[0],
)
def test_what_the_publication_left_out_shows(session: Connection, texts: list[str]) -> None:
    before, after = around(session, WIDE, *texts)
    assert dataclasses.replace(after, publication=before.publication) == before
    assert after.publication != before.publication
    if "(id, n)" in texts[0]:
        assert after.publication is not None and after.publication.columns == {1, 2}


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("int[]", "'{1,2}'", "{1,2}"),
        ("box", "'(1,1),(0,0)'", "(1,1),(0,0)"),
        ("text", "E'a\"b,{c'", 'a"b,{c'),
        ("text", "''", ""),
        ("jsonb", """'{"a": [1, 2]}'""", '{"a": [1, 2]}'),
        ("bytea", r"'\x0102'", "\\x0102"),
        ("text[]", "array['a,b', null, '{}']", '{"a,b",NULL,"{}"}'),
        ("bool", "true", "t"),
        ("timestamptz", "'2020-01-01 00:00+02'", "2019-12-31 22:00:00+00"),
        ("numeric", "1.50", "1.50"),
        ("int", "null", None),
    ],
)
def test_a_missing_value_is_the_text_that_a_snapshot_would_read(
    session: Connection, kind: str, default: str, expected: str | None
) -> None:
    run(session, NARROW, "insert into t values (1)", f"alter table t add m {kind} default {default}")
    column = table_of(session).column("m")
    assert (column.attnum, column.has_missing, column.missing) == (3, expected is not None, expected)
    result = session.execute("select m from t").pgresult
    assert result is not None and result.get_value(0, 0) == (None if expected is None else expected.encode())


def test_attnums_are_never_given_twice_and_generated_columns_say_so(session: Connection) -> None:
    run(session, NARROW, "alter table t drop n, add n int, add g int generated always as (id * 2) stored")
    table = table_of(session)
    assert [(c.name, c.attnum, c.generated) for c in table.columns] == [("id", 1, ""), ("n", 3, ""), ("g", 4, "s")]
    assert table.fingerprint is not None and table.fingerprint.attributes == 4


def test_a_partitioned_table_has_its_leaves_heaps_and_their_common_missing_value(session: Connection) -> None:
    run(
        session,
        "create table parted (id int, v text) partition by range (id)",
        "create table p1 partition of parted for values from (0) to (10)",
        "create table p2 (id int, v text)",
        "insert into p2 values (15, 'x')",
        "alter table parted attach partition p2 for values from (10) to (20)",
        "create publication p for table parted with (publish_via_partition_root)",
        "alter table parted add m int default 7",
    )
    table = table_of(session, "parted", "p")
    assert table.fingerprint is not None and table.fingerprint.is_partitioned
    assert [(heap.is_own, heap.is_empty) for heap in table.fingerprint.storage] == [(True, True), (False, False)]
    assert (table.column("m").has_missing, table.column("m").missing) == (True, "7")
    leaf = table_of(session, "p1", "p").fingerprint
    assert leaf is not None and leaf.publication is not None
    assert [bool(entry.path) for entry in leaf.publication.entries] == [True] and not leaf.publication.is_listed
    run(session, "vacuum full p2")
    assert table_of(session, "parted").column("m").missing is None, "the leaves do not agree any more"


@pytest.mark.parametrize("text", ["alter table t add x int", "truncate p1", "alter table p1 add check (id > 0)"])
def test_a_table_that_is_being_altered_keeps_nobody_waiting(each_pg: Cluster, database: str, text: str) -> None:
    with connect(options_for(each_pg, database), statement_timeout_ms=3000) as session:
        session.execute("set search_path = public")
        run(
            session,
            "drop table if exists t, parted cascade",
            WIDE,
            "create table parted (id int not null, v text default 'x') partition by range (id)",
            "create table p1 (id int not null, v text default 'x')",
            "alter table parted attach partition p1 for values from (0) to (10)",
        )
        with each_pg.connect(database) as other:
            run(other, "begin", text)
            found = Catalog(session).tables(lambda table: table.table in ("t", "parted", "p1"))
            run(other, "rollback")
        assert {table.id.table: table.columns[1].default_expression for table in found} == {
            "t": "5",
            "parted": "'x'::text",
            "p1": "'x'::text",
        }


def test_a_sighting_has_the_announced_and_the_present_table(session: Connection) -> None:
    run(session, WIDE)
    catalog = Catalog(session)
    table = table_of(session)
    relation = Relation(table.oid, "public", "t", ReplicaIdentity.DEFAULT, ())
    run(session, "alter table t set unlogged")
    seen = catalog.resolve_relation(relation)
    assert seen.announced.columns == () and seen.current is not None
    assert [c.attnum for c in seen.current.columns] == [1, 2, 3]
    assert seen.current.fingerprint is not None and seen.current.fingerprint.storage[0].is_unlogged
    run(session, "drop table t")
    assert catalog.resolve_relation(relation).current is None


def test_the_present_table_is_the_one_after_the_commit_that_announced_it(
    each_pg: Cluster,
    database: str,
    session: Connection,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(session, WIDE)
    catalog, table = Catalog(session), table_of(session)
    relation = Relation(table.oid, "public", "t", ReplicaIdentity.DEFAULT, ())

    def present(xid: int) -> list[int]:
        current = catalog.resolve_relation(relation, xid).current
        assert current is not None
        return [column.attnum for column in current.columns]

    # What a server has sent and not made visible yet is, to other sessions, still running.
    with each_pg.connect(database) as other, ThreadPoolExecutor(1) as thread:
        run(other, "begin", "alter table t add later int")
        (row,) = other.execute("select txid_current() % (1::bigint << 32)").fetchall()
        asked = thread.submit(present, row[0])
        assert not wait([asked], timeout=0.2).done
        run(other, "commit")
        assert asked.result(patient(60)) == [1, 2, 3, 4]
        run(other, "begin", "alter table t add latest int")
        (row,) = other.execute("select txid_current() % (1::bigint << 32)").fetchall()
        monkeypatch.setattr(tables, "_SHOWN_SECONDS", 0.1)
        assert present(row[0]) == [1, 2, 3, 4], "it waits for a bounded time"
        assert "is not visible to other sessions after 0.1 s" in caplog.text
        run(other, "rollback")
    assert present((row[0] + 1_000_000) % 2**32) == [1, 2, 3, 4], "an id that the server has not given"


def test_the_marks_of_many_tables_take_one_query_and_omit_dropped_ones(session: Connection) -> None:
    run(session, WIDE, "create table t2 (id int)")
    one, two = table_of(session), table_of(session, "t2")
    catalog = Catalog(session, "p")
    run(session, "drop table t2")
    found = catalog.fingerprints([one.oid, two.oid])
    assert set(found) == {one.oid}
    assert found[one.oid].publication is not None and found[one.oid].publication.entries == ()
    assert catalog.fingerprints([]) == {}


VALUES_MAY_DIFFER = (
    "alter table t alter column n type bigint using n * 2",
    "alter table t add column more int default 7",
    "alter table parted attach partition parted_c for values in (3)",
    "alter table parted alter column n type bigint using n * 2",
    "alter table parted detach partition parted_b",
    "alter type mood rename value 'ok' to 'fine'",
    "truncate t",
    # Changes under this identity find their rows by the key.
    "alter table t replica identity full",
    "create unique index t_n on t (n)",
    "alter table t alter n set not null",
    "alter table t alter n drop not null",
    "alter table t drop constraint t_pkey, add primary key (id)",
    "create unique index parted_n on parted (id, n)",
)


DESCRIPTION_DIFFERS = (
    "comment on table t is 'a comment'",
    "alter table t rename n to number",
    "alter table t rename to renamed",
    "alter table renamed rename to t",
    "alter publication p add table parted",
    "alter publication p set (publish = 'insert')",
    "alter table t alter m set default 'sad'",
)


@contextmanager
def with_moods(cluster: Cluster, name: str) -> Iterator[Connection]:
    """A session of a database with tables for these statements, all but ``parted_b``."""
    database = cluster.database(name)
    with cluster.connect(database) as session:
        session.autocommit = True
        run(
            session,
            "create type mood as enum ('sad', 'ok')",
            "create table t (id int primary key, n int, m mood)",
            "create table parted (id int, n int) partition by list (id)",
            "create table parted_c (id int, n int)",
        )
        yield session


def test_the_storage_stamp_is_another_one_when_values_may_differ(each_pg: Cluster) -> None:
    with with_moods(each_pg, "stamps") as session:
        run(session, "create table parted_b (id int, n int)")
        catalog = Catalog(session)
        oids = [table_of(session, name).oid for name in ("t", "parted")]
        run(session, "alter table parted attach partition parted_b for values in (2)")
        seen = {catalog.storage_stamp(oids)}
        run(session, "insert into t select g, g, 'ok' from generate_series(1, 1000) g", "analyze t", "vacuum t")
        run(session, "create table other (id int primary key)", "insert into parted values (2, 2)")
        assert {catalog.storage_stamp(oids)} == seen
        for statement in VALUES_MAY_DIFFER:
            run(session, statement)
            stamp = catalog.storage_stamp(oids)
            assert stamp not in seen, statement
            seen.add(stamp)


@pytest.mark.parametrize("publication", ["", "p"])
def test_the_stamp_of_the_marks_is_another_one_when_the_fingerprints_are(each_pg: Cluster, publication: str) -> None:
    with with_moods(each_pg, "marks") as session:
        run(session, "create table parted_b partition of parted for values in (2)", "create publication p for table t")
        catalog = Catalog(session, publication)
        oids = [table_of(session, name).oid for name in ("t", "parted")]
        stamp, marks = catalog.marks_stamp(oids), catalog.fingerprints(oids)
        run(session, "create table other (id int primary key)", "insert into t values (1, 1, 'ok')", "vacuum analyze t")
        assert (catalog.marks_stamp(oids), catalog.fingerprints(oids)) == (stamp, marks)
        assert catalog.marks_stamp(oids[:1]) != stamp
        for statement in (*VALUES_MAY_DIFFER, *DESCRIPTION_DIFFERS):
            run(session, statement)
            stamp_now, marks_now = catalog.marks_stamp(oids), catalog.fingerprints(oids)
            assert (stamp_now == stamp) is (marks_now == marks), statement
            stamp, marks = stamp_now, marks_now
        run(session, "drop table t")
        assert catalog.marks_stamp(oids) != stamp
        assert catalog.marks_stamp([]) == catalog.marks_stamp([])


def test_a_type_has_its_parts_and_whether_they_were_altered(session: Connection) -> None:
    run(
        session,
        "create type mood as enum ('sad', 'ok')",
        "create domain feeling as mood",
        "create type pair as (a int, how feeling)",
        "create table t (id int primary key, p pair[])",
    )
    try:
        before = marks_of(session)
        assert [(m.kind, [label for _, label in m.parts], m.changed) for m in before.types] == [
            ("e", ["sad", "ok"], 0),
            ("c", ["", ""], 0),
        ]
        run(session, "alter type mood rename value 'sad' to 'blue'", "alter type pair drop attribute a")
        after = marks_of(session)
        assert [[label for _, label in m.parts] for m in after.types] == [["blue", "ok"], [""]]
        assert all(before.horizon <= m.changed < after.horizon for m in after.types)
    finally:
        run(session, "drop table t", "drop type pair", "drop domain feeling", "drop type mood")
