"""Freshness policies of lake tables, and tables that are up to date without a change."""

import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import dagster as dg
import pytest

from cdc_core.engine.reports import Paused
from cdc_core.errors import SourceError
from cdc_core.observe.options import FreshnessWindow
from tests.pipelines.fake import ORDERS, PEOPLE, WEIRD, Backlog, FakeEngine, site, table_status
from wal2lake.pipelines.connector.keys import lake_key
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.reports.freshness import up_to_date
from wal2lake.pipelines.sensors.health import health_sensor

WINDOWS = (FreshnessWindow(r"public\.orders", 900, 3600), FreshnessWindow(r"public\..*", None, 86_400))
QUIET = Backlog(has_changes=False)
PAUSED = Paused("a reason", "a remedy", datetime.now(UTC), 3)


def look(instance, backlog=QUIET, *statuses):
    engine = FakeEngine(backlog=backlog, statuses=statuses)
    found = up_to_date(instance, site(engine, freshness=WINDOWS), backlog)
    return [one.asset_key.path[-1] for one in found]


def materialise(instance, table, seconds_ago, monkeypatch, version="77"):
    """A materialisation of some time ago."""
    event = dg.AssetMaterialization(lake_key(site(FakeEngine()), table), tags={"dagster/data_version": version})
    instance.report_runless_asset_event(event)
    now = time.time() + seconds_ago
    monkeypatch.setattr("wal2lake.pipelines.reports.freshness.time", SimpleNamespace(time=lambda: now))


def test_the_first_pattern_that_matches_gives_a_table_its_policy():
    nodes = definitions_of([site(FakeEngine(), freshness=WINDOWS)]).resolve_asset_graph()
    found = {
        table: nodes.get(lake_key(site(FakeEngine()), table)).freshness_policy for table in (ORDERS, PEOPLE, WEIRD)
    }
    assert found[ORDERS] == dg.FreshnessPolicy.time_window(timedelta(hours=1), timedelta(minutes=15))
    assert found[PEOPLE] == dg.FreshnessPolicy.time_window(timedelta(days=1))
    assert found[WEIRD] is None


def test_a_table_without_changes_is_reported_as_fresh_while_nothing_waits(instance):
    statuses = (table_status(ORDERS), table_status(PEOPLE), table_status(WEIRD))
    assert look(instance, QUIET, *statuses) == ["orders", "people"]


@pytest.mark.parametrize(
    ("backlog", "told"),
    [
        (Backlog(has_changes=True), []),
        (Backlog(has_changes=True, slot_active=True), []),
        (Backlog(has_changes=True, slot_active=True, lag_seconds=1.0), ["orders"]),
        (Backlog(has_changes=True, slot_active=True, lag_seconds=600.0), []),
        (Backlog(has_changes=False, slot_exists=False), []),
        (Backlog(has_changes=False, wal_status="lost"), []),
    ],
)
def test_what_may_wait_in_the_slot_makes_no_table_up_to_date(instance, backlog, told):
    assert look(instance, backlog, table_status(ORDERS)) == told


@pytest.mark.parametrize(
    "status",
    [
        table_status(ORDERS, lsn=None),
        table_status(ORDERS, paused=PAUSED),
        table_status(ORDERS, lsn=5000, changelog=5001),
    ],
)
def test_a_table_that_lacks_changes_is_not_up_to_date(instance, status):
    assert look(instance, QUIET, status) == []
    assert look(instance, QUIET, table_status(ORDERS, lsn=5000, changelog=5000)) == ["orders"]


def test_a_table_is_reported_again_after_half_of_its_window_with_its_version(instance, monkeypatch):
    materialise(instance, ORDERS, 400, monkeypatch)
    assert look(instance, QUIET, table_status(ORDERS)) == []
    materialise(instance, ORDERS, 500, monkeypatch)
    (made,) = up_to_date(instance, site(FakeEngine(statuses=(table_status(ORDERS),)), freshness=WINDOWS), QUIET)
    assert made.tags["dagster/data_version"] == "77"


def test_the_sensor_of_the_slot_reports_them_without_a_run(instance):
    engine = FakeEngine(backlog=QUIET, statuses=(table_status(ORDERS),))
    here = site(engine, freshness=WINDOWS)
    first = health_sensor(here)(dg.build_sensor_context(instance=instance))
    again = health_sensor(here)(dg.build_sensor_context(instance=instance, cursor=first.cursor))
    for result in (first, again):  # with the checks, and where no check is to be told
        made = [event for event in result.asset_events if isinstance(event, dg.AssetMaterialization)]
        assert [event.asset_key for event in made] == [lake_key(here, ORDERS)]
        assert result.run_requests == []
    assert again.cursor == first.cursor
    for event in made:
        instance.report_runless_asset_event(event)
    last = health_sensor(here)(dg.build_sensor_context(instance=instance, cursor=first.cursor))
    assert isinstance(last, dg.SkipReason)


def test_an_unreachable_server_is_reported_as_such(instance):
    here = site(FakeEngine(error=SourceError("The server is away.", "Wait.")), freshness=WINDOWS)
    result = health_sensor(here)(dg.build_sensor_context(instance=instance))
    assert "The server is away." in result.skip_message
