"""The span of a table's key, and the ranges that are made of it, on real servers."""

from __future__ import annotations

import pytest

from cdc_core.postgres.catalog.key_bounds import KeyBounds
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.copy.key_ranges import key_column, key_conditions

pytestmark = pytest.mark.postgres

LEAST, MOST = -(2**63), 2**63 - 1


@pytest.fixture
def database(each_pg):
    name = each_pg.database("keys")
    yield name
    each_pg.drop_database(name)


def described(pg, database: str, name: str, ddl: str) -> tuple[Catalog, TableSchema]:
    pg.execute(database, ddl)
    catalog = Catalog(pg.connect(database))
    (table,) = catalog.tables(TableId("public", name).__eq__)
    return catalog, table


@pytest.mark.parametrize(
    ("kind", "values", "per_range", "ranges"),
    [
        ("int4", [-7, -1, 0, 3, 4, 5, 100], 2, 4),
        ("int8", [LEAST, LEAST + 1, -5, 0, 17, MOST - 1, MOST], 1, 7),
        ("int2", [-32768, 32767], 1, 2),
        ("int8", [41, 42], 1, 2),
        ("int4", [9], 1, 1),
    ],
    ids=["negative", "extremes", "small", "neighbours", "one"],
)
def test_every_row_is_in_one_range_also_later_ones(each_pg, database, kind, values, per_range, ranges):
    listed = ", ".join(f"('{value}')" for value in values)
    ddl = f'create table "A ""b" ("my ""key" {kind}, part int default 0, primary key ("my ""key", part)); '
    catalog, table = described(each_pg, database, 'A "b', f'{ddl} insert into "A ""b" values {listed}')
    column = key_column(table)
    assert column == 'my "key'
    bounds = catalog.key_bounds(table, column)
    assert bounds == KeyBounds(min(values), max(values), None)
    conditions = key_conditions(column, bounds, len(values), per_range)
    assert len(conditions) == ranges
    # The ends are open: what came meanwhile is in the first or the last.
    if kind == "int4":
        each_pg.execute(database, """insert into "A ""b" values (-2147483648), (2147483647)""")
    wanted = each_pg.execute(database, 'select "my ""key" from "A ""b" order by 1')
    found = []
    for condition in conditions:
        where = f" where {condition}" if condition else ""
        found += each_pg.execute(database, f'select "my ""key" from "A ""b"{where}')
    assert sorted(found) == wanted


def test_a_range_of_the_least_value_uses_the_keys_index(each_pg, database):
    catalog, table = described(
        each_pg,
        database,
        "t",
        "create table t (id bigint primary key, pad text); "
        "insert into t select g, repeat('x', 50) from generate_series(1, 20000) g; analyze t",
    )
    bounds = catalog.key_bounds(table, "id")
    assert bounds is not None and (bounds.low, bounds.high) == (1, 20000) and bounds.correlation == 1.0
    conditions = key_conditions("id", bounds, 20000, 1000)
    assert len(conditions) == 20
    for condition in conditions:
        plan = "\n".join(row[0] for row in each_pg.execute(database, f"explain select * from t where {condition}"))
        assert "Index Cond" in plan and "Seq Scan" not in plan, plan


def test_only_integers_that_lead_a_primary_key_of_an_ordinary_table_cut_it(each_pg, database):
    each_pg.execute(
        database,
        "create domain whole as int; "
        "create table texts (id text, n int, primary key (id, n)); create table free (id int unique not null); "
        "create table domains (id whole primary key); create table good (v text, id smallint, primary key (id, v)); "
        "create table parted (id int primary key) partition by range (id)",
    )
    tables = {table.id.table: table for table in Catalog(each_pg.connect(database)).tables(lambda _: True)}
    assert {name: key_column(table) for name, table in tables.items()} == {
        "texts": None,
        "free": None,
        "domains": None,
        "good": "id",
        "parted": None,
    }


def test_rows_in_another_order_than_their_key_are_not_cut():
    bounds = KeyBounds(1, 10**6, 0.1)
    assert key_conditions("id", bounds, 10**6, 1000) == [""]
    assert len(key_conditions("id", KeyBounds(1, 10**6, -0.99), 10**6, 1000)) == 1000
    assert len(key_conditions("id", KeyBounds(1, 10**12, None), 10**9, 1)) == 10_000


def test_rows_of_heirs_an_empty_table_and_a_dropped_one(each_pg, database):
    catalog, table = described(
        each_pg,
        database,
        "parent",
        "create table parent (id int primary key); create table heir () inherits (parent); "
        "insert into heir values (-100), (100); insert into parent values (1), (9)",
    )
    assert catalog.key_bounds(table, "id") == KeyBounds(1, 9, None)
    each_pg.execute(database, "truncate parent")
    assert catalog.key_bounds(table, "id") is None
    each_pg.execute(database, "drop table parent cascade")
    assert catalog.key_bounds(table, "id") is None
    assert catalog.names() == [], "the connection goes on"
