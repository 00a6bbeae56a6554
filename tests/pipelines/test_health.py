"""The slot's checks and the sensor that tells them without a run."""

import dagster as dg
import pytest

from cdc_core.errors import SourceError
from tests.pipelines.fake import Backlog, FakeEngine, site
from wal2lake.pipelines.checks.slot import judge_active, judge_lag
from wal2lake.pipelines.connector.keys import changes_key
from wal2lake.pipelines.sensors import health
from wal2lake.pipelines.sensors.health import health_sensor

HERE = site(FakeEngine())


def look(engine, instance, cursor=None):
    return health_sensor(site(engine))(dg.build_sensor_context(instance=instance, cursor=cursor))


@pytest.mark.parametrize(
    ("backlog", "words"),
    [
        (Backlog(lag_bytes=2 * 1024**3), "2,147,483,648 bytes of WAL"),
        (Backlog(lag_bytes=10, lag_seconds=700.0), "is 700 s old"),
    ],
)
def test_much_lag_is_warned_of_in_bytes_and_in_seconds(backlog, words):
    result = judge_lag(HERE, backlog)
    assert (result.passed, result.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert words in result.description
    assert judge_lag(HERE, Backlog(lag_bytes=10, lag_seconds=2.0)).passed


@pytest.mark.parametrize(
    ("backlog", "passed"),
    [
        (Backlog(inactive_seconds=700.0), False),
        (Backlog(inactive_seconds=700.0, lag_bytes=0), True),
        (Backlog(inactive_seconds=30.0), True),
        (Backlog(inactive_seconds=700.0, is_claimed=True), True),
        (Backlog(lag_bytes=1024**3), False),
        (Backlog(lag_bytes=1024**3, slot_active=True), True),
        (Backlog(slot_exists=False, lag_bytes=None), True),
    ],
)
def test_a_slot_that_nobody_reads_is_warned_of_once_that_lasts(backlog, passed):
    result = judge_active(HERE, backlog)
    assert result.passed is passed
    assert passed or "Start the stream" in result.description


def test_a_look_brings_checks_and_numbers_without_a_run(instance):
    found = look(FakeEngine(backlog=Backlog(lag_bytes=77, lag_seconds=1.5)), instance)
    assert found.run_requests == []
    assert found.skip_reason.skip_message == "all checks passed"
    observation, *checks = found.asset_events
    assert observation.asset_key == changes_key(HERE)
    numbers = {name: value.value for name, value in observation.metadata.items()}
    assert (numbers["lag_bytes"], numbers["lag_seconds"], numbers["wal_status"]) == (77, 1.5, "reserved")
    assert [(one.check_name, one.passed) for one in checks] == [
        ("slot_health", True),
        ("slot_lag", True),
        ("slot_active", True),
    ]


def test_an_unchanged_state_is_reported_every_five_minutes_and_a_change_at_once(instance, monkeypatch):
    first = look(FakeEngine(), instance)
    assert look(FakeEngine(), instance, first.cursor).skip_message == "nothing changed"
    lost = look(FakeEngine(backlog=Backlog(wal_status="lost")), instance, first.cursor)
    assert lost.skip_reason.skip_message == "failed: slot_health"
    monkeypatch.setattr(health, "SAME_SECONDS", 0.0)
    assert look(FakeEngine(), instance, first.cursor).asset_events


def test_a_server_that_is_down_is_a_reason_to_skip(instance):
    found = look(FakeEngine(error=SourceError("No server.", "Start it.")), instance)
    assert found.skip_message == "No server. Start it."
