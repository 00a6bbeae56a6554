"""Failed runs and checks posted to a web server that a test holds."""

import dagster as dg
import pytest

from cdc_core.errors import SourceError, TransientError
from pipelines.connector.partitions import partitions_name
from pipelines.factory import definitions_of
from pipelines.sensors import alerts
from pipelines.sensors.alerts import VARIABLE, AlertError, Watched
from pipelines.step import failure
from tests.pipelines.fake import ORDERS, FakeEngine, merge, round_of, site
from tests.pipelines.webhook import webhook

pytestmark = pytest.mark.usefixtures("no_spark")


@pytest.fixture
def posted(monkeypatch):
    with webhook() as held:
        monkeypatch.setenv(VARIABLE, held.url)
        yield held


def sensor(name):
    (found,) = [one for one in alerts.alert_sensors() if one.name == name]
    return found


def stream(engine, instance):
    job = definitions_of([site(engine)]).resolve_job_def("shop_stream_job")
    return job.execute_in_process(instance=instance, raise_on_error=False)


def test_without_an_address_there_are_no_sensors(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert alerts.alert_sensors() == []
    monkeypatch.setenv(VARIABLE, "http://127.0.0.1:1/x")
    names = {one.name for one in definitions_of([site(FakeEngine())]).sensors}
    assert {"wal2lake_run_failures", "wal2lake_check_failures"} <= names


@pytest.mark.parametrize("error", [SourceError, TransientError])
def test_a_failed_run_is_posted_with_the_engines_sentence(instance, posted, monkeypatch, error):
    monkeypatch.setattr(failure, "RETRIES", dg.RetryPolicy(max_retries=1, delay=0))
    here = site(FakeEngine(error=error("Table people is locked.", "Wait.")))
    instance.add_dynamic_partitions(partitions_name(here), [str(ORDERS)])
    job = definitions_of([here]).resolve_job_def("shop_snapshot_job")
    result = job.execute_in_process(instance=instance, raise_on_error=False, partition_key=str(ORDERS))
    context = dg.build_run_status_sensor_context(
        "wal2lake_run_failures", result.get_run_failure_event(), instance, result.dagster_run
    ).for_run_failure()
    sensor("wal2lake_run_failures")(context)
    (alert,) = posted.alerts
    assert (alert["event"], alert["job"], alert["run_id"]) == ("run_failure", "shop_snapshot_job", result.run_id)
    assert alert["message"] == "Table people is locked. Wait."
    assert alert["text"].endswith("of shop_snapshot_job failed: Table people is locked. Wait.")


def test_a_check_that_begins_to_fail_is_posted_once_and_so_is_its_recovery(instance, posted):
    watch = sensor("wal2lake_check_failures")

    def look(cursor):
        context = dg.build_sensor_context(instance=instance, cursor=cursor)
        watch(context)
        return context.cursor

    stream(FakeEngine(rounds=(round_of(merge(ORDERS, failed=1)),)), instance)
    cursor = look(None)
    assert posted.alerts == []  # what failed before the sensor watched
    stream(FakeEngine(rounds=(round_of(merge(ORDERS, failed=2)),)), instance)
    cursor = look(cursor)
    told = {(one["event"], one["check"]) for one in posted.alerts}
    assert ("check_failure", "shop/lake/public/orders:rules") in told
    assert not [one for one in posted.alerts if one["check"].endswith(":merged")]
    count = len(posted.alerts)
    stream(FakeEngine(rounds=(round_of(merge(ORDERS, failed=2)),)), instance)
    cursor = look(cursor)
    assert len(posted.alerts) == count
    stream(FakeEngine(rounds=(round_of(merge(ORDERS)),)), instance)
    look(cursor)
    assert {one["event"] for one in posted.alerts[count:]} == {"check_recovery"}
    assert len(posted.alerts) == 2 * count


def test_an_address_that_is_away_keeps_the_alert_for_later_and_is_not_shown(instance, posted):
    stream(FakeEngine(rounds=(round_of(merge(ORDERS, failed=1)),)), instance)
    posted.status = 503
    context = dg.build_sensor_context(instance=instance, cursor=Watched(0).text())
    with pytest.raises(AlertError, match="answered 503") as caught:
        sensor("wal2lake_check_failures")(context)
    assert "secret" not in str(caught.value)
    posted.status = 200
    again = dg.build_sensor_context(instance=instance, cursor=context.cursor)
    sensor("wal2lake_check_failures")(again)
    # The table's rules, its expectations and its quarantine, and the expectations of the changes.
    assert len(posted.alerts) == 4
