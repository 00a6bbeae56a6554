"""A run against a physical standby, which is promoted while it streams."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import pytest

from cdc_core.config.connector import load
from cdc_core.postgres.rows.chunks import ChunkConnection
from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.program import Program
from tests.support.standby import caught_up, logging_snapshots, servers
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ORDERS = TableId("public", "orders")


def test_a_standby_is_captured_and_promoted_while_streaming(program: Program, tmp_path: Path) -> None:
    with servers() as (primary, standby):
        database = primary.database("standby")
        primary.execute(database, "create table orders (id int primary key, v text)")
        primary.execute(database, "insert into orders select g, 'first' from generate_series(1, 100) g")
        caught_up(primary, standby)
        settings = {"publication.autocreate.mode": "filtered", "table.include.list": "public.orders"}
        file = write_properties(
            tmp_path / "standby.properties",
            standby.properties(database, **settings, **lake_settings(tmp_path)),
        )
        # What only the primary can make is said before anything is made, by the check and by the run.
        for done in (program.run("check", file), program.stream(file)):
            said = " ".join((done.stdout + done.stderr).split())
            assert done.returncode == 1, said
            assert "standby" in said and "on the primary" in said, said
        primary.execute(database, f"create publication {database} for table orders")
        caught_up(primary, standby)
        checked = program.run("check", file)
        assert checked.returncode == 0, checked.stdout

        with logging_snapshots(primary):  # a slot is made on a standby where the primary tells what runs
            first = program.run("snapshot", file)
        assert first.returncode == 0, first.stdout + first.stderr
        # A transaction that is open while the table is read: the standby does not list it in the snapshot's text.
        with primary.connect(database) as early:
            early.autocommit = False
            early.execute("update orders set v = 'open' where id in (90, 91); delete from orders where id = 92")
            (xid,) = early.execute("select pg_current_xact_id()::text::bigint").fetchone()
            primary.execute(database, "update orders set v = 'between' where id = 93")
            caught_up(primary, standby)
            with closing(ChunkConnection(load(file).postgres)) as reading:
                visible = reading.read().visibility
            assert visible.running == (xid,) and xid < visible.xmax
            again = program.run("snapshot", file)
            assert again.returncode == 0, again.stdout + again.stderr
            early.commit()
        caught_up(primary, standby)
        with program.started("run", file, "--max-seconds", "1500") as run:
            wait_until(lambda: difference(file, [ORDERS]) == [], 90, "what was open while the table was read")
            primary.execute(database, "update orders set v = 'second' where id < 50; delete from orders where id = 70")
            primary.execute(database, "insert into orders select g, 'second' from generate_series(200, 300) g")
            caught_up(primary, standby)
            wait_until(lambda: difference(file, [ORDERS]) == [], 90, "changes of the primary")
            primary.halt()
            standby.execute("postgres", "select pg_promote()")
            standby.execute(database, "update orders set v = 'third' where id < 30; insert into orders values (500)")
            wait_until(lambda: difference(file, [ORDERS]) == [], 90, "changes after the promotion")
            standby.execute(database, "delete from orders where id = 500")
            assert run.end(signal.SIGINT) == 0, run.said()[-3000:]
        done = program.stream(file)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        assert difference(file, [ORDERS]) == []
        assert "snapshot" not in done.stdout, "read again, though the history covers the position"
