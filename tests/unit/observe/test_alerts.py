"""A condition that lasts is posted once, and once more when it is over."""

import pytest

from cdc_core.assemble.alerts import AlertObserver
from cdc_core.assemble.context import RunContext
from cdc_core.config.connector import from_entries
from cdc_core.engine.reports import BatchReport, MergeReport, RoundReport
from cdc_core.errors import UnreachableError
from cdc_core.lsn import Lsn
from cdc_core.observe.alerts import AlertEvent, Alerts
from cdc_core.schema.table import TableId
from tests.support.clock import Clock
from tests.support.waits import wait_until
from tests.support.webhook import webhook

ORDERS, PEOPLE = TableId("public", "orders"), TableId("public", "people")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def posted():
    return []


@pytest.fixture
def alerts(posted, clock):
    return Alerts("shop", posted.append, 60, clock)


def test_what_lasts_is_posted_once_and_its_end_too(alerts, posted, clock):
    alerts.set(AlertEvent.TABLE_PAUSED, "no key", "public.orders")
    alerts.tick()
    clock.now = 59.0
    alerts.set(AlertEvent.TABLE_PAUSED, "still no key", "public.orders")
    alerts.tick()
    assert posted == []
    clock.now = 60.0
    alerts.tick()
    alerts.tick()
    assert posted == [
        {
            "event": "table_paused",
            "state": "failing",
            "text": "shop: public.orders: still no key",
            "connector": "shop",
            "message": "still no key",
            "table": "public.orders",
        }
    ]
    alerts.only(AlertEvent.TABLE_PAUSED, ["public.people"])
    alerts.clear(AlertEvent.TABLE_PAUSED, "public.orders")
    assert [(alert["state"], alert["text"]) for alert in posted[1:]] == [
        ("recovered", "shop: public.orders: it is merged again.")
    ]


def test_what_passes_is_not_posted_and_counts_anew(alerts, posted, clock):
    alerts.set(AlertEvent.SLOT_LAG, "much")
    clock.now = 50.0
    alerts.clear(AlertEvent.SLOT_LAG)
    alerts.set(AlertEvent.SLOT_LAG, "much")
    clock.now = 100.0
    alerts.tick()
    assert posted == []


def test_at_the_end_only_a_stream_that_is_down_is_posted(alerts, posted):
    alerts.set(AlertEvent.SLOT_LAG, "much")
    alerts.set(AlertEvent.STREAM_DOWN, "the slot is gone")
    alerts.close()
    assert [(alert["event"], alert["text"]) for alert in posted] == [("stream_down", "shop: the slot is gone")]


def batch(lag):
    return BatchReport(1, {}, Lsn(1), lag, 0.1)


def merged(waiting, lag=0):
    return RoundReport(Lsn(1), (MergeReport(ORDERS, Lsn(1), 1, 1, 1, 0, 0, 0.1, waiting=waiting),), lag_bytes=lag)


def test_what_a_run_tells_becomes_alerts(tmp_path):
    entries = {
        "database.hostname": "h",
        "database.user": "u",
        "database.dbname": "d",
        "topic.prefix": "shop",
        "wal2lake.lake.path": str(tmp_path / "lake"),
        "wal2lake.alerts.after.seconds": "0",
        "wal2lake.alerts.lag.bytes": "1000",
        "wal2lake.alerts.quarantine.rows": "2",
    }
    with webhook() as server:
        observer = AlertObserver(RunContext(from_entries([*entries.items(), ("wal2lake.alerts.url", server.url)])))

        def expect(*alerts):
            wait_until(lambda: len(server.alerts) >= len(alerts), 20, "the alerts")
            assert sorted((a["event"], a["state"], a.get("table")) for a in server.alerts) == sorted(alerts)
            server.alerts.clear()

        observer.merged(merged(2, lag=1000))
        observer.unmerged({ORDERS: "no key", PEOPLE: "no folder"})
        expect(
            ("table_paused", "failing", "public.orders"),
            ("table_paused", "failing", "public.people"),
        )
        observer.merged(merged(3, lag=1001))
        expect(("quarantine", "failing", "public.orders"), ("slot_lag", "failing", None))
        observer.unmerged({PEOPLE: "no folder"})
        observer.durable(batch(0))
        observer.merged(merged(0))
        expect(
            ("table_paused", "recovered", "public.orders"),
            ("slot_lag", "recovered", None),
            ("quarantine", "recovered", "public.orders"),
        )
        observer.failed(UnreachableError("The server is away."))
        expect(("stream_down", "failing", None))
        observer.unmerged({PEOPLE: "no folder"})
        expect(("stream_down", "recovered", None))
        observer.failed(ValueError("a value of a row"))
        observer.end()
        expect(("stream_down", "failing", None))
    assert not any(b"a value" in body for _, _, body in server.posted)
