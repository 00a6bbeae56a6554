"""Publications in the four modes, and replica identities set at start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cdc_core.errors import ConfigError, SourceError
from cdc_core.option import Secret
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import Connection, connect
from cdc_core.postgres.options import IdentityRule, PostgresOptions, PublicationAutocreateMode
from cdc_core.postgres.replication import publication
from cdc_core.postgres.replication.publication import PublicationChange
from cdc_core.postgres.replication.replica_identity import autoset, rule_for
from cdc_core.postgres.source import Source
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.selection.options import SelectionOptions
from cdc_core.selection.tables import TableSelection
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres

A, B, C = TableId("public", "a"), TableId("public", "B b"), TableId("public", "c")
ALL = ("insert", "update", "delete", "truncate")


@pytest.fixture
def database(each_pg: Cluster) -> Iterator[str]:
    name = each_pg.database("pub")
    each_pg.execute(
        name,
        'create table a (id int primary key, v text); create table "B b" (id int primary key); create table c (id int);'
        "create table root (id int, at date) partition by range (at);"
        "create table leaf partition of root for values from ('2020-01-01') to ('2021-01-01')",
    )
    yield name
    each_pg.drop_database(name)


@pytest.fixture
def options(each_pg: Cluster, database: str) -> PostgresOptions:
    return options_for(each_pg, database, publication_name='the "pub"')


@pytest.fixture
def connection(options: PostgresOptions) -> Iterator[Connection]:
    with connect(options) as opened:
        opened.execute("set search_path = public")
        yield opened


def mode(options: PostgresOptions, value: str) -> PostgresOptions:
    return replace(options, publication_autocreate_mode=PublicationAutocreateMode(value))


def poor(each_pg: Cluster, options: PostgresOptions, grants: str = "") -> PostgresOptions:
    role = f"poor_{options.database_dbname}"
    each_pg.execute(
        options.database_dbname, f"create role {role} login replication password 'pw'; {grants.format(role)}"
    )
    return replace(options, database_user=role, database_password=Secret("pw"))


def test_all_tables_makes_one_for_all_and_leaves_it_alone(options: PostgresOptions, connection: Connection) -> None:
    wanted = mode(options, "all_tables")
    assert publication.ensure(connection, wanted, [A]) == PublicationChange(options.publication_name, created=True)
    found = publication.inspect(connection, options.publication_name)
    assert (found.all_tables, found.operations, found.via_root) == (True, ALL, False)
    assert {A, B, C, TableId("public", "leaf")} <= found.published
    assert publication.ensure(connection, wanted, [A]) == PublicationChange(options.publication_name)


def test_no_tables_makes_an_empty_one(options: PostgresOptions, connection: Connection) -> None:
    publication.ensure(connection, mode(options, "no_tables"), [A])
    found = publication.inspect(connection, options.publication_name)
    assert (found.exists, found.all_tables, found.tables) == (True, False, frozenset())


def test_disabled_refuses_to_start_without_one_and_accepts_any(
    options: PostgresOptions, connection: Connection
) -> None:
    with pytest.raises(SourceError, match="There is no publication") as caught:
        publication.ensure(connection, mode(options, "disabled"), [A])
    assert "CREATE PUBLICATION" in caught.value.remedy
    assert not publication.inspect(connection, options.publication_name).exists
    connection.execute('create publication "the ""pub""" for table c')
    assert publication.ensure(connection, mode(options, "disabled"), [A]) == PublicationChange('the "pub"')


def test_filtered_follows_the_captured_tables(options: PostgresOptions, connection: Connection) -> None:
    wanted = mode(options, "filtered")
    made = publication.ensure(connection, wanted, [B, A])
    assert (made.created, made.added) == (True, (B, A))
    assert publication.inspect(connection, options.publication_name).tables == {A, B}
    changed = publication.ensure(connection, wanted, [A, C])
    assert (changed.created, changed.added, changed.dropped) == (False, (C,), (B,))
    assert publication.inspect(connection, options.publication_name).tables == {A, C}
    assert publication.ensure(connection, wanted, [A, C]) == PublicationChange(options.publication_name)


def test_filtered_keeps_the_row_filter_of_a_table_that_stays(options: PostgresOptions, connection: Connection) -> None:
    connection.execute('create publication "the ""pub""" for table a (id) where (id > 5), "B b"')
    publication.ensure(connection, mode(options, "filtered"), [A, C])
    row = connection.execute(
        "select rowfilter, attnames from pg_publication_tables where pubname = %s and tablename = 'a'",
        (options.publication_name,),
    ).fetchone()
    assert row == ("(id > 5)", ["id"])


def test_filtered_refuses_an_empty_list_and_one_for_all_tables(
    options: PostgresOptions, connection: Connection
) -> None:
    with pytest.raises(SourceError, match="No table is captured"):
        publication.ensure(connection, mode(options, "filtered"), [])
    publication.ensure(connection, mode(options, "all_tables"), [])
    with pytest.raises(SourceError, match="is FOR ALL TABLES"):
        publication.ensure(connection, mode(options, "filtered"), [A])


@pytest.mark.parametrize(
    ("skipped", "expected"),
    [(("t",), ALL[:3]), (("c", "t"), ("update", "delete")), ((), ALL), (("c", "u", "d", "t"), ())],
)
def test_skipped_operations_are_not_published(
    options: PostgresOptions, connection: Connection, skipped: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    publication.ensure(connection, mode(options, "all_tables"), [], skipped)
    assert publication.inspect(connection, options.publication_name).operations == expected


def test_via_partition_root_publishes_the_root_in_place_of_its_leaves(
    options: PostgresOptions, connection: Connection
) -> None:
    wanted = replace(mode(options, "filtered"), publish_via_partition_root=True)
    publication.ensure(connection, wanted, [TableId("public", "root"), TableId("public", "leaf")])
    found = publication.inspect(connection, options.publication_name)
    assert found.via_root
    assert found.published == {TableId("public", "root")}


def test_a_missing_privilege_is_reported_with_the_statement_to_run(
    each_pg: Cluster, options: PostgresOptions, connection: Connection
) -> None:
    limited = poor(each_pg, options)
    with connect(limited) as weak:
        with pytest.raises(SourceError, match="permission denied for database") as caught:
            publication.ensure(weak, mode(limited, "filtered"), [A])
        assert 'CREATE PUBLICATION "the ""pub""" FOR TABLE "public"."a"' in caught.value.remedy
        each_pg.execute(
            options.database_dbname, f'grant create on database "{options.database_dbname}" to {limited.database_user}'
        )
        with pytest.raises(SourceError, match="superuser"):
            publication.ensure(weak, mode(limited, "all_tables"), [A])
        with pytest.raises(SourceError, match="must be owner of table a"):
            publication.ensure(weak, mode(limited, "filtered"), [A])
        each_pg.execute(options.database_dbname, f"alter table a owner to {limited.database_user}")
        assert publication.ensure(weak, mode(limited, "filtered"), [A]).created


def tables_of(connection: Connection) -> list[TableSchema]:
    return Catalog(connection).tables(lambda table: table.schema == "public")


def test_identities_are_set_by_the_rule_that_matches_and_only_where_they_differ(
    options: PostgresOptions, connection: Connection
) -> None:
    connection.execute('create table i (x int not null); create unique index "I x" on i (x)')
    rules = (
        IdentityRule(r"public\.(a|c)", "FULL"),
        IdentityRule("PUBLIC.b b", "NOTHING"),
        IdentityRule("public.i", "INDEX", "I x"),
        IdentityRule("public.leaf", "DEFAULT"),
    )
    changes = autoset(connection, rules, tables_of(connection))
    assert [(str(change.table), change.problem) for change in changes] == [
        ("public.B b", ""), ("public.a", ""), ("public.c", ""), ("public.i", ""),
    ]  # fmt: skip
    identities = {table.id.table: table.identity for table in tables_of(connection)}
    assert identities["a"] is identities["c"] is ReplicaIdentity.FULL
    assert (identities["B b"], identities["i"]) == (ReplicaIdentity.NOTHING, ReplicaIdentity.INDEX)
    assert autoset(connection, rules, tables_of(connection)) == []


def test_an_index_that_does_not_fit_and_two_rules_for_one_table_are_errors(connection: Connection) -> None:
    with pytest.raises(SourceError, match=r"replica identity of table public\.a"):
        autoset(connection, (IdentityRule("public.a", "INDEX", "nosuch"),), tables_of(connection))
    rules = (IdentityRule("public.a", "FULL"), IdentityRule(".*", "DEFAULT"))
    with pytest.raises(ConfigError, match="more than one identity"):
        rule_for(rules, A)
    assert rule_for(rules[:1], C) is None


def test_a_table_of_somebody_else_is_reported_and_left(
    each_pg: Cluster, options: PostgresOptions, connection: Connection
) -> None:
    with connect(poor(each_pg, options)) as weak:
        [change] = autoset(weak, (IdentityRule("public.a", "FULL"),), tables_of(weak))
    assert "Only the owner of table public.a may run ALTER TABLE" in change.problem
    assert {table.id: table.identity for table in tables_of(connection)}[A] is ReplicaIdentity.DEFAULT


def test_operations_that_the_publication_lacks_are_reported_once(
    each_pg: Cluster, options: PostgresOptions, caplog: pytest.LogCaptureFixture
) -> None:
    each_pg.execute(
        options.database_dbname, 'create publication "the ""pub""" for table a with (publish = \'insert, update\')'
    )
    with Source(options, TableSelection(SelectionOptions())) as source:
        tables = source.catalog.tables(lambda name: name in (A, C))
        source.require_publication()
        assert caplog.messages == []
        for _ in range(2):
            source.require_publication(tables, ("t",))
    unsent, lacking = caplog.messages
    assert "does not publish delete." in unsent and "does not include public.c." in lacking
