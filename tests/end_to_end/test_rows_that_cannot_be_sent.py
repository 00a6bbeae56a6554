"""Rows that the server itself cannot send: a read pauses their table alone, a stream says how to go on."""

import pytest

from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

BAD, FINE = TableId("public", "bad"), TableId("public", "fine")
WIN1252 = "encoding 'WIN1252' lc_collate 'C' lc_ctype 'C' template template0"
EUC_JP = "encoding 'EUC_JP' lc_collate 'C' lc_ctype 'C' template template0"

# 512 MiB, of which the text is longer than a message may be.
LARGE = (
    "(with x as materialized (select repeat('x', 1024 * 1024)::bytea as mib)"
    " select string_agg(mib, '') from x, generate_series(1, 512))"
)
# Without it the server spends most of the test on compressing that value, and on decompressing it at each attempt.
COMPRESSED = """
do $$ begin alter table bad alter v set compression lz4; exception when feature_not_supported then end $$
"""


@pytest.mark.parametrize(
    ("options", "kind", "value", "word"),
    [
        (WIN1252, "text", "chr(129)", "UTF-8"),
        (EUC_JP, "text", "convert_from('\\xa9a1'::bytea, 'EUC_JP')", "UTF-8"),
        ("", "bytea", LARGE, "1 GB"),
    ],
    ids=["win1252", "euc_jp", "too_large"],
)
def test_a_row_that_cannot_be_sent(pg, program, tmp_path, options, kind, value, word):
    database = pg.database("unsendable", options=options)
    for table in (BAD, FINE):
        pg.execute(
            database,
            f"create table {table} (id int primary key, v {kind}, w text);"
            f"insert into {table} select g, 'v', 'é' || g from generate_series(1, 20) g;",
        )
    pg.execute(database, COMPRESSED)
    pg.execute(database, f"update bad set v = {value} where id = 3")
    settings = {"schema.include.list": "public", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "unsendable.properties", pg.properties(database, **settings))

    def differs(*tables):
        return [one.table for one in difference(file, list(tables))]

    # First snapshot: the table is paused, the other one is read and streamed.
    done = program.stream(file)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "Traceback" not in said, said[-3000:]
    assert "public.bad is paused: The server cannot send a row of public.bad" in said and word in said, said[-3000:]
    pg.execute(database, "insert into fine values (100, 'new', 'é')")
    assert program.stream(file).returncode == 1
    assert differs(FINE) == [] and list(program.paused(file)) == [str(BAD)]
    done = program.run("replay", file, str(BAD))
    assert done.returncode == 1 and word in done.stderr, done.stderr[-3000:]
    pg.execute(database, "delete from bad where id = 3")
    done = program.run("replay", file, str(BAD))
    assert done.returncode == 0, done.stderr[-3000:]
    assert program.stream(file).returncode == 0
    assert differs(BAD, FINE) == []

    # In the stream: the error names the place and a remedy that works.
    pg.execute(database, f"insert into bad values (5000, {value}, 'w')")
    pg.execute(database, "insert into fine values (200, 'new', 'é')")
    for _ in range(2):
        done = program.stream(file)
        assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr[-3000:]
        assert "cannot send a change" in done.stderr and word in done.stderr and "LSN" in done.stderr, done.stderr
    pg.execute(database, "delete from bad where id = 5000")
    pg.execute(database, f"select pg_drop_replication_slot('{database}')")
    done = program.run("snapshot", file)
    assert done.returncode == 0, done.stderr[-3000:]
    pg.execute(database, "insert into bad values (300, 'new', 'é')")
    assert program.stream(file).returncode == 0
    assert differs(BAD, FINE) == []
