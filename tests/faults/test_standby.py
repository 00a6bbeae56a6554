"""A run against a physical standby, which is promoted while it streams."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from cdc_core.config.connector import load
from cdc_core.postgres.rows.chunks import ChunkConnection
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.program import Program
from tests.support.waits import repeated, wait_until

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
        with program.started("run", file, "--max-seconds", "480") as run:
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


@contextmanager
def servers() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary and its standby."""
    primary = Cluster.start("embedded18", {"wal_keep_size": "1GB"})
    standby: Cluster | None = None
    try:
        primary.execute("postgres", "select pg_create_physical_replication_slot('of_standby', true)")
        primary.halt()
        folder = primary.sockets / "standby"
        shutil.copytree(primary.data, folder)
        owner = primary.data.stat()
        for path in [folder, *folder.rglob("*")]:
            shutil.chown(path, owner.st_uid, owner.st_gid)
        for slot in (folder / "pg_replslot").iterdir():
            shutil.rmtree(slot)
        (folder / "standby.signal").touch()
        shutil.chown(folder / "standby.signal", owner.st_uid, owner.st_gid)
        primary.restart()
        follows = {
            "primary_conninfo": f"host={primary.sockets} port={primary.port} user={primary.user} dbname=postgres",
            "primary_slot_name": "of_standby",
            "hot_standby_feedback": "on",
            "wal_receiver_status_interval": "1s",
        }
        standby = Cluster.start("embedded18", follows, folder)
        yield primary, standby
    finally:
        if standby is not None:
            standby.stop()
        primary.stop()


def caught_up(primary: Cluster, standby: Cluster) -> None:
    """Wait until the standby shows what the primary has now."""
    end = primary.execute("postgres", "select pg_current_wal_lsn()")[0][0]
    wait_until(
        lambda: standby.execute("postgres", "select pg_last_wal_replay_lsn() >= %s::pg_lsn", [end])[0][0], 60, "replay"
    )


def logging_snapshots(primary: Cluster) -> AbstractContextManager[None]:
    """Let the primary write what runs into its WAL, as it does every 15 seconds while it is busy."""
    return repeated(lambda: primary.execute("postgres", "select pg_log_standby_snapshot()"), 0.3)
