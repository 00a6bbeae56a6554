"""A large transaction that is read while in progress: nothing is visible before its commit, whatever is killed."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest

from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, doubled_events, lake_settings, rows, write_properties
from tests.support.program import Program
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

LARGE, SMALL = TableId("public", "large"), TableId("public", "small")


def test_a_run_is_killed_in_the_middle_of_a_transaction(pg: Cluster, program: Program, tmp_path: Path) -> None:
    database = pg.database("in_progress")
    pg.execute(database, f"alter database {database} set logical_decoding_work_mem = '64kB'")
    pg.execute(database, "create table large (id int primary key, v text); create table small (id int primary key)")
    settings = {"wal2lake.streaming.transactions": "on", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "in_progress.properties", pg.properties(database, **settings))
    lake = tmp_path / "lake" / "test" / "public"
    assert program.stream(file).returncode == 0

    def streamed() -> int:
        found = pg.execute(
            database, "select stream_bytes from pg_stat_replication_slots where slot_name = %s", [database]
        )
        return int(found[0][0]) if found else 0

    def beside(number: int) -> None:
        """A small transaction, which is in the lake while the large one goes on."""
        pg.execute(database, f"insert into small values ({number})")
        wait_until(lambda: len(rows(lake / "small")) == number, 90, "the small transaction")
        assert rows(lake / "large") == []

    with contextlib.closing(pg.connect(database)) as large:
        large.execute("begin")
        large.execute("insert into large select g, repeat(md5(g::text), 4) from generate_series(1, 20000) g")
        with program.started("run", file, "--max-seconds", "1500") as run:
            beside(1)
            wait_until(lambda: streamed() > 1_000_000, 60, "the large transaction to be sent")
            run.end(signal.SIGKILL)
        large.execute("savepoint s; insert into large select g, 'lost' from generate_series(30000, 50000) g")
        with program.started("run", file, "--max-seconds", "1500") as run:
            beside(2)
            large.execute("rollback to s; alter table large add column more int default 7")
            large.execute("insert into large select g, 'new', g from generate_series(60000, 70000) g")
            large.execute("update large set v = 'changed' where id < 100")
            beside(3)
            large.execute("commit")
            beside_after = "insert into small values (4)"
            pg.execute(database, beside_after)
            wait_until(lambda: len(rows(lake / "small")) == 4, 90, "the last small transaction")
            wait_until(lambda: difference(file, [LARGE]) == [], 90, "the large transaction")
            assert run.end(signal.SIGINT) == 0
    assert difference(file, [LARGE, SMALL]) == []

    # What exceeds the limit is said, and read after its commit.
    limited = {**settings, "wal2lake.streaming.transactions.max.bytes": "300000"}
    file = write_properties(tmp_path / "in_progress.properties", pg.properties(database, **limited))
    with (
        contextlib.closing(pg.connect(database)) as large,
        program.started("run", file, "--max-seconds", "1500") as run,
    ):
        run.wait_for("streaming", 90)
        large.execute("begin; update large set v = repeat(v, 2); delete from large where id between 500 and 600")
        run.wait_for("Until this run ends, each transaction is read after its commit.", 90)
        pg.execute(database, "insert into small values (5)")
        wait_until(lambda: len(rows(lake / "small")) == 5, 90, "the small transaction")
        large.execute("commit")
        wait_until(lambda: difference(file, [LARGE]) == [], 90, "the large transaction")
        assert run.end(signal.SIGINT) == 0, run.said()[-3000:]
    assert difference(file, [LARGE, SMALL]) == []
    assert doubled_events(file, LARGE) == 0
    assert doubled_events(file, SMALL) == 0
    pg.drop_database(database)
