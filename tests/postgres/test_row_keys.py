"""Which columns identify a table's rows in the stream, by what the publication sends of its key."""

from __future__ import annotations

import pytest

from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import connect
from cdc_core.postgres.preflight.tables.identities import verdicts
from cdc_core.schema.evolution import decide
from cdc_core.schema.relation import Relation, RelationColumn, ReplicaIdentity
from cdc_core.schema.table import TableId
from cdc_core.schema.unseen import streamed
from cdc_core.types.options import TypeOptions
from cdc_core.types.registry import resolve
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres

COLUMNS = "a int not null, b int not null, g int generated always as (b) stored not null"
# Key and identity of each table, its columns in the publication, and then: the row key, and what is not sent of it.
TABLES = {
    "composite": ("primary key (a, g)", "", "", (), ("g",)),
    "computed": ("primary key (g), unique (b)", "", "", (), ("g",)),
    "whole": ("primary key (a, g)", "full", "", (), ()),
    "whole_unique": ("primary key (a, g), unique (b)", "full", "", ("b",), ()),
    "indexed": ("primary key (a, g), unique (b)", "using index indexed_b_key", "", ("b",), ()),
    "hidden": ("primary key (a), unique (b, g)", "using index hidden_b_g_key", "", (), ("g",)),
    "plain": ("primary key (a)", "", "", ("a",), ()),
    "listed": ("primary key (a, b)", "", "(a)", (), ("b",)),
    "listed_index": ("primary key (a), unique (b)", "using index listed_index_b_key", "(b)", ("b",), ()),
}


def described(pg, settings=""):
    """The tables as the stream has them, and as Relation messages announce them."""
    database = pg.database("rowkeys")
    listed = []
    for name, (key, identity, columns, *_) in TABLES.items():
        pg.execute(database, f"create table {name} ({COLUMNS}, {key})")
        if identity:
            pg.execute(database, f"alter table {name} replica identity {identity}")
        listed.append(f"{name} {columns}")
    pg.execute(database, f"create publication p for table {', '.join(listed)} {settings}")
    with connect(options_for(pg, database)) as connection:
        catalog = Catalog(connection, "p")
        tables = {table.id.table: table for table in catalog.tables(lambda name: name.schema == "public")}
        sent = {name: streamed(table) for name, table in tables.items()}
        announced = {name: catalog.resolve_relation(relation_of(tables[name], sent[name])) for name in tables}
        findings = verdicts(list(tables.values()))
    pg.drop_database(database)
    return sent, announced, findings


def relation_of(table, sent):
    flagged = table.identity_key
    columns = tuple(RelationColumn(c.name, c.type.oid, c.modifier, c.name in flagged) for c in sent.columns)
    return Relation(table.oid, *table.id, table.identity, columns)


def test_a_key_with_a_column_that_is_not_sent_identifies_no_rows(each_pg):
    sent, announced, findings = described(each_pg)
    for name, (*_, key, unsent) in TABLES.items():
        decided = decide(
            sent[name],
            announced[name].announced,
            announced[name].current,
            lake_type=lambda column: resolve(column, TypeOptions()).natural.arrow_type,
        )
        assert decided.table is not None and decided.operations == (), (name, decided.reason)
        for table in (sent[name], announced[name].announced, decided.table):
            assert (table.row_key, table.unsent_identity) == (key, unsent), name
    said = " ".join(finding.found for finding in findings)
    assert {name for name in TABLES if f"of public.{name}:" in said} == {n for n, told in TABLES.items() if told[-1]}


def test_a_published_generated_column_is_part_of_the_key(embedded18):
    sent, announced, findings = described(embedded18, "with (publish_generated_columns = stored)")
    assert sent["composite"].row_key == announced["composite"].announced.row_key == ("a", "g")
    assert sent["computed"].row_key == ("g",) and sent["hidden"].row_key == ("b", "g")
    assert sent["listed"].row_key == () and sent["listed"].unsent_identity == ("b",)
    assert sum(not finding.ok for finding in findings) == 1


def test_a_key_that_looks_like_a_part_of_an_earlier_one_is_not_followed(debian15):
    database = debian15.database("rowkeys")
    debian15.execute(database, f"create table t ({COLUMNS}, primary key (a, g)); create publication p for table t")
    with connect(options_for(debian15, database)) as connection:
        catalog = Catalog(connection, "p")
        [before] = catalog.tables(TableId("public", "t").__eq__)
        debian15.execute(database, "alter table t drop constraint t_pkey, add primary key (a)")
        base = streamed(before)
        # The first Relation message may be of rows that were written under either key.
        found = catalog.resolve_relation(relation_of(before, base))
        decided = decide(
            base,
            found.announced,
            found.current,
            lake_type=lambda column: resolve(column, TypeOptions()).natural.arrow_type,
        )
    debian15.drop_database(database)
    assert base.identity is ReplicaIdentity.DEFAULT and "does not show from which event on" in decided.reason
