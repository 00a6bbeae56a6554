"""The histogram of lags: every change is in one bucket, and a quantile read from it is within 10 %."""

import numpy as np
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cdc_core.decode import RAW_SCHEMA
from cdc_core.engine.reading.batch import Batch
from cdc_core.observe.lag import LAG_BOUNDS, LagCounts
from cdc_core.observe.metrics import ConnectorMetrics
from cdc_core.schema.table import TableId, TableSchema

ORDERS = TableId("public", "orders")
NONE = {"merged": {}, "paused": set(), "missing": {}}


def scraped(metrics):
    registry = CollectorRegistry()
    registry.register(metrics)
    return {
        (sample.name.removeprefix("wal2lake_lag_seconds_"), sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if sample.name.startswith("wal2lake_lag_seconds")
    }


def test_prometheus_gets_a_histogram():
    metrics = ConnectorMetrics("shop")
    assert scraped(metrics) == {}
    lags = LagCounts.of(np.array([0.1, 0.101, 1e6]), np.array([1, 2, 4]))
    metrics.round(1, 0, 0, **NONE, lags=lags)
    metrics.round(1, 0, 0, **NONE)
    metrics.round(1, 0, 0, **NONE, lags=lags)
    found = scraped(metrics)
    assert (found["bucket", "0.1"], found["bucket", "0.11"], found["bucket", "86400.0"]) == (2, 6, 6)
    assert found["bucket", "+Inf"] == found["count", None] == 14
    assert found["sum", None] == pytest.approx(2 * (0.1 + 0.202 + 4e6))


def quantile(lags, share):
    """As Prometheus' histogram_quantile: linear inside of a bucket."""
    sums = np.cumsum(lags.counts)
    place = int(np.searchsorted(sums, share * sums[-1]))
    below = sums[place - 1] if place else 0
    low = LAG_BOUNDS[place - 1] if place else 0.0
    return low + (LAG_BOUNDS[place] - low) * (share * sums[-1] - below) / (sums[place] - below)


@pytest.mark.parametrize("middle", [0.2, 0.5, 1.0, 1.3, 2.5, 8.0, 20.0, 50.0])
def test_a_quantile_is_within_ten_percent(middle):
    lags = np.random.default_rng(7).lognormal(np.log(middle), 0.3, 20_000)
    exact = float(np.quantile(lags, 0.95))
    assert quantile(LagCounts.of(lags, np.ones(len(lags), dtype=int)), 0.95) == pytest.approx(exact, rel=0.1)


def raw(*rows):
    """Rows of RAW_SCHEMA of (commit LSN, commit time in seconds)."""
    values = [
        {
            **dict.fromkeys(RAW_SCHEMA.names, 0),
            "commit_lsn": lsn,
            "commit_ts_us": int(seconds * 1e6),
            "payload": b"I",
        }
        for lsn, seconds in rows
    ]
    values = [{name: value for name, value in each.items() if name not in ("origin", "origin_lsn")} for each in values]
    return pa.RecordBatch.from_pylist(values, schema=RAW_SCHEMA)


def test_a_batch_knows_how_old_its_complete_transactions_are():
    batch, table = Batch(1), TableSchema(ORDERS, 1, ())
    batch.files_of(table).note(raw((5, 10.0), (5, 10.0), (7, 11.0)))
    batch.files_of(table).note(raw((7, 11.0), (9, 12.0)))
    other = TableSchema(TableId("public", "people"), 2, ())
    batch.files_of(other).note(raw((6, 0.0)))
    batch.open_lsn = 9
    other_lags = batch.lags({other.id: 1_000_000})
    assert other_lags == LagCounts.of(np.array([1.0]), np.array([1]))
    lags = batch.lags({ORDERS: 12_500_000, TableId("public", "absent"): 12_500_000})
    assert lags == LagCounts.of(np.array([2.5, 1.5]), np.array([2, 2]))
    assert batch.lags({ORDERS: 0}).seconds == 0.0  # a clock behind the server's
    assert batch.lags({}) == LagCounts()
    assert batch.last_commit(ORDERS) == 9 and batch.complete_to(ORDERS) == 7
