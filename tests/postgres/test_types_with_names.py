"""Types whose texts contain names of objects: which these are is read from the server, and no key may have them."""

from __future__ import annotations

import pytest

from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.catalog.types import PINNED, TypeCatalog
from cdc_core.postgres.connection import connect
from cdc_core.postgres.preflight.tables.identities import verdicts
from cdc_core.selection.options import SelectionOptions
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres

NAMED = {
    *("regproc", "regprocedure", "regoper", "regoperator", "regclass", "regcollation", "regtype", "regrole"),
    *("regnamespace", "regconfig", "regdictionary", "aclitem"),
}
# Their outputs depend on those of other types only.
OF_OTHERS = "select oid from pg_type where typtype <> 'b' or typcategory = 'A' or typrelid <> 0"
SCHEMA = """
create type pair as (n int, r regclass);
create type nested as (p pair[]);
create type plain as (n int, at timestamptz, m money);
create domain relation as regclass;
create domain relations as relation[];
create type mood as enum ('sad');
create table of_types (a regclass[], b relation, c relations, d pair, e nested, f nested[], g aclitem[],
    h plain, i mood, j int[], k timestamptz[], l money, m numrange, n tstzrange, o text, p name, q oid, r xml);
"""
# Key and identity of each table, then: the row key, and what identifies rows by names.
TABLES = {
    "keyed": ("r regclass primary key, n int", "default", (), ("r",)),
    "keyed_whole": ("r regclass primary key, n int", "full", (), ("r",)),
    "keyed_both": ("n int, r regrole, primary key (n, r)", "default", (), ("r",)),
    "unique_whole": ("r regclass primary key, n int not null unique", "full", ("n",), ()),
    "indexed": ("r regclass primary key, n int not null unique", "using index indexed_n_key", ("n",), ()),
    "by_name": ("n int primary key, r relation not null unique", "using index by_name_r_key", (), ("r",)),
    "bare": ("n int, r regclass, a aclitem[], t text", "full", (), ("r", "a")),
    "valued": ("n int primary key, r regclass", "default", ("n",), ()),
    "valued_whole": ("n int primary key, r regclass", "full", ("n",), ()),
}


@pytest.mark.parametrize("flavour", ["debian15", "released16", "released17", "embedded18"])
def test_every_type_whose_text_is_not_its_value_s_alone_is_known(flavour: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(flavour)
    database = server.database("names")
    volatile = f"""
        select t.typname from pg_type t join pg_proc p on p.oid = t.typoutput
        where p.provolatile <> 'i' and t.oid not in ({OF_OTHERS})
    """
    assert {name for (name,) in server.execute(database, volatile)} == NAMED | set(PINNED)
    server.execute(database, SCHEMA)
    with connect(options_for(server, database)) as connection:
        types = TypeCatalog(connection)
        oids = dict(connection.execute("select typname, oid::bigint from pg_type where typnamespace = 11").fetchall())
        types.load(oids[name] for name in (*NAMED, *PINNED))
        assert {name for name in (*NAMED, *PINNED) if types[oids[name]].shows_names} == NAMED
        [table] = Catalog(connection).tables(lambda name: name.table == "of_types")
    assert "".join(column.name for column in table.columns if column.type.shows_names) == "abcdefg"
    server.drop_database(database)


def test_a_key_with_names_identifies_no_rows(pg) -> None:
    database = pg.database("names")
    pg.execute(database, "create domain relation as regclass")
    for name, (columns, identity, *_) in TABLES.items():
        pg.execute(database, f"create table {name} ({columns}); alter table {name} replica identity {identity}")
    with connect(options_for(pg, database)) as connection:
        tables = {table.id.table: table for table in Catalog(connection).tables(lambda name: name.schema == "public")}
    for name, (_, _, key, named) in TABLES.items():
        assert (tables[name].row_key, tables[name].named_identity) == (key, named), name
    said = [finding for finding in verdicts(list(tables.values())) if not finding.ok]
    for name, (*_, named) in TABLES.items():
        mine = [finding for finding in said if f"Rows of public.{name} are" in finding.found]
        assert [", ".join(named) in finding.found for finding in mine] == [True] * bool(named), name
    # Without its columns of names a table that is stored as a multiset has none to be told apart by.
    excluding = SelectionOptions(column_exclude_list=("public.bare.r", "public.bare.a"))
    assert all(finding.ok for finding in verdicts([tables["bare"]], selection=excluding))
    pg.drop_database(database)
