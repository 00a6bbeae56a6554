"""What is done to server and slot behind a lake's back is found, with a remedy that works, or changes nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc_core import failpoints
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.processes import state
from tests.support.program import Program
from tests.support.waits import repeated, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ORDERS, NOTES = TableId("public", "orders"), TableId("public", "notes")
TABLES = [ORDERS, NOTES]
SCHEMA = """
create table orders (id int primary key, v text);
create table notes (id int primary key, v text);
insert into orders select g, 'first' from generate_series(1, 20) g;
insert into notes select g, 'first' from generate_series(1, 20) g;
"""


class Shop:
    """One connector: its server and file may change, its lake stays."""

    def __init__(self, program: Program, folder: Path, pg: Cluster, name: str = "continuity") -> None:
        self.program, self.folder, self.pg = program, folder, pg
        folder.mkdir(parents=True, exist_ok=True)
        self.database = pg.database(name)
        self.slot = self.database
        self._row = 100
        pg.execute(self.database, SCHEMA)

    def file(self, **more: Any) -> Path:
        named = {
            "slot.name": self.slot,
            "publication.name": self.slot,
            "table.include.list": "public.orders,public.notes",
        }
        settings = self.pg.properties(self.database, **{**named, **lake_settings(self.folder), **more})
        return write_properties(self.folder / "connector.properties", settings)

    def change(self) -> None:
        """Inserts, updates and deletes in both tables."""
        self._row += 1
        for table in TABLES:
            self.pg.execute(
                self.database,
                f"insert into {table.table} values ({self._row}, 'new'); "
                f"update {table.table} set v = v || '.' where id < 5 or id > 100; "
                f"delete from {table.table} where id = {self._row - 90}",
            )

    def run(self, failpoint: str | None = None, **more: Any) -> Any:
        return self.program.stream(self.file(**more), failpoint)

    def runs(self, **more: Any) -> None:
        """A run that ends well, with a lake that is equal."""
        done = self.run(**more)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        assert self.differs() == []

    def refused(self, *texts: str, **more: Any) -> None:
        """A run that ends with an error, with each of these texts in it."""
        done = self.run(**more)
        said = done.stdout + done.stderr
        assert done.returncode != 0, said
        for text in texts:
            assert text in " ".join(said.split()), said[-3000:]

    def refused_and_told(self, *texts: str, **more: Any) -> None:
        """The same, and status says it, too."""
        self.refused(*texts, **more)
        assert self.status(**more)["stream"]["mismatch"], "status does not show it"

    def change_and_run(self, **more: Any) -> dict[str, Any]:
        """Changes and a run after which the next one would go on: status has the same judgement. Its stream."""
        self.change()
        self.runs(**more)
        stream: dict[str, Any] = self.status(**more)["stream"]
        assert stream["mismatch"] == ""
        return stream

    def reread(self, **more: Any) -> dict[str, Any]:
        """The remedy: wal2lake snapshot, then ``change_and_run``."""
        done = self.program.run("snapshot", self.file(**more))
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        assert self.differs() == []
        return self.change_and_run(**more)

    def status(self, **more: Any) -> dict[str, Any]:
        done = self.program.run("status", self.file(**more), "--json")
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def differs(self) -> list[Any]:
        return difference(self.folder / "connector.properties", TABLES)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return self.pg.execute(self.database, text)

    def slot_at(self) -> str:
        return str(
            self.sql(f"select confirmed_flush_lsn from pg_replication_slots where slot_name = '{self.slot}'")[0][0]
        )

    def drop_slot(self) -> None:
        self.sql(f"select pg_drop_replication_slot('{self.slot}')")

    def make_slot(self) -> None:
        self.sql(f"select pg_create_logical_replication_slot('{self.slot}', 'pgoutput')")


def copied(source: Path, target: Path) -> Path:
    """A copy of a stopped server's data, as a backup holds it."""
    shutil.copytree(source, target, symlinks=True)
    owner = source.stat()
    for each in (target, *target.rglob("*")):
        os.chown(each, owner.st_uid, owner.st_gid, follow_symlinks=False)
    target.chmod(0o700)
    return target


def restored(backup: Path, server: Cluster) -> None:
    """Stop the server, and start it with the data of a backup."""
    server.halt()
    shutil.rmtree(server.data)
    copied(backup, server.data)
    server.restart()


@pytest.fixture
def own() -> Iterator[list[Cluster]]:
    """Servers of this test, stopped at its end."""
    found: list[Cluster] = []
    yield found
    for cluster in found:
        cluster.stop()


def test_slot_moved_by_somebody_else(pg: Cluster, program: Program, tmp_path: Path) -> None:
    shop = Shop(program, tmp_path, pg)
    shop.runs()

    # A copy at an older position in its place: everything after it is sent again, and recognised.
    shop.sql(f"select pg_copy_logical_replication_slot('{shop.slot}', '{shop.slot}_older')")
    stream = shop.change_and_run()
    assert (stream["slot"], stream["epoch"]) == (shop.slot, 0)
    shop.drop_slot()
    shop.sql(f"select pg_copy_logical_replication_slot('{shop.slot}_older', '{shop.slot}')")
    shop.runs()
    shop.sql(f"select pg_drop_replication_slot('{shop.slot}_older')")

    # Advanced past a change.
    shop.change()
    shop.sql(f"select pg_replication_slot_advance('{shop.slot}', pg_current_wal_lsn())")
    at = shop.slot_at()
    shop.refused_and_told(f"Slot {shop.slot} is at {at}", "wal2lake snapshot")
    done = program.run("snapshot", shop.file(), "public.orders")
    assert done.returncode != 0, "only one of two tables cannot be the remedy"
    assert shop.reread()["epoch"] == 1

    # Dropped, and made again by hand.
    shop.change()
    shop.drop_slot()
    shop.change()
    shop.make_slot()
    shop.change()
    shop.refused(f"Slot {shop.slot} is at", "wal2lake snapshot")
    shop.reread()


def test_killed_while_it_reads_again(pg: Cluster, program: Program, tmp_path: Path) -> None:
    shop = Shop(program, tmp_path, pg)
    shop.runs()
    # With a mode that reads again by itself.
    shop.change()
    shop.drop_slot()
    shop.change()
    shop.make_slot()
    for point in ("after-epoch-begun", "after-slot-recorded", "after-snapshot-commit"):
        program.killed_at(point, shop.file(**{"snapshot.mode": "when_needed"}))
        shop.change()
    shop.runs()


def test_two_connectors_with_one_slot_and_the_strategies(pg: Cluster, program: Program, tmp_path: Path) -> None:
    shop = Shop(program, tmp_path, pg)
    shop.runs()
    # Read by another connector with the same slot, run alternately.
    other = Shop(program, tmp_path / "other", pg, "unused")
    other.database, other.slot = shop.database, shop.slot
    other.runs()
    other.change()
    other.runs()
    shop.refused_and_told("read by another consumer", "Make sure that nothing else uses the slot")

    # What follows is about the strategies: the user's word is taken, and it is said.
    shop.refused("read by another consumer", **{"offset.mismatch.strategy": "trust_offset"})
    done = shop.run(**{"offset.mismatch.strategy": "trust_slot"})
    assert done.returncode == 0, done.stderr[-3000:]
    assert "missing" in shop.status()["stream"]["gap"]
    shop._row = other._row
    assert shop.reread()["gap"] == ""


def test_no_data_and_a_dropped_slot(pg: Cluster, program: Program, tmp_path: Path) -> None:
    shop, mode = Shop(program, tmp_path, pg), {"snapshot.mode": "no_data"}
    done = program.run("snapshot", shop.file())
    assert done.returncode == 0, done.stderr[-3000:]
    shop.change()
    shop.runs(**mode)
    shop.drop_slot()
    shop.change()
    shop.refused_and_told("no longer exists", "wal2lake snapshot", **mode)
    shop.reread(**mode)

    # A re-read that was killed half-way does not go on with old rows under a mode that reads nothing.
    shop.drop_slot()
    shop.change()
    killed = program.run("snapshot", shop.file(**mode), WAL2LAKE_FAILPOINT="after-slot-recorded")
    assert killed.returncode < 0
    shop.change()
    done = shop.run(**mode)
    assert done.returncode != 0
    assert "not read again" in done.stderr
    shop.reread(**mode)


def test_a_slot_that_is_dropped_before_its_snapshot(pg: Cluster, program: Program, tmp_path: Path) -> None:
    """As after a failover, whose standby does not have a new slot yet."""
    shop = Shop(program, tmp_path, pg)
    with program.started("run", shop.file(), WAL2LAKE_FAILPOINT="after-snapshot-commit:1:stop") as run:
        wait_until(lambda: state(run.process.pid) == "T", 120, "the snapshot's commit")
        shop.drop_slot()
        # Each table stops it once.
        with repeated(lambda: run.process.send_signal(signal.SIGCONT), 0.1):
            assert run.end() == 1
        assert "no longer exists, and lake tables depend on it" in run.said()
    shop.change()
    shop.reread()


def test_a_slot_that_is_confirmed_by_hand(pg: Cluster, program: Program, tmp_path: Path) -> None:
    shop = Shop(program, tmp_path, pg)
    shop.runs()
    # Manual confirmation: the slot may be advanced to what is recorded, not past it.
    manual = {"lsn.flush.mode": "manual"}
    shop.change()
    shop.runs(**manual)
    recorded = shop.status(**manual)["stream"]["confirmed"]
    shop.sql(f"select pg_replication_slot_advance('{shop.slot}', '{recorded}')")
    shop.change()
    shop.runs(**manual)
    shop.change()
    shop.sql(f"select pg_replication_slot_advance('{shop.slot}', pg_current_wal_lsn())")
    shop.refused(f"Slot {shop.slot} is at", **manual)
    shop.reread(**manual)


def test_an_older_lake_is_adopted(pg: Cluster, program: Program, tmp_path: Path) -> None:
    shop = Shop(program, tmp_path, pg)
    shop.runs()
    (record,) = (tmp_path / "lake").glob("*/__stream")
    shutil.rmtree(record)
    shop.change()
    done = shop.run()
    assert done.returncode == 0, done.stderr[-3000:]
    assert "no record of its stream" in done.stderr
    assert shop.differs() == []
    shop.change()
    shop.sql(f"select pg_replication_slot_advance('{shop.slot}', pg_current_wal_lsn())")
    shop.refused("is at")


def test_pointed_at_another_server_or_database_and_back(
    pg: Cluster, program: Program, tmp_path: Path, own: list[Cluster]
) -> None:
    pg.execute("postgres", "select pg_switch_wal()")  # far ahead of the other server
    shop = Shop(program, tmp_path, pg)
    shop.runs()
    first, there = shop.pg, Cluster.start("debian15")
    own.append(there)
    there.database(name=shop.database)
    there.execute(shop.database, SCHEMA)

    shop.pg = there
    shop.change()
    shop.refused_and_told("system identifier")
    # Back without the remedy: nothing happened.
    shop.pg = first
    shop.change()
    shop.runs()
    # There as an older lake, without a record: nothing names its server, but its positions are beyond the WAL there.
    (record,) = (tmp_path / "lake").glob("*/__stream")
    shutil.rmtree(record)
    shop.pg = there
    shop.refused("The server's WAL ends at")
    # With the remedy: the WAL of the new server is lower, and its changes arrive.
    shop.reread()
    # And back: the slot is still there, at a position of the lake's own past.
    shop.pg = first
    shop.change()
    shop.refused("system identifier")
    shop.reread()
    # The other one again, with a mode that reads by itself.
    shop.pg = there
    shop.change_and_run(**{"snapshot.mode": "when_needed"})


def test_another_database_and_another_slot(pg: Cluster, program: Program, tmp_path: Path) -> None:
    shop = Shop(program, tmp_path, pg)
    shop.runs()
    # Of the same server, with a slot of its own.
    first_name, first_slot = shop.database, shop.slot
    shop.database = pg.database("elsewhere")
    pg.execute(shop.database, SCHEMA)
    shop.slot = shop.database
    shop.refused_and_told("OID")
    shop.database, shop.slot = first_name, first_slot
    pg.execute("postgres", f'alter database "{shop.database}" rename to "renamed_{shop.slot}"')
    shop.database = f"renamed_{shop.slot}"[:60]
    pg.made.append(shop.database)  # so that its slots are dropped
    shop.change()
    shop.runs()
    # slot.name changed: everything is read again, as before.
    shop.slot = f"{shop.slot}_other"
    shop.change()
    shop.runs()
    shop.change()
    shop.runs()


def test_a_restored_backup(program: Program, tmp_path: Path, own: list[Cluster]) -> None:
    server = Cluster.start("debian15")
    own.append(server)
    shop = Shop(program, tmp_path / "shop", server)
    shop.runs()
    server.halt()
    backup = copied(server.data, server.sockets / "backup")
    server.restart()
    for _ in range(3):
        shop.change()
    shop.runs()

    # Restored with the slot in it: the WAL ends below what the lake holds.
    restored(backup, server)
    shop.refused_and_told("restored from a backup")
    # It grows past that: other transactions are where the lake's were.
    for _ in range(3):
        shop.change()
        shop.sql("select pg_switch_wal()")
    shop.refused_and_told("did not send the transaction")
    shop.refused("did not send the transaction")
    shop.reread()
    shop.change()
    shop.runs()

    # Once more, and no transaction comes: the end of the WAL passes the lake's position in silence.
    restored(backup, server)
    for _ in range(5):
        shop.sql("create table if not exists other (id int); insert into other values (1)")
        shop.sql("select pg_switch_wal()")
    shop.refused("did not send the transaction")
    shop.runs(**{"snapshot.mode": "when_needed"})

    # What was captured last is in a changelog, but not in the record, which the backup continues.
    server.halt()
    later = copied(server.data, server.sockets / "later")
    server.restart()
    shop.change()
    program.killed_at(failpoints.BEFORE_CONFIRM, shop.file())
    restored(later, server)
    for _ in range(3):
        shop.change()
        shop.sql("select pg_switch_wal()")
    shop.refused("did not send the transaction")
    shop.runs(**{"snapshot.mode": "when_needed"})


def test_a_promoted_standby(program: Program, tmp_path: Path, own: list[Cluster]) -> None:
    first = Cluster.start("embedded18", {"wal_keep_size": "1GB"})
    own.append(first)
    shop, failover = Shop(program, tmp_path / "shop", first), {"slot.failover": "true"}
    shop.runs(**failover)
    first.execute("postgres", "select pg_create_physical_replication_slot('of_standby', true)")
    first.halt()
    folders = [copied(first.data, first.sockets / name) for name in ("standby", "left_behind")]
    first.restart()
    follows = {
        "primary_conninfo": f"host={first.sockets} port={first.port} user={first.user} dbname=postgres",
        "primary_slot_name": "of_standby",
        "hot_standby_feedback": "on",
        "sync_replication_slots": "on",
    }
    for folder in folders:
        for slot in (folder / "pg_replslot").iterdir():
            shutil.rmtree(slot)
        (folder / "standby.signal").touch()
    standby = Cluster.start("embedded18", follows, folders[0])
    own.append(standby)

    find = "select 1 from pg_replication_slots where slot_name = %s and synced and not temporary"
    for _ in range(5):
        # A synchronized slot is kept once the primary's has passed the position at which the standby began it.
        first.execute("postgres", "select pg_log_standby_snapshot()")
        shop.change()
        shop.runs(**failover)
        with contextlib.suppress(AssertionError):
            wait_until(lambda: standby.execute("postgres", find, [shop.slot]), 4, "a synchronized slot", 0.2)
            break
    assert standby.execute("postgres", find, [shop.slot]), standby.log()[-2000:]
    both = {"database.hostname": f"{first.host}:{first.port},{standby.host}:{standby.port}", **failover}
    with program.started("run", shop.file(**both), "--max-seconds", "1500") as run:
        run.wait_for("streaming")
        shop.change()
        wait_until(lambda: shop.differs() == [], 90, "the changes of the first server")
        end = first.execute("postgres", "select pg_current_wal_lsn()")[0][0]
        passed = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(lambda: standby.execute("postgres", passed, [end])[0][0], 60, "replay")
        first.halt()
        run.wait_for("Waiting, and trying again", 90)
        standby.execute("postgres", "select pg_promote()")
        shop.pg = standby
        shop.change()
        run.wait_for("Running again after", 90)
        wait_until(lambda: shop.differs() == [], 90, "the changes of the promoted server")
        assert run.end(signal.SIGINT) == 0, run.said()[-3000:]
        assert "re-read" not in run.said() and "snapshot:" not in run.said()
    stream = shop.status()["stream"]
    assert (stream["timeline"], stream["epoch"]) == (2, 0), "read again, though the history covers the position"

    # The former primary lacks what came since, and the lake says so; at the new one the next run goes on.
    first.restart()
    shop.pg = first
    shop.refused_and_told("timeline")
    shop.pg = standby
    shop.change()
    shop.runs(**failover)

    # A standby that was promoted before what the lake holds has another history.
    behind = Cluster.start("embedded18", {}, folders[1])
    own.append(behind)
    behind.execute("postgres", "select pg_promote()")
    shop.pg = behind
    for _ in range(3):
        shop.change()
        shop.sql("select pg_switch_wal()")
    shop.make_slot()
    shop.refused_and_told("timeline", "differs at")
    shop.reread()
