import json
import re
import shutil
import socket
import subprocess
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cdc_core.demo.processes import free_port
from cdc_core.engine.reading.seen import LastChange, Seen
from cdc_core.engine.reading.slot_reader import WaitingChanges
from cdc_core.engine.reports import BatchReport, MergeReport, RoundReport
from cdc_core.engine.stream.meter import Meter
from cdc_core.engine.stream.run import Hooks
from cdc_core.errors import ConfigError
from cdc_core.lake.stores.stream_table import StreamTable
from cdc_core.lsn import Lsn
from cdc_core.observe.endpoint import metrics_of
from cdc_core.observe.lag import LagCounts
from cdc_core.observe.metrics import ConnectorMetrics
from cdc_core.observe.options import OWN_LABELS, parse_metric_tags
from cdc_core.quality.check_report import CheckReport, RuleResult
from cdc_core.schema.table import TableId
from cdc_core.snapshot.notifications import INCREMENTAL, INITIAL, Notifier, SnapshotStatus, notify_of_snapshot
from cdc_core.snapshot.reports import SnapshotProgress, SnapshotReport
from tests.support import promql
from tests.support.clock import Clock
from tests.support.waits import patient

ROOT = Path(__file__).parents[3]
LAGS = LagCounts.of(np.array([0.25, 1.5, 100_000.0]), np.array([3, 2, 1]))
ORDERS, PEOPLE = TableId("public", "orders"), TableId("public", "people")


@pytest.fixture
def clock():
    return Clock(100.0)


@pytest.fixture
def meter(clock):
    return Meter(ConnectorMetrics("shop", clock))


def values(meter):
    """Every sample of the text that Prometheus gets: by name without its prefix, context, and table or the like."""
    registry = CollectorRegistry()
    registry.register(meter.metrics)
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("name") == "shop"
            labels.pop("plugin", None)
            context, table = labels.pop("context", None), labels.pop("table", None)
            parts = (context, table, *labels.values())
            key = (sample.name.removeprefix("debezium_metrics_"), *(part for part in parts if part is not None))
            assert key not in found
            found[key] = sample.value
    return found


def test_streaming_attributes_follow_batches_and_rounds(meter, clock):
    before = values(meter)
    assert before["Connected", "streaming"] == 0
    assert before["MilliSecondsSinceLastEvent", "streaming"] == -1
    assert not [key for key in before if "snapshot" in key]

    meter.metrics.connected(["public.orders", "public.people"])
    seen = []
    hooks = meter.hooks(Hooks(seen.append, seen.append))
    own = {StreamTable.MESSAGES: 3, StreamTable.TRANSACTIONS: 4}
    hooks.on_batch(BatchReport(1, {ORDERS: 5, PEOPLE: 2}, Lsn(7000), 900, 0.1, 0.75, own))
    assert values(meter)["MilliSecondsBehindSource", "streaming"] == 750
    check = CheckReport(ORDERS, 5, 2, False, (RuleResult("paid", "amount", "error", 5, 2, success=False),))
    merge = MergeReport(ORDERS, Lsn(7000), 3, 5, 2, 1, 0, 0.2, check, 2)
    hooks.on_round(RoundReport(Lsn(7000), (merge,), {PEOPLE: "paused"}, 300, 1.25, 0.5, missing={PEOPLE: 3}))
    clock.now += 2
    found = values(meter)
    assert len(seen) == 2
    assert found["Connected", "streaming"] == 1
    assert found["TotalNumberOfEventsSeen", "streaming"] == 10, "messages are events, marks of transactions are not"
    assert found["MilliSecondsSinceLastEvent", "streaming"] == 2000
    assert found["MilliSecondsBehindSource", "streaming"] == 1250
    assert found["CapturedTables", "streaming", "public.people"] == 1
    assert found["wal2lake_lag_bytes",] == 300
    assert found["wal2lake_rounds_total",] == 1
    assert found["wal2lake_round_seconds_total",] == 0.5
    assert found["wal2lake_lake_rows_total", "public.orders", "inserted"] == 2
    assert found["wal2lake_lake_rows_total", "public.orders", "quarantined"] == 2
    assert found["wal2lake_table_paused", "public.people"] == 1
    assert found["wal2lake_missing_rows_total", "public.people"] == 3
    assert found["wal2lake_quarantined_rows", "public.orders"] == 2
    assert found["wal2lake_failed_check_rows_total", "public.orders", "paid", "error"] == 2
    assert found["wal2lake_last_round_age_seconds",] == 2
    # The lag of the last change is shown on when nothing waits; a table that was resumed is not paused any more.
    hooks.on_round(RoundReport(Lsn(7001), (), {}, 0, 0.0, 0.5))
    hooks.on_unmerged({})
    found = values(meter)
    assert found["MilliSecondsBehindSource", "streaming"] == 1250
    assert ("wal2lake_table_paused", "public.people") not in found


def test_what_a_connection_has_received_is_counted_on_by_the_next(meter):
    seen = Seen()
    seen.transactions, seen.filtered, seen.last_xid = 3, 4, 750
    seen.last = LastChange(9, "public.orders", 100, 200, 750, 1_000)
    meter.follow(seen, lambda: WaitingChanges(30, 100, 4_000, 10_000))
    found = values(meter)
    assert (found["NumberOfCommittedTransactions", "streaming"], found["NumberOfEventsFiltered", "streaming"]) == (3, 4)
    assert (found["QueueTotalCapacity", "streaming"], found["QueueRemainingCapacity", "streaming"]) == (100, 70)
    assert found["MaxQueueSizeInBytes", "streaming"] == 10_000
    assert found["CurrentQueueSizeInBytes", "streaming"] == 4_000
    assert found["LastEvent", "streaming", "public.orders"] == 1
    meter.metrics.disconnected()
    assert ("QueueTotalCapacity", "streaming") not in values(meter)
    again = Seen()
    again.transactions = 2
    meter.follow(again)
    found = values(meter)
    assert found["NumberOfCommittedTransactions", "streaming"] == 5
    assert found["LastTransactionId", "streaming"] == 750
    coordinates = {"lsn": 100, "lsn_commit": 200, "txId": 750, "ts_usec": 1_000}
    assert {name: found["SourceEventPosition", "streaming", name] for name in coordinates} == coordinates


def test_tags_are_labels_of_every_metric_and_other_names_are_refused(clock):
    made = Meter(ConnectorMetrics("shop", clock, parse_metric_tags("env=prod, team=a-b")))
    everything(made)
    registry = CollectorRegistry()
    registry.register(made.metrics)
    samples = [sample for family in registry.collect() for sample in family.samples]
    assert len(samples) > 30
    assert all((one.labels["env"], one.labels["team"]) == ("prod", "a-b") for one in samples)
    assert {name for one in samples for name in one.labels} - {"env", "team"} == set(OWN_LABELS)
    for wrong in ("table=x", "a", "a=", "1a=b", "__a=b", "a-b=c", "a=1,a=2"):
        with pytest.raises(ValueError, match="name=value"):
            parse_metric_tags(wrong)


def test_snapshot_attributes_during_it_and_at_its_end(meter, clock):
    notifier = Notifier("shop", (), meter.notification(None))
    with notify_of_snapshot(notifier, [ORDERS, PEOPLE], meter.progress(None)) as listen:
        listen(SnapshotProgress(ORDERS, 40, 100, False))
        clock.now += 3
        found = values(meter)
        assert found["SnapshotRunning", "snapshot"] == 1
        assert (found["TotalTableCount", "snapshot"], found["RemainingTableCount", "snapshot"]) == (2, 2)
        assert found["RowsScanned", "snapshot", "public.orders"] == 40
        assert found["SnapshotDurationInSeconds", "snapshot"] == 3
        assert found["TotalNumberOfEventsSeen", "snapshot"] == 40
        assert found["TotalNumberOfEventsSeen", "streaming"] == 0
        listen(SnapshotProgress(ORDERS, 100, 100, True))
        assert values(meter)["RemainingTableCount", "snapshot"] == 1
        report = SnapshotReport(PEOPLE, 5, Lsn(1), 0.1, 1, refused=2)
        listen(SnapshotProgress(PEOPLE, 5, None, True, report=report))
    clock.now += 60
    found = values(meter)
    assert (found["SnapshotRunning", "snapshot"], found["SnapshotCompleted", "snapshot"]) == (0, 1)
    assert found["RemainingTableCount", "snapshot"] == 0
    assert found["SnapshotDurationInSeconds", "snapshot"] == 3
    assert found["TotalNumberOfEventsSeen", "snapshot"] == 105
    assert found["NumberOfEventsFiltered", "snapshot"] == 2


def test_a_snapshot_that_is_aborted_paused_and_followed_by_another(meter, clock):
    notifier = Notifier("shop", (), meter.notification(None))
    notifier.notify(INCREMENTAL, SnapshotStatus.STARTED, data_collections="public.orders,public.people")
    notifier.notify(INCREMENTAL, SnapshotStatus.PAUSED)
    clock.now += 5
    assert values(meter)["SnapshotPausedDurationInSeconds", "snapshot"] == 5
    assert values(meter)["SnapshotPaused", "snapshot"] == 1
    notifier.notify(INCREMENTAL, SnapshotStatus.RESUMED)
    clock.now += 5
    notifier.notify(INCREMENTAL, SnapshotStatus.ABORTED)
    found = values(meter)
    assert (found["SnapshotPaused", "snapshot"], found["SnapshotPausedDurationInSeconds", "snapshot"]) == (0, 5)
    assert (found["SnapshotAborted", "snapshot"], found["SnapshotCompleted", "snapshot"]) == (1, 0)
    assert found["RemainingTableCount", "snapshot"] == 2
    notifier.notify(INITIAL, SnapshotStatus.STARTED, data_collections="public.orders")
    found = values(meter)
    assert (found["SnapshotAborted", "snapshot"], found["TotalTableCount", "snapshot"]) == (0, 1)


def test_a_snapshot_that_an_earlier_process_began_is_seen_by_its_progress(meter):
    notifier = Notifier("shop", (), meter.notification(None))
    notifier.notify(INCREMENTAL, SnapshotStatus.IN_PROGRESS, current_collection_in_progress="public.people")
    found = values(meter)
    assert (found["SnapshotRunning", "snapshot"], found["RemainingTableCount", "snapshot"]) == (1, 1)
    notifier.notify(
        INCREMENTAL,
        SnapshotStatus.TABLE_SCAN_COMPLETED,
        scanned_collection="public.people",
        total_rows_scanned=4,
        status="SUCCEEDED",
    )
    notifier.notify(INCREMENTAL, SnapshotStatus.COMPLETED)
    found = values(meter)
    assert (found["SnapshotCompleted", "snapshot"], found["RowsScanned", "snapshot", "public.people"]) == (1, 4)


def test_an_endpoint_serves_the_text_and_counts_continue(caplog):
    port = free_port()
    made = metrics_of("shop", "127.0.0.1", port)
    made.connected(["public.orders"])
    assert metrics_of("shop", "127.0.0.1", port) is made
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'debezium_metrics_Connected{context="streaming",name="shop",plugin="postgres"} 1.0' in text
    metrics_of("other", "127.0.0.1", port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert 'name="other"' in answer.read().decode()


def test_a_port_in_use_is_logged_and_ends_nothing(caplog):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        made = metrics_of("shop", "127.0.0.1", port)
        with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1") as refused:
            metrics_of("shop", "127.0.0.1", port, is_required=True)
    assert "wal2lake.metrics.required=false" in refused.value.remedy
    made.connected([])
    assert "Metrics are not served" in caplog.text


def test_no_port_serves_nothing():
    assert metrics_of("shop", "127.0.0.1", 0) is not metrics_of("shop", "127.0.0.1", 0)


def everything(meter):
    """Have the meter show each metric that there is."""
    seen = Seen()
    seen.last_xid, seen.last = 1, LastChange(1, "public.orders", 1, 1, 1, 1)
    meter.metrics.connected(["public.orders"])
    meter.metrics.waiting("UnreachableError")
    meter.follow(seen, lambda: WaitingChanges(0, 1, 0, 1))
    check = CheckReport(ORDERS, 1, 1, False, (RuleResult("paid", "amount", "error", 1, 1, success=False),))
    merge = MergeReport(ORDERS, Lsn(1), 1, 1, 1, 0, 0, 0.1, check, 1)
    meter.hooks(Hooks()).on_round(RoundReport(Lsn(1), (merge,), {PEOPLE: "paused"}, missing={ORDERS: 2}, lags=LAGS))
    meter.metrics.snapshot_started(["public.orders"])
    meter.metrics.snapshot_rows("public.orders", 1, done=False)


@pytest.fixture
def known(meter):
    """All metrics with their labels."""
    everything(meter)
    registry = CollectorRegistry()
    registry.register(meter.metrics)
    return promql.exported(generate_latest(registry).decode())


def test_the_dashboard_asks_only_for_metrics_and_labels_that_there_are(known):
    file = ROOT / "examples" / "monitoring" / "grafana-dashboard.json"
    dashboard, asked = json.loads(file.read_text()), set()
    for target in [target for panel in dashboard["panels"] for target in panel["targets"]]:
        expression = target["expr"].replace("$__rate_interval", "5m")
        found = promql.labels(expression, known)
        assert set(re.findall(r"{{(.*?)}}", target["legendFormat"])) <= found, expression
        asked |= promql.metrics(expression)
    assert len(asked) > 8
    for query in (one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"):
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()
        assert label in known[metric]


def test_each_alert_has_a_reason_and_asks_only_for_metrics_and_labels_that_there_are(known):
    file = ROOT / "deploy" / "prometheus" / "alerts.yaml"
    (group,) = yaml.safe_load(file.read_text())["groups"]
    page = (ROOT / "docs" / "metrics.md").read_text()
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}, rule
        assert rule["labels"]["severity"] in ("warning", "critical")
        named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert named <= promql.labels(rule["expr"], known), rule
        assert f"`{rule['expr']}`" in page
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])
    checker = shutil.which("promtool")
    if checker is not None:
        subprocess.run([checker, "check", "rules", file], check=True, timeout=patient(20))


@pytest.mark.parametrize(
    "expression",
    [
        "wal2lake_lag_seconds > 60",
        'wal2lake_lag_bytes{table="a"} > 1',
        "sum by (table) (wal2lake_lag_bytes) > 1",
        "wal2lake_table_paused and wal2lake_lag_bytes > 1",
        "wal2lake_table_paused and on(table) wal2lake_lag_bytes > 1",
        "histogram_quantile(0.95, sum by (name) (rate(wal2lake_lag_seconds_bucket[10m]))) > 60",
        "rate(wal2lake_lag_seconds_bucket) > 60",
    ],
)
def test_an_alert_that_never_fires_is_found(known, expression):
    with pytest.raises((AssertionError, ValueError)):
        promql.labels(expression, known)


def test_the_page_of_metrics_names_each_of_them(known):
    page = (ROOT / "docs" / "metrics.md").read_text()
    bases = {re.sub(r"^debezium_metrics_|_(bucket|count|sum)$", "", name) for name in known}
    assert {name for name in bases if name not in page} == set()
