"""A blocking snapshot of which one table cannot be read, and chunks by a column that repeats: what is read is whole."""

import json
import signal

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_path, lake_settings, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

GOOD, BAD, PIECES = (TableId("public", name) for name in ("good", "bad", "pieces"))
SCHEMA = """
create table good (id int primary key, n int); insert into good select g, g from generate_series(1, 50) g;
create table bad (id int primary key, n int); insert into bad select g, g from generate_series(1, 50) g;
create table pieces (id int primary key, s int, n int);
insert into pieces select g, case when g % 4 > 0 then g % 4 end, g from generate_series(1, 500) g;
create table signals (id text, type text, data text);
"""


def test_tables_beside_one_that_cannot_be_read_are_read_and_merged(pg, program, tmp_path):
    database = pg.database("blocking")
    pg.execute(database, SCHEMA)
    settings = {
        "schema.include.list": "public",
        "snapshot.mode": "no_data",
        "snapshot.select.statement.overrides": "public.bad",
        "snapshot.select.statement.overrides.public.bad": "select * from public.bad where 1 / (id - 3) < 2",
        "signal.data.collection": "public.signals",
        "incremental.snapshot.chunk.size": "20",
        "notification.enabled.channels": "log",
        **lake_settings(tmp_path),
    }
    file = write_properties(tmp_path / "blocking.properties", pg.properties(database, **settings))
    config = load(file)

    def ask(**data):
        signal_row = [json.dumps({key.replace("_", "-"): value for key, value in data.items()})]
        pg.execute(database, "insert into signals values (gen_random_uuid(), 'execute-snapshot', %s)", signal_row)

    def is_equal(table):
        return lake_path(config, table).exists() and difference(file, [table]) == []

    assert program.stream(file).returncode == 0  # makes the slot, which then has the signals
    with program.started("run", file, "--max-seconds", "1500") as running:
        ask(data_collections=["public.good", "public.bad"], type="blocking")
        running.wait_for("public.bad was not read by a blocking snapshot")
        wait_until(lambda: is_equal(GOOD), 60, "the table that could be read")
        # Changes after it, in the same run.
        pg.execute(database, "update good set n = n + 1 where id < 20; delete from good where id > 40")
        wait_until(lambda: is_equal(GOOD), 60, "changes after the snapshot")
        ask(data_collections=["public.pieces"], surrogate_key="s")
        # Rows that move to what has been read, and from it.
        pg.execute(
            database, "update pieces set s = 0, n = -n where id % 7 = 0; update pieces set s = 9 where id % 11 = 0"
        )
        wait_until(lambda: is_equal(PIECES), 90, "every row, whatever its surrogate key")
        assert running.end(signal.SIGINT) == 0, running.said()[-3000:]
        said = running.said()
    assert "Traceback" not in said
    for table, status in ((GOOD, "SUCCEEDED"), (BAD, "SQL_EXCEPTION")):
        assert any(f"scanned_collection={table}" in line and f"status={status}" in line for line in said.split("\n")), (
            said
        )
    assert "Blocking Snapshot ABORTED" in said and "Blocking Snapshot COMPLETED" not in said
    pg.drop_database(database)
