import json
import threading
import time
from itertools import chain, repeat
from types import SimpleNamespace

import dagster as dg
import pytest

from cdc_core.errors import SourceError
from cdc_core.lsn import Lsn
from tests.pipelines.fake import ORDERS, PEOPLE, Backlog, FakeEngine, merge, round_of, site
from tests.support.waits import patient
from wal2lake.pipelines.connector import catalogue
from wal2lake.pipelines.connector.partitions import partitions_name
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.jobs.slot_runs import RETRY_SECONDS, YieldPolicy, run_to_come
from wal2lake.pipelines.sensors.connector import Attempt, decide, discovery_sensor, is_dead, slot_sensor


def evaluate(sensor, instance, cursor=None):
    return sensor(dg.build_sensor_context(instance=instance, cursor=cursor))


def test_tables_become_partitions_once_and_are_kept_in_the_catalogue(instance, tmp_path):
    known = site(FakeEngine(captured=(ORDERS, PEOPLE)), tmp_path)
    result = evaluate(discovery_sensor(known), instance)
    (request,) = result.dynamic_partitions_requests
    assert request.partition_keys == ["public.orders", "public.people"]
    assert request.partitions_def_name == partitions_name(known)
    assert [table.id for table in catalogue.read(tmp_path)] == [ORDERS, PEOPLE]

    instance.add_dynamic_partitions(partitions_name(known), ["public.orders"])
    (request,) = evaluate(discovery_sensor(known), instance).dynamic_partitions_requests
    assert request.partition_keys == ["public.people"]
    instance.add_dynamic_partitions(partitions_name(known), ["public.people"])
    assert "no new partitions" in evaluate(discovery_sensor(known), instance).skip_message


def test_new_tables_have_the_code_location_loaded_again_or_say_what_to_press(instance, tmp_path, monkeypatch):
    monkeypatch.setattr("wal2lake.pipelines.sensors.reload._AFTER_SECONDS", 0.0)
    asked = threading.Event()
    client = SimpleNamespace(reload_code=lambda timeout: asked.set())
    engine = FakeEngine(captured=(ORDERS, PEOPLE))
    known = site(engine, tmp_path, known=(ORDERS,))
    instance.add_dynamic_partitions(partitions_name(known), ["public.orders", "public.people"])
    context = dg.build_sensor_context(instance=instance)
    # As the code servers of `dagster dev` and `dagster code-server start` are known to their sensors.
    context._code_location_origin = SimpleNamespace(create_client=lambda: client)
    assert "the code location is reloaded" in discovery_sensor(known)(context).skip_message
    assert asked.wait(patient(60))
    # Once a change: a code server that cannot reload is not asked again and again.
    assert "press Reload definitions" in discovery_sensor(known)(context).skip_message
    assert "press Reload definitions" in evaluate(discovery_sensor(known), instance).skip_message
    shown = site(engine, tmp_path, known=(ORDERS, PEOPLE))
    assert evaluate(discovery_sensor(shown), instance).skip_message == "2 tables, no new partitions"


def test_partitions_of_tables_that_are_no_longer_captured_are_deleted(instance, tmp_path):
    engine = FakeEngine(captured=(ORDERS,))
    known = site(engine, tmp_path)
    instance.add_dynamic_partitions(partitions_name(known), ["public.gone", "public.people"])
    added, deleted = evaluate(discovery_sensor(known), instance).dynamic_partitions_requests
    assert added.partition_keys == ["public.orders"]
    assert deleted.partition_keys == ["public.gone", "public.people"]
    instance.add_dynamic_partitions(partitions_name(known), ["public.orders"])
    for key in deleted.partition_keys:
        instance.delete_dynamic_partition(partitions_name(known), key)
    assert "no new partitions" in evaluate(discovery_sensor(known), instance).skip_message
    # Dropped and created again: its partition is back.
    engine.captured = (ORDERS, PEOPLE)
    (added,) = evaluate(discovery_sensor(known), instance).dynamic_partitions_requests
    assert added.partition_keys == ["public.people"]
    # A server that cannot be reached, or captures nothing, deletes nothing.
    engine.error = SourceError("No server at 127.0.0.1:1.", "Start it.")
    assert "No server" in evaluate(discovery_sensor(known), instance).skip_message


@pytest.mark.parametrize("sensor", [discovery_sensor, slot_sensor])
def test_a_server_that_is_down_is_a_reason_to_skip(instance, tmp_path, sensor):
    down = site(FakeEngine(error=SourceError("No server at 127.0.0.1:1.", "Start it.")), tmp_path)
    assert evaluate(sensor(down), instance).skip_message == "No server at 127.0.0.1:1. Start it."


@pytest.mark.parametrize(
    ("backlog", "message"),
    [(Backlog(slot_exists=False), "take a snapshot first"), (Backlog(has_changes=False), "no backlog")],
)
def test_without_slot_or_backlog_no_run_starts(backlog, message):
    assert message in decide(site(FakeEngine()), backlog, Attempt(), 0.0).skip_message


def test_a_backlog_starts_one_run_with_the_slot_as_tag(instance):
    result = evaluate(slot_sensor(site(FakeEngine())), instance)
    (request,) = result.run_requests
    assert request.tags["wal2lake/slot"] == site(FakeEngine()).pool
    assert json.loads(result.cursor)["confirmed"] == 100


def test_a_run_that_brings_the_slot_no_further_is_tried_again_at_growing_distance():
    here = site(FakeEngine())
    cursor, starts = Attempt(), []
    for second in range(200):
        result = decide(here, Backlog(), cursor, float(second))
        if isinstance(result, dg.SensorResult):
            starts.append(second)
            cursor = Attempt.parse(result.cursor)
    assert starts == [0, 15, 45, 105]
    moved = decide(here, Backlog(confirmed_lsn=Lsn(101)), cursor, 106.0)
    assert Attempt.parse(moved.cursor).attempts == 1


def test_a_cursor_that_is_not_ours_is_forgotten():
    assert Attempt.parse("nonsense") == Attempt() == Attempt.parse('{"x": 1}') == Attempt.parse(None)


@pytest.mark.parametrize("job", ["shop_stream_job", "shop_snapshot_job"])
@pytest.mark.parametrize("status", [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED])
def test_an_unfinished_run_of_the_slot_keeps_the_sensor_quiet(instance, job, status):
    here = site(FakeEngine())
    definition = definitions_of([here]).resolve_job_def(job)
    run = instance.create_run_for_job(definition, status=status, tags={})
    assert f"run {run.run_id} of the slot" in evaluate(slot_sensor(here), instance).skip_message


def test_a_backfill_of_the_snapshot_keeps_the_sensor_quiet_and_another_connector_does_not(instance):
    here, other = site(FakeEngine()), site(FakeEngine(), name="other")
    definitions = definitions_of([here, other])
    job = definitions.resolve_implicit_global_asset_job_def()
    instance.create_run_for_job(
        job, status=dg.DagsterRunStatus.STARTED, asset_selection=frozenset([dg.AssetKey(["other", "snapshot"])])
    )
    assert evaluate(slot_sensor(here), instance).run_requests
    assert "is not finished" in evaluate(slot_sensor(other), instance).skip_message


def test_a_connector_is_paused_in_the_ui_until_it_is_resumed(instance, no_spark):
    seen = []

    def script(on_batch, on_round, should_stop):
        press("pause", ops={"shop_pause": {"config": {"reason": "the lake is moved"}}})
        deadline = time.monotonic() + patient(60)
        while not should_stop() and time.monotonic() < deadline:
            time.sleep(0.05)
        seen.append(should_stop())

    def press(name, **config):
        job = definitions_of([here]).resolve_job_def(f"shop_{name}_job")
        return job.execute_in_process(instance=instance, run_config=config)

    here = site(FakeEngine(script=script))
    assert press("stream").success
    assert seen == [True], "a running stream ends after its round"
    skipped = evaluate(slot_sensor(here), instance).skip_message
    assert skipped.endswith(": the lake is moved; run shop_resume_job to resume it"), skipped
    # What is launched by hand meanwhile runs, a run that the sensor had asked for before ends.
    later = time.time() + 10
    assert not reason_to_end(instance, here, later, heeds_pause=False)
    assert "is paused since" in reason_to_end(instance, here, later, heeds_pause=True)
    press("resume")
    assert evaluate(slot_sensor(here), instance).run_requests
    press("resume")  # twice does no harm


def reason_to_end(instance, here, started, heeds_pause):
    clock = chain([started], repeat(started + 60))
    return YieldPolicy(instance, "a run", here, lambda: next(clock), heeds_pause=heeds_pause).reason()


def test_a_run_whose_process_was_removed_is_ended_so_that_another_can_start(instance):
    engine = FakeEngine()
    here = site(engine)
    run = instance.create_run_for_job(
        definitions_of([here]).resolve_job_def("shop_stream_job"), status=dg.DagsterRunStatus.STARTED
    )
    context = dg.build_sensor_context(instance=instance)
    assert "is not finished" in slot_sensor(here)(context).skip_message
    seen = Attempt.parse(context.cursor)
    assert seen.idle_run == run.run_id

    long_ago = json.dumps({"idle_run": run.run_id, "idle_since": seen.idle_since - 1000})
    engine.backlog.is_claimed = True
    at_work = dg.build_sensor_context(instance=instance, cursor=long_ago)
    assert "is not finished" in slot_sensor(here)(at_work).skip_message
    assert Attempt.parse(at_work.cursor).idle_run == ""

    engine.backlog.is_claimed = False
    assert "no longer exists" in evaluate(slot_sensor(here), instance, long_ago).skip_message
    assert instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.FAILURE
    assert evaluate(slot_sensor(here), instance).run_requests


def test_a_run_that_still_reports_is_not_dead(instance, monkeypatch):
    monkeypatch.setattr("wal2lake.pipelines.factory.spark_resource", lambda site: SimpleNamespace(spark_session=None))
    engine = FakeEngine(rounds=(round_of(merge(ORDERS)),))
    here = site(engine)
    result = definitions_of([here]).resolve_job_def("shop_stream_job").execute_in_process(instance=instance)
    run, now = instance.get_run_by_id(result.run_id), time.time()
    watched = Attempt(idle_run=run.run_id, idle_since=now - 10_000)
    assert not is_dead(instance, run, watched, now)
    assert is_dead(instance, run, watched, now + 1000)
    assert not is_dead(instance, run, Attempt(idle_run=run.run_id, idle_since=now), now)


def test_a_crashed_run_that_dagster_starts_again_is_not_started_twice(instance):
    here = site(FakeEngine())
    job = definitions_of([here]).resolve_job_def("shop_stream_job")
    run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    instance.report_run_failed(run, "Its process is gone.")
    assert evaluate(slot_sensor(here), instance).run_requests  # by these settings nobody tries it again
    instance.add_run_tags(run.run_id, {"dagster/will_retry": "true"})
    assert "will be retried by Dagster" in evaluate(slot_sensor(here), instance).skip_message
    assert run_to_come(instance, here, time.time() + RETRY_SECONDS) is None
    instance.add_run_tags(run.run_id, {"dagster/auto_retry_run_id": "another"})
    assert evaluate(slot_sensor(here), instance).run_requests


def test_a_run_that_has_just_crashed_is_not_started_before_dagster_has_decided(monkeypatch):
    """Dagster records the failure first, and whether it will retry the run after that."""
    here = site(FakeEngine())
    job = definitions_of([here]).resolve_job_def("shop_stream_job")
    with dg.DagsterInstance.ephemeral(settings={"run_retries": {"enabled": True, "max_retries": 2}}) as instance:
        run = instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
        found = []
        add_tags = dg.DagsterInstance.add_run_tags

        def looked_at_before(self, run_id, new_tags):
            found.append(evaluate(slot_sensor(here), instance).skip_message)
            add_tags(self, run_id, new_tags)

        monkeypatch.setattr(dg.DagsterInstance, "add_run_tags", looked_at_before)
        instance.report_run_failed(run, "Its process is gone.")
        assert "will be retried by Dagster" in found[-1]
        assert instance.get_run_by_id(run.run_id).tags["dagster/will_retry"] == "true"

        # One that it will not retry, for nobody else would.
        add_tags(instance, run.run_id, {"dagster/will_retry": "false"})
        assert evaluate(slot_sensor(here), instance).run_requests


def test_a_retry_that_is_launched_while_the_sensor_looks_is_seen(instance, monkeypatch):
    engine = FakeEngine()
    here = site(engine)
    job = definitions_of([here]).resolve_job_def("shop_stream_job")
    pending = engine.pending

    def launched_meanwhile():
        instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTING)
        return pending()

    monkeypatch.setattr(engine, "pending", launched_meanwhile)
    assert "is not finished" in evaluate(slot_sensor(here), instance).skip_message
