"""Incremental snapshots as partitions by range: runs of them in process, their schedule, their partitions."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import dagster as dg
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from cdc_core.errors import SourceError
from tests.pipelines.fake import ORDERS, PEOPLE, FakeEngine, site, table_status
from tests.support.waits import wait_until
from wal2lake.pipelines.assets import incremental_events
from wal2lake.pipelines.assets.snapshots import READ_AGAIN_TAG
from wal2lake.pipelines.connector import pause
from wal2lake.pipelines.connector.keys import changes_key, incremental_key, lake_key
from wal2lake.pipelines.connector.partitions import neighbours, ranges_name
from wal2lake.pipelines.connector.site import SnapshotPlan
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.jobs.connector import incremental_job_name
from wal2lake.pipelines.jobs.schedules import schedule_name, schedules
from wal2lake.pipelines.jobs.slot_runs import consumes_slot
from wal2lake.pipelines.sensors.connector import discovery_sensor

pytestmark = pytest.mark.usefixtures("no_spark")

engine_of = partial(FakeEngine, ranges=3)
RANGES = [f"{table}|000{number}" for table in (ORDERS, PEOPLE) for number in (1, 2, 3)]
FIRST, LAST = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


@pytest.fixture
def kept() -> Iterator[dg.DagsterInstance]:
    """An instance on disk, as a schedule's tick needs it."""
    with dg.DagsterInstance.local_temp() as held:
        yield held


def run(here, instance, first=RANGES[0], last=RANGES[2], **tags):
    instance.add_dynamic_partitions(ranges_name(here), RANGES)
    job = definitions_of([here]).resolve_job_def("shop_incremental_snapshot_job")
    given = {FIRST: first, LAST: last, **tags}
    return job.execute_in_process(instance=instance, tags=given, raise_on_error=False)


def done(instance, here):
    return instance.get_materialized_partitions(incremental_key(here))


def failure_of(result):
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    return failed.event_specific_data.user_failure_data.description


def test_ranges_turn_green_one_after_another_with_progress_meanwhile(instance, monkeypatch):
    monkeypatch.setattr(incremental_events, "PROGRESS_SECONDS", 0.0)
    seen = []

    def at_work(one, on_progress):
        observed = lambda: instance.fetch_observations(incremental_key(here), limit=9).records  # noqa: E731
        wait_until(lambda: len(observed()) >= one.number and len(done(instance, here)) == one.number - 1)
        seen.append(done(instance, here))

    here = site(engine_of(snapshots=at_work, statuses=(table_status(ORDERS),)))
    assert run(here, instance).success
    assert seen == [set(), {RANGES[0]}, set(RANGES[:2])]
    assert done(instance, here) == set(RANGES[:3])
    (run_of_ranges,) = instance.get_runs()
    assert run_of_ranges.tags["wal2lake/run"] == "incremental snapshot of public.orders: 3 ranges"
    records = instance.fetch_observations(incremental_key(here), limit=9, ascending=True).records
    told = records[0].asset_observation
    assert told.description == (
        "public.orders: 100 of about 500 rows, 1 of 3 ranges read, 0 in the lake, 10 rows/s, about 40 s left"
    )
    numbers = {name: value.value for name, value in told.metadata.items()}
    assert (numbers["rows"], numbers["ranges"], numbers["rows_left"], numbers["seconds_left"]) == (100, 3, 400, 40)
    made = instance.get_latest_materialization_event(lake_key(here, ORDERS)).asset_materialization
    assert made.metadata["lsn"].value == str(table_status(ORDERS).lake_lsn)


def test_a_range_that_failed_is_read_again_alone(instance):
    engine = engine_of(error=SourceError("The connection was cut.", "Try again."))
    engine.tables = list
    engine.plan_incremental = lambda tables=None: engine_of().plan_incremental(tables)
    here = site(engine)
    assert not run(here, instance).success
    assert done(instance, here) == set(RANGES[:2])
    engine.error = None
    assert run(here, instance, RANGES[2], RANGES[2]).success
    assert engine.calls == [("incremental", tuple(RANGES[:3])), ("incremental", (RANGES[2],))]
    assert done(instance, here) == set(RANGES[:3])


def test_a_run_that_crashed_is_retried_with_the_ranges_that_it_had_not_finished(instance):
    engine = engine_of(error=SourceError("As if it had been killed.", "Try again."))
    engine.plan_incremental = lambda tables=None: engine_of().plan_incremental(tables)
    here = site(engine)
    crashed = run(here, instance).run_id
    engine.error = None
    # As Dagster's daemon tags the run that it launches after a crash.
    again = {"dagster/retry_number": "1", "dagster/parent_run_id": crashed, "dagster/root_run_id": crashed}
    assert run(here, instance, **again).success
    assert [ranges for _, ranges in engine.calls] == [tuple(RANGES[:3]), (RANGES[2],)]


def test_a_range_that_is_not_in_the_lake_at_the_end_fails_the_run_and_is_not_green(instance):
    here = site(engine_of(refusals={RANGES[1]: "public.orders is paused"}))
    result = run(here, instance)
    assert failure_of(result) == f"1 of 3 ranges are not in the lake yet: {RANGES[1]}: public.orders is paused"
    assert done(instance, here) == {RANGES[0], RANGES[2]}


def test_ranges_of_a_key_that_was_divided_again_are_left_out(instance):
    engine = FakeEngine(ranges=2)
    here = site(engine)
    assert run(here, instance).success
    assert engine.calls == [("incremental", tuple(RANGES[:2]))]
    assert "No such range: public.orders|0003." in failure_of(run(here, instance, RANGES[2], RANGES[2]))


def test_a_backfill_of_all_assets_reads_nothing_unless_it_is_asked_to(instance):
    """*Materialize all* of the graph brings up to date what is there; it does not read every table again."""

    def backfill(name, assets):
        instance.add_backfill(
            PartitionBackfill(
                backfill_id=name,
                status=BulkActionStatus.REQUESTED,
                from_failure=False,
                tags={},
                backfill_timestamp=time.time(),
                asset_selection=assets,
                serialized_asset_backfill_data="{}",
            )
        )
        return {"dagster/backfill": name}

    engine = engine_of()
    here = site(engine)
    mine, every = [incremental_key(here)], [incremental_key(here), changes_key(here)]
    assert run(here, instance, **backfill("every", every)).success
    assert engine.calls == []
    assert done(instance, here) == set(RANGES[:3]), "they are reported as they are in the lake"
    assert run(here, instance, **backfill("asked", every), **{READ_AGAIN_TAG: "true"}).success
    assert run(here, instance, **backfill("mine", mine)).success
    assert engine.calls == [("incremental", tuple(RANGES[:3]))] * 2


def test_it_runs_beside_the_stream(instance):
    here = site(engine_of())
    assert run(here, instance).success
    (held,) = instance.get_runs()
    assert not consumes_slot(held, here)
    node = definitions_of([here]).resolve_asset_graph().get(incremental_key(here))
    assert node.pools == {here.ranges_pool} != {here.pool}
    assert node.backfill_policy == dg.BackfillPolicy.single_run()


def test_the_sensor_adds_the_ranges_of_each_table_and_replaces_those_of_other_plans(instance):
    engine = FakeEngine(captured=(ORDERS,), ranges=2)
    here = site(engine)

    def tick(cursor=None):
        result = discovery_sensor(here)(dg.build_sensor_context(instance=instance, cursor=cursor))
        for request in getattr(result, "dynamic_partitions_requests", None) or ():
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                instance.add_dynamic_partitions(request.partitions_def_name, request.partition_keys)
            else:
                for key in request.partition_keys:
                    instance.delete_dynamic_partition(request.partitions_def_name, key)
        return getattr(result, "cursor", None), instance.get_dynamic_partitions(ranges_name(here))

    cursor, found = tick()
    assert found == RANGES[:2]
    engine.ranges = 1
    assert tick(cursor)[1] == RANGES[:2], "a plan is stable, so it is not looked at in every tick"
    assert tick("0")[1] == RANGES[:1]
    engine.captured = (ORDERS, PEOPLE)
    assert tick(cursor)[1] == [RANGES[0], RANGES[3]], "a table without ranges is looked at"


def tick_of(here, instance):
    schedule = definitions_of([here]).get_repository_def().get_schedule_def(schedule_name(here))
    at = datetime(2026, 1, 1, 4, tzinfo=UTC)
    context = dg.build_schedule_context(instance=instance, scheduled_execution_time=at)
    return schedule.evaluate_tick(context)


def test_the_schedule_is_stopped_until_it_is_configured():
    (usual,) = schedules(site(engine_of()))
    assert (usual.default_status, usual.cron_schedule) == (dg.DefaultScheduleStatus.STOPPED, "0 3 * * 0")
    plan = SnapshotPlan("0 4 * * *", "Europe/Berlin", ("public.orders",))
    (configured,) = schedules(site(engine_of(), plan=plan))
    assert configured.default_status is dg.DefaultScheduleStatus.RUNNING
    assert (configured.cron_schedule, configured.execution_timezone) == ("0 4 * * *", "Europe/Berlin")
    assert configured.job_name == "shop_incremental_snapshot_job"


def test_a_tick_materializes_the_ranges_of_its_tables_by_pattern(kept):
    here = site(engine_of(), plan=SnapshotPlan("0 4 * * *", tables=(r"public\.p.*",)))
    assert "no table of" in tick_of(here, kept).skip_message
    kept.add_dynamic_partitions(ranges_name(here), RANGES)
    (request,) = tick_of(here, kept).run_requests
    assert (request.tags[FIRST], request.tags[LAST]) == (RANGES[3], RANGES[5])
    both = site(engine_of(), plan=SnapshotPlan("0 4 * * *"))
    (request,) = tick_of(both, kept).run_requests
    assert (request.tags[FIRST], request.tags[LAST]) == (RANGES[0], RANGES[5])


def test_a_tick_skips_tables_that_are_still_being_read_and_says_so(kept):
    here = site(engine_of(), plan=SnapshotPlan("0 4 * * *"))
    kept.add_dynamic_partitions(ranges_name(here), RANGES)
    job = definitions_of([here]).resolve_job_def(incremental_job_name(here))
    reading = kept.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, tags={FIRST: RANGES[1], LAST: RANGES[2]})
    (request,) = tick_of(here, kept).run_requests
    assert (request.tags[FIRST], request.tags[LAST]) == (RANGES[3], RANGES[5])
    orders = site(engine_of(), plan=SnapshotPlan("0 4 * * *", tables=("public.orders",)))
    skipped = tick_of(orders, kept).skip_message
    assert skipped == f"run {reading.run_id} is still reading public.orders: nothing else is to be read"
    kept.report_run_canceled(reading)
    assert len(tick_of(orders, kept).run_requests) == 1


def test_a_tick_without_tables_reads_those_of_the_include_list(kept):
    plan, reads = SnapshotPlan("0 4 * * *"), lambda table: table == PEOPLE
    here = site(engine_of(), plan=plan, reads=reads)
    kept.add_dynamic_partitions(ranges_name(here), RANGES)
    (request,) = tick_of(here, kept).run_requests
    assert (request.tags[FIRST], request.tags[LAST]) == (RANGES[3], RANGES[5])
    named = site(engine_of(), plan=replace(plan, tables=("public.orders",)), reads=reads)
    (request,) = tick_of(named, kept).run_requests
    assert (request.tags[FIRST], request.tags[LAST]) == (RANGES[0], RANGES[2]), "what is named is read"
    for read, collections in ((reads, [str(PEOPLE)]), (lambda table: True, [".*"])):
        alone = site(engine_of(), plan=plan, reads=read, sinks=("kafka",))
        (request,) = tick_of(alone, kept).run_requests
        assert request.run_config["ops"]["shop_signal"]["config"]["data_collections"] == collections


def test_a_paused_connector_has_no_tick(kept, tmp_path):
    here = replace(site(engine_of(), plan=SnapshotPlan("0 4 * * *")), state_path=tmp_path)
    kept.add_dynamic_partitions(ranges_name(here), RANGES)
    pause.write(tmp_path, "an upgrade", "run")
    assert "an upgrade; run shop_resume_job to resume it" in tick_of(here, kept).skip_message
    pause.end(tmp_path)
    assert len(tick_of(here, kept).run_requests) == 1


def test_a_connector_of_kafka_alone_has_its_stream_read_the_tables(kept):
    here = site(engine_of(), plan=SnapshotPlan("0 4 * * *", tables=("public.orders",)), sinks=("kafka",))
    (request,) = tick_of(here, kept).run_requests
    job = definitions_of([here]).resolve_job_def("shop_signal_job")
    assert job.execute_in_process(run_config=request.run_config, instance=kept).success
    (call,) = here.open().calls
    assert call == ("signal", "execute-snapshot", '{"type": "incremental", "data-collections": ["public.orders"]}')


def test_keys_that_follow_each_other_are_one_run():
    assert list(neighbours("abcdefg", {"a", "b", "d", "f", "g"})) == [("a", "b"), ("d", "d"), ("f", "g")]
    assert list(neighbours("ab", set())) == []
