"""Tables that are merged less often than others: within their own time, never lost, and readable at one LSN."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import wal2lake
from cdc_core.config.connector import ConnectorConfig, load
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, difference, lake_path, lake_settings, rows, write_properties
from tests.support.program import Program
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ORDERS, ARCHIVE = TableId("public", "orders"), TableId("public", "archive")
SCHEMA = """
create table orders (id int primary key, n int);
create table archive (id int primary key, n int);
insert into orders values (1, 0);
insert into archive values (1, 0);
"""
LONGER_THAN_THE_TEST = 86_400


class Shop:
    """Two tables whose row has the number of the last transaction."""

    def __init__(self, pg: Cluster, folder: Path) -> None:
        self.pg, self.database = pg, pg.database("apart")
        pg.execute(self.database, SCHEMA)
        self.signals = folder / "signals"
        more = {
            "schema.include.list": "public",
            **lake_settings(folder),
            "wal2lake.freshness.seconds": "0.2",
            f"wal2lake.freshness.seconds.{LONGER_THAN_THE_TEST}": r"public\.arch.*",
            "signal.enabled.channels": "file",
            "signal.file": str(self.signals),
            "signal.poll.interval.ms": "200",
        }
        self.file = write_properties(folder / "apart.properties", pg.properties(self.database, **more))
        self.config: ConnectorConfig = load(self.file)
        self.number = 0

    def change(self) -> Lsn:
        """Commit the next number to both tables; the end of the WAL after it."""
        self.number += 1
        sql = "; ".join(f"update {table} set n = {self.number}" for table in ("archive", "orders"))
        self.pg.execute(self.database, f"begin; {sql}; commit")
        return Lsn.parse(self.pg.execute(self.database, "select pg_current_wal_insert_lsn()::text")[0][0])

    def shown(self, table: TableId) -> Any:
        """The number in a lake table."""
        return rows(lake_path(self.config, table), "select n from t")[0]["n"]

    def is_appended(self) -> bool:
        """Whether the archive's changelog has the last number."""
        newest = rows(changelog_path(self.config, ARCHIVE), "select max(after['n']) as n from t")[0]["n"]
        return bool(newest == self.number)

    def is_confirmed(self, lsn: Lsn) -> bool:
        """Whether the server may forget everything up to ``lsn``."""
        sql = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where database = %s"
        return bool(self.pg.execute("postgres", sql, [str(lsn), self.database])[0][0])

    def leave_behind(self) -> Lsn:
        """Merge one transaction into both tables, and the next ones into the orders only."""
        self.change()
        wait_until(lambda: self.shown(ORDERS) == self.shown(ARCHIVE) == self.number, 90, "both tables")
        merged = self.number
        for _ in range(3):
            end = self.change()
            wait_until(lambda: self.shown(ORDERS) == self.number, 90, "the orders")
        wait_until(self.is_appended, 60, "the archive's changelog")
        assert self.shown(ARCHIVE) == merged
        return end


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_a_table_is_merged_within_its_own_time(pg: Cluster, program: Program, tmp_path: Path, sign: int) -> None:
    shop = Shop(pg, tmp_path)
    with program.started("run", shop.file) as running:
        running.wait_for("streaming")
        end = shop.leave_behind()
        # The server need not wait for the merge: the changes are in the changelog.
        wait_until(lambda: shop.is_confirmed(end), 60, "the confirmation")
        merged = shop.shown(ARCHIVE)
        both = wal2lake.read(shop.file, str(ARCHIVE), str(ORDERS))
        assert [both[str(table)].arrow()["n"].to_pylist() for table in (ARCHIVE, ORDERS)] == [[merged], [merged]]
        assert wal2lake.read(shop.file, str(ORDERS))[str(ORDERS)].arrow()["n"].to_pylist() == [shop.number]
        compared = program.run("reconcile", shop.file, own_java=True)
        assert compared.returncode == 0, compared.stdout + compared.stderr
        assert shop.shown(ARCHIVE) == merged
        running.end(sign)
    assert shop.shown(ARCHIVE) == merged
    assert program.stream(shop.file).returncode == 0
    assert difference(shop.file, [ARCHIVE, ORDERS]) == []


def test_a_run_that_ends_by_itself_merges_what_is_outstanding(pg: Cluster, program: Program, tmp_path: Path) -> None:
    shop = Shop(pg, tmp_path)
    assert program.stream(shop.file).returncode == 0
    # Beyond what this test writes, and before the second of two switches of the WAL's segment.
    until = Lsn(pg_end(shop) + (17 << 20))
    with program.started("run", shop.file, "--until-lsn", str(until)) as running:
        shop.leave_behind()
        for _ in range(2):
            pg.execute(shop.database, "select pg_switch_wal()")
            shop.change()
        assert running.end() == 0, running.said()
    assert difference(shop.file, [ARCHIVE, ORDERS]) == []


def test_a_snapshot_that_is_requested_does_not_wait_for_the_tables_time(
    pg: Cluster, program: Program, tmp_path: Path
) -> None:
    shop = Shop(pg, tmp_path)
    with program.started("run", shop.file) as running:
        running.wait_for("streaming")
        shop.leave_behind()
        request = {"id": "a", "type": "execute-snapshot", "data": {"data-collections": [str(ARCHIVE)]}}
        shop.signals.write_text(f"{json.dumps(request)}\n")
        wait_until(lambda: shop.shown(ARCHIVE) == shop.number, 90, "the archive")
        running.end(signal.SIGINT)


def pg_end(shop: Shop) -> int:
    return int(Lsn.parse(shop.pg.execute(shop.database, "select pg_current_wal_insert_lsn()::text")[0][0]))
