"""Chunks by any key: every row is in exactly one of them, whatever the key's order and however often it repeats."""

from __future__ import annotations

import numpy as np
import psycopg
import pytest

from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import connect
from cdc_core.postgres.rows.chunks import ChunkConnection
from cdc_core.schema.options import KeyRule
from cdc_core.schema.table import TableId
from cdc_core.schema.unseen import streamed
from cdc_core.selection.options import SelectionOptions
from cdc_core.snapshot.incremental.progress import Collection, Progress
from cdc_core.snapshot.incremental.reader import ChunkReader
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres

SIZE, ROWS = 7, 100
IGNORING_CASE = "create collation if not exists ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
MOMENTS = "(array['infinity', '-infinity', '2000-01-01'])[n % 3 + 1]::timestamptz"
FLOATS = "(array['-0', '0', 'NaN', 'infinity', '0.1'])[n % 5 + 1]::float8"
LETTERS = "(array['a', 'B', 'b', 'A', 'é', 'f'])[n % 6 + 1]"
CASED = "case when n % 2 = 0 then upper('key' || n) else 'key' || n end"
CITEXT = "create schema ext; create extension citext schema ext; create domain ext.word as ext.citext"
COMPUTED = "s int, id int not null unique, g int generated always as (id * 2) stored, primary key (g)"
KEY = ", id int primary key"
BOTH, ALONE = ("s", "id"), ("s",)
# Each with the columns, the value of column s in row n, the surrogate key, and the columns by which chunks are divided.
CASES = {
    "repeated": ("s int" + KEY, "n % 3", "s", BOTH),
    "all equal": ("s int" + KEY, "1", "s", BOTH),
    "nulls": ("s int" + KEY, "case when n % 2 = 0 then n / 10 end", "s", BOTH),
    "only nulls": ("s int" + KEY, "null", "s", BOTH),
    "unique": ("s int not null unique" + KEY, "n", "s", ALONE),
    "unique, nulls": ("s int unique" + KEY, "case when n < 50 then n end", "s", BOTH),
    "numeric": ("s numeric" + KEY, "case n % 4 when 0 then 'NaN'::numeric else n % 3 end", "s", BOTH),
    "float": ("s float8" + KEY, FLOATS, "s", BOTH),
    "moments": ("s timestamptz" + KEY, MOMENTS, "s", BOTH),
    "collation": ('s text collate "und-x-icu"' + KEY, LETTERS, "s", BOTH),
    "ignoring case": ("s text collate ci" + KEY, LETTERS, "s", BOTH),
    "no key": ("s int, id int", "n % 3", "s", ALONE),
    "no key, nulls": ("s int, id int", "case when n % 3 > 0 then n % 3 end", "s", ALONE),
    "no surrogate": ("s text collate ci, id int, primary key (s, id)", LETTERS, "", BOTH),
    "nullable index": ("s int unique, id int", "case when n < 5 then n end", "", ALONE),
    "number as key": ("s numeric primary key, id int", "case when n = 9 then 'NaN'::numeric else n end", "", ALONE),
    "moment as key": ("s timestamp primary key, id int", "(array['infinity', '-infinity'])[n]::timestamp", "", ALONE),
    # Operators of an extension whose schema is not in search_path: "B" lies between "a" and "c", not before them.
    "citext": ("s ext.citext primary key, id int", CASED, "", ALONE),
    "citext and a number": ("s ext.citext, id int, primary key (s, id)", LETTERS, "", BOTH),
    "citext, nulls": ("s ext.word" + KEY, f"case when n % 3 > 0 then {LETTERS} end", "s", BOTH),
    "computed": (COMPUTED, "n % 3", "s", BOTH),
}


@pytest.mark.parametrize("size", [SIZE, 1])
def test_every_row_is_in_one_chunk(each_pg, size):
    database = each_pg.database("chunks")
    options = options_for(each_pg, database)
    cases = CASES
    try:
        each_pg.execute(database, IGNORING_CASE)
    except psycopg.errors.FeatureNotSupported:  # a server without ICU
        cases = {case: found for case, found in CASES.items() if "collate" not in found[0]}
    if each_pg.execute(database, "select 1 from pg_available_extensions where name = 'citext'"):
        each_pg.execute(database, CITEXT)
    else:
        cases = {case: found for case, found in cases.items() if "ext." not in found[0]}
    wrong = {}
    reader = ChunkReader(ChunkConnection(options), SelectionOptions(), (), size)
    with connect(options) as connection:
        for number, (case, (columns, value, surrogate, wanted)) in enumerate(cases.items()):
            count = 2 if case == "moment as key" else ROWS
            each_pg.execute(
                database,
                f"create table t{number} ({columns}); "
                f"insert into t{number} (s, id) select {value}, n from generate_series(1, {count}) n order by random()",
            )
            [table] = Catalog(connection).tables(TableId("public", f"t{number}").__eq__)
            found = chunked(reader, streamed(table), Collection(table.id, "", surrogate))
            if found != (wanted, list(range(1, count + 1))):
                wrong[case] = found
        reader.connection.close()
    each_pg.drop_database(database)
    assert wrong == {}


def chunked(reader, table, collection):
    """The columns of the chunks, and the ids of their rows, sorted."""
    key = tuple(column.name for column in reader.key_of(table, collection))
    progress = Progress((collection,)).begun(key, reader.largest_key(table, collection))
    ids: list[int] = []
    while True:
        chunk = reader.read(table, collection, progress, lambda _: np.zeros(0, dtype=np.int64))
        if not len(chunk.rows):
            return key, sorted(ids)
        ids += [int(text) for text in chunk.rows.text[chunk.rows.names.index("id")].to_pylist()]
        assert len(ids) <= 2 * ROWS, "a row was read again"
        progress = progress.behind(chunk.last_key)


def test_a_message_key_that_repeats_does_not_lose_rows(each_pg):
    database = each_pg.database("chunks")
    options = options_for(each_pg, database)
    each_pg.execute(
        database, "create table t (s int, id int); insert into t select n % 3, n from generate_series(1, 50) n"
    )
    reader = ChunkReader(ChunkConnection(options), SelectionOptions(), (KeyRule(r"public\.t", ("s",)),), SIZE)
    with connect(options) as connection:
        [table] = Catalog(connection).tables(TableId("public", "t").__eq__)
        assert chunked(reader, table, Collection(table.id)) == (("s",), list(range(1, 51)))
        reader.connection.close()
    each_pg.drop_database(database)
