"""Which leaf partitions may be read by their own names, and that they then have the root's rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cdc_core.option import Secret
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import connect
from cdc_core.postgres.replication.partition_names import silent_partitions, unlike_partitions
from cdc_core.postgres.rows.copy_out import select_sql
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres

SCRIPT = """
create schema kept;
create table root (id int, v text, extra text, primary key (id)) partition by range (id);
create table kept.low (v text, gone int, extra text, id int not null, primary key (id));
alter table kept.low drop column gone;
alter table root attach partition kept.low for values from (0) to (100);
create table mid partition of root for values from (100) to (300) partition by range (id);
create table mid_1 partition of mid for values from (100) to (200);
create table "Mid 2" partition of mid for values from (200) to (300);
create table plain (id int primary key);
create table heir () inherits (plain);
create table bare (id int) partition by range (id);
insert into root select g, 'v' || g, 'e' || g from generate_series(1, 299) g;
create role {role} login replication password 'pw';
grant select on root, mid, mid_1, "Mid 2" to {role}; grant usage on schema kept to {role};
"""
ALL = [TableId("kept", "low"), TableId("public", "Mid 2"), TableId("public", "mid_1")]


@pytest.fixture
def database(each_pg: Cluster) -> Iterator[str]:
    name = each_pg.database("leaves")
    each_pg.execute(name, SCRIPT.format(role=f"reader_{name}"))
    yield name
    each_pg.execute(name, f"drop owned by reader_{name}; drop role reader_{name}")


def found(pg: Cluster, database: str, table: str = "root", *, reader: bool = False, is_filtered: bool = False):
    options = options_for(pg, database)
    if reader:
        options = replace(options, database_user=f"reader_{database}", database_password=Secret("pw"))
    with connect(options) as connection:
        catalog = Catalog(connection)
        (root,) = catalog.tables(lambda name: name == TableId("public", table))
        columns = tuple(column for column in root.columns if column.name != "extra")
        root = replace(root, columns=columns)
        leaves = catalog.leaves(root, is_filtered=is_filtered)
        names = [column.name for column in columns]
        rows = [row for leaf in leaves for row in connection.execute(
            select_sql(leaf.id, names, 'root.id > 0', only=True, alias="root")
        ).fetchall()]  # fmt: skip
    if leaves:
        assert sorted(rows) == [(g, f"v{g}") for g in range(1, 300)]
    return leaves


def test_the_leaves_by_name_with_their_sizes(each_pg, database):
    assert [(leaf.id, leaf.has_ctid, leaf.pages, leaf.rows) for leaf in found(each_pg, database)] == [
        (name, True, 1, None) for name in ALL
    ]
    each_pg.execute(database, "vacuum analyze")
    again = found(each_pg, database)
    assert [leaf.rows for leaf in again] == [99, 100, 100]
    # Neither writes a new row of pg_class.
    each_pg.execute(database, "create index on mid_1 (v)")
    each_pg.execute(database, "vacuum analyze")
    assert [leaf.identity for leaf in found(each_pg, database)] == [leaf.identity for leaf in again]
    each_pg.execute(database, "alter table mid_1 rename to other; alter table other rename to mid_1")
    now = found(each_pg, database)
    assert [leaf.id for leaf in now] == ALL
    assert [a.identity == b.identity for a, b in zip(now, again, strict=True)] == [True, True, False]


def test_a_table_that_is_not_partitioned_or_has_no_leaf_has_none(each_pg, database):
    assert found(each_pg, database, "plain") == ()
    assert found(each_pg, database, "bare") == ()


def test_every_needed_column_of_every_leaf_must_be_readable(each_pg, database):
    role = f"reader_{database}"
    assert found(each_pg, database, reader=True) == ()
    each_pg.execute(database, f"grant select (id) on kept.low to {role}")
    assert found(each_pg, database, reader=True) == ()
    each_pg.execute(database, f"grant select (v) on kept.low to {role}")
    assert [leaf.has_ctid for leaf in found(each_pg, database, reader=True)] == [False, True, True]
    # The row filter may ask for any column.
    assert found(each_pg, database, reader=True, is_filtered=True) == ()
    each_pg.execute(database, f"grant select on kept.low to {role}")
    assert len(found(each_pg, database, reader=True, is_filtered=True)) == 3
    each_pg.execute(database, f"revoke usage on schema kept from {role}")
    assert found(each_pg, database, reader=True) == ()


@pytest.mark.parametrize("table", ["root", "kept.low"])
def test_row_level_security_that_applies_leaves_the_root(each_pg, database, table):
    role = f"reader_{database}"
    each_pg.execute(database, f"grant select on kept.low to {role}")
    assert len(found(each_pg, database, reader=True)) == 3
    each_pg.execute(database, f"alter table {table} enable row level security")
    assert found(each_pg, database, reader=True) == ()
    # A superuser is not subject to it.
    assert len(found(each_pg, database)) == 3


def test_a_foreign_leaf_leaves_the_root(each_pg, database):
    each_pg.execute(
        database,
        "create foreign data wrapper nowhere; create server elsewhere foreign data wrapper nowhere; "
        "create table open (id int, v text, extra text) partition by range (id); "
        "create table open_1 partition of open for values from (0) to (9); "
        "create foreign table remote partition of open for values from (10) to (20) server elsewhere",
    )
    assert found(each_pg, database, "open") == ()


def test_leaves_that_came_since_the_description_leave_the_root(each_pg, database):
    with connect(options_for(each_pg, database)) as connection:
        catalog = Catalog(connection)
        (root,) = catalog.tables(lambda name: name == TableId("public", "root"))
        assert [leaf.id for leaf in catalog.leaves(root, is_filtered=False)] == ALL
        each_pg.execute(database, "create table late partition of root for values from (300) to (400)")
        assert catalog.leaves(root, is_filtered=False) == ()
        each_pg.execute(database, "alter table root detach partition late; drop table late")
        assert len(catalog.leaves(root, is_filtered=False)) == 3


def test_partitions_whose_changes_the_wal_does_not_have_are_named(each_pg: Cluster, database: str) -> None:
    each_pg.execute(
        database,
        "create table above (id int) partition by range (id);"
        "create table kept.mid partition of above for values from (0) to (100) partition by range (id);"
        "create unlogged table kept.bare partition of kept.mid for values from (0) to (10);"
        "create foreign data wrapper none; create server elsewhere foreign data wrapper none;"
        "create foreign table far partition of above for values from (100) to (200) server elsewhere",
    )
    with connect(options_for(each_pg, database)) as connection:
        tables = Catalog(connection, "none").tables(lambda name: True)
        first, second = silent_partitions(connection, [table for table in tables if table.id.table == "above"])
        own = [table for table in tables if table.id.table == "root"]
        assert silent_partitions(connection, own) == []
    assert first.startswith("Partition kept.bare of public.above is UNLOGGED")
    assert second.startswith("Partition public.far of public.above is a foreign table")


def test_partitions_whose_old_rows_do_not_identify_rows_of_their_table_are_named(
    each_pg: Cluster, database: str
) -> None:
    each_pg.execute(
        database,
        """
        create unique index on mid_1 (id, v); create unique index other on kept.low (v);
        alter table kept.low alter v set not null; alter table mid_1 replica identity full;
        alter table kept.low replica identity using index other;
        create table keyless (id int, v text) partition by range (id);
        create table keyless_1 partition of keyless (primary key (id)) for values from (0) to (9);
        create table keyless_2 partition of keyless for values from (9) to (99);
        alter table keyless replica identity full; alter table keyless_2 replica identity full;
        """,
    )
    with connect(options_for(each_pg, database)) as connection:
        tables = Catalog(connection).tables(lambda name: name.table in ("root", "keyless", "plain"))
        found = unlike_partitions(connection, tables)
    assert set(found) == {TableId("kept", "low"), TableId("public", "keyless_1")}
    assert "another replica identity than public.root" in found[TableId("kept", "low")]
    assert "without v," in found[TableId("public", "keyless_1")]
