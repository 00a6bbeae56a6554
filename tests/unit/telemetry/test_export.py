"""Telemetry reaches a collector as OTLP: the metrics that Prometheus gets, and rounds with their tables as spans."""

import logging

import numpy as np
import pytest

from cdc_core.observe.lag import LAG_BOUNDS, LagCounts
from cdc_core.observe.metrics import ConnectorMetrics
from cdc_core.telemetry.export import Telemetry
from cdc_core.telemetry.traces import TracedRound, TracedTable
from tests.support import otlp
from tests.support.waits import patient, wait_until
from tests.support.webhook import webhook


@pytest.fixture
def counted():
    metrics = ConnectorMetrics("shop", tags=[("env", "prod")])
    lags = LagCounts.of(np.array([0.25, 1.5, 1e6]), np.array([3, 2, 1]))
    metrics.round(1.5, 7, 0, {"public.orders": (2, 1, 0, 0)}, {"public.people"}, {}, lags=lags)
    return metrics


@pytest.fixture
def collector():
    with webhook() as server:
        server.base = server.url.removesuffix("/secret")
        yield server


def test_metrics_are_those_of_prometheus(collector, counted):
    telemetry = Telemetry(collector.base, "shop", counted.collect, 600)
    telemetry.begin()
    telemetry.close(patient(10))
    sent = otlp.metrics(collector)
    assert set(sent) == {family.name for family in counted.collect()}
    (rounds,) = sent["wal2lake_rounds"].sum.data_points
    assert (rounds.as_double, otlp.attributes(rounds)) == (1.0, {"name": "shop", "env": "prod"})
    assert sent["wal2lake_rounds"].sum.is_monotonic
    (paused,) = sent["wal2lake_table_paused"].gauge.data_points
    assert otlp.attributes(paused)["table"] == "public.people"
    (lag,) = sent["wal2lake_lag_seconds"].histogram.data_points
    assert (lag.count, lag.sum) == (6, pytest.approx(0.75 + 3 + 1e6))
    assert list(lag.explicit_bounds) == list(LAG_BOUNDS)
    assert [count for count in lag.bucket_counts if count] == [3, 2, 1] and lag.bucket_counts[-1] == 1
    assert otlp.resource(collector)["service.name"] == "wal2lake"
    assert otlp.resource(collector)["wal2lake.connector"] == "shop"


def test_a_round_is_a_trace(collector, counted):
    telemetry = Telemetry(f"{collector.base}/", "shop", counted.collect, 600)
    telemetry.begin()
    tables = [
        TracedTable("public.orders", 1.0, {"wal2lake.events": 3}),
        TracedTable("public.people", 0, error="no key"),
    ]
    telemetry.add(TracedRound("round", 10_000_000_000, 2.0, {"wal2lake.lsn": "0/10"}, tables))
    telemetry.add(TracedRound("round", 11_000_000_000, 1.0, {}, [TracedTable(f"t{n}", n / 100) for n in range(80)]))
    telemetry.close(patient(10))
    first, people, orders, second, *others = otlp.spans(collector)
    assert (first.name, first.start_time_unix_nano, first.end_time_unix_nano) == ("round", 8 * 10**9, 10 * 10**9)
    assert otlp.attributes(first) == {"wal2lake.lsn": "0/10", "wal2lake.tables": 2}
    assert {span.trace_id for span in (first, people, orders)} == {first.trace_id} != {second.trace_id}
    assert {span.parent_span_id for span in (people, orders)} == {first.span_id}
    assert (people.name, people.status.message, people.status.code) == ("merge public.people", "no key", 2)
    assert (orders.start_time_unix_nano, orders.end_time_unix_nano) == (8 * 10**9, 9 * 10**9)
    assert otlp.attributes(orders) == {"wal2lake.table": "public.orders", "wal2lake.events": 3}
    # The slowest fifty.
    assert [span.name for span in others] == [f"merge t{n}" for n in range(79, 29, -1)]


def test_points_are_sent_at_the_interval(collector, counted):
    telemetry = Telemetry(collector.base, "shop", counted.collect, 0.05)
    telemetry.begin()
    wait_until(lambda: len(collector.posted) >= 3, 20, "three requests")
    telemetry.close(patient(10))
    assert not telemetry._thread.is_alive()


def test_a_collector_that_refuses_or_is_away_is_reported_once(collector, counted, caplog):
    caplog.set_level(logging.INFO)
    collector.status = 400
    telemetry = Telemetry(f"{collector.base}/t0ken", "shop", counted.collect, 0.05)
    telemetry.begin()
    wait_until(lambda: len(collector.posted) >= 3, 20, "three requests")
    collector.status = 200
    wait_until(lambda: "again" in caplog.text.partition("Telemetry is sent to")[2], 20, "the end of it")
    telemetry.close(patient(10))
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        f"Telemetry is not sent to {collector.base}: it does not answer, or refuses. The run continues, and tries "
        "again with each interval."
    ]
    assert "t0ken" not in caplog.text
