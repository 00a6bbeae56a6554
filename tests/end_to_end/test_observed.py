"""Notifications in the lake and metrics for Prometheus, of a run as a user starts it."""

import json
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cdc_core.config.connector import load
from cdc_core.demo.processes import free_port
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from tests.support import promql
from tests.support.lake import difference, lake_settings, rows, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
ORDERS = TableId("public", "orders")
QUARANTINED = ("wal2lake_quarantined_rows", None, "public.orders")
SCHEMA = """
create table orders (id int primary key, note text);
create table empty (id int primary key);
create table elsewhere (id int primary key);
create publication observed_all for all tables;
insert into orders select g, 'order ' || g from generate_series(1, 100) g;
"""


def page(port):
    """The page that Prometheus scrapes."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def scraped(port):
    """(name without prefix, context, table) → value, as Prometheus reads it."""
    return {
        (one.name.removeprefix("debezium_metrics_"), one.labels.get("context"), one.labels.get("table")): one.value
        for family in text_string_to_metric_families(page(port))
        for one in family.samples
        if one.labels["env"] == "prod"
    }


def kinds_told(path):
    """What each notification is about, and what it tells of that."""
    return [(one["aggregate_type"].split()[0], one["type"]) for one in rows(path)]


def test_a_run_reports_its_snapshots_and_its_stream(pg, program, tmp_path):
    database, port = pg.database("observed"), free_port()
    pg.execute(database, SCHEMA)
    more = {
        "table.include.list": "public.orders,public.empty",
        "publication.name": "observed_all",
        "custom.metric.tags": "env=prod",
        "message.prefix.include.list": "order",
        "wal2lake.quality.rule.short": "public.orders: length(after.note) < 20",
        "notification.enabled.channels": "sink",
        "wal2lake.metrics.port": str(port),
        **lake_settings(tmp_path),
    }
    file = write_properties(tmp_path / "observed.properties", pg.properties(database, **more))
    told = tmp_path / "lake" / load(file).schema.topic_prefix / "__notifications"
    with program.started("run", file) as running:
        running.wait_for("snapshot: 100 rows of 2 tables", 150)
        pg.execute(
            database, "insert into orders values (200, 'streamed'), (201, 'too'); delete from orders where id = 1"
        )
        pg.execute(database, "insert into elsewhere values (1), (2)")
        pg.execute(database, "select pg_logical_emit_message(true, 'unwanted', '')")
        wait_until(lambda: difference(file, [ORDERS]) == [], 90, "the changes")
        # The lake shows a round's changes a moment before the round is counted.
        wait_until(lambda: scraped(port)["TotalNumberOfEventsSeen", "streaming", None] == 3, 30, "the count")
        found = scraped(port)
        assert found["Connected", "streaming", None] == 1
        assert found["SnapshotCompleted", "snapshot", None] == 1
        assert (found["TotalTableCount", "snapshot", None], found["RemainingTableCount", "snapshot", None]) == (2, 0)
        assert found["RowsScanned", "snapshot", "public.orders"] == 100
        wait_until(lambda: scraped(port)["NumberOfEventsFiltered", "streaming", None] == 3, 30, "what is not captured")
        found = scraped(port)
        assert (
            found["LastEvent", "streaming", "public.orders"]
            == found["MonitoredTables", "streaming", "public.empty"]
            == 1
        )
        assert found["NumberOfCommittedTransactions", "streaming", None] >= 2
        assert 0 < found["MilliSecondsBehindSource", "streaming", None] < 60_000
        assert found["QueueRemainingCapacity", "streaming", None] == found["QueueTotalCapacity", "streaming", None] > 0
        assert (
            0 == found["CurrentQueueSizeInBytes", "streaming", None] < found["MaxQueueSizeInBytes", "streaming", None]
        )
        assert 0 <= found["wal2lake_last_round_age_seconds", None, None] < 60
        assert found["wal2lake_lag_seconds_count", None, None] == 3
        assert 0 < found["wal2lake_lag_seconds_sum", None, None] < 180
        xid = pg.execute(database, "select xmin::text::bigint from elsewhere limit 1")[0][0]
        assert found["LastTransactionId", "streaming", None] >= xid
        # A message is an event, also outside of transactions.
        pg.execute(database, "select pg_logical_emit_message(false, 'order', 'made')")
        wait_until(lambda: scraped(port)["TotalNumberOfEventsSeen", "streaming", None] == 4, 30, "the message")
        assert scraped(port)["LastEvent", "streaming", "__messages"] == 1
        pg.execute(database, "insert into orders values (300, repeat('x', 30))")
        wait_until(lambda: scraped(port).get(QUARANTINED) == 1, 30, "the refused row")
        assert scraped(port)["wal2lake_failed_check_rows_total", None, "public.orders"] == 1
        known = promql.exported(page(port))
        (group,) = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())["groups"]
        for rule in group["rules"]:
            # No table is paused, and no row was missing.
            if not promql.metrics(rule["expr"]) & {"wal2lake_table_paused", "wal2lake_missing_rows_total"}:
                promql.labels(rule["expr"], known)

        data = json.dumps({"type": "incremental", "data-collections": ["public.orders"]})
        # The borrowed Java process is the run's, and a signal needs none.
        assert program.run("signal", file, "execute-snapshot", "--data", data, own_java=True).returncode == 0
        wait_until(lambda: scraped(port).get(("RowsScanned", "snapshot", "public.orders")) == 102, 60, "the snapshot")
        # The rows are counted before the end of the snapshot is told.
        wait_until(lambda: ("Incremental", "COMPLETED") in kinds_told(told), 60, "word of the end")
        assert running.end(2) in (0, -2), running.said()
    kept = [(one["aggregate_type"], one["type"], dict(one["additional_data"])) for one in rows(told)]
    assert len({one["id"] for one in rows(told)}) == len(kept)
    kinds = kinds_told(told)
    for kind in ("STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED"):
        assert ("Initial", kind) in kinds
        assert ("Incremental", kind) in kinds
    statuses = {data["scanned_collection"]: data["status"] for _, kind, data in kept if "scanned_collection" in data}
    assert statuses == {"public.orders": "SUCCEEDED", "public.empty": "EMPTY"}
    (shown,) = [line for line in program.run("status", file).stdout.splitlines() if line.startswith("__messages: ")]
    (message,) = rows(told.parent / "__messages")
    assert "up to " in shown and shown.endswith(str(Lsn(message["__lsn"]))), shown
    # What an earlier run has refused is shown from the start.
    with program.started("run", file):
        wait_until(lambda: scraped(port).get(QUARANTINED) == 1, 30, "the quarantine of the run before")
    pg.drop_database(database)
