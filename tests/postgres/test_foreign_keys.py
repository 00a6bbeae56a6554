"""The foreign keys of a database as the catalogue has them."""

from __future__ import annotations

import pytest

from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connect import connect
from cdc_core.schema.foreign_key import ForeignKey
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres

SCRIPT = """
create schema shop;
create table shop.pair ("A a" int, b text, primary key ("A a", b));
create table shop.part (b text, x int, a int, constraint part_pair foreign key (a, b) references shop.pair ("A a", b));
create table tree (id int primary key, up int);
alter table tree add constraint up foreign key (up) references tree not valid;
create table root (id int primary key) partition by range (id);
create table leaf_1 partition of root for values from (0) to (10);
create table leaf_2 partition of root for values from (10) to (20);
create table of_root (id int constraint to_root references root);
create table halves (id int constraint from_root references tree) partition by range (id);
create table half_1 partition of halves for values from (0) to (10);
"""


def test_each_foreign_key_is_found_once_for_every_table_that_has_it(each_pg: Cluster) -> None:
    database = each_pg.database("foreign_keys")
    each_pg.execute(database, SCRIPT)

    def key(name: str, table: str, columns: str, parent: str, parent_columns: str) -> ForeignKey:
        child, other = (TableId(*each.split(".")) for each in (table, parent))
        return ForeignKey(name, child, tuple(columns.split(",")), other, tuple(parent_columns.split(",")))

    with connect(options_for(each_pg, database)) as connection:
        assert Catalog(connection).foreign_keys() == [
            key("from_root", "public.half_1", "id", "public.tree", "id"),
            key("from_root", "public.halves", "id", "public.tree", "id"),
            key("to_root", "public.of_root", "id", "public.root", "id"),
            key("up", "public.tree", "up", "public.tree", "id"),
            key("part_pair", "shop.part", "a,b", "shop.pair", "A a,b"),
        ]


def test_texts_that_are_equal_without_being_the_same_are_told(pg: Cluster) -> None:
    database = pg.database("loose")
    pg.execute(
        database,
        "create collation loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
        "create table named (name text collate loose primary key);"
        "create table names (name text constraint named references named)",
    )
    with connect(options_for(pg, database)) as connection:
        assert [key.is_exact for key in Catalog(connection).foreign_keys()] == [False]
