"""Failed runs and checks posted to a web server that a test holds."""

import dagster as dg
import pytest

from cdc_core.errors import SourceError, TransientError
from tests.pipelines.fake import ORDERS, PEOPLE, FakeEngine, merge, round_of, site
from tests.support.webhook import webhook
from wal2lake.pipelines.connector.partitions import partitions_name
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.sensors import alerts
from wal2lake.pipelines.sensors.alerts import VARIABLE, AlertError, Watched
from wal2lake.pipelines.step import failure

pytestmark = pytest.mark.usefixtures("no_spark")


@pytest.fixture
def posted(monkeypatch):
    with webhook() as held:
        monkeypatch.setenv(VARIABLE, held.url)
        yield held


def sensor(name):
    (found,) = [one for one in alerts.alert_sensors() if one.name == name]
    return found


def stream(engine, instance, **more):
    job = definitions_of([site(engine, **more)]).resolve_job_def("shop_stream_job")
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
        context = dg.build_sensor_context(
            instance=instance, cursor=cursor, definitions=definitions_of([site(FakeEngine())])
        )
        watch(context)
        return context.cursor

    stream(FakeEngine(rounds=(round_of(merge(ORDERS, failed=1)),)), instance)
    cursor = look(None)
    assert posted.alerts == []  # what failed before the sensor watched
    stream(FakeEngine(rounds=(round_of(merge(ORDERS, failed=2)),)), instance)
    cursor = look(cursor)
    # Not the check of the changes as well, which names the table's.
    (alert,) = posted.alerts
    assert (alert["event"], alert["check"]) == ("check_failure", "shop/lake/public/orders:great_expectations")
    assert "not_null:name: 2 of 5 rows are unexpected" in alert["text"]
    stream(FakeEngine(rounds=(round_of(merge(ORDERS, failed=2)),)), instance)
    cursor = look(cursor)
    assert len(posted.alerts) == 1
    stream(FakeEngine(rounds=(round_of(merge(ORDERS)),)), instance)
    cursor = look(cursor)
    assert [one["event"] for one in posted.alerts[1:]] == ["check_recovery"]
    # A table that the definitions do not have yet has no check of its own.
    stream(FakeEngine(rounds=(round_of(merge(PEOPLE, failed=2)),)), instance, known=(ORDERS,))
    look(cursor)
    assert [one["check"] for one in posted.alerts[2:]] == ["shop/changes:expectations"]


def test_an_address_that_is_away_keeps_the_alert_for_later_and_is_not_shown(instance, posted):
    stream(FakeEngine(rounds=(round_of(merge(ORDERS, failed=1)),)), instance)
    posted.status = 503
    definitions = definitions_of([site(FakeEngine())])
    context = dg.build_sensor_context(instance=instance, cursor=Watched(0).text(), definitions=definitions)
    with pytest.raises(AlertError, match="answered 503") as caught:
        sensor("wal2lake_check_failures")(context)
    assert "secret" not in str(caught.value)
    posted.status = 200
    again = dg.build_sensor_context(instance=instance, cursor=context.cursor, definitions=definitions)
    sensor("wal2lake_check_failures")(again)
    assert len(posted.alerts) == 1
