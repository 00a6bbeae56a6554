"""One transaction that is larger than a batch: cut, killed in between, and still there once, whole and in order."""

import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import changelog_path, difference, lake_settings, rows, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

NOTES, LINES, KEYLESS = TableId("public", "notes"), TableId("public", "lines"), TableId("public", "keyless")
TABLES = [NOTES, LINES, KEYLESS]

SCHEMA = """
create table notes (id int primary key, title text, body text);
alter table notes alter column body set storage external;
create table lines (a int, b text, v int, primary key (a, b));
create table keyless (v int, what text);
alter table keyless replica identity full;
insert into notes select g, 'note ' || g, repeat(md5(g::text), 100) from generate_series(1, 60) g;
insert into lines select g, 'k' || g, g from generate_series(1, 30) g;
insert into keyless select g % 5, 'thing' from generate_series(1, 30) g;
"""
# Some 300 messages of three tables, mixed: large texts left alone, keys that move and come back, rows that are alike in
# a table without a key, a truncate in the middle.
LARGE = """
begin;
insert into notes select {r} * 1000 + g, 'new', repeat(md5(g::text), 100) from generate_series(1, 40) g;
update notes set title = 'large {r}' where id % 2 = 0;
insert into keyless select g % 5, 'thing' from generate_series(1, 20) g;
update notes set id = id + 500000 where id between {r} * 1000 + 1 and {r} * 1000 + 20;
update keyless set v = v + 1 where v = {r};
insert into lines select 100 + g, 'before', g from generate_series(1, 20) g;
truncate lines;
insert into lines select g, 'after {r}', g from generate_series(1, 20) g;
delete from notes where id % 7 = {r};
delete from keyless where ctid in (select ctid from keyless where v = 4 limit 3);
update notes set id = id - 500000, title = 'back' where id between 500000 + {r} * 1000 and 500000 + {r} * 1000 + 5;
commit;
insert into keyless values (1, 'after the large one');
"""
# Hits in the tasks are counted by worker.
STEPS = [f"{failpoints.AFTER_SPOOL}:2", f"{failpoints.BETWEEN_APPENDS}:2", f"{failpoints.BEFORE_CONFIRM}"]


def test_a_transaction_larger_than_a_batch_survives_a_kill_in_its_middle(pg, program, tmp_path):
    database = pg.database("large")
    pg.execute(database, SCHEMA)
    extra = {
        "schema.include.list": "public",
        **lake_settings(tmp_path),
    }

    def properties(rows_a_batch):
        settings = pg.properties(database, **extra, **{"wal2lake.batch.max.rows": rows_a_batch})
        return write_properties(tmp_path / "large.properties", settings)

    done = program.stream(properties(90))
    assert done.returncode == 0, done.stderr[-3000:]
    pg.execute(database, "select pg_create_logical_replication_slot('witness_of_large', 'pgoutput')")
    # Every run cuts at other places than the one before.
    for number, (step, size) in enumerate(zip(STEPS, (90, 130, 110), strict=True), 1):
        pg.execute(database, LARGE.format(r=number))
        program.killed_at(step, properties(size))
    file = properties(100)
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert difference(file, TABLES) == []
    assert events_in_the_changelogs(file) == events_of_the_witness(pg, database)


def events_in_the_changelogs(file):
    """Operation → rows, over all tables; each position once."""
    config, found = load(file), {}
    for table in TABLES:
        path = changelog_path(config, table)
        for row in rows(path, 'select "__op" as op, count(*) as n from t group by "__op"'):
            found[row["op"]] = found.get(row["op"], 0) + row["n"]
        (twice,) = rows(path, 'select count(*) - count(distinct ("__commit_lsn", "__tx_index")) as n from t')
        assert twice["n"] == 0, table
    return found


def events_of_the_witness(pg, database):
    """The same, counted by the server from a slot that nobody reads."""
    counted = pg.execute(
        database,
        "select chr(get_byte(data, 0)), count(*) from pg_logical_slot_peek_binary_changes("
        f"'witness_of_large', null, null, 'proto_version', '1', 'publication_names', '{database}') group by 1",
    )
    names = {"I": "c", "U": "u", "D": "d", "T": "t"}
    return {names[kind]: number for kind, number in counted if kind in names}
