"""Tables whose delete mode needs a key, and that lose it while they are streamed: paused until they have one again."""

import signal

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import changelog_path, lake_path, lake_settings, rows, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

KEPT, PAST, PLAIN = (TableId("public", name) for name in ("kept", "past", "plain"))
LIVE = {KEPT: "where not __deleted", PAST: "where __current", PLAIN: ""}
SCHEMA = "".join(
    f"create table {table} (id int primary key, n int); insert into {table} select g, g from generate_series(1, 5) g;"
    f"alter table {table} replica identity full;"
    for table in LIVE
)
DROPPED = "".join(f"alter table {table} drop constraint {table.table}_pkey;" for table in LIVE)
CHANGES = "".join(
    f"update {table} set n = n + 10 where id = 1; delete from {table} where id = 2; insert into {table} values (6, 6);"
    for table in LIVE
)
ADDED = "".join(f"alter table {table} add primary key (id);" for table in (KEPT, PAST))


def test_a_table_that_loses_its_key_is_paused_until_it_has_one_again(pg, program, tmp_path):
    database = pg.database("missing_key")
    pg.execute(database, SCHEMA)
    settings = {
        "schema.include.list": "public",
        **lake_settings(tmp_path),
        "wal2lake.lake.delete.mode.soft": str(KEPT),
        "wal2lake.lake.delete.mode.history": str(PAST),
    }
    file = write_properties(tmp_path / "missing.properties", pg.properties(database, **settings))
    config = load(file)

    def equal_tables():
        """The tables whose rows in force are those of the source."""
        found = set()
        for table, live in LIVE.items():
            lake = rows(lake_path(config, table), f"select id, n from t {live} order by id, n")
            source = pg.execute(database, f"select id, n from {table} order by id, n")
            found |= {table} if [tuple(row.values()) for row in lake] == source else set()
        return found

    with program.started("run", file, "--max-seconds", "1500") as running:
        running.wait_for("snapshot: 15 rows of 3 tables")
        pg.execute(database, CHANGES)
        wait_until(lambda: equal_tables() == set(LIVE), 90, "the changes in the lake")
        pg.execute(database, DROPPED + CHANGES)
        for table in (KEPT, PAST):
            running.wait_for(f"{table} is paused: {table} has no key")
        wait_until(lambda: equal_tables() == {PLAIN}, 90, "the changes of the table that goes on")
        assert running.end(signal.SIGINT) == 1, running.said()[-3000:]
        assert "Traceback" not in running.said()
    paused = program.paused(file)
    assert set(paused) == {str(KEPT), str(PAST)}
    for table, mode in ((KEPT, "soft"), (PAST, "history")):
        found = paused[str(table)]
        assert found["reason"] == f"{table} has no key, and delete mode {mode} identifies rows by their key."
        assert found["remedy"].endswith(f"then run wal2lake snapshot with {table}.")
        assert len(rows(changelog_path(config, table))) == 5  # the row with id 2 was deleted once
    # The other tables continue in later runs, too, and a re-read of these two is refused.
    pg.execute(database, f"update {PLAIN} set n = n + 1")
    done = program.stream(file)
    assert done.returncode == 1 and "is not merged" in done.stdout + done.stderr, done.stderr[-3000:]
    assert equal_tables() == {PLAIN} and set(program.paused(file)) == {str(KEPT), str(PAST)}
    done = program.run("snapshot", file, str(KEPT))
    assert done.returncode == 1 and f"{KEPT} has no key" in done.stderr, done.stderr[-3000:]
    pg.execute(database, "delete from kept where id = 6; delete from past where id = 6;" + ADDED)
    done = program.run("snapshot", file, str(KEPT), str(PAST))
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    pg.execute(database, CHANGES)
    done = program.stream(file)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert equal_tables() == set(LIVE) and program.paused(file) == {}
    # Lost while nothing runs.
    again = "".join(f"alter table {table} drop constraint {table.table}_pkey;" for table in (KEPT, PAST))
    pg.execute(database, again + CHANGES)
    done = program.stream(file)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr[-3000:]
    assert equal_tables() == {PLAIN} and set(program.paused(file)) == {str(KEPT), str(PAST)}
    pg.drop_database(database)
