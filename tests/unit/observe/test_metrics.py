import socket
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cdc_core.assemble.metrics import Meter
from cdc_core.demo.processes import free_port
from cdc_core.engine.reports import BatchReport, CheckReport, MergeReport, RoundReport
from cdc_core.engine.stream.run import Hooks
from cdc_core.lsn import Lsn
from cdc_core.observe.endpoint import metrics_of
from cdc_core.observe.metrics import ConnectorMetrics
from cdc_core.schema.table import TableId
from cdc_core.snapshot.notifications import INCREMENTAL, INITIAL, Notifier, SnapshotStatus, notify_of_snapshot
from cdc_core.snapshot.reports import SnapshotProgress

ORDERS, PEOPLE = TableId("public", "orders"), TableId("public", "people")


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


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
    hooks.on_batch(BatchReport(1, {ORDERS: 5, PEOPLE: 2}, Lsn(7000), 900, 0.1))
    check = CheckReport(ORDERS, 5, 2, False)
    merge = MergeReport(ORDERS, Lsn(7000), 3, 5, 2, 1, 0, 0.2, check)
    hooks.on_round(RoundReport(Lsn(7000), (merge,), {PEOPLE: "paused"}, 300, 1.25, 0.5, missing={PEOPLE: 3}))
    clock.now += 2
    found = values(meter)
    assert len(seen) == 2
    assert found["Connected", "streaming"] == 1
    assert found["TotalNumberOfEventsSeen", "streaming"] == 7
    assert found["MilliSecondsSinceLastEvent", "streaming"] == 2000
    assert found["MilliSecondsBehindSource", "streaming"] == 1250
    assert found["SourceEventPosition", "streaming", "lsn"] == 7000
    assert found["CapturedTables", "streaming", "public.people"] == 1
    assert found["wal2lake_lag_bytes",] == 300
    assert found["wal2lake_rounds_total",] == 1
    assert found["wal2lake_round_seconds_total",] == 0.5
    assert found["wal2lake_lake_rows_total", "public.orders", "inserted"] == 2
    assert found["wal2lake_lake_rows_total", "public.orders", "quarantined"] == 2
    assert found["wal2lake_table_paused", "public.people"] == 1
    assert found["wal2lake_missing_rows_total", "public.people"] == 3


def test_snapshot_attributes_while_it_goes_on_and_at_its_end(meter, clock):
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
        listen(SnapshotProgress(PEOPLE, 5, None, True))
    clock.now += 60
    found = values(meter)
    assert (found["SnapshotRunning", "snapshot"], found["SnapshotCompleted", "snapshot"]) == (0, 1)
    assert found["RemainingTableCount", "snapshot"] == 0
    assert found["SnapshotDurationInSeconds", "snapshot"] == 3
    assert found["TotalNumberOfEventsSeen", "snapshot"] == 105


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


def test_an_endpoint_serves_the_text_and_counts_go_on(caplog):
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


def test_a_port_that_is_taken_is_told_of_and_ends_nothing(caplog):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        made = metrics_of("shop", "127.0.0.1", port)
    made.connected([])
    assert "Metrics are not served" in caplog.text


def test_no_port_serves_nothing():
    assert metrics_of("shop", "127.0.0.1", 0) is not metrics_of("shop", "127.0.0.1", 0)


def test_the_dashboard_asks_only_for_metrics_that_there_are(meter):
    import json
    import re
    from pathlib import Path

    meter.metrics.connected(["public.orders"])
    meter.metrics.round(0.1, 0, 0.0, {"public.orders": (1, 0, 0, 0)}, {"public.people"}, {"public.orders": 2})
    meter.metrics.snapshot_started(["public.orders"])
    meter.metrics.snapshot_rows("public.orders", 1, done=False)
    registry = CollectorRegistry()
    registry.register(meter.metrics)
    text = generate_latest(registry).decode()
    known = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    file = Path(__file__).parents[3] / "examples" / "monitoring" / "grafana-dashboard.json"
    asked = set(re.findall(r"\b(?:debezium_metrics|wal2lake)_\w+", " ".join(expressions(json.loads(file.read_text())))))
    assert len(asked) > 8
    assert asked <= known


def expressions(dashboard):
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [*found, *(one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query")]
